/* call_log.h - what every rank called last and is doing now, where its peers can read it: so that
 * ranks that called different things are told what each of them called, and one that waits in
 * set-up for a peer that is in a collective is told so. The communicator's user thread writes
 * its own words; any thread reads. No lock. */
#ifndef SYMM_DOING_H_
#define SYMM_DOING_H_

#include "device/common/colls.h"
#include "types.h"

/* How long a rank may be in a collective while others are in set-up. A program whose ranks order
 * the two differently may get through: it is not ended for that. */
#define SYMM_ASTRAY_NS 1000000000ull

/* How the text begins where set-up is concerned. */
#define SYMM_DOING_DIFFERENT "the ranks are in different calls"

/* A collective is about to be issued. */
void symm_doing_begin(symm_comm *c, const symm_call *k);
/* It was refused here after all, and the communicator goes on. */
void symm_doing_undo(symm_comm *c);
/* A collective has been captured: its graph runs when its owner says so, so it has no number. From
 * then on numbers of calls do not say which rank is ahead, as one may replay what another calls. */
void symm_doing_capture(symm_comm *c);

/* This rank enters, and ends, an exchange of set-up, of which every rank has the same ones in the
 * same order. Nothing before there is a control block. */
void symm_doing_enter(symm_comm *c, const char *stage);
void symm_doing_leave(symm_comm *c);
/* In such an exchange: symmMismatch, with who does what, where a peer is in another one; or, for
 * longer than a program might get away with, in a collective that this rank has not called. */
symmResult_t symm_doing_look(symm_comm *c);

/* 1 if rank p has issued a collective that this rank has not: which, in text. 0 also where calls
 * were captured, as their numbers then do not say which rank is ahead. */
int symm_doing_ahead(const symm_comm *c, int p, char *text, size_t cap);

/* The lowest rank that has not begun this rank's exchange, -1 none. */
int symm_doing_late(const symm_comm *c);

/* The ranks disagree: what each of them called, in the first call that still shows it. 0: nothing
 * known. */
int symm_doing_differ(const symm_comm *c, char *text, size_t cap);
/* "16 collectives, the last symmAllReduce of 8 int32 (sum); growing a heap": what a rank has
 * issued, and is doing. */
const char *symm_doing_text(const symm_comm *c, int rank, char *text, size_t cap);

/* "; waiting for ranks 1, 3": whom a rank waits for, as far as the words of all say; "" nobody.
 * epochs: collectives that each has finished. Where calls were captured the numbers do not say
 * who is ahead in collectives. */
const char *symm_doing_awaits(const symm_comm *c, int rank, const uint32_t *epochs, char *text,
                              size_t cap);

#endif
