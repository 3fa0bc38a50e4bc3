/* unit_p2p_leave.c - the GPU kernel of sends and receives, on fibers, where it must leave: an abort
 * at any step, calls that differ, a message to the own rank alone, peers that do not come; and
 * where a peer leaves that owes nothing. */
#include "emu_p2p.h"

/* ---- kernels that leave ---------------------------------------------------------------------- */

static struct {
    uint64_t at, steps;
    int rank, done;
} spoiler;

static void count_steps(void *arg, uint64_t now) {
    (void)arg;
    spoiler.steps = now;
}

/* As symmCommAbort does it: the reason, in the peers' blocks first, then in the own; every second
 * peer minds it when it uses the communicator. */
static void abort_at(void *arg, uint64_t now) {
    (void)arg;
    if (spoiler.done || now < spoiler.at) return;
    spoiler.done = 1;
    for (int q = 1; q <= k.n; q++) {
        symm_ctl *host = &k.host[(spoiler.rank + q) % k.n];
        *(q < k.n && q & 1 ? &host->death : &host->abort) =
            (uint64_t)symmAborted << 32 | (uint32_t)(spoiler.rank + 1);
    }
}

/* Wherever an abort comes, all kernels end, those that were begun after it too. */
static void an_abort_at_any_step_ends_all_kernels(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 7000 + first_seed() + (unsigned)i;
        draw_case(seed, 1);
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, k.most, seed, why, sizeof why));
        end();
        draw_case(seed, 1);
        spoiler.at = 1 + draw((uint32_t)spoiler.steps), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.done = 0;
        emu_between(abort_at, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 7000, why, describe());
        T_CHECK(spoiler.done);
        end();
    }
}

/* Changes a call of a drawn message, on one of its ranks. Whose. */
static int spoil_call(int *from, int *to) {
    for (int tries = 0; tries < 1000; tries++) {
        const int rank = (int)draw((uint32_t)k.n), i = (int)draw((uint32_t)k.calls[rank]);
        symm_gpu_p2p_args *a = &k.args[rank * CALLS + i];
        if (!a->ops) continue;
        symm_gpu_p2p_op *op = &a->op[draw(a->ops)];
        if (op->count && draw(2))
            op->count--;
        else
            op->type = symmInt8;
        *from = op->sends ? rank : op->peer, *to = op->sends ? op->peer : rank;
        return rank;
    }
    return -1;
}

/* One call has another count or type: every rank's kernel ends and says so, the note names the two,
 * and what is outside the receives stays as it is. */
static void calls_that_differ_are_found(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 9000 + first_seed() + (unsigned)i;
        int from = 0, to = 0;
        draw_case(seed, 2);
        if (spoil_call(&from, &to) < 0) {
            end();
            continue;
        }
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 9000, why, describe());
        const symm_p2p_note *note = &k.host[to].p2p;
        T_CHECKF(note->differ == ((uint64_t)from << 32 | ((unsigned)to + 1)),
                 "T_SEED=%llu: %llx, not from %d to %d; %s", (unsigned long long)seed - 9000,
                 (unsigned long long)note->differ, from, to, describe());
        T_CHECK(note->sent_count != note->recv_count || note->sent_type != note->recv_type);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(k.host[p].abort >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 9000, p, (unsigned long long)k.host[p].abort);
        end();
    }
}

/* A large message to a receive in a window that is shorter: nothing is written behind that. */
static void nothing_is_stored_where_counts_differ(void) {
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 18000 + first_seed() + (unsigned)i;
        begin_pair(seed);
        const uint64_t sent = 5 * k.ring, wanted = k.ring + 1 + draw(100);
        launch_flood(0, 1, &sent);
        launch_flood(1, 1, &wanted);
        k.launch[0].ctas = 2, k.launch[0].threads = 128; /* all at once, before it is told */
        even_out();
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 18000, why);
        T_EQ(k.host[0].abort >> 32, symmMismatch);
        T_EQ(k.host[1].abort >> 32, symmMismatch);
        T_CHECK(!memcmp(memory(1) + 64 + wanted, modelled(1) + 64 + wanted, sent - wanted));
        end();
    }
}

static struct {
    uint64_t at;
    int aborted, over;
    unsigned char memory[MEMORY]; /* rank 1's, when its kernel had ended */
} leaver;

static void rank_1_aborts(void *arg, uint64_t now) {
    (void)arg;
    if (!leaver.aborted && now >= leaver.at) {
        leaver.aborted = 1;
        k.host[0].death = k.host[1].abort = (uint64_t)symmAborted << 32 | 2;
    }
    if (!leaver.aborted || leaver.over || !emu_ended(1)) return;
    leaver.over = 1;
    memcpy(leaver.memory, memory(1), MEMORY);
}

/* When a rank that aborts has ended its own kernel, each warp of a peer writes at most the piece
 * that it is at to its window; and what it has stored before may still be on the way. Its look may
 * have been early, so that it is at another piece by then. One that leaves knows why. */
