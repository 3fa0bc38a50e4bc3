/* unit_survive.c - the agreement of those that are left (src/transport/mesh/survive.c), over a mesh
 * in memory whose ranks are fibers of one thread: which rank runs, when a message is seen and at
 * which step a rank dies are drawn. All that live come to the same, in every call, and a program
 * that tries again gets through. T_SEED draws others; T_FULL=1 draws ten times as many. One
 * thread. */
#include <stdlib.h>
#include <ucontext.h>

#include "base/log.h"
#include "transport/mesh/mesh_impl.h"
#include "t.h"

enum { RANKS = 6, CALLS = 200, STACK = 256 << 10, STEPS = 400000, SCHEDULES = 1000 };

typedef struct note {
    struct note *next;
    symm_wire_msg head;
    uint8_t payload[512];
} note;

typedef struct {
    symm_mesh mesh; /* first */
    ucontext_t fiber;
    char *stack;
    int ended, dead;
    int confirmed; /* in this call */
    int budget;    /* steps that a victim still has; -1: it lives */
    uint32_t calls;
    int code[CALLS]; /* 1 + result of each call by its number, 0: none; and who was left out */
    symm_ranks out[CALLS];
    note *first[RANKS], **last[RANKS]; /* what others have sent, by sender */
} fiber;

static struct {
    fiber at[RANKS];
    int n, self, victims, slow; /* slow: of 100 looks so many see nothing yet */
    int hasty;                  /* deadlines pass now and then */
    uint64_t seed, steps;
    symm_ranks doomed;
    void (*program)(fiber *f);
    ucontext_t home;
    char *stacks[RANKS];
} world;

static unsigned draw(unsigned n) {
    return (unsigned)t_draw(&world.seed, n);
}

static void go_home(void) {
    fiber *f = &world.at[world.self];
    swapcontext(&f->fiber, &world.home);
}

/* Every step of a victim may be its last. */
static void step(fiber *f) {
    if (f->budget < 0 || f->budget-- > 0) return;
    f->dead = 1;
    go_home(); /* for ever */
}

/* ---- the mesh ---- */

static symmResult_t put(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                        const int *fds, int nfds, int *state) {
    fiber *to = &world.at[peer];
    (void)fds;
    (void)nfds;
    step((fiber *)m);
    *state = to->dead ? MESH_GONE : MESH_READY;
    if (to->dead) return symmSuccess;
    note *x = calloc(1, sizeof *x);
    T_CHECK(x && bytes <= sizeof x->payload);
    x->head = (symm_wire_msg){.type = (uint16_t)type, .bytes = (uint32_t)bytes};
    if (bytes) memcpy(x->payload, payload, bytes);
    if (type == SYMM_MSG_WILL) /* the third word says what it is */
        ((fiber *)m)->confirmed |= ((const uint32_t *)payload)[2] == 2;
    *to->last[m->rank] = x;
    to->last[m->rank] = &x->next;
    return symmSuccess;
}

static symmResult_t take(symm_mesh *m, int peer, int *state) {
    fiber *f = (fiber *)m;
    step(f);
    *state = MESH_NOTHING;
    if ((int)draw(100) < world.slow) return symmSuccess;
    note *x = f->first[peer];
    if (!x) {
        if (world.at[peer].dead) *state = MESH_GONE;
        return symmSuccess;
    }
    if (!(f->first[peer] = x->next)) f->last[peer] = &f->first[peer];
    m->in.head = x->head;
    m->in.why = NULL;
    m->in.nfds = 0;
    memcpy(m->in.buf + SYMM_WIRE_HEADER, x->payload, x->head.bytes);
    free(x);
    *state = MESH_READY;
    return symmSuccess;
}

static void wait_here(symm_mesh *m, uint8_t *want, int ms) {
    (void)want;
    (void)ms;
    step((fiber *)m);
    go_home();
}

static int hung_up(const symm_mesh *m, int peer) {
    (void)m;
    return world.at[peer].dead;
}

