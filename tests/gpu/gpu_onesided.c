/* gpu_onesided.c - one-sided calls on GPUs, ranks are threads: random programs among 1 to 8 ranks
 * (gpu_puts.h); every size, alignment and buffer; captured and replayed; counts that are read while
 * kernels wait; ranks that abort, leave or never come; how long a put takes, and how fast it is.
 * T_SEED repeats a run, GPU_CASES=n shortens it, T_FULL=1 enlarges it. */
#include "gpu_puts.h"

static void run(int n, t_rank_fn fn) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    j.cases = gk_number("GPU_CASES", ck_full() ? 200 : gk_number("GPU_FAKE", 0) ? 8 : 20);
    fprintf(stderr, "T_SEED=%#llx\n", (unsigned long long)j.seed);
    gk_run(&j, fn);
    gc_settle();
    T_EQ(SYMM_STAT_GET(windows), 0);
    T_EQ(SYMM_STAT_GET(comms), 0);
}

/* ---- random programs ------------------------------------------------------------------------- */

static void programs_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    (void)n;
    gu_programs(&g, j->comms[rank], j->cases);
}
static void programs(const char *ctas, const char *threads, int n) {
    gc_env_none();
    if (ctas) setenv("SYMM_CTAS", ctas, 1);
    if (threads) setenv("SYMM_THREADS", threads, 1);
    run(n, programs_rank);
    gc_env_none();
}
static void programs_1_2(void) {
    programs(NULL, NULL, 1);
    programs(NULL, NULL, 2);
    programs("1", "32", 2);
}
static void programs_3_8(void) {
    programs("3", "64", 3);
    programs(NULL, NULL, 5);
    programs(NULL, NULL, 8);
}

/* ---- every size, alignment and buffer -------------------------------------------------------- */

enum { MOST = 3 << 20, PLACE = MOST + 4096, SIGNAL = 5 };

typedef struct {
    const gc_rank *g;
    ok_world w;
    cu_stream s;
    char *host, *plain; /* plain: memory of the GPU in no window */
    int next, prev;
} ring;

/* What this rank has put to its neighbour is there, a get of it brings it back, and nothing beside
 * it was written. Then both may go on. */
static void check_place(const ring *r, uint64_t at, uint64_t bytes, uint64_t no, const char *back) {
    gk_get(r->w.p.comm, r->s, r->host, r->w.p.memory + at - PK_GUARD, bytes + 2 * PK_GUARD);
    pk_received(r->host + PK_GUARD, bytes, r->prev, r->g->rank, no);
    gk_get(r->w.p.comm, r->s, r->host, back - PK_GUARD, bytes + 2 * PK_GUARD);
    pk_received(r->host + PK_GUARD, bytes, r->g->rank, r->next, no);
}

static void put_around(const ring *r, uint64_t at, uint64_t bytes, char *from, char *back,
                       int split) {
    symmStream_t s = gk_stream(r->s);
    symmComm_t comm = r->w.p.comm;
    if (split) {
        T_OK(symmPut(from, bytes, symmUint8, r->next, r->w.p.win, at, comm, s));
        T_OK(symmSignal(r->next, SIGNAL, comm, s));
    } else {
        T_OK(symmPutSignal(from, bytes, symmUint8, r->next, r->w.p.win, at, SIGNAL, comm, s));
    }
    T_OK(symmGet(back, bytes, symmUint8, r->next, r->w.p.win, at, comm, s));
    ok_wait(&r->w, r->prev, SIGNAL, 1, s);
}

