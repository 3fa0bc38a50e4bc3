/* unit_gplan.c - the planner of graph memory on synthetic graphs. The names say which item of the
 * list of graph memory nodes a test is about (G.3 what orders what, G.4.1 reuse inside a graph).
 * One thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "host/place/gplan.h"
#include "t.h"

enum { KB = 1024 };

static symm_gplan *new_plan(int nranks, int zone, uint64_t bytes) {
    symm_gplan *p = symm_gplan_new(nranks);
    T_CHECK(p != NULL);
    T_EQ(symm_gplan_offer(p, zone, 0, bytes), 0);
    return p;
}

static int point(symm_gplan *p, int kind, int n, const int *after) {
    int id = symm_gplan_point(p, kind, after, n);
    T_CHECK(id >= 0);
    return id;
}
#define POINT(p, ...)                                                                       \
    point(p, SYMM_POINT_PLAIN, (int)(sizeof((int[]){-1, ##__VA_ARGS__}) / sizeof(int)) - 1, \
          (int[]){-1, ##__VA_ARGS__} + 1)
#define HEAR(p, ...)                                                                       \
    point(p, SYMM_POINT_HEAR, (int)(sizeof((int[]){-1, ##__VA_ARGS__}) / sizeof(int)) - 1, \
          (int[]){-1, ##__VA_ARGS__} + 1)

/* The offset, which there must be. */
static uint64_t take(symm_gplan *p, int at, int zone, uint64_t bytes, int *block) {
    int why = -1;
    uint64_t off = symm_gplan_alloc(p, at, zone, bytes, 1, block, &why);
    T_CHECKF(off != SYMM_GPLAN_NONE, "no block of %llu bytes: %d", (unsigned long long)bytes, why);
    return off;
}

static void refused(symm_gplan *p, int at, int zone, uint64_t bytes, int want) {
    int why = -1, block = -77;
    T_EQ(symm_gplan_alloc(p, at, zone, bytes, 1, &block, &why), SYMM_GPLAN_NONE);
    T_EQ(why, want);
    T_EQ(block, -77);
}

/* ---- G.4.1 ----------------------------------------------------------------------------------- */

static void G_4_1_a_chain_uses_one_place_again(void) {
    symm_gplan *p = new_plan(1, SYMM_MEM_LOCAL, 64 * KB);
    int at = POINT(p), block;
    for (int i = 0; i < 500; i++) {
        T_EQ(take(p, at, SYMM_MEM_LOCAL, 8 * KB, &block), 0);
        at = POINT(p, at);
        T_EQ(symm_gplan_free(p, at, block), 0);
        at = POINT(p, at);
    }
    T_EQ(symm_gplan_footprint(p, SYMM_MEM_LOCAL), 8 * KB);
    symm_gplan_end(p);
}

static void G_4_1_a_sibling_gets_a_place_of_its_own(void) {
    symm_gplan *p = new_plan(1, SYMM_MEM_LOCAL, 64 * KB);
    int fork = POINT(p), a = POINT(p, fork), b = POINT(p, fork), first, second, third;
    T_EQ(take(p, a, SYMM_MEM_LOCAL, 4 * KB, &first), 0);
    int freed = POINT(p, a);
    T_EQ(symm_gplan_free(p, freed, first), 0);
    /* b does not come after the free, however much later it is asked for */
    T_EQ(take(p, b, SYMM_MEM_LOCAL, 4 * KB, &second), 4 * KB);
    int joined = POINT(p, freed, b);
    T_EQ(take(p, joined, SYMM_MEM_LOCAL, 4 * KB, &third), 0);
    T_EQ(symm_gplan_free(p, joined, second), 0);
    T_EQ(take(p, POINT(p, joined), SYMM_MEM_LOCAL, 8 * KB, &third), 4 * KB);
    symm_gplan_end(p);
}

