/* fuzz_heap.c - libFuzzer entry for heaps: every four bytes are a call, made on four thread ranks,
 * which one thread drives in groups. A naive model keeps the blocks: offsets of SYM are equal on
 * all ranks, no two blocks overlap, each lies in memory that is there, aligned, and keeps what
 * was written in it until it is freed; what must be refused is. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/heap/heap_int.h"
#include "symm.h"
#include "symm_heap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MB (1ull << 20)

enum { RANKS = 4, BLOCKS = 200, CALLS = 160 };

typedef struct {
    char *at[RANKS]; /* LOCAL: its owner's only */
    uint64_t bytes;
    int local, owner, stamp, uncollected;
} block;

static symmComm_t comm[RANKS];
static symmHeap_t heap[RANKS];
static block model[BLOCKS];
static int blocks, stamps;
static uint64_t expected_calls;

static void require_at(int ok, int line) {
    if (ok) return;
    fprintf(stderr, "fuzz_heap.c:%d: not as it must be\n", line);
    abort();
}
#define require(ok) require_at((ok), __LINE__)
#define OK(call)    require((call) == symmSuccess)

/* Each rank's part of a collective call, and the code that all must have. */
static symmResult_t all(symmResult_t (*fn)(int, uint64_t, uint64_t), uint64_t a, uint64_t b) {
    OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) OK(fn(r, a, b));
    return symmGroupEnd();
}

static symmResult_t create(int r, uint64_t guard, uint64_t fit) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    c.reserve = 32 * MB;
    c.chunk = 2 * MB;
    c.symBytes = 2 * MB;
    c.localBytes = (uint64_t)r * 2 * MB;
    c.guard = (int)guard;
    c.fit = (int)fit;
    return symmHeapCreate(comm[r], &c, &heap[r]);
}
static symmResult_t grow(int r, uint64_t sym, uint64_t local) {
    return symmHeapGrow(heap[r], sym, local * (unsigned)(r + 1));
}
static symmResult_t trim(int r, uint64_t keep, uint64_t unused) {
    (void)unused;
    return symmHeapTrim(heap[r], keep, NULL);
}
static symmResult_t collect(int r, uint64_t a, uint64_t b) {
    (void)a, (void)b;
    return symmHeapCollect(heap[r]);
}
static symmResult_t check(int r, uint64_t a, uint64_t b) {
    (void)a, (void)b;
    return symmHeapCheck(heap[r]);
}

static symmHeapInfo_t info(int r) {
    symmHeapInfo_t i = {.size = sizeof i};
    OK(symmHeapQuery(heap[r], &i));
    return i;
}

static uint64_t off_of(int r, const void *p) {
    const symmHeapInfo_t i = info(r);
    return (uint64_t)(uintptr_t)p - i.base - (unsigned)r * i.stride;
}

static void stamp(char *p, uint64_t bytes, int v) {
    p[0] = p[bytes - 1] = (char)v;
}
static void stamped(const char *p, uint64_t bytes, int v) {
    require(p[0] == (char)v && p[bytes - 1] == (char)v);
}

/* Against every block of the model that lives on rank r. */
static void overlaps_none(int r, const char *p, uint64_t bytes) {
    for (int i = 0; i < blocks; i++) {
        const block *b = &model[i];
        if (b->local && b->owner != r) continue;
        require(p + bytes <= b->at[r] || b->at[r] + b->bytes <= p);
    }
}

static void take(int local, int owner, uint64_t bytes, uint64_t align) {
    block b = {.bytes = bytes, .local = local, .owner = owner, .stamp = ++stamps & 0x7f};
    symmResult_t first = symmSuccess;
    if (blocks == BLOCKS) return;
    for (int r = 0; r < RANKS; r++) {
        void *p = NULL;
        if (local && r != owner) continue;
        symmResult_t got = symmHeapAlloc(heap[r], bytes, align, local ? 1u : 0u, &p);
        require(got == symmSuccess || got == symmNeedGrow || got == symmOutOfMemory);
        require((got == symmSuccess) == (p != NULL));
        if (r && !local) require(got == first);
        first = got;
        if (got) continue;
        b.at[r] = p;
        require((uintptr_t)p % (align < 256 ? 256 : align) == 0);
        overlaps_none(r, p, bytes);
        if (!local) require(off_of(r, p) == off_of(0, b.at[0]));
        stamp(p, bytes, b.stamp);
    }
    if (first) return;
    if (!local) expected_calls++;
    model[blocks++] = b;
}

