/* opening.c - whether all ranks of an MPI communicator can have a symm communicator, and making it.
 * In the call of the program's that opens it, which is collective; the program's thread; no lock.
 *
 * On one host no communicator of MPI's is made for it: MPI makes them one at a time, in Open MPI
 * 4.1, so that one which the program makes in the background, or in another thread, would hold this
 * up; and a duplicate would run the program's attribute callbacks. What the ranks exchange goes
 * over the program's own communicator, in rounds. */
#define _GNU_SOURCE
#include "pmpi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "symm_domains.h"
#include "symm_host.h"
#include "symm_mpi.h"

static _Atomic int in_background; /* the program has called MPI_Comm_idup */

void pmpi_makes_in_background(void) {
    atomic_store(&in_background, 1);
}

/* ---- what the ranks agree on ----------------------------------------------------------------- */

/* What no rank denies of the things that `yes` says, one a bit. */
static unsigned agree(pmpi_state *s, unsigned yes) {
    unsigned all = 0;
    return PMPI_Allreduce(&yes, &all, 1, MPI_UNSIGNED, MPI_BAND, s->comm) ? 0 : all;
}

/* Ranks of the program on this host; less than 1: nobody says. */
static int local_ranks(void) {
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    return local ? atoi(local) : 0;
}

/* More ranks on this host than cores. */
static int is_crowded(void) {
    int n = local_ranks();
    if (n < 1) PMPI_Comm_size(MPI_COMM_WORLD, &n);
    return n > sysconf(_SC_NPROCESSORS_ONLN);
}

/* Open MPI 4.1 hangs or crashes when threads make communicators at once, and several hosts take
 * several. */
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

/* A communicator holds a descriptor for each peer of this host. The program's own files must find
 * room: a quarter of what the process may have stays free. */
static int has_descriptors(const pmpi_state *s) {
    const int local = local_ranks();
    const int more = (s->apart && local > 0 && local < s->n ? local : s->n) - 1;
    struct rlimit most;
    rlim_t used = 0;
    DIR *all = opendir("/proc/self/fd");
    if (!all && errno == EMFILE) return 0;
    if (!all || getrlimit(RLIMIT_NOFILE, &most)) used = RLIM_INFINITY;
    while (all && readdir(all)) used++;
    if (all) closedir(all);
    if (used == RLIM_INFINITY || most.rlim_cur == RLIM_INFINITY) return 1; /* nobody knows */
    return used + (rlim_t)more <= most.rlim_cur - most.rlim_cur / 4;
}

/* Why MPI serves the communicator; NULL: no reason. Collective. */
static const char *left_why(pmpi_state *s) {
    enum { NO_GPUS = 1, CORES = 2, ONE_THREAD = 4, FILES = 8, FOREGROUND = 16, MOST_APART = 4096 };
    s->apart = !on_one_host(s);
    const unsigned all =
        agree(s, (has_gpus() ? 0 : NO_GPUS) | (is_crowded() ? 0 : CORES) |
                     (is_one_thread() ? ONE_THREAD : 0) | (has_descriptors(s) ? FILES : 0) |
                     (atomic_load(&in_background) ? 0 : FOREGROUND));
    s->crowded = !(all & CORES);
    if (!(all & NO_GPUS)) return "a rank uses GPUs, buffers may be in their memory";
    if (s->apart && !(all & ONE_THREAD))
        return "its ranks are on several hosts, and one has MPI_THREAD_MULTIPLE";
    /* One that is not done holds up those that we would make, and MPI's calls for these have no
     * deadline. */
    if (s->apart && !(all & FOREGROUND))
        return "its ranks are on several hosts, and one has called MPI_Comm_idup";
    if (!(all & FILES)) return "it would leave a rank too few file descriptors";
    if (s->apart && s->n > MOST_APART) return "its ranks are on several hosts, and too many";
    return NULL;
}

