/* handle_exchange.h - every rank sends handles of its segments to every other, and maps its own and
 * theirs. A segment goes as a descriptor, or as a fabric handle if it has no descriptor or
 * SYMM_HANDLES=fabric. Collective, except export and close. The thread inside the API call; no
 * lock. */
#ifndef SYMM_HANDLE_EXCHANGE_H_
#define SYMM_HANDLE_EXCHANGE_H_

#include "host/comm/types.h"
#include "transport/vmm/vmm.h"

enum { SYMM_HANDLES_AUTO, SYMM_HANDLES_FD, SYMM_HANDLES_FABRIC }; /* the variable's words */

typedef struct { /* a segment, and where it goes from the beginning of the range; on the wire */
    uint64_t off, bytes;
} symm_part;

typedef struct { /* how it is handed on; on the wire */
    symm_part part;
    uint64_t kind;          /* SYMM_SHARE_*; 0: it could not be exported */
    symm_vmm_fabric fabric; /* of that kind */
} symm_offer;

enum { SYMM_HANDLES_AT_ONCE = 4 }; /* segments of one message */

typedef struct {
    symm_comm *c;
    const char *stage;
    symm_vmm_handle *const *handles; /* own segments */
    const symm_part *parts;
    int count;
    symm_offer offers[SYMM_HANDLES_AT_ONCE]; /* the message that is being sent */
    int fds[SYMM_HANDLES_AT_ONCE];           /* of those that go as descriptors */
    int noffers, nfds;
    int lacks;           /* the rest could not be exported */
    symmResult_t status; /* first soft error: this rank goes on until the agreement */
    /* Maps a segment of rank, and records it so that it can be undone. */
    symmResult_t (*map)(void *arg, int rank, symm_vmm_handle *h, symm_part part);
    void *arg;
} symm_handle_exchange;

/* Exports the first of the own segments; the rest is exported when it is sent. After an error
 * symm_handle_exchange_close closes the descriptors that were made. */
symmResult_t symm_handle_exchange_export(symm_handle_exchange *t);
void symm_handle_exchange_close(symm_handle_exchange *t);
/* counts[nranks]: segments of each rank. A returned error says that a connection is broken; the
 * communicator is revoked. Other errors are in t->status; the messages are received all the same,
 * so that the connections stay in step. */
symmResult_t symm_handle_exchange_run(symm_handle_exchange *t, const int *counts);

#endif
