/* unit_cores.c - processors on machines with more of them than a cpu_set_t has room for, and what a
 * wait does where there are too few. This program has a sched_getaffinity of its own, which is such
 * a machine, a sched_yield and a nanosleep. Ranks are threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/handle.h"
#include "device/common/kernels.h"
#include "host/comm/comm.h"
#include "machine/cores.h"
#include "t.h"

enum { MOST = 8 };
static int first[MOST] = {1500, 1501}; /* of the n-th thread that asks; one core each */
static int cores = 2;                  /* of each thread */
static int together = 1;               /* all may use the same ones */
static int kernel_bits = 8192;
static _Atomic int asked; /* by all ranks at once */

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    T_EQ(pid, 0);
    if (bytes * 8 < (size_t)kernel_bits) { /* as the kernel does */
        errno = EINVAL;
        return -1;
    }
    const int from = together ? first[0] : first[asked++ % MOST];
    CPU_ZERO_S(bytes, set);
    for (int i = 0; i < cores; i++) CPU_SET_S(from + i, bytes, set);
    return 0;
}

static void every_core_is_found(void) {
    uint16_t list[4] = {0, 0, 0, 7};
    T_EQ(symm_cores(list, 3), 2);
    T_EQ(list[0], 1500), T_EQ(list[1], 1501), T_EQ(list[2], 0), T_EQ(list[3], 7);
    cores = 500;
    T_EQ(symm_cores(list, 3), 500);
    T_EQ(list[2], 1502), T_EQ(list[3], 7);
    T_EQ(symm_cores(NULL, 0), 500);
    kernel_bits = 64, first[0] = 3, cores = 1;
    T_EQ(symm_cores(list, 1), 1);
    T_EQ(list[0], 3);
    kernel_bits = 1 << 16, first[0] = 65535;
    T_EQ(symm_cores(list, 1), 1);
    T_EQ(list[0], 65535);
}

static void more_than_can_be_told_is_not_known(void) {
    kernel_bits = 1 << 20;
    T_EQ(symm_cores(NULL, 0), 0);
}

/* Whether n thread ranks find that they have fewer cores than they are. */
static int lacking(int n) {
    symmComm_t comm[MOST];
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommInitAll(comm, n, NULL));
    T_OK(symmCommQuery(comm[0], &info));
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm[0]);
    T_EQ((c->calls.proto.flags & SYMM_ARG_CROWDED) != 0, info.oversubscribed);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(comm[r]));
    return info.oversubscribed;
}

static void a_rank_each_is_enough(void) {
    T_EQ(lacking(2), 0);
    T_EQ(lacking(3), 1);
    cores = 200;
    T_EQ(lacking(MOST), 0);
}

/* Each its own, of which none has enough for all; far apart, and not told apart by their last
 * bits. */
static void cores_of_several_ranks_add_up(void) {
    static const int far[MOST] = {1, 1025, 2049, 4097, 8, 8001, 12, 8100};
    together = 0, cores = 1;
    for (int i = 0; i < MOST; i++) first[i] = far[i];
    T_EQ(lacking(MOST), 0);
    first[MOST - 1] = first[0];
    T_EQ(lacking(MOST), 1);
}

/* Yields that let somebody run take long. */
static int lets_run;
static _Atomic int naps;
int sched_yield(void) {
    if (lets_run) usleep(10);
    return 0;
}
int nanosleep(const struct timespec *t, struct timespec *left) {
    naps++;
    return clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);
}
/* Calls until the thread sleeps, at most `most`. Other programs may make a yield long. */
static int calls_until_sleep(uint32_t flags, int most) {
    const symm_args a = {.flags = flags};
    uint32_t vain = 0;
    int n = 0;
    naps = 0;
    while (n < most && !naps) symm_give_core(&a, &vain), n++;
    return n;
}
static void yields_in_vain_become_a_sleep(void) {
    const int n = calls_until_sleep(SYMM_ARG_CROWDED, 1000000);
    T_CHECKF(n >= 32 && n < 1000000, "%d calls", n);
    T_EQ(calls_until_sleep(0, 1000), 1000);
    lets_run = 1;
    T_EQ(calls_until_sleep(SYMM_ARG_CROWDED, 1000), 1000);
    lets_run = 0;
}

T_MAIN(T(every_core_is_found), T(more_than_can_be_told_is_not_known), T(a_rank_each_is_enough),
       T(cores_of_several_ranks_add_up), T(yields_in_vain_become_a_sleep))
