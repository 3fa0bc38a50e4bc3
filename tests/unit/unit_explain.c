/* unit_explain.c - symmExplain: which buffers are staged, and texts that are never cut; the same of
 * messages, which are counted too; what a communicator holds. One thread per rank. */
#include <stdlib.h>

#include "host/coll/coll.h"
#include "host/coll/plan.h"
#include "symm_heap.h"
#include "t.h"

enum { RANKS = 2, BYTES = 1 << 20 };

static symmExplain_t explained(symmComm_t comm, symmColl_t coll, const void *in, const void *out,
                               size_t count) {
    symmExplain_t p = {.size = sizeof p};
    T_OK(symmExplain(comm, coll, in, out, count, symmUint8, symmSum, 0, &p));
    T_CHECKF(p.zeroCopySend == !strstr(p.reason, "sendbuff is"), "%s", p.reason);
    T_CHECKF(p.zeroCopyRecv == !strstr(p.reason, "recvbuff is"), "%s", p.reason);
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

/* What goes one way or the other is what is in no window: of windows nothing is said. */
static void either_rank(int rank, int n, void *arg) {
    static const char says[] = "in no window is read where it is, or goes through scratch";
    symmComm_t comm = ((symmComm_t *)arg)[rank];
    symmWindow_t win;
    char *a, *plain = malloc(BYTES);
    (void)n;
    T_OK(symmMemAlloc((void **)&a, 2 * BYTES));
    T_OK(symmWindowRegister(comm, a, 2 * BYTES, &win, SYMM_WIN_DEFAULT));
    symmExplain_t p = explained(comm, symmCollAllReduce, a, a + BYTES, BYTES);
    T_CHECKF(!strstr(p.reason, says), "%s", p.reason);
    p = explained(comm, symmCollAllReduce, plain, a, BYTES);
    T_MSG(p.reason, says);
    p = explained(comm, symmCollAllReduce, a, plain, BYTES);
    T_MSG(p.reason, says);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(a));
    free(plain);
}
static void windows_go_one_way_only(void) {
    symmComm_t comms[RANKS];
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", "1", 1);
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_THREADS(RANKS, either_rank, comms);
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

/* ---- messages -------------------------------------------------------------------------------- */

static symmExplain_t message(symmComm_t comm, int sends, const void *p, size_t count, int peer) {
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplainMessage(comm, sends, p, count, symmUint8, peer, &plan));
    T_STREQ(plan.kernel, sends ? "message_send" : "message_receive");
    T_EQ(plan.ctas, 1);
    T_EQ(sends ? plan.zeroCopyRecv : plan.zeroCopySend, 0);
    return plan;
}

static void messages_rank(int rank, int n, void *arg) {
    symmComm_t comm = ((symmComm_t *)arg)[rank];
    symmWindow_t win;
    char *in, *out = malloc(2 * BYTES), json[8192];
    (void)n;
    T_OK(symmMemAlloc((void **)&in, 2 * BYTES));
    T_OK(symmWindowRegister(comm, in, 2 * BYTES, &win, SYMM_WIN_DEFAULT));
    symmExplain_t p = message(comm, 1, out, 40, !rank);
    T_MSG(p.reason, "within the message's head");
    T_EQ(p.chunkBytes, 0);
    p = message(comm, 0, in, 8192, !rank);
    T_MSG(p.reason, "in one piece through the receiver's ring");
    T_EQ(p.zeroCopyRecv, 0);
    p = message(comm, 0, in, 8193, !rank);
    T_MSG(p.reason, "in a window: the peer may store into it");
    T_EQ(p.zeroCopyRecv, 1);
    T_EQ(p.chunkBytes, 8192);
    p = message(comm, 1, in, BYTES, !rank);
    T_STREQ(p.reason,
            "in a window: the peer may load it from there; ends without its receiver while "
            "the ring, of 1048576 bytes, has room");
    T_EQ(p.zeroCopySend, 1);
    T_EQ(p.chunkBytes, 32768);
    p = message(comm, 1, out, BYTES + 1, !rank);
    T_MSG(p.reason, "sendbuff is in no window: what the peer's window does not let pass goes ");
    T_MSG(p.reason, "; waits for its receiver: larger than the ring, of 1048576 bytes");
    T_EQ(p.zeroCopySend, 0);
    p = message(comm, 1, out, BYTES, rank);
    T_MSG(p.reason, "the own memory: ");
    T_ERR(symmExplainMessage(comm, 1, out, 1, symmUint8, 2, &p), symmInvalidArgument);
    T_ERR(symmExplainMessage(comm, 1, NULL, 1, symmUint8, 0, &p), symmInvalidArgument);
    T_ERR(symmExplainMessage(comm, 1, out, 1, symmUint8, 0, NULL), symmInvalidArgument);
    p.size = 8;
    T_ERR(symmExplainMessage(comm, 1, out, 1, symmUint8, 0, &p), symmInvalidArgument);
    T_OK(symmStats(comm, json, sizeof json, NULL));
    T_MSG(json, "\"send_receive\":{\"kernels\":0,\"sends\":0,"); /* nothing was sent */
    T_OK(symmGroupStart());
    T_OK(symmSend(in, 5, symmInt32, !rank, comm, NULL));
    T_OK(symmRecv(out, 5, symmInt32, !rank, comm, NULL));
    T_OK(symmGroupEnd());
    if (rank) T_OK(symmSend(in, 7, symmUint8, 0, comm, NULL));
    if (!rank) T_OK(symmRecv(out, 7, symmUint8, 1, comm, NULL));
    T_OK(symmStats(comm, json, sizeof json, NULL));
    T_MSG(json,
          rank ? "\"send_receive\":{\"kernels\":2,\"sends\":2,\"receives\":1,\"sent_bytes\":27,"
                 "\"received_bytes\":20}"
               : "\"send_receive\":{\"kernels\":2,\"sends\":1,\"receives\":2,\"sent_bytes\":20,"
                 "\"received_bytes\":27}");
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(in));
    free(out);
}

