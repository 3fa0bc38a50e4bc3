/* place_tree.c - see place_tree.h. The thread that has the engine's lock. */
#include "place_tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fail.h"

enum { FAN = SYMM_TREE_FAN, LEAST = FAN / 4 < 2 ? 2 : FAN / 4, LINE = 8 };

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

#define HUGE_PAGE ((size_t)2 << 20)

typedef struct chunk {
    struct chunk *next;
} chunk;

static void clear(symm_node *n) {
    for (int i = 0; i < FAN; i++) {
        n->len[i] = INT64_MIN;
        n->off[i] = UINT64_MAX;
    }
    n->n = 0;
}

/* Chunks double, so that they are few; large ones lie in huge pages where the system has them, for the tree is walked at random. */
static int more_nodes(symm_tree *t, uint64_t wanted) {
    uint64_t n = t->nodes < 4 ? 4 : t->nodes;
    if (n < wanted) n = wanted;
    size_t bytes = (n + 1) * sizeof(symm_node);
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : sizeof(symm_node[1]) & -sizeof(symm_node[1]);
    bytes = (bytes + align - 1) & -align;
    chunk *c = SYMM_FAIL_ALLOC(place_nodes, aligned_alloc(align, bytes));
    if (!c) return -1;
    if (align == HUGE_PAGE) (void)madvise(c, bytes, MADV_HUGEPAGE); /* a wish; slower without */
    c->next = t->chunks;
    t->chunks = c;
    n = bytes / sizeof(symm_node) - 1;
    symm_node *first = (symm_node *)(void *)c + 1;
    for (uint64_t i = n; i-- > 0;) { /* the lowest is used first */
        first[i].child[0] = t->spare;
        t->spare = &first[i];
    }
    t->nodes += n;
    t->spares += n;
    return 0;
}

static symm_node *new_node(symm_tree *t) {
    symm_node *n = t->spare;
    t->spare = n->child[0];
    t->spares--;
    clear(n);
    return n;
}

static void drop_node(symm_tree *t, symm_node *n) {
    n->child[0] = t->spare;
    t->spare = n;
    t->spares++;
}

int symm_tree_reserve(symm_tree *t, int inserts) {
    /* Each may split one node a level and make a root, which is a level more for the next. */
    uint64_t wanted = (uint64_t)inserts * (unsigned)(t->height + inserts + 1);
    return t->spares >= wanted ? 0 : more_nodes(t, wanted);
}

int symm_tree_open(symm_tree *t) {
    *t = (symm_tree){0};
    if (more_nodes(t, 1)) return -1;
    t->root = new_node(t);
    return 0;
}

