/* across_gpu.h - what a communicator over several domains has on GPUs: a communicator of NCCL over
 * all ranks, memory to stage in, and the order of its calls. All that a call does is given to the
 * caller's stream, and so can be captured; it waits only while NCCL connects ranks. The thread
 * inside, except where said. */
#ifndef SYMM_ACROSS_GPU_H_
#define SYMM_ACROSS_GPU_H_

#include "transport/net/nccl.h"
#include "across.h"

/* Bytes of a reduction in one step: nothing of a call overlaps on its stream, so a step costs
 * launches, and what it needs is memory. */
enum { SYMM_ACROSS_GPU_CHUNK = 16 << 20 };
#ifdef SYMM_TESTING
extern size_t symm_test_across_chunk; /* of communicators that are made from now on */
#endif

/* Everything that may fail on one rank alone, for an inner communicator on GPUs; s->gpu is set on
 * success. The thread that creates. */
symmResult_t symm_across_gpu_prepare(symm_across *s);
/* NCCL's version; an id for all ranks. */
symmResult_t symm_across_gpu_version(const symm_across *s, int *version);
symmResult_t symm_across_gpu_id(const symm_across *s, nccl_id *id);
/* Whether NCCL registers memory of captured messages (NCCL_GRAPH_REGISTER). If it does on no rank,
 * these go straight between the callers' buffers: set_direct. */
int symm_across_gpu_registers(const symm_across *s);
void symm_across_gpu_set_direct(symm_across *s);
/* Makes the communicator of NCCL, and sends the first messages. An error is told to the others, and
 * what they wait for here ends. [collective] */
symmResult_t symm_across_gpu_connect(symm_across *s, const nccl_id *id, uint64_t deadline_ns);
/* The communicator is over: kernels that wait in NCCL end, soon if not at once. */
void symm_across_gpu_abort(symm_across *s);
/* Waits until all calls that were made have ended, and graphs with such calls. look: what others
 * say meanwhile, which it has made the end of these; it is returned. */
symmResult_t symm_across_gpu_drain(symm_across *s, symmResult_t (*look)(symm_across *s));
/* Frees it all. The inner communicator may have ended, graphs with calls may live: they must not be
 * launched any more. */
void symm_across_gpu_close(symm_across *s);

/* Whether the communicator's GPU can have calls on that stream. call: as errors name it. */
symmResult_t symm_across_gpu_check(const symm_across *s, const char *call, symmStream_t stream);
/* Whether it reaches what the program passed; NULL: there is nothing. */
symmResult_t symm_across_gpu_reaches(const symm_across *s, const void *src, const void *dst);
/* What NCCL says of messages that were given to streams. */
symmResult_t symm_across_gpu_look(const symm_across *s);
/* fn(arg), which gives work to that stream alone, behind the calls before. */
symmResult_t symm_across_gpu_run(symm_across *s, symmStream_t stream, symmResult_t (*fn)(void *arg),
                                 void *arg);

/* ---- inside fn: what cross.c does on GPUs ---------------------------------------------------- */

symmResult_t symm_across_gpu_message(symm_across *s, int rank, int sends, const void *at,
                                     size_t bytes);
/* Gives those that have begun to the stream, as one group of NCCL's. */
symmResult_t symm_across_gpu_finish(symm_across *s);
symmResult_t symm_across_gpu_copy(const symm_across *s, void *to, const void *from, size_t bytes);
symmResult_t symm_across_gpu_join(const symm_across_call *a, void *dst, char *const *others,
                                  size_t count);
symmResult_t symm_across_gpu_reduce(const symm_across_call *a, int op, void *dst, const char *all,
                                    size_t count, const uint64_t *scalars);
symmResult_t symm_across_gpu_scalar(const symm_across_call *a, uint64_t *at);
symmResult_t symm_across_gpu_stage(const symm_across *s, size_t bytes, char **out);

#endif
