/* shared.c - host memory of all ranks. Threads as in shared.h. Lock: list_lock, over the list and
 * the references. */
#include "shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "transport/vmm/memfd.h"

struct symm_shared {
    symm_shared *next;
    uint64_t id;
    int refs;
    size_t part, bytes;
    char *base;
};

typedef struct {
    int32_t code, pad;
    uint64_t id;
} meeting;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_shared *list;
static uint64_t last_id;

static symmResult_t map(int fd, size_t part, int nranks, symm_shared **out) {
    symm_shared *s = SYMM_FAIL_ALLOC(shared_record, calloc(1, sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for the record of shared memory");
    s->part = part;
    s->bytes = part * (size_t)nranks;
    s->base = SYMM_FAIL_CALL(shared_map, MAP_FAILED, ENOMEM,
                             mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (s->base == MAP_FAILED) {
        symmResult_t r =
            SYMM_ERR(symmOutOfMemory, "mapping %zu bytes that ranks share: %m", s->bytes);
        free(s);
        return r;
    }
    s->refs = 1;
    SYMM_STAT_ADD(maps, 1);
    pthread_mutex_lock(&list_lock);
    s->id = ++last_id;
    s->next = list;
    list = s;
    pthread_mutex_unlock(&list_lock);
    *out = s;
    return symmSuccess;
}

/* By number, because the rank that made it may have given up meanwhile. */
static symm_shared *find(uint64_t id) {
    pthread_mutex_lock(&list_lock);
    symm_shared *s = list;
    while (s && s->id != id) s = s->next;
    SYMM_ASSERT(!s || s->refs > 0);
    if (s) s->refs++;
    pthread_mutex_unlock(&list_lock);
    return s;
}

void symm_shared_drop(symm_shared *s) {
    if (!s) return;
    pthread_mutex_lock(&list_lock);
    SYMM_ASSERT(s->refs > 0 && s->bytes % s->part == 0);
    const int last = --s->refs == 0;
    for (symm_shared **at = &list; last && *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    if (!last) return;
    munmap(s->base, s->bytes);
    SYMM_STAT_ADD(maps, -1);
    free(s);
}

void *symm_shared_part(const symm_shared *s, int rank) {
    SYMM_ASSERT(rank >= 0 && (size_t)rank * s->part < s->bytes);
    return s->base + (size_t)rank * s->part;
}

static symmResult_t make(size_t part, int nranks, int *fd, symm_shared **out) {
    uint64_t id[2];
    int f, err = symm_memfd_make(part * (size_t)nranks, &f, id);
    if (err)
        return SYMM_ERR(err == EMFILE || err == ENFILE ? symmFdLimit : symmSystemError,
                        "memory that %d ranks share: %s", nranks, strerror(err));
    SYMM_STAT_ADD(fds, 1);
    *fd = f;
    return map(f, part, nranks, out);
}

/* Rank 0's descriptor to everybody. */
static symmResult_t trade(symm_comm *c, size_t part, int *fd, const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    uint64_t bytes = part, id[2];
    size_t got = 0;
    if (c->rank == 0) {
        for (int p = 1; p < c->nranks; p++)
            SYMM_TRY(symm_mesh_send(c->mesh, p, SYMM_MSG_HANDLES, &bytes, sizeof bytes, fd, 1, &w));
        return symmSuccess;
    }
    SYMM_TRY(symm_mesh_recv(c->mesh, 0, SYMM_MSG_HANDLES, &bytes, sizeof bytes, &got, fd, 1, &w));
    int err = symm_memfd_inspect(*fd, part * (uint64_t)c->nranks, id);
    if (err)
        return SYMM_ERR(symmInternalError, "rank 0 sent no sealed memory for %d ranks: %s",
                        c->nranks, strerror(err));
    return symmSuccess;
}

/* Rank 0 has succeeded: the others map its memory. Their errors are told in the agreement that
 * follows. */
static symmResult_t take(symm_comm *c, uint64_t id, size_t part, int *fd, symm_shared **out,
                         const char *stage) {
    if (c->threads) {
        if (c->rank && !(*out = find(id)))
            return SYMM_ERR(symmRemoteError, "rank 0 has given up %s", stage);
        return symmSuccess;
    }
    symmResult_t r = trade(c, part, fd, stage);
    if (!r && c->rank) r = map(*fd, part, c->nranks, out);
    return r;
}

/* How it has come out on all ranks. fd: of what was made or taken, -1 none. */
static symmResult_t settle(symm_shared *s, int fd, symmResult_t status, symm_shared **out) {
    if (fd >= 0) {
        close(fd);
        SYMM_STAT_ADD(fds, -1);
    }
    if (status)
        symm_shared_drop(s);
    else
        *out = s;
    return status;
}

/* Of ranks on several hosts each has such memory for itself (symm_comm_sees). */
static symmResult_t open_alone(symm_comm *c, symmResult_t mine, size_t bytes, const char *stage,
                               symm_shared **out) {
    symm_shared *s = NULL;
    int fd = -1;
    if (!mine) mine = make(bytes, c->nranks, &fd, &s);
    return settle(s, fd, symm_comm_agree(c, mine, stage), out);
}

symmResult_t symm_shared_open(symm_comm *c, symmResult_t mine, size_t bytes, const char *stage,
                              symm_shared **out) {
    meeting all[SYMM_MAX_RANKS], me = {0, 0, 0};
    symm_shared *s = NULL;
    int fd = -1, bad = 0;
    if (c->hosts > 1) return open_alone(c, mine, bytes, stage, out);
    if (!mine && c->rank == 0) mine = make(bytes, c->nranks, &fd, &s);
    me.code = (int32_t)mine;
    me.id = s ? s->id : 0;
    symmResult_t status = symm_comm_gather(c, &me, all, sizeof me, stage);
    if (status) return settle(s, fd, status, out);
    for (int r = 0; r < c->nranks; r++) bad |= all[r].code;
    if (!bad) mine = take(c, all[0].id, bytes, &fd, &s, stage);
    return settle(s, fd, symm_comm_agree(c, mine, stage), out);
}
