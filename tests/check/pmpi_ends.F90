! pmpi_ends.F90 - a module in Fortran for a program in C: communicators that it makes, uses and ends,
! and the end of MPI. USE_MPIFH or USE_F08 says how it has MPI. Of check_pmpi.sh.
#ifdef USE_F08
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#else
#define COMM integer
#define REQUEST integer
#endif

subroutine ends(wrong)
#ifdef USE_F08
    use mpi_f08
    implicit none
#else
    implicit none
    include 'mpif.h'
#endif
    integer, intent(inout) :: wrong
    COMM :: made
    REQUEST :: request
    integer :: error, how, i, n, one, total
    call MPI_Comm_size(MPI_COMM_WORLD, n, error)
    do how = 1, 4
        if (how == 4) then
            call MPI_Comm_idup(MPI_COMM_WORLD, made, request, error)
            if (error /= MPI_SUCCESS) wrong = wrong + 1
            call MPI_Wait(request, MPI_STATUS_IGNORE, error)
        else
            call MPI_Comm_dup(MPI_COMM_WORLD, made, error)
        end if
        do i = 1, 10
            one = 1
            total = 0
            call MPI_Allreduce(one, total, 1, MPI_INTEGER, MPI_SUM, made, error)
            if (total /= n) wrong = wrong + 1
        end do
        error = -1
        if (how == 2) then
            call MPI_Comm_disconnect(made, error)
        else
            call MPI_Comm_free(made, error)
        end if
        if (error /= MPI_SUCCESS .or. made /= MPI_COMM_NULL) wrong = wrong + 1
    end do
    error = -1
    call MPI_Finalize(error)
    if (error /= MPI_SUCCESS) wrong = wrong + 1
end subroutine
