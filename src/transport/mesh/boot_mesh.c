/* boot_mesh.c - bootstrap through the control mesh of a parent communicator, for its children
 * (split, shrink). Runs in the thread that owns that mesh during the call. No lock. The mesh
 * remains the parent's.
 *
 * Every member sends its block to every other, in pieces of one message: a piece to all, a piece
 * from all, the next piece. A member sends piece i+1 only when it has piece i of all. So at most
 * two messages per pair are in flight, and the member that is furthest behind can always go on,
 * however large the block is.
 *
 * The mesh of a shrink may be revoked, and the shrink may be tried again. So its pieces carry the
 * number of the call, and pieces of other calls are skipped. A member whose exchange fails says so
 * in a last piece. It does not send REVOKE, which would say nothing new on a revoked mesh and would
 * end a parent that lives. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "transport/boot/boot_text.h"
#include "mesh.h"

typedef struct {
    symm_boot base;
    symm_mesh *mesh;
    uint32_t seq; /* number of the exchange */
    int failed;
    uint32_t session; /* number of the shrink, which goes on if the parent is revoked; 0: a split */
    int members[];    /* mesh rank of each new rank */
} boot_mesh;

typedef struct {      /* before each piece, on the wire (both ends are on one host) */
    uint32_t session; /* stands first, see symm_mesh_session */
    uint32_t seq, piece;
    int32_t code;   /* not 0: the sender's exchange has failed; its text follows */
    uint64_t bytes; /* of the whole block */
} piece_head;

#define PIECE_MAX (SYMM_MESH_MAX - sizeof(piece_head))

static int piece_type(const boot_mesh *b) {
    return b->session ? SYMM_MSG_CHILD : SYMM_MSG_BOOT;
}

static size_t piece_bytes(size_t bytes, size_t at) {
    return bytes - at < PIECE_MAX ? bytes - at : PIECE_MAX;
}

/* Begins with the next rank, so that not all members send to rank 0 first. */
static symmResult_t send_piece(boot_mesh *b, const piece_head *h, const char *data, size_t bytes,
                               const symm_wait *w) {
    char message[SYMM_MESH_MAX];
    memcpy(message, h, sizeof(*h));
    if (bytes) memcpy(message + sizeof(*h), data, bytes);
    int n = b->base.nranks;
    for (int i = 1; i < n; i++)
        SYMM_TRY(symm_mesh_send(b->mesh, b->members[(b->base.rank + i) % n], piece_type(b), message,
                                sizeof(*h) + bytes, NULL, 0, w));
    return symmSuccess;
}

/* Survivors learn of a death at different times, so messages from before the shrink may still be in
 * the queue. The mesh skips them once it is revoked, and a REVOKE is in front of them. */
static symmResult_t recv_message(boot_mesh *b, int peer, char *message, size_t *got,
                                 const symm_wait *w) {
    int before = symm_mesh_revoked(b->mesh);
    symmResult_t r =
        symm_mesh_recv(b->mesh, peer, piece_type(b), message, SYMM_MESH_MAX, got, NULL, 0, w);
    if (!r || !b->session || before || !symm_mesh_revoked(b->mesh)) return r;
    return symm_mesh_recv(b->mesh, peer, piece_type(b), message, SYMM_MESH_MAX, got, NULL, 0, w);
}

/* The sender's exchange has failed. */
static int tells_failure(const piece_head *h) {
    return h->code > symmSuccess && h->code < symmNumResults;
}

/* The next message of this session. */
static symmResult_t recv_head(boot_mesh *b, int peer, char *message, size_t *got,
                              piece_head *theirs, const symm_wait *w) {
    do {
        SYMM_TRY(recv_message(b, peer, message, got, w));
        if (*got < sizeof *theirs)
            return SYMM_ERR(symmInternalError,
                            "rank %d of the parent sent a piece of %zu bytes (%s)", peer, *got,
                            symm_boot_stage(w));
        memcpy(theirs, message, sizeof *theirs);
    } while (theirs->session != b->session);
    if (!tells_failure(theirs)) return symmSuccess;
    return SYMM_ERR((symmResult_t)theirs->code, "rank %d of the parent gave up: %.*s", peer,
                    (int)(*got - sizeof *theirs), message + sizeof *theirs);
}

