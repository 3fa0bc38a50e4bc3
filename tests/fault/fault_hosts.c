/* fault_hosts.c - communicators whose ranks are on several hosts of one NVLink fabric, on the fake
 * driver: forked ranks of which some play another host. All kinds of calls, ranks that differ, who
 * is refused. No lock: what ranks share stands behind barriers. */
#include "hosts_kit.h"

/* ---- all of it ------------------------------------------------------------------------------- */

static void collectives(symmComm_t comm, const buffers *b, int rank, int n) {
    reduces(comm, b, rank, n);
    for (int i = 0; i < COUNT; i++) b->mem[i] = 1000 * rank + i % 7;
    T_OK(symmAllGather(b->mem, b->out, COUNT, symmInt32, comm, NULL));
    run();
    for (int r = 0; r < n; r++) T_EQ(b->out[r * COUNT + 8], 1000 * r + 1);
    for (int i = 0; i < n * COUNT; i++) b->mem[i] = rank;
    T_OK(symmAlltoAll(b->mem, b->out, COUNT, symmInt32, comm, NULL));
    run();
    for (int r = 0; r < n; r++) T_EQ(b->out[r * COUNT + 5], r);
    T_OK(symmBroadcast(b->mem, b->out, COUNT, symmInt32, n - 1, comm, NULL));
    T_OK(symmBarrier(comm, NULL));
    run();
    T_EQ(b->out[COUNT - 1], n - 1);
    T_EQ(peer_code(comm), 0);
}

/* A message to the next rank and one from the one before; a put with a signal likewise. */
static void messages(symmComm_t comm, const buffers *b, int rank, int n) {
    const int to = (rank + 1) % n, from = (rank + n - 1) % n;
    for (int i = 0; i < COUNT; i++) b->mem[i] = 100 * rank + 1;
    T_OK(symmGroupStart());
    T_OK(symmSend(b->mem, COUNT, symmInt32, to, comm, NULL));
    T_OK(symmRecv(b->out, COUNT, symmInt32, from, comm, NULL));
    T_OK(symmGroupEnd());
    run();
    T_EQ(b->out[COUNT - 1], 100 * from + 1);
    T_OK(symmBarrier(comm, NULL));
    const symmSignalWait_t wait = {from, 5, 1};
    T_OK(symmPutSignal(b->mem, 64, symmInt32, to, b->win, (size_t)n * COUNT * sizeof(int), 5, comm,
                       NULL));
    T_OK(symmWaitSignal(1, &wait, comm, NULL));
    run();
    T_EQ(b->out[0], 100 * from + 1);
    T_EQ(peer_code(comm), 0);
}

static void memory_objects(symmComm_t comm, int rank, int n) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmVec_t vec;
    size_t bytes;
    int *p, *there;
    c.reserve = 32 << 20;
    c.symBytes = 8 << 20;
    T_OK(symmHeapCreate(comm, &c, &heap));
    T_OK(symmHeapAlloc(heap, 4 << 20, 0, SYMM_ALLOC_SYM, (void **)&p));
    p[3] = 50 + rank;
    T_OK(symmBarrier(comm, NULL));
    run();
    symmRef_t ref;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, comm, (rank + 1) % n, (void **)&there));
    T_EQ(there[3], 50 + (rank + 1) % n);
    T_OK(symmBarrier(comm, NULL));
    run();
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmVecCreate(comm, NULL, &vec));
    T_OK(symmVecGrow(vec, 5 << 20));
    T_OK(symmVecSize(vec, &bytes));
    T_EQ(bytes, 5 << 20);
    for (int ms = 0; ms < SOON_MS;
         ms++) { /* what peers have comes to be known: fault_hosts_vec.c */
        T_OK(symmVecSync(vec, &bytes));
        if (bytes == 5 << 20) break;
        usleep(1000);
    }
    T_EQ(bytes, 5 << 20);
    T_OK(symmVecDestroy(vec));
}

static void device_communicator(symmComm_t comm, int rank) {
    symmDevRequirements_t want = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    symmDevComm_t dev;
    symm_comm *c;
    want.barriers = 2;
    T_OK(symmDevCommCreate(comm, &want, &dev));
    T_OK(symm_comm_visit(comm, &c));
    for (int p = 0; p < dev.nranks; p++) {
        const symm_gpu_ctl *ctl =
            (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)p * c->stride);
        T_EQ(dev.farBase + (uint64_t)p * dev.farStride, (uintptr_t)ctl->far);
    }
    symm_comm_unvisit(c);
    T_EQ(dev.rank, rank);
    T_OK(symmDevCommDestroy(comm, &dev));
}

/* Those of this host, which need no fabric; and the first two ranks. */
static void children(const hosts *h, symmComm_t comm, int rank, int n) {
    for (int how = 0; how < 2; how++) {
        symmComm_t child = NULL;
        symm_comm *c;
        const int color = how ? (rank < 2 ? 0 : SYMM_SPLIT_NOCOLOR) : host_of_rank(h, rank, n);
        T_OK(symmCommSplit(comm, color, rank, &child, NULL));
        if (!child) continue;
        T_OK(symm_comm_visit(child, &c));
        const int hosts = how && (h->cyclic || h->per < 2) ? 2 : 1, ranks = c->nranks, me = c->rank;
        T_EQ(c->hosts, hosts);
        symm_comm_unvisit(c);
        buffers b = buffers_new(child, ranks);
        reduces(child, &b, me, ranks);
        buffers_free(child, &b);
        T_OK(symmCommDestroy(child));
    }
}

