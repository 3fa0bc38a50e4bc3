/* arena_dump.c - what an arena holds, as counts and as a table. Any thread. Each part is read under
 * its own lock, so the parts of a table may be of different moments. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "arena_int.h"

void symm_arena_count(symm_arena *a, struct symm_arena_counts *n) {
    symm_place_stats s;
    *n = (struct symm_arena_counts){0};
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        symm_sub_lock(sub);
        symm_place_measure(sub->place, &s);
        uint64_t kept = atomic_load_explicit(&sub->kept, memory_order_relaxed);
        n->used += s.used - symm_sub_far_bytes(sub);
        n->kept += kept; /* also of other threads' blocks */
        n->subs[atomic_load_explicit(&sub->kind, memory_order_relaxed)]++;
        symm_sub_unlock(sub);
    }
    pthread_mutex_unlock(&a->list_lock);
    n->used = n->used > n->kept ? n->used - n->kept : 0;
    symm_arena_lock(a);
    symm_place_measure(a->place, &s);
    n->assigned = s.used;
    n->largest = s.largest;
    n->supers = a->supers;
    n->larges = a->larges;
    n->held = a->held;
    n->held_peak = a->held_peak;
    symm_arena_unlock(a);
    uint64_t supers = n->supers * a->super;
    n->used += n->assigned > supers ? n->assigned - supers : 0;
    const uint64_t red = a->guard ? symm_arena_guard_red(a->guard) : 0;
    n->used -= red < n->used ? red : n->used;
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct {
    char *at;
    size_t n, cap;
    int lost;
} text;

static void say(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *fmt, ...) {
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (t->n + bytes > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 4096;
        char *more = SYMM_FAIL_ALLOC(arena_text, realloc(t->at, cap));
        if (!more) t->lost = 1;
        if (!more) return;
        t->at = more;
        t->cap = cap;
    }
    memcpy(t->at + t->n, line, bytes);
    t->n += bytes;
}

/* The share of the free bytes that is not in the largest hole; 0 if nothing is free. */
static double fragmentation(const symm_place_stats *s) {
    return s->free ? 100.0 * (1.0 - (double)s->largest / (double)s->free) : 0.0;
}

static void say_stats(text *t, const char *what, const symm_place_stats *s) {
    say(t,
        "%s: used %llu, free %llu, largest %llu, blocks %llu, holes %llu, fragmentation %.2f %%\n",
        what, (unsigned long long)s->used, (unsigned long long)s->free,
        (unsigned long long)s->largest, (unsigned long long)s->blocks, (unsigned long long)s->holes,
        fragmentation(s));
}

/* One line for each superblock. */
static void say_supers(text *t, const symm_sub *sub) {
    const symm_arena *a = sub->arena;
    symm_place_stats s = {0};
    symm_piece q;
    char what[64];
    for (uint64_t at = 0; symm_place_at(sub->place, at, &q);) {
        uint64_t begin = at > q.off ? at : q.off, super = begin & -a->super;
        uint64_t end = q.off + q.bytes, stop = super + a->super;
        uint64_t bytes = (end < stop ? end : stop) - begin;
        *(q.used ? &s.used : &s.free) += bytes;
        *(q.used ? &s.blocks : &s.holes) += 1;
        if (!q.used && bytes > s.largest) s.largest = bytes;
        at = begin + bytes;
        if (at < stop && symm_place_at(sub->place, at, &q) && q.off < stop) continue;
        snprintf(what, sizeof what, "    superblock 0x%llx", (unsigned long long)super);
        say_stats(t, what, &s);
        s = (symm_place_stats){0};
        at = stop;
    }
}

static void say_subs(text *t, symm_arena *a) {
    static const char *const kinds[] = {"thread", "stream", "stripe", "ended"};
    symm_place_stats s;
    char what[96];
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        symm_sub_lock(sub);
        symm_place_measure(sub->place, &s);
        snprintf(what, sizeof what, "  %s %d, %llu superblocks",
                 kinds[atomic_load_explicit(&sub->kind, memory_order_relaxed)], sub->ordinal,
                 (unsigned long long)sub->supers);
        say_stats(t, what, &s);
        say_supers(t, sub);
        symm_sub_unlock(sub);
    }
    pthread_mutex_unlock(&a->list_lock);
}

static symmResult_t write_all(int fd, const char *at, size_t n) {
    while (n) {
        ssize_t w = SYMM_FAIL_CALL(arena_write, -1, EIO, write(fd, at, n));
        if (w < 0 && errno == EINTR) continue;
        if (w < 0)
            return SYMM_ERR(symmSystemError, "fd=%d: writing %zu bytes: %s", fd, n,
                            strerror(errno));
        at += w;
        n -= (size_t)w;
    }
    return symmSuccess;
}

symmResult_t symm_arena_write(symm_arena *a, int fd) {
    text t = {0};
    symm_place_stats s;
    symm_arena_lock(a);
    say(&t,
        "arena %s: %s, arena size %llu, superblock size %llu, superblocks %llu, large blocks "
        "%llu\n",
        a->name, a->sym ? "symmetric" : "local", (unsigned long long)a->limit,
        (unsigned long long)a->super, (unsigned long long)a->supers, (unsigned long long)a->larges);
    symm_place_measure(a->place, &s);
    symm_arena_unlock(a);
    if (a->guard)
        say(&t, "  guard mode: of what is used, %llu bytes are red zones\n",
            (unsigned long long)symm_arena_guard_red(a->guard));
    say_stats(&t, "  global", &s);
    say_subs(&t, a);
    symmResult_t status =
        t.lost ? SYMM_ERR(symmOutOfMemory, "arena %s: no memory for a dump of more than %zu bytes",
                          a->name, t.n)
               : write_all(fd, t.at, t.n);
    free(t.at);
    return status;
}
