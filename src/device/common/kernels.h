/* kernels.h - the kernels and which of them runs when (rows of coll.def), and how a kernel is run
 * on the host. Any thread; the tables are constant. */
#ifndef SYMM_KERNELS_H_
#define SYMM_KERNELS_H_

#include "symm.h"
#include "device/common/records.h"

/* The largest message of a kernel: any; what one slot of packets holds; what a slot for each rank
 * holds (two-shot); what one slot of LL packets holds (host backend: of packets); what one slot of
 * lines holds, of which no place is used twice; what a quarter of the ring of a rank that goes
 * ahead holds. */
enum {
    SYMM_CAP_NONE,
    SYMM_CAP_PACKETS,
    SYMM_CAP_2PACKETS,
    SYMM_CAP_LL,
    SYMM_CAP_LINES,
    SYMM_CAP_AHEAD
};
/* ORDERED: reduces in rank order (all that SYMM_DETERMINISTIC=1 allows). HOST, GPU: where it runs.
 * GPUs, TYPED: compiled for each element type; ONE_IMAGE: once for any number of ranks. AHEAD:
 * givers wait for no taker, and no rank hears from all. */
enum {
    SYMM_K_ORDERED = 1,
    SYMM_K_HOST = 2,
    SYMM_K_GPU = 4,
    SYMM_K_TYPED = 8,
    SYMM_K_ONE_IMAGE = 16,
    SYMM_K_AHEAD = 32
};
/* What must be bound in the multicast range: buffers; scratch, of packets, where buffers may be
 * anywhere. */
enum { SYMM_CAST_SRC = 1, SYMM_CAST_DST = 2, SYMM_CAST_SCRATCH = 4 };
/* Of sources: on GPUs one in no window goes through scratch only if lines are taken, or if the
 * result is in no window either. */
enum { SYMM_STAGES_SOME = 2 };
#define SYMM_K_GOES_AHEAD (SYMM_K_ORDERED | SYMM_K_HOST | SYMM_K_AHEAD)
#define SYMM_K_GPU_SUM    (SYMM_K_ORDERED | SYMM_K_GPU | SYMM_K_TYPED)

typedef enum {
#define SYMM_KERNEL(id, ...) SYMM_KERNEL_##id,
#include "coll.def"
    SYMM_KERNEL_COUNT
} symm_kernel_id;

typedef struct {
    const char *name, *how;
    symmColl_t coll;
    int min_ranks, max_ranks, cap; /* max_ranks: 0 any; cap: SYMM_CAP_ */
    unsigned flags;                /* SYMM_K_ */
    int places;    /* in scratch that a kernel of 128-byte lines uses in turn; 0: it is none */
    int sliced;    /* GPUs: the ranks share the work, each has a slice */
    int staged;    /* GPUs: data goes through staging, or does where it cannot go between windows */
    int multicast; /* SYMM_CAST_: over the multicast range; buffers in whole numbers of 16 bytes */
    int relay;     /* GPUs: the kernel whose lines it may send instead; 0: none */
    int copies;    /* GPUs: copy engines move the data (copies.h), and this kernel ends the call; 0:
                 * not so */
    /* 1: a buffer in no window goes through scratch. Of sources also SYMM_STAGES_SOME. */
    int stages_src, stages_dst;
} symm_kernel_row;

extern const symm_kernel_row symm_kernels[SYMM_KERNEL_COUNT];

/* Host backend: whether every rank has a core of its own. */
enum { SYMM_CORES_ANY, SYMM_CORES_ENOUGH, SYMM_CORES_FEW };

/* The kernel runs a call of its collective that this fits, if it can run it at all. */
typedef struct {
    symm_kernel_id kernel;
    int max_ranks;   /* 0: any */
    int cores;       /* host backend: SYMM_CORES_ */
    int quarter;     /* GPUs, 1: where CTAs have a quarter of a multiprocessor at most. Of a table:
                      * 0: where they have more; -1: everywhere */
    uint64_t upto;   /* bytes of `count` elements; 0: any */
    uint32_t pairs;  /* a count per rank: bytes of a pair that go as a packet */
    int warps, ctas; /* GPUs: warps of a CTA as long as there are fewer than `ctas` of these; then
                      * more */
} symm_plan_row;

/* Rows that go before those of coll.def (plan_table.h). */
typedef struct {
    int n;
    symm_plan_row row[];
} symm_plan_rows;

/* The GPU kernels as the compiler left them: one image (a fat binary) per element type, and one for
 * those that only move. None in a build without the CUDA compiler. */
typedef struct {
    const char *type; /* as in the kernels' names; "" moves */
    const void *image;
} symm_kernel_image;
enum { SYMM_IMAGES = 13 };
/* [0..11] by symmDataType_t, [12] moves */
extern const symm_kernel_image symm_kernel_images[SYMM_IMAGES];
/* 1 if this build has them. */
int symm_kernel_have_images(void);
/* Why not; "" if it has. */
const char *symm_kernel_why_none(void);
/* The compute capabilities that they were compiled for, "90 100"; "" without. */
const char *symm_kernel_archs(void);
#ifdef SYMM_TESTING
/* What it says: 0 or 1, -1 the truth. A test with a driver of its own needs no real ones: where the
 * build has none, the table's point to a text. */
extern int symm_test_images;
#endif

/* Runs kernel `id` with these arguments on the calling thread, CTA after CTA. out->code is 0 or the
 * symmResult_t with which the kernel left; it has then told its peers, and the
 * communicator must not be used again. */
void symm_kernel_run(symm_kernel_id id, const symm_args *a, symm_outcome *out);

/* Host backend: told once a kernel when a wait for a peer that lives has lasted a second, in the
 * thread that waits. NULL: nobody. */
extern void (*symm_wait_long)(const symm_args *a, int peer);

/* Host backend: the clock by which rank 0 times calls that may go either way (staging.c). NULL: the
 * machine's; tests have their own. */
extern uint64_t (*symm_way_clock)(const symm_ctl *ctl);

/* Host backend: whether the n ranks have bound behind [at, at + bytes) of the multicast range what
 * lies at base + r*stride. 0; or another number, and *which is the first rank that has not. Set
 * before a communicator has a range; NULL: none has. */
extern int (*symm_cast_reach)(const void *at, uint64_t bytes, uint64_t base, uint64_t stride, int n,
                              int *which);

/* Gives the core to another thread. With more ranks than cores (SYMM_ARG_CROWDED), where yielding
 * has let nobody run again and again, by sleeping: a yield reaches only threads that the system
 * schedules together with this one, and ranks of several sessions or containers may not be. vain:
 * how often; 0 at first. */
void symm_give_core(const symm_args *a, uint32_t *vain);
/* What symmSetProgress has set for this thread, exchanged for *with, which is then what was. */
typedef struct {
    void (*fn)(void *arg); /* NULL: nothing */
    void *arg;
} symm_progress;
void symm_progress_swap(symm_progress *with);
/* Calls it, as a thread does that waits. 0: nothing is set. */
int symm_progress_turn(void);

#endif
