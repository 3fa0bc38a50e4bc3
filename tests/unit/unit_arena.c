/* unit_arena.c - the arena over offsets: superblocks, the global part, one thread's sub-arena, all
 * sizes. The names are those of the cases that an arena of this kind must pass. */
#include <unistd.h>

#include "arena_fix.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

static void align_to_size_class(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    static const struct {
        uint64_t bytes, used;
    } row[] = {{1, 256},   {255, 256},   {256, 256},    {257, 512},
               {511, 512}, {4095, 4096}, {32768, 32768}};
    uint64_t used = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        take(f, row[i].bytes);
        used += row[i].used;
        T_EQ(count(f).used, used);
    }
    T_EQ(count(f).larges, 0);
    take(f, 32769); /* more than half a superblock */
    T_EQ(count(f).larges, 1);
    T_EQ(count(f).used, used + 33024);
    close_fix(f);
}

/* ---- superblocks: one stripe of one superblock, whose engine is all there is ----------------- */

static uint64_t on(fix *f, uint64_t bytes) {
    uint64_t off = 0;
    T_OK(symm_arena_take_on(f->a, 0, bytes, U, &off));
    return off;
}

static symm_place_stats superblock(fix *f) {
    symm_place_stats s;
    symm_place_measure(f->a->stripe[0]->place, &s);
    return s;
}

static void superblock_empty(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    T_EQ(superblock(f).used, 0);
    T_EQ(superblock(f).largest, 64 * KB);
    uint64_t a = on(f, 1);
    T_EQ(superblock(f).blocks, 1);
    give(f, a);
    T_EQ(superblock(f).blocks, 0);
    close_fix(f);
}

static void superblock_contains(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    T_EXPECT_WARNINGS();
    uint64_t a = on(f, 1024);
    T_ERR(symm_arena_give(f->a, NULL, a + 64 * KB), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "no memory of this arena");
    T_ERR(symm_arena_give(f->a, NULL, a + 256), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "inside a block");
    T_ERR(symm_arena_give(f->a, NULL, a + 1), symmInvalidArgument);
    T_ERR(symm_arena_give(f->a, NULL, a + 1024), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "freed already");
    T_ERR(symm_arena_give(f->a, NULL, UINT64_MAX & -U), symmInvalidArgument);
    give(f, a);
    T_ERR(symm_arena_give(f->a, NULL, a), symmInvalidArgument);
    close_fix(f);
}

static void superblock_fits(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t off;
    T_EXPECT_WARNINGS();
    T_ERR(symm_arena_take_on(f->a, 0, 64 * KB + 1, U, &off), symmOutOfMemory);
    uint64_t all = on(f, 64 * KB);
    T_ERR(symm_arena_take_on(f->a, 0, 1, U, &off), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "stripe 0 of 1");
    give(f, all);
    T_EQ(on(f, 1), all);
    close_fix(f);
}

static void superblock_split_and_merge(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t a = on(f, 16 * KB);
    T_EQ(superblock(f).largest, 48 * KB); /* block and remainder */
    uint64_t b = on(f, 16 * KB);
    T_EQ(b, a + 16 * KB); /* contiguous */
    give(f, b);
    T_EQ(superblock(f).largest, 48 * KB);
    give(f, a);
    T_EQ(superblock(f).largest, 64 * KB);
    T_EQ(superblock(f).holes, 1);
    close_fix(f);
}

static void superblock_first_fit(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t a = on(f, 8 * KB), b = on(f, 8 * KB), c = on(f, 4 * KB), d = on(f, 8 * KB);
    give(f, a);
    give(f, c);
    T_EQ(on(f, 4 * KB), a); /* not the hole that fits best */
    T_EQ(on(f, 8 * KB), d + 8 * KB);
    (void)b;
    close_fix(f);
}

static void superblock_coalesce_after_full(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t a = on(f, 32 * KB), b = on(f, 32 * KB);
    T_EQ(superblock(f).largest, 0);
    give(f, b);
    give(f, a);
    T_EQ(superblock(f).largest, 64 * KB);
    close_fix(f);
}

