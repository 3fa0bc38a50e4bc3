/* unit_place.c - the placement engine: each line of its contract, and random calls beside a naive
 * model, with the nodes that the library has and with tiny ones, where trees are deep and split
 * and join all the time. One thread. */
#include <errno.h>
#include <stdlib.h>

#include "t.h"
#define pk_require(cond) T_CHECK(cond)
#include "place_kit.h"
#include "base/fail.h"

#define U ((uint64_t)SYMM_PLACE_UNIT)

static uint64_t seed, state;

static void start(void) {
    const char *s = getenv("T_SEED");
    seed = s ? strtoull(s, NULL, 0) : 0x5eed1;
    state = seed;
}

static uint64_t draw(uint64_t below) {
    return t_draw(&state, below);
}

#ifndef FAR
#define FAR 0 /* unit_place_wide.c: a range there, which is taken out again */
#endif

static symm_place *new_place(int fit, uint64_t units) {
    symm_place *p = symm_place_new(fit);
    T_CHECK(p != NULL);
    if (FAR) T_EQ(symm_place_add(p, FAR, U) | symm_place_cut(p, FAR, U), 0);
    if (units) T_EQ(symm_place_add(p, 0, units * U), 0);
    return p;
}

static symm_place_stats measure(const symm_place *p) {
    symm_place_stats s;
    symm_place_measure(p, &s);
    return s;
}

static uint64_t take(symm_place *p, uint64_t units) {
    uint64_t off = symm_place_take(p, units * U, U, 0, NULL);
    return off == SYMM_PLACE_NONE ? off : off / U;
}

/* ---- the contract, line by line -------------------------------------------------------------- */

static void a_new_engine_has_no_free_range(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 0);
    symm_piece q;
    int why = 0;
    T_EQ(symm_place_take(p, 1, U, 0, &why), SYMM_PLACE_NONE);
    T_EQ(why, ENOSPC);
    T_EQ(symm_place_at(p, 0, &q), 0);
    T_EQ(symm_place_at(p, UINT64_MAX, &q), 0);
    T_EQ(symm_place_give(p, 0), 0);
    T_EQ(symm_place_cut(p, 0, U), -1);
    T_EQ(symm_place_take_at(p, 0, U, 0), -1);
    symm_place_stats s = measure(p);
    T_CHECK(!s.free && !s.used && !s.largest && !s.peak && !s.peak_used && !s.blocks && !s.holes);
    symm_place_end(p);
    symm_place_end(NULL);
}

static void ranges_join_with_their_neighbours(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 0);
    T_EQ(symm_place_add(p, 0, 4 * U), 0);
    T_EQ(symm_place_add(p, 8 * U, 4 * U), 0);
    T_EQ(measure(p).holes, 2);
    T_EQ(symm_place_take(p, 5 * U, U, 0, NULL), SYMM_PLACE_NONE);
    T_EQ(symm_place_add(p, 4 * U, 4 * U), 0);
    T_EQ(measure(p).holes, 1);
    T_EQ(measure(p).largest, 12 * U);
    T_EQ(take(p, 12), 0);
    T_EQ(symm_place_add(p, 12 * U, U), 0); /* behind a block */
    T_EQ(symm_place_add(p, 20 * U, U), 0); /* behind nothing */
    T_EQ(measure(p).holes, 2);
    symm_place_end(p);
}

