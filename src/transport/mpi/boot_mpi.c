/* boot_mpi.c - bootstrap over an MPI communicator. Part of libsymm-mpi. Only
 * the thread inside the call enters MPI, and but for one step only by calls that do not wait for a
 * peer, because a blocking call could not be given up at the deadline. `attach_lock` guards the
 * making of a link and whose turn it is. It is never held during an MPI wait.
 *
 * Ranks exchange here what they need to connect their mesh. After that the communicator uses the
 * mesh and does not enter MPI any more (comm_make.c). So one duplicate of the user's communicator
 * serves any number of communicators. Only those that are being made use it, one at a time, because
 * two exchanges on it would have to come in the same order on all ranks. The others of this process
 * wait.
 *
 * A "link" is what is kept for each user communicator, as an MPI attribute: the duplicate for the
 * blocks, and what is outstanding. An MPI collective that has begun cannot be cancelled. At a
 * deadline it stays outstanding, and the next call on the same communicator continues it. So ranks
 * that gave up waiting for a late rank succeed together with it later. The steps:
 * 1. Greeting: a nonblocking allgather on the user's communicator. When it is complete, every rank
 *    is inside this call.
 * 2. Only if the ranks have no common duplicate that works: rounds on the user's communicator, and
 *    MPI_Comm_split into one part, which waits for all ranks without a deadline. Each round is a
 *    nonblocking allreduce: whether all began the step before it in the call in which they began
 *    this one. If so, all were in their calls when that step ended, and nobody waits for a rank
 *    that has begun something, given up since, and does not call again. MPI_Comm_idup would not
 *    wait, but runs the program's attribute callbacks, here and when the duplicate is freed, and
 *    the program knows of no duplicate.
 * 3. Blocks: nonblocking allgathers on the duplicate, which nobody else uses. If one fails, the
 *    duplicate is not used again. MPI cannot say who is missing; beacons can (beacon.h). */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "symm_mpi.h"

#include "base/fail.h"
#include "base/param.h"
#include "host/life/comm_create.h"
#include "transport/boot/beacon.h"
#include "transport/boot/boot_text.h"
#include "boot_mpi.h"

#define HELLO_MAGIC 0x4d796d73u /* "smyM" */
/* When the beacons of the others are looked at first. The time between two looks doubles. */
#define PEEK_NS     50000000ull
#define PEEK_MAX_NS 1000000000ull
#define TURN_NS     20000000 /* how often the deadline is checked while another call has the link */
#define STAY_NS     2000000000ull /* how long a round has at least */
#define DARK_NS     5000000000ull /* so long dark: the rank is gone, and not only done */

typedef struct { /* a rank's greeting; and, with seq and bytes, the head of each block */
    uint32_t magic, version;
    int32_t usable; /* generation of the duplicate that this rank could use; 0: none */
    int32_t last;   /* highest generation it has seen */
    uint64_t seq, bytes;
    uint64_t sight; /* of a greeting: symm_beacon_sight */
} hello;

typedef struct mpi_link {
    struct mpi_link *next; /* in the list of those that are never freed */
    MPI_Comm dup;          /* generation `usable`, if that is not 0 */
    MPI_Request request;   /* of the greeting or the round */
    enum { IDLE, GREETING, STAYING } state;
    int usable, last;
    int here;     /* the step before was begun in this call */
    int stays[2]; /* of the round: whether so it was on this rank; on all */
    uint64_t seq; /* exchanges begun on dup */
    _Atomic int busy;
    int orphan; /* the user freed the communicator while a bootstrap used it */
    hello mine;
    hello all[]; /* [nranks] */
} mpi_link;

typedef struct round { /* one exchange: our block, then everybody's */
    struct round *next;
    MPI_Request request;
    char data[];
} round;

typedef struct {
    symm_boot base;
    mpi_link *link;
    symm_beacon *beacon;
    symm_beacon_key key;
    int failed;
    unsigned char *seen, *dark; /* [nranks] beacons that were seen; that have gone out since */
} boot_mpi;

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t link_free = PTHREAD_COND_INITIALIZER; /* a link has become free */
static int link_keyval = MPI_KEYVAL_INVALID;                /* under attach_lock */
/* Exchanges that were given up, and links whose communicator was freed while something was
 * outstanding. MPI still owns their buffers and may write into them, so they live as long as the
 * process. They are in a list so that debuggers and leak checkers find them. */
