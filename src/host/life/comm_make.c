/* comm_make.c - making a communicator: hello, mesh, space, control block, agreement. Runs on the
 * thread inside the creating call; for non-blocking creation on a helper thread. Every step that
 * may fail on one rank is followed by an exchange that carries its status, so all ranks fail with
 * the same error. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "device/common/kernels.h"
#include "host/coll/plan.h"
#include "host/comm/comm.h"
#include "host/comm/driver.h"
#include "host/comm/pages.h"
#include "host/comm/watch.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap_int.h"
#include "host/launch/launch.h"
#include "host/window/exchange.h"
#include "host/window/multicast.h"
#include "host/window/space.h"
#include "machine/cache_info.h"
#include "machine/fd_closer.h"
#include "transport/vmm/multicast_driver.h"
#include "comm_make.h"

#ifdef SYMM_TESTING
/* For tests: kernels tell each other what they tell those of other hosts. */
int symm_test_apart;
#define APART symm_test_apart
#else
#define APART 0
#endif

/* ---- greeting: mesh and space ---------------------------------------------------------------- */

static uint64_t control_bytes(const symm_comm *c) {
    uint64_t n = SYMM_CTL_BYTES + c->params.scratch, g = c->caps.granularity;
    return (n + g - 1) / g * g;
}

/* This rank's GPU must reach, over NVLink, all GPUs of the other ranks that this process sees. For
 * those that it does not see, mapping their memory shows it. If one rank sees a pair that does not
 * fit, its greeting makes creation fail on all. */
static symmResult_t open_gpu(symm_comm *c) {
    for (int d = 0; d < SYMM_CUDA_MAX_DEVICES; d++) {
        if (!(c->gpus.seen >> d & 1)) continue;
        SYMM_TRY(symm_cuda_reach(c->caps.device, d));
        SYMM_TRY(symm_cuda_joined(c->caps.device, d));
    }
    SYMM_TRY(symm_gpu_new(&c->gpu));
    SYMM_TRY(symm_gpu_load(c));
    return symm_launch_open(c);
}

/* Done while creation can still be refused: nothing may fail in leave_meeting. */
static symmResult_t prepare_boot(symm_comm *c) {
    int all[SYMM_MAX_RANKS];
    if (!c->exchange.boot->ops->meets_only) return symmSuccess;
    for (int r = 0; r < c->nranks; r++) all[r] = r;
    return symm_boot_mesh_open(c->mesh, all, c->nranks, c->rank, &c->exchange.over_mesh);
}

/* The mesh is connected on all ranks: the bootstrap goes on over it, as what the ranks settle
 * does. */
static void leave_meeting(symm_comm *c) {
    if (!c->exchange.over_mesh) return;
    c->exchange.over_mesh->meet = c->exchange.boot->meet;
    symm_boot_close(c->exchange.boot);
    c->exchange.boot = c->exchange.over_mesh;
    c->exchange.over_mesh = NULL;
}

static int mesh_kind(const symm_comm *c) {
    if (c->threads) return SYMM_MESH_THREADS;
    return c->hosts > 1 ? SYMM_MESH_TCP : SYMM_MESH_UNIX;
}

static symmResult_t offer(symm_comm *c, const symm_uuid *members, symm_greeting *g) {
    symm_random_fill(&g->new_id, sizeof g->new_id);
    g->multicast = symm_multicast_wish(c, g->text, sizeof g->text);
    g->new_id |= 1;
    symm_comm_reach_offer(c, g);
    if (c->cuda && !c->threads && c->nranks > 1 && !c->caps.fd_handles && !c->fabric)
        return SYMM_ERR(symmNotSupported,
                        "GPU %d makes no memory that other processes can map: its driver gives no "
                        "file descriptors for it, and not every rank has fabric handles",
                        c->caps.device);
    if (c->cuda) SYMM_TRY(open_gpu(c));
    SYMM_TRY(symm_mesh_listen(c->rank, c->nranks, mesh_kind(c),
                              c->params.ifname[0] ? c->params.ifname : NULL, &g->addr, &c->mesh));
    symm_mesh_patience(c->mesh, (int)c->params.host_timeout_ms);
    symm_sizes_listen(c);
    SYMM_TRY(prepare_boot(c));
    if (!c->threads) {
        c->space = symm_space_find(members, c->nranks, c->rank);
        g->space_id = c->space ? c->space->id : 0;
        return symmSuccess;
    }
    return c->rank ? symmSuccess
                   : symm_comm_share(c, members, control_bytes(c), g->new_id, &g->share);
}