static void G_4_1_order_passes_through_any_path(void) {
    symm_gplan *p = new_plan(1, SYMM_MEM_LOCAL, 64 * KB);
    int a = POINT(p), block;
    take(p, a, SYMM_MEM_LOCAL, 4 * KB, &block);
    int f = POINT(p, a), x = POINT(p, f), y = POINT(p, x), side = POINT(p);
    T_EQ(symm_gplan_free(p, f, block), 0);
    T_EQ(symm_gplan_follows(p, y, a), 1);
    T_EQ(symm_gplan_follows(p, a, y), 0);
    T_EQ(symm_gplan_follows(p, side, a), 0);
    T_EQ(take(p, POINT(p, y, side), SYMM_MEM_LOCAL, 4 * KB, &block), 0);
    symm_gplan_end(p);
}

/* The seed's nodes d and e: a use that is not before the free, or not after the alloc. */
static void G_3_1_a_free_comes_after_its_alloc(void) {
    symm_gplan *p = new_plan(1, SYMM_MEM_LOCAL, 64 * KB);
    int root = POINT(p), a = POINT(p, root), other = POINT(p, root), block;
    take(p, a, SYMM_MEM_LOCAL, 4 * KB, &block);
    T_EQ(symm_gplan_free(p, other, block), -2);
    T_EQ(symm_gplan_free(p, root, block), -2);
    T_EQ(symm_gplan_freed(p, block), 0);
    int f = POINT(p, a);
    T_EQ(symm_gplan_free(p, f, block), 0);
    T_EQ(symm_gplan_free(p, POINT(p, f), block), -1); /* twice in one graph */
    T_EQ(symm_gplan_freed(p, block), 1);
    symm_gplan_end(p);
}

/* ---- several ranks --------------------------------------------------------------------------- */

static void G_3_3_other_ranks_must_have_been_heard(void) {
    symm_gplan *p = new_plan(2, SYMM_MEM_SYM, 1024 * KB);
    int start = POINT(p), block, big;
    refused(p, start, SYMM_MEM_SYM, 64 * KB, SYMM_GPLAN_HEAR); /* the replay before may still run */
    int heard = HEAR(p, start);
    T_EQ(take(p, heard, SYMM_MEM_SYM, 64 * KB, &block), 0);
    int freed = POINT(p, heard);
    T_EQ(symm_gplan_free(p, freed, block), 0);
    int later = POINT(p, freed);
    /* 64 KB wait for it: enough to ask */
    refused(p, later, SYMM_MEM_SYM, 64 * KB, SYMM_GPLAN_HEAR);
    int again = HEAR(p, later);
    T_EQ(take(p, again, SYMM_MEM_SYM, 64 * KB, &big), 0);
    symm_gplan_end(p);
}

static void G_3_3_a_call_beside_the_free_does_not_count(void) {
    symm_gplan *p = new_plan(2, SYMM_MEM_SYM, 1024 * KB);
    int heard = HEAR(p), a = POINT(p, heard), b = POINT(p, heard), block, second, why;
    take(p, a, SYMM_MEM_SYM, 64 * KB, &block);
    int freed = POINT(p, a), beside = HEAR(p, b), join = POINT(p, freed, beside);
    T_EQ(symm_gplan_free(p, freed, block), 0);
    T_EQ(symm_gplan_after_all(p, join), 1);
    T_EQ(symm_gplan_after_all(p, freed), 0);
    T_EQ(symm_gplan_alloc(p, join, SYMM_MEM_SYM, 64 * KB, 0, &second, &why), 64 * KB);
    symm_gplan_end(p);
}

static void hears_are_asked_for_once_for_many_small_blocks(void) {
    enum { BLOCKS = 1000, BYTES = 1024 };
    symm_gplan *p = new_plan(4, SYMM_MEM_SYM, 16 << 20);
    int at = HEAR(p), block, why, hears = 0;
    for (int i = 0; i < BLOCKS; i++) {
        while (symm_gplan_alloc(p, at, SYMM_MEM_SYM, BYTES, 1, &block, &why) == SYMM_GPLAN_NONE) {
            T_EQ(why, SYMM_GPLAN_HEAR);
            at = HEAR(p, at);
            hears++;
        }
        at = POINT(p, at);
        T_EQ(symm_gplan_free(p, at, block), 0);
    }
    T_CHECKF(hears > 0 && hears <= BLOCKS * BYTES / (int)SYMM_GPLAN_FLOOR, "%d hears", hears);
    T_CHECK(symm_gplan_footprint(p, SYMM_MEM_SYM) <= SYMM_GPLAN_FLOOR + BYTES);
    symm_gplan_end(p);
}

