/* arena_threads.c - which sub-arena a thread or a stream has, the end of subs, and the process's
 * list of arenas. A thread remembers the subs that it used last; others are searched in the arena's
 * list. When a thread ends, every arena that it used takes back its sub. The thread gets no other
 * one: its later destructors take from the global part. Any thread; locks as in arena_int.h. */
#include <stdlib.h>

#include "base/fail.h"
#include "arena_int.h"

static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER; /* the list of live arenas */
static pthread_cond_t looked_at = PTHREAD_COND_INITIALIZER;     /* an arena's looks has become 0 */
static symm_arena *arenas;
static uint64_t last_serial;

void symm_arena_enlist(symm_arena *a) {
    pthread_mutex_lock(&arenas_lock);
    a->serial = ++last_serial;
    a->next = arenas;
    arenas = a;
    pthread_mutex_unlock(&arenas_lock);
}

void symm_arena_delist(symm_arena *a) {
    pthread_mutex_lock(&arenas_lock);
    symm_arena **at = &arenas;
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    while (a->looks) pthread_cond_wait(&looked_at, &arenas_lock);
    pthread_mutex_unlock(&arenas_lock);
}

void symm_arena_is_of(symm_arena *a, const void *of) {
    pthread_mutex_lock(&arenas_lock);
    a->of = of;
    pthread_mutex_unlock(&arenas_lock);
}

symm_arena *symm_arenas_next(const void *of, symm_arena *last) {
    pthread_mutex_lock(&arenas_lock);
    symm_arena *next = arenas; /* the newest; serials go down */
    while (next && (next->of != of || (last && next->serial >= last->serial))) next = next->next;
    if (next) next->looks++;
    if (last && !--last->looks) pthread_cond_broadcast(&looked_at);
    pthread_mutex_unlock(&arenas_lock);
    return next;
}

void symm_arenas_leave(symm_arena *a) {
    if (!a) return;
    pthread_mutex_lock(&arenas_lock);
    if (!--a->looks) pthread_cond_broadcast(&looked_at);
    pthread_mutex_unlock(&arenas_lock);
}

/* ---- what a thread remembers ----------------------------------------------------------------- */

enum { RECENT = 64 };

typedef struct {
    uint64_t serial;
    symmStream_t stream;
    symm_sub *sub;
} recent;

static _Thread_local recent recents[RECENT];

/* Puts this thread's sub into the arena's table, where symm_sub_mine looks, unless another live
 * thread's sub is at that place: two threads that took it from each other would both be slow. */
static void remember(symm_arena *a, symm_sub *sub) {
    _Atomic(symm_sub *) *at = &a->mine[symm_thread_slot(symm_thread_self())];
    symm_sub *has = atomic_load_explicit(at, memory_order_acquire); /* as in symm_sub_mine */
    if (!has || !atomic_load_explicit(&has->thread.self, memory_order_relaxed))
        atomic_store_explicit(at, sub, memory_order_release); /* pairs with symm_sub_mine */
}

/* ---- the end of a sub
 * ------------------------------------------------------------------------- */

void symm_sub_close(symm_sub *sub) {
    symm_arena *a = sub->arena;
    symmStream_t s = symm_sub_stream(sub);
    symm_sub_lock(sub);
    symm_sub_flush(sub);
    symm_sub_tidy(sub, 0);
    /* Its holes were freed on s: whoever takes the sub over waits for that. */
    pthread_mutex_lock(&sub->far_lock);
    symm_pending_add(a, &sub->waits, 0, 1, s);
    atomic_store_explicit(&sub->kind, SYMM_SUB_ENDED, memory_order_release);
    atomic_store_explicit(&sub->stream, NULL, memory_order_release);
    pthread_mutex_unlock(&sub->far_lock);
    (void)symm_sub_drain(sub, 0);
    symm_sub_tidy(sub, 0);
    symm_sub_unlock(sub);
}

/* ---- threads that end ------------------------------------------------------------------------ */

/* One for each arena that a thread used the NULL stream in. */
typedef struct used {
    struct used *next;
    uint64_t serial;
    symm_sub *sub;
} used;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_made;
static _Thread_local int ending; /* this thread's subs are closed, and it gets no new ones */

/* Destructors of the program that run later in this thread may still use arenas, but not its subs,
 * which others may have by then. The thread gets no new sub either, because nobody would close it:
 * destructors run in a few passes only. */
static void thread_ends(void *arg) {
    used *u = arg;
    ending = 1;
    while (u) {
        used *next = u->next;
        pthread_mutex_lock(&arenas_lock); /* keeps the arena alive */
        symm_arena *a = arenas;
        while (a && a->serial != u->serial) a = a->next;
        if (a) {
            pthread_mutex_lock(&a->list_lock);
            atomic_store_explicit(&u->sub->thread.self, 0, memory_order_relaxed);
            symm_sub_close(u->sub);
            pthread_mutex_unlock(&a->list_lock);
        }
        pthread_mutex_unlock(&arenas_lock);
        free(u);
        u = next;
    }
}

