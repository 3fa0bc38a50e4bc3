/* mp_pmpi_life.c - libsymm-pmpi.so under mpirun: what a program does with communicators. It makes
 * them in the background, has attributes on them, frees them, starts other programs, and has few
 * file descriptors. A program of others, as mp_pmpi.c. On one host a communicator that is served
 * holds descriptors, which shows that it is. Rank 0 prints the TAP. T_HOSTS: over several hosts,
 * where no rank may have MPI_THREAD_MULTIPLE. */
#include <mpi.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "t.h"

enum { CALLS = 12 };

static int my_rank, ranks;

static int descriptors(void) {
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    while (all && readdir(all)) n++;
    if (all) closedir(all);
    return n;
}
static void reduce_on(MPI_Comm comm) {
    int n;
    double v[64], sum[64];
    MPI_Comm_size(comm, &n);
    for (int k = 0; k < 64; k++) v[k] = k, sum[k] = -1;
    T_EQ(MPI_Allreduce(v, sum, 64, MPI_DOUBLE, MPI_SUM, comm), MPI_SUCCESS);
    for (int k = 0; k < 64; k++) T_EQ(sum[k], n * k);
}
static int is_one_host(void) {
    return !getenv("T_HOSTS");
}
/* Makes calls enough that the library decides. Over several hosts MPI opens descriptors too. */
static void is_served(MPI_Comm comm, int yes) {
    const int before = descriptors();
    for (int i = 0; i < CALLS; i++) reduce_on(comm);
    if (is_one_host()) T_EQ(descriptors() > before, yes);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}
static int delete (MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)extra;
    deletes++;
    free(value);
    return MPI_SUCCESS;
}

/* The program makes no duplicate, so it sees none, and its memory is freed once. */
static void attributes_are_not_copied(void) {
    MPI_Comm comm;
    int key, root = 0;
    double in[8] = {0}, *out = malloc((size_t)ranks * sizeof in);
    int *counts = malloc(2 * (size_t)ranks * sizeof(int)), *at = counts + ranks;
    copies = deletes = 0;
    for (int p = 0; p < ranks; p++) counts[p] = 8, at[p] = 8 * p;
    MPI_Comm_split(MPI_COMM_WORLD, 0, my_rank, &comm);
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_set_attr(comm, key, malloc(100));
    is_served(comm, ranks > 1);
    MPI_Gatherv(in, 8, MPI_DOUBLE, out, counts, at, MPI_DOUBLE, root, comm);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    T_EQ(copies, 0), T_EQ(deletes, 1);
    free(counts), free(out);
}

static int reduces;
static int reduces_when_deleted(MPI_Comm comm, int key, void *value, void *extra) {
    (void)key, (void)value, (void)extra;
    reduces++;
    reduce_on(comm);
    return MPI_SUCCESS;
}

/* The library's attribute is set in the first collective: behind the program's, before it, or not
 * at all. Each time the callback makes a collective on what is being freed. */
static void callbacks_on_what_is_freed(void) {
    MPI_Comm comm;
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, reduces_when_deleted, &key, NULL);
    reduces = 0;
    for (int i = 0; i < 18; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, my_rank, &comm);
        if (i % 3 == 0) reduce_on(comm);
        MPI_Comm_set_attr(comm, key, NULL);
        for (int k = 0; i % 3 == 1 && k < CALLS; k++) reduce_on(comm);
        if (i % 2)
            MPI_Comm_free(&comm);
        else
            MPI_Comm_disconnect(&comm);
        for (int k = 1; k < 20; k++) free(malloc((size_t)k * 100)); /* a dead one is written over */
    }
    MPI_Comm_free_keyval(&key);
    T_EQ(reduces, 18);
}

/* ---- communicators in the background --------------------------------------------------------- */

/* All ranks but the last one, which comes to the duplicate when it is told. A communicator that the
 * library made meanwhile would wait behind it, in Open MPI 4.1. */