static void local_blocks_and_single_ranks_need_none(void) {
    symm_gplan *p = new_plan(8, SYMM_MEM_LOCAL, 64 * KB), *q = new_plan(1, SYMM_MEM_SYM, 64 * KB);
    int at = POINT(p), b;
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 64 * KB, &b), 0);
    T_EQ(symm_gplan_free(p, at, b), 0);
    T_EQ(take(p, POINT(p, at), SYMM_MEM_LOCAL, 64 * KB, &b), 0);
    at = POINT(q);
    T_EQ(take(q, at, SYMM_MEM_SYM, 64 * KB, &b), 0);
    T_EQ(symm_gplan_free(q, at, b), 0);
    T_EQ(take(q, POINT(q, at), SYMM_MEM_SYM, 64 * KB, &b), 0);
    symm_gplan_end(p);
    symm_gplan_end(q);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* A range that joins the one before it may touch the one behind it only then. */
static void an_offer_joins_all_that_it_touches(void) {
    symm_gplan *p = symm_gplan_new(1);
    int at = POINT(p), b;
    for (int i = 0; i < 3; i++)
        T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, (uint64_t)i * 20 * KB, 10 * KB), 0);
    refused(p, at, SYMM_MEM_LOCAL, 50 * KB, SYMM_GPLAN_SPACE);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, 5 * KB, 40 * KB), 0);
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 50 * KB, &b), 0);
    symm_gplan_end(p);
}

static void blocks_lie_in_what_is_offered_and_not_barred(void) {
    symm_gplan *p = symm_gplan_new(1);
    int at = POINT(p), b;
    refused(p, at, SYMM_MEM_LOCAL, 256, SYMM_GPLAN_SPACE);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, 100 * KB, 10 * KB), 0);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, 10 * KB, 10 * KB), 0);
    T_EQ(symm_gplan_bar(p, SYMM_MEM_LOCAL, 12 * KB, 4 * KB), 0);
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 2 * KB, &b), 10 * KB);
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 4 * KB, &b), 16 * KB);
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 4 * KB, &b), 100 * KB);
    refused(p, at, SYMM_MEM_LOCAL, 8 * KB, SYMM_GPLAN_SPACE);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, 110 * KB, 2 * KB), 0); /* joins the range before it */
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 8 * KB, &b), 104 * KB);
    T_EQ(symm_gplan_footprint(p, SYMM_MEM_LOCAL), 18 * KB);
    T_EQ(symm_gplan_touches(p, SYMM_MEM_LOCAL, 12 * KB, 4 * KB), 0);
    T_EQ(symm_gplan_touches(p, SYMM_MEM_LOCAL, 11 * KB, 4 * KB), 1);
    refused(p, at, SYMM_MEM_SYM, 256, SYMM_GPLAN_SPACE);
    symm_gplan_end(p);
}

/* ---- random graphs against what order means -------------------------------------------------- */

enum { NODES = 160 };
typedef struct {
    uint64_t off, bytes;
    int from, to, zone;
} life;
typedef struct {
    int after[NODES][NODES]; /* [x][y]: x comes after y; by its own closure */
    int hear[NODES];
    life lives[NODES];
    int n, nlives;
} model;

static uint64_t seed;
static unsigned next(unsigned n) {
    return (unsigned)t_draw(&seed, n);
}

static int ended_before(const model *m, const life *a, const life *b, int nranks) {
    if (a->to < 0 || (a->to != b->from && !m->after[b->from][a->to])) return 0;
    if (a->zone == SYMM_MEM_LOCAL || nranks == 1) return 1;
    for (int h = 0; h < m->n; h++)
        if (m->hear[h] && m->after[h][a->to] && (h == b->from || m->after[b->from][h])) return 1;
    return 0;
}

static void check_lives(const model *m, int nranks) {
    for (int i = 0; i < m->nlives; i++)
        for (int k = i + 1; k < m->nlives; k++) {
            const life *a = &m->lives[i], *b = &m->lives[k];
            if (a->zone != b->zone || a->off >= b->off + b->bytes || b->off >= a->off + a->bytes)
                continue;
            T_CHECKF(ended_before(m, a, b, nranks) || ended_before(m, b, a, nranks),
                     "blocks %d and %d lie on one another and may live together", i, k);
        }
}

