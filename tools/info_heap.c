/* info_heap.c - what symm-info says about heaps: limits, layout, what calls cost here. Makes a
 * communicator over the machine's GPUs, or of thread ranks on the host backend, and a heap on
 * it; frees both. Main thread: it drives all ranks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/gpu/backend.h"
#include "transport/cuda/cuda_device.h"
#include "info.h"
#include "info_map.h"
#include "symm_synced.h"
#include "device/common/records.h"

enum {
    HOST_RANKS = 2,
    MAX_RANKS = SYMM_MAX_RANKS,
    ROUNDS = 8,
    PAIRS = 2500,
    BLOCKS = 4000,
    COPIES = 50
};
#define MIB (1ull << 20)

typedef struct {
    int n;
    symmComm_t comms[MAX_RANKS];
    symmHeap_t heaps[MAX_RANKS];
} world;

#define TRY(call)                             \
    do {                                      \
        symmResult_t try_ = (call);           \
        if (try_ != symmSuccess) return try_; \
    } while (0)

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- making it ---- */

static symmResult_t create_heaps(world *w) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    config.symBytes = config.localBytes = 4 * MIB;
    config.name = "symm-info";
    TRY(symmGroupStart());
    for (int r = 0; r < w->n; r++) symmHeapCreate(w->comms[r], &config, &w->heaps[r]);
    return symmGroupEnd();
}

static symmResult_t grow_heaps(const world *w, uint64_t sym, uint64_t local) {
    TRY(symmGroupStart());
    for (int r = 0; r < w->n; r++) symmHeapGrow(w->heaps[r], sym, local);
    return symmGroupEnd();
}

static symmResult_t trim_heaps(const world *w) {
    TRY(symmGroupStart());
    for (int r = 0; r < w->n; r++) symmHeapTrim(w->heaps[r], 4 * MIB, NULL);
    return symmGroupEnd();
}

/* ---- what it is ---- */

static symmResult_t show_limits(const world *w) {
    symmHeapInfo_t info = {.size = sizeof info};
    symmCommInfo_t comm = {.size = sizeof comm};
    char a[32];
    TRY(symmHeapQuery(w->heaps[0], &info));
    TRY(symmCommQuery(w->comms[0], &comm));
    info_row("ranks", "%d, backend %s", w->n, comm.backend);
    info_row("addresses", "%s per rank for one heap by default (SYMM_WIN_STRIDE)",
             info_bytes(info.reserve, a, sizeof a));
    info_row("base", "0x%llx, stride 0x%llx", (unsigned long long)info.base,
             (unsigned long long)info.stride);
    return symmSuccess;
}

/* ---- what it costs: the best of a few rounds, for the machine has other work ---- */

static void put_time(const char *name, const char *what, uint64_t ns) {
    if (ns < 10000)
        info_row(name, "%llu ns%s", (unsigned long long)ns, what);
    else
        info_row(name, "%.1f us%s", (double)ns / 1e3, what);
}

static void keep_best(uint64_t *best, uint64_t start, int calls) {
    const uint64_t ns = (now_ns() - start) / (unsigned)calls;
    if (ns < *best) *best = ns;
}

static symmResult_t time_pairs(symmHeap_t heap, unsigned flags, uint64_t *ns) {
    *ns = UINT64_MAX;
    for (int k = 0; k < ROUNDS; k++) {
        const uint64_t start = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            void *p;
            TRY(symmHeapAlloc(heap, 256u << i % 5, 0, flags, &p));
            TRY(symmHeapFree(heap, p));
        }
        keep_best(ns, start, PAIRS);
    }
    return symmSuccess;
}

static symmResult_t time_growth(const world *w, uint64_t *grow, uint64_t *trim) {
    *grow = *trim = UINT64_MAX;
    for (int k = 0; k < ROUNDS; k++) {
        uint64_t start = now_ns();
        TRY(grow_heaps(w, 64 * MIB, 0));
        keep_best(grow, start, 1);
        start = now_ns();
        TRY(trim_heaps(w));
        keep_best(trim, start, 1);
    }
    return symmSuccess;
}

static symmResult_t time_full(symmHeap_t heap, uint64_t *ns) {
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        TRY(symmHeapAlloc(heap, 256u * (1 + (unsigned)i % 3), 0, SYMM_ALLOC_LOCAL, &blocks[i]));
    for (int i = 0; i < BLOCKS; i += 2) TRY(symmHeapFree(heap, blocks[i]));
    TRY(time_pairs(heap, SYMM_ALLOC_LOCAL, ns));
    for (int i = 1; i < BLOCKS; i += 2) TRY(symmHeapFree(heap, blocks[i]));
    return symmSuccess;
}

/* SYM calls are every rank's: rank 0's are timed, the others make the same ones afterwards. */
static symmResult_t time_sym(const world *w, uint64_t *ns) {
    uint64_t other;
    TRY(time_pairs(w->heaps[0], SYMM_ALLOC_SYM, ns));
    for (int r = 1; r < w->n; r++) TRY(time_pairs(w->heaps[r], SYMM_ALLOC_SYM, &other));
    return symmSuccess;
}

/* What a program pays that asks each time instead of keeping the pointer. */
static symmResult_t time_at_rest(symmSynced_t s, uint64_t *ns) {
    int state = SYMM_SYNCED_PUSHING;
    const void *p;
    while (state == SYMM_SYNCED_PUSHING) TRY(symmSyncedHead(s, &state));
    *ns = UINT64_MAX;
    for (int k = 0; k < ROUNDS; k++) {
        const uint64_t start = now_ns();
        for (int i = 0; i < PAIRS; i++) TRY(symmSyncedGpu(s, NULL, &p));
        keep_best(ns, start, PAIRS);
    }
    return symmSuccess;
}

