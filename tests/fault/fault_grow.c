/* fault_grow.c - communicators that grow: by processes and by threads, of one rank and of several,
 * in groups, without blocking; arguments that are wrong or differ. Ranks are forked processes, or
 * threads of this one. No lock. */
#include <stdio.h>
#include <stdlib.h>

#include "fault_kit.h"

enum { OLD = 2, N = 4 };

typedef struct {
    symmUniqueId_t id[2]; /* of the old one, of the new one */
    _Atomic int made[2];
    int maker; /* which rank makes that of the new one */
} meeting;

static symmUniqueId_t *meet(meeting *m, int which, int rank) {
    if (!rank) T_OK(symmGetUniqueId(&m->id[which])), m->made[which] = 1;
    while (!m->made[which]) usleep(1000);
    return &m->id[which];
}

static symmComm_t old_one(meeting *m, int rank, int n) {
    symmComm_t comm = NULL;
    if (rank < n) T_OK(symmCommInitRank(&comm, n, *meet(m, 0, rank), rank));
    return comm;
}

/* ---- what works ------------------------------------------------------------------------------ */

/* With n ranks the id is made by each of the n in turn: old ones and new ones. */
static void grow_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmComm_t comm = old_one(m, rank, OLD), more = NULL;
    const symmUniqueId_t *id = meet(m, 1, rank != m->maker);
    /* Of the old ones the last passes it. */
    T_OK(
        symmCommGrow(comm, n, rank == OLD - 1 || !comm ? id : NULL, comm ? -1 : rank, &more, NULL));
    int got = -1;
    T_OK(symmCommUserRank(more, &got));
    T_EQ(got, rank);
    fk_works(more, rank, n);
    fk_registers(more, rank, n);
    if (comm) fk_works(comm, rank, OLD);
    if (comm) T_OK(symmCommDestroy(comm));
    fk_works(more, rank, n);
    T_OK(symmCommDestroy(more));
}

static void processes_come(void) {
    for (int n = OLD + 1; n <= N; n++)
        for (int maker = 0; maker < n; maker++) {
            meeting *m = T_SHARED(sizeof *m);
            m->maker = maker;
            T_FORK(n, grow_rank, m);
        }
}

/* One rank grows, then all of these; the second time in groups, with what else they call. */
static void again_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmComm_t comm = old_one(m, rank, 1), more = NULL, most = NULL;
    meet(m, 1, rank);
    if (rank < 2) {
        T_OK(symmCommGrow(comm, 2, &m[0].id[1], comm ? -1 : rank, &more, NULL));
        fk_works(more, rank, 2);
    }
    meet(m + 1, 0, rank);
    T_OK(symmGroupStart());
    if (more) T_OK(symmBarrier(more, NULL));
    T_OK(symmCommGrow(more, n, &m[1].id[0], more ? -1 : rank, &most, NULL));
    T_CHECK(!most);
    T_OK(symmGroupEnd());
    fk_works(most, rank, n);
    if (comm) T_OK(symmCommDestroy(comm));
    if (more) T_OK(symmCommDestroy(more));
    T_OK(symmCommDestroy(most));
}

static void it_grows_again(void) {
    T_FORK(3, again_rank, T_SHARED(2 * sizeof(meeting)));
}

static void behind_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = old_one(m, rank, OLD), more = NULL;
    symmResult_t r = symmInProgress;
    config.blocking = 0;
    T_ERR(symmCommGrow(comm, n, meet(m, 1, rank), comm ? -1 : rank, &more, &config),
          symmInProgress);
    if (comm) fk_works(comm, rank, OLD); /* the old one is free meanwhile */
    while (r == symmInProgress) T_OK(symmCommGetAsyncError(more, &r));
    T_OK(r);
    fk_works(more, rank, n);
    if (comm) T_OK(symmCommDestroy(comm));
    T_OK(symmCommDestroy(more));
}

static void it_grows_without_blocking(void) {
    T_FORK(N, behind_rank, T_SHARED(sizeof(meeting)));
}

/* ---- what is wrong --------------------------------------------------------------------------- */

/* One rank of the old one passes something wrong: both hear it, the new rank too, and the old one
 * works. */
enum { WRONG_COUNT, WRONG_RANK, NO_ID, NO_PLACE, OTHER_COUNT, BAD_CONFIG, WRONGS };

typedef struct {
    meeting m;
    int how;
} wrong;

