/* comm_connect.c - the ranks of a communicator that is made connect: what rank 0 of thread ranks
 * makes for all; the mesh step; and the exchange of how it went, in which all learn the cause of a
 * failure. Runs on the creating thread; no lock. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/handle.h"
#include "host/comm/comm.h"
#include "host/comm/pages.h"
#include "host/window/space.h"
#include "comm_make.h"

#define STAGE    "creating a communicator"
#define LOOK_NS  50000000u   /* between two looks at what others say meanwhile */
#define LOST_NS  300000000u  /* a rank that gives up has told all others by then */
#define LATER_NS 1000000000u /* who is connected waits longer than who is not, to hear why */

/* ---- what thread ranks share ---- */

/* Mailboxes, space, the slot of the control blocks, and with GPUs the pages. The greeting of rank 0
 * names them by a handle, not by an address: a rank may come after rank 0 has given up. */
typedef struct { /* one reference of each; NULL: none */
    void *mailboxes;
    symm_space *space;
    symm_slot *slot;
    symm_pages *pages;
} share;

static void drop_share(void *obj) {
    share *s = obj;
    symm_slot_discard(s->space, s->slot);
    symm_space_drop(s->space);
    symm_pages_unref(s->pages);
    symm_mesh_unshare(s->mailboxes);
    free(s);
}

/* Reserves for all. Each rank maps its own control block there, once. */
static symmResult_t make_share(const symm_comm *c, const symm_uuid *members, uint64_t bytes,
                               uint64_t id, share *s) {
    SYMM_TRY(symm_mesh_share(c->nranks, &s->mailboxes));
    SYMM_TRY(symm_space_create(c->vmm, c->caps.granularity, members, c->nranks, c->rank, bytes, id,
                               &s->space));
    SYMM_TRY(symm_slot_take(s->space, bytes, 0, &s->slot));
    SYMM_ASSERT(s->slot); /* all of it was free */
    return c->cuda ? symm_pages_new(c->nranks, NULL, &s->pages) : symmSuccess;
}

