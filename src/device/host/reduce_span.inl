/* reduce_span.inl - the loops of the host build: reduces a span of one element type with the
 * vectors of lanes.inl. Included by reduce_host.c once per type. Pure, any thread, no lock.
 *
 * The includer defines
 *   TYPE     its decode, encode and splat are used; what comes out are the functions
 *            reduce_<TYPE>_<op> and reduce_<TYPE>_<op>_nt
 *   KIND     its add, mul, max, min and divide are used
 *   LANES    the vector in which it accumulates
 *   RAW      what such a vector occupies in memory
 *   BYTES    of one element
 *   FLOATS   1: needs the floating-point environment
 *   AVERAGE  0: all reductions but avg, 1: all, 2: avg alone (narrow integers average in a type of
 *            their own)
 *
 * In place (dst equal to a source) is safe because a group of vectors is read from every source
 * before it is written. */

#define T_PASTE(a, b) a##b
#define T_GLUE(a, b)  T_PASTE(a, b)
#define T_(name)      T_GLUE(TYPE, name)
#define E_(name)      T_GLUE(reduce_, T_(name))
#define K_(name)      T_GLUE(KIND, name)
#define R_(name)      T_GLUE(RAW, name)

#define SYMM_FN          INLINE
#define SYMM_STEP(name)  T_(_##name)
#define SYMM_ACC         LANES
#define SYMM_ADD(a, b)   K_(_add)(a, b)
#define SYMM_MUL(a, b)   K_(_mul)(a, b)
#define SYMM_MAX(acc, x) K_(_max)(acc, x)
#define SYMM_MIN(acc, x) K_(_min)(acc, x)
#if AVERAGE == 2
#define SYMM_DIVIDE(sum, n, shift) K_(_divide)(T_(_wrap)(sum), n, shift)
#elif AVERAGE
#define SYMM_DIVIDE(sum, n, shift) K_(_divide)(sum, n, shift)
#else
#define SYMM_DIVIDE(sum, n, shift) ((void)(n), (void)(shift), sum)
#endif

/* What a reduction computes. SYMM_ADD and SYMM_MUL are each rounded to the accumulator, never
 * fused. SYMM_MAX and SYMM_MIN are as symm.h says: acc is the lower rank's; NaN propagates, of
 * equal zeros acc's stays. SYMM_DIVIDE(sum, n, shift) is sum / n for n ranks, of integers what
 * their type holds of the sum; shift is log2(n) where that is whole, else -1.
 *
 * Floats narrower than 32 bits accumulate in float, integers in an unsigned type of their width,
 * the average of narrow integers in a float type in which the sum is exact.
 *
 * The result of n ranks is last(op, step(op, .. step(op, first(op, x0), x1) ..)), in rank order.
 * `scale` is the rank's scalar for premulsum and ignored otherwise. `op` is a constant wherever
 * this is used: the switch vanishes. */
SYMM_FN SYMM_ACC SYMM_STEP(first)(int op, SYMM_ACC x, SYMM_ACC scale) {
    return op == SYMM_OP_PREMUL ? SYMM_MUL(x, scale) : x;
}

SYMM_FN SYMM_ACC SYMM_STEP(step)(int op, SYMM_ACC acc, SYMM_ACC x, SYMM_ACC scale) {
    switch (op) {
    case SYMM_OP_PROD: return SYMM_MUL(acc, x);
    case SYMM_OP_MAX: return SYMM_MAX(acc, x);
    case SYMM_OP_MIN: return SYMM_MIN(acc, x);
    case SYMM_OP_PREMUL: return SYMM_ADD(acc, SYMM_MUL(x, scale));
    default: return SYMM_ADD(acc, x);
    }
}

SYMM_FN SYMM_ACC SYMM_STEP(last)(int op, SYMM_ACC acc, int n, int shift) {
    return op == SYMM_OP_AVG ? SYMM_DIVIDE(acc, n, shift) : acc;
}

#undef SYMM_STEP
#undef SYMM_ACC
#undef SYMM_ADD
#undef SYMM_MUL
#undef SYMM_MAX
#undef SYMM_MIN
#undef SYMM_DIVIDE

#if AVERAGE == 2
#define SCALE(r) ((void)scalars, (LANES){0})
#else
#define SCALE(r) (op == SYMM_OP_PREMUL ? T_(_splat)(scalars[r]) : (LANES){0})
#endif

/* Four vectors at once: enough independent work to hide an addition's latency, few enough to stay
 * in 16 registers. */
