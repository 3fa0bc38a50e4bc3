/* gpu_copies.c - calls whose data copy engines move: buffers at one place of a heap or a window on
 * all ranks, in place, and where that is not so and the kernel must move them; eager, replayed,
 * with a rank that is late, and with sources that the program overwrites at once. Ranks as threads,
 * whose windows are not loaded by copies, and as processes. T_SEED repeats a run. */
#include "fault_kit.h"
#include "gpu_cases.h"
#include "gpu_kit.h"
#include "symm_heap.h"

enum { GUARD = 256, MOST = 4, ROUNDS = 3 };

/* Where buffers are. SHIFTED: at another place on each rank; ONE_LOOSE: the last rank's source is
 * in no window; LOOSE_RESULTS: no result is; ELSEWHERE: the root's source is not where others take
 * it to be, who name none. */
enum { SAME, IN_PLACE, SHIFTED, ONE_LOOSE, LOOSE_RESULTS, ELSEWHERE, IN_WINDOW, PLACES };
static const char *const place_names[] = {"at one place",     "in place",  "shifted",
                                          "one in no window", "no result", "elsewhere",
                                          "in a window"};

static const struct {
    symmColl_t coll;
    int kernel;
} kinds[] = {{symmCollAllGather, SYMM_KERNEL_AG_COPIES},
             {symmCollAlltoAll, SYMM_KERNEL_A2A_COPIES},
             {symmCollBroadcast, SYMM_KERNEL_BC_COPIES}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct {
    gk_job *job; /* threads */
    fk *f;       /* processes */
    uint64_t seed;
    int rank, n, kind, place, root, round;
    symmComm_t comm;
    cu_stream stream;
    uint64_t part, in, out; /* bytes of a part, and of both buffers */
    char *window, *loose, *heaped, *src, *dst, *host;
} rig;

static void meet(const rig *g) {
    if (g->job)
        gk_meet(g->job);
    else
        kit_barrier(&g->f->k, g->n);
}

static uint64_t room_of(uint64_t part, int n) {
    return (part + 4 * GUARD) * (unsigned)n;
}

/* Byte i of the part of rank `from` for rank `to`; for all of them -1. */
static char byte_of(const rig *g, int from, int to, uint64_t i) {
    return (char)ck_hash(g->seed + (unsigned)g->round,
                         (uint64_t)(from * 64 + to + 1) << 40 | (i >> 3), 7 + (i & 7));
}

static int is_rooted(const rig *g) {
    return kinds[g->kind].coll == symmCollBroadcast;
}
static int has_parts(const rig *g, int out) {
    return out ? !is_rooted(g) : kinds[g->kind].coll == symmCollAlltoAll;
}
static int gives(const rig *g) {
    return !is_rooted(g) || g->rank == g->root;
}
static int is_in_place(const rig *g) {
    return g->place == IN_PLACE;
}

/* Whether copy engines move it. A swap in place goes through scratch. */
static int is_copied(const rig *g) {
    if (g->place == IN_PLACE) return kinds[g->kind].coll != symmCollAlltoAll;
    return g->place == SAME || g->place == LOOSE_RESULTS || (g->place == IN_WINDOW && !g->job);
}

static void place_buffers(rig *g) {
    char *base = g->place == IN_WINDOW ? g->window : g->heaped;
    const uint64_t room = room_of(g->part, g->n);
    const int last = g->rank == (is_rooted(g) ? g->root : g->n - 1);
    g->in = g->part * (has_parts(g, 0) ? (unsigned)g->n : 1);
    g->out = g->part * (has_parts(g, 1) ? (unsigned)g->n : 1);
    g->src = base + GUARD;
    g->dst = base + room + GUARD;
    if (g->place == SHIFTED) g->src += 16 * g->rank;
    if (g->place == ONE_LOOSE && last) g->src = g->loose + GUARD;
    if (g->place == LOOSE_RESULTS) g->dst = g->loose + room + GUARD;
    if (is_in_place(g))
        g->src = g->dst + (has_parts(g, 1) && !has_parts(g, 0) ? (unsigned)g->rank * g->part : 0);
}

/* What a call in which copies were for nothing has left behind is forgotten. */
static void forget(const rig *g) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, g->comm);
    __atomic_store_n(&c->ctl->astray, 0, __ATOMIC_RELAXED);
}
/* Of the rank's last call: its copies were for nothing, so it gives none any more. */
static void check_astray(const rig *g) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, g->comm);
    const int loose = g->place == ONE_LOOSE && g->src == g->loose + GUARD,
              swapped = is_in_place(g) && kinds[g->kind].coll == symmCollAlltoAll;
    T_EQ(__atomic_load_n(&c->ctl->astray, __ATOMIC_RELAXED) != 0,
         !is_copied(g) && !loose && !swapped && g->place != IN_WINDOW);
}

