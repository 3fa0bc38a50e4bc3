/* names.h - the files of libsymm-mpi that are in this library call MPI by its profiling names: a
 * program's own profiling functions see no call that the program did not make. A name that is
 * missing here is an error of the link. */
#ifndef NAMES_H_
#define NAMES_H_

#define MPI_Allreduce             PMPI_Allreduce
#define MPI_Cancel                PMPI_Cancel
#define MPI_Comm_create_group     PMPI_Comm_create_group
#define MPI_Comm_create_keyval    PMPI_Comm_create_keyval
#define MPI_Comm_free             PMPI_Comm_free
#define MPI_Comm_get_attr         PMPI_Comm_get_attr
#define MPI_Comm_group            PMPI_Comm_group
#define MPI_Comm_rank             PMPI_Comm_rank
#define MPI_Comm_remote_size      PMPI_Comm_remote_size
#define MPI_Comm_set_attr         PMPI_Comm_set_attr
#define MPI_Comm_set_errhandler   PMPI_Comm_set_errhandler
#define MPI_Comm_size             PMPI_Comm_size
#define MPI_Comm_split            PMPI_Comm_split
#define MPI_Comm_test_inter       PMPI_Comm_test_inter
#define MPI_Error_class           PMPI_Error_class
#define MPI_Error_string          PMPI_Error_string
#define MPI_Finalized             PMPI_Finalized
#define MPI_Get_count             PMPI_Get_count
#define MPI_Get_library_version   PMPI_Get_library_version
#define MPI_Group_free            PMPI_Group_free
#define MPI_Group_incl            PMPI_Group_incl
#define MPI_Group_translate_ranks PMPI_Group_translate_ranks
#define MPI_Iallgather            PMPI_Iallgather
#define MPI_Iallreduce            PMPI_Iallreduce
#define MPI_Initialized           PMPI_Initialized
#define MPI_Iprobe                PMPI_Iprobe
#define MPI_Irecv                 PMPI_Irecv
#define MPI_Is_thread_main        PMPI_Is_thread_main
#define MPI_Isend                 PMPI_Isend
#define MPI_Query_thread          PMPI_Query_thread
#define MPI_Recv                  PMPI_Recv
#define MPI_Test                  PMPI_Test
#define MPI_Testsome              PMPI_Testsome

#endif
