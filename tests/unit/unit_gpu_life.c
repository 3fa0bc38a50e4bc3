/* unit_gpu_life.c - communicators of GPUs on the fake CUDA driver, in one process and in several:
 * reasons that kernels leave in the pages, abort and revoke, the end, what symmExplain and
 * symmCommDump say, registration, heaps in guard mode. */
#include <fcntl.h>
#include <unistd.h>

#include "host/comm/call_log.h"
#include "host/heap/heap_int.h"
#include "fault_kit.h"
#include "fgpu_kit.h"
#include "symm_heap.h"

static symmComm_t comms[GK_RANKS];

/* ---- reasons -------------------------------------------------------------------------------- */

/* As the kernel of c's rank does when it leaves: dev.cuh, leave(). */
static void leave_as_kernel(const symm_comm *c, symmResult_t code, int about, uint32_t epoch,
                            uint32_t stage) {
    const uint64_t word = (uint64_t)code << 32 | (uint32_t)(about + 1);
    symm_ctl *own = symm_comm_ctl(c, c->rank);
    own->left = (uint64_t)epoch << 32 | stage;
    __atomic_store_n(&own->abort, word, __ATOMIC_RELEASE);
    for (int p = 0; p < c->nranks; p++)
        if (p != c->rank) __atomic_store_n(&symm_comm_ctl(c, p)->abort, word, __ATOMIC_RELEASE);
}

static const struct {
    symmResult_t code;
    int about;
    uint32_t stage;
    const char *text, *where;
} reasons[] = {
    {symmTimeout, 2, SYMM_STAGE_PACKET, "rank 2 did not come before a deadline",
     "(collective 9, waiting for a packet)"},
    {symmMismatch, 1, SYMM_STAGE_SIGNATURE, "rank 1 and another rank called different collectives",
     "(collective 9, comparing signatures)"},
    {symmRemoteError, 2, SYMM_STAGE_ARRIVE, "rank 2 died or left the communicator",
     "(collective 9, waiting for an arrival word)"},
    {symmAborted, 0, SYMM_STAGE_READY, "rank 0 aborted or revoked the communicator",
     "(collective 9, waiting for a ready word)"},
};
enum { REASONS = sizeof reasons / sizeof *reasons };

/* The survivors go on without rank 2. */
static void shrink_rank(int rank, int n, void *arg) {
    const int gone = 2;
    symmComm_t *small = arg;
    (void)n;
    T_OK(symmCommShrink(comms[rank], &gone, 1, &small[rank], NULL, 0));
}

static void a_reason_in_the_pages_reaches_every_rank(void) {
    char *buf;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < REASONS * 2; i++) {
        symmComm_t small[2];
        symmResult_t async;
        gk_start(3, 0);
        gk_open(comms, 3, NULL);
        buf = gk_memory(0, 4096);
        leave_as_kernel(gk_inside(comms[0]), reasons[i / 2].code, reasons[i / 2].about, 9,
                        reasons[i / 2].stage);
        for (int r = 0; r < 3; r++) {
            if (i % 2) {
                T_OK(symmCommGetAsyncError(comms[r], &async));
                T_EQ(async, reasons[i / 2].code);
            }
            T_ERR(symmAllReduce(buf, buf, 5, symmInt32, symmSum, comms[r], NULL),
                  reasons[i / 2].code);
            T_MSG(symmGetLastError(comms[r]), reasons[i / 2].text);
            T_EQ(strstr(symmGetLastError(comms[r]), reasons[i / 2].where) != NULL, r == 0);
            T_ERR(symmCommFinalize(comms[r]), reasons[i / 2].code);
            T_EQ(gk_last(r).count, 0);
        }
        T_OK(symmCommDestroy(comms[2]));
        T_THREADS(2, shrink_rank, small);
        for (int r = 0; r < 2; r++) {
            int size, device;
            T_OK(symmBarrier(small[r], NULL));
            T_EQ(gk_last(r).count, 1);
            T_OK(symmCommCount(small[r], &size));
            T_OK(symmCommDevice(small[r], &device));
            T_CHECK(size == 2 && device == r);
            T_OK(symmCommDestroy(small[r]));
            T_OK(symmCommDestroy(comms[r]));
        }
        T_OK(symmMemFree(buf));
        GK_LEFT(0);
    }
}

