/* unit_synced_first.c - the first use of a synced buffer in a capture, on the host backend: it
 * clears the memory at once, so only what nobody can be using. Other uses: unit_synced_use.c. */
#include "graph_kit.h"
#include "synced_kit.h"

static symmGraph_t end(symmStream_t stream) {
    symmGraph_t g = NULL;
    T_OK(symmStreamEndCapture(stream, &g));
    return g;
}

/* In guard mode a red zone begins behind the last byte, which need not end a word. */
static void the_fill_ends_where_the_buffer_does(void) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmComm_t comm;
    symmHeap_t heap;
    symmStream_t stream = sy_stream();
    setenv("SYMM_SCRATCH", "1M", 1);
    T_OK(symmCommInitAll(&comm, 1, NULL));
    config.localBytes = SY_MB;
    config.guard = 1;
    T_OK(symmHeapCreate(comm, &config, &heap));
    for (size_t bytes = 1; bytes <= 9; bytes++) {
        symmSynced_t s = sy_new(heap, bytes);
        T_OK(symmStreamBeginCapture(stream));
        sy_all(sy_gpu(s, stream), 0, bytes, "a first use in a capture");
        T_OK(symmGraphDestroy(end(stream)));
        T_OK(symmHeapCheck(heap));
        T_OK(symmSyncedDestroy(s));
    }
    T_OK(symmStreamDestroy(stream));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

typedef struct {
    sy_gate gate;
    const char *mem;
    int saw;
} reader;
static void read_late(void *arg) {
    reader *r = arg;
    sy_pass(&r->gate);
    r->saw = r->mem[100];
}

/* The caller's work of before still reads the memory, and no capture can wait for it. */
static void discarded_memory_is_not_cleared_in_a_capture(void) {
    symmComm_t comm;
    symmHeap_t heap = sy_world(&comm);
    symmStream_t stream = sy_stream();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    reader r = {.saw = -1};
    const void *p;
    void *w;
    T_EXPECT_WARNINGS();
    char *mem = sy_mut_gpu(s, stream, 1);
    T_OK(symmStreamSynchronize(stream));
    memset(mem, 5, SY_BYTES);
    r.mem = mem;
    T_OK(symmStreamHostFunc(stream, read_late, &r));
    T_OK(symmSyncedDiscard(s));
    T_OK(symmStreamBeginCapture(stream));
    T_ERR(symmSyncedGpu(s, stream, &p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "would be cleared now");
    T_ERR(symmSyncedMutableGpu(s, stream, 1, &w), symmInvalidUsage);
    T_EQ(sy_head(s), SYMM_SYNCED_UNINITIALIZED);
    T_CHECK(sy_mut_gpu(s, stream, 0) == mem); /* clears nothing */
    T_OK(symmGraphDestroy(end(stream)));
    T_OK(symmSyncedDiscard(s));
    p = sy_gpu(s, stream); /* cleared in the stream */
    sy_open(&r.gate);
    T_OK(symmStreamSynchronize(stream));
    T_EQ(r.saw, 5);
    sy_all(p, 0, SY_BYTES, "after a discard");
    T_OK(symmSyncedDestroy(s));
    T_OK(symmStreamDestroy(stream));
    sy_world_end(comm, heap);
}

T_MAIN(T(the_fill_ends_where_the_buffer_does), T(discarded_memory_is_not_cleared_in_a_capture))
