/* comm_make.c - how a communicator comes to be: hello, mesh, space, control block, agreement. Runs on the thread inside the
 * creating call (or on a helper thread for non-blocking creation). Every step that may fail on one rank is followed by an exchange
 * that carries its status, so all ranks fail alike. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "../device/reduce.h"
#include "coll.h"
#include "comm.h"
#include "comm_create.h"
#include "exchange.h"
#include "fail.h"
#include "handle.h"
#include "log.h"
#include "plan.h"
#include "space.h"
#include "stats.h"
#include "watch.h"

#define HELLO_MAGIC 0x6d6d79736f6c6c65ull
#define MAX_CPUS    1024
#define REFUSE_NS   10000000000ull /* how long a rank that cannot go on tries to tell the others */

/* The first message between ranks. magic and version stand first and the size never changes, so that ranks built
 * differently understand at least that. */
typedef struct {
    uint64_t magic;
    uint32_t version, abi;
    uint64_t plan_hash, param_hash;
    symm_uuid process, host;
    uint64_t device_bytes, scratch;
    int32_t code, nranks;
    char text[200];
    uint64_t cpus[MAX_CPUS / 64];
} hello;

/* The second: what only matters once the ranks know they fit. Pointers are for thread ranks. */
typedef struct {
    symm_mesh_addr addr;
    uint64_t space_id, new_id;
    void *mesh_share, *space_share;
    int32_t code, pad;
    char text[200];
} greeting;

/* ---- this process --------------------------------------------------------------------------------------------------- */

static symm_uuid process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void fill_random(void *p, size_t n) {
    if (getrandom(p, n, 0) == (ssize_t)n) return;
    uint64_t seed[2] = {
        symm_now_ns(),
        (uint64_t)getpid()}; /* a kernel without it: unique is enough here, secret is not needed */
    memcpy(p, seed, n < sizeof seed ? n : sizeof seed);
}

static void make_process_id(void) {
    fill_random(&process_id, sizeof process_id);
}
static void renew_process_id(void) {
    make_process_id();
} /* a forked child is another process */

static void once(void) {
    make_process_id();
    pthread_atfork(NULL, NULL, renew_process_id);
    symm_reduce_init();
}

/* Ranks of one host must find the same one: where there is no descriptor to read it with, none is made up. */
static symmResult_t host_id(symm_uuid *out) {
    char text[64] = "";
    symm_uuid id = {0, 0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f && (errno == EMFILE || errno == ENFILE)) return SYMM_ERR(symmFdLimit, "no file descriptor left to identify the host: %m (ulimit -n)");
    if (f) {
        if (!fgets(text, sizeof text, f)) text[0] = 0;
        fclose(f);
    }
    if (!text[0]) gethostname(text, sizeof text - 1);
    for (const char *p = text; *p; p++) {
        id.hi = (id.hi ^ (unsigned char)*p) * 0x100000001b3ull;
        id.lo = id.lo * 31 + (unsigned char)*p;
    }
    *out = id;
    return symmSuccess;
}

/* ---- config and shell ------------------------------------------------------------------------------------------------ */

static symmResult_t check_range(const char *name, int v, int lo, int hi) {
    if (v == SYMM_CONFIG_UNDEF || (v >= lo && v <= hi)) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "config: %s=%d: must be %d to %d", name, v, lo, hi);
}

symmResult_t symm_config_check(const symmConfig_t *config, symmConfig_t *out) {
    symmConfig_t c = SYMM_CONFIG_INITIALIZER;
    if (config) {
        if (config->size < sizeof c)
            return SYMM_ERR(symmInvalidArgument,
                            "config: size=%zu: start from SYMM_CONFIG_INITIALIZER (%zu)",
                            config->size, sizeof c);
        c = *config;
        SYMM_TRY(check_range("blocking", c.blocking, 0, 1));
        SYMM_TRY(check_range("minCTAs", c.minCTAs, 1, SYMM_MAX_CTAS));
        SYMM_TRY(check_range("maxCTAs", c.maxCTAs, 1, SYMM_MAX_CTAS));
        SYMM_TRY(check_range("timeoutMs", c.timeoutMs, 1, INT32_MAX));
        if (c.minCTAs != SYMM_CONFIG_UNDEF && c.maxCTAs != SYMM_CONFIG_UNDEF &&
            c.minCTAs > c.maxCTAs)
            return SYMM_ERR(symmInvalidArgument, "config: minCTAs=%d is more than maxCTAs=%d",
                            c.minCTAs, c.maxCTAs);
    }
    *out = c;
    return symmSuccess;
}