/* i: which size, how many bytes off both ends are, whether the own buffers are in the window. */
static void one_place(const ring *r, int i) {
    static const uint64_t sizes[] = {0, 1, 8, 17, 4096, 4097, 40000, 1 << 20, MOST};
    const uint64_t bytes = sizes[i % 9], no = (uint64_t)i;
    const uint64_t to_off = (uint64_t)(i / 9 * 5 % 16), from_off = (uint64_t)(i / 18 * 3 % 16);
    char *own = i & 1 ? r->w.p.memory + PLACE : r->plain;
    char *from = own + 128 + from_off, *back = own + PLACE + 128 + (i / 9 & 3);
    gk_fill(r->s, r->w.p.memory, PLACE, PK_EMPTY);
    gk_fill(r->s, own, 2 * PLACE, PK_EMPTY);
    pk_fill(r->host, bytes, r->g->rank, r->next, no);
    gk_put(r->s, from, r->host, bytes);
    gk_wait(r->w.p.comm, r->s);
    gc_meet(r->g);
    put_around(r, 128 + to_off, bytes, from, back, i % 4 == 3);
    gk_wait(r->w.p.comm, r->s);
    check_place(r, 128 + to_off, bytes, no, back);
    gc_meet(r->g);
}

static ring open_ring(const gc_rank *g, symmComm_t comm) {
    ring r = {.g = g, .next = (g->rank + 1) % g->n, .prev = (g->rank + g->n - 1) % g->n};
    gu_open(g, &r.w, comm, 3 * PLACE);
    r.s = gk_new_stream();
    r.host = gk_pinned(PLACE);
    r.plain = gk_plain(2 * PLACE);
    gc_meet(g);
    return r;
}
static void close_ring(ring *r) {
    gc_meet(r->g);
    gk_free_pinned(r->host);
    gk_free_plain(r->plain);
    gu_close(r->g, &r->w);
    CU(cuStreamDestroy(r->s));
}

static void places_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    ring r = open_ring(&g, j->comms[rank]);
    (void)n;
    for (int i = 0; i < 9 * j->cases; i += gk_number("GPU_FAKE", 0) ? 5 : 1) one_place(&r, i);
    close_ring(&r);
}
static void every_size_alignment_and_buffer(void) {
    gc_env_none();
    run(2, places_rank);
    setenv("SYMM_CTAS", "3", 1);
    run(3, places_rank);
    gc_env_none();
}

/* ---- graphs ---------------------------------------------------------------------------------- */

enum { REPLAYS = 25, STEP = 70000 };

/* A replay raises its signals again, and uses up what it waits for: both ranks put what they have,
 * and send back a word that they are done with it. */
static void replays_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    ring r = open_ring(&g, j->comms[rank]);
    symmComm_t comm = r.w.p.comm;
    symmStream_t s = gk_stream(r.s);
    const symmSignalWait_t both[] = {{r.prev, SIGNAL, 2}, {r.prev, SIGNAL + 1, 1}};
    gk_capture(r.s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    T_OK(symmPutSignal(r.plain, STEP, symmUint8, r.next, r.w.p.win, 0, SIGNAL, comm, s));
    T_OK(symmPutSignal(r.plain, 9, symmUint8, r.next, r.w.p.win, STEP, SIGNAL, comm, s));
    T_OK(symmFence(comm, s));
    T_OK(symmSignal(r.next, SIGNAL + 1, comm, s));
    T_OK(symmWaitSignal(2, both, comm, s));
    CU(cuMemcpyDtoHAsync(r.host, (uintptr_t)r.w.p.memory, STEP + 9, r.s));
    T_OK(symmSignal(r.prev, SIGNAL + 2, comm, s)); /* it may be put again */
    ok_wait(&r.w, r.next, SIGNAL + 2, 1, s);
    gk_graph graph = gk_captured(r.s);
    char *image = gk_pinned(STEP);
    gc_meet(&g);
    for (unsigned i = 0; i < REPLAYS; i++) {
        pk_fill(image, STEP, rank, r.next, i);
        gk_put(r.s, r.plain, image, STEP);
        CU(cuGraphLaunch(graph.exec, r.s));
        gk_wait(comm, r.s);
        pk_check(r.host, STEP, r.prev, rank, i);
        pk_check(r.host + STEP, 9, r.prev, rank, i);
    }
    T_EQ(ok_unused(&r.w), 0);
    gc_meet(&g);
    gk_drop(&graph);
    gk_free_pinned(image);
    close_ring(&r);
    (void)n;
}
static void captured_and_replayed(void) {
    gc_env_none();
    run(2, replays_rank);
    run(3, replays_rank);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* A count is read while a kernel of this rank waits, and the stream does not move. */
static void counts_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    ring r = open_ring(&g, j->comms[rank]);
    (void)n;
    ok_wait(&r.w, r.prev, 1, 1, gk_stream(r.s));
    for (int i = 0; i < 3; i++) T_EQ(ok_read(&r.w, r.prev, 2), 0);
    T_EQ(ok_read(&r.w, r.prev, 1), 0);
    T_EQ(symm_cu.cuStreamQuery(r.s), SYMM_CUDA_ERROR_NOT_READY);
    gc_meet(&g); /* all have read */
    T_OK(symmCommRevoke(r.w.p.comm, 0));
    gk_wait_code(NULL, r.s);
    close_ring(&r);
}
static void counts_are_read_while_kernels_wait(void) {
    T_EXPECT_WARNINGS();
    gc_env_none();
    run(2, counts_rank);
}

