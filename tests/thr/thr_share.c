/* thr_share.c - many threads use one communicator: they wait for each other, whatever ends that.
 * Run under the sanitizers too. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "coll_kit.h"
#include "base/handle.h"
#include "host/comm/comm.h"
#include "symm_heap.h"

enum { RANKS = 2, THREADS = 6, ROUNDS = 400 };

static void *start(pthread_t *t, void *(*fn)(void *), void *arg) {
    T_EQ(pthread_create(t, NULL, fn, arg), 0);
    return arg;
}

/* Until `count` threads wait to enter. */
static void await_waiting(symmComm_t comm, int count) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    while (atomic_load(&c->entry.waiting) < count) usleep(100);
}

/* ---- turns ---- */

typedef struct {
    symmComm_t comm;
    int streams;
} rank_user;

/* All threads of all ranks make equal calls, so any order is one order. */
static void *uses_it(void *arg) {
    const rank_user *u = arg;
    symmStream_t s = NULL;
    if (u->streams) T_OK(symmStreamCreate(&s));
    for (int i = 0; i < ROUNDS; i++) {
        int32_t x = 1;
        T_OK(symmAllReduce(&x, &x, 1, symmInt32, symmSum, u->comm, s));
        if (s) T_OK(symmStreamSynchronize(s));
        T_EQ(x, RANKS);
    }
    if (s) T_OK(symmStreamDestroy(s));
    return NULL;
}

static void take_turns(int streams) {
    symmComm_t comm[RANKS];
    rank_user u[RANKS];
    pthread_t t[RANKS][THREADS];
    T_OK(symmCommInitAll(comm, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) u[r] = (rank_user){comm[r], streams};
    for (int i = 0; i < THREADS; i++)
        for (int r = 0; r < RANKS; r++) start(&t[r][i], uses_it, &u[r]);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < THREADS; i++) pthread_join(t[r][i], NULL);
    for (int r = 0; r < RANKS; r++) {
        const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm[r]);
        T_EQ(atomic_load(&c->entry.waiting), 0);
        T_EQ(c->calls.issued, THREADS * ROUNDS);
        T_OK(symmCommDestroy(comm[r]));
    }
}

static void many_threads_take_turns(void) {
    take_turns(0);
}

static void many_threads_with_streams_of_their_own(void) {
    take_turns(1);
}

/* ---- waiting behind a call that lasts ---- */

typedef struct {
    symmComm_t comm;
    symmResult_t result;
    _Atomic int done;
} one_call;

static void *barriers(void *arg) {
    one_call *c = arg;
    c->result = symmBarrier(c->comm, NULL);
    atomic_store(&c->done, 1);
    return NULL;
}

static void *barriers_in_a_group(void *arg) {
    one_call *c = arg;
    T_OK(symmGroupStart());
    T_OK(symmBarrier(c->comm, NULL));
    c->result = symmGroupEnd();
    return NULL;
}

/* The first thread waits for a peer, the others for the first. */
static void pile_up(symmComm_t comm, pthread_t *t, one_call *calls, int n, int grouped) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    for (int i = 0; i < n; i++) {
        calls[i] = (one_call){.comm = comm};
        start(&t[i], grouped && i == 0 ? barriers_in_a_group : barriers, &calls[i]);
        while (i == 0 && !__atomic_load_n(&c->ctl->issued, __ATOMIC_RELAXED)) usleep(100);
    }
    await_waiting(comm, n - 1);
}

static void a_second_thread_waits(void) {
    symmComm_t comm[RANKS];
    pthread_t t[THREADS];
    one_call calls[THREADS];
    T_OK(symmCommInitAll(comm, RANKS, NULL));
    pile_up(comm[0], t, calls, THREADS, 0);
    usleep(20000);
    for (int i = 0; i < THREADS; i++) T_EQ(atomic_load(&calls[i].done), 0);
    for (int i = 0; i < THREADS; i++) T_OK(symmBarrier(comm[1], NULL));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        T_EQ(calls[i].result, symmSuccess);
    }
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comm[r]));
}