static void superblock_coalesce_next_prev_both(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t b[4];
    for (int i = 0; i < 4; i++) b[i] = on(f, 16 * KB);
    give(f, b[1]);
    give(f, b[0]); /* next */
    T_EQ(superblock(f).largest, 32 * KB);
    T_EQ(on(f, 32 * KB), b[0]);
    give(f, b[0]);
    give(f, b[2]); /* prev */
    T_EQ(superblock(f).largest, 48 * KB);
    T_EQ(on(f, 16 * KB), b[0]);
    give(f, b[3]); /* both: [1,2] and the end */
    T_EQ(superblock(f).holes, 1);
    give(f, b[0]);
    T_EQ(superblock(f).largest, 64 * KB);
    close_fix(f);
}

static void superblock_max_free_and_when_full(void) {
    fix *f = open_fix(64 * KB, 64 * KB, 2 * MB, 1);
    uint64_t b[4];
    for (int i = 0; i < 4; i++) b[i] = on(f, 16 * KB);
    T_EQ(superblock(f).largest, 0);
    give(f, b[1]);
    give(f, b[3]);
    T_EQ(superblock(f).largest, 16 * KB);
    T_EQ(superblock(f).free, 32 * KB);
    close_fix(f);
}

/* ---- the global part ------------------------------------------------------------------------- */

static void global_acquire(void) {
    fix *f = open_fix(16 * MB, MB, 4 * MB, 0);
    uint64_t off[5];
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 4; i++) off[i] = take(f, 4 * MB);
    T_ERR(symm_arena_take(f->a, NULL, 4 * MB, U, &off[4]), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "do not fit");
    T_EQ(count(f).held, 16 * MB);
    T_EQ(f->up.takes, 4);
    for (int i = 0; i < 4; i++) give(f, off[i]);
    close_fix(f);
}

static void global_release_merges(void) {
    static const int order[][4] = {{1, 0, 2, 3}, {0, 1, 2, 3}, {0, 2, 1, 3}, {3, 1, 2, 0}};
    for (size_t r = 0; r < 4; r++) {
        fix *f = open_fix(16 * MB, MB, 16 * MB, 0);
        uint64_t off[4];
        for (int i = 0; i < 4; i++) off[i] = take(f, 4 * MB);
        T_EQ(count(f).largest, 0);
        for (int i = 0; i < 4; i++) give(f, off[order[r][i]]);
        T_EQ(count(f).largest, 16 * MB);
        T_EQ(take(f, 16 * MB), off[0]);
        close_fix(f);
    }
}

