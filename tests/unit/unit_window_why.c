/* unit_window_why.c - what symmExplain and the log say of a buffer that is in no window: by how
 * much the one there is too short. Ranks are processes. */
#include "heap_kit.h"

enum { BYTES = 4 << 20, COUNT = 500000 };

static void says(hk *k, const void *src, const void *dst, const char *text, int line) {
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(k->comm, symmCollAllReduce, src, dst, COUNT, symmInt32, symmSum, 0, &plan));
    T_CHECKF(strstr(plan.reason, text), "line %d: \"%s\" is not in \"%s\"", line, text,
             plan.reason);
}
#define SAYS(k, src, dst, text) says(k, src, dst, text, __LINE__)

static void short_rank(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    char *p, *in, *end;
    int *loose = malloc(COUNT * sizeof *loose);
    T_CHECK(loose != NULL);
    T_OK(symmMemAlloc((void **)&p, 2 * BYTES));
    T_OK(symmWindowRegister(k->comm, p + 4096, BYTES, &win, 0));
    in = p + 4096;
    end = p + 4096 + BYTES - COUNT * sizeof(int);
    SAYS(k, loose, end, "sendbuff is in no window: staged through scratch (symmWindowRegister)");
    SAYS(k, end + 64, in, "sendbuff's window ends 64 bytes before the buffer does: staged");
    SAYS(k, in, end + 1, "recvbuff's window ends 1 bytes before the buffer does: staged");
    SAYS(k, p, end, "sendbuff begins 4096 bytes before its window: staged");
    SAYS(k, p + BYTES + 4096, end, "sendbuff is in no window: staged");
    /* The one that reaches farthest is named. */
    symmWindow_t next;
    T_OK(symmWindowRegister(k->comm, p, BYTES + 4096 + 60, &next, 0));
    SAYS(k, end + 64, in, "sendbuff's window ends 4 bytes before the buffer does: staged");
    T_OK(symmWindowDeregister(k->comm, next));
    memset(p, 0, 2 * BYTES);
    for (int i = 0; i < 3; i++) /* the log says it once */
        T_OK(symmAllReduce(end + 64 + i, end + 64 + i, COUNT, symmInt32, symmSum, k->comm, NULL));
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmMemFree(p));
    T_OK(symmMemAlloc((void **)&p, 2 * BYTES));
    if (p + 4096 + BYTES == end + COUNT * sizeof(int))
        SAYS(k, end, loose, "the memory that was registered at sendbuff has ended: staged");
    T_OK(symmMemFree(p));
    free(loose);
}

static void heap_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 0);
    char *p = hk_sym(heap, 4 * HK_MB);
    SAYS(k, p + 4 * HK_MB - 1000, p,
         "has memory for 1000 of sendbuff's 2000000 bytes: staged through scratch");
    T_OK(symmHeapDestroy(heap));
}

static void what_is_missing_is_said(void) {
    char path[] = "/tmp/symm-unit-XXXXXX", text[8192] = "";
    const int fd = mkstemp(path);
    symm_params params;
    setenv("SYMM_DIRECT", "0", 1); /* else it depends on the machine's cores what is staged */
    setenv("SYMM_DEBUG", "INFO", 1);
    setenv("SYMM_DEBUG_FILE", path, 1);
    T_OK(symm_param_load(&params)); /* opens the file here, once */
    hk_processes(2, short_rank, NULL);
    hk_processes(2, heap_rank, NULL);
    T_CHECK(read(fd, text, sizeof text - 1) > 0);
    const char *said = "symm INFO sendbuff's window ends 64 bytes",
               *what = "sendbuff's window ends 64 bytes before";
    int times = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) times++;
    T_CHECKF(times == 2, "said %d times by two ranks", times);
    T_MSG(text, said);
    unsetenv("SYMM_DEBUG_FILE");
    unsetenv("SYMM_DEBUG");
    T_OK(symm_param_load(&params)); /* closes it */
    close(fd);
    unlink(path);
}

T_MAIN(T(what_is_missing_is_said))