/* Each from the push to its end, which a writer waits for. */
static symmResult_t time_pushes(symmSynced_t s, uint64_t *ns) {
    void *p;
    *ns = UINT64_MAX;
    TRY(symmSyncedMutableCpu(s, NULL, 1, &p));
    for (int i = 0; i < COPIES; i++) {
        const uint64_t start = now_ns();
        TRY(symmSyncedPush(s, NULL));
        TRY(symmSyncedMutableCpu(s, NULL, 1, &p));
        keep_best(ns, start, 1);
    }
    return symmSyncedPush(s, NULL);
}

static symmResult_t time_synced(const world *w, uint64_t *push, uint64_t *rest) {
    symmSynced_t s;
    TRY(symmSyncedCreate(w->heaps[0], 2 * MIB, SYMM_ALLOC_LOCAL, &s));
    symmResult_t r = time_pushes(s, push);
    if (!r) r = time_at_rest(s, rest);
    const symmResult_t end = symmSyncedDestroy(s);
    return r ? r : end;
}

static symmResult_t show_costs(const world *w) {
    uint64_t ns, more;
    TRY(time_growth(w, &ns, &more));
    put_time("grow", " for 64 MiB, all ranks together", ns);
    put_time("trim", " for as much", more);
    TRY(time_sym(w, &ns));
    put_time("SYM pair", " for symmHeapAlloc and symmHeapFree", ns);
    TRY(time_pairs(w->heaps[0], SYMM_ALLOC_LOCAL, &ns));
    put_time("LOCAL pair", "", ns);
    TRY(time_full(w->heaps[0], &ns));
    put_time("among blocks", " for a LOCAL pair in a heap with 2000 blocks and as many holes", ns);
    TRY(time_synced(w, &ns, &more));
    put_time("push", " for a synced buffer of 2 MiB", ns);
    put_time("accessor", " of one whose side is up to date", more);
    return symmSuccess;
}

/* ---- layout ---- */

/* A few blocks of each kind, so that there is something to see. */
static symmResult_t fill(const world *w, symmSynced_t *s) {
    static const size_t sizes[] = {700000, 96000, 300000, 4096, 550000};
    void *p[5], *q;
    for (int r = 0; r < w->n; r++) {
        for (int i = 0; i < 5; i++)
            TRY(symmHeapAlloc(w->heaps[r], sizes[i], 0, SYMM_ALLOC_SYM, &p[i]));
        TRY(symmHeapFree(w->heaps[r], p[1]));
        TRY(symmHeapFree(w->heaps[r], p[2]));
    }
    TRY(symmHeapAlloc(w->heaps[0], 1200000, 0, SYMM_ALLOC_LOCAL, &q));
    TRY(symmSyncedCreate(w->heaps[0], 900000, SYMM_ALLOC_LOCAL, s));
    return symmSyncedRef(*s, &(symmRef_t){0}, NULL);
}

/* Drawn as any program's dump. */
static int write_svg(symmHeap_t heap, const char *path) {
    FILE *dump = tmpfile();
    if (!dump) {
        fprintf(stderr, "symm-info: cannot write a temporary file: %s\n", strerror(errno));
        return 1;
    }
    const int fd = fileno(dump);
    int failed = symmHeapDump(heap, fd, SYMM_DUMP_JSON) != symmSuccess;
    if (failed) fprintf(stderr, "symm-info: %s\n", symmGetLastError(NULL));
    if (!failed) failed = lseek(fd, 0, SEEK_SET) != 0 || info_map_draw_fd(fd, "the dump", path);
    fclose(dump);
    return failed;
}

static symmResult_t show_layout(const world *w, const char *svg, int *failed) {
    symmSynced_t s = NULL;
    symmResult_t r = fill(w, &s);
    if (!r) {
        info_head("Layout of a heap in use");
        fflush(stdout);
        r = symmHeapDump(w->heaps[0], STDOUT_FILENO, SYMM_DUMP_TEXT);
    }
    if (!r && svg) *failed = write_svg(w->heaps[0], svg);
    if (s) symmSyncedDestroy(s);
    return r;
}

/* ---- all of it ---- */

static symmResult_t show(world *w, const char *svg, int *failed) {
    const uint64_t start = now_ns();
    TRY(create_heaps(w));
    const uint64_t ns = now_ns() - start;
    TRY(show_limits(w));
    put_time("create", " with 4 MiB behind each zone, all ranks together", ns);
    TRY(show_costs(w));
    return show_layout(w, svg, failed);
}

static symmResult_t open_world(world *w, int ranks) {
    symm_params p;
    symm_vmm_caps caps;
    int cuda;
    char a[32];
    TRY(symm_param_load(&p));
    TRY(symm_backend_pick(&p, &cuda));
    const symm_vmm *v = symm_backend_vmm(cuda);
    int cu = v->query(&caps);
    if (cu) return symm_vmm_error(v, cu, "asking what it can do");
    info_row("granularity", "%s", info_bytes(caps.granularity, a, sizeof a));
    info_row("memory", "%s", info_bytes(caps.device_bytes, a, sizeof a));
    w->n = ranks ? ranks : cuda ? symm_cuda_devices() : HOST_RANKS;
    return symmCommInitAll(w->comms, w->n, NULL);
}

int info_heap(int ranks, const char *svg) {
    world w = {.n = 0};
    int failed = 0;
    info_head("Heap");
    symmResult_t r = open_world(&w, ranks);
    if (!r) r = show(&w, svg, &failed);
    if (r) info_row("heap", "refused: %s", symmGetLastError(NULL));
    for (int i = 0; i < w.n && w.comms[i]; i++) symmCommDestroy(w.comms[i]);
    return r || failed;
}
