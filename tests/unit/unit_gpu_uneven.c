/* unit_gpu_uneven.c - calls with a count per rank on the fake CUDA driver: kernel and grid, which
 * depend on no count; the parts that the kernel is told, which are those of the call, in graphs and
 * groups too. One thread drives all ranks. The kernels: unit_kernels. */
#include "fgpu_kit.h"

enum { RANKS = 3 };
static symmComm_t comms[GK_RANKS];
static cu_stream streams[RANKS];
static char *buf[RANKS][2];

static void start(int n) {
    gk_start(n, 0);
    gk_open(comms, n, NULL);
    for (int r = 0; r < n && r < RANKS; r++) {
        streams[r] = gk_stream(r);
        for (int i = 0; i < 2; i++) buf[r][i] = gk_memory(r, GK_MB);
    }
}
static void finish(int n) {
    gk_close(comms, n);
    for (int r = 0; r < n && r < RANKS; r++)
        for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[r][i]));
}

/* Elements that rank `from` has for rank `to` in call i. */
static size_t elements(int i, int from, int to) {
    return (size_t)(100 * i + 10 * from + to);
}

static void call(int rank, int i, symmStream_t stream) {
    size_t to[RANKS], from[RANKS], at[RANKS];
    for (int p = 0; p < RANKS; p++) {
        to[p] = elements(i, rank, p), from[p] = elements(i, p, rank);
        at[p] = (size_t)p * 5000;
    }
    T_OK(symmAlltoAllv(buf[rank][0], to, at, buf[rank][1], from, NULL, symmInt32, comms[rank],
                       stream));
    memset(to, 0x7f, sizeof to); /* the call has copied them */
    memset(from, 0x7f, sizeof from);
    memset(at, 0x7f, sizeof at);
}

/* The last kernel of rank was told the parts of call i. */
static void told(int rank, int i) {
    const gk_launch got = gk_last(rank);
    uint64_t behind = 0;
    T_STREQ(got.kernel, "symm_alltoallv_direct_n0");
    T_CHECK(!got.args.extents && got.args.count == 0); /* it is memory of the host */
    for (int p = 0; p < RANKS; p++) {
        const symm_extent *to = &got.extents.part[p], *from = &got.extents.part[RANKS + p];
        T_CHECK(to->at == (unsigned)p * 20000u && to->bytes == 4 * elements(i, rank, p));
        T_CHECK(from->at == behind && from->bytes == 4 * elements(i, p, rank));
        behind += from->bytes;
    }
}

static void eager_calls_have_their_own_parts(void) {
    start(RANKS);
    for (int i = 0; i < 20; i++)
        for (int r = 0; r < RANKS; r++) {
            call(r, i % 12, gk_user(streams[r])); /* some are remembered */
            told(r, i % 12);
        }
    finish(RANKS);
}

