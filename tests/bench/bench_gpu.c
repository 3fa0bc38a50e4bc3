/* bench_gpu.c - what each GPU kernel takes at each size with each grid: the measurements behind the
 * table of plan_gpu.c. Figures, never a verdict, but a wrong result ends it.
 *
 *   bench_gpu [all_reduce|all_gather] [-n ranks] [-b bytes] [-e bytes] [-f factor] [-k kernel]
 *             [-c ctas,..] [-t threads,..] [-d type] [-q] [-v] [-u] [-i]
 *   -q   only the planner's choice
 *   -v   every grid, not only the best
 *   -u   unregistered buffers
 *   -i   host time of a call, beside that of an empty launch
 *
 * One process, one thread a rank, one GPU a rank (fewer GPUs are shared). A graph of many calls,
 * timed by events around its second launch in a row; the slowest rank counts, the median of
 * rounds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/coll/coll.h"
#include "host/comm/comm.h"
#include "base/handle.h"
#include "transport/cuda/cuda_device.h"
#include "device/host/reduce.h"
#include "coll_kit.h"

enum { ROUNDS = 7, GRIDS = 32, WARM = 2 };

static struct {
    symmColl_t coll;
    int n, type, plain, verbose, unregistered, issue, devices;
    uint64_t from, to;
    int factor;
    const char *kernel;
    int ctas[GRIDS], nctas, threads[GRIDS], nthreads;
} opt = {.coll = symmCollAllReduce,
         .n = 2,
         .type = symmFloat32,
         .from = 1024,
         .to = 1 << 20,
         .factor = 2};

typedef struct {
    int rank;
    symmComm_t comm;
    symm_comm *c;
    cu_stream stream;
    cu_event begin, end;
    char *src, *dst, *host;
    symmWindow_t win[2];
    double us;
} rank_state;

static rank_state ranks[SYMM_MAX_RANKS];
static pthread_barrier_t meet;
static struct {
    uint64_t count;
    int calls, check;
} job;

static void must(cu_result cu, const char *what) {
    if (!cu) return;
    const char *name = symm_cuda_code_name(cu);
    fprintf(stderr, "bench_gpu: %s: %s (%d)\n", what, name ? name : "?", cu);
    exit(1);
}
#define CU(call) must(symm_cu.call, #call)
static void ok(rank_state *s, symmResult_t r, const char *what) {
    if (!r) return;
    fprintf(stderr, "bench_gpu: rank %d: %s: %s\n", s->rank, what, symmGetLastError(NULL));
    exit(1);
}
#define OK(call) ok(s, call, #call)

static void issue(rank_state *s) {
    if (opt.coll == symmCollAllReduce)
        OK(symmAllReduce(s->src, s->dst, job.count, (symmDataType_t)opt.type, symmSum, s->comm,
                         (symmStream_t)(void *)s->stream));
    else
        OK(symmAllGather(s->src, s->dst, job.count, (symmDataType_t)opt.type, s->comm,
                         (symmStream_t)(void *)s->stream));
}

/* float32 only: rank r sends r + 1 + i % 7. */
static void fill(rank_state *s) {
    float *f = (float *)(void *)s->host;
    for (uint64_t i = 0; i < job.count; i++) f[i] = (float)(s->rank + 1 + (int)(i % 7));
    CU(cuMemcpyHtoDAsync((uintptr_t)s->src, s->host, job.count * 4, s->stream));
    CU(cuMemsetD8Async((uintptr_t)s->dst, 0x5a,
                       job.count * 4 * (opt.coll == symmCollAllGather ? (unsigned)opt.n : 1u),
                       s->stream));
    CU(cuStreamSynchronize(s->stream));
}