/* Windows are bound for multicast where every rank can have that. */
static void settle_multicast(symm_comm *c, const symm_greeting *all) {
    int no = -1;
    for (int r = c->nranks - 1; r >= 0; r--)
        if (!all[r].multicast) no = r;
    c->windows.multicast = no < 0;
    if (no < 0) return;
    snprintf(c->windows.no_multicast, sizeof c->windows.no_multicast, "rank %d: %.*s", no,
             SYMM_MULTICAST_WHY - 20, all[no].text);
}

/* If all ranks found the same living space, they share it. Else every rank makes a new one. */
static symmResult_t take_space(symm_comm *c, const symm_uuid *members, const symm_greeting *all) {
    int same = all[0].space_id != 0;
    for (int r = 1; r < c->nranks; r++) same &= all[r].space_id == all[0].space_id;
    c->exchange.shares_space = same;
    if (same) {
        c->stride = c->space->stride;
        return symmSuccess;
    }
    symm_space_drop(c->space);
    c->space = NULL;
    return symm_space_create(c->vmm, c->caps.granularity, members, c->nranks, c->rank, c->stride,
                             all[0].new_id, &c->space);
}

static symmResult_t judge_greetings(const symm_comm *c, const symm_greeting *all) {
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code)
            return SYMM_ERR((symmResult_t)all[r].code, "rank %d: %.*s", r, (int)sizeof all[r].text,
                            all[r].text);
    return symmSuccess;
}

static symmResult_t trade_greetings(symm_comm *c, const symm_greeting *mine, symm_greeting *all) {
    symm_wait w = symm_comm_wait_early(c, "creating a communicator");
    SYMM_TRY(symm_boot_allgather(c->exchange.boot, mine, all, sizeof *mine, &w));
    return judge_greetings(c, all);
}

/* After every greeting was positive. Nothing may return before the mesh step, in which the peers
 * wait for this rank. */
static symmResult_t connect_ranks(symm_comm *c, const symm_uuid *members,
                                  const symm_greeting *all) {
    symm_mesh_addr addrs[SYMM_MAX_RANKS];
    void *mailboxes = NULL;
    symmResult_t space =
        c->threads ? symm_comm_adopt(c, all[0].share, &mailboxes) : take_space(c, members, all);
    settle_multicast(c, all);
    for (int r = 0; r < c->nranks; r++) addrs[r] = all[r].addr;
    symmResult_t mesh = space && c->threads ? space : symm_comm_connect(c, addrs, mailboxes);
    const symm_reached none = {0, 0};
    const symmResult_t status = mesh ? mesh : space;
    return symm_comm_connected(c, status, status ? none : symm_comm_reach_try(c, all));
}

static symmResult_t greet(symm_comm *c, const symm_uuid *members) {
    symm_greeting mine = {.code = 0};
    symm_greeting
        all[SYMM_MAX_RANKS]; /* not allocated: a rank without memory could not tell the others */
    symmResult_t status = offer(c, members, &mine);
    mine.code = (int32_t)status;
    if (status) snprintf(mine.text, sizeof mine.text, "%s", symm_status_text());
    status = trade_greetings(c, &mine, all);
    if (!status) status = connect_ranks(c, members, all);
    symm_comm_unshare(mine.share); /* if there was no error, all have it */
    return status;
}

/* ---- control block --------------------------------------------------------------------------- */

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
        c->control.slot->rank_bytes[c->rank] =
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
    symm_brought all[SYMM_MAX_RANKS]; /* neither allocated, as above */
    symm_vmm_handle *handle = NULL;
    symm_part part = {0, bytes};
    symm_bring b = {.handles = &handle, .parts = &part};
    int cu = status ? 0 : c->vmm->create(bytes, &handle);
    if (cu)
        status = symm_vmm_error(c->vmm, cu, "making %llu bytes of control block and scratch",
                                (unsigned long long)bytes);
    if (!status) {
        b.total = bytes;
        b.count = 1;
        symm_random_fill(&b.id, sizeof b.id); /* found by nobody else */
        b.id |= 1;
    }
    status =
        symm_exchange(c, status, &b, "creating a communicator", all, &c->control.slot, &shared);
    if (b.count) c->vmm->release(handle);
    if (!status) c->base = c->space->base + c->control.slot->off;
    return status;
}

