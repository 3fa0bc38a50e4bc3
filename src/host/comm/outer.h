/* outer.h - a communicator over several domains, as the folders below src/host/across know it. Its
 * handles are of a kind of their own, so that calls which serve one domain refuse them. Any
 * thread. */
#ifndef SYMM_OUTER_H_
#define SYMM_OUTER_H_

#include "base/handle.h"
#include "types.h"

struct symm_coll;
struct symm_counts;
struct symm_message;

typedef struct symm_outer { /* first member of a symm_across */
    /* A collective, as the program called it. counts: NULL without a count per rank. */
    symmResult_t (*call)(struct symm_outer *o, const struct symm_coll *k,
                         const struct symm_counts *counts, symmStream_t stream);
    /* symmSend or symmRecv. */
    symmResult_t (*message)(struct symm_outer *o, const struct symm_message *m);
    /* symmWindowRegister: a window of each domain, on all ranks or on none. */
    symmResult_t (*register_window)(struct symm_outer *o, void *buff, size_t size,
                                    symmWindow_t *win, int flags);
    symmComm_t handle; /* its own */
    /* The communicator of this rank's domain, which has the windows, and the reductions that users
     * make. */
    symmComm_t inner;
    int nranks, domains, domain;
    const int *domain_of, *place_of; /* [nranks] */
    char name[32];
} symm_outer;

static inline int symm_outer_is(symmComm_t comm) {
    return symm_handle_is_across(comm);
}
/* Pinned until the put; NULL: the handle names none that lives. */
static inline symm_outer *symm_outer_get(symmComm_t comm) {
    return symm_outer_is(comm) ? symm_handle_get(SYMM_KIND_ACROSS, comm) : NULL;
}
static inline void symm_outer_put(symmComm_t comm) {
    symm_handle_put(SYMM_KIND_ACROSS, comm);
}
/* *rank: of all domains' ranks; then its number in this domain. symmNotSupported: it is in another
 * one. */
symmResult_t symm_outer_place(const symm_outer *o, int *rank);
/* Whose reductions and windows are meant: of one over several domains those of the inner one. */
static inline symmComm_t symm_outer_inner(symmComm_t comm) {
    symm_outer *o = symm_outer_get(comm);
    if (!o) return comm;
    const symmComm_t inner = o->inner;
    symm_outer_put(comm);
    return inner;
}

#endif
