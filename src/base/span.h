/* span.h - an ordered set of disjoint spans [lo, hi) of addresses, or of single numbers as [n,
 * n+1). The memory drivers and the allocator look things up in it. An intrusive treap: a span is a
 * member of the record it stands for. So nothing is allocated here, and every operation takes O(log
 * n) expected steps. Pure; any thread, under the caller's lock. */
#ifndef SYMM_SPAN_H_
#define SYMM_SPAN_H_

#include <stddef.h>
#include <stdint.h>

typedef struct symm_span {
    uint64_t lo, hi;
    uint64_t heap; /* treap priority: a parent's is not smaller than its children's */
    struct symm_span *left, *right;
} symm_span;

/* The priority is the scrambled address (finaliser of splitmix64). Else addresses in ascending
 * order would make the tree a list. */
static inline uint64_t symm_span_scramble(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The span with the greatest lo <= at, or NULL. Contains `at` if at < its hi. */
static inline symm_span *symm_span_floor(symm_span *root, uint64_t at) {
    symm_span *best = NULL;
    while (root) {
        if (root->lo <= at) {
            best = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return best;
}

/* The span that contains all of [lo, hi), or NULL. lo < hi. */
static inline symm_span *symm_span_around(symm_span *root, uint64_t lo, uint64_t hi) {
    symm_span *s = symm_span_floor(root, lo);
    return s && hi <= s->hi ? s : NULL;
}

/* The last span that overlaps [lo, hi), or NULL. lo < hi. */
static inline symm_span *symm_span_overlap(symm_span *root, uint64_t lo, uint64_t hi) {
    symm_span *s = symm_span_floor(root, hi - 1);
    return s && s->hi > lo ? s : NULL;
}

/* Parts the set into spans with lo < at and the others. */
static inline void symm_span_split(symm_span *root, uint64_t at, symm_span **below,
                                   symm_span **rest) {
    while (root) {
        if (root->lo < at) {
            *below = root;
            below = &root->right;
            root = root->right;
        } else {
            *rest = root;
            rest = &root->left;
            root = root->left;
        }
    }
    *below = *rest = NULL;
}

/* Joins two sets, all of `a` below all of `b`. */
static inline symm_span *symm_span_join(symm_span *a, symm_span *b) {
    symm_span *root = NULL, **at = &root;
    while (a && b) {
        if (a->heap >= b->heap) {
            *at = a;
            at = &a->right;
            a = a->right;
        } else {
            *at = b;
            at = &b->left;
            b = b->left;
        }
    }
    *at = a ? a : b;
    return root;
}

/* s->lo and s->hi are set and overlap nothing in the set. */
static inline void symm_span_insert(symm_span **root, symm_span *s) {
    symm_span *below, *rest;
    s->heap = symm_span_scramble(s->lo);
    s->left = s->right = NULL;
    symm_span_split(*root, s->lo, &below, &rest);
    *root = symm_span_join(symm_span_join(below, s), rest);
}

/* Takes the spans with lo <= span.lo < hi out of the set and returns them as a set of their own. */
static inline symm_span *symm_span_take(symm_span **root, uint64_t lo, uint64_t hi) {
    symm_span *below, *middle, *rest;
    symm_span_split(*root, lo, &below, &rest);
    symm_span_split(rest, hi, &middle, &rest);
    *root = symm_span_join(below, rest);
    return middle;
}

/* True if the spans of the set tile [lo, hi): no gap, and none reaches over an end. lo < hi. */
static inline int symm_span_tiles(symm_span *root, uint64_t lo, uint64_t hi) {
    while (lo < hi) {
        symm_span *s = symm_span_floor(root, lo);
        if (!s || s->lo != lo || s->hi > hi) return 0;
        lo = s->hi;
    }
    return 1;
}

#endif
