/* comm_grow.c - a communicator of another one's ranks and new ones. The ranks of the old one agree
 * over its mesh on the id; then all meet as those of symmCommInitRank do. Runs on the caller's
 * thread; with config.blocking 0 the meeting has one of its own. No lock. */
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "host/comm/comm.h"
#include "host/comm/gather.h"
#include "host/comm/group.h"
#include "host/gpu/backend.h"
#include "host/gpu/gpu.h"
#include "transport/boot/boot_tcp.h"
#include "comm_make.h"

typedef struct { /* the arguments by value, because a group makes the call later */
    symmComm_t parent;
    symmComm_t *out;
    symm_meeting at; /* rank: as it was passed */
    symm_config_copy config;
    int has_id;
    enum { NO_MEET, WITH_MEET, MEET_IS_NULL } meets;
} grow_args;

typedef struct { /* what the ranks of the old communicator tell each other */
    symmUniqueId_t id;
    int32_t code, nranks, has_id, pad;
} wish;

static const char stage[] = "growing a communicator";

static symmResult_t check_meet(const grow_args *a) {
    if (a->meets == NO_MEET) return symmSuccess;
    return symm_comm_check_meet(a->meets == MEET_IS_NULL ? NULL : &a->at.meet);
}

static symmResult_t check(const symm_comm *c, const grow_args *a) {
    symmConfig_t config, checked;
    if (!a->out) return SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    if (a->at.nranks <= c->nranks || a->at.nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: must be %d to %d, as comm has %d ranks",
                        a->at.nranks, c->nranks + 1, SYMM_MAX_RANKS, c->nranks);
    if (a->at.rank != -1)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: must be -1 where comm is not NULL",
                        a->at.rank);
    SYMM_TRY(check_meet(a));
    return symm_config_check(symm_config_kept(&a->config, &config), &checked);
}

/* The first of them; -1: none. */
static int who_has_id(const wish *all, int n) {
    for (int r = 0; r < n; r++)
        if (all[r].has_id) return r;
    return -1;
}

/* Among the ranks of c; all come to the same. */
static symmResult_t agree(symm_comm *c, grow_args *a) {
    wish all[SYMM_MAX_RANKS], mine = {.nranks = a->at.nranks};
    const symmResult_t status = check(c, a);
    mine.code = (int32_t)status;
    mine.id = a->at.id;
    mine.has_id = a->has_id;
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, stage));
    const int who = who_has_id(all, c->nranks);
    a->has_id = who >= 0;
    if (a->has_id) a->at.id = all[who].id;
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, stage);
    if (who < 0)
        return SYMM_ERR(symmInvalidArgument, "id is NULL on all ranks of comm: one passes it");
    for (int r = 1; r < c->nranks; r++)
        if (all[r].nranks != all[0].nranks)
            return SYMM_ERR(symmMismatch, "symmCommGrow: nranks=%d on rank 0 and %d on rank %d",
                            all[0].nranks, all[r].nranks, r);
    return symmSuccess;
}

static symmResult_t grow_from(symm_comm *c, grow_args *a, symmConfig_t *config) {
    *config = symm_config_child(c, &a->config);
    const symmResult_t r = agree(c, a);
    if (r && a->has_id)
        symm_boot_tcp_refuse(&a->at.id, c->rank, a->at.nranks); /* the new ranks do not wait */
    a->at.rank = c->rank;
    a->at.from = (symm_origin){c->gpu ? c->gpu->context : NULL, c, 1};
    return r;
}

static symmResult_t grow_job(void *p) {
    grow_args *a = p;
    symm_comm *c;
    symmConfig_t config;
    if (!a->parent)
        return symm_comm_open_tcp(&a->at, symm_config_kept(&a->config, &config), a->out);
    SYMM_TRY(symm_comm_enter(a->parent, SYMM_ENTER_LIVE, &c));
    symmResult_t r = grow_from(c, a, &config);
    symm_comm_ref(c); /* the program may end it from here on */
    symm_comm_leave(c);
    SYMM_ASSERT(r || (a->at.rank >= 0 && a->at.rank < a->at.nranks));
    if (!r) r = symm_comm_open_tcp(&a->at, &config, a->out);
    symm_comm_unref(c);
    return r;
}

/* Of a new rank. Rank 0 is always one of the old communicator's. */
static symmResult_t check_new(const grow_args *a) {
    if (!a->has_id) return SYMM_ERR(symmInvalidArgument, "id is NULL");
    if (a->at.nranks < 2 || a->at.nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: must be 2 to %d", a->at.nranks,
                        SYMM_MAX_RANKS);
    if (a->at.rank < 1 || a->at.rank >= a->at.nranks)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: must be 1 to %d where comm is NULL",
                        a->at.rank, a->at.nranks - 1);
    return symmSuccess;
}

static symmResult_t grow(symmComm_t comm, int nranks, const symmUniqueId_t *id, int rank,
                         symmComm_t *newcomm, const symmConfig_t *config, const symmMeet_t *meet,
                         int meets) {
    grow_args a = {.parent = comm, .out = newcomm, .has_id = id != NULL};
    if (meets) a.meets = meet ? WITH_MEET : MEET_IS_NULL;
    if (meet) a.at.meet = *meet;
    a.at.rank = rank;
    a.at.nranks = nranks;
    if (id) a.at.id = *id;
    symmResult_t r = comm ? symmSuccess : check_new(&a);
    if (r) return id ? symm_comm_refuse_numbers(id, rank, nranks, r) : symm_group_refuse(r);
    if (!comm) r = check_meet(&a);
    if (r) return symm_comm_refuse_rank(id, rank, nranks, r);
    if (!comm) a.at.from.context = symm_group_open() ? symm_backend_context() : NULL;
    symm_config_keep(&a.config, config);
    if (comm) return symm_comm_run(comm, grow_job, &a, sizeof a);
    return symm_group_run(newcomm, SYMM_JOB_BLOCKS, grow_job, &a, sizeof a);
}

symmResult_t symmCommGrow(symmComm_t comm, int nranks, const symmUniqueId_t *id, int rank,
                          symmComm_t *newcomm, const symmConfig_t *config) {
    return grow(comm, nranks, id, rank, newcomm, config, NULL, 0);
}

symmResult_t symmCommGrowMeet(symmComm_t comm, int nranks, const symmUniqueId_t *id, int rank,
                              symmComm_t *newcomm, const symmConfig_t *config,
                              const symmMeet_t *meet) {
    return grow(comm, nranks, id, rank, newcomm, config, meet, 1);
}
