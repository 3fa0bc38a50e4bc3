/* net_mpi.c - the mover over MPI: nonblocking messages on communicators of the program's ranks,
 * which nobody else uses, one for each way; and one more for words outside of calls. A receive
 * takes the next message of its rank whatever its tag is: the tag is the mark, and says whether the
 * other rank made the same call.
 *
 * Such a communicator must not be freed while a message to it may be on its way: Open MPI 4.1 would
 * give that message to the next communicator of the same number. So each rank says goodbye to all
 * others, and frees a mover's communicators when it has heard that from all of them: it looks when
 * the next mover is opened or closed (reap). Those of a mover that has failed stay as they are.
 *
 * Part of libsymm-mpi. Only the thread inside the communicator enters MPI. Lock: retired_lock, for
 * the list of those that wait for goodbyes. */
#include "net_mpi.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"

enum { PIECE = 16 << 20 }; /* a longer message is several, so that it is seen to flow */
enum { TAG_WORD = 0, TAG_GOODBYE = 1, TAG_PART = 2 }; /* on the communicator of words */

typedef struct {
    symm_net_end end;
    int bytes;
    int receives;
} pending;

typedef struct posted { /* a copy that MPI reads */
    struct posted *next;
    MPI_Request request;
    int rank;
    size_t bytes;
    _Alignas(16) char copy[];
} posted;

typedef struct { /* a word on its way; MPI reads it, so it stays */
    MPI_Request request;
    symm_net_word what;
} word;

typedef struct net_mpi {
    symm_net base;
    MPI_Comm ways[SYMM_NET_WAYS], words;
    int rank, nranks, level;
    int n, room;           /* messages that have begun; done ones have no request any more */
    int left;              /* of them, those that are not done */
    int next_test;         /* which of them the next test looks at first */
    MPI_Request *requests; /* [room] */
    pending *what;         /* [room] */
    int *done;             /* [room] */
    MPI_Status *status;    /* [room] */
    posted *posts;         /* that are not known to be done */
    symmResult_t broken;   /* the first error stays */
    char why[SYMM_ERR_TEXT];
    word *said;            /* [nranks]; NULL: nothing */
    struct net_mpi *next;  /* retired */
    MPI_Request *goodbyes; /* [nranks] */
    int parted, heard;     /* whether these are sent; goodbyes of others */
    void *held;            /* memory that messages were sent from */
} net_mpi;

static pthread_mutex_t retired_lock = PTHREAD_MUTEX_INITIALIZER;
static net_mpi *retired;
static net_mpi *stranded; /* never freed; the list is for checkers of leaks */

/* ---- MPI's state ----------------------------------------------------------------------------- */

static symmResult_t failed(int rc, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(rc, text, &len);
    return SYMM_ERR(symmSystemError, "%s failed between domains: %.300s", call, text);
}

static int is_finalised(void) {
    int yes;
    MPI_Finalized(&yes);
    return yes;
}
static int is_ours(const net_mpi *n) { /* this thread may be in MPI, while that lives */
    int yes = 1;
    if (n->level < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&yes);
    return yes;
}
static int may_enter(const net_mpi *n) {
    return !is_finalised() && is_ours(n);
}

