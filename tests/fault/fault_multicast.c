/* fault_multicast.c - multicast windows over the host driver's objects: what is bound where,
 * growth, heaps, memory that does not fit, what keeps them off, and each failpoint on each rank,
 * after which all go on with unicast. Ranks are processes unless it says threads. */
#include <errno.h>

#include "multicast_kit.h"

enum { RANKS = 3, MOST = MK_MOST };

/* Behind the multicast address lies the memory of every rank, once. */
static void reaches_all(hk *k, void *at, void *const *peers) {
    void *each[MOST];
    int members = 0, found[MOST] = {0};
    T_EQ(symm_vmm_host_multicast(at, 64, each, &members), 0);
    T_EQ(members, k->n);
    for (int m = 0; m < members; m++)
        for (int r = 0; r < k->n; r++) {
            const char *own = each[m], *peer = peers[r];
            found[r] += own == peer || !memcmp(own, peer, 64);
        }
    for (int r = 0; r < k->n; r++) T_EQ(found[r], 1);
}

/* Byte `at` of everybody's part: marked by its rank, found by all, then stored to at once. */
static void spreads(hk *k, symmWindow_t win, char *own, uint64_t at) {
    void *cast, *peers[MOST], *each[MOST];
    int members;
    hk_fill(own + at, 64, k->rank, 5);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowMulticastPtr(win, at, &cast));
    for (int r = 0; r < k->n; r++) T_OK(symmWindowPeerPtr(win, at, r, &peers[r]));
    reaches_all(k, cast, peers);
    T_OK(symmBarrier(k->comm, NULL));
    for (int root = 0; root < k->n; root++) {
        T_EQ(symm_vmm_host_multicast(cast, 64, each, &members), 0);
        for (int m = 0; root == k->rank && m < members; m++) hk_fill(each[m], 64, root, 6);
        T_OK(symmBarrier(k->comm, NULL));
        hk_holds(own + at, 64, root, 6);
        T_OK(symmBarrier(k->comm, NULL));
    }
}

static void refused(symmWindow_t win, const char *part) {
    void *p = &p;
    T_ERR(symmWindowMulticastPtr(win, 0, &p), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "no multicast window: ");
    T_MSG(symmGetLastError(NULL), part);
    T_CHECK(p == &p && !mk_whole(win));
}

/* ---- windows --------------------------------------------------------------------------------- */

static void two_windows(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    symmWindow_t win[2];
    char *buf[2];
    void *a, *b;
    T_EQ(mk_has(k->comm), 1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            T_OK(symmMemAlloc((void **)&buf[i], 4 * HK_MB));
            T_OK(symmWindowRegister(k->comm, buf[i], 4 * HK_MB, &win[i], 0));
            T_EQ(mk_whole(win[i]), 1);
            spreads(k, win[i], buf[i], 0);
            spreads(k, win[i], buf[i], 4 * HK_MB - 64);
        }
        T_OK(symmWindowMulticastPtr(win[0], 0, &a));
        T_OK(symmWindowMulticastPtr(win[0], 100, &b));
        T_EQ((char *)b - (char *)a, 100);
        T_ERR(symmWindowMulticastPtr(win[0], 4 * HK_MB, &b), symmInvalidArgument);
        T_ERR(symmWindowMulticastPtr(win[0], 0, NULL), symmInvalidArgument);
        T_OK(symmMemMulticastPtr(k->comm, buf[0] + 100, 50, &a));
        T_OK(symmWindowMulticastPtr(win[0], 100, &b));
        T_CHECK(a == b);
        T_ERR(symmMemMulticastPtr(k->comm, &a, 8, &b), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "mem is in no window");
        T_ERR(symmMemMulticastPtr(k->comm, buf[0], 0, &b), symmInvalidArgument);
        T_ERR(symmMemMulticastPtr(k->comm, buf[0] + 100, SIZE_MAX - 50, &b), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "mem is beyond the end of the address space");
        for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(k->comm, win[i]));
        for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
        fk_collect(k->comm); /* unbound: the same offsets are bound again in the next round */
    }
    FK_COLLECTED(k->comm, &before);
}
static void windows_have_an_address_for_all_ranks(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    for (int n = 2; n <= MOST; n++)
        if (n != 4) hk_processes(n, two_windows, NULL);
}

