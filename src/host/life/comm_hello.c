/* comm_hello.c - the first exchange of ranks that make a communicator: who they are, whether they
 * fit, how many cores they share. Runs on the thread that creates the communicator; no lock. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "device/host/reduce.h"
#include "host/coll/plan_table.h"
#include "host/comm/comm.h"
#include "host/gpu/backend.h"
#include "host/gpu/share.h"
#include "host/launch/launch.h"
#include "host/window/handle_exchange.h"
#include "machine/cores.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_fabric.h"
#include "comm_make.h"
#include "where.h"

#define HELLO_MAGIC 0x6d6d79736f6c6c65ull
#define REFUSE_NS   10000000000ull /* how long a rank that cannot go on tries to tell the others */

/* The first message between ranks. magic and version come first and the size never changes, so that
 * ranks that were built differently understand at least these two. */
typedef struct {
    uint64_t magic;
    uint32_t version, abi;
    uint64_t plan_hash, rows_hash; /* rows: of SYMM_PLAN_TABLE */
    symm_param_agreed params;
    int32_t min_ctas, max_ctas, cta_budget; /* of its config */
    symm_uuid process;
    symm_where where;
    uint64_t device_bytes, scratch;
    int32_t code, nranks, cuda, device, sms, cc_major;
    int32_t cores;  /* that the rank may use; cpus lists at most SYMM_MAX_RANKS of them */
    symm_uuid gpu;  /* the same in every process that sees it */
    int32_t first;  /* the rank has taken its GPU (share.h) */
    int32_t fabric; /* it makes and takes fabric handles */
    int32_t late;   /* its peerDeath is SYMM_DEATH_WHEN_USED */
    symm_cuda_fabric nvlink;
    char text[192];
    uint16_t cpus[SYMM_MAX_RANKS];
} hello;

/* ---- this process ---------------------------------------------------------------------------- */

static symm_uuid process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

void symm_random_fill(void *p, size_t n) {
    if (SYMM_FAIL_CALL(comm_random, -1, ENOSYS, getrandom(p, n, 0)) == (ssize_t)n) return;
    uint64_t seed[2] = {
        symm_now_ns(),
        (uint64_t)
            getpid()}; /* a kernel without getrandom: unique is enough, it need not be secret */
    memcpy(p, seed, n < sizeof seed ? n : sizeof seed);
}

static void make_process_id(void) {
    symm_random_fill(&process_id, sizeof process_id);
}

/* A forked child is another process. */
static void renew_process_id(void) {
    make_process_id();
}

const symm_uuid *symm_comm_process(void) {
    return &process_id;
}

static void once(void) {
    make_process_id();
    pthread_atfork(NULL, NULL, renew_process_id);
    symm_reduce_init();
}

/* ---- hello ----------------------------------------------------------------------------------- */

/* The rows of SYMM_PLAN_TABLE that hold for these ranks, on this rank's device. */
static symmResult_t load_rows(symm_comm *c) {
    const char *path = c->params.plan_table;
    symm_cuda_info info;
    symm_plan_place at = {.gpu = c->cuda, .nranks = c->nranks};
    if (!*path) return symmSuccess;
    if (c->cuda) SYMM_TRY(symm_cuda_describe(c->caps.device, &info));
    if (c->cuda) at.device = info.name;
    SYMM_TRY(symm_plan_table_read(path, &at, &c->calls.rows));
    if (c->calls.rows)
        SYMM_INFO("%s has %d rows for these ranks, if cores or quarter are as its sections say",
                  path, c->calls.rows->n);
    else
        SYMM_INFO("%s has no row for %d ranks on %s", path, c->nranks,
                  c->cuda ? at.device : "the host backend");
    return symmSuccess;
}

