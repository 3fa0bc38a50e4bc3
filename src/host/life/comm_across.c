/* comm_across.c - communicators over several domains: which rank is in which domain, making one,
 * how it ends. The thread inside that call; Revoke: any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm_domains.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/across/across_gpu.h"
#include "host/gpu/backend.h"
#include "host/window/handle_exchange.h"
#include "transport/cuda/cuda_fabric.h"
#include "transport/boot/boot.h"
#include "comm_make.h"
#include "comm_across.h"
#include "across_end.h"
#include "where.h"

/* ---- who is in which domain ------------------------------------------------------------------ */

typedef struct { /* what a rank says of itself; fixed size */
    uint64_t version;
    symm_domain_key key; /* ranks whose sockets reach each other, and whose memory may be mapped */
    symm_cuda_fabric nvlink; /* known: its GPU's memory may be mapped on the fabric's other hosts */
    int64_t cut;             /* SYMM_DOMAIN_SIZE */
    symm_param_agreed params; /* variables that must be equal */
    int32_t code;
    char text[156];
} whereabouts;

/* Known if this rank uses a GPU that makes fabric handles. What cannot be told is no error here:
 * the making of the communicator tells it. */
static void fill_fabric(const symm_params *p, symm_cuda_fabric *out) {
    char why[160];
    symm_vmm_caps caps;
    const int device = p->handles == SYMM_HANDLES_FD ? -1 : symm_backend_device(p);
    if (device < 0 || symm_backend_vmm(1)->query(&caps) || !caps.fabric_handles) return;
    symm_cuda_fabric_of(device, out, why, sizeof why);
}

/* r: what has failed on this rank. */
static void fill(whereabouts *w, symmResult_t r) {
    symm_params p;
    symm_where here;
    memset(w, 0, sizeof *w);
    w->version = SYMM_VERSION_CODE;
    if (!r) r = symm_param_load(&p);
    if (!r) r = symm_where_fill(&here);
    w->code = (int32_t)r;
    if (r) {
        snprintf(w->text, sizeof w->text, "%s", symm_status_text());
        return;
    }
    w->cut = p.domain_size;
    w->params = symm_param_to_agree(&p);
    w->key = (symm_domain_key){here.host.hi, here.host.lo, here.netns};
    fill_fabric(&p, &w->nvlink);
}

/* The same records in the same order on all ranks, so all find the same first fault. */
static symmResult_t judge(const whereabouts *all, int nranks) {
    for (int r = 0; r < nranks; r++) {
        if (all[r].version != all[0].version)
            return SYMM_ERR(symmVersionMismatch, "rank %d runs another version of symm than rank 0",
                            r);
        if (all[r].code)
            return SYMM_ERR((symmResult_t)all[r].code, "rank %d: %.*s", r, (int)sizeof all[r].text,
                            all[r].text);
        if (all[r].cut != all[0].cut)
            return SYMM_ERR(symmInvalidUsage,
                            "rank %d has SYMM_DOMAIN_SIZE=%lld, rank 0 has %lld: must be equal", r,
                            (long long)all[r].cut, (long long)all[0].cut);
        const char *var = symm_param_differs(&all[r].params, &all[0].params);
        if (var)
            return SYMM_ERR(symmInvalidUsage, "rank %d has another %s than rank 0: must be equal",
                            r, var);
    }
    return symmSuccess;
}

/* Of rank i: its host, or the fabric over hosts that all ranks of its host are in. */
static symm_domain_key key_of(const whereabouts *all, int nranks, int i) {
    const symm_cuda_fabric *f = &all[i].nvlink;
    uint64_t cluster[2];
    for (int r = 0; r < nranks; r++)
        if (!memcmp(&all[r].key, &all[i].key, sizeof all[i].key) &&
            (!all[r].nvlink.known || memcmp(&all[r].nvlink, f, sizeof *f)))
            return all[i].key;
    memcpy(cluster, f->cluster, sizeof cluster);
    return (symm_domain_key){cluster[0], cluster[1], ~(uint64_t)f->clique};
}

