/* unit_split.c - how spans are divided: slices by rank, chunks, shares of CTAs, and the scratch.
 * Pure; one thread. */
#include <stdint.h>

#include "host/coll/plan.h"
#include "t.h"

#define SYMM_DEV static inline
#include "device/host/split.inl"

static uint64_t state = 0x5eed;

static uint64_t draw(uint64_t below) {
    return t_draw(&state, below);
}

/* Around powers of two, small ones often, up to 2^40. */
static uint64_t draw_count(void) {
    uint64_t size = 1ull << draw(41);
    return draw(3) ? size + draw(5) - (size > 2 ? 2 : 0) : draw(300);
}

/* In rank order, without a gap or an overlap, in whole units of 64 bytes, none more than a unit
 * larger than another. */
static void check_parts(uint64_t count, uint32_t log, int n) {
    const uint64_t unit = 64u >> log; /* elements of 1 << log bytes */
    uint64_t at = 0, least = UINT64_MAX, most = 0;
    for (int i = 0; i < n; i++) {
        symm_part p = symm_part_of(count, log, n, i);
        uint64_t units = (p.len + unit - 1) / unit;
        T_EQ(p.at, at);
        at += p.len;
        T_CHECK(p.at % unit == 0 || p.at == count);
        T_CHECK(p.len % unit == 0 || at == count);
        least = units < least ? units : least;
        most = units > most ? units : most;
    }
    T_EQ(at, count);
    T_CHECK(most - least <= 1);
}

static void slices_cover_exactly(void) {
    for (int n = 1; n <= 72; n++)
        for (uint32_t log = 0; log <= 3; log++) {
            for (uint64_t count = 0; count < 260; count++) check_parts(count, log, n);
            for (int i = 0; i < 100; i++) check_parts(draw_count(), log, n);
            check_parts(1ull << 40, log, n);
            check_parts(1ull << (60 - log), log, n);
        }
}

static void chunks_cover_exactly(void) {
    for (int i = 0; i < 20000; i++) {
        uint32_t log = (uint32_t)draw(21);
        uint64_t chunk = 1ull << log, count = draw(2000 * chunk), at = 0;
        uint64_t chunks = symm_chunks(count, log);
        T_EQ(chunks, count / chunk + (count % chunk != 0));
        for (uint64_t k = 0; k < chunks; k++) {
            symm_part p = symm_chunk_of(count, log, k);
            T_EQ(p.at, at);
            T_CHECK(p.len > 0 && p.len <= chunk && (p.len == chunk || k == chunks - 1));
            at += p.len;
        }
        T_EQ(at, count);
    }
    T_EQ(symm_chunks(0, 12), 0);
    symm_part last = symm_chunk_of((1ull << 60) + 1, 20, 1ull << 40);
    T_EQ(last.at, 1ull << 60);
    T_EQ(last.len, 1);
}

/* CTA b takes b, b + g, ...: its share is how many of those there are. */
static void shares_add_up(void) {
    for (int g = 1; g <= SYMM_MAX_CTAS; g++)
        for (uint64_t chunks = 0; chunks < 200; chunks++) {
            uint64_t sum = 0;
            for (int b = 0; b < g; b++) {
                uint64_t n = 0;
                for (uint64_t k = (unsigned)b; k < chunks; k += (unsigned)g) n++;
                T_EQ(symm_share(chunks, b, g), n);
                sum += n;
            }
            T_EQ(sum, chunks);
        }
}

/* ---- scratch ---- */

static void check_scratch(uint64_t bytes, int n) {
    symm_scratch s = symm_plan_scratch(bytes, n);
    uint64_t end = SYMM_CTL_BYTES + bytes;
    T_EQ(s.host.packet_off, SYMM_CTL_BYTES);
    T_EQ(s.host.packet_slot % SYMM_PACKET_STRIDE, 0);
    T_EQ(s.host.packet_slot % 64, 0);
    /* two parities of two phases of n sources */
    T_CHECK(s.host.packet_off + 4ull * (unsigned)n * s.host.packet_slot <= s.host.stage_off);
    T_CHECK(s.host.p2p_off + s.host.p2p_ring * (unsigned)n <= s.host.ahead_off);
    T_CHECK(s.host.ahead_off + s.host.ahead_ring <= s.host.stage_off);
    T_CHECK(s.host.ahead_ring >= 4096 && (s.host.ahead_ring & (s.host.ahead_ring - 1)) == 0);
    T_EQ(s.host.ahead_off % 4096, 0);
    T_EQ(s.host.stage_off % 4096, 0);
    T_EQ(s.host.stage_bytes % 4096, 0);
    T_CHECK(s.host.stage_off + 2 * s.host.stage_bytes <= end);
    T_CHECK(s.host.stage_bytes >= bytes / 4); /* most of it is for staging */
}

/* What staging kernels address lies in the area of one parity, for whatever number of CTAs. */
static void check_staging(const symm_scratch *s, int n, int ctas) {
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    symm_plan_env env = {.nranks = n, .ctas = ctas, .forced = forced, .scratch = *s};
    symm_call call = {.coll = symmCollAllReduce, .count = 1 << 20, .type = symmUint8, .esize = 1};
    symm_plan p = symm_plan_make(&env, &call);
    T_EQ(p.ctas, ctas);
    T_CHECK(p.chunk >= 64 && (p.chunk & (p.chunk - 1)) == 0);
    T_CHECK(4ull * (unsigned)p.ctas * p.chunk <= s->host.stage_bytes);
}

static void scratch_never_overlaps(void) {
    for (int n = 1; n <= SYMM_MAX_RANKS; n++) {
        for (uint64_t bytes = 1ull << 20; bytes <= 4ull << 30; bytes *= 2) {
            check_scratch(bytes, n);
            for (int i = 0; i < 20; i++) check_scratch(bytes + draw(bytes), n);
            symm_scratch s = symm_plan_scratch(bytes, n);
            for (int ctas = 1; ctas <= SYMM_MAX_CTAS; ctas++) check_staging(&s, n, ctas);
        }
        /* as communicators are made: 64 MiB in whole granules with the control block */
        check_scratch((66ull << 20) - SYMM_CTL_BYTES, n);
    }
}

T_MAIN(T(slices_cover_exactly), T(chunks_cover_exactly), T(shares_add_up),
       T(scratch_never_overlaps))
