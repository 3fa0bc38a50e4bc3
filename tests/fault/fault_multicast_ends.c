/* fault_multicast_ends.c - multicast windows when something ends or comes together: ranks that die
 * at each step, a growth that breaks, communicators of the same ranks made at once, one that is
 * asked for multicast later than the first, parts of heaps that ranks do not share, vectors. Ranks
 * are processes. */
#include "multicast_kit.h"
#include "symm_vec.h"

enum { RANKS = 3 };

typedef struct {
    fk f;
    symmUniqueId_t ids[2];
    const char *spec;
    int what;
} job;

static job *new_job(const char *spec, int what) {
    job *j = T_SHARED(sizeof *j);
    j->spec = spec;
    j->what = what;
    return j;
}

static void two_ids(job *j, int rank, int n) {
    kit_barrier(&j->f.k, n);
    for (int i = 0; i < 2 && rank == 0; i++) T_OK(symmGetUniqueId(&j->ids[i]));
    kit_barrier(&j->f.k, n);
}

static void registers(hk *k) {
    symmWindow_t win;
    char *buf;
    T_OK(symmMemAlloc((void **)&buf, 2 * HK_MB));
    T_OK(symmWindowRegister(k->comm, buf, 2 * HK_MB, &win, 0));
    if (mk_has(k->comm)) mk_spreads(k, buf, 2 * HK_MB);
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    T_OK(symmMemFree(buf));
}

/* ---- communicators of the same ranks --------------------------------------------------------- */

typedef struct {
    job *j;
    int rank, n, i;
    symmComm_t comm;
    symmResult_t r;
} maker;

static void *make_one(void *arg) {
    maker *m = arg;
    symm_log_rank(m->rank);
    if (m->i) usleep(100000); /* the first has its space by then */
    m->r = symmCommInitRank(&m->comm, m->n, m->j->ids[m->i], m->rank);
    return NULL;
}

static void at_once(int rank, int n, void *arg) {
    job *j = arg;
    pthread_t thread[2];
    maker m[2];
    hk_env();
    symm_log_rank(rank);
    two_ids(j, rank, n);
    T_EQ(symm_fail_arm(j->spec), 0);
    for (int i = 0; i < 2; i++) {
        m[i] = (maker){j, rank, n, i, NULL, symmSuccess};
        T_EQ(pthread_create(&thread[i], NULL, make_one, &m[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    T_EQ(symm_fail_arm(""), 0);
    for (int i = 0; i < 2; i++) {
        hk k = {.f = &j->f, .rank = rank, .n = n, .comm = m[i].comm};
        T_EQ(m[i].r, symmSuccess);
        registers(&k);
        fk_works(k.comm, rank, n);
    }
    for (int i = 1; i >= 0; i--) T_OK(symmCommDestroy(m[i].comm));
}
/* The second is made while the first's object is: it never uses one that is half made. */
static void made_at_once(void) {
    static const char *const slow[] = {"mc_create:delay=600:1:0", "mc_join:delay=600:1:0",
                                       "mc_import:delay=600:1:1,mc_join:error:1:0"};
    T_EXPECT_WARNINGS();
    mk_wish();
    for (int i = 0; i < 3; i++) T_FORK(2, at_once, new_job(slow[i], 0));
}

static void later(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t first, second;
    symmWindow_t win;
    void *buf, *at;
    hk_env();
    symm_log_rank(rank);
    two_ids(j, rank, n);
    setenv("SYMM_MULTICAST", "0", 1);
    T_OK(symmCommInitRank(&first, n, j->ids[0], rank));
    setenv("SYMM_MULTICAST", "1", 1);
    T_OK(symmCommInitRank(&second, n, j->ids[1], rank));
    T_EQ(mk_has(second), 0);
    T_OK(symmMemAlloc(&buf, 2 * HK_MB));
    T_OK(symmWindowRegister(second, buf, 2 * HK_MB, &win, 0));
    T_ERR(symmWindowMulticastPtr(win, 0, &at), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "when these ranks first met: rank 0: SYMM_MULTICAST=0");
    T_OK(symmWindowDeregister(second, win));
    kit_barrier(&j->f.k, n);
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(second));
    T_OK(symmCommDestroy(first));
}
static void asked_for_after_the_ranks_have_met(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    T_FORK(2, later, new_job("", 0));
}

/* ---- growth that breaks ---------------------------------------------------------------------- */

/* One of two communicators of a space breaks in the last step of a growth; the other goes on. */
static void other_goes_on(int rank, int n, void *arg) {
    job *j = arg;
    symmConfig_t hasty = SYMM_CONFIG_INITIALIZER;
    mk_memory m = {.room = 64 * HK_MB};
    symmComm_t broken, good;
    symmWindow_t win;
    hk_env();
    symm_log_rank(rank);
    two_ids(j, rank, n);
    hasty.timeoutMs = 1000;
    T_OK(symmCommInitRankConfig(&broken, n, j->ids[0], rank, &hasty));
    T_OK(symmCommInitRank(&good, n, j->ids[1], rank));
    mk_extend(&m, 2 * HK_MB);
    T_OK(symmWindowRegister(broken, m.at, m.bytes, &win, 0));
    mk_extend(&m, 2 * HK_MB);
    if (rank == 1) T_EQ(symm_fail_arm("mc_bind:delay=2500:1:1"), 0);
    T_CHECK(symmWindowGrow(win, m.bytes) != symmSuccess);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&j->f.k, n);
    hk k = {.f = &j->f, .rank = rank, .n = n, .comm = good};
    for (int i = 0; i < 2; i++) registers(&k);
    T_OK(symmCommDestroy(broken));
    T_OK(symmCommDestroy(good));
    kit_barrier(&j->f.k, n);
    mk_release(&m);
}
static void a_broken_growth_takes_all_back(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    T_FORK(2, other_goes_on, new_job("", 0));
}

/* ---- deaths ---------------------------------------------------------------------------------- */

enum { CREATE, REGISTER, GROW_WINDOW, GROW_HEAP };

static symmResult_t do_what(int what, symmComm_t comm, mk_memory *m) {
    symmHeapConfig_t config = hk_config(256 * HK_MB, 8 * HK_MB, 4 * HK_MB);
    symmWindow_t win;
    symmHeap_t h;
    if (what == REGISTER) return symmWindowRegister(comm, m->at, m->bytes, &win, 0);
    if (what == GROW_WINDOW) {
        T_OK(symmWindowRegister(comm, m->at, m->bytes, &win, 0));
        mk_extend(m, 2 * HK_MB);
        T_EQ(symm_fail_arm("mc_bind:kill:1:2"), 0);
        return symmWindowGrow(win, m->bytes);
    }
    T_OK(symmHeapCreate(comm, &config, &h));
    T_EQ(symm_fail_arm("mc_bind:kill:1:2"), 0);
    return symmHeapGrow(h, 8 * HK_MB, 0);
}

static void survives(symmComm_t comm, int rank, int n) {
    symmComm_t next = NULL;
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_ABORT | SYMM_SHRINK_FAILED));
    T_EQ(mk_has(next), n > 2);
    fk_works(next, rank, n - 1);
    T_OK(symmCommDestroy(next));
}