static void end_the_pile(int grouped, int revoked) {
    symmComm_t comm[RANKS];
    pthread_t t[THREADS];
    one_call calls[THREADS];
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(comm, RANKS, NULL));
    pile_up(comm[0], t, calls, THREADS, grouped);
    T_OK(revoked ? symmCommRevoke(comm[0], 0) : symmCommAbort(comm[0]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        T_EQ(calls[i].result, symmAborted);
    }
    if (revoked) T_OK(symmCommDestroy(comm[0]));
    T_OK(symmCommDestroy(comm[1]));
}

static void an_abort_ends_all_that_wait(void) {
    end_the_pile(0, 0);
    end_the_pile(0, 1);
}

static void an_abort_inside_a_group(void) {
    end_the_pile(1, 0);
    end_the_pile(1, 1);
}

/* ---- the end beside those that wait ---- */

static void *calls_until_it_ends(void *arg) {
    one_call *c = arg;
    while (!(c->result = symmBarrier(c->comm, NULL))) atomic_fetch_add(&c->done, 1);
    return NULL;
}

/* Who has come before the end finds the communicator gone, not its memory. */
static void a_destroy_beside_those_that_wait(void) {
    T_EXPECT_WARNINGS();
    for (int round = 0; round < 40; round++) {
        symmComm_t comm;
        pthread_t t[3];
        one_call calls[3];
        T_OK(symmCommInitAll(&comm, 1, NULL));
        symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
        symm_comm_ref(c); /* a call on its way in has looked up the handle already */
        for (int i = 0; i < 3; i++) {
            calls[i] = (one_call){.comm = comm};
            start(&t[i], calls_until_it_ends, &calls[i]);
        }
        while (!atomic_load(&calls[round % 3].done)) usleep(50);
        T_OK(symmCommDestroy(comm));
        for (int i = 0; i < 3; i++) {
            pthread_join(t[i], NULL);
            T_EQ(calls[i].result, symmInvalidArgument);
        }
        symm_comm_unref(c);
    }
}

/* ---- a callback ---- */

static symmComm_t called_back;
static symmResult_t inside;
enum { PASS, CALL, HOLD };
static _Atomic int armed;
static _Atomic int held_up;

static int gathers(void *ctx, const void *send, void *recv, size_t bytes) {
    (void)ctx;
    memcpy(recv, send, bytes);
    if (!armed) return 0;
    for (atomic_store(&held_up, 1); armed == HOLD;) usleep(1000);
    if (armed != CALL) return 0;
    inside = symmBarrier(called_back, NULL);
    T_MSG(symmGetLastError(NULL), "would wait for itself");
    return 0;
}

static int meets(void *ctx) {
    (void)ctx;
    return 0;
}

static void a_callback_does_not_wait_for_itself(void) {
    const symmBoot_t boot = {gathers, meets, NULL};
    void *buf;
    symmWindow_t win;
    symmComm_t child;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitBoot(&called_back, 1, 0, &boot, NULL));
    T_OK(symmMemAlloc(&buf, 2 << 20));
    armed = CALL;
    T_OK(symmWindowRegister(called_back, buf, 2 << 20, &win, 0));
    T_OK(symmCommSplit(called_back, 0, 0, &child, NULL));
    armed = PASS;
    T_EQ(inside, symmInvalidUsage);
    T_OK(symmBarrier(called_back, NULL));
    T_OK(symmCommDestroy(child));
    T_OK(symmCommDestroy(called_back));
    T_OK(symmMemFree(buf));
}

static void *registers(void *arg) {
    symmWindow_t win;
    ((one_call *)arg)->result =
        symmWindowRegister(((one_call *)arg)->comm, NULL, 0, &win, SYMM_WIN_DEFAULT);
    return NULL;
}

/* Who waits does not wait on for a thread that an abort cannot reach. */
static void an_abort_beside_a_callback(void) {
    const symmBoot_t boot = {gathers, meets, NULL};
    pthread_t t[2];
    one_call calls[2];
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitBoot(&called_back, 1, 0, &boot, NULL));
    calls[0] = calls[1] = (one_call){.comm = called_back};
    armed = HOLD;
    start(&t[0], registers, &calls[0]);
    while (!atomic_load(&held_up)) usleep(100);
    start(&t[1], barriers, &calls[1]);
    await_waiting(called_back, 1);
    T_OK(symmCommRevoke(called_back, 0));
    for (int ms = 0; ms < 5000 && !atomic_load(&calls[1].done); ms++) usleep(1000);
    T_CHECKF(atomic_load(&calls[1].done), "it waits on");
    T_EQ(calls[1].result, symmAborted);
    armed = PASS;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    T_OK(symmCommDestroy(called_back));
}

