/* comm_open.c - shell, and the functions that make a communicator, in the call or in
 * another thread. Runs on the caller's thread; non-blocking creation on a helper thread of its own.
 * No lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/coll/coll.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/backend.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap_int.h"
#include "host/launch/launch.h"
#include "transport/cuda/cuda_device.h"
#include "comm_create.h"
#include "comm_make.h"

/* ---- shell ----------------------------------------------------------------------------------- */

static void handle_gone(void *obj) {
    symm_comm_unref(obj);
}

symmResult_t symm_comm_shell(const symmConfig_t *config, symm_comm **out) {
    static _Atomic int serial;
    symmConfig_t cfg;
    void *handle;
    symm_gpu_reap();
    SYMM_TRY(symm_config_check(config, &cfg));
    symm_comm *c = SYMM_FAIL_HERE(comm_alloc) ? NULL : calloc(1, sizeof *c);
    if (c) c->calls.memos = SYMM_FAIL_ALLOC(comm_memos, calloc(SYMM_MEMOS, sizeof *c->calls.memos));
    if (c)
        c->calls.tallies =
            SYMM_FAIL_ALLOC(comm_tallies, calloc((size_t)SYMM_MAX_RANKS * SYMM_SIGNAL_WORDS,
                                                 sizeof *c->calls.tallies));
    if (!c || !c->calls.memos || !c->calls.tallies) {
        if (c) free(c->calls.memos);
        if (c) free(c->calls.tallies);
        free(c);
        return SYMM_ERR(symmOutOfMemory, "no memory for a communicator");
    }
    c->windows.version = 1;
    c->config = cfg;
    c->vmm = &symm_vmm_host;
    c->launcher = &symm_launch_host;
    c->source = &symm_heap_windows;
    c->idle = symm_launch_idle;
    c->entry.undo = symm_comm_unbuild;
    if (cfg.commName)
        snprintf(c->name, sizeof c->name, "%s", cfg.commName);
    else
        snprintf(c->name, sizeof c->name, "comm%d", atomic_fetch_add(&serial, 1));
    c->config.commName = c->name;
    pthread_mutex_init(&c->entry.turn, NULL);
    pthread_mutex_init(&c->failure.lock, NULL);
    pthread_mutex_init(&c->heaps.lock, NULL);
    pthread_mutex_init(&c->heaps.size_lock, NULL);
    atomic_store(&c->entry.refs, 1);
    SYMM_STAT_ADD(comms, 1);
    symmResult_t r = symm_handle_new(SYMM_KIND_COMM, c, handle_gone, &handle);
    if (r) {
        symm_comm_unref(c);
        return r;
    }
    c->handle = handle;
    *out = c;
    return symmSuccess;
}

/* ---- open ------------------------------------------------------------------------------------ */

static void drop_handle(symm_comm *c) {
    symm_handle_close(SYMM_KIND_COMM, c->handle);
    symm_handle_put(SYMM_KIND_COMM, c->handle);
}

static symmResult_t open_from(const symm_origin *from, symm_boot *boot, const symmConfig_t *config,
                              symmComm_t *out) {
    symm_comm *c;
    symm_log_rank(boot->rank);
    symmResult_t r =
        out ? symm_comm_shell(config, &c) : SYMM_ERR(symmInvalidArgument, "comm is NULL");
    if (r) return symm_comm_refuse(boot, r);
    c->config.blocking =
        1; /* communicators made from it without a config are made in the call too */
    r = symm_comm_build(c, boot, from);
    if (r) drop_handle(c);
    if (!r || r == SYMM_ELSEWHERE) *out = r ? NULL : c->handle;
    return r == SYMM_ELSEWHERE ? symmSuccess : r;
}

symmResult_t symm_comm_open(symm_boot *boot, const symmConfig_t *config, symmComm_t *out) {
    return open_from(&(symm_origin){.parent = NULL}, boot, config, out);
}

symmResult_t symm_comm_open_from(const symm_origin *from, symm_boot *boot,
                                 const symmConfig_t *config, symmComm_t *out) {
    symm_cuda_scope scope;
    symmResult_t r = from->context ? symm_cuda_push_context(from->context, &scope) : symmSuccess;
    if (r) return symm_comm_refuse(boot, r);
    r = open_from(from, boot, config, out);
    if (from->context) symm_cuda_pop(&scope);
    return r;
}

symmResult_t symm_comm_build_from(const symm_origin *from, symm_boot *boot, symm_comm *c) {
    symm_cuda_scope scope;
    symmResult_t r = from->context ? symm_cuda_push_context(from->context, &scope) : symmSuccess;
    if (r) return symm_comm_refuse(boot, r);
    r = symm_comm_build(c, boot, from);
    if (from->context) symm_cuda_pop(&scope);
    if (r != SYMM_ELSEWHERE) return r;
    symm_status_adopt("the ranks have settled to do without a communicator");
    return symmInvalidUsage; /* of use to nobody: no line in the log */
}

