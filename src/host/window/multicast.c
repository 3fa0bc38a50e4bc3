/* multicast.c - the object of a space and what is bound in it (multicast.h). Threads as in
 * multicast.h; the lists of pieces: the space's lock. */
#include "multicast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "transport/vmm/multicast_driver.h"
#include "handle_exchange.h"
#include "space.h"

enum { WHY = 96, TRIES = 4, PAUSE_MS = 50 };

typedef struct { /* what the ranks tell each other after each step */
    int32_t code;
    char text[WHY];
    uint64_t key;
} report;

typedef struct { /* how the object is handed on */
    symm_offer offer;
    int fd; /* of that kind; -1: none */
} handle;

typedef struct { /* own memory, and where it goes from the beginning of the slot */
    symm_vmm_handle *memory;
    uint64_t from, off, bytes; /* from: in the memory */
} piece;

typedef struct { /* what is to be bound */
    piece *at;
    int n;
    uint64_t key; /* must be equal on all ranks */
} pieces;

/* ---- one step of all ranks ------------------------------------------------------------------- */

static void note(report *mine, int cu, const char *what) {
    mine->code = cu;
    if (cu) snprintf(mine->text, sizeof mine->text, "%s: %s", what, symm_vmm_code_name(cu));
}

/* *failed: the first rank that did not manage, -1 if all did; `why` says whose fault it was. */
static symmResult_t tell(symm_comm *c, const report *mine, const char *stage, report *all,
                         int *failed, char *why) {
    SYMM_TRY(symm_comm_gather(c, mine, all, sizeof *mine, stage));
    *failed = -1;
    for (int r = c->nranks - 1; r >= 0; r--)
        if (all[r].code || (all[r].key != all[0].key && !all[0].code)) *failed = r;
    if (*failed < 0) return symmSuccess;
    const report *of = &all[*failed];
    snprintf(why, SYMM_MULTICAST_WHY, "rank %d: %.*s", *failed, WHY - 1,
             of->code ? of->text : "its memory is in other pieces than rank 0's");
    return symmSuccess;
}

static symmResult_t step(symm_comm *c, int cu, const char *what, const char *stage, int *failed) {
    report mine = {.code = 0}, all[SYMM_MAX_RANKS];
    note(&mine, cu, what);
    return tell(c, &mine, stage, all, failed, c->space->cast.why);
}

/* ---- the object ------------------------------------------------------------------------------ */

/* What the object is handed on as: as all memory is. */
static int object_kind(const symm_comm *c) {
    return c->fabric > 1 ? SYMM_SHARE_FABRIC : SYMM_SHARE_FD;
}

int symm_multicast_wish(const symm_comm *c, char *why, size_t cap) {
    symm_multicast_caps caps = {.there = 0};
    const char *no = symm_param_no_multicast(&c->params);
    if (no) return snprintf(why, cap, "%s", no), 0;
    if (c->threads) return snprintf(why, cap, "the ranks are threads of one process"), 0;
    if (c->nranks == 1) return snprintf(why, cap, "there is one rank"), 0;
    if (c->gpus.shared) return snprintf(why, cap, "ranks share a GPU"), 0;
    c->vmm->multicast->query(object_kind(c), &caps);
    if (!caps.there) snprintf(why, cap, "%s", caps.why);
    return caps.there;
}

const char *symm_multicast_why(const symm_comm *c) {
    if (!c->windows.multicast) return c->windows.no_multicast;
    return c->space->cast.object ? "" : c->space->cast.why;
}

/* A rank's own share of the way back. */
void symm_multicast_close(symm_space *s) {
    symm_cast *m = &s->cast;
    void *at = (void *)(uintptr_t)m->base;
    int cu = m->mapped ? s->vmm->unmap(at, m->bytes) : 0;
    if (cu) symm_vmm_error(s->vmm, cu, "unmapping the multicast range");
    cu = m->base ? s->vmm->unreserve(at, m->bytes) : 0;
    if (cu) symm_vmm_error(s->vmm, cu, "giving back the multicast range");
    if (m->object) s->vmm->release(m->object);
    m->base = 0;
    m->mapped = 0;
    m->object = NULL;
}