symmResult_t symm_comm_share(symm_comm *c, const symm_uuid *members, uint64_t control_bytes,
                             uint64_t id, void **out) {
    share *s = SYMM_FAIL_ALLOC(comm_share, calloc(1, sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for what %d thread ranks share", c->nranks);
    symmResult_t status = make_share(c, members, control_bytes, id, s);
    if (!status) status = symm_handle_new(SYMM_KIND_SHARE, s, drop_share, out);
    if (status) drop_share(s);
    return status;
}

/* The handle is pinned meanwhile: rank 0 may give up at any time, and then the last pin drops what
 * it has made. */
symmResult_t symm_comm_adopt(symm_comm *c, const void *handle, void **mailboxes) {
    const share *s = symm_handle_get(SYMM_KIND_SHARE, handle);
    if (!s)
        return SYMM_ERR(symmRemoteError, "rank 0 died or left before this rank came (" STAGE ")");
    SYMM_ASSERT(s->slot && !c->space && !c->control.slot);
    symm_mesh_share_ref(s->mailboxes);
    symm_space_ref(s->space);
    symm_slot_ref(s->space, s->slot);
    if (s->pages) symm_pages_ref(s->pages);
    *mailboxes = s->mailboxes;
    c->space = s->space;
    c->control.slot = s->slot;
    c->control.pages = s->pages;
    c->stride = s->space->stride;
    symm_handle_put(SYMM_KIND_SHARE, handle);
    return symmSuccess;
}

void symm_comm_unshare(void *handle) {
    if (handle && symm_handle_close(SYMM_KIND_SHARE, handle))
        symm_handle_put(SYMM_KIND_SHARE, handle);
}

/* ---- the mesh step ---- */

typedef struct { /* symm_wait's check while the ranks connect */
    symm_comm *c;
    symm_wait early;
    uint64_t look_ns, lost_ns; /* the next look; since when a loss shows */
    const char *why;           /* check_settling: what shows; NULL: nothing */
    char text[SYMM_ERR_TEXT];
} connecting;

/* A rank that gives up may have ended the parent with what it took for a death. */
static int parent_lost(const symm_comm *c, symm_boot_loss *loss) {
    loss->code = symm_comm_origin(c);
    loss->rank = -1;
    if (loss->code) snprintf(loss->text, sizeof loss->text, "%s", symm_status_text());
    return loss->code != symmSuccess;
}

/* A rank that dies, or gives up, before it has a connection to this one shows in the bootstrap
 * alone. A rank that gives up says why over the mesh: that may take a moment, and tells more. */
static symmResult_t check_connecting(void *arg) {
    connecting *x = arg;
    symm_comm *c = x->c;
    uint8_t awaited[SYMM_MAX_RANKS];
    symm_boot_loss loss;
    const uint64_t now = symm_now_ns();
    SYMM_TRY(x->early.check(x->early.arg));
    if (now < x->look_ns) return symmSuccess;
    x->look_ns = now + LOOK_NS;
    for (int r = 0; r < c->nranks; r++) awaited[r] = r != c->rank && symm_mesh_fd(c->mesh, r) < 0;
    SYMM_ASSERT(c->exchange.boot);
    const int lost =
        symm_boot_lost(c->exchange.boot, awaited, &x->early, &loss) || parent_lost(c, &loss);
    if (!lost || !x->lost_ns) x->lost_ns = lost ? now : 0;
    if (!lost || now - x->lost_ns < LOST_NS) return symmSuccess;
    symm_mesh_blame(c->mesh, loss.rank);
    return SYMM_ERR(loss.code, "%s", loss.text);
}

/* Which death the mesh shows, behind which the exchange will not come about: another rank has found
 * it, or a connection has ended. Nobody leaves with success before this rank goes on, too. What is
 * seen first counts: others end their connections because of it. NULL: none. */
static const char *mesh_lost(connecting *x) {
    symm_vote v;
    int by, r = 0;
    if (symm_mesh_obeyed(x->c->mesh, &by, &v) && v.code == symmRemoteError) {
        snprintf(x->text, sizeof x->text, "rank %d: %s", by, v.text);
        return x->text;
    }
    while (r < x->c->nranks && !symm_mesh_hung_up(x->c->mesh, r)) r++;
    if (r == x->c->nranks) return NULL;
    snprintf(x->text, sizeof x->text, "rank %d died or left (" STAGE ")", r);
    return x->text;
}

/* This rank has all its connections; others may not. What one says that gives up is passed on: it
 * may have no connection to a rank that awaits it. The exchange goes on, for it brings the reason
 * to all; but not where the bootstrap shows no death (MPI) and the mesh does. */
static symmResult_t check_settling(void *arg) {
    connecting *x = arg;
    const uint64_t now = symm_now_ns();
    SYMM_TRY(x->early.check(x->early.arg));
    if (now < x->look_ns) return symmSuccess;
    x->look_ns = now + LOOK_NS;
    (void)symm_mesh_hear(x->c->mesh);
    if (x->c->exchange.boot->ops->lost) return symmSuccess;
    if (!x->why) x->why = mesh_lost(x);
    if (x->why && !x->lost_ns) x->lost_ns = now;
    if (!x->why || now - x->lost_ns < LATER_NS) return symmSuccess;
    return SYMM_ERR(symmRemoteError, "%s", x->why);
}

symmResult_t symm_comm_connect(symm_comm *c, const symm_mesh_addr *addrs, void *shared) {
    symm_wait w = symm_comm_wait_early(c, STAGE);
    connecting x = {.c = c, .early = w};
    w.check = check_connecting;
    w.arg = &x;
    return symm_mesh_connect(c->mesh, addrs, shared, &w);
}

/* ---- how it went ---- */

typedef struct { /* of a rank */
    int32_t code;
    int32_t told;    /* 1 + the rank that told it why it must give up; 0: it found out itself */
    int32_t refused; /* an address did. All that come to this exchange live: it was no death */
    symm_reached reach;
    char text[200];
} outcome;

static outcome my_outcome(const symm_comm *c, symmResult_t status, symm_reached reach) {
    outcome o = {.code = (int32_t)status, .reach = reach};
    symm_vote v;
    int by;
    SYMM_ASSERT(c->mesh);
    if (!status) return o;
    snprintf(o.text, sizeof o.text, "%s", symm_status_text());
    if (symm_mesh_obeyed(c->mesh, &by, &v))
        o.told = 1 + by;
    else if (status == symmRemoteError && symm_mesh_refused(c->mesh))
        o.refused = 1;
    if (o.refused) o.code = (int32_t)symmSystemError;
    return o;
}

/* Who found first what rank r was told of. */
static int origin(const outcome *all, int n, int r) {
    for (int i = 0; i < n && all[r].told && all[all[r].told - 1].code; i++) r = all[r].told - 1;
    return r;
}

/* How near rank r's error is to the cause. A rank that gives up closes its door, so a late one is
 * refused, too; and waits for it are in vain. Of two that wait for each other the higher one, which
 * connects, knows the address. What others were told of was there first. */
static int nearness(const outcome *all, int n, int r) {
    const outcome *o = &all[origin(all, n, r)];
    const int told = origin(all, n, r) != r;
    if (!o->code) return 0;
    if (o->code == symmRemoteError) return 1 + told;
    if (o->code == symmTimeout) return 3 + r;
    return 3 + SYMM_MAX_RANKS + (o->refused ? told : 2);
}

/* Through the bootstrap, because a mesh that is half connected cannot tell everybody. */
symmResult_t symm_comm_connected(symm_comm *c, symmResult_t status, symm_reached reach) {
    outcome all[SYMM_MAX_RANKS];
    const outcome mine = my_outcome(c, status, reach);
    int worst = 0;
    symm_wait w = symm_comm_wait_early(c, STAGE);
    connecting x = {.c = c, .early = w};
    if (c->hosts > 1) w.check = check_settling, w.arg = &x;
    if (status == symmRemoteError) x.why = mine.text;
    w.deadline_ns += LATER_NS;
    SYMM_TRY(symm_boot_allgather(c->exchange.boot, &mine, all, sizeof mine, &w));
    for (int r = 0; r < c->nranks; r++) symm_comm_reach_learn(c, r, all[r].reach);
    symm_comm_reach_settle(c);
    for (int r = 1; r < c->nranks; r++)
        if (nearness(all, c->nranks, r) > nearness(all, c->nranks, worst)) worst = r;
    worst = origin(all, c->nranks, worst);
    if (!all[worst].code) return symmSuccess;
    return SYMM_ERR((symmResult_t)all[worst].code, "rank %d: %.*s", worst, (int)sizeof mine.text,
                    all[worst].text);
}
