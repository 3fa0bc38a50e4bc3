/* cuda_stub.c - built twice by check_cuda_load.sh. As a library (-DSTUB) it is a libcuda.so.1 that
 * has every symbol of cuda_calls.def and does nothing: what the loader finds by dlopen and dlsym.
 * As a program it is who loads it. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/cuda_device.h"

#ifdef STUB
/* The linker's names are the exported symbols, whatever the members of the table are called. */
#define SYMM_CU_CALL(name, symbol, required, params) \
    __attribute__((visibility("default"))) cu_result stub_##name params __asm__(symbol);
#include "transport/cuda_calls.def"
#undef SYMM_CU_CALL

cu_result stub_cuDriverGetVersion(int *version) {
    *version = STUB;
    return 0;
}

cu_result stub_cuDeviceGetCount(int *count) {
    *count = 3;
    return 0;
}

/* All others: made from the same rows by the script, which leaves out the two above. */
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

int main(void) {
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
