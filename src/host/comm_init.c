/* comm_init.c - the ways to create a communicator: unique id, callbacks, all ranks of a process, split, shrink.
 * Runs on the caller's thread. Thread ranks of symmCommInitAll are made by one short-lived thread each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../transport/cuda_device.h"
#include "backend.h"
#include "comm.h"
#include "comm_create.h"
#include "comm_make.h"
#include "driver.h"
#include "fail.h"
#include "gpu.h"
#include "group.h"
#include "log.h"
#include "stats.h"

symmResult_t symmGetUniqueId(symmUniqueId *id) {
    symm_params p;
    if (!id) return SYMM_ERR(symmInvalidArgument, "id is NULL");
    SYMM_TRY(symm_param_load(&p));
    return symm_boot_tcp_id(id, p.ifname);
}

/* A rank without a place for the handle goes on to the exchange all the same, so that all ranks fail alike. */
static symmResult_t check_ranks(int nranks, int rank) {
    if (nranks < 1 || nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: must be 1 to %d", nranks, SYMM_MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: must be 0 to %d", rank, nranks - 1);
    return symmSuccess;
}

/* A group runs its calls in threads of its own: each has what was current when it was made. */
static cu_context callers_context(void) {
    return symm_group_open() ? symm_backend_context() : NULL;
}

typedef struct {
    symmComm_t *comm;
    symm_meeting at;
    const symmConfig_t *config;
} rank_args;

static symmResult_t init_rank(void *p) {
    rank_args *a = p;
    return symm_comm_open_tcp(&a->at, a->config, a->comm);
}

symmResult_t symmCommInitRankConfig(symmComm_t *comm, int nranks, symmUniqueId id, int rank,
                                    const symmConfig_t *config) {
    rank_args a = {comm, {id, rank, nranks, callers_context()}, config};
    SYMM_TRY(check_ranks(nranks, rank));
    return symm_group_run(comm, SYMM_JOB_BLOCKS, init_rank, &a, sizeof a);
}

symmResult_t symmCommInitRank(symmComm_t *comm, int nranks, symmUniqueId id, int rank) {
    return symmCommInitRankConfig(comm, nranks, id, rank, NULL);
}

typedef struct {
    symmComm_t *comm;
    int nranks, rank;
    symmBoot_t cb;
    const symmConfig_t *config;
    cu_context context;
} boot_args;

static symmResult_t init_boot(void *p) {
    boot_args *a = p;
    symm_boot *boot;
    SYMM_TRY(symm_boot_user_open(&a->cb, a->rank, a->nranks, &boot));
    return symm_comm_open_in(a->context, boot, a->config, a->comm);
}

symmResult_t symmCommInitBoot(symmComm_t *comm, int nranks, int rank, const symmBoot_t *boot,
                              const symmConfig_t *config) {
    SYMM_TRY(check_ranks(nranks, rank));
    if (!boot || !boot->allgather)
        return SYMM_ERR(symmInvalidArgument, "%s is NULL", boot ? "boot->allgather" : "boot");
    boot_args a = {comm, nranks, rank, *boot, config, callers_context()};
    return symm_group_run(comm, SYMM_JOB_BLOCKS, init_boot, &a, sizeof a);
}

/* ---- all ranks of one process ------------------------------------------------------------------------------------------ */

typedef struct {
    symm_boot_group *group;
    symmComm_t comm;
    symmResult_t result;
    pthread_t thread;
    int rank, started;
    int device; /* GPUs: -1 none asked for */
    char text[SYMM_ERR_TEXT];
} one_rank;

static void *make_rank(void *p) {
    one_rank *o = p;
    symm_boot *boot;
    symmResult_t device = o->device >= 0 ? symm_cuda_set(o->device) : symmSuccess;
    char why[SYMM_ERR_TEXT];
    if (device) memcpy(why, symm_status_text(), sizeof why);
    o->result = symm_boot_threads_open(o->group, o->rank, &boot);
    if (!o->result && device) { /* the others hear of it */
        symm_status_adopt(why);
        o->result = symm_comm_refuse(boot, device);
        memcpy(o->text, symm_status_text(), sizeof o->text);
        return NULL;
    }
    if (o->result) symm_boot_group_abandon(o->group); /* the others shall not wait for this rank */
    if (!o->result) o->result = symm_comm_open(boot, NULL, &o->comm);
    if (o->result) memcpy(o->text, symm_status_text(), sizeof o->text);
    return NULL;
}

/* The device of each rank: as asked, else its number; -1 on the host backend. */
static symmResult_t pick_devices(one_rank *ones, int n, const int *devices) {
    symm_params p;
    int cuda;
    SYMM_TRY(symm_param_load(&p));
    SYMM_TRY(symm_backend_pick(&p, &cuda));
    const int there = cuda ? symm_cuda_devices() : 0;
    for (int r = 0; r < n; r++) {
        ones[r].device = !cuda ? -1 : devices ? devices[r] : r;
        if (!cuda || (ones[r].device >= 0 && ones[r].device < there)) continue;
        if (devices)
            return SYMM_ERR(symmInvalidArgument, "devices[%d]=%d: there are GPUs 0 to %d", r,
                            devices[r], there - 1);
        return SYMM_ERR(symmInvalidArgument,
                        "n=%d: there are %d GPUs (pass devices to let ranks share them)", n, there);
    }
    return symmSuccess;
}

