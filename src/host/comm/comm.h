/* comm.h - a communicator inside the library: entering it, failing it, its life.
 * A communicator is used by one thread at a time; symm_comm_fail may be called by any thread. */
#ifndef SYMM_COMM_H_
#define SYMM_COMM_H_

#include "transport/cuda/cuda_driver.h"
#include "types.h"

/* Begins an API call: finds the communicator, refuses a second thread, a dead handle, and one still
 * being made (symmInProgress). symm_comm_leave ends it. live: which of the ends of a
 * communicator are answered with their error. */
enum {
    SYMM_ENTER_ANY = 0,
    SYMM_ENTER_LIVE =
        1, /* what this rank knows; exchanges of set-up look for more, with its words */
    SYMM_ENTER_COLL = 2 /* also what peers have told by the abort word alone */
};
symmResult_t symm_comm_enter(symmComm_t handle, int live, symm_comm **out);
/* The same by what lives only while its communicator does (a heap whose handle was just found
 * open): no look-up. */
symmResult_t symm_comm_enter_known(symm_comm *c, int live);
static inline void symm_comm_leave(symm_comm *c) {
    atomic_store_explicit(&c->entry.busy, 0, memory_order_release);
}

/* SYMM_COMM_*. Sequentially consistent: launch_host.c's launch_begins pairs with comm_end.c's end
 * through it. Any thread, as the four below. */
static inline int symm_comm_state(const symm_comm *c) {
    return atomic_load(&c->entry.state);
}
/* Another one is being made from it, in another thread. */
static inline int symm_comm_is_parent(const symm_comm *c) {
    return atomic_load(&c->entry.parenting);
}
/* symmCommAbort has begun. */
static inline int symm_comm_is_aborted(const symm_comm *c) {
    return atomic_load(&c->entry.aborting);
}
/* The code of the reason why it is revoked, as far as this rank was told; symmSuccess: it is
 * not. */
static inline symmResult_t symm_comm_code(const symm_comm *c) {
    return (symmResult_t)atomic_load_explicit(&c->failure.code, memory_order_acquire);
}
/* What it waits for while it is being made; a literal, or NULL. */
static inline const char *symm_comm_step(const symm_comm *c) {
    return atomic_load_explicit(&c->entry.making, memory_order_relaxed);
}

/* Begins a call that any thread may make while the communicator's own is inside another one;
 * unvisit ends it. The end of the communicator waits until then. Also finds one that is still
 * being made. */
symmResult_t symm_comm_visit(symmComm_t handle, symm_comm **out);
void symm_comm_unvisit(symm_comm *c);
/* The same of one that is there to be used: symmInProgress while it is being made. */
symmResult_t symm_comm_visit_made(symmComm_t handle, symm_comm **out);
/* symmInvalidArgument: it is none that lives. */
symmResult_t symm_comm_bad_handle(symmComm_t handle);

/* Revokes: the first reason stays. Sets the own abort word, so running kernels leave. Any
 * thread. */
void symm_comm_fail(symm_comm *c, symmResult_t code, int rank, const char *text);
/* symmSuccess, or the reason with its text made this thread's last error. */
symmResult_t symm_comm_async(symm_comm *c);
/* The same, also where only a peer has said so, in our abort word. Any thread. */
symmResult_t symm_comm_told(symm_comm *c);
/* A peer that broke or revoked the communicator has written so into our abort word. Kernels look at
 * it; this is for the host. Any thread. */
void symm_comm_adopt_abort(symm_comm *c);

/* The rank whose death revoked the communicator, as far as this rank was told; -1 none. */
int symm_comm_dead(const symm_comm *c);

/* In words, what a kernel was doing (SYMM_STAGE_*). */
const char *symm_stage_name(uint32_t stage);
/* In words, for an error that a peer or a kernel has only told by code and rank (-1 unknown). Where
 * ranks disagree: in what. */
void symm_comm_reason(symm_comm *c, symmResult_t code, int rank, char *text, size_t cap);
/* This rank cannot go on with the others, for the reason in the thread's last error: revokes the
 * communicator here and on every peer, so that none waits for it. rank: whom the reason is
 * about, -1 unknown. */
void symm_comm_break(symm_comm *c, symmResult_t code, int rank, const char *stage);
/* Revokes it here and on every peer, because this rank called `what`. Any thread. */
void symm_comm_abort_everywhere(symm_comm *c, const char *what);
/* Bootstrap's allgather, and agreement. Where they fail for more than a rank's own status the
 * communicator is broken. */
symmResult_t symm_comm_gather(symm_comm *c, const void *mine, void *all, size_t bytes,
                              const char *stage);
symmResult_t symm_comm_agree(symm_comm *c, symmResult_t mine, const char *stage);

/* How calls of this communicator wait for peers: set-up deadline, and a check that sees deaths and
 * revocation. */
symm_wait symm_comm_wait(symm_comm *c, const char *stage);
/* The same before the mesh is connected: sees revocation only. */
symm_wait symm_comm_wait_early(symm_comm *c, const char *stage);

/* Rank's control block as this process reaches it (GPUs: the part in host memory: state and abort
 * word). After set-up. */
symm_ctl *symm_comm_ctl(const symm_comm *c, int rank);

void symm_comm_ref(symm_comm *c);
void symm_comm_unref(symm_comm *c);

/* comm_open.c. A caller's config, with its name, as it was at the call: a group makes the call
 * later. */
typedef struct {
    symmConfig_t config;
    char name[32];
    int given, named;
} symm_config_copy;
void symm_config_keep(symm_config_copy *k, const symmConfig_t *config);
/* *out: the same as a config, good as long as k; NULL where none was given. */
const symmConfig_t *symm_config_kept(const symm_config_copy *k, symmConfig_t *out);

/* comm_make.c */
symmResult_t symm_config_check(const symmConfig_t *config, symmConfig_t *out);
symmResult_t symm_comm_shell(const symmConfig_t *config, symm_comm **out);
/* Builds everything over boot, which it owns from here on, and makes the communicator live. Fails
 * alike on all ranks. */
symmResult_t symm_comm_build(symm_comm *c, symm_boot *boot);
static inline void symm_comm_making(symm_comm *c, const char *what) {
    atomic_store_explicit(&c->entry.making, what, memory_order_relaxed);
}
/* Undoes whatever build has done. */
void symm_comm_unbuild(symm_comm *c);
/* Shell, build, publish. A rank that cannot make so much as the shell tells the others, so that all
 * fail alike. */
symmResult_t symm_comm_open(symm_boot *boot, const symmConfig_t *config, symmComm_t *out);
/* The same with that context current meanwhile; NULL: as the thread has it. */
symmResult_t symm_comm_open_in(cu_context context, symm_boot *boot, const symmConfig_t *config,
                               symmComm_t *out);
/* Builds over boot, with that context current meanwhile, what a shell was made for; or tells the
 * others that it cannot. */
symmResult_t symm_comm_build_in(cu_context context, symm_boot *boot, symm_comm *c);
/* The same where ranks meet over TCP; behind symmInProgress if config says so, the meeting
 * included. */
typedef struct {
    symmUniqueId_t id;
    int rank, nranks;
    cu_context context; /* GPUs: of the thread that asked, where another one does it */
} symm_meeting;
symmResult_t symm_comm_open_tcp(const symm_meeting *at, const symmConfig_t *config,
                                symmComm_t *out);

#endif
