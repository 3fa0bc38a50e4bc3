/* unit_nccl_config.c - the drop-in's reading of ncclConfig_t as programs of every version have it,
 * byte by byte, and of ncclCollConfig_t; codes; handles that are none. */
#include <limits.h>
#include <pthread.h>

#include "../../nccl-tests-plugin/config.h"
#include "nccl_kit.h"

/* Sizes as the headers of these versions have them: where the first field behind begins. */
#define SIZE_BEFORE(field) offsetof(ncclConfig_t, field)
static const struct {
    unsigned version;
    size_t size;
} versions[] = {
    {21400, SIZE_BEFORE(cgaClusterSize) + 4}, /* padded to 8 */
    {21700, SIZE_BEFORE(splitShare)},
    {21800, SIZE_BEFORE(trafficClass) + 4},
    {22500, SIZE_BEFORE(commName)},
    {22700, SIZE_BEFORE(nChannelsPerNetPeer)},
    {22800, SIZE_BEFORE(graphUsageMode)},
    {22900, SIZE_BEFORE(maxP2pPeers)},
    {23000, SIZE_BEFORE(graphStreamOrdering)},
    {23005, SIZE_BEFORE(numRmaSig)},
    {23100, sizeof(ncclConfig_t)},
    {24000, sizeof(ncclConfig_t) + 64},
};
enum { VERSIONS = sizeof versions / sizeof *versions };

static void fields_lie_where_nccl_has_them(void) {
    T_EQ(offsetof(ncclConfig_t, magic), 8);
    T_EQ(offsetof(ncclConfig_t, version), 12);
    T_EQ(offsetof(ncclConfig_t, blocking), 16);
    T_EQ(offsetof(ncclConfig_t, maxCTAs), 28);
    T_EQ(offsetof(ncclConfig_t, netName), 32);
    T_EQ(offsetof(ncclConfig_t, commName), 48);
    T_EQ(offsetof(ncclConfig_t, nvlinkCentricSched), 76);
    T_EQ(offsetof(ncclConfig_t, nvlsHostMode), 112);
    T_EQ(offsetof(ncclCollConfig_t, launchCompletionEvent), 64);
    T_EQ(sizeof(ncclSimInfo_t), 24);
}

/* Only bytes that the version has are looked at: those behind are 0xa5. */
static void every_version_is_read(void) {
    struct {
        ncclConfig_t c;
        char behind[64];
    } config;
    memset(&config, 0xa5, sizeof config);
    for (int i = 0; i < VERSIONS; i++) {
        symmConfig_t out;
        const size_t size = versions[i].size;
        config.c = n_config(versions[i].version, size < sizeof config.c ? size : sizeof config.c);
        config.c.size = size;
        config.c.blocking = 0;
        if (versions[i].version >= 21700) config.c.minCTAs = 2, config.c.maxCTAs = 1000;
        if (versions[i].version >= 22700) config.c.commName = "named";
        N_OK(symm_nccl_config(&config.c, &out));
        T_EQ(out.blocking, 0);
        T_EQ(out.minCTAs, versions[i].version >= 21700 ? 2 : SYMM_CONFIG_UNDEF);
        T_EQ(out.maxCTAs, versions[i].version >= 21700 ? 256 : SYMM_CONFIG_UNDEF);
        if (versions[i].version < 22700)
            T_CHECK(!out.commName);
        else
            T_STREQ(out.commName, "named");
    }
}

/* A program of an older version whose header had the room already: it left it unset by other means.
 */
static void fields_of_newer_versions_are_not_looked_at(void) {
    symmConfig_t out;
    ncclConfig_t c = n_config(21400, sizeof c);
    c.minCTAs = -7;
    c.collnetEnable = 99;
    c.commName = (const char *)1;
    N_OK(symm_nccl_config(&c, &out));
    T_CHECK(!out.commName);
    T_EQ(out.minCTAs, SYMM_CONFIG_UNDEF);
}

static void refused(ncclConfig_t c, const char *part) {
    symmConfig_t out = SYMM_CONFIG_INITIALIZER;
    out.blocking = 77;
    N_REFUSED(symm_nccl_config(&c, &out), ncclInvalidArgument, part);
    T_EQ(out.blocking, 77); /* written only on success */
}

#define WITH(field, value)                            \
    ({                                                \
        ncclConfig_t c_ = n_config(23100, sizeof c_); \
        c_.field = (value);                           \
        c_;                                           \
    })