/* Rank 0 has waited for rank 1, which waits for rank 2, which has not called. */
static void a_deadline_names_who_has_issued_fewer(void) {
    T_EXPECT_WARNINGS();
    for (int all = 0; all < 2; all++) {
        gk_start(3, 0);
        gk_open(comms, 3, NULL);
        char *buf = gk_memory(0, 4096);
        for (int r = 0; r < 2 + all; r++)
            T_OK(symmAllReduce(buf, buf, 5, symmInt32, symmSum, comms[r], NULL));
        leave_as_kernel(gk_inside(comms[0]), symmTimeout, 1, 1, SYMM_STAGE_PACKET);
        for (int r = 0; r < 3; r++) {
            T_ERR(symmBarrier(comms[r], NULL), symmTimeout);
            const char *text = symmGetLastError(comms[r]);
            T_MSG(text, "rank 1 did not come before a deadline");
            T_MSG(text, all ? "; it has issued 1 collectives, the last symmAllReduce of 5 int32"
                            : "; fewer collectives than rank 1: rank 2; rank 1 has issued 1 "
                              "collectives, the last symmAllReduce of 5 int32 (sum)");
            T_EQ(strstr(text, "fewer") != NULL, !all);
        }
        T_OK(symmMemFree(buf));
        gk_close(comms, 3);
        GK_LEFT(0);
    }
}

/* Straight to shrink, without a call in between that would have told. */
static void shrink_learns_it_from_the_pages(void) {
    symmComm_t small[2];
    T_EXPECT_WARNINGS();
    gk_start(3, 0);
    gk_open(comms, 3, NULL);
    leave_as_kernel(gk_inside(comms[1]), symmTimeout, 2, 1, SYMM_STAGE_READY);
    T_THREADS(2, shrink_rank, small);
    for (int r = 0; r < 2; r++) T_OK(symmBarrier(small[r], NULL));
    gk_close(small, 2);
    gk_close(comms, 3);
    GK_LEFT(0);
}

static void abort_and_revoke_reach_all_pages(void) {
    T_EXPECT_WARNINGS();
    for (int revoke = 0; revoke < 2; revoke++) {
        gk_start(3, 0);
        gk_open(comms, 3, NULL);
        symm_pages *pages = gk_inside(comms[1])->control.pages;
        symm_pages_ref(pages);
        if (revoke)
            T_OK(symmCommRevoke(comms[1], 0));
        else
            T_OK(symmCommAbort(comms[1]));
        for (int r = 0; r < 3; r++)
            T_EQ(symm_pages_ctl(pages, r)->abort, (uint64_t)symmAborted << 32 | 2);
        T_EQ(symm_pages_ctl(pages, 1)->state, revoke ? SYMM_STATE_ALIVE : SYMM_STATE_LEFT);
        for (int r = 0; r < 3; r += 2) {
            T_ERR(symmBarrier(comms[r], NULL), symmAborted);
            T_MSG(symmGetLastError(comms[r]), "rank 1");
        }
        T_ERR(symmBarrier(comms[1], NULL), revoke ? symmAborted : symmInvalidArgument);
        for (int r = 0; r < 3; r++)
            if (revoke || r != 1) T_OK(symmCommDestroy(comms[r]));
        symm_cuda_scope scope;
        T_OK(symm_cuda_push(0, &scope));
        symm_pages_unref(pages);
        symm_cuda_pop(&scope);
        GK_LEFT(0);
    }
}

