/* onesided_kit.h - what tests of one-sided calls share: a rank's memory (p2p_kit.h), waits, credits
 * and counts in few words. Any thread; no lock. */
#ifndef ONESIDED_KIT_H_
#define ONESIDED_KIT_H_

#include <stdlib.h>

#include "p2p_kit.h"

enum { OK_CREDIT = SYMM_SIGNALS - 1 }; /* signal by which a rank says that it may be put to */

typedef struct {
    pk_world p;
} ok_world;

static inline void ok_open(ok_world *w, symmComm_t comm, int rank, int n, uint64_t bytes) {
    pk_open(&w->p, comm, rank, n, bytes);
}
static inline void ok_close(ok_world *w) {
    pk_close(&w->p);
}

static inline void ok_wait(const ok_world *w, int peer, int signal, size_t count, symmStream_t s) {
    const symmSignalWait_t one = {peer, signal, count};
    T_OK(symmWaitSignal(1, &one, w->p.comm, s));
}
/* `by` may write to this rank's memory now; and this rank waits until it may write to that of
 * `of`. */
static inline void ok_credit(const ok_world *w, int by, int of) {
    T_OK(symmSignal(by, OK_CREDIT, w->p.comm, NULL));
    ok_wait(w, of, OK_CREDIT, 1, NULL);
}
static inline uint64_t ok_read(const ok_world *w, int peer, int signal) {
    uint64_t n;
    T_OK(symmSignalRead(peer, signal, w->p.comm, &n));
    return n;
}
/* How often a test lets a rank raise a signal at another one. */
static inline int ok_times(int from, int to, int signal) {
    return (from * 7 + to * 3 + signal) % 5;
}
/* Signals that have come here and that nothing has used up, as symmStats says. */
static inline uint64_t ok_unused(const ok_world *w) {
    static const char key[] = "\"signals_unused\":";
    char json[16384];
    T_OK(symmStats(w->p.comm, json, sizeof json, NULL));
    const char *at = strstr(json, key);
    T_CHECK(at != NULL);
    return strtoull(at + sizeof key - 1, NULL, 10);
}

#endif