static void what_is_out_of_range_is_named(void) {
    T_EXPECT_WARNINGS();
    refused(WITH(magic, 0xcafebeee), "initializer");
    refused(WITH(size, 8), "initializer");
    refused(WITH(blocking, 2), "blocking=2: must be 0 to 1");
    refused(WITH(blocking, -1), "blocking=-1");
    refused(WITH(cgaClusterSize, -1), "cgaClusterSize=-1: must be at least 0");
    refused(WITH(minCTAs, 0), "minCTAs=0: must be at least 1");
    refused(WITH(maxCTAs, -3), "maxCTAs=-3");
    refused(WITH(splitShare, 2), "splitShare=2");
    refused(WITH(CTAPolicy, 4), "CTAPolicy=4");
    refused(WITH(nvlinkCentricSched, 2), "nvlinkCentricSched=2");
    refused(WITH(graphUsageMode, 3), "graphUsageMode=3: must be 0 to 2");
    refused(WITH(numRmaCtx, -1), "numRmaCtx=-1: must be at least 0");
    refused(WITH(maxP2pPeers, 0), "maxP2pPeers=0: must be at least 1");
    refused(WITH(graphStreamOrdering, 2), "graphStreamOrdering=2");
    ncclConfig_t c = WITH(minCTAs, 8);
    c.maxCTAs = 4;
    refused(c, "minCTAs=8 is more than maxCTAs=4");
}

static ncclCollConfig_t coll_config(void) {
    return (ncclCollConfig_t){sizeof(ncclCollConfig_t),
                              NCCL_API_MAGIC,
                              23203,
                              NULL,
                              NCCL_CONFIG_UNDEF_INT,
                              NCCL_CONFIG_UNDEF_INT,
                              NCCL_CONFIG_UNDEF_INT,
                              NCCL_CONFIG_UNDEF_INT,
                              NULL,
                              1,
                              NCCL_CONFIG_UNDEF_INT,
                              0,
                              NULL};
}

static void configs_of_calls(void) {
    T_EXPECT_WARNINGS();
    ncclCollConfig_t c = coll_config();
    N_OK(symm_nccl_coll_config(NULL, "call"));
    N_OK(symm_nccl_coll_config(&c, "call"));
    c.maxCTAs = 4;
    c.algSelection = "ring";
    N_OK(symm_nccl_coll_config(&c, "call")); /* ignored */
    c.launchCompletionEvent = (symmEvent_t)(void *)&c;
    N_REFUSED(symm_nccl_coll_config(&c, "call"), ncclInvalidUsage, "launchCompletionEvent");
    c = coll_config();
    c.magic = 0;
    N_REFUSED(symm_nccl_coll_config(&c, "call"), ncclInvalidArgument, "initializer");
    c = coll_config();
    c.size = 63;
    N_REFUSED(symm_nccl_coll_config(&c, "call"), ncclInvalidArgument, "size 63");
    c.size = 64; /* 2.31 has no event: what lies behind is not read */
    c.launchCompletionEvent = (symmEvent_t)(void *)&c;
    N_OK(symm_nccl_coll_config(&c, "call"));
}

/* ---- codes, handles -------------------------------------------------------------------------- */

/* Programs know codes up to 7. */
static void codes_are_nccls(void) {
    for (int r = 0; r <= symmInProgress; r++) T_EQ(symm_nccl_result((symmResult_t)r), r);
    T_EQ(symm_nccl_result(symmTimeout), ncclRemoteError);
    T_EQ(symm_nccl_result(symmAborted), ncclRemoteError);
    T_EQ(symm_nccl_result(symmMismatch), ncclInvalidUsage);
    T_EQ(symm_nccl_result(symmNotSupported), ncclInvalidUsage);
    T_EQ(symm_nccl_result(symmVersionMismatch), ncclInvalidUsage);
    T_EQ(symm_nccl_result(symmNeedGrow), ncclInvalidUsage);
    T_EQ(symm_nccl_result(symmOutOfMemory), ncclSystemError);
    T_EQ(symm_nccl_result(symmFdLimit), ncclSystemError);
    for (int r = 0; r < symmNumResults; r++) T_CHECK(symm_nccl_result((symmResult_t)r) <= 7);
    for (int r = 0; r <= 9; r++) T_CHECK(*ncclGetErrorString((ncclResult_t)r));
}

/* As in NCCL a thread that has met no error is told the last one of the process. */
static void *asks_for_the_text(void *arg) {
    snprintf(arg, 256, "%s", ncclGetLastError(NULL));
    N_ERR(ncclGetUniqueId(NULL), ncclInvalidArgument);
    T_MSG(ncclGetLastError(NULL), "id is NULL");
    return NULL;
}