/* Addresses on every rank; the object and its handle on rank 0. */
static int begin(symm_comm *c, handle *out, const char **what) {
    const symm_vmm *v = c->vmm;
    symm_cast *m = &c->space->cast;
    symm_multicast_caps caps;
    void *at = NULL;
    *what = "asking for the granularity of multicast objects";
    v->multicast->query(object_kind(c), &caps);
    if (!caps.there) return SYMM_CU_NOT_SUPPORTED;
    m->grain = caps.grain;
    m->bytes = c->space->stride / caps.grain * caps.grain;
    if (caps.best && c->space->stride >= caps.best) m->bytes -= m->bytes % caps.best;
    *what = "reserving addresses";
    int cu = v->reserve(m->bytes, 512ull << 20, &at);
    m->base = (uint64_t)(uintptr_t)at;
    if (cu || c->rank) return cu;
    *what = "creating the multicast object";
    cu = v->multicast->create(m->bytes, c->nranks, object_kind(c), &m->object);
    if (cu || c->nranks == 1) return cu;
    *what = "exporting the multicast object";
    out->offer = (symm_offer){.part.bytes = m->bytes, .kind = (unsigned)object_kind(c)};
    if (out->offer.kind == SYMM_SHARE_FABRIC)
        return v->export_fabric(m->object, &out->offer.fabric);
    cu = v->export_fd(m->object, &out->fd);
    if (!cu) SYMM_STAT_ADD(fds, 1);
    return cu;
}

/* What has come from rank 0. */
static int import_object(symm_comm *c, const handle *in, size_t got) {
    const symm_offer *o = &in->offer;
    symm_cast *m = &c->space->cast;
    if (got != sizeof *o || o->part.bytes != m->bytes || o->kind != (unsigned)object_kind(c))
        return SYMM_CU_INVALID_VALUE;
    return c->vmm->multicast->import(in->fd, o->kind == SYMM_SHARE_FABRIC ? &o->fabric : NULL,
                                     m->bytes, &m->object);
}

/* A descriptor that the kernel had to drop was received all the same: the ranks are in step. */
static symmResult_t trade(symm_comm *c, handle *h, int *cu, const char *stage) {
    const int fds = object_kind(c) == SYMM_SHARE_FD;
    symm_wait w = symm_comm_wait(c, stage);
    symm_offer *o = &h->offer;
    size_t got = 0;
    if (c->rank) {
        const symmResult_t r = symm_mesh_recv(c->mesh, 0, SYMM_MSG_HANDLES, o, sizeof *o, &got,
                                              fds ? &h->fd : NULL, fds, &w);
        const int dropped = r == symmFdLimit && !symm_mesh_revoked(c->mesh);
        if (r && !dropped) return r;
        *cu = dropped ? SYMM_CU_OS_ERROR : import_object(c, h, got);
        return symmSuccess;
    }
    for (int p = 1; p < c->nranks; p++)
        SYMM_TRY(symm_mesh_send(c->mesh, p, SYMM_MSG_HANDLES, o, sizeof *o, fds ? &h->fd : NULL,
                                fds, &w));
    return symmSuccess;
}

/* The handle goes from rank 0 to all. cu: of importing it. */
static symmResult_t hand_round(symm_comm *c, handle *h, int *cu, const char *stage) {
    const symmResult_t r = trade(c, h, cu, stage);
    if (r) symm_comm_break(c, r, r == symmTimeout ? -1 : symm_mesh_about(c->mesh, r), stage);
    return r;
}

static int map_object(symm_comm *c) {
    symm_cast *m = &c->space->cast;
    void *at = (void *)(uintptr_t)m->base;
    const int cu = c->vmm->map(at, m->bytes, 0, m->object);
    if (cu) return cu;
    m->mapped = 1;
    return c->vmm->set_access(at, m->bytes);
}

/* Step by step; stops where a rank has failed. */
static symmResult_t make(symm_comm *c, handle *h, const char *stage, int *failed) {
    const char *what = "";
    int cu = begin(c, h, &what);
    SYMM_TRY(step(c, cu, what, stage, failed));
    if (*failed >= 0) return symmSuccess;
    cu = 0;
    SYMM_TRY(hand_round(c, h, &cu, stage));
    SYMM_TRY(step(c, cu, "importing the multicast object", stage, failed));
    if (*failed >= 0) return symmSuccess;
    cu = c->vmm->multicast->join(c->space->cast.object);
    SYMM_TRY(step(c, cu, "joining the multicast object", stage, failed));
    if (*failed >= 0) return symmSuccess;
    return step(c, map_object(c), "mapping the multicast object", stage, failed);
}

