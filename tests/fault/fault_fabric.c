/* fault_fabric.c - memory that goes to the other processes as fabric handles, on the fake driver:
 * all of it or only what was made so, mixed with descriptors, on machines where a rank has none,
 * and with every call of the driver refused. Forked ranks; no lock: what ranks share stands behind
 * barriers. */
#include "refuse_kit.h"

#include "symm_heap.h"

enum { PIECE = 2 << 20, PIECES = 7, FD = SYMM_CUDA_HANDLE_FD, FABRIC = SYMM_CUDA_HANDLE_FABRIC };

static fk_gauges start(int rank, int n, int fd, int fabric) {
    fake_cuda_config config = gk_config(n, 0);
    const fk_gauges before = fk_take();
    config.fd = fd;
    config.fabric_attr = fabric;
    config.fabric_code = fabric ? 0 : SYMM_CUDA_ERROR_NOT_PERMITTED;
    gk_env("cuda");
    gk_install(&config);
    T_OK(symmSetDevice(rank));
    return before;
}

/* ---- memory of another allocator ------------------------------------------------------------- */

typedef struct {
    cu_deviceptr at;
    cu_mem_handle raw[PIECES];
} foreign;

/* types: one for each piece, the first of them again behind the last. */
static void make_foreign(foreign *f, int device, const int *types, int ntypes) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED};
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    prop.location.id = device;
    T_EQ(symm_cu.cuMemAddressReserve(&f->at, PIECES * PIECE, 0, 0, 0), 0);
    for (int i = 0; i < PIECES; i++) {
        prop.handle_types = types[i % ntypes];
        T_EQ(symm_cu.cuMemCreate(&f->raw[i], PIECE, &prop, 0), 0);
        T_EQ(symm_cu.cuMemMap(f->at + (unsigned)i * PIECE, PIECE, 0, f->raw[i], 0), 0);
    }
    T_EQ(symm_cu.cuMemSetAccess(f->at, PIECES * PIECE, &access, 1), 0);
}

static void drop_foreign(const foreign *f) {
    for (int i = 0; i < PIECES; i++) {
        T_EQ(symm_cu.cuMemUnmap(f->at + (unsigned)i * PIECE, PIECE), 0);
        T_EQ(symm_cu.cuMemRelease(f->raw[i]), 0);
    }
    T_EQ(symm_cu.cuMemAddressFree(f->at, PIECES * PIECE), 0);
}

/* What memory of a peer came as: the fake driver remembers it. */
static int came_as(const void *at) {
    cu_mem_handle raw = 0;
    cu_mem_prop prop;
    T_EQ(symm_cu.cuMemRetainAllocationHandle(&raw, (void *)(uintptr_t)at), 0);
    T_EQ(symm_cu.cuMemGetAllocationPropertiesFromHandle(&prop, raw), 0);
    T_EQ(symm_cu.cuMemRelease(raw), 0);
    return prop.handle_types;
}

static int value_of(int rank, int piece) {
    return 1000 * rank + piece + 1;
}

/* Every peer's part is there, and came as it should: kinds, as in make_foreign. */
static void check_peers(fk *f, symmWindow_t win, void *mine, int rank, int n, int pieces,
                        const int *kinds, int nkinds) {
    for (int i = 0; i < pieces; i++)
        *(int *)((char *)mine + (size_t)i * PIECE + 4096) = value_of(rank, i);
    kit_barrier(&f->k, n);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < pieces; i++) {
            void *at;
            T_OK(symmWindowPeerPtr(win, (size_t)i * PIECE + 4096, r, &at));
            T_EQ(*(int *)at, value_of(r, i));
            if (r != rank) T_EQ(came_as(at), kinds[i % nkinds]);
        }
    kit_barrier(&f->k, n);
}

/* PyTorch makes expandable segments and its symmetric memory so, where it can: without descriptors.
 */
static void foreign_rank(int rank, int n, void *arg) {
    static const int fabric[] = {FABRIC}, both[] = {FABRIC | FD, FABRIC, FD},
                     as[] = {FD, FABRIC, FD};
    fk *f = arg;
    const fk_gauges before = start(rank, n, 1, 1);
    symmComm_t comm = fk_open(f, rank, n);
    for (int mixed = 0; mixed < 2; mixed++) {
        foreign mem;
        symmWindow_t win;
        make_foreign(&mem, rank, mixed ? both : fabric, mixed ? 3 : 1);
        void *p = (void *)(uintptr_t)mem.at;
        T_OK(symmWindowRegister(comm, p, PIECES * PIECE, &win, SYMM_WIN_DEFAULT));
        check_peers(f, win, p, rank, n, PIECES, mixed ? as : fabric, mixed ? 3 : 1);
        T_OK(symmWindowDeregister(comm, win));
        kit_barrier(&f->k, n);
        drop_foreign(&mem);
    }
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
    GK_LEFT(0);
}

static void memory_that_has_no_descriptors(void) {
    T_FORK(3, foreign_rank, fk_new(-1, 0));
}

/* ---- all memory ------------------------------------------------------------------------------ */

static void heap_grows(fk *f, symmComm_t comm, int rank, int n, int kind) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmRef_t ref;
    void *p, *there;
    c.reserve = 16 * PIECE;
    c.chunk = PIECE;
    c.symBytes = PIECE;
    T_OK(symmHeapCreate(comm, &c, &heap));
    T_OK(symmHeapGrow(heap, 6 * PIECE, 0));
    T_OK(symmHeapAlloc(heap, 5 * PIECE, 0, SYMM_ALLOC_SYM, &p));
    *(int *)p = value_of(rank, 77);
    T_OK(symmRefGet(p, &ref));
    kit_barrier(&f->k, n);
    for (int r = 0; r < n; r++) {
        T_OK(symmRefPtr(&ref, comm, r, &there));
        T_EQ(*(int *)there, value_of(r, 77));
        if (r != rank) T_EQ(came_as(there), kind);
    }
    kit_barrier(&f->k, n);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}

