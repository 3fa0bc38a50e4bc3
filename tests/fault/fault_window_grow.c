/* fault_window_grow.c - symmWindowGrow: in place, into another slot, with windows that share the
 * slot, with captured calls; what is refused; each failpoint on each rank. Ranks are processes
 * unless it says threads. */
#include "host/window/space.h"
#include "graph_kit.h"
#include "heap_kit.h"

enum { RANKS = 3 };

/* Memory of the user's that grows where it is: addresses of its own, pieces put behind each
 * other. */
typedef struct {
    char *at;
    uint64_t room, bytes;
} memory;

static memory reserve(uint64_t room) {
    memory m = {NULL, room, 0};
    void *va;
    T_EQ(symm_vmm_host.reserve(room, 0, &va), 0);
    m.at = va;
    return m;
}

static void extend(memory *m, uint64_t bytes) {
    symm_vmm_handle *h;
    T_EQ(symm_vmm_host.create(bytes, &h), 0);
    T_EQ(symm_vmm_host.map(m->at + m->bytes, bytes, 0, h), 0);
    T_EQ(symm_vmm_host.set_access(m->at + m->bytes, bytes), 0);
    T_EQ(symm_vmm_host.release(h), 0);
    m->bytes += bytes;
}

static void release(memory *m) {
    if (m->bytes) T_EQ(symm_vmm_host.unmap(m->at, m->bytes), 0);
    T_EQ(symm_vmm_host.unreserve(m->at, m->room), 0);
}

static void paint(hk *k, const memory *m, int salt) {
    for (uint64_t at = 0; at < m->bytes; at += HK_MB)
        hk_fill(m->at + at, 64, k->rank, salt + (int)(at >> 20));
}

/* Peers see all of it through the window. */
static void seen(hk *k, symmWindow_t win, const uint64_t *bytes, int salt) {
    void *p;
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++) {
        for (uint64_t at = 0; at < bytes[r]; at += HK_MB) {
            T_OK(symmWindowPeerPtr(win, at, r, &p));
            hk_holds(p, 64, r, salt + (int)(at >> 20));
        }
        T_ERR(symmWindowPeerPtr(win, bytes[r], r, &p), symmInvalidArgument);
    }
    T_OK(symmBarrier(k->comm, NULL));
}

static void works(hk *k, const memory *m) {
    symmExplain_t plan = {.size = sizeof plan};
    int *send = (int *)(m->at + m->bytes - 4 * HK_MB), *recv = send + (HK_MB >> 1);
    T_OK(symmExplain(k->comm, symmCollAllReduce, send, recv, 400000, symmInt32, symmSum, 0, &plan));
    T_EQ(plan.zeroCopySend, 1);
    T_EQ(plan.zeroCopyRecv, 1);
    fk_reduce(k->comm, k->rank, k->n, send, recv, 400000, NULL);
}

static uint64_t slot_of(symmWindow_t win) {
    symmWindowInfo_t i = {.size = sizeof i};
    T_OK(symmWindowQuery(win, &i));
    return i.slotOffset;
}

/* More on higher ranks; rank 0 does not grow in the last step. */
static void grow_some(hk *k, memory *m, symmWindow_t win, uint64_t *bytes, int step) {
    const uint64_t more = step == 3 && k->rank == 0 ? 0 : (uint64_t)(k->rank + 1) * 2 * HK_MB;
    const int64_t created = SYMM_STAT_GET(created_bytes);
    if (more) extend(m, more);
    paint(k, m, step);
    T_OK(symmWindowGrow(win, m->bytes));
    /* Nothing is made, let alone copied: the new bytes are the user's own. */
    if (!k->threads) T_EQ(SYMM_STAT_GET(created_bytes) - created, more);
    for (int r = 0; r < k->n; r++)
        bytes[r] += step == 3 && r == 0 ? 0 : (uint64_t)(r + 1) * 2 * HK_MB;
    seen(k, win, bytes, step);
    works(k, m);
}