static void the_last_error_is_the_processs(void) {
    T_EXPECT_WARNINGS();
    char text[256];
    pthread_t other;
    N_ERR(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument);
    T_EQ(pthread_create(&other, NULL, asks_for_the_text, text), 0);
    T_EQ(pthread_join(other, NULL), 0);
    T_MSG(text, "comms is NULL");
    T_MSG(ncclGetLastError(NULL), "comms is NULL"); /* this thread's own */
}

static void none(ncclComm_t comm, const char *part) {
    int n = 77;
    ncclResult_t e;
    uint64_t stat;
    void *p;
    ncclWindow_t win;
    N_REFUSED(ncclCommCount(comm, &n), ncclInvalidArgument, part);
    N_REFUSED(ncclCommUserRank(comm, &n), ncclInvalidArgument, part);
    N_REFUSED(ncclCommCuDevice(comm, &n), ncclInvalidArgument, part);
    N_REFUSED(ncclCommGetAsyncError(comm, &e), ncclInvalidArgument, part);
    N_REFUSED(ncclCommMemStats(comm, ncclStatGpuMemTotal, &stat), ncclInvalidArgument, part);
    if (comm) N_REFUSED(ncclCommRevoke(comm, 0), ncclInvalidArgument, part);
    N_REFUSED(ncclCommSplit(comm, 0, 0, &comm, NULL), ncclInvalidArgument, part);
    N_REFUSED(ncclCommRegister(comm, &n, 4, &p), ncclInvalidArgument, part);
    N_REFUSED(ncclCommWindowRegister(comm, &n, 4, &win, 0), ncclInvalidArgument, part);
    N_REFUSED(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument, part);
    N_REFUSED(ncclSend(&n, 1, ncclInt32, 0, comm, NULL), ncclInvalidArgument, part);
    T_EQ(n, 77);
    T_EQ(ncclTeamWorld(comm).nRanks, 0);
}

/* A handle of a real NCCL, one inside our table, one that ended, none. */
static void handles_that_are_none(void) {
    T_EXPECT_WARNINGS();
    uint64_t real[16] = {0x0280028002800280ull};
    ncclComm_t comm = NULL, dead;
    none(NULL, "comm is NULL");
    none((ncclComm_t)(void *)real, "no communicator of symm");
    none((ncclComm_t)(uintptr_t)0x10, "no communicator of symm");
    N_OK(ncclCommDestroy(NULL));
    N_OK(ncclCommAbort(NULL));
    N_OK(ncclCommFinalize(NULL));
    N_ERR(ncclCommDestroy((ncclComm_t)(void *)real), ncclInvalidArgument);
    N_ERR(ncclCommAbort((ncclComm_t)(void *)real), ncclInvalidArgument);
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    none((ncclComm_t)(void *)((char *)(void *)comm + 8), "no communicator of symm");
    dead = comm;
    N_OK(ncclCommDestroy(comm));
    none(dead, "or it ended");
    N_ERR(ncclCommDestroy(dead), ncclInvalidArgument);
    N_OK(ncclCommInitAll(&comm, 1, NULL)); /* not at the same place */
    none(dead, "or it ended");
    N_OK(ncclCommDestroy(comm));
}

static void what_is_not_served_says_so(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t comm;
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_REFUSED(ncclCommSuspend(comm, 0), ncclInvalidUsage, "ncclCommSuspend is not served yet");
    N_REFUSED(ncclDevCommCreate(comm, NULL, NULL), ncclInvalidUsage, "ncclDevCommCreate is not");
    N_REFUSED(ncclGetMultimemDevicePointer(NULL, 0, (ncclMultimemHandle_t){NULL}, NULL),
              ncclInvalidUsage, "needs a multicast window");
    T_EQ(ncclTeamCft(comm, 0).nRanks, 0);
    N_OK(ncclCommDestroy(comm));
}

/* Programs ask before they use what NCCL may not have: one-sided calls are there, device
 * communicators are not. Nothing is written behind what the caller's version has. */
