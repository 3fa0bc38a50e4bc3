/* fault_meet.c - what ranks settle before they are a communicator (symm_meet.h): records, refusals,
 * going elsewhere; ranks that cannot be one communicator; a rank that cannot go on. Ranks are
 * threads. No lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/stats.h"
#include "fault_kit.h"
#include "fgpu_kit.h"

enum { RANKS = 3, MANY = 80 };
enum { GO_ON, REFUSE, ELSEWHERE, SECOND, SILENT };

typedef struct {
    symmUniqueId_t id;
    int how, blocking;
    int bad;          /* the rank whose config is wrong; -1: none */
    _Atomic int made; /* the id */
    _Atomic int calls, second, released, told;
    symmResult_t code[MANY];
    char text[MANY][256];
} plan;

typedef struct {
    int32_t rank, code;
} record;

/* All come to the same, from the same records. */
static symmResult_t settle(void *ctx, const symmMeeting_t *m, symmResult_t status,
                           symmVerdict_t *v) {
    plan *p = ctx;
    record mine = {m->rank, status == symmNotSupported ? 0 : (int)status};
    record *all = calloc((size_t)m->nranks, sizeof *all);
    const symmResult_t r = symmMeetingAllgather(m, &mine, all, sizeof mine);
    symmResult_t out = r;
    p->calls++;
    if (status == symmNotSupported) p->second++;
    for (int i = 0; !r && i < m->nranks; i++) {
        T_EQ(all[i].rank, i);
        if (!out && all[i].code) {
            out = (symmResult_t)all[i].code;
            snprintf(v->text, sizeof v->text, "rank %d cannot", i);
        }
    }
    free(all);
    if (out || p->how == GO_ON) return out;
    if (p->how == ELSEWHERE || (p->how == SECOND && status)) v->elsewhere = 1;
    if (p->how != REFUSE) return symmSuccess;
    snprintf(v->text, sizeof v->text, "the ranks will not");
    return symmInvalidUsage;
}

static void release(void *ctx) {
    ((plan *)ctx)->released++;
}

static void make_id(plan *p) {
    T_OK(symmGetUniqueId(&p->id));
    p->made = 1;
}

static plan *plan_without_id(int how) {
    plan *p = T_SHARED(sizeof *p);
    p->how = how;
    p->blocking = 1;
    p->bad = -1;
    return p;
}

static plan *make_plan(int how) {
    plan *p = plan_without_id(how);
    make_id(p);
    return p;
}

static symmComm_t begin(plan *p, int rank, int n) {
    const symmMeet_t meet = {settle, release, p};
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    config.blocking = p->blocking;
    config.maxCTAs = rank == p->bad ? 1000 : SYMM_CONFIG_UNDEF;
    p->code[rank] = symmCommInitRankMeet(&comm, n, p->id, rank, &config, &meet);
    snprintf(p->text[rank], sizeof p->text[rank], "%s", symmGetLastError(NULL));
    return comm;
}

