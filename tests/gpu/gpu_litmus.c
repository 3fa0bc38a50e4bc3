/* gpu_litmus.c - what orders memory between GPUs, where the model of PTX leaves it open or says
 * little, and the last words of a rank that leaves. Thread ranks, a GPU each: at least two.
 *
 * A barrier between a program's kernels: the one before it stores to all ranks and has let the
 * barrier's kernel in already, the one behind it looks for all of that. The barrier's signatures
 * are released and acquired (frame.cuh). Whether relaxed ones would do, because the wait for a
 * kernel ends when its stores are performed, is for a build in which they are: millions of
 * rounds (GPU_LITMUS_ROUNDS) without a failure would speak for it, one failure decides.
 *
 * Lines in pieces: kernels of the library rely on it that the 128 bytes that a warp stores by one
 * instruction, over a link, are loaded by one instruction as they were stored. Here one rank stores
 * lines without a pause while their owner loads them. */
#include "gpu_kit.h"

#include "fake_cuda.h"

enum { MOST = 8, HALVES = 2, CTAS = 64, THREADS = 256 };

typedef struct { /* as tests/gpu/user.cu has it */
    unsigned *at[MOST];
} peers;

typedef struct {
    gk_job *j;
    char *image;
    size_t words; /* from each rank to each */
    int rounds;
} litmus;

typedef struct {
    const litmus *l;
    int rank, n;
    cu_stream stream;
    cu_kernel scatter, check, put, look;
    unsigned *memory, *wrong;
    peers half[HALVES];
} user;

/* ---- the kernels on the fake driver ---------------------------------------------------------- */

static _Atomic int forgets; /* a fake store of so many is left out */

static void fake_scatter(const cu_launch_config *config, void **args) {
    const peers *p = args[0];
    const int n = *(int *)args[1], rank = *(int *)args[2];
    const unsigned long long words = *(unsigned long long *)args[3];
    const unsigned value = *(unsigned *)args[4];
    const int every = atomic_load(&forgets);
    (void)config;
    for (int q = 0; q < n; q++)
        for (unsigned long long i = 0; i < words; i++)
            if (!every || (i + 1) % (unsigned)every)
                p->at[q][(unsigned)rank * words + i] = value + (unsigned)rank + (unsigned)i;
}
static void fake_scattered(const cu_launch_config *config, void **args) {
    const unsigned *own = *(unsigned **)args[0];
    const int n = *(int *)args[1];
    const unsigned long long words = *(unsigned long long *)args[2];
    const unsigned value = *(unsigned *)args[3];
    unsigned *wrong = *(unsigned **)args[4];
    (void)config;
    for (int p = 0; p < n; p++)
        for (unsigned long long i = 0; i < words; i++)
            *wrong += own[(unsigned)p * words + i] != value + (unsigned)p + (unsigned)i;
}

static void fake_put(const cu_launch_config *config, void **args) {
    unsigned *to = *(unsigned **)args[0];
    const unsigned rounds = *(unsigned *)args[1];
    for (unsigned i = 0; i < config->grid_x * config->block_x * 4; i++)
        if (!atomic_load(&forgets) || i != 77) to[i] = rounds;
}
static void fake_look(const cu_launch_config *config, void **args) {
    const unsigned *own = *(unsigned **)args[0], last = *(unsigned *)args[1];
    unsigned *counts = *(unsigned **)args[3];
    for (unsigned i = 0; i < config->grid_x * config->block_x * 4; i++) {
        counts[0] += own[i] != own[i / 32 * 32];
        counts[1] += i % 32 == 0 && own[i] == last;
        counts[2] += i % 32 == 0 && own[i] != last;
    }
}

