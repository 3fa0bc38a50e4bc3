/* thr_p2p.c - what the protocol of sends and receives promises, with thread ranks: every size,
 * alignment and place, what ends alone, order, self-sends, groups in any order. Whoever's call has
 * returned writes over its buffer at once, so ThreadSanitizer sees each missing release or wait;
 * tests/check/check_mutants.sh takes them out one by one. Each rank is a thread; no lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "p2p_kit.h"

enum { MOST = 8, CROWD = 16, ROOM = 9 << 20, SLOW = T_TSAN || T_ASAN };

typedef struct {
    symmComm_t comms[CROWD];
    int n;
    const char *scratch;
    _Atomic int went;
    pthread_barrier_t meet;
    void (*rank)(pk_world *w);
} plan;

static plan *the; /* of the test that runs */

static void run_rank(int rank, int n, void *arg) {
    plan *p = arg;
    pk_world w;
    pk_open(&w, p->comms[rank], rank, n, ROOM);
    p->rank(&w);
    pk_close(&w);
}

static void with_ranks(int n, const char *scratch, void (*rank)(pk_world *)) {
    plan p = {.n = n, .rank = rank};
    the = &p;
    if (scratch) setenv("SYMM_SCRATCH", scratch, 1);
    T_EQ(pthread_barrier_init(&p.meet, NULL, (unsigned)n), 0);
    T_OK(symmCommInitAll(p.comms, n, NULL));
    T_THREADS(n, run_rank, &p);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(p.comms[r]));
    pthread_barrier_destroy(&p.meet);
    unsetenv("SYMM_SCRATCH");
}

static void meet(void) {
    pthread_barrier_wait(&the->meet);
}

/* ---- one message ----------------------------------------------------------------------------- */

static const uint64_t sizes[] = {0,     1,     8,      39,     40,     41,      63,      64,
                                 100,   4096,  8191,   8192,   8193,   32768,   32769,   65536,
                                 65537, 99999, 262145, 524288, 999999, 1048576, 1048577, 5000001};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Rank 0 to rank 1 and back. how: bits: sender registered, receiver registered. */
static void one_way(pk_world *w, int from, uint64_t bytes, int how, uint64_t no) {
    const int mine = w->rank == from ? how & 1 : how >> 1;
    char *p = pk_half(w, mine) + 128 + (w->rank == from ? no % 5 : no % 3);
    if (w->rank == from) {
        pk_fill(p, bytes, from, 1 - from, no);
        pk_send(w->comm, p, bytes, 1 - from, NULL);
        memset(p, 0xee, bytes);
    } else {
        pk_empty(p, bytes);
        pk_recv(w->comm, p, bytes, from, NULL);
        pk_received(p, bytes, from, 1 - from, no);
        memset(p, 0xdd, bytes);
    }
}

static void sizes_rank(pk_world *w) {
    uint64_t no = 0;
    for (int i = 0; i < SIZES; i++)
        for (int how = 0; how < 4; how++)
            for (int from = 0; from < 2; from++)
                if (!SLOW || i < SIZES - 3 || from == how / 2)
                    one_way(w, from, sizes[i], how, ++no);
}

static void every_size_and_place(void) {
    with_ranks(2, NULL, sizes_rank);
}
static void little_scratch(void) {
    with_ranks(2, "1M", sizes_rank);
}

/* ---- what ends alone ------------------------------------------------------------------------- */

/* The receiver comes only when the sends have returned. */
static void alone_rank(pk_world *w) {
    const uint64_t alone[] = {0, 40, 8192, 65536, 1 << 20};
    for (int how = 0; how < 4; how++)
        for (int i = 0; i < 5; i++) {
            char *p = pk_half(w, w->rank ? how >> 1 : how & 1) + 128;
            if (w->rank == 0) {
                pk_fill(p, alone[i], 0, 1, (unsigned)i);
                pk_send(w->comm, p, alone[i], 1, NULL);
                memset(p, 0xee, alone[i]);
            }
            meet();
            if (w->rank == 0) continue;
            pk_empty(p, alone[i]);
            pk_recv(w->comm, p, alone[i], 0, NULL);
            pk_received(p, alone[i], 0, 1, (unsigned)i);
        }
}
static void eager_sends_end_alone(void) {
    with_ranks(2, NULL, alone_rank);
}