static void the_end_says_left(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    symm_pages *pages = gk_inside(comms[0])->control.pages;
    symm_pages_ref(pages);
    for (int r = 0; r < 2; r++) {
        T_EQ(symm_pages_ctl(pages, r)->state, SYMM_STATE_ALIVE);
        T_OK(symmCommDestroy(comms[r]));
        T_EQ(symm_pages_ctl(pages, r)->state, SYMM_STATE_LEFT);
        T_EQ(symm_pages_ctl(pages, r)->abort, 0);
    }
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(1, &scope)); /* any GPU's context will do */
    symm_pages_unref(pages);
    symm_cuda_pop(&scope);
    GK_LEFT(0);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void explain_says_what_a_launch_does(void) {
    symmExplain_t plan = {.size = sizeof plan};
    symmWindow_t win[2];
    char *in[2], *out[2];
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    for (int r = 0; r < 2; r++) {
        in[r] = gk_memory(r, 64 * GK_MB);
        out[r] = gk_memory(r, 64 * GK_MB);
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmWindowRegister(comms[r], in[r], 64 * GK_MB, &win[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    for (uint64_t bytes = 16; bytes <= 32 * GK_MB; bytes *= 8) {
        T_OK(symmExplain(comms[0], symmCollAllReduce, in[0], out[0], bytes, symmUint8, symmSum, 0,
                         &plan));
        T_EQ(gk_last(0).count, 0);
        T_OK(symmAllReduce(in[0], out[0], bytes, symmUint8, symmSum, comms[0], NULL));
        char name[80];
        snprintf(name, sizeof name, "symm_%s_u8_n2", plan.kernel);
        T_STREQ(gk_last(0).kernel, name);
        T_EQ(gk_last(0).config.grid_x, plan.ctas);
        T_CHECK(plan.reason[0]);
        /* The large ones go straight between windows, if both buffers are in one. */
        const int direct = strcmp(plan.kernel, "all_reduce_direct") == 0;
        T_CHECKF(plan.zeroCopySend == 1 && plan.zeroCopyRecv == !direct, "%s: %d %d", plan.kernel,
                 plan.zeroCopySend, plan.zeroCopyRecv);
        T_EQ(strstr(plan.reason, "recvbuff is in no window") != NULL, direct);
        /* Whole groups of lines, 480 bytes each; direct: what is staged between two posts. */
        T_CHECKF((plan.chunkBytes != 0) == (strcmp(plan.kernel, "all_reduce_ll") != 0), "%s: %llu",
                 plan.kernel, (unsigned long long)plan.chunkBytes);
        T_EQ(plan.chunkBytes % (direct ? 512 : 480), 0);
        memset(gk_seen, 0, sizeof gk_seen);
    }
    T_OK(symmExplain(comms[0], symmCollAllReduce, in[0], in[0], 32 * GK_MB, symmUint8, symmSum, 0,
                     &plan));
    T_CHECK(plan.zeroCopySend && plan.zeroCopyRecv && !strstr(plan.reason, "window:"));
    for (int r = 0; r < 2; r++) T_OK(symmWindowDeregister(comms[r], win[r]));
    gk_close(comms, 2);
    for (int r = 0; r < 2; r++) {
        T_OK(symmMemFree(in[r]));
        T_OK(symmMemFree(out[r]));
    }
}

static void dump_of(int rank, char *text, size_t cap) {
    char path[] = "/tmp/symm-dump-XXXXXX";
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    unlink(path);
    T_OK(symmCommDump(comms[rank], fd));
    ssize_t n = pread(fd, text, cap - 1, 0);
    T_CHECK(n > 0);
    text[n] = 0;
    close(fd);
}

/* From a thread that works with another device, which has no access to the block. */
static void dump_reads_the_blocks_of_all_gpus(void) {
    char text[4096];
    T_EXPECT_WARNINGS();
    gk_start(4, 0);
    gk_open(comms, 3, NULL);
    T_OK(symm_cuda_set(3));
    for (int r = 0; r < 3; r++) {
        symm_comm *c = gk_inside(comms[r]);
        symm_gpu_ctl *ctl = (symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)r * c->stride);
        ctl->epoch[0] = 40 + (uint32_t)r;
        ctl->inbox[(r + 1) % 3].sig[0] = 0xabc0 + (unsigned)r;
    }
    const symm_call barrier = {.coll = symmCollBarrier};
    symm_call_log_begin(gk_inside(comms[0]), &barrier);
    symm_call_log_enter(gk_inside(comms[2]), "growing a heap");
    leave_as_kernel(gk_inside(comms[2]), symmTimeout, 0, 42, SYMM_STAGE_PACKET);
    dump_of(1, text, sizeof text);
    T_MSG(text, "rank 1 of 3, thread ranks");
    T_MSG(text, "rank 0: alive, collectives finished 40");
    T_MSG(text, "rank 1 (this): alive, collectives finished 41, abort word 800000001");
    T_MSG(text, "rank 2: alive, collectives finished 42");
    T_MSG(text, "signatures abc1 0");
    T_MSG(text, "; has issued 1 collectives, the last symmBarrier\n");
    T_MSG(text, "; has issued 0 collectives; growing a heap; waiting for ranks 0, 1\n");
    T_EQ(gk_device(), 3);
    gk_close(comms, 3);
    GK_LEFT(0);
}

/* The second kernel would wait in the stream behind the first, which waits for it. The rank can
 * call again, on another. */
static void is_refused(int rank, cu_stream stream, const char *part) {
    const int launched = fake_cuda_calls("cuLaunchKernelEx");
    symmResult_t async;
    T_EQ(symmBarrier(comms[rank], gk_user(stream)), symmInvalidUsage);
    T_CHECKF(strstr(symmGetLastError(comms[rank]), part) != NULL, "%s",
             symmGetLastError(comms[rank]));
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), launched);
    T_OK(symmCommGetAsyncError(comms[rank], &async));
    T_EQ(async, symmSuccess);
}