static void what_a_communicator_has(void) {
    static const size_t sizes[] = {sizeof(ncclCommProperties_t),
                                   offsetof(ncclCommProperties_t, hostRmaSupport),
                                   offsetof(ncclCommProperties_t, nLsaTeams)};
    ncclComm_t comm;
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    for (int i = 0; i < 3; i++) {
        ncclCommProperties_t p;
        memset(&p, 0xa5, sizeof p);
        p.size = sizes[i];
        p.magic = NCCL_API_MAGIC;
        p.version = i ? 22903 : 23007;
        N_OK(ncclCommQueryProperties(comm, &p));
        T_CHECK(p.rank == 0 && p.nRanks == 1 && p.cudaDev == -1 && p.size == sizes[i]);
        T_CHECK(!p.deviceApiSupport && !p.multimemSupport && !p.ginType);
        if (!i) T_CHECK(p.nLsaTeams == 1 && p.hostRmaSupport && !p.railedGinType);
        for (size_t at = sizes[i]; at < sizeof p; at++) T_EQ(((unsigned char *)&p)[at], 0xa5);
    }
    N_OK(ncclCommDestroy(comm));
}

/* NCCL's own, from 2.27 to 2.30; those of signals and properties came with 2.29. */
static void codes_of_small_mistakes(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t comm;
    int x = 1;
    ncclWaitSignalDesc_t nothing = {0, 0, 0, 0};
    ncclCommProperties_t p = {.size = sizeof p, .magic = NCCL_API_MAGIC, .version = 23007};
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_REFUSED(ncclCommDeregister(comm, &x), ncclInvalidUsage, "is no handle of this communicator");
    N_OK(ncclCommQueryProperties(comm, &p));
    T_EQ(p.nRanks, 1);
    p = (ncclCommProperties_t){.size = sizeof p, .magic = 0, .version = 23007, .nRanks = 77};
    N_REFUSED(ncclCommQueryProperties(comm, &p), ncclInvalidUsage, "initializer");
    T_EQ(p.nRanks, 77);
    N_REFUSED(ncclWaitSignal(0, &nothing, comm, NULL), ncclInvalidArgument, "nDesc=0");
    N_REFUSED(ncclWaitSignal(1, &nothing, comm, NULL), ncclInvalidArgument, "opCnt=0");
    N_OK(ncclCommFinalize(comm));
    N_REFUSED(ncclCommFinalize(comm), ncclInvalidArgument, "was finalized already");
    N_OK(ncclCommDestroy(comm));
}

static void bad_arguments_of_creation(void) {
    T_EXPECT_WARNINGS();
    ncclUniqueId id, spent;
    ncclComm_t comm = (ncclComm_t)(void *)&id;
    ncclConfig_t c = WITH(blocking, 3);
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclGetUniqueId(&spent));
    N_ERR(ncclGetUniqueId(NULL), ncclInvalidArgument);
    N_ERR(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
    N_ERR(ncclCommInitRankScalable(NULL, 1, 0, 2, &id, NULL), ncclInvalidArgument);
    N_REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &c), ncclInvalidArgument, "blocking=3");
    T_CHECK(!comm);
    comm = (ncclComm_t)(void *)&id;
    N_REFUSED(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL), ncclInvalidArgument, "nId=2");
    T_CHECK(!comm);
    N_REFUSED(ncclCommInitRank(&comm, 1, spent, 1), ncclInvalidArgument, "rank=1");
    T_CHECK(!comm);
    N_REFUSED(ncclCommInitRank(&comm, 0, spent, 0), ncclInvalidArgument, "nranks=0");
    N_REFUSED(ncclCommInitRank(&comm, 65537, spent, 0), ncclInvalidArgument, "nranks=65537");
    N_REFUSED(ncclCommInitAll(&comm, 0, NULL), ncclInvalidArgument, "ndev=0");
    ncclComm_t made;
    N_OK(ncclCommInitRank(&made, 1, id, 0)); /* the id was not used up */
    N_REFUSED(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage, "serves one communicator");
    T_CHECK(!comm);
    comm = made;
    N_REFUSED(ncclCommSplit(made, 0, 0, &comm, &c), ncclInvalidArgument, "blocking=3");
    T_CHECK(!comm);
    ncclWindow_t win = (ncclWindow_t)(void *)&id;
    N_ERR(ncclCommWindowRegister(made, NULL, 4096, &win, 0), ncclInvalidArgument);
    T_CHECK(!win);
    N_OK(ncclCommDestroy(made));
}

T_MAIN(T(fields_lie_where_nccl_has_them), T(every_version_is_read),
       T(fields_of_newer_versions_are_not_looked_at), T(what_is_out_of_range_is_named),
       T(configs_of_calls), T(codes_are_nccls), T(the_last_error_is_the_processs),
       T(handles_that_are_none), T(what_is_not_served_says_so), T(what_a_communicator_has),
       T(codes_of_small_mistakes), T(bad_arguments_of_creation))
