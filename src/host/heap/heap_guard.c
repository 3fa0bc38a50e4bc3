/* heap_guard.c - guard mode: red zones behind blocks, poison in free memory. Host memory is touched
 * directly, GPU memory through the driver, in the communicator's context. Any thread; the
 * callers keep the ranges to themselves (a block that is being taken or given). */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "host/gpu/gpu.h"
#include "heap_int.h"

enum { POISON = 0xdd, RED = 0xfd, PIECE = 16384 };

int symm_guard_byte(int poison) {
    return poison ? POISON : RED;
}

static int paint_gpu(symm_heap *h, char *at, uint64_t bytes, int value) {
    const symm_vmm *v = h->comm->vmm;
    unsigned char ends[2 * SYMM_RED_ZONE];
    int cu;
    if (((uintptr_t)at | bytes) % 4 == 0) {
        cu = v->fill(at, bytes, 0x01010101u * (unsigned)value);
    } else { /* only a red zone begins at an odd byte */
        memset(ends, value, bytes);
        cu = v->copy(at, ends, bytes);
    }
    if (cu) symm_vmm_error(v, cu, "painting %llu bytes", (unsigned long long)bytes);
    return cu ? -1 : 0;
}

int symm_guard_paint(symm_heap *h, uint64_t off, uint64_t bytes, int poison) {
    char *at = h->win.ptr + off;
    symm_cuda_scope scope;
    if (!h->comm->cuda) {
        memset(at, symm_guard_byte(poison), bytes);
        return 0;
    }
    if (symm_gpu_push(h->comm, &scope)) return -1;
    const int bad = paint_gpu(h, at, bytes, symm_guard_byte(poison));
    symm_gpu_pop(h->comm, &scope);
    return bad;
}

/* The first byte that is not `value`, or n. */
static size_t first_other(const unsigned char *p, size_t n, int value) {
    size_t i = 0;
    if (n && p[0] == value && !memcmp(p, p + 1, n - 1)) return n;
    while (i < n && p[i] == value) i++;
    return i;
}

/* In pieces, through a buffer where the CPU cannot read it. What cannot be read counts as intact:
 * the driver has said why. */
int symm_guard_intact(symm_heap *h, uint64_t off, uint64_t bytes, int poison, uint64_t *at) {
    unsigned char copy[PIECE];
    symm_cuda_scope scope;
    int good = 1;
    if (h->comm->cuda && symm_gpu_push(h->comm, &scope)) return 1;
    for (uint64_t done = 0; done < bytes && good; done += PIECE) {
        const size_t n = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
        const unsigned char *p = (const unsigned char *)h->win.ptr + off + done;
        if (h->comm->cuda) {
            int cu = h->comm->vmm->copy(copy, p, n);
            if (cu) {
                symm_vmm_error(h->comm->vmm, cu, "reading %zu bytes", n);
                break;
            }
            p = copy;
        }
        const size_t i = first_other(p, n, symm_guard_byte(poison));
        good = i == n;
        *at = off + done + i;
    }
    if (h->comm->cuda) symm_gpu_pop(h->comm, &scope);
    return good;
}

/* Where a check has come to. */
typedef struct {
    uint64_t next; /* zone offset behind what is looked at */
    uint64_t off, bytes;
    int poison; /* a part of a hole; else the red zone of b */
    symm_block b;
} spot;

/* What must be painted at or behind zone offset z, as the placement has it now; of a hole not more
 * than a piece. A block whose owner is painting it (taken or given just now) is passed over:
 * that owner has looked at it. 0: nothing is left. With the lock. */
static int find_spot(const symm_heap *h, int zone, uint64_t z, spot *s) {
    symm_piece p;
    *s = (spot){0};
    if (!symm_place_at(h->zone[zone].place, z, &p)) return 0;
    s->next = p.off + p.bytes;
    if (p.used) {
        if (!symm_heap_find(h, symm_zone_flip(h, zone, p.off, 1), &s->b)) return 1;
        s->off = s->b.off + s->b.bytes;
        s->bytes = s->b.limbo == SYMM_LIMBO_BUSY ? 0 : s->b.room - s->b.bytes;
        return 1;
    }
    if (p.off > z) z = p.off;
    if (s->next - z > PIECE) s->next = z + PIECE;
    s->poison = 1;
    s->bytes = s->next - z;
    s->off = symm_zone_flip(h, zone, z, s->bytes);
    return 1;
}

/* 0 if it is damaged: *at says where. What a hole is now, another thread may take and write to in
 * the next moment. So host memory is looked at with the lock. The driver's calls are longer, and
 * are made with it only where what was read without it was not as it should be. */
static int spot_intact(symm_heap *h, int zone, uint64_t z, spot *s, uint64_t *at) {
    int good = 1;
    if (h->comm->cuda) {
        symm_heap_lock(h);
        find_spot(h, zone, z, s);
        symm_heap_unlock(h);
        if (symm_guard_intact(h, s->off, s->bytes, s->poison, at)) return 1;
    }
    symm_heap_lock(h);
    if (find_spot(h, zone, z, s)) good = symm_guard_intact(h, s->off, s->bytes, s->poison, at);
    symm_heap_unlock(h);
    return good;
}

static symmResult_t damaged(const symm_heap *h, const spot *s, uint64_t at) {
    if (s->poison)
        return SYMM_ERR(symmInvalidUsage,
                        "heap %s: the byte at offset %llu was written after it was freed", h->name,
                        (unsigned long long)at);
    return SYMM_ERR(symmInvalidUsage,
                    "heap %s: byte %llu was written, of a block of %llu bytes at offset %llu",
                    h->name, (unsigned long long)(at - s->b.off), (unsigned long long)s->b.bytes,
                    (unsigned long long)s->b.off);
}

void symm_guard_note(symm_heap *h, const char *text) {
    SYMM_WARN("%s", text);
    symm_heap_lock(h);
    if (!h->damage[0]) snprintf(h->damage, sizeof h->damage, "%s", text);
    symm_heap_unlock(h);
}

/* Blocks inside an owner's: he looks at them. */
static symmResult_t check_inside(symm_heap *h) {
    for (int owner = 0; owner <= SYMM_OWNER_HEAP; owner++) {
        symm_heap_lock(h);
        const symm_heap_look check = h->inside[owner].check;
        void *arg = h->inside[owner].check_arg;
        symm_heap_unlock(h);
        if (check) SYMM_TRY(check(arg));
    }
    return symmSuccess;
}

symmResult_t symm_guard_check(symm_heap *h) {
    char old[sizeof h->damage];
    spot s;
    uint64_t at;
    symm_heap_lock(h);
    snprintf(old, sizeof old, "%s", h->damage);
    symm_heap_unlock(h);
    if (old[0]) return SYMM_ERR(symmInvalidUsage, "%s", old);
    for (int zone = 0; zone < SYMM_ZONES; zone++) {
        uint64_t z = 0;
        do {
            if (!spot_intact(h, zone, z, &s, &at)) return damaged(h, &s, at);
            z = s.next;
        } while (z);
    }
    return check_inside(h);
}
