/* heap_sizes.c - sizes of vectors where ranks are on several hosts, which do not see each other's
 * words in the ledger. Each rank says its own over the mesh, and keeps what its peers say in its
 * own copy of their words. So symmVecSync reads as it does on one host.
 *
 * Say: the communicator's user thread, and the watcher, for what found a socket full. Hear: the
 * thread inside the mesh, and the watcher. Lock: heaps.size_lock guards all of it. It is held while
 * a message is handed to the mesh: two threads that say a size must not change places. The mesh's
 * lock of receiving is taken before it, the locks of its links after it.
 *
 * Why no size that matters comes before its vector is known here. A vector is empty at first, and
 * its first memory comes by an exchange of all ranks. This rank takes part in that after it has
 * made the vector, and a peer says its size after that. So a vector that is not known has been
 * destroyed here.
 *
 * Why no size is too large. Between two shrinkings a vector only grows, so what a peer had once it
 * has still. Shrinking is an exchange, and ranks leave it at different times; it may also take
 * another way than the mesh. So each size goes with the number of shrinkings before it. A rank that
 * shrinks limits what it knows of its peers, except of those that have said already what they had
 * afterwards. What a peer said before a shrinking, and comes behind it, is dropped. */
#include <stdlib.h>
#include <string.h>

#include "base/handle.h"
#include "host/comm/comm.h"
#include "heap_int.h"

typedef struct { /* on the wire */
    uint32_t heap, shrinks;
    uint64_t bytes;
} word;
_Static_assert(sizeof(word) == SYMM_MESH_WORD, "on the wire");

struct symm_sizes { /* of a vector */
    struct symm_sizes *next;
    symm_ledger *ledger; /* NULL: it has been destroyed here, and not all know its last size */
    word own;            /* the newest */
    int unsent;          /* peers that do not know it */
    struct {
        uint32_t shrinks; /* with what the peer said last */
        int unsent;
    } of[]; /* [nranks] */
};

symm_sizes *symm_sizes_new(int nranks) {
    return calloc(1, sizeof(symm_sizes) + (size_t)nranks * sizeof((symm_sizes *)0)->of[0]);
}

/* With the lock, when its holder changes nothing. Shrinking is an exchange: nobody is two ahead. */
static void sizes_check(const symm_comm *c, const symm_sizes *s) {
    int unsent = 0;
    for (int p = 0; p < c->nranks; p++) {
        SYMM_ASSERT(s->of[p].unsent == 0 || s->of[p].unsent == 1);
        SYMM_ASSERT(s->of[p].shrinks <= s->own.shrinks + 1);
        unsent += s->of[p].unsent;
    }
    SYMM_ASSERT(unsent == s->unsent && !s->of[c->rank].unsent);
    SYMM_ASSERT(c->heaps.unsaid >= (unsent > 0));
    SYMM_ASSERT(s->ledger || s->unsent);
    SYMM_ASSERT(s->own.heap);
}

/* With the lock. */
static void take_out(symm_comm *c, symm_sizes *s) {
    symm_sizes **at = &c->heaps.sizes;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    c->heaps.unsaid -= s->unsent > 0;
    free(s);
}

void symm_sizes_link(symm_comm *c, symm_sizes *s, uint32_t heap, symm_ledger *ledger) {
    s->own.heap = heap;
    s->ledger = ledger;
    pthread_mutex_lock(&c->heaps.size_lock);
    s->next = c->heaps.sizes;
    c->heaps.sizes = s;
    pthread_mutex_unlock(&c->heaps.size_lock);
}

void symm_sizes_unlink(symm_comm *c, symm_sizes *s) {
    pthread_mutex_lock(&c->heaps.size_lock);
    s->ledger = NULL; /* nobody writes there afterwards: it ends with the vector */
    if (!s->unsent) take_out(c, s);
    pthread_mutex_unlock(&c->heaps.size_lock);
}

void symm_sizes_drop_all(symm_comm *c) {
    pthread_mutex_lock(&c->heaps.size_lock);
    while (c->heaps.sizes) take_out(c, c->heaps.sizes);
    pthread_mutex_unlock(&c->heaps.size_lock);
}

