/* split.inl - how a span of elements is divided: into slices by rank, chunks and packets. Pure, any
 * thread, no lock. */

typedef struct {
    uint64_t at, len;
} symm_part;

/* Ranks of 2, 4 and 8 divide by a constant: a division costs as much as all else here. */
SYMM_DEV uint64_t symm_over_ranks(uint64_t x, int n) {
    switch (n) {
    case 2: return x / 2;
    case 4: return x / 4;
    case 8: return x / 8;
    default: return x / (unsigned)n;
    }
}

/* Part i of n of `count` elements of 1 << log bytes, in units of 64 bytes so that no two ranks
 * write one cache line. */
SYMM_DEV symm_part symm_part_of(uint64_t count, uint32_t log, int n, int i) {
    uint64_t units = (count + (64u >> log) - 1) >> (6 - log), k = (unsigned)i;
    uint64_t per = symm_over_ranks(units, n), more = units - per * (unsigned)n;
    uint64_t at = (k * per + (k < more ? k : more)) << (6 - log);
    uint64_t end = at + ((per + (k < more)) << (6 - log));
    if (at > count) at = count;
    if (end > count) end = count;
    symm_part part = {at, end - at};
    return part;
}

/* Chunk k of `1 << log` elements; and how many chunks there are. */
SYMM_DEV symm_part symm_chunk_of(uint64_t count, uint32_t log, uint64_t k) {
    uint64_t at = k << log, chunk = 1ull << log;
    symm_part part = {at, count - at < chunk ? count - at : chunk};
    return part;
}
SYMM_DEV uint64_t symm_chunks(uint64_t count, uint32_t log) {
    return (count + (1ull << log) - 1) >> log;
}
/* How many of them CTA b of g handles (b, b + g, ...). */
SYMM_DEV uint64_t symm_share(uint64_t chunks, int b, int g) {
    if (g == 1) return chunks;
    return chunks > (unsigned)b ? (chunks - (unsigned)b + (unsigned)g - 1) / (unsigned)g : 0;
}
/* The log of the piece of a chunk of `1 << log` that each of n ranks has. */
SYMM_DEV uint32_t symm_log_over(uint32_t log, int n) {
    for (int k = 1; k < n; k *= 2) log--;
    return log;
}