static void *other_thread(void *arg) {
    T_OK(symmBarrier(comms[1], arg));
    return NULL;
}

static void thread_ranks_of_one_gpu_have_streams_of_their_own(void) {
    static const int devices[] = {1, 1, 0};
    cu_stream s[3];
    pthread_t thread;
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 3, devices);
    for (int i = 0; i < 3; i++) s[i] = gk_stream(devices[i]);
    T_OK(symmBarrier(comms[0], gk_user(s[0])));
    is_refused(1, s[0], "has rank 0's call in it that waits for this one");
    T_OK(symmBarrier(comms[1], gk_user(s[1])));
    T_OK(symmBarrier(comms[2], gk_user(s[2])));
    /* One that the peer has called on is free again for who comes first. */
    T_OK(symmBarrier(comms[0], gk_user(s[1])));
    is_refused(1, s[1], "rank 0's call");
    T_OK(symmBarrier(comms[1], gk_user(s[0])));
    T_OK(symmBarrier(comms[2], gk_user(s[2])));
    /* Two calls ahead. */
    for (int i = 0; i < 2; i++) T_OK(symmBarrier(comms[0], gk_user(s[0])));
    is_refused(1, s[0], "rank 0's call");
    for (int i = 0; i < 2; i++) T_OK(symmBarrier(comms[1], gk_user(s[1])));
    for (int i = 0; i < 2; i++) T_OK(symmBarrier(comms[2], gk_user(s[2])));
    /* The per-thread stream is one only in a thread. */
    T_OK(symmBarrier(comms[0], gk_user(SYMM_CUDA_STREAM_PER_THREAD)));
    is_refused(1, SYMM_CUDA_STREAM_PER_THREAD, "rank 0's call");
    T_EQ(pthread_create(&thread, NULL, other_thread, gk_user(SYMM_CUDA_STREAM_PER_THREAD)), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(symmBarrier(comms[2], gk_user(s[2])));
    /* Who replays what others call is not behind them. */
    for (int r = 0; r < 2; r++) {
        symm_call_log *d = &gk_inside(comms[r])->ctl->call_log;
        T_OK(symmBarrier(comms[0], gk_user(s[0])));
        d->captured = 1;
        T_OK(symmBarrier(comms[1], gk_user(s[0])));
        T_OK(symmBarrier(comms[2], gk_user(s[2])));
        d->captured = 0;
    }
    gk_close(comms, 3);
    GK_LEFT(0);
}

