/* unit_p2p_kernels.c - the GPU kernel of sends and receives itself, on fibers: drawn lists of
 * messages of every size and way, grouped and one by one, several kernels in a row while ranks run
 * apart; every byte of all memory compared with what the messages mean. Kernels that must leave:
 * unit_p2p_leave. */
#include "emu_p2p.h"

static void run_drawn(uint64_t seed) {
    char why[256] = "";
    draw_case(seed, 1);
    model_case();
    const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
    T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed, why, describe());
    if (!r) memory_is_as_modelled(seed);
    for (int p = 0; p < k.n; p++)
        T_CHECKF(!k.host[p].abort && !k.host[p].p2p.waits, "T_SEED=%llu: rank %d heard %llx",
                 (unsigned long long)seed, p, (unsigned long long)k.host[p].abort);
    end();
}
static void every_way_in_any_order(void) {
    for (int i = 0; i < cases(100); i++) run_drawn(first_seed() + (unsigned)i);
}

/* ---- floods ---------------------------------------------------------------------------------- */

static void let_go_later(void *arg, uint64_t now) {
    if (now > *(uint64_t *)arg) emu_hold(-1);
}

/* More messages than a ring has units, and more bytes, to a receiver that comes late:
 * its kernel begins when the sender has long had to wait. */
static void floods_wait_for_their_receiver(void) {
    enum { FLOOD = SYMM_GPU_P2P_INLINE };
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 17000 + first_seed() + (unsigned)i;
        uint64_t bytes[FLOOD], until = i % 4 * 15000u, at = 64;
        begin_pair_with(seed, 16384u >> i / 4 % 5);
        const uint32_t most[] = {1, 60, 2000, 5000};
        for (int m = 0; m < FLOOD; m++) bytes[m] = draw(most[i % 4]);
        for (int r = 0; r < 2; r++) launch_flood(r, FLOOD, bytes);
        even_out();
        for (int m = 0; m < FLOOD; at += (bytes[m++] + 47) / 16 * 16) {
            T_CHECK(at + bytes[m] < MEMORY);
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        }
        emu_hold(1);
        emu_between(let_go_later, &until);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        emu_hold(-1);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 17000, why);
        memory_is_as_modelled(seed - 17000);
        end();
    }
}

/* The second member has a unit of the first message and one of the last; in between the ring goes
 * round. It tells that it has taken the first one before it waits for the last. */
static void who_waits_tells_what_it_has_taken(void) {
    enum { SHORT = 60, ALL = SHORT + 2 };
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 25000 + first_seed() + (unsigned)i;
        uint64_t bytes[ALL], at = 64;
        begin_pair_with(seed, 4096);
        T_CHECK(SYMM_P2P_GPU_BYTES(k.ring) / 512 < SHORT);
        for (int m = 0; m < ALL; m++) bytes[m] = m % (ALL - 1) ? 100 : 900;
        for (int r = 0; r < 2; r++) launch_flood(r, ALL, bytes);
        even_out();
        for (int m = 0; m < ALL; at += (bytes[m++] + 47) / 16 * 16)
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 25000, why);
        memory_is_as_modelled(seed - 25000);
        end();
    }
}

static void let_go_when_ended(void *arg, uint64_t now) {
    (void)arg, (void)now;
    if (emu_ended(0)) emu_hold(-1);
}

/* Wherever the ring of a pair stands, a message that is as long as the ring ends before its
 * receiver's kernel has begun, if all before it have been received. */
static void sends_end_without_their_receiver(void) {
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 23000 + first_seed() + (unsigned)i;
        uint64_t before[3], at = 64;
        begin_pair_with(seed, 1024u << i % 5);
        for (int m = 0; m < 3; m++) before[m] = draw((uint32_t)k.ring);
        for (int r = 0; r < 2; r++) launch_flood(r, 3, before);
        even_out();
        for (int m = 0; m < 3; at += (before[m++] + 47) / 16 * 16)
            memcpy(modelled(1) + at, memory(0) + at, before[m]);
        T_CHECK(!emu_run(k.launch, k.n, k.most, seed, why, sizeof why));
        memset(k.calls, 0, sizeof k.calls);
        memset(k.args, 0, 2 * CALLS * sizeof *k.args);
        for (int r = 0; r < 2; r++) launch_flood(r, 1, &k.ring);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, k.ring);
        emu_hold(1);
        emu_between(let_go_when_ended, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        emu_hold(-1);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 23000, why);
        memory_is_as_modelled(seed - 23000);
        end();
    }
}

