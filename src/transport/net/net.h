/* net.h - a mover: what carries messages between domains. Any rank of a communicator reaches any
 * other one by it, by their numbers in that communicator. The thread that is inside the
 * communicator; no lock.
 *
 * A message goes by one of two ways: that of collectives, or that of sends and receives, which need
 * not wait for each other. It has a mark, which says of which call it is. Messages of one rank to
 * another by one way arrive in their order: the first that is received there is the first that was
 * sent. One whose mark or size is not what its receiver expects is symmMismatch: the ranks have
 * made different calls. */
#ifndef SYMM_NET_H_
#define SYMM_NET_H_

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct symm_net symm_net;
typedef struct {
    int32_t code, domain; /* symmResult_t; whose word it is, -1: an exchange's (boot_net.c) */
    char text[SYMM_ERR_TEXT];
} symm_net_word;
typedef enum { SYMM_NET_CALLS, SYMM_NET_MESSAGES, SYMM_NET_WAYS } symm_net_way;
typedef struct { /* where a message goes to, or comes from */
    int rank;
    symm_net_way way;
    uint32_t mark;
} symm_net_end;
typedef struct {
    const char *name; /* "mpi" */
    /* Whether this thread may use it now; may: 1, it may, and no error is said. */
    symmResult_t (*enter)(symm_net *n);
    int (*may)(symm_net *n);
    /* NULL: threads of the library may use it, beside whatever the program does; else why not. */
    const char *(*alone)(symm_net *n);
    /* Begin a message. Its memory is the mover's until `test` says that all are done, or `cancel`
     * returns. */
    symmResult_t (*send)(symm_net *n, symm_net_end to, const void *from, size_t bytes);
    symmResult_t (*receive)(symm_net *n, symm_net_end from, void *to, size_t bytes);
    /* Sends a copy: the memory is the caller's again, and `test` does not count it. *posted: 0,
     * there is no room for it, and nothing is sent. There is room for SYMM_NET_POSTS messages of
     * SYMM_NET_ROOM bytes together to each rank, until they are sent. */
    symmResult_t (*post)(symm_net *n, symm_net_end to, const void *from, size_t bytes, int *posted);
    /* *left: how many that have begun are not done; *rank: the other end of one of these. */
    symmResult_t (*test)(symm_net *n, int *left, int *rank);
    /* Gives up what is not done. The mover is of no use for messages afterwards, and may still use
     * the memory of those that were under way. */
    void (*cancel)(symm_net *n);
    /* A word outside of all calls: to all other ranks; what has come, if something has (1). */
    void (*tell)(symm_net *n, const symm_net_word *word);
    int (*told)(symm_net *n, symm_net_word *word);
    /* 1: that rank has closed its end. What it sent before has come, or comes soon. */
    int (*is_gone)(symm_net *n, int rank);
    /* A mover of some of the ranks; ranks[i] is rank i of it. Of one that is over, too. [collective
     * over these ranks, and over them alone] */
    symmResult_t (*part)(symm_net *n, const int *ranks, int nranks, symm_net **out);
    /* Frees n and `held`, memory of malloc or NULL, from which messages were sent: once nothing
     * uses them any more, which may be never. Waits for no peer. */
    void (*close)(symm_net *n, void *held);
} symm_net_ops;
struct symm_net { /* first member of every kind's own struct */
    const symm_net_ops *ops;
};

enum { SYMM_NET_POSTS = 64, SYMM_NET_ROOM = 1 << 20 };
enum { SYMM_MARK_BITS = 15 }; /* of a mark: MPI promises tags up to 32767 */

#endif