static symmResult_t prepare(symm_comm *c) {
    pthread_once(&process_once, once);
    SYMM_TRY(symm_param_load(&c->params));
    if (c->config.scratch) c->params.scratch = c->config.scratch; /* and so in the hash */
    SYMM_TRY(symm_backend_pick(&c->params, &c->cuda));
    c->vmm = symm_backend_vmm(c->cuda);
    c->launcher = c->cuda ? &symm_launch_gpu : &symm_launch_host;
    int device;
    if (c->cuda) SYMM_TRY(symm_cuda_current(&device));
    SYMM_TRY(symm_plan_parse_algo(c->params.algo, c->calls.forced));
    symm_vmm_host_hugepages((int)c->params.hugepages);
    int cu = c->vmm->query(&c->caps);
    if (cu) return symm_vmm_error(c->vmm, cu, "asking what the machine has");
    if (c->nranks > SYMM_MAX_RANKS)
        return SYMM_ERR(symmInvalidArgument, "nranks=%d: one domain has at most %d ranks",
                        c->nranks, SYMM_MAX_RANKS);
    if (c->cuda && c->params.handles == SYMM_HANDLES_FABRIC && !c->caps.fabric_handles)
        return SYMM_ERR(symmNotSupported, "SYMM_HANDLES=fabric: GPU %d has no fabric handles: %s",
                        c->caps.device, c->caps.fabric_reason);
    return load_rows(c);
}

#ifdef SYMM_TESTING
/* For tests: plays a rank of another version, with other records or another kernel table. */
int symm_test_skew[3];
#define SKEW(i) symm_test_skew[i]
#else
#define SKEW(i) 0
#endif

static symmResult_t describe_gpu(symm_comm *c, hello *h) {
    symm_cuda_info info;
    SYMM_TRY(symm_cuda_describe(c->caps.device, &info));
    memcpy(&h->gpu, info.uuid, sizeof h->gpu);
    char why[160];
    symm_cuda_fabric_of(c->caps.device, &h->nvlink, why, sizeof why);
    if (!h->nvlink.known) SYMM_INFO("GPU %d reaches no other host: %s", c->caps.device, why);
    h->device = info.device;
    h->sms = info.sms;
    h->cc_major = info.cc_major;
    if (c->nranks > 1 && c->params.side_by_side == 3)
        c->gpus.first = symm_share_take(c->caps.device);
    h->first = c->gpus.first;
    return symmSuccess;
}

static void fill_hello(symm_comm *c, symmResult_t status, hello *h) {
    memset(h, 0, sizeof *h);
    h->cuda = c->cuda;
    if (!status && c->cuda) status = describe_gpu(c, h);
    if (!status) status = symm_where_fill(&h->where);
    h->magic = HELLO_MAGIC;
    h->version = (uint32_t)(SYMM_VERSION_CODE + SKEW(0));
    h->abi = (uint32_t)(sizeof(symm_ctl) ^ (sizeof(symm_args) << 16) ^ sizeof(symm_greeting)) +
             (uint32_t)SKEW(1);
    h->plan_hash = symm_plan_hash() + (uint64_t)SKEW(2);
    h->rows_hash = symm_plan_table_hash(c->calls.rows);
    h->params = symm_param_to_agree(&c->params);
    h->min_ctas = c->config.minCTAs;
    h->max_ctas = c->config.maxCTAs;
    h->cta_budget = c->config.ctaBudget;
    h->process = process_id;
    h->device_bytes = c->caps.device_bytes;
    h->fabric = c->caps.fabric_handles && c->params.handles != SYMM_HANDLES_FD;
    h->late = c->config.peerDeath == SYMM_DEATH_WHEN_USED;
    h->scratch = c->params.scratch;
    h->nranks = c->nranks;
    h->code = (int32_t)status;
    if (status) snprintf(h->text, sizeof h->text, "%s", symm_status_text());
    h->cores = symm_cores(h->cpus, SYMM_MAX_RANKS);
}

static int same_host(const hello *a, const hello *b) {
    return !memcmp(&a->where.host, &b->where.host, sizeof a->where.host);
}

static int count_hosts(const hello *all, int nranks) {
    int hosts = 0;
    for (int r = 0; r < nranks; r++) {
        int p = 0;
        while (p < r && !same_host(&all[p], &all[r])) p++;
        hosts += p == r;
    }
    SYMM_ASSERT(hosts >= 1 && hosts <= nranks);
    return hosts;
}

/* GPUs of one NVLink fabric reach each other's memory over hosts. several: the ranks are on such,
 * so that those of one host need it, too. */