static int no_fd(const symm_mesh *m, int peer) {
    (void)m;
    (void)peer;
    return -1;
}

static void end(symm_mesh *m) {
    (void)m;
}

static const symm_mesh_ops ops = {
    .put = put, .take = take, .wait = wait_here, .hung_up = hung_up, .fd = no_fd, .close = end};

/* ---- a schedule ---- */

static void enter(void) {
    fiber *f = &world.at[world.self];
    world.program(f);
    f->ended = 1;
    for (;;) go_home();
}

static void begin(int r) {
    fiber *f = &world.at[r];
    memset(f, 0, sizeof *f);
    T_OK(symm_mesh_init(&f->mesh, &ops, r, world.n));
    for (int p = 0; p < world.n; p++) f->last[p] = &f->first[p];
    f->budget = symm_ranks_has(&world.doomed, r) ? (int)draw(draw(2) ? 60 : 600) : -1;
    if (!world.stacks[r]) T_CHECK(world.stacks[r] = malloc(STACK));
    getcontext(&f->fiber);
    f->fiber.uc_stack.ss_sp = world.stacks[r];
    f->fiber.uc_stack.ss_size = STACK;
    f->fiber.uc_link = NULL;
    makecontext(&f->fiber, enter, 0);
}

static void finish(int r) {
    fiber *f = &world.at[r];
    for (int p = 0; p < world.n; p++)
        for (note *x = f->first[p], *next; x; x = next) {
            next = x->next;
            free(x);
        }
    symm_mesh_fini(&f->mesh);
}

static int running(int r) {
    return !world.at[r].ended && !world.at[r].dead;
}

static int any_running(void) {
    for (int r = 0; r < world.n; r++)
        if (running(r) && !symm_ranks_has(&world.doomed, r)) return 1;
    return 0;
}

/* Those that live ended each call alike. */
static void compare(uint64_t seed) {
    char a[80], b[80];
    for (int k = 0; k < CALLS; k++) {
        int first = -1;
        for (int r = 0; r < world.n; r++) {
            const fiber *f = &world.at[r], *g = first < 0 ? NULL : &world.at[first];
            if (symm_ranks_has(&world.doomed, r) || !f->code[k]) continue;
            if (first < 0) first = r;
            if (!g) continue;
            T_CHECKF((f->code[k] == 1) == (g->code[k] == 1),
                     "T_SEED=%llu call %d: rank %d ended with %d, rank %d with %d",
                     (unsigned long long)seed, k, first, g->code[k] - 1, r, f->code[k] - 1);
            T_CHECKF(f->code[k] != 1 || symm_ranks_same(&f->out[k], &g->out[k]),
                     "T_SEED=%llu call %d: rank %d leaves out %s, rank %d %s",
                     (unsigned long long)seed, k, first, symm_ranks_text(&g->out[k], a, sizeof a),
                     r, symm_ranks_text(&f->out[k], b, sizeof b));
        }
    }
}

static void play(uint64_t seed, void (*program)(fiber *)) {
    world.seed = seed;
    world.steps = 0;
    world.program = program;
    world.n = 2 + (int)draw(RANKS - 1);
    world.victims = (int)draw((unsigned)world.n);
    world.slow = (int)draw(3) * 35;
    world.doomed = (symm_ranks){{0}};
    for (int i = 0; i < world.victims;) {
        const int r = (int)draw((unsigned)world.n);
        i += !symm_ranks_has(&world.doomed, r);
        symm_ranks_add(&world.doomed, r);
    }
    for (int r = 0; r < world.n; r++) begin(r);
    while (any_running()) {
        T_CHECKF(world.steps++ < STEPS, "T_SEED=%llu: stands still", (unsigned long long)seed);
        world.self = (int)draw((unsigned)world.n);
        if (running(world.self)) swapcontext(&world.home, &world.at[world.self].fiber);
    }
    compare(seed);
    for (int r = 0; r < world.n; r++) finish(r);
}

