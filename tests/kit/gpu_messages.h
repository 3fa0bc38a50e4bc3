/* gpu_messages.h - sends and receives on GPUs, for ranks that are threads (gpu_p2p.c) or processes
 * (mpg_ranks.c): random schedules of p2p_model.h, eager, captured and replayed, on one stream and
 * on several. Ranks meet where something is allocated, instantiated or freed, so that no kernel
 * waits then. A rank's own thread; no lock. */
#ifndef GPU_MESSAGES_H_
#define GPU_MESSAGES_H_

#include "gpu_cases.h"
#include "p2p_model.h"

enum { GM_HALF = 12 << 20 };

typedef struct {
    const gc_rank *g;
    pm_rank m;
    char *image; /* pinned; what is put and what is got */
    symmWindow_t win[2];
    int32_t *words; /* the host's side of m.sum */
} gm_rank;

static inline cu_stream gm_cu(symmStream_t s) {
    return (cu_stream)(void *)s;
}

/* [collective] */
static inline gm_rank gm_open(const gc_rank *g, symmComm_t comm) {
    gm_rank r = {.g = g, .m = {.rank = g->rank, .n = g->n, .comm = comm}};
    T_OK(symmSetDevice(g->rank % g->devices));
    for (int i = 0; i < PM_STREAMS; i++) r.m.streams[i] = gk_stream(gk_new_stream());
    for (int way = 0; way < 2; way++) {
        r.m.half[way][0] = gk_plain(GM_HALF);
        T_OK(symmMemAlloc((void **)&r.m.half[way][1], GM_HALF));
        T_OK(symmWindowRegister(comm, r.m.half[way][1], GM_HALF, &r.win[way], SYMM_WIN_DEFAULT));
    }
    r.m.sum = (int32_t *)(void *)gk_plain(2 * PM_SUM * sizeof(int32_t));
    r.image = gk_pinned(GM_HALF);
    r.words = (int32_t *)(void *)gk_pinned(2 * PM_SUM * sizeof(int32_t));
    r.m.rolls = ck_hash(g->seed, (uint64_t)g->rank, 77);
    gc_meet(g);
    return r;
}

/* Ends the communicator too, and its windows with it. [collective] */
static inline void gm_close(gm_rank *r) {
    gc_meet(r->g);
    T_OK(symmCommDestroy(r->m.comm));
    gc_meet(r->g);
    for (int way = 0; way < 2; way++) {
        gk_free_plain(r->m.half[way][0]);
        T_OK(symmMemFree(r->m.half[way][1]));
    }
    gk_free_plain((char *)r->m.sum);
    gk_free_pinned(r->image);
    gk_free_pinned((char *)r->words);
    for (int i = 0; i < PM_STREAMS; i++) CU(cuStreamDestroy(gm_cu(r->m.streams[i])));
    gc_meet(r->g);
}

/* Messages of a step lie apart, so one image does for all halves: what is in no message is
 * nobody's. */
static inline void gm_prepare(gm_rank *r, const pm_step *st) {
    const cu_stream s = gm_cu(r->m.streams[0]);
    for (int i = 0; i < st->n; i++) {
        const pm_message *m = &st->m[i];
        char *at = r->image + m->at;
        if (m->from == r->m.rank) {
            pk_fill(at, m->bytes, m->from, m->to, m->no);
            gk_put(s, pm_place(&r->m, m, 1), at, m->bytes);
            gk_wait(r->m.comm, s); /* the image may be written again */
        }
        if (m->to == r->m.rank)
            gk_fill(s, pm_place(&r->m, m, 0) - PK_GUARD, m->bytes + 2 * PK_GUARD, PK_EMPTY);
    }
    for (int i = 0; i < PM_SUM; i++) r->words[i] = r->m.rank * 1000 + i;
    gk_put(s, r->m.sum, r->words, PM_SUM * sizeof *r->words);
    gk_wait(r->m.comm, s);
}

static inline void gm_check(gm_rank *r, const pm_step *st) {
    const cu_stream s = gm_cu(r->m.streams[0]);
    const int n = r->m.n;
    for (int i = 0; i < st->n; i++) {
        const pm_message *m = &st->m[i];
        if (m->to != r->m.rank) continue;
        gk_get(r->m.comm, s, r->image, pm_place(&r->m, m, 0) - PK_GUARD, m->bytes + 2 * PK_GUARD);
        pk_received(r->image + PK_GUARD, m->bytes, m->from, m->to, m->no);
    }
    if (!st->sums) return;
    gk_get(r->m.comm, s, r->words, r->m.sum + PM_SUM, PM_SUM * sizeof *r->words);
    for (int i = 0; i < PM_SUM; i++) T_EQ(r->words[i], n * (n - 1) / 2 * 1000 + n * i);
}

/* How a rank makes its calls is its own affair: eager on one stream or, in a group, on several;
 * captured. */
static inline void gm_step(gm_rank *r, const pm_step *st) {
    const uint64_t how = t_draw(&r->m.rolls, 8);
    pm_streams s = {{r->m.streams[how % PM_STREAMS]}, 1};
    gk_graph graph = {NULL, NULL};
    const int captured = how >= 5;
    if (how < 2 && st->grouped)
        for (s.n = 0; s.n < PM_STREAMS; s.n++) s.at[s.n] = r->m.streams[s.n];
    gm_prepare(r, st);
    if (captured) {
        gk_capture(gm_cu(s.at[0]), SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        pm_call(&r->m, st, &s);
        graph = gk_captured(gm_cu(s.at[0]));
    }
    gc_meet(r->g);
    for (int i = 0; i < st->repeats; i++) {
        if (captured)
            CU(cuGraphLaunch(graph.exec, gm_cu(s.at[0])));
        else
            pm_call(&r->m, st, &s);
    }
    for (int i = 0; i < s.n; i++) gk_wait(r->m.comm, gm_cu(s.at[i]));
    gc_meet(r->g);
    if (captured) gk_drop(&graph);
    gm_check(r, st);
}

/* Random schedules; `cases` of them. Ends the communicator. */
static inline void gm_schedules(const gc_rank *g, symmComm_t comm, int cases) {
    gm_rank r = gm_open(g, comm);
    pm_step st;
    for (int i = 0; i < cases; i++) {
        pm_draw(&st, ck_hash(g->seed, (uint64_t)i, 9), g->n, GM_HALF);
        gm_step(&r, &st);
    }
    gm_close(&r);
}

#endif
