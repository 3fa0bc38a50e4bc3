/* cuda_stub.c - built twice by check_cuda_load.sh. As a library (-DSTUB) it is a libcuda.so.1 with
 * every symbol of cuda_calls.def that does nothing, for the loader to find by dlopen and dlsym. Its
 * cuInit forks, waits for the child, and calls the program if the program exports a function for
 * that. As a program it loads the driver: once, or (`threads`) from several threads at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/cuda/cuda_device.h"

#ifdef STUB
/* The linker needs the exported symbols, whatever the members of the table are called. */
#define SYMM_CU_CALL(name, symbol, required, params) \
    __attribute__((visibility("default"))) cu_result stub_##name params __asm__(symbol);
#include "transport/cuda/cuda_calls.def"
#undef SYMM_CU_CALL

cu_result stub_cuDriverGetVersion(int *version) {
    *version = STUB;
    return 0;
}

cu_result stub_cuDeviceGetCount(int *count) {
    *count = 3;
    return 0;
}

#ifndef INIT
#define INIT 0
#endif
/* As libcuda does if the device nodes are missing: it runs nvidia-modprobe. */
cu_result stub_cuInit(unsigned flags) {
    void (*back)(void);
    void *symbol = dlsym(RTLD_DEFAULT, "while_initialising");
    pid_t child = fork();
    (void)flags;
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    memcpy(&back, &symbol, sizeof back);
    if (symbol) back();
    return INIT;
}

/* All others are generated from the same rows by the script, which leaves out the three above. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SYMM_CU_CALL(name, symbol, required, params) \
    cu_result stub_##name params {                   \
        return 0;                                    \
    }
#include "cuda_rest.def"
#undef SYMM_CU_CALL
#else
static const char *name(symmResult_t result) {
    return result == symmSuccess        ? "success"
           : result == symmNotSupported ? "not supported"
                                        : "other";
}

static int slow; /* `threads`: cuInit is slow */
__attribute__((visibility("default"))) void while_initialising(void) {
    if (slow) usleep(300000);
    if (!slow && symm_cuda_there()) printf("there while it is initialised\n");
}

static void *load(void *arg) {
    *(symmResult_t *)arg = symm_cuda_load();
    return NULL;
}

/* All threads get the driver. A child that was forked meanwhile gets none, and does not wait for
 * it. */
static int from_threads(void) {
    enum { N = 4 };
    pthread_t thread[N];
    symmResult_t result[N];
    int good = 0, status;
    slow = 1;
    for (int i = 0; i < N; i++) pthread_create(&thread[i], NULL, load, &result[i]);
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        printf("child %s, why [%s]\n", name(symm_cuda_load()), symm_cuda_why());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++) good += result[i] == symmSuccess;
    printf("%d of %d threads, version %d\n", good, N, symm_cuda_version());
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "threads")) return from_threads();
    symmResult_t first = symm_cuda_load();
    printf("load %s, version %d devices %d why [%s]\n", name(first), symm_cuda_version(),
           symm_cuda_devices(), symm_cuda_why());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        symmResult_t again = symm_cuda_load();
        printf("child %s, devices %d why [%s]\n", name(again), symm_cuda_devices(),
               symm_cuda_why());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("after %s, why [%s]\n", name(symm_cuda_load()), symm_cuda_why());
    return 0;
}
#endif