static void ranges_that_are_known_or_no_ranges_are_refused(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 8);
    T_EQ(take(p, 2), 0);
    static const struct {
        uint64_t off, bytes;
    } bad[] = {{0, U},
               {U, U},
               {7 * U, 2 * U},
               {8 * U, 0},
               {8 * U, 1},
               {8 * U + 1, U},
               {0, 16 * U},
               {UINT64_MAX - U + 1, U},
               {8 * U, 1ull << 63},
               {9 * U, UINT64_MAX - U + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        T_CHECKF(symm_place_add(p, bad[i].off, bad[i].bytes) == -1, "range %zu was added", i);
    T_EQ(measure(p).free, 6 * U);
    T_EQ(symm_place_add(p, UINT64_MAX - 2 * U + 1, U), 0); /* the last that can end */
    T_EQ(measure(p).free, 7 * U);
    symm_place_end(p);
}

static void what_is_cut_is_forgotten(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    symm_piece q;
    T_EQ(symm_place_cut(p, 4 * U, 4 * U), 0); /* out of the middle */
    T_EQ(measure(p).free, 12 * U);
    T_EQ(symm_place_at(p, 5 * U, &q), 1); /* the first behind it */
    T_CHECK(q.off == 8 * U && q.bytes == 8 * U && !q.used);
    T_EQ(take(p, 5), 8);
    T_EQ(symm_place_cut(p, 3 * U, 2 * U), -1);
    T_EQ(symm_place_cut(p, 12 * U, 2 * U), -1);
    T_EQ(symm_place_cut(p, 0, 4 * U), 0);  /* a whole hole */
    T_EQ(symm_place_cut(p, 13 * U, U), 0); /* its front */
    T_EQ(symm_place_cut(p, 15 * U, U), 0); /* its end */
    T_EQ(measure(p).free, U);
    T_EQ(symm_place_give(p, 8 * U), 5 * U);
    T_EQ(measure(p).largest, 5 * U); /* 13 is missing in between */
    T_EQ(symm_place_add(p, 13 * U, U), 0);
    T_EQ(measure(p).largest, 7 * U);
    symm_place_end(p);
}

static void first_fit_is_the_lowest(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 64);
    for (unsigned i = 0; i < 8; i++) T_EQ(take(p, 8), 8 * i);
    T_EQ(symm_place_give(p, 8 * U), 8 * U);
    T_EQ(symm_place_give(p, 40 * U), 8 * U);
    T_EQ(symm_place_give(p, 48 * U), 8 * U);
    T_EQ(take(p, 9), 40);
    T_EQ(take(p, 3), 8);
    T_EQ(take(p, 6), 49);
    T_EQ(take(p, 5), 11);
    symm_place_end(p);
}

static void best_fit_is_the_smallest_and_of_those_the_lowest(void) {
    symm_place *p = new_place(SYMM_PLACE_BEST, 64);
    for (unsigned i = 0; i < 8; i++) T_EQ(take(p, 8), 8 * i);
    T_EQ(symm_place_give(p, 0), 8 * U);
    T_EQ(symm_place_give(p, 8 * U), 8 * U);
    T_EQ(symm_place_give(p, 24 * U), 8 * U);
    T_EQ(symm_place_give(p, 56 * U), 8 * U);
    T_EQ(take(p, 7), 24);
    T_EQ(take(p, 1), 31);
    T_EQ(take(p, 7), 56);
    T_EQ(take(p, 2), 0);
    T_EQ(take(p, 1), 63);
    symm_place_end(p);
}

static void sizes_are_rounded_to_the_unit(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 8);
    T_EQ(symm_place_take(p, 1, U, 0, NULL), 0);
    T_EQ(symm_place_take(p, U + 1, U, 0, NULL), U);
    T_EQ(symm_place_block(p, U, NULL), 2 * U);
    T_EQ(measure(p).used, 3 * U);
    T_EQ(symm_place_take(p, 0, U, 0, NULL), SYMM_PLACE_NONE);
    T_EQ(symm_place_take(p, UINT64_MAX, U, 0, NULL), SYMM_PLACE_NONE);
    T_EQ(symm_place_take(p, 1ull << 63, U, 0, NULL), SYMM_PLACE_NONE);
    T_EQ(symm_place_take(p, INT64_MAX, U, 0, NULL), SYMM_PLACE_NONE);
    symm_place_end(p);
}