/* GPUs: rank 0 sends one descriptor of pages to every rank. */
static symmResult_t trade_pages(symm_comm *c, int *fd, const symm_wait *w) {
    uint64_t bytes = (uint64_t)c->nranks * SYMM_PAGE_STRIDE;
    size_t got = 0;
    if (c->rank)
        return symm_mesh_recv(c->mesh, 0, SYMM_MSG_HANDLES, &bytes, sizeof bytes, &got, fd, 1, w);
    for (int p = 1; p < c->nranks; p++)
        SYMM_TRY(symm_mesh_send(c->mesh, p, SYMM_MSG_HANDLES, &bytes, sizeof bytes, fd, 1, w));
    return symmSuccess;
}

static symmResult_t share_pages(symm_comm *c) {
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    int fd = -1;
    if (!c->cuda || c->control.pages) return symmSuccess;
    if (c->hosts > 1 || APART) /* each its own: kernels tell each other by symm_gpu_ctl.far */
        return symm_agree(c->mesh, symm_pages_new(c->nranks, NULL, &c->control.pages), &w, NULL);
    symmResult_t status = c->rank ? symmSuccess : symm_pages_new(c->nranks, &fd, &c->control.pages);
    status = symm_agree(c->mesh, status, &w, NULL);
    if (!status) status = trade_pages(c, &fd, &w);
    if (!status && c->rank) status = symm_pages_map(c->nranks, fd, &c->control.pages);
    if (fd >= 0) {
        close(fd);
        SYMM_STAT_ADD(fds, -1);
    }
    return status;
}

/* Grids were made smaller so that kernels of several communicators fit side by side. With
 * overlapping launches a waiting successor would occupy the room that the others count on. */
static int is_cut(const symm_comm *c) {
    return c->config.maxCTAs > 0 || c->params.ctas > 0;
}

/* 1: no kernel, ours or the program's, may be launched before the end of one that waits for
 * peers. */
static int goes_apart(const symm_comm *c) {
    return c->gpus.shared || is_cut(c) || c->config.pdl == 0;
}

/* Clears the control block, since device memory has old contents and kernels expect zeros;
 * registers the pages. */
static symmResult_t ready_gpu(symm_comm *c, uint64_t bytes) {
    if (!c->cuda) return symmSuccess;
    int cu = c->vmm->fill((void *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride), bytes, 0);
    if (cu) return symm_vmm_error(c->vmm, cu, "clearing the control block");
    c->gpu->programmatic &= !goes_apart(c);
    symm_cuda_scope scope;
    SYMM_TRY(symm_gpu_push(c, &scope));
    symmResult_t r = symm_pages_register(c->control.pages, &c->control.host_base);
    symm_gpu_pop(c, &scope);
    return r;
}

static void fill_proto(symm_comm *c) {
    symm_ctl *ctl = symm_comm_ctl(c, c->rank);
    for (int r = 0; r < c->nranks; r++) /* of peers that cannot write it here */
        if (!symm_comm_sees(c, r)) symm_comm_ctl(c, r)->state = SYMM_STATE_ALIVE;
    ctl->magic = SYMM_CTL_MAGIC;
    ctl->pid = (uint64_t)getpid();
    if (!c->cuda) ctl->gate.page = (uintptr_t)c->calls.gate;
    __atomic_store_n(&ctl->state, SYMM_STATE_ALIVE,
                     __ATOMIC_RELEASE); /* pairs with the watchers' acquire */
    __atomic_store_n(&c->ctl, ctl,
                     __ATOMIC_RELEASE); /* pairs with the acquires in revoke.c and revoke.h */
    c->calls.proto = (symm_args){
        .base = c->base,
        .stride = c->stride,
        .rank = c->rank,
        .nranks = c->nranks,
        .scratch = c->cuda ? symm_plan_gpu_scratch(control_bytes(c) - SYMM_CTL_BYTES, c->nranks)
                           : symm_plan_scratch(control_bytes(c) - SYMM_CTL_BYTES, c->nranks),
        .timeout_ns = (uint64_t)c->params.timeout_ms * 1000000ull};
    char why[SYMM_MULTICAST_WHY]; /* known to who asks for a window */
    c->calls.cast_scratch = symm_multicast_flat(c, 0, control_bytes(c), why, sizeof why) != NULL;
    c->calls.keeps = c->cuda ? 0 : symm_caches_keep(c->nranks);
    const uint64_t cast =
        *symm_multicast_why(c) ? 0 : c->space->cast.base + c->base - c->space->base;
    int64_t spin = c->params.spin >= 0 ? c->params.spin : c->oversubscribed ? 48 : 1000;
    if (!c->cuda) {
        c->calls.proto.host.spin = (uint32_t)(spin < 1 ? 1 : spin);
        c->calls.proto.host.multicast = cast;
        if (cast) /* before the first kernel of this communicator */
            __atomic_store_n(&symm_cast_reach, symm_vmm_host_multicast_is, __ATOMIC_RELAXED);
    } else {
        c->calls.proto.gpu.host_base = c->control.host_base;
        c->calls.proto.gpu.host_stride = SYMM_PAGE_STRIDE;
        c->calls.proto.gpu.multicast = cast;
    }
    c->calls.proto.flags = (goes_apart(c) ? SYMM_ARG_APART : 0) |
                           (c->oversubscribed ? SYMM_ARG_CROWDED : 0) |
                           (c->hosts > 1 || APART ? SYMM_ARG_HOSTS : 0);
}