static void handle_gone(void *obj) {
    symm_comm_unref(obj);
}

symmResult_t symm_comm_shell(const symmConfig_t *config, symm_comm **out) {
    static _Atomic int serial;
    symmConfig_t cfg;
    void *handle;
    SYMM_TRY(symm_config_check(config, &cfg));
    symm_comm *c = SYMM_FAIL_HERE(comm_alloc) ? NULL : calloc(1, sizeof *c);
    if (c) c->memos = calloc(SYMM_MEMOS, sizeof *c->memos);
    if (!c || !c->memos) {
        free(c);
        return SYMM_ERR(symmOutOfMemory, "no memory for a communicator");
    }
    c->version = 1;
    c->config = cfg;
    c->vmm = &symm_vmm_host;
    if (cfg.commName)
        snprintf(c->name, sizeof c->name, "%s", cfg.commName);
    else
        snprintf(c->name, sizeof c->name, "comm%d", atomic_fetch_add(&serial, 1));
    c->config.commName = c->name;
    pthread_mutex_init(&c->async_lock, NULL);
    atomic_store(&c->refs, 1);
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

/* ---- hello ------------------------------------------------------------------------------------------------------------- */

static symmResult_t prepare(symm_comm *c) {
    pthread_once(&process_once, once);
    SYMM_TRY(symm_param_load(&c->params));
    if (c->params.backend == 2)
        return SYMM_ERR(symmNotSupported, "SYMM_BACKEND=cuda: this build has no CUDA backend");
    SYMM_TRY(symm_plan_parse_algo(c->params.algo, c->forced));
    symm_vmm_host_hugepages((int)c->params.hugepages);
    int cu = c->vmm->query(&c->caps);
    if (cu) return symm_vmm_error(c->vmm, cu, "asking what the machine has");
    if (c->nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: one domain has at most %d ranks",
                        c->nranks, SYMM_MAX_RANKS);
    return symmSuccess;
}

static void fill_hello(symm_comm *c, symmResult_t status, hello *h) {
    cpu_set_t set;
    memset(h, 0, sizeof *h);
    if (!status) status = host_id(&h->host);
    h->magic = HELLO_MAGIC;
    h->version = SYMM_VERSION_CODE;
    h->abi = (uint32_t)(sizeof(symm_ctl) ^ (sizeof(symm_args) << 16) ^ sizeof(greeting));
    h->plan_hash = symm_plan_hash();
    h->param_hash = symm_param_hash(&c->params);
    h->process = process_id;
    h->device_bytes = c->caps.device_bytes;
    h->scratch = c->params.scratch;
    h->nranks = c->nranks;
    h->code = (int32_t)status;
    if (status) snprintf(h->text, sizeof h->text, "%s", symm_status_text());
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = 0; i < MAX_CPUS; i++)
            if (CPU_ISSET(i, &set)) h->cpus[i / 64] |= 1ull << (i % 64);
}