static symmResult_t net_enter(symm_net *base) {
    const net_mpi *n = (net_mpi *)base;
    if (is_finalised())
        return SYMM_ERR(symmInvalidUsage,
                        "MPI is finalised: a communicator over several domains needs it");
    if (is_ours(n)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "MPI was initialised with %s: on a communicator over several domains only the "
                    "thread that did it may call (MPI_Init_thread with MPI_THREAD_SERIALIZED or "
                    "more allows others)",
                    n->level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
}

static int net_may(symm_net *base) {
    return may_enter((const net_mpi *)base);
}

#define HAS_ONLY(level) "MPI was initialised with " level ", and streams need MPI_THREAD_MULTIPLE"
static const char *net_alone(symm_net *base) {
    switch (((const net_mpi *)base)->level) {
    case MPI_THREAD_MULTIPLE: return NULL;
    case MPI_THREAD_SERIALIZED: return HAS_ONLY("MPI_THREAD_SERIALIZED");
    case MPI_THREAD_FUNNELED: return HAS_ONLY("MPI_THREAD_FUNNELED");
    default: return HAS_ONLY("MPI_THREAD_SINGLE");
    }
}

static symmResult_t breaks(net_mpi *n, symmResult_t r) {
    if (!n->broken) {
        n->broken = r;
        snprintf(n->why, sizeof n->why, "%s", symm_status_text());
    }
    return r;
}
static symmResult_t known(const net_mpi *n) {
    return n->broken ? SYMM_ERR(n->broken, "%s", n->why) : symmSuccess;
}

/* ---- messages -------------------------------------------------------------------------------- */

static symmResult_t grow(net_mpi *n) {
    const size_t room = n->room ? 2 * (size_t)n->room : 64;
    MPI_Request *requests = SYMM_FAIL_ALLOC(net_grow, malloc(room * sizeof *requests));
    pending *what = malloc(room * sizeof *what);
    int *done = malloc(room * sizeof *done);
    MPI_Status *status = malloc(room * sizeof *status);
    if (!requests || !what || !done || !status) {
        free(requests), free(what), free(done), free(status);
        return SYMM_ERR(symmOutOfMemory, "no memory for %zu messages between domains", room);
    }
    if (n->n) memcpy(requests, n->requests, (size_t)n->n * sizeof *requests);
    if (n->n) memcpy(what, n->what, (size_t)n->n * sizeof *what);
    free(n->requests), free(n->what), free(n->done), free(n->status);
    n->requests = requests, n->what = what, n->done = done, n->status = status;
    n->room = (int)room;
    return symmSuccess;
}

static symmResult_t begin(net_mpi *n, pending p, char *at) {
    int rc;
    if (n->n == n->room) SYMM_TRY(grow(n));
    const symm_net_end e = p.end;
    SYMM_ASSERT(e.rank >= 0 && e.rank < n->nranks && e.rank != n->rank && e.way < SYMM_NET_WAYS);
    MPI_Request *request = &n->requests[n->n];
    if (p.receives)
        rc = MPI_Irecv(at, p.bytes, MPI_BYTE, e.rank, MPI_ANY_TAG, n->ways[e.way], request);
    else
        rc = MPI_Isend(at, p.bytes, MPI_BYTE, e.rank, (int)e.mark, n->ways[e.way], request);
    if (rc) return failed(rc, p.receives ? "MPI_Irecv" : "MPI_Isend");
    n->what[n->n++] = p;
    n->left++;
    return symmSuccess;
}

/* Of a message of several pieces the mark says its length, too: else a receiver of fewer whole
 * pieces would take it for what it expects. */
static uint32_t mark_of(uint32_t mark, size_t bytes) {
    const uint64_t h = (uint64_t)bytes * 0x9e3779b97f4a7c15ull;
    return bytes > PIECE ? mark ^ (uint32_t)(h >> (64 - SYMM_MARK_BITS)) : mark;
}

static symmResult_t begin_all(symm_net *base, symm_net_end end, const char *at, size_t bytes,
                              int receives) {
    net_mpi *n = (net_mpi *)base;
    SYMM_TRY(known(n));
    if (!n->left) n->n = 0;
    end.mark = mark_of(end.mark, bytes);
    do {
        const int len = (int)(bytes < PIECE ? bytes : PIECE);
        const symmResult_t r = begin(n, (pending){end, len, receives}, (char *)at);
        if (r) return breaks(n, r);
        at += len;
        bytes -= (size_t)len;
    } while (bytes);
    return symmSuccess;
}

static symmResult_t net_send(symm_net *n, symm_net_end to, const void *from, size_t bytes) {
    return begin_all(n, to, from, bytes, 0);
}
static symmResult_t net_receive(symm_net *n, symm_net_end from, void *to, size_t bytes) {
    return begin_all(n, from, to, bytes, 1);
}

/* Frees the copies that MPI has read. */
static symmResult_t sweep(net_mpi *n) {
    for (posted **at = &n->posts; *at;) {
        posted *p = *at;
        int done = 0;
        const int rc = MPI_Test(&p->request, &done, MPI_STATUS_IGNORE);
        if (rc) return breaks(n, failed(rc, "MPI_Isend"));
        if (!done) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
    return symmSuccess;
}

/* Whether so many bytes more may be under way to a rank. */
static int has_room(const net_mpi *n, int rank, size_t bytes) {
    int posts = 1;
    for (const posted *p = n->posts; p; p = p->next) {
        if (p->rank != rank) continue;
        posts++;
        bytes += p->bytes;
    }
    return posts <= SYMM_NET_POSTS && bytes <= SYMM_NET_ROOM;
}

static symmResult_t net_post(symm_net *base, symm_net_end to, const void *from, size_t bytes,
                             int *done) {
    net_mpi *n = (net_mpi *)base;
    *done = 0;
    SYMM_TRY(known(n));
    SYMM_TRY(sweep(n));
    if (!has_room(n, to.rank, bytes)) return symmSuccess;
    posted *p = SYMM_FAIL_ALLOC(net_post, malloc(sizeof *p + bytes));
    if (!p) return symmSuccess; /* it is sent from where it is */
    *p = (posted){.next = n->posts, .rank = to.rank, .bytes = bytes};
    if (bytes) memcpy(p->copy, from, bytes);
    const int rc = MPI_Isend(p->copy, (int)bytes, MPI_BYTE, to.rank, (int)to.mark, n->ways[to.way],
                             &p->request);
    if (rc) {
        free(p);
        return breaks(n, failed(rc, "MPI_Isend"));
    }
    n->posts = p;
    *done = 1;
    return symmSuccess;
}

/* What has come is what was expected. A message that is too long is an error of MPI's. */
static symmResult_t check(const pending *p, const MPI_Status *s, int rc) {
    int bytes = 0, class = MPI_SUCCESS;
    if (rc) MPI_Error_class(rc, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE)
        return failed(rc, p->receives ? "MPI_Irecv" : "MPI_Isend");
    if (!p->receives) return symmSuccess;
    if (s->MPI_TAG != (int)p->end.mark)
        return SYMM_ERR(symmMismatch,
                        "rank %d, of another domain, made another call than this rank (collective, "
                        "count, type, reduction or root differ)",
                        p->end.rank);
    MPI_Get_count(s, MPI_BYTE, &bytes);
    if (class == MPI_SUCCESS && bytes == p->bytes) return symmSuccess;
    return SYMM_ERR(symmMismatch, "rank %d, of another domain, sent %s %d bytes, expected were %d",
                    p->end.rank, class ? "more than" : "only", class ? p->bytes : bytes, p->bytes);
}

/* One message after the other, from behind the one at which the last test stopped, up to one that
 * is not done. So none is looked at for ever while another one waits, and MPI polls only where
 * nothing is done. MPI_Testsome would not do: that of Open MPI 4.1 says in its next call only what
 * it has found by polling in this one, and most callers give their core away in between. */
static symmResult_t net_test(symm_net *base, int *left, int *rank) {
    net_mpi *n = (net_mpi *)base;
    *left = n->left;
    SYMM_TRY(known(n));
    for (int looked = 0, done = 1; n->left && done && looked < n->n; looked++) {
        const int i = n->next_test < n->n ? n->next_test : 0;
        MPI_Status status;
        n->next_test = i + 1;
        if (n->requests[i] == MPI_REQUEST_NULL) continue;
        const int rc = MPI_Test(&n->requests[i], &done, &status);
        if (!rc && !done) continue; /* ends the loop */
        n->left--;
        const symmResult_t r = check(&n->what[i], &status, rc);
        if (r) return breaks(n, r);
    }
    *left = n->left;
    for (int i = 0; i < n->n; i++) /* the same one as long as it is not done */
        if (n->requests[i] != MPI_REQUEST_NULL) *rank = n->what[i].end.rank;
    SYMM_ASSERT(n->left >= 0 && n->left <= n->n);
    return symmSuccess;
}

/* Receives that nothing has come for are taken back. What has begun to arrive goes on: it gets some
 * time to end, and MPI may write after that, too. So the requests stay, and what is staged. */
static void net_cancel(symm_net *base) {
    enum { TURNS = 2000, NAP_US = 50 };
    net_mpi *n = (net_mpi *)base;
    int some = 0;
    if (!n->broken) {
        n->broken = symmAborted;
        snprintf(n->why, sizeof n->why, "the communicator is over");
    }
    if (!n->left) n->n = 0; /* MPI is not entered: this thread may not be the one that may */
    for (int i = 0; i < n->n; i++)
        if (n->requests[i] != MPI_REQUEST_NULL && n->what[i].receives) MPI_Cancel(&n->requests[i]);
    for (int turn = 0; turn < TURNS && some != MPI_UNDEFINED && n->n; turn++) {
        if (MPI_Testsome(n->n, n->requests, &some, n->done, n->status)) break;
        if (!some) usleep(NAP_US);
    }
    n->left = 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void net_tell(symm_net *base, const symm_net_word *what) {
    net_mpi *n = (net_mpi *)base;
    if (n->said || !may_enter(n)) return;
    n->said = calloc((size_t)n->nranks, sizeof *n->said);
    for (int r = 0; n->said && r < n->nranks; r++) {
        if (r == n->rank) continue;
        n->said[r].what = *what;
        MPI_Isend(&n->said[r].what, (int)sizeof n->said[r].what, MPI_BYTE, r, TAG_WORD, n->words,
                  &n->said[r].request);
    }
}

static int net_told(symm_net *base, symm_net_word *what) {
    net_mpi *n = (net_mpi *)base;
    MPI_Status status;
    int some = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_WORD, n->words, &some, &status) || !some) return 0;
    if (MPI_Recv(what, (int)sizeof *what, MPI_BYTE, status.MPI_SOURCE, TAG_WORD, n->words,
                 MPI_STATUS_IGNORE))
        return 0;
    what->text[sizeof what->text - 1] = 0;
    return 1;
}

/* The goodbye stays where it is: `is_left` counts it. */
static int net_is_gone(symm_net *base, int rank) {
    net_mpi *n = (net_mpi *)base;
    int some = 0;
    return !MPI_Iprobe(rank, TAG_GOODBYE, n->words, &some, MPI_STATUS_IGNORE) && some;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* To all others, when nothing is on its way to them any more: they take it that all has come. */
static void say_goodbye(net_mpi *n) {
    for (int r = 0; r < n->nranks; r++)
        if (r != n->rank) MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_GOODBYE, n->words, &n->goodbyes[r]);
    n->parted = 1;
}

/* 1: every other rank has said goodbye, and has got this one's and all that was posted. */
static int is_left(net_mpi *n) {
    int some = 1, done = 1;
    if (sweep(n) || n->posts) return 0;
    if (!n->parted) say_goodbye(n);
    while (some) {
        symm_net_word word;
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, n->words, &some, &status) || !some) break;
        if (MPI_Recv(&word, (int)sizeof word, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, n->words,
                     MPI_STATUS_IGNORE))
            return 0;
        n->heard += status.MPI_TAG == TAG_GOODBYE;
    }
    /* The own one is no request, which is done. */
    for (int r = 0; r < n->nranks && done; r++)
        if (MPI_Test(&n->goodbyes[r], &done, MPI_STATUS_IGNORE)) return 0;
    return done && n->heard == n->nranks - 1;
}