/* The communicator goes on, and nobody is told of a call that never was. */
static void a_refused_launch_was_no_call(void) {
    char text[4096];
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    char *buf = gk_memory(0, 4096);
    T_OK(symmBarrier(comms[0], NULL));
    fake_cuda_fail("cuLaunchKernelEx", 1, SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    T_ERR(symmAllReduce(buf, buf, 8, symmInt32, symmSum, comms[0], NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(comms[0]), "a capture under way forbids this call");
    dump_of(1, text, sizeof text);
    T_MSG(text, "; has issued 1 collectives, the last symmBarrier; waiting for rank 1\n");
    T_OK(symmBarrier(comms[0], NULL));
    dump_of(1, text, sizeof text);
    T_MSG(text, "; has issued 2 collectives, the last symmBarrier; waiting for rank 1\n");
    gk_close(comms, 2);
    T_OK(symmMemFree(buf));
    GK_LEFT(0);
}

/* ---- registration --------------------------------------------------------------------------- */

/* Two pieces of memory side by side. */
static char *two_pieces(int device, symm_cuda_scope *scope) {
    const uint64_t g = 2 * GK_MB;
    symm_vmm_handle *h;
    void *va;
    T_OK(symm_cuda_push(device, scope));
    T_EQ(symm_vmm_cuda.reserve(3 * g, 0, &va), 0);
    for (int i = 0; i < 2; i++) {
        const uint64_t bytes = i ? 2 * g : g;
        char *at = (char *)va + (i ? g : 0);
        T_EQ(symm_vmm_cuda.create(bytes, &h), 0);
        T_EQ(symm_vmm_cuda.map(at, bytes, 0, h), 0);
        T_EQ(symm_vmm_cuda.release(h), 0);
        T_EQ(symm_vmm_cuda.set_access(at, bytes), 0);
    }
    symm_cuda_pop(scope);
    return va;
}

static void free_pieces(char *va) {
    T_EQ(symm_vmm_cuda.unmap(va, 6 * GK_MB), 0);
    T_EQ(symm_vmm_cuda.unreserve(va, 6 * GK_MB), 0);
}

static void thread_ranks_register_pieces(void) {
    symm_cuda_scope scope;
    symmWindow_t win[2];
    void *peer;
    char *mem[2];
    gk_start(2, 0);
    for (int r = 0; r < 2; r++) mem[r] = two_pieces(r, &scope);
    T_EQ(fake_cuda_access(mem[0]), 1); /* made when nobody used device 1 */
    gk_open(comms, 2, NULL);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmWindowRegister(comms[r], mem[r] + 100, 5 * GK_MB, &win[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_EQ(fake_cuda_access(mem[r]), 3);
        T_EQ(fake_cuda_access(mem[r] + 4 * GK_MB), 3);
        T_OK(symmWindowPeerPtr(win[r], 4 * GK_MB, 1 - r, &peer));
        T_CHECK(peer == mem[1 - r] + 100 + 4 * GK_MB);
        T_OK(symmAllReduce(mem[r] + 164, mem[r] + 164, 5, symmInt32, symmSum, comms[r], NULL));
        const symm_args a = gk_last(r).args;
        T_EQ(a.base + (uint64_t)r * a.stride + a.src_off, (uintptr_t)mem[r] + 164);
    }
    for (int r = 0; r < 2; r++) T_OK(symmWindowDeregister(comms[r], win[r]));
    gk_close(comms, 2);
    for (int r = 0; r < 2; r++) free_pieces(mem[r]);
    GK_LEFT(0);
}

/* ---- processes ------------------------------------------------------------------------------ */

static symmComm_t open_process(fk *f, int rank, int n) {
    gk_start(n, 0);
    T_OK(symmSetDevice(rank));
    return fk_open(f, rank, n);
}

static void register_in_a_process(int rank, int n, void *arg) {
    fk *f = arg;
    symm_cuda_scope scope;
    symmWindow_t win, again;
    symmWindowInfo_t info = {.size = sizeof info};
    void *peer;
    int device;
    symmComm_t comm = open_process(f, rank, n);
    T_OK(symmCommDevice(comm, &device));
    T_EQ(device, rank);
    T_EQ(gk_inside(comm)->threads, 0);
    T_EQ(fake_cuda_calls("cuMemHostRegister"), 1);
    char *mem = two_pieces(rank, &scope);
    T_OK(symmWindowRegister(comm, mem + 64, 5 * GK_MB, &win, SYMM_WIN_DEFAULT));
    mem[64 + 3 * GK_MB] = (char)(rank + 1);
    kit_barrier(&f->k, n);
    for (int r = 0; r < n; r++) {
        T_OK(symmWindowPeerPtr(win, 3 * GK_MB, r, &peer));
        T_EQ(*(volatile char *)peer, r + 1);
        T_CHECK(fake_cuda_access(peer) >> rank & 1);
    }
    int64_t maps = SYMM_STAT_GET(maps);
    T_OK(symmWindowRegister(comm, mem + 64, 5 * GK_MB, &again, SYMM_WIN_DEFAULT));
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_OK(symmWindowQuery(again, &info));
    T_EQ(info.references, 2);
    T_OK(symmAllReduce(mem + 64, mem + 64 + GK_MB, 99, symmFloat16, symmMax, comm, NULL));
    T_EQ(gk_last(rank).count, 1);
    T_EQ(gk_last(rank).args.src_off, info.offset);
    T_EQ(gk_last(rank).args.dst_off, info.offset + GK_MB);
    T_EQ(gk_last(rank).config.num_attrs, 1);
    kit_barrier(&f->k, n);
    T_OK(symmWindowDeregister(comm, again));
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    free_pieces(mem);
    GK_LEFT(0);
}

static void processes_register_pieces(void) {
    T_FORK(3, register_in_a_process, fk_new(-1, 0));
}

/* The pages are one memory: what a rank's kernel writes there every process reads. */
static void leave_in_a_process(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t small, comm = open_process(f, rank, n);
    const int gone = 2;
    symmResult_t async;
    kit_barrier(&f->k, n);
    if (rank == 1) leave_as_kernel(gk_inside(comm), symmTimeout, 2, 9, SYMM_STAGE_PACKET);
    kit_barrier(&f->k, n);
    if (rank == 0) {
        T_OK(symmCommGetAsyncError(comm, &async));
        T_EQ(async, symmTimeout);
    }
    T_ERR(symmBarrier(comm, NULL), symmTimeout);
    T_MSG(symmGetLastError(comm), "rank 2 did not come");
    T_EQ(strstr(symmGetLastError(comm), "(collective 9") != NULL, rank == 1);
    if (rank < 2) {
        T_OK(symmCommShrink(comm, &gone, 1, &small, NULL, 0));
        T_OK(symmBarrier(small, NULL));
        T_OK(symmCommDestroy(small));
    }
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}

static void reasons_cross_processes(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, leave_in_a_process, fk_new(-1, 0));
}

static void end_in_a_process(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_process(f, rank, n);
    symm_pages *pages = gk_inside(comm)->control.pages;
    symm_pages_ref(pages);
    kit_barrier(&f->k, n);
    if (rank == 1) T_OK(symmCommDestroy(comm));
    kit_barrier(&f->k, n);
    T_EQ(symm_pages_ctl(pages, 1)->state, SYMM_STATE_LEFT);
    T_EQ(symm_pages_ctl(pages, 0)->state, SYMM_STATE_ALIVE);
    kit_barrier(&f->k, n);
    if (rank == 0) T_OK(symmCommAbort(comm));
    kit_barrier(&f->k, n);
    T_EQ(symm_pages_ctl(pages, 1)->abort, (uint64_t)symmAborted << 32 | 1);
    symm_pages_unref(pages);
    GK_LEFT(0);
}

static void the_end_crosses_processes(void) {
    T_FORK(2, end_in_a_process, fk_new(-1, 0));
}

/* ---- guard mode ----------------------------------------------------------------------------- */

static symm_vmm driver; /* the communicator's, but for its copies */
static int (*real_copy)(void *dst, const void *src, uint64_t bytes);
static symmHeap_t checked;
static char *beside; /* a block that another thread takes while a hole is being read */
static int arm;

static int copy_late(void *dst, const void *src, uint64_t bytes) {
    if (arm && bytes > SYMM_RED_ZONE * 2) { /* a part of a hole */
        arm = 0;
        T_OK(symmHeapAlloc(checked, 3000, 0, SYMM_ALLOC_LOCAL, (void **)&beside));
        memset(beside, 7, 3000); /* the fake's memory is the CPU's */
    }
    return real_copy(dst, src, bytes);
}

static void guard_mode_checks_beside_threads(void) {
    char *p;
    symm_heap *h;
    symmHeapConfig_t k = SYMM_HEAP_CONFIG_INITIALIZER;
    T_EXPECT_WARNINGS();
    gk_start(1, 0);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    k.localBytes = 2 * GK_MB;
    k.guard = 1;
    gk_open(comms, 1, NULL);
    T_OK(symmHeapCreate(comms[0], &k, &checked));
    T_OK(symmHeapAlloc(checked, 500, 0, SYMM_ALLOC_LOCAL, (void **)&p));
    h = symm_heap_of(p);
    const symm_vmm *own = h->comm->vmm;
    driver = *own;
    real_copy = own->copy;
    driver.copy = copy_late;
    h->comm->vmm = &driver;
    arm = 1;
    T_OK(symmHeapCheck(checked));
    T_CHECK(beside && !arm);
    T_OK(symmHeapFree(checked, beside));
    T_OK(symmHeapCheck(checked));
    memset(p + 500, 9, 1);
    T_ERR(symmHeapCheck(checked), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "byte 500 was written, of a block of 500 bytes");
    T_ERR(symmHeapFree(checked, p), symmInvalidUsage);
    h->comm->vmm = own;
    symm_heap_unref(h);
    T_OK(symmHeapDestroy(checked));
    T_OK(symmCommDestroy(comms[0]));
}

/* ---- memory of the host for kernels --------------------------------------------------------- */

static void host_memory_for_kernels(void) {
    static char page[2][4096] __attribute__((aligned(4096)));
    cu_deviceptr at = 0;
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_EQ(symm_cu.cuCtxSetCurrent(NULL), 0);
    const int live = fake_cuda_live();
    T_OK(symmHostRegister(page[0], sizeof page[0]));
    T_EQ(gk_device(), -1); /* none was current, and none is */
    T_EQ(symm_cu.cuMemHostGetDevicePointer(&at, page[0] + 8, 0), 0);
    T_EQ(fake_cuda_live(), live + 1);
    T_ERR(symmHostRegister(page[0], sizeof page), symmUnhandledCudaError);
    T_MSG(symmGetLastError(NULL), "pinning 8192 bytes of the host");
    T_OK(symmHostUnregister(page[0]));
    T_ERR(symmHostUnregister(page[0]), symmUnhandledCudaError);
    T_ERR(symmHostRegister(NULL, 8), symmInvalidArgument);
    T_ERR(symmHostRegister(page[0], 0), symmInvalidArgument);
    T_ERR(symmHostUnregister(NULL), symmInvalidArgument);
    fake_cuda_fail("cuMemHostGetDevicePointer", 1, SYMM_CUDA_ERROR_UNKNOWN);
    T_ERR(symmHostRegister(page[0], sizeof page[0]), symmUnhandledCudaError);
    T_EQ(fake_cuda_live(), live); /* it is not left pinned */
    gk_close(comms, 2);
    gk_env("host");
    T_OK(symmHostRegister(page[0], sizeof page[0]));
    T_OK(symmHostUnregister(page[0]));
    GK_LEFT(0);
}

T_MAIN(T(a_reason_in_the_pages_reaches_every_rank), T(a_deadline_names_who_has_issued_fewer),
       T(shrink_learns_it_from_the_pages), T(abort_and_revoke_reach_all_pages),
       T(the_end_says_left), T(explain_says_what_a_launch_does),
       T(dump_reads_the_blocks_of_all_gpus), T(thread_ranks_of_one_gpu_have_streams_of_their_own),
       T(a_refused_launch_was_no_call), T(thread_ranks_register_pieces),
       T(processes_register_pieces), T(reasons_cross_processes), T(the_end_crosses_processes),
       T(guard_mode_checks_beside_threads), T(host_memory_for_kernels))
