/* enter.c - making a communicator of the real NCCL, on a thread of its own: it may wait there for a
 * rank that has failed, and cannot be called back. Runs on the thread that makes a communicator,
 * and on one for each that is being made. Lock: one for each entry. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"

/* ---- a thread -------------------------------------------------------------------------------- */

struct nccl_entry {
    pthread_mutex_t lock; /* all that follows but `how`, which does not change */
    int done, left;       /* left: nobody waits for it any more */
    ncclResult_t code;
    char text[160];
    ncclComm_t comm;
    nccl_entering how;
};

static void free_entry(nccl_entry *e) {
    symm_nccl_kept_drop(e->how.config);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static int is_left(nccl_entry *e) {
    pthread_mutex_lock(&e->lock);
    const int left = e->left;
    pthread_mutex_unlock(&e->lock);
    return left;
}

/* One that does not block goes on behind the call. */
static ncclResult_t make(nccl_entry *e, const nccl_calls *real, ncclComm_t *comm) {
    const nccl_entering *h = &e->how;
    const struct timespec nap = {0, 500000};
    ncclResult_t r = real->ncclCommInitRankConfig(comm, h->nranks, h->id, h->rank,
                                                  symm_nccl_kept_config(h->config));
    for (ncclResult_t now = r; r == ncclInProgress && !is_left(e); r = now) {
        nanosleep(&nap, NULL);
        const ncclResult_t asked = real->ncclCommGetAsyncError(*comm, &now);
        if (asked) now = asked;
    }
    return r;
}

static void *enter(void *arg) {
    nccl_entry *e = arg;
    const nccl_calls *real = symm_nccl_real_calls();
    ncclComm_t comm = NULL;
    NCCL_INSIDE_REAL;
    const symmResult_t set = e->how.device >= 0 ? symmSetDevice(e->how.device) : symmSuccess;
    const ncclResult_t r = set ? ncclUnhandledCudaError : make(e, real, &comm);
    const char *text = set                      ? symmGetLastError(NULL)
                       : real->ncclGetLastError ? real->ncclGetLastError(NULL)
                                                : "";
    if (r && comm) real->ncclCommAbort(comm);
    pthread_mutex_lock(&e->lock);
    e->code = r;
    if (r)
        snprintf(e->text, sizeof e->text, "the real NCCL says: %.120s",
                 text && *text ? text : "nothing");
    e->comm = r ? NULL : comm;
    e->done = 1;
    const int left = e->left;
    pthread_mutex_unlock(&e->lock);
    if (left) symm_nccl_entry_end(e, 0);
    return NULL;
}

ncclResult_t symm_nccl_entry_begin(const nccl_entering *how, nccl_entry **out) {
    pthread_t thread;
    pthread_attr_t attr;
    nccl_entry *e = calloc(1, sizeof *e);
    if (!e) return symm_nccl_fail(ncclSystemError, "no memory to make a communicator");
    pthread_mutex_init(&e->lock, NULL);
    e->how = *how;
    symm_nccl_kept_ref(how->config);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    const int err = pthread_create(&thread, &attr, enter, e);
    pthread_attr_destroy(&attr);
    if (err) {
        free_entry(e);
        return symm_nccl_fail(ncclSystemError, "cannot start a thread for the real NCCL: %s",
                              strerror(err));
    }
    *out = e;
    return ncclSuccess;
}

int symm_nccl_entry_done(nccl_entry *e, ncclResult_t *code, char *text, size_t cap) {
    pthread_mutex_lock(&e->lock);
    const int done = e->done;
    *code = e->code;
    snprintf(text, cap, "%s", e->text);
    pthread_mutex_unlock(&e->lock);
    return done;
}

ncclComm_t symm_nccl_entry_end(nccl_entry *e, int kept) {
    pthread_mutex_lock(&e->lock);
    const int done = e->done;
    const ncclComm_t comm = e->comm;
    e->left = 1;
    pthread_mutex_unlock(&e->lock);
    if (!done) return NULL; /* its thread ends it */
    NCCL_INSIDE_REAL;
    if (comm && !kept) symm_nccl_real_calls()->ncclCommAbort(comm);
    free_entry(e);
    return kept ? comm : NULL;
}