/* Takes one that nobody sends to any more out of the list; NULL: there is none. */
static net_mpi *take_left(void) {
    net_mpi *found = NULL;
    pthread_mutex_lock(&retired_lock);
    for (net_mpi **at = &retired; *at && !found; at = &(*at)->next) {
        if (!may_enter(*at) || !is_left(*at)) continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&retired_lock);
    return found;
}

static void free_comms(net_mpi *n) {
    for (int i = 0; i < SYMM_NET_WAYS; i++)
        if (n->ways[i] != MPI_COMM_NULL) MPI_Comm_free(&n->ways[i]);
    if (n->words != MPI_COMM_NULL) MPI_Comm_free(&n->words);
}

/* Freed outside of the lock, for MPI may take its time. */
static void reap(void) {
    for (net_mpi *n; (n = take_left()) != NULL;) {
        free_comms(n);
        free(n->goodbyes);
        free(n->held);
        free(n);
    }
}

static void put_away(net_mpi **list, net_mpi *n) {
    pthread_mutex_lock(&retired_lock);
    n->next = *list;
    *list = n;
    pthread_mutex_unlock(&retired_lock);
}

/* For a while: what has been posted moves only while this rank is in MPI. */
static void await_posts(net_mpi *n) {
    enum { TURNS = 20000, NAP_US = 50 };
    for (int turn = 0; turn < TURNS && !sweep(n) && n->posts; turn++) usleep(NAP_US);
}