/* What alignment leaves before a block can be taken, and comes back as one piece. */
static void alignment_leaks_nothing(void) {
    for (int fit = 0; fit < 2; fit++) {
        symm_place *p = new_place(fit, 64);
        T_EQ(take(p, 1), 0);
        T_EQ(symm_place_take(p, 4 * U, 16 * U, 0, NULL), 16 * U);
        T_EQ(measure(p).free, 59 * U);
        T_EQ(take(p, 15), 1);
        T_EQ(symm_place_take(p, 17 * U, 32 * U, 0, NULL), 32 * U);
        T_EQ(symm_place_take(p, U, 32 * U, 0, NULL), SYMM_PLACE_NONE);
        T_EQ(symm_place_give(p, 16 * U), 4 * U);
        T_EQ(symm_place_give(p, U), 15 * U);
        T_EQ(symm_place_give(p, 32 * U), 17 * U);
        T_EQ(symm_place_give(p, 0), U);
        T_EQ(measure(p).largest, 64 * U);
        T_EQ(measure(p).holes, 1);
        symm_place_end(p);
    }
}

static void alignment_near_the_end_of_offsets(void) {
    for (int fit = 0; fit < 2; fit++) {
        symm_place *p = new_place(fit, 0);
        uint64_t top = UINT64_MAX - 8 * U + 1;
        T_EQ(symm_place_add(p, top, 7 * U), 0);
        T_EQ(symm_place_take(p, U, 1ull << 63, 0, NULL), SYMM_PLACE_NONE);
        T_EQ(symm_place_take(p, U, 16 * U, 0, NULL), SYMM_PLACE_NONE);
        T_EQ(symm_place_take(p, 4 * U, 4 * U, 0, NULL), top);
        T_EQ(symm_place_take(p, 4 * U, 4 * U, 0, NULL), SYMM_PLACE_NONE);
        T_EQ(symm_place_take(p, U, 4 * U, 0, NULL), top + 4 * U);
        symm_place_end(p);
    }
}

/* Holes between two aligned places are skipped: thousands of them in a moment. */
static void many_holes_too_short_for_an_alignment(void) {
    enum { N = 20000, ALIGN = 4096 };
    symm_place *p = new_place(SYMM_PLACE_FIRST, 4 * N);
    for (unsigned i = 0; i < 2 * N; i++) T_EQ(take(p, 1), i);
    for (unsigned i = 1; i < 2 * N; i += 2) T_EQ(symm_place_give(p, i * U), U); /* odd ones only */
    T_EQ(measure(p).holes, N);
    for (unsigned i = 0; i < 8; i++)
        T_EQ(symm_place_take(p, U, ALIGN * U, 0, NULL), (2 * N / ALIGN + 1 + i) * ALIGN * U);
    symm_place_end(p);
}

static void a_block_at_an_exact_place(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    uint64_t tag = 0;
    T_EQ(symm_place_take_at(p, 4 * U, 4 * U, 77), 0);
    T_EQ(symm_place_block(p, 4 * U, &tag), 4 * U);
    T_EQ(tag, 77);
    T_EQ(symm_place_take_at(p, 2 * U, 4 * U, 0), -1);
    T_EQ(symm_place_take_at(p, 7 * U, 4 * U, 0), -1);
    T_EQ(symm_place_take_at(p, 14 * U, 4 * U, 0), -1);
    T_EQ(symm_place_take_at(p, 8 * U + 1, U, 0), -1);
    T_EQ(symm_place_take_at(p, 8 * U, 0, 0), -1);
    T_EQ(symm_place_take_at(p, 8 * U, UINT64_MAX, 0), -1);
    T_EQ(measure(p).used, 4 * U);
    T_EQ(symm_place_take_at(p, 0, 4 * U, 0), 0);
    T_EQ(symm_place_take_at(p, 8 * U, 8 * U, 0), 0);
    T_EQ(measure(p).holes, 0);
    symm_place_end(p);
}

