/* failed.h - what the ranks that are left do when others are gone: how they wait for each other.
 * The user's thread; no lock. Who is gone: revoke.h. */
#ifndef SYMM_FAILED_H_
#define SYMM_FAILED_H_

#include "transport/mesh/survive.h"
#include "types.h"

/* Polled while this rank agrees with those that are left. They are here because the communicator is
 * over, so only an abort of this rank ends the wait. arg: a symm_remain. */
typedef struct {
    symm_comm *comm;
    const symm_ranks *out; /* whom nobody waits for; NULL: those that are gone */
} symm_remain;
symmResult_t symm_failed_check(void *arg);
/* The deadline has passed: if this thread drives a late rank itself, the last error says so. */
void symm_failed_explain(const symm_remain *l);

#endif
