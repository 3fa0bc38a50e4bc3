! pmpi_calls.F90 - the calls of libsymm-pmpi.so from Fortran, each as MPI_ and as PMPI_, with all
! bytes compared; check_pmpi.sh builds it with USE_MPIFH, USE_MPI and USE_F08, a module each.
#ifdef USE_F08
#define DATATYPE type(MPI_Datatype)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#else
#define DATATYPE integer
#define COMM integer
#define REQUEST integer
#endif
program calls
#if defined USE_F08
    use mpi_f08
#elif defined USE_MPI
    use mpi
#endif
    implicit none
#ifdef USE_MPIFH
    include 'mpif.h'
#endif
    integer, parameter :: count = 300, most = count * 20
    integer :: a(most), x(most), y(most), parts(20), displs(20)
    double precision :: d(count), dx(count), dy(count)
    real :: r(count), rx(count), ry(count)
    complex :: c(count), cx(count), cy(count)
    integer :: me, n, root, i, error, round, bad = 0

    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, me, error)
    call MPI_Comm_size(MPI_COMM_WORLD, n, error)
    do round = 1, 40
        root = mod(round, n)
        call reductions()
        call equal_parts()
        call counted_parts()
        call others()
        call communicators()
    end do
    if (me == 0) print '(I0, A)', bad, ' wrong'
    call MPI_Finalize(error)
    if (bad /= 0) stop 1