static symmResult_t compare_place(int r, const hello *h, const hello *mine, int several) {
    if (h->where.uid != mine->where.uid || (same_host(h, mine) && !several) || !h->cuda)
        return symm_where_compare(r, &h->where, &mine->where);
    if (!h->nvlink.known || memcmp(&h->nvlink, &mine->nvlink, sizeof h->nvlink))
        return SYMM_ERR(symmNotSupported,
                        "rank %d runs on host %.63s and rank 0 on %.63s, of several hosts, and no "
                        "NVLink fabric joins their devices (symm-info): symmCommInitMPI goes over "
                        "several hosts",
                        r, h->where.name, mine->where.name);
    if (h->fabric && mine->fabric) return symmSuccess;
    return SYMM_ERR(symmNotSupported,
                    "rank %d on host %.63s and rank 0 on %.63s have devices of one NVLink fabric, "
                    "but rank %d makes no fabric handles (symm-info says why; SYMM_HANDLES=fd "
                    "forbids them)",
                    r, h->where.name, mine->where.name, h->fabric ? 0 : r);
}

/* The planner depends on these: with different numbers of CTAs ranks would wait for words that
 * nobody writes. NULL: two ranks have the same. */
static const char *differing(const hello *a, const hello *b) {
    if (a->scratch != b->scratch) return "another scratch (SYMM_SCRATCH, or scratch of the config)";
    if (a->min_ctas != b->min_ctas) return "another minCTAs in its config";
    if (a->max_ctas != b->max_ctas) return "another maxCTAs in its config";
    if (a->cta_budget != b->cta_budget) return "another ctaBudget in its config";
    return a->rows_hash != b->rows_hash ? "other rows in SYMM_PLAN_TABLE" : NULL;
}

static symmResult_t compare_choices(int r, const hello *h, const hello *mine) {
    const char *what = differing(h, mine), *var = symm_param_differs(&h->params, &mine->params);
    if (!what && !var) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage, "rank %d has %s%s than rank 0: must be equal on all ranks", r,
                    what ? "" : "another ", what ? what : var);
}

static symmResult_t compare_hello(int r, const hello *h, const hello *mine, int several) {
    if (h->magic != mine->magic || h->version != mine->version)
        return SYMM_ERR(symmVersionMismatch, "rank %d runs symm %u.%u.%u, rank 0 %u.%u.%u", r,
                        h->version / 10000, h->version / 100 % 100, h->version % 100,
                        mine->version / 10000, mine->version / 100 % 100, mine->version % 100);
    if (h->abi != mine->abi || h->plan_hash != mine->plan_hash)
        return SYMM_ERR(symmVersionMismatch,
                        "rank %d was built with other records or another kernel table than rank 0 "
                        "(%016llx, %016llx)",
                        r, (unsigned long long)h->plan_hash, (unsigned long long)mine->plan_hash);
    if (h->nranks != mine->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d says nranks=%d, rank 0 says %d", r, h->nranks,
                        mine->nranks);
    if (h->cuda != mine->cuda)
        return SYMM_ERR(symmInvalidUsage, "rank %d uses %s, rank 0 %s (SYMM_BACKEND settles it)", r,
                        h->cuda ? "a GPU" : "the host backend",
                        mine->cuda ? "a GPU" : "the host backend");
    /* Kernels are compiled to take other ways there: ranks would wait for words that nobody
     * writes. */
    if (h->cc_major != mine->cc_major)
        return SYMM_ERR(symmNotSupported,
                        "rank %d's GPU is of compute capability %d.x, rank 0's of %d.x: a domain "
                        "has GPUs of one",
                        r, h->cc_major, mine->cc_major);
    SYMM_TRY(compare_choices(r, h, mine));
    return compare_place(r, h, mine, several);
}

/* Every rank compares the same records in the same order with rank 0's, so all find the same first
 * fault. */
static symmResult_t judge(const hello *all, int nranks) {
    for (int r = 0; r < nranks; r++)
        if (all[r].magic == HELLO_MAGIC && all[r].version == all[0].version && all[r].code)
            return SYMM_ERR((symmResult_t)all[r].code, "rank %d: %.*s", r, (int)sizeof all[r].text,
                            all[r].text);
    const int several = count_hosts(all, nranks) > 1;
    for (int r = 1; r < nranks; r++) SYMM_TRY(compare_hello(r, &all[r], &all[0], several));
    return symmSuccess;
}

