/* nccl.c - see nccl.h. Where a NCCL is looked for, and in which order, is as in the drop-in
 * (nccl-tests-plugin/real.c), which is none itself: its messages would be ours. Lock: held while it
 * is looked for. */
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"

enum { PATH_BYTES = 4096, SEEN = 4 };

typedef struct { /* libraries that are loaded, by the beginnings of their files' names */
    const char *name;
    int n;
    char path[SEEN][PATH_BYTES];
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int looked, there;
static symm_nccl calls;
static char found[512];   /* its file */
static char missing[400]; /* why there is none */
static loaded seen;       /* under the lock */

/* Its symbols stay its own. (Sanitizers refuse a library that binds its own names first.) */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_NAMES 0
#else
#define OWN_NAMES RTLD_DEEPBIND
#endif

/* No code of NCCL's, which says so; the drop-in says who it is (nccl-tests-plugin/report.c). */
enum { WHO_IS_IT = 0x73796d6d };

/* NCCL reads it once, and its default is yes. */
static int registers(void) {
    const char *said = getenv("NCCL_GRAPH_REGISTER");
    return !said || !*said || strtol(said, NULL, 0) != 0;
}

/* 1: the library is a NCCL with all that is used. Closes what is none. */
static int take(void *handle, const char *path) {
    symm_nccl n;
    int all = 1;
    if (!handle) return 0;
#define LOOK_UP(name)      all &= (*(void **)(void *)&n.name = dlsym(handle, "p" #name)) != NULL;
#define CALL(name, params) LOOK_UP(name)
    SYMM_NCCL_CALLS(CALL)
    LOOK_UP(ncclGetErrorString)
    LOOK_UP(ncclGetLastError)
#undef CALL
#undef LOOK_UP
    if (!all || !strcmp(n.ncclGetErrorString(WHO_IS_IT), "symm")) {
        dlclose(handle);
        return 0;
    }
    calls = n;
    calls.registers = registers();
    snprintf(found, sizeof found, "%s", path);
    SYMM_INFO("messages between domains of GPUs go by the NCCL in %s", path);
    return 1;
}

static int open_at(const char *path) {
    return take(dlopen(path, RTLD_NOW | RTLD_LOCAL | OWN_NAMES), path);
}

static int see(struct dl_phdr_info *info, size_t size, void *arg) {
    loaded *l = arg;
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!file || l->n == SEEN || strncmp(file + 1, l->name, strlen(l->name))) return 0;
    snprintf(l->path[l->n++], PATH_BYTES, "%s", info->dlpi_name);
    return 0;
}

static int already_loaded(void) {
    seen.name = "libnccl.so", seen.n = 0;
    dl_iterate_phdr(see, &seen);
    for (int i = 0; i < seen.n; i++)
        if (take(dlopen(seen.path[i], RTLD_NOW | RTLD_NOLOAD), seen.path[i])) return 1;
    return 0;
}

/* Where pip puts it: site-packages/torch/lib and site-packages/nvidia/nccl/lib. */
static int beside_torch(void) {
    char path[PATH_BYTES + 64];
    seen.name = "libtorch", seen.n = 0;
    dl_iterate_phdr(see, &seen);
    if (!seen.n) return 0;
    *strrchr(seen.path[0], '/') = 0;
    snprintf(path, sizeof path, "%s/../../nvidia/nccl/lib/libnccl.so.2", seen.path[0]);
    return open_at(path);
}

/* By its name alone the loader may find the drop-in, which has it too. */
static int on_library_path(void) {
    const char *dirs = getenv("LD_LIBRARY_PATH");
    char path[PATH_BYTES];
    for (size_t n; dirs && *dirs; dirs += n + (dirs[n] == ':')) {
        n = strcspn(dirs, ":");
        snprintf(path, sizeof path, "%.*s/libnccl.so.2", (int)n, dirs);
        if (n && open_at(path)) return 1;
    }
    return open_at("libnccl.so.2");
}

/* 1: found. */
static int look(const char *named) {
    if (*named) {
        if (open_at(named)) return 1;
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "SYMM_NCCL_LIB=%.100s: %.250s", named,
                 why ? why : "it is symm itself, or no NCCL");
        return 0;
    }
    if (already_loaded() || beside_torch() || on_library_path()) return 1;
    snprintf(missing, sizeof missing,
             "none is loaded, beside libtorch or on the library path (SYMM_NCCL_LIB names one)");
    return 0;
}

symmResult_t symm_nccl_find(const char *named, const symm_nccl **out) {
    if (SYMM_FAIL_HERE(nccl_find))
        return SYMM_ERR(symmNotSupported, "GPUs of several domains need NCCL: none (a test)");
    pthread_mutex_lock(&lock);
    if (!looked) there = look(named);
    looked = 1;
    pthread_mutex_unlock(&lock);
    *out = &calls;
    return there ? symmSuccess
                 : SYMM_ERR(symmNotSupported, "GPUs of several domains need NCCL: %s", missing);
}

const char *symm_nccl_path(void) {
    return found;
}

symmResult_t symm_nccl_error(const symm_nccl *n, nccl_result code, const char *call) {
    if (!code) return symmSuccess;
    const char *last = n->ncclGetLastError(NULL);
    return SYMM_ERR(symmSystemError, "%s failed between domains: %s (%d)%s%.200s", call,
                    n->ncclGetErrorString(code), code, last && *last ? ": " : "", last ? last : "");
}

#ifdef SYMM_TESTING
void symm_nccl_inject(const symm_nccl *n) {
    looked = there = n != NULL;
    if (n) calls = *n;
    calls.registers = registers();
}
#endif
