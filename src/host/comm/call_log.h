/* call_log.h - what every rank called last and what it is doing, in memory that its peers can read.
 * An error for ranks whose calls differ then says what each of them called. A rank that waits in
 * set-up for a peer that is in a collective gets an error that says so. The user's thread writes
 * its rank's entries; any thread reads. No lock. */
#ifndef SYMM_CALL_LOG_H_
#define SYMM_CALL_LOG_H_

#include "device/common/colls.h"
#include "types.h"

/* How long a rank may be in a collective while others are in set-up. A program whose ranks order
 * the two differently may get through: it is not ended for that. */
#define SYMM_ASTRAY_NS 1000000000ull

/* How the text begins where set-up is concerned. */
#define SYMM_CALL_LOG_DIFFERENT "the ranks are in different calls"

/* A collective is about to be issued. */
void symm_call_log_begin(symm_comm *c, const symm_call *k);
/* The call was refused after all; the communicator stays usable. */
void symm_call_log_undo(symm_comm *c);
/* A collective has been captured. The program decides when its graph runs, so it has no number.
 * From then on numbers of calls do not tell which rank is ahead, because one rank may replay what
 * another calls. */
void symm_call_log_capture(symm_comm *c);

/* This rank enters, and leaves, an exchange of set-up. Every rank has the same exchanges in the
 * same order. Nothing is written before the control block exists. */
void symm_call_log_enter(symm_comm *c, const char *stage);
void symm_call_log_leave(symm_comm *c);
/* In such an exchange. symmMismatch, with who does what, if a peer is in another exchange, or has
 * been for a second in a collective that this rank has not called. */
symmResult_t symm_call_log_look(symm_comm *c);

/* 1 if rank p has issued a collective that this rank has not: which, in text. 0 also where calls
 * were captured, as their numbers then do not say which rank is ahead. */
int symm_call_log_ahead(const symm_comm *c, int p, char *text, size_t cap);

/* 1 if rank p has issued as many collectives as this rank. 0 also where calls were captured. */
int symm_call_log_level(const symm_comm *c, int p);
/* 1 if this rank has captured calls. */
int symm_call_log_captured(const symm_comm *c);

/* The lowest rank that has not begun this rank's exchange, -1 none. */
int symm_call_log_late(const symm_comm *c);

/* ---- sends and receives: they are in no order of all ranks, and so not in the log ------------ */

/* "int8"; "?" for what is no type. */
const char *symm_type_name(uint64_t type);
/* "symmRecv of 8 int32 from rank 1". */
const char *symm_message_text(int sends, uint64_t count, uint64_t type, int peer, char *text,
                              size_t cap);
/* "symmWaitSignal for 2 of signal 5 from rank 1, of which 1 came". */
const char *symm_signal_text(uint64_t count, int signal, int peer, uint64_t came, char *text,
                             size_t cap);
/* A wait of the rank for its own signal, in words. */
void symm_signal_alone(int rank, char *text, size_t cap);
/* "; waits in symmRecv of 8 int32 from rank 1", or "". Host backend. */
const char *symm_message_awaited(const symm_comm *c, int rank, char *text, size_t cap);
/* 1: a receive has met a message of another count or type; text says what both ranks mean. */
int symm_message_differs(const symm_comm *c, char *text, size_t cap);
/* A message of the rank to itself that nothing ends, in words. */
void symm_message_alone(int rank, char *text, size_t cap);

/* ---------------------------------------------------------------------------------------------- */

/* 1: the ranks called different things; text says what each called in the first call that differs
 * and is still in the log. 0: nothing is known. */
int symm_call_log_differ(const symm_comm *c, char *text, size_t cap);
/* "16 collectives, the last symmAllReduce of 8 int32 (sum); growing a heap": what a rank has issued
 * and is doing. */
const char *symm_call_log_text(const symm_comm *c, int rank, char *text, size_t cap);

/* "ranks 2, 3": who has issued fewer collectives than rank; "" nobody, or calls were captured. A
 * rank that came too late may have waited for these itself. */
const char *symm_call_log_fewer(const symm_comm *c, int rank, char *text, size_t cap);

/* "; waiting for ranks 1, 3": the ranks that a rank waits for, as far as the logs of all ranks
 * tell; "" none. epochs: collectives that each rank has finished. If calls were captured, the
 * numbers do not tell who is ahead. */
const char *symm_call_log_awaits(const symm_comm *c, int rank, const uint32_t *epochs, char *text,
                                 size_t cap);

#endif
