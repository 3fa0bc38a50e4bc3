/* fake_cuda.h - a CUDA driver over host memory, with every entry point of cuda_calls.def, without a
 * GPU or a toolkit. The real vmm_cuda.c, cuda_device.c and everything above them run on it. It is
 * as strict as CUDA: it accepts only what the library may do.
 *
 *     fake_cuda_install(NULL);              defaults: 2 devices of 1 GiB that reach each other
 *     fake_cuda_fail("cuMemMap", 2, 700);   the second call from now returns 700
 *     T_EQ(fake_cuda_live(), 0);            nothing of CUDA is left
 *
 * Device memory is a memfd, so descriptors can be passed to other processes, and the test can
 * access all addresses; behind those of a multicast object lies nothing (mc_object.h), but see
 * fake_cuda_cast_store. Streams run their work at once, in the calling thread, unless `queued`:
 * then each has a thread. Kernels are functions of the test (fake_cuda_kernel). Any thread; one
 * lock, which is not held during a kernel, host function or destructor. After a fork the child has
 * the state as it was; queued streams do not survive a fork. */
#ifndef FAKE_CUDA_H_
#define FAKE_CUDA_H_

#include <stdint.h>

#include "transport/cuda/cuda_driver.h"

enum { FAKE_DEVICES = 8, FAKE_ARGS = 8 };

typedef struct {
    int version;       /* 12080 */
    int devices;       /* 2 */
    int init_code;     /* of cuInit */
    uint64_t bytes;    /* of each device, 1 GiB */
    uint64_t grain;    /* recommended granularity, 2 MiB */
    int sms, cc_major; /* 132, 9 */
    int vmm, fd;       /* 1; 0: the device lacks it, creation with descriptors is NOT_SUPPORTED */
    int fabric_attr;   /* what the attribute says, 0 */
    int fabric_code;   /* of a creation with a fabric handle, NOT_PERMITTED (0: it works) */
    int queued;        /* 0 */
    int apart;         /* 1: no device reaches another */
    unsigned pcie;     /* bit d: PCIe joins device d with the others, not NVLink */
    int no_numbers;    /* 1: mapped memory has no buffer numbers */
    int pageable;      /* 1: devices reach all memory of the host */
    int multicast;     /* devices have multicast objects, 1 */
    uint64_t cast;     /* least granularity of those, 0: 2 MiB */
    int room;          /* CTAs that run on a device at once; 0: any number */
} fake_cuda_config;

/* Resets everything, uses `config` (NULL: the defaults), and replaces libcuda. NVML too: see
 * fake_nvml.h. */
void fake_cuda_install(const fake_cuda_config *config);
fake_cuda_config fake_cuda_defaults(void);
/* The whole table, for tests that change an entry before they inject it. */
symm_cuda_table fake_cuda_table(void);
/* An entry point by its exported symbol, NULL if the table has no such row. */
void *fake_cuda_symbol(const char *symbol);

/* The nth call of that entry point from now (0: every one) returns code and does nothing. One such
 * rule at a time; code 0: none. A name that is no entry point ends the test. */
void fake_cuda_fail(const char *call, int nth, int code);
/* The same, of the calls that threads make while `device` is current there (-1: any device, or
 * none): one rank's, where ranks are threads. */
void fake_cuda_fail_at(int device, const char *call, int nth, int code);
/* The next one once `after` has come nth times from now: of a call that others make before. */
void fake_cuda_fail_after(const char *after, int nth, const char *call, int code);
/* 1 while the planned call has not come. */
int fake_cuda_fail_waits(void);
/* Calls of an entry point since the install; NULL: of all. At: as above. */
int fake_cuda_calls(const char *call);
int fake_cuda_calls_at(int device, const char *call);
const char *fake_cuda_call_name(int i); /* in table order, NULL past the end */

/* Objects alive: reservations, mappings, handles, allocations, registrations, streams, events,
 * graphs, libraries, user objects. Primary contexts count in fake_cuda_contexts. */
int fake_cuda_live(void);
/* Of these, streams and libraries: what the library keeps to the end of the process. */
int fake_cuda_kept(void);
int fake_cuda_contexts(void);
/* Devices that may access the mapping around va, bit d; 0 if nothing is mapped there. */
uint64_t fake_cuda_access(const void *va);
/* Fails the test unless n members, at most FAKE_DEVICES, are those of the object that is mapped at
 * va, and each has bound [va, va + bytes) to exactly one piece, of memory that no other has
 * bound. */
void fake_cuda_all_bound(const void *va, uint64_t bytes, int n);
/* What a GPU does at such an address, here the current device: a store goes to every member's
 * memory, a load is the sum over all of it (PTX: multimem.st, multimem.ld_reduce). The test fails
 * where it would fault, or where a member's memory is not known to this process. */
void fake_cuda_cast_store(void *va, const void *from, uint64_t bytes);
void fake_cuda_cast_sum(const void *va, int *sums, int count);
/* A context that is not a primary one. */
cu_context fake_cuda_context(int device);

/* What a launch of `name` runs, with the sizes of its parameters: args[i] points to a copy of the
 * i-th. */
typedef void (*fake_cuda_fn)(const cu_launch_config *config, void **args);
void fake_cuda_kernel(const char *name, fake_cuda_fn fn, int nargs, const size_t *sizes);
/* The name of the kernel that runs in the calling thread, NULL outside of one. */
const char *fake_cuda_running(void);

#endif
