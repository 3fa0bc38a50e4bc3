/* trace.h - sequences of allocations and frees, generated or read, for bench_memory.c. A trace is
 * plain data: block ids are dense, every free names a block that lives. RMM's replay benchmark
 * reads and writes the same CSV: Thread,Time,Action,Pointer,Size,Stream. */
#ifndef TRACE_H_
#define TRACE_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_TAKE, TRACE_GIVE };

typedef struct {
    uint64_t bytes;
    uint32_t id, stream;
    int op;
} trace_event;

typedef struct {
    trace_event *at;
    size_t n, cap;
    uint32_t ids;       /* most that live at once */
    uint64_t peak_live; /* bytes as asked for */
} trace;

static inline uint64_t trace_draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void trace_add(trace *t, trace_event e) {
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->at = realloc(t->at, t->cap * sizeof *t->at);
        if (!t->at) abort();
    }
    t->at[t->n++] = e;
}

typedef struct {
    uint64_t bytes;
    uint32_t id, stream;
} trace_block;

/* Blocks that live, and ids that are free again. */
typedef struct {
    trace_block *live;
    uint32_t *spare;
    uint32_t n, nspare, ids;
    uint64_t bytes;
} trace_set;

static inline void trace_set_open(trace_set *s, size_t most) {
    *s = (trace_set){.live = malloc((most + 1) * sizeof *s->live),
                     .spare = malloc((most + 1) * sizeof *s->spare)};
    if (!s->live || !s->spare) abort();
}

static inline void trace_set_close(trace *t, trace_set *s) {
    t->ids = s->ids;
    free(s->live);
    free(s->spare);
}

static inline void trace_take(trace *t, trace_set *s, uint64_t bytes, uint32_t stream) {
    uint32_t id = s->nspare ? s->spare[--s->nspare] : s->ids++;
    s->live[s->n++] = (trace_block){bytes, id, stream};
    s->bytes += bytes;
    if (s->bytes > t->peak_live) t->peak_live = s->bytes;
    trace_add(t, (trace_event){bytes, id, stream, TRACE_TAKE});
}

static inline void trace_give(trace *t, trace_set *s, uint32_t k) {
    trace_block b = s->live[k];
    s->live[k] = s->live[--s->n];
    s->spare[s->nspare++] = b.id;
    s->bytes -= b.bytes;
    trace_add(t, (trace_event){b.bytes, b.id, b.stream, TRACE_GIVE});
}

/* RMM's random_allocations: n allocations of 1 to max bytes, each step one with 73 % (as long as
 * the cap of live bytes allows), else the end of a random block; until 2n steps are done. */
static inline trace trace_random(size_t n, uint64_t max, uint64_t cap, uint64_t seed) {
    trace t = {0};
    trace_set s;
    size_t taken = 0;
    trace_set_open(&s, n);
    for (size_t i = 0; i < 2 * n; i++) {
        uint64_t bytes = trace_draw(&seed) % max + 1;
        int take = trace_draw(&seed) % 100 < 73 && taken < n && s.bytes + bytes < cap;
        if (s.n == 0 && taken < n) take = 1;
        if (take) {
            trace_take(&t, &s, bytes, 0);
            taken++;
        } else if (s.n) {
            trace_give(&t, &s, (uint32_t)(trace_draw(&seed) % s.n));
        }
    }
    trace_set_close(&t, &s);
    return t;
}

/* `live` blocks all the time: after they are there, in turn a random one ends and a new one
 * comes. */
static inline trace trace_churn(size_t live, size_t steps, uint64_t max, uint64_t seed) {
    trace t = {0};
    trace_set s;
    trace_set_open(&s, live);
    while (s.n < live) trace_take(&t, &s, trace_draw(&seed) % max + 1, 0);
    for (size_t i = 0; i < steps; i++) {
        trace_give(&t, &s, (uint32_t)(trace_draw(&seed) % s.n));
        trace_take(&t, &s, trace_draw(&seed) % max + 1, 0);
    }
    trace_set_close(&t, &s);
    return t;
}