INLINE void T_(_group)(int op, int n, int shift, char *dst, char *twin, const char *const *src,
                       size_t at, const uint64_t *scalars, int stream) {
    enum { W = sizeof(RAW) };
    const char *p = src[0] + at;
    LANES scale = SCALE(0);
    LANES a = T_(_first)(op, T_(_decode)(R_(_load)(p)), scale);
    LANES b = T_(_first)(op, T_(_decode)(R_(_load)(p + W)), scale);
    LANES c = T_(_first)(op, T_(_decode)(R_(_load)(p + 2 * W)), scale);
    LANES d = T_(_first)(op, T_(_decode)(R_(_load)(p + 3 * W)), scale);
    for (int r = 1; r < n; r++) {
        p = src[r] + at;
        scale = SCALE(r);
        a = T_(_step)(op, a, T_(_decode)(R_(_load)(p)), scale);
        b = T_(_step)(op, b, T_(_decode)(R_(_load)(p + W)), scale);
        c = T_(_step)(op, c, T_(_decode)(R_(_load)(p + 2 * W)), scale);
        d = T_(_step)(op, d, T_(_decode)(R_(_load)(p + 3 * W)), scale);
    }
    RAW ra = T_(_encode)(T_(_last)(op, a, n, shift)), rb = T_(_encode)(T_(_last)(op, b, n, shift));
    RAW rc = T_(_encode)(T_(_last)(op, c, n, shift)), rd = T_(_encode)(T_(_last)(op, d, n, shift));
    dst += at;
    if (stream) {
        R_(_stream)(dst, ra), R_(_stream)(dst + W, rb);
        R_(_stream)(dst + 2 * W, rc), R_(_stream)(dst + 3 * W, rd);
    } else {
        R_(_store)(dst, ra), R_(_store)(dst + W, rb);
        R_(_store)(dst + 2 * W, rc), R_(_store)(dst + 3 * W, rd);
    }
    if (twin) {
        twin += at;
        R_(_stream)(twin, ra), R_(_stream)(twin + W, rb);
        R_(_stream)(twin + 2 * W, rc), R_(_stream)(twin + 3 * W, rd);
    }
}

/* One vector, of which the first `bytes` count; the other lanes compute with zeros and are dropped.
 */
INLINE void T_(_single)(int op, int n, int shift, char *dst, const char *const *src, size_t at,
                        size_t bytes, const uint64_t *scalars) {
    const int whole = bytes == sizeof(RAW);
    RAW x = whole ? R_(_load)(src[0] + at) : R_(_load_part)(src[0] + at, bytes);
    LANES acc = T_(_first)(op, T_(_decode)(x), SCALE(0));
    for (int r = 1; r < n; r++) {
        x = whole ? R_(_load)(src[r] + at) : R_(_load_part)(src[r] + at, bytes);
        acc = T_(_step)(op, acc, T_(_decode)(x), SCALE(r));
    }
    x = T_(_encode)(T_(_last)(op, acc, n, shift));
    if (whole)
        R_(_store)(dst + at, x);
    else
        R_(_store_part)(dst + at, x, bytes);
}

/* log2 of a number of ranks where that is whole, else -1. */
INLINE int T_(_shift)(int n) {
    return (n & (n - 1)) == 0 ? __builtin_ctz((unsigned)n) : -1;
}

/* Bytes [at, end) of every buffer. */
INLINE void T_(_span)(int op, int n, char *dst, char *twin, const char *const *src, size_t at,
                      size_t end, const uint64_t *scalars, int stream) {
    const int shift = T_(_shift)(n);
    for (; end - at >= 4 * sizeof(RAW); at += 4 * sizeof(RAW))
        T_(_group)(op, n, shift, dst, twin, src, at, scalars, stream);
    for (size_t bytes; at < end; at += bytes) {
        bytes = end - at < sizeof(RAW) ? end - at : sizeof(RAW);
        T_(_single)(op, n, shift, dst, src, at, bytes, scalars);
        if (twin) T_(_single)(op, n, shift, twin, src, at, bytes, scalars);
    }
}

INLINE void T_(_plain)(int op, void *dst, const void *const *src, int n, size_t count,
                       const uint64_t *scalars) {
    const char *const *from = (const char *const *)src;
    const float_mode environment = FLOATS ? float_enter() : 0;
    const size_t end = count * BYTES;
    check_span(dst, src, n, end);
    if (n == 2 && !SYMM_CHECKED) {
        /* In registers: for all the compiler knows, stores to dst change src. */
        const char *const two[2] = {from[0], from[1]};
        T_(_span)(op, 2, dst, NULL, two, 0, end, scalars, 0);
    } else {
        T_(_span)(op, n, dst, NULL, from, 0, end, scalars, 0);
    }
    if (FLOATS) float_leave(environment);
}

