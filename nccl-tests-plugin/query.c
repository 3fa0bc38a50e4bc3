/* query.c - questions about communicators, and what all of the library is. Any thread, also while
 * another one is stuck in a call; no lock. */

#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define VERSION 22809 /* whose calls and behaviour are those of this library */

ncclResult_t ncclGetVersion(int *version) {
    symm_nccl_params p;
    if (!version) return symm_nccl_null("ncclGetVersion", "version");
    const ncclResult_t r = symm_nccl_params_load(&p);
    if (r) return r;
    const int real = p.version ? 0 : symm_nccl_real_version();
    *version = p.version ? p.version : real ? real : VERSION;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetVersion);

/* Of a forwarded communicator the real NCCL answers. */
#define PASSED(call, ...) \
    if (UNLIKELY(symm_nccl_passes(comm))) return NCCL_ELSE(call)(__VA_ARGS__)

/* NCCL's variable: rank 0 will listen there, and every rank makes the id itself. */
static ncclResult_t id_at(const char *at, symmUniqueId_t *id) {
    const symmResult_t r = symmUniqueIdAt(at, id);
    return r ? symm_nccl_fail(symm_nccl_result(r), "NCCL_COMM_ID=%s", symmGetLastError(NULL))
             : ncclSuccess;
}

/* A real NCCL that the program loaded itself finds ours by name, and needs an id of its own. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const nccl_calls *real = symm_nccl_inside_real ? symm_nccl_real_calls() : NULL;
    if (real && real->ncclGetUniqueId) return real->ncclGetUniqueId(id);
    const char *at = getenv("NCCL_COMM_ID");
    if (at && *at && id) return id_at(at, (symmUniqueId_t *)(void *)id);
    return nccl_of(symmGetUniqueId((symmUniqueId_t *)(void *)id));
}
NCCL_ALIAS(ncclGetUniqueId);

static ncclResult_t state_of_real(ncclComm_t comm, ncclResult_t *error) {
    const uint64_t births = symm_nccl_forward_births();
    const ncclResult_t r = NCCL_ELSE(ncclCommGetAsyncError)(comm, error);
    const nccl_comm *c = nccl_comm_forwarded(comm);
    if (births && c && !r && *error == ncclSuccess) symm_nccl_forward_settled(c, births);
    return r;
}

/* One that is made behind the call may become forwarded at any moment. symm's part of it has ended
 * then, and what that says is no answer. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    static const char call[] = "ncclCommGetAsyncError";
    if (UNLIKELY(symm_nccl_passes(comm))) return state_of_real(comm, error);
    symmResult_t now = symmSuccess;
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find_any(comm, call, &c);
    if (bad) return bad;
    if (!error) return symm_nccl_null(call, "asyncError");
    const symmResult_t r = symmCommGetAsyncError(c->comm, &now);
    if (UNLIKELY(nccl_comm_forwarded(comm) != NULL)) return state_of_real(comm, error);
    /* This rank wished it to end: no error, also where it had one before. */
    const int ended = nccl_comm_refuses(c) & (COMM_REVOKED | COMM_STOPPED);
    if (ended && now != symmInProgress) now = symmSuccess;
    if (!r) *error = nccl_of(now);
    return r || now ? nccl_of(r) : symm_nccl_shadow_async(c, error);
}
NCCL_ALIAS(ncclCommGetAsyncError);

/* An answer that one which is still being made does not have. */
static ncclResult_t answered(const char *call, symmResult_t r) {
    return r == symmInProgress ? symm_nccl_unready(call) : nccl_of(r);
}

static ncclResult_t ask(const char *call, ncclComm_t comm,
                        symmResult_t (*question)(symmComm_t comm, int *out), int *out) {
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    return bad ? bad : answered(call, question(c->comm, out));
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    PASSED(ncclCommCount, comm, count);
    return ask("ncclCommCount", comm, symmCommCount, count);
}
NCCL_ALIAS(ncclCommCount);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    PASSED(ncclCommUserRank, comm, rank);
    return ask("ncclCommUserRank", comm, symmCommUserRank, rank);
}
NCCL_ALIAS(ncclCommUserRank);

