/* thr_lane_turns.c - several threads use one communicator's lanes and plans: questions beside calls
 * that change them. Run under the sanitizers too. */
#include <pthread.h>

#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096 };

/* ---- questions ------------------------------------------------------------------------------- */

typedef struct {
    char *block[2]; /* of a lane, of a graph */
    atomic_int stop;
} asked;

static void *asks(void *arg) {
    asked *a = arg;
    while (!atomic_load(&a->stop))
        for (int i = 0; i < 2; i++) {
            symmMemInfo_t info = {.size = sizeof info};
            symmRef_t ref;
            T_OK(symmMemQuery(a->block[i] + 5, &info));
            T_CHECK(info.block == a->block[i] && info.bytes == B && info.lane == 0);
            T_OK(symmRefGet(a->block[i] + 5, &ref));
            T_EQ(ref.len, B - 5);
        }
    return NULL;
}

/* The tables in which blocks are found grow and shrink meanwhile. */
static void questions_while_blocks_come_and_go(void) {
    enum { BLOCKS = 1500, ROUNDS = 20 };
    static char *p[BLOCKS];
    lk k;
    pthread_t t;
    asked a = {.stop = 0};
    lk_alone(&k, 1);
    a.block[0] = lk_local(k.lane[0], B);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    a.block[1] = lk_sym(k.lane[0], B);
    symmGraph_t g = lk_end(k.stream[0]);
    T_EQ(pthread_create(&t, NULL, asks, &a), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) p[i] = lk_local(k.lane[0], 128 + 128 * (size_t)(i % 10));
        for (int i = 0; i < BLOCKS; i++) lk_free(k.lane[0], p[i]);
        T_OK(symmHeapTrimLanes(k.heap, NULL));
        T_OK(symmStreamBeginCapture(k.stream[0]));
        for (int i = 0; i < 20; i++) lk_free(k.lane[0], lk_sym(k.lane[0], B));
        T_OK(xg_destroy(lk_end(k.stream[0])));
    }
    atomic_store(&a.stop, 1);
    pthread_join(t, NULL);
    lk_free(k.lane[0], a.block[0]);
    T_OK(xg_destroy(g));
    lk_close(&k);
}

T_MAIN(T(questions_while_blocks_come_and_go))