/* The third message takes the whole ring. It begins in a new lap while the second lies unread in
 * the old one, and what it skips there is given back by nobody. The second is received then, the
 * third when it has ended. The nap lets the third begin: without it the test might find nothing. */
static void lap_rank(pk_world *w) {
    const uint64_t sizes[] = {64 << 10, 64 << 10, 1 << 20};
    char *p = w->heap + 128;
    for (int i = 0; i < 3; i++) {
        if (w->rank == 0) {
            pk_fill(p, sizes[i], 0, 1, (unsigned)i);
            pk_send(w->comm, p, sizes[i], 1, NULL);
            memset(p, 0xee, sizes[i]);
        }
        if (i != 1) meet();
        if (w->rank == 1) {
            if (i == 1) usleep(20000);
            pk_empty(p, sizes[i]);
            pk_recv(w->comm, p, sizes[i], 0, NULL);
            pk_received(p, sizes[i], 0, 1, (unsigned)i);
        }
        if (i == 0) meet();
    }
}
static void a_whole_ring_ends_alone(void) {
    with_ranks(2, NULL, lap_rank);
}

/* 64 messages, of which 8 are big, together as much as fits; in the order in which they went. */
static uint64_t size_of(int i) {
    return i % 8 == 7 ? 10000 + (unsigned)i : i % 3 ? (unsigned)i * 11 : 3000 + (unsigned)i;
}
static void many_rank(pk_world *w) {
    char *p = w->heap + 128;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; w->rank == 0 && i < 64; i++) {
            pk_fill(p, size_of(i), 0, 1, (unsigned)i);
            pk_send(w->comm, p, size_of(i), 1, NULL);
            memset(p, 0xee, size_of(i));
        }
        meet();
        for (int i = 0; w->rank == 1 && i < 64; i++) {
            pk_empty(p, size_of(i));
            pk_recv(w->comm, p, size_of(i), 0, NULL);
            pk_received(p, size_of(i), 0, 1, (unsigned)i);
        }
        meet();
    }
}
/* Seven of 140,000 bytes are less than a ring of 1 MiB, but not each in whole chunks. */
static void filling_rank(pk_world *w) {
    enum { N = 7, BYTES = 140000 };
    char *p = w->heap + 128;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; w->rank == 0 && i < N; i++) {
            pk_fill(p, BYTES, 0, 1, (unsigned)i);
            pk_send(w->comm, p, BYTES, 1, NULL);
            memset(p, 0xee, BYTES);
        }
        meet();
        for (int i = 0; w->rank == 1 && i < N; i++) {
            pk_empty(p, BYTES);
            pk_recv(w->comm, p, BYTES, 0, NULL);
            pk_received(p, BYTES, 0, 1, (unsigned)i);
        }
        meet();
    }
}
static void what_fits_a_ring_ends_alone(void) {
    with_ranks(2, NULL, filling_rank);
}
static void many_sends_end_alone(void) {
    with_ranks(2, NULL, many_rank);
}

/* Small ones without a pause: slots and ring come round many times, the credits with them. */
static void flood_rank(pk_world *w) {
    char *p = w->heap + 128;
    for (int i = 0; i < (SLOW ? 2000 : 20000); i++) {
        /* By turns more than the slots hold, and more than the ring. */
        const uint64_t bytes = (unsigned)(i / 100 % 2 ? i * 337 % 8000 : i * 37 % 700);
        if (w->rank == 1 && i % 500 == 150) usleep(1000);
        if (w->rank == 0) {
            pk_fill(p, bytes, 0, 1, (unsigned)i);
            pk_send(w->comm, p, bytes, 1, NULL);
            memset(p, 0xee, bytes);
        } else {
            pk_recv(w->comm, p, bytes, 0, NULL);
            pk_check(p, bytes, 0, 1, (unsigned)i);
        }
    }
}
static void a_flood_of_small_ones(void) {
    with_ranks(2, "1M", flood_rank);
}

