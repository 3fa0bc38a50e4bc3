/* unit_join_kernels.c - the kernel that makes one of the partial results of domains, or of what
 * ranks contribute, on fibers (emu.h): drawn types, reductions, sizes and places in memory,
 * compared with what the host backend makes of the same bits, and nothing beside the result is
 * written. T_SEED: the first case; T_CASES: how many. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/common/colls.h"
#include "device/host/reduce.h"
#include "emu.h"
#include "t.h"

enum { DOMAINS = 5, BYTES = 24 << 10, GUARD = 64, ROOM = BYTES + 2 * GUARD + 16 };

static const struct {
    const char *kernel;
    int type;
} types[] = {
    {"emu_join_f32", symmFloat32}, {"emu_join_bf16", symmBfloat16}, {"emu_join_u8", symmUint8}};

typedef struct {
    int type, op, domains, own, divides;
    size_t count, bytes;
    char *memory[2], *dst, *others; /* [own, others]; what they begin with is a guard */
    char *want, *before;
    int ordered; /* contributions of ranks, none of which is at dst */
    uint64_t scalars[DOMAINS];
} sample;

/* Small numbers, so that sums stay what they are, and now and then any bits. */
static uint64_t element(uint64_t *seed, int type) {
    const uint64_t any = t_roll(seed), small = t_draw(seed, 16);
    const float f = (float)small;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (any % 8 == 0) return any;
    return type == symmFloat32 ? bits : type == symmBfloat16 ? bits >> 16 : small;
}

static void make(sample *s, uint64_t *seed) {
    const int t = (int)t_draw(seed, 3);
    const size_t es = symm_type_size((unsigned)types[t].type);
    *s = (sample){
        .type = t, .op = (int)t_draw(seed, 4), .domains = 2 + (int)t_draw(seed, DOMAINS - 1)};
    s->own = (int)t_draw(seed, (unsigned)s->domains);
    s->ordered = t_draw(seed, 3) == 0;
    if (s->ordered) s->own = s->domains, s->op = (int)t_draw(seed, SYMM_OP_COUNT);
    for (int i = 0; i < DOMAINS; i++) s->scalars[i] = element(seed, types[t].type);
    emu_memory(s->scalars, sizeof s->scalars);
    if (!s->ordered && s->op == symmSum && t_draw(seed, 2)) s->divides = 1 + (int)t_draw(seed, 9);
    s->count = t_draw(seed, t_draw(seed, 4) ? 100 : BYTES / es + 1);
    s->bytes = s->count * es;
    for (int i = 0; i < 2; i++) {
        const size_t room = (size_t)(i ? DOMAINS : 1) * ROOM;
        T_CHECK((s->memory[i] = malloc(room)) != NULL);
        for (size_t at = 0; at + es <= room; at += es) {
            const uint64_t v = element(seed, types[t].type);
            memcpy(s->memory[i] + at, &v, es);
        }
        emu_memory(s->memory[i], room);
    }
    s->dst = s->memory[0] + GUARD + t_draw(seed, 16);
    s->others = s->memory[1] + GUARD + t_draw(seed, 16);
    T_CHECK((s->want = malloc(s->bytes + 1)) && (s->before = malloc(ROOM)));
    memcpy(s->before, s->memory[0], ROOM);
}

/* Of the host backend. */
static void expect(const sample *s, uint64_t step) {
    const symm_reduce_table *t = symm_reduce_isa("base");
    const void *from[DOMAINS];
    const int type = types[s->type].type;
    for (int d = 0; d < s->domains; d++)
        from[d] = d == s->own ? s->dst : s->others + (uint64_t)(d - (d > s->own)) * step;
    t->reduce[type][s->op](s->want, from, s->domains, s->count, s->scalars);
    if (s->divides) t->divide[type](s->want, s->count, s->divides);
}

static void run_case(uint64_t seed) {
    const uint64_t first = seed;
    char why[256] = "";
    sample s;
    emu_forget();
    make(&s, &seed);
    const size_t es = symm_type_size((unsigned)types[s.type].type);
    const uint64_t step = s.bytes + t_draw(&seed, 3) * es;
    const symm_gpu_join j = {.dst = (uintptr_t)s.dst,
                             .others = (uintptr_t)s.others,
                             .scalars = s.ordered ? (uintptr_t)s.scalars : 0,
                             .step = step,
                             .count = s.count,
                             .domains = s.domains,
                             .domain = s.own,
                             .op = s.op,
                             .divides = s.divides};
    emu_launch l = {.kernel = emu_find(types[s.type].kernel),
                    .args = {.src = (void *)(uintptr_t)&j, .nranks = 1},
                    .ctas = 1 + (unsigned)t_draw(&seed, 3),
                    .threads = 32 * (1 + (unsigned)t_draw(&seed, 4))};
    T_CHECK(l.kernel != NULL);
    expect(&s, step);
    T_CHECKF(!emu_run(&l, 1, 1, first, why, sizeof why), "T_SEED=%llu: %s",
             (unsigned long long)first, why);
    T_CHECKF(!memcmp(s.dst, s.want, s.bytes),
             "T_SEED=%llu: %s of %zu elements, reduction %d over %d %s, divided by %d",
             (unsigned long long)first, types[s.type].kernel, s.count, s.op, s.domains,
             s.ordered ? "ranks" : "domains", s.divides);
    memcpy(s.before + (s.dst - s.memory[0]), s.want, s.bytes);
    T_CHECKF(!memcmp(s.before, s.memory[0], ROOM), "T_SEED=%llu: bytes beside the result",
             (unsigned long long)first);
    free(s.memory[0]), free(s.memory[1]), free(s.want), free(s.before);
}

static void as_on_the_host(void) {
    const char *said = getenv("T_SEED"), *many = getenv("T_CASES"), *full = getenv("T_FULL");
    const uint64_t seed = said ? strtoull(said, NULL, 0) : 1;
    const int cases = many ? atoi(many) : full && atoi(full) ? 6000 : 600;
    for (int i = 0; i < cases; i++) run_case(seed + (uint64_t)i);
}

T_MAIN(T_TIMEOUT(as_on_the_host, 60))
