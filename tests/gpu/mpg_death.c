/* mpg_death.c - `kill -9` of ranks under an mpirun that goes on without them (Open MPI's recovery):
 * the survivors' calls end within a second and name the rank, and they go on in a communicator
 * without it, in which the next one dies, while all are calling. From the first death on nobody
 * enters MPI, not even to finalize it.
 *
 * One program for both backends, one of them a launch, and then `survivors_pass`: with recovery on,
 * mpirun says nothing of a rank that fails, so rank 0 asks. `tests/run.sh
 * 'recover=4:build/test/mpg_death host survivors_pass'`. Each rank uses it from its own thread;
 * what ranks share is atomic. */
#include <mpi.h>

#include <fcntl.h>
#include <sys/mman.h>

#include "fault_kit.h"
#include "gpu_kit.h"
#include "symm_mpi.h"

enum { SOON_MS = 1000, BEFORE_MS = 150, COUNT = 100000, DEATHS = 2 };

typedef struct { /* seen by all ranks */
    _Atomic uint64_t at_ns[DEATHS];
    _Atomic int passed[SYMM_MAX_RANKS];
} board;

typedef struct {
    int gpu, rank, n; /* in comm, which gets smaller */
    symmComm_t comm;
    gk_bench bench;    /* GPUs */
    int *send, *recv;  /* host */
    int round, victim; /* of comm's ranks */
} world;

static board *shared;
static int world_rank, world_ranks, alive[SYMM_MAX_RANKS];

