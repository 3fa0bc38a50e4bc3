/* cuda_multicast.c - fills the table of cuda_multicast.h. Any thread; `lock` is held during the
 * look-up, which calls nothing of CUDA. The table is written under it, and read by those who have
 * taken it since. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "cuda_multicast.h"

symm_cuda_multicast_table symm_cu_multicast;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int looked; /* under the lock, as all below */
static const char *lacks;
static void *(*injected)(const char *symbol);

static const char *const symbols[] = {
#define SYMM_CU_CALL(name, symbol, required, params) symbol,
#include "cuda_multicast.def"
#undef SYMM_CU_CALL
};
enum { ROWS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof symm_cu_multicast == ROWS * sizeof(void *), "a table is its rows");

/* The library is loaded already, and stays: the handle is not closed. */
static void look(void) {
    void *from = injected ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    lacks = NULL;
    for (int i = ROWS - 1; i >= 0; i--) {
        void *entry = injected ? injected(symbols[i]) : from ? dlsym(from, symbols[i]) : NULL;
        memcpy((char *)&symm_cu_multicast + (size_t)i * sizeof entry, &entry, sizeof entry);
        if (!entry) lacks = symbols[i];
    }
    looked = 1;
}

const char *symm_cuda_multicast_load(void) {
    pthread_mutex_lock(&lock);
    if (!looked) look();
    const char *r = lacks;
    pthread_mutex_unlock(&lock);
    return r;
}

#ifdef SYMM_TESTING
void symm_cuda_multicast_inject(void *(*find)(const char *symbol)) {
    pthread_mutex_lock(&lock);
    injected = find;
    looked = 0;
    pthread_mutex_unlock(&lock);
}
#endif