static void wrong_rank(int rank, int n, void *arg) {
    static const char *const texts[] = {"nranks=2: must be 3 to 72, as comm has 2 ranks",
                                        "rank=0: must be -1 where comm is not NULL",
                                        "id is NULL on all ranks of comm: one passes it",
                                        "newcomm is NULL",
                                        "nranks=3 on rank 0 and 4 on rank 1",
                                        "timeoutMs=0"};
    wrong *w = arg;
    const int how = w->how, odd = how == OTHER_COUNT ? rank == 1 : rank == 0;
    symmComm_t comm = old_one(&w->m, rank, OLD), more = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    const symmUniqueId_t *id = meet(&w->m, 1, rank);
    if (odd && how == WRONG_COUNT) n = OLD;
    if (odd && how == OTHER_COUNT) n = 4;
    if (how == NO_ID) id = NULL;
    if (how == NO_ID && !comm) return; /* nobody would come to it there */
    if (odd && how == BAD_CONFIG) config.timeoutMs = 0;
    const symmResult_t r = symmCommGrow(comm, n, id,
                                        !comm                      ? rank
                                        : odd && how == WRONG_RANK ? 0
                                                                   : -1,
                                        odd && how == NO_PLACE ? NULL : &more, &config);
    T_CHECKF(r && !more, "case %d on rank %d", how, rank);
    if (!comm) return;
    T_EQ(r, how == OTHER_COUNT ? symmMismatch : symmInvalidArgument);
    if (odd || how == OTHER_COUNT) T_MSG(symmGetLastError(NULL), texts[how]);
    fk_works(comm, rank, OLD);
    T_OK(symmCommDestroy(comm));
    if (!odd || how != NO_ID) return;
    T_OK(symmCommInitRank(&more, 1, w->m.id[1], 0)); /* an id that is not used holds a listener */
    T_OK(symmCommDestroy(more));
}

static void wrong_arguments(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "3000", 1);
    for (int how = 0; how < WRONGS; how++) {
        wrong *w = T_SHARED(sizeof *w);
        w->how = how;
        T_FORK(3, wrong_rank, w);
    }
}

static void new_ranks_that_are_wrong(void) {
    symmUniqueId_t id = {{0}};
    symmComm_t more = NULL;
    T_EXPECT_WARNINGS();
    T_ERR(symmCommGrow(NULL, 2, NULL, 1, &more, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "id is NULL");
    T_ERR(symmCommGrow(NULL, 1, &id, 1, &more, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "nranks=1: must be 2 to 72");
    T_ERR(symmCommGrow(NULL, 2, &id, 0, &more, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "rank=0: must be 1 to 1 where comm is NULL");
    T_ERR(symmCommGrow(NULL, 2, &id, 2, &more, NULL), symmInvalidArgument);
    T_CHECK(!more);
}

/* ---- the old one is aborted ------------------------------------------------------------------ */

static void *aborts(void *comm) {
    kit_sleep(100);
    T_OK(symmCommAbort(comm));
    return NULL;
}

/* The new rank never comes. */
static void aborted_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmComm_t comm = old_one(m, rank, OLD), more = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    pthread_t other;
    if (!comm) return;
    config.blocking = m->maker;
    T_EQ(pthread_create(&other, NULL, aborts, comm), 0);
    const uint64_t start = symm_now_ns();
    symmResult_t r = symmCommGrow(comm, n, meet(m, 1, rank), -1, &more, &config);
    T_CHECK(config.blocking || r == symmInProgress);
    while (r == symmInProgress) {
        T_OK(symmCommGetAsyncError(more, &r));
        usleep(500);
    }
    T_CHECK(r == symmAborted || r == symmRemoteError); /* of the two the later one */
    T_CHECKF(fk_ms_since(start) < 1200, "%llu ms", (unsigned long long)fk_ms_since(start));
    T_EQ(pthread_join(other, NULL), 0);
    if (more) T_OK(symmCommDestroy(more));
}

static void the_old_one_is_aborted_meanwhile(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "8000", 1);
    for (int blocking = 0; blocking < 2; blocking++) {
        meeting *m = T_SHARED(sizeof *m);
        m->maker = blocking;
        T_FORK(OLD + 1, aborted_rank, m);
    }
}

T_MAIN(T(processes_come), T(it_grows_again), T(it_grows_without_blocking), T(wrong_arguments),
       T(new_ranks_that_are_wrong), T(the_old_one_is_aborted_meanwhile))
