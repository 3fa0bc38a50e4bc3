/* mismatch_kit.h - ranks that disagree: which calls, and what each rank must get. Used by
 * fault_mismatch.c (processes) and thr_mismatch.c (threads). Each rank runs it on its own thread;
 * no lock. */
#ifndef MISMATCH_KIT_H_
#define MISMATCH_KIT_H_

#include <stdio.h>
#include <stdlib.h>

#include "coll_expect.h"

enum { MM_BYTES = 8 << 20 }; /* of each buffer; no call moves more */

typedef struct {
    symmColl_t coll;
    size_t count;
    symmDataType_t type;
    symmRedOp_t op;
} mm_call;

typedef struct {
    mm_call most, odd;
    const char *what;
} mm_case;

/* Small counts are a packet, 20000 and more several, 1000000 goes without packets. */
static const mm_case mm_cases[] = {
    {{symmCollAllReduce, 8, symmInt32, symmSum},
     {symmCollAllReduce, 9, symmInt32, symmSum},
     "count, small"},
    {{symmCollAllReduce, 0, symmInt32, symmSum},
     {symmCollAllReduce, 8, symmInt32, symmSum},
     "0 and n"},
    {{symmCollAllReduce, 1000000, symmInt32, symmSum},
     {symmCollAllReduce, 0, symmInt32, symmSum},
     "n and 0"},
    {{symmCollAllReduce, 8, symmInt32, symmSum},
     {symmCollAllReduce, 1000000, symmInt32, symmSum},
     "small and large"},
    {{symmCollAllReduce, 1000000, symmInt32, symmSum},
     {symmCollAllReduce, 20000, symmInt32, symmSum},
     "large and middling"},
    {{symmCollAllReduce, 500000, symmInt32, symmSum},
     {symmCollAllReduce, 1000000, symmInt32, symmSum},
     "large and larger"},
    {{symmCollAllReduce, 100, symmInt32, symmSum},
     {symmCollAllReduce, 100, symmFloat32, symmSum},
     "type"},
    {{symmCollAllReduce, 100, symmInt32, symmSum},
     {symmCollAllReduce, 50, symmInt64, symmSum},
     "type and count, the same bytes"},
    {{symmCollAllReduce, 100, symmInt32, symmSum},
     {symmCollAllReduce, 100, symmInt32, symmMax},
     "reduction"},
    {{symmCollAllReduce, 1000000, symmInt32, symmSum},
     {symmCollAllReduce, 1000000, symmInt32, symmMin},
     "reduction, large"},
    {{symmCollAllReduce, 100, symmInt32, symmSum},
     {symmCollAllGather, 100, symmInt32, symmSum},
     "collective"},
    {{symmCollAllGather, 50, symmInt32, symmSum},
     {symmCollAllGather, 51, symmInt32, symmSum},
     "gathered count"},
    {{symmCollAllGather, 200000, symmInt32, symmSum},
     {symmCollAllGather, 5, symmInt32, symmSum},
     "gathered large and small"},
    {{symmCollBarrier, 0, symmInt8, symmSum},
     {symmCollAllReduce, 0, symmInt32, symmSum},
     "barrier and nothing"},
    {{symmCollAllReduce, 1000000, symmInt32, symmSum},
     {symmCollBarrier, 0, symmInt8, symmSum},
     "large and barrier"},
};
enum { MM_CASES = sizeof mm_cases / sizeof *mm_cases };

static inline symmResult_t mm_run(const mm_call *k, void *send, void *recv, symmComm_t comm,
                                  symmStream_t stream) {
    symmResult_t r = symm_test_call(k->coll, send, recv, k->count, k->type, k->op, 0, comm, stream);
    if (stream && r == symmSuccess) r = symmStreamSynchronize(stream);
    return r;
}

/* As errors word it. */
static inline const char *mm_words(const mm_call *k, char *text, size_t cap) {
    const char *type = k->type == symmInt64     ? "int64"
                       : k->type == symmFloat32 ? "float32"
                                                : "int32",
               *op = k->op == symmMax   ? "max"
                     : k->op == symmMin ? "min"
                                        : "sum";
    const char *call = symm_colls[k->coll].call;
    if (!coll_moves(k->coll))
        snprintf(text, cap, "%s", call);
    else if (!coll_reduces(k->coll))
        snprintf(text, cap, "%s of %zu %s", call, k->count, type);
    else
        snprintf(text, cap, "%s of %zu %s (%s)", call, k->count, type, op);
    return text;
}

/* What a rank is told when the `seq`th call was the case c: who called what. The ranks between that
 * had not come yet are not named. */
static inline void mm_told(const char *text, const mm_case *c, int odd, int seq) {
    char words[128], most[100], lone[100];
    T_MSG(text, "called different collectives, counts, types, reductions or roots");
    snprintf(words, sizeof words, "call %d: ", seq);
    T_MSG(text, words);
    snprintf(words, sizeof words, "rank %d: %s", odd, mm_words(&c->odd, lone, sizeof lone));
    T_MSG(text, words);
    T_MSG(text, mm_words(&c->most, most, sizeof most));
}

/* One case on this rank; the communicator is over afterwards. odd: the rank that differs. */
static inline void mm_disagree(const mm_case *c, int rank, int odd, void *send, void *recv,
                               symmComm_t comm, symmStream_t stream) {
    static const mm_call barrier = {symmCollBarrier, 0, symmInt8, symmSum};
    symmResult_t first = mm_run(rank == odd ? &c->odd : &c->most, send, recv, comm, stream), async;
    symmResult_t next = mm_run(&barrier, send, recv, comm, stream);
    T_CHECKF(first == symmSuccess || first == symmMismatch, "%s: code %d (%s)", c->what, first,
             symmGetLastError(comm));
    T_CHECKF(next == symmMismatch, "%s: the next call: code %d (%s)", c->what, next,
             symmGetLastError(comm));
    mm_told(symmGetLastError(comm), c, odd, 1);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmMismatch);
}

#endif
