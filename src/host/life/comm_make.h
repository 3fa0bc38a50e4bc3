/* comm_make.h - what the files that create communicators share: comm_config.c (config), comm_open.c
 * (doors), comm_hello.c (first exchange), comm_make.c (mesh, space, control block), comm_connect.c
 * (the ranks connect). Runs on the creating thread; no lock. */
#ifndef SYMM_COMM_MAKE_H_
#define SYMM_COMM_MAKE_H_

#include "host/comm/types.h"
#include "transport/cuda/cuda_driver.h"

/* The second message, after the hello has shown that the ranks fit. */
typedef struct {
    symm_mesh_addr addr;
    uint64_t space_id, new_id;
    void *share;       /* rank 0 of thread ranks: symm_comm_share */
    symm_uuid process; /* and where it lies in the memory of process pid (reach.c) */
    uint64_t process_at, gate;
    int32_t code, pid;
    int32_t multicast; /* 1: the rank can have multicast windows; 0 and code 0: text says why not */
    char text[200];
} symm_greeting;

/* What a rank finds of the others' memory (reach.c): 0, or the first that it cannot reach. */
typedef struct {
    uint32_t reads, writes;
} symm_reached;

/* ---- comm_config.c ---- */

/* A caller's config, with its name, as it was at the call: a group makes the call later. */
typedef struct {
    symmConfig_t config;
    char name[32];
    int given, named;
} symm_config_copy;
void symm_config_keep(symm_config_copy *k, const symmConfig_t *config);
/* *out: the same as a config, good as long as k; NULL if none was given. */
const symmConfig_t *symm_config_kept(const symm_config_copy *k, symmConfig_t *out);
symmResult_t symm_config_check(const symmConfig_t *config, symmConfig_t *out);
/* Of a communicator made from another one, which gives what k does not say. Good as long as k. */
symmConfig_t symm_config_child(const symm_comm *parent, const symm_config_copy *k);

/* ---- comm_open.c ---- */

/* What a communicator is made from. */
typedef struct {
    cu_context context; /* current meanwhile; NULL: as the thread has it */
    symm_comm *parent;  /* its end ends the making; NULL: none */
    int outlives;       /* 1: only this rank's symmCommAbort of it does: a shrink, a grow */
} symm_origin;

/* A record with its handle; nothing is exchanged. */
symmResult_t symm_comm_shell(const symmConfig_t *config, symm_comm **out);
/* Shell and build. A rank that cannot make the shell tells the others, so that all fail with the
 * same error. */
symmResult_t symm_comm_open(symm_boot *boot, const symmConfig_t *config, symmComm_t *out);
/* The same of another one. */
symmResult_t symm_comm_open_from(const symm_origin *from, symm_boot *boot,
                                 const symmConfig_t *config, symmComm_t *out);
/* Builds over boot what a shell was made for, or tells the others that it cannot. If they do
 * without it: symmInvalidUsage, as the program has the handle. */
symmResult_t symm_comm_build_from(const symm_origin *from, symm_boot *boot, symm_comm *c);
/* Open, where ranks meet over TCP; if config says so in another thread, the meeting included
 * (symmInProgress). */
typedef struct {
    symmUniqueId_t id;
    int rank, nranks;
    symm_origin from; /* GPUs: the context of the thread that asked, where another one does it */
    symmMeet_t meet;  /* what the ranks settle first; settle NULL: nothing */
} symm_meeting;
symmResult_t symm_comm_open_tcp(const symm_meeting *at, const symmConfig_t *config,
                                symmComm_t *out);

/* Before any of that: numbers of this rank that are out of range. The others, which come to the id,
 * get an error too. Returns status, the thread's last error. */
symmResult_t symm_comm_refuse_numbers(const symmUniqueId_t *id, int rank, int nranks,
                                      symmResult_t status);
/* The same of a rank whose numbers are right. */
symmResult_t symm_comm_refuse_rank(const symmUniqueId_t *id, int rank, int nranks,
                                   symmResult_t status);

/* ---- comm_make.c ---- */

/* What symm_comm_step tells. what: a literal. */
static inline void symm_comm_making(symm_comm *c, const char *what) {
    atomic_store_explicit(&c->entry.making, what, memory_order_relaxed);
}
/* Builds everything over boot, which it owns from here on, and makes the communicator live. Fails
 * on all ranks with the same error. SYMM_ELSEWHERE: nothing is made, as the ranks have settled
 * (comm_meet.c). */
