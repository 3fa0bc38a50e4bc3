/* place_sizes.c - see place_sizes.h. The thread that has the engine's lock. */
#include "place_sizes.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "place.h"

static uint32_t class_of(uint64_t bytes) {
    uint64_t units = bytes / SYMM_PLACE_UNIT;
    if (units < 32) return (uint32_t)units;
    unsigned octave = 63 - (unsigned)__builtin_clzll(units);
    return (octave - 4) * 32 + (uint32_t)(units >> (octave - 5) & 31);
}

/* Heap order by this; equal ones by off, which are never equal. */
static inline uint64_t priority(uint64_t off) {
    off = (off ^ off >> 32) * 0x9e3779b97f4a7c15ull;
    return (off ^ off >> 29) * 0xbf58476d1ce4e5b9ull;
}

static inline int below(const symm_size_node *n, uint64_t bytes, uint64_t off) {
    return n->bytes != bytes ? n->bytes < bytes : n->off < off;
}

void symm_sizes_close(symm_sizes *s) {
    free(s->node);
}

int symm_sizes_reserve(symm_sizes *s, uint64_t holes) {
    if (holes < s->room) return 0;
    uint64_t room = s->room ? 2 * (uint64_t)s->room : 64;
    while (room <= holes) room *= 2;
    if (room > UINT32_MAX) return -1;
    symm_size_node *node =
        SYMM_FAIL_ALLOC(place_sizes, realloc(s->node, sizeof *node * (size_t)room));
    if (!node) return -1;
    s->node = node;
    s->room = (uint32_t)room;
    if (!s->made) s->made = 1;
    return 0;
}

static uint32_t take_node(symm_sizes *s) {
    uint32_t i = s->spare;
    SYMM_ASSERT(i || s->made < s->room);
    if (i)
        s->spare = s->node[i].left;
    else
        i = s->made++;
    return i;
}

void symm_sizes_add(symm_sizes *s, uint64_t bytes, uint64_t off) {
    uint32_t k = class_of(bytes), fresh = take_node(s), *at = &s->root[k], *left, *right;
    uint64_t rank = priority(off);
    symm_size_node *node = s->node;
    while (*at && (priority(node[*at].off) > rank ||
                   (priority(node[*at].off) == rank && node[*at].off > off)))
        at = below(&node[*at], bytes, off) ? &node[*at].right : &node[*at].left;
    uint32_t rest = *at; /* is split into what lies below and above the new one */
    *at = fresh;
    node[fresh] = (symm_size_node){bytes, off, 0, 0};
    left = &node[fresh].left;
    right = &node[fresh].right;
    while (rest) {
        if (below(&node[rest], bytes, off)) {
            *left = rest;
            left = &node[rest].right;
            rest = *left;
        } else {
            *right = rest;
            right = &node[rest].left;
            rest = *right;
        }
    }
    *left = *right = 0;
    s->some[k / 64] |= 1ull << k % 64;
}

void symm_sizes_drop(symm_sizes *s, uint64_t bytes, uint64_t off) {
    uint32_t k = class_of(bytes), *at = &s->root[k];
    symm_size_node *node = s->node;
    while (node[*at].bytes != bytes || node[*at].off != off) {
        SYMM_ASSERT(*at);
        at = below(&node[*at], bytes, off) ? &node[*at].right : &node[*at].left;
    }
    uint32_t gone = *at, left = node[gone].left, right = node[gone].right;
    while (left && right) {
        uint64_t a = priority(node[left].off), b = priority(node[right].off);
        if (a > b || (a == b && node[left].off > node[right].off)) {
            *at = left;
            at = &node[left].right;
            left = *at;
        } else {
            *at = right;
            at = &node[right].left;
            right = *at;
        }
    }
    *at = left ? left : right;
    node[gone].left = s->spare;
    s->spare = gone;
    if (!s->root[k]) s->some[k / 64] &= ~(1ull << k % 64);
}

static uint32_t least_from(const symm_sizes *s, uint32_t k, uint64_t bytes, uint64_t off) {
    uint32_t best = 0;
    for (uint32_t i = s->root[k]; i;) {
        int low = below(&s->node[i], bytes, off);
        if (!low) best = i;
        i = low ? s->node[i].right : s->node[i].left;
    }
    return best;
}

int symm_sizes_next(const symm_sizes *s, uint64_t *bytes, uint64_t *off) {
    uint32_t k = class_of(*bytes), best = least_from(s, k, *bytes, *off);
    for (k++; !best && k < SYMM_SIZE_CLASSES; k++) {
        uint64_t some = s->some[k / 64] >> k % 64;
        if (!some)
            k |= 63; /* and on to the next word */
        else
            best = least_from(s, k += (uint32_t)__builtin_ctzll(some), *bytes, *off);
    }
    if (!best) return 0;
    *bytes = s->node[best].bytes;
    *off = s->node[best].off;
    return 1;
}
