/* change_kit.h - the same call again and again while what it depends on changes: windows, scalars.
 * Uses coll_kit.h and runs as that does: on each rank's thread, without a lock. */
#ifndef CHANGE_KIT_H_
#define CHANGE_KIT_H_

#include "coll_kit.h"

/* One call with the same arguments twice; a scalar that changes under the same handle; results
 * checked. */
static inline void ck_same_call(symmComm_t comm, int rank, int n, uint32_t *src, int round) {
    enum { LEN = 20000 };
    uint32_t *dst = src + (64 << 10), scalar = (uint32_t)(round + rank);
    for (int twice = 0; twice < 2; twice++) {
        symmRedOp_t op = symmSum;
        uint32_t want = 0;
        if (twice)
            T_OK(symmRedOpCreatePreMulSum(&op, &scalar, symmUint32, symmScalarHostImmediate, comm));
        for (int r = 0; r < n; r++)
            want += (uint32_t)(round * 100 + r) * (uint32_t)(twice ? round + r : 1);
        for (int i = 0; i < LEN; i++) src[i] = (uint32_t)(round * 100 + rank);
        memset(dst, 0x77, LEN * sizeof *dst);
        for (int again = 0; again < 2; again++) {
            T_OK(symmAllReduce(src, dst, LEN, symmUint32, op, comm, NULL));
            uint32_t differs = 0;
            for (int i = 0; i < LEN; i++) differs |= dst[i] ^ want;
            T_EQ(differs, 0);
        }
        if (twice) T_OK(symmRedOpDestroy(op, comm));
    }
}

/* Windows come, go and change places and halves under the buffers; in the end other memory is often
 * at the same address. */
static inline void ck_follow(symmComm_t comm, int rank, int n, int rounds) {
    const uint64_t half = 256 << 10;
    for (int round = 0; round < rounds; round++) {
        symmWindow_t win[3];
        char *p, *other;
        T_OK(symmMemAlloc((void **)&other, 2 << 20));
        T_OK(symmMemAlloc((void **)&p, 2 * half));
        T_OK(symmWindowRegister(comm, other, 2 << 20, &win[0],
                                0)); /* takes a place before the next */
        ck_same_call(comm, rank, n, (uint32_t *)(void *)p, round);
        T_OK(symmWindowRegister(comm, p, 2 * half, &win[1], 0));
        ck_same_call(comm, rank, n, (uint32_t *)(void *)p, round + 1);
        if (round % 2) T_OK(symmWindowDeregister(comm, win[0]));
        T_OK(symmWindowDeregister(comm, win[1]));
        ck_same_call(comm, rank, n, (uint32_t *)(void *)p, round + 2);
        T_OK(symmWindowRegister(comm, p + (round % 3) * 4096, half, &win[1],
                                0)); /* all of src, or a part */
        ck_same_call(comm, rank, n, (uint32_t *)(void *)p, round + 3);
        T_OK(symmWindowRegister(comm, p + half, half, &win[2], 0));
        ck_same_call(comm, rank, n, (uint32_t *)(void *)p, round + 4);
        T_OK(symmWindowDeregister(comm, win[1]));
        T_OK(symmWindowDeregister(comm, win[2]));
        if (round % 2 == 0) T_OK(symmWindowDeregister(comm, win[0]));
        T_OK(symmMemFree(p));
        T_OK(symmMemFree(other));
    }
}

#endif