/* Sorts the ranks; NULL: they share one domain. */
static symm_domains *sort(const whereabouts *all, symm_domain_key *keys, int rank,
                          symm_domains *d) {
    for (int i = 0; i < d->nranks; i++) keys[i] = key_of(all, d->nranks, i);
    symm_domains_sort(keys, rank, (int)all[0].cut, d);
    SYMM_ASSERT(d->ndomains >= 1 && d->rank == rank);
    return d->ndomains > 1 ? d : NULL;
}

typedef struct { /* of one rank */
    int32_t code;
    int32_t gpus, nccl; /* whether it has one; the version of NCCL there */
    int32_t registers;  /* symm_across_gpu_registers */
    nccl_id id;         /* rank 0's, with GPUs */
    char text[240];
} outcome;

/* A map, and behind it room to hear what becomes of each rank: where it were missing later, the
 * others would wait for this rank. */
symmResult_t symm_across_new_map(int nranks, symm_domains **out) {
    const size_t bytes = sizeof **out + (size_t)nranks * sizeof(outcome);
    symm_domains *d = SYMM_FAIL_ALLOC(across_map, calloc(1, bytes));
    *out = NULL;
    if (!d) return SYMM_ERR(symmOutOfMemory, "no memory to sort %d ranks", nranks);
    const symmResult_t r = symm_domains_alloc(nranks, d);
    if (r)
        free(d);
    else
        *out = d;
    return r;
}

static void free_map(symm_domains *d) {
    if (d) symm_domains_free(d);
    free(d);
}

/* What is needed later is there before the exchange, which tells the others if it is not. */
symmResult_t symm_across_find(struct symm_boot *boot, const symm_wait *w, symm_domains **out) {
    const size_t n = (size_t)boot->nranks;
    whereabouts mine, *all = malloc(n * sizeof *all);
    symm_domain_key *keys = SYMM_FAIL_ALLOC(across_keys, malloc(n * sizeof *keys));
    symm_domains *d = NULL;
    *out = NULL;
    if (!all) {
        free(keys);
        return SYMM_ERR(symmOutOfMemory, "no memory to hear from %zu ranks", n);
    }
    symmResult_t r = symm_across_new_map(boot->nranks, &d);
    if (!r && !keys) r = SYMM_ERR(symmOutOfMemory, "no memory to sort %zu ranks", n);
    fill(&mine, r);
    r = symm_boot_allgather(boot, &mine, all, sizeof mine, w);
    if (!r) r = judge(all, boot->nranks);
    if (!r) *out = sort(all, keys, boot->rank, d);
    if (!*out) free_map(d);
    free(keys);
    free(all);
    return r;
}

int symm_across_domain(const symm_domains *map, int *beside) {
    *beside = map->beside;
    return map->domain;
}

/* ---- making ---------------------------------------------------------------------------------- */

static symmResult_t judge_outcomes(const outcome *all, int nranks) {
    for (int i = 0; i < nranks; i++) {
        if (!all[i].code) continue;
        char text[SYMM_ERR_TEXT];
        SYMM_SAY(text, sizeof text, "rank %d: %.*s", i, (int)sizeof all[i].text, all[i].text);
        symm_status_adopt(text);
        return (symmResult_t)all[i].code;
    }
    for (int i = 1; i < nranks; i++) {
        if (all[i].gpus != all[0].gpus)
            return SYMM_ERR(symmInvalidUsage,
                            "rank %d %s, rank 0 %s: over several domains all have, or none "
                            "(SYMM_BACKEND)",
                            i, all[i].gpus ? "has a GPU" : "uses the host backend",
                            all[0].gpus ? "has one" : "uses the host backend");
        if (all[i].nccl != all[0].nccl)
            return SYMM_ERR(symmVersionMismatch,
                            "rank %d has NCCL version %d, rank 0 has %d: GPUs of several domains "
                            "need the same (SYMM_NCCL_LIB names one)",
                            i, all[i].nccl, all[0].nccl);
    }
    return symmSuccess;
}