static symmResult_t compare_hello(int r, const hello *h, const hello *mine) {
    if (h->magic != mine->magic || h->version != mine->version)
        return SYMM_ERR(symmVersionMismatch, "rank %d runs symm %u.%u.%u, this rank %d.%d.%d", r,
                        h->version / 10000, h->version / 100 % 100, h->version % 100, SYMM_MAJOR,
                        SYMM_MINOR, SYMM_PATCH);
    if (h->abi != mine->abi || h->plan_hash != mine->plan_hash)
        return SYMM_ERR(symmVersionMismatch,
                        "rank %d was built with other records or another kernel table than rank 0 "
                        "(%016llx, %016llx)",
                        r, (unsigned long long)h->plan_hash, (unsigned long long)mine->plan_hash);
    if (h->nranks != mine->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d says nranks=%d, rank 0 says %d", r, h->nranks,
                        mine->nranks);
    if (h->param_hash != mine->param_hash)
        return SYMM_ERR(symmInvalidUsage,
                        "rank %d has other SYMM_ variables than rank 0 (those that decide kernels "
                        "and layout must agree: SYMM_ALGO, SYMM_CTAS, SYMM_DETERMINISTIC, "
                        "SYMM_SCRATCH, SYMM_WIN_STRIDE, SYMM_MULTICAST, SYMM_BACKEND)",
                        r);
    if (memcmp(&h->host, &mine->host, sizeof h->host))
        return SYMM_ERR(
            symmNotSupported,
            "rank %d runs on another host than rank 0: one communicator spans one memory domain",
            r);
    return symmSuccess;
}

/* Every rank looks at the same records in the same order, comparing with rank 0's, so all find the same first fault. */
static symmResult_t judge(const hello *all, int nranks) {
    for (int r = 0; r < nranks; r++)
        if (all[r].magic == HELLO_MAGIC && all[r].version == all[0].version && all[r].code)
            return SYMM_ERR((symmResult_t)all[r].code, "rank %d: %.*s", r, (int)sizeof all[r].text,
                            all[r].text);
    for (int r = 1; r < nranks; r++) SYMM_TRY(compare_hello(r, &all[r], &all[0]));
    return symmSuccess;
}

static int count_cores(const hello *all, int nranks) {
    int cores = 0;
    for (int i = 0; i < MAX_CPUS / 64; i++) {
        uint64_t any = 0;
        for (int r = 0; r < nranks; r++) any |= all[r].cpus[i];
        cores += __builtin_popcountll(any);
    }
    return cores;
}

static void learn(symm_comm *c, const hello *all) {
    c->threads = c->nranks > 1;
    c->stride = c->params.win_stride;
    for (int r = 0; r < c->nranks; r++) {
        if (memcmp(&all[r].process, &process_id, sizeof process_id)) c->threads = 0;
        if (!c->params.win_stride && all[r].device_bytes > c->stride)
            c->stride = all[r].device_bytes;
    }
    /* Whole GiB, and room beside the device's memory for control blocks. */
    if (!c->params.win_stride) c->stride = (c->stride + (5ull << 30) - 1) >> 30 << 30;
    c->stride = (c->stride + c->caps.granularity - 1) / c->caps.granularity * c->caps.granularity;
    c->oversubscribed = c->nranks > count_cores(all, c->nranks);
}

/* ---- greeting: mesh and space -------------------------------------------------------------------------------------------- */

static uint64_t control_bytes(const symm_comm *c) {
    uint64_t n = SYMM_CTL_BYTES + c->params.scratch, g = c->caps.granularity;
    return (n + g - 1) / g * g;
}

/* Thread ranks: rank 0 reserves for all, each rank maps its own control block there, once. */
static symmResult_t offer(symm_comm *c, const symm_uuid *members, greeting *g) {
    symmResult_t status = symmSuccess;
    fill_random(&g->new_id, sizeof g->new_id);
    g->new_id |= 1;
    SYMM_TRY(symm_mesh_listen(c->rank, c->nranks, c->threads, &g->addr, &c->mesh));
    if (!c->threads) {
        c->space = symm_space_find(members, c->nranks, c->rank);
        g->space_id = c->space ? c->space->id : 0;
        return symmSuccess;
    }
    if (c->rank) return symmSuccess;
    SYMM_TRY(symm_mesh_share(c->nranks, &g->mesh_share));
    c->stride = control_bytes(c);
    SYMM_TRY_GOTO(symm_space_create(c->vmm, c->caps.granularity, members, c->nranks, c->rank,
                                    c->stride, g->new_id, &c->space),
                  unshare);
    SYMM_TRY_GOTO(symm_slot_take(c->space, c->stride, 0, &c->control),
                  unshare);               /* unbuild drops the space */
    for (int r = 1; r < c->nranks; r++) { /* each peer adopts one of either */
        symm_space_ref(c->space);
        symm_slot_ref(c->space, c->control);
    }
    g->space_share = c->space;
    return symmSuccess;
unshare:
    symm_mesh_unshare(g->mesh_share);
    g->mesh_share = NULL;
    return status;
}

