/* unit_arena_fit.c - arenas with SYMM_FIT_FIRST: each block lies at the lowest address that fits,
 * of a thread and of a stream, small ones too, with superblocks of 16 KiB and of 1 MiB; beside a
 * model that looks at every gap. */
#include "arena_fix.h"

enum { MOST = 200, CALLS = 4000 };

static fix *open_first(uint64_t limit, uint64_t super, uint64_t piece) {
    fix *f = calloc(1, sizeof *f);
    T_CHECK(f && ak_open(&f->up, limit) == 0);
    f->up.super = super;
    symm_upstream up = {&f->up,  f->up.bytes, 2 * MB,     0,       ak_take,
                        ak_give, NULL,        ak_take_at, ak_part, ak_hole};
    symm_arena_options o = {limit, super, piece, 0, 0, 0, "first", 1};
    T_OK(symm_arena_new(&up, &symm_arena_order_host, &o, &f->a));
    return f;
}

/* ---- the model: the blocks, and which superblocks somebody has ------------------------------- */

typedef struct {
    uint64_t off[MOST], bytes[MOST];
    int n;
} blocks;

static int is_owned(const fix *f, uint64_t off) {
    symm_super *super = symm_super_at(f->a, off);
    return super && atomic_load(&super->owner) != NULL;
}

/* The end of the last block that [off, off+bytes) meets; 0: it meets none. */
static uint64_t met(const blocks *b, uint64_t off, uint64_t bytes) {
    uint64_t end = 0;
    for (int i = 0; i < b->n; i++)
        if (b->off[i] < off + bytes && off < b->off[i] + b->bytes[i] &&
            b->off[i] + b->bytes[i] > end)
            end = b->off[i] + b->bytes[i];
    return end;
}

/* The lowest place for a block in superblocks that are owned now; UINT64_MAX: none. */
static uint64_t lowest(const fix *f, const blocks *b, uint64_t bytes, uint64_t align) {
    const uint64_t super = f->a->super;
    for (uint64_t at = 0; at + bytes <= f->a->up.limit;) {
        uint64_t part = at & -super, end;
        while (part < at + bytes && is_owned(f, part)) part += super;
        if (part < at + bytes)
            at = part + super; /* that one is nobody's */
        else if ((end = met(b, at, bytes)))
            at = (end + align - 1) & -align;
        else
            return at;
    }
    return UINT64_MAX;
}

static void take_one(fix *f, blocks *b, symmStream_t s, uint64_t *state) {
    static const uint64_t most[] = {U, 2 * KB, 16 * KB, 32 * KB};
    const uint64_t bytes = (t_draw(state, most[t_draw(state, 4)]) + U) & -U;
    const uint64_t align = t_draw(state, 3) ? U : U << t_draw(state, 5);
    const uint64_t before = lowest(f, b, bytes, align);
    const uint64_t off = take_as(f, s, bytes, align);
    T_EQ(off, before != UINT64_MAX ? before : lowest(f, b, bytes, align));
    b->off[b->n] = off;
    b->bytes[b->n++] = bytes;
}

static void first_fit_beside_a_model(void) {
    symmStream_t s[2] = {NULL, NULL};
    T_OK(symmStreamCreate(&s[1]));
    for (int how = 0; how < 4; how++) {
        static blocks b;
        fix *f = how & 1 ? open_first(64 * MB, MB, 4 * MB) : open_first(16 * MB, 16 * KB, 2 * MB);
        uint64_t state = 40 + (uint64_t)how;
        T_EQ(f->a->super, how & 1 ? MB : 16 * KB);
        for (int i = 0; i < CALLS; i++) {
            if (!b.n || (b.n < MOST && t_draw(&state, 100) < 54)) {
                take_one(f, &b, s[how >> 1], &state);
                continue;
            }
            const int k = (int)t_draw(&state, (uint64_t)b.n);
            T_OK(symm_arena_give(f->a, s[how >> 1], b.off[k]));
            b.off[k] = b.off[--b.n];
            b.bytes[k] = b.bytes[b.n];
        }
        T_EQ(count(f).kept, 0);
        while (b.n) T_OK(symm_arena_give(f->a, s[how >> 1], b.off[--b.n]));
        T_EQ(count(f).used, 0);
        symm_arena_trim(f->a);
        T_EQ(count(f).held, 0);
        close_fix(f);
    }
    T_OK(symmStreamDestroy(s[1]));
}

/* Not those that they had: the opposite of
 * unit_arena_threads/a_stream_gets_its_own_superblocks_again. */
static void streams_take_the_lowest_superblock(void) {
    symmStream_t s, t;
    fix *f = open_first(128 * KB, 64 * KB, 128 * KB);
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    const uint64_t low = take_as(f, t, 256, U), high = take_as(f, s, 256, U);
    T_CHECK(low < high);
    T_OK(symm_arena_give(f->a, t, low));
    T_OK(symm_arena_give(f->a, s, high));
    symm_arena_defragment(f->a);
    T_EQ(take_as(f, s, 256, U), low);
    T_EQ(take_as(f, t, 256, U), high);
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
    close_fix(f);
}

T_MAIN(T(first_fit_beside_a_model), T(streams_take_the_lowest_superblock))
