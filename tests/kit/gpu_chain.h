/* gpu_chain.h - calls that depend on each other, whose result is known to the bit however many
 * there were: each multiplies a range of one buffer, the same on all ranks, by an odd number modulo
 * 2^bits (premulsum in place). An odd factor loses nothing, so a word that was wrong once, or a
 * call that ran twice or not at all, is seen whenever the buffer is looked at.
 *
 * Each rank's thread has its own; no lock. */
#ifndef GPU_CHAIN_H_
#define GPU_CHAIN_H_

#include "gpu_kit.h"

typedef struct {
    symmComm_t comm;
    symmRedOp_t op;
    symmDataType_t type;
    int n;
    uint32_t factor; /* sum of all ranks' scalars, odd */
    size_t es;
    uint64_t words;
    char *dev, *host;
    int64_t *times; /* [words + 1]: differences of how often each word was multiplied */
} gk_chain;

static inline uint32_t gk_chain_scalar(int rank, int n) {
    if (rank) return 2u * (unsigned)rank + 3u;
    return n % 2 ? 3u : 2u; /* so that the sum is odd */
}
static inline uint64_t gk_chain_first(uint64_t i) {
    return ck_hash(7, i, 7);
}

/* dev: memory for `words` elements; filled behind what is in the stream. While nothing runs that
 * must not wait. */
static inline gk_chain gk_chain_new(symmComm_t comm, int rank, int n, symmDataType_t type,
                                    void *dev, uint64_t words, cu_stream stream) {
    gk_chain c = {.comm = comm, .type = type, .n = n, .words = words, .dev = dev};
    uint64_t scalar = gk_chain_scalar(rank, n);
    c.es = symm_type_size((unsigned)type);
    for (int r = 0; r < n; r++) c.factor += gk_chain_scalar(r, n);
    T_CHECK(c.factor & 1 && !ck_is_float((int)type));
    T_OK(symmRedOpCreatePreMulSum(&c.op, &scalar, type, symmScalarHostImmediate, comm));
    c.host = gk_pinned(words * c.es);
    c.times = calloc(words + 1, sizeof *c.times);
    T_CHECK(c.times != NULL);
    for (uint64_t i = 0; i < words; i++) {
        uint64_t v = gk_chain_first(i);
        memcpy(c.host + i * c.es, &v, c.es);
    }
    gk_put(stream, c.dev, c.host, words * c.es);
    gk_wait(comm, stream);
    return c;
}
static inline void gk_chain_free(gk_chain *c) {
    T_OK(symmRedOpDestroy(c->op, c->comm));
    gk_free_pinned(c->host);
    free(c->times);
}

/* The words [at, at + count) were, or will be, multiplied `times` times. */
static inline void gk_chain_note(gk_chain *c, uint64_t at, uint64_t count, int64_t times) {
    c->times[at] += times;
    c->times[at + count] -= times;
}
/* The call itself, uncounted: what a capture records. */
static inline void gk_chain_issue(gk_chain *c, uint64_t at, uint64_t count, cu_stream stream) {
    char *p = c->dev + at * c->es;
    T_OK(symmAllReduce(p, p, count, c->type, c->op, c->comm, gk_stream(stream)));
}
static inline void gk_chain_call(gk_chain *c, uint64_t at, uint64_t count, cu_stream stream) {
    gk_chain_issue(c, at, count, stream);
    gk_chain_note(c, at, count, 1);
}

static inline uint64_t gk_power(uint64_t base, uint64_t times) {
    uint64_t out = 1;
    for (; times; times >>= 1, base *= base)
        if (times & 1) out *= base;
    return out;
}

/* Element i of what `times` says of it. */
static inline void gk_chain_want(const gk_chain *c, uint64_t i, uint64_t power, uint64_t *want) {
    uint64_t v = gk_chain_first(i) * power;
    *want = 0;
    memcpy(want, &v, c->es);
}

/* The words [at, at + count) are at `what`, in device memory, as the chain has them, each
 * multiplied `more` times more (or less). */
static inline void gk_chain_same(gk_chain *c, const void *what, uint64_t at, uint64_t count,
                                 int64_t more, cu_stream stream, const char *name) {
    int64_t times = 0, last = -1;
    uint64_t power = 1, got = 0, want;
    gk_get(c->comm, stream, c->host, what, count * c->es);
    for (uint64_t i = 0; i < at + count; i++) {
        times += c->times[i];
        if (i < at) continue;
        if (times + more != last) power = gk_power(c->factor, (uint64_t)(last = times + more));
        gk_chain_want(c, i, power, &want);
        memcpy(&got, c->host + (i - at) * c->es, c->es);
        T_CHECKF(got == want,
                 "%s: word %llu of %llu is %#llx, must be %#llx (multiplied %lld times)", name,
                 (unsigned long long)i, (unsigned long long)c->words, (unsigned long long)got,
                 (unsigned long long)want, (long long)last);
    }
}
static inline void gk_chain_check(gk_chain *c, cu_stream stream) {
    gk_chain_same(c, c->dev, 0, c->words, 0, stream, "the chain");
}

/* A range drawn from h, small ones more often. */
static inline uint64_t gk_chain_range(const gk_chain *c, uint64_t h, uint64_t *count) {
    const uint64_t most = c->words >> (h >> 8) % 14;
    *count = 1 + (h >> 20) % (most ? most : 1);
    return (h >> 44) % (c->words - *count + 1);
}

#endif
