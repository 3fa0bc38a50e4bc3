/* thr_lane_turns.c - several threads use one communicator's lanes and plans: questions beside calls
 * that change them, and calls that waited while another thread ended what they name. Run under the
 * sanitizers too. */
#include <pthread.h>
#include <unistd.h>

#include "graph_kit.h"
#include "host/comm/comm.h"
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

/* ---- turns ----------------------------------------------------------------------------------- */

typedef struct {
    const lk *k;
    symmMemPlan_t plan;
    symmResult_t (*fn)(const lk *k, symmMemPlan_t plan);
    symmResult_t result;
} one_call;

static symmResult_t ends_lane(const lk *k, symmMemPlan_t plan) {
    (void)plan;
    return symmLaneDestroy(k->lane[1]);
}
static symmResult_t allocates(const lk *k, symmMemPlan_t plan) {
    void *p;
    (void)plan;
    return symmLaneAlloc(k->lane[1], B, SYMM_ALLOC_LOCAL, &p);
}
static symmResult_t ends_plan(const lk *k, symmMemPlan_t plan) {
    (void)k;
    return symmMemPlanDestroy(plan);
}
static symmResult_t adds_node(const lk *k, symmMemPlan_t plan) {
    symmGraphNode_t node;
    (void)k;
    return symmMemPlanAddOrderNode(plan, NULL, 0, &node);
}

static void *makes_it(void *arg) {
    one_call *c = arg;
    c->result = c->fn(c->k, c->plan);
    return NULL;
}

/* Another thread ends the lane or the plan while these wait for their turn. */
static void what_a_call_names_ends_before_its_turn(void) {
    static symmResult_t (*const lanes[])(const lk *, symmMemPlan_t) = {ends_lane, allocates,
                                                                       ends_lane};
    static symmResult_t (*const plans[])(const lk *, symmMemPlan_t) = {ends_plan, adds_node,
                                                                       ends_plan};
    lk k;
    symm_comm *c;
    symmMemPlan_t plan;
    pthread_t t[3];
    one_call call[3];
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    for (int of_plan = 0; of_plan < 2; of_plan++) {
        T_OK(symm_comm_enter(k.comm, 0, &c));
        for (int i = 0; i < 3; i++) { /* the first to come is the next */
            call[i] = (one_call){.k = &k, .plan = plan, .fn = of_plan ? plans[i] : lanes[i]};
            T_EQ(pthread_create(&t[i], NULL, makes_it, &call[i]), 0);
            while (atomic_load(&c->entry.waiting) < i + 1) usleep(100);
            usleep(10000); /* it holds the turn, or waits behind those that came before */
        }
        symm_comm_leave(c);
        for (int i = 0; i < 3; i++) {
            pthread_join(t[i], NULL);
            T_EQ(call[i].result, i ? symmInvalidArgument : symmSuccess);
        }
    }
    k.lane[1] = NULL;
    T_EQ(SYMM_STAT_GET(lanes), 1);
    T_EQ(SYMM_STAT_GET(plans), 0);
    lk_close(&k);
}

/* Its heap has gone, so only the communicator is left to take a turn of. */
static void what_outlived_its_heap_ends_in_a_turn_too(void) {
    lk k;
    symm_comm *c;
    symmMemPlan_t plan;
    pthread_t t[2];
    one_call call[2];
    lk_alone(&k, 2);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    T_OK(symmHeapDestroy(k.heap));
    T_OK(symm_comm_enter(k.comm, 0, &c));
    for (int i = 0; i < 2; i++) {
        call[i] = (one_call){.k = &k, .plan = plan, .fn = i ? ends_lane : ends_plan};
        T_EQ(pthread_create(&t[i], NULL, makes_it, &call[i]), 0);
        for (int ms = 0; ms < 2000 && atomic_load(&c->entry.waiting) < i + 1; ms++) usleep(1000);
        T_EQ(atomic_load(&c->entry.waiting), i + 1);
    }
    symm_comm_leave(c);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        T_OK(call[i].result);
    }
    T_OK(symmCommDestroy(k.comm)); /* what is left needs no turn */
    T_OK(symmLaneDestroy(k.lane[0]));
    T_EQ(SYMM_STAT_GET(lanes), 0);
    T_EQ(SYMM_STAT_GET(plans), 0);
    for (int i = 0; i < 2; i++) T_OK(symmStreamDestroy(k.stream[i]));
}

T_MAIN(T(questions_while_blocks_come_and_go), T(what_a_call_names_ends_before_its_turn),
       T(what_outlived_its_heap_ends_in_a_turn_too))
