/* state.c - what there is for each MPI communicator: a record that hangs on it as an attribute, and
 * in it, once the communicator has proved to be in use, a symm communicator over the same ranks.
 *
 * The first calls of a communicator are MPI's (SYMM_PMPI_AFTER): many are made for one call and
 * freed. In the first of them the ranks compare their variables. Which call is the first of ours is
 * then the same on all ranks, because all ranks make the same collectives on it in the same order.
 * In that call they agree whether all of them can; then they make the communicator, and agree
 * whether all have it.
 *
 * `lock` guards the list and the set-up. It is never held while anybody is waited for. */
#define _GNU_SOURCE
#include "pmpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "symm_domains.h"
#include "symm_host.h"
#include "symm_mpi.h"

#define NEVER SIZE_MAX
static const struct {
    size_t from, crowded, most, again, apart, apart_most;
} pays[] = {
#define CALL(name, ...) {__VA_ARGS__},
#include "calls.def"
#undef CALL
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pmpi_state *states; /* under lock */
static int keyval;         /* of the attribute; set once, under lock */
static int end_keyval;     /* of MPI_COMM_SELF, whose attributes go when MPI ends; the same */
static int world_rank;     /* the same */
static _Atomic int ready;  /* 0: not asked yet, 1: MPI may be served, -1: never */
static _Atomic unsigned generation; /* of what threads remember: a communicator was freed */
/* Of a library that is there from the beginning: no call to find it. */
static _Thread_local struct {
    MPI_Comm comm;
    pmpi_state *state;
    unsigned generation;
    int has_progress;
    MPI_Comm going; /* that this thread is freeing */
} last __attribute__((tls_model("initial-exec")));
static enum pmpi_mode mode; /* written before `ready` */
static unsigned after;

/* ---- the process ----------------------------------------------------------------------------- */

/* While a call waits here, a peer may wait for data that MPI is to send from here. A message that
 * is there would be answered without progress, so a tag is asked for that nobody has. */
static void progress(void *arg) {
    enum { NOBODYS_TAG = 31751 };
    int flag;
    (void)arg;
    PMPI_Iprobe(0, NOBODYS_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

/* 0: a bad value, which was said. */
static int read_variables(void) {
    const char *what = getenv("SYMM_PMPI"), *calls = getenv("SYMM_PMPI_AFTER");
    char *end = NULL;
    unsigned long n = 8;
    mode = AUTO;
    if (what && *what) {
        mode = !strcasecmp(what, "off") ? OFF : !strcasecmp(what, "auto") ? AUTO : ALL;
        if (mode == ALL && strcasecmp(what, "all"))
            return pmpi_warn("SYMM_PMPI=%.64s: must be off, auto or all", what), 0;
    }
    errno = 0;
    if (calls && *calls) n = strtoul(calls, &end, 10);
    if (errno || (end && *end) || n > 1000000000)
        return pmpi_warn("SYMM_PMPI_AFTER=%.64s: must be a whole number from 0 to 1000000000",
                         calls),
               0;
    after = (unsigned)n;
    return 1;
}

/* The frees of an attribute: with the communicator, or before MPI ends. Not collective for symm:
 * peers that are late have what they need. */
static int dropped(MPI_Comm comm, int key, void *attribute, void *extra) {
    pmpi_state *s = attribute;
    (void)comm, (void)key, (void)extra;
    atomic_fetch_add(&generation, 1);
    pthread_mutex_lock(&lock);
    *s->at = s->next;
    if (s->next) s->next->at = s->at;
    pthread_mutex_unlock(&lock);
    if (s->symm && symmCommDestroy(s->symm) != symmSuccess) pmpi_warn("%s", symmGetLastError(NULL));
    for (int i = 0; i < 2; i++) free(s->spare[i]);
    free(s->counts);
    free(s);
    return MPI_SUCCESS;
}

static int is_open_mpi(void) {
    char version[16384] = ""; /* Open MPI writes at most 256 bytes, MPICH 8192 */
    int n;
    PMPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0;
    if (strncmp(version, "Open MPI", 8)) {
        pmpi_warn("built for Open MPI, and this is %s: it serves all calls itself", version);
        return 0;
    }
    if ((void *)MPI_COMM_WORLD) return 1;
    pmpi_warn("MPI was loaded after this library was (dlopen): it serves all calls itself");
    return 0;
}

/* MPI ends, and MPI_Finalize was not called by its name: attributes of MPI_COMM_SELF go first. */
static int ends(MPI_Comm comm, int key, void *attribute, void *extra) {
    (void)comm, (void)key, (void)attribute, (void)extra;
    pmpi_finish();
    return MPI_SUCCESS;
}

/* What fails here fails on this rank alone, and the others would take its next call for part of
 * their agreement. */
void pmpi_give_up(const char *what) {
    pmpi_warn("%s: the program cannot go on", what);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

/* Once; under lock; nothing that waits for anybody. Bad variables are as SYMM_PMPI=off. */
static int set_up(void) {
    if (!is_open_mpi() || !read_variables() || mode == OFF) return 0;
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, dropped, &keyval, NULL) ||
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ends, &end_keyval, NULL) ||
        PMPI_Comm_set_attr(MPI_COMM_SELF, end_keyval, NULL) ||
        PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank) || symmSetBackend(SYMM_BACKEND_HOST))
        pmpi_give_up("MPI has no attributes");
    pmpi_types_set_up();
    return 1;
}

