/* real.c - a real NCCL in this process, for forwarded communicators and for the calls that are
 * NCCL's own (class forwarded in symbols.def). It is opened at the first of them, never before. Any
 * thread. Lock: held while it is looked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

enum { PATH_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int looked; /* 1, released: what follows does not change any more */
static nccl_calls calls;
static int there;
static char found[512];
static char missing[512]; /* why there is none */

/* ---- ourselves ------------------------------------------------------------------------------- */

/* Where an object of the loader begins; NULL if the address is in none. */
static const void *base_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

static int is_ours(void *handle) {
    const void *there = dlsym(handle, "ncclGetVersion");
    return there && base_of(there) == base_of((const void *)&ncclGetVersion);
}

/* 1: the library is a NCCL, and not this one. Closes what is neither. */
static int take(void *handle, const char *path) {
    if (!handle) return 0;
    if (is_ours(handle) || !dlsym(handle, "pncclGetVersion")) {
        dlclose(handle);
        return 0;
    }
#define SYMBOL(class, ret, name, params, args, why) \
    *(void **)(void *)&calls.name = dlsym(handle, "p" #name);
#include "symbols.def"
#undef SYMBOL
    there = 1;
    snprintf(found, sizeof found, "%s", path);
    return 1;
}

/* What it calls of its own by name must not be ours. (Sanitizers refuse such a library.) */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_NAMES 0
#else
#define OWN_NAMES RTLD_DEEPBIND
#endif
static int open_at(const char *path) {
    return take(dlopen(path, RTLD_NOW | RTLD_LOCAL | OWN_NAMES), path);
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* part of a file's name */
    char path[PATH_BYTES];
} loaded;

static int see(struct dl_phdr_info *info, size_t size, void *arg) {
    loaded *l = arg;
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!file || strncmp(file + 1, l->name, strlen(l->name))) return 0;
    if ((const void *)info->dlpi_addr == base_of((const void *)&ncclGetVersion)) return 0;
    snprintf(l->path, sizeof l->path, "%s", info->dlpi_name);
    return 1;
}

static int is_loaded(loaded *l) {
    return dl_iterate_phdr(see, l);
}

static int already_loaded(void) {
    loaded l = {.name = "libnccl.so"};
    return is_loaded(&l) && take(dlopen(l.path, RTLD_NOW | RTLD_NOLOAD), l.path);
}

/* Where pip puts it: site-packages/torch/lib and site-packages/nvidia/nccl/lib. */
static int beside_torch(void) {
    loaded l = {.name = "libtorch"};
    char path[PATH_BYTES + 64];
    if (!is_loaded(&l)) return 0;
    *strrchr(l.path, '/') = 0;
    snprintf(path, sizeof path, "%s/../../nvidia/nccl/lib/libnccl.so.2", l.path);
    return open_at(path);
}

/* By its name alone the loader finds us, who have it too. */
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

static void look(void) {
    symm_nccl_params p;
    if (symm_nccl_params_load(&p)) {
        snprintf(missing, sizeof missing, "%s", ncclGetLastError(NULL));
    } else if (*p.lib) {
        if (!open_at(p.lib)) {
            const char *why = dlerror();
            snprintf(missing, sizeof missing, "SYMM_NCCL_LIB=%s: %s", p.lib,
                     why ? why : "it is symm itself, or no NCCL");
        }
    } else if (!already_loaded() && !beside_torch() && !on_library_path()) {
        snprintf(missing, sizeof missing,
                 "no real NCCL is loaded, beside libtorch or on the library path (SYMM_NCCL_LIB "
                 "names one)");
    }
    if (there) symm_nccl_say(symmLogInfo, "drop-in: calls of NCCL's own go to %s", found);
}

/* ---- what the others ask --------------------------------------------------------------------- */

/* A real NCCL that calls us in turn would go round in circles, and so would two copies of us. */
_Thread_local int symm_nccl_inside_real;

const nccl_calls *symm_nccl_real(const char **why) {
    *why = symm_nccl_inside_real ? "the real NCCL calls it itself" : missing;
    if (symm_nccl_inside_real) return NULL;
    pthread_mutex_lock(&lock);
    if (!looked) look();
    /* Release: pairs with symm_nccl_real_calls. */
    atomic_store_explicit(&looked, 1, memory_order_release);
    pthread_mutex_unlock(&lock);
    return there ? &calls : NULL;
}

const nccl_calls *symm_nccl_real_calls(void) {
    /* Acquire: pairs with symm_nccl_real. */
    return LIKELY(atomic_load_explicit(&looked, memory_order_acquire)) ? &calls : NULL;
}

const char *symm_nccl_real_path(void) {
    return found;
}

const char *symm_nccl_real_lacks(const char *name) {
    static _Thread_local char text[sizeof found + 64];
    snprintf(text, sizeof text, "%s has no p%s", found, name);
    return text;
}

/* Looks only where nothing has to be opened: a program that asks for a version may need no NCCL. */
int symm_nccl_real_version(void) {
    const char *named = getenv("SYMM_NCCL_LIB"), *why;
    int version = 0;
    pthread_mutex_lock(&lock);
    if (!looked && !(named && *named) && already_loaded())
        atomic_store_explicit(&looked, 1, memory_order_release);
    const int none = !there && !(named && *named);
    pthread_mutex_unlock(&lock);
    if (none) return 0;
    const nccl_calls *real = symm_nccl_real(&why);
    NCCL_INSIDE_REAL;
    return real && real->ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