/* The same, once it is made: what is measured has two ranks on a host. */
static const char *left_behind(const pmpi_state *s, enum pmpi_mode mode) {
    symmDomainInfo_t i = {.size = sizeof i};
    if (!s->apart || mode == ALL) return NULL;
    if (symmDomainQuery(s->symm, &i)) pmpi_give_up(symmGetLastError(s->symm));
    return 2 * i.domains > s->n ? "its hosts have fewer than two ranks each" : NULL;
}

static void left_to_mpi(pmpi_state *s, const char *name, const char *why) {
    if (s->rank == 0) pmpi_info("%s: MPI serves it: %s", name, why);
    if (s->symm) symmCommDestroy(s->symm);
    s->symm = NULL;
    s->how = LEFT_TO_MPI;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A rank that cannot go on leaves the creation, while others want to exchange something: MPI would
 * take its next call for part of that. So each exchange begins with a round in which every rank
 * says what it is about, and who has left stays in the rounds until all have. */
enum { LEFT, LEFT_WITH_ONE, WANTS };
typedef struct {
    int least, most; /* of what the ranks said */
    int same;        /* bytes that they want */
} a_round;
static a_round meet(pmpi_state *s, int what, size_t bytes) {
    const long long b = (long long)bytes, mine[4] = {what, -what, b, -b};
    long long all[4];
    if (PMPI_Allreduce(mine, all, 4, MPI_LONG_LONG, MPI_MIN, s->comm))
        return (a_round){LEFT, LEFT, 0};
    return (a_round){(int)all[0], (int)-all[1], all[2] == -all[3]};
}
static int all_want(pmpi_state *s, size_t bytes) {
    if (!s->opening) return 0;
    const a_round x = meet(s, WANTS, bytes);
    return x.least == WANTS && x.same && bytes <= INT_MAX;
}
static int exchange(void *ctx, const void *send, void *recv, size_t bytes) {
    pmpi_state *s = ctx;
    return !all_want(s, bytes) || PMPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes,
                                                 MPI_BYTE, s->comm) != MPI_SUCCESS;
}
static int all_here(void *ctx) {
    return !all_want(ctx, 0);
}
/* 1: all ranks have left, and each with a communicator. */
static int all_made(pmpi_state *s, int mine) {
    a_round x;
    do x = meet(s, mine ? LEFT_WITH_ONE : LEFT, 0);
    while (x.most == WANTS);
    return x.least == LEFT_WITH_ONE;
}

/* ---- making it ------------------------------------------------------------------------------- */

static symmResult_t make(pmpi_state *s, const char *name) {
    enum { DEADLINE_MS = 20000 };
    const symmBoot_t boot = {exchange, all_here, s};
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.commName = *name ? name : NULL;
    config.peerDeath = SYMM_DEATH_WHEN_USED;
    /* Over several hosts there are calls of MPI that wait without a deadline, and whom one has
     * given up would not be in them. */
    if (s->apart) return symmCommInitMPI(&s->symm, s->comm, &config);
    config.timeoutMs = DEADLINE_MS; /* all ranks have come */
    return symmCommInitBoot(&s->symm, s->n, s->rank, &boot, &config);
}

void pmpi_open(pmpi_state *s, enum pmpi_mode mode) {
    char name[MPI_MAX_OBJECT_NAME] = "";
    int n;
    PMPI_Comm_get_name(s->comm, name, &n);
    s->how = LEFT_TO_MPI;
    const char *why = left_why(s);
    if (why) {
        left_to_mpi(s, name, why);
        return;
    }
    s->opening = 1;
    const symmResult_t r = make(s, name);
    const int made = all_made(s, !r);
    s->opening = 0;
    if (made) {
        s->how = SERVED;
        if ((why = left_behind(s, mode))) left_to_mpi(s, name, why);
        return;
    }
    if (r == symmNotSupported)
        pmpi_info("%s: MPI serves it: %s", name, symmGetLastError(NULL));
    else if (r)
        pmpi_warn("%s: MPI serves it: %s", name, symmGetLastError(NULL));
    if (!r) symmCommDestroy(s->symm);
    s->symm = NULL;
}