static void plain(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    void *buf, *at;
    int fd[2];
    T_OK(symmMemAlloc(&buf, 2 * HK_MB));
    T_OK(symmWindowRegister(k->comm, buf, 2 * HK_MB, &win, 0));
    T_OK(symmWindowMulticastPtr(win, 0, &at));
    T_EQ(pipe(fd), 0);
    T_EQ(write(fd[1], at, 1), -1); /* the system looks at the address as a load would */
    T_EQ(errno, EFAULT);
    close(fd[0]);
    close(fd[1]);
    T_ERR(symmWindowRegister(k->comm, at, 2 * HK_MB, &win, 0), symmInvalidArgument);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmMemFree(buf));
}
static void a_plain_access_faults(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(2, plain, NULL);
}

/* A child communicator in the same order of ranks shares the space, and so the object. */
static void child(void *arg) {
    hk *k = arg;
    symmComm_t twin, back;
    T_OK(symmCommSplit(k->comm, 0, k->rank, &twin, NULL));
    T_OK(symmCommSplit(k->comm, 0, k->n - k->rank, &back, NULL));
    const symmComm_t comms[] = {twin, back, k->comm};
    for (int i = 0; i < 3; i++) {
        hk sub = *k;
        symmWindow_t win;
        char *buf;
        sub.comm = comms[i];
        T_EQ(mk_has(comms[i]), 1);
        T_OK(symmMemAlloc((void **)&buf, 2 * HK_MB));
        T_OK(symmWindowRegister(comms[i], buf, 2 * HK_MB, &win, 0));
        hk_fill(buf, 64, k->rank, 1);
        if (i != 1) spreads(&sub, win, buf, 64);
        T_EQ(mk_whole(win), 1);
        if (i == 0) T_OK(symmCommDestroy(twin));
        if (i == 1) T_OK(symmCommDestroy(back));
        hk_barrier(k);
        T_OK(symmMemFree(buf));
    }
}
static void communicators_of_one_space_share_the_object(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(RANKS, child, NULL);
}

/* ---- memory of unequal shape ----------------------------------------------------------------- */

/* 12 MiB in different segments; rank 1 has 4 MiB more. */
static void unequal(void *arg) {
    hk *k = arg;
    mk_memory m = {.room = 64 * HK_MB};
    symmWindow_t win;
    void *p;
    for (int i = 0; i < (k->rank ? 6 : 3); i++) mk_extend(&m, (k->rank ? 2 : 4) * HK_MB);
    if (k->rank == 1) mk_extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    T_EQ(mk_whole(win), 1); /* all that every rank has */
    for (uint64_t at = 0; at < 12 * HK_MB; at += 2 * HK_MB) spreads(k, win, m.at, at + 128);
    T_ERR(symmWindowMulticastPtr(win, 12 * HK_MB, &p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL),
          "offset=12582912: some rank's part of the window has 12582912 by");
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    mk_release(&m);
}
static void what_every_rank_has_is_bound(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(RANKS, unequal, NULL);
}

static void askew(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    char *buf;
    T_OK(symmMemAlloc((void **)&buf, 4 * HK_MB));
    T_OK(symmWindowRegister(k->comm, buf + 64 * k->rank, HK_MB, &win, 0));
    refused(win, "rank 1's buffer begins at another offset of its memory than rank 0's");
    fk_reduce(k->comm, k->rank, k->n, (int *)(void *)(buf + 64 * k->rank),
              (int *)(void *)(buf + 2 * HK_MB), 1000, NULL);
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    T_OK(symmMemFree(buf));
}
static void buffers_at_unequal_offsets_have_none(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(RANKS, askew, NULL);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void growing(void *arg) {
    hk *k = arg;
    const int moves = *(int *)k->arg;
    mk_memory m = {.room = 64 * HK_MB};
    symmWindow_t win, next = NULL;
    void *other = NULL;
    mk_extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, m.at, m.bytes, &win, 0));
    if (moves) {
        T_OK(symmMemAlloc(&other, 2 * HK_MB));
        T_OK(symmWindowRegister(k->comm, other, 2 * HK_MB, &next, 0));
    }
    for (int step = 0; step < 3; step++) {
        mk_extend(&m, (uint64_t)(2 + 2 * k->rank) * HK_MB);
        T_OK(symmWindowGrow(win, m.bytes));
        T_EQ(mk_whole(win), 1);
        for (uint64_t at = 0; at < (uint64_t)(4 + 2 * step) * HK_MB; at += 2 * HK_MB)
            spreads(k, win, m.at, at + 4096);
    }
    T_OK(symmWindowDeregister(k->comm, win));
    if (next) T_OK(symmWindowDeregister(k->comm, next));
    hk_barrier(k);
    T_OK(symmMemFree(other));
    mk_release(&m);
}
static void growth_extends_it(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    for (int moves = 0; moves < 2; moves++) hk_processes(RANKS, growing, &moves);
}

