/* host_kernels.c - the kernels of host_kernels.h. Each is run by one thread of each rank and index.
 * No lock. */
#include "host_kernels.h"

#include <sched.h>
#include <unistd.h>

static uint32_t word(int rank, int index, int round, int i) {
    return ((uint32_t)rank * 7919u + (uint32_t)index * 104729u + (uint32_t)round * 31u +
            (uint32_t)i) *
           2654435761u;
}
static void fill(uint32_t *to, const hk_args *a, int rank, int round) {
    for (int i = 0; i < HK_WORDS; i++) to[i] = word(rank, a->index, round, i);
}
static int count_wrong(const uint32_t *has, const hk_args *a, int rank, int round) {
    int wrong = 0;
    for (int i = 0; i < HK_WORDS; i++) wrong += has[i] != word(rank, a->index, round, i);
    return wrong;
}
static uint32_t *area(const hk_args *a, int rank) {
    const uint64_t at = (uint64_t)(a->index < 0 ? 0 : a->index) * HK_AREA;
    return (uint32_t *)(void *)symmHostPeerPtr(a->dev, a->win, rank, at);
}
static int signal_of(const hk_args *a, int which) {
    return (a->index < 0 ? 0 : a->index) * HK_SIGNALS + which;
}
static void pause_of(const hk_args *a) {
    if (a->slow_us) usleep((useconds_t)a->slow_us);
}

/* Runs the rounds; one that gives up is the last. */
static void run(hk_args *a, int (*round)(hk_args *a, symmHostCta_t *cta, int no)) {
    symmHostCta_t cta;
    a->wrong = a->done = 0;
    a->ended = symmSuccess;
    if ((a->began = symmHostCtaBegin(a->dev, a->index, &cta))) return;
    for (int i = 0; i < a->rounds && !a->absent && !round(a, &cta, a->first + i); i++) a->done++;
    a->ended = symmHostCtaEnd(&cta);
}

/* ---- barriers -------------------------------------------------------------------------------- */

static void look_at_all(hk_args *a, int no) {
    for (int p = 0; p < a->dev->nranks; p++) a->wrong += count_wrong(area(a, p), a, p, no);
}

static int barrier_round(hk_args *a, symmHostCta_t *cta, int no) {
    fill(area(a, a->dev->rank), a, a->dev->rank, no);
    if (symmHostBarrierSync(cta)) return 1;
    pause_of(a);
    look_at_all(a, no);
    return symmHostBarrierSync(cta);
}
void hk_barriers(void *args) {
    run(args, barrier_round);
}

