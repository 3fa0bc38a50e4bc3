/* unit_onesided_kernels.c - the GPU kernel of one-sided calls itself, on fibers: random programs of
 * puts, gets, signals, waits, counts and fences (onesided_model.h), run and run again; data behind
 * a signal at every step of late stores; kernels that must leave. */
#define OM_LANE    9000
#define OM_ACTIONS 12
#include "onesided_model.h"

#include "emu_onesided.h"

/* ---- random programs ------------------------------------------------------------------------- */

enum { PRIVATE = 128 << 10 }; /* behind the lanes: sources of puts, and what gets bring */

static struct {
    om_program p;
    uint64_t place[8 * OM_ACTIONS], used[EO_RANKS]; /* place: of a put or a get in private memory */
    int id[OM_IDS];
} program;

/* At any alignment, apart from the others. */
static uint64_t take_place(int rank, uint64_t bytes) {
    const uint64_t at = program.used[rank] + eo_draw(16);
    program.used[rank] = (at + bytes + 31) / 16 * 16;
    T_CHECK(program.used[rank] <= EO_MEMORY);
    return at;
}
static uint64_t lane(const om_action *a) {
    return om_lane(program.p.n, a->what == OM_PUT ? a->rank : a->of) + a->at;
}
static int moves(const om_action *a) {
    return a->what == OM_PUT || a->what == OM_GET || a->what == OM_CHECK;
}

static void launch_action(const om_action *a, uint64_t place) {
    symm_gpu_onesided_args *args = eo_next(a->rank);
    const int id = program.id[a->id];
    switch (a->what) {
    case OM_PUT:
        eo_copy(args, a->peer, lane(a), a->rank, place, a->bytes);
        if (a->signals) eo_op(args, SYMM_ONESIDED_SIGNAL, a->peer, id, 0);
        break;
    case OM_GET:
    case OM_CHECK: eo_copy(args, a->rank, place, a->peer, lane(a), a->bytes); break;
    case OM_SIGNAL: eo_op(args, SYMM_ONESIDED_SIGNAL, a->peer, id, 0); break;
    case OM_WAIT: eo_op(args, SYMM_ONESIDED_WAIT, a->peer, id, a->count); break;
    case OM_RESET: eo_op(args, SYMM_ONESIDED_RESET, a->peer, id, 0); break;
    case OM_FENCE: eo_op(args, SYMM_ONESIDED_FENCE, 0, 0, 0); break;
    default: return;
    }
    eo_go(a->rank, 3, 3);
}

/* Stores of 1 to 4 bytes are never late on fibers. So what is put over an earlier put of the rank
 * comes behind all of that one's stores: its kernel lets no other begin early. */
static int puts_over(int i) {
    const om_action *a = &program.p.list[i];
    for (int k = 0; k < i && a->what == OM_PUT; k++) {
        const om_action *b = &program.p.list[k];
        if (b->what == OM_PUT && b->rank == a->rank && b->peer == a->peer &&
            b->at < a->at + a->bytes && a->at < b->at + b->bytes)
            return 1;
    }
    return 0;
}

static void draw_program(uint64_t seed) {
    eo_begin(seed, 1 + (int)(seed % EO_RANKS));
    om_draw(&program.p, seed, o.n);
    for (int i = 0; i < OM_IDS; i++) program.id[i] = (int)((eo_draw(SYMM_SIGNALS) + 13 * i) % 64);
    for (int i = 0; i < OM_IDS; i++)
        for (int j = 0; j < i; j++)
            if (program.id[i] == program.id[j]) program.id[i] = (program.id[i] + 1) % 64, j = -1;
    for (int r = 0; r < o.n; r++) program.used[r] = PRIVATE;
    for (int i = 0; i < program.p.actions; i++) {
        const om_action *a = &program.p.list[i];
        if (moves(a)) program.place[i] = take_place(a->rank, a->bytes);
        if (puts_over(i)) o.launch[a->rank * EO_CALLS + o.calls[a->rank] - 1].early = 0;
        launch_action(a, program.place[i]);
    }
    eo_even_out();
}