/* In stream order: this round's source, and results that are wrong until the call has run. */
static void fill(const rig *g) {
    char *h = g->host;
    memset(h, 0x33, g->out + 2 * GUARD);
    gk_put(g->stream, g->dst - GUARD, h, g->out + 2 * GUARD);
    CU(cuStreamSynchronize(g->stream));
    for (uint64_t i = 0; i < g->in && gives(g); i++)
        h[i] = byte_of(g, g->rank, has_parts(g, 0) ? (int)(i / g->part) : -1,
                       has_parts(g, 0) ? i % g->part : i);
    if (gives(g)) gk_put(g->stream, g->src, h, g->in);
    CU(cuStreamSynchronize(g->stream));
}

static void call(const rig *g) {
    const symmStream_t s = gk_stream(g->stream);
    const void *src = gives(g) || g->place != ELSEWHERE ? g->src : NULL;
    switch (g->kind) {
    case 0: T_OK(symmAllGather(src, g->dst, g->part, symmUint8, g->comm, s)); break;
    case 1: T_OK(symmAlltoAll(src, g->dst, g->part, symmUint8, g->comm, s)); break;
    default: T_OK(symmBroadcast(src, g->dst, g->part, symmUint8, g->root, g->comm, s));
    }
    /* the program's again */
    if (!is_in_place(g) && gives(g)) gk_fill(g->stream, g->src, g->in, 0xEE);
}

/* Whether the last call of this rank there was moved by copies, as the kernels have noted it. */
static int was_copied(symmComm_t comm) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    symm_gpu_ctl *ctl = (symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride);
    uint32_t epoch = 0, copied = 1;
    T_EQ(c->vmm->copy(&epoch, &ctl->epoch[0], sizeof epoch), 0);
    T_EQ(c->vmm->copy(&copied, &ctl->copied, sizeof copied), 0);
    return copied == epoch;
}

static void check(const rig *g, const char *how) {
    const char *what = symm_kernels[kinds[g->kind].kernel].name;
    gk_get(g->comm, g->stream, g->host, g->dst - GUARD, g->out + 2 * GUARD);
    for (uint64_t i = 0; i < GUARD; i++)
        T_CHECKF(g->host[i] == 0x33 && g->host[GUARD + g->out + i] == 0x33,
                 "%s, %s, %s: a byte beside the result was written", what, place_names[g->place],
                 how);
    for (uint64_t i = 0; i < g->out; i++) {
        const int from = is_rooted(g) ? g->root : (int)(i / g->part),
                  to = has_parts(g, 0) ? g->rank : -1;
        const char want = byte_of(g, from, to, is_rooted(g) ? i : i % g->part);
        T_CHECKF(g->host[GUARD + i] == want, "T_SEED=%#llx: %s of %d, %s, %s: rank %d, byte %llu",
                 (unsigned long long)g->seed, what, g->n, place_names[g->place], how, g->rank,
                 (unsigned long long)i);
    }
    T_CHECKF(was_copied(g->comm) == is_copied(g), "%s of %d, %s, %s: %s by copy engines", what,
             g->n, place_names[g->place], how, was_copied(g->comm) ? "moved" : "not moved");
}

