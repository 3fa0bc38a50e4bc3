/* unit_fuzz_heap.c - the heap fuzzer's calls over ranks without libFuzzer: inputs of full length
 * from a seed, so that every run of the tests plays whole sequences of calls beside the model,
 * whatever a fuzzer comes to in its time. The seed is always the same one, or T_SEED; T_FULL=1
 * plays three times as many. One thread, which drives all ranks; no lock. */
#include "../fuzz/fuzz_heap.c"

#include "coll_kit.h"

enum { INPUT = 1 + 4 * CALLS, INPUTS = T_TSAN ? 16 : T_ASAN ? 40 : 100 };

/* Input i of a seed is the first one of seed + i, so that T_SEED plays what failed at once. */
static void random_input(uint64_t seed, uint8_t *input) {
    for (uint64_t at = 0; at < INPUT; at++) input[at] = (uint8_t)(ck_hash(seed, at, 0) >> 24);
}

static void whole_sequences_of_the_fuzzers_calls(void) {
    const uint64_t seed = getenv("T_SEED") ? ck_seed() : 1;
    uint8_t input[INPUT];
    for (int i = 0; i < INPUTS * (ck_full() ? 3 : 1); i++) {
        printf("playing T_SEED=%#llx\n", (unsigned long long)seed + (unsigned)i);
        random_input(seed + (uint64_t)i, input);
        T_EQ(LLVMFuzzerTestOneInput(input, INPUT), 0);
    }
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comm[r]));
}

T_MAIN(T_TIMEOUT(whole_sequences_of_the_fuzzers_calls, 120))
