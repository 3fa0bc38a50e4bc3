/* comm_init.c - the ways to create a communicator: unique id, callbacks, all ranks of a process.
 * Runs on the caller's thread. Thread ranks of symmCommInitAll are made by one short-lived
 * thread each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/driver.h"
#include "host/comm/group.h"
#include "host/gpu/backend.h"
#include "host/gpu/gpu.h"
#include "transport/cuda/cuda_device.h"
#include "comm_create.h"
#include "comm_make.h"

symmResult_t symmGetUniqueId(symmUniqueId_t *id) {
    symm_params p;
    if (!id) return SYMM_ERR(symmInvalidArgument, "id is NULL");
    SYMM_TRY(symm_param_load(&p));
    return symm_boot_tcp_id(id, p.ifname);
}

symmResult_t symmUniqueIdDrop(const symmUniqueId_t *id) {
    if (!id) return SYMM_ERR(symmInvalidArgument, "id is NULL");
    return symm_boot_tcp_drop(id);
}

symmResult_t symmUniqueIdAt(const char *address, symmUniqueId_t *id) {
    if (!address || !id) return SYMM_ERR(symmInvalidArgument, "%s is NULL", id ? "address" : "id");
    return symm_boot_tcp_agree(address, id);
}

enum { MEET_RANKS = 65536 }; /* as many as the bootstrap takes */

/* A NULL `comm` is refused later, in the exchange, so that all ranks fail with the same error. */
static symmResult_t check_ranks(int nranks, int rank, int most) {
    if (nranks < 1 || nranks > most)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: must be 1 to %d", nranks, most);
    if (rank < 0 || rank >= nranks)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: must be 0 to %d", rank, nranks - 1);
    return symmSuccess;
}

/* A group runs its calls in other threads: each call keeps the context that was current. */
static cu_context callers_context(void) {
    return symm_group_open() ? symm_backend_context() : NULL;
}

typedef struct {
    symmComm_t *comm;
    symm_meeting at;
    symm_config_copy config;
} rank_args;
_Static_assert(sizeof(rank_args) <= 304, "a group keeps no more of a call");

static symmResult_t init_rank(void *p) {
    rank_args *a = p;
    symmConfig_t config;
    return symm_comm_open_tcp(&a->at, symm_config_kept(&a->config, &config), a->comm);
}

static symmResult_t init_meeting(symmComm_t *comm, const symm_meeting *at,
                                 const symmConfig_t *config) {
    rank_args a = {comm, *at, {.given = 0}};
    a.at.from.context = callers_context();
    symm_config_keep(&a.config, config);
    return symm_group_run(comm, SYMM_JOB_BLOCKS, init_rank, &a, sizeof a);
}

symmResult_t symmCommInitRankConfig(symmComm_t *comm, int nranks, symmUniqueId_t id, int rank,
                                    const symmConfig_t *config) {
    const symmResult_t r = check_ranks(nranks, rank, SYMM_MAX_RANKS);
    if (r) return symm_comm_refuse_numbers(&id, rank, nranks, r);
    return init_meeting(comm, &(symm_meeting){.id = id, .rank = rank, .nranks = nranks}, config);
}

symmResult_t symmCommInitRankMeet(symmComm_t *comm, int nranks, symmUniqueId_t id, int rank,
                                  const symmConfig_t *config, const symmMeet_t *meet) {
    symmResult_t r = check_ranks(nranks, rank, MEET_RANKS);
    if (r) return symm_comm_refuse_numbers(&id, rank, nranks, r);
    r = symm_comm_check_meet(meet);
    if (r) return symm_comm_refuse_rank(&id, rank, nranks, r);
    const symm_meeting at = {.id = id, .rank = rank, .nranks = nranks, .meet = *meet};
    return init_meeting(comm, &at, config);
}

symmResult_t symmCommInitRank(symmComm_t *comm, int nranks, symmUniqueId_t id, int rank) {
    return symmCommInitRankConfig(comm, nranks, id, rank, NULL);
}

typedef struct {
    symmComm_t *comm;
    int nranks, rank;
    symmBoot_t cb;
    symm_config_copy config;
    cu_context context;
} boot_args;
_Static_assert(sizeof(boot_args) <= 256, "a group keeps no more of a call");

