/* heap_guard.c - guard mode, for heaps and the objects made of them: paints red zones behind blocks
 * and poison into free memory, looks whether they are intact, and words the damage. Host memory is
 * touched directly, GPU memory through the driver, in the communicator's context. Any thread. The
 * caller makes sure that nobody else uses the bytes: their block is being taken or freed, or a lock
 * is held. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "host/gpu/gpu.h"
#include "heap_int.h"

enum { POISON = 0xdd, RED = 0xfd };

static int byte_of(int poison) {
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
        memset(at, byte_of(poison), bytes);
        return 0;
    }
    if (symm_gpu_push(h->comm, &scope)) return -1;
    const int bad = paint_gpu(h, at, bytes, byte_of(poison));
    symm_gpu_pop(h->comm, &scope);
    return bad;
}

typedef struct {
    char *at;
    uint64_t bytes;
    int value;
} brush;

static symmResult_t brush_task(void *args) {
    const brush *b = args;
    memset(b->at, b->value, b->bytes);
    return symmSuccess;
}

static symmResult_t brush_gpu(const symm_heap *h, symmStream_t stream, const brush *b) {
    symm_cuda_scope scope;
    SYMM_TRY(symm_gpu_enter(h->comm, &scope));
    cu_result cu = symm_cu.cuMemsetD8Async((uintptr_t)b->at, (unsigned char)b->value, b->bytes,
                                           symm_gpu_stream(stream));
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "painting %llu bytes", (unsigned long long)b->bytes);
}

symmResult_t symm_guard_paint_later(const symm_heap *h, symmStream_t stream, uint64_t off,
                                    uint64_t bytes, int poison) {
    const brush b = {symm_heap_addr(h, h->comm->rank, off), bytes, byte_of(poison)};
    if (h->comm->cuda) return brush_gpu(h, stream, &b);
    return symm_stream_submit(stream, brush_task, &b, sizeof b);
}

/* The first byte that is not `value`, or n. */
static size_t first_other(const unsigned char *p, size_t n, int value) {
    size_t i = 0;
    if (n && p[0] == value && !memcmp(p, p + 1, n - 1)) return n;
    while (i < n && p[i] == value) i++;
    return i;
}

/* 1 if the bytes are as they were painted; else *at is the first that is not. The CPU cannot read
 * memory of a GPU, so that is copied, piece by piece. Bytes that the driver does not copy count as
 * intact; the driver's error is logged. */
static int is_intact(symm_heap *h, uint64_t off, uint64_t bytes, int poison, uint64_t *at) {
    unsigned char copy[SYMM_GUARD_PIECE];
    symm_cuda_scope scope;
    int good = 1;
    if (h->comm->cuda && symm_gpu_push(h->comm, &scope)) return 1;
    for (uint64_t done = 0; done < bytes && good; done += SYMM_GUARD_PIECE) {
        const size_t n = bytes - done < sizeof copy ? (size_t)(bytes - done) : sizeof copy;
        const unsigned char *p = (const unsigned char *)h->win.ptr + off + done;
        if (h->comm->cuda) {
            int cu = h->comm->vmm->copy(copy, p, n);
            if (cu) {
                symm_vmm_error(h->comm->vmm, cu, "reading %zu bytes", n);
                break;
            }
            p = copy;
        }
        const size_t i = first_other(p, n, byte_of(poison));
        good = i == n;
        *at = off + done + i;
    }
    if (h->comm->cuda) symm_gpu_pop(h->comm, &scope);
    return good;
}

/* ---- looking, and what is said of damage ----------------------------------------------------- */

static void word_damage(const symm_heap *h, const symm_spot *s, uint64_t at, char *text) {
    const char *arena = s->arena ? s->arena : "";
    char lane[48] = "";
    if (s->owner == SYMM_OWNER_LANE && s->poison)
        snprintf(lane, sizeof lane, " on a lane");
    else if (s->owner == SYMM_OWNER_LANE || s->owner == SYMM_OWNER_GRAPH)
        snprintf(lane, sizeof lane,
                 s->owner == SYMM_OWNER_LANE ? ", lane %d" : ", in a graph of lane %d", s->lane);
    if (s->poison)
        snprintf(text, SYMM_GUARD_TEXT,
                 "heap %s%s%s: the byte at offset %llu was written after it was freed%s", h->name,
                 s->arena ? ", arena " : "", arena, (unsigned long long)at, lane);
    else
        snprintf(text, SYMM_GUARD_TEXT,
                 "heap %s%s%s: byte %llu was written, of a block of %llu bytes at offset %llu%s",
                 h->name, s->arena ? ", arena " : "", arena, (unsigned long long)(at - s->block),
                 (unsigned long long)s->asked, (unsigned long long)s->block, lane);
}

int symm_guard_look(symm_heap *h, const symm_spot *s, char *text) {
    uint64_t at;
    if (is_intact(h, s->off, s->bytes, s->poison, &at)) return 1;
    word_damage(h, s, at, text);
    return 0;
}

void symm_guard_note(symm_heap *h, const char *text) {
    SYMM_WARN("%s", text);
    symm_heap_lock(h);
    if (!h->damage[0]) snprintf(h->damage, sizeof h->damage, "%s", text);
    symm_heap_unlock(h);
}

void symm_guard_warn(symm_heap *h, const symm_spot *s) {
    char text[SYMM_GUARD_TEXT];
    if (!symm_guard_look(h, s, text)) symm_guard_note(h, text);
}

symmResult_t symm_guard_freed(symm_heap *h, const symm_spot *s) {
    char text[SYMM_GUARD_TEXT];
    if (symm_guard_look(h, s, text)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage, "%s (it is freed all the same)", text);
}

/* Bytes that are free now may be taken and written by another thread in the next moment. So memory
 * is looked at with the locks. A GPU's is first looked at without, because copying takes longer,
 * and with the locks only where that found damage. */
symmResult_t symm_guard_walk(symm_heap *h, const symm_guard_walker *w) {
    char text[SYMM_GUARD_TEXT];
    uint64_t at = 0;
    do {
        symm_spot s;
        int good = 0;
        uint64_t next = 0;
        for (int locked = !h->comm->cuda; locked < 2 && !good; locked++) {
            w->lock(w->ctx);
            next = w->next(w->ctx, at, &s);
            if (locked) good = symm_guard_look(h, &s, text);
            w->unlock(w->ctx);
            if (!locked) good = symm_guard_look(h, &s, text);
        }
        if (!good) return SYMM_ERR(symmInvalidUsage, "%s", text);
        at = next;
    } while (at);
    return symmSuccess;
}