/* All found the same living space: share it. Else a new one on every rank. */
static symmResult_t take_space(symm_comm *c, const symm_uuid *members, const greeting *all) {
    int same = all[0].space_id != 0;
    if (c->threads) {
        c->space = all[0].space_share;
        c->control = c->space->slots; /* the only slot of thread ranks' space */
        c->stride = c->space->stride;
        return symmSuccess;
    }
    for (int r = 1; r < c->nranks; r++) same &= all[r].space_id == all[0].space_id;
    if (same) {
        c->stride = c->space->stride;
        return symmSuccess;
    }
    symm_space_drop(c->space);
    c->space = NULL;
    return symm_space_create(c->vmm, c->caps.granularity, members, c->nranks, c->rank, c->stride,
                             all[0].new_id, &c->space);
}

static symmResult_t judge_greetings(const symm_comm *c, const greeting *all) {
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code)
            return SYMM_ERR((symmResult_t)all[r].code, "rank %d: %.*s", r, (int)sizeof all[r].text,
                            all[r].text);
    return symmSuccess;
}

/* Nobody adopts what rank 0 of thread ranks has offered. */
static void withdraw(symm_comm *c, const greeting *mine) {
    if (!mine->space_share) return;
    for (int p = 1; p < c->nranks; p++) {
        symm_slot_drop(c->space, c->control);
        symm_space_drop(c->space);
    }
    symm_mesh_unshare(mine->mesh_share);
}

static symmResult_t trade_greetings(symm_comm *c, const greeting *mine, greeting *all) {
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    SYMM_TRY(symm_boot_allgather(c->boot, mine, all, sizeof *mine, &w));
    return judge_greetings(c, all);
}

/* How connecting went, through the bootstrap: a mesh that is half connected cannot tell everybody. A cause stands before its
 * consequences: that a peer had closed its door is believed only where nobody knows a better reason. */
static symmResult_t settle_mesh(symm_comm *c, symmResult_t status) {
    struct { int32_t code, pad; char text[200]; } mine = {.code = (int32_t)status}, all[SYMM_MAX_RANKS];
    int worst = -1;
    if (status) snprintf(mine.text, sizeof mine.text, "%s", symm_status_text());
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    SYMM_TRY(symm_boot_allgather(c->boot, &mine, all, sizeof mine, &w));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code && (worst < 0 || (all[worst].code == symmRemoteError && all[r].code != symmRemoteError))) worst = r;
    if (worst < 0) return symmSuccess;
    return SYMM_ERR((symmResult_t)all[worst].code, "rank %d: %.*s", worst, (int)sizeof mine.text, all[worst].text);
}

/* Once every greeting says yes: nothing may fail before the mesh step, in which the peers wait for this rank. */
static symmResult_t connect_ranks(symm_comm *c, const symm_uuid *members, const greeting *all) {
    symm_mesh_addr addrs[SYMM_MAX_RANKS];
    symmResult_t space =
        take_space(c, members, all); /* its status goes into the mesh's first agreement */
    for (int r = 0; r < c->nranks; r++) addrs[r] = all[r].addr;
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    SYMM_TRY(symm_mesh_connect(c->mesh, addrs, c->threads ? all[0].mesh_share : NULL, &w));
    w = symm_comm_wait(c, "creating a communicator");
    return symm_agree(c->mesh, space, &w, NULL);
}

