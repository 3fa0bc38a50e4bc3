/* perf_limits.c - what two cores can reach over the same mapping when they do nothing else: the
 * yardstick of --limits. exchange  each rank writes a cache line of the other's memory and polls
 * its own: nothing that tells both ranks that both came is faster. Two lines, one per direction, in
 * a small window of its own. loop      all_reduce: each rank adds its half of both inputs and
 * writes it to both outputs; all_gather: each rank copies the other's block and its own. No flag,
 * no wait: the ranks touch disjoint halves. Once with ordinary stores, once with stores past the
 * caches, whichever is faster counts. Each rank runs it in its own thread; the only shared words
 * are the two lines. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct perf_limits {
    void *lines;
    symmWindow_t win;
    _Atomic uint64_t *mine, *theirs;
    char *peer_send, *peer_recv; /* the other rank's buffers */
    uint64_t turn;
    int wide; /* 512-bit vectors */
};

void perf_limits_open(perf_rank *p) {
    int peer = 1 - p->world->rank;
    perf_limits *l = calloc(1, sizeof *l);
    void *at;
    if (!l) perf_must(p, symmOutOfMemory, "--limits");
    PERF_MUST(p, symmMemAlloc(&l->lines, 4096));
    PERF_MUST(p, symmWindowRegister(p->comm, l->lines, 4096, &l->win, 0));
    PERF_MUST(p, symmWindowPeerPtr(l->win, 0, p->world->rank, &at));
    l->mine = at;
    PERF_MUST(p, symmWindowPeerPtr(l->win, 0, peer, &at));
    l->theirs = at;
    PERF_MUST(p, symmWindowPeerPtr(p->send_win, 0, peer, (void **)&l->peer_send));
    PERF_MUST(p, symmWindowPeerPtr(p->recv_win, 0, peer, (void **)&l->peer_recv));
#if defined(__x86_64__)
    l->wide = __builtin_cpu_supports("avx512f");
#endif
    p->limits = l;
}

void perf_limits_close(perf_rank *p) {
    if (!p->limits) return;
    PERF_MUST(p, symmWindowDeregister(p->comm, p->limits->win));
    PERF_MUST(p, symmMemFree(p->limits->lines));
    free(p->limits);
    p->limits = NULL;
}

static inline void pause_core(void) {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

/* The release pairs with the acquire of the other rank's poll. Two ranks on one core must yield, or
 * each waits out the other's slice. */
static void exchange(perf_limits *l, int k) {
    for (int i = 0; i < k; i++) {
        uint64_t turn = ++l->turn;
        atomic_store_explicit(l->theirs, turn, memory_order_release);
        for (unsigned polls = 0; atomic_load_explicit(l->mine, memory_order_acquire) < turn;) {
            pause_core();
            if (++polls % 4096 == 0) sched_yield();
        }
    }
}

/* ---- one pass over n floats: out0[i] = out1[i] = a[i] + b[i] ---- */

static void add_plain(float *out0, float *out1, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float v = a[i] + b[i];
        out0[i] = v;
        out1[i] = v;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void add_512(float *out0, float *out1, const float *a,
                                                       const float *b, size_t n, int stream) {
    size_t i = 0;
    for (; (uintptr_t)(out0 + i) % 64 && i < n; i++) out0[i] = out1[i] = a[i] + b[i];
    int past = stream && (uintptr_t)(out1 + i) % 64 == 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i));
        if (past) {
            _mm512_stream_ps(out0 + i, v);
            _mm512_stream_ps(out1 + i, v);
        } else {
            _mm512_storeu_ps(out0 + i, v);
            _mm512_storeu_ps(out1 + i, v);
        }
    }
    for (; i < n; i++) out0[i] = out1[i] = a[i] + b[i];
    _mm_sfence();
}

