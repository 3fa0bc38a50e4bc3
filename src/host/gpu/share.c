/* share.c - of each GPU, whether a communicator of this process has two CTAs on each multiprocessor
 * of it. Any thread; no lock. */
#include "share.h"

#include <stdatomic.h>
#include <stdint.h>

enum { DEVICES = 64 };
static _Atomic uint64_t taken; /* bit d: of device d */

int symm_share_take(int device) {
    const uint64_t bit = device >= 0 && device < DEVICES ? 1ull << device : 0;
    return bit && !(atomic_fetch_or(&taken, bit) & bit);
}
void symm_share_give(int device) {
    atomic_fetch_and(&taken, ~(1ull << device));
}