static symmResult_t init_boot(void *p) {
    boot_args *a = p;
    symm_boot *boot;
    symmConfig_t config;
    SYMM_TRY(symm_boot_user_open(&a->cb, a->rank, a->nranks, &boot));
    const symm_origin from = {.context = a->context};
    return symm_comm_open_from(&from, boot, symm_config_kept(&a->config, &config), a->comm);
}

symmResult_t symmCommInitBoot(symmComm_t *comm, int nranks, int rank, const symmBoot_t *boot,
                              const symmConfig_t *config) {
    symmResult_t bad = check_ranks(nranks, rank, SYMM_MAX_RANKS);
    if (!bad && (!boot || !boot->allgather))
        bad = SYMM_ERR(symmInvalidArgument, "%s is NULL", boot ? "boot->allgather" : "boot");
    if (bad) return symm_group_refuse(bad);
    boot_args a = {comm, nranks, rank, *boot, {.given = 0}, callers_context()};
    symm_config_keep(&a.config, config);
    return symm_group_run(comm, SYMM_JOB_BLOCKS, init_boot, &a, sizeof a);
}

/* ---- all ranks of one process ---------------------------------------------------------------- */

typedef struct {
    symm_boot_group *group;
    symmMeet_t meet; /* what it settles first; settle NULL: nothing */
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
    if (!o->result) boot->meet = o->meet;
    if (!o->result && device) { /* the hello tells it to the others */
        symm_status_adopt(why);
        o->result = symm_comm_refuse(boot, device);
        memcpy(o->text, symm_status_text(), sizeof o->text);
        return NULL;
    }
    if (o->result) symm_boot_group_abandon(o->group); /* the others must not wait for this rank */
    if (!o->result) o->result = symm_comm_open(boot, NULL, &o->comm);
    if (o->result) memcpy(o->text, symm_status_text(), sizeof o->text);
    return NULL;
}

/* The device of each rank: as asked, else the rank; -1 on the host backend. */
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

/* meets NULL: nothing is settled. */
static symmResult_t init_all(symmComm_t *comms, int n, const int *devices,
                             const symmMeet_t *meets) {
    if (!comms) return SYMM_ERR(symmInvalidArgument, "comms is NULL");
    if (n < 1 || n > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "n=%d: must be 1 to %d", n, SYMM_MAX_RANKS);
    symm_boot_group *group;
    one_rank *ones = SYMM_FAIL_ALLOC(all_alloc, calloc((size_t)n, sizeof *ones));
    if (!ones) return SYMM_ERR(symmOutOfMemory, "no memory to create %d ranks", n);
    for (int r = 0; meets && r < n; r++) ones[r].meet = meets[r];
    symmResult_t status = pick_devices(ones, n, devices);
    if (!status) status = symm_boot_group_create(n, &group);
    if (status) goto free_ones;
    symm_boot_group_hold(group, 1);
    status = start_ranks(ones, n, group);
    for (int r = 0; r < n; r++) {
        if (ones[r].started) pthread_join(ones[r].thread, NULL);
        /* Prefers the cause to remote errors, which are its consequences. */
        if (ones[r].result &&
            (!status || (status == symmRemoteError && ones[r].result != status))) {
            status = ones[r].result;
            symm_status_adopt(ones[r].text);
        }
    }
    symm_boot_group_hold(group, 0); /* no thread is left that could join */
    for (int r = 0; r < n; r++) {
        if (!status) {
            comms[r] = ones[r].comm;
            if (comms[r]) symm_driver_take(comms[r]); /* else the ranks do without it */
        } else if (ones[r].comm) {
            symmCommDestroy(ones[r].comm);
        }
    }
free_ones:
    free(ones);
    return status;
}

symmResult_t symmCommInitAll(symmComm_t *comms, int n, const int *devices) {
    return init_all(comms, n, devices, NULL);
}

symmResult_t symmCommInitAllMeet(symmComm_t *comms, int n, const int *devices,
                                 const symmMeet_t *meets) {
    for (int r = 0; r < n && r < SYMM_MAX_RANKS; r++)
        SYMM_TRY(symm_comm_check_meet(meets ? &meets[r] : NULL));
    return init_all(comms, n, devices, meets);
}