/* Large messages of one size, each to another place: what the receive before last wanted is never
 * taken for what this one wants. */
static void places_of_large_ones_are_not_mixed_up(void) {
    enum { LARGE = 6 };
    char why[256] = "";
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = 19000 + first_seed() + (unsigned)i;
        uint64_t bytes[LARGE], at = 64;
        begin_pair_with(seed, 4096);
        for (int m = 0; m < LARGE; m++) bytes[m] = k.ring + 16 + (unsigned)i;
        for (int r = 0; r < 2; r++) launch_flood(r, LARGE, bytes);
        even_out();
        for (int m = 0; m < LARGE; at += (bytes[m++] + 47) / 16 * 16)
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 19000, why);
        memory_is_as_modelled(seed - 19000);
        end();
    }
}

/* Members of a receive in no window count twice for each message: they have read its head, and they
 * have loaded. One that is fast does not count again before the others have counted once: else the
 * head's place is given back early, or never. */
static void rounds_of_a_team_are_not_mixed_up(void) {
    enum { LARGE = SYMM_GPU_P2P_INLINE };
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 33000 + first_seed() + (unsigned)i;
        uint64_t bytes[LARGE], at = 64;
        begin_pair_with(seed, 1024);
        for (int m = 0; m < LARGE; m++) bytes[m] = k.ring + 1 + draw(100);
        for (int r = 0; r < 2; r++) launch_flood_to(r, LARGE, bytes, r, 2 + (unsigned)i % 3);
        even_out();
        for (int m = 0; m < LARGE; at += (bytes[m++] + 47) / 16 * 16)
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 33000, why);
        memory_is_as_modelled(seed - 33000);
        end();
    }
}

static void launch_ops(int rank, const symm_gpu_p2p_op *ops, int n) {
    symm_gpu_p2p_args *a = next_args(rank);
    for (int i = 0; i < n; i++) {
        a->op[i] = ops[i];
        a->op[i].last = 1;
        a->first[i] = (uint16_t)i;
    }
    a->channels = (uint32_t)n;
    a->ops = (uint16_t)n;
    launch(rank, "emu_p2p", 1, 32 * (1 + draw(4)) * (unsigned)n); /* up to four warps each */
}

/* Rank 1 sends on what has been stored into its window by the kernel before, while the kernel that
 * stored it still runs. */
static void what_has_come_may_be_sent_on(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 29000 + first_seed() + (unsigned)i, bytes = 4097 + 300 * (unsigned)i;
        begin_pair_with(seed, 4096);
        const message to = {.to = 1, .bytes = bytes, .at = {64, 64}},
                      on = {.from = 1, .bytes = bytes, .at = {128 << 10, 64}};
        const symm_gpu_p2p_op ops[] = {op_of(&to, 1), op_of(&on, 0), op_of(&to, 0), op_of(&on, 1)};
        launch_ops(0, ops, 2);
        for (int j = 2; j < 4; j++) launch_ops(1, &ops[j], 1);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, bytes);
        memcpy(modelled(0) + on.at[0], memory(0) + 64, bytes);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 29000, why);
        memory_is_as_modelled(seed - 29000);
        end();
    }
}

/* A receive of what the rank sends to itself finds that its send has ended, and not what it has
 * sent: that came since the receive has looked. The CTA that sends begins when the one that
 * receives has said that it waits, and ends before that goes on. In one case of six that lies
 * between the look and the question. */
