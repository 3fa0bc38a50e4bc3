/* unit_lane_access.c - access lists of blocks that graphs have: a reference gives its bytes to the
 * ranks that are listed, and to no other. Ranks are processes, and where the number of lists is
 * counted eight ranks of one thread. */
#include "graph_kit.h"
#include "fault_kit.h"
#include "lane_kit.h"

enum { N = 3, B = 4096, LISTED = 2 };

typedef struct {
    fk f;
    symmRef_t local, open, node; /* of rank 0's blocks */
} job;

static symmResult_t reach(symmComm_t comm, const symmRef_t *ref, int rank, char **at) {
    void *p = NULL;
    symmResult_t r = symmRefPtr(ref, comm, rank, &p);
    *at = p;
    return r;
}

static void refused(symmComm_t comm, const symmRef_t *ref, int rank) {
    char *at = NULL, who[64];
    int me;
    T_OK(symmCommUserRank(comm, &me));
    T_ERR(reach(comm, ref, rank, &at), symmInvalidArgument);
    T_CHECK(!at);
    snprintf(who, sizeof who, "rank %d may not access the block of rank %d", me, rank);
    T_MSG(symmGetLastError(NULL), who);
}

/* Every rank has the same SYM block; each reaches its own part, the listed one all. */
static void symmetric(lk *k, const char *p) {
    symmRef_t ref;
    char *at = NULL;
    T_OK(symmRefGet(p + 8, &ref));
    for (int r = 0; r < k->n; r++) {
        if (k->rank == LISTED || r == k->rank)
            T_OK(reach(k->comm, &ref, r, &at));
        else
            refused(k->comm, &ref, r);
        if (r == k->rank) T_CHECK(at == p + 8);
    }
}

static void rank_fn(int rank, int n, void *arg) {
    job *j = arg;
    lk k;
    symmMemPlan_t plan;
    symmGraphNode_t node;
    void *q;
    char *at = NULL;
    const int only[] = {LISTED};
    symmAllocNode_t params = {sizeof params, B, SYMM_ALLOC_LOCAL, 1, only};
    lk_env();
    T_EXPECT_WARNINGS();
    lk_open(&k, rank, n, fk_open(&j->f, rank, n), 1, 4 * LK_MB, 4 * LK_MB);
    T_OK(symmLaneSetAccess(k.lane[0], only, 1));
    T_OK(symmStreamBeginCapture(k.stream[0]));
    char *sym = lk_sym(k.lane[0], B), *local = lk_local(k.lane[0], B);
    T_OK(symmLaneSetAccess(k.lane[0], NULL, 0));
    char *open = lk_local(k.lane[0], B);
    lk_fill(k.stream[0], local, B, 5), lk_fill(k.stream[0], open, B, 6);
    symmGraph_t g = lk_end(k.stream[0]);
    T_OK(symmGraphLaunch(xg_exec(g), k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &node, &q));
    if (rank == 0) {
        T_OK(symmRefGet(local, &j->local));
        T_OK(symmRefGet(open, &j->open));
        T_OK(symmRefGet(q, &j->node));
    }
    kit_barrier(&j->f.k, n);
    const symmRef_t *refs[] = {&j->local, &j->node};
    for (int i = 0; i < 2; i++)
        if (rank == 0 || rank == LISTED)
            T_OK(reach(k.comm, refs[i], SYMM_REF_OWNER, &at));
        else
            refused(k.comm, refs[i], 0);
    if (rank == LISTED) {
        T_OK(reach(k.comm, &j->local, 0, &at));
        T_CHECK(at[0] == 5 && at[B - 1] == 5);
    }
    T_OK(reach(k.comm, &j->open, 0, &at)); /* everybody's */
    T_CHECK(at[0] == 6 && at[B - 1] == 6);
    symmetric(&k, sym);
    symmRef_t forged = j->local;
    forged.flags = (uint16_t)(forged.flags | 0x4000);
    if (rank) T_ERR(reach(k.comm, &forged, 0, &at), symmInvalidArgument);
    kit_barrier(&j->f.k, n);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

static void a_rank_that_is_not_listed_is_refused(void) {
    T_FORK(N, rank_fn, T_SHARED(sizeof(job)));
}

/* Graphs of a lane share bytes: there it is whoever one of them allows. */
static void graphs_that_share_bytes_share_access(void) {
    lk k;
    symmRef_t ref;
    const int none_other[] = {0};
    int allowed = -1;
    lk_alone(&k, 1);
    char *p[2];
    symmGraph_t g[2];
    for (int i = 0; i < 2; i++) {
        T_OK(symmLaneSetAccess(k.lane[0], none_other, i == 0));
        T_OK(symmStreamBeginCapture(k.stream[0]));
        lk_free(k.lane[0], p[i] = lk_local(k.lane[0], B));
        g[i] = lk_end(k.stream[0]);
        T_OK(symmRefGet(p[i], &ref));
        T_EQ(ref.flags >> 8, i == 0);
    }
    T_CHECK(p[0] == p[1]);
    T_OK(symmLaneGetAccess(k.lane[0], p[0], 0, &allowed));
    T_EQ(allowed, 1);
    for (int i = 0; i < 2; i++) T_OK(xg_destroy(g[i]));
    lk_close(&k);
}

/* Equal lists have one number; where there is no number left that is said. */
static void lists_are_counted(void) {
    enum { RANKS = 8 };
    symmComm_t comms[RANKS];
    symmHeap_t heaps[RANKS];
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmStream_t s;
    symmLane_t lane;
    symmRef_t ref;
    T_EXPECT_WARNINGS();
    lk_env();
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    c.symBytes = c.localBytes = 4 * LK_MB;
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmHeapCreate(comms[r], &c, &heaps[r]));
    T_OK(symmGroupEnd());
    T_OK(symmStreamCreate(&s));
    T_OK(symmLaneCreate(heaps[0], s, &lane));
    T_OK(symmStreamBeginCapture(s));
    char *p[140];
    for (int i = 0; i < 140; i++) {
        int list[RANKS], n = 0;
        for (int r = 0; r < RANKS; r++)
            if ((i + 1) >> r & 1) list[n++] = r;
        T_OK(symmLaneSetAccess(lane, list, n));
        p[i] = lk_local(lane, 256);
    }
    symmGraph_t g = lk_end(s);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 140; i++) {
            symmResult_t r = symmRefGet(p[i], &ref);
            T_EQ(r, i < 128 ? symmSuccess : symmOutOfMemory);
            if (!r) T_EQ(ref.flags >> 8, i + 1);
        }
    T_MSG(symmGetLastError(NULL), "128 different access lists");
    T_OK(xg_destroy(g));
    T_OK(symmLaneDestroy(lane));
    T_OK(symmStreamDestroy(s));
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmHeapDestroy(heaps[r]));
        T_OK(symmCommDestroy(comms[r]));
    }
}

T_MAIN(T(a_rank_that_is_not_listed_is_refused), T(graphs_that_share_bytes_share_access),
       T(lists_are_counted))