static void in_place(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    hk_barrier(k);
    memory m = reserve(64 * HK_MB);
    symmWindow_t win;
    uint64_t bytes[RANKS] = {4 * HK_MB, 4 * HK_MB, 4 * HK_MB};
    extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    const uint64_t slot = slot_of(win);
    for (int step = 1; step <= 3; step++) {
        grow_some(k, &m, win, bytes, step);
        T_EQ(slot_of(win), slot);
    }
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    release(&m);
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    hk_barrier(k);
    if (k->threads && k->rank == 0) FK_UNCHANGED(&before);
    hk_barrier(k);
}
static void a_window_grows_in_place(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, in_place, NULL);
    hk_threads(RANKS, in_place, NULL);
}

static void elsewhere(void *arg) {
    hk *k = arg;
    memory m = reserve(64 * HK_MB);
    symmWindow_t win, next;
    void *other;
    uint64_t bytes[RANKS] = {4 * HK_MB, 4 * HK_MB, 4 * HK_MB};
    extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    T_OK(symmMemAlloc(&other, 2 * HK_MB)); /* takes the addresses behind it */
    T_OK(symmWindowRegister(k->comm, other, 2 * HK_MB, &next, 0));
    const uint64_t slot = slot_of(win);
    grow_some(k, &m, win, bytes, 1);
    T_CHECK(slot_of(win) != slot);
    const uint64_t second = slot_of(win);
    grow_some(k, &m, win, bytes, 2); /* nothing is behind it there */
    T_EQ(slot_of(win), second);
    T_OK(symmWindowDeregister(k->comm, next));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmMemFree(other));
    hk_barrier(k);
    release(&m);
}
static void a_window_moves_where_addresses_are_taken(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, elsewhere, NULL);
}

static void shared(void *arg) {
    hk *k = arg;
    memory m = reserve(64 * HK_MB);
    symmWindow_t win, twin;
    uint64_t bytes[RANKS] = {4 * HK_MB, 4 * HK_MB, 4 * HK_MB}, old[RANKS];
    memcpy(old, bytes, sizeof old);
    extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &twin, 0));
    T_EQ(slot_of(win), slot_of(twin));
    grow_some(k, &m, win, bytes, 1);
    T_CHECK(slot_of(win) != slot_of(twin));
    T_OK(symmBarrier(k->comm, NULL));
    paint(k, &m, 1);
    seen(k, twin, old, 1);
    T_OK(symmWindowDeregister(k->comm, twin));
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    release(&m);
}
static void windows_that_share_a_slot_keep_theirs(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, shared, NULL);
}

/* The captured call knows the first place; it stays. */
static void captured(void *arg) {
    hk *k = arg;
    memory m = reserve(64 * HK_MB);
    symmWindow_t win, next;
    symmStream_t stream;
    symmGraph_t graph;
    void *other;
    uint64_t bytes[RANKS] = {4 * HK_MB, 4 * HK_MB, 4 * HK_MB};
    extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    T_OK(symmMemAlloc(&other, 2 * HK_MB));
    T_OK(symmWindowRegister(k->comm, other, 2 * HK_MB, &next, 0));
    int *p = (int *)(void *)m.at;
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(p, p, 200000, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    grow_some(k, &m, win, bytes, 1);
    fk_collect(k->comm); /* frees what all have dropped */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 200000; i++) p[i] = i + k->rank;
        T_OK(symmGraphLaunch(xg_exec(graph), stream));
        T_OK(symmStreamSynchronize(stream));
        for (int i = 0; i < 200000; i++) T_EQ(p[i], k->n * i + k->n * (k->n - 1) / 2);
    }
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
    T_OK(symmWindowDeregister(k->comm, next));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmMemFree(other));
    hk_barrier(k);
    release(&m);
}
static void captured_calls_keep_the_place_they_know(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, captured, NULL);
}

