/* arena_bins.c - blocks that threads keep for their next calls, in bins by size. A thread uses its
 * own bins without a lock. Others empty them when they need memory, with the sub's lock, while the
 * thread stays out. A thread also keeps blocks of other threads, because a thread that frees for
 * others mostly takes as much; what is too much goes to the owners. Any thread; the sub's lock, its
 * far_lock. */
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "arena_int.h"

/* ---- who may touch them ---------------------------------------------------------------------- */

/* ThreadSanitizer does not know membarrier. */
#if defined(__SANITIZE_THREAD__)
#define SYMM_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SYMM_HAS_TSAN 1
#endif
#endif

int symm_bins_fenced;

static int fence(int command) {
    return syscall(SYS_membarrier, command, 0, 0) ? -1 : 0;
}

static void open_once(void) {
#ifndef SYMM_HAS_TSAN
    symm_bins_fenced = !fence(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                       !fence(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

void symm_bins_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum { WAIT_MS = 5000 }; /* a thread leaves its bins in nanoseconds, unless it does not run */

/* Afterwards each thread has made its store to busy visible, or sees barred. -1: the system
 * refused. */
static int fence_all(void) {
    if (!symm_bins_fenced || !fence(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return 0;
    (void)fence(
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); /* a child of fork may not be registered */
    return fence(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

int symm_bins_bar(symm_sub *sub) {
    atomic_fetch_add_explicit(&sub->barred, 1, memory_order_seq_cst);
    if (!fence_all()) {
        const int64_t end = now_ms() + WAIT_MS;
        do { /* pairs with the release in symm_bins_leave */
            if (!atomic_load_explicit(&sub->busy, memory_order_seq_cst)) return 1;
            sched_yield();
        } while (now_ms() < end);
    }
    symm_bins_unbar(sub);
    return 0;
}

void symm_bins_unbar(symm_sub *sub) {
    SYMM_ASSERT(atomic_load_explicit(&sub->barred, memory_order_relaxed) > 0);
    atomic_fetch_sub_explicit(&sub->barred, 1, memory_order_release);
}

/* ---- emptying them --------------------------------------------------------------------------- */

static void count_out(symm_sub *sub, uint64_t bytes) {
    const uint64_t kept = atomic_load_explicit(&sub->kept, memory_order_relaxed);
    SYMM_ASSERT(bytes <= kept);
    atomic_store_explicit(&sub->kept, kept - bytes, memory_order_relaxed);
}

static void check_bin(const symm_sub *sub, uint32_t units) {
    const symm_bin *bin = &sub->bin[units];
    SYMM_ASSERT(1 <= units && units <= SYMM_KEEP_UNITS);
    SYMM_ASSERT(bin->low <= bin->n && bin->n <= SYMM_KEEP_EACH);
    SYMM_ASSERT((uint64_t)bin->n * units * SYMM_ARENA_UNIT <=
                atomic_load_explicit(&sub->kept, memory_order_relaxed));
}

void symm_sub_flush_bin(symm_sub *sub, uint32_t units, uint32_t leave) {
    symm_arena *a = sub->arena;
    symm_bin *bin = &sub->bin[units];
    uint64_t others[SYMM_KEEP_EACH];
    int n = 0;
    check_bin(sub, units);
    if (bin->n <= leave) return;
    const uint32_t oldest = bin->n - leave;
    for (uint32_t i = 0; i < oldest; i++) {
        const uint64_t off = bin->off[i], unit = (off & (a->super - 1)) / SYMM_ARENA_UNIT;
        symm_super *super = symm_super_at(a, off);
        if (atomic_load_explicit(&super->owner, memory_order_relaxed) != sub) {
            others[n++] = off;
            continue;
        }
        atomic_store_explicit(&super->block[unit], 0, memory_order_relaxed);
        symm_sub_place(sub, off);
    }
    memmove(bin->off, bin->off + oldest, sizeof *bin->off * leave);
    bin->n = leave;
    if (bin->low > leave) bin->low = leave;
    count_out(sub, (uint64_t)oldest * units * SYMM_ARENA_UNIT);
    check_bin(sub, units);
    if (!n) return;
    symm_sub_unlock(sub); /* their owners' locks may be taken */
    while (n-- > 0) {
        symm_super *super = symm_super_at(a, others[n]);
        symm_sub_give_far(atomic_load_explicit(&super->owner, memory_order_relaxed), others[n],
                          NULL);
    }
    symm_sub_lock(sub);
}

void symm_sub_flush(symm_sub *sub) {
    for (uint32_t units = 1; units <= SYMM_KEEP_UNITS; units++) symm_sub_flush_bin(sub, units, 0);
}

/* Gives back blocks that were not needed since the last look, so that their superblocks can go
 * back. */
static void flush_unused(symm_sub *sub) {
    for (uint32_t units = 1; units <= SYMM_KEEP_UNITS; units++) {
        symm_bin *bin = &sub->bin[units];
        symm_sub_flush_bin(sub, units, bin->n - bin->low);
        bin->low = bin->n;
    }
    sub->frees = 0;
}

void symm_bins_shrink(symm_sub *sub, uint32_t units) {
    symm_sub_lock(sub);
    if (sub->bin[units].n == SYMM_KEEP_EACH) symm_sub_flush_bin(sub, units, SYMM_KEEP_EACH - 16);
    if (sub->frees >= SYMM_KEEP_CALLS) flush_unused(sub);
    if (atomic_load_explicit(&sub->kept, memory_order_relaxed) > SYMM_KEEP_BYTES)
        for (uint32_t k = 1; k <= SYMM_KEEP_UNITS; k++)
            symm_sub_flush_bin(sub, k, sub->bin[k].n / 2);
    symm_sub_unlock(sub);
}

/* ---- filling them ---------------------------------------------------------------------------- */

/* The thread; between enter and leave, or with the lock. */
static int collect(symm_sub *sub) {
    symm_arena *a = sub->arena;
    int left = 0, n = 0;
    uint64_t kept = atomic_load_explicit(&sub->kept, memory_order_relaxed);
    pthread_mutex_lock(&sub->far_lock);
    for (; !sub->waits.n && n < sub->nfar; n++) {
        uint64_t off = sub->far[n], unit = (off & (a->super - 1)) / SYMM_ARENA_UNIT;
        uint64_t units =
            SYMM_BLOCK_UNITS &
            atomic_load_explicit(&symm_super_at(a, off)->block[unit], memory_order_relaxed);
        symm_bin *bin = units <= SYMM_KEEP_UNITS ? &sub->bin[units] : NULL;
        if (!bin || bin->n == SYMM_KEEP_EACH || kept > SYMM_KEEP_BYTES) {
            sub->far[left++] = off;
            continue;
        }
        SYMM_ASSERT(units && bin->n < SYMM_KEEP_EACH);
        bin->off[bin->n++] = off;
        kept += units * SYMM_ARENA_UNIT;
    }
    if (n) sub->nfar = left;
    pthread_mutex_unlock(&sub->far_lock);
    atomic_store_explicit(&sub->kept, kept, memory_order_relaxed);
    return n - left;
}

int symm_sub_collect(symm_sub *sub) {
    const int in = symm_bins_enter(sub);
    if (!in) symm_sub_lock(sub);
    const int n = collect(sub);
    if (in)
        symm_bins_leave(sub);
    else
        symm_sub_unlock(sub);
    return n;
}