/* The receiver is late now and then: no record of a big one may be used again before it is read. */
static void big_flood_rank(pk_world *w) {
    char *p = w->heap + 128;
    for (int i = 0; i < 200; i++) {
        const uint64_t bytes = 8200 + (unsigned)i * 13;
        if (w->rank == 0) {
            pk_fill(p, bytes, 0, 1, (unsigned)i);
            pk_send(w->comm, p, bytes, 1, NULL);
            memset(p, 0xee, bytes);
            continue;
        }
        if (i % 20 == 0) usleep(2000);
        pk_empty(p, bytes);
        pk_recv(w->comm, p, bytes, 0, NULL);
        pk_received(p, bytes, 0, 1, (unsigned)i);
    }
}
static void a_flood_of_big_ones(void) {
    with_ranks(2, NULL, big_flood_rank);
}

/* One message goes round its ring many times. Until it ends, what the receiver gives back of the
 * ring is the only word that says when the sender may write there again. */
static void many_laps_rank(pk_world *w) {
    const uint64_t sizes[] = {4 << 20, 100, 4 << 20}; /* the last one begins behind an unread one */
    char *p = pk_half(w, 0) + 128;
    for (unsigned no = 0; no < 3; no++) {
        if (w->rank == 0) {
            pk_fill(p, sizes[no], 0, 1, no);
            pk_send(w->comm, p, sizes[no], 1, NULL);
            continue;
        }
        if (no == 1) usleep(20000);
        pk_empty(p, sizes[no]);
        pk_recv(w->comm, p, sizes[no], 0, NULL);
        pk_received(p, sizes[no], 0, 1, no);
    }
}
static void a_message_of_many_rings(void) {
    setenv("SYMM_DIRECT", "0", 1);
    with_ranks(2, "1M", many_laps_rank);
    unsetenv("SYMM_DIRECT");
}

/* ---- to itself ------------------------------------------------------------------------------- */

static void self_rank(pk_world *w) {
    for (int i = 0; i < SIZES; i++) {
        const uint64_t bytes = sizes[i];
        char *from = pk_half(w, i & 1) + 128, *to = pk_half(w, i >> 1 & 1) + (ROOM / 2) + 131;
        if (bytes > ROOM / 2 - 4096) continue;
        pk_fill(from, bytes, 0, 0, (unsigned)i);
        pk_empty(to, bytes);
        const int grouped = bytes > 1 << 20 || i % 2;
        if (grouped) T_OK(symmGroupStart());
        if (grouped && i % 3 == 0) pk_recv(w->comm, to, bytes, w->rank, NULL);
        pk_send(w->comm, from, bytes, w->rank, NULL);
        if (!grouped || i % 3) pk_recv(w->comm, to, bytes, w->rank, NULL);
        if (grouped) T_OK(symmGroupEnd());
        pk_received(to, bytes, 0, 0, (unsigned)i);
    }
}
static void messages_to_oneself(void) {
    with_ranks(1, NULL, self_rank);
    with_ranks(2, NULL, self_rank);
}

/* More ranks than cores: they look whether all has an end before they try the ring. */
static void crowd_self(int rank, int n, void *arg) {
    enum { BYTES = 48 << 10 };
    plan *p = arg;
    symmWindow_t win;
    char *memory;
    (void)n;
    T_OK(symmMemAlloc((void **)&memory, 4 * BYTES));
    T_OK(symmWindowRegister(p->comms[rank], memory, 4 * BYTES, &win, SYMM_WIN_DEFAULT));
    char *from = memory + 128, *to = memory + 2 * BYTES;
    for (unsigned no = 0; no < 5; no++) {
        pk_fill(from, BYTES, rank, rank, no);
        pk_empty(to, BYTES);
        pk_send(p->comms[rank], from, BYTES, rank, NULL);
        pk_recv(p->comms[rank], to, BYTES, rank, NULL);
        pk_received(to, BYTES, rank, rank, no);
    }
    T_OK(symmWindowDeregister(p->comms[rank], win));
    T_OK(symmMemFree(memory));
}
static void a_crowd_of_messages_to_oneself(void) {
    plan p = {.n = CROWD};
    T_OK(symmCommInitAll(p.comms, CROWD, NULL));
    T_THREADS(CROWD, crowd_self, &p);
    for (int r = 0; r < CROWD; r++) T_OK(symmCommDestroy(p.comms[r]));
}