/* Some rank is late. */
static void late(const rig *g) {
    const uint64_t who = ck_hash(g->seed, (uint64_t)(g->kind * 64 + g->place), 3);
    if ((int)(who % (unsigned)g->n) == g->rank) gk_delay(g->stream, 3000);
}

static void eager(rig *g) {
    for (int i = 0; i < ROUNDS; i++, g->round++) {
        fill(g);
        if (i < 2) forget(g);
        meet(g);
        late(g);
        call(g);
        check(g, "eager");
        check_astray(g);
    }
}

static void replayed(rig *g) {
    forget(g);
    meet(g);
    gk_capture(g->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    call(g);
    gk_graph graph = gk_captured(g->stream);
    for (int i = 0; i < ROUNDS; i++, g->round++) {
        fill(g);
        meet(g);
        late(g);
        CU(cuGraphLaunch(graph.exec, g->stream));
        check(g, "replayed");
    }
    meet(g);
    gk_drop(&graph);
}

static void every_place(rig *g) {
    static const uint64_t parts[] = {1 << 16, 70001, 24};
    for (g->kind = 0; g->kind < KINDS; g->kind++) {
        if (symm_kernels[kinds[g->kind].kernel].max_ranks && g->n > 2) continue;
        gk_force(g->comm, kinds[g->kind].coll, kinds[g->kind].kernel, 2, 64);
        for (g->place = 0; g->place < PLACES; g->place++) {
            if (g->place == ELSEWHERE && !is_rooted(g)) continue;
            for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
                g->part = parts[i];
                g->root = (int)i % g->n;
                place_buffers(g);
                eager(g);
                replayed(g);
            }
        }
    }
}

static void run_rank(rig *g) {
    const uint64_t bytes = 2 * room_of(70001, g->n);
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmWindow_t win;
    g->stream = gk_new_stream();
    T_OK(symmMemAlloc((void **)&g->window, bytes));
    T_OK(symmWindowRegister(g->comm, g->window, bytes, &win, SYMM_WIN_DEFAULT));
    config.symBytes = bytes + (2 << 20);
    T_OK(symmHeapCreate(g->comm, &config, &heap));
    T_OK(symmHeapAlloc(heap, bytes, 0, 0, (void **)&g->heaped));
    g->loose = gk_plain(bytes);
    g->host = gk_pinned(bytes);
    every_place(g);
    gk_wait(g->comm, g->stream);
    meet(g);
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(g->comm));
    meet(g);
    T_OK(symmMemFree(g->window));
    gk_free_plain(g->loose);
    gk_free_pinned(g->host);
    CU(cuStreamDestroy(g->stream));
}

static void thread_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = {.job = j, .seed = j->seed, .rank = rank, .n = n, .comm = j->comms[rank]};
    T_OK(symmSetDevice(rank % j->devices));
    run_rank(&g);
}
static void threads(int n) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    gc_env_none();
    gk_run(&j, thread_rank);
    gc_settle();
}

static uint64_t forked_seed;
static void process_rank(int rank, int n, void *arg) {
    const char *why;
    T_EXPECT_FDS();
    const int devices = gk_find(&why);
    rig g = {.f = arg, .seed = forked_seed, .rank = rank, .n = n};
    T_OK(symmSetDevice(rank % devices));
    g.comm = fk_open(g.f, rank, n);
    run_rank(&g);
    gc_settle();
}
static void processes(int n) {
    if (gk_number("GPU_FAKE", 0)) symm_test_images = 1; /* its kernels need none */
    gk_begin_forked();
    gc_env_none();
    forked_seed = ck_seed();
    T_FORK(n, process_rank, fk_new(0, 0));
}

/* ---- two communicators ----------------------------------------------------------------------- */