static void check(rank_state *s) {
    const int gather = opt.coll == symmCollAllGather, parts = gather ? opt.n : 1;
    float *f = (float *)(void *)s->host;
    for (int p = 0; p < parts; p++) {
        CU(cuMemcpyDtoHAsync(s->host, (uintptr_t)s->dst + job.count * 4 * (unsigned)p,
                             job.count * 4, s->stream));
        CU(cuStreamSynchronize(s->stream));
        for (uint64_t i = 0; i < job.count; i++) {
            int m = (int)(i % 7);
            float want = gather ? (float)(p + 1 + m) : (float)(opt.n * (opt.n + 1) / 2 + opt.n * m);
            if (f[i] == want) continue;
            fprintf(stderr,
                    "bench_gpu: rank %d, %llu elements: element %llu of part %d is %g, not %g\n",
                    s->rank, (unsigned long long)job.count, (unsigned long long)i, p, f[i], want);
            exit(1);
        }
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *measure(void *arg) {
    rank_state *s = arg;
    cu_graph graph;
    cu_graph_exec exec;
    double us[ROUNDS];
    float ms;
    OK(symmSetDevice(s->rank % opt.devices));
    if (job.check && opt.type == symmFloat32) fill(s);
    pthread_barrier_wait(&meet);
    CU(cuStreamBeginCapture(s->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < job.calls; i++) issue(s);
    CU(cuStreamEndCapture(s->stream, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphUpload(exec, s->stream));
    CU(cuStreamSynchronize(s->stream));
    for (int i = -WARM; i < ROUNDS; i++) {
        pthread_barrier_wait(&meet);
        CU(cuGraphLaunch(exec, s->stream));
        CU(cuEventRecord(s->begin, s->stream));
        CU(cuGraphLaunch(exec, s->stream));
        CU(cuEventRecord(s->end, s->stream));
        CU(cuStreamSynchronize(s->stream));
        CU(cuEventElapsedTime(&ms, s->begin, s->end));
        if (i >= 0) us[i] = ms * 1e3 / job.calls;
    }
    qsort(us, ROUNDS, sizeof *us, by_size);
    s->us = us[ROUNDS / 2];
    if (job.check && opt.type == symmFloat32) check(s);
    pthread_barrier_wait(&meet);
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    return NULL;
}

/* ---- host time ------------------------------------------------------------------------------- */

static double host_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void launch_nothing(rank_state *s, cu_kernel nothing) {
    cu_launch_attr attr = {.id = SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                           .value.programmatic_serialization = 1};
    cu_launch_config config = {1, 1, 1, 32, 1, 1, 0, s->stream, &attr, 1};
    CU(cuLaunchKernelEx(&config, (cu_function)(void *)nothing, NULL, NULL));
}

/* Medians over rounds of 50 calls each, ours and nothing in turn; the time between rounds is for
 * the GPU to catch up. */
static void *issue_time(void *arg) {
    enum { CALLS = 50, TIMES = 41 };
    rank_state *s = arg;
    double ours[TIMES], none[TIMES];
    cu_library lib;
    cu_kernel nothing;
    OK(symmSetDevice(s->rank % opt.devices));
    CU(cuLibraryLoadData(&lib, symm_kernel_images[SYMM_IMAGES - 1].image, NULL, NULL, 0, NULL, NULL,
                         0));
    CU(cuLibraryGetKernel(&nothing, lib, "symm_nothing"));
    for (int i = -WARM; i < TIMES; i++) {
        pthread_barrier_wait(&meet);
        double t0 = host_us();
        for (int k = 0; k < CALLS; k++) issue(s);
        double t1 = host_us();
        CU(cuStreamSynchronize(s->stream));
        double t2 = host_us();
        for (int k = 0; k < CALLS; k++) launch_nothing(s, nothing);
        double t3 = host_us();
        CU(cuStreamSynchronize(s->stream));
        if (i >= 0) ours[i] = (t1 - t0) / CALLS, none[i] = (t3 - t2) / CALLS;
    }
    qsort(ours, TIMES, sizeof *ours, by_size);
    qsort(none, TIMES, sizeof *none, by_size);
    pthread_barrier_wait(&meet);
    if (s->rank == 0)
        printf("%12llu  host time of a call %.2f us, of an empty launch %.2f us\n",
               (unsigned long long)(job.count * symm_type_size((unsigned)opt.type)),
               ours[TIMES / 2], none[TIMES / 2]);
    return NULL;
}

static void issue_all(uint64_t bytes) {
    pthread_t t[SYMM_MAX_RANKS];
    job.count = bytes / symm_type_size((unsigned)opt.type);
    for (int r = 0; r < opt.n; r++) pthread_create(&t[r], NULL, issue_time, &ranks[r]);
    for (int r = 0; r < opt.n; r++) pthread_join(t[r], NULL);
}

static double run_all(uint64_t bytes, int check_too) {
    pthread_t t[SYMM_MAX_RANKS];
    double worst = 0;
    job.count = bytes / symm_type_size((unsigned)opt.type);
    job.calls = bytes > 64u << 20 ? 4 : bytes > 4u << 20 ? 10 : 50;
    job.check = check_too;
    for (int r = 0; r < opt.n; r++) pthread_create(&t[r], NULL, measure, &ranks[r]);
    for (int r = 0; r < opt.n; r++) pthread_join(t[r], NULL);
    for (int r = 0; r < opt.n; r++) worst = ranks[r].us > worst ? ranks[r].us : worst;
    return worst;
}

static void force(int kernel, int ctas, int threads) {
    for (int r = 0; r < opt.n; r++) {
        symm_comm *c = ranks[r].c;
        c->calls.forced[opt.coll] = (int16_t)kernel;
        c->params.ctas = ctas;
        c->params.threads = threads;
        c->windows.version++;
    }
}

static symm_plan plan_of(uint64_t bytes) {
    symm_launch l;
    const symm_coll k = {.coll = opt.coll,
                         .src = ranks[0].src,
                         .dst = ranks[0].dst,
                         .count = bytes / symm_type_size((unsigned)opt.type),
                         .type = (uint32_t)opt.type,
                         .op = symmSum};
    ok(&ranks[0], symm_coll_prepare(ranks[0].c, &k, &l), "the plan");
    return l.plan;
}

static void sweep_kernel(uint64_t bytes, int kernel) {
    double best = 1e30;
    symm_plan at = {.ctas = 0};
    for (int i = 0; i < opt.nctas; i++)
        for (int j = 0; j < opt.nthreads; j++) {
            force(kernel, opt.ctas[i], opt.threads[j]);
            symm_plan p = plan_of(bytes);
            /* Fewer than asked for: there is no work, or no scratch, for more. */
            if ((int)p.kernel != kernel || p.ctas != opt.ctas[i] || p.threads != opt.threads[j])
                continue;
            double us = run_all(bytes, 0);
            if (opt.verbose)
                printf("    %-26s ctas %3d threads %3d  %9.2f us\n", symm_kernels[kernel].name,
                       p.ctas, p.threads, us);
            if (us < best) best = us, at = p;
        }
    if (!at.ctas) return;
    force(kernel, at.ctas, at.threads);
    run_all(bytes, 1);
    printf("  %-26s %9.2f us  %8.1f GB/s  (ctas %d, threads %d)\n", symm_kernels[kernel].name, best,
           (double)bytes / best / 1e3, at.ctas, at.threads);
}

static void sweep(uint64_t bytes) {
    force(-1, 0, 0);
    symm_plan p = plan_of(bytes);
    double us = run_all(bytes, 1);
    printf("%12llu  planned %-26s %9.2f us  %8.1f GB/s  (ctas %d, threads %d)\n",
           (unsigned long long)bytes, symm_kernels[p.kernel].name, us, (double)bytes / us / 1e3,
           p.ctas, p.threads);
    for (int k = 0; k < SYMM_KERNEL_COUNT && !opt.plain; k++) {
        const symm_call call = {.coll = opt.coll,
                                .count = bytes / symm_type_size((unsigned)opt.type),
                                .type = (uint32_t)opt.type,
                                .esize = (uint32_t)symm_type_size((unsigned)opt.type)};
        const symm_plan_env env = {
            .gpu = 1, .nranks = opt.n, .scratch = ranks[0].c->calls.proto.scratch};
        if (symm_kernels[k].coll != opt.coll ||
            !symm_plan_can(&env, &call, (symm_kernel_id)k, NULL))
            continue;
        if (!opt.kernel || strstr(symm_kernels[k].name, opt.kernel)) sweep_kernel(bytes, k);
    }
    fflush(stdout);
}

static void open_rank(rank_state *s) {
    const size_t out = opt.to * (opt.coll == symmCollAllGather ? (unsigned)opt.n : 1u);
    OK(symmSetDevice(s->rank % opt.devices));
    s->c = symm_handle_peek(SYMM_KIND_COMM, s->comm);
    OK(symmMemAlloc((void **)&s->src, opt.to));
    OK(symmMemAlloc((void **)&s->dst, out));
    s->host = malloc(opt.to);
    CU(cuStreamCreate(&s->stream, SYMM_CUDA_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&s->begin, 0));
    CU(cuEventCreate(&s->end, 0));
    CU(cuMemsetD8Async((uintptr_t)s->src, 0, opt.to, s->stream));
    CU(cuStreamSynchronize(s->stream));
}

static void *register_rank(void *arg) {
    rank_state *s = arg;
    const size_t out = opt.to * (opt.coll == symmCollAllGather ? (unsigned)opt.n : 1u);
    OK(symmSetDevice(s->rank % opt.devices));
    OK(symmWindowRegister(s->comm, s->src, opt.to, &s->win[0], 0));
    OK(symmWindowRegister(s->comm, s->dst, out, &s->win[1], 0));
    return NULL;
}

static void open_all(void) {
    symmComm_t comms[SYMM_MAX_RANKS];
    int devices[SYMM_MAX_RANKS];
    pthread_t t[SYMM_MAX_RANKS];
    opt.devices = symm_cuda_devices();
    for (int r = 0; r < opt.n && opt.devices; r++) devices[r] = r % opt.devices;
    ok(&ranks[0], symmCommInitAll(comms, opt.n, devices), "creating the communicator");
    pthread_barrier_init(&meet, NULL, (unsigned)opt.n);
    for (int r = 0; r < opt.n; r++) {
        ranks[r].rank = r;
        ranks[r].comm = comms[r];
        open_rank(&ranks[r]);
    }
    for (int r = 0; r < opt.n && !opt.unregistered; r++)
        pthread_create(&t[r], NULL, register_rank, &ranks[r]);
    for (int r = 0; r < opt.n && !opt.unregistered; r++) pthread_join(t[r], NULL);
    printf("# %s, %d ranks on %d GPUs, %s\n", symm_coll_name(opt.coll), opt.n, opt.devices,
           opt.n <= opt.devices ? "one each" : "shared");
}

static int numbers(char *text, int *out) {
    int n = 0;
    for (char *w = strtok(text, ","); w && n < GRIDS; w = strtok(NULL, ",")) out[n++] = atoi(w);
    return n;
}

static uint64_t size_of(const char *text) {
    char *end;
    double v = strtod(text, &end);
    return (uint64_t)(v * (*end == 'K'   ? 1024.0
                           : *end == 'M' ? 1048576.0
                           : *end == 'G' ? 1073741824.0
                                         : 1.0));
}

static void read_args(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "all_gather")) opt.coll = symmCollAllGather;
        if (!strcmp(argv[i], "-q")) opt.plain = 1;
        if (!strcmp(argv[i], "-u")) opt.unregistered = 1;
        if (!strcmp(argv[i], "-i")) opt.issue = 1;
        if (!strcmp(argv[i], "-v")) opt.verbose = 1;
        if (argv[i][0] != '-' || !v || strchr("qvui", argv[i][1])) continue;
        switch (argv[i++][1]) {
        case 'n': opt.n = atoi(v); break;
        case 'b': opt.from = size_of(v); break;
        case 'e': opt.to = size_of(v); break;
        case 'f': opt.factor = atoi(v); break;
        case 'k': opt.kernel = v; break;
        case 'c': opt.nctas = numbers(v, opt.ctas); break;
        case 't': opt.nthreads = numbers(v, opt.threads); break;
        case 'd': opt.type = atoi(v); break;
        default:
            fprintf(stderr, "bench_gpu: %s: see the head of its source\n", argv[i - 1]);
            exit(2);
        }
    }
    if (opt.factor < 2) {
        fprintf(stderr, "bench_gpu: -f %d: sizes would not grow\n", opt.factor);
        exit(2);
    }
    char ctas[] = "1,2,4,8,16,32,64,128", threads[] = "32,64,128,256,480";
    if (!opt.nctas) opt.nctas = numbers(ctas, opt.ctas);
    if (!opt.nthreads) opt.nthreads = numbers(threads, opt.threads);
}

int main(int argc, char **argv) {
    read_args(argc, argv);
    setenv("SYMM_BACKEND", "cuda", 0);
    if (!symm_cuda_devices()) {
        printf("bench_gpu: nothing to measure: %s\n", symm_cuda_why());
        return 0;
    }
    open_all();
    for (uint64_t b = opt.from; b <= opt.to; b *= (unsigned)opt.factor) {
        if (opt.issue)
            issue_all(b);
        else
            sweep(b);
    }
    return 0;
}