static void whole_rank(fk *f, int rank, int n, int fd, int kind) {
    const int kinds[] = {kind};
    const fk_gauges before = start(rank, n, fd, 1);
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win;
    void *mem;
    T_OK(symmMemAlloc(&mem, 3 * PIECE));
    T_OK(symmWindowRegister(comm, mem, 3 * PIECE, &win, SYMM_WIN_DEFAULT));
    check_peers(f, win, mem, rank, n, 1, kinds, 1);
    heap_grows(f, comm, rank, n, kind);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(mem));
    FK_UNCHANGED(&before);
    GK_LEFT(0);
}

static void no_descriptors_rank(int rank, int n, void *arg) {
    whole_rank(arg, rank, n, 0, FABRIC);
}
static void asked_rank(int rank, int n, void *arg) {
    setenv("SYMM_HANDLES", "fabric", 1);
    whole_rank(arg, rank, n, 1, FABRIC);
}
static void auto_rank(int rank, int n, void *arg) {
    setenv("SYMM_HANDLES", "auto", 1);
    whole_rank(arg, rank, n, 1, FD);
}
static void a_machine_without_descriptors(void) {
    T_FORK(3, no_descriptors_rank, fk_new(-1, 0));
}
static void fabric_handles_for_all_if_asked_for(void) {
    T_FORK(3, asked_rank, fk_new(-1, 0));
}
static void descriptors_where_there_are_both(void) {
    T_FORK(3, auto_rank, fk_new(-1, 0));
}

/* ---- not everywhere -------------------------------------------------------------------------- */

static void refused_window(fk *f, symmComm_t comm, int rank, int n, const char *why) {
    static const int fd[] = {FD}, fabric[] = {FABRIC};
    symmWindow_t win = NULL;
    foreign mem;
    /* The last piece alone cannot go: found when the others have gone already. */
    const int late[PIECES] = {FD, FD, FD, FD, FD, FD, rank == f->victim ? FD : FABRIC};
    for (int i = 0; i < 2; i++) {
        const int *types = i ? late : rank == f->victim ? fd : fabric;
        make_foreign(&mem, rank, types, i ? PIECES : 1);
        fk_note(f, rank,
                symmWindowRegister(comm, (void *)(uintptr_t)mem.at, PIECES * PIECE, &win,
                                   SYMM_WIN_DEFAULT));
        kit_barrier(&f->k, n);
        fk_same(f, n, -1, symmInvalidArgument, "as a fabric handle only");
        fk_same(f, n, -1, symmInvalidArgument, why);
        T_CHECK(!win);
        kit_barrier(&f->k, n);
        drop_foreign(&mem);
    }
    make_foreign(&mem, rank, fd, 1);
    void *p = (void *)(uintptr_t)mem.at;
    T_OK(symmWindowRegister(comm, p, PIECES * PIECE, &win, SYMM_WIN_DEFAULT));
    check_peers(f, win, p, rank, n, PIECES, fd, 1);
    T_OK(symmWindowDeregister(comm, win));
    kit_barrier(&f->k, n);
    drop_foreign(&mem);
}

/* how: 1: the victim has them too, and its user wants none. */
static void one_without(int rank, int n, void *arg) {
    fk *f = arg;
    const int lacks = rank == f->victim && !f->how;
    if (rank == f->victim && f->how) setenv("SYMM_HANDLES", "fd", 1);
    const fk_gauges before = start(rank, n, 1, !lacks);
    symmComm_t comm = fk_open(f, rank, n);
    refused_window(f, comm, rank, n, "not every rank can take those");
    T_OK(symmCommDestroy(comm));
    if (!f->how) {
        setenv("SYMM_HANDLES", "fabric", 1);
        fk_id(f, rank, n);
        comm = NULL;
        T_ERR(symmCommInitRank(&comm, n, f->id, rank), symmNotSupported);
        T_MSG(symmGetLastError(NULL), "SYMM_HANDLES=fabric: GPU 1 has no fabric handles: the "
                                      "device has no fabric handles");
        T_CHECK(!comm);
    }
    FK_UNCHANGED(&before);
    GK_LEFT(0);
}

static void a_rank_that_has_none(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, one_without, fk_new(1, 0));
    T_FORK(3, one_without, fk_new(1, 1));
}

/* ---- every call refused ---------------------------------------------------------------------- */

static const phase registration = {"registration", make, do_register, 0, NULL};

static void run_registration(int rank, int n, void *s) {
    by_fabric = 1;
    refuse_all(&registration, s, rank, n);
}

static void refusals_in_registration(void) {
    each_rank(run_registration);
}

/* The same where each rank is on a host of its own. */
static const phase on_hosts = {"registration on hosts", make, do_register, 0, NULL};

static void run_registration_on_hosts(int rank, int n, void *s) {
    by_fabric = ON_HOSTS;
    refuse_all(&on_hosts, s, rank, n);
}

static void refusals_in_registration_on_hosts(void) {
    each_rank(run_registration_on_hosts);
}

T_MAIN(T(memory_that_has_no_descriptors), T(a_machine_without_descriptors),
       T(fabric_handles_for_all_if_asked_for), T(descriptors_where_there_are_both),
       T(a_rank_that_has_none), T(refusals_in_registration),
       T_TIMEOUT(refusals_in_registration_on_hosts, 60))