/* Whether all ranks together, and those beside them, have fewer cores than they are. A rank with as
 * many has enough for all; else the lists are complete, up to SYMM_MAX_RANKS cores of a rank. */
static int lack_cores(const hello *all, int nranks, int beside) {
    const int users = nranks + beside;
    uint8_t seen[(UINT16_MAX + 1) / 8] = {0};
    int cores = 0;
    for (int r = 0; r < nranks; r++) {
        if (all[r].cores >= users) return 0;
        for (int i = 0; i < all[r].cores && i < SYMM_MAX_RANKS; i++) {
            const unsigned cpu = all[r].cpus[i];
            cores += !(seen[cpu / 8] >> cpu % 8 & 1);
            seen[cpu / 8] |= (uint8_t)(1u << cpu % 8);
        }
    }
    return cores < users;
}

static int same_gpu(const hello *a, const hello *b) {
    return !memcmp(&a->gpu, &b->gpu, sizeof a->gpu);
}

/* Which of the ranks' GPUs this process sees. Only for these the driver tells how they are
 * connected to ours. */
static void see_gpus(symm_comm *c, const hello *all) {
    uint8_t seen[SYMM_MAX_RANKS] = {0};
    cu_uuid here;
    for (int d = symm_cuda_devices() - 1; d >= 0; d--) {
        if (symm_cu.cuDeviceGetUuid(&here, d)) continue;
        for (int r = 0; r < c->nranks; r++) {
            if (memcmp(&here, &all[r].gpu, sizeof here)) continue;
            c->gpus.seen |= 1ull << d;
            seen[r] = 1;
        }
    }
    for (int r = 0; r < c->nranks; r++)
        if (!seen[r])
            SYMM_INFO("rank %d's GPU is none that this process sees (CUDA_VISIBLE_DEVICES): that "
                      "NVLink joins it with GPU %d is taken for granted",
                      r, c->caps.device);
}

void symm_comm_give_first(symm_comm *c) {
    if (c->gpus.first) symm_share_give(c->caps.device);
    c->gpus.first = 0;
}
static void set_budget(symm_comm *c) {
    symm_plan_env env = {.nranks = c->nranks,
                         .ctas = (int)c->params.ctas,
                         .threads = (int)c->params.threads,
                         .min_ctas = c->config.minCTAs > 0 ? c->config.minCTAs : 0,
                         .max_ctas = c->config.maxCTAs > 0 ? c->config.maxCTAs : 0};
    symm_plan_budget(&env, c->gpus.sms,
                     c->config.ctaBudget > 0 ? c->config.ctaBudget : (int)c->params.cta_budget,
                     c->gpus.first);
    c->gpus.budget = env.sms;
    c->gpus.quarter = env.quarter;
}

/* Ranks that share a GPU share its multiprocessors. Their kernels wait for each other, so all must
 * fit at once. */
static void learn_gpus(symm_comm *c, const hello *all) {
    const hello *mine = &all[c->rank];
    for (int r = 0; r < c->nranks; r++) {
        int share = 0;
        for (int p = 0; p < c->nranks; p++) share += same_gpu(&all[p], &all[r]);
        if (r == 0 || all[r].sms / share < c->gpus.sms) c->gpus.sms = all[r].sms / share;
        if (share > 1) c->gpus.shared = 1;
        if (r != c->rank && same_gpu(&all[r], mine) &&
            !memcmp(&all[r].process, &mine->process, sizeof mine->process)) {
            c->gpus.mate = r + 1;
            c->gpus.mates[r / 64] |= 1ull << r % 64;
        }
    }
    if (c->gpus.sms < 1) c->gpus.sms = 1;
    int first = !c->gpus.shared;
    for (int r = 0; r < c->nranks; r++) first &= all[r].first;
    if (!first) symm_comm_give_first(c);
    set_budget(c);
    if (!c->gpus.quarter) symm_comm_give_first(c); /* a communicator that needs it may have it */
    if (c->gpus.mate)
        SYMM_INFO("ranks %d and %d are threads of one process on one GPU: docs/gpu-rules.md, "
                  "\"Ranks that "
                  "share a GPU\", says what they must keep to",
                  c->rank, c->gpus.mate - 1);
    see_gpus(c, all);
}

