/* split.inl - how a span of elements is divided: into slices by rank, chunks and packets. Pure arithmetic. */

typedef struct { uint64_t at, len; } symm_part;

/* Part i of n of `count` elements, in units of 64 bytes so that no two ranks write one cache line. */
SYMM_DEV symm_part symm_part_of(uint64_t count, uint32_t esize, int n, int i) {
    uint64_t unit = 64u / esize, units = (count + unit - 1) / unit;
    uint64_t per = units / (unsigned)n, more = units % (unsigned)n, k = (unsigned)i;
    uint64_t at = (k * per + (k < more ? k : more)) * unit;
    uint64_t end = at + (per + (k < more)) * unit;
    if (at > count) at = count;
    if (end > count) end = count;
    symm_part part = {at, end - at};
    return part;
}
/* Chunk k of `chunk` elements. */
SYMM_DEV symm_part symm_chunk_of(uint64_t count, uint64_t chunk, uint64_t k) {
    uint64_t at = k * chunk;
    symm_part part = {at, count - at < chunk ? count - at : chunk};
    return part;
}
/* How many chunks there are; and how many of them CTA b of g handles (b, b + g, ...). */
SYMM_DEV uint64_t symm_chunks(uint64_t count, uint64_t chunk) { return (count + chunk - 1) / chunk; }
SYMM_DEV uint64_t symm_share(uint64_t chunks, int b, int g) {
    return chunks > (unsigned)b ? (chunks - (unsigned)b + (unsigned)g - 1) / (unsigned)g : 0;
}