symmResult_t symm_comm_build(symm_comm *c, symm_boot *boot, const symm_origin *from);
/* Undoes whatever build has done. */
void symm_comm_unbuild(symm_comm *c);

/* ---- comm_connect.c ---- */

/* Thread ranks. Rank 0 makes for all what they share; *share names it for the greeting. */
symmResult_t symm_comm_share(symm_comm *c, const symm_uuid *members, uint64_t control_bytes,
                             uint64_t id, void **share);
/* Every rank, rank 0 too, takes its own references; *mailboxes for symm_comm_connect.
 * symmRemoteError: rank 0 has given up. */
symmResult_t symm_comm_adopt(symm_comm *c, const void *share, void **mailboxes);
/* Rank 0: nobody can adopt from here on. NULL: nothing. */
void symm_comm_unshare(void *share);
/* The mesh step: addrs and shared as symm_mesh_connect has them. */
symmResult_t symm_comm_connect(symm_comm *c, const symm_mesh_addr *addrs, void *shared);
/* After it: all ranks learn how it went, and get the same code and text. A cause counts before its
 * consequences. With it goes what this rank has found of the others' memory. status: its text is
 * the thread's last. */
symmResult_t symm_comm_connected(symm_comm *c, symmResult_t status, symm_reached reach);

/* ---- comm_child.c ---- */

/* 1: it is being made from another one behind a call, or another one from it. Both ends are done at
 * one moment. */
int symm_comm_goes_on(symm_comm *c);
/* As symmCommShrink of one domain, of a rank that has an error already, which all are told. status:
 * the error, the thread's last; or success. */
symmResult_t symm_comm_shrink_with(symmComm_t comm, const int *excludeRanks, int nExclude,
                                   symmComm_t *newcomm, const symmConfig_t *config, int flags,
                                   symmResult_t status);

/* ---- comm_meet.c ---- */

/* No error: the ranks do without a communicator. Left inside src/host/life. */
#define SYMM_ELSEWHERE symmInProgress
/* What the program has the ranks settle over boot, if anything; c NULL: there is no record.
 * symmSuccess: creation goes on. Pre: the text of a status that is none is the thread's last. */
symmResult_t symm_comm_settle(symm_comm *c, symm_boot *boot, symmResult_t status);
/* Of the argument of a program. */
symmResult_t symm_comm_check_meet(const symmMeet_t *meet);

/* ---- comm_hello.c, first_touch.c, reach.c ---- */

/* Random bytes; unique ones where the kernel gives none. */
void symm_random_fill(void *p, size_t n);
/* Exchanges hellos. If a rank does not fit, every rank gets the same error. Fills members[nranks]
 * and what c learns from the others. */
symmResult_t symm_comm_hello(symm_comm *c, symm_uuid *members);
/* No longer the first on its GPU, if it was (share.h). */
void symm_comm_give_first(symm_comm *c);
/* Host backend, whether peers' memory can be reached (reach.c): what this rank shows the others;
 * what it finds of them, 0 or numbers for the others; and what rank has found, in rank order. */
void symm_comm_reach_offer(symm_comm *c, symm_greeting *g);
symm_reached symm_comm_reach_try(const symm_comm *c, const symm_greeting *all);
void symm_comm_reach_learn(symm_comm *c, int rank, symm_reached found);
/* All ranks have tried: what nobody will use goes. */
void symm_comm_reach_settle(symm_comm *c);
/* Takes back what was offered: no kernel of this communicator runs any more. */
void symm_comm_reach_end(symm_comm *c);
/* How fast: once all have mapped all; soil before an exchange, measure after it. */
void symm_comm_reach_soil(const symm_comm *c);
symmResult_t symm_comm_reach_measure(symm_comm *c);
/* Random for each process; a forked child has another one. */
const symm_uuid *symm_comm_process(void);
/* Host backend: makes the pages that this rank polls (first_touch.c). */
void symm_comm_first_touch(const symm_comm *c);
/* This rank cannot build a communicator. Its hello says why, so that all ranks fail with the same
 * error and do not wait for it. Closes boot. status: why, with the text in the thread's last
 * error. */
symmResult_t symm_comm_refuse(symm_boot *boot, symmResult_t status);
/* The same with a deadline, for others that may come late. */
symmResult_t symm_comm_refuse_by(symm_boot *boot, symmResult_t status, uint64_t deadline_ns);

#endif
