/* thr_side.c - communicators side by side, in opposite orders: each rank's threads give calls of
 * several communicators to a stream of each, every thread and every rank in another order. Nobody
 * waits for anybody but the peers of a call. Ranks are threads. */
#include <pthread.h>
#include <stdlib.h>

#include "coll_kit.h"

enum { RANKS = 2, THREADS = 2, MOST = 4, NEAR = 100 };

typedef struct {
    symmComm_t comm[MOST][RANKS];
    symmStream_t stream[MOST][RANKS];
    int comms, rounds;
} side;

typedef struct {
    side *s;
    int rank, thread;
} one;

/* Which communicator the thread takes as its k-th in a round. */
static int kth(const one *o, int round, int k) {
    const int n = o->s->comms, turned = (k + round) % n;
    return (o->rank + o->thread) % 2 ? n - 1 - turned : turned;
}

static void *gives(void *arg) {
    const one *o = arg;
    side *s = o->s;
    static _Thread_local int32_t x[NEAR][MOST];
    for (int i = 0; i < s->rounds; i++) {
        for (int k = 0; k < s->comms; k++) {
            const int c = kth(o, i, k);
            x[i % NEAR][c] = c + 1;
            T_OK(symmAllReduce(&x[i % NEAR][c], &x[i % NEAR][c], 1, symmInt32, symmSum,
                               s->comm[c][o->rank], s->stream[c][o->rank]));
        }
        if (i % NEAR != NEAR - 1) continue;
        for (int c = 0; c < s->comms; c++) T_OK(symmStreamSynchronize(s->stream[c][o->rank]));
        for (int at = 0; at < NEAR; at++)
            for (int c = 0; c < s->comms; c++) T_EQ(x[at][c], RANKS * (c + 1));
    }
    return NULL;
}

static void in_opposite_orders(int comms) {
    static side s;
    one all[RANKS][THREADS];
    pthread_t t[RANKS][THREADS];
    s = (side){.comms = comms, .rounds = getenv("T_FULL") ? 100000 / THREADS : 10000 / THREADS};
    for (int c = 0; c < comms; c++) {
        T_OK(symmCommInitAll(s.comm[c], RANKS, NULL));
        for (int r = 0; r < RANKS; r++) T_OK(symmStreamCreate(&s.stream[c][r]));
    }
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < THREADS; i++) {
            all[r][i] = (one){&s, r, i};
            T_EQ(pthread_create(&t[r][i], NULL, gives, &all[r][i]), 0);
        }
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < THREADS; i++) pthread_join(t[r][i], NULL);
    for (int c = 0; c < comms; c++)
        for (int r = 0; r < RANKS; r++) {
            T_OK(symmCommDestroy(s.comm[c][r]));
            T_OK(symmStreamDestroy(s.stream[c][r]));
        }
}

static void two_in_opposite_orders(void) {
    in_opposite_orders(2);
}

static void four_in_opposite_orders(void) {
    in_opposite_orders(4);
}

T_MAIN(T(two_in_opposite_orders), T(four_in_opposite_orders))
