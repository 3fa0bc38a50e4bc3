/* mc_object.c - the file of a multicast object (mc_object.h). Any thread; o->lock guards this
 * process's own part.
 *
 * An entry has a number that goes up by one when it is bound and when it is unbound. Its words are
 * written before the number becomes odd (release), which pairs with the acquire of `taken`. They
 * are written anew behind the number that says free (each with release), which pairs with the
 * acquire of each word in `taken`: whoever copied words of two lives finds another number, and
 * looks again. */
#define _GNU_SOURCE 1 /* memfd_create, seals */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "mc_object.h"

#define MAGIC 0x73796d6d6d636f62ull /* "symmmcob" */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { ENTRIES = 4096 }; /* of a member; pages that nobody writes cost nothing */

enum { WORDS = sizeof(symm_mc_bound) / sizeof(uint64_t) };

typedef struct {
    _Atomic uint64_t number; /* odd: bound */
    _Atomic uint64_t is[WORDS];
} entry;

typedef struct {
    uint64_t magic, bytes;
    int32_t members;
    _Atomic int32_t joined;
    entry bound[]; /* [members][ENTRIES] */
} record;

struct symm_mc_object {
    pthread_mutex_t lock;
    record *at;
    int member; /* -1: not joined; under the lock */
};

static uint64_t file_bytes(int members) {
    return sizeof(record) + (uint64_t)members * ENTRIES * sizeof(entry);
}