/* A new space is shared from here on. A communicator that comes later finds why it has no multicast
 * range. */
static symmResult_t ready_space(symm_comm *c) {
    if (c->threads || c->exchange.shares_space) return symmSuccess;
    if (c->windows.multicast)
        SYMM_TRY(symm_multicast_open(c, "creating a communicator"));
    else
        snprintf(c->space->cast.why, SYMM_MULTICAST_WHY, "when these ranks first met: %.*s",
                 SYMM_MULTICAST_WHY - 30, c->windows.no_multicast);
    symm_space_ready(c->space);
    return symmSuccess;
}

/* ---- build ---- */

/* From here on it lives, unless symmCommAbort has come first: that has left the reason. */
static symmResult_t go_live(symm_comm *c) {
    int none = 0;
    const int watched = c->failure.watch != NULL; /* from then on another thread may end it */
    if (SYMM_FAIL_HERE(comm_live)) return SYMM_ERR(symmSystemError, "failpoint comm_live");
    if (!atomic_compare_exchange_strong(&c->entry.outcome, &none, SYMM_COMM_IS_MADE))
        return symm_comm_known(c);
    c->exchange.parent = NULL; /* first: others use this one from here on */
    atomic_store_explicit(&c->entry.state, SYMM_COMM_LIVE, memory_order_release);
    if (watched) symm_watch_look();
    return symmSuccess;
}

/* All ranks have agreed to make it. */
static symmResult_t finish(symm_comm *c) {
    (void)SYMM_FAIL_HERE(comm_live); /* only held up */
    SYMM_TRY(symm_comm_reach_measure(c));
    /* a death that the watcher saw before there was an abort word to set */
    SYMM_TRY(symm_comm_async(c));
    symm_boot_mesh_rehome(c->exchange.boot, c->mesh);
    SYMM_INFO("communicator %s: rank %d of %d, %s backend, %s, bootstrap %s%s", c->name, c->rank,
              c->nranks, c->vmm->name, c->threads ? "thread ranks" : "processes", c->bootstrap,
              c->oversubscribed ? ", more ranks than cores" : "");
    if (c->threads) {
        symm_driver_watch_kernels();
        symm_driver_note(c);
    }
    return go_live(c);
}

/* symmCommAbort, of this one or of what it is made from. */
static int is_given_up(const symm_comm *c) {
    const symm_comm *parent = c->exchange.parent;
    return symm_comm_is_aborted(c) || (parent && symm_comm_is_aborted(parent));
}

/* Whom status is about: as this rank was told, -1 not known, else itself. */
static int culprit(const symm_comm *c, symmResult_t status) {
    const uint64_t word = symm_comm_abort_word(c);
    symm_vote v;
    int by;
    if (word) return (int)(uint32_t)word - 1;
    if (symm_mesh_obeyed(c->mesh, &by, &v)) return v.rank;
    return status == symmRemoteError || status == symmAborted ? -1 : c->rank;
}

/* This rank has no communicator, for a reason of its own. Others may have theirs: they must hear of
 * that, and not wait for this rank in it. */
static symmResult_t give_up(symm_comm *c, symmResult_t status) {
    if (is_given_up(c))
        symm_comm_abort_everywhere(c, SYMM_COMM_GOES, 1);
    else
        symm_comm_break(c, status, culprit(c, status), "creating a communicator");
    return symm_comm_known(c);
}

