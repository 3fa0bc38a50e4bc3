/* perf_mem.c - the collectives' buffers as the host fills and checks them: in place on the host
 * backend, piece by piece through staging memory on a GPU. Each rank's thread calls it for its own
 * buffers, whose calls have ended. */
#include <string.h>

#include "perf_gpu.h"

/* Pieces begin where the pattern begins. */
static uint64_t piece(const perf_rank *p) {
    return PERF_STAGING / perf_type_size(p->data.type) / PERF_PERIOD * PERF_PERIOD;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void perf_mem_fill(perf_rank *p, const perf_case *c) {
    uint64_t size = perf_type_size(c->type), most = piece(p),
             count = perf_total(p, c->count, PERF_SENT);
    if (!p->gpu) return perf_data_fill(&p->data, p->world->rank, c->send, count);
    perf_data_fill(&p->data, p->world->rank, perf_gpu_staging(p), least(count, most));
    for (uint64_t i = 0; i < count; i += most)
        perf_gpu_put(p, c->send + i * size, least(count - i, most) * size);
}

void perf_mem_poison(perf_rank *p, void *at, uint64_t bytes) {
    if (p->gpu)
        perf_gpu_set(p, at, 0x5a, bytes);
    else
        memset(at, 0x5a, bytes);
}

uint64_t perf_mem_check_reduced(perf_rank *p, const char *at, uint64_t from, uint64_t count,
                                int calls) {
    uint64_t size = perf_type_size(p->data.type), most = piece(p), wrong = 0;
    if (!p->gpu) return perf_data_check_reduced(&p->data, at, from, count, calls);
    for (uint64_t i = 0; i < count; i += most) {
        uint64_t n = least(count - i, most);
        perf_gpu_get(p, at + i * size, n * size);
        wrong += perf_data_check_reduced(&p->data, perf_gpu_staging(p), from, n, calls);
    }
    return wrong;
}

uint64_t perf_mem_check_copied(perf_rank *p, int rank, const char *at, uint64_t from,
                               uint64_t count) {
    uint64_t size = perf_type_size(p->data.type), most = piece(p), wrong = 0;
    if (!p->gpu) return perf_data_check_copied(&p->data, rank, at, from, count);
    for (uint64_t i = 0; i < count; i += most) {
        uint64_t n = least(count - i, most);
        perf_gpu_get(p, at + i * size, n * size);
        wrong += perf_data_check_copied(&p->data, rank, perf_gpu_staging(p), from, n);
    }
    return wrong;
}

void perf_mem_spoil(perf_rank *p, char *at) {
    if (!p->gpu) {
        *at ^= 1;
        return;
    }
    perf_gpu_get(p, at, 1);
    *perf_gpu_staging(p) ^= 1;
    perf_gpu_put(p, at, 1);
}