/* It is in the JSON of symmStats. */
static void any_name_of_a_communicator(void) {
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmUniqueId_t id;
    symmComm_t comm;
    char json[8192];
    config.commName = "a \"b\\\x01\xff";
    setenv("SYMM_BACKEND", "host", 1);
    T_OK(symmGetUniqueId(&id));
    T_OK(symmCommInitRankConfig(&comm, 1, id, 0, &config));
    T_OK(symmStats(comm, json, sizeof json, NULL));
    T_MSG(json, ",\"comm\":\"a \\\"b\\\\\\u0001\\u00ff\",\"rank\":0,");
    T_OK(symmCommDestroy(comm));
}

static void messages_are_explained_and_counted(void) {
    symmComm_t comms[RANKS];
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", "0", 1); /* else it depends on the machine's cores */
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_THREADS(RANKS, messages_rank, comms);
}

/* What is in no window and large is read there, and never written. */
static void messages_are_read_where_they_are(void) {
    symmComm_t comms[RANKS];
    char *p = malloc(2 * BYTES);
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", "2", 1);
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_EQ(message(comms[0], 1, p, 16383, 1).zeroCopySend, 0);
    const symmExplain_t is = message(comms[0], 1, p, 16384, 1);
    T_EQ(is.zeroCopySend, 1);
    T_MSG(is.reason, "in no window: the peer may read it through the kernel (SYMM_DIRECT)");
    T_EQ(message(comms[0], 0, p, BYTES, 1).zeroCopyRecv, 0);
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comms[r]));
    free(p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { PAGE = 2 << 20, SCRATCH = 8 << 20 };

static symmCommMem_t memory(symmComm_t comm) {
    symmCommMem_t m = {.size = sizeof m};
    T_OK(symmCommMemQuery(comm, &m));
    T_EQ(m.controlBytes, 1 << 20);
    T_EQ(m.scratchBytes, SCRATCH);
    return m;
}

typedef struct {
    symmUniqueId_t id;
    _Atomic int made;
} meeting;

static void memory_rank(int rank, int n, void *arg) {
    meeting *at = arg;
    symmComm_t comm;
    symmWindow_t win, also;
    symmHeap_t heap;
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    config.symBytes = PAGE;
    char *p;
    if (!rank) T_OK(symmGetUniqueId(&at->id)), at->made = 1;
    while (!at->made) usleep(1000);
    T_OK(symmCommInitRank(&comm, n, at->id, rank));
    const symmCommMem_t none = memory(comm);
    T_EQ(none.windowBytes + none.heapBytes + none.droppedBytes, 0);
    T_CHECK(none.addressBytes >= (uint64_t)n * (SCRATCH + (1 << 20)));
    T_OK(symmMemAlloc((void **)&p, 3 * PAGE));
    T_OK(symmWindowRegister(comm, p, 3 * PAGE, &win, SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(comm, p, 3 * PAGE, &also, SYMM_WIN_DEFAULT));
    symmCommMem_t m = memory(comm);
    T_EQ(m.windowBytes, 2ull * 3 * PAGE);
    T_EQ(m.addressBytes - none.addressBytes, (uint64_t)n * 3 * PAGE);
    T_EQ(m.droppedBytes, 0);
    T_OK(symmWindowDeregister(comm, also));
    T_EQ(memory(comm).droppedBytes, 0);
    T_OK(symmWindowDeregister(comm, win));
    m = memory(comm);
    T_EQ(m.windowBytes, 0);
    T_EQ(m.droppedBytes, (uint64_t)n * 3 * PAGE);
    T_EQ(m.addressBytes - none.addressBytes, m.droppedBytes);
    T_OK(symmHeapCreate(comm, &config, &heap));
    m = memory(comm);
    T_EQ(m.heapBytes, PAGE);
    T_CHECK(m.addressBytes - none.addressBytes >= (uint64_t)n * PAGE);
    T_OK(symmHeapDestroy(heap));
    T_EQ(memory(comm).heapBytes, 0);
    m.size = 8;
    T_ERR(symmCommMemQuery(comm, &m), symmInvalidArgument);
    T_ERR(symmCommMemQuery(comm, NULL), symmInvalidArgument);
    T_OK(symmCommDestroy(comm));
    T_ERR(symmCommMemQuery(comm, &m), symmInvalidArgument);
    T_OK(symmMemFree(p));
}

static void memory_is_told(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_SCRATCH", "8M", 1);
    T_FORK(3, memory_rank, T_SHARED(sizeof(meeting)));
}

T_MAIN(T(only_what_is_staged_is_said_to_be), T(windows_go_one_way_only), T(no_reason_is_cut),
       T(the_last_words_are_there), T(any_name_of_a_communicator),
       T(messages_are_explained_and_counted), T(messages_are_read_where_they_are),
       T(memory_is_told))