static char *read_image(void) {
    static const size_t scatter[] = {sizeof(peers), 4, 4, 8, 4}, check[] = {8, 4, 8, 4, 8},
                        put[] = {8, 4}, look[] = {8, 4, 8, 8};
    const char *path = getenv("GPU_USER_FATBIN");
    if (gk_number("GPU_FAKE", 0)) {
        fake_cuda_kernel("user_scatter", fake_scatter, 5, scatter);
        fake_cuda_kernel("user_scattered", fake_scattered, 5, check);
        fake_cuda_kernel("user_lines_put", fake_put, 2, put);
        fake_cuda_kernel("user_lines_look", fake_look, 4, look);
        return calloc(1, 1);
    }
    FILE *f = fopen(path ? path : "build/cuda/user.fatbin", "rb");
    if (!f) T_SKIP("no build/cuda/user.fatbin (make check-gpu builds it where nvcc is)");
    T_EQ(fseek(f, 0, SEEK_END), 0);
    const long size = ftell(f);
    char *image = malloc((size_t)size);
    rewind(f);
    T_CHECK(image && fread(image, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    return image;
}

/* ---- a barrier between kernels --------------------------------------------------------------- */

static void launch(const user *u, cu_kernel k, void **args) {
    cu_launch_attr attr = {.id = SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                           .value.programmatic_serialization = 1};
    cu_launch_config config = {CTAS, 1, 1, THREADS, 1, 1, 0, u->stream, &attr, 1};
    CU(cuLaunchKernelEx(&config, (cu_function)(void *)k, args, NULL));
}

/* Two halves in turn: who stores round i + 2 has passed the barrier of i + 1, which every rank
 * comes to behind its look at i. */
static void round_of(user *u, symmComm_t comm, unsigned i) {
    unsigned long long words = u->l->words;
    unsigned value = i * 2654435761u;
    unsigned *own = u->half[i % HALVES].at[u->rank];
    void *scatter[] = {&u->half[i % HALVES], &u->n, &u->rank, &words, &value},
         *check[] = {&own, &u->n, &words, &value, &u->wrong};
    launch(u, u->scatter, scatter);
    T_OK(symmBarrier(comm, gk_stream(u->stream)));
    launch(u, u->check, check);
}

static unsigned wrong_words(const user *u, symmComm_t comm) {
    unsigned wrong = 0;
    gk_get(comm, u->stream, &wrong, u->wrong, sizeof wrong);
    return wrong;
}

static void find_kernels(user *u) {
    cu_library lib;
    CU(cuLibraryLoadData(&lib, u->l->image, NULL, NULL, 0, NULL, NULL, 0));
    CU(cuLibraryGetKernel(&u->scatter, lib, "user_scatter"));
    CU(cuLibraryGetKernel(&u->check, lib, "user_scattered"));
    CU(cuLibraryGetKernel(&u->put, lib, "user_lines_put"));
    CU(cuLibraryGetKernel(&u->look, lib, "user_lines_look"));
}

static void litmus_rank(int rank, int n, void *arg) {
    const litmus *l = arg;
    gk_job *j = l->j;
    user u = {.l = l, .rank = rank, .n = n};
    symmComm_t comm = j->comms[rank];
    symmWindow_t win;
    const size_t half = (size_t)n * l->words * sizeof(unsigned);
    T_OK(symmSetDevice(rank % j->devices));
    u.stream = gk_new_stream();
    u.wrong = (unsigned *)(void *)gk_plain(sizeof(unsigned));
    CU(cuMemsetD32Async((uintptr_t)u.wrong, 0, 1, u.stream));
    T_OK(symmMemAlloc((void **)&u.memory, HALVES * half));
    T_OK(symmWindowRegister(comm, u.memory, HALVES * half, &win, 0));
    for (int p = 0; p < HALVES * n; p++) {
        void **at = (void **)&u.half[p / n].at[p % n];
        if (p % n == rank)
            *at = (char *)u.memory + (unsigned)(p / n) * half;
        else
            T_OK(symmWindowPeerPtr(win, (unsigned)(p / n) * half, p % n, at));
    }
    find_kernels(&u);
    gk_meet(j);
    for (int i = 0; i < l->rounds; i++) {
        round_of(&u, comm, (unsigned)i + 1);
        if (i % 256 == 255) gk_wait(comm, u.stream);
    }
    const unsigned wrong = wrong_words(&u, comm);
    gk_meet(j);
    if (atomic_load(&forgets))
        T_CHECKF(wrong > 0, "what was left out went unnoticed");
    else
        T_CHECKF(!wrong, "rank %d: %u words were not there behind the barrier", rank, wrong);
    gk_free_plain((char *)u.wrong);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(u.memory));
    CU(cuStreamDestroy(u.stream));
}

static void run_litmus(size_t words, int rounds) {
    gk_job j = {.devices = gk_begin()};
    if (j.devices < 2) T_SKIP("needs two GPUs");
    j.n = j.devices < MOST ? j.devices : MOST;
    litmus l = {.j = &j, .image = read_image(), .words = words, .rounds = rounds};
    pthread_barrier_init(&j.meet, NULL, (unsigned)j.n);
    gk_open(&j);
    T_THREADS(j.n, litmus_rank, &l);
    pthread_barrier_destroy(&j.meet);
    free(l.image);
}

static int many(int usual) {
    const int n = gk_number("GPU_LITMUS_ROUNDS", usual);
    return gk_number("GPU_FAKE", 0) && n > 20 ? 20 : n;
}

static void a_barrier_orders_plain_stores(void) {
    const int fake = gk_number("GPU_FAKE", 0);
    run_litmus(1000, many(20000));
    run_litmus(fake ? 5000 : 16u << 20, many(200)); /* 64 MiB to each */
}

static void what_was_not_stored_is_noticed(void) {
    if (!gk_number("GPU_FAKE", 0)) T_SKIP("needs the fake driver (GPU_FAKE=2): its kernel forgets");
    atomic_store(&forgets, 1000);
    run_litmus(1000, 3);
}

/* ---- lines in pieces ------------------------------------------------------------------------- */

enum { LINE_CTAS = 32, LINE_THREADS = 128, COUNTS = 3 };

static void launch_lines(cu_kernel k, cu_stream stream, void **args) {
    cu_launch_config config = {LINE_CTAS, 1, 1, LINE_THREADS, 1, 1, 0, stream, NULL, 0};
    CU(cuLaunchKernelEx(&config, (cu_function)(void *)k, args, NULL));
}

/* Looks at its lines while the rank before it stores them, and once more behind that. */
static void lines_rank(int rank, int n, void *arg) {
    enum { BYTES = LINE_CTAS * LINE_THREADS * 16 };
    const litmus *l = arg;
    user u = {.l = l, .rank = rank, .n = n};
    symmComm_t comm = l->j->comms[rank];
    symmWindow_t win;
    unsigned long long ns = 20000000000ull;
    unsigned counts[COUNTS] = {0}, last;
    char *own, *to;
    T_OK(symmSetDevice(rank % l->j->devices));
    u.stream = gk_new_stream();
    cu_stream stores = gk_new_stream();
    u.wrong = (unsigned *)(void *)gk_plain(sizeof counts);
    T_OK(symmMemAlloc((void **)&own, BYTES));
    T_OK(symmWindowRegister(comm, own, BYTES, &win, 0));
    T_OK(symmWindowPeerPtr(win, 0, (rank + 1) % n, (void **)&to));
    CU(cuMemsetD32Async((uintptr_t)u.wrong, 0, COUNTS, u.stream));
    CU(cuMemsetD32Async((uintptr_t)own, 0, BYTES / 4, u.stream));
    find_kernels(&u);
    void *look[] = {&own, &last, &ns, &u.wrong}, *put[] = {&to, &last};
    /* Once before: a kernel's first launch may wait for those that run. */
    last = 0;
    launch_lines(u.look, u.stream, look);
    launch_lines(u.put, stores, put);
    gk_wait(comm, u.stream);
    gk_wait(comm, stores);
    last = (unsigned)l->rounds;
    gk_meet(l->j);
    launch_lines(u.look, u.stream, look);
    launch_lines(u.put, stores, put);
    gk_wait(comm, stores);
    gk_meet(l->j);
    launch_lines(u.look, u.stream, look);
    gk_get(comm, u.stream, counts, u.wrong, sizeof counts);
    gk_meet(l->j);
    if (atomic_load(&forgets)) {
        T_CHECKF(counts[0] > 0, "a line in pieces went unnoticed");
    } else {
        T_CHECKF(!counts[0], "rank %d: %u of %u lines were in pieces", rank, counts[0], counts[1]);
        T_CHECKF(gk_number("GPU_FAKE", 0) || !counts[2], "the last lines have not come");
        /* Each line with its last number, and on a GPU with many before it. */
        const unsigned least = BYTES / 128 * (gk_number("GPU_FAKE", 0) ? 1 : 100);
        T_CHECKF(counts[1] >= least, "only %u lines were seen", counts[1]);
        gk_figure("lines looked at while they were stored, %d: %u", rank, counts[1]);
    }
    gk_free_plain((char *)u.wrong);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(own));
    CU(cuStreamDestroy(u.stream));
    CU(cuStreamDestroy(stores));
}