/* ---- ranks that do not come ------------------------------------------------------------------ */

enum { ABORTS, NEVER, LEAVES, ITSELF, FAULTS };
static const symmResult_t codes[FAULTS] = {symmAborted, symmTimeout, symmRemoteError,
                                           symmInvalidUsage};

static void check_fault(symmComm_t comm, int how, int rank) {
    const char *text;
    symmResult_t code = symmSuccess;
    while (!code) T_OK(symmCommGetAsyncError(comm, &code));
    T_EQ(code, codes[how]);
    text = symmGetLastError(comm);
    if (how == ITSELF)
        T_MSG(text, "rank 0 waits for a signal of its own that no earlier call has raised");
    if (how == NEVER) T_MSG(text, "rank 0 did not come");
    if (how == LEAVES) T_MSG(text, "rank 0");
    if (rank == (how == ITSELF ? 0 : 1) && how != ABORTS)
        T_MSG(text, how == ITSELF
                        ? "(rank 0 waits in symmWaitSignal for 3 of signal 9 from rank 0, "
                          "of which 1 came)"
                        : "(rank 1 waits in symmWaitSignal for 3 of signal 9 from rank 0, "
                          "of which 1 came)");
}

static void fault_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    const symmSignalWait_t w = {0, 9, 3};
    const int waits = j->how == ITSELF ? rank == 0 : rank == 1;
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream s = gk_new_stream();
    gk_meet(j);
    if (rank == 0) T_OK(symmSignal(j->how == ITSELF ? 0 : 1, 9, comm, gk_stream(s)));
    if (waits) T_OK(symmWaitSignal(1, &w, comm, gk_stream(s)));
    if (rank == 0 && j->how == ABORTS) {
        usleep(20000); /* the other one waits by then */
        T_OK(symmCommRevoke(comm, 0));
    }
    if (rank == 0 && j->how == LEAVES) {
        gk_wait(comm, s);
        T_OK(symmCommDestroy(comm));
    } else {
        gk_wait_code(NULL, s);
        check_fault(comm, j->how, rank);
    }
    gk_meet(j);
    if (rank || j->how != LEAVES) T_OK(symmCommDestroy(comm));
    gk_meet(j);
    CU(cuStreamDestroy(s));
}
static void ranks_that_abort_leave_or_never_come(void) {
    T_EXPECT_WARNINGS();
    gc_env_none();
    for (int how = 0; how < FAULTS; how++) {
        gk_job j = {.n = 2, .devices = gk_begin(), .how = how};
        setenv("SYMM_TIMEOUT", how == NEVER ? "500" : "15000", 1);
        gk_run(&j, fault_rank);
        gc_settle();
    }
    unsetenv("SYMM_TIMEOUT");
}

/* ---- figures --------------------------------------------------------------------------------- */

enum { LARGE = 64 << 20, TURNS = 200, BULK = 20 };

typedef struct {
    gk_job *j;
    const gc_rank *g;
    ok_world w;
    cu_stream s;
    uint64_t bytes;
    int way; /* of the figure */
} figure;
enum { THERE_AND_BACK, PUTS, GETS };

