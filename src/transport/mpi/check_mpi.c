/* check_mpi.c - whether MPI can be called, here and now. Part of libsymm-mpi. The calling thread;
 * no lock. */
#include <string.h>

#include "symm_mpi.h"

#include "base/status.h"
#include "boot_mpi.h"

/* What a handle is differs between MPIs: another one than this file was compiled for takes none of
 * ours. MPICH's relatives have its handles; one that is not known here is let pass. */
static symmResult_t check_library(void) {
    static const char *const names[][2] = {
        {"Open MPI", "Open MPI"}, {"MPICH", "MPICH"}, {"MVAPICH", "MPICH"}, {"Intel", "MPICH"}};
#ifdef OPEN_MPI
    const char *const ours = "Open MPI";
#else
    const char *const ours = "MPICH";
#endif
    char version[16384] = ""; /* Open MPI writes at most 256 bytes, MPICH 8192 */
    int n;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0;
    for (char *tab = version; (tab = strchr(tab, '\t'));) *tab = ' ';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(version, names[i][0]) && strcmp(names[i][1], ours) != 0)
            return SYMM_ERR(symmInvalidUsage,
                            "symmCommInitMPI: libsymm-mpi was built for %s, and this program runs "
                            "%.100s: it needs one that was built with that MPI's mpicc",
                            ours, version);
    return symmSuccess;
}

symmResult_t symm_mpi_check(void) {
    int yes, level;
    MPI_Initialized(&yes);
    if (!yes) return SYMM_ERR(symmInvalidUsage, "symmCommInitMPI: MPI is not initialised");
    MPI_Finalized(&yes);
    if (yes) return SYMM_ERR(symmInvalidUsage, "symmCommInitMPI: MPI is finalised");
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_SERIALIZED) return symmSuccess;
    MPI_Is_thread_main(&yes);
    if (yes) return symmSuccess;
    return SYMM_ERR(
        symmInvalidUsage,
        "symmCommInitMPI: MPI was initialised with %s, so only the thread that did it may "
        "call (MPI_Init_thread with MPI_THREAD_SERIALIZED or more allows others)",
        level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
}

symmResult_t symm_mpi_check_comm(const void *mpicomm) {
    const MPI_Comm comm = *(const MPI_Comm *)mpicomm;
    int inter, remote = 0;
    SYMM_TRY(check_library());
    SYMM_TRY(symm_mpi_check());
    if (comm == MPI_COMM_NULL)
        return SYMM_ERR(symmInvalidArgument,
                        "symmCommInitMPI: mpicomm is MPI_COMM_NULL: must be a communicator");
    MPI_Comm_test_inter(comm, &inter);
    if (!inter) return symmSuccess;
    MPI_Comm_remote_size(comm, &remote);
    return SYMM_ERR(symmInvalidArgument,
                    "symmCommInitMPI: mpicomm is an intercommunicator, with %d remote ranks: must "
                    "be an intracommunicator",
                    remote);
}