static void model_program(void) {
    for (int i = 0; i < program.p.actions; i++) {
        const om_action *a = &program.p.list[i];
        unsigned char *own = eo_modelled(a->rank) + program.place[i];
        if (!moves(a)) continue;
        unsigned char *far = eo_modelled(a->peer) + lane(a);
        memcpy(a->what == OM_PUT ? far : own, a->what == OM_PUT ? own : far, a->bytes);
    }
}

/* runs: of the program so far. Ranks use up what is left, as if by symmSignalReset. */
static void check_counts(uint64_t seed, unsigned runs) {
    const om_program *p = &program.p;
    for (int from = 0; from < o.n; from++)
        for (int to = 0; to < o.n; to++)
            for (int i = 0; i < OM_IDS; i++) {
                const int id = program.id[i];
                const uint64_t raised = (uint64_t)runs * p->raised[from][to][i],
                               left = p->raised[from][to][i] - p->used[from][to][i];
                uint64_t *used = &eo_ctl(to)->onesided.tally[from].used[id];
                T_CHECKF(eo_raised(to, from, id) == raised &&
                             eo_ctl(from)->onesided.tally[to].raised[id] == raised &&
                             *used + left == raised,
                         "seed %llu: %d to %d: raised %llu, not %llu; used %llu, left %llu",
                         (unsigned long long)seed, from, to,
                         (unsigned long long)eo_raised(to, from, id), (unsigned long long)raised,
                         (unsigned long long)*used, (unsigned long long)left);
                *used = raised;
            }
}

/* The same launches again are what a graph replays: no count is in their arguments. */
static void random_programs_run_and_run_again(void) {
    for (int i = 0; i < eo_cases(60); i++) {
        const uint64_t seed = eo_first() + (unsigned)i;
        draw_program(seed);
        for (unsigned run = 1; run <= 2; run++) {
            model_program();
            eo_run(seed * 2 + run);
            eo_as_modelled(seed);
            eo_quiet(seed);
            check_counts(seed, run);
        }
        eo_end();
    }
}

/* ---- data behind a signal -------------------------------------------------------------------- */

enum { AT = 4096, FLAG = 1 << 19 };

static struct {
    uint64_t bytes, seed;
    int seen, owner, raiser, target; /* raiser's signal at owner tells of target's memory */
    int flag;                        /* a word of the program's instead of a signal */
} behind;

/* The word has come: all that was put before it is in memory, whoever looks. Until then the kernel
 * waits for signal 6, or a program's for its answer: so not its end makes the word seen. */
static void data_is_there(void *arg, uint64_t now) {
    (void)arg, (void)now;
    const uint64_t *flag = (const void *)(eo_memory(behind.owner) + FLAG), answer = 1;
    if (behind.seen) return;
    if (behind.flag ? *flag != 77 : !eo_raised(behind.owner, behind.raiser, 5)) return;
    behind.seen = 1;
    eo_ctl(0)->signals[1].raised[6] = answer;
    memcpy(eo_memory(0) + FLAG, &answer, sizeof answer);
    for (uint64_t i = 0; i < behind.bytes; i++)
        T_CHECKF(eo_memory(behind.target)[AT + i] == eo_modelled(behind.raiser)[AT + i],
                 "seed %llu: byte %llu of %llu is not there, and its signal is",
                 (unsigned long long)behind.seed, (unsigned long long)i,
                 (unsigned long long)behind.bytes);
}

static void run_behind(uint64_t seed, int owner, int target, uint64_t bytes, int flag) {
    behind.bytes = bytes, behind.seed = seed, behind.seen = 0, behind.flag = flag;
    behind.owner = owner, behind.raiser = 0, behind.target = target;
    eo_even_out();
    emu_between(data_is_there, NULL);
    eo_run(seed);
    data_is_there(NULL, 0);
    emu_between(NULL, NULL);
    T_CHECK(behind.seen);
    eo_quiet(seed);
    eo_end();
}