static void in_the_background(int calls_before) {
    int told = 0, counts[64], at[64];
    double in[10] = {0}, out[640];
    MPI_Comm some, made;
    MPI_Request request;
    if (ranks < 3) T_SKIP("needs 3 ranks");
    if (ranks > 64) T_SKIP("buffers are for 64 ranks");
    const int last = ranks - 1, is_last = my_rank == last;
    for (int p = 0; p < ranks; p++) counts[p] = 10, at[p] = 10 * p;
    MPI_Comm_split(MPI_COMM_WORLD, is_last, my_rank, &some);
    for (int i = 0; i < calls_before && !is_last; i++) reduce_on(some);
    if (is_last) MPI_Recv(&told, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double began = MPI_Wtime();
    MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    if (!is_last) {
        is_served(some, !calls_before);
        MPI_Gatherv(in, 10, MPI_DOUBLE, out, counts, at, MPI_DOUBLE, 0, some);
        MPI_Scatterv(out, counts, at, MPI_DOUBLE, in, 10, MPI_DOUBLE, 0, some);
        if (my_rank == 0) MPI_Send(&told, 1, MPI_INT, last, 5, MPI_COMM_WORLD);
    }
    T_CHECK(MPI_Wtime() - began < 10);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    reduce_on(made);
    MPI_Comm_free(&made);
    MPI_Comm_free(&some);
}
static void opened_while_one_is_made(void) {
    in_the_background(0);
}
static void used_while_one_is_made(void) {
    in_the_background(CALLS);
}

static MPI_Comm beside, by_thread;
static void *duplicate(void *arg) {
    MPI_Comm_dup(beside, &by_thread);
    return arg;
}
static void opened_while_a_thread_makes_one(void) {
    int level, told = 0;
    pthread_t thread;
    MPI_Comm some;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) T_SKIP("needs MPI_THREAD_MULTIPLE");
    if (ranks < 3) T_SKIP("needs 3 ranks");
    const int last = ranks - 1, is_last = my_rank == last;
    MPI_Comm_dup(MPI_COMM_WORLD, &beside);
    MPI_Comm_split(MPI_COMM_WORLD, is_last, my_rank, &some);
    if (is_last) MPI_Recv(&told, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    T_EQ(pthread_create(&thread, NULL, duplicate, NULL), 0);
    if (!is_last) {
        usleep(100000);
        is_served(some, 1);
        if (my_rank == 0) MPI_Send(&told, 1, MPI_INT, last, 5, MPI_COMM_WORLD);
    }
    pthread_join(thread, NULL);
    MPI_Comm_free(&by_thread);
    MPI_Comm_free(&beside);
    MPI_Comm_free(&some);
}

/* ---- ranks of another world ------------------------------------------------------------------ */

static char *program;

/* The ranks that were started have no library, here because they say so: no rank of such a
 * communicator agrees on anything. */
static void with_ranks_that_were_started(MPI_Comm inter, int high) {
    MPI_Comm all;
    MPI_Intercomm_merge(inter, high, &all);
    for (int i = 0; i < CALLS; i++) reduce_on(all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&inter);
}
static void ranks_of_another_world(void) {
    char *args[] = {(char *)(uintptr_t) "child", NULL};
    MPI_Comm inter;
    if (!is_one_host()) T_SKIP("starts programs on one host");
    T_EQ(MPI_Comm_spawn(program, args, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                        MPI_ERRCODES_IGNORE),
         MPI_SUCCESS);
    with_ranks_that_were_started(inter, 0);
}
static int child(void) {
    MPI_Comm parent;
    setenv("SYMM_PMPI", "off", 1);
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) return 1;
    MPI_Comm_get_parent(&parent);
    with_ranks_that_were_started(parent, 1);
    MPI_Finalize();
    return 0;
}

/* ---- what there is little of ----------------------------------------------------------------- */

/* A rank that has few descriptors left keeps them, and all ranks leave the communicator to MPI. */
static void descriptors_stay_free(void) {
    enum { OPEN = 200 };
    MPI_Comm comm;
    struct rlimit before, few;
    int open[OPEN];
    if (ranks < 2) T_SKIP("needs 2 ranks");
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < OPEN; i++) open[i] = dup(STDERR_FILENO);
    if (my_rank == ranks - 1) few.rlim_cur = (rlim_t)(descriptors() + ranks - 1) * 4 / 3 - 4;
    setrlimit(RLIMIT_NOFILE, &few);
    is_served(comm, 0);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < OPEN; i++) close(open[i]);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    is_served(comm, 1);
    MPI_Comm_free(&comm);
}

/* One rank cannot begin, or cannot make its memory when all have met. It leaves the creation in
 * another step than the others, and all go on with MPI in step. */
static void a_rank_that_cannot(void) {
    MPI_Comm comm;
    struct rlimit before, none;
    if (ranks < 2) T_SKIP("needs 2 ranks");
    getrlimit(RLIMIT_FSIZE, &before);
    none = before;
    none.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        const int is_it = my_rank == (i % 2 ? 0 : ranks - 1);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (is_it && i < 2) setenv("SYMM_SCRATCH", "little", 1);
        if (is_it && i >= 2) setrlimit(RLIMIT_FSIZE, &none);
        is_served(comm, 0);
        setrlimit(RLIMIT_FSIZE, &before);
        unsetenv("SYMM_SCRATCH");
        MPI_Comm_free(&comm);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    is_served(comm, 1);
    MPI_Comm_free(&comm);
}

static void no_buffer_for_nothing(void) {
    int counts[64] = {0}, in[64], out[64];
    if (ranks > 64) T_SKIP("buffers are for 64 ranks");
    const int taker = ranks - 1;
    for (int i = 0; i < CALLS; i++) reduce_on(MPI_COMM_WORLD);
    for (int k = 0; k < 64; k++) in[k] = k + my_rank, out[k] = -1;
    counts[taker] = 64;
    T_EQ(MPI_Reduce_scatter(in, my_rank == taker ? out : NULL, counts, MPI_INT, MPI_SUM,
                            MPI_COMM_WORLD),
         MPI_SUCCESS);
    for (int k = 0; k < 64 && my_rank == taker; k++)
        T_EQ(out[k], ranks * k + ranks * (ranks - 1) / 2);
}