static void give_tells_what_it_freed(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    T_EQ(take(p, 4), 0);
    T_EQ(take(p, 4), 4);
    T_EQ(symm_place_give(p, U), 0); /* inside */
    T_EQ(symm_place_give(p, 1), 0);
    T_EQ(symm_place_give(p, 8 * U), 0); /* a hole */
    T_EQ(symm_place_give(p, 99 * U), 0);
    T_EQ(symm_place_give(p, UINT64_MAX), 0);
    T_EQ(measure(p).used, 8 * U);
    T_EQ(symm_place_give(p, 0), 4 * U);
    T_EQ(symm_place_give(p, 0), 0); /* twice */
    T_EQ(symm_place_give(p, 4 * U), 4 * U);
    T_EQ(measure(p).largest, 16 * U);
    T_EQ(measure(p).peak, 8 * U);
    T_EQ(measure(p).peak_used, 8 * U);
    symm_place_end(p);
}

static void give_if_asks_for_the_tag(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    uint64_t was = 1;
    T_EQ(symm_place_take(p, 2 * U, U, 0x1234, NULL), 0);
    T_EQ(symm_place_give_if(p, 0, 0xff, 0x35, &was), 0);
    T_EQ(was, 1);
    T_EQ(symm_place_give_if(p, U, 0, 0, &was), 0);
    T_EQ(symm_place_block(p, 0, NULL), 2 * U);
    T_EQ(symm_place_give_if(p, 0, 0xff, 0x34, &was), 2 * U);
    T_EQ(was, 0x1234);
    T_EQ(symm_place_give_if(p, 0, 0, 0, NULL), 0);
    T_EQ(measure(p).largest, 16 * U);
    symm_place_end(p);
}

static void blocks_change_their_length_in_place(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    T_EQ(symm_place_take(p, 4 * U, U, 9, NULL), 0);
    T_EQ(take(p, 4), 4);
    T_EQ(symm_place_resize(p, 0, 5 * U), -1); /* a block is behind it */
    T_EQ(symm_place_resize(p, 0, 3 * U - 1), 0);
    T_EQ(symm_place_block(p, 0, NULL), 3 * U);
    T_EQ(symm_place_resize(p, 0, U), 0); /* the hole behind it grows */
    T_EQ(measure(p).holes, 2);
    T_EQ(symm_place_resize(p, 0, 5 * U), -1);
    T_EQ(symm_place_resize(p, 0, 2 * U), 0);
    T_EQ(symm_place_resize(p, 0, 4 * U), 0); /* all of it */
    T_EQ(measure(p).holes, 1);
    T_EQ(symm_place_resize(p, 4 * U, 12 * U), 0);
    T_EQ(measure(p).peak, 16 * U);
    T_EQ(measure(p).peak_used, 16 * U);
    T_EQ(symm_place_resize(p, 4 * U, 13 * U), -1); /* nothing is behind it */
    T_EQ(symm_place_resize(p, 4 * U, 0), -1);
    T_EQ(symm_place_resize(p, 5 * U, U), -1);
    T_EQ(symm_place_resize(p, 4 * U, UINT64_MAX), -1);
    uint64_t tag = 0;
    T_EQ(symm_place_block(p, 0, &tag), 4 * U);
    T_EQ(tag, 9);
    symm_place_end(p);
}

static void a_block_becomes_two(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    uint64_t tag = 0;
    T_EQ(symm_place_take(p, 6 * U, U, 9, NULL), 0);
    T_EQ(symm_place_split(p, 0, 6 * U), -1);
    T_EQ(symm_place_split(p, 0, 0), -1);
    T_EQ(symm_place_split(p, 0, U + 1), -1);
    T_EQ(symm_place_split(p, U, U), -1);
    T_EQ(symm_place_split(p, 6 * U, U), -1); /* a hole */
    T_EQ(symm_place_split(p, 0, 2 * U), 0);
    T_EQ(symm_place_block(p, 2 * U, &tag), 4 * U);
    T_EQ(tag, 9);
    T_EQ(measure(p).blocks, 2);
    T_EQ(measure(p).used, 6 * U);
    T_EQ(symm_place_give(p, 0), 2 * U);
    T_EQ(symm_place_give(p, 2 * U), 4 * U);
    T_EQ(measure(p).largest, 16 * U);
    symm_place_end(p);
}