typedef struct { /* of all ranks */
    nccl_id id;
    int registers; /* on some rank */
} common;

/* Whether all ranks are done with their part; the first that is not is the error of all. all: room
 * for what each says; mine: what this rank says besides. */
static symmResult_t agree(struct symm_boot *boot, const symm_wait *w, symmResult_t status,
                          outcome *all, outcome mine, common *out) {
    char why[SYMM_ERR_TEXT];
    mine.code = (int32_t)status;
    snprintf(why, sizeof why, "%s", symm_status_text());
    if (status) snprintf(mine.text, sizeof mine.text, "%.*s", (int)sizeof mine.text - 1, why);
    symmResult_t r = symm_boot_allgather(boot, &mine, all, sizeof mine, w);
    if (r && status) { /* the exchange has ended because of what this rank knows already */
        symm_status_adopt(why);
        r = status;
    } else if (!r) {
        r = judge_outcomes(all, boot->nranks);
        out->id = all[0].id;
        out->registers = 0;
        for (int i = 0; i < boot->nranks; i++) out->registers |= all[i].registers;
    }
    return r;
}

static symmResult_t ask_gpus(symmComm_t inner, int32_t *gpus) {
    symm_comm *c;
    SYMM_TRY(symm_comm_visit(inner, &c));
    *gpus = c->cuda;
    symm_comm_unvisit(c);
    return symmSuccess;
}

/* The record, with what its calls need. *mine: what this rank tells the others of it. */
static symmResult_t make(symm_domains *map, symmComm_t inner, symm_net *net, outcome *mine,
                         symm_across **out) {
    int version = 0;
    SYMM_TRY(symm_across_make(map, inner, net, out));
    symm_across *s = *out;
    s->outer.call = symm_across_call_any;
    s->outer.message = symm_across_message;
    s->outer.register_window = symm_across_register;
    SYMM_TRY(ask_gpus(inner, &mine->gpus));
    if (!mine->gpus) return symmSuccess;
    SYMM_TRY(symm_across_gpu_prepare(s));
    SYMM_TRY(symm_across_gpu_version(s, &version));
    mine->nccl = version;
    mine->registers = symm_across_gpu_registers(s);
    s->mover = "nccl";
    return s->map.rank ? symmSuccess : symm_across_gpu_id(s, &mine->id);
}

/* All ranks, or none with one error. GPUs: NCCL's part has as long as all the rest. */
static symmResult_t settle(struct symm_boot *boot, const symm_wait *w, symmResult_t status,
                           outcome *room, symm_across *s, const outcome *mine) {
    common all;
    SYMM_TRY(agree(boot, w, status, room, *mine, &all));
    if (!s->gpu) return symmSuccess;
    if (!all.registers) symm_across_gpu_set_direct(s);
    symm_wait last = *w;
    last.deadline_ns += (uint64_t)s->setup_ms * 1000000u;
    status = symm_across_gpu_connect(s, &all.id, symm_now_ns() + (uint64_t)s->setup_ms * 1000000u);
    return agree(boot, &last, status, room, *mine, &all);
}

/* What has been made so far goes; the text of the thread's last error stays. */
static void undo(symm_across *s, void *handle, symm_net *net, symmComm_t inner) {
    char why[SYMM_ERR_TEXT];
    snprintf(why, sizeof why, "%s", symm_status_text());
    if (net) net->ops->cancel(net); /* no goodbyes: the others may have no mover */
    if (s && s->gpu) symm_across_gpu_abort(s);
    if (handle && symm_handle_close(SYMM_KIND_ACROSS, handle))
        symm_handle_put(SYMM_KIND_ACROSS, handle); /* frees it with its mover */
    else if (s)
        symm_across_free(s);
    else if (net)
        net->ops->close(net, NULL);
    if (inner) symmCommDestroy(inner);
    symm_status_adopt(why);
}