static symmResult_t build(symm_comm *c) {
    symm_uuid members[SYMM_MAX_RANKS];
    if (c->nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: one domain has at most %d ranks",
                        c->nranks, SYMM_MAX_RANKS);
    symm_comm_making(c, "trading hellos");
    SYMM_TRY(symm_comm_hello(c, members));
    if (c->cuda) symm_gpu_reap();
    symm_comm_making(c, "connecting to the ranks");
    SYMM_TRY(greet(c, members));
    symm_comm_making(c, "sharing control blocks");
    leave_meeting(c);
    SYMM_TRY(ready_space(c));
    symmResult_t status = share_pages(c);
    if (!status)
        status = symm_watch_start(
            /* the control block's agreement carries its status; the watcher needs c->base only
             * after a death */
            c);
    uint64_t bytes = control_bytes(c);
    status = c->threads ? control_threads(c, bytes, status) : control_processes(c, bytes, status);
    const int mapped = !status; /* on all ranks or on none */
    if (mapped) status = ready_gpu(c, bytes);
    if (mapped) fill_proto(c), symm_comm_first_touch(c);
    if (mapped) symm_comm_reach_soil(c);
    if (!status && SYMM_FAIL_HERE(comm_ctl))
        status = SYMM_ERR(symmSystemError, "failpoint comm_ctl");
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    if (c->ctl)
        status =
            symm_agree(c->mesh, status, &w, NULL); /* else all ranks have agreed to fail already */
    if (status) return c->ctl && is_given_up(c) ? give_up(c, status) : status;
    status = finish(c);
    return status ? give_up(c, status) : status;
}

/* build may have closed the first bootstrap. */
static symmResult_t settle_and_build(symm_comm *c) {
    SYMM_TRY(symm_comm_settle(c, c->exchange.boot, symmSuccess));
    const symmResult_t r = build(c);
    if (!r) return r; /* it lives: another thread may be ending it */
    SYMM_ASSERT(c->exchange.boot);
    if (r == symmNotSupported || c->nranks > SYMM_MAX_RANKS)
        return symm_comm_settle(c, c->exchange.boot, r);
    return r;
}

symmResult_t symm_comm_build(symm_comm *c, symm_boot *boot, const symm_origin *from) {
    c->exchange.boot = boot;
    SYMM_ASSERT(from->parent != c && (from->parent || !from->outlives));
    c->exchange.parent = from->parent;
    c->exchange.outlives = from->outlives;
    c->bootstrap = boot->ops->name;
    /* Behind a call an abort in another thread may be reading them; those of an id are set there
     * already. Pairs with comm_end.c's abort_creation. */
    if (c->rank != boot->rank) __atomic_store_n(&c->rank, boot->rank, __ATOMIC_RELAXED);
    if (c->nranks != boot->nranks) __atomic_store_n(&c->nranks, boot->nranks, __ATOMIC_RELEASE);
    symm_log_rank(c->rank);
    const symmResult_t r = settle_and_build(c);
    if (r) c->exchange.parent = NULL; /* which may end as soon as this returns */
    return r;
}

void symm_comm_unbuild(symm_comm *c) {
    symm_cuda_scope scope;
    const int inside = symm_gpu_push(c, &scope) == symmSuccess;
    struct symm_gpu *gpu = c->gpu;
    symm_watch_stop(c);
    symm_mesh_close(c->mesh);
    c->mesh = NULL;
    symm_boot_close(c->exchange.boot);
    c->exchange.boot = NULL;
    symm_boot_close(c->exchange.over_mesh);
    c->exchange.over_mesh = NULL;
    symm_comm_reach_end(c);
    c->ctl = NULL;
    if (c->control.slot) symm_slot_discard(c->space, c->control.slot);
    c->control.slot = NULL;
    symm_space_drop(c->space);
    c->space = NULL;
    symm_pages_unref(c->control.pages);
    c->control.pages = NULL;
    symm_launch_close(c);
    free(c->gpu);
    c->gpu = NULL;
    symm_comm_give_first(c);
    if (c->cuda) symm_closer_wait(); /* no descriptor of this communicator is left */
    if (inside && gpu) symm_cuda_pop(&scope);
    free(c->calls.memos);
    c->calls.memos = NULL;
    free(c->calls.tallies);
    c->calls.tallies = NULL;
    free(c->calls.rows);
    c->calls.rows = NULL;
    pthread_mutex_destroy(&c->heaps.lock);
    pthread_mutex_destroy(&c->heaps.size_lock);
}
