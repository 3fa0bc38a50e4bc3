/* fault_device_host.c - waits of host kernels (symm_device_host.h) that cannot end: the peer dies,
 * aborts, revokes, leaves, or does not come before the deadline; kernels that use what there is
 * not. Forked ranks; no lock. */
#include "fault_kit.h"
#include "host_kernel_kit.h"

enum { SOON_MS = 1000 };
enum { DIES, ABORTS, REVOKES, LEAVES, LATE, WAYS };

static const struct {
    hk_kernel kernel;
    int n; /* ranks: every other one waits for the last */
    const char *wait;
} waiters[] = {{hk_barriers, 3, "(a kernel of the program, waiting for a barrier)"},
               {hk_ring, 2, "(a kernel of the program, waiting for a signal)"},
               {hk_packets, 3, "(a kernel of the program, waiting for a packet)"}};
enum { WAITERS = sizeof waiters / sizeof *waiters };

static const struct {
    symmResult_t code;
    const char *text; /* with the last rank's number */
} ends[] = {{symmRemoteError, "rank %d died"},
            {symmAborted, "rank %d "}, /* in one of two words */
            {symmAborted, "rank %d "},
            {symmRemoteError, "rank %d died or left"},
            {symmTimeout, "rank %d did not come before a deadline"}};

/* The communicator is over, for kernels and for calls. */
static void is_over(const hkk_rank *w, symmResult_t code) {
    symmHostCta_t cta;
    symmResult_t async = symmSuccess;
    T_OK(symmCommGetAsyncError(w->comm, &async));
    T_EQ(async, code);
    T_ERR(symmHostCtaBegin(&w->dev, 0, &cta), code);
    T_ERR(symmBarrier(w->comm, NULL), code);
}

static void waits(fk *f, hkk_rank *w, int which, int how) {
    char want[80];
    hk_args a = hkk_args(w, 0, 1);
    const uint64_t start = symm_now_ns();
    snprintf(want, sizeof want, ends[how].text, f->victim);
    waiters[which].kernel(&a);
    T_OK(a.began);
    T_CHECKF(a.ended == ends[how].code, "code %d, not %d: %s", (int)a.ended, (int)ends[how].code,
             symmGetLastError(w->comm));
    T_EQ(a.done, 0);
    T_MSG(symmGetLastError(w->comm), want);
    T_CHECK(fk_ms_since(how == DIES ? atomic_load(&f->at_ns) : start) < 5 * SOON_MS);
    is_over(w, ends[how].code);
}

/* Who waited itself, and was the first to give up, says for what. */
static void says_for_what(fk *f, const hkk_rank *w, int which, int n) {
    fk_note(f, w->rank, symmTimeout);
    snprintf(f->k.text[w->rank], sizeof f->k.text[0], "%s", symmGetLastError(w->comm));
    kit_barrier(&f->k, n);
    int said = 0;
    for (int r = 0; r < n - 1; r++) said += strstr(f->k.text[r], waiters[which].wait) != NULL;
    T_CHECK(said);
}

static void victim(fk *f, hkk_rank *w, int how) {
    if (how == DIES) {
        fk_doom(f);
        for (;;) pause();
    }
    kit_sleep(50);
    if (how == ABORTS) T_OK(symmCommAbort(w->comm));
    if (how == REVOKES) T_OK(symmCommRevoke(w->comm, 0));
    if (how == LEAVES) T_OK(symmCommDestroy(w->comm));
}

static void end_rank(int rank, int n, void *arg) {
    fk *f = arg;
    hkk_rank w;
    const int how = f->how % WAYS, which = f->how / WAYS;
    symmComm_t next;
    if (how == LATE) setenv("SYMM_TIMEOUT", "300", 1);
    hkk_open(&w, fk_open(f, rank, n), rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim)
        victim(f, &w, how);
    else
        waits(f, &w, which, how);
    if (how == LATE) says_for_what(f, &w, which, n);
    if (how == LATE && rank == f->victim) is_over(&w, symmTimeout); /* it was told */
    kit_barrier(&f->k, n - (how == DIES));
    if (how == DIES) {
        T_OK(symmCommShrink(w.comm, &f->victim, 1, &next, NULL, 0));
        fk_works(next, rank, n - 1);
        T_OK(symmCommDestroy(next));
    }
    if (rank != f->victim || (how != ABORTS && how != LEAVES)) T_OK(symmCommDestroy(w.comm));
}