static void global_allocate(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    uint64_t off;
    T_EXPECT_WARNINGS();
    uint64_t a = take(f, 10 * MB), b = take(f, 100 * KB);
    T_CHECK(a != b);
    T_ERR(symm_arena_take(f->a, NULL, 1ull << 50, U, &off), symmOutOfMemory); /* 1 PiB */
    T_MSG(symmGetLastError(NULL), "limit");
    T_ERR(symm_arena_take(f->a, NULL, UINT64_MAX, U, &off), symmOutOfMemory);
    T_ERR(symm_arena_take(f->a, NULL, UINT64_MAX - 254, U, &off), symmOutOfMemory);
    T_ERR(symm_arena_give(f->a, NULL, a + 256), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "inside a block");
    give(f, a);
    T_ERR(symm_arena_give(f->a, NULL, a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "freed already");
    T_EQ(count(f).larges, 1);
    give(f, b);
    T_EQ(count(f).used, 0);
    close_fix(f);
}

static void global_deallocate_align_up(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    uint64_t a = take(f, 3 * MB + 1);
    T_EQ(count(f).used, 3 * MB + U);
    give(f, a);
    T_EQ(count(f).used, 0);
    uint64_t b = take_as(f, NULL, 100 * KB, 2 * MB), c = take_as(f, NULL, 256, MB),
             d = take_as(f, NULL, 256, 32 * KB);
    give(f, b);
    give(f, c);
    give(f, d);
    T_EQ(count(f).used, 0);
    close_fix(f);
}

static void global_deallocate_from_other_arena(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    symm_arena *other;
    uint64_t small, large;
    T_EXPECT_WARNINGS();
    T_OK(ak_arena(&f->up, 64 * MB, 64 * KB, 2 * MB, 0, &other));
    T_OK(symm_arena_take(other, NULL, 256, U, &small));
    T_OK(symm_arena_take(other, NULL, MB, U, &large));
    take(f, 256);
    T_ERR(symm_arena_give(f->a, NULL, small), symmInvalidArgument);
    T_ERR(symm_arena_give(f->a, NULL, large), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "no memory of this arena");
    T_OK(symm_arena_give(other, NULL, small));
    T_OK(symm_arena_give(other, NULL, large));
    symm_arena_end(other);
    close_fix(f);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

static void arena_allocate_and_deallocate(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    T_EXPECT_WARNINGS();
    uint64_t a = take(f, 256), b = take(f, 300), c = take(f, 20 * KB);
    T_EQ(b, a + 256);
    T_EQ(c, b + 512);
    T_EQ(count(f).supers, 1);
    T_EQ(count(f).used, 256 + 512 + 20 * KB);
    give(f, b);
    T_ERR(symm_arena_give(f->a, NULL, b), symmInvalidArgument); /* kept by the thread */
    T_MSG(symmGetLastError(NULL), "freed already");
    T_EQ(count(f).kept, 512);
    T_EQ(take(f, 512), b);
    give(f, c); /* 80 units: not kept */
    T_EQ(count(f).kept, 0);
    T_EQ(take(f, 17 * KB), c);
    close_fix(f);
}

static void arena_deallocate_merges(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    uint64_t a = take(f, 20 * KB), b = take(f, 20 * KB), c = take(f, 20 * KB);
    give(f, a);
    give(f, c);
    give(f, b);
    T_EQ(take(f, 32 * KB), a);
    close_fix(f);
}

static void arena_defragment(void) {
    fix *f = open_fix(8 * MB, 64 * KB, 2 * MB, 0);
    uint64_t off[128];
    for (int i = 0; i < 120; i++) off[i] = take(f, 32 * KB); /* 60 superblocks of 128 */
    for (int i = 0; i < 120; i++) give(f, off[i]);
    T_EQ(count(f).supers, 1); /* one is kept for the next block */
    symm_arena_defragment(f->a);
    T_EQ(count(f).supers, 0);
    T_EQ(symm_arena_trim(f->a), count(f).held_peak);
    T_EQ(count(f).held, 0);
    T_EQ(f->up.gives, f->up.takes);
    T_EQ(take(f, 8 * MB - 64 * KB) % U, 0);
    close_fix(f);
}

/* Superblocks that subs hold, and blocks that a thread keeps, come back when memory runs out. */
static void arena_exhaustion_defragments(void) {
    fix *f = open_fix(4 * MB, 64 * KB, 2 * MB, 0);
    uint64_t off[256];
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 256; i++) off[i] = take(f, 16 * KB);
    for (int i = 0; i < 256; i++) give(f, off[i]);
    uint64_t all = take(f, 4 * MB); /* the first try finds no room */
    give(f, all);
    close_fix(f);
}

static void size_smaller_than_superblock(void) {
    fix *f = open_fix(48 * KB, 64 * KB, 2 * MB, 0);
    uint64_t off;
    T_EXPECT_WARNINGS();
    T_ERR(symm_arena_take(f->a, NULL, 256, U, &off), symmOutOfMemory);
    close_fix(f);
}

static void ninety_percent(void) {
    fix *f = open_fix(AK_GB, 64 * KB, 2 * MB, 0);
    uint64_t a = take(f, AK_GB / 10 * 9);
    give(f, a);
    T_EQ(take(f, AK_GB / 10 * 9), a);
    close_fix(f);
}

static void small_medium_large(void) {
    fix *f = open_fix(AK_GB, 64 * KB, 2 * MB, 0);
    for (int round = 0; round < 3; round++) {
        uint64_t small = take(f, 64), medium = take(f, 30 * KB), large = take(f, AK_GB / 4 * 3);
        give(f, small);
        give(f, medium);
        give(f, large);
    }
    T_EQ(count(f).used, 0);
    close_fix(f);
}

static void memory_goes_back_when_much_is_idle(void) {
    fix *f = open_fix(AK_GB, 64 * KB, 2 * MB, 0);
    uint64_t off[64];
    for (int i = 0; i < 64; i++) off[i] = take(f, 2 * MB);
    T_EQ(count(f).held, 128 * MB);
    for (int i = 0; i < 64; i++) give(f, off[i]);
    T_CHECK(count(f).held <= 16 * MB);
    T_EQ(count(f).held_peak, 128 * MB);
    close_fix(f);
}

/* ---- generic --------------------------------------------------------------------------------- */

static void sizes_from_4_bytes_to_1_gib(void) {
    fix *f = open_fix(4 * AK_GB, 64 * KB, 2 * MB, 0);
    for (uint64_t bytes = 4; bytes <= AK_GB; bytes *= 4) {
        uint64_t a = take(f, bytes), b = take(f, bytes);
        T_CHECK(a + bytes <= b || b + bytes <= a);
        give(f, a);
        give(f, b);
    }
    T_EQ(count(f).used, 0);
    close_fix(f);
}

static void a_hundred_random_sizes(void) {
    fix *f = open_fix(AK_GB, 64 * KB, 2 * MB, 0);
    uint64_t off[100], bytes[100], state = 9;
    for (int i = 0; i < 100; i++) off[i] = take(f, bytes[i] = t_draw(&state, 5 * MB) + 1);
    for (int i = 0; i < 100; i++) /* distinct */
        for (int j = 0; j < i; j++)
            T_CHECK(off[i] + bytes[i] <= off[j] || off[j] + bytes[j] <= off[i]);
    for (int i = 0; i < 100; i++) give(f, off[i]);
    close_fix(f);
}

/* 53 allocations of a hundred calls, in any order; every block apart from all others. */
static void mixed_random(void) {
    enum { MOST = 500 };
    fix *f = open_fix(4 * AK_GB, 64 * KB, 2 * MB, 0);
    uint64_t off[MOST], bytes[MOST], state = 21, live = 0;
    int n = 0;
    for (int i = 0; i < 4000; i++) {
        if (n == 0 || (n < MOST && t_draw(&state, 100) < 53)) {
            uint64_t b =
                t_draw(&state, 3) ? t_draw(&state, 30 * KB) + 1 : t_draw(&state, 5 * MB) + 1;
            uint64_t o = take(f, b);
            for (int j = 0; j < n; j++) T_CHECK(o + b <= off[j] || off[j] + bytes[j] <= o);
            off[n] = o;
            bytes[n++] = b;
            live += (b + U - 1) / U * U;
        } else {
            int j = (int)t_draw(&state, (uint64_t)n);
            give(f, off[j]);
            live -= (bytes[j] + U - 1) / U * U;
            off[j] = off[--n];
            bytes[j] = bytes[n];
        }
        if (i % 100 == 0) T_EQ(count(f).used, live);
    }
    close_fix(f);
}

/* ---- an upstream that gives the highest first ------------------------------------------------ */

static fix *open_down(uint64_t limit, uint64_t super, uint64_t piece) {
    fix *f = open_fix(limit, super, piece, 0);
    symm_arena_end(f->a);
    f->up.down = 1;
    T_OK(ak_arena(&f->up, limit, super, piece, 0, &f->a));
    return f;
}

/* Blocks of all sizes and alignments, each apart from all others, each told apart from what is no
 * block; then nothing is left. */
static void highest_first_all_sizes(void) {
    enum { MOST = 300 };
    fix *f = open_down(AK_GB, 16 * KB, 2 * MB);
    uint64_t off[MOST], bytes[MOST], state = 5, live = 0;
    int n = 0;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 4000; i++) {
        if (n == 0 || (n < MOST && t_draw(&state, 100) < 53)) {
            uint64_t b =
                t_draw(&state, 2) ? t_draw(&state, 30 * KB) + 1 : t_draw(&state, 2 * MB) + 1;
            uint64_t o = take_as(f, NULL, b, t_draw(&state, 3) ? U : U << t_draw(&state, 14));
            for (int j = 0; j < n; j++) T_CHECK(o + b <= off[j] || off[j] + bytes[j] <= o);
            if (b > U && i % 16 == 0)
                T_ERR(symm_arena_give(f->a, NULL, o + U), symmInvalidArgument);
            off[n] = o;
            bytes[n++] = b;
            live += (b + U - 1) / U * U;
        } else {
            int j = (int)t_draw(&state, (uint64_t)n);
            give(f, off[j]);
            if (i % 16 == 0) T_ERR(symm_arena_give(f->a, NULL, off[j]), symmInvalidArgument);
            live -= (bytes[j] + U - 1) / U * U;
            off[j] = off[--n];
            bytes[j] = bytes[n];
        }
        if (i % 100 == 0) T_EQ(count(f).used, live);
    }
    while (n--) give(f, off[n]);
    T_EQ(count(f).used, 0);
    uint64_t held = count(f).held;
    T_CHECK(symm_arena_trim(f->a) > 0 && count(f).held < held); /* what this thread keeps stays */
    close_fix(f);
}