static symmResult_t recv_piece(boot_mesh *b, int r, const piece_head *h, char *data, size_t bytes,
                               const symm_wait *w) {
    char message[SYMM_MESH_MAX];
    size_t got;
    piece_head theirs;
    SYMM_TRY(recv_head(b, b->members[r], message, &got, &theirs, w));
    if (theirs.seq != h->seq || theirs.piece != h->piece || theirs.bytes != h->bytes ||
        got != sizeof(theirs) + bytes)
        return SYMM_ERR(symmMismatch,
                        "rank %d of the parent is at piece %u of a block of %llu bytes, rank %d at "
                        "piece %u of %llu (%s)",
                        b->members[r], theirs.piece, (unsigned long long)theirs.bytes,
                        b->members[b->base.rank], h->piece, (unsigned long long)h->bytes,
                        symm_boot_stage(w));
    if (bytes) memcpy(data, message + sizeof(theirs), bytes);
    return symmSuccess;
}

/* If another thread of this rank revokes the parent, the split fails: the others hear of it and do
 * not come any more. */
typedef struct {
    const boot_mesh *b;
    const symm_wait *w;
    int before; /* it was revoked when the exchange began */
} watchful;

static symmResult_t check_parent(void *arg) {
    const watchful *x = arg;
    SYMM_TRY(symm_boot_check(x->w));
    if (x->b->session || x->before || !symm_mesh_revoked(x->b->mesh)) return symmSuccess;
    return SYMM_ERR(symmAborted, "the communicator was revoked (%s)", symm_boot_stage(x->w));
}

static symmResult_t exchange(boot_mesh *b, const char *send, char *recv, size_t bytes,
                             const symm_wait *w) {
    piece_head h = {.session = b->session, .seq = ++b->seq, .bytes = bytes};
    SYMM_TRY(symm_boot_check(w));
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", b->base.rank);
    char nothing;
    if (!bytes) recv = &nothing; /* may be NULL, which no offset may be added to */
    if (bytes) memmove(recv + (size_t)b->base.rank * bytes, send, bytes);
    const char *own = recv + (size_t)b->base.rank * bytes; /* send may overlap what arrives */
    size_t at = 0;
    do {
        size_t now = piece_bytes(bytes, at);
        SYMM_TRY(send_piece(b, &h, own + at, now, w));
        for (int r = 0; r < b->base.nranks; r++)
            if (r != b->base.rank)
                SYMM_TRY(recv_piece(b, r, &h, recv + (size_t)r * bytes + at, now, w));
        at += now;
        h.piece++;
    } while (at < bytes);
    return symmSuccess;
}

/* A member that cannot be told sees the end of the connection, or its deadline. */
static void tell_members(boot_mesh *b, symmResult_t code) {
    char message[sizeof(piece_head) + 200], own[SYMM_ERR_TEXT];
    const piece_head h = {.session = b->session, .seq = b->seq, .code = code};
    snprintf(own, sizeof own, "%s", symm_status_text());
    const size_t said = strnlen(own, 200);
    memcpy(message, &h, sizeof h);
    memcpy(message + sizeof h, own, said);
    for (int r = 0; r < b->base.nranks; r++)
        if (r != b->base.rank)
            symm_mesh_post(b->mesh, b->members[r], piece_type(b), message, sizeof h + said);
    symm_status_adopt(own);
}

static symmResult_t mesh_allgather(symm_boot *base, const void *send, void *recv, size_t bytes,
                                   const symm_wait *w) {
    boot_mesh *b = (boot_mesh *)base;
    if (b->failed)
        return SYMM_ERR(symmInvalidUsage, "bootstrap parent: an exchange has failed before (%s)",
                        symm_boot_stage(w));
    watchful x = {b, w, symm_mesh_revoked(b->mesh)};
    symm_wait also = *w;
    also.check = check_parent;
    also.arg = &x;
    symm_mesh_session(b->mesh, b->session);
    symmResult_t status = exchange(b, send, recv, bytes, &also);
    symm_mesh_session(b->mesh, 0);
    b->failed = status != symmSuccess;
    /* The others wait for this rank's pieces, and would take later messages for them. */
    if (status && b->session)
        tell_members(b, status);
    else if (status && !symm_mesh_revoked(b->mesh))
        symm_agree_revoke(b->mesh, status, symm_mesh_rank(b->mesh), w->stage, symm_status_text());
    return status;
}

static void mesh_close(symm_boot *b) {
    free(b);
}

