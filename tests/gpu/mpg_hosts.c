/* mpg_hosts.c - ranks of several hosts in one NVLink fabric, with a process per rank under mpirun.
 * On GPUs of one machine: what kernels tell each other there. On the fake driver, where ranks play
 * hosts (GPU_FAKE_HOST=k): that they are one domain, with multicast where GPU_FAKE_CAST=1 asks for
 * it; and over tests/hosts.sh (T_CUT=1) that a host which answers no more is found. */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "mpg_kit.h"
#include "symm_domains.h"

extern int symm_test_apart; /* comm_make.c */

/* What a connection to a host that does not answer may take (SYMM_HOST_TIMEOUT), and 3 s more. */
enum { COUNT = 4096, DEAF_MS = 6000 };

typedef struct {
    mpg_rank m;
    symmComm_t comm;
    cu_stream stream;
    int *mem; /* what is sent, then what comes */
} world;

static int hosts_of(const mpg_rank *m) {
    const int per = gk_number("GPU_FAKE_HOST", 0);
    return per ? (m->n + per - 1) / per : 1;
}

static world begin(void) {
    world w = {.m = mpg_self()};
    T_EXPECT_WARNINGS();
    if (w.m.n < 2) T_SKIP("needs two ranks");
    w.comm = mpg_comm(&w.m);
    w.stream = gk_new_stream();
    w.mem = (int *)(void *)gk_plain(2 * COUNT * sizeof(int));
    return w;
}
static void end(world *w) {
    gk_free_plain((char *)w->mem);
    CU(cuStreamDestroy(w->stream));
}

static symmResult_t offer(world *w) {
    return symmAllReduce(w->mem, w->mem + COUNT, COUNT, symmInt32, symmSum, w->comm,
                         gk_stream(w->stream));
}
static void give(world *w) {
    T_OK(offer(w));
}
static void works(world *w) {
    static int values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = i + w->m.rank;
    gk_put(w->stream, w->mem, values, sizeof values);
    give(w);
    gk_get(w->comm, w->stream, values, w->mem + COUNT, sizeof values);
    for (int i = 0; i < COUNT; i++) T_EQ(values[i], w->m.n * i + w->m.n * (w->m.n - 1) / 2);
}

/* What the communicator says at the end of the stream; how long that took. */
static symmResult_t outcome(world *w, uint64_t *ms) {
    const uint64_t since = symm_now_ns();
    symmResult_t r = symmSuccess;
    gk_wait_code(w->comm, w->stream);
    T_OK(symmCommGetAsyncError(w->comm, &r));
    *ms = gk_ms_since(since);
    return r;
}

static void hosts_are_one_domain(void) {
    world w = begin();
    symmDomainInfo_t d = {.size = sizeof d};
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmDomainQuery(w.comm, &d));
    T_EQ(d.hosts, hosts_of(&w.m));
    T_EQ(d.domains, 1);
    T_EQ(d.ranks, w.m.n);
    T_STREQ(d.mover, "");
    T_OK(symmCommQuery(w.comm, &info));
    T_EQ(info.multicast, gk_number("GPU_FAKE", 0) && gk_number("GPU_FAKE_CAST", 0));
    works(&w);
    T_OK(symmCommDestroy(w.comm));
    end(&w);
}

/* Pages of host memory are each process's own, as on several hosts. The last rank does not come:
 * the others' kernels leave at their deadline. Its own, when they come, do not wait: the first may
 * find all that it needs, the next one leaves, and its host reads the reason. */
static void words_go_through_gpu_memory(void) {
    uint64_t ms;
    setenv("SYMM_TIMEOUT", "1000", 1);
    symm_test_apart = 1;
    world w = begin();
    works(&w);
    MPI_Barrier(MPI_COMM_WORLD);
    if (w.m.rank < w.m.n - 1) {
        give(&w);
        T_EQ(outcome(&w, &ms), symmTimeout);
        T_CHECKF(ms > 500, "the deadline came after %d ms", (int)ms);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (w.m.rank == w.m.n - 1) {
        symmResult_t r = symmSuccess;
        for (int i = 0; i < 2 && !r; i++) {
            r = offer(&w); /* on several hosts its own may know by now */
            ms = 0;
            if (!r) r = outcome(&w, &ms);
            T_CHECKF(ms < 500, "call %d has waited for %d ms", i, (int)ms);
        }
        T_EQ(r, symmTimeout);
        gk_figure("a kernel that comes after the others have left: ended in %d ms", (int)ms);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    symm_test_apart = 0;
    T_OK(symmCommAbort(w.comm));
    end(&w);
}

/* To hosts 0 to mine - 1 nothing goes any more; or it does again. */
static void cut(int mine, int on) {
    struct ifaddrs *list, *i;
    uint32_t own = 0;
    T_EQ(getifaddrs(&list), 0);
    for (i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !strcmp(i->ifa_name, "eth0"))
            own = ntohl(((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr);
    freeifaddrs(list);
    T_CHECKF(own, "there is no eth0 with an address");
    for (int h = 0; h < mine; h++) {
        char command[128];
        const uint32_t to = (own & ~255u) + (unsigned)h + 1;
        snprintf(command, sizeof command, "ip route %s blackhole %u.%u.%u.%u/32",
                 on ? "add" : "del", to >> 24, to >> 16 & 255, to >> 8 & 255, to & 255);
        T_CHECKF(system(command) == 0, "%s", command);
    }
}

static void a_host_that_answers_no_more_is_found(void) {
    uint64_t ms;
    if (!gk_number("T_CUT", 0)) T_SKIP("needs hosts: see tests/check/check_fabric.sh");
    setenv("SYMM_TIMEOUT", "0", 1);
    setenv("SYMM_HOST_TIMEOUT", "3000", 1);
    world w = begin();
    const int per = gk_number("GPU_FAKE_HOST", 1), mine = w.m.rank / per, last = hosts_of(&w.m) - 1;
    works(&w);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mine == last && w.m.rank % per == 0) cut(mine, 1);
    const uint64_t since = symm_now_ns();
    symmResult_t r = symmSuccess;
    if (w.m.rank) give(&w); /* rank 0 does not come, so all others wait for it */
    while (!r && gk_ms_since(since) < 2 * DEAF_MS) {
        usleep(1000);
        T_OK(symmCommGetAsyncError(w.comm, &r));
    }
    ms = gk_ms_since(since);
    usleep(r && ms < DEAF_MS ? (useconds_t)(DEAF_MS - ms) * 1000 : 0); /* all have heard */
    if (mine == last && w.m.rank % per == 0) cut(mine, 0);
    T_CHECKF(r == symmRemoteError && ms < DEAF_MS, "rank %d: %s after %d ms (%s)", w.m.rank,
             symmGetErrorString(r), (int)ms, symmGetLastError(w.comm));
    gk_figure("rank %d: a host that answers no more: known after %d ms", w.m.rank, (int)ms);
    gk_wait_code(w.comm, w.stream);
    T_OK(symmCommAbort(w.comm));
    end(&w);
}

T_MAIN_MPI(T_TIMEOUT(hosts_are_one_domain, 60), T_TIMEOUT(words_go_through_gpu_memory, 60),
           T_TIMEOUT(a_host_that_answers_no_more_is_found, 60))