static int apart_round(hk_args *a, symmHostCta_t *cta, int no) {
    fill(area(a, a->dev->rank), a, a->dev->rank, no);
    symmHostBarrierArrive(cta);
    pause_of(a);
    if (symmHostBarrierWait(cta)) return 1;
    look_at_all(a, no);
    symmHostBarrierArrive(cta);
    return symmHostBarrierWait(cta);
}
void hk_apart(void *args) {
    run(args, apart_round);
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Counts begin at 1 in the first round of all. */
static int ring_round(hk_args *a, symmHostCta_t *cta, int no) {
    const symmDevComm_t *d = a->dev;
    const int next = (d->rank + 1) % d->nranks, prev = (d->rank + d->nranks - 1) % d->nranks;
    const uint64_t at = (uint64_t)(a->index < 0 ? 0 : a->index) * HK_AREA;
    uint32_t data[HK_WORDS];
    fill(data, a, d->rank, no);
    if (symmHostSignalWait(cta, signal_of(a, HK_READ), (uint64_t)no, a->any ? -1 : next)) return 1;
    if (symmHostPutSignal(cta, a->win, next, at, data, sizeof data, signal_of(a, HK_FULL)))
        return 1;
    pause_of(a);
    if (symmHostSignalWait(cta, signal_of(a, HK_FULL), (uint64_t)no + 1, a->any ? -1 : prev))
        return 1;
    a->wrong += count_wrong(area(a, d->rank), a, prev, no);
    symmHostSignalRaise(cta, prev, signal_of(a, HK_READ), 1);
    return cta->over;
}
void hk_ring(void *args) {
    run(args, ring_round);
}

static int poll_round(hk_args *a, symmHostCta_t *cta, int no) {
    const symmDevComm_t *d = a->dev;
    const int next = (d->rank + 1) % d->nranks, prev = (d->rank + d->nranks - 1) % d->nranks;
    const uint64_t count = (uint64_t)no + 1;
    while (symmHostSignalRead(cta, signal_of(a, HK_READ)) < (uint64_t)no && !cta->over)
        sched_yield();
    fill(area(a, next), a, d->rank, no);
    symmHostSignalStore(cta, next, signal_of(a, HK_FULL), count);
    while (symmHostSignalRead(cta, signal_of(a, HK_FULL)) < count && !cta->over) sched_yield();
    a->wrong += count_wrong(area(a, d->rank), a, prev, no);
    symmHostSignalStore(cta, prev, signal_of(a, HK_READ), count);
    return cta->over;
}
void hk_polls(void *args) {
    run(args, poll_round);
}

static int count_round(hk_args *a, symmHostCta_t *cta, int no) {
    const int n = a->dev->nranks, sum = signal_of(a, HK_SUM);
    const uint64_t want = (uint64_t)n * ((uint64_t)n + 1) / 2;
    (void)no;
    for (int p = 0; p < n; p++) symmHostSignalRaise(cta, p, sum, (uint64_t)a->dev->rank + 1);
    if (symmHostSignalWait(cta, sum, want, -1)) return 1;
    a->wrong += symmHostSignalRead(cta, sum) != want;
    if (symmHostBarrierSync(cta)) return 1;
    symmHostSignalReset(cta, sum);
    a->wrong += symmHostSignalRead(cta, sum) != 0;
    return symmHostBarrierSync(cta);
}
void hk_counts(void *args) {
    run(args, count_round);
}

/* ---- packets --------------------------------------------------------------------------------- */

enum { PACKET_WORDS = SYMM_HOST_PACKET_BYTES / 4 };

static int packet_round(hk_args *a, symmHostCta_t *cta, int no) {
    const symmDevComm_t *d = a->dev;
    uint32_t data[PACKET_WORDS];
    symmHostPacketsNext(cta);
    for (int q = 0; q < d->nranks; q++)
        for (uint32_t k = 0; k < HK_ITEMS; k++) {
            for (int i = 0; i < PACKET_WORDS; i++)
                data[i] = word(d->rank, a->index, no, (int)k * PACKET_WORDS + i);
            symmHostPacketSend(cta, (d->rank + q) % d->nranks, k, data, sizeof data - 4 * k);
        }
    pause_of(a);
    for (int p = 0; p < d->nranks; p++)
        for (uint32_t k = 0; k < HK_ITEMS; k++) {
            if (symmHostPacketReceive(cta, p, k, data, sizeof data - 4 * k)) return 1;
            for (int i = 0; i < PACKET_WORDS - (int)k; i++)
                a->wrong += data[i] != word(p, a->index, no, (int)k * PACKET_WORDS + i);
        }
    return 0;
}
void hk_packets(void *args) {
    run(args, packet_round);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

void hk_misuse(symmHostCta_t *cta, int how) {
    char data[SYMM_HOST_PACKET_BYTES + 1] = "";
    volatile size_t long_one = sizeof data; /* which compilers would see */
    if (how == HK_ITEM || how == HK_TOO_LONG) symmHostPacketsNext(cta);
    switch (how) {
    case HK_PEER: symmHostSignalRaise(cta, cta->dev->nranks, HK_FULL, 1); break;
    case HK_SIGNAL: symmHostSignalStore(cta, 0, cta->dev->signals, 1); break;
    case HK_AWAITED: symmHostSignalWait(cta, 0, 1, -2); break;
    case HK_ITEM: symmHostPacketSend(cta, 0, HK_ITEMS, data, 1); break;
    case HK_TOO_LONG: symmHostPacketSend(cta, 0, 0, data, long_one); break;
    case HK_UNBEGUN: symmHostPacketSend(cta, 0, 0, data, 1); break;
    case HK_NO_INDEX: symmHostBarrierArrive(cta); break;
    case HK_NO_ARRIVAL: symmHostBarrierWait(cta); break;
    default: symmHostPacketsNext(cta); break;
    }
}