static void heap(void *arg) {
    hk *k = arg;
    symmHeapConfig_t config = hk_config(256 * HK_MB, 8 * HK_MB, 4 * HK_MB);
    symmHeap_t h;
    char *block[8];
    size_t freed;
    T_OK(symmHeapCreate(k->comm, &config, &h));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            if (i % 2 == 0) T_OK(symmHeapGrow(h, 8 * HK_MB, 0));
            T_OK(symmHeapAlloc(h, 3 * HK_MB, 0, SYMM_ALLOC_SYM, (void **)&block[i]));
            mk_spreads(k, block[i] + 64, 3 * HK_MB - 64);
        }
        for (int i = 0; i < 8; i++) T_OK(symmHeapFree(h, block[i]));
        T_OK(symmHeapTrim(h, 0, &freed)); /* unbinds; the next round binds there again */
    }
    T_OK(symmHeapDestroy(h));
}
static void heaps_are_bound_as_they_grow(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(RANKS, heap, NULL);
}

/* ---- off ------------------------------------------------------------------------------------- */

static void none(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    void *buf, *p;
    T_EQ(mk_has(k->comm), 0);
    T_OK(symmMemAlloc(&buf, 2 * HK_MB));
    T_OK(symmWindowRegister(k->comm, buf, 2 * HK_MB, &win, 0));
    refused(win, k->arg);
    T_ERR(symmMemMulticastPtr(k->comm, buf, 8, &p), symmNotSupported);
    T_MSG(symmGetLastError(NULL), (const char *)k->arg);
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    T_OK(symmMemFree(buf));
}
static void it_is_off_unless_asked_for(void) {
    T_EXPECT_WARNINGS();
    unsetenv("SYMM_MULTICAST");
    hk_processes(2, none, "rank 0: SYMM_MULTICAST=0");
    setenv("SYMM_MULTICAST", "1", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    hk_processes(2, none, "rank 0: NCCL_NVLS_ENABLE=0 forbids it");
    setenv("NCCL_NVLS_ENABLE", "0x0", 1);
    hk_processes(2, none, "rank 0: NCCL_NVLS_ENABLE=0 forbids it");
    setenv("NCCL_NVLS_ENABLE", "2", 1);
    hk_threads(2, none, "rank 0: the ranks are threads of one process");
    hk_processes(1, none, "rank 0: there is one rank");
}

static void one_vetoes(int rank, int n, void *arg) {
    mk_wish();
    if (rank == 1) setenv("NCCL_NVLS_ENABLE", "0", 1);
    hk_call call = {arg, none, "rank 1: NCCL_NVLS_ENABLE=0 forbids it", NULL};
    hk_process(rank, n, &call);
}
static void one_rank_keeps_it_off_for_all(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, one_vetoes, fk_new(0, 0));
}

/* ---- failpoints ------------------------------------------------------------------------------ */

