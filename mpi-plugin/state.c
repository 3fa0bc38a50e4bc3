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

enum { OFF, AUTO, ALL }; /* SYMM_PMPI */

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
} last __attribute__((tls_model("initial-exec")));
static int mode; /* written before `ready` */
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
    if (s->beside) PMPI_Comm_free(&s->beside);
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

/* MPI ends, in whatever language the program says so: the attributes of MPI_COMM_SELF go first. */
static int ends(MPI_Comm comm, int key, void *attribute, void *extra) {
    (void)comm, (void)key, (void)attribute, (void)extra;
    pmpi_finish();
    if (world_rank == 0) pmpi_report();
    return MPI_SUCCESS;
}

/* What fails here fails on this rank alone, and the others would take its next call for part of
 * their agreement. */
static void give_up(const char *what) {
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
        give_up("MPI has no attributes");
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

static pmpi_state *new_state(MPI_Comm comm) {
    int inter = 1;
    pmpi_state *s = calloc(1, sizeof *s);
    if (!s || PMPI_Comm_test_inter(comm, &inter) || PMPI_Comm_rank(comm, &s->rank) ||
        PMPI_Comm_size(comm, &s->n) || !(s->counts = calloc(4 * (size_t)s->n, sizeof(size_t))) ||
        PMPI_Comm_set_attr(comm, keyval, s)) {
        give_up("no memory for a communicator");
        return NULL;
    }
    s->comm = comm;
    s->how = inter || s->n < 2 ? LEFT_TO_MPI : YOUNG;
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
    const long long mine[4] = {mode, -mode, (long long)after, -(long long)after};
    long long least[4];
    if (PMPI_Allreduce(mine, least, 4, MPI_LONG_LONG, MPI_MIN, s->comm)) return 0;
    if (least[0] == -least[1] && least[2] == -least[3]) return 1;
    if (s->rank == 0)
        pmpi_warn("SYMM_PMPI or SYMM_PMPI_AFTER differs between ranks: MPI serves all calls");
    return 0;
}

/* What no rank denies of the things that `yes` says, one a bit. */
static unsigned agree(pmpi_state *s, unsigned yes) {
    unsigned all = 0;
    return PMPI_Allreduce(&yes, &all, 1, MPI_UNSIGNED, MPI_BAND, s->comm) ? 0 : all;
}

/* More ranks on this host than cores. */
static int is_crowded(void) {
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int n = 0;
    if (local) n = atoi(local);
    if (n < 1) PMPI_Comm_size(MPI_COMM_WORLD, &n);
    return n > sysconf(_SC_NPROCESSORS_ONLN);
}

/* Open MPI 4.1 hangs or crashes when threads make communicators at once, and one over several hosts
 * takes several. */
static int is_one_thread(void) {
    int level;
    return !PMPI_Query_thread(&level) && level < MPI_THREAD_MULTIPLE;
}

static unsigned hashed(unsigned h, const char *text, size_t bytes) { /* FNV */
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

/* What the library tells hosts apart by: the boot of the kernel and the network namespace.
 * SYMM_DOMAIN_SIZE cuts one host into several, for tests. Collective. */
static int on_one_host(pmpi_state *s) {
    char boot[64] = "", net[64] = "";
    const char *cut = getenv("SYMM_DOMAIN_SIZE");
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(boot, sizeof boot, f)) boot[0] = 0;
    if (f) fclose(f);
    const ssize_t n = readlink("/proc/self/ns/net", net, sizeof net);
    unsigned mine = hashed(2166136261u, boot, strlen(boot));
    mine = hashed(mine, net, n > 0 ? (size_t)n : 0);
    if (cut && atoi(cut) > 0) mine += 1 + (unsigned)s->rank;
    const unsigned set = agree(s, mine), unset = agree(s, ~mine);
    return (set | unset) == ~0u; /* each bit is on all ranks 1, or on all 0 */
}

/* A buffer may be in a GPU's memory, and only MPI knows. */
static int has_gpus(void) {
    static const char *const names[] = {"libcuda.so.1", "libamdhip64.so.5", "libamdhip64.so.6",
                                        "libamdhip64.so.7", "libze_loader.so.1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *there = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        if (there) return dlclose(there), 1;
    }
    return 0;
}

/* Why MPI serves the communicator; NULL: no reason. Collective. */
static const char *left_why(pmpi_state *s) {
    enum { NO_GPUS = 1, CORES = 2, ONE_THREAD = 4, MOST_APART = 4096 };
    const unsigned all = agree(s, (has_gpus() ? 0 : NO_GPUS) | (is_crowded() ? 0 : CORES) |
                                      (is_one_thread() ? ONE_THREAD : 0));
    s->crowded = !(all & CORES);
    s->apart = !on_one_host(s);
    if (!(all & NO_GPUS)) return "a rank uses GPUs, buffers may be in their memory";
    if (s->apart && !(all & ONE_THREAD))
        return "its ranks are on several hosts, and one has MPI_THREAD_MULTIPLE";
    if (s->apart && s->n > MOST_APART) return "its ranks are on several hosts, and too many";
    return NULL;
}

/* The same, once it is made: what is measured has two ranks on a host. */
static const char *left_behind(const pmpi_state *s) {
    symmDomainInfo_t i = {.size = sizeof i};
    if (!s->apart || mode == ALL) return NULL;
    if (symmDomainQuery(s->symm, &i)) give_up(symmGetLastError(s->symm));
    return 2 * i.domains > s->n ? "its hosts have fewer than two ranks each" : NULL;
}

static void left_to_mpi(pmpi_state *s, const char *name, const char *why) {
    if (s->rank == 0) pmpi_info("%s: MPI serves it: %s", name, why);
    if (s->symm) symmCommDestroy(s->symm);
    s->symm = NULL;
    s->how = LEFT_TO_MPI;
}

/* Makes the symm communicator, or leaves all to MPI. Collective. All ranks are in it once they have
 * agreed, so the deadline is short. Not over several hosts: there creation has calls of MPI that
 * wait without one, and whom it has given up would not be in them. */
static void open_state(pmpi_state *s) {
    enum { MADE = 1, DEADLINE_MS = 20000 };
    char name[MPI_MAX_OBJECT_NAME] = "";
    int n;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    PMPI_Comm_get_name(s->comm, name, &n);
    s->how = LEFT_TO_MPI;
    const char *why = left_why(s);
    if (why) {
        left_to_mpi(s, name, why);
        return;
    }
    config.commName = *name ? name : NULL;
    config.peerDeath = SYMM_DEATH_WHEN_USED;
    if (!s->apart) config.timeoutMs = DEADLINE_MS;
    const symmResult_t r = symmCommInitMPI(&s->symm, s->comm, &config);
    if (agree(s, r ? 0 : MADE)) {
        s->how = SERVED;
        if ((why = left_behind(s))) left_to_mpi(s, name, why);
        return;
    }
    if (r == symmNotSupported)
        pmpi_info("%s: MPI serves it: %s", name, symmGetLastError(NULL));
    else if (r)
        pmpi_warn("%s: MPI serves it: %s", name, symmGetLastError(NULL));
    if (!r) symmCommDestroy(s->symm);
    s->symm = NULL;
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
    if (!is_ready() || comm == MPI_COMM_NULL) return NULL;
    pmpi_state *s = find_state(comm);
    if (!s) return NULL;
    if (s->how == YOUNG && !s->seen && !same_variables(s)) s->how = LEFT_TO_MPI;
    if (s->how == YOUNG && s->seen++ >= after) open_state(s);
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

int pmpi_beside(pmpi_state *s) {
    enum { MOST = 32767 }; /* the largest tag that every MPI has */
    if (!s->beside && (PMPI_Comm_split(s->comm, 0, s->rank, &s->beside) ||
                       PMPI_Comm_set_errhandler(s->beside, MPI_ERRORS_RETURN))) {
        give_up("MPI makes no communicator");
        return 0;
    }
    s->round = s->round < MOST ? s->round + 1 : 0;
    return 1;
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

void pmpi_finish(void) {
    if (atomic_load(&ready) <= 0) return;
    for (;;) {
        pthread_mutex_lock(&lock);
        const MPI_Comm comm = states ? states->comm : MPI_COMM_NULL;
        pthread_mutex_unlock(&lock);
        if (comm == MPI_COMM_NULL || PMPI_Comm_delete_attr(comm, keyval)) break;
    }
    atomic_store(&ready, -1);
}