symmResult_t symm_comm_create(struct symm_boot *boot, const symmConfig_t *config,
                              symmComm_t *comm) {
    return symm_comm_open(boot, config, comm);
}

symmResult_t symm_comm_refuse_numbers(const symmUniqueId_t *id, int rank, int nranks,
                                      symmResult_t status) {
    symm_boot_tcp_refuse_numbers(id, rank, nranks);
    return symm_group_refuse(status);
}

symmResult_t symm_comm_refuse_rank(const symmUniqueId_t *id, int rank, int nranks,
                                   symmResult_t status) {
    symm_boot_tcp_refuse(id, rank, nranks);
    return symm_group_refuse(status);
}

/* ---- open in another thread
 * ----------------------------------------------------------------------- */

typedef struct {
    symm_comm *c;
    symm_meeting at;
} making;

static symmResult_t meet_and_build(symm_comm *c, const symm_meeting *at) {
    symm_boot *boot;
    symm_params params;
    symm_log_rank(at->rank);
    symmResult_t bad = symm_param_load(&params); /* the hello tells it to all ranks */
    c->params.setup_timeout_ms = bad ? 300000 : params.setup_timeout_ms;
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    symm_comm_making(c, "waiting for the ranks to come");
    c->exchange.parent = at->from.parent; /* for that wait */
    c->exchange.outlives = at->from.outlives;
    bad = symm_boot_tcp_open(&at->id, at->rank, at->nranks, &w, &boot);
    c->exchange.parent = NULL;
    SYMM_TRY(bad);
    boot->meet = at->meet;
    return symm_comm_build_from(&at->from, boot, c);
}

/* After a failure symmCommGetAsyncError returns it, and symmCommDestroy cleans up. */
static void *make_behind(void *arg) {
    making m = *(making *)arg;
    free(arg);
    symmResult_t r = meet_and_build(m.c, &m.at);
    if (r) symm_comm_fail(m.c, r, -1, symm_status_text());
    if (r) atomic_store_explicit(&m.c->entry.state, SYMM_COMM_LIVE, memory_order_release);
    symm_comm_unref(m.c);
    if (m.at.from.parent) symm_comm_unref(m.at.from.parent);
    if (m.at.meet.release) m.at.meet.release(m.at.meet.ctx);
    symm_stat_threads(-1);
    return NULL;
}

static symmResult_t start_behind(symm_comm *c, const symm_meeting *at) {
    pthread_t t;
    making *m = SYMM_FAIL_ALLOC(behind_alloc, malloc(sizeof *m));
    if (!m) return SYMM_ERR(symmOutOfMemory, "no memory to create a communicator");
    *m = (making){c, *at};
    if (!m->at.from.context) m->at.from.context = symm_backend_context();
    symm_comm_ref(c); /* the thread's */
    if (at->from.parent) symm_comm_ref(at->from.parent);
    symm_stat_threads(1);
    int e = SYMM_FAIL_CODE(behind_thread, EAGAIN, pthread_create(&t, NULL, make_behind, m));
    if (!e) {
        pthread_detach(t);
        return symmSuccess;
    }
    symm_stat_threads(-1);
    free(m);
    if (at->from.parent) symm_comm_unref(at->from.parent);
    symm_comm_unref(c);
    return SYMM_ERR(symmSystemError, "cannot start a thread for non-blocking creation: %s",
                    strerror(e));
}

static symmResult_t open_behind(const symm_meeting *at, const symmConfig_t *config,
                                symmComm_t *out) {
    symm_comm *c;
    symmResult_t r = symm_comm_shell(config, &c);
    if (r) {
        symm_boot_tcp_refuse(&at->id, at->rank, at->nranks);
        return r;
    }
    c->rank = at->rank;
    c->nranks = at->nranks;
    symmComm_t handle =
        /* the thread may be done, and the communicator aborted, before this one goes on */
        c->handle;
    r = start_behind(c, at);
    if (r) {
        symm_boot_tcp_refuse(&at->id, at->rank, at->nranks);
        drop_handle(c);
        return r;
    }
    *out = handle;
    return symmInProgress;
}

symmResult_t symm_comm_open_tcp(const symm_meeting *at, const symmConfig_t *config,
                                symmComm_t *out) {
    symm_boot *boot;
    symm_params params;
    symmConfig_t checked;
    symmResult_t bad = symm_config_check(config, &checked);
    if (!bad && out && checked.blocking == 0) return open_behind(at, config, out);
    /* An error here is found again in the hello, which tells it to all ranks. */
    int ms = symm_param_load(&params) ? 300000 : (int)params.setup_timeout_ms;
    if (!bad && checked.timeoutMs != SYMM_CONFIG_UNDEF && config) ms = checked.timeoutMs;
    symm_wait w = {.deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000ull,
                   .stage = "creating a communicator",
                   .check = at->from.parent ? symm_comm_check_parent : NULL,
                   .arg = at->from.parent};
    SYMM_TRY(symm_boot_tcp_open(&at->id, at->rank, at->nranks, &w, &boot));
    boot->meet = at->meet;
    return symm_comm_open_from(&at->from, boot, config, out);
}