static const entry *entries(const symm_mc_object *o, int member) {
    return o->at->bound + (size_t)member * ENTRIES;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int map_file(int fd, int members, symm_mc_object **out) {
    symm_mc_object *o = SYMM_FAIL_ALLOC(mc_record, calloc(1, sizeof *o));
    if (!o) return ENOMEM;
    void *at = mmap(NULL, file_bytes(members), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        const int err = errno;
        free(o);
        return err;
    }
    pthread_mutex_init(&o->lock, NULL);
    o->at = at;
    o->member = -1;
    *out = o;
    return 0;
}

static int fill_file(int fd, uint64_t bytes, int members, symm_mc_object **o) {
    if (ftruncate(fd, (off_t)file_bytes(members)) || fcntl(fd, F_ADD_SEALS, SEALS)) return errno;
    const int err = map_file(fd, members, o);
    if (err) return err;
    (*o)->at->magic = MAGIC;
    (*o)->at->bytes = bytes;
    (*o)->at->members = members;
    return 0;
}

int symm_mc_object_make(uint64_t bytes, int members, symm_mc_object **o, int *fd) {
    int made = SYMM_FAIL_CALL(
        mc_file, -1, EMFILE,
        symm_fd_above(memfd_create("symm-multicast", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (made < 0) return errno;
    const int err = fill_file(made, bytes, members, o);
    if (err)
        close(made);
    else
        *fd = made;
    return err;
}

/* The seals first: a file that its maker can still make smaller is not mapped. */
static int inspect(int fd, uint64_t bytes, int *members) {
    record head;
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st)) return EINVAL;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head) return EINVAL;
    if (head.magic != MAGIC || (bytes && head.bytes != bytes) || head.members < 1 ||
        head.members > 1 << 16 || (uint64_t)st.st_size != file_bytes(head.members))
        return EINVAL;
    *members = head.members;
    return 0;
}

int symm_mc_object_open(int fd, uint64_t bytes, symm_mc_object **o) {
    int members = 0;
    const int err = inspect(fd, bytes, &members);
    return err ? err : map_file(fd, members, o);
}

void symm_mc_object_close(symm_mc_object *o) {
    munmap(o->at, file_bytes(o->at->members));
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- members --------------------------------------------------------------------------------- */

int symm_mc_object_members(const symm_mc_object *o) {
    return o->at->members;
}

uint64_t symm_mc_object_bytes(const symm_mc_object *o) {
    return o->at->bytes;
}

int symm_mc_object_full(const symm_mc_object *o) {
    /* Acquire: pairs with the release of the last one to join. */
    return atomic_load_explicit(&o->at->joined, memory_order_acquire) >= o->at->members;
}

int symm_mc_object_join(symm_mc_object *o) {
    int err = 0;
    pthread_mutex_lock(&o->lock);
    if (o->member >= 0) {
        err = EALREADY;
    } else if (symm_mc_object_full(o)) {
        err = EBUSY;
    } else {
        o->member = atomic_fetch_add_explicit(&o->at->joined, 1, memory_order_acq_rel);
        if (o->member >= o->at->members) { /* others came between */
            o->member = -1;
            err = EBUSY;
        }
    }
    pthread_mutex_unlock(&o->lock);
    return err;
}

/* ---- what is bound --------------------------------------------------------------------------- */

/* 1: *out is what the entry has bound. */
static int taken(const entry *e, symm_mc_bound *out) {
    uint64_t words[WORDS], number;
    do {
        number = atomic_load_explicit(&e->number, memory_order_acquire);
        if (!(number & 1)) return 0;
        for (int i = 0; i < WORDS; i++)
            words[i] = atomic_load_explicit(&e->is[i], memory_order_acquire);
    } while (atomic_load_explicit(&e->number, memory_order_relaxed) != number);
    memcpy(out, words, sizeof words);
    return 1;
}
/* Under the lock. */
static void take(entry *e, const symm_mc_bound *b) {
    uint64_t words[WORDS];
    memcpy(words, b, sizeof words);
    for (int i = 0; i < WORDS; i++) /* behind the number that says free */
        atomic_store_explicit(&e->is[i], words[i], memory_order_release);
    atomic_fetch_add_explicit(&e->number, 1, memory_order_release);
}

/* Under the lock: a free entry, where [off, off + bytes) is over nothing. */
static int find_room(const symm_mc_object *o, uint64_t off, uint64_t bytes, int *room) {
    const entry *mine = entries(o, o->member);
    *room = -1;
    for (int i = 0; i < ENTRIES; i++) {
        symm_mc_bound is;
        if (!taken(&mine[i], &is)) {
            if (*room < 0) *room = i;
        } else if (is.off < off + bytes && off < is.off + is.bytes) {
            return EINVAL;
        }
    }
    return *room < 0 ? ENOSPC : 0;
}

int symm_mc_object_bind(symm_mc_object *o, const symm_mc_bound *b) {
    int room, err;
    if (!b->bytes || b->off > o->at->bytes || b->bytes > o->at->bytes - b->off) return EINVAL;
    if (!symm_mc_object_full(o)) return EAGAIN;
    pthread_mutex_lock(&o->lock);
    err = o->member < 0 ? EINVAL : find_room(o, b->off, b->bytes, &room);
    if (!err) take(&o->at->bound[(size_t)o->member * ENTRIES + (size_t)room], b);
    pthread_mutex_unlock(&o->lock);
    return err;
}

int symm_mc_object_unbind(symm_mc_object *o, uint64_t off, uint64_t bytes) {
    int err = EINVAL;
    pthread_mutex_lock(&o->lock);
    for (int i = 0; i < ENTRIES && o->member >= 0; i++) {
        entry *e = &o->at->bound[(size_t)o->member * ENTRIES + (size_t)i];
        symm_mc_bound is;
        if (!taken(e, &is) || is.off != off || is.bytes != bytes) continue;
        atomic_fetch_add_explicit(&e->number, 1, memory_order_release);
        err = 0;
    }
    pthread_mutex_unlock(&o->lock);
    return err;
}

int symm_mc_object_find(const symm_mc_object *o, int member, uint64_t off, uint64_t bytes,
                        symm_mc_bound *out) {
    const entry *list = entries(o, member);
    for (int i = 0; i < ENTRIES; i++) {
        if (!taken(&list[i], out)) continue;
        if (out->off <= off && bytes <= out->bytes && off - out->off <= out->bytes - bytes)
            return 1;
    }
    return 0;
}