static int is_ready(void) {
    int now = atomic_load_explicit(&ready, memory_order_acquire), yes = 0;
    if (now) return now > 0;
    if (PMPI_Initialized(&yes) || !yes) return 0;
    pthread_mutex_lock(&lock);
    now = atomic_load(&ready);
    if (!now) {
        now = set_up() ? 1 : -1;
        atomic_store_explicit(&ready, now, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return now > 0;
}

/* ---- a communicator -------------------------------------------------------------------------- */

/* Whether all n members of `here` are in `world`. Open MPI replaces its record of a peer at the
 * first message to it, which may be another thread's, and one group may have the new one already
 * while the other has not: who is missing is looked for once more. */
static int is_within(MPI_Group here, MPI_Group world, int n, int *ranks) {
    int all = 0;
    for (int r = 0; r < n; r++) ranks[r] = r;
    for (int again = 0; again < 2 && !all; again++) {
        if (PMPI_Group_translate_ranks(here, n, ranks, world, ranks + n))
            pmpi_give_up("MPI translates no ranks");
        all = 1;
        for (int r = 0; r < n; r++) all &= ranks[n + r] != MPI_UNDEFINED;
    }
    return all;
}

/* All ranks are of this MPI_COMM_WORLD. Others were started or met by the program, perhaps without
 * this library. 0 is the answer on all ranks then, since each is in one world only. */
static int is_of_one_world(MPI_Comm comm, int n) {
    int *ranks = malloc(2 * (size_t)n * sizeof *ranks), one = 0;
    MPI_Group here = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    if (!ranks || PMPI_Comm_group(comm, &here) || PMPI_Comm_group(MPI_COMM_WORLD, &world))
        pmpi_give_up("no memory for a communicator");
    else
        one = here == world || is_within(here, world, n, ranks);
    if (here != MPI_GROUP_NULL) PMPI_Group_free(&here);
    if (world != MPI_GROUP_NULL) PMPI_Group_free(&world);
    free(ranks);
    return one;
}

static pmpi_state *new_state(MPI_Comm comm) {
    int inter = 1;
    pmpi_state *s = calloc(1, sizeof *s);
    if (!s || PMPI_Comm_test_inter(comm, &inter) || PMPI_Comm_rank(comm, &s->rank) ||
        PMPI_Comm_size(comm, &s->n) || !(s->counts = calloc(4 * (size_t)s->n, sizeof(size_t))) ||
        PMPI_Comm_set_attr(comm, keyval, s)) {
        pmpi_give_up("no memory for a communicator");
        return NULL;
    }
    s->comm = comm;
    s->how = inter || s->n < 2 || !is_of_one_world(comm, s->n) ? LEFT_TO_MPI : YOUNG;
    pthread_mutex_lock(&lock);
    s->next = states, s->at = &states;
    if (states) states->at = &s->next;
    states = s;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Whether all ranks have the same variables. Ranks that differ would count to different calls, so
 * this is asked in the first one. */
static int same_variables(pmpi_state *s) {
    const long long mine[4] = {(long long)mode, -(long long)mode, (long long)after,
                               -(long long)after};
    long long least[4];
    if (PMPI_Allreduce(mine, least, 4, MPI_LONG_LONG, MPI_MIN, s->comm)) return 0;
    if (least[0] == -least[1] && least[2] == -least[3]) return 1;
    if (s->rank == 0)
        pmpi_warn("SYMM_PMPI or SYMM_PMPI_AFTER differs between ranks: MPI serves all calls");
    return 0;
}

static pmpi_state *find_state(MPI_Comm comm) {
    const unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
    pmpi_state *s = NULL;
    int there = 0;
    if (last.comm == comm && last.generation == now && last.state) return last.state;
    if (PMPI_Comm_get_attr(comm, keyval, &s, &there)) return NULL;
    if (!there && !(s = new_state(comm))) return NULL;
    last.comm = comm, last.state = s, last.generation = now;
    return s;
}

pmpi_state *pmpi_begin(MPI_Comm comm) {
    if (!is_ready() || comm == MPI_COMM_NULL || comm == last.going) return NULL;
    pmpi_state *s = find_state(comm);
    if (!s) return NULL;
    if (s->how == YOUNG && !s->seen && !same_variables(s)) s->how = LEFT_TO_MPI;
    if (s->how == YOUNG && s->seen++ >= after) pmpi_open(s, mode);
    if (s->how != SERVED) return NULL;
    if (!last.has_progress) symmSetProgress(progress, NULL), last.has_progress = 1;
    return s;
}

int pmpi_serves(const pmpi_state *s, int call, size_t bytes) {
    const size_t from = s->crowded ? pays[call].crowded : pays[call].from;
    if (mode == ALL) return 1;
    if (s->apart) return bytes >= pays[call].apart && bytes <= pays[call].apart_most;
    return (bytes >= from && bytes <= pays[call].most) || bytes >= pays[call].again;
}

int pmpi_end(pmpi_state *s, int call, size_t bytes, symmResult_t r) {
    if (!r) {
        pmpi_count(call, pmpi_serves(s, call, bytes), bytes);
        return MPI_SUCCESS;
    }
    if (!s->told) {
        pmpi_warn("rank %d: %s", s->rank, symmGetLastError(s->symm));
        /* Where only this rank was refused, the others wait for it: now they hear of it. */
        symmCommRevoke(s->symm, 0);
    }
    s->told = 1;
    PMPI_Comm_call_errhandler(s->comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

void *pmpi_room(pmpi_state *s, int side, size_t bytes) {
    if (s->room[side] >= bytes) return s->spare[side];
    free(s->spare[side]);
    s->spare[side] = malloc(bytes);
    s->room[side] = s->spare[side] ? bytes : 0;
    return s->spare[side];
}

MPI_Comm pmpi_going(MPI_Comm comm) {
    const MPI_Comm before = last.going;
    last.going = comm;
    return before;
}

void pmpi_finish(void) {
    const int was = atomic_exchange(&ready, -1);
    while (was > 0) {
        pthread_mutex_lock(&lock);
        const MPI_Comm comm = states ? states->comm : MPI_COMM_NULL;
        pthread_mutex_unlock(&lock);
        if (comm == MPI_COMM_NULL || PMPI_Comm_delete_attr(comm, keyval)) break;
    }
    if (was > 0 && world_rank == 0) pmpi_report();
}