/* Its last piece comes next, as this rank has taken its part of all exchanges before. */
static int gave_up(const boot_mesh *b, int peer, symm_boot_loss *loss) {
    char message[sizeof(piece_head) + 200];
    size_t got;
    piece_head theirs;
    if (symm_mesh_next(b->mesh, peer, message, sizeof message, &got) != piece_type(b) ||
        got < sizeof theirs)
        return 0;
    memcpy(&theirs, message, sizeof theirs);
    if (theirs.session != b->session || !tells_failure(&theirs)) return 0;
    loss->code = (symmResult_t)theirs.code;
    snprintf(loss->text, sizeof loss->text, "rank %d of the parent gave up: %.*s", peer,
             (int)(got - sizeof theirs), message + sizeof theirs);
    return 1;
}

/* The parent's connections show who is gone, and of a shrink who has given up. Who gives up a split
 * ends the parent, whose own signs are sooner seen. */
static int mesh_lost(symm_boot *base, const uint8_t *awaited, const symm_wait *w,
                     symm_boot_loss *loss) {
    const boot_mesh *b = (const boot_mesh *)base;
    (void)awaited;
    for (int r = 0; r < base->nranks; r++) {
        const int p = b->members[r];
        if (r == base->rank) continue;
        loss->rank = r;
        if (b->session && gave_up(b, p, loss)) return 1;
        if (symm_mesh_alive(b->mesh, p) && !symm_mesh_hung_up(b->mesh, p)) continue;
        loss->code = symmRemoteError;
        snprintf(loss->text, sizeof(loss->text), "rank %d died or left while %s", r,
                 symm_boot_stage(w));
        return 1;
    }
    return 0;
}

static const symm_boot_ops mesh_ops = {"parent", mesh_allgather, mesh_close, 0, mesh_lost};

int symm_boot_mesh_has(const symm_boot *base, const symm_mesh *mesh, int rank) {
    const boot_mesh *b = (const boot_mesh *)base;
    if (!base || base->ops != &mesh_ops || b->mesh != mesh) return 0;
    for (int r = 0; r < base->nranks; r++)
        if (b->members[r] == rank) return 1;
    return 0;
}

void symm_boot_mesh_rehome(symm_boot *base, struct symm_mesh *own) {
    boot_mesh *b = (boot_mesh *)base;
    if (base->ops != &mesh_ops) return;
    b->mesh = own;
    b->seq = 0;
    b->session = 0;
    for (int r = 0; r < base->nranks; r++) b->members[r] = r;
}

static symmResult_t check_members(const symm_mesh *mesh, const int *members, int n, int rank) {
    if (n < 1 || rank < 0 || rank >= n)
        return SYMM_ERR(symmInternalError, "bootstrap parent: rank %d of %d members", rank, n);
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= symm_mesh_nranks(mesh))
            return SYMM_ERR(symmInternalError, "bootstrap parent: member %d is rank %d of %d", i,
                            members[i], symm_mesh_nranks(mesh));
        for (int j = 0; j < i; j++)
            if (members[j] == members[i])
                return SYMM_ERR(symmInternalError, "bootstrap parent: rank %d is a member twice",
                                members[i]);
    }
    if (members[rank] != symm_mesh_rank(mesh))
        return SYMM_ERR(symmInternalError,
                        "bootstrap parent: member %d is rank %d, this is rank %d", rank,
                        members[rank], symm_mesh_rank(mesh));
    return symmSuccess;
}

symmResult_t symm_boot_mesh_open(struct symm_mesh *mesh, const int *members, int nmembers, int rank,
                                 symm_boot **out) {
    SYMM_TRY(check_members(mesh, members, nmembers, rank));
    if (SYMM_FAIL_HERE(boot_connect))
        return SYMM_ERR(symmSystemError, "failpoint boot_connect on rank %d", rank);
    boot_mesh *b =
        SYMM_FAIL_ALLOC(boot_alloc, calloc(1, sizeof(*b) + (size_t)nmembers * sizeof(int)));
    if (!b) return SYMM_ERR(symmOutOfMemory, "bootstrap parent: out of memory (rank %d)", rank);
    b->base = (symm_boot){.ops = &mesh_ops, .rank = rank, .nranks = nmembers};
    b->mesh = mesh;
    memcpy(b->members, members, (size_t)nmembers * sizeof(int));
    *out = &b->base;
    return symmSuccess;
}

void symm_boot_mesh_survive(symm_boot *base, uint32_t session, const int *members, int nmembers,
                            int rank) {
    boot_mesh *b = (boot_mesh *)base;
    b->base.rank = rank;
    b->base.nranks = nmembers;
    b->session = session;
    memcpy(b->members, members, (size_t)nmembers * sizeof(int));
}