static uint64_t draw_size(void) {
    return eo_draw(3) ? 16 * (1 + eo_draw(2000)) : 1 + eo_draw(30000);
}

static void a_signal_comes_behind_its_put(void) {
    for (int i = 0; i < eo_cases(80); i++) {
        const uint64_t seed = 3000 + eo_first() + (unsigned)i;
        eo_begin(seed, 2);
        symm_gpu_onesided_args *a = eo_next(0);
        const uint64_t bytes = draw_size();
        eo_copy(a, 1, AT, 0, AT, bytes);
        eo_op(a, SYMM_ONESIDED_SIGNAL, 1, 5, 0);
        eo_op(a, SYMM_ONESIDED_WAIT, 1, 6, 1);
        eo_go(0, 4, 4);
        run_behind(seed, 1, 1, bytes, 0);
    }
}

/* By a call of its own, to the same peer or to another: what the kernel before has put may not have
 * become visible when that ends. */
static void a_signal_tells_of_earlier_puts(void) {
    for (int i = 0; i < eo_cases(80); i++) {
        const uint64_t seed = 5000 + eo_first() + (unsigned)i;
        eo_begin(seed, 3);
        const uint64_t bytes = draw_size();
        const int other = 1 + (int)eo_draw(2);
        eo_copy(eo_next(0), 1, AT, 0, AT, bytes);
        eo_launch(0, "emu_onesided", 1, 96)->early = 1;
        symm_gpu_onesided_args *a = eo_next(0);
        eo_op(a, SYMM_ONESIDED_SIGNAL, other, 5, 0);
        eo_op(a, SYMM_ONESIDED_WAIT, 1, 6, 1);
        eo_go(0, 1, 1);
        run_behind(seed, other, 1, bytes, 0);
    }
}

/* A program's own kernel behind a fence stores a flag without order. */
static void a_fence_comes_behind_what_was_put(void) {
    for (int i = 0; i < eo_cases(80); i++) {
        const uint64_t seed = 7000 + eo_first() + (unsigned)i;
        eo_begin(seed, 3);
        const uint64_t bytes = draw_size();
        symm_gpu_onesided_args *a = eo_next(0);
        eo_copy(a, 1, AT, 0, AT, bytes);
        eo_op(a, SYMM_ONESIDED_FENCE, 0, 0, 0);
        eo_launch(0, "emu_onesided", 1, 96)->early = 1;
        emu_launch *l = eo_launch(0, "emu_flag", 1, 32);
        memset(eo_memory(0) + FLAG, 0, 8);
        l->args.src = eo_memory(0) + FLAG;
        l->args.dst = eo_memory(2) + FLAG;
        l->args.count = 77;
        run_behind(seed, 2, 1, bytes, 1);
    }
}

/* Behind a wait in the same kernel a lane finds what was put before its signal, and (all) every
 * lane what was put before those that others have waited for. */
static void look_behind_waits(int all) {
    enum { PART = 256, WAITS = 3 };
    for (int i = 0; i < eo_cases(150); i++) {
        const uint64_t seed = 9000 + eo_first() + (unsigned)i;
        const unsigned value = 0x1000u + (unsigned)i;
        eo_begin(seed, 1 + WAITS);
        symm_gpu_onesided_args *w = eo_next(0);
        for (int q = 1; q <= WAITS; q++) {
            symm_gpu_onesided_args *a = eo_next(q);
            for (unsigned b = 0; b < PART; b += 4) memcpy(eo_memory(q) + AT + b, &value, 4);
            eo_copy(a, 0, AT + (unsigned)(q - 1) * PART, q, AT, PART);
            eo_op(a, SYMM_ONESIDED_SIGNAL, 0, 5, 0);
            eo_go(q, 1, 2);
            eo_op(w, SYMM_ONESIDED_WAIT, q, 5, 1);
        }
        emu_launch *l = eo_launch(0, "emu_wait_and_look", 1, 32);
        l->args.dst = eo_memory(0) + AT;
        l->args.count = PART;
        l->args.sig = value;
        l->args.op = (uint32_t)all;
        eo_even_out();
        eo_run(seed);
        eo_quiet(seed);
        T_CHECKF(!o.host[0].left, "seed %llu: a lane has not seen what was put",
                 (unsigned long long)seed);
        eo_end();
    }
}