static _Atomic(round *) abandoned;
static _Atomic(mpi_link *) stranded;

/* ---- MPI's state ---- */

static symmResult_t mpi_result(int rc, const char *call, const symm_wait *w) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    if (rc == MPI_SUCCESS) return symmSuccess;
    MPI_Error_string(rc, text, &len);
    return SYMM_ERR(symmSystemError, "%s failed: %.200s (%s)", call, text, symm_boot_stage(w));
}

/* ---- waiting ---- */

typedef struct { /* one wait for the others */
    boot_mpi *b;
    const symm_wait *w;
    int greeting; /* the greeting, to which some ranks may not have come yet */
    uint64_t start_ns, look_ns, peek_ns, spacing_ns;
    uint64_t dark_ns; /* when a rank was first seen to be gone; 0: none is */
} wait;

/* Whether rank r's beacon can be seen here, as the greetings say. */
static int is_near(const boot_mpi *b, int r) {
    return b->link->all[r].sight == b->link->mine.sight;
}
static int are_near(const boot_mpi *b) {
    int r = 0;
    while (r < b->base.nranks && is_near(b, r)) r++;
    return r == b->base.nranks;
}

/* In the greeting: a rank that was seen once has come, even if it has given up since. Later: the
 * rank whose beacon went dark first is the cause; the others gave up because of it. */
static void peek(wait *x) {
    boot_mpi *b = x->b;
    int many = 0, keep = !x->greeting && x->dark_ns;
    for (int r = 0; r < b->base.nranks; r++) {
        int dark = 0;
        if (r != b->base.rank && (x->greeting ? !b->seen[r] : is_near(b, r))) {
            dark = symm_beacon_seen(&b->key, r) == 0;
            b->seen[r] = !dark;
        }
        many += dark;
        if (!keep) b->dark[r] = (unsigned char)dark;
    }
    if (!many) x->dark_ns = 0;
    if (many && !x->dark_ns) x->dark_ns = symm_now_ns();
}

/* Beacons work on one host only. With several hosts a dark rank may be on another one. */
static const char *far_note(void) {
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                           {"MPI_LOCALNRANKS", "PMI_SIZE"}};
    for (int i = 0; i < 2; i++) { /* of Open MPI's launcher, of MPICH's */
        const char *here = getenv(names[i][0]), *all = getenv(names[i][1]);
        if (here && all && atoi(here) < atoi(all))
            return "; ranks of other hosts cannot be told from missing ones";
    }
    return "";
}

static symmResult_t deadline_reached(wait *x) {
    const boot_mpi *b = x->b;
    char ranks[256];
    double waited = symm_boot_seconds(x->start_ns);
    if (x->greeting || !x->dark_ns) peek(x);
    symm_boot_ranks(b->dark, b->base.nranks, ranks, sizeof(ranks));
    if (x->dark_ns && x->greeting)
        return SYMM_ERR(symmTimeout, "%s never called symmCommInitMPI (waited %.1f s%s)", ranks,
                        waited, far_note());
    if (x->dark_ns)
        return SYMM_ERR(symmTimeout, "%s ended or gave up while %s (waited %.1f s)", ranks,
                        symm_boot_stage(x->w), waited);
    return SYMM_ERR(symmTimeout,
                    "MPI did not complete an exchange within %.1f s though every rank%s is inside "
                    "symmCommInitMPI (rank %d, while %s)",
                    waited, are_near(b) ? "" : " of this host", b->base.rank,
                    symm_boot_stage(x->w));
}

/* Once all ranks have come, a beacon that stays dark means that its rank has ended. Not at once:
 * the rank may have its result already, while ours is still on the way. */
static symmResult_t watch_peers(wait *x, uint64_t now) {
    char ranks[256];
    x->peek_ns = now + x->spacing_ns;
    if (x->spacing_ns < PEEK_MAX_NS) x->spacing_ns *= 2;
    peek(x);
    if (x->greeting || !x->dark_ns || now < x->dark_ns + DARK_NS || !are_near(x->b))
        return symmSuccess;
    symm_boot_ranks(x->b->dark, x->b->base.nranks, ranks, sizeof(ranks));
    return SYMM_ERR(symmRemoteError, "%s ended or gave up while %s", ranks, symm_boot_stage(x->w));
}

