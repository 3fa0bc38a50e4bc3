/* cuda_driver.h - the CUDA driver as the library sees it: libcuda.so.1 is opened at run time, its
 * entry points are in one table, and its types and constants are declared here only. So the library
 * builds without CUDA, and one build runs with and without a GPU. tests/check/check_cuda_abi.sh
 * compares the declarations with the toolkit's, if there is one.
 *
 * Any thread. symm_cuda_load fills the table once. After that the table is only read. */
#ifndef SYMM_CUDA_DRIVER_H_
#define SYMM_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- types ---------------------------------------------------------------------------------- */

typedef int cu_result;          /* CUresult: an enum, passed as an int */
typedef int cu_device;          /* CUdevice */
typedef uint64_t cu_deviceptr;  /* CUdeviceptr */
typedef uint64_t cu_mem_handle; /* CUmemGenericAllocationHandle */
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_library_st *cu_library;
typedef struct cu_kernel_st *cu_kernel;
typedef struct cu_function_st *cu_function; /* a cu_kernel may be passed as one to a launch */
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;
typedef struct cu_graph_node_st *cu_graph_node;
typedef struct cu_user_object_st *cu_user_object;
typedef void (*cu_host_fn)(void *arg); /* CUhostFn */

typedef struct {
    unsigned char bytes[16];
} cu_uuid; /* CUuuid */

typedef struct {
    int type, id;
} cu_mem_location; /* CUmemLocation */

typedef struct {
    int type;
    int handle_types; /* SYMM_CUDA_HANDLE_*, or'd */
    cu_mem_location location;
    void *win32;
    unsigned char compression;
    unsigned char rdma_capable; /* gpuDirectRDMACapable */
    unsigned short usage;
    unsigned char reserved[4];
} cu_mem_prop; /* CUmemAllocationProp */

typedef struct {
    cu_mem_location location;
    int flags;   /* SYMM_CUDA_ACCESS_* */
} cu_mem_access; /* CUmemAccessDesc */

typedef struct {
    unsigned char data[64];
} cu_fabric_handle; /* CUmemFabricHandle */

typedef union {
    uint64_t words[8];              /* its size, and the alignment of pointers in it */
    int programmatic_serialization; /* programmaticStreamSerializationAllowed */
    int cooperative;
    int priority;
    struct {
        unsigned x, y, z;
    } cluster;
} cu_launch_value; /* CUlaunchAttributeValue */

typedef struct {
    int id; /* SYMM_CUDA_LAUNCH_* */
    char pad[4];
    cu_launch_value value;
} cu_launch_attr; /* CUlaunchAttribute */

typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} cu_graph_edge; /* CUgraphEdgeData */

typedef struct { /* of CUstreamBatchMemOpParams: a wait for a word */
    int operation;
    cu_deviceptr address;
    uint64_t value;
    unsigned flags;
    cu_deviceptr alias;
    uint64_t pad;
} cu_stream_op;

typedef struct {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    cu_stream stream;
    cu_launch_attr *attrs;
    unsigned num_attrs;
} cu_launch_config; /* CUlaunchConfig */

/* ---- constants ------------------------------------------------------------------------------ */

enum { /* CUresult: codes that the library handles; see also SYMM_CU_* in vmm.h */
       SYMM_CUDA_SUCCESS = 0,
       SYMM_CUDA_ERROR_INVALID_VALUE = 1,
       SYMM_CUDA_ERROR_OUT_OF_MEMORY = 2,
       SYMM_CUDA_ERROR_NOT_INITIALIZED = 3,
       SYMM_CUDA_ERROR_DEINITIALIZED = 4,
       SYMM_CUDA_ERROR_STUB_LIBRARY = 34,
       SYMM_CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
       SYMM_CUDA_ERROR_NO_DEVICE = 100,
       SYMM_CUDA_ERROR_INVALID_DEVICE = 101,
       SYMM_CUDA_ERROR_INVALID_IMAGE = 200,
       SYMM_CUDA_ERROR_INVALID_CONTEXT = 201,
       SYMM_CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
       SYMM_CUDA_ERROR_ECC_UNCORRECTABLE = 214,
       SYMM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
       SYMM_CUDA_ERROR_OPERATING_SYSTEM = 304,
       SYMM_CUDA_ERROR_INVALID_HANDLE = 400,
       SYMM_CUDA_ERROR_ILLEGAL_STATE = 401,
       SYMM_CUDA_ERROR_LOSSY_QUERY = 402,
       SYMM_CUDA_ERROR_NOT_FOUND = 500,
       SYMM_CUDA_ERROR_NOT_READY = 600,
       SYMM_CUDA_ERROR_ILLEGAL_ADDRESS = 700,
       SYMM_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
       SYMM_CUDA_ERROR_LAUNCH_FAILED = 719,
       SYMM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
       SYMM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
       SYMM_CUDA_ERROR_NOT_PERMITTED = 800,
       SYMM_CUDA_ERROR_NOT_SUPPORTED = 801,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
       SYMM_CUDA_ERROR_CAPTURED_EVENT = 907,
       SYMM_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
       SYMM_CUDA_ERROR_UNKNOWN = 999
};

