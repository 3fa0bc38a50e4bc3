/* real.c - a real NCCL in this process, for forwarded communicators and for the calls that are
 * NCCL's own (class forwarded in symbols.def). It is opened at the first of them, never before;
 * symm_nccl.h says where it is looked for. Any thread. Lock: held while it is looked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin.h"
#include "symm_nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int looked; /* 1, released: what follows does not change any more */
static nccl_calls calls;
static int there;
static char found[512]; /* its file, or why there is none */

static void take(void *library) {
#define SYMBOL(class, ret, name, params, args, why) \
    *(void **)(void *)&calls.name = dlsym(library, "p" #name);
#include "symbols.def"
#undef SYMBOL
    there = 1;
}

static int already_loaded(void) {
    void *library;
    if (!symmNcclOpen(NULL, 1, &library, found, sizeof found)) take(library);
    return there;
}

static void look(void) {
    symm_nccl_params p;
    void *library;
    if (symm_nccl_params_load(&p))
        snprintf(found, sizeof found, "%s", ncclGetLastError(NULL));
    else if (symmNcclOpen(p.lib, 0, &library, found, sizeof found))
        snprintf(found, sizeof found, "%s", symmGetLastError(NULL));
    else
        take(library);
    if (there) symm_nccl_say(symmLogInfo, "drop-in: calls of NCCL's own go to %s", found);
}

/* ---- what the others ask --------------------------------------------------------------------- */

/* A real NCCL that calls us in turn would go round in circles, and so would two copies of us. */
_Thread_local int symm_nccl_inside_real;

const nccl_calls *symm_nccl_real(const char **why) {
    *why = symm_nccl_inside_real ? "the real NCCL calls it itself" : found;
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