static void play_many(void (*program)(fiber *)) {
    const char *from = getenv("T_SEED"), *full = getenv("T_FULL");
    const int many = from ? 1 : full && atoi(full) ? 10 * SCHEDULES : SCHEDULES;
    T_EXPECT_WARNINGS();
    symm_log_level = SYMM_LOG_NONE;
    for (int i = 0; i < many; i++)
        play(from ? strtoull(from, NULL, 0) : 1000u + (unsigned)i, program);
    for (int r = 0; r < RANKS; r++) {
        free(world.stacks[r]);
        world.stacks[r] = NULL;
    }
}

/* ---- programs ---- */

/* What a rank does between two calls, or instead of being in one at once: looks into queues, tells
 * that all is over, leaves pieces of an exchange behind. */
static void dally(fiber *f) {
    const uint32_t piece[6] = {f->calls + 7, 1, 0, 0, 0, 0};
    char seen[64];
    int state;
    for (int i = (int)draw(4); i > 0; i--) {
        const int p = (int)draw((unsigned)world.n);
        if (p == f->mesh.rank) continue;
        switch (draw(5)) {
        case 0:
            T_OK(symm_mesh_take(&f->mesh, p, &state));
            if (state == MESH_READY && f->mesh.in.head.type == SYMM_MSG_REVOKE &&
                !symm_mesh_revoked(&f->mesh))
                symm_mesh_obey(&f->mesh, p);
            break;
        case 1:
            if (!symm_mesh_revoked(&f->mesh)) break; /* a communicator that lives has none */
            put(&f->mesh, p, SYMM_MSG_VOTE, seen, 0, NULL, 0, &state);
            break;
        case 2: put(&f->mesh, p, SYMM_MSG_CHILD, piece, sizeof piece, NULL, 0, &state); break;
        case 3:
            if (!draw(4)) symm_agree_revoke(&f->mesh, symmAborted, f->mesh.rank, "testing", "so");
            break;
        default: wait_here(&f->mesh, NULL, 0);
        }
    }
}

/* A deadline. Once a rank has confirmed, its own way out may be another than the others'. */
static symmResult_t lose_patience(void *arg) {
    const fiber *f = arg;
    if (f->confirmed || f->calls > 8 || draw(20)) return symmSuccess;
    return SYMM_ERR(symmTimeout, "out of patience");
}

static symmResult_t call(fiber *f, int kind, symmResult_t mine, symm_ranks *out) {
    const symm_wait w = {.stage = "testing", .check = world.hasty ? lose_patience : NULL, .arg = f};
    uint32_t no;
    dally(f);
    f->confirmed = 0;
    symmResult_t r = symm_survive(&f->mesh, kind, mine, out, &no, &w);
    T_CHECKF(no == ++f->calls && no < CALLS, "rank %d: call %u has number %u", f->mesh.rank,
             f->calls, no);
    f->code[no] = 1 + (int)r;
    f->out[no] = *out;
    return r;
}

static int is_over(const symm_ranks *out) {
    return symm_ranks_same(out, &world.doomed);
}

static void only_the_dead(const symm_ranks *out) {
    for (int r = 0; r < world.n; r++)
        T_CHECKF(!symm_ranks_has(out, r) || world.at[r].dead, "rank %d lives and is left out", r);
}

/* Whoever is gone, until all that were to die have. */
static void ask_until_all_are_gone(fiber *f) {
    symm_ranks out;
    do {
        T_OK(call(f, SYMM_SURVIVE_GONE, symmSuccess, &out));
        only_the_dead(&out);
    } while (!is_over(&out));
}

/* With a list: at first a wrong one perhaps, then whom this rank sees gone. */
static void try_until_it_goes(fiber *f) {
    symm_ranks out = {{0}};
    for (;;) {
        if (f->calls || draw(2)) symm_survive_gone(&f->mesh, &out);
        symmResult_t r = call(f, SYMM_SURVIVE_LIST, symmSuccess, &out);
        T_CHECKF(r == symmSuccess || r == symmRemoteError || r == symmMismatch, "code %d", (int)r);
        if (!r) only_the_dead(&out);
        if (!r && is_over(&out)) return;
    }
}

