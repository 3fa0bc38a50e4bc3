/* perf_pattern.c - symm-perf: what is made of sends and receives, under nccl-tests' names, and of
 * puts. A row says what comes of a pattern as if it were a collective, so that buffers, checks and
 * tables need not know. Runs on each rank's thread; no lock. */
#include "perf.h"

static symmDataType_t type_of(const perf_case *c) {
    return (symmDataType_t)c->type;
}
static int beside(const perf_rank *p, int by) {
    return (p->world->rank + by + p->world->nranks) % p->world->nranks;
}

/* To the next rank, from the previous one. */
static void sendrecv(perf_rank *p, const perf_case *c) {
    PERF_MUST(p, symmGroupStart());
    PERF_MUST(p, symmSend(c->send, c->count, type_of(c), beside(p, 1), p->comm, p->stream));
    PERF_MUST(p, symmRecv(c->recv, c->count, type_of(c), beside(p, -1), p->comm, p->stream));
    PERF_MUST(p, symmGroupEnd());
}
static int previous(int rank, int nranks, int part) {
    (void)part;
    return (rank + nranks - 1) % nranks;
}

/* An all_gather: in step k the blocks of 2^k ranks go to the rank whose number differs in bit k.
 * The own block, where it is not in place, goes to this rank itself: on the stream, as the rest. */
static void hypercube(perf_rank *p, const perf_case *c) {
    const int rank = p->world->rank;
    const uint64_t block = c->count * perf_type_size(c->type);
    char *own = c->recv + (unsigned)rank * block;
    if (own != c->send) {
        PERF_MUST(p, symmGroupStart());
        PERF_MUST(p, symmSend(c->send, c->count, type_of(c), rank, p->comm, p->stream));
        PERF_MUST(p, symmRecv(own, c->count, type_of(c), rank, p->comm, p->stream));
        PERF_MUST(p, symmGroupEnd());
    }
    for (int mask = 1; mask < p->world->nranks; mask *= 2) {
        const unsigned mine = (unsigned)(rank & ~(mask - 1)), theirs = mine ^ (unsigned)mask;
        const uint64_t n = c->count * (unsigned)mask;
        PERF_MUST(p, symmGroupStart());
        PERF_MUST(p,
                  symmSend(c->recv + mine * block, n, type_of(c), rank ^ mask, p->comm, p->stream));
        PERF_MUST(
            p, symmRecv(c->recv + theirs * block, n, type_of(c), rank ^ mask, p->comm, p->stream));
        PERF_MUST(p, symmGroupEnd());
    }
}
static int each(int rank, int nranks, int part) {
    (void)rank, (void)nranks;
    return part;
}

/* There and back: the time is that of one message. */
static void pingpong(perf_rank *p, const perf_case *c) {
    const int peer = 1 - p->world->rank;
    if (!p->world->rank)
        PERF_MUST(p, symmSend(c->send, c->count, type_of(c), peer, p->comm, p->stream));
    PERF_MUST(p, symmRecv(c->recv, c->count, type_of(c), peer, p->comm, p->stream));
    if (p->world->rank)
        PERF_MUST(p, symmSend(c->send, c->count, type_of(c), peer, p->comm, p->stream));
}

/* As pingpong, by one-sided calls: each rank stores into the other's recv, and raises a signal. */
static void put(perf_rank *p, const perf_case *c) {
    const int peer = 1 - p->world->rank;
    const symmSignalWait_t one = {peer, 0, 1};
    const size_t at = (size_t)(c->recv - p->recv);
    if (p->world->rank) PERF_MUST(p, symmWaitSignal(1, &one, p->comm, p->stream));
    PERF_MUST(p, symmPutSignal(c->send, c->count, type_of(c), peer, p->recv_win, at, 0, p->comm,
                               p->stream));
    if (!p->world->rank) PERF_MUST(p, symmWaitSignal(1, &one, p->comm, p->stream));
}

/* An alltoall, as nccl-tests makes it. */
static void alltoall_sends(perf_rank *p, const perf_case *c) {
    const uint64_t block = c->count * perf_type_size(c->type);
    PERF_MUST(p, symmGroupStart());
    for (int r = 0; r < p->world->nranks; r++) {
        PERF_MUST(p, symmSend(c->send + (unsigned)r * block, c->count, type_of(c), r, p->comm,
                              p->stream));
        PERF_MUST(p, symmRecv(c->recv + (unsigned)r * block, c->count, type_of(c), r, p->comm,
                              p->stream));
    }
    PERF_MUST(p, symmGroupEnd());
}

const perf_pattern perf_patterns[PERF_PATTERNS] = {
    [PERF_SENDRECV] = {.row = {.name = "sendrecv", .in = SYMM_COUNT, .out = SYMM_COUNT, .apart = 1},
                       .legs = 1,
                       .call = sendrecv,
                       .origin = previous},
    [PERF_HYPERCUBE] = {.row = {.name = "hypercube", .in = SYMM_COUNT, .out = SYMM_EACH},
                        .legs = 1,
                        .doubles = 1,
                        .steps = 1,
                        .call = hypercube,
                        .origin = each},
    [PERF_PINGPONG] = {.row = {.name = "pingpong", .in = SYMM_COUNT, .out = SYMM_COUNT, .apart = 1},
                       .legs = 2,
                       .pair = 1,
                       .steps = 1,
                       .call = pingpong,
                       .origin = previous},
    [PERF_ALLTOALL_SENDS] =
        {.row = {.name = "alltoall_sends", .in = SYMM_EACH, .out = SYMM_EACH, .apart = 1},
         .legs = 1,
         .call = alltoall_sends,
         .origin = each},
    [PERF_PUT] = {.row = {.name = "put", .in = SYMM_COUNT, .out = SYMM_COUNT, .apart = 1},
                  .legs = 2,
                  .pair = 1,
                  .puts = 1,
                  .call = put,
                  .origin = previous},
};
