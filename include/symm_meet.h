/* symm_meet.h - what ranks settle before they become a communicator, and ids that are not needed.
 * symm.h includes it.
 *
 * Ranks that have come together by an id can exchange records before a communicator is made, and
 * after it could not be made: to compare what their programs ask for, or to go another way
 * together. */
#ifndef SYMM_MEET_H_
#define SYMM_MEET_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int rank, nranks;
    int device;    /* the GPU that is current; -1 on the host backend, or if there is none */
    int timeoutMs; /* deadline of set-up, which each exchange has */
    void *inside;  /* the library's own */
} symmMeeting_t;
/* What a call of settle decides. Zero at first. */
typedef struct {
    int elsewhere;  /* 1, with symmSuccess: the ranks do without a communicator */
    char text[400]; /* with an error: what symmGetLastError says; "": as it was */
} symmVerdict_t;
typedef struct {
    /* Called on the thread that makes the communicator, in the same order on all ranks:
     *  - status symmSuccess: all ranks have come, nothing is made yet. Success: it goes on.
     *  - status symmNotSupported: these ranks cannot be one communicator (symmGetLastError says
     *    why), which all of them have been told.
     *  - any other: instead of the first call, on a rank that cannot go on: it can tell the others.
     * Requires: ranks that make the same exchanges return the same. An error ends the creation. */
    symmResult_t (*settle)(void *ctx, const symmMeeting_t *meeting, symmResult_t status,
                           symmVerdict_t *verdict);
    /* Creation that goes on behind the call (blocking 0) needs ctx no more. May be NULL. Else ctx
     * need only live until the call, or the group that it stands in, has ended. */
    void (*release)(void *ctx);
    void *ctx; /* passed to both */
} symmMeet_t;

/* As symmCommInitRankConfig, with meet->settle in between. nranks may be up to 65536: of more ranks
 * than a domain has, settle is called a second time, with symmNotSupported. meet is copied.
 * If the ranks do without a communicator, *comm is NULL; with blocking 0 it is one that has ended
 * with symmInvalidUsage, to be destroyed.
 * Requires: all ranks of the id make this call.
 * Order: collective.
 * Errors: as symmCommInitRankConfig, and what settle returns; on all ranks, if one's meet or
 * meet->settle is NULL. */
SYMM_API symmResult_t symmCommInitRankMeet(symmComm_t *comm, int nranks, symmUniqueId_t id,
                                           int rank, const symmConfig_t *config,
                                           const symmMeet_t *meet);
/* As symmCommSplit, symmCommShrink and symmCommGrow, with meet->settle in between: the ranks of the
 * new communicator settle. A rank without a color does not. With SYMM_SHRINK_FAILED settle may be
 * called again, of fewer ranks.
 * Requires: all ranks of the new communicator make this call.
 * Errors: as those calls, and what settle returns; an error of settle leaves the old one usable, as
 * one about a meet that is NULL does, which all ranks get. */
SYMM_API symmResult_t symmCommSplitMeet(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                                        const symmConfig_t *config, const symmMeet_t *meet);
SYMM_API symmResult_t symmCommShrinkMeet(symmComm_t comm, const int *excludeRanks, int nExclude,
                                         symmComm_t *newcomm, const symmConfig_t *config, int flags,
                                         const symmMeet_t *meet);
SYMM_API symmResult_t symmCommGrowMeet(symmComm_t comm, int nranks, const symmUniqueId_t *id,
                                       int rank, symmComm_t *newcomm, const symmConfig_t *config,
                                       const symmMeet_t *meet);
/* As symmCommInitAll; meets[i] is rank i's, whose settle is called on a thread of its own. If the
 * ranks do without a communicator, all comms are NULL. */
SYMM_API symmResult_t symmCommInitAllMeet(symmComm_t *comms, int n, const int *devices,
                                          const symmMeet_t *meets);
/* Inside settle: every rank contributes `bytes` from send; recv gets nranks * bytes.
 * Order: collective. Errors: symmTimeout, symmRemoteError: a rank did not come, or left; no
 * exchange follows. */
SYMM_API symmResult_t symmMeetingAllgather(const symmMeeting_t *meeting, const void *send,
                                           void *recv, size_t bytes);

/* An id that no communicator will be made of: if this process made it, or the one that this one was
 * forked from, its listener is closed; else nothing happens. One whose ranks have begun to come is
 * left to them. Without this call it listens until the process ends.
 * Order: local, any thread. Errors: symmInvalidArgument: it is no id of symmGetUniqueId. */
SYMM_API symmResult_t symmUniqueIdDrop(const symmUniqueId_t *id);

/* An id that every rank makes itself, where none can be passed on: address is the same text on all
 * of them, "10.0.0.1:4711", "[fe80::1]:4711" or "host:4711". Rank 0 listens there while it makes
 * its communicator; the others try until it does, or the deadline of set-up is over. Communicators
 * are made of it one after the other. There is no secret in it: who reaches the address can be a
 * rank.
 * Order: local. Errors: symmInvalidArgument: it is no such text, or there is no such host.
 * symmSystemError, when rank 0 makes its communicator: the address is not its own, or in use. */
SYMM_API symmResult_t symmUniqueIdAt(const char *address, symmUniqueId_t *id);

#ifdef __cplusplus
}
#endif

#endif
