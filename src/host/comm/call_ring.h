/* call_ring.h - entries in memory that ranks share: the owner writes one while the others read it.
 * An entry is words. The first is its number, never 0, by which a reader recognises a whole entry.
 * The owner: one thread at a time. Readers: any thread. No lock. */
#ifndef SYMM_CALL_RING_H_
#define SYMM_CALL_RING_H_

#include <stdint.h>

/* A word on its own, or of an entry: set pairs with get. */
static inline void symm_word_set(uint64_t *at, uint64_t v) {
    __atomic_store_n(at, v, __ATOMIC_RELEASE);
}
static inline uint64_t symm_word_get(const uint64_t *at) {
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* words[0]: the number. Each store releases the clearing of the number, so a reader that gets one
 * of the new words does not find the old number behind it. */
static inline void symm_entry_write(uint64_t *at, const uint64_t *words, int n) {
    symm_word_set(&at[0], 0);
    for (int i = 1; i < n; i++) symm_word_set(&at[i], words[i]);
    symm_word_set(&at[0], words[0]);
}

/* 1: words is the entry as it was at one moment, unless its number is 0. 0: it was being
 * written. */
static inline int symm_entry_read(const uint64_t *at, uint64_t *words, int n) {
    for (int i = 0; i < n; i++) words[i] = symm_word_get(&at[i]); /* the number first */
    return words[0] && __atomic_load_n(&at[0], __ATOMIC_RELAXED) == words[0];
}

#endif