void symm_tree_close(symm_tree *t) {
    for (chunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* ---- one node --------------------------------------------------------------------------------------------------------- */

/* Index of the last entry at or below off, -1 if none. Counted, first by cache lines, then within one: no branch to be guessed, and
 * no load that waits for another. */
static inline int last_at(const symm_node *n, uint64_t off) {
    int line = 0, i = 0;
    if (FAN <= LINE) {
        for (int k = 0; k < FAN; k++) i += n->off[k] <= off;
        return i - 1;
    }
    for (int k = LINE; k < FAN; k += LINE) line += n->off[k] <= off;
    const uint64_t *in = n->off + line * LINE;
    for (int k = 0; k < LINE; k++) i += in[k] <= off;
    return line * LINE + i - 1;
}

/* First entry from `from` on with at least len; FAN if none. */
static inline int first_long(const symm_node *n, int from, int64_t len) {
    while (from < FAN && n->len[from] < len) from++;
    return from;
}

static int64_t largest(const symm_node *n) {
    int64_t a = n->len[0], b = n->len[1];
    for (int i = 2; i < FAN; i += 2) {
        a = n->len[i] > a ? n->len[i] : a;
        b = n->len[i + 1] > b ? n->len[i + 1] : b;
    }
    return a > b ? a : b;
}

/* Entries [i, n) of `from` to the place j of `to`, whose own from there on move up. */
static void move_entries(symm_node *to, int j, symm_node *from, int i, int n) {
    size_t bytes = sizeof(uint64_t) * (size_t)n, rest = sizeof(uint64_t) * (size_t)(to->n - j);
    memmove(to->len + j + n, to->len + j, rest);
    memmove(to->off + j + n, to->off + j, rest);
    memmove(to->tag + j + n, to->tag + j, rest);
    memcpy(to->len + j, from->len + i, bytes);
    memcpy(to->off + j, from->off + i, bytes);
    memcpy(to->tag + j, from->tag + i, bytes);
    to->n += n;
}

static void remove_entries(symm_node *from, int i, int n) {
    size_t rest = sizeof(uint64_t) * (size_t)(from->n - i - n);
    memmove(from->len + i, from->len + i + n, rest);
    memmove(from->off + i, from->off + i + n, rest);
    memmove(from->tag + i, from->tag + i + n, rest);
    for (int k = from->n - n; k < from->n; k++) {
        from->len[k] = INT64_MIN;
        from->off[k] = UINT64_MAX;
    }
    from->n -= n;
}

static inline void put_entry(symm_node *n, int i, uint64_t off, int64_t len, uint64_t tag) {
    for (int k = n->n; k > i; k--) {
        n->len[k] = n->len[k - 1];
        n->off[k] = n->off[k - 1];
        n->tag[k] = n->tag[k - 1];
    }
    n->len[i] = len;
    n->off[i] = off;
    n->tag[i] = tag;
    n->n++;
}

/* What a call will touch of a leaf besides what it searches: fetched meanwhile. */
static inline void fetch(const void *array) {
    for (int k = 0; k < FAN; k += LINE)
        __builtin_prefetch((const char *)array + sizeof(uint64_t) * (unsigned)k, 1);
}

/* ---- searching ---------------------------------------------------------------------------------------------------------- */

int symm_tree_find(const symm_tree *t, uint64_t off, symm_cursor *c) {
    symm_node *n = t->root;
    c->leaf = t->height;
    if (off == UINT64_MAX) off--; /* no piece begins there; those behind the last seem to */
    for (int level = 0; level < t->height; level++) {
        int i = last_at(n, off);
        c->node[level] = n;
        c->at[level] = i = i < 0 ? 0 : i;
        n = n->child[i];
    }
    fetch(n->len);
    __builtin_prefetch(&n->n, 1);
    c->node[t->height] = n;
    c->at[t->height] = last_at(n, off);
    return c->at[t->height] >= 0;
}

/* Goes on below `level`, whose entry is known to hold a hole that fits. */
static void descend(symm_cursor *c, int level, int64_t len) {
    while (level < c->leaf) {
        symm_node *n = c->node[level]->child[c->at[level]];
        level++;
        if (level == c->leaf) {
            fetch(n->off);
            fetch(n->tag);
            __builtin_prefetch(&n->n, 1);
        }
        c->node[level] = n;
        c->at[level] = first_long(n, 0, len);
    }
}

int symm_tree_fit(const symm_tree *t, uint64_t bytes, symm_cursor *c) {
    if (bytes > INT64_MAX) return 0;
    c->leaf = t->height;
    c->node[0] = t->root;
    c->at[0] = first_long(t->root, 0, (int64_t)bytes);
    if (c->at[0] == FAN) return 0;
    descend(c, 0, (int64_t)bytes);
    return 1;
}

int symm_tree_fit_from(uint64_t bytes, symm_cursor *c) {
    if (bytes > INT64_MAX) return 0;
    int from = c->at[c->leaf];
    for (int level = c->leaf; level >= 0; level--) {
        int i = first_long(c->node[level], from, (int64_t)bytes);
        if (i < FAN) {
            c->at[level] = i;
            descend(c, level, (int64_t)bytes);
            return 1;
        }
        if (level) from = c->at[level - 1] + 1;
    }
    return 0;
}

int symm_tree_next(symm_cursor *c) {
    int level = c->leaf;
    while (level >= 0 && c->at[level] + 1 >= c->node[level]->n) level--;
    if (level < 0) return 0;
    c->at[level]++;
    for (; level < c->leaf; level++) {
        c->node[level + 1] = c->node[level]->child[c->at[level]];
        c->at[level + 1] = 0;
    }
    return 1;
}

int symm_tree_prev(symm_cursor *c) {
    int level = c->leaf;
    while (level >= 0 && c->at[level] <= 0) level--;
    if (level < 0) return 0;
    c->at[level]--;
    for (; level < c->leaf; level++) {
        c->node[level + 1] = c->node[level]->child[c->at[level]];
        c->at[level + 1] = c->node[level + 1]->n - 1;
    }
    return 1;
}

uint64_t symm_tree_largest(const symm_tree *t) {
    int64_t len = largest(t->root);
    return len > 0 ? (uint64_t)len : 0;
}

/* ---- changing ----------------------------------------------------------------------------------------------------------- */

/* An entry of the node at `level` was `old` and is `len` (INT64_MIN: is not there); the levels above learn of it as far as it
 * matters to them. */
static inline void tell(symm_cursor *c, int level, int64_t old, int64_t len) {
    for (; level > 0; level--) {
        int64_t *slot = &c->node[level - 1]->len[c->at[level - 1]];
        if (len < *slot) {
            if (old != *slot) return;
            len = largest(c->node[level]);
        }
        if (len == *slot) return;
        old = *slot;
        *slot = len;
    }
}

/* The first entry of c's leaf begins at off: keys are exact, so that each entry has one place where it is found. */
static void tell_first(symm_cursor *c, uint64_t off) {
    for (int level = c->leaf - 1; level >= 0; level--) {
        c->node[level]->off[c->at[level]] = off;
        if (c->at[level]) return;
    }
}

void symm_tree_set(symm_cursor *c, int64_t len) {
    int64_t *slot = &c->node[c->leaf]->len[c->at[c->leaf]], old = *slot;
    *slot = len;
    tell(c, c->leaf, old, len);
}

void symm_tree_move(symm_cursor *c, uint64_t off) {
    c->node[c->leaf]->off[c->at[c->leaf]] = off;
    if (c->at[c->leaf] == 0) tell_first(c, off);
}

/* Puts an entry into the node at `level`, which may split it and those above. 1: nothing was split. */
static int put(symm_tree *t, symm_cursor *c, int level, int i, uint64_t off, int64_t len,
               uint64_t tag) {
    symm_node *left = c->node[level];
    if (left->n < FAN) {
        put_entry(left, i, off, len, tag);
        tell(c, level, INT64_MIN, len);
        return 1;
    }
    /* Where a heap grows at its end, what is left behind stays as it is: full. */
    int keep = i == FAN ? FAN - LEAST : FAN / 2;
    symm_node *right = new_node(t);
    move_entries(right, 0, left, keep, FAN - keep);
    remove_entries(left, keep, FAN - keep);
    if (i <= keep)
        put_entry(left, i, off, len, tag);
    else
        put_entry(right, i - keep, off, len, tag);
    if (level) {
        tell(c, level - 1, INT64_MIN, len);
        c->node[level - 1]->len[c->at[level - 1]] = largest(left);
        put(t, c, level - 1, c->at[level - 1] + 1, right->off[0], largest(right),
            (uint64_t)(uintptr_t)right);
        return 0;
    }
    t->root = new_node(t);
    t->height++;
    put_entry(t->root, 0, left->off[0], largest(left), (uint64_t)(uintptr_t)left);
    put_entry(t->root, 1, right->off[0], largest(right), (uint64_t)(uintptr_t)right);
    return 0;
}

int symm_tree_insert(symm_tree *t, symm_cursor *c, uint64_t off, int64_t len, uint64_t tag) {
    int i = c->at[c->leaf] + 1;
    if (i == 0) tell_first(c, off);
    return put(t, c, c->leaf, i, off, len, tag);
}

/* The node at `level` has too few entries: one with a neighbour, or as many as that. */
static void even_out(symm_tree *t, symm_cursor *c, int level) {
    symm_node *parent = c->node[level - 1];
    int j = c->at[level - 1] ? c->at[level - 1] - 1 : 0;
    symm_node *left = parent->child[j], *right = parent->child[j + 1];
    int sum = left->n + right->n, move = sum / 2 - left->n;
    if (sum > FAN * 3 / 4) {
        if (move > 0) {
            move_entries(left, left->n, right, 0, move);
            remove_entries(right, 0, move);
        } else {
            move_entries(right, 0, left, left->n + move, -move);
            remove_entries(left, left->n + move, -move);
        }
        parent->off[j + 1] = right->off[0];
        parent->len[j] = largest(left);
        parent->len[j + 1] = largest(right);
        return;
    }
    move_entries(left, left->n, right, 0, right->n);
    drop_node(t, right);
    remove_entries(parent, j + 1, 1);
    parent->len[j] = largest(left);
    if (level > 1) {
        if (parent->n < LEAST) even_out(t, c, level - 1);
    } else if (parent->n == 1) {
        t->root = left;
        t->height--;
        drop_node(t, parent);
    }
}

int symm_tree_erase(symm_tree *t, symm_cursor *c) {
    symm_node *leaf = c->node[c->leaf];
    int64_t old = leaf->len[c->at[c->leaf]];
    remove_entries(leaf, c->at[c->leaf], 1);
    tell(c, c->leaf, old, INT64_MIN);
    if (c->at[c->leaf] == 0) tell_first(c, leaf->off[0]);
    if (leaf->n >= LEAST || c->leaf == 0) return 1;
    even_out(t, c, c->leaf);
    return 0;
}

void symm_tree_unite(symm_tree *t, symm_cursor *c, int first, int n, int64_t len) {
    symm_node *leaf = c->node[c->leaf];
    leaf->len[first] = len;
    if (n > 1) remove_entries(leaf, first + 1, n - 1);
    tell(c, c->leaf, INT64_MIN, len);
    if (leaf->n < LEAST && c->leaf) even_out(t, c, c->leaf);
}
