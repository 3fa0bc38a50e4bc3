/* where.h - where a rank runs: host, user, network namespace. Ranks must agree in these to find
 * each other. Part of the first message between ranks: fixed size. Any thread; no lock. */
#ifndef SYMM_WHERE_H_
#define SYMM_WHERE_H_

#include "host/comm/types.h"

typedef struct {
    symm_uuid host;         /* one boot of one kernel */
    uint64_t netns, userns; /* namespaces; 0: not known, then not compared */
    uint32_t uid, pad;      /* as this rank's user namespace numbers it */
    char name[64];          /* of the host, for messages */
} symm_where;

symmResult_t symm_where_fill(symm_where *w);
/* Whether rank r can connect to rank 0's sockets and be accepted; else the error says what differs
 * and what helps. */
symmResult_t symm_where_compare(int r, const symm_where *theirs, const symm_where *root);

#endif