/* -1 on the host backend: there is no GPU. */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    PASSED(ncclCommCuDevice, comm, device);
    return ask("ncclCommCuDevice", comm, symmCommDevice, device);
}
NCCL_ALIAS(ncclCommCuDevice);

static ncclResult_t look(const char *call, ncclComm_t comm, symmCommInfo_t *info) {
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    *info = (symmCommInfo_t){.size = sizeof *info};
    return bad ? bad : answered(call, symmCommQuery(c->comm, info));
}

/* Nothing can be suspended. Windows are the program's own memory, and not counted. */
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
    static const char call[] = "ncclCommMemStats";
    PASSED(ncclCommMemStats, comm, stat, value);
    symmCommMem_t mem = {.size = sizeof mem};
    nccl_comm *c;
    ncclResult_t r = symm_nccl_comm_find(comm, call, &c);
    if (!r) r = answered(call, symmCommMemQuery(c->comm, &mem));
    if (r) return r;
    if (!value) return symm_nccl_null(call, "value");
    if ((unsigned)stat > ncclStatGpuMemTotal)
        return symm_nccl_fail(ncclInvalidArgument, "%s: stat=%d: must be 0 to %d", call, (int)stat,
                              ncclStatGpuMemTotal);
    const uint64_t persist = mem.controlBytes + mem.scratchBytes;
    *value = stat == ncclStatGpuMemPersist ? persist
             : stat == ncclStatGpuMemTotal ? persist + mem.heapBytes
                                           : 0;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommMemStats);

/* The id of a communicator that grows: of symm's, an id as any other. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
    PASSED(ncclCommGetUniqueId, comm, id);
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, "ncclCommGetUniqueId", &c);
    return bad ? bad : nccl_of(symmGetUniqueId((symmUniqueId_t *)(void *)id));
}
NCCL_ALIAS(ncclCommGetUniqueId);

/* Fields that the caller's version does not have are left out. */
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props) {
    PASSED(ncclCommQueryProperties, comm, props);
    static const char call[] = "ncclCommQueryProperties";
    symmCommInfo_t info;
    const ncclResult_t r = look(call, comm, &info);
    if (r) return r;
    if (!props) return symm_nccl_null(call, "props");
    if (props->magic != NCCL_API_MAGIC || props->size < sizeof(nccl_record))
        return symm_nccl_fail(ncclInvalidUsage,
                              "%s: magic %#x, size %zu: it must be made with NCCL's initializer",
                              call, props->magic, props->size);
    ncclCommProperties_t p = {.size = props->size,
                              .magic = props->magic,
                              .version = props->version,
                              .rank = info.rank,
                              .nRanks = info.nranks,
                              .cudaDev = info.device,
                              .nvmlDev = info.device,
                              .nLsaTeams = 1,
                              .hostRmaSupport = 1};
    memcpy(props, &p, p.size < sizeof p ? p.size : sizeof p);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommQueryProperties);

/* ---- teams: every rank reaches every other's memory ------------------------------------------ */

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
    PASSED(ncclTeamWorld, comm);
    symmCommInfo_t info;
    if (look("ncclTeamWorld", comm, &info)) return (ncclTeam_t){0, 0, 0};
    return (ncclTeam_t){info.nranks, info.rank, 1};
}
NCCL_ALIAS(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
    PASSED(ncclTeamLsa, comm);
    return ncclTeamWorld(comm);
}
NCCL_ALIAS(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm) {
    PASSED(ncclTeamRail, comm);
    const ncclTeam_t world = ncclTeamWorld(comm);
    return (ncclTeam_t){world.nRanks > 0, 0, world.nRanks};
}
NCCL_ALIAS(ncclTeamRail);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
    PASSED(ncclTeamRankToWorld, comm, team, rank);
    return ncclTeamWorld(comm).rank + (rank - team.rank) * team.stride;
}
NCCL_ALIAS(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
    PASSED(ncclTeamRankToLsa, comm, team, rank);
    return ncclTeamRankToWorld(comm, team, rank);
}
NCCL_ALIAS(ncclTeamRankToLsa);