symmResult_t symm_across_open(struct symm_boot *boot, const symm_wait *w, symmResult_t status,
                              symm_domains *map, symmComm_t inner, symm_net *net, symmComm_t *out) {
    symm_across *s = NULL;
    void *handle = NULL;
    outcome mine;
    memset(&mine, 0, sizeof mine);
    if (!status) status = make(map, inner, net, &mine, &s);
    if (!status) status = symm_handle_new(SYMM_KIND_ACROSS, s, symm_across_free, &handle);
    status = settle(boot, w, status, (outcome *)(map + 1), s, &mine);
    if (status) {
        undo(s, handle, net, inner);
    } else {
        SYMM_ASSERT(s && handle && s->outer.inner == inner && s->net == net);
        s->outer.handle = handle;
        *out = s->outer.handle;
        SYMM_INFO("communicator %s: rank %d of %d, in domain %d of %d, mover %s", s->outer.name,
                  s->map.rank, s->map.nranks, s->map.domain, s->map.ndomains, s->mover);
    }
    free_map(map);
    return status;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* For a wait: the others may say meanwhile that it is over. The thread inside. */
static symmResult_t hear(symm_across *s) {
    symmResult_t r = symm_across_known(s);
    if (!r && (r = symm_across_look(s, 1)) != symmSuccess) r = symm_across_fail(s, r);
    return r;
}

/* Tells the other domains why it is over, if it is and nobody has told them. The thread inside. */
static void tell(symm_across *s) {
    symm_across_say(s);
    symmResult_t r = symm_across_known(s);
    if (r || (!s->gpu && s->net->ops->enter(s->net))) return;
    if ((r = symm_across_look(s, 0)) != symmSuccess) symm_across_fail(s, r);
}

/* The other domains hear of it now if this thread may enter the mover, else from the next call here
 * that may, or at the end. */
symmResult_t symm_across_revoke(symmComm_t comm, int flags) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    symmResult_t r = symm_comm_revoke_flags(flags);
    if (!r) r = symm_across_revoke_inner(s, flags ? "symmCommAbort" : "symmCommRevoke");
    if (!r && !pthread_mutex_trylock(&s->turn)) {
        if (s->net) tell(s);
        symm_across_leave(s);
    }
    symm_outer_put(comm);
    return r;
}

symmResult_t symm_across_finalize(symmComm_t comm) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    symmResult_t r = symm_group_refuse_beside(s->outer.inner, "symmCommFinalize");
    if (!r) r = symm_across_drain(s);
    if (!r) r = symm_across_enter(s);
    if (!r) {
        r = symm_across_known(s);
        /* Inside nobody knows of what crosses. */
        if (!r && s->gpu) r = symm_across_gpu_drain(s, hear);
        if (!r) r = symmCommFinalize(s->outer.inner);
        symm_across_leave(s);
    }
    symm_outer_put(comm);
    return r;
}

/* The inner one ends first: if it cannot, nothing has. The mover is closed here, not by a visitor
 * that leaves later. */
symmResult_t symm_across_destroy(symmComm_t comm, int aborts) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    const symmComm_t inner = s->outer.inner;
    symmResult_t r = symmSuccess;
    if (aborts) (void)symm_across_revoke_inner(s, "symmCommAbort");
    if (!aborts) r = symm_group_refuse_beside(inner, "symmCommDestroy");
    if (!r && !aborts) r = symm_across_drain(s);
    if (!r) r = symm_across_enter(s); /* an abort: once the call of another thread has left */
    if (r) {
        symm_outer_put(comm);
        return r;
    }
    if (s->net) tell(s);
    /* Inside nobody knows of what NCCL and the joins do. */
    if (s->gpu) (void)symm_across_gpu_drain(s, hear);
    r = aborts ? symmCommAbort(inner) : symmCommDestroy(inner);
    const int ended = !symm_handle_open(SYMM_KIND_COMM, inner),
              mine = ended && symm_handle_close(SYMM_KIND_ACROSS, comm);
    if (mine) symm_across_close_net(s);
    symm_across_leave(s);
    if (mine) symm_handle_put(SYMM_KIND_ACROSS, comm); /* the handle's own reference */
    symm_outer_put(comm);
    return mine || !ended ? r : symm_comm_bad_handle(comm);
}