static int random_point(model *m, symm_gplan *p, int hear) {
    int deps[4], n = 0, id = m->n;
    for (int i = 0; i < 3 && id; i++)
        if (i == 0 || next(2)) deps[n++] = id - 1 - (int)next(id < 12 ? (unsigned)id : 12);
    T_EQ(symm_gplan_point(p, hear ? SYMM_POINT_HEAR : SYMM_POINT_PLAIN, deps, n), id);
    for (int i = 0; i < n; i++) {
        m->after[id][deps[i]] = 1;
        for (int k = 0; k < id; k++) m->after[id][k] |= m->after[deps[i]][k];
    }
    m->hear[id] = hear;
    m->n++;
    return id;
}

static void random_alloc(model *m, symm_gplan *p, int at, int nranks, uint64_t *sum) {
    life *l = &m->lives[m->nlives];
    int block = -1, why = 0;
    *l = (life){.bytes = 256 * (1 + next(64)), .from = at, .to = -1, .zone = (int)next(2)};
    l->off = symm_gplan_alloc(p, at, l->zone, l->bytes, (int)next(2), &block, &why);
    *sum = *sum * 31 + l->off;
    if (l->off == SYMM_GPLAN_NONE) {
        T_CHECK(why == SYMM_GPLAN_HEAR && l->zone == SYMM_MEM_SYM && nranks > 1);
        return;
    }
    T_EQ(block, m->nlives);
    m->nlives++;
}

static uint64_t random_graph(uint64_t from, int nranks) {
    static model m;
    uint64_t sum = 0;
    memset(&m, 0, sizeof m);
    seed = from;
    symm_gplan *p = new_plan(nranks, SYMM_MEM_LOCAL, 64 << 20);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_SYM, 0, 64 << 20), 0);
    while (m.n < NODES) {
        int at = random_point(&m, p, next(6) == 0), k = (int)next(NODES);
        if (next(3)) random_alloc(&m, p, at, nranks, &sum);
        if (k >= m.nlives || m.lives[k].to >= 0) continue;
        int may = m.lives[k].from == at || m.after[at][m.lives[k].from];
        T_EQ(symm_gplan_free(p, at, k), may ? 0 : -2);
        if (may) m.lives[k].to = at;
    }
    for (int x = 0; x < NODES; x++)
        for (int y = 0; y < NODES; y++) T_EQ(symm_gplan_follows(p, x, y), x == y || m.after[x][y]);
    check_lives(&m, nranks);
    symm_gplan_end(p);
    return sum;
}

