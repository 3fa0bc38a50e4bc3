/* signals.h - signals of one-sided calls on the host backend: raising one, and waiting for it.
 * Their words lie in the control block of the rank that waits (records.h); those of synced buffers'
 * generations, which are raised and read alike, in heaps. Besides, how kernels of the program wait
 * for a word, wherever it lies. wait.c has the functions. The thread that runs the call or kernel;
 * no lock. */
#ifndef SYMM_SIGNALS_H_
#define SYMM_SIGNALS_H_

#include "device/common/records.h"

/* *raised = count: this rank has raised the signal so often. What it has put, or learned of, before
 * is seen by who sees the count. */
void symm_signal_raise(uint64_t *raised, uint64_t count);
/* How often the signal was raised; what was put before is seen. */
uint64_t symm_signal_raised(const uint64_t *raised);
/* Waits until `peer` has raised it `want` times. 0, or non-zero: *out says why not, and the peers
 * have been told. */
int symm_signal_wait(const symm_args *a, const uint64_t *raised, uint64_t want, int peer,
                     symm_outcome *out);
/* The peers are told *out's reason. */
void symm_signal_give_up(const symm_args *a, symm_outcome *out);

/* A kernel of the program waits until *word, which `peer` releases (-1: any rank), is at most
 * `ahead` beyond `want`. what: 0 a barrier, 1 a signal, 2 a packet. 0, or non-zero: it gave up, as
 * symm_program_over. */
int symm_program_wait(const symm_args *a, const uint64_t *word, uint64_t want, uint64_t ahead,
                      int peer, uint32_t what);
/* A kernel of the program has given up for *out: the reason goes to this rank's abort word, where
 * calls of the host find it, and to every peer's. The first reason stays. */
void symm_program_over(const symm_args *a, symm_outcome *out, uint32_t what);

#endif