static void one_rank(int rank, int n, void *arg) {
    plan *p = arg;
    symmComm_t comm = begin(p, rank, n);
    T_EQ(comm != NULL, !p->code[rank] && p->how == GO_ON);
    if (!comm) return;
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void all_say(const plan *p, int n, symmResult_t code, const char *text) {
    for (int r = 0; r < n; r++) {
        T_EQ(p->code[r], code);
        if (code) T_MSG(p->text[r], text);
    }
}

static void they_go_on(void) {
    plan *p = make_plan(GO_ON);
    T_THREADS(RANKS, one_rank, p);
    all_say(p, RANKS, symmSuccess, "");
    T_EQ(p->calls, RANKS);
    T_EQ(p->released, 0);
}

static void they_refuse(void) {
    plan *p = make_plan(REFUSE);
    T_THREADS(RANKS, one_rank, p);
    all_say(p, RANKS, symmInvalidUsage, "the ranks will not");
}

static void they_do_without(void) {
    plan *p = make_plan(ELSEWHERE);
    T_THREADS(RANKS, one_rank, p);
    all_say(p, RANKS, symmSuccess, "");
    T_EQ(p->second, 0);
}

/* The others hear from it in their first exchange, and do not wait for its hello. */
static void a_rank_that_cannot_go_on(void) {
    T_EXPECT_WARNINGS();
    plan *p = make_plan(GO_ON);
    p->bad = 1;
    T_THREADS(RANKS, one_rank, p);
    all_say(p, RANKS, symmInvalidArgument, "rank 1 cannot");
    T_EQ(p->calls, RANKS);
}

/* ---- ranks that cannot be one communicator --------------------------------------------------- */

extern int symm_test_where[2];

static void far_rank(int rank, int n, void *arg) {
    symmResult_t want = ((plan *)arg)->how == SECOND ? symmSuccess : symmNotSupported;
    symm_test_where[0] = rank == 1; /* its process is on another host */
    if (!rank) make_id(arg);
    while (!((plan *)arg)->made) usleep(1000);
    begin(arg, rank, n);
    T_EQ(((plan *)arg)->code[rank], want);
}

static void ranks_on_two_hosts(void) {
    for (int k = 0; k < 2; k++) {
        T_EXPECT_WARNINGS();
        plan *p = plan_without_id(k ? SECOND : GO_ON);
        T_FORK(2, far_rank, p);
        all_say(p, 2, k ? symmSuccess : symmNotSupported, "another one of the name");
        T_EQ(p->second, 2);
    }
}

static void more_ranks_than_a_domain_has(void) {
    T_EXPECT_WARNINGS();
    plan *p = make_plan(SECOND);
    T_THREADS(MANY, one_rank, p);
    all_say(p, MANY, symmSuccess, "");
    T_EQ(p->second, MANY);
    p = make_plan(GO_ON);
    T_THREADS(MANY, one_rank, p);
    all_say(p, MANY, symmNotSupported, "nranks=80: one domain has at most 72 ranks");
}

/* A driver has no memory of the kind that is needed, which shows once the ranks are connected. If
 * the process that made the id is no rank (the last one here), the bootstrap is closed by then. */
static void memory_rank(int rank, int n, void *arg) {
    plan *p = arg;
    const int ranks = p->how == SECOND ? n : n - 1; /* n - 1: the last one makes the id */
    if (rank == n - 1) make_id(p);
    while (!p->made) usleep(1000);
    if (rank < ranks) {
        gk_start(ranks, 0);
        T_OK(symmSetDevice(rank));
        /* the first one asks what the driver has, the second makes the control block */
        if (!rank) fake_cuda_fail("cuMemCreate", 2, SYMM_CUDA_ERROR_NOT_SUPPORTED);
        T_CHECK(!begin(p, rank, ranks));
        p->told++;
    }
    while (p->told < ranks) usleep(1000);
}

static void memory_that_a_driver_has_not(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 2; k++) {
        plan *p = plan_without_id(k ? SECOND : GO_ON);
        T_FORK(3, memory_rank, p);
        all_say(p, k ? 3 : 2, k ? symmSuccess : symmNotSupported, "");
        T_EQ(p->second, k ? 3 : 2);
    }
}

/* ---- behind the call, in groups -------------------------------------------------------------- */

static void behind_rank(int rank, int n, void *arg) {
    plan *p = arg;
    symmResult_t now = symmInProgress;
    symmComm_t comm = begin(p, rank, n);
    T_EQ(p->code[rank], symmInProgress);
    for (int i = 0; i < 3000 && now == symmInProgress; i++) {
        usleep(1000);
        T_OK(symmCommGetAsyncError(comm, &now));
    }
    T_EQ(now, p->how == GO_ON ? symmSuccess : symmInvalidUsage);
    if (p->how == GO_ON) fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void behind_the_call(void) {
    T_EXPECT_WARNINGS();
    static const int hows[] = {GO_ON, REFUSE, ELSEWHERE};
    for (int i = 0; i < 3; i++) {
        plan *p = make_plan(hows[i]);
        p->blocking = 0;
        T_THREADS(RANKS, behind_rank, p);
        for (int k = 0; k < 3000 && p->released < RANKS; k++) usleep(1000);
        T_EQ(p->released, RANKS);
    }
    for (int i = 0; i < 2000 && SYMM_STAT_GET(threads); i++) usleep(1000);
}

static void in_a_group(void) {
    plan *p = make_plan(ELSEWHERE);
    const symmMeet_t meet = {settle, NULL, p};
    symmComm_t comm[RANKS];
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmCommInitRankMeet(&comm[r], RANKS, p->id, r, NULL, &meet));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) T_CHECK(!comm[r]);
    T_EQ(p->calls, RANKS);
}