static void send_in_between(void *arg, uint64_t now) {
    (void)arg, (void)now;
    const int sent = ((symm_gpu_ctl *)k.flat)->p2p.self[1] != 0;
    if (sent)
        emu_hold(-1);
    else
        emu_hold_cta(0, k.host[0].p2p.waits ? 0 : 1);
}
static void a_message_to_oneself_is_looked_for_again(void) {
    char why[256] = "";
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = 35000 + first_seed() + (unsigned)i;
        k.random = seed;
        begin(1);
        const message m = {.bytes = draw(900), .at = {64, 128 << 10}};
        const symm_gpu_p2p_op both[] = {op_of(&m, 0), op_of(&m, 1)};
        launch_ops(0, both, 2);
        k.args[0].self = 3;
        k.launch[0].ctas = 2, k.launch[0].threads = 32;
        even_out();
        memcpy(modelled(0) + 64, memory(0) + m.at[1], m.bytes);
        emu_between(send_in_between, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        emu_hold(-1);
        T_CHECKF(!r && !k.host[0].abort, "T_SEED=%llu: %s, heard %llx",
                 (unsigned long long)seed - 35000, why, (unsigned long long)k.host[0].abort);
        memory_is_as_modelled(seed - 35000);
        end();
    }
}

/* Rank 0 sends out of its window to a receive in none, which loads. Its next kernel receives into
 * the end of the same place, what lies in the ring already. */
static void what_is_sent_may_be_written_over(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 21000 + first_seed() + (unsigned)i;
        begin_pair(seed);
        const message out = {.to = 1, .bytes = 2 * k.ring, .at = {64, 64}, .staged = {1, 0}},
                      back = {.from = 1, .bytes = k.ring, .at = {64 + k.ring, 128 << 10}};
        const symm_gpu_p2p_op both[] = {op_of(&back, 1), op_of(&out, 0)}, first = op_of(&out, 1),
                              second = op_of(&back, 0);
        launch_ops(1, both, 2);
        launch_ops(0, &first, 1);
        launch_ops(0, &second, 1);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, out.bytes);
        memcpy(modelled(0) + back.at[0], memory(1) + back.at[1], back.bytes);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 21000, why);
        memory_is_as_modelled(seed - 21000);
        end();
    }
}

/* A large message of no window goes round the smallest ring: what is given back is overwritten at
 * once. */
static void a_small_ring_goes_round(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 27000 + first_seed() + (unsigned)i;
        begin_pair_with(seed, 1024);
        const message m = {.to = 1, .bytes = 40000 + draw(100), .at = {64, 64}, .staged = {1, 1}};
        const symm_gpu_p2p_op ops[] = {op_of(&m, 0), op_of(&m, 1)};
        for (int r = 0; r < 2; r++) launch_ops(r, &ops[!r], 1);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, m.bytes);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 27000, why);
        memory_is_as_modelled(seed - 27000);
        end();
    }
}

/* When the receiver's kernels have all ended, what it was sent is there: large messages into its
 * window, which the sender stores. */
static struct { int seen, differ; } at_the_end;
static void look_when_ended(void *arg, uint64_t now) {
    (void)arg, (void)now;
    if (at_the_end.seen || !emu_ended(1)) return;
    at_the_end.seen = 1;
    at_the_end.differ = memcmp(memory(1), modelled(1), MEMORY) != 0;
}
static void a_receive_ends_behind_its_data(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 31000 + first_seed() + (unsigned)i;
        begin_pair_with(seed, 4096);
        const message m = {.to = 1, .bytes = 20000 + draw(9000), .at = {64, 64}};
        const symm_gpu_p2p_op ops[] = {op_of(&m, 0), op_of(&m, 1)};
        for (int r = 0; r < 2; r++) launch_ops(r, &ops[!r], 1);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, m.bytes);
        memset(&at_the_end, 0, sizeof at_the_end);
        emu_between(look_when_ended, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 31000, why);
        T_CHECKF(!at_the_end.differ, "T_SEED=%llu: the receive had ended before its data was there",
                 (unsigned long long)seed - 31000);
        memory_is_as_modelled(seed - 31000);
        end();
    }
}

T_MAIN(T_TIMEOUT(every_way_in_any_order, 240), T_TIMEOUT(floods_wait_for_their_receiver, 120),
       T(who_waits_tells_what_it_has_taken), T_TIMEOUT(sends_end_without_their_receiver, 120),
       T_TIMEOUT(places_of_large_ones_are_not_mixed_up, 120),
       T_TIMEOUT(rounds_of_a_team_are_not_mixed_up, 120),
       T(a_message_to_oneself_is_looked_for_again), T(what_is_sent_may_be_written_over),
       T(what_has_come_may_be_sent_on), T(a_receive_ends_behind_its_data),
       T_TIMEOUT(a_small_ring_goes_round, 120))