static void run_lines(int rounds) {
    gk_job j = {.devices = gk_begin()};
    if (j.devices < 2) T_SKIP("needs two GPUs");
    j.n = j.devices < MOST ? j.devices : MOST;
    litmus l = {.j = &j, .image = read_image(), .rounds = rounds};
    pthread_barrier_init(&j.meet, NULL, (unsigned)j.n);
    gk_open(&j);
    T_THREADS(j.n, lines_rank, &l);
    pthread_barrier_destroy(&j.meet);
    free(l.image);
}
static void a_line_is_never_in_pieces(void) {
    run_lines(many(1000000));
}
static void a_line_in_pieces_is_noticed(void) {
    if (!gk_number("GPU_FAKE", 0)) T_SKIP("needs the fake driver (GPU_FAKE=2): its kernel forgets");
    atomic_store(&forgets, 1);
    run_lines(3);
}

/* ---- the last call of a rank that leaves ----------------------------------------------------- */

/* One rank comes late to the last call, has all it needs then, and leaves at once: the others have
 * all its data. */
static void leaving_rank(int rank, int n, void *arg) {
    enum { BYTES = 256 << 10, LATE_MS = 1500 };
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmWindow_t win;
    char *p;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    unsigned char *seen = (unsigned char *)gk_pinned((size_t)n * BYTES);
    T_OK(symmMemAlloc((void **)&p, (size_t)n * BYTES));
    T_OK(symmWindowRegister(comm, p, (size_t)n * BYTES, &win, 0));
    gk_fill(stream, p + rank * BYTES, BYTES, rank + 1);
    gk_wait(comm, stream);
    gk_meet(j);
    if (!rank) usleep(LATE_MS * 1000);
    T_OK(symmAllGather(p + rank * BYTES, p, BYTES, symmUint8, comm, gk_stream(stream)));
    gk_wait(comm, stream);
    T_OK(symmCommDestroy(comm));
    gk_get(NULL, stream, seen, p, (size_t)n * BYTES);
    for (int i = 0; i < n * BYTES; i++) T_EQ(seen[i], i / BYTES + 1);
    gk_meet(j);
    gk_free_pinned((char *)seen);
    T_OK(symmMemFree(p));
    CU(cuStreamDestroy(stream));
}

static void a_late_rank_leaves_behind_its_last_call(void) {
    const int rounds = getenv("T_FULL") ? 50 : 2;
    for (int i = 0; i < rounds; i++) {
        gk_job j = {.devices = gk_begin()};
        if (j.devices < 2) T_SKIP("needs two GPUs");
        j.n = j.devices < MOST ? j.devices : MOST;
        gk_run(&j, leaving_rank);
    }
}

T_MAIN(T_TIMEOUT(a_barrier_orders_plain_stores, 200), T(what_was_not_stored_is_noticed),
       T_TIMEOUT(a_line_is_never_in_pieces, 200), T(a_line_in_pieces_is_noticed),
       T_TIMEOUT(a_late_rank_leaves_behind_its_last_call, 200))