static void learn(symm_comm *c, const hello *all) {
    c->threads = c->nranks > 1;
    c->stride = c->params.win_stride;
    c->hosts = count_hosts(all, c->nranks);
    c->fabric = c->params.handles == SYMM_HANDLES_FABRIC || c->hosts > 1 ? 2 : 1;
    for (int r = 0; r < c->nranks; r++) {
        if (memcmp(&all[r].process, &process_id, sizeof process_id)) c->threads = 0;
        if (!all[r].fabric) c->fabric = 0;
        if (all[r].late) symm_ranks_add(&c->failure.late, r);
        if (!c->params.win_stride && all[r].device_bytes > c->stride)
            c->stride = all[r].device_bytes;
    }
    /* Whole pieces of 4 GiB, as NCCL's device code counts them, and room beside the device's memory
     * for control blocks. */
    if (!c->params.win_stride) c->stride = (c->stride + (8ull << 30) - 1) >> 32 << 32;
    c->stride = (c->stride + c->caps.granularity - 1) / c->caps.granularity * c->caps.granularity;
    c->room = c->stride;
    c->oversubscribed = !c->cuda && lack_cores(all, c->nranks, c->exchange.boot->beside);
    if (c->cuda) learn_gpus(c, all);
}

/* ---- the exchange ---- */

symmResult_t symm_comm_hello(symm_comm *c, symm_uuid *members) {
    hello mine,
        all[SYMM_MAX_RANKS]; /* not allocated: a rank without memory could not tell the others */
    symmResult_t status = prepare(c);
    fill_hello(c, status, &mine);
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    if (!c->params.setup_timeout_ms && c->config.timeoutMs == SYMM_CONFIG_UNDEF)
        w.deadline_ns = symm_now_ns() + REFUSE_NS; /* the parameters were invalid */
    status = symm_boot_allgather(c->exchange.boot, &mine, all, sizeof mine, &w);
    if (!status) status = judge(all, c->nranks);
    if (!status)
        learn(c, all);
    else
        symm_comm_give_first(c);
    for (int r = 0; r < c->nranks; r++) {
        members[r] = all[r].process;
        members[r].lo ^=
            (uint64_t)(r + 1) * 0x9e3779b97f4a7c15ull; /* ranks of one process differ */
        members[r].hi ^=
            all[r].gpu.hi ^ all[r].gpu.lo * 3; /* and a space is of one memory driver, one device */
    }
    return status;
}

symmResult_t symm_comm_refuse(symm_boot *boot, symmResult_t status) {
    return symm_comm_refuse_by(boot, status, symm_now_ns() + REFUSE_NS);
}

symmResult_t symm_comm_refuse_by(symm_boot *boot, symmResult_t status, uint64_t deadline_ns) {
    hello mine = {.magic = HELLO_MAGIC, .version = SYMM_VERSION_CODE, .code = (int32_t)status};
    hello all[SYMM_MAX_RANKS];
    char own[SYMM_ERR_TEXT];
    if (boot->meet.settle) { /* the others are in it, before any hello */
        status = symm_comm_settle(NULL, boot, status);
        symm_boot_close(boot);
        return status;
    }
    if (boot->nranks > SYMM_MAX_RANKS) { /* every rank refuses this before any exchange */
        symm_boot_close(boot);
        return status;
    }
    snprintf(own, sizeof own, "%s", symm_status_text());
    snprintf(mine.text, sizeof mine.text, "%.191s", own);
    symm_wait w = {.deadline_ns = deadline_ns, .stage = "creating a communicator"};
    if (symm_boot_allgather(boot, &mine, all, sizeof mine, &w))
        symm_status_adopt(own);
    else
        status = judge(all, boot->nranks); /* the same on all ranks */
    symm_boot_close(boot);
    return status;
}
