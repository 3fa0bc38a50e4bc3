/* perf_open.c - what a rank measures with: communicator, stream, buffers, and where a case lies in
 * them. Runs in the rank's own thread. */
#include <stdlib.h>
#include <string.h>

#include "perf_gpu.h"
#include "perf_nccl.h"
#include "symm_domains.h"

/* The communicator, once the device is settled; then what only its backend can tell. Returns 1, and
 * rank 0 has said why, if this cannot be run. */
static int open_comm(perf_rank *p) {
    perf_world *w = p->world;
    symmCommInfo_t info = {.size = sizeof info};
    symmDomainInfo_t domain = {.size = sizeof domain};
    char err[PERF_ERR] = "";
    perf_gpu_start(w, p->cfg, err, sizeof err);
    if (perf_world_refuses(w, err)) return 1;
    PERF_MUST(p, w->comm_create(w, &p->comm));
    PERF_MUST(p, symmCommQuery(p->comm, &info));
    PERF_MUST(p, symmDomainQuery(p->comm, &domain));
    int cuda = !strcmp(info.backend, "cuda");
    if (!cuda) w->device = -1;
    int bad = perf_args_backend(p->cfg, w->nranks, cuda, err, sizeof err);
    if (!bad) bad = perf_args_domains(p->cfg, domain.domains, cuda, err, sizeof err);
    if (!bad && cuda && p->cfg->gpus) bad = perf_gpu_apart(w, err, sizeof err);
    if (!bad && p->cfg->vs == PERF_VS_NCCL) perf_nccl_load(p->cfg->nccl, err, sizeof err);
    if (!perf_world_refuses(w, err)) return 0;
    PERF_MUST(p, symmCommDestroy(p->comm));
    return 1;
}

int perf_open(perf_rank *p) {
    if (open_comm(p)) return 1;
    p->data.bytes = malloc(PERF_PERIOD_BYTES);
    if (!p->data.bytes) perf_must(p, symmOutOfMemory, "the data of the check");
    p->core = perf_cores_take(p); /* the library's threads run already, wherever they like */
    perf_stream_open(p);
    return 0;
}

void perf_close(perf_rank *p) {
    PERF_MUST(p, symmCommDestroy(p->comm));
    p->comm = NULL;
    perf_stream_close(p); /* it carried the communicator's work */
    free(p->data.bytes);
    p->data.bytes = NULL;
}

/* ---- buffers ---- */

void perf_open_buffers(perf_rank *p) {
    const perf_config *cfg = p->cfg;
    size_t shift = (size_t)cfg->unalign * 8, block = cfg->max_bytes, n = (size_t)p->world->nranks;
    if (!perf_moves(cfg)) block = 0;
    if (perf_parts(cfg) && !cfg->per_rank) block /= n;
    /* With a count per rank a single part is up to one and a half times as large. */
    const uint64_t sent = perf_sent(cfg, (int)n), received = perf_received(cfg, (int)n),
                   more = (unsigned)symm_coll_varies(cfg->row);
    p->send_bytes = block * (sent + (sent == 1 ? more : 0)) + shift + 16;
    p->recv_bytes = block * (received + (received == 1 ? more : 0)) + shift + 16;
    PERF_MUST(p, symmMemAlloc((void **)&p->send, p->send_bytes));
    PERF_MUST(p, symmMemAlloc((void **)&p->recv, p->recv_bytes));
    if (!cfg->registered) return;
    PERF_MUST(p, symmWindowRegister(p->comm, p->send, p->send_bytes, &p->send_win,
                                    SYMM_WIN_COLL_SYMMETRIC));
    PERF_MUST(p, symmWindowRegister(p->comm, p->recv, p->recv_bytes, &p->recv_win,
                                    SYMM_WIN_COLL_SYMMETRIC));
}

void perf_close_buffers(perf_rank *p) {
    if (p->send_win) PERF_MUST(p, symmWindowDeregister(p->comm, p->send_win));
    if (p->recv_win) PERF_MUST(p, symmWindowDeregister(p->comm, p->recv_win));
    PERF_MUST(p, symmMemFree(p->send));
    PERF_MUST(p, symmMemFree(p->recv));
}

/* ---- cases ---- */

uint64_t perf_elements(const perf_config *cfg, int nranks, uint64_t bytes, int type) {
    uint64_t size = perf_type_size(type), n = bytes / size;
    if (!perf_moves(cfg)) return 0;
    if (!perf_parts(cfg) || cfg->per_rank) return n;
    return n / (unsigned)nranks & ~(16 / size - 1);
}

void perf_lay_case(const perf_rank *p, perf_case *c, int in_place) {
    const symm_coll_row *row = p->cfg->row;
    const size_t size = perf_type_size(c->type), shift = (size_t)p->cfg->unalign * size;
    const int rank = p->world->rank;
    c->in_place = in_place;
    c->send = p->send + shift;
    c->recv = p->recv + shift;
    if (!in_place) return;
    if (row->in <= row->out)
        c->send =
            c->recv +
            (row->in == row->out ? 0 : perf_offset(p, c->count, rank, PERF_RECEIVED, rank) * size);
    else
        c->recv = c->send + perf_offset(p, c->count, rank, PERF_SENT, rank) * size;
}