static symmResult_t greet(symm_comm *c, const symm_uuid *members) {
    greeting mine = {.code = 0};
    greeting *all = calloc((size_t)c->nranks, sizeof *all);
    if (!all) return SYMM_ERR(symmOutOfMemory, "no memory to greet %d ranks", c->nranks);
    symmResult_t status = offer(c, members, &mine);
    mine.code = (int32_t)status;
    if (status) snprintf(mine.text, sizeof mine.text, "%s", symm_status_text());
    status = trade_greetings(c, &mine, all);
    if (status)
        withdraw(c, &mine);
    else
        status = connect_ranks(c, members, all);
    free(all);
    return status;
}

/* ---- control block ------------------------------------------------------------------------------------------------------- */

static symmResult_t control_threads(symm_comm *c, uint64_t bytes, symmResult_t status) {
    symm_vmm_handle *h = NULL;
    void *at = symm_space_addr(c->space, c->rank, 0);
    int cu = 0;
    if (!status && (cu = c->vmm->create(bytes, &h)))
        status = symm_vmm_error(c->vmm, cu, "making %llu bytes of control block and scratch",
                                (unsigned long long)bytes);
    if (!status && (cu = c->vmm->map(at, bytes, 0, h)))
        status = symm_vmm_error(c->vmm, cu, "mapping the control block");
    if (!status) {
        c->control->rank_bytes[c->rank] =
            bytes; /* from here on the slot unmaps it, when the last rank has dropped it */
        if ((cu = c->vmm->set_access(at, bytes)))
            status = symm_vmm_error(c->vmm, cu, "giving access to the control block");
    }
    if (h) c->vmm->release(h);
    c->base = c->space->base;
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    return symm_agree(c->mesh, status, &w, NULL);
}

static symmResult_t control_processes(symm_comm *c, uint64_t bytes, symmResult_t status) {
    int shared;
    symm_bring *b = calloc(1, sizeof *b);
    symm_brought *all = calloc((size_t)c->nranks, sizeof *all);
    if (!b || !all) status = SYMM_ERR(symmOutOfMemory, "no memory to create a communicator");
    int cu = status ? 0 : c->vmm->create(bytes, &b->handles[0]);
    if (cu)
        status = symm_vmm_error(c->vmm, cu, "making %llu bytes of control block and scratch",
                                (unsigned long long)bytes);
    if (!status) {
        *b = (symm_bring){.handles = {b->handles[0]}, .bytes = {bytes}, .count = 1, .total = bytes};
        fill_random(&b->id, sizeof b->id); /* found by nobody else */
        b->id |= 1;
    }
    if (b && all) {
        status = symm_exchange(c, status, b, "creating a communicator", all, &c->control, &shared);
        if (b->count) c->vmm->release(b->handles[0]);
    }
    if (!status) c->base = c->space->base + c->control->off;
    free(b);
    free(all);
    return status;
}

static void fill_proto(symm_comm *c) {
    symm_ctl *ctl = (symm_ctl *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride);
    ctl->magic = SYMM_CTL_MAGIC;
    __atomic_store_n(&ctl->state, SYMM_STATE_ALIVE,
                     __ATOMIC_RELEASE); /* pairs with the watchers' acquire */
    __atomic_store_n(&c->ctl, ctl,
                     __ATOMIC_RELEASE); /* pairs with the acquire in watch.c and comm.c */
    c->proto =
        (symm_args){.base = c->base,
                    .stride = c->stride,
                    .rank = c->rank,
                    .nranks = c->nranks,
                    .scratch = symm_plan_scratch(control_bytes(c) - SYMM_CTL_BYTES, c->nranks),
                    .timeout_ns = (uint64_t)c->params.timeout_ms * 1000000ull};
    int64_t spin = c->params.spin >= 0 ? c->params.spin : c->oversubscribed ? 48 : 1000;
    c->proto.spin = (uint32_t)(spin < 1 ? 1 : spin);
    c->proto.flags = c->oversubscribed ? SYMM_ARG_OVERSUBSCRIBED : 0;
}

/* ---- build ------------------------------------------------------------------------------------------------------------------ */

