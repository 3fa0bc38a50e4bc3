/* net_mpi.h - the mover over MPI (net.h). Part of libsymm-mpi. Only the thread inside the
 * communicator enters MPI. No lock. */
#ifndef SYMM_NET_MPI_H_
#define SYMM_NET_MPI_H_

#include "transport/net/net.h"

/* mpicomm points to an MPI_Comm, which is split three times: for words, and for each way of
 * messages. [collective over it] */
symmResult_t symm_net_mpi_open(const void *mpicomm, symm_net **out);

#endif