/* A rank whose deadline passes before it has confirmed fails, and all others with it. */
static void lose_patience_now_and_then(fiber *f) {
    symm_ranks out = {{0}};
    for (;;) {
        symmResult_t r = call(f, SYMM_SURVIVE_GONE, symmSuccess, &out);
        T_CHECKF(r == symmSuccess || r == symmTimeout, "code %d", (int)r);
        if (!r) only_the_dead(&out);
        if (!r && f->calls > 8 && is_over(&out)) return;
    }
}

/* One rank's argument is bad now and then, or it means another kind of call: everybody's error. */
static void err_now_and_then(fiber *f) {
    symm_ranks out = {{0}};
    for (int i = 0;; i++) {
        const int bad = i < 6 && f->mesh.rank == i % world.n,
                  other = i < 6 && i % 2 && f->mesh.rank == 1;
        symmResult_t r = call(f, other ? SYMM_SURVIVE_ASK : SYMM_SURVIVE_GONE,
                              bad ? symmInvalidArgument : symmSuccess, &out);
        if (bad) T_EQ(r, symmInvalidArgument);
        if (!r) only_the_dead(&out);
        if (!r && i >= 6 && is_over(&out)) return;
    }
}

static void all_agree_on_who_is_gone(void) {
    play_many(ask_until_all_are_gone);
}
static void a_wrong_list_may_be_tried_again(void) {
    play_many(try_until_it_goes);
}
static void one_ranks_deadline_is_everybodys(void) {
    world.hasty = 1;
    play_many(lose_patience_now_and_then);
}
static void one_ranks_error_is_everybodys(void) {
    play_many(err_now_and_then);
}

/* ---- one thing at a time ---- */

/* Rank 1 is gone; ranks 0 and 2 bring different lists, and then the same. */
static void bring_lists(fiber *f) {
    symm_ranks none = {{0}}, one = {{2}}, out;
    if (f->mesh.rank == 1) {
        f->dead = 1;
        go_home();
    }
    while (!world.at[1].dead) wait_here(&f->mesh, NULL, 0);
    out = none;
    T_ERR(call(f, SYMM_SURVIVE_LIST, symmSuccess, &out), symmRemoteError);
    T_MSG(symm_status_text(), "rank 1 died or left, and is not in excludeRanks");
    out = f->mesh.rank ? one : none;
    const symmResult_t r = call(f, SYMM_SURVIVE_LIST, symmSuccess, &out);
    T_CHECKF(r == symmMismatch || r == symmRemoteError, "code %d", (int)r);
    out = one;
    T_OK(call(f, SYMM_SURVIVE_LIST, symmSuccess, &out));
}

static void lists_that_lack_a_dead_rank(void) {
    T_EXPECT_WARNINGS();
    symm_log_level = SYMM_LOG_NONE;
    for (int i = 0; i < 200; i++) {
        world.n = 3;
        world.seed = (uint64_t)i;
        world.doomed = (symm_ranks){{2}};
        world.program = bring_lists;
        for (int r = 0; r < 3; r++) {
            begin(r);
            world.at[r].budget = -1;
        }
        for (world.steps = 0; any_running();) {
            T_CHECK(world.steps++ < STEPS);
            world.self = (int)draw(3);
            if (running(world.self)) swapcontext(&world.home, &world.at[world.self].fiber);
        }
        compare((uint64_t)i);
        for (int r = 0; r < 3; r++) finish(r);
    }
    for (int r = 0; r < RANKS; r++) {
        free(world.stacks[r]);
        world.stacks[r] = NULL;
    }
}

T_MAIN(T(lists_that_lack_a_dead_rank), T(all_agree_on_who_is_gone),
       T(a_wrong_list_may_be_tried_again), T(one_ranks_deadline_is_everybodys),
       T(one_ranks_error_is_everybodys))