static symmResult_t say_hello(symm_comm *c, symm_uuid *members) {
    hello mine, *all = calloc((size_t)c->nranks, sizeof *all);
    symmResult_t status = prepare(c);
    if (!all) return SYMM_ERR(symmOutOfMemory, "no memory to meet %d ranks", c->nranks);
    fill_hello(c, status, &mine);
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    if (!c->params.setup_timeout_ms && c->config.timeoutMs == SYMM_CONFIG_UNDEF)
        w.deadline_ns = symm_now_ns() + REFUSE_NS; /* parameters were bad */
    status = symm_boot_allgather(c->boot, &mine, all, sizeof mine, &w);
    if (!status) status = judge(all, c->nranks);
    if (!status) learn(c, all);
    for (int r = 0; r < c->nranks; r++) {
        members[r] = all[r].process;
        members[r].lo ^=
            (uint64_t)(r + 1) * 0x9e3779b97f4a7c15ull; /* ranks of one process differ */
    }
    free(all);
    return status;
}

symmResult_t symm_comm_build(symm_comm *c, symm_boot *boot) {
    symm_uuid members[SYMM_MAX_RANKS];
    c->boot = boot;
    c->rank = boot->rank;
    c->nranks = boot->nranks;
    symm_log_rank(c->rank);
    if (c->nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: one domain has at most %d ranks",
                        c->nranks, SYMM_MAX_RANKS);
    SYMM_TRY(say_hello(c, members));
    SYMM_TRY(greet(c, members));
    symmResult_t status = symm_watch_start(
        c); /* the control block's agreement carries its status; the watcher needs c->base only after a death */
    uint64_t bytes = control_bytes(c);
    status = c->threads ? control_threads(c, bytes, status) : control_processes(c, bytes, status);
    if (!status) fill_proto(c);
    if (!status && SYMM_FAIL_HERE(comm_ctl))
        status = SYMM_ERR(symmSystemError, "failpoint comm_ctl");
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    if (c->ctl)
        status = symm_agree(c->mesh, status, &w,
                            NULL); /* without it, all ranks have agreed to fail already */
    SYMM_TRY(status);
    SYMM_TRY(symm_comm_async(
        c)); /* a death that the watcher saw before there was an abort word to set */
    symm_boot_mesh_rehome(c->boot, c->mesh);
    SYMM_INFO("communicator %s: rank %d of %d, host backend, %s, bootstrap %s%s", c->name, c->rank,
              c->nranks, c->threads ? "thread ranks" : "processes", c->boot->ops->name,
              c->oversubscribed ? ", more ranks than cores" : "");
    atomic_store_explicit(&c->state, SYMM_COMM_LIVE, memory_order_release);
    return symmSuccess;
}

void symm_comm_unbuild(symm_comm *c) {
    symm_watch_stop(c);
    symm_mesh_close(c->mesh);
    c->mesh = NULL;
    symm_boot_close(c->boot);
    c->boot = NULL;
    c->ctl = NULL;
    if (c->control) symm_slot_drop(c->space, c->control);
    c->control = NULL;
    symm_space_drop(c->space);
    c->space = NULL;
}

/* ---- open -------------------------------------------------------------------------------------------------------------------- */

static void drop_handle(symm_comm *c) {
    symm_handle_close(SYMM_KIND_COMM, c->handle);
    symm_handle_put(SYMM_KIND_COMM, c->handle);
}

/* This rank has no communicator to build: its hello says why, so that all ranks fail alike rather than wait for it. */
static symmResult_t refuse(symm_boot *boot, symmResult_t status) {
    hello mine = {.magic = HELLO_MAGIC, .version = SYMM_VERSION_CODE, .code = (int32_t)status};
    hello *all = calloc((size_t)boot->nranks, sizeof *all);
    char own[SYMM_ERR_TEXT];
    snprintf(own, sizeof own, "%s", symm_status_text());
    snprintf(mine.text, sizeof mine.text, "%.199s", own);
    symm_wait w = {.deadline_ns = symm_now_ns() + REFUSE_NS, .stage = "creating a communicator"};
    symmResult_t r = all ? symm_boot_allgather(boot, &mine, all, sizeof mine, &w) : status;
    if (!r)
        r = judge(all, boot->nranks);
    else
        symm_status_adopt(own);
    free(all);
    symm_boot_close(boot);
    return r ? r : status;
}

