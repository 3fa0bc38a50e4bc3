/* reduce.inl - what a reduction computes, for one element type: included once per type, by the host
 * build for vectors and by the GPU build for single values. Pure, any thread, no lock.
 *
 * The includer defines:
 *   SYMM_FN            how a function is declared
 *   SYMM_STEP(name)    the name of a function for this type
 *   SYMM_ACC           the accumulator (vector or value): floats narrower than 32 bits use float,
 *                      integers an unsigned type of their width, the average of narrow integers a
 *                      float type in which the sum is exact
 *   SYMM_ADD(a, b), SYMM_MUL(a, b)        each rounded to the accumulator, never fused
 *   SYMM_MAX(acc, x), SYMM_MIN(acc, x)    as symm.h says: acc is the lower rank's; NaN propagates,
 *                      of equal zeros acc's stays
 *   SYMM_DIVIDE(sum, n, shift)            sum / n for n ranks, of integers what their type holds
 *                      of the sum; shift is log2(n) where that is whole, else -1
 *
 * The result of n ranks is last(op, step(op, .. step(op, first(op, x0), x1) ..)), in rank order.
 * `scale` is the rank's scalar for premulsum and ignored otherwise. Encoding the accumulator into
 * the element type is the includer's. `op` is a constant wherever this is used: the switch
 * vanishes. */

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