static void tags_are_the_callers(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 16);
    uint64_t tag = 5;
    symm_piece q;
    T_EQ(symm_place_take(p, U, U, UINT64_MAX, NULL), 0);
    T_EQ(symm_place_block(p, 0, &tag), U);
    T_CHECK(tag == UINT64_MAX);
    symm_place_set_tag(p, 0, 12);
    symm_place_set_tag(p, U, 13); /* no block */
    T_EQ(symm_place_block(p, 0, &tag), U);
    T_EQ(tag, 12);
    T_EQ(symm_place_block(p, U, &tag), 0);
    T_EQ(tag, 12);
    T_EQ(symm_place_at(p, U - 1, &q), 1);
    T_CHECK(q.used && q.tag == 12 && q.off == 0 && q.bytes == U);
    T_EQ(symm_place_at(p, U, &q), 1);
    T_CHECK(!q.used && q.tag == 0 && q.off == U && q.bytes == 15 * U);
    T_EQ(symm_place_at(p, 16 * U, &q), 0);
    symm_place_end(p);
}

/* ---- beside the model ------------------------------------------------------------------------ */

typedef struct {
    symm_place *p;
    pk_model m;
    uint64_t span; /* units */
} pair;

static uint64_t any_block(const pair *x) {
    int i = x->m.n ? (int)draw((uint64_t)x->m.n) : 0, k = 0;
    while (k < x->m.n && !x->m.piece[i].used) i = (i + 1) % x->m.n, k++;
    return k < x->m.n ? x->m.piece[i].off : draw(x->span) * U;
}

static void one_call(pair *x, uint64_t busy) {
    uint64_t off = draw(x->span) * U, bytes = (1 + draw(draw(4) ? 6 : 40)) * U, tag = state;
    uint64_t block = any_block(x), align = U << (draw(3) ? 0 : draw(7));
    switch (draw(16)) {
    case 0: T_EQ(symm_place_add(x->p, off, bytes), pk_add(&x->m, off, bytes)); break;
    case 1: T_EQ(symm_place_cut(x->p, off, bytes), pk_cut(&x->m, off, bytes)); break;
    case 2:
        T_EQ(symm_place_take_at(x->p, off, bytes, tag), pk_take_at(&x->m, off, bytes, tag));
        break;
    case 3: T_EQ(symm_place_resize(x->p, block, bytes), pk_resize(&x->m, block, bytes)); break;
    case 5: T_EQ(symm_place_split(x->p, block, bytes), pk_split(&x->m, block, bytes)); break;
    case 4: T_EQ(symm_place_give(x->p, off), pk_give(&x->m, off)); break;
    default:
        if (draw(100) < busy)
            T_EQ(symm_place_take(x->p, bytes - draw(U), align, tag, NULL),
                 pk_take(&x->m, bytes, align, tag));
        else
            T_EQ(symm_place_give(x->p, block), pk_give(&x->m, block));
    }
}

static void beside_the_model(int fit, uint64_t span, int rounds, int calls) {
    static pair x;
    for (int r = 0; r < rounds; r++) {
        uint64_t first = state;
        x.p = new_place(fit, 0);
        x.m.n = 0;
        x.m.fit = fit;
        x.m.peak = x.m.peak_used = 0;
        x.span = span;
        if (r % 4) T_EQ(symm_place_add(x.p, 0, span * U) | pk_add(&x.m, 0, span * U), 0);
        for (int i = 0; i < calls; i++) {
            one_call(&x, i / 200 % 2 ? 40 : 70);
            if (i % 16 == 0) pk_compare(x.p, &x.m);
        }
        pk_compare(x.p, &x.m);
        symm_place_end(x.p);
        T_CHECKF(first != state, "the generator stands still; T_SEED=%llu",
                 (unsigned long long)seed);
    }
}

