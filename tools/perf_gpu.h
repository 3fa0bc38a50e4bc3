/* perf_gpu.h - symm-perf on GPUs: one rank's device, stream, staging memory and graphs, over the
 * library's own table of driver calls. Each rank's thread calls these for itself, with its device
 * current; nothing is shared. A driver call that fails ends all ranks with its name. */
#ifndef PERF_GPU_H_
#define PERF_GPU_H_

#include "perf.h"

/* Before the communicator: makes this rank's device current in this thread and sets w->device,
 * which stays -1 where the host backend will run. -1 with a line in err where GPUs were asked for
 * and there are none, or too few. */
int perf_gpu_start(perf_world *w, const perf_config *cfg, char *err, size_t cap);
/* After it: -g promises each rank a GPU. -1 with a line in err where two have the same one. All
 * ranks together. */
int perf_gpu_apart(perf_world *w, char *err, size_t cap);
/* Under the CUDA backend. Sets p->gpu and p->stream. */
void perf_gpu_open(perf_rank *p);
void perf_gpu_close(perf_rank *p); /* NULL p->gpu is a no-op */
void perf_gpu_describe(const perf_rank *p, perf_place *place);
int perf_gpu_driver(const perf_rank *p); /* 13000: CUDA 13.0 */

/* Pinned memory that copies go through, PERF_STAGING bytes. The copies run on a stream of their own
 * and have ended when these return; the caller's work on the buffers must have ended before. */
enum { PERF_STAGING = 16 << 20 };
char *perf_gpu_staging(perf_rank *p);
void perf_gpu_put(perf_rank *p, void *dst, size_t bytes);       /* from the staging memory */
void perf_gpu_get(perf_rank *p, const void *src, size_t bytes); /* into it */
void perf_gpu_set(perf_rank *p, void *dst, unsigned char value, uint64_t bytes);

void perf_gpu_finish(perf_rank *p); /* waits for p->stream */
/* Within the GPU, on p->stream. */
void perf_gpu_copy(perf_rank *p, void *dst, const void *src, size_t bytes);
void perf_gpu_capture(perf_rank *p);
void *perf_gpu_captured(perf_rank *p); /* ready to launch: instantiated and uploaded */
void perf_gpu_graph_free(perf_rank *p, void *exec);
/* n launches between two events; returns the time between them, in us. */
double perf_gpu_graph_play(perf_rank *p, void *exec, int n);

#endif
