/* memcut.c - parts of files (see memcut.h). Any thread; cuts.lock guards files and their bits.
 *
 * A granule of a file is free, in use, or waiting: freed here, but another process may have it.
 * Waiting granules count as in use. A forked child inherits the parent's files and takes nothing
 * out of them, as the parent would not know. It keeps what it has mapped in the same way as a
 * process that a part was exported to: by locks that end with it. */
#define _GNU_SOURCE 1 /* F_OFD_SETLK, fallocate */
#include "memcut.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/fd.h"
#include "base/stats.h"
#include "memfd.h"

#define GRANULE SYMM_MEMCUT_GRANULE
#define LEAST   (1ull << 30) /* of a file, where the machine has so much */
#define PARTS   32           /* of the first one's size that a file has room for */
/* A position: place and size in granules, 31 bits each. 0: the whole file. */
#define HALF 31
#define MASK ((1ull << HALF) - 1)

/* Whether forked children may have parts. FORKED_UNLOCKED: a child could not be given a lock, so
 * nothing tells when it ends. The file then gives out no parts and no pages back until all of it is
 * freed. */
enum { NOT_FORKED, FORKED, FORKED_UNLOCKED };

struct symm_memcut_file {
    symm_memcut_file *next;
    int fd;
    pid_t owner;
    uint64_t id[2];
    uint64_t n, taken, waiting; /* granules; taken: waiting ones too */
    uint64_t *used, *wait;      /* bits */
    int whole;                  /* of one part: closed when that is freed, never used again */
    _Atomic int forked;         /* written with the lock */
    void *child;                /* with the lock, only during a fork, and in the child */
};

static struct {
    pthread_mutex_t lock; /* files and their bits */
    symm_memcut_file *files;
    uint64_t waiting, stuck; /* granules that wait; those that the last look has left */
    uint64_t met, asked;     /* holders that the last look has met; symm_memcut_look since */
    unsigned checked;        /* how often the invariants were asked for, see symm_memcut_check */
} cuts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- bits ------------------------------------------------------------------------------------ */

static int bit(const uint64_t *bits, uint64_t i) {
    return bits[i / 64] >> i % 64 & 1;
}

static void set_bits(uint64_t *bits, uint64_t at, uint64_t n, int on) {
    for (uint64_t i = at; i < at + n; i++)
        if (on)
            bits[i / 64] |= 1ull << i % 64;
        else
            bits[i / 64] &= ~(1ull << i % 64);
}

/* Under the lock: numbers and bits agree, and what waits counts as in use. */
static void check_file(const symm_memcut_file *f) {
    uint64_t used = 0, wait = 0;
    for (uint64_t i = 0; i < (f->n + 63) / 64; i++) {
        SYMM_ASSERT(!(f->wait[i] & ~f->used[i]));
        used += (uint64_t)__builtin_popcountll(f->used[i]);
        wait += (uint64_t)__builtin_popcountll(f->wait[i]);
    }
    SYMM_ASSERT(used == f->taken && wait == f->waiting && f->taken <= f->n);
}

/* Under the lock, of all files each 64th time. */
static void symm_memcut_check(const symm_memcut_file *f) {
    uint64_t waiting = 0;
    if (f) check_file(f);
    if (++cuts.checked % 64) return;
    for (f = cuts.files; f; f = f->next) {
        check_file(f);
        waiting += f->waiting;
    }
    SYMM_ASSERT(waiting == cuts.waiting);
}

/* The first n free granules in a row; f->n if there are none. */
static uint64_t find_free(const symm_memcut_file *f, uint64_t n) {
    uint64_t row = 0;
    if (f->n - f->taken < n) return f->n;
    for (uint64_t i = 0; i < f->n; i++) {
        if (!row && f->used[i / 64] == UINT64_MAX) {
            i |= 63;
            continue;
        }
        row = bit(f->used, i) ? 0 : row + 1;
        if (row == n) return i + 1 - n;
    }
    return f->n;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A new open file description of the same file; each export needs one. */
static int reopen(int fd) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return symm_fd_above(open(path, O_RDWR | O_CLOEXEC));
}