static void give(int i) {
    const block b = model[i];
    if (b.uncollected) return;
    for (int r = 0; r < RANKS; r++) {
        if (b.local && r != b.owner) continue;
        stamped(b.at[r], b.bytes, b.stamp);
        if (b.bytes > 256) require(symmHeapFree(heap[r], b.at[r] + 256) == symmInvalidArgument);
        require(symmHeapFree(heap[(r + 1) % RANKS], b.at[r]) == symmInvalidArgument);
        OK(symmHeapFree(heap[r], b.at[r]));
        require(symmHeapFree(heap[r], b.at[r]) == symmInvalidArgument);
    }
    if (!b.local) expected_calls++;
    model[i] = model[--blocks];
}

/* On some ranks only at first: a later call of the fuzzer's may complete it. */
static void give_later(int i, int ranks) {
    block *b = &model[i];
    if (b->local) return;
    for (int r = 0; r < RANKS; r++) {
        symm_heap *h;
        if (!(ranks >> r & 1)) continue;
        OK(symm_heap_pin(heap[r], &h));
        symm_heap_give_later(h, off_of(r, b->at[r]));
        symm_heap_unpin(h);
        b->uncollected |= 1 << r;
    }
}

static void collected(void) {
    OK(all(collect, 0, 0));
    for (int i = 0; i < blocks;) {
        if (model[i].uncollected == (1 << RANKS) - 1) {
            expected_calls++;
            model[i] = model[--blocks];
        } else {
            i++;
        }
    }
}

static void reach(int i, int to) {
    const block *b = &model[i];
    symmRef_t ref;
    void *p;
    if (b->uncollected) return;
    OK(symmRefGet(b->at[b->owner], &ref));
    require(ref.len >= b->bytes && ref.rank == b->owner);
    if (b->local) {
        OK(symmRefPtr(&ref, comm[to], SYMM_REF_OWNER, &p));
        require(p == b->at[b->owner]);
    } else {
        OK(symmRefPtr(&ref, comm[to], to, &p));
        require(p == b->at[to]);
    }
    stamped(p, b->bytes, b->stamp);
}

static void compare(void) {
    uint64_t sym = 0, local[RANKS] = {0}, n[RANKS] = {0};
    for (int i = 0; i < blocks; i++) {
        const block *b = &model[i];
        for (int r = 0; r < RANKS; r++) {
            if (b->local && r != b->owner) continue;
            stamped(b->at[r], b->bytes, b->stamp);
            n[r]++;
        }
        if (b->local)
            local[b->owner] += b->bytes;
        else
            sym += b->bytes;
    }
    const symmHeapInfo_t zero = info(0);
    for (int r = 0; r < RANKS; r++) {
        const symmHeapInfo_t i = info(r);
        require(i.blocks == n[r] && i.symUsed >= sym && i.localUsed >= local[r]);
        require(i.symUsed <= i.symBytes && i.localUsed <= i.localBytes);
        require(i.calls == expected_calls && i.digest == zero.digest);
        require(i.symUsed == zero.symUsed && i.symBytes == zero.symBytes);
    }
}

static void call(const uint8_t *d) {
    const uint64_t bytes = 1 + (d[1] | (uint64_t)d[2] << 8) * (d[0] & 0x80 ? 37u : 3u);
    const uint64_t align = d[3] & 1 ? 1ull << (d[3] >> 4) * 21 / 15 : 0;
    const int owner = d[3] % RANKS, any = blocks ? (d[1] | d[2] << 8) % blocks : -1;
    switch (d[0] & 0xf) {
    case 0: (void)all(grow, (d[1] & 3) * 2 * MB, (d[2] & 1) * 2 * MB); break;
    case 1: OK(all(trim, (d[1] & 7) * 2 * MB, 0)); break;
    case 2: collected(); break;
    case 3: OK(all(check, 0, 0)); break;
    case 4:
        if (any >= 0) give_later(any, d[3] & 0xf);
        break;
    case 5:
        if (any >= 0) reach(any, owner);
        break;
    case 6:
    case 7:
    case 8: take(1, owner, bytes, align); break;
    case 9:
    case 10:
    case 11: take(0, 0, bytes, align); break;
    default:
        if (any >= 0) give(any);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!comm[0]) {
        setenv("SYMM_DEBUG", "NONE", 1);
        setenv("SYMM_BACKEND", "host", 1);
        setenv("SYMM_SCRATCH", "1M", 1);
        setenv("SYMM_WIN_STRIDE", "1G", 1);
        OK(symmCommInitAll(comm, RANKS, NULL));
    }
    if (size < 5) return 0;
    blocks = stamps = 0;
    expected_calls = 0;
    /* Painting all new memory takes twenty times as long as all else: one input in 32 has it. */
    OK(all(create, data[0] >= 0xf8, data[0] & 1));
    for (size_t i = 1, n = 0; i + 4 <= size && n < CALLS; i += 4, n++) {
        call(data + i);
        if (n % 16 == 15) compare();
    }
    compare();
    for (int r = 0; r < RANKS; r++) OK(symmHeapDestroy(heap[r]));
    return 0;
}