static void first_fit_beside_the_model(void) {
    start();
    beside_the_model(SYMM_PLACE_FIRST, 64, 400, 300);
    beside_the_model(SYMM_PLACE_FIRST, 2000, 20, 4000);
}

static void best_fit_beside_the_model(void) {
    start();
    beside_the_model(SYMM_PLACE_BEST, 64, 400, 300);
    beside_the_model(SYMM_PLACE_BEST, 2000, 20, 4000);
}

/* Enough blocks for several levels, in words of 32 bits and of 64: no overlap, nothing lost, and
 * now and then the lowest hole by walking. */
static void large_trees_keep_their_order(void) {
    enum { N = 20000 };
    uint64_t *off = malloc(sizeof *off * N);
    T_CHECK(off != NULL);
    start();
    for (int kind = 0; kind < 3; kind++) {
        const uint64_t units = 1ull << (kind ? 32 : 30), fit = kind == 2;
        symm_place *p = new_place((int)fit, units);
        for (int i = 0; i < N; i++) off[i] = symm_place_take(p, draw(1 << 20) + 1, U, off[i], NULL);
        for (int i = 0; i < 4 * N; i++) {
            uint64_t k = draw(N), tag;
            T_CHECK(symm_place_block(p, off[k], &tag) > 0);
            T_CHECK(symm_place_give(p, off[k]) > 0);
            const uint64_t n = draw(1 << 20) + 1, low = i % 1000 || fit ? 0 : pk_lowest(p, n);
            off[k] = symm_place_take(p, n, U, 0, NULL);
            T_CHECK(off[k] != SYMM_PLACE_NONE && (off[k] == low || i % 1000 || fit));
        }
        symm_piece q;
        uint64_t at = 0, blocks = 0, holes = 0;
        int was_hole = 0;
        for (; symm_place_at(p, at, &q); at = q.off + q.bytes) {
            T_EQ(q.off, at);
            T_CHECK(q.used || !was_hole);
            was_hole = !q.used;
            *(q.used ? &blocks : &holes) += 1;
        }
        T_EQ(at, units * U);
        T_EQ(blocks, N);
        T_EQ(holes, measure(p).holes);
        for (int i = 0; i < N; i++) T_CHECK(symm_place_give(p, off[i]) > 0);
        T_EQ(measure(p).largest, units * U);
        T_EQ(measure(p).holes, 1);
        symm_place_end(p);
    }
    free(off);
}

static uint64_t run_trace(int fit, uint64_t from) {
    uint64_t off[512] = {0}, sum = from;
    symm_place *p = new_place(fit, 1 << 20);
    state = from;
    for (int i = 0; i < 20000; i++) {
        uint64_t k = draw(512);
        if (off[k]) T_CHECK(symm_place_give(p, off[k] - 1) > 0);
        off[k] = off[k] ? 0 : symm_place_take(p, draw(100000) + 1, U << draw(4), 0, NULL) + 1;
        sum = (sum ^ off[k]) * 0x9e3779b97f4a7c15ull;
    }
    symm_place_end(p);
    return sum;
}