/* ---- made from another one, all of a process ------------------------------------------------- */

enum { SPLIT, SHRINK, GROW, KINDS };

/* By its kind, from all ranks, or all but the last, which is new. */
static symmResult_t make_child(plan *p, int kind, symmComm_t parent, int rank, int n,
                               symmComm_t *child) {
    const symmMeet_t meet = {settle, release, p};
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = p->blocking;
    if (kind == SPLIT) return symmCommSplitMeet(parent, 0, rank, child, &config, &meet);
    if (kind == SHRINK) return symmCommShrinkMeet(parent, NULL, 0, child, &config, 0, &meet);
    return symmCommGrowMeet(parent, n, &p->id, rank == n - 1 ? rank : -1, child, &config, &meet);
}

typedef struct {
    plan *p;
    int kind;
    symmUniqueId_t id; /* of the parent */
} family;

static void one_child(int rank, int n, void *arg) {
    family *f = arg;
    plan *p = f->p;
    symmComm_t parent = NULL, child = NULL;
    symmResult_t now = symmInProgress;
    const int members = f->kind == GROW ? n - 1 : n;
    if (rank < members) T_OK(symmCommInitRank(&parent, members, f->id, rank));
    p->code[rank] = make_child(p, f->kind, parent, rank, n, &child);
    if (p->blocking) {
        T_EQ(p->code[rank], p->how == REFUSE ? symmInvalidUsage : symmSuccess);
        T_EQ(child != NULL, p->how == GO_ON);
    } else {
        T_EQ(p->code[rank], symmInProgress);
        for (int i = 0; i < 5000 && now == symmInProgress; i++) {
            usleep(1000);
            T_OK(symmCommGetAsyncError(child, &now));
        }
        T_EQ(now, p->how == GO_ON ? symmSuccess : symmInvalidUsage);
    }
    if (p->how == GO_ON) fk_works(child, rank, n);
    if (parent) fk_works(parent, rank, members); /* it is as it was */
    if (child) T_OK(symmCommDestroy(child));
    if (parent) T_OK(symmCommDestroy(parent));
}

static void children(void) {
    T_EXPECT_WARNINGS();
    static const int hows[] = {GO_ON, REFUSE, ELSEWHERE};
    for (int k = 0; k < 6 * KINDS; k++) {
        plan *p = plan_without_id(hows[k / 2 % 3]);
        family f = {p, k / 6, {{0}}};
        p->blocking = k % 2;
        if (f.kind == GROW) make_id(p);
        T_OK(symmGetUniqueId(&f.id));
        T_THREADS(RANKS, one_child, &f);
        for (int i = 0; i < 3000 && !p->blocking && p->released < RANKS; i++) usleep(1000);
        T_EQ(p->calls, RANKS);
        T_EQ(p->released, p->blocking ? 0 : RANKS);
        for (int i = 0; i < 2000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    }
}

/* A rank without a color settles nothing, and its context is released as the others'. */
static void no_color(void) {
    plan *p = make_plan(GO_ON);
    symmComm_t comm[2], child[2] = {NULL, NULL};
    const symmMeet_t meet = {settle, release, p};
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmCommInitRank(&comm[r], 2, p->id, r));
    T_OK(symmGroupEnd());
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmCommSplitMeet(comm[r], r ? SYMM_SPLIT_NOCOLOR : 0, 0, &child[r], NULL, &meet));
    T_OK(symmGroupEnd());
    T_CHECK(child[0] && !child[1] && p->calls == 1);
    T_OK(symmCommDestroy(child[0]));
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
}

static void all_of_a_process(void) {
    T_EXPECT_WARNINGS();
    static const int hows[] = {GO_ON, REFUSE, ELSEWHERE};
    for (int i = 0; i < 3; i++) {
        plan *p = plan_without_id(hows[i]);
        symmComm_t comms[RANKS] = {NULL, NULL, NULL};
        symmMeet_t meets[RANKS];
        for (int r = 0; r < RANKS; r++) meets[r] = (symmMeet_t){settle, NULL, p};
        T_EQ(symmCommInitAllMeet(comms, RANKS, NULL, meets),
             p->how == REFUSE ? symmInvalidUsage : symmSuccess);
        T_EQ(p->calls, RANKS);
        for (int r = 0; r < RANKS; r++) {
            T_EQ(comms[r] != NULL, p->how == GO_ON);
            if (comms[r]) T_OK(symmCommDestroy(comms[r]));
        }
    }
}