static void a_lane_sees_what_was_put_before_its_signal(void) {
    look_behind_waits(0);
}
static void all_lanes_see_what_was_put_before_the_signals(void) {
    look_behind_waits(1);
}

/* A list of more waits than a warp has lanes: each counts as often as it says, and none is passed
 * over. Rank 1 raises in an order of its own, some by several. */
static void a_long_list_waits_for_each(void) {
    for (int i = 0; i < eo_cases(40); i++) {
        const uint64_t seed = 25000 + eo_first() + (unsigned)i;
        const int signals = 33 + (int)eo_draw(31); /* at most 63 */
        eo_begin(seed, 2);
        symm_gpu_onesided_args *a = eo_next(0);
        for (int s = 0; s < signals; s++) eo_op(a, SYMM_ONESIDED_WAIT, 1, s, 1 + (unsigned)s % 3);
        eo_op(a, SYMM_ONESIDED_SIGNAL, 1, 0, 0); /* behind all of them */
        eo_go(0, 1, 2);
        const int turn = 2 * (int)eo_draw((uint32_t)signals) + 1;
        for (int k = 0; k < 3; k++) {
            a = eo_next(1);
            for (int j = 0; j < 64; j++) {
                const int s = (j * turn + k) & 63;
                if (s < signals && k <= s % 3) eo_op(a, SYMM_ONESIDED_SIGNAL, 0, s, 0);
            }
            eo_go(1, 1, 2);
        }
        eo_even_out();
        eo_run(seed);
        eo_quiet(seed);
        T_EQ(eo_raised(1, 0, 0), 1);
        for (int s = 0; s < 64; s++)
            T_EQ(eo_ctl(0)->onesided.tally[1].used[s], s < signals ? 1 + s % 3 : 0);
        eo_end();
    }
}

/* ---- kernels that leave ---------------------------------------------------------------------- */

static struct {
    uint64_t at;
    int rank, done, over;
    unsigned char memory[EO_MEMORY]; /* rank 1's, when its kernels had ended */
} spoiler;

static void abort_at(void *arg, uint64_t now) {
    (void)arg;
    if (spoiler.done || now < spoiler.at) return;
    spoiler.done = 1;
    for (int q = 1; q <= o.n; q++)
        o.host[(spoiler.rank + q) % o.n].abort =
            (uint64_t)symmAborted << 32 | (uint32_t)(spoiler.rank + 1);
}
static void count_steps(void *arg, uint64_t now) {
    *(uint64_t *)arg = now;
}

static void an_abort_at_any_step_ends_all_kernels(void) {
    for (int i = 0; i < eo_cases(40); i++) {
        const uint64_t seed = 11000 + eo_first() + (unsigned)i;
        uint64_t steps = 0;
        draw_program(seed);
        emu_between(count_steps, &steps);
        eo_run(seed);
        eo_end();
        draw_program(seed);
        spoiler.at = 1 + eo_draw((uint32_t)steps), spoiler.rank = (int)eo_draw((uint32_t)o.n);
        spoiler.done = 0;
        emu_between(abort_at, NULL);
        eo_run(seed);
        emu_between(NULL, NULL);
        T_CHECK(spoiler.done);
        eo_end();
    }
}

static void rank_1_aborts(void *arg, uint64_t now) {
    (void)arg;
    if (!spoiler.done && now >= spoiler.at) {
        spoiler.done = 1;
        o.host[0].death = o.host[1].abort = (uint64_t)symmAborted << 32 | 2;
    }
    if (!spoiler.done || spoiler.over || !emu_ended(1)) return;
    spoiler.over = 1;
    memcpy(spoiler.memory, eo_memory(1), EO_MEMORY);
}