static void equal_calls_give_equal_offsets(void) {
    for (int fit = 0; fit < 2; fit++) {
        void *stir = malloc(12345); /* another heap under the second one */
        uint64_t a = run_trace(fit, 4711);
        free(stir);
        T_CHECK(a == run_trace(fit, 4711));
        T_CHECK(a != run_trace(fit, 4712));
    }
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* When takes begin to fail for want of memory, all is as before, and everything can be given
 * back. */
static void without_memory(int fit, const char *spec) {
    static uint64_t off[100000];
    int n = 0, why = 0;
    uint64_t far = 0;
    symm_place *p = new_place(fit, 1 << 20);
    while (n < 1000) off[n++] = symm_place_take(p, U, 2 * U, 0, NULL);
    T_EQ(symm_fail_arm(spec), 0);
    while ((off[n] = symm_place_take(p, U, 2 * U, 0, &why)) != SYMM_PLACE_NONE) n++;
    T_EQ(why, ENOMEM);
    T_EQ(measure(p).blocks, n);
    T_EQ(measure(p).used, (uint64_t)n * U);
    while (!symm_place_add(p, (2u + far) << 30, U)) far++; /* these need less */
    symm_place_stats s = measure(p), t;
    T_EQ(s.free, ((1 << 20) - (uint64_t)n + far) * U);
    T_EQ(symm_place_cut(p, (1 << 20) * U - 2 * U, U), -1);
    T_EQ(symm_place_take_at(p, (1 << 20) * U - 2 * U, U, 0), -1);
    t = measure(p);
    T_EQ(memcmp(&s, &t, sizeof s), 0);
    for (int i = 0; i < n; i += 2) T_EQ(symm_place_give(p, off[i]), U);
    for (int i = 1; i < n; i += 2) T_EQ(symm_place_give(p, off[i]), U);
    T_EQ(measure(p).largest, (1 << 20) * U);
    T_EQ(symm_fail_arm(""), 0);
    symm_place_end(p);
}

static void giving_back_needs_no_memory(void) {
    without_memory(SYMM_PLACE_FIRST, "place_nodes:error");
    without_memory(SYMM_PLACE_BEST, "place_nodes:error");
    without_memory(SYMM_PLACE_BEST, "place_sizes:error");
}

static void a_block_that_cannot_be_shortened_stays(void) {
    symm_place *p = new_place(SYMM_PLACE_FIRST, 1 << 20);
    uint64_t far = 0;
    T_EQ(symm_place_take(p, 4 * U, U, 0, NULL), 0);
    T_EQ(symm_fail_arm("place_nodes:error"), 0);
    while (symm_place_take(p, 4 * U, U, 0, NULL) != SYMM_PLACE_NONE) far++;
    while (!symm_place_add(p, (2u + far) << 30, U)) far++;
    T_CHECK(far > 0);
    symm_place_stats s = measure(p), t;
    T_EQ(symm_place_resize(p, 0, U), -1);
    t = measure(p);
    T_EQ(memcmp(&s, &t, sizeof s), 0);
    T_EQ(symm_place_block(p, 0, NULL), 4 * U);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(symm_place_resize(p, 0, U), 0);
    T_EQ(measure(p).holes, s.holes + 1);
    symm_place_end(p);
}

/* ---- from words of 32 bits to words of 64 ---------------------------------------------------- */

/* Blocks with tags, and holes between them. */
static symm_place *speckled(int fit, uint64_t far) {
    symm_place *p = new_place(fit, 1 << 20);
    if (far) T_EQ(symm_place_add(p, far, U) | symm_place_cut(p, far, U), 0);
    for (uint64_t i = 0; i < 3000; i++)
        T_CHECK(symm_place_take(p, (1 + i % 7) * U, U, i << 40 | i, NULL) != SYMM_PLACE_NONE);
    T_EQ(symm_place_cut(p, (1 << 19) * U, 5 * U), 0);
    symm_piece q;
    for (uint64_t at = 0, i = 0; symm_place_at(p, at, &q); at = q.off + q.bytes)
        if (q.used && i++ % 3 == 0) T_EQ(symm_place_give(p, q.off), q.bytes);
    return p;
}

/* Both hold the same pieces and count the same. */
static void alike(const symm_place *a, const symm_place *b) {
    symm_place_stats s = measure(a), t = measure(b);
    symm_piece q, r;
    uint64_t at = 0;
    T_EQ(memcmp(&s, &t, sizeof s), 0);
    for (; symm_place_at(a, at, &q); at = q.off + q.bytes) {
        T_EQ(symm_place_at(b, at, &r), 1);
        T_CHECK(q.off == r.off && q.bytes == r.bytes && q.tag == r.tag && q.used == r.used);
    }
    T_EQ(symm_place_at(b, at, &r), 0);
}

static void a_range_that_ends_too_high_for_32_bits(void) {
    static const char *const spec[] = {"place_classes:error", "place_nodes:error",
                                       "place_nodes:error:3", "place_sizes:error",
                                       "place_sizes:error:4"};
    const uint64_t end = INT32_MAX * U;
    for (int fit = 0; fit < 2; fit++) {
        symm_place *p = speckled(fit, 0), *same = speckled(fit, 0);
        T_EQ(symm_place_add(p, end - U, U) | symm_place_cut(p, end - U, U), 0); /* the last */
        for (int i = 0; i < 5 && !FAR; i++) {
            if (fit == SYMM_PLACE_FIRST && strncmp(spec[i], "place_nodes", 11)) continue;
            T_EQ(symm_fail_arm(spec[i]), 0);
            T_EQ(symm_place_add(p, end, U), -1);
            T_EQ(symm_fail_arm(""), 0);
            alike(p, same);
        }
        T_EQ(symm_place_add(p, end, U) | symm_place_cut(p, end, U), 0);
        alike(p, same);
        symm_place_end(same);
        same = speckled(fit, 1ull << 60);
        alike(p, same);
        T_EQ(symm_place_add(p, 1ull << 60, 3 * end) | symm_place_add(same, 1ull << 60, 3 * end), 0);
        for (uint64_t i = 1; i < 3000; i++)
            T_EQ(symm_place_take(p, i % 200 * U + 1, U << i % 5, i, NULL),
                 symm_place_take(same, i % 200 * U + 1, U << i % 5, i, NULL));
        alike(p, same);
        T_EQ(symm_place_take(p, 2 * end, U, 1, NULL), 1ull << 60); /* longer than 32 bits say */
        T_EQ(symm_place_give(p, 1ull << 60), 2 * end);
        symm_place_end(same);
        symm_place_end(p);
    }
}

static void an_engine_that_cannot_be_made(void) {
    static const char *const spec[] = {"place_alloc:error", "place_classes:error",
                                       "place_nodes:error"};
    for (int i = 0; i < 3; i++) {
        T_EQ(symm_fail_arm(spec[i]), 0);
        T_CHECK(symm_place_new(SYMM_PLACE_BEST) == NULL);
        T_EQ(symm_fail_arm(""), 0);
    }
}

T_MAIN(T(a_new_engine_has_no_free_range), T(ranges_join_with_their_neighbours),
       T(ranges_that_are_known_or_no_ranges_are_refused), T(what_is_cut_is_forgotten),
       T(first_fit_is_the_lowest), T(best_fit_is_the_smallest_and_of_those_the_lowest),
       T(sizes_are_rounded_to_the_unit), T(alignment_leaks_nothing),
       T(alignment_near_the_end_of_offsets), T(many_holes_too_short_for_an_alignment),
       T(a_block_at_an_exact_place), T(give_tells_what_it_freed), T(give_if_asks_for_the_tag),
       T(blocks_change_their_length_in_place), T(a_block_becomes_two), T(tags_are_the_callers),
       T(first_fit_beside_the_model), T(best_fit_beside_the_model), T(large_trees_keep_their_order),
       T(equal_calls_give_equal_offsets), T(giving_back_needs_no_memory),
       T(a_block_that_cannot_be_shortened_stays), T(a_range_that_ends_too_high_for_32_bits),
       T(an_engine_that_cannot_be_made))
