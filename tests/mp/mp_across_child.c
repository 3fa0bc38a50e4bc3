/* mp_across_child.c - communicators made from one over several domains, with ranks as processes
 * under mpirun: splits by drawn colors and keys, of splits too, and shrinks; every child calls. */
#include <mpi.h>

#include "coll_data.h"
#include "mpi_across.h"

/* all[]: the parent's ranks in the order of the child's. */
static void works(symmComm_t comm, const int *all, int n) {
    int count, mine = rank, got[SYMM_MAX_RANKS], sum = -1, want = 0, from, to, self;
    T_OK(symmCommCount(comm, &count));
    T_EQ(count, n);
    T_OK(symmCommUserRank(comm, &self));
    T_EQ(all[self], rank);
    T_OK(symmAllGather(&mine, got, 1, symmInt32, comm, NULL));
    for (int i = 0; i < n; i++) T_EQ(got[i], all[i]), want += all[i];
    T_OK(symmAllReduce(&mine, &sum, 1, symmInt32, symmSum, comm, NULL));
    T_EQ(sum, want);
    to = 1000 * rank;
    T_OK(symmGroupStart());
    T_OK(symmSend(&to, 1, symmInt32, (self + 1) % n, comm, NULL));
    T_OK(symmRecv(&from, 1, symmInt32, (self + n - 1) % n, comm, NULL));
    T_OK(symmGroupEnd());
    T_EQ(from, 1000 * all[(self + n - 1) % n]);
}

/* MPI says who comes where. */
static int expect(int color, int key, int *all) {
    MPI_Comm part;
    int n = 0;
    MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &part);
    if (part == MPI_COMM_NULL) return 0;
    MPI_Comm_size(part, &n);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, part);
    MPI_Comm_free(&part);
    return n;
}

static void splits(void) {
    const uint64_t seed = same_seed();
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size);
        for (int round = 0; round < (ck_full() ? 40 : 8); round++) {
            uint64_t s = ck_hash(seed, (uint64_t)(round * 256 + rank), (uint64_t)size);
            const int color = t_draw(&s, 6) ? (int)t_draw(&s, 2) : SYMM_SPLIT_NOCOLOR,
                      key = (int)t_draw(&s, 3) - 1;
            int all[SYMM_MAX_RANKS];
            const int n = expect(color, key, all);
            symmComm_t child = comm, again = NULL;
            T_OK(symmCommSplit(comm, color, key, &child, NULL));
            T_EQ(child != NULL, n > 0);
            if (!child) continue;
            works(child, all, n);
            T_OK(symmCommSplit(child, 3, 0, &again, NULL));
            T_OK(symmCommDestroy(child));
            works(again, all, n);
            T_OK(symmCommDestroy(again));
        }
        T_OK(symmCommDestroy(comm));
    }
}

/* Without each rank in turn; behind a revoke too. */
static void shrinks(void) {
    same_seed();
    if (ranks < 2) T_SKIP("nobody is left");
    T_EXPECT_WARNINGS();
    for (EACH_SIZE(size))
        for (int out = 0; out < ranks; out++) {
            symmComm_t comm = new_comm(size), child;
            int all[SYMM_MAX_RANKS], n = 0;
            for (int r = 0; r < ranks; r++)
                if (r != out) all[n++] = r;
            if (out % 2) T_OK(symmCommRevoke(comm, 0));
            if (rank != out) {
                T_OK(symmCommShrink(comm, &out, 1, &child, NULL, 0));
                works(child, all, n);
                T_OK(symmCommDestroy(child));
            }
            T_OK(symmCommDestroy(comm));
        }
}

/* The window of a child, and its parent that ended before. */
static void windows_of_a_child(void) {
    same_seed();
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size), child;
        symmWindow_t win;
        int *mine;
        T_OK(symmCommSplit(comm, 0, -rank, &child, NULL));
        T_OK(symmCommDestroy(comm));
        T_OK(symmMemAlloc((void **)&mine, 65536));
        T_OK(symmWindowRegister(child, mine, 65536, &win, 0));
        for (int i = 0; i < 16384; i++) mine[i] = rank + i;
        T_OK(symmAllReduce(mine, mine, 16384, symmInt32, symmSum, child, NULL));
        for (int i = 0; i < 16384; i++) T_EQ(mine[i], ranks * (ranks - 1) / 2 + ranks * i);
        T_OK(symmWindowDeregister(child, win));
        T_OK(symmBarrier(child, NULL));
        T_OK(symmCommDestroy(child));
        T_OK(symmMemFree(mine));
    }
}

/* What the program hangs on its communicator ends with it: the mover's communicators, which live
 * longer, have no copies. */
static int alive;
static int copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    *(void **)out = in;
    alive++;
    *flag = 1;
    return MPI_SUCCESS;
}
static int deleted(MPI_Comm comm, int key, void *in, void *extra) {
    (void)comm, (void)key, (void)in, (void)extra;
    alive--;
    return MPI_SUCCESS;
}
static void attributes_end_with_their_communicator(void) {
    same_seed();
    for (EACH_SIZE(size)) {
        MPI_Comm mine;
        int key;
        MPI_Comm_dup(MPI_COMM_WORLD, &mine);
        MPI_Comm_create_keyval(copied, deleted, &key, NULL);
        MPI_Comm_set_attr(mine, key, &alive);
        alive = 1;
        symmComm_t comm = new_comm_of(mine, size);
        T_OK(symmBarrier(comm, NULL));
        T_OK(symmCommDestroy(comm));
        MPI_Comm_free(&mine);
        T_EQ(alive, 0);
        MPI_Comm_free_keyval(&key);
    }
}

T_MAIN_MPI(T(attributes_end_with_their_communicator), T_TIMEOUT(splits, 120),
           T_TIMEOUT(shrinks, 120), T(windows_of_a_child))