/* One after the other: what a rank puts, the other one answers. */
static void turns(const figure *f) {
    symmStream_t s = gk_stream(f->s);
    for (int i = 0; i < TURNS; i++) {
        if (f->g->rank) ok_wait(&f->w, 0, 0, 1, s);
        T_OK(symmPutSignal(f->w.p.memory, f->bytes, symmUint8, !f->g->rank, f->w.p.win, LARGE, 0,
                           f->w.p.comm, s));
        if (!f->g->rank) ok_wait(&f->w, 1, 0, 1, s);
    }
}
/* Rank 0 alone moves; the other one is idle. */
static void moves(const figure *f) {
    symmStream_t s = gk_stream(f->s);
    for (int i = 0; i < BULK && !f->g->rank; i++) {
        if (f->way == PUTS)
            T_OK(symmPut(f->w.p.memory, f->bytes, symmUint8, 1, f->w.p.win, LARGE, f->w.p.comm, s));
        else
            T_OK(symmGet(f->w.p.memory, f->bytes, symmUint8, 1, f->w.p.win, LARGE, f->w.p.comm, s));
    }
    if (!f->g->rank) T_OK(symmSignal(1, 1, f->w.p.comm, s));
    if (f->g->rank) ok_wait(&f->w, 0, 1, 1, s);
}

/* Microseconds of one, of the best of some replays. */
static double measure(const figure *f) {
    double best = 1e30;
    gc_meet(f->g);
    gk_capture(f->s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    f->way == THERE_AND_BACK ? turns(f) : moves(f);
    gk_graph graph = gk_captured(f->s);
    for (int i = 0; i < 7; i++) {
        gc_meet(f->g);
        const uint64_t since = symm_now_ns();
        CU(cuGraphLaunch(graph.exec, f->s));
        while (symm_cu.cuStreamQuery(f->s) == SYMM_CUDA_ERROR_NOT_READY)
            if (gk_ms_since(since) > GK_STUCK_MS) break;
        const double us = (double)(symm_now_ns() - since) / 1000;
        if (us < best) best = us;
        gk_wait(f->w.p.comm, f->s);
    }
    gc_meet(f->g);
    gk_drop(&graph);
    return best / (f->way == THERE_AND_BACK ? 2 * TURNS : BULK);
}

static void figures_rank(int rank, int n, void *arg) {
    static const uint64_t small[] = {8, 1024, 65536},
                          large[] = {65536, 1 << 20, 4 << 20, 16 << 20, LARGE};
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    figure f = {.j = j, .g = &g};
    (void)n;
    gu_open(&g, &f.w, j->comms[rank], 2ull * LARGE);
    f.s = gk_new_stream();
    for (unsigned i = 0; i < 3; i++) {
        f.bytes = small[i];
        const double us = measure(&f);
        if (!rank)
            gk_figure("put of %llu bytes with its signal, until it is waited for: %.2f us",
                      (unsigned long long)f.bytes, us);
    }
    for (unsigned i = 0; i < 10; i++) {
        f.bytes = large[i / 2], f.way = i & 1 ? GETS : PUTS;
        const double us = measure(&f);
        if (!rank)
            gk_figure("%s of %9llu bytes: %8.2f us, %7.2f GB/s", i & 1 ? "get" : "put",
                      (unsigned long long)f.bytes, us, (double)f.bytes / us / 1000);
    }
    gu_close(&g, &f.w);
    CU(cuStreamDestroy(f.s));
}
static void how_long_puts_take(void) {
    if (gk_number("GPU_FAKE", 0)) T_SKIP("figures need a GPU");
    gc_env_none();
    run(2, figures_rank);
}

T_MAIN(T_TIMEOUT(programs_1_2, 180), T_TIMEOUT(programs_3_8, 240),
       T_TIMEOUT(every_size_alignment_and_buffer, 240), T_TIMEOUT(captured_and_replayed, 60),
       T(counts_are_read_while_kernels_wait), T_TIMEOUT(ranks_that_abort_leave_or_never_come, 120),
       T_TIMEOUT(how_long_puts_take, 120))
