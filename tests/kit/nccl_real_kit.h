/* nccl_real_kit.h - for tests of the drop-in beside a real NCCL, tests/fake/nccl_whole.c: which one
 * is found, and what it is told. The program defines _GNU_SOURCE. */
#ifndef NCCL_REAL_KIT_H_
#define NCCL_REAL_KIT_H_

#include <dlfcn.h>
#include <unistd.h>

#include "nccl_kit.h"

static void *real_lib; /* opened by the test, too */

/* Under a sanitizer the loader does not look where this program says. */
static inline void *open_beside(const char *lib) {
    char path[512];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n > 0 ? n : 0] = 0;
    char *name = strrchr(path, '/');
    if (name) snprintf(name + 1, 64, "%s", lib);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* One of those that lie beside the tests, where the loader finds it. */
static inline void use_real(const char *mode, const char *lib) {
    Dl_info info = {.dli_fname = "none"};
    real_lib = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
    if (!real_lib) real_lib = open_beside(lib);
    T_CHECKF(real_lib != NULL, "%s", dlerror());
    if (real_lib) T_CHECK(dladdr(dlsym(real_lib, "nccl_real_live"), &info));
    setenv("SYMM_NCCL", mode, 1);
    setenv("SYMM_NCCL_LIB", info.dli_fname, 1);
}

static inline int ask_real(const char *name) {
    int (*ask)(void) = NULL;
    *(void **)(void *)&ask = dlsym(real_lib, name);
    T_CHECK(ask != NULL);
    return ask ? ask() : -1;
}

static inline void make_fail(const char *name, int rank) {
    void (*fail)(const char *name, int rank) = NULL;
    *(void **)(void *)&fail = dlsym(real_lib, "nccl_real_fail");
    T_CHECK(fail != NULL);
    if (fail) fail(name, rank);
}

/* Threads inside it come out later than the error of all ranks. */
static inline void all_gone(void) {
    for (int i = 0; i < 4000 && ask_real("nccl_real_live"); i++) usleep(1000);
    T_EQ(ask_real("nccl_real_live"), 0);
}

#endif
