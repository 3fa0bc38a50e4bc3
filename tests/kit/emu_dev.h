/* emu_dev.h - what kernels on fibers that use the device API are told: the record that tests fill
 * and kernels read (tests/fake/emu_device.cc). Written by the test's thread before a run. */
#ifndef EMU_DEV_H_
#define EMU_DEV_H_

#include "emu.h"
#include "symm_device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    symmDevComm_t dc;
    symmDevWindow_t win;
    int32_t rounds, first;  /* how many, and the number of the first */
    int32_t absent;         /* 1: this rank's kernel returns at once */
    int32_t index;          /* added to the CTA's */
    uint32_t items;         /* of data of a thread */
    uint32_t warps;         /* 1: groups are warps; of copies 2: a tile of four threads */
    uint64_t from, to, len; /* of a copy */
    uint64_t *out;          /* see OUT_ */
} emu_dev_args;
/* Of the kernel `moe`, whose tokens lie at `from` in the window: bytes of all boxes, most tokens of
 * a rank, and where behind tokens and results the counts of calls are, after `order` and
 * `first`. */
enum { MOE_BOXES = 8192, MOE_AT = 2 * MOE_BOXES, MOE_MOST = 6, MOE_CALLS = 64 };
/* Of the kernel `gemm`, whose sums are of `from` x `to` tiles: where in the window they begin,
 * behind the inbox, where each CTA makes its tile, and where the counts of calls are. */
enum {
    GEMM_TILE_BYTES = 1024,
    GEMM_Y = 36 << 10,
    GEMM_MADE = 50 << 10,
    GEMM_CALLS = 60 << 10,
    GEMM_MOST = 12
};
enum { WINDOW_HALF = 32 << 10 };
enum { OUT_WRONG, OUT_GAVE_UP, OUT_DONE, OUT_WORDS };

/* How many CTAs find a place on a GPU, for debug builds. The test's thread, between runs. */
extern uint64_t emu_dev_places;

/* Kernels by name; NULL: there is none. debug: those built with SYMM_DEVICE_DEBUG. */
emu_kernel emu_device_find(const char *name);
emu_kernel emu_device_debug_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
