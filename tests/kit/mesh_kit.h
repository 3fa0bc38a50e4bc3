/* mesh_kit.h - what the tests of the control mesh share: a bootstrap through memory that all ranks
 * see, a barrier, deadlines, and the same rank function run as processes or as threads. Each rank
 * uses it from its own thread; no lock: the shared fields are atomics, written before a barrier and
 * read after it. */
#ifndef MESH_KIT_H_
#define MESH_KIT_H_

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "transport/mesh/mesh.h"
#include "t.h"

enum { KIT_RANKS = 80, KIT_MS = 20000 };

typedef struct {
    int kind;    /* of the mesh: SYMM_MESH_UNIX, ... */
    int threads; /* the ranks are threads: mailboxes instead of sockets */
    int value;   /* the test's own */
    symm_mesh_addr addrs[KIT_RANKS];
    void *mailboxes;
    _Atomic int arrived, generation, flag;
    _Atomic int code[KIT_RANKS], dead[KIT_RANKS];
    char text[KIT_RANKS][SYMM_ERR_TEXT];
} kit;

static inline symm_wait kit_wait(const char *stage, int ms) {
    return (symm_wait){.deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000, .stage = stage};
}

static inline void kit_sleep(int ms) {
    uint64_t until = symm_now_ns() + (uint64_t)ms * 1000000;
    while (symm_now_ns() < until) usleep(500); /* a signal may cut one short */
}

/* The last one lets the others go; release and acquire carry what they wrote before. */
static inline void kit_barrier(kit *k, int n) {
    int generation = atomic_load(&k->generation);
    if (atomic_fetch_add(&k->arrived, 1) + 1 == n) {
        atomic_store(&k->arrived, 0);
        atomic_store(&k->generation, generation + 1);
    }
    while (atomic_load(&k->generation) == generation) usleep(100);
}

static inline void kit_await_flag(kit *k, int value) {
    while (atomic_load(&k->flag) < value) usleep(200);
}

/* Listens and trades addresses; what the bootstrap does in earnest. */
static inline symm_mesh *kit_listen(kit *k, int rank, int n) {
    symm_mesh *m;
    symm_log_rank(rank);
    T_OK(symm_mesh_listen(rank, n, k->kind, "lo", &k->addrs[rank], &m));
    if (k->threads && rank == 0) {
        T_OK(symm_mesh_share(n, &k->mailboxes));
        for (int r = 1; r < n; r++) symm_mesh_share_ref(k->mailboxes);
    }
    kit_barrier(k, n);
    return m;
}

static inline symm_mesh *kit_open(kit *k, int rank, int n) {
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    T_OK(symm_mesh_connect(m, k->addrs, k->mailboxes, &w));
    return m;
}

static inline kit *kit_new(int kind, int value) {
    kit *k = T_SHARED(sizeof *k);
    k->kind = kind;
    k->threads = kind == SYMM_MESH_THREADS;
    k->value = value;
    return k;
}

static inline void kit_run(int kind, int n, t_rank_fn fn, int value) {
    kit *k = kit_new(kind, value);
    if (k->threads)
        T_THREADS(n, fn, k);
    else
        T_FORK(n, fn, k);
}

static inline void kit_run_all(int n, t_rank_fn fn, int value) {
    for (int kind = SYMM_MESH_UNIX; kind <= SYMM_MESH_TCP; kind++) kit_run(kind, n, fn, value);
}

/* A child whose copies of descriptors no handler of fork() takes away. It has no business in the
 * library. */
static inline pid_t kit_clone(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static inline void kit_on_alarm(int sig) {
    (void)sig;
}

/* 1 kHz SIGALRM without SA_RESTART: every system call is interrupted sooner or later. */
static inline void kit_alarms(int on) {
    struct sigaction sa = {.sa_handler = kit_on_alarm};
    struct itimerval every = {{0, on ? 1000 : 0}, {0, on ? 1000 : 0}};
    sigaction(SIGALRM, &sa, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

#endif