static void net_close(symm_net *base, void *held) {
    net_mpi *n = (net_mpi *)base;
    n->held = held;
    n->goodbyes = n->broken || n->said || !may_enter(n)
                      ? NULL
                      : malloc((size_t)n->nranks * sizeof *n->goodbyes);
    if (!n->goodbyes) {
        put_away(&stranded, n);
        return;
    }
    free(n->requests), free(n->what), free(n->done), free(n->status);
    n->requests = NULL, n->what = NULL, n->done = NULL, n->status = NULL;
    for (int r = 0; r < n->nranks; r++) n->goodbyes[r] = MPI_REQUEST_NULL;
    await_posts(n);
    put_away(&retired, n);
    reap();
}

/* own: whether this rank has its object, *n. A rank without one could tell the others by nothing,
 * and they would wait for it: so all find out here. */
static symmResult_t settle_part(MPI_Comm part, symmResult_t own, net_mpi **n) {
    int rank = 0, worst[2] = {0};
    MPI_Comm_rank(part, &rank);
    const int mine[2] = {(int)own, own ? rank : 0};
    const int rc = MPI_Allreduce(mine, worst, 2, MPI_INT, MPI_MAX, part);
    if (own || (!rc && !worst[0])) return own;
    free_comms(*n); /* nothing was sent by them */
    free(*n);
    *n = NULL;
    return rc ? failed(rc, "MPI_Allreduce")
              : SYMM_ERR((symmResult_t)worst[0], "rank %d could not open a mover between domains",
                         worst[1]);
}