/* 128-bit stores past the caches: every x86-64 has them. */
static void add_stream(float *out0, float *out1, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; (uintptr_t)(out0 + i) % 16 && i < n; i++) out0[i] = out1[i] = a[i] + b[i];
    if ((uintptr_t)(out1 + i) % 16 == 0)
        for (; i + 4 <= n; i += 4) {
            __m128 v = _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i));
            _mm_stream_ps(out0 + i, v);
            _mm_stream_ps(out1 + i, v);
        }
    for (; i < n; i++) out0[i] = out1[i] = a[i] + b[i];
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void copy_512(char *out, const char *in, size_t n) {
    size_t i = 0;
    for (; (uintptr_t)(out + i) % 64 && i < n; i++) out[i] = in[i];
    for (; i + 64 <= n; i += 64)
        _mm512_stream_si512((__m512i *)(out + i), _mm512_loadu_si512(in + i));
    for (; i < n; i++) out[i] = in[i];
    _mm_sfence();
}

static void copy_128(char *out, const char *in, size_t n) {
    size_t i = 0;
    for (; (uintptr_t)(out + i) % 16 && i < n; i++) out[i] = in[i];
    for (; i + 16 <= n; i += 16)
        _mm_stream_si128((__m128i *)(out + i), _mm_loadu_si128((const __m128i *)(in + i)));
    for (; i < n; i++) out[i] = in[i];
    _mm_sfence();
}
#endif

static void add(const perf_limits *l, float *out0, float *out1, const float *a, const float *b,
                size_t n, int stream) {
#if defined(__x86_64__)
    if (l->wide) return add_512(out0, out1, a, b, n, stream);
    if (stream) return add_stream(out0, out1, a, b, n);
#else
    (void)l, (void)stream;
#endif
    add_plain(out0, out1, a, b, n);
}

static void copy(const perf_limits *l, char *out, const char *in, size_t n, int stream) {
#if defined(__x86_64__)
    if (stream) return l->wide ? copy_512(out, in, n) : copy_128(out, in, n);
#else
    (void)l, (void)stream;
#endif
    memcpy(out, in, n);
}

/* ---- the collectives, bare ---- */

/* Where the other rank's buffer of this case lies: as far into its allocation as ours is into ours.
 */
static char *peer_of(const perf_rank *p, const char *mine) {
    int in_recv = mine >= p->recv && mine < p->recv + p->recv_bytes;
    return in_recv ? p->limits->peer_recv + (mine - p->recv)
                   : p->limits->peer_send + (mine - p->send);
}

static void bare_reduce(perf_rank *p, const perf_case *c, int stream) {
    size_t half = c->count / 2, first = p->world->rank ? half : 0,
           n = p->world->rank ? c->count - half : half;
    const float *a = (const float *)c->send + first,
                *b = (const float *)peer_of(p, c->send) + first;
    add(p->limits, (float *)c->recv + first, (float *)peer_of(p, c->recv) + first, a, b, n, stream);
}

static void bare_gather(perf_rank *p, const perf_case *c, int stream) {
    size_t block = c->count * perf_type_size(c->type);
    int rank = p->world->rank, peer = 1 - rank;
    /* In place the other's block lies where it sends from, one block away from ours. */
    const char *theirs =
        c->in_place ? peer_of(p, c->recv) + (size_t)peer * block : peer_of(p, c->send);
    copy(p->limits, c->recv + (size_t)peer * block, theirs, block, stream);
    if (!c->in_place) copy(p->limits, c->recv + (size_t)rank * block, c->send, block, stream);
}

void perf_limits_loop(perf_rank *p, const perf_case *c, int which, int k) {
    if (which == PERF_LIMIT_EXCHANGE) return exchange(p->limits, k);
    int stream = which == PERF_LIMIT_LOOP_STREAM;
    for (int i = 0; i < k; i++) {
        if (perf_reduces(p->cfg))
            bare_reduce(p, c, stream);
        else
            bare_gather(p, c, stream);
    }
}