/* Types of Fortran's with a precision are MPI's own, without a name, and freeing one is an error
 * that ends the job. */
static void types_that_nobody_frees(void) {
    enum { COUNT = 300, OF_ONE = 2 };
    MPI_Datatype real, reals;
    float data[COUNT * OF_ONE];
    for (int i = 0; i < CALLS; i++) reduce_on(MPI_COMM_WORLD);
    T_EQ(MPI_Type_create_f90_real(6, MPI_UNDEFINED, &real), MPI_SUCCESS);
    MPI_Type_contiguous(OF_ONE, real, &reals);
    MPI_Type_commit(&reals);
    for (int i = 0; i < COUNT * OF_ONE; i++) data[i] = my_rank ? -1 : (float)i;
    T_EQ(MPI_Bcast(data, COUNT, reals, 0, MPI_COMM_WORLD), MPI_SUCCESS);
    T_EQ(MPI_Bcast(data, COUNT, real, 0, MPI_COMM_WORLD), MPI_SUCCESS);
    for (int i = 0; i < COUNT * OF_ONE; i++) T_EQ((int)data[i], i);
    MPI_Type_free(&reals);
}

/* One element of 2 GiB and some, with gaps as far as the library sees. */
static void an_element_of_more_than_an_int(void) {
    enum { REST = 4096 };
    const size_t half = 1u << 30, bytes = 2 * half + REST;
    MPI_Datatype halves, rest, large;
    int lengths[2] = {1, 1}, sends[64] = {0}, receives[64] = {0}, at[64] = {0};
    MPI_Aint from[2] = {0, (MPI_Aint)(2 * half)};
    if (!getenv("T_FULL")) T_SKIP("takes 8 GiB: T_FULL=1");
    if (ranks < 2 || ranks > 64) T_SKIP("needs 2 to 64 ranks");
    for (int i = 0; i < CALLS; i++) reduce_on(MPI_COMM_WORLD);
    MPI_Type_vector(2, 1 << 30, 1 << 30, MPI_BYTE, &halves);
    MPI_Type_contiguous(REST, MPI_BYTE, &rest);
    MPI_Datatype types[2] = {halves, rest};
    MPI_Type_create_struct(2, lengths, from, types, &large);
    MPI_Type_commit(&large);
    char *data = my_rank < 2 ? calloc(1, bytes) : NULL;
    T_CHECK(data || my_rank >= 2);
    if (my_rank == 0) data[0] = 1, data[half] = 3, data[bytes - 1] = 7, sends[1] = 1;
    if (my_rank == 1) receives[0] = 1;
    T_EQ(MPI_Alltoallv(data, sends, at, large, my_rank == 1 ? data : NULL, receives, at, large,
                       MPI_COMM_WORLD),
         MPI_SUCCESS);
    if (my_rank < 2) T_EQ(data[0], 1), T_EQ(data[half], 3), T_EQ(data[bytes - 1], 7);
    free(data);
    MPI_Type_free(&large), MPI_Type_free(&rest), MPI_Type_free(&halves);
}

static const t_test tests[] = {
    T(attributes_are_not_copied),       T(callbacks_on_what_is_freed),
    T(opened_while_one_is_made),        T(used_while_one_is_made),
    T(opened_while_a_thread_makes_one), T(ranks_of_another_world),
    T(descriptors_stay_free),           T(a_rank_that_cannot),
    T(no_buffer_for_nothing),           T(types_that_nobody_frees),
    T(an_element_of_more_than_an_int),
};

/* ---- the end --------------------------------------------------------------------------------- */

static int at_the_end(MPI_Comm comm, int key, void *value, void *extra) {
    int one = 1, sum = 0;
    (void)comm, (void)key, (void)value, (void)extra;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != ranks) abort();
    return MPI_SUCCESS;
}
/* A library's attribute, which goes when MPI ends. The first rank has made a collective before, and
 * the others have not: so they hear of MPI's end in another order. */
static void end_with_a_collective(void) {
    int key;
    MPI_Comm first;
    MPI_Comm_split(MPI_COMM_WORLD, my_rank ? MPI_UNDEFINED : 0, 0, &first);
    if (first != MPI_COMM_NULL) MPI_Barrier(first), MPI_Comm_free(&first);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key);
}

int main(int argc, char **argv) {
    int level;
    setenv("SYMM_PMPI", "all", 0);
    setenv("SYMM_PMPI_AFTER", "1", 0);
    setenv("SYMM_DEBUG", "NONE", 0);
    if (is_one_host()) setenv("OMPI_MCA_btl", "self,vader,tcp", 1); /* between two worlds */
    if (argc > 1 && !strcmp(argv[1], "child")) return child();
    program = argv[0];
    const int wanted = is_one_host() ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    if (MPI_Init_thread(&argc, &argv, wanted, &level) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    end_with_a_collective();
    const int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), my_rank);
    MPI_Finalize();
    return rc == 77 ? 0 : rc;
}