/* ---- questions about windows ---- */

typedef struct {
    symmWindow_t win;
    _Atomic int stop;
} asker;

/* Until its memory is gone. */
static void *asks(void *arg) {
    asker *a = arg;
    void *p;
    do {
        symmWindowInfo_t info = {.size = sizeof info};
        T_OK(symmWindowQuery(a->win, &info));
        T_CHECK(info.bytes >= 1000 && (!info.slotBytes || info.references > 0));
    } while (!atomic_load(&a->stop) && !symmWindowPeerPtr(a->win, 999, 0, &p));
    return NULL;
}

enum { PIECE = 2 << 20, PIECES = 3, BYTES = PIECE * PIECES };

/* Memory in pieces: a window over the first grows over the others. */
static char *map_pieces(void) {
    symm_vmm_handle *h;
    void *at;
    T_EQ(symm_vmm_host.reserve(BYTES, 0, &at), 0);
    for (int i = 0; i < PIECES; i++) {
        char *piece = (char *)at + (size_t)i * PIECE;
        T_EQ(symm_vmm_host.create(PIECE, &h), 0);
        T_EQ(symm_vmm_host.map(piece, PIECE, 0, h), 0);
        T_EQ(symm_vmm_host.set_access(piece, PIECE), 0);
        T_EQ(symm_vmm_host.release(h), 0);
    }
    return at;
}
static void unmap_pieces(char *at) {
    T_EQ(symm_vmm_host.unmap(at, BYTES), 0);
    T_EQ(symm_vmm_host.unreserve(at, BYTES), 0);
}

/* What another thread asks about, while it moves to other addresses, grows there and ends. */
static void asked_while_windows_change(symmComm_t comm) {
    char *mem = map_pieces(), *other = map_pieces();
    symmWindow_t win[2];
    asker a = {.stop = 0};
    pthread_t t;
    for (int i = 0; i < 2; i++) T_OK(symmWindowRegister(comm, mem, 1000, &win[i], 0));
    a.win = win[0]; /* it shares a slot, so it moves */
    start(&t, asks, &a);
    for (int i = 2; i <= PIECES; i++) T_OK(symmWindowGrow(win[0], (size_t)i * PIECE));
    T_OK(symmWindowDeregister(comm, win[1]));
    unmap_pieces(mem);
    T_OK(symmWindowRegister(comm, other, BYTES, &win[1], 0)); /* the first one lets go */
    atomic_store(&a.stop, 1);
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(comm, win[i]));
    unmap_pieces(other);
    T_OK(symmCommDestroy(comm));
}

static void questions_while_windows_change(void) {
    const symmBoot_t boot = {gathers, meets, NULL};
    symmComm_t comm;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(&comm, 1, NULL));
    asked_while_windows_change(comm);
    T_OK(symmCommInitBoot(&comm, 1, 0, &boot, NULL)); /* with mappings of its own */
    asked_while_windows_change(comm);
}

typedef struct {
    symmWindow_t win;
    symmResult_t result;
} one_window;

static void *deregisters(void *arg) {
    one_window *w = arg;
    w->result = symmWindowDeregister(called_back, w->win);
    return NULL;
}
static void *grows(void *arg) {
    one_window *w = arg;
    w->result = symmWindowGrow(w->win, 2 << 20);
    return NULL;
}

/* Another thread deregisters the window while this one waits for its turn: nothing grows. */
static void a_window_goes_before_it_grows(void) {
    const symmBoot_t boot = {gathers, meets, NULL};
    pthread_t t[3];
    one_call first;
    one_window w[2];
    int *buf;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitBoot(&called_back, 1, 0, &boot, NULL));
    T_OK(symmMemAlloc((void **)&buf, 2 << 20));
    T_OK(symmWindowRegister(called_back, buf, 1000, &w[0].win, 0));
    w[1] = w[0];
    first = (one_call){.comm = called_back};
    atomic_store(&held_up, 0);
    armed = HOLD;
    start(&t[0], registers, &first);
    while (!atomic_load(&held_up)) usleep(100);
    for (int i = 0; i < 2; i++) { /* the first to come is the next */
        start(&t[i + 1], i ? grows : deregisters, &w[i]);
        await_waiting(called_back, i + 1);
    }
    armed = PASS;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    T_OK(first.result);
    T_OK(w[0].result);
    T_EQ(w[1].result, symmInvalidArgument);
    T_OK(symmAllReduce(buf, buf, 200, symmInt32, symmSum, called_back, NULL));
    T_OK(symmCommDestroy(called_back));
    T_OK(symmMemFree(buf));
}