symmResult_t symm_multicast_open(symm_comm *c, const char *stage) {
    handle h = {.fd = -1};
    int failed = -1;
    const symmResult_t r = make(c, &h, stage, &failed);
    if (h.fd >= 0) {
        close(h.fd);
        SYMM_STAT_ADD(fds, -1);
    }
    if (!r && failed < 0) return symmSuccess;
    symm_multicast_close(c->space);
    if (!r) SYMM_INFO("no multicast windows: %s", c->space->cast.why);
    return r;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Under the lock. */
static void casts_check(const symm_space *s, const symm_slot *slot) {
    enum { MOST = 64 };
    const symm_cast *m = &s->cast;
    SYMM_ASSERT(!m->mapped || (m->base && m->object));
    SYMM_ASSERT(!m->object || (m->grain && m->bytes <= s->stride));
    SYMM_ASSERT(!slot->casts.n || m->object);
    for (int i = 0; i < slot->casts.n && i < MOST; i++) {
        const symm_mapping *at = &slot->casts.at[i];
        SYMM_ASSERT(at->rank == 0 && at->bytes && (at->off | at->bytes) % m->grain == 0);
        SYMM_ASSERT(at->off <= slot->bytes && at->bytes <= slot->bytes - at->off);
    }
}

/* The next piece in [lo, hi), taken out of the list. 0: none. */
static int take_piece(symm_space *s, symm_slot *slot, uint64_t lo, uint64_t hi, symm_mapping *out) {
    pthread_mutex_lock(&s->lock);
    SYMM_CHECK(casts_check(s, slot));
    const int i = symm_mappings_find(&slot->casts, 0, lo);
    const symm_mapping *at = i < slot->casts.n ? &slot->casts.at[i] : NULL;
    const int found = at && lo <= at->off && at->off + at->bytes <= hi;
    if (found) {
        *out = *at;
        symm_mappings_remove(&slot->casts, i);
        SYMM_ASSERT(!symm_mappings_cover(&slot->casts, 0, out->off, out->bytes));
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void unbind(symm_space *s, uint64_t off, uint64_t bytes) {
    SYMM_ASSERT(s->cast.object && off <= s->cast.bytes && bytes <= s->cast.bytes - off);
    const int cu = s->vmm->multicast->unbind(s->cast.object, off, bytes);
    if (cu)
        symm_vmm_error(s->vmm, cu, "unbinding %llu bytes at offset %llu of the multicast object",
                       (unsigned long long)bytes, (unsigned long long)off);
}

void symm_multicast_let_go(symm_space *s, symm_slot *slot, uint64_t off, uint64_t bytes) {
    symm_mapping m;
    if (!slot->casts.n) return;
    while (take_piece(s, slot, off, off + bytes, &m)) unbind(s, slot->off + m.off, m.bytes);
}

void symm_multicast_end(symm_space *s, symm_slot *slot) {
    symm_multicast_let_go(s, slot, 0, UINT64_MAX);
    SYMM_ASSERT(slot->casts.n == 0);
    symm_mappings_end(&slot->casts);
    free(slot->cast_why);
    slot->cast_why = NULL;
}

static void say_why(symm_space *s, symm_slot *slot, const char *why) {
    char *text = strdup(why);
    pthread_mutex_lock(&s->lock);
    free(slot->cast_why);
    slot->cast_why = text; /* NULL: it stays unexplained */
    pthread_mutex_unlock(&s->lock);
}

/* Lists the piece first: what is bound must be found again. */
static int bind_one(symm_comm *c, symm_slot *slot, const piece *p, report *mine) {
    symm_space *s = c->space;
    if ((p->off | p->bytes | p->from) % s->cast.grain) {
        mine->code = SYMM_CU_INVALID_VALUE;
        snprintf(mine->text, WHY, "a piece of %llu bytes at %llu is no multiple of %llu",
                 (unsigned long long)p->bytes, (unsigned long long)p->off,
                 (unsigned long long)s->cast.grain);
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    const int listed = symm_mappings_add(&slot->casts, (symm_mapping){p->off, p->bytes, 0, 1});
    pthread_mutex_unlock(&s->lock);
    if (listed < 0) return note(mine, SYMM_CU_OUT_OF_MEMORY, "listing a piece"), 0;
    const int cu =
        c->vmm->multicast->bind(s->cast.object, slot->off + p->off, p->memory, p->from, p->bytes);
    if (!cu) return 1;
    note(mine, cu, "binding memory");
    pthread_mutex_lock(&s->lock);
    symm_mappings_remove(&slot->casts, symm_mappings_find(&slot->casts, 0, p->off));
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void bind_all(symm_comm *c, symm_slot *slot, const pieces *p, report *mine) {
    int done = 0;
    if (!p->at) note(mine, SYMM_CU_OUT_OF_MEMORY, "listing what is to be bound");
    while (done < p->n && !mine->code && bind_one(c, slot, &p->at[done], mine)) done++;
}

static void take_back(symm_space *s, symm_slot *slot, const pieces *p) {
    for (int i = 0; p->at && i < p->n; i++)
        symm_multicast_let_go(s, slot, p->at[i].off, p->at[i].bytes);
}

/* 1: a rank's driver asks for patience, and no rank has another fault. */
static int worth_waiting(const symm_comm *c, const report *all) {
    for (int r = 0; r < c->nranks; r++)
        if (all[r].key != all[0].key || (all[r].code && all[r].code != SYMM_CU_SYSTEM_NOT_READY))
            return 0;
    return 1;
}

static symmResult_t bind_everywhere(symm_comm *c, symm_slot *slot, const pieces *p,
                                    const char *stage) {
    char why[SYMM_MULTICAST_WHY];
    report all[SYMM_MAX_RANKS];
    for (int tries = 1;; tries++) {
        report mine = {.key = p->key};
        int failed;
        bind_all(c, slot, p, &mine);
        const symmResult_t r = tell(c, &mine, stage, all, &failed, why);
        if (!r && failed < 0) return symmSuccess;
        take_back(c->space, slot, p);
        if (r) return r;
        if (tries == TRIES || !worth_waiting(c, all)) break;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000l}, NULL);
    }
    say_why(c->space, slot, why);
    return symmSuccess;
}

/* The same on all ranks: a space is shared by those alone who found it made. */
static int is_on(const symm_comm *c) {
    return c->windows.multicast && c->space->cast.object;
}

static pieces room_for(int n) {
    return (pieces){.at = SYMM_FAIL_ALLOC(mc_pieces, calloc((size_t)n + 1, sizeof(piece)))};
}

symmResult_t symm_multicast_bind_range(symm_comm *c, symm_slot *slot,
                                       symm_vmm_handle *const *handles, const symm_part *parts,
                                       int n, uint64_t lo, uint64_t hi, const char *stage) {
    if (!is_on(c)) return symmSuccess;
    pieces p = room_for(n);
    for (int i = 0; i < n && p.at; i++) {
        const uint64_t off = parts[i].off, end = off + parts[i].bytes;
        const uint64_t a = off > lo ? off : lo, b = end < hi ? end : hi;
        if (a < b) p.at[p.n++] = (piece){handles[i], a - off, a, b - a};
    }
    const symmResult_t r = bind_everywhere(c, slot, &p, stage);
    free(p.at);
    return r;
}

symmResult_t symm_multicast_bind_parts(symm_comm *c, symm_slot *slot,
                                       symm_vmm_handle *const *handles, const symm_part *parts,
                                       int n, const char *stage) {
    if (!is_on(c)) return symmSuccess;
    pieces p = room_for(n);
    for (int i = 0; i < n && p.at; i++) {
        p.at[p.n++] = (piece){handles[i], 0, parts[i].off, parts[i].bytes};
        p.key = (p.key ^ parts[i].off) * 0x9e3779b97f4a7c15ull + parts[i].bytes;
    }
    const symmResult_t r = bind_everywhere(c, slot, &p, stage);
    free(p.at);
    return r;
}

/* ---- addresses ------------------------------------------------------------------------------- */

char *symm_multicast_at(const symm_comm *c, uint64_t off, uint64_t bytes, char *why, size_t cap) {
    symm_space *s = c->space;
    const char *no = symm_multicast_why(c);
    if (*no) return snprintf(why, cap, "%s", no), NULL;
    pthread_mutex_lock(&s->lock);
    const symm_slot *slot = s->slots;
    while (slot && slot->off + slot->bytes <= off) slot = slot->next;
    const int all =
        slot && slot->off <= off && symm_mappings_cover(&slot->casts, 0, off - slot->off, bytes);
    if (!all) snprintf(why, cap, "%s", slot && slot->cast_why ? slot->cast_why : "it is not bound");
    pthread_mutex_unlock(&s->lock);
    return all ? (char *)(uintptr_t)(s->cast.base + off) : NULL;
}

char *symm_multicast_flat(const symm_comm *c, uint64_t off, uint64_t bytes, char *why, size_t cap) {
    return symm_multicast_at(c, off + c->base - c->space->base, bytes, why, cap);
}

char *symm_multicast_of(const symm_win *w, uint64_t in, uint64_t bytes, char *why, size_t cap) {
    const symm_comm *c = w->comm;
    if (c->threads) return snprintf(why, cap, "%s", symm_multicast_why(c)), NULL;
    if (w->ended) return snprintf(why, cap, "the window's memory was freed"), NULL;
    for (int r = 1; r < c->nranks; r++)
        if (w->off[r] != w->off[0])
            return snprintf(why, cap,
                            "rank %d's buffer begins at another offset of its memory than rank 0's",
                            r),
                   NULL;
    return symm_multicast_flat(c, w->off[0] + in, bytes, why, cap);
}
