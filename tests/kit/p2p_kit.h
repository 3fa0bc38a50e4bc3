/* p2p_kit.h - buffers for tests of sends and receives: what lies in them depends on who sends to
 * whom and on the number of the message, and what lies around them must stay. Any thread; no
 * lock. */
#ifndef P2P_KIT_H_
#define P2P_KIT_H_

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "symm.h"
#include "t.h"

enum { PK_GUARD = 64, PK_EMPTY = 0x5a };

/* What message `no` from one rank to another has at byte i. Within PK_BLOCK bytes it follows one
 * step of the key after the other, so blocks are copied from and compared with a table of all. */
enum { PK_BLOCK = 256, PK_KEYS = 2048 };
static unsigned char pk_table[PK_KEYS + PK_BLOCK];

static inline uint64_t pk_key(int from, int to, uint64_t no, uint64_t i) {
    return (uint64_t)from * 131 + (uint64_t)to * 31 + no * 7919 + i + (i >> 8) * 3 + (i >> 16) * 5;
}
static inline unsigned char pk_byte(int from, int to, uint64_t no, uint64_t i) {
    return (unsigned char)(pk_key(from, to, no, i) * 167 >> 3);
}
/* Before main: threads only read it. */
__attribute__((constructor)) static void pk_make_table(void) {
    for (unsigned key = 0; key < sizeof pk_table; key++)
        pk_table[key] = (unsigned char)(key * 167 >> 3);
}
static inline uint64_t pk_block(uint64_t bytes, uint64_t i) {
    return bytes - i < PK_BLOCK ? bytes - i : PK_BLOCK;
}
static inline void pk_fill(char *p, uint64_t bytes, int from, int to, uint64_t no) {
    for (uint64_t i = 0; i < bytes; i += PK_BLOCK)
        memcpy(p + i, &pk_table[pk_key(from, to, no, i) % PK_KEYS], pk_block(bytes, i));
}
static inline void pk_check_block(const char *p, uint64_t bytes, int from, int to, uint64_t no,
                                  uint64_t at) {
    for (uint64_t i = at; i < at + pk_block(bytes, at); i++)
        T_CHECKF((unsigned char)p[i] == pk_byte(from, to, no, i),
                 "message %llu from %d to %d, byte %llu of %llu: %u, not %u",
                 (unsigned long long)no, from, to, (unsigned long long)i, (unsigned long long)bytes,
                 (unsigned char)p[i], pk_byte(from, to, no, i));
}
static inline void pk_check(const char *p, uint64_t bytes, int from, int to, uint64_t no) {
    for (uint64_t i = 0; i < bytes; i += PK_BLOCK)
        if (memcmp(p + i, &pk_table[pk_key(from, to, no, i) % PK_KEYS], pk_block(bytes, i)) != 0)
            pk_check_block(p, bytes, from, to, no, i);
}
/* A buffer of `bytes` for a receive: empty, with guards around it. */
static inline void pk_empty(char *p, uint64_t bytes) {
    memset(p - PK_GUARD, PK_EMPTY, bytes + 2 * PK_GUARD);
}
static inline void pk_guarded(const char *p, uint64_t bytes) {
    for (int i = 1; i <= PK_GUARD; i++)
        T_CHECKF(p[-i] == PK_EMPTY && p[bytes + (unsigned)i - 1] == PK_EMPTY,
                 "a byte beside a receive buffer of %llu bytes was written",
                 (unsigned long long)bytes);
}
static inline void pk_received(const char *p, uint64_t bytes, int from, int to, uint64_t no) {
    pk_check(p, bytes, from, to, no);
    pk_guarded(p, bytes);
}

static inline void pk_send(symmComm_t comm, const char *p, uint64_t bytes, int peer,
                           symmStream_t s) {
    T_OK(symmSend(p, bytes, symmUint8, peer, comm, s));
}
static inline void pk_recv(symmComm_t comm, char *p, uint64_t bytes, int peer, symmStream_t s) {
    T_OK(symmRecv(p, bytes, symmUint8, peer, comm, s));
}

/* A rank's memory: one half in a window, one in none. [collective] */
typedef struct {
    int rank, n;
    symmComm_t comm;
    char *memory, *heap;
    uint64_t bytes; /* of each half */
    symmWindow_t win;
} pk_world;

static inline void pk_open(pk_world *w, symmComm_t comm, int rank, int n, uint64_t bytes) {
    *w = (pk_world){.rank = rank, .n = n, .comm = comm, .bytes = bytes};
    T_OK(symmMemAlloc((void **)&w->memory, bytes));
    T_CHECK((w->heap = malloc(bytes)) != NULL);
    T_OK(symmWindowRegister(comm, w->memory, bytes, &w->win, SYMM_WIN_DEFAULT));
}
static inline char *pk_half(const pk_world *w, int registered) {
    return registered ? w->memory : w->heap;
}
/* Thread ranks have one mapping for all, so it stays until all are done. */
static inline void pk_close(pk_world *w) {
    T_OK(symmBarrier(w->comm, NULL));
    T_OK(symmWindowDeregister(w->comm, w->win));
    T_OK(symmBarrier(w->comm, NULL));
    T_OK(symmMemFree(w->memory));
    free(w->heap);
}

#endif