/* Streams that each replace random blocks of their own; sizes from 256 bytes up, small ones
 * often. */
static inline trace trace_streams(uint32_t streams, size_t each, size_t steps, uint64_t max,
                                  uint64_t seed) {
    trace t = {0};
    trace_set s;
    trace_set_open(&s, streams * each);
    for (size_t k = 0; k < each; k++)
        for (uint32_t i = 0; i < streams; i++) trace_take(&t, &s, trace_draw(&seed) % max + 1, i);
    for (size_t k = 0; k < steps * streams; k++) {
        uint32_t i = (uint32_t)(trace_draw(&seed) % s.n), stream = s.live[i].stream;
        trace_give(&t, &s, i);
        trace_take(&t, &s, trace_draw(&seed) % max + 1, stream);
    }
    trace_set_close(&t, &s);
    return t;
}

/* ---- RMM's CSV ------------------------------------------------------------------------------- */

static inline int trace_write(const trace *t, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    fprintf(f, "Thread,Time,Action,Pointer,Size,Stream\n");
    for (size_t i = 0; i < t->n; i++) {
        const trace_event *e = &t->at[i];
        fprintf(f, "1,00:00:00:%06zu,%s,0x%llx,%llu,0x%x\n", i % 1000000,
                e->op == TRACE_TAKE ? "allocate" : "free", 0x1000000ull + e->id * 256ull,
                (unsigned long long)e->bytes, e->stream);
    }
    return fclose(f) ? -1 : 0;
}

typedef struct {
    uint64_t key; /* pointer; 0: no entry */
    trace_block block;
} trace_slot;

/* The slot of a pointer, or where it would be. */
static inline trace_slot *trace_find(trace_slot *slots, size_t mask, uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15ull >> 20) & mask;
    while (slots[i].key && slots[i].key != key) i = (i + 1) & mask;
    return &slots[i];
}

/* Failed allocations and frees of what is not known are skipped, and counted. -1: no such file, or
 * none of that format. */
static inline int trace_read(trace *t, const char *path, size_t *skipped) {
    FILE *f = fopen(path, "r");
    char line[256], action[32];
    size_t lines = 0;
    *t = (trace){0};
    *skipped = 0;
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) lines++;
    rewind(f);
    size_t room = 64;
    while (room < 4 * lines) room *= 2;
    trace_slot *slots = calloc(room, sizeof *slots);
    trace_set s;
    trace_set_open(&s, lines);
    if (!slots) abort();
    uint64_t live = 0;
    int head = fgets(line, sizeof line, f) != NULL &&
               !strncmp(line, "Thread,Time,Action,Pointer,Size", 31);
    while (head && fgets(line, sizeof line, f)) {
        unsigned long long pointer, size, stream = 0;
        if (sscanf(line, "%*[^,],%*[^,],%31[^,],%llx,%llu,%llx", action, &pointer, &size, &stream) <
            3) {
            (*skipped)++;
            continue;
        }
        trace_slot *slot = trace_find(slots, room - 1, pointer + 1);
        if (!strcmp(action, "allocate") && !slot->block.bytes && size) {
            uint32_t id = s.nspare ? s.spare[--s.nspare] : s.ids++;
            *slot = (trace_slot){pointer + 1, {size, id, (uint32_t)stream}};
            live += size;
            if (live > t->peak_live) t->peak_live = live;
            trace_add(t, (trace_event){size, id, (uint32_t)stream, TRACE_TAKE});
        } else if (!strcmp(action, "free") && slot->block.bytes) {
            trace_add(
                t, (trace_event){slot->block.bytes, slot->block.id, (uint32_t)stream, TRACE_GIVE});
            live -= slot->block.bytes;
            s.spare[s.nspare++] = slot->block.id;
            slot->block.bytes = 0; /* the key stays: others may lie behind it */
        } else {
            (*skipped)++;
        }
    }
    trace_set_close(t, &s);
    free(slots);
    fclose(f);
    return head ? 0 : -1;
}

#endif