/* Rank 1 waits for what never comes, aborts and is gone: a put into its window stops soon, and
 * raises nothing. */
static void an_aborted_ranks_window_is_left_alone(void) {
    enum { WARPS = 4, ON_THE_WAY = 2 * 256 * 16, ALL = 400 << 10 };
    int in_the_middle = 0;
    for (int i = 0; i < eo_cases(40); i++) {
        const uint64_t seed = 13000 + eo_first() + (unsigned)i;
        unsigned late = 0;
        eo_begin(seed, 2);
        symm_gpu_onesided_args *a = eo_next(0);
        eo_copy(a, 1, AT, 0, AT, ALL);
        eo_op(a, SYMM_ONESIDED_SIGNAL, 1, 5, 0);
        eo_launch(0, "emu_onesided", 2, 32 * WARPS / 2);
        eo_op(eo_next(1), SYMM_ONESIDED_WAIT, 0, 6, 1);
        eo_launch(1, "emu_onesided", 1, 32);
        eo_even_out();
        spoiler.at = 1000 + eo_draw(20000), spoiler.done = spoiler.over = 0;
        emu_between(rank_1_aborts, NULL);
        eo_run(seed);
        emu_between(NULL, NULL);
        for (unsigned b = 0; spoiler.over && b < EO_MEMORY; b++)
            late += eo_memory(1)[b] != spoiler.memory[b];
        in_the_middle += late > 0;
        const int whole = !memcmp(eo_memory(1) + AT, eo_memory(0) + AT, ALL);
        T_CHECKF(late <= WARPS * 4096 + ON_THE_WAY,
                 "seed %llu: %u bytes were written into the window of a rank that had left",
                 (unsigned long long)seed, late);
        T_CHECKF(whole || o.host[0].abort == o.host[1].abort,
                 "seed %llu: a put was cut short, and nobody says so", (unsigned long long)seed);
        T_CHECKF(whole || !eo_raised(1, 0, 5), "seed %llu: a signal of a put that was cut short",
                 (unsigned long long)seed);
        eo_end();
    }
    T_CHECKF(eo_cases(40) < 40 || in_the_middle > 0, "no abort came while somebody wrote");
}

/* Behind a kernel that has left nothing is raised or copied. */
static void nothing_is_raised_behind_a_kernel_that_left(void) {
    for (int i = 0; i < 20; i++) {
        const uint64_t seed = 15000 + (unsigned)i;
        eo_begin(seed, 2);
        eo_ctl(0)->over = 1;
        symm_gpu_onesided_args *a = eo_next(0);
        if (i & 1) eo_copy(a, 1, AT, 0, AT, 5000);
        eo_op(a, SYMM_ONESIDED_SIGNAL, 1, 5, 0);
        eo_go(0, 2, 2);
        eo_even_out();
        eo_run(seed);
        eo_as_modelled(seed);
        T_EQ(eo_raised(1, 0, 5), 0);
        eo_end();
    }
}

static void leave_when_ended(void *arg, uint64_t now) {
    (void)arg, (void)now;
    for (int r = 0; r < o.n; r++)
        if (emu_ended(r)) o.host[r].state = SYMM_STATE_LEFT;
}