static board *open_board(void) {
    char path[] = "/tmp/symm-death-XXXXXX";
    int fd = -1;
    if (world_rank == 0) {
        fd = mkstemp(path);
        T_CHECK(fd >= 0 && ftruncate(fd, sizeof(board)) == 0);
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (world_rank) fd = open(path, O_RDWR | O_CLOEXEC);
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T_CHECKF(b != MAP_FAILED, "%s: %s", path, strerror(errno));
    close(fd);
    MPI_Barrier(MPI_COMM_WORLD); /* all have it */
    if (world_rank == 0) unlink(path);
    return b;
}

/* ---- either backend ---- */

static symmStream_t stream_of(const world *w) {
    return w->gpu ? gk_stream(w->bench.stream) : NULL;
}

static void works(const world *w) {
    if (w->gpu)
        gk_works(w->comm, w->rank, w->n, &w->bench);
    else
        fk_works(w->comm, w->rank, w->n);
}

/* A call, and what is known at its end. */
static symmResult_t call(const world *w) {
    int *send = w->gpu ? w->bench.device : w->send, *recv = w->gpu ? send + GK_WORKS : w->recv;
    symmResult_t r = symmAllReduce(send, recv, COUNT, symmInt32, symmSum, w->comm, stream_of(w));
    if (r || !w->gpu) return r;
    gk_cu(gk_wait_code(w->comm, w->bench.stream), "the stream of a killed rank's peer", __FILE__,
          __LINE__);
    T_OK(symmCommGetAsyncError(w->comm, &r));
    return r;
}

/* Whether ranks may die without the job. tests/run.sh asks for it as Open MPI 4 wants it; others
 * end all ranks. */
static int recovers(void) {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
    const char *on = getenv("OMPI_MCA_orte_enable_recovery");
    return on && strcmp(on, "1") == 0;
#else
    return 0;
#endif
}

static void begin(world *w) {
    const char *why = "";
    int none, any, devices = 0;
    T_EXPECT_WARNINGS();
    if (world_ranks < 2) T_SKIP("needs two ranks");
    if (!recovers())
        T_SKIP("needs recovery: Open MPI 4 with OMPI_MCA_orte_enable_recovery=1 goes on without a "
               "rank that dies");
    if (shared) T_SKIP("ranks have died in this launch");
    if (w->gpu) devices = gk_find(&why);
    none = *why != 0;
    MPI_Allreduce(&none, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any) T_SKIP("needs cuda: %s", *why ? why : "another rank has none");
    shared = open_board();
    for (int r = 0; r < world_ranks; r++) alive[r] = 1;
    w->rank = world_rank;
    w->n = world_ranks;
    if (w->gpu) {
        T_OK(symmSetDevice(w->rank % devices));
        w->bench = gk_bench_new();
    } else {
        w->send = calloc(COUNT, sizeof *w->send);
        w->recv = calloc(COUNT, sizeof *w->recv);
        T_CHECK(w->send && w->recv);
    }
    T_OK(symmCommInitMPI(&w->comm, MPI_COMM_WORLD, NULL));
}

static void end(world *w) {
    T_OK(symmCommDestroy(w->comm));
    if (w->gpu) gk_bench_free(&w->bench);
    free(w->send);
    free(w->recv);
}

/* ---- a death ---- */

static void *kill_later(void *arg) {
    const world *w = arg;
    kit_sleep(BEFORE_MS); /* the others wait by now, or are in the midst of calls */
    atomic_store(&shared->at_ns[w->round], symm_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

static void hear_of_it(world *w, symmResult_t r, int storm) {
    const uint64_t late = gk_ms_since(atomic_load(&shared->at_ns[w->round]));
    char who[16];
    snprintf(who, sizeof who, "rank %d", w->victim);
    T_CHECKF(atomic_load(&shared->at_ns[w->round]) != 0, "%s is alive, and the call says: %s", who,
             symmGetLastError(w->comm));
    T_EQ(r, symmRemoteError);
    T_MSG(symmGetLastError(w->comm), who);
    T_CHECKF(late < SOON_MS, "heard of the death after %d ms", (int)late);
    T_ERR(symmBarrier(w->comm, stream_of(w)), symmRemoteError);
    T_MSG(symmGetLastError(w->comm), who);
    if (world_rank == 0 && w->gpu)
        gk_figure("kill -9 of rank %d of %d under mpirun%s: known after %d ms", w->victim, w->n,
                  storm ? ", all calling" : "", (int)late);
}

/* The survivors go on without the dead one, by way of their old communicator, which then goes. */
static void go_on(world *w) {
    symmComm_t old = w->comm;
    int rank = -1, n = -1;
    if (w->gpu) gk_context_works(&w->bench);
    T_OK(symmCommShrink(old, &w->victim, 1, &w->comm, NULL, 0));
    w->rank -= w->rank > w->victim;
    w->n--;
    T_OK(symmCommUserRank(w->comm, &rank));
    T_OK(symmCommCount(w->comm, &n));
    T_CHECK(rank == w->rank && n == w->n);
    works(w);
    T_OK(symmCommDestroy(old));
    works(w);
}

/* storm: the victim calls too, again and again, until it dies. */
static void one_dies(world *w, int victim, int storm) {
    symmResult_t r;
    pthread_t t;
    w->victim = victim;
    works(w); /* all are here */
    if (w->rank == victim) T_EQ(pthread_create(&t, NULL, kill_later, w), 0);
    while (w->rank == victim && !storm) pause();
    do r = call(w);
    while (!r);
    T_CHECK(w->rank != victim);
    hear_of_it(w, r, storm);
    go_on(w);
    w->round++;
}

/* Rank 0 stays, for it prints the results. */
static void deaths(int gpu) {
    world w = {.gpu = gpu};
    begin(&w);
    alive[world_ranks - 1] = 0;
    one_dies(&w, world_ranks - 1, 0);
    if (w.n > 1) {
        alive[1] = 0;
        one_dies(&w, 1, 1);
    }
    end(&w);
}

static void host(void) {
    deaths(0);
}
static void gpu(void) {
    deaths(1);
}

/* Each has come through the test before, to the end, where its leaks are looked for. */
static void survivors_pass(void) {
    if (!shared) T_SKIP("no rank has died");
    const uint64_t since = symm_now_ns();
    atomic_store(&shared->passed[world_rank], 1);
    for (int r = 0; world_rank == 0 && r < world_ranks; r++) {
        if (!alive[r]) continue;
        while (!atomic_load(&shared->passed[r]) && gk_ms_since(since) < 5 * SOON_MS) usleep(1000);
        T_CHECKF(atomic_load(&shared->passed[r]), "rank %d has failed", r);
    }
}

int main(int argc, char **argv) {
    static const t_test tests[] = {T(host), T(gpu), T(survivors_pass)};
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
    int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), world_rank);
    if (rc == 77) rc = 0;
    fflush(NULL);
    if (shared) _exit(rc); /* MPI would wait for the dead */
    MPI_Finalize();
    return rc;
}