static void end_in_each_wait(int how) {
    T_EXPECT_WARNINGS();
    for (int which = 0; which < WAITERS; which++) {
        const int n = waiters[which].n;
        fk *f = fk_new(n - 1, which * WAYS + how);
        if (how == DIES)
            T_FORK_DIES(n, n - 1, end_rank, f);
        else
            T_FORK(n, end_rank, f);
    }
}
static void a_peer_that_dies(void) {
    end_in_each_wait(DIES);
}
static void a_peer_that_aborts(void) {
    end_in_each_wait(ABORTS);
}
static void a_peer_that_revokes(void) {
    end_in_each_wait(REVOKES);
}
static void a_peer_that_leaves(void) {
    end_in_each_wait(LEAVES);
}
static void a_peer_that_does_not_come(void) {
    end_in_each_wait(LATE);
}

/* ---- a signal of any rank -------------------------------------------------------------------- */

/* Rank 0 waits for any. how: how many of the two others leave. */
static void any_rank(int rank, int n, void *arg) {
    fk *f = arg;
    hkk_rank w;
    setenv("SYMM_TIMEOUT", f->how == 2 ? "20000" : "2500", 1);
    hkk_open(&w, fk_open(f, rank, n), rank, n);
    kit_barrier(&f->k, n);
    if (rank && rank <= f->how) T_OK(symmCommDestroy(w.comm));
    if (!rank) {
        hk_args a = hkk_args(&w, 0, 1);
        a.any = 1;
        hk_ring(&a);
        T_EQ(a.ended, f->how == 2 ? symmRemoteError : symmTimeout);
        T_MSG(symmGetLastError(w.comm),
              f->how == 2 ? "died or left" : "a rank did not come before a deadline");
    }
    kit_barrier(&f->k, n);
    if (!rank || rank > f->how) T_OK(symmCommDestroy(w.comm));
}
static void a_signal_of_any_rank_ends_when_all_have_left(void) {
    T_EXPECT_WARNINGS();
    for (int gone = 1; gone <= 2; gone++) T_FORK(3, any_rank, fk_new(0, gone));
}

/* ---- kernels that are wrong ------------------------------------------------------------------ */

/* Rank 0's kernel is wrong, rank 1's waits for it. */
static void wrong_rank(int rank, int n, void *arg) {
    fk *f = arg;
    hkk_rank w;
    symmHostCta_t cta;
    hkk_open(&w, fk_open(f, rank, n), rank, n);
    T_OK(symmHostCtaBegin(&w.dev, rank || f->how < HK_NO_INDEX ? 0 : -1, &cta));
    kit_barrier(&f->k, n);
    if (rank == 0) hk_misuse(&cta, f->how);
    T_CHECK(symmHostBarrierSync(&cta));
    T_EQ(cta.over, 1);
    T_ERR(symmHostCtaEnd(&cta), symmInvalidUsage);
    T_MSG(symmGetLastError(w.comm), "a kernel of rank 0 uses a barrier, signal, packet or peer");
    is_over(&w, symmInvalidUsage);
    T_OK(symmCommDestroy(w.comm));
}
static void kernels_that_use_what_there_is_not(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < HK_WRONGS; how++) T_FORK(2, wrong_rank, fk_new(0, how));
}

T_MAIN(T(a_peer_that_dies), T(a_peer_that_aborts), T(a_peer_that_revokes), T(a_peer_that_leaves),
       T(a_peer_that_does_not_come), T(a_signal_of_any_rank_ends_when_all_have_left),
       T(kernels_that_use_what_there_is_not))
