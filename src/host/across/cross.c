/* cross.c - messages between domains, and how the domains' partial results become one. The thread
 * that is inside the communicator; no lock. */
#include <sched.h>
#include <string.h>

#include "base/check.h"
#include "base/wait.h"
#include "device/host/reduce.h"
#include "across_gpu.h"

#define GRACE_NS 1000000000ull /* for what a rank has sent before it left */
/* Polls of the mover: between two looks at all else; between two times that the core is given away,
 * and that where ranks share cores. There MPI gives it away in most polls itself, if it knows. */
enum { LOOK_EVERY = 256, YIELD_EVERY = 16, YIELD_CROWDED = 4 };

static symm_net_end end_of(const symm_across_call *a, int rank) {
    SYMM_ASSERT(a->mark < 1u << SYMM_MARK_BITS);
    return (symm_net_end){.rank = rank, .way = SYMM_NET_CALLS, .mark = a->mark};
}

symmResult_t symm_cross_send(const symm_across_call *a, int rank, const void *from, size_t bytes) {
    symm_net *n = a->s->net;
    SYMM_ASSERT(a->s->map.domain_of[rank] != a->s->map.domain);
    if (a->s->gpu) return symm_across_gpu_message(a->s, rank, 1, from, bytes);
    return n->ops->send(n, end_of(a, rank), from, bytes);
}

symmResult_t symm_cross_receive(const symm_across_call *a, int rank, void *to, size_t bytes) {
    symm_net *n = a->s->net;
    SYMM_ASSERT(a->s->map.domain_of[rank] != a->s->map.domain);
    if (a->s->gpu) return symm_across_gpu_message(a->s, rank, 0, to, bytes);
    return n->ops->receive(n, end_of(a, rank), to, bytes);
}

static symmResult_t too_late(const symm_across *s, int rank) {
    return SYMM_ERR(symmTimeout,
                    "communicator %s: rank %d, of domain %d, neither sent nor took what it should "
                    "within %lld ms (SYMM_TIMEOUT)",
                    s->outer.name, rank, s->map.domain_of[rank], (long long)s->timeout_ms);
}

static symmResult_t gone(const symm_across *s, int rank) {
    return SYMM_ERR(symmRemoteError,
                    "communicator %s: rank %d, of domain %d, has destroyed it, and this call waits "
                    "for that rank",
                    s->outer.name, rank, s->map.domain_of[rank]);
}

/* What a wait for other domains looks at now and then. */
typedef struct {
    uint64_t moved_ns; /* when the last message was done, or the wait began */
    uint64_t gone_ns;  /* when the rank was first seen to have left; 0: it has not */
    int left;
} wait;

static symmResult_t look(symm_across *s, wait *w, int left, int rank) {
    const uint64_t now = symm_now_ns();
    SYMM_TRY(symm_across_look(s, 1));
    if (!w->moved_ns || left < w->left) *w = (wait){.moved_ns = now, .left = left};
    if (!w->gone_ns && s->net->ops->is_gone(s->net, rank)) w->gone_ns = now;
    if (w->gone_ns && now - w->gone_ns > GRACE_NS) return gone(s, rank);
    if (s->timeout_ms && now - w->moved_ns > (uint64_t)s->timeout_ms * 1000000u)
        return too_late(s, rank);
    return symmSuccess;
}

symmResult_t symm_cross_finish(symm_across *s) {
    wait w = {.moved_ns = 0};
    if (s->gpu) return symm_across_gpu_finish(s);
    for (uint32_t turn = 1;; turn++) {
        int left, rank;
        SYMM_TRY(s->net->ops->test(s->net, &left, &rank));
        if (!left) return symmSuccess;
        if (turn % (s->crowded ? YIELD_CROWDED : YIELD_EVERY) == 0) sched_yield();
        if (turn % YIELD_EVERY == 0 && s->users.fn) s->users.fn(s->users.arg);
        if (turn % LOOK_EVERY == 0) SYMM_TRY(look(s, &w, left, rank));
    }
}

symmResult_t symm_cross_copy(const symm_across *s, void *to, const void *from, size_t bytes) {
    if (s->gpu) return symm_across_gpu_copy(s, to, from, bytes);
    memcpy(to, from, bytes);
    return symmSuccess;
}

symmResult_t symm_cross_join(const symm_across_call *a, void *dst, char *const *others,
                             size_t count) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    SYMM_ASSERT(a->joins < SYMM_OP_AVG && (!count || dst));
    if (s->gpu) return symm_across_gpu_join(a, dst, others, count);
    for (int e = 0; e < d->ndomains; e++)
        s->from[e] = e == d->domain ? dst : others[e < d->domain ? e : e - 1];
    symm_reduce->reduce[a->k->type][a->joins](dst, s->from, d->ndomains, count, NULL);
    if (a->divides) symm_reduce->divide[a->k->type](dst, count, a->divides);
    return symmSuccess;
}

symmResult_t symm_cross_scalar(const symm_across_call *a, uint64_t *at) {
    SYMM_ASSERT(a->scaled);
    if (a->s->gpu) return symm_across_gpu_scalar(a, at);
    *at = a->scalar;
    if (a->scalar_at) memcpy(at, a->scalar_at, a->esize);
    return symmSuccess;
}

symmResult_t symm_cross_reduce(const symm_across_call *a, void *dst, const char *all, size_t count,
                               const uint64_t *scalars) {
    const symm_across *s = a->s;
    const int op = a->scaled ? SYMM_OP_PREMUL : (int)a->k->op;
    SYMM_ASSERT(a->scaled || op < SYMM_OP_PREMUL);
    if (!count) return symmSuccess;
    if (s->gpu) return symm_across_gpu_reduce(a, op, dst, all, count, a->scaled ? scalars : NULL);
    for (int q = 0; q < s->map.nranks; q++) s->from[q] = all + (size_t)q * count * a->esize;
    symm_reduce->reduce[a->k->type][op](dst, s->from, s->map.nranks, count, scalars);
    return symmSuccess;
}
