/* unit_synced_first.c - the first use of a synced buffer in a capture, on the host backend: it fills
 * the memory at once, so only what nobody has used. Other uses: unit_synced_use.c. */
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

T_MAIN(T(the_fill_ends_where_the_buffer_does))