/* What is there is filled before more is taken, as with one that gives the lowest first: both hold
 * the same for the same calls. */
static void highest_first_holds_no_more(void) {
    fix *f[2] = {open_fix(AK_GB, 16 * KB, 2 * MB, 0), open_down(AK_GB, 16 * KB, 2 * MB)};
    static uint64_t off[2][800];
    uint64_t state = 3;
    for (int i = 0; i < 800; i++) {
        uint64_t bytes = t_draw(&state, MB) + 1,
                 k = t_draw(&state, 100) < 27 ? t_draw(&state, 800) : 800;
        for (int x = 0; x < 2; x++) {
            off[x][i] = take(f[x], bytes) + 1;
            if (k == 800 || !off[x][k]) continue;
            give(f[x], off[x][k] - 1);
            off[x][k] = 0;
        }
    }
    T_EQ(count(f[1]).used, count(f[0]).used);
    T_EQ(count(f[1]).held_peak, count(f[0]).held_peak);
    for (int x = 0; x < 2; x++) close_fix(f[x]);
}

/* Aligned blocks lie in any hole that has the room for them, whether or not there is more of it. */
static void highest_first_alignment_leaks_nothing(void) {
    fix *f = open_down(8 * MB, 16 * KB, 8 * MB);
    uint64_t all = take(f, 8 * MB - 16 * KB);
    give(f, all);
    uint64_t odd = take_as(f, NULL, 5 * MB + 300 * KB, 2 * MB), used = count(f).used;
    T_EQ(used, 5 * MB + 300 * KB);
    uint64_t tail = take(f, 700 * KB), head = take_as(f, NULL, 1900 * KB, MB);
    T_EQ(count(f).used, used + 2600 * KB);
    give(f, odd);
    give(f, tail);
    give(f, head);
    T_EQ(count(f).used, 0);
    close_fix(f);
}