static void dying_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = NULL;
    mk_memory m = {.room = 64 * HK_MB};
    hk_env();
    symm_log_rank(rank);
    fk_gauges before = fk_take();
    fk_id(&j->f, rank, n);
    if (j->what == CREATE) T_EQ(symm_fail_arm(j->spec), 0);
    const symmResult_t r = symmCommInitRank(&comm, n, j->f.id, rank);
    if (j->what == CREATE) {
        T_CHECK(r);
        if (comm) T_OK(symmCommDestroy(comm));
        FK_UNCHANGED(&before);
        return;
    }
    T_OK(r);
    mk_extend(&m, 2 * HK_MB);
    if (j->what == REGISTER) T_EQ(symm_fail_arm(j->spec), 0);
    T_CHECK(do_what(j->what, comm, &m));
    T_EQ(symm_fail_arm(""), 0);
    survives(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    mk_release(&m);
    FK_UNCHANGED(&before);
}
static void a_rank_dies_at_each_step(void) {
    static const char *const specs[] = {"mc_import:kill:1:2",  "mc_join:kill:1:2",
                                        "mc_bind:kill:1:2",    "vmm_map:kill:1:2",
                                        "vmm_access:kill:1:2", "vmm_reserve:kill:2:2"};
    T_EXPECT_WARNINGS();
    mk_wish();
    for (int i = 0; i < 6; i++) T_FORK_DIES(RANKS, 2, dying_rank, new_job(specs[i], CREATE));
    for (int what = REGISTER; what <= GROW_HEAP; what++)
        T_FORK_DIES(RANKS, 2, dying_rank, new_job("mc_bind:kill:1:2", what));
}

/* ---- heaps and vectors ----------------------------------------------------------------------- */

/* What is local in a heap is nobody else's: it has no address for all. */
static void local(void *arg) {
    hk *k = arg;
    const uint64_t mine = (uint64_t)(4 + 4 * k->rank) * HK_MB;
    symmHeapConfig_t config = hk_config(256 * HK_MB, 8 * HK_MB, mine);
    symmHeap_t h;
    char *both, *own;
    void *at;
    T_OK(symmHeapCreate(k->comm, &config, &h));
    T_OK(symmHeapAlloc(h, HK_MB, 0, SYMM_ALLOC_SYM, (void **)&both));
    T_OK(symmHeapAlloc(h, HK_MB, 0, SYMM_ALLOC_LOCAL, (void **)&own));
    mk_spreads(k, both, HK_MB);
    T_ERR(symmMemMulticastPtr(k->comm, own, HK_MB, &at), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "it is not bound");
    T_OK(symmHeapFree(h, both));
    T_OK(symmHeapFree(h, own));
    T_OK(symmHeapDestroy(h));
}
static void what_is_local_in_a_heap_is_not_bound(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(2, local, NULL);
}

static void vector(void *arg) {
    static const int sizes[] = {6, 8, 20, -3, 40}; /* in place, moved, shorter, moved again */
    hk *k = arg;
    fk_gauges before = fk_take();
    symmVecConfig_t config = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t v;
    void *own;
    config.max = 8 * HK_MB;
    config.chunk = 4 * HK_MB;
    T_OK(symmVecCreate(k->comm, &config, &v));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t bytes = (uint64_t)abs(sizes[i]) * HK_MB;
        T_OK(sizes[i] < 0 ? symmVecShrink(v, bytes) : symmVecGrow(v, bytes));
        T_OK(symmVecPtr(v, k->rank, &own));
        mk_spreads(k, own, bytes);
    }
    T_OK(symmVecDestroy(v));
    FK_COLLECTED(k->comm, &before);
}
static void vectors_are_bound_wherever_they_move(void) {
    T_EXPECT_WARNINGS();
    mk_wish();
    hk_processes(RANKS, vector, NULL);
}

T_MAIN(T(made_at_once), T(asked_for_after_the_ranks_have_met), T(a_broken_growth_takes_all_back),
       T(a_rank_dies_at_each_step), T(what_is_local_in_a_heap_is_not_bound),
       T(vectors_are_bound_wherever_they_move))
