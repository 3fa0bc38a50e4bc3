/* unit_explain.c - symmExplain: which buffers are staged, and texts that are never cut. One
 * thread. */
#include <stdlib.h>

#include "host/coll/coll.h"
#include "host/coll/plan.h"
#include "t.h"

enum { RANKS = 2, BYTES = 1 << 20 };

static symmExplain_t explained(symmComm_t comm, symmColl_t coll, const void *in, const void *out,
                               size_t count) {
    symmExplain_t p = {.size = sizeof p};
    T_OK(symmExplain(comm, coll, in, out, count, symmUint8, symmSum, 0, &p));
    T_CHECKF(p.zeroCopySend == !strstr(p.reason, "sendbuff"), "%s", p.reason);
    T_CHECKF(p.zeroCopyRecv == !strstr(p.reason, "recvbuff"), "%s", p.reason);
    return p;
}

static void registering_rank(int rank, int n, void *arg) {
    symmComm_t comm = ((symmComm_t *)arg)[rank];
    symmWindow_t win;
    char *in, *out = malloc(n * (size_t)BYTES);
    T_OK(symmMemAlloc((void **)&in, BYTES));
    T_OK(symmWindowRegister(comm, in, BYTES, &win, SYMM_WIN_DEFAULT));
    symmExplain_t p = explained(comm, symmCollAllGather, in, out, BYTES);
    T_STREQ(p.kernel, "all_gather_load");
    T_EQ(p.zeroCopySend, 1);
    T_EQ(p.zeroCopyRecv, 1); /* each rank loads into its own: in no window, and yet in place */
    p = explained(comm, symmCollAllGather, out, in, BYTES / 2);
    T_EQ(p.zeroCopySend, 0);
    T_EQ(p.zeroCopyRecv, 1);
    p = explained(comm, symmCollAllReduce, in, out, BYTES);
    T_STREQ(p.kernel, "all_reduce_load_store");
    T_EQ(p.zeroCopySend, 1);
    T_EQ(p.zeroCopyRecv, 0);
    p = explained(comm, symmCollAllReduce, out, in, BYTES);
    T_EQ(p.zeroCopySend, 0);
    T_EQ(p.zeroCopyRecv, 1);
    p = explained(comm, symmCollAllReduce, NULL, NULL, 0); /* nothing is staged of nothing */
    T_EQ(p.zeroCopySend, 1);
    T_EQ(p.zeroCopyRecv, 1);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(in));
    free(out);
}

static void only_what_is_staged_is_said_to_be(void) {
    symmComm_t comms[RANKS];
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", "0", 1); /* thread ranks would stage nothing */
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_THREADS(RANKS, registering_rank, comms);
}

static size_t longest;

static void reasons_of(const symm_plan_env *env) {
    static const uint64_t counts[] = {0, 1, 300, 5000, 1 << 20, 1ull << 33};
    char text[8192];
    for (int coll = 0; coll < symmNumColls; coll++)
        for (int i = 0; i < (symm_coll_moves(&symm_colls[coll]) ? 6 : 1); i++) {
            const symm_call call = {
                .coll = (symmColl_t)coll, .count = counts[i], .type = symmUint8, .esize = 1};
            const symm_plan plan = symm_plan_make(env, &call);
            symm_plan_reason(env, &call, &plan, text, sizeof text);
            if (strlen(text) > longest) longest = strlen(text);
        }
}

/* Beside the planner's words there is room for two buffers that are staged. */
static void no_reason_is_cut(void) {
    enum { STAGED = 2 * 400 };
    static const int ranks[] = {1, 2, 3, 4, 8, SYMM_MAX_RANKS};
    int16_t forced[symmNumColls];
    for (int gpu = 0; gpu < 2; gpu++)
        for (int r = 0; r < 6; r++)
            for (int k = -1; k < SYMM_KERNEL_COUNT; k++)
                for (int how = 0; how < 8; how++) {
                    const uint64_t scratch = how & 1 ? 1 << 20 : 112 << 20;
                    symm_plan_env env = {.nranks = ranks[r],
                                         .gpu = gpu,
                                         .sms = 132,
                                         .oversubscribed = how >> 1 & 1,
                                         .deterministic = how >> 2,
                                         .forced = forced};
                    env.scratch = gpu ? symm_plan_gpu_scratch(scratch, ranks[r])
                                      : symm_plan_scratch(scratch, ranks[r]);
                    for (int c = 0; c < symmNumColls; c++) forced[c] = (int16_t)k;
                    reasons_of(&env);
                }
    T_CHECKF(longest + STAGED < sizeof((symmExplain_t *)0)->reason, "%zu bytes", longest);
    T_CHECK(longest > 300); /* the longest are among them */
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        T_CHECK(strlen(symm_kernels[k].name) < sizeof((symmExplain_t *)0)->kernel);
}

/* What a user sees of a call with much to say: its last words too. */
static void the_last_words_are_there(void) {
    symmComm_t comms[RANKS];
    char *in = malloc(BYTES), *out = malloc(BYTES);
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_ALGO", "all_reduce:all_reduce_push_packet", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_DIRECT", "0", 1);
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    symmExplain_t p = explained(comms[0], symmCollAllReduce, in, out, BYTES);
    T_MSG(p.reason, "sendbuff is in no window");
    T_MSG(p.reason, "recvbuff is in no window");
    T_MSG(p.reason, "SYMM_ALGO's all_reduce_push_packet not used");
    const char *last = "(SYMM_SCRATCH)";
    T_STREQ(p.reason + strlen(p.reason) - strlen(last), last);
    T_OK(symmCommDestroy(comms[0]));
    T_OK(symmCommDestroy(comms[1]));
    free(in);
    free(out);
}

T_MAIN(T(only_what_is_staged_is_said_to_be), T(no_reason_is_cut), T(the_last_words_are_there))