/* The table itself; a call that fails writes it: unit_arena_heap/dump_log_on_failure. */
static void dump_table(void) {
    fix *f = open_fix(4 * MB, 64 * KB, 2 * MB, 0);
    char text[8192] = {0};
    int fd[2];
    T_EQ(pipe(fd), 0);
    T_OK(symm_arena_write(f->a, fd[1])); /* nothing is held: no fraction of nothing */
    uint64_t a = take(f, 20 * KB), b = take(f, 1000);
    give(f, a);
    (void)b;
    T_OK(symm_arena_write(f->a, fd[1]));
    T_CHECK(read(fd[0], text, sizeof text - 1) > 0);
    T_MSG(text, "arena size 4194304");
    T_MSG(text, "superblock size 65536");
    T_MSG(text, "superblocks 1");
    T_MSG(text, "thread 0, 1 superblocks: used 1024, free 64512, largest 44032");
    T_MSG(text, "superblock 0x0: used 1024, free 64512, largest 44032, blocks 1, holes 2, "
                "fragmentation 31.75 %");
    T_MSG(text, "fragmentation 0.00 %");
    close(fd[0]);
    close(fd[1]);
    close_fix(f);
}

T_MAIN(T(align_to_size_class), T(superblock_empty), T(superblock_contains), T(superblock_fits),
       T(superblock_split_and_merge), T(superblock_first_fit), T(superblock_coalesce_after_full),
       T(superblock_coalesce_next_prev_both), T(superblock_max_free_and_when_full),
       T(global_acquire), T(global_release_merges), T(global_allocate),
       T(global_deallocate_align_up), T(global_deallocate_from_other_arena),
       T(arena_allocate_and_deallocate), T(arena_deallocate_merges), T(arena_defragment),
       T(arena_exhaustion_defragments), T(size_smaller_than_superblock), T(ninety_percent),
       T(small_medium_large), T(memory_goes_back_when_much_is_idle), T(sizes_from_4_bytes_to_1_gib),
       T(a_hundred_random_sizes), T(mixed_random), T(highest_first_all_sizes),
       T(highest_first_holds_no_more), T(highest_first_alignment_leaks_nothing), T(dump_table))