enum { /* CUdevice_attribute */
       SYMM_CUDA_ATTR_MAX_THREADS_PER_BLOCK = 1,
       SYMM_CUDA_ATTR_CLOCK_RATE = 13,
       SYMM_CUDA_ATTR_MULTIPROCESSOR_COUNT = 16,
       SYMM_CUDA_ATTR_COMPUTE_MODE = 20,
       SYMM_CUDA_ATTR_MAX_THREADS_PER_MULTIPROCESSOR = 39,
       SYMM_CUDA_ATTR_UNIFIED_ADDRESSING = 41,
       SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
       SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
       SYMM_CUDA_ATTR_PAGEABLE_MEMORY_ACCESS = 88,
       SYMM_CUDA_ATTR_COMPUTE_PREEMPTION = 90,
       SYMM_CUDA_ATTR_HOST_POINTER_FOR_REGISTERED = 91,
       SYMM_CUDA_ATTR_MAX_SHARED_MEMORY_OPTIN = 97,
       SYMM_CUDA_ATTR_HOST_REGISTER = 99,
       SYMM_CUDA_ATTR_VMM = 102,
       SYMM_CUDA_ATTR_HANDLE_FD = 103,
       SYMM_CUDA_ATTR_RDMA_WITH_VMM = 110,
       SYMM_CUDA_ATTR_HANDLE_FABRIC = 128
};

enum { /* CUdevice_P2PAttribute */
       SYMM_CUDA_P2P_NATIVE_ATOMIC = 3
};

enum { /* memory: type, location, handle types, granularity, access */
       SYMM_CUDA_MEM_PINNED = 1,
       SYMM_CUDA_LOCATION_DEVICE = 1,
       SYMM_CUDA_LOCATION_HOST = 2,
       SYMM_CUDA_HANDLE_NONE = 0,
       SYMM_CUDA_HANDLE_FD = 1,
       SYMM_CUDA_HANDLE_FABRIC = 8,
       SYMM_CUDA_GRANULARITY_MINIMUM = 0,
       SYMM_CUDA_GRANULARITY_RECOMMENDED = 1,
       SYMM_CUDA_ACCESS_NONE = 0,
       SYMM_CUDA_ACCESS_READ = 1,
       SYMM_CUDA_ACCESS_READWRITE = 3
};

enum { /* host memory that a device may use; pointers; memory types */
       SYMM_CUDA_HOST_PORTABLE = 1,
       SYMM_CUDA_HOST_DEVICEMAP = 2,
       SYMM_CUDA_POINTER_CONTEXT = 1,
       SYMM_CUDA_POINTER_MEMORY_TYPE = 2,
       SYMM_CUDA_POINTER_BUFFER_ID = 7,
       SYMM_CUDA_POINTER_IS_MANAGED = 8,
       SYMM_CUDA_POINTER_DEVICE = 9,
       SYMM_CUDA_MEMORY_HOST = 1,
       SYMM_CUDA_MEMORY_DEVICE = 2
};

enum { /* streams, capture, events */
       SYMM_CUDA_STREAM_DEFAULT = 0,
       SYMM_CUDA_STREAM_NON_BLOCKING = 1,
       SYMM_CUDA_CAPTURE_NONE = 0, /* CUstreamCaptureStatus */
       SYMM_CUDA_CAPTURE_ACTIVE = 1,
       SYMM_CUDA_CAPTURE_INVALIDATED = 2,
       SYMM_CUDA_CAPTURE_MODE_GLOBAL = 0,
       SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL = 1,
       SYMM_CUDA_CAPTURE_MODE_RELAXED = 2,
       SYMM_CUDA_EVENT_DEFAULT = 0,
       SYMM_CUDA_EVENT_BLOCKING_SYNC = 1,
       SYMM_CUDA_EVENT_DISABLE_TIMING = 2,
       SYMM_CUDA_STREAM_WAIT_VALUE_32 = 1, /* CUstreamBatchMemOpType */
       SYMM_CUDA_STREAM_WAIT_EQ = 1        /* CUstreamWaitValue_flags */
};
#define SYMM_CUDA_STREAM_LEGACY     ((cu_stream)(uintptr_t)1)
#define SYMM_CUDA_STREAM_PER_THREAD ((cu_stream)(uintptr_t)2)