static void whole_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symm_comm *c;
    T_OK(symm_comm_visit(comm, &c));
    T_EQ(c->hosts, (n + h->per - 1) / h->per);
    T_CHECK(!c->threads && c->fabric == 2);
    symm_comm_unvisit(c);
    buffers b = buffers_new(comm, n);
    collectives(comm, &b, rank, n);
    messages(comm, &b, rank, n);
    memory_objects(comm, rank, n);
    device_communicator(comm, rank);
    children(h, comm, rank, n);
    collectives(comm, &b, rank, n);
    buffers_free(comm, &b);
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}

static void all_calls_over_two_hosts(void) {
    T_FORK(4, whole_rank, hosts_new(2, 0, -1, 0));
}
static void all_calls_where_hosts_take_turns(void) {
    T_FORK(4, whole_rank, hosts_new(2, 1, -1, 0));
}
static void all_calls_over_hosts_of_one_rank_and_of_unequal_numbers(void) {
    T_FORK(3, whole_rank, hosts_new(1, 0, -1, 0));
    T_FORK(5, whole_rank, hosts_new(3, 0, -1, 0));
}

/* ---- ranks that differ ----------------------------------------------------------------------- */

static void differs_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    if (f->how) setenv("SYMM_TIMEOUT", "400", 1);
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (!f->how || rank != f->victim) /* how: the victim does not come at all */
        T_OK(symmAllReduce(b.mem, b.out, COUNT - (rank == f->victim), symmInt32, symmSum, comm,
                           NULL));
    T_EQ(await_code(comm, &ms), f->how ? symmTimeout : symmMismatch);
    T_CHECKF(ms < 400 + SOON_MS, "rank %d: after %d ms", rank, (int)ms);
    run();
    kit_barrier(&f->k, n);
    T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}
static void calls_that_differ_are_told_everywhere(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, differs_rank, hosts_new(2, 0, 3, 0));
}
static void a_deadline_is_told_to_who_is_not_there(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, differs_rank, hosts_new(2, 1, 3, 1));
}

/* ---- who is refused -------------------------------------------------------------------------- */

enum { OTHER_CLIQUE, NO_FABRIC, NO_HANDLES, FD_WANTED };

static void refused_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    static const char *const why[] = {"no NVLink fabric joins", "no NVLink fabric joins",
                                      "makes no fabric handles", "makes no fabric handles"};
    symmComm_t comm = NULL;
    char who[16];
    const fk_gauges before = begin(h, rank, n);
    snprintf(who, sizeof who, "rank %d", f->victim);
    if (rank == f->victim) {
        if (f->how == OTHER_CLIQUE) fake_nvml_set(rank, 9, 4);
        if (f->how == NO_FABRIC) fake_nvml_set(rank, 0, 0);
        if (f->how == NO_HANDLES) {
            fake_kernels_install(n, 0);
            fake_nvml_set(rank, 9, 3);
            T_OK(symmSetDevice(rank));
        }
        if (f->how == FD_WANTED) setenv("SYMM_HANDLES", "fd", 1);
    }
    fk_id(f, rank, n);
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmNotSupported, why[f->how]);
    fk_same(f, n, -1, symmNotSupported, who);
    T_CHECK(!comm);
    FK_UNCHANGED(&before);
}
static void who_has_no_fabric_is_refused_by_name(void) {
    T_EXPECT_WARNINGS();
    for (int how = OTHER_CLIQUE; how <= FD_WANTED; how++)
        for (int victim = 1; victim < 3; victim++) /* on rank 0's host, and on another */
            T_FORK(3, refused_rank, hosts_new(2, 0, victim, how));
}

/* Memory that another allocator made for descriptors: refused, and the communicator lives. */
static void descriptors_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, rank}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED, .handle_types = SYMM_CUDA_HANDLE_FD};
    cu_deviceptr at;
    cu_mem_handle raw;
    symmWindow_t win = NULL;
    begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    prop.location.id = rank;
    T_EQ(symm_cu.cuMemAddressReserve(&at, 2 << 20, 0, 0, 0), 0);
    T_EQ(symm_cu.cuMemCreate(&raw, 2 << 20, &prop, 0), 0);
    T_EQ(symm_cu.cuMemMap(at, 2 << 20, 0, raw, 0), 0);
    T_EQ(symm_cu.cuMemSetAccess(at, 2 << 20, &access, 1), 0);
    T_ERR(symmWindowRegister(comm, (void *)(uintptr_t)at, 2 << 20, &win, SYMM_WIN_DEFAULT),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "as a descriptor only, and the ranks are on 3 hosts");
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    buffers_free(comm, &b);
    T_OK(symmCommDestroy(comm));
    T_EQ(symm_cu.cuMemUnmap(at, 2 << 20), 0);
    T_EQ(symm_cu.cuMemRelease(raw), 0);
    T_EQ(symm_cu.cuMemAddressFree(at, 2 << 20), 0);
}
static void memory_with_descriptors_alone_is_refused(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, descriptors_rank, hosts_new(1, 0, -1, 0));
}

T_MAIN(T_TIMEOUT(all_calls_over_two_hosts, 60), T_TIMEOUT(all_calls_where_hosts_take_turns, 60),
       T_TIMEOUT(all_calls_over_hosts_of_one_rank_and_of_unequal_numbers, 90),
       T_TIMEOUT(calls_that_differ_are_told_everywhere, 60),
       T_TIMEOUT(a_deadline_is_told_to_who_is_not_there, 60),
       T_TIMEOUT(who_has_no_fabric_is_refused_by_name, 60),
       T_TIMEOUT(memory_with_descriptors_alone_is_refused, 60))