static void an_aborted_ranks_windows_are_left_alone(void) {
    enum { PIECE = 4096, ON_THE_WAY = 256 * 16, WARPS = 2 };
    char why[256] = "";
    int in_the_middle = 0;
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 20000 + first_seed() + (unsigned)i, bytes = 300 << 10;
        unsigned late = 0;
        begin_pair(seed);
        for (int r = 0; r < 2; r++) launch_flood(r, 1, &bytes);
        even_out();
        leaver.at = 4000 + draw(40000), leaver.aborted = leaver.over = 0;
        const uint64_t kernels = ((const symm_gpu_ctl *)(void *)k.flat)->p2p.kernels;
        emu_between(rank_1_aborts, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 20000, why);
        for (unsigned b = 0; leaver.over && b < MEMORY; b++)
            late += memory(1)[b] != leaver.memory[b];
        in_the_middle += late > 0;
        const symm_gpu_p2p *own = &((const symm_gpu_ctl *)(void *)k.flat)->p2p; /* rank 0's */
        T_CHECKF(own->kernels != kernels || k.host[0].abort, "T_SEED=%llu: it left for nothing",
                 (unsigned long long)seed - 20000);
        T_CHECKF(late <= 2 * WARPS * PIECE + ON_THE_WAY,
                 "T_SEED=%llu: %u bytes were written into the window of a rank that had left",
                 (unsigned long long)seed - 20000, late);
        end();
    }
    T_CHECKF(cases(40) < 40 || in_the_middle > 0, "no abort came while somebody wrote");
}

/* A message of one rank to another without its other call, as one list. */
static void begin_lone(uint64_t seed, int n, message m, int sends) {
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(n);
    k.nsteps = 1;
    k.step[0] = (step){.n = 1, .m = {m}};
    m.at[0] = m.at[1] = 64;
    const int own = sends ? m.from : m.to;
    symm_gpu_p2p_args *a = next_args(own);
    a->channels = a->ops = 1;
    a->op[0] = op_of(&m, sends);
    a->op[0].last = 1;
    a->self = (uint8_t)(m.from == m.to ? 1 << sends : 0);
    launch(own, "emu_p2p", 1 + draw(2), 32 * (1 + draw(2)));
    even_out();
}

static void run_lone(uint64_t seed, symmResult_t code, int rank) {
    char why[256] = "";
    const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
    T_CHECKF(!r, "seed %llu: %s; %s", (unsigned long long)seed, why, describe());
    T_CHECKF(k.host[0].abort == ((uint64_t)code << 32 | ((unsigned)rank + 1)),
             "seed %llu: heard %llx; %s", (unsigned long long)seed,
             (unsigned long long)k.host[0].abort, describe());
    T_EQ(k.host[0].left & 0xffffffff, SYMM_STAGE_P2P);
    end();
}

static void a_message_to_oneself_without_its_other_call(void) {
    for (int i = 0; i < 12; i++) {
        const uint64_t bytes[] = {5, 1000, 200000};
        const int sends = i & 1;
        message m = {.bytes = bytes[sends ? 2 : i / 2 % 3]};
        begin_lone(15000 + (unsigned)i, 1 + i % 2, m, sends);
        run_lone(15000 + (unsigned)i, symmInvalidUsage, 0);
    }
}

static void leave_when_ended(void *arg, uint64_t now) {
    (void)arg, (void)now;
    for (int r = 0; r < k.n; r++)
        if (emu_ended(r)) k.host[r].state = SYMM_STATE_LEFT;
}

/* A peer that comes too late for the deadline, or has left. Rank 0 has said what it waits in. */
static void a_peer_that_does_not_come(void) {
    for (int i = 0; i < 16; i++) {
        const uint64_t bytes[] = {5, 1000, 9000, 200000};
        const int sends = i % 2;
        message m = {.from = !sends, .to = sends, .bytes = sends ? 200000 : bytes[i / 4]};
        begin_lone(16000 + (unsigned)i, 2, m, sends);
        if (i / 2 % 2)
            emu_between(leave_when_ended, NULL);
        else
            k.args[0].a.timeout_ns = 4096 * EMU_STEP_NS;
        const symm_p2p_note *note = &k.host[0].p2p;
        const symmResult_t code = i / 2 % 2 ? symmRemoteError : symmTimeout;
        char why[256] = "";
        T_CHECK(!emu_run(k.launch, k.n, k.most, 16000 + (unsigned)i, why, sizeof why));
        emu_between(NULL, NULL);
        T_EQ(k.host[0].abort >> 32, code);
        T_EQ((uint32_t)k.host[0].abort, 2);
        T_EQ(note->waits, (uint64_t)(sends ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 | 2);
        T_EQ(note->waits_count, m.bytes);
        end();
    }
}

/* Who has ended its last call may leave: what it owes is there. */
static void a_rank_that_has_ended_may_leave(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 11000 + first_seed() + (unsigned)i;
        draw_case(seed, 2);
        model_case();
        emu_between(leave_when_ended, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 11000, why, describe());
        for (int p = 0; p < k.n; p++)
            T_CHECKF(!k.host[p].abort, "T_SEED=%llu: rank %d heard %llx; %s",
                     (unsigned long long)seed - 11000, p, (unsigned long long)k.host[p].abort,
                     describe());
        memory_is_as_modelled(seed - 11000);
        end();
    }
}

T_MAIN(T_TIMEOUT(an_abort_at_any_step_ends_all_kernels, 120),
       T_TIMEOUT(calls_that_differ_are_found, 120),
       T_TIMEOUT(nothing_is_stored_where_counts_differ, 120),
       T_TIMEOUT(an_aborted_ranks_windows_are_left_alone, 120),
       T_TIMEOUT(a_message_to_oneself_without_its_other_call, 120),
       T_TIMEOUT(a_peer_that_does_not_come, 120), T_TIMEOUT(a_rank_that_has_ended_may_leave, 120))