/* Streaming begins at a whole cache line of dst; what precedes it goes by the ordinary way. */
INLINE void T_(_streaming)(int op, symm_reduce_fn plain, void *dst, const void *const *src, int n,
                           size_t count, const uint64_t *scalars) {
    const size_t head = (0 - (uintptr_t)dst) % 64, end = count * BYTES;
    if (SYMM_CHECKED || head % BYTES != 0 || head + 4 * sizeof(RAW) > end ||
        in_place(dst, src, n)) {
        plain(dst, src, n, count, scalars);
    } else {
        if (head) plain(dst, src, n, head / BYTES, scalars);
        const float_mode environment = FLOATS ? float_enter() : 0;
        T_(_span)(op, n, dst, NULL, (const char *const *)src, head, end, scalars, 1);
        if (FLOATS) float_leave(environment);
    }
    stream_fence();
}

/* Two destinations at once: the stores to one do not wait for those to the other, nor the loads for
 * either. Where their cache lines do not fall together, one after the other. */
INLINE void T_(_twice)(int op, symm_reduce_fn plain, symm_reduce_fn once, void *dst, void *twin,
                       const void *const *src, int n, size_t count, const uint64_t *scalars) {
    const size_t head = (0 - (uintptr_t)dst) % 64, end = count * BYTES;
    if (SYMM_CHECKED || ((uintptr_t)dst ^ (uintptr_t)twin) % 64 || head % BYTES != 0 ||
        head + 4 * sizeof(RAW) > end) {
        once(dst, src, n, count, scalars);
        once(twin, src, n, count, scalars);
        return;
    }
    if (head) plain(dst, src, n, head / BYTES, scalars), plain(twin, src, n, head / BYTES, scalars);
    const float_mode environment = FLOATS ? float_enter() : 0;
    const char *const *from = (const char *const *)src;
    if (n == 2) {
        const char *const two[2] = {from[0], from[1]};
        T_(_span)(op, 2, dst, twin, two, head, end, scalars, 1);
    } else {
        T_(_span)(op, n, dst, twin, from, head, end, scalars, 1);
    }
    if (FLOATS) float_leave(environment);
    stream_fence();
}

#define ENTRY(name, op)                                                                   \
    static void E_(_##name)(void *dst, const void *const *src, int n, size_t count,       \
                            const uint64_t *scalars) {                                    \
        T_(_plain)(op, dst, src, n, count, scalars);                                      \
    }                                                                                     \
    static void E_(_##name##_nt)(void *dst, const void *const *src, int n, size_t count,  \
                                 const uint64_t *scalars) {                               \
        T_(_streaming)(op, E_(_##name), dst, src, n, count, scalars);                     \
    }                                                                                     \
    static void E_(_##name##_nt2)(void *dst, void *twin, const void *const *src, int n,   \
                                  size_t count, const uint64_t *scalars) {                \
        T_(_twice)(op, E_(_##name), E_(_##name##_nt), dst, twin, src, n, count, scalars); \
    }
#if AVERAGE != 2
ENTRY(sum, SYMM_OP_SUM)
ENTRY(prod, SYMM_OP_PROD)
ENTRY(max, SYMM_OP_MAX)
ENTRY(min, SYMM_OP_MIN)
ENTRY(premul, SYMM_OP_PREMUL)
#endif
#if AVERAGE
ENTRY(avg, SYMM_OP_AVG)
static void E_(_divide)(void *p, size_t count, int n) {
    const float_mode environment = FLOATS ? float_enter() : 0;
    const size_t end = count * BYTES;
    for (size_t at = 0, bytes; at < end; at += bytes) {
        bytes = end - at < sizeof(RAW) ? end - at : sizeof(RAW);
        char *here = (char *)p + at;
        const int whole = bytes == sizeof(RAW);
        RAW x = whole ? R_(_load)(here) : R_(_load_part)(here, bytes);
        x = T_(_encode)(T_(_last)(SYMM_OP_AVG, T_(_decode)(x), n, T_(_shift)(n)));
        if (whole)
            R_(_store)(here, x);
        else
            R_(_store_part)(here, x, bytes);
    }
    if (FLOATS) float_leave(environment);
}
#endif

#undef ENTRY
#undef SCALE
#undef SYMM_FN
#undef TYPE
#undef KIND
#undef LANES
#undef RAW
#undef BYTES
#undef FLOATS
#undef AVERAGE
#undef T_
#undef E_
#undef K_
#undef R_
#undef T_PASTE
#undef T_GLUE
