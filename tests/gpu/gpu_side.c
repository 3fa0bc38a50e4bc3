/* gpu_side.c - communicators side by side as they are made by default: each rank gives calls that
 * fill their grids to a stream of each communicator, in another order than its peers. Their largest
 * grids fit on a GPU at once, so none waits for ever. Ranks are threads. */
#include "host/comm/comm.h"
#include "gpu_chain.h"
#include "gpu_cases.h"

enum { N = 2, MOST = 4, WORDS = 1 << 18 };

typedef struct {
    gk_job job[MOST];
    int comms;
} side;

typedef struct {
    symmComm_t comm;
    cu_stream stream;
    gk_chain chain;
    void *buf;
} one;

static one open_one(const gk_job *j, int rank) {
    one o = {.comm = j->comms[rank], .stream = gk_new_stream()};
    T_OK(symmMemAlloc(&o.buf, WORDS * 4));
    o.chain = gk_chain_new(o.comm, rank, N, symmUint32, o.buf, WORDS, o.stream);
    return o;
}

static void close_one(one *o) {
    gk_chain_free(&o->chain);
    T_OK(symmCommDestroy(o->comm));
    T_OK(symmMemFree(o->buf));
    CU(cuStreamDestroy(o->stream));
}

/* What the planner gives a call of this size: a CTA of a quarter on every multiprocessor. */
static void all_fit(symmComm_t comm, const void *buf) {
    symmExplain_t plan = {.size = sizeof plan};
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    T_OK(symmExplain(comm, symmCollAllReduce, buf, buf, WORDS, symmUint32, symmSum, 0, &plan));
    T_CHECKF(plan.ctas == c->gpus.sms, "%d CTAs of %d", plan.ctas, c->gpus.sms);
    T_CHECK(c->gpus.quarter);
}

static void side_rank(int rank, int n, void *arg) {
    side *s = ((gk_job *)arg)->shared;
    const int rounds = gk_number("GPU_FAKE", 0) ? 40 : 1000;
    one o[MOST];
    (void)n;
    T_OK(symmSetDevice(rank % s->job[0].devices));
    for (int k = 0; k < s->comms; k++) o[k] = open_one(&s->job[k], rank);
    all_fit(o[0].comm, o[0].buf);
    gk_meet(arg);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < s->comms; k++) {
            const int turned = (k + i) % s->comms, at = rank % 2 ? s->comms - 1 - turned : turned;
            gk_chain_call(&o[at].chain, 0, WORDS, o[at].stream);
        }
        if (i % 20 != 19) continue;
        for (int k = 0; k < s->comms; k++) gk_wait(o[k].comm, o[k].stream);
    }
    for (int k = 0; k < s->comms; k++) gk_wait(o[k].comm, o[k].stream);
    for (int k = 0; k < s->comms; k++) gk_chain_check(&o[k].chain, o[k].stream);
    gk_meet(arg);
    for (int k = 0; k < s->comms; k++) close_one(&o[k]);
}

static void in_opposite_orders(int comms) {
    static side s;
    setenv("SYMM_SIDE_BY_SIDE", comms > 3 ? "4" : "3", 1);
    s = (side){.comms = comms};
    unsetenv("SYMM_SCRATCH"); /* grids are smaller where staging is */
    const int devices = gk_begin();
    for (int k = 0; k < comms; k++)
        s.job[k] = (gk_job){.n = N, .devices = devices, .seed = ck_seed(), .shared = &s};
    for (int k = 1; k < comms; k++) gk_open(&s.job[k]);
    gk_run(&s.job[0], side_rank);
    gc_settle();
}

static void two_in_opposite_orders(void) {
    in_opposite_orders(2);
}

static void three_in_opposite_orders(void) {
    in_opposite_orders(3);
}

static void four_in_opposite_orders(void) {
    in_opposite_orders(4);
}

T_MAIN(T(two_in_opposite_orders), T(three_in_opposite_orders), T(four_in_opposite_orders))