enum { /* kernels and graphs */
       SYMM_CUDA_LAUNCH_IGNORE = 0,
       SYMM_CUDA_LAUNCH_COOPERATIVE = 2,
       SYMM_CUDA_LAUNCH_CLUSTER = 4,
       SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6,
       SYMM_CUDA_LAUNCH_PRIORITY = 8,
       SYMM_CUDA_FUNC_MAX_THREADS_PER_BLOCK = 0,
       SYMM_CUDA_FUNC_SHARED_BYTES = 1,
       SYMM_CUDA_FUNC_LOCAL_BYTES = 3,
       SYMM_CUDA_FUNC_NUM_REGS = 4,
       SYMM_CUDA_FUNC_PTX_VERSION = 5,
       SYMM_CUDA_FUNC_BINARY_VERSION = 6,
       SYMM_CUDA_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
       SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
       SYMM_CUDA_GRAPH_USER_OBJECT_MOVE = 1,
       SYMM_CUDA_CAPTURE_SET_DEPENDENCIES = 1
};

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct {
#define SYMM_CU_CALL(name, symbol, required, params) cu_result(*name) params;
#include "cuda_calls.def"
#undef SYMM_CU_CALL
} symm_cuda_table;

/* Valid after symm_cuda_load (or a function of cuda_device.h) has succeeded. All NULL before. */
extern symm_cuda_table symm_cu;

enum { SYMM_CUDA_OLDEST = 12000 }; /* cuLibraryLoadData */

/* Opens the driver, fills the table and initialises the driver. The first call decides for the
 * process; later calls return the same. Without CUDA: symmNotSupported with symm_cuda_why() as the
 * text. It is logged at INFO only, because a machine without GPUs is no fault. A caller that needs
 * CUDA reports an error of its own. */
symmResult_t symm_cuda_load(void);
/* The same as 1 or 0, without an error. */
int symm_cuda_there(void);
/* Why there is no CUDA ("no libcuda.so.1: ...", "driver 11.4 is too old: 12.0 is needed", "cuInit:
 * CUDA_ERROR_NO_DEVICE (100)", "0 devices"). "" if there is CUDA, and before the first load. */
const char *symm_cuda_why(void);
/* 1: there is a driver that cannot be used: it is too old, does not start, or this process is a
 * fork of one that used it. 0 on a machine without GPUs, and before the first load. */
int symm_cuda_broken(void);
/* The driver's version, as CUDA counts it (12040 is 12.4); 0 without one. */
int symm_cuda_version(void);

/* "CUDA_ERROR_ILLEGAL_ADDRESS"; NULL if the code is not known or no driver is loaded. */
const char *symm_cuda_code_name(cu_result cu);
/* Records "CUDA: <what>: CUDA_ERROR_... (n)". Returns symmSuccess for 0, symmOutOfMemory,
 * symmNotSupported, else symmUnhandledCudaError. */
symmResult_t symm_cuda_error(cu_result cu, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The capture of a stream, by the entry point that the driver has: status SYMM_CUDA_CAPTURE_*, the
 * id (unique in the process) and the graph. id and graph are written only while the capture is
 * active. Either may be NULL. */
cu_result symm_cuda_capture_info(cu_stream stream, int *status, uint64_t *id, cu_graph *graph);

/* Whether the nodes of graphs can be queried: by the three functions below and cuGraphAddEmptyNode.
 * */
int symm_cuda_sees_graphs(void);
/* The graph that the stream is captured into, and the nodes that the next node there would depend
 * on: the driver's array, valid until the next call on the stream. */
cu_result symm_cuda_capture_deps(cu_stream stream, cu_graph *graph, const cu_graph_node **deps,
                                 size_t *count);
/* The next node depends on these instead. */
cu_result symm_cuda_capture_set_deps(cu_stream stream, cu_graph_node *deps, size_t count);
/* The nodes that a node depends on. deps NULL: only *count is written. Else *count is the room,
 * then the number. */
cu_result symm_cuda_node_dependencies(cu_graph_node node, cu_graph_node *deps, size_t *count);

#ifdef SYMM_TESTING
/* Replaces libcuda by `t` and forgets what was found before; NULL: back to libcuda. No other thread
 * may be inside. */
void symm_cuda_inject(const symm_cuda_table *t);
/* As the loader does with dlsym, but with `find`: for tests of which symbols are looked up and may
 * be missing. */
symmResult_t symm_cuda_load_by(void *(*find)(const char *symbol));
#endif

#endif
