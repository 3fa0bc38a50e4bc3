/* copy.inl - the copies of the host build, for one instruction set. Included by reduce_host.c only,
 * after lanes.inl. Pure but for symm_copy_apart, which is written once, before any copy. Any
 * thread, no lock. */

/* Up to a step: the call of a function would be most of the time. */
static void copy_short(char *to, const char *from, size_t bytes) {
    enum { W = SYMM_VECTOR };
    if (bytes >= 2 * W) { /* from both ends; what lies between is written twice */
        raw_full a = raw_full_load(from), b = raw_full_load(from + W);
        raw_full c = raw_full_load(from + bytes - 2 * W), d = raw_full_load(from + bytes - W);
        raw_full_store(to, a), raw_full_store(to + W, b);
        raw_full_store(to + bytes - 2 * W, c), raw_full_store(to + bytes - W, d);
    } else if (bytes >= W) {
        raw_full a = raw_full_load(from), b = raw_full_load(from + bytes - W);
        raw_full_store(to, a), raw_full_store(to + bytes - W, b);
    } else if (bytes > 0) {
        raw_full_store_part(to, raw_full_load_part(from, bytes), bytes);
    }
}

/* Four vectors, all read before the first is written: a loop of single ones would be turned into a
 * call of memcpy by the compiler. */
INLINE void copy_step(char *to, const char *from) {
    enum { W = SYMM_VECTOR };
    raw_full a = raw_full_load(from), b = raw_full_load(from + W);
    raw_full c = raw_full_load(from + 2 * W), d = raw_full_load(from + 3 * W);
    raw_full_store(to, a), raw_full_store(to + W, b);
    raw_full_store(to + 2 * W, c), raw_full_store(to + 3 * W, d);
}

/* Vectors alone, whatever the size. Stores are aligned but for the first and those of the last
 * step, which overlap their neighbours. */
static void copy_vectors(void *dst, const void *src, size_t bytes) {
    enum { W = SYMM_VECTOR, STEP = 4 * W };
    char *to = dst, *const end = to + bytes;
    const char *from = src;
    if (SYMM_CHECKED) { /* the checkers see every byte in memcpy */
        memcpy(dst, src, bytes);
    } else if (bytes <= STEP) {
        copy_short(to, from, bytes);
    } else {
        const size_t head = W - (uintptr_t)to % W;
        raw_full_store(to, raw_full_load(from));
        for (to += head, from += head; end - to > STEP; to += STEP, from += STEP)
            copy_step(to, from);
        copy_step(end - STEP, from + (end - to) - STEP);
    }
}

/* Beyond a step libc's memcpy is as fast as anything, but for machines on which it crawls where the
 * lines of dst and src do not fall together (choice.c). */
static void copy(void *dst, const void *src, size_t bytes) {
    if (SYMM_CHECKED || bytes > 4 * SYMM_VECTOR) {
        if (symm_copy_apart && ((uintptr_t)dst - (uintptr_t)src) % 64)
            copy_vectors(dst, src, bytes);
        else
            memcpy(dst, src, bytes);
    } else {
        copy_short(dst, src, bytes);
    }
}

/* Whole cache lines of dst go past the caches: a line that is written in full need not be read
 * first. */
static void copy_nt(void *dst, const void *src, size_t bytes) {
    enum { LINE = 64, STEP = 4 * LINE };
    const size_t head = (0 - (uintptr_t)dst) % LINE;
    char *to = dst;
    const char *from = src;
    if (SYMM_CHECKED || bytes < head + STEP) {
        copy(dst, src, bytes);
        stream_fence();
        return;
    }
    copy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= STEP; bytes -= STEP, to += STEP, from += STEP)
        for (int i = 0; i < STEP; i += SYMM_VECTOR)
            raw_full_stream(to + i, raw_full_load(from + i));
    copy(to, from, bytes);
    stream_fence();
}