static symmResult_t start_ranks(one_rank *ones, int n, symm_boot_group *group) {
    for (int r = 0; r < n; r++) {
        ones[r].group = group;
        ones[r].rank = r;
        int e = SYMM_FAIL_CODE(all_thread, EAGAIN,
                               pthread_create(&ones[r].thread, NULL, make_rank, &ones[r]));
        if (e) {
            symm_boot_group_abandon(group);
            return SYMM_ERR(symmSystemError, "cannot start a thread for rank %d: %s", r,
                            strerror(e));
        }
        ones[r].started = 1;
    }
    return symmSuccess;
}

symmResult_t symmCommInitAll(symmComm_t *comms, int n, const int *devices) {
    if (!comms) return SYMM_ERR(symmInvalidArgument, "comms is NULL");
    if (n < 1 || n > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "n=%d: must be 1 to %d", n, SYMM_MAX_RANKS);
    symm_boot_group *group;
    one_rank *ones = SYMM_FAIL_ALLOC(all_alloc, calloc((size_t)n, sizeof *ones));
    if (!ones) return SYMM_ERR(symmOutOfMemory, "no memory to create %d ranks", n);
    symmResult_t status = pick_devices(ones, n, devices);
    if (!status) status = symm_boot_group_create(n, &group);
    if (status) goto free_ones;
    symm_boot_group_hold(group, 1);
    status = start_ranks(ones, n, group);
    for (int r = 0; r < n; r++) {
        if (ones[r].started) pthread_join(ones[r].thread, NULL);
        /* The cause rather than what it looked like to the others. */
        if (ones[r].result &&
            (!status || (status == symmRemoteError && ones[r].result != status))) {
            status = ones[r].result;
            symm_status_adopt(ones[r].text);
        }
    }
    symm_boot_group_hold(group, 0); /* no thread is left that could still come */
    for (int r = 0; r < n; r++) {
        if (!status) {
            comms[r] = ones[r].comm;
            symm_driver_take(comms[r]);
        } else if (ones[r].comm) {
            symmCommDestroy(ones[r].comm);
        }
    }
free_ones:
    free(ones);
    return status;
}

/* ---- from a parent -------------------------------------------------------------------------------------------------------- */

typedef struct {
    symmComm_t parent;
    symmComm_t *out;
    const symmConfig_t *config;
    int color, key;
    const int *exclude;
    int nexclude, flags;
} child_args;

/* The parent's set-up deadline where the child's config says nothing. */
static symmConfig_t child_config(const symm_comm *parent, const symmConfig_t *config) {
    symmConfig_t c = config ? *config : parent->config;
    if (!config) c.commName = NULL;
    if (c.timeoutMs == SYMM_CONFIG_UNDEF) c.timeoutMs = parent->config.timeoutMs;
    return c;
}

static symmResult_t open_over(symm_comm *c, symm_boot *boot, const child_args *a) {
    symmConfig_t cfg = child_config(c, a->config);
    cfg.blocking =
        SYMM_CONFIG_UNDEF; /* the child's bootstrap is the parent's mesh: both cannot be in use at once */
    return symm_comm_open_in(c->gpu ? c->gpu->context : NULL, boot, &cfg, a->out);
}

/* What is wrong here goes to the others, who wait in the child's first exchange. Whose list cannot be read does not know who they are,
 * and waits for a few seconds only. */
static symmResult_t refuse_child(symm_comm *c, symm_boot *boot, symmResult_t status,
                                 const child_args *a) {
    if (a->nexclude < 0 || (a->nexclude && !a->exclude)) return symm_comm_refuse(boot, status);
    return symm_comm_refuse_by(boot, status,
                               symm_comm_wait(c, "creating a communicator").deadline_ns);
}

/* status: of the caller's arguments. */
static symmResult_t open_child(symm_comm *c, symm_boot *boot, symmResult_t status,
                               const child_args *a) {
    symmResult_t r = status ? refuse_child(c, boot, status, a) : open_over(c, boot, a);
    symm_log_rank(c->rank);
    /* The exchange failed half-way, or shrink has learnt in it that a rank died: the parent is over. */
    if (symm_mesh_revoked(c->mesh) &&
        atomic_load_explicit(&c->async, memory_order_acquire) == symmSuccess) {
        const int other = !r || r == symmInvalidArgument; /* than this rank's */
        char text[SYMM_ERR_TEXT], own[SYMM_ERR_TEXT];
        snprintf(own, sizeof own, "%s", symm_status_text());
        symm_comm_reason(c, symmRemoteError, -1, text, sizeof text);
        if (other) symm_status_adopt(text);
        symm_comm_break(c, other ? symmRemoteError : r, other ? -1 : c->rank,
                        "creating a communicator from it");
        symm_status_adopt(own);
    }
    return r;
}

