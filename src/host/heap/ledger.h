/* ledger.h - the last calls on a heap's SYM zone, and digests of older ones, in memory that all
 * ranks read. So ranks that differ can tell in which call. note: with the heap's lock. differ: any
 * thread. */
#ifndef SYMM_LEDGER_H_
#define SYMM_LEDGER_H_

#include "host/window/shared.h"

enum { SYMM_LEDGER_CALLS = 1024, SYMM_LEDGER_SITE = 72 };

typedef struct symm_ledger symm_ledger;

typedef struct {
    uint64_t seq;    /* from 1 */
    uint64_t digest; /* after it */
    uint64_t issued; /* collectives that this rank had issued before it */
    uint64_t size, align, off;
    int op, lane;
} symm_entry;

/* As symm_shared_open. [collective] */
symmResult_t symm_ledger_open(symm_comm *c, symmResult_t mine, const char *stage,
                              symm_ledger **out);
void symm_ledger_close(symm_ledger *l); /* NULL is a no-op */
void symm_ledger_note(symm_ledger *l, const symm_entry *e, const void *site);
/* 1 if the ranks' calls differ. text says which call is the first that differs, on which ranks, and
 * where it was made; if that call is not kept any more, between which calls it lies. 0 also if
 * nothing of it is known any more. met: all ranks are in one exchange, so none is only late. */
int symm_ledger_differ(const symm_ledger *l, int met, char *text, size_t cap);
/* Lists of ranks that may access some of a rank's blocks (symmLaneSetAccess), bit r for rank r. A
 * reference names a list by its number. access: the number of a list, from 1, one for equal lists;
 * 0: there is no room for another. The user thread. allows: whether rank is in the owner's list;
 * -1: there is no such list. */
enum { SYMM_LEDGER_LISTS = 128, SYMM_LEDGER_MASK = (SYMM_MAX_RANKS + 63) / 64 };
int symm_ledger_access(symm_ledger *l, const uint64_t *ranks);
int symm_ledger_allows(const symm_ledger *l, int owner, int list, int rank);
/* One more word of each rank: the size of a vector. size: any thread. hear: a peer of another host
 * has said its own (heap_sizes.c, with its lock); it goes into this rank's copy of the word. */
void symm_ledger_publish(symm_ledger *l, uint64_t size);
void symm_ledger_hear(symm_ledger *l, int rank, uint64_t size);
uint64_t symm_ledger_size(const symm_ledger *l, int rank);

#endif