/* MPI_Comm_create_group is collective over the members alone, and goes by the communicator of
 * words, where nothing is lost in a failed call. */
static symmResult_t net_part(symm_net *base, const int *ranks, int nranks, symm_net **out) {
    const net_mpi *n = (net_mpi *)base;
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm part = MPI_COMM_NULL;
    SYMM_ASSERT(nranks > 0 && nranks <= n->nranks);
    int rc = MPI_Comm_group(n->words, &all);
    if (!rc) rc = MPI_Group_incl(all, nranks, ranks, &some);
    if (!rc) rc = MPI_Comm_create_group(n->words, some, TAG_PART, &part);
    symmResult_t r = rc ? failed(rc, "MPI_Comm_create_group") : symm_net_mpi_open(&part, out);
    if (!rc) r = settle_part(part, r, (net_mpi **)out);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    return r;
}

static const symm_net_ops mpi_ops = {.name = "mpi",
                                     .enter = net_enter,
                                     .may = net_may,
                                     .alone = net_alone,
                                     .send = net_send,
                                     .receive = net_receive,
                                     .post = net_post,
                                     .test = net_test,
                                     .cancel = net_cancel,
                                     .tell = net_tell,
                                     .told = net_told,
                                     .is_gone = net_is_gone,
                                     .part = net_part,
                                     .close = net_close};

symmResult_t symm_net_mpi_open(const void *mpicomm, symm_net **out) {
    const MPI_Comm comm = *(const MPI_Comm *)mpicomm;
    reap();
    net_mpi *n = SYMM_FAIL_ALLOC(net_alloc, calloc(1, sizeof *n)), none;
    /* Also without memory: the others are in these calls, and wait. */
    net_mpi *at = n ? n : &none;
    *at = (net_mpi){.base = {&mpi_ops}, .words = MPI_COMM_NULL};
    for (int i = 0; i < SYMM_NET_WAYS; i++) at->ways[i] = MPI_COMM_NULL;
    int rank = 0, rc = MPI_Comm_rank(comm, &rank);
    /* MPI_Comm_dup would copy attributes of the program's, and these outlive its communicator. */
    if (!rc) rc = MPI_Comm_split(comm, 0, rank, &at->words);
    for (int i = 0; i < SYMM_NET_WAYS && !rc; i++) rc = MPI_Comm_split(comm, 0, rank, &at->ways[i]);
    if (!n || rc) {
        const symmResult_t r =
            n ? failed(rc, "MPI_Comm_split")
              : SYMM_ERR(symmOutOfMemory, "no memory for a mover between domains");
        free_comms(at);
        free(n);
        return r;
    }
    n->rank = rank;
    MPI_Comm_size(comm, &n->nranks);
    MPI_Query_thread(&n->level);
    MPI_Comm_set_errhandler(n->words, MPI_ERRORS_RETURN);
    for (int i = 0; i < SYMM_NET_WAYS; i++) MPI_Comm_set_errhandler(n->ways[i], MPI_ERRORS_RETURN);
    *out = &n->base;
    return symmSuccess;
}