/* Other ranks need the cores in order to come: yields first, then sleeps. */
static void rest(unsigned turn) {
    struct timespec nap = {0, 20000};
    if (turn < 100)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Waits for the request. After an error of ours it stays outstanding; *r says so. */
static symmResult_t await_request(boot_mpi *b, MPI_Request *r, int greeting, const symm_wait *w) {
    uint64_t start = symm_now_ns();
    wait x = {b, w, greeting, start, start, start + PEEK_NS, PEEK_NS, 0};
    for (unsigned turn = 0;; turn++) {
        int done = 0;
        SYMM_TRY(mpi_result(MPI_Test(r, &done, MPI_STATUS_IGNORE), "MPI_Test", w));
        if (done) return symmSuccess;
        uint64_t now = symm_now_ns();
        if (now >= x.look_ns) {
            x.look_ns = now + 2000000;
            const symmResult_t status = symm_boot_check(w);
            /* A complete request counts: a peer may have gone on and ended meanwhile. */
            if (status) {
                SYMM_TRY(mpi_result(MPI_Test(r, &done, MPI_STATUS_IGNORE), "MPI_Test", w));
                return done ? symmSuccess : status;
            }
        }
        if (symm_wait_over(w)) return deadline_reached(&x);
        if (now >= x.peek_ns) SYMM_TRY(watch_peers(&x, now));
        rest(turn);
    }
}

/* ---- link ---- */

static void strand(mpi_link *l) {
    l->next = atomic_load_explicit(&stranded, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&stranded, &l->next, l, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* MPI calls this when the user frees the communicator. All its ranks do that, so the duplicate can
 * be freed here, which is collective too. Predefined communicators are freed during MPI_Finalize,
 * where freeing is no longer allowed, and a duplicate with something outstanding still belongs to
 * MPI. Those are left until the process ends. */
static int drop_link(MPI_Comm comm, int keyval, void *value, void *extra) {
    mpi_link *l = value;
    int finalized = 0;
    (void)keyval;
    (void)extra;
    if (atomic_load_explicit(&l->busy, memory_order_relaxed)) {
        l->orphan =
            1; /* the same thread as the bootstrap's, unless the caller breaks MPI's thread rule */
        return MPI_SUCCESS;
    }
    MPI_Finalized(&finalized);
    if (l->state != IDLE) {
        strand(l);
        return MPI_SUCCESS;
    }
    if (l->usable && !finalized && comm != MPI_COMM_WORLD && comm != MPI_COMM_SELF)
        MPI_Comm_free(&l->dup);
    free(l);
    return MPI_SUCCESS;
}

/* Under attach_lock. drop_link does not take it, because MPI may call drop_link from inside
 * MPI_Comm_set_attr. */
static symmResult_t find_link(MPI_Comm comm, int nranks, const symm_wait *w, mpi_link **out) {
    int there = 0;
    if (link_keyval == MPI_KEYVAL_INVALID)
        SYMM_TRY(
            mpi_result(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop_link, &link_keyval, NULL),
                       "MPI_Comm_create_keyval", w));
    SYMM_TRY(mpi_result(MPI_Comm_get_attr(comm, link_keyval, out, &there), "MPI_Comm_get_attr", w));
    if (there) return symmSuccess;
    mpi_link *l =
        SYMM_FAIL_ALLOC(mpi_link, calloc(1, sizeof(*l) + (size_t)nranks * sizeof(l->all[0])));
    if (!l) return SYMM_ERR(symmOutOfMemory, "bootstrap mpi: out of memory (%d ranks)", nranks);
    l->request = MPI_REQUEST_NULL;
    symmResult_t status =
        mpi_result(MPI_Comm_set_attr(comm, link_keyval, l), "MPI_Comm_set_attr", w);
    if (status)
        free(l);
    else
        *out = l;
    return status;
}

/* With attach_lock, which is released while this waits. The call that has the link may be the one
 * that our peers wait for. So a waiting thread does not enter MPI. */
static symmResult_t await_turn(mpi_link *l, const symm_wait *w) {
    const uint64_t start = symm_now_ns();
    while (atomic_load_explicit(&l->busy, memory_order_relaxed)) {
        SYMM_TRY(symm_boot_check(w));
        if (symm_wait_over(w))
            return SYMM_ERR(symmTimeout,
                            "symmCommInitMPI: another call on the same MPI communicator is still "
                            "running in this process (waited %.1f s)",
                            symm_boot_seconds(start));
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TURN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&link_free, &attach_lock, &until);
    }
    return symmSuccess;
}

static symmResult_t take_link(MPI_Comm comm, int nranks, const symm_wait *w, mpi_link **out) {
    mpi_link *l = NULL;
    pthread_mutex_lock(&attach_lock);
    symmResult_t status = find_link(comm, nranks, w, &l);
    if (!status) status = await_turn(l, w);
    /* Acquire pairs with the release in release_link: this thread sees what the last user of the
     * link wrote. */
    if (!status) atomic_exchange_explicit(&l->busy, 1, memory_order_acquire);
    pthread_mutex_unlock(&attach_lock);
    if (!status) *out = l;
    return status;
}

static void release_link(mpi_link *l) {
    pthread_mutex_lock(&attach_lock);
    if (!l->orphan)
        atomic_store_explicit(&l->busy, 0, memory_order_release);
    else if (l->state == IDLE)
        free(l);
    else
        strand(l);
    pthread_cond_broadcast(&link_free);
    pthread_mutex_unlock(&attach_lock);
}

/* ---- greeting ---- */

static symmResult_t begin_greeting(boot_mpi *b, MPI_Comm comm, const symm_wait *w) {
    mpi_link *l = b->link;
    l->mine = (hello){.magic = HELLO_MAGIC,
                      .version = SYMM_VERSION_CODE,
                      .usable = l->usable,
                      .last = l->last,
                      .sight = symm_beacon_sight(b->key.job)};
    SYMM_TRY(mpi_result(MPI_Iallgather(&l->mine, sizeof(hello), MPI_BYTE, l->all, sizeof(hello),
                                       MPI_BYTE, comm, &l->request),
                        "MPI_Iallgather", w));
    l->state = GREETING;
    l->here = 1;
    return symmSuccess;
}

static symmResult_t duplicate(boot_mpi *b, MPI_Comm comm, const symm_wait *w) {
    mpi_link *l = b->link;
    SYMM_TRY(mpi_result(MPI_Comm_split(comm, 0, b->base.rank, &l->dup), "MPI_Comm_split", w));
    l->usable = ++l->last;
    l->seq = 0;
    return mpi_result(MPI_Comm_set_errhandler(l->dup, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                      w);
}

static symmResult_t begin_round(mpi_link *l, MPI_Comm comm, const symm_wait *w) {
    l->stays[0] = l->here;
    SYMM_TRY(mpi_result(
        MPI_Iallreduce(&l->stays[0], &l->stays[1], 1, MPI_INT, MPI_MIN, comm, &l->request),
        "MPI_Iallreduce", w));
    l->state = STAYING;
    l->here = 1;
    return symmSuccess;
}

/* All ranks see the same greetings, so all take the same way from here. */
static symmResult_t read_greetings(boot_mpi *b, MPI_Comm comm, const symm_wait *w) {
    mpi_link *l = b->link;
    int same = 1;
    for (int r = 0; r < b->base.nranks; r++) {
        const hello *h = &l->all[r];
        if (h->magic != HELLO_MAGIC)
            return SYMM_ERR(
                symmInternalError,
                "the greeting of rank %d is malformed, as if it made its collectives on mpicomm in "
                "another order",
                r);
        if (h->version != SYMM_VERSION_CODE)
            return SYMM_ERR(symmVersionMismatch,
                            "rank %d has version %u of the library, rank %d %u", r, h->version,
                            b->base.rank, SYMM_VERSION_CODE);
        if (h->last > l->last) l->last = h->last;
        same = same && h->usable && h->usable == l->all[0].usable;
    }
    if (same) return symmSuccess;
    /* A duplicate that one rank has given up cannot be used by any. It is left as it is. */
    l->usable = 0;
    return begin_round(l, comm, w);
}

/* Waits for what the link has outstanding. If we give up, it stays outstanding; if MPI itself
 * failed, it does not. */
static symmResult_t finish_step(boot_mpi *b, int greeting, const symm_wait *w) {
    mpi_link *l = b->link;
    const symmResult_t status = await_request(b, &l->request, greeting, w);
    if (!status || l->request == MPI_REQUEST_NULL) l->state = IDLE;
    return status;
}

/* Whoever goes on from here waits for all without a deadline. So nobody gives up in the moment in
 * which the others go on: a round has more time than it takes. */
static symmResult_t stay(boot_mpi *b, MPI_Comm comm, const symm_wait *w) {
    mpi_link *l = b->link;
    for (;;) {
        symm_wait longer = *w;
        const uint64_t least = symm_now_ns() + STAY_NS;
        if (longer.deadline_ns && longer.deadline_ns < least) longer.deadline_ns = least;
        SYMM_TRY(finish_step(b, 0, &longer));
        if (l->stays[1]) return symmSuccess;
        SYMM_TRY(begin_round(l, comm, w));
    }
}

static symmResult_t come_together(boot_mpi *b, MPI_Comm comm, const symm_wait *w) {
    mpi_link *l = b->link;
    if (SYMM_FAIL_HERE(boot_connect))
        return SYMM_ERR(symmSystemError, "failpoint boot_connect on rank %d", b->base.rank);
    l->here = 0;
    if (l->state == IDLE) SYMM_TRY(begin_greeting(b, comm, w));
    if (l->state == GREETING) {
        SYMM_TRY(finish_step(b, 1, w));
        SYMM_TRY(read_greetings(b, comm, w));
    }
    if (l->state == STAYING) {
        SYMM_TRY(stay(b, comm, w));
        SYMM_TRY(duplicate(b, comm, w));
    }
    return symmSuccess;
}

/* ---- exchange ---- */

static void abandon(round *x) {
    x->next = atomic_load_explicit(&abandoned, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&abandoned, &x->next, x, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* Finds blocks of an older exchange that another rank had given up. They would look like answers to
 * this one. */
static symmResult_t check_head(const hello *mine, const hello *theirs, int r, const symm_wait *w) {
    if (memcmp(mine, theirs, sizeof(*mine)) == 0) return symmSuccess;
    if (theirs->magic == HELLO_MAGIC && theirs->usable == mine->usable && theirs->seq == mine->seq)
        return SYMM_ERR(symmMismatch, "rank %d brings %llu bytes where others bring %llu (%s)", r,
                        (unsigned long long)theirs->bytes, (unsigned long long)mine->bytes,
                        symm_boot_stage(w));
    return SYMM_ERR(symmInternalError,
                    "rank %d is out of step since an earlier failure (%s); a new call makes a new "
                    "beginning",
                    r, symm_boot_stage(w));
}

static symmResult_t exchange(boot_mpi *b, round *x, const hello *head, void *recv,
                             const symm_wait *w) {
    size_t bytes = head->bytes, block = sizeof(hello) + bytes;
    char *all = x->data + block;
    SYMM_TRY(mpi_result(MPI_Iallgather(x->data, (int)block, MPI_BYTE, all, (int)block, MPI_BYTE,
                                       b->link->dup, &x->request),
                        "MPI_Iallgather", w));
    SYMM_TRY(await_request(b, &x->request, 0, w));
    for (int r = 0; r < b->base.nranks; r++) {
        hello theirs;
        memcpy(&theirs, all + (size_t)r * block, sizeof(theirs));
        SYMM_TRY(check_head(head, &theirs, r, w));
    }
    for (int r = 0; r < b->base.nranks && bytes; r++)
        memcpy((char *)recv + (size_t)r * bytes, all + (size_t)r * block + sizeof(hello), bytes);
    return symmSuccess;
}

static symmResult_t allgather(boot_mpi *b, const void *send, void *recv, size_t bytes,
                              const symm_wait *w) {
    if (b->failed)
        return SYMM_ERR(symmInvalidUsage, "bootstrap mpi: an exchange has failed before (%s)",
                        symm_boot_stage(w));
    SYMM_TRY(symm_mpi_check());
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", b->base.rank);
    size_t n = (size_t)b->base.nranks;
    if (bytes > INT_MAX - sizeof(hello))
        return SYMM_ERR(symmInvalidArgument, "bootstrap mpi: %zu bytes per rank are too many",
                        bytes);
    /* Our own buffers: the caller's could not be left to MPI when the exchange is given up. */
    round *x = SYMM_FAIL_ALLOC(mpi_round, malloc(sizeof(*x) + (n + 1) * (sizeof(hello) + bytes)));
    if (!x)
        return SYMM_ERR(symmOutOfMemory, "bootstrap mpi: no memory for %zu blocks of %zu bytes", n,
                        bytes);
    hello head = {HELLO_MAGIC, SYMM_VERSION_CODE, b->link->usable, 0, ++b->link->seq, bytes, 0};
    memcpy(x->data, &head, sizeof(head));
    if (bytes) memcpy(x->data + sizeof(head), send, bytes);
    x->request = MPI_REQUEST_NULL;
    symmResult_t status = exchange(b, x, &head, recv, w);
    if (x->request == MPI_REQUEST_NULL)
        free(x);
    else
        abandon(x);
    return status;
}

static symmResult_t mpi_allgather(symm_boot *base, const void *send, void *recv, size_t bytes,
                                  const symm_wait *w) {
    boot_mpi *b = (boot_mpi *)base;
    symmResult_t status = allgather(b, send, recv, bytes, w);
    if (status) {
        b->failed = 1;
        b->link->usable =
            0; /* exchanges that are still outstanding on other ranks would mix with our next one */
    }
    return status;
}

/* Does not enter MPI, which may be finalised by now. */
static void mpi_close(symm_boot *base) {
    boot_mpi *b = (boot_mpi *)base;
    symm_beacon_douse(b->beacon);
    release_link(b->link);
    free(b);
}

static const symm_boot_ops mpi_ops = {
    .name = "mpi", .allgather = mpi_allgather, .close = mpi_close, .meets_only = 1};

/* ---- opening ---- */

/* Identifies the group by the world ranks of its members: equal on all ranks, without
 * communication. */
static symmResult_t hash_group(MPI_Comm comm, int nranks, uint64_t *out) {
    int *from = SYMM_FAIL_ALLOC(mpi_group, malloc(2 * (size_t)nranks * sizeof(int)));
    if (!from) return SYMM_ERR(symmOutOfMemory, "bootstrap mpi: out of memory (%d ranks)", nranks);
    MPI_Group group, world;
    for (int r = 0; r < nranks; r++) from[r] = r;
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, nranks, from, world, from + nranks);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    *out = symm_beacon_hash(0, from + nranks, (size_t)nranks * sizeof(int));
    free(from);
    return symmSuccess;
}

symmResult_t symm_boot_mpi_open(const void *mpicomm, const symm_wait *w, symm_boot **out) {
    MPI_Comm comm = *(const MPI_Comm *)mpicomm;
    symmResult_t status;
    SYMM_TRY(symm_mpi_check_comm(mpicomm));
    int rank, nranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &nranks);
    boot_mpi *b = SYMM_FAIL_ALLOC(mpi_alloc, calloc(1, sizeof(*b) + 2 * (size_t)nranks));
    if (!b) return SYMM_ERR(symmOutOfMemory, "bootstrap mpi: out of memory (%d ranks)", nranks);
    b->base = (symm_boot){.ops = &mpi_ops, .rank = rank, .nranks = nranks};
    b->seen = (unsigned char *)(b + 1);
    b->dark = b->seen + nranks;
    b->key.job = symm_beacon_job();
    SYMM_TRY_GOTO(hash_group(comm, nranks, &b->key.group), free_boot);
    SYMM_TRY_GOTO(take_link(comm, nranks, w, &b->link), free_boot);
    SYMM_TRY_GOTO(symm_beacon_light(&b->key, rank, &b->beacon), put_link_back);
    SYMM_TRY_GOTO(come_together(b, comm, w), douse_beacon);
    *out = &b->base;
    return symmSuccess;
douse_beacon:
    symm_beacon_douse(b->beacon);
put_link_back:
    release_link(b->link);
free_boot:
    free(b);
    return status;
}

/* Whether the caller gives a deadline, and a good one. symm_comm_create checks config. */
static int has_timeout(const symmConfig_t *config) {
    return config &&
           config->size >= offsetof(symmConfig_t, timeoutMs) + sizeof(config->timeoutMs) &&
           config->timeoutMs != SYMM_CONFIG_UNDEF && config->timeoutMs >= 1;
}

symmResult_t symm_mpi_meet(const void *mpicomm, const symmConfig_t *config, symm_wait *w,
                           symm_boot **out) {
    symm_params params;
    /* A rank whose variables or arguments are bad comes all the same: exchanges tell it to all. */
    int64_t ms = symm_param_load(&params) ? 300000 : params.setup_timeout_ms;
    if (has_timeout(config)) ms = config->timeoutMs;
    *w = (symm_wait){.deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000,
                     .stage = "creating a communicator over MPI"};
    return symm_boot_mpi_open(mpicomm, w, out);
}