contains

    subroutine fresh()
        do i = 1, most
            a(i) = mod(i * 7 + me * 3 + round, 50)
            x(i) = mod(i * 5 + me, 40)
        end do
        y = x
        do i = 1, n
            parts(i) = mod(i * 11 + round, 20)
            displs(i) = (i - 1) * 25 + 3
        end do
    end subroutine

    subroutine same(call)
        character(*), intent(in) :: call
        if (all(x == y)) return
        print *, call, ' in round', round, 'rank', me
        bad = bad + 1
    end subroutine

    subroutine reductions()
        call fresh()
        call MPI_Allreduce(a, x, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Allreduce(a, y, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call same('Allreduce')
        call MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
        call PMPI_Allreduce(MPI_IN_PLACE, y, count, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
        call same('Allreduce in place')
        call fresh()
        call MPI_Reduce(a, x, count, MPI_INTEGER, MPI_MIN, root, MPI_COMM_WORLD, error)
        call PMPI_Reduce(a, y, count, MPI_INTEGER, MPI_MIN, root, MPI_COMM_WORLD, error)
        call same('Reduce')
        call MPI_Reduce_scatter(a, x, parts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Reduce_scatter(a, y, parts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call same('Reduce_scatter')
        call MPI_Reduce_scatter_block(a, x, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Reduce_scatter_block(a, y, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        call same('Reduce_scatter_block')
        d = a(1:count); r = a(1:count); c = cmplx(a(1:count), me)
        call MPI_Allreduce(d, dx, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Allreduce(d, dy, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
        call MPI_Allreduce(r, rx, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Allreduce(r, ry, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
        call MPI_Allreduce(c, cx, count, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
        call PMPI_Allreduce(c, cy, count, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
        if (any(dx /= dy) .or. any(rx /= ry) .or. any(cx /= cy)) bad = bad + 1
    end subroutine

    subroutine equal_parts()
        integer, parameter :: some = 40
        call fresh()
        call MPI_Bcast(x, count, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call PMPI_Bcast(y, count, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call same('Bcast')
        call MPI_Allgather(a, some, MPI_INTEGER, x, some, MPI_INTEGER, MPI_COMM_WORLD, error)
        call PMPI_Allgather(a, some, MPI_INTEGER, y, some, MPI_INTEGER, MPI_COMM_WORLD, error)
        call same('Allgather')
        call fresh()
        call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, x, some, MPI_INTEGER, MPI_COMM_WORLD, &
                           error)
        call PMPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, y, some, MPI_INTEGER, MPI_COMM_WORLD, &
                            error)
        call same('Allgather in place')
        call MPI_Gather(a, some, MPI_INTEGER, x, some, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call PMPI_Gather(a, some, MPI_INTEGER, y, some, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call same('Gather')
        call MPI_Scatter(a, some, MPI_INTEGER, x, some, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call PMPI_Scatter(a, some, MPI_INTEGER, y, some, MPI_INTEGER, root, MPI_COMM_WORLD, error)
        call same('Scatter')
        call MPI_Alltoall(a, some, MPI_INTEGER, x, some, MPI_INTEGER, MPI_COMM_WORLD, error)
        call PMPI_Alltoall(a, some, MPI_INTEGER, y, some, MPI_INTEGER, MPI_COMM_WORLD, error)
        call same('Alltoall')
    end subroutine

    subroutine counted_parts()
        integer :: own
        call fresh()
        own = parts(me + 1)
        call MPI_Allgatherv(a, own, MPI_INTEGER, x, parts, displs, MPI_INTEGER, MPI_COMM_WORLD, &
                            error)
        call PMPI_Allgatherv(a, own, MPI_INTEGER, y, parts, displs, MPI_INTEGER, MPI_COMM_WORLD, &
                             error)
        call same('Allgatherv')
        call MPI_Gatherv(a, own, MPI_INTEGER, x, parts, displs, MPI_INTEGER, root, MPI_COMM_WORLD, &
                         error)
        call PMPI_Gatherv(a, own, MPI_INTEGER, y, parts, displs, MPI_INTEGER, root, &
                          MPI_COMM_WORLD, error)
        call same('Gatherv')
        call MPI_Scatterv(a, parts, displs, MPI_INTEGER, x, own, MPI_INTEGER, root, &
                          MPI_COMM_WORLD, error)
        call PMPI_Scatterv(a, parts, displs, MPI_INTEGER, y, own, MPI_INTEGER, root, &
                           MPI_COMM_WORLD, error)
        call same('Scatterv')
        parts(1:n) = 17
        call MPI_Alltoallv(a, parts, displs, MPI_INTEGER, x, parts, displs, MPI_INTEGER, &
                           MPI_COMM_WORLD, error)
        call PMPI_Alltoallv(a, parts, displs, MPI_INTEGER, y, parts, displs, MPI_INTEGER, &
                            MPI_COMM_WORLD, error)
        call same('Alltoallv')
    end subroutine

    ! Addresses that are no buffers, an error, and in mpi_f08 no argument for it.
    subroutine others()
        integer :: ours, theirs
        DATATYPE :: type_x, type_y
        call MPI_Barrier(MPI_COMM_WORLD, error)
#ifdef USE_F08
        call MPI_Barrier(MPI_COMM_WORLD)
#endif
        call fresh()
        type_x = where_it_is(x)
        type_y = where_it_is(y)
        call MPI_Bcast(MPI_BOTTOM, 1, type_x, root, MPI_COMM_WORLD, error)
        call PMPI_Bcast(MPI_BOTTOM, 1, type_y, root, MPI_COMM_WORLD, error)
        call same('Bcast at MPI_BOTTOM')
        call MPI_Type_free(type_x, error)
        call MPI_Type_free(type_y, error)
        call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, error)
        call MPI_Bcast(x, -1, MPI_INTEGER, root, MPI_COMM_WORLD, ours)
        call PMPI_Bcast(y, -1, MPI_INTEGER, root, MPI_COMM_WORLD, theirs)
        if (ours == MPI_SUCCESS .or. theirs == MPI_SUCCESS) bad = bad + 1
        call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, error)
    end subroutine

    ! What is freed is served no more, and its handle is.
    subroutine communicators()
        COMM :: copy
        REQUEST :: done
        integer :: sum
        call MPI_Comm_idup(MPI_COMM_WORLD, copy, done, error)
        call MPI_Wait(done, MPI_STATUS_IGNORE, error)
        call MPI_Allreduce(round, sum, 1, MPI_INTEGER, MPI_SUM, copy, error)
        if (sum /= n * round) bad = bad + 1
        if (mod(round, 2) == 0) call MPI_Comm_free(copy, error)
        if (mod(round, 2) == 1) call MPI_Comm_disconnect(copy, error)
        if (copy /= MPI_COMM_NULL) bad = bad + 1
    end subroutine

    function where_it_is(data) result(type)
        integer :: data(most)
        DATATYPE :: type
        integer(MPI_ADDRESS_KIND) :: at(1)
        call MPI_Get_address(data, at(1), error)
        call MPI_Type_create_hindexed(1, [count], at, MPI_INTEGER, type, error)
        call MPI_Type_commit(type, error)
    end function

end program