/* Creation, registration and growth go on on every rank, and say whose step has failed. */
static void fails(int rank, int n, void *arg) {
    fk *f = arg;
    const int point = f->how, victim = f->victim;
    const int binds = point == symm_fp_mc_bind || point == symm_fp_mc_pieces;
    char spec[96], says[32];
    symmWindow_t win;
    mk_memory m = {.room = 64 * HK_MB};
    hk_env();
    symm_log_rank(rank);
    snprintf(spec, sizeof spec, "%s:error:0:%d", symm_fail_name(point), victim);
    snprintf(says, sizeof says, "rank %d: ", victim);
    if (rank == victim) T_EQ(symm_fail_arm(spec), 0);
    hk k = {.f = f, .rank = rank, .n = n, .comm = fk_open(f, rank, n)};
    if (rank == victim && symm_fail_hits(point)) atomic_store(&f->hits[0], 1);
    hk_barrier(&k);
    T_EQ(mk_has(k.comm), binds || !f->hits[0]);
    mk_extend(&m, 4 * HK_MB);
    T_OK(symmWindowRegister(k.comm, m.at, m.bytes, &win, 0));
    if (atomic_load(&f->hits[0])) refused(win, says);
    T_EQ(symm_fail_arm(""), 0);
    mk_extend(&m, 2 * HK_MB);
    T_OK(symmWindowGrow(win, m.bytes)); /* what is bound now is not all of it */
    if (atomic_load(&f->hits[0])) T_EQ(mk_whole(win), 0);
    T_OK(symmWindowDeregister(k.comm, win));
    fk_works(k.comm, rank, n);
    fk_collect(k.comm);
    if (binds) { /* a new slot is bound */
        T_OK(symmWindowRegister(k.comm, m.at, m.bytes, &win, 0));
        T_EQ(mk_whole(win), 1);
        spreads(&k, win, m.at, 64);
        T_OK(symmWindowDeregister(k.comm, win));
    }
    T_OK(symmCommDestroy(k.comm));
    hk_barrier(&k);
    mk_release(&m);
}
static void every_step_has_a_way_back(void) {
    static const int points[] = {symm_fp_mc_create, symm_fp_mc_file, symm_fp_mc_record,
                                 symm_fp_mc_import, symm_fp_mc_join, symm_fp_mc_bind,
                                 symm_fp_mc_pieces};
    T_EXPECT_WARNINGS();
    mk_wish();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        int hits = 0;
        for (int victim = 0; victim < RANKS; victim++) {
            fk *f = fk_new(victim, points[i]);
            T_FORK(RANKS, fails, f);
            hits += f->hits[0];
        }
        /* Rank 0 alone makes the object; the others alone import it. */
        const int maker = points[i] == symm_fp_mc_create || points[i] == symm_fp_mc_file;
        T_EQ(hits, maker ? 1 : points[i] == symm_fp_mc_import ? RANKS - 1 : RANKS);
    }
}

/* The steps that are the memory driver's own: addresses, export, map, access. */
static void driver_refuses(int rank, int n, void *arg) {
    fk *f = arg;
    char spec[96];
    hk_env();
    symm_log_rank(rank);
    symmComm_t comm = NULL;
    fk_id(f, rank, n);
    /* The object's step comes second for reservations, first for export, map and access. */
    snprintf(spec, sizeof spec, "%s:error:%d:%d", symm_fail_name(f->how),
             f->how == symm_fp_vmm_reserve ? 2 : 1, f->victim);
    if (rank == f->victim) T_EQ(symm_fail_arm(spec), 0);
    T_OK(symmCommInitRank(&comm, n, f->id, rank));
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(mk_has(comm), 0);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}
static void what_the_driver_refuses_keeps_unicast(void) {
    static const int points[] = {symm_fp_vmm_reserve, symm_fp_vmm_export, symm_fp_vmm_map,
                                 symm_fp_vmm_access};
    T_EXPECT_WARNINGS();
    mk_wish();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int victim = 0; victim < RANKS; victim++)
            if (points[i] != symm_fp_vmm_export || victim == 0)
                T_FORK(RANKS, driver_refuses, fk_new(victim, points[i]));
}

T_MAIN(T(windows_have_an_address_for_all_ranks), T(a_plain_access_faults),
       T(communicators_of_one_space_share_the_object), T(what_every_rank_has_is_bound),
       T(buffers_at_unequal_offsets_have_none), T(growth_extends_it),
       T(heaps_are_bound_as_they_grow), T(it_is_off_unless_asked_for),
       T(one_rank_keeps_it_off_for_all), T(every_step_has_a_way_back),
       T(what_the_driver_refuses_keeps_unicast))