static void random_graphs_never_put_two_lives_in_one_place(void) {
    for (uint64_t i = 0; i < 300; i++) {
        int nranks = 1 + (int)(i % 3);
        T_EQ(random_graph(i * 77 + 1, nranks), random_graph(i * 77 + 1, nranks)); /* twice alike */
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int scenario(void) {
    int bad = 0, at = -1, block, why;
    symm_gplan *p = symm_gplan_new(2);
    if (!p) return 1;
    bad |= symm_gplan_offer(p, SYMM_MEM_SYM, 0, 1 << 20) < 0;
    for (int i = 0; i < 5 && !bad; i++) {
        int next_point = symm_gplan_point(p, SYMM_POINT_HEAR, &at, at >= 0);
        if (next_point < 0) {
            bad = 1;
            break;
        }
        at = next_point;
        if (symm_gplan_alloc(p, at, SYMM_MEM_SYM, 4096, 1, &block, &why) == SYMM_GPLAN_NONE) {
            T_EQ(why, SYMM_GPLAN_MEMORY);
            bad = 1;
        }
    }
    if (!bad) T_EQ(symm_gplan_footprint(p, SYMM_MEM_SYM), 5 * 4096);
    symm_gplan_end(p);
    return bad;
}

static void every_lack_of_memory_is_told(void) {
    static const char *const points[] = {"gplan_alloc", "gplan_room", "gplan_point", "gplan_list"};
    static const int ids[] = {symm_fp_gplan_alloc, symm_fp_gplan_room, symm_fp_gplan_point,
                              symm_fp_gplan_list};
    for (int i = 0; i < 4; i++)
        for (int nth = 1;; nth++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:error:%d", points[i], nth);
            T_EQ(symm_fail_arm(spec), 0);
            int bad = scenario();
            if (symm_fail_hits(ids[i]) < nth) {
                T_CHECK(nth > 1 && !bad);
                break;
            }
            T_CHECKF(bad, "%s: nobody noticed", spec);
        }
    T_EQ(symm_fail_arm(""), 0);
}

/* ---- G.6 ------------------------------------------------------------------------------------- */

static void G_6_what_is_withdrawn_is_barred_no_more(void) {
    symm_gplan *p = new_plan(1, SYMM_MEM_LOCAL, 16 * KB);
    int at = POINT(p), block;
    T_EQ(symm_gplan_bar(p, SYMM_MEM_LOCAL, 2 * KB, 4 * KB), 0);
    T_EQ(symm_gplan_bar(p, SYMM_MEM_LOCAL, 12 * KB, 2 * KB), 0);
    refused(p, at, SYMM_MEM_LOCAL, 8 * KB, SYMM_GPLAN_SPACE);
    T_EQ(symm_gplan_withdraw(p, SYMM_MEM_LOCAL, 4 * KB, 8 * KB), 0);
    T_EQ(symm_gplan_offer(p, SYMM_MEM_LOCAL, 4 * KB, 8 * KB), 0); /* to another block's bytes */
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 12 * KB, &block), 0);
    T_EQ(take(p, at, SYMM_MEM_LOCAL, 2 * KB, &block), 14 * KB); /* the other bar stands */
    symm_gplan_end(p);
}

/* At random, against a map of units: what is offered and not withdrawn since is taken, unit by
 * unit, and nothing else. */
static void G_6_what_is_withdrawn_is_not_used(void) {
    enum { UNITS = 48, UNIT = 256 };
    uint64_t state = 1;
    for (int trial = 0; trial < 300; trial++) {
        int map[UNITS] = {0}, why = 0, block;
        symm_gplan *p = symm_gplan_new(1);
        T_CHECK(p != NULL);
        const int at = POINT(p);
        for (int i = 0; i < 12; i++) {
            t_roll(&state);
            const unsigned off = (unsigned)(state >> 33) % UNITS;
            const unsigned n = 1 + (unsigned)(state >> 45) % (UNITS - off), give = state >> 60 & 1;
            T_EQ((give ? symm_gplan_offer : symm_gplan_withdraw)(p, SYMM_MEM_LOCAL, off * UNIT,
                                                                 n * UNIT),
                 0);
            for (unsigned u = off; u < off + n; u++) map[u] = (int)give;
        }
        for (int u = 0; u < UNITS; u++)
            if (map[u]) T_EQ(take(p, at, SYMM_MEM_LOCAL, UNIT, &block), (uint64_t)u * UNIT);
        T_EQ(symm_gplan_alloc(p, at, SYMM_MEM_LOCAL, UNIT, 1, &block, &why), SYMM_GPLAN_NONE);
        T_EQ(why, SYMM_GPLAN_SPACE);
        symm_gplan_end(p);
    }
}

T_MAIN(T(G_4_1_a_chain_uses_one_place_again), T(G_4_1_a_sibling_gets_a_place_of_its_own),
       T(G_4_1_order_passes_through_any_path), T(G_3_1_a_free_comes_after_its_alloc),
       T(G_3_3_other_ranks_must_have_been_heard), T(G_3_3_a_call_beside_the_free_does_not_count),
       T(hears_are_asked_for_once_for_many_small_blocks),
       T(local_blocks_and_single_ranks_need_none), T(an_offer_joins_all_that_it_touches),
       T(blocks_lie_in_what_is_offered_and_not_barred),
       T(random_graphs_never_put_two_lives_in_one_place), T(every_lack_of_memory_is_told),
       T(G_6_what_is_withdrawn_is_not_used), T(G_6_what_is_withdrawn_is_barred_no_more))