static void refused(symmResult_t got, const char *part) {
    T_EQ(got, symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), part);
}

static void bad_arguments(void) {
    T_EXPECT_WARNINGS();
    symmComm_t comm;
    symmUniqueId_t id = {{0}};
    const symmMeet_t none = {NULL, NULL, NULL}, meet = {settle, NULL, NULL};
    refused(symmCommInitRankMeet(&comm, 1, id, 0, NULL, NULL), "meet is NULL");
    refused(symmCommInitRankMeet(&comm, 1, id, 0, NULL, &none), "meet->settle is NULL");
    refused(symmCommInitRankMeet(&comm, 70000, id, 0, NULL, &meet), "must be 1 to 65536");
    refused(symmMeetingAllgather(NULL, &id, &id, 1), "meeting is NULL");
    refused(symmCommGrowMeet(NULL, 2, &id, 1, &comm, NULL, NULL), "meet is NULL");
    refused(symmCommInitAllMeet(&comm, 1, NULL, NULL), "meet is NULL");
}

enum { INIT = KINDS, GROW_OLD, WAYS };

/* The last rank passes none; of GROW_OLD rank 0 does, which is one of the old communicator. */
static void meetless_rank(int rank, int n, void *arg) {
    family *f = arg;
    plan *p = f->p;
    symmComm_t parent = NULL, child = NULL;
    const symmMeet_t meet = {settle, NULL, p}, none = {NULL, NULL, NULL};
    const int grows = f->kind == GROW || f->kind == GROW_OLD, members = grows ? n - 1 : n;
    const int odd = rank == (f->kind == GROW_OLD ? 0 : n - 1);
    const symmMeet_t *mine = !odd ? &meet : p->how ? &none : NULL;
    if (f->kind != INIT && rank < members) T_OK(symmCommInitRank(&parent, members, f->id, rank));
    const uint64_t since = symm_now_ns();
    const symmResult_t r =
        f->kind == INIT    ? symmCommInitRankMeet(&child, n, p->id, rank, NULL, mine)
        : f->kind == SPLIT ? symmCommSplitMeet(parent, 0, rank, &child, NULL, mine)
        : f->kind == SHRINK
            ? symmCommShrinkMeet(parent, NULL, 0, &child, NULL, 0, mine)
            : symmCommGrowMeet(parent, n, &p->id, rank < members ? -1 : rank, &child, NULL, mine);
    T_CHECKF(r != symmSuccess && !child, "rank %d of way %d: no error", rank, f->kind);
    T_CHECKF(fk_ms_since(since) < 3000, "rank %d of way %d waited", rank, f->kind);
    T_MSG(symmGetLastError(NULL), !odd ? "" : p->how ? "meet->settle is NULL" : "meet is NULL");
    if (odd) T_EQ(r, symmInvalidArgument);
    if (parent) fk_works(parent, rank, members); /* it is as it was */
    if (parent) T_OK(symmCommDestroy(parent));
}

static void a_rank_without_what_to_settle(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "8000", 1);
    for (int k = 0; k < 2 * WAYS; k++) {
        plan *p = plan_without_id(k % 2);
        family f = {p, k / 2, {{0}}};
        if (f.kind >= GROW) make_id(p);
        if (f.kind != INIT) T_OK(symmGetUniqueId(&f.id));
        T_THREADS(RANKS, meetless_rank, &f);
        T_EQ(p->calls, 0);
    }
}

T_MAIN(T(they_go_on), T(they_refuse), T(they_do_without), T(a_rank_that_cannot_go_on),
       T(ranks_on_two_hosts), T(more_ranks_than_a_domain_has), T(memory_that_a_driver_has_not),
       T(behind_the_call), T(in_a_group), T(children), T(no_color), T(all_of_a_process),
       T(bad_arguments), T(a_rank_without_what_to_settle))