static symmHeap_t heap;

static void *destroys_the_heap(void *arg) {
    ((one_call *)arg)->result = symmHeapDestroy(heap);
    return NULL;
}
static void *allocates(void *arg) {
    void *p;
    ((one_call *)arg)->result = symmHeapAlloc(heap, 256, 0, SYMM_ALLOC_SYM, &p);
    return NULL;
}

static void *block;
static void *frees(void *arg) {
    ((one_call *)arg)->result = symmHeapFree(heap, block);
    return NULL;
}

/* The same of a heap: also of two threads that both destroy it. */
static void a_heap_goes_before_it_is_used(void) {
    enum { CALLS = 5 };
    static void *(*const calls[CALLS])(void *) = {registers, destroys_the_heap, allocates,
                                                  destroys_the_heap, frees};
    const symmBoot_t boot = {gathers, meets, NULL};
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    pthread_t t[CALLS];
    one_call call[CALLS];
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitBoot(&called_back, 1, 0, &boot, NULL));
    config.symBytes = 4 << 20;
    T_OK(symmHeapCreate(called_back, &config, &heap));
    T_OK(symmHeapAlloc(heap, 256, 0, SYMM_ALLOC_SYM, &block));
    atomic_store(&held_up, 0);
    armed = HOLD;
    for (int i = 0; i < CALLS; i++) {
        call[i] = (one_call){.comm = called_back};
        start(&t[i], calls[i], &call[i]);
        while (!atomic_load(&held_up)) usleep(100);
        await_waiting(called_back, i);
    }
    armed = PASS;
    for (int i = 0; i < CALLS; i++) {
        pthread_join(t[i], NULL);
        T_EQ(call[i].result, i < 2 ? symmSuccess : symmInvalidArgument);
    }
    T_OK(symmCommDestroy(called_back));
}

typedef struct {
    symmComm_t comm;
    _Atomic(symmWindow_t) win;
    _Atomic int stop;
} stranger;

static void *names_the_wrong_communicator(void *arg) {
    stranger *s = arg;
    while (!atomic_load(&s->stop))
        T_ERR(symmWindowDeregister(s->comm, atomic_load(&s->win)), symmInvalidArgument);
    return NULL;
}

/* It is refused, also while the window's own communicator lets go of it. */
static void a_window_of_another_communicator(void) {
    symmComm_t comm[2];
    stranger s = {.stop = 0};
    pthread_t t;
    void *buf;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 2; i++) T_OK(symmCommInitAll(&comm[i], 1, NULL));
    T_OK(symmMemAlloc(&buf, 2 << 20));
    s.comm = comm[0];
    start(&t, names_the_wrong_communicator, &s);
    for (int i = 0; i < 200; i++) {
        symmWindow_t win;
        T_OK(symmWindowRegister(comm[1], buf, 2 << 20, &win, 0));
        atomic_store(&s.win, win);
        sched_yield();
        T_OK(symmWindowDeregister(comm[1], win));
    }
    atomic_store(&s.stop, 1);
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++) T_OK(symmCommDestroy(comm[i]));
    T_OK(symmMemFree(buf));
}

T_MAIN(T(many_threads_take_turns), T(many_threads_with_streams_of_their_own),
       T(a_second_thread_waits), T(an_abort_ends_all_that_wait), T(an_abort_inside_a_group),
       T(a_destroy_beside_those_that_wait), T(a_callback_does_not_wait_for_itself),
       T(an_abort_beside_a_callback), T(questions_while_windows_change),
       T(a_window_goes_before_it_grows), T(a_window_of_another_communicator),
       T(a_heap_goes_before_it_is_used))