/* 0: no other process has any of it. Also 1 if that cannot be told. */
static int is_held(const symm_memcut_file *f, uint64_t off, uint64_t bytes, struct flock *by) {
    *by = (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)off, .l_len = (off_t)bytes};
    if (fcntl(f->fd, F_OFD_GETLK, by) == 0) return by->l_type != F_UNLCK;
    by->l_len = 0; /* to the end */
    return 1;
}

/* -1: the bytes are there still. */
static int punch(const symm_memcut_file *f, uint64_t off, uint64_t bytes) {
    return fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)bytes);
}

static uint64_t size_for(uint64_t bytes) {
    uint64_t size = bytes > LEAST / PARTS ? bytes * PARTS : LEAST;
    if (bytes > UINT64_MAX / PARTS || symm_fail_any()) return bytes;
    while (size >= 2 * bytes && !symm_memfd_fits(size)) size = size / 2 / GRANULE * GRANULE;
    return size >= 2 * bytes ? size : bytes;
}

static symm_memcut_file *new_record(uint64_t n) {
    const uint64_t words = (n + 63) / 64;
    symm_memcut_file *f = calloc(1, sizeof *f + 2 * words * sizeof(uint64_t));
    if (!f) return NULL;
    f->n = n;
    f->used = (uint64_t *)(void *)(f + 1);
    f->wait = f->used + words;
    return f;
}

/* Whether parts can be exported and freed on this system at all: /proc, locks, holes. */
static int can_share(const symm_memcut_file *f) {
    struct flock by;
    const int own = reopen(f->fd);
    if (own < 0) return 0;
    close(own);
    return !is_held(f, 0, GRANULE, &by) && !punch(f, 0, GRANULE);
}

static int new_file(uint64_t bytes, symm_memcut_file **out) {
    const uint64_t size = size_for(bytes);
    symm_memcut_file *f = SYMM_FAIL_ALLOC(vmm_file, new_record(size / GRANULE));
    if (!f) return ENOMEM;
    int err = symm_memfd_make(size, &f->fd, f->id);
    if (err) {
        free(f);
        return err;
    }
    if (size > bytes && !can_share(f)) { /* one with room for nothing else */
        close(f->fd);
        err = symm_memfd_make(bytes, &f->fd, f->id);
        if (err) {
            free(f);
            return err;
        }
        f->n = bytes / GRANULE;
    }
    f->whole = f->n == bytes / GRANULE;
    f->owner = getpid();
    SYMM_STAT_ADD(fds, 1);
    *out = f;
    return 0;
}

/* Under the lock, of a file that nothing of is in use. */
static void take_out(symm_memcut_file *gone) {
    symm_memcut_file **at = &cuts.files;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    cuts.waiting -= gone->waiting;
}

/* Without the lock. */
static void end_file(symm_memcut_file *f) {
    if (!f) return;
    if (f->child) munmap(f->child, GRANULE); /* a child is done with all that it inherited */
    close(f->fd);
    SYMM_STAT_ADD(fds, -1);
    free(f);
}

/* ---- what others have --------------------------------------------------------------------------
 * */

/* Under the lock. [lo, hi) waits: the parts of it that no process has any more become free. */
static void look_at(symm_memcut_file *f, uint64_t lo, uint64_t hi) {
    struct flock by;
    while (lo < hi && is_held(f, lo, hi - lo, &by)) {
        cuts.met++;
        const uint64_t start = (uint64_t)by.l_start, len = (uint64_t)by.l_len;
        if (start > lo) look_at(f, lo, start);
        lo = !len || start + len >= hi ? hi : start + len;
    }
    if (lo >= hi || punch(f, lo, hi - lo)) return;
    const uint64_t n = (hi - lo) / GRANULE;
    set_bits(f->used, lo / GRANULE, n, 0);
    set_bits(f->wait, lo / GRANULE, n, 0);
    f->taken -= n;
    f->waiting -= n;
    cuts.waiting -= n;
}

/* At most 64 granules at a time: each held part splits the range in two. */
static void look_through(symm_memcut_file *f) {
    if (atomic_load(&f->forked) == FORKED_UNLOCKED) return;
    for (uint64_t i = 0, n; f->waiting && i < f->n; i += n) {
        n = 1;
        if (!bit(f->wait, i)) continue;
        while (n < 64 && i + n < f->n && bit(f->wait, i + n)) n++;
        look_at(f, i * GRANULE, (i + n) * GRANULE);
    }
}