static void make_key(void) {
    key_made = pthread_key_create(&key, thread_ends) == 0;
}

/* The end of this thread will close sub. -1: no memory. */
static int note_thread(symm_arena *a, symm_sub *sub) {
    pthread_once(&key_once, make_key);
    used *u = key_made ? SYMM_FAIL_ALLOC(arena_thread, malloc(sizeof *u)) : NULL;
    if (!u) return -1;
    *u = (used){pthread_getspecific(key), a->serial, sub};
    if (!pthread_setspecific(key, u)) return 0;
    free(u);
    return -1;
}

/* ---- finding --------------------------------------------------------------------------------- */

static inline recent *slot_of(const symm_arena *a, symmStream_t s) {
    uint64_t h = ((uint64_t)(uintptr_t)s ^ a->serial << 40) * 0x9e3779b97f4a7c15ull;
    return &recents[h >> 58];
}

static symm_sub *known(symm_arena *a, symmStream_t s) {
    recent *r = slot_of(a, s);
    if (r->serial == a->serial && r->stream == s && symm_sub_is(r->sub, s)) return r->sub;
    symm_sub *sub = NULL;
    if (s) {
        pthread_mutex_lock(&a->list_lock);
        for (sub = a->subs; sub && !symm_sub_is(sub, s);) sub = sub->next;
        pthread_mutex_unlock(&a->list_lock);
    } else {
        pthread_once(&key_once, make_key);
        for (used *u = key_made ? pthread_getspecific(key) : NULL; u && !sub; u = u->next)
            if (u->serial == a->serial) sub = u->sub;
    }
    if (sub) *r = (recent){a->serial, s, sub};
    return sub;
}

symm_sub *symm_sub_look(symm_arena *a) {
    symm_sub *sub = known(a, NULL);
    if (sub) remember(a, sub);
    return sub;
}

/* Takes over a sub whose thread or stream has ended, if all work on what was freed in it has ended
 * too. Under list_lock. */
static symm_sub *adopt(symm_arena *a, int kind, symmStream_t s) {
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        if (atomic_load_explicit(&sub->kind, memory_order_relaxed) != SYMM_SUB_ENDED) continue;
        symm_sub_lock(sub);
        (void)symm_sub_drain(sub, 0);
        pthread_mutex_lock(&sub->far_lock);
        int quiet = sub->waits.n == 0;
        pthread_mutex_unlock(&sub->far_lock);
        if (quiet) {
            atomic_store_explicit(&sub->stream, s, memory_order_release);
            atomic_store_explicit(&sub->kind, kind, memory_order_release);
        }
        symm_sub_unlock(sub);
        if (quiet) return sub;
    }
    return NULL;
}

/* Closes the subs of streams that are gone. Under list_lock. */
static void close_gone(symm_arena *a) {
    for (symm_sub *sub = a->subs; sub; sub = sub->next)
        if (atomic_load_explicit(&sub->kind, memory_order_relaxed) == SYMM_SUB_STREAM &&
            a->order.idle(a->order.ctx, symm_sub_stream(sub), NULL) == 2)
            symm_sub_close(sub);
}

symmResult_t symm_sub_for(symm_arena *a, symmStream_t s, symm_sub **out) {
    symm_sub *sub = known(a, s);
    *out = sub;
    if (sub || (!s && ending)) return symmSuccess;
    int kind = s ? SYMM_SUB_STREAM : SYMM_SUB_THREAD;
    pthread_mutex_lock(&a->list_lock);
    for (sub = s ? a->subs : NULL; sub && !symm_sub_is(sub, s);)
        sub = sub->next; /* another thread's */
    if (!sub) {
        close_gone(a);
        sub = adopt(a, kind, s);
    }
    if (!sub && (sub = symm_sub_new(a, kind, s))) {
        sub->ordinal = a->nsubs++;
        sub->next = a->subs;
        a->subs = sub;
    }
    if (sub && !s && note_thread(a, sub)) {
        symm_sub_close(sub); /* else nobody would close it at the thread's end */
        sub = NULL;
    }
    pthread_mutex_unlock(&a->list_lock);
    if (!sub) return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for a sub-arena", a->name);
    *slot_of(a, s) = (recent){a->serial, s, sub};
    if (!s) { /* until thread_ends it is found by the thread's address */
        atomic_store_explicit(&sub->thread.self, symm_thread_self(), memory_order_relaxed);
        remember(a, sub);
    }
    *out = sub;
    return symmSuccess;
}