symmResult_t symm_comm_open(symm_boot *boot, const symmConfig_t *config, symmComm_t *out) {
    symm_comm *c;
    symm_log_rank(boot->rank);
    symmResult_t r =
        out ? symm_comm_shell(config, &c) : SYMM_ERR(symmInvalidArgument, "comm is NULL");
    if (r) return refuse(boot, r);
    r = symm_comm_build(c, boot);
    if (r) {
        drop_handle(c);
        return r;
    }
    *out = c->handle;
    return symmSuccess;
}

symmResult_t symm_comm_create(struct symm_boot *boot, const symmConfig_t *config,
                              symmComm_t *comm) {
    return symm_comm_open(boot, config, comm);
}

/* ---- open behind ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    symm_comm *c;
    symm_meeting at;
} making;

static symmResult_t meet_and_build(symm_comm *c, const symm_meeting *at) {
    symm_boot *boot;
    symm_params params;
    symm_log_rank(at->rank);
    symmResult_t bad =
        symm_param_load(&params); /* goes on to the hello, so that all ranks hear of it */
    c->params.setup_timeout_ms = bad ? 300000 : params.setup_timeout_ms;
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    SYMM_TRY(symm_boot_tcp_open(&at->id, at->rank, at->nranks, &w, &boot));
    return symm_comm_build(c, boot);
}

/* Failed: symmCommGetAsyncError tells, destroy cleans up. */
static void *make_behind(void *arg) {
    making m = *(making *)arg;
    free(arg);
    symmResult_t r = meet_and_build(m.c, &m.at);
    if (r) symm_comm_fail(m.c, r, -1, symm_status_text());
    if (r) atomic_store_explicit(&m.c->state, SYMM_COMM_LIVE, memory_order_release);
    symm_comm_unref(m.c);
    SYMM_STAT_ADD(threads, -1);
    return NULL;
}

static symmResult_t start_behind(symm_comm *c, const symm_meeting *at) {
    pthread_t t;
    making *m = malloc(sizeof *m);
    if (!m) return SYMM_ERR(symmOutOfMemory, "no memory to create a communicator");
    *m = (making){c, *at};
    symm_comm_ref(c); /* the thread's */
    SYMM_STAT_ADD(threads, 1);
    int e = pthread_create(&t, NULL, make_behind, m);
    if (!e) {
        pthread_detach(t);
        return symmSuccess;
    }
    SYMM_STAT_ADD(threads, -1);
    free(m);
    symm_comm_unref(c);
    return SYMM_ERR(symmSystemError, "cannot start a thread for non-blocking creation: %s",
                    strerror(e));
}

static symmResult_t open_behind(const symm_meeting *at, const symmConfig_t *config,
                                symmComm_t *out) {
    symm_comm *c;
    SYMM_TRY(symm_comm_shell(config, &c));
    c->rank = at->rank;
    c->nranks = at->nranks;
    symmComm_t handle =
        c->handle; /* the thread may be done, and the user's abort as well, before this one goes on */
    symmResult_t r = start_behind(c, at);
    if (r) {
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
    /* What is wrong here goes on to the hello, so that all ranks hear of it; it is found again there. */
    int ms = symm_param_load(&params) ? 300000 : (int)params.setup_timeout_ms;
    if (!bad && checked.timeoutMs != SYMM_CONFIG_UNDEF && config) ms = checked.timeoutMs;
    symm_wait w = {.deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000ull,
                   .stage = "creating a communicator"};
    SYMM_TRY(symm_boot_tcp_open(&at->id, at->rank, at->nranks, &w, &boot));
    return symm_comm_open(boot, config, out);
}