/* ---- saying ---------------------------------------------------------------------------------- */

/* With the lock. full: peers whose sockets have no room now, which are not tried again. */
static void say(symm_comm *c, symm_sizes *s, symm_ranks *full) {
    for (int p = 0; s->unsent && p < c->nranks; p++) {
        if (!s->of[p].unsent || symm_ranks_has(full, p)) continue;
        if (!symm_mesh_offer(c->mesh, p, SYMM_MSG_WORD, &s->own, sizeof s->own)) {
            symm_ranks_add(full, p);
            continue;
        }
        s->of[p].unsent = 0;
        if (!--s->unsent) c->heaps.unsaid--;
    }
}

/* With the lock. This rank has come to the end of a shrinking. */
static void limit_peers(const symm_comm *c, symm_sizes *s) {
    for (int p = 0; p < c->nranks; p++)
        if (p != c->rank && s->of[p].shrinks < s->own.shrinks &&
            symm_ledger_size(s->ledger, p) > s->own.bytes)
            symm_ledger_hear(s->ledger, p, s->own.bytes);
}

void symm_heap_publish(symm_heap *h, uint64_t bytes, int shrunk) {
    symm_comm *c = h->comm;
    symm_sizes *s = h->sizes;
    symm_ranks full = {{0}};
    SYMM_ASSERT(h->kind == SYMM_KIND_VEC && bytes <= h->reserve);
    symm_ledger_publish(h->ledger, bytes);
    if (!s) return;
    pthread_mutex_lock(&c->heaps.size_lock);
    SYMM_CHECK(sizes_check(c, s));
    s->own.bytes = bytes;
    s->own.shrinks += shrunk != 0;
    if (shrunk) limit_peers(c, s);
    for (int p = 0; p < c->nranks; p++) s->of[p].unsent = p != c->rank;
    c->heaps.unsaid += !s->unsent;
    s->unsent = c->nranks - 1;
    say(c, s, &full);
    SYMM_CHECK(sizes_check(c, s));
    pthread_mutex_unlock(&c->heaps.size_lock);
}

/* What is unsent, again. In every turn of the watcher: mostly there is nothing. */
static void say_again(void *arg) {
    symm_comm *c = arg;
    symm_sizes *s, *next;
    symm_ranks full = {{0}};
    pthread_mutex_lock(&c->heaps.size_lock);
    for (s = c->heaps.unsaid ? c->heaps.sizes : NULL; s; s = next) {
        next = s->next;
        SYMM_CHECK(sizes_check(c, s));
        say(c, s, &full);
        if (!s->unsent && !s->ledger) take_out(c, s);
    }
    pthread_mutex_unlock(&c->heaps.size_lock);
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* With the lock. Moves it to the front: the next size is often of the same vector. */
static symm_sizes *find(symm_comm *c, uint32_t heap) {
    symm_sizes **at = &c->heaps.sizes;
    while (*at && (*at)->own.heap != heap) at = &(*at)->next;
    symm_sizes *s = *at;
    if (!s) return NULL;
    *at = s->next;
    s->next = c->heaps.sizes;
    c->heaps.sizes = s;
    return s;
}

static void hear(void *arg, int peer, const void *payload) {
    symm_comm *c = arg;
    word w;
    memcpy(&w, payload, sizeof w);
    SYMM_ASSERT(peer >= 0 && peer < c->nranks && peer != c->rank);
    pthread_mutex_lock(&c->heaps.size_lock);
    symm_sizes *s = find(c, w.heap);
    if (s && s->ledger && w.shrinks >= s->own.shrinks) {
        s->of[peer].shrinks = w.shrinks;
        symm_ledger_hear(s->ledger, peer, w.bytes);
        SYMM_CHECK(sizes_check(c, s));
    }
    pthread_mutex_unlock(&c->heaps.size_lock);
}

void symm_sizes_listen(symm_comm *c) {
    static const symm_mesh_words words = {hear, say_again};
    if (c->hosts > 1) symm_mesh_set_words(c->mesh, &words, c);
}