/* Under the lock. */
static void look_everywhere(pid_t me) {
    cuts.met = cuts.asked = 0;
    for (symm_memcut_file *f = cuts.files; f; f = f->next)
        if (f->owner == me) look_through(f);
    cuts.stuck = cuts.waiting;
}

/* The more holders the last look has met, the rarer the next: holders that stay do not slow every
 * caller down. */
void symm_memcut_look(void) {
    pthread_mutex_lock(&cuts.lock);
    if (cuts.waiting && ++cuts.asked * 64 > cuts.met) look_everywhere(getpid());
    pthread_mutex_unlock(&cuts.lock);
}

/* Without the lock. A fork at this moment changes nothing: the child has no mapping of the part. */
static int others_have(const symm_memcut_file *f, const symm_memcut *cut) {
    struct flock by;
    const int forked = atomic_load(&f->forked);
    if (forked == FORKED_UNLOCKED) return 1;
    return (atomic_load(&cut->handed) || forked) && is_held(f, cut->off, cut->bytes, &by);
}

/* ---- fork --------------------------------------------------------------------------------------
 * The child inherits the mappings of all parts in use, so it gets a lock on them. The lock is of an
 * open file description of its own. A mapping keeps that open until the child ends or executes
 * another program. (A descriptor would not do: children close those that they do not know.) The
 * parent unmaps it after the fork. A child's own child has the mapping too. cuts.lock is held
 * during the fork, so the child finds files and bits that agree, and the lock free. */

static int lock_used(const symm_memcut_file *f, int fd) {
    for (uint64_t i = 0, n; i < f->n; i += n) {
        n = 0;
        while (i + n < f->n && bit(f->used, i + n) && !bit(f->wait, i + n)) n++;
        struct flock lock = {.l_type = F_RDLCK,
                             .l_whence = SEEK_SET,
                             .l_start = (off_t)(i * GRANULE),
                             .l_len = (off_t)(n * GRANULE)};
        if (n && fcntl(fd, F_OFD_SETLK, &lock)) return -1;
        n += !n;
    }
    return 0;
}

/* NULL: there was no lock, descriptor or mapping left. */
static void *lock_for_child(const symm_memcut_file *f) {
    const int fd = reopen(f->fd);
    if (fd < 0) return NULL;
    void *child = mmap(NULL, GRANULE, PROT_NONE, MAP_SHARED, fd, 0);
    if (child == MAP_FAILED) {
        child = NULL;
    } else if (lock_used(f, fd)) {
        munmap(child, GRANULE);
        child = NULL;
    }
    close(fd);
    return child;
}

static int needs_lock(const symm_memcut_file *f, pid_t me) {
    return f->owner == me && !f->whole && atomic_load(&f->forked) != FORKED_UNLOCKED;
}

static void before_fork(void) {
    const pid_t me = getpid();
    pthread_mutex_lock(&cuts.lock);
    for (symm_memcut_file *f = cuts.files; f; f = f->next) {
        if (!needs_lock(f, me)) continue;
        f->child = lock_for_child(f);
        atomic_store(&f->forked, f->child ? FORKED : FORKED_UNLOCKED);
    }
}

static void in_parent(void) {
    const pid_t me = getpid();
    for (symm_memcut_file *f = cuts.files; f; f = f->next) {
        if (f->owner != me || !f->child) continue;
        munmap(f->child, GRANULE);
        f->child = NULL;
    }
    pthread_mutex_unlock(&cuts.lock);
}

static void in_child(void) {
    pthread_mutex_unlock(&cuts.lock);
}

/* Registered before any other handler of the library or the program. Handlers that were registered
 * later run earlier, so their locks are taken before cuts.lock, as they are around an
 * allocation. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- making and giving back -------------------------------------------------------------------
 * */

/* Under the lock. */
static symm_memcut_file *find_room(pid_t me, uint64_t n, uint64_t *at) {
    for (symm_memcut_file *f = cuts.files; f; f = f->next) {
        if (atomic_load(&f->forked) == FORKED_UNLOCKED) continue;
        if (f->owner == me && (*at = find_free(f, n)) < f->n) return f;
    }
    return NULL;
}

static void take(symm_memcut_file *f, uint64_t at, uint64_t n) {
    SYMM_ASSERT(at + n <= f->n);
    set_bits(f->used, at, n, 1);
    f->taken += n;
}