static void self_alone_rank(pk_world *w) {
    T_EXPECT_WARNINGS();
    T_ERR(symmSend(w->heap, 2 << 20, symmUint8, 0, w->comm, NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(w->comm), "a message of rank 0 to itself has no other call");
    T_MSG(symmGetLastError(w->comm), "symmSend of 2097152 uint8 to rank 0");
}
static void self_alone(int rank, int n, void *arg) {
    plan *p = arg;
    pk_world w;
    (void)n;
    w = (pk_world){.rank = rank, .n = 1, .comm = p->comms[0], .heap = calloc(1, 2 << 20)};
    self_alone_rank(&w);
    free(w.heap);
}
static void a_message_to_oneself_without_its_other_call(void) {
    plan p = {.n = 1};
    T_OK(symmCommInitAll(p.comms, 1, NULL));
    T_THREADS(1, self_alone, &p);
    T_OK(symmCommDestroy(p.comms[0]));
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Everybody to everybody, self too, in an order that differs per rank; and sizes per pair. */
static uint64_t pair_size(int from, int to, int round) {
    static const uint64_t of[] = {8, 0, 300, 9000, 70000, 41, 200000, 1500000};
    return of[(from * 3 + to * 5 + round) % (SLOW ? 7 : 8)];
}
static uint64_t pair_at(int peer) {
    return 256 + (uint64_t)peer * 1501000;
}
static void group_rank(pk_world *w) {
    for (int round = 0; round < 8; round++) {
        char *out = pk_half(w, round & 1), *in = pk_half(w, !(round & 1));
        for (int q = 0; q < w->n; q++) {
            pk_fill(out + pair_at(q), pair_size(w->rank, q, round), w->rank, q, (unsigned)round);
            pk_empty(in + pair_at(q), pair_size(q, w->rank, round));
        }
        T_OK(symmGroupStart());
        for (int i = 0; i < 2 * w->n; i++) {
            const int k = (i * 7 + w->rank * 3 + round) % (2 * w->n), q = k / 2;
            if (k & 1)
                pk_send(w->comm, out + pair_at(q), pair_size(w->rank, q, round), q, NULL);
            else
                pk_recv(w->comm, in + pair_at(q), pair_size(q, w->rank, round), q, NULL);
        }
        T_OK(symmGroupEnd());
        for (int q = 0; q < w->n; q++) {
            pk_received(in + pair_at(q), pair_size(q, w->rank, round), q, w->rank, (unsigned)round);
            memset(out + pair_at(q), 0xee, pair_size(w->rank, q, round));
        }
    }
}
static void groups_in_any_order(void) {
    with_ranks(5, NULL, group_rank);
    with_ranks(3, "1M", group_rank);
}

/* Rings of 32 KiB: messages of all pairs come to their ends again and again, beside each other. */
static void small_rings_rank(pk_world *w) {
    for (int round = 0; round < 60; round++) {
        char *out = w->heap, *in = w->heap + ROOM / 2;
        for (int q = 0; q < w->n; q++) {
            const uint64_t go = (unsigned)((w->rank * 7 + q * 13 + round) * 337 % 8000),
                           come = (unsigned)((q * 7 + w->rank * 13 + round) * 337 % 8000);
            pk_fill(out + q * 9000 + 128, go, w->rank, q, (unsigned)round);
            pk_empty(in + q * 9000 + 128, come);
        }
        T_OK(symmGroupStart());
        for (int q = 0; q < w->n; q++) {
            const uint64_t go = (unsigned)((w->rank * 7 + q * 13 + round) * 337 % 8000),
                           come = (unsigned)((q * 7 + w->rank * 13 + round) * 337 % 8000);
            pk_send(w->comm, out + q * 9000 + 128, go, q, NULL);
            pk_recv(w->comm, in + q * 9000 + 128, come, q, NULL);
        }
        T_OK(symmGroupEnd());
        for (int q = 0; q < w->n; q++)
            pk_received(in + q * 9000 + 128,
                        (unsigned)((q * 7 + w->rank * 13 + round) * 337 % 8000), q, w->rank,
                        (unsigned)round);
    }
}
static void rings_beside_each_other(void) {
    with_ranks(6, "1M", small_rings_rank);
}

/* 500 messages each way between two ranks; the receives are written down first. */
static void thousand_rank(pk_world *w) {
    char *out = w->heap + 128, *in = w->heap + (ROOM / 2);
    const int peer = 1 - w->rank;
    for (int i = 0; i < 500; i++) {
        pk_fill(out + i * 700, (unsigned)i, w->rank, peer, (unsigned)i);
        pk_empty(in + i * 700, (unsigned)i);
    }
    T_OK(symmGroupStart());
    for (int i = 0; i < 500; i++) pk_recv(w->comm, in + i * 700, (unsigned)i, peer, NULL);
    for (int i = 0; i < 500; i++) pk_send(w->comm, out + i * 700, (unsigned)i, peer, NULL);
    T_OK(symmGroupEnd());
    for (int i = 0; i < 500; i++)
        pk_received(in + i * 700, (unsigned)i, peer, w->rank, (unsigned)i);
}
static void a_group_of_a_thousand(void) {
    with_ranks(2, NULL, thousand_rank);
}

/* A collective of a group comes before its sends and receives, wherever it stands: its result is
 * what is sent. A rank without any takes part in the collective alone. */
static void behind_rank(pk_world *w) {
    int32_t *sum = (int32_t *)(void *)(w->memory + 128), *got = sum + 1024, *in = got + 1024;
    for (int i = 0; i < 1000; i++) in[i] = w->rank + i;
    T_OK(symmGroupStart());
    if (w->rank == 1) T_OK(symmSend(sum, 1000, symmInt, 2, w->comm, NULL));
    if (w->rank == 2) T_OK(symmRecv(got, 1000, symmInt, 1, w->comm, NULL));
    T_OK(symmAllReduce(in, sum, 1000, symmInt, symmSum, w->comm, NULL));
    T_OK(symmGroupEnd());
    for (int i = 0; w->rank == 2 && i < 1000; i++) T_EQ(got[i], 6 + 4 * i);
}
static void collectives_of_a_group_come_first(void) {
    with_ranks(4, NULL, behind_rank);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void wait_a_little(void *arg) {
    usleep(2000);
    *(volatile char *)arg = 7;
}

typedef struct {
    const volatile char *from;
    volatile char found;
} seen;
static void look_at(void *arg) {
    ((seen *)arg)->found = *((seen *)arg)->from;
}

/* A group on several streams, of which one may be NULL: its list comes behind what each of them
 * has, and before what each is given next. */
static void streams_rank(pk_world *w) {
    static char got[2][3][64];
    char out[3][64] = {{0}};
    seen next[3];
    symmStream_t s[3] = {NULL};
    for (int round = 0; round < 20; round++) {
        const int peer = 1 - w->rank, with_null = round % 2;
        memset(got[w->rank], 0, sizeof got[0]);
        for (int i = with_null; i < 3; i++) {
            T_OK(symmStreamCreate(&s[i]));
            T_OK(symmStreamHostFunc(s[i], wait_a_little, &out[i][0]));
        }
        if (with_null) s[0] = NULL, out[0][0] = 7;
        T_OK(symmGroupStart());
        for (int i = 0; i < 3; i++) {
            pk_send(w->comm, out[i], 64, peer, s[2 - i]);
            pk_recv(w->comm, got[w->rank][i], 64, peer, s[i]);
        }
        T_OK(symmGroupEnd());
        for (int i = 0; i < 3; i++) {
            next[i] = (seen){.from = got[w->rank][i]};
            if (s[i]) T_OK(symmStreamHostFunc(s[i], look_at, &next[i]));
        }
        for (int i = 0; i < 3; i++) T_OK(symmStreamSynchronize(s[i]));
        for (int i = 0; i < 3; i++) T_EQ(got[w->rank][i][0], 7);
        for (int i = 0; i < 3; i++) T_EQ(s[i] ? next[i].found : 7, 7);
        for (int i = with_null; i < 3; i++) T_OK(symmStreamDestroy(s[i]));
        memset(out, 0, sizeof out);
    }
}
static void a_group_on_several_streams(void) {
    with_ranks(2, NULL, streams_rank);
}

/* Calls on changing streams keep their order, captured ones too; a stream outside the capture is
 * refused. */
static void captured_rank(pk_world *w) {
    symmStream_t a, b;
    symmEvent_t e;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int32_t x[8] = {w->rank, 0, 0, 0, 11, 12, 0, 0};
    char waited;
    const int peer = 1 - w->rank;
    T_OK(symmStreamCreate(&a));
    T_OK(symmStreamCreate(&b));
    T_OK(symmEventCreate(&e));
    T_OK(symmStreamBeginCapture(a));
    T_OK(symmGroupStart());
    T_OK(symmSend(x, 1, symmInt, peer, w->comm, a));
    T_OK(symmRecv(x + 1, 1, symmInt, peer, w->comm, b));
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_MSG(symmGetLastError(w->comm), "are not recorded into the same capture");
    T_OK(symmEventRecord(e, a));
    T_OK(symmStreamWaitEvent(b, e));
    T_OK(symmGroupStart());
    T_OK(symmSend(x, 1, symmInt, peer, w->comm, a));
    T_OK(symmRecv(x + 1, 1, symmInt, peer, w->comm, b));
    T_OK(symmGroupEnd());
    T_OK(symmSend(x + 1, 1, symmInt, peer, w->comm, b)); /* what has come */
    T_OK(symmRecv(x + 2, 1, symmInt, peer, w->comm, a));
    T_OK(symmAllReduce(x + 2, x + 3, 1, symmInt, symmSum, w->comm, b));
    T_OK(symmStreamHostFunc(a, wait_a_little, &waited)); /* the second send comes behind it too */
    T_OK(symmSend(x + 4, 1, symmInt, peer, w->comm, a));
    T_OK(symmSend(x + 5, 1, symmInt, peer, w->comm, b));
    T_OK(symmRecv(x + 6, 1, symmInt, peer, w->comm, b));
    T_OK(symmRecv(x + 7, 1, symmInt, peer, w->comm, b));
    T_OK(symmEventRecord(e, b));
    T_OK(symmStreamWaitEvent(a, e));
    T_OK(symmStreamEndCapture(a, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < 100; i++) {
        x[0] = w->rank * 100 + i;
        T_OK(symmGraphLaunch(exec, a));
        T_OK(symmStreamSynchronize(a));
        T_EQ(x[1], peer * 100 + i);
        T_EQ(x[2], w->rank * 100 + i);
        T_EQ(x[3], 100 + 2 * i);
        T_EQ(x[6], 11);
        T_EQ(x[7], 12);
        if (i % 3) continue; /* an eager one between replays */
        T_OK(symmSend(x, 1, symmInt, peer, w->comm, NULL));
        T_OK(symmRecv(x + 1, 1, symmInt, peer, w->comm, NULL));
        T_EQ(x[1], peer * 100 + i);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmEventDestroy(e));
    T_OK(symmStreamDestroy(a));
    T_OK(symmStreamDestroy(b));
}
static void captures_and_replays(void) {
    T_EXPECT_WARNINGS();
    with_ranks(2, NULL, captured_rank);
}

/* One thread drives all ranks. */
static void one_thread_drives_all(void) {
    symmComm_t comms[3];
    char box[3][3][100];
    T_OK(symmCommInitAll(comms, 3, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < 3; r++)
        for (int q = 0; q < 3; q++) {
            memset(box[r][q], r * 3 + q, 50);
            pk_send(comms[r], box[r][q], 50, q, NULL);
            pk_recv(comms[r], box[r][q] + 50, 50, q, NULL);
        }
    T_OK(symmGroupEnd());
    for (int r = 0; r < 3; r++)
        for (int q = 0; q < 3; q++)
            for (int i = 0; i < 50; i++) T_EQ(box[r][q][50 + i], q * 3 + r);
    for (int r = 0; r < 3; r++) T_OK(symmCommDestroy(comms[r]));
}

T_MAIN(T(every_size_and_place), T(little_scratch), T(eager_sends_end_alone),
       T(a_whole_ring_ends_alone), T(many_sends_end_alone), T(what_fits_a_ring_ends_alone),
       T(a_flood_of_small_ones), T(a_flood_of_big_ones), T(a_message_of_many_rings),
       T(messages_to_oneself), T(a_crowd_of_messages_to_oneself),
       T(a_message_to_oneself_without_its_other_call), T(groups_in_any_order),
       T(rings_beside_each_other), T(a_group_of_a_thousand), T(collectives_of_a_group_come_first),
       T(a_group_on_several_streams), T(captures_and_replays), T(one_thread_drives_all))
