/* fault_lane_alias.c - graphs with addresses of their own: each failpoint on each rank, while the
 * memory is made, while a block is captured and while the plan is uploaded. Nothing has changed
 * then, on any rank, and the same call works. Forked ranks and thread ranks; no lock. */
#include "graph_kit.h"
#include "alias_kit.h"

enum { SET, CAPTURE, UPLOAD, PHASES };
enum { PIECES = 5 }; /* of 4 MiB: enough to make lists grow */

typedef struct {
    hk *k;
    rig *g;
    int point, victim, hits;
    aliased a;
} failing;

static symmResult_t attempt(failing *f, int phase) {
    void *p = NULL;
    symmResult_t r;
    switch (phase) {
    case SET: return symmLaneAlias(f->g->lane, PIECES * 4 * HK_MB);
    case CAPTURE:
        r = symmLaneAlloc(f->g->lane, (PIECES * 4 - 1) * HK_MB, SYMM_ALLOC_SYM, &p);
        if (!r) f->a.p = p;
        return r;
    default: return symmMemPlanUpload(f->a.plan, xg_exec(f->a.graph), NULL);
    }
}

/* Capturing is the victim's own affair; everywhere else all ranks have its error. Then all is as it
 * was, and it works. */
static void fail_once(failing *f, int phase) {
    hk *k = f->k;
    char spec[96];
    snprintf(spec, sizeof spec, "%s:error:1:%d", symm_fail_name(f->point), f->victim);
    hk_barrier(k);
    fk_gauges before = fk_take();
    const int64_t maps = SYMM_STAT_GET(maps), fds = SYMM_STAT_GET(fds);
    hk_barrier(k);
    if (k->rank == f->victim) T_EQ(symm_fail_arm(spec), 0);
    hk_barrier(k);
    const int alone = phase == CAPTURE;
    if (!alone || k->rank == f->victim) fk_note(k->f, k->rank, attempt(f, phase));
    hk_barrier(k);
    const int code = k->f->k.code[f->victim];
    if (k->rank == f->victim) {
        const int hit = symm_fail_hits(f->point) > 0;
        T_CHECKF(hit == (code != 0) || k->threads, "%s, phase %d: code %d",
                 symm_fail_name(f->point), phase, code);
        f->hits += hit;
        T_EQ(symm_fail_arm(""), 0);
    }
    if (!alone) T_EQ(k->f->k.code[k->rank], code);
    hk_barrier(k);
    if (code && phase != CAPTURE && (k->rank == 0 || !k->threads)) FK_UNCHANGED(&before);
    if (code && phase == CAPTURE) { /* the plan of what was begun is there */
        T_EQ(SYMM_STAT_GET(maps), maps);
        T_EQ(SYMM_STAT_GET(fds), fds);
    }
    hk_barrier(k);
    if (code && phase == UPLOAD)
        T_ERR(symmMemPlanLaunch(f->a.plan, xg_exec(f->a.graph), f->g->s[0]), symmInvalidUsage);
    if (code || (alone && k->rank != f->victim)) T_OK(attempt(f, phase));
    hk_barrier(k);
}

static void fail_through(failing *f) {
    rig *g = f->g;
    fail_once(f, SET);
    T_OK(symmStreamBeginCapture(g->s[0]));
    fail_once(f, CAPTURE);
    HK_ALIKE(f->k, hk_off(g->heap, f->k, f->a.p));
    exchange(g, f->a.p, B, 1);
    exchange(g, f->a.p + (PIECES * 4 - 2) * HK_MB, B, 2);
    lk_free(g->lane, f->a.p);
    bind(g, &f->a);
    T_CHECK(xg_exec(f->a.graph) != NULL); /* now: gauges are compared from here on */
    fail_once(f, UPLOAD);
    launch(g, &f->a, 0);
    wait_all(g);
    T_OK(symmLaneTrimGraphMem(g->lane, NULL));
    T_OK(symmHeapCollect(g->heap));
    fail_once(f, UPLOAD); /* makes the memory again */
    launch(g, &f->a, 0);
    wait_all(g);
    drop(&f->a);
    T_OK(symmLaneAlias(g->lane, 0));
    T_OK(symmHeapCollect(g->heap));
    T_EQ(lk_mem(g->lane, SYMM_GRAPH_MEM_RESERVED), 0);
}

static void fail_all(void *arg) {
    hk *k = arg;
    const char *scenario = k->threads ? "alias_threads" : "alias";
    for (int point = 0; point < symm_fp_count; point++) {
        if (!fk_meets(point, scenario)) continue;
        for (int victim = 0; victim < k->n; victim++) {
            rig g = set_up(k, 64 * HK_MB, 0);
            failing f = {.k = k, .g = &g, .point = point, .victim = victim};
            fail_through(&f);
            T_CHECKF(f.hits || k->rank != victim, "failpoint %s was not reached",
                     symm_fail_name(point));
            tear_down(&g);
        }
    }
}
static void a_failure_on_one_rank_changes_nothing(void) {
    T_EXPECT_WARNINGS();
    both(2, fail_all, NULL);
}

T_MAIN(T(a_failure_on_one_rank_changes_nothing))