static void captured_calls_keep_their_own_parts(void) {
    enum { GRAPHS = 12 };
    cu_graph_exec exec[GRAPHS];
    start(RANKS);
    T_OK(symm_cuda_set(1));
    for (int i = 0; i < GRAPHS; i++) {
        cu_graph graph;
        T_EQ(symm_cu.cuStreamBeginCapture(streams[1], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
        call(1, i + 1, gk_user(streams[1]));
        call(1, i, gk_user(streams[1]));
        T_EQ(symm_cu.cuStreamEndCapture(streams[1], &graph), 0);
        T_EQ(symm_cu.cuGraphInstantiate(&exec[i], graph, 0), 0);
        T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    }
    T_EQ(gk_last(1).count, 0); /* recorded, not run */
    for (int i = 0; i < 3 * GRAPHS; i++) {
        T_EQ(symm_cu.cuGraphLaunch(exec[i * 5 % GRAPHS], streams[1]), 0);
        told(1, i * 5 % GRAPHS);
    }
    for (int i = 0; i < GRAPHS; i++) T_EQ(symm_cu.cuGraphExecDestroy(exec[i]), 0);
    finish(RANKS);
    GK_LEFT(0);
}

static void grouped_calls_have_their_own_parts(void) {
    start(RANKS);
    for (int last = 0; last < 4; last++) {
        T_OK(symmGroupStart());
        for (int i = 0; i <= last; i++)
            for (int r = 0; r < RANKS; r++) call(r, 3 * i + r, gk_user(streams[r]));
        T_OK(symmGroupEnd());
        for (int r = 0; r < RANKS; r++) told(r, 3 * last + r);
    }
    finish(RANKS);
}

/* ---- kernel and grid ------------------------------------------------------------------------- */

static void gather(int rank, int n, size_t each, symmDataType_t type) {
    size_t counts[GK_RANKS];
    for (int p = 0; p < n; p++) counts[p] = each;
    T_OK(symmAllGatherv(buf[rank][0], each, buf[rank][1], counts, NULL, type, comms[rank],
                        gk_user(streams[rank])));
}
static void scatter(int rank, int n, size_t each, symmDataType_t type) {
    size_t counts[GK_RANKS];
    for (int p = 0; p < n; p++) counts[p] = each;
    T_OK(symmReduceScatterv(buf[rank][0], buf[rank][1], counts, type, symmSum, comms[rank],
                            gk_user(streams[rank])));
}

static void same_grid(const char *kernel, int *ctas, unsigned *threads) {
    const gk_launch got = gk_last(0);
    T_STREQ(got.kernel, kernel);
    if (!*ctas) *ctas = (int)got.config.grid_x, *threads = got.config.block_x;
    T_EQ(got.config.grid_x, *ctas);
    T_EQ(got.config.block_x, *threads);
}

/* Nothing, a few bytes, a megabyte: ranks may differ in that. */
static void kernel_and_grid_depend_on_no_count(void) {
    static const int ranks[] = {1, 2, 4, 5, 8};
    static const size_t each[] = {0, 3, 1000, 30000};
    for (int i = 0; i < 5; i++) {
        const int n = ranks[i];
        int ctas = 0;
        unsigned threads = 0;
        start(n);
        for (int k = 0; k < 4; k++) {
            gather(0, n, each[k], symmInt32);
            same_grid("symm_all_gatherv_direct_n0", &ctas, &threads);
            scatter(0, n, each[k], symmBfloat16);
            same_grid("symm_reduce_scatterv_staged_bf16_n0", &ctas, &threads);
        }
        /* every multiprocessor: one pair may have nearly everything */
        const int sms = gk_inside(comms[0])->gpus.sms;
        T_EQ(ctas, sms < 132 ? sms : 132);
        T_CHECK(gk_last(0).args.gpu.pairs <= gk_last(0).args.scratch.gpu.ll_slot / 2);
        finish(n);
    }
}

static void what_explain_says(void) {
    symmExplain_t plan = {.size = sizeof plan};
    symmWindow_t win[RANKS];
    start(RANKS);
    T_OK(symmExplain(comms[0], symmCollAlltoAllv, buf[0][0], buf[0][1], 5000, symmInt32, symmSum, 0,
                     &plan));
    T_STREQ(plan.kernel, "alltoallv_direct");
    T_CHECK(plan.zeroCopySend && !plan.zeroCopyRecv);
    T_MSG(plan.reason, "recvbuff");
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmWindowRegister(comms[r], buf[r][1], GK_MB, &win[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    T_OK(symmExplain(comms[0], symmCollAllGatherv, buf[0][0], buf[0][1], 5000, symmInt32, symmSum,
                     0, &plan));
    T_STREQ(plan.kernel, "all_gatherv_direct");
    T_CHECK(plan.zeroCopySend && plan.zeroCopyRecv);
    for (int r = 0; r < RANKS; r++) T_OK(symmWindowDeregister(comms[r], win[r]));
    finish(RANKS);
}

T_MAIN(T(eager_calls_have_their_own_parts), T(captured_calls_keep_their_own_parts),
       T(grouped_calls_have_their_own_parts), T(kernel_and_grid_depend_on_no_count),
       T(what_explain_says))