typedef struct {
    int32_t color, key, code, pad;
} wish;

/* Members of `color` in order of (key, old rank). Returns how many, *mine: this rank's place. */
static int sort_members(const wish *all, int nranks, int color, int self, int *members, int *mine) {
    int n = 0;
    for (int r = 0; r < nranks; r++) {
        if (all[r].color != color) continue;
        int at = n++;
        while (at > 0 && all[members[at - 1]].key > all[r].key) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
    }
    for (int i = 0; i < n; i++)
        if (members[i] == self) *mine = i;
    return n;
}

static symmResult_t split(symm_comm *c, const child_args *a) {
    wish all[SYMM_MAX_RANKS], mine = {a->color, a->key, 0, 0};
    int members[SYMM_MAX_RANKS], rank = 0;
    symmConfig_t checked;
    symmResult_t status = symm_config_check(a->config, &checked);
    if (!status && !a->out) status = SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    if (!status && a->color < 0 && a->color != SYMM_SPLIT_NOCOLOR)
        status = SYMM_ERR(symmInvalidArgument,
                          "color=%d: must not be negative, or SYMM_SPLIT_NOCOLOR", a->color);
    mine.code = (int32_t)status;
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, "splitting a communicator"));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, "splitting a communicator");
    symm_boot *boot = NULL;
    if (a->color != SYMM_SPLIT_NOCOLOR) {
        int n = sort_members(all, c->nranks, a->color, c->rank, members, &rank);
        status = symm_boot_mesh_open(c->mesh, members, n, rank, &boot);
    }
    status =
        symm_comm_agree(c, status, "splitting a communicator"); /* nobody begins before all can */
    if (status) {
        symm_boot_close(boot);
        return status;
    }
    if (boot) return open_child(c, boot, symmSuccess, a);
    *a->out = NULL;
    return symmSuccess;
}

static symmResult_t split_job(void *p) {
    child_args *a = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(a->parent, 1, &c));
    symmResult_t r = split(c, a);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmCommSplit(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                           const symmConfig_t *config) {
    child_args a = {.parent = comm, .out = newcomm, .config = config, .color = color, .key = key};
    return symm_group_run(comm, SYMM_JOB_BLOCKS, split_job, &a, sizeof a);
}

/* What is wrong with this rank's arguments. gone: whom they leave out, as far as they can be read. */
static symmResult_t shrink_args(const symm_comm *c, const child_args *a, int *gone) {
    symmConfig_t checked;
    symmResult_t status = symm_config_check(a->config, &checked);
    if (!a->out) status = SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    if (a->flags)
        status = SYMM_ERR(symmInvalidArgument, "flags=%d: symmCommShrink takes 0", a->flags);
    if (a->nexclude < 0)
        status = SYMM_ERR(symmInvalidArgument, "nExclude=%d: must not be negative", a->nexclude);
    if (a->nexclude > 0 && !a->exclude)
        return SYMM_ERR(symmInvalidArgument, "excludeRanks is NULL, nExclude=%d", a->nexclude);
    for (int i = 0; i < a->nexclude; i++) {
        const int r = a->exclude[i];
        if (r < 0 || r >= c->nranks)
            status = SYMM_ERR(symmInvalidArgument,
                              "excludeRanks[%d]=%d: the communicator has ranks 0 to %d", i, r,
                              c->nranks - 1);
        else
            gone[r] = 1;
        if (r == c->rank)
            return SYMM_ERR(symmInvalidArgument, "excludeRanks[%d]=%d is this rank", i, r);
    }
    return status;
}

static symmResult_t shrink(symm_comm *c, const child_args *a) {
    int gone[SYMM_MAX_RANKS] = {0}, members[SYMM_MAX_RANKS], n = 0, rank = -1;
    symmResult_t status = shrink_args(c, a, gone);
    if (gone[c->rank]) return status; /* for whom the others do not wait either */
    for (int r = 0; r < c->nranks; r++) {
        if (r == c->rank)
            rank = n;
        else if (status && (r == symm_comm_dead(c) || !symm_mesh_alive(c->mesh, r) ||
                            symm_mesh_hung_up(c->mesh, r)))
            gone[r] = 1; /* the others, whose arguments are better, will have named it */
        if (!gone[r]) members[n++] = r;
    }
    symm_boot *boot;
    SYMM_TRY(symm_boot_mesh_open(c->mesh, members, n, rank, &boot));
    symm_boot_mesh_survive(boot);
    return open_child(c, boot, status, a);
}

symmResult_t symmCommShrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                            symmComm_t *newcomm, const symmConfig_t *config, int flags) {
    symm_comm *c;
    child_args a = {.parent = comm,
                    .out = newcomm,
                    .config = config,
                    .exclude = excludeRanks,
                    .nexclude = nExclude,
                    .flags = flags};
    SYMM_TRY(symm_comm_enter(comm, 0, &c));
    symmResult_t r = shrink(c, &a);
    symm_comm_leave(c);
    return r;
}
