/* stream_chain.h - calls of a communicator in a row, each on a stream that is drawn: collectives,
 * and messages round the ring. For ranks that are threads or processes; runs on each rank's. */
#ifndef STREAM_CHAIN_H_
#define STREAM_CHAIN_H_

#include <stdlib.h>

#include "symm.h"
#include "symm_p2p.h"
#include "symm_stream.h"
#include "t.h"

/* Each call works on what the one before it has left: in any other order the numbers differ.
 * s[0 .. streams) may have NULL among them. [collective; seed is equal on all ranks] */
static inline void sc_chain(symmComm_t comm, int rank, int n, uint64_t seed, const symmStream_t *s,
                            int streams) {
    enum { CALLS = 40, COUNT = 300 };
    uint32_t *x = malloc(COUNT * sizeof *x), *all = malloc((size_t)n * COUNT * sizeof *all);
    uint32_t want = 1;
    T_CHECK(x && all);
    for (unsigned i = 0; i < COUNT; i++) x[i] = i + 1;
    for (int i = 0; i < CALLS; i++) {
        symmStream_t at = s[(t_roll(&seed) >> 40) % (unsigned)streams];
        switch ((t_roll(&seed) >> 40) % 4) {
        case 0: T_OK(symmAllReduce(x, x, COUNT, symmUint32, symmSum, comm, at)); break;
        case 1: /* a part for each rank, all alike */
            T_OK(symmAllGather(x, all, COUNT, symmUint32, comm, at));
            T_OK(symmReduceScatter(all, x, COUNT, symmUint32, symmSum, comm, at));
            break;
        case 2: /* changes nothing */
            T_OK(symmBroadcast(x, x, COUNT, symmUint32, i % n, comm, at));
            T_OK(symmGather(x, all, COUNT, symmUint32, i % n, comm, at));
            T_OK(symmScatter(all, x, COUNT, symmUint32, i % n, comm, at));
            continue;
        default: /* round the ring */
            T_OK(symmGroupStart());
            T_OK(symmSend(x, COUNT, symmUint32, (rank + 1) % n, comm, at));
            T_OK(symmRecv(all, COUNT, symmUint32, (rank + n - 1) % n, comm, at));
            T_OK(symmGroupEnd());
            T_OK(symmReduce(all, x, COUNT, symmUint32, symmSum, i % n, comm, at));
            T_OK(symmBroadcast(x, x, COUNT, symmUint32, i % n, comm, at));
        }
        want *= (uint32_t)n;
    }
    for (int i = 0; i < streams; i++) T_OK(symmStreamSynchronize(s[i]));
    for (unsigned i = 0; i < COUNT; i++) T_EQ(x[i], want * (i + 1));
    free(x), free(all);
}

#endif