int symm_memcut_make(uint64_t bytes, symm_memcut *cut, uint64_t id[2]) {
    const uint64_t n = bytes / GRANULE;
    const pid_t me = getpid();
    uint64_t at = 0;
    symm_memcut_file *f = NULL;
    const int fresh = symm_fail_any();
    pthread_mutex_lock(&cuts.lock);
    /* Twice as much waits as the last look has left: so the cost of a look is spread over what it
     * may find. */
    if (cuts.waiting > 2 * cuts.stuck + 16) look_everywhere(me);
    if (!fresh) f = find_room(me, n, &at);
    if (!fresh && !f && cuts.waiting) {
        look_everywhere(me);
        f = find_room(me, n, &at);
    }
    if (f) take(f, at, n);
    SYMM_CHECK(symm_memcut_check(f));
    pthread_mutex_unlock(&cuts.lock);
    if (!f) {
        int err = new_file(bytes, &f);
        if (err) return err;
        pthread_mutex_lock(&cuts.lock);
        take(f, at = 0, n);
        f->next = cuts.files;
        cuts.files = f;
        pthread_mutex_unlock(&cuts.lock);
    }
    *cut = (symm_memcut){.file = f, .fd = f->fd, .off = at * GRANULE, .bytes = bytes};
    id[0] = f->id[0] ^ at << 32;
    id[1] = f->id[1];
    return 0;
}

void symm_memcut_free(symm_memcut *cut) {
    symm_memcut_file *f = cut->file;
    const uint64_t at = cut->off / GRANULE, n = cut->bytes / GRANULE;
    int waits = 0;
    if (!f->whole && f->owner == getpid())
        waits = others_have(f, cut) || punch(f, cut->off, cut->bytes);
    pthread_mutex_lock(&cuts.lock);
    SYMM_CHECK(symm_memcut_check(f));
    if (waits) {
        set_bits(f->wait, at, n, 1);
        f->waiting += n;
        cuts.waiting += n;
    } else {
        set_bits(f->used, at, n, 0);
        f->taken -= n;
    }
    const int last = f->taken == f->waiting;
    if (last) {
        if (f->owner == getpid())
            look_through(f); /* pages that no process has go back to the system */
        take_out(f);
    }
    SYMM_CHECK(symm_memcut_check(f));
    pthread_mutex_unlock(&cuts.lock);
    if (last) end_file(f);
}

/* ---- handing on --------------------------------------------------------------------------------
 * */

static int mark(int fd, const symm_memcut *cut) {
    const uint64_t at = cut->off / GRANULE, n = cut->bytes / GRANULE;
    struct flock lock = {.l_type = F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)cut->off,
                         .l_len = (off_t)cut->bytes};
    if (lseek(fd, (off_t)(n << HALF | at), SEEK_SET) < 0) return errno;
    return SYMM_FAIL_CALL(vmm_mark, -1, ENOLCK, fcntl(fd, F_OFD_SETLK, &lock)) ? errno : 0;
}

int symm_memcut_export(symm_memcut *cut, int *fd) {
    const int whole = cut->file->whole;
    int own = SYMM_FAIL_CALL(vmm_dup, -1, EMFILE,
                             whole ? fcntl(cut->fd, F_DUPFD_CLOEXEC, 3) : reopen(cut->fd));
    if (own < 0) return errno;
    atomic_store(&cut->handed, 1);
    int err = whole ? 0 : mark(own, cut);
    if (err)
        close(own);
    else
        *fd = own;
    return err;
}

int symm_memcut_inspect(int fd, uint64_t bytes, uint64_t *off, uint64_t id[2]) {
    struct stat st;
    const off_t position = lseek(fd, 0, SEEK_CUR);
    const uint64_t place = position > 0 ? (uint64_t)position : 0, at = place & MASK;
    *off = at * GRANULE;
    if (!place) return symm_memfd_inspect(fd, bytes, id); /* and of what has no position */
    if (fstat(fd, &st) != 0) return errno;
    const uint64_t size = (uint64_t)st.st_size;
    int err = symm_memfd_inspect(fd, size, id);
    if (err) return err;
    if ((place >> HALF) * GRANULE != bytes || *off > size || bytes > size - *off) return EINVAL;
    id[0] ^= at << 32;
    return 0;
}