static void refused(void *arg) {
    hk *k = arg;
    memory m = reserve(64 * HK_MB);
    symmWindow_t win;
    extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    T_ERR(symmWindowGrow(win, k->rank == 1 ? HK_MB : m.bytes), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "size=1048576: the window has 4194304 bytes already");
    T_ERR(symmWindowGrow(win, 8 * HK_MB), symmInvalidArgument); /* no memory there */
    T_MSG(symmGetLastError(NULL), "byte 4194304 is not memory that peers can map");
    T_ERR(symmWindowGrow(NULL, HK_MB), symmInvalidArgument);
    if (k->rank == 2) {
        T_EQ(symm_vmm_host.unmap(m.at, m.bytes), 0);
        m.bytes = 0;
    } else {
        extend(&m, 2 * HK_MB);
    }
    for (int other = 0; other < 2; other++) { /* nothing, then other memory at the same place */
        T_ERR(symmWindowGrow(win, 6 * HK_MB), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "was freed");
        if (k->rank == 2 && !other) extend(&m, 6 * HK_MB);
    }
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowDeregister(k->comm, win));
    T_ERR(symmWindowGrow(win, HK_MB), symmInvalidArgument);
    hk_barrier(k);
    release(&m);
}
static void wrong_growth_is_refused_on_every_rank(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, refused, NULL);
    hk_threads(RANKS, refused, NULL);
}

/* ---- failpoints ---- */

static int confirms(int point) {
    return point == symm_fp_mesh_sendmsg || point == symm_fp_mesh_recvmsg;
}

static void fail_one(hk *k, int point, int move) {
    fk *f = k->f;
    char spec[96];
    memory m = reserve(64 * HK_MB);
    symmWindow_t win, next = NULL;
    void *other = NULL;
    uint64_t bytes[RANKS] = {4 * HK_MB, 4 * HK_MB, 4 * HK_MB};
    extend(&m, 4 * HK_MB);
    paint(k, &m, 9);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    if (move) {
        T_OK(symmMemAlloc(&other, 2 * HK_MB));
        T_OK(symmWindowRegister(k->comm, other, 2 * HK_MB, &next, 0));
    }
    extend(&m, 6 * HK_MB);
    fk_gauges before = fk_take();
    snprintf(spec, sizeof spec, "%s:error:1:%d", symm_fail_name(point), f->victim);
    hk_barrier(k);
    if (k->rank == f->victim) T_EQ(symm_fail_arm(spec), 0);
    fk_note(f, k->rank, symmWindowGrow(win, m.bytes));
    if (k->rank == f->victim && symm_fail_hits(point)) {
        atomic_store(&f->hits[0], 1);
        T_CHECKF(f->k.code[k->rank], "%s failed, and nothing came of it", symm_fail_name(point));
    }
    T_EQ(symm_fail_arm(""), 0);
    hk_barrier(k);
    const int failed = f->k.code[f->victim] != 0;
    for (int r = 0; r < k->n; r++)
        T_CHECKF((f->k.code[r] != 0) == failed || confirms(point), "%s of rank %d: rank %d has %d",
                 symm_fail_name(point), f->victim, r, f->k.code[r]);
    symmResult_t async;
    T_OK(symmCommGetAsyncError(k->comm, &async));
    if (f->k.code[k->rank] && !async) {
        FK_UNCHANGED(&before);
        seen(k, win, bytes, 9);
        paint(k, &m, 9);
        T_OK(symmWindowGrow(win, m.bytes));
        for (int r = 0; r < k->n; r++) bytes[r] = m.bytes;
        seen(k, win, bytes, 9);
        works(k, &m);
    }
    hk_barrier(k);
    if (next) T_OK(symmWindowDeregister(k->comm, next));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmMemFree(other));
    release(&m);
}

static void a_failure_on_one_rank_changes_nothing(void) {
    hk_failpoints("window_grow", fail_one);
}

T_MAIN(T(a_window_grows_in_place), T(a_window_moves_where_addresses_are_taken),
       T(windows_that_share_a_slot_keep_theirs), T(captured_calls_keep_the_place_they_know),
       T(wrong_growth_is_refused_on_every_rank), T(a_failure_on_one_rank_changes_nothing))
