/* heap_dump.c - symmHeapDump: lists a heap's pieces and has them written. Any thread. The heap is
 * pinned. Its lock is held while pieces are listed, not while they are written. */
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "heap_chart.h"
#include "heap_int.h"

_Static_assert((int)SYMM_OWNER_HEAP + 1 == (int)SYMM_CHART_UNCOLLECTED,
               "kinds are owners, then more");

typedef struct {
    symm_chart map;
    symm_chart_chunk *chunks;
    symm_chart_piece *pieces;
    size_t nchunks, npieces; /* room */
} picture;

static symm_chart_piece piece_of(const symm_heap *h, int zone, const symm_piece *p) {
    symm_block b;
    symm_chart_piece out = {symm_zone_flip(h, zone, p->off, p->bytes), p->bytes, SYMM_CHART_HOLE,
                            -1};
    if (p->used && symm_heap_find(h, out.off, &b)) {
        out.kind = b.uncollected ? SYMM_CHART_UNCOLLECTED : b.owner;
        out.lane = b.lane;
    }
    return out;
}

/* Reverses the list: zone offsets of LOCAL run against the heap's. */
static void turn(symm_chart_piece *p, int n) {
    for (int i = 0; i < n / 2; i++) {
        const symm_chart_piece keep = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = keep;
    }
}

/* With the lock. 0: there is not enough room. */
static int note_zone(const symm_heap *h, int zone, picture *pic, size_t *chunk, size_t *piece) {
    const symm_zone *z = &h->zone[zone];
    symm_chart_zone *out = &pic->map.zone[zone];
    symm_chart_piece *pieces = pic->pieces + *piece;
    symm_place_stats s;
    symm_piece p;
    int n = 0;
    if (*chunk + (size_t)z->count > pic->nchunks) return 0;
    for (uint64_t at = 0; symm_place_at(z->place, at, &p); at = p.off + p.bytes) {
        if (*piece + (size_t)n == pic->npieces) return 0;
        pieces[n++] = piece_of(h, zone, &p);
    }
    symm_place_measure(z->place, &s);
    *out = (symm_chart_zone){.name = zone == SYMM_ZONE_SYM ? "SYM" : "LOCAL",
                             .from = zone == SYMM_ZONE_SYM ? 0 : h->reserve - z->extent,
                             .to = zone == SYMM_ZONE_SYM ? z->extent : h->reserve,
                             .bytes = z->bytes,
                             .peak = s.peak_used,
                             .chunks = pic->chunks + *chunk,
                             .pieces = pieces,
                             .nchunks = z->count,
                             .npieces = n};
    for (int i = 0; i < z->count; i++) {
        const symm_part k = z->chunks[zone == SYMM_ZONE_SYM ? i : z->count - 1 - i];
        pic->chunks[*chunk + (size_t)i] =
            (symm_chart_chunk){symm_zone_flip(h, zone, k.off, k.bytes), k.bytes};
    }
    if (zone == SYMM_ZONE_LOCAL) turn(pieces, n);
    *chunk += (size_t)z->count;
    *piece += (size_t)n;
    return 1;
}

static int note(symm_heap *h, picture *pic) {
    size_t chunk = 0, piece = 0;
    symm_heap_lock(h);
    pic->map = (symm_chart){.name = h->name,
                            .rank = h->comm->rank,
                            .nranks = h->comm->nranks,
                            .reserve = h->reserve,
                            .granularity = h->granularity,
                            .calls = h->calls,
                            .digest = h->digest,
                            .graph_ranges = h->ngraph_ranges,
                            .graph_range_memory = h->apart};
    for (int i = 0; i < h->ngraph_ranges; i++)
        pic->map.graph_range_bytes += h->graph_ranges[i].bytes;
    const int all = note_zone(h, SYMM_ZONE_SYM, pic, &chunk, &piece) &&
                    note_zone(h, SYMM_ZONE_LOCAL, pic, &chunk, &piece);
    symm_heap_unlock(h);
    return all;
}

/* Room for what there is now, and some more, because other threads go on. */
static void measure(symm_heap *h, picture *pic) {
    symm_heap_lock(h);
    pic->nchunks = 8;
    pic->npieces = 64;
    for (int i = 0; i < SYMM_ZONES; i++) {
        symm_place_stats s;
        symm_place_measure(h->zone[i].place, &s);
        pic->nchunks += (size_t)h->zone[i].count;
        pic->npieces += (size_t)((s.blocks + s.holes) * 5 / 4);
    }
    symm_heap_unlock(h);
}

static symmResult_t take_picture(symm_heap *h, picture *pic) {
    for (;;) {
        measure(h, pic);
        pic->chunks = SYMM_FAIL_ALLOC(chart_chunks, calloc(pic->nchunks, sizeof *pic->chunks));
        pic->pieces = SYMM_FAIL_ALLOC(chart_pieces, calloc(pic->npieces, sizeof *pic->pieces));
        if (pic->chunks && pic->pieces && note(h, pic)) return symmSuccess;
        const int no_memory = !pic->chunks || !pic->pieces;
        free(pic->chunks);
        free(pic->pieces);
        if (no_memory)
            return SYMM_ERR(symmOutOfMemory, "no memory to list %zu pieces of heap %s",
                            pic->npieces, h->name);
    }
}

symmResult_t symmHeapDump(symmHeap_t heap, int fd, int format) {
    symm_text t = {.fd = fd};
    symm_heap *h;
    picture pic;
    if (format != SYMM_DUMP_TEXT && format != SYMM_DUMP_JSON)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHeapDump: format=%d: must be SYMM_DUMP_TEXT or SYMM_DUMP_JSON",
                        format);
    SYMM_TRY(symm_heap_pin(heap, &h));
    symmResult_t r = take_picture(h, &pic);
    if (!r) {
        (format == SYMM_DUMP_JSON ? symm_chart_json : symm_chart_text)(&t, &pic.map);
        r = symm_text_end(&t);
        free(pic.chunks);
        free(pic.pieces);
    }
    symm_heap_unpin(h);
    return r;
}