/* Copies of both are given in one order on some ranks, in the other on others: those of one
 * communicator must not stand before the other's in an engine, behind a kernel that waits. */
enum { SIDES = 2, SIDE_PART = 1 << 20, TURNS = 64, LOOK = 8 };
typedef struct {
    symmComm_t comm;
    symmWindow_t win;
    cu_stream stream;
    char *src, *dst;
} side;

static char side_byte(int of, int rank, int turn) {
    return (char)(1 + of * 100 + rank * 16 + turn % 16);
}
static void open_side(side *s, symmComm_t comm, int n) {
    *s = (side){.comm = comm, .stream = gk_new_stream()};
    T_OK(symmMemAlloc((void **)&s->src, (1 + (size_t)n) * SIDE_PART));
    T_OK(symmWindowRegister(comm, s->src, (1 + (size_t)n) * SIDE_PART, &s->win, 0));
    s->dst = s->src + SIDE_PART;
    gk_force(comm, symmCollAllGather, SYMM_KERNEL_AG_COPIES, 2, 64);
}
static void close_side(side *s) {
    T_OK(symmCommDestroy(s->comm));
    T_OK(symmMemFree(s->src));
    CU(cuStreamDestroy(s->stream));
}
static void check_side(const side *s, int of, int n, int turn) {
    char ends[2];
    for (int p = 0; p < n; p++) {
        gk_get(s->comm, s->stream, &ends[0], s->dst + (size_t)p * SIDE_PART, 1);
        gk_get(s->comm, s->stream, &ends[1], s->dst + (size_t)(p + 1) * SIDE_PART - 1, 1);
        T_CHECKF(ends[0] == side_byte(of, p, turn) && ends[1] == ends[0],
                 "communicator %d, turn %d: rank %d's part is %d, %d", of, turn, p, ends[0],
                 ends[1]);
    }
    T_CHECK(was_copied(s->comm));
}
static void opposite_rank(int rank, int n, void *arg) {
    const char *why;
    side s[SIDES];
    symmComm_t comm, other;
    T_EXPECT_FDS();
    T_OK(symmSetDevice(rank % gk_find(&why)));
    comm = fk_open(arg, rank, n);
    T_OK(symmCommSplit(comm, 0, rank, &other, NULL));
    open_side(&s[0], comm, n);
    open_side(&s[1], other, n);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < SIDES; i++) {
            const int of = (i + rank + turn / LOOK) % SIDES;
            gk_fill(s[of].stream, s[of].src, SIDE_PART, side_byte(of, rank, turn));
            T_OK(symmAllGather(s[of].src, s[of].dst, SIDE_PART, symmUint8, s[of].comm,
                               gk_stream(s[of].stream)));
        }
        for (int i = 0; turn % LOOK == LOOK - 1 && i < SIDES; i++) check_side(&s[i], i, n, turn);
    }
    close_side(&s[1]);
    close_side(&s[0]);
}
static void opposite(int n) {
    if (gk_number("GPU_FAKE", 0)) symm_test_images = 1; /* its kernels need none */
    gk_begin_forked();
    gc_env_none();
    T_FORK(n, opposite_rank, fk_new(0, 0));
}

static void opposite_orders_of_2(void) {
    opposite(2);
}
static void opposite_orders_of_3(void) {
    opposite(3);
}

static void threads_2(void) {
    threads(2);
}
static void threads_3(void) {
    threads(3);
}
static void threads_4(void) {
    threads(MOST);
}
static void processes_2(void) {
    processes(2);
}
static void processes_3(void) {
    processes(3);
}

T_MAIN(T_TIMEOUT(threads_2, 120), T_TIMEOUT(threads_3, 120), T_TIMEOUT(threads_4, 180),
       T_TIMEOUT(processes_2, 120), T_TIMEOUT(processes_3, 120),
       T_TIMEOUT(opposite_orders_of_2, 120), T_TIMEOUT(opposite_orders_of_3, 120))