/* Rank 0 waits for two of a signal of which one comes. own: of its own. */
static void begin_lone(uint64_t seed, int own) {
    eo_begin(seed, 2);
    const int from = own ? 0 : 1;
    eo_op(eo_next(from), SYMM_ONESIDED_SIGNAL, 0, 9, 0);
    eo_go(from, 1, 1);
    symm_gpu_onesided_args *a = eo_next(0);
    if (seed & 1) eo_op(a, SYMM_ONESIDED_WAIT, 1, 3, 0); /* one that has come */
    eo_op(a, SYMM_ONESIDED_WAIT, from, 9, 2);
    eo_go(0, 1, 1);
    eo_even_out();
}
static void check_lone(uint64_t seed, symmResult_t code, int rank) {
    const symm_p2p_note *note = &o.host[0].p2p;
    T_CHECKF(o.host[0].abort == ((uint64_t)code << 32 | ((unsigned)rank + 1)),
             "seed %llu: heard %llx", (unsigned long long)seed,
             (unsigned long long)o.host[0].abort);
    T_EQ(o.host[1].abort | o.host[1].death, o.host[0].abort);
    T_EQ(o.host[0].left & 0xffffffff, SYMM_STAGE_SIGNAL);
    T_EQ(note->waits, (uint64_t)SYMM_P2P_SIGNAL << 32 | ((unsigned)rank + 1));
    T_EQ(note->waits_count, 2);
    T_EQ(note->waits_type, (1 << 8) + 9);
    T_EQ(eo_ctl(0)->onesided.tally[rank].used[9], 0);
    T_EQ(eo_ctl(0)->over, 1);
    eo_end();
}

static void a_signal_that_does_not_come(void) {
    for (unsigned i = 0; i < 16; i++) {
        const uint64_t seed = 17000 + i;
        const int leaves = i / 2 % 2;
        begin_lone(seed, 0);
        if (leaves) emu_between(leave_when_ended, NULL);
        for (int c = 0; !leaves && c < EO_CALLS; c++) o.args[c].a.timeout_ns = 4096 * EMU_STEP_NS;
        eo_run(seed);
        emu_between(NULL, NULL);
        check_lone(seed, leaves ? symmRemoteError : symmTimeout, 1);
    }
}

/* The own rank's: at once, since nothing could raise it any more. */
static void a_signal_of_its_own_that_does_not_come(void) {
    for (unsigned i = 0; i < 16; i++) {
        begin_lone(19000 + i, 1);
        eo_run(19000 + i);
        check_lone(19000 + i, symmInvalidUsage, 0);
    }
}

/* A peer has died, and its watcher says so; and who has ended may leave. */
static void note_death(void *arg, uint64_t now) {
    if (now == 3000) o.host[0].death = (uint64_t)symmRemoteError << 32 | 2;
    (void)arg;
}
static void a_death_ends_a_wait(void) {
    for (unsigned i = 0; i < 8; i++) {
        begin_lone(21000 + i, 0);
        emu_between(note_death, NULL);
        eo_run(21000 + i);
        emu_between(NULL, NULL);
        check_lone(21000 + i, symmRemoteError, 1);
    }
}
static void who_has_ended_may_leave(void) {
    for (int i = 0; i < eo_cases(30); i++) {
        const uint64_t seed = 23000 + eo_first() + (unsigned)i;
        draw_program(seed);
        model_program();
        emu_between(leave_when_ended, NULL);
        eo_run(seed);
        emu_between(NULL, NULL);
        eo_as_modelled(seed);
        for (int p = 0; p < o.n; p++) T_EQ(o.host[p].abort, 0);
        check_counts(seed, 1);
        eo_end();
    }
}

T_MAIN(T_TIMEOUT(random_programs_run_and_run_again, 240),
       T_TIMEOUT(a_signal_comes_behind_its_put, 120),
       T_TIMEOUT(a_signal_tells_of_earlier_puts, 120),
       T_TIMEOUT(a_fence_comes_behind_what_was_put, 120),
       T_TIMEOUT(a_lane_sees_what_was_put_before_its_signal, 120),
       T_TIMEOUT(all_lanes_see_what_was_put_before_the_signals, 120), T(a_long_list_waits_for_each),
       T_TIMEOUT(an_abort_at_any_step_ends_all_kernels, 120),
       T_TIMEOUT(an_aborted_ranks_window_is_left_alone, 120),
       T(nothing_is_raised_behind_a_kernel_that_left), T(a_signal_that_does_not_come),
       T(a_signal_of_its_own_that_does_not_come), T(a_death_ends_a_wait),
       T_TIMEOUT(who_has_ended_may_leave, 120))
