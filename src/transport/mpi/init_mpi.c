/* init_mpi.c - symmCommInitMPI: one communicator over the ranks of an MPI communicator, whether
 * they share one domain or not. Part of libsymm-mpi, and of libsymm-pmpi, which takes none of the
 * calls of MPI that are made here. The calling thread; no lock. */
#include "symm_mpi.h"

#include "base/status.h"
#include "host/life/comm_create.h"
#include "host/life/comm_across.h"
#include "transport/boot/boot.h"
#include "boot_mpi.h"
#include "net_mpi.h"

/* The communicator of this rank's domain. All ranks of mpicomm are here, so that a call of MPI
 * which waits for them all ends. */
static symmResult_t open_inner(MPI_Comm mpicomm, const struct symm_domains *map,
                               const symmConfig_t *config, symmComm_t *inner) {
    MPI_Comm part = MPI_COMM_NULL;
    int rank, beside;
    const int domain = symm_across_domain(map, &beside);
    MPI_Comm_rank(mpicomm, &rank);
    if (MPI_Comm_split(mpicomm, domain, rank, &part) != MPI_SUCCESS)
        return SYMM_ERR(symmSystemError, "MPI_Comm_split failed for domain %d", domain);
    symm_boot *boot;
    symm_wait w;
    symmResult_t r = symm_mpi_meet(&part, config, &w, &boot);
    if (!r) boot->beside = beside;
    if (!r) r = symm_comm_create(boot, config, inner);
    MPI_Comm_free(&part);
    return r;
}

/* Calls of MPI that wait for all have no deadline: what comes behind them has as long as was left
 * before. */
static symmResult_t open_across(symmComm_t *comm, MPI_Comm mpicomm, const symmConfig_t *config,
                                symm_boot *boot, const symm_wait *w, struct symm_domains *map) {
    symmComm_t inner = NULL;
    symm_net *net = NULL;
    symm_wait last = *w;
    const uint64_t began = symm_now_ns();
    symmResult_t r = open_inner(mpicomm, map, config, &inner);
    /* Also after a failure: the ranks of other domains are in it. */
    const symmResult_t moves = symm_net_mpi_open(&mpicomm, &net);
    if (!r) r = moves;
    if (!r && !comm) r = SYMM_ERR(symmInvalidArgument, "comm is NULL"); /* told to all */
    last.deadline_ns += symm_now_ns() - began;
    return symm_across_open(boot, &last, r, map, inner, net, comm);
}

static symmResult_t create(symmComm_t *comm, MPI_Comm mpicomm, const symmConfig_t *config,
                           symm_boot *boot, const symm_wait *w) {
    struct symm_domains *map;
    symmResult_t r = symm_across_find(boot, w, &map);
    if (!r && !map) return symm_comm_create(boot, config, comm);
    if (!r) r = open_across(comm, mpicomm, config, boot, w, map);
    boot->ops->close(boot);
    return r;
}

symmResult_t symmCommInitMPI(symmComm_t *comm, MPI_Comm mpicomm, const symmConfig_t *config) {
    symm_boot *boot;
    symm_wait w;
    SYMM_TRY(symm_mpi_meet(&mpicomm, config, &w, &boot));
    return create(comm, mpicomm, config, boot, &w);
}
