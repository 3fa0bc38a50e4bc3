/* fake_cuda_room.c - what the fake driver's work waits for besides its stream: room on the device
 * for a grid, and words in memory. See fake_cuda.h, fake_cuda_work.h. Without the lock. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fake_cuda_work.h"

/* A grid begins when there is room for all of it. */
void fake_room_take(const struct op *op, int sign) {
    static int used[FAKE_DEVICES];
    const int ctas = (int)op->config.grid_x;
    if (!fake.room) return;
    fake_lock();
    while (sign > 0 && used[op->device] && used[op->device] + ctas > fake.room) fake_wait();
    used[op->device] += sign * ctas;
    if (sign < 0) fake_wake();
    fake_unlock();
}

/* Until the word is what is waited for; whoever writes it wakes nobody. */
void fake_word_await(const struct op *op) {
    while (__atomic_load_n((const unsigned *)op->from, __ATOMIC_ACQUIRE) != op->value) usleep(50);
}

cu_result fk_cuStreamBatchMemOp(cu_stream stream, unsigned count, cu_stream_op *ops,
                                unsigned flags) {
    ENTER(cuStreamBatchMemOp);
    if (!count || count >= 256 || flags) return SYMM_CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (ops[i].operation != SYMM_CUDA_STREAM_WAIT_VALUE_32 ||
            ops[i].flags != SYMM_CUDA_STREAM_WAIT_EQ || ops[i].address % 4)
            return SYMM_CUDA_ERROR_INVALID_VALUE;
        struct op *op = fake_op(OP_WORD);
        op->from = (const void *)(uintptr_t)ops[i].address;
        op->value = (unsigned)ops[i].value;
        const int cu = fake_enqueue(stream, op);
        if (cu) return cu;
    }
    return SYMM_CUDA_SUCCESS;
}

double fake_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
