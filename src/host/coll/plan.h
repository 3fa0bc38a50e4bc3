/* plan.h - what to run for a call. Pure: depends only on its arguments, which are equal on all
 * ranks; never on whether a buffer is registered. Any thread, no lock. */
#ifndef SYMM_PLAN_H_
#define SYMM_PLAN_H_

#include "symm.h"
#include "device/common/records.h"
#include "device/common/colls.h"
#include "device/common/kernels.h"

/* An initialiser of `forced` below: no kernel is forced. */
#define SYMM_FORCED_NONE \
    { [0 ... symmNumColls - 1] = -1 }

/* Where a choice comes from. SHIPPED: a row of coll.def that was measured on some machine;
 * PREDICTED: one that was calculated; MEASURED: SYMM_PLAN_TABLE's; FORCED: SYMM_ALGO's. */
enum { SYMM_PLAN_SHIPPED, SYMM_PLAN_PREDICTED, SYMM_PLAN_MEASURED, SYMM_PLAN_FORCED };

typedef struct { /* what was agreed when the communicator was made */
    int nranks, oversubscribed;
    int gpu, sms;                 /* GPUs: 1; CTAs that the communicator may have on a GPU */
    int quarter;                  /* 1: of at most a quarter of a multiprocessor */
    int min_ctas, max_ctas, ctas; /* ctas: forced, 0 none */
    int threads;                  /* GPUs: forced threads of a CTA; 0: not forced */
    int relay;                    /* GPUs: SYMM_RELAY_ */
    int deterministic;
    int multicast; /* 1: there is a multicast range; cast_scratch: scratch is bound there */
    int cast_scratch;
    int direct; /* host backend: every rank can read every other's memory, */
    int writes; /* and write it, */
    int near;   /* and the ranks' cores were near each other then */
    int adapts; /* calls change their way when that changes (staging.c) */
    uint64_t
        /* host backend: bytes that a rank touches and finds in its caches again; 0 not known. Need
         * not be agreed */
        keeps;
    const int16_t *forced;      /* [symmNumColls] kernel id or -1 */
    const symm_plan_rows *rows; /* SYMM_PLAN_TABLE's; NULL: none */
    symm_scratch scratch;
} symm_plan_env;

/* How direct kernels move data if a buffer is in no window, or buffers differ in their alignment
 * (address mod 16): by size, in lines, through staging. As in params.def. */
enum { SYMM_RELAY_AUTO, SYMM_RELAY_LINES, SYMM_RELAY_STAGING };

typedef struct {
    symm_kernel_id kernel;
    int ctas;
    int threads; /* GPUs: of a CTA, those that move data */
    /* GPUs: of a CTA, those that may move lines; 0: a direct kernel stages instead */
    int line_warps;
    uint64_t lines;              /* GPUs: of a warp and item */
    uint64_t chunk;              /* host backend: bytes */
    uint32_t pairs;              /* a count per rank: bytes of a pair that go as packets, at most */
    uint32_t flags;              /* SYMM_ARG_NT, _DIRECT, _WRITES, _EITHER, _NEAR */
    int stage_ctas, stage_warps; /* GPUs: direct kernels' that have staging; */
    int stage_rows;              /* rows of each warp */
    int force_refused;           /* the forced kernel cannot run this call */
    int source;                  /* SYMM_PLAN_ */
} symm_plan;

/* Bytes of this rank's input. No division on the way to a plan: a call of a few bytes lasts 0.2
 * us. */
static inline uint64_t symm_plan_message(const symm_call *call) {
    uint64_t bytes;
    return __builtin_mul_overflow(call->count, (uint64_t)call->esize, &bytes) ? UINT64_MAX : bytes;
}

/* kernel SYMM_KERNEL_COUNT: the collective has none on this backend, at this number of ranks. */
symm_plan symm_plan_make(const symm_plan_env *env, const symm_call *call);
/* Whether kernel could run this call; if not, *why (may be NULL) says so. */
int symm_plan_can(const symm_plan_env *env, const symm_call *call, symm_kernel_id kernel,
                  const char **why);
/* Host backend: whether ranks write a share of a destination in no window, where all ranks may
 * (env->writes). */
int symm_plan_may_write(const symm_plan_env *env, const symm_call *call, const symm_plan *plan);
/* Host backend: whether a rank that touches so many bytes stores past its caches. keeps: as in the
 * env. */
int symm_plan_past_caches(uint64_t touched, uint64_t keeps);
const char *symm_plan_source(int source); /* "shipped" */
/* Of n rows, in order, the first for this backend, these ranks and cores and this call whose kernel
 * can run it; NULL: none. */
const symm_plan_row *symm_plan_first(const symm_plan_env *env, const symm_call *call,
                                     const symm_plan_row *row, int n);
/* Why plan's kernel, and why not others: one line each, into text. */
void symm_plan_reason(const symm_plan_env *env, const symm_call *call, const symm_plan *plan,
                      char *text, size_t cap);

/* How `bytes` of scratch behind the control block are divided for n ranks. */
symm_scratch symm_plan_scratch(uint64_t bytes, int nranks);
/* Bytes of the ring of an ordered pair of ranks in so much scratch, on both backends. */
uint64_t symm_plan_p2p_ring(uint64_t bytes, int nranks);
/* The GPU's part of the planner (plan_gpu.c): its table, its division of scratch, its grid. kernel
 * < 0: the table's choice. */
/* What a communicator may have of a GPU with room for so many CTAs of any size: env->sms and
 * quarter. asked: SYMM_CTA_BUDGET; 0: the default. first: 1 if no other communicator of the process
 * has two CTAs on each multiprocessor. */
void symm_plan_budget(symm_plan_env *env, int room, int asked, int first);
symm_plan symm_plan_gpu(const symm_plan_env *env, const symm_call *call, int kernel);
/* The row by which it goes; NULL: none. */
const symm_plan_row *symm_plan_gpu_row(const symm_plan_env *env, const symm_call *call, int kernel);
symm_scratch symm_plan_gpu_scratch(uint64_t bytes, int nranks);
/* Bytes of a message of which no place of lines is used twice (SYMM_CAP_LINES). */
uint64_t symm_plan_gpu_lines_cap(const symm_plan_env *env);
/* Bytes that a warp of this plan's kernel sends before it waits, direct kernels between windows; 0:
 * it waits for nothing but the beginning and the end. */
uint64_t symm_plan_gpu_chunk(const symm_plan *plan);
uint64_t symm_plan_gpu_hash(uint64_t h);
uint64_t symm_plan_mix_row(uint64_t h, const symm_plan_row *row);
/* SYMM_ALGO: "name,collective:name,..." into forced[symmNumColls]; an unknown word is
 * symmInvalidArgument naming it and what is allowed. */
symmResult_t symm_plan_parse_algo(const char *text, int16_t *forced);
/* Hash of table, thresholds and kernels: ranks that plan differently must not make a
 * communicator. */
uint64_t symm_plan_hash(void);

/* For symm-info. The kernels of a backend (gpu: 0 or 1). */
void symm_plan_kernels(int gpu,
                       void (*row)(void *arg, const char *name, const char *coll, const char *types,
                                   const char *range, const char *how),
                       void *arg);
/* The choices of env by bytes of a rank's input, [from, to]; most: the plan of the largest message
 * of the row. */
void symm_plan_table(const symm_plan_env *env,
                     void (*row)(void *arg, const char *coll, uint64_t from, uint64_t to,
                                 const symm_plan *most),
                     void *arg);

#endif
