/* symm_group.h - calls that are queued and made together. symm.h includes it.
 * symmGroupSimulateEnd (symm_explain.h) says what a group would run. */
#ifndef SYMM_GROUP_PUBLIC_H_
#define SYMM_GROUP_PUBLIC_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls between Start and the outermost End are queued, so that one thread can drive several ranks:
 * creation, split, shrink, registration, growth and all else that is collective. symmCommInitMPI,
 * symmCommInitAll and calls whose order is local are made at once.
 *  - Handles are checked at the call, and so are the arguments of a collective, which has taken its
 *    reduction, scalar and counts then. What else is wrong with a call of set-up all its ranks are
 *    told when End makes it, beside the others. Nothing blocks before End, which writes the handles
 *    that calls of the group make (comm, window). A communicator must exist before the group that
 *    registers on it.
 *  - If a call that would be queued was refused, or a thread that a communicator needs cannot be
 *    started, End runs none of them and returns the first refusal.
 *  - Calls that only give work to streams (on GPUs all collectives, else those on other streams
 *    than NULL) are made by the thread that calls End, in the order in which they were queued,
 *    whatever their communicators. If creation, split or registration of the same communicator
 *    stands in the group, its calls keep their own order only; those on the per-thread stream still
 *    mean the caller's.
 *  - Host backend: broadcasts of one communicator, stream and type that follow each other run as
 *    one kernel if their roots differ. So do reduces, if at least half of the ranks are roots, of
 *    one type and one reduction that has no scalar. Requires: each rank makes these calls in one
 *    group and on one stream, and no buffer that one of them writes is another one's.
 * Order: local.
 * Errors: symmInvalidArgument, of End, which then runs nothing: of calls that would run as one
 * kernel, one writes a buffer of another. symmMismatch: ranks differ in which calls do.
 * symmInvalidUsage, at the call: symmCommFinalize, symmCommDestroy or symmWindowDeregister
 * while calls of that communicator stand in the group; calls of symm_lane.h (see there). */
SYMM_API symmResult_t symmGroupStart(void);
SYMM_API symmResult_t symmGroupEnd(void);
/* Ends this thread's group, the outermost one, and runs none of its calls. Order: local. */
SYMM_API symmResult_t symmGroupDiscard(void);

#ifdef __cplusplus
}
#endif

#endif
