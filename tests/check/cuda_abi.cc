// cuda_abi.cc - compares what src/transport/cuda/cuda_driver.h declares with the toolkit's cuda.h.
// It is compiled, never run (tests/check/check_cuda_abi.sh): a difference is a failed static_assert
// that names it. C++ because its templates can take functions apart.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transport/cuda/cuda_driver.h"
#include "transport/cuda/cuda_multicast.h"

// Our side of each entry point, before cuda.h gives the names their versions.
namespace ours {
#define SYMM_CU_CALL(name, symbol, required, params) typedef cu_result(*fn_##name) params;
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL
} // namespace ours

#ifdef OLDER // cuda.h then declares older versions of entry points too, and names no versions
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

// What only that half declares, or only newer toolkits. Where cuda.h does declare it, the compiler
// compares.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus *, cuuint64_t *,
                                              CUgraph *, const CUgraphNode **, size_t *);
#if CUDA_VERSION < 12030
extern "C" CUresult cuStreamGetCaptureInfo_v3(CUstream, CUstreamCaptureStatus *, cuuint64_t *,
                                              CUgraph *, const CUgraphNode **, const void **,
                                              size_t *);
struct CUgraphEdgeData {
    unsigned char from_port, to_port, type, reserved[5];
};
extern "C" CUresult cuGraphNodeGetDependencies_v2(CUgraphNode, CUgraphNode *, CUgraphEdgeData *,
                                                  size_t *);
extern "C" CUresult cuStreamUpdateCaptureDependencies_v2(CUstream, CUgraphNode *,
                                                         const CUgraphEdgeData *, size_t,
                                                         unsigned);
#endif

#ifndef OLDER

/* ---- entry points ---- */

// Passed alike: integers and enums of one size (a call does not care about the sign), pointers,
// floats.
template <class T>
constexpr int kind = std::is_integral<T>::value || std::is_enum<T>::value ? 1
                     : std::is_pointer<T>::value                          ? 2
                     : std::is_floating_point<T>::value                   ? 3
                                                                          : 0;

// What a pointer leads to has one size, where both sides know it: neither completes opaque types.
template <class T, class = void> struct known : std::false_type {};
template <class T> struct known<T, decltype(void(sizeof(T)))> : std::true_type {};
template <> struct known<void> : std::false_type {};
template <> struct known<const void> : std::false_type {};
template <class A, class B, bool = known<A>::value &&known<B>::value>
struct behind : std::true_type {};
template <class A, class B>
struct behind<A, B, true>
    : std::integral_constant<bool, sizeof(A) == sizeof(B) && kind<A> == kind<B>> {};

template <class A, class B>
struct passed
    : std::integral_constant<bool, kind<A> != 0 && kind<A> == kind<B> && sizeof(A) == sizeof(B)> {};
template <class A, class B> struct passed<A *, B *> : behind<A, B> {};
// A call back: cu_host_fn and CUhostFn are one type.
template <class... As> struct passed<void (*)(As...), void (*)(As...)> : std::true_type {};

template <class A, class B> struct same_call : std::false_type {}; // other numbers of parameters
template <> struct same_call<cu_result (*)(), CUresult (*)()> : std::true_type {};
template <class A, class... As, class B, class... Bs>
struct same_call<cu_result (*)(A, As...), CUresult (*)(B, Bs...)>
    : std::integral_constant<bool, passed<A, B>::value && same_call<cu_result (*)(As...),
                                                                    CUresult (*)(Bs...)>::value> {};

// A name is the toolkit's here: cuMemAlloc has become cuMemAlloc_v2.
#define SYMM_CU_CALL(name, symbol, required, params) \
    static_assert(same_call<ours::fn_##name, decltype(&name)>::value, "parameters of " symbol);
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL

// The symbol is the version that this cuda.h describes. Those that are not are older on purpose:
// the newest drivers keep them and the oldest have nothing else, and they have been the same call.
constexpr bool equal(const char *a, const char *b) {
    return *a == *b && (*a == 0 || equal(a + 1, b + 1));
}
constexpr bool older_on_purpose(const char *symbol) {
    return equal(symbol, "cuEventElapsedTime");
}
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define SYMM_CU_CALL(name, symbol, required, params)                     \
    static_assert(older_on_purpose(symbol) || equal(TEXT(name), symbol), \
                  "version of " symbol " is here " TEXT(name));
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL

/* ---- structs ---- */

#define SAME(a, b)      static_assert((long long)(a) == (long long)(b), #a " is not " #b)
#define SAME_SIZE(a, b) static_assert(sizeof(a) == sizeof(b) && alignof(a) == alignof(b), #a)
#define FIELD(a, f, b, g)                                                                         \
    static_assert(offsetof(a, f) == offsetof(b, g) && sizeof(((a *)0)->f) == sizeof(((b *)0)->g), \
                  #a "." #f " is not " #b "." #g)

SAME_SIZE(cu_result, CUresult);
SAME_SIZE(cu_device, CUdevice);
SAME_SIZE(cu_deviceptr, CUdeviceptr);
SAME_SIZE(cu_mem_handle, CUmemGenericAllocationHandle);
SAME_SIZE(cu_uuid, CUuuid);
SAME_SIZE(cu_mem_location, CUmemLocation);
FIELD(cu_mem_location, type, CUmemLocation, type);
FIELD(cu_mem_location, id, CUmemLocation, id);
SAME_SIZE(cu_mem_prop, CUmemAllocationProp);
FIELD(cu_mem_prop, type, CUmemAllocationProp, type);
FIELD(cu_mem_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
FIELD(cu_mem_prop, location, CUmemAllocationProp, location);
FIELD(cu_mem_prop, win32, CUmemAllocationProp, win32HandleMetaData);
FIELD(cu_mem_prop, compression, CUmemAllocationProp, allocFlags.compressionType);
FIELD(cu_mem_prop, rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
FIELD(cu_mem_prop, usage, CUmemAllocationProp, allocFlags.usage);
FIELD(cu_mem_prop, reserved, CUmemAllocationProp, allocFlags.reserved);
SAME_SIZE(cu_multicast_prop, CUmulticastObjectProp);
FIELD(cu_multicast_prop, devices, CUmulticastObjectProp, numDevices);
FIELD(cu_multicast_prop, bytes, CUmulticastObjectProp, size);
FIELD(cu_multicast_prop, handle_types, CUmulticastObjectProp, handleTypes);
FIELD(cu_multicast_prop, flags, CUmulticastObjectProp, flags);
SAME(SYMM_CUDA_ATTR_MULTICAST, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
SAME(SYMM_CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(SYMM_CUDA_GRANULARITY_MINIMUM, CU_MULTICAST_GRANULARITY_MINIMUM);
SAME(SYMM_CUDA_GRANULARITY_RECOMMENDED, CU_MULTICAST_GRANULARITY_RECOMMENDED);
SAME_SIZE(cu_mem_access, CUmemAccessDesc);
FIELD(cu_mem_access, location, CUmemAccessDesc, location);
FIELD(cu_mem_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(cu_launch_value, CUlaunchAttributeValue);
FIELD(cu_launch_value, programmatic_serialization, CUlaunchAttributeValue,
      programmaticStreamSerializationAllowed);
FIELD(cu_launch_value, cooperative, CUlaunchAttributeValue, cooperative);
FIELD(cu_launch_value, priority, CUlaunchAttributeValue, priority);
FIELD(cu_launch_value, cluster.x, CUlaunchAttributeValue, clusterDim.x);
FIELD(cu_launch_value, cluster.y, CUlaunchAttributeValue, clusterDim.y);
FIELD(cu_launch_value, cluster.z, CUlaunchAttributeValue, clusterDim.z);
SAME_SIZE(cu_launch_attr, CUlaunchAttribute);
FIELD(cu_launch_attr, id, CUlaunchAttribute, id);
FIELD(cu_launch_attr, value, CUlaunchAttribute, value);
SAME_SIZE(cu_stream_op, CUstreamBatchMemOpParams);
FIELD(cu_stream_op, operation, CUstreamBatchMemOpParams, waitValue.operation);
FIELD(cu_stream_op, address, CUstreamBatchMemOpParams, waitValue.address);
FIELD(cu_stream_op, value, CUstreamBatchMemOpParams, waitValue.value64);
FIELD(cu_stream_op, flags, CUstreamBatchMemOpParams, waitValue.flags);
FIELD(cu_stream_op, alias, CUstreamBatchMemOpParams, waitValue.alias);
SAME(SYMM_CUDA_STREAM_WAIT_VALUE_32, CU_STREAM_MEM_OP_WAIT_VALUE_32);
SAME(SYMM_CUDA_STREAM_WAIT_EQ, CU_STREAM_WAIT_VALUE_EQ);
SAME_SIZE(cu_graph_edge, CUgraphEdgeData);
FIELD(cu_graph_edge, from_port, CUgraphEdgeData, from_port);
FIELD(cu_graph_edge, type, CUgraphEdgeData, type);
SAME_SIZE(cu_launch_config, CUlaunchConfig);
FIELD(cu_launch_config, grid_x, CUlaunchConfig, gridDimX);
FIELD(cu_launch_config, grid_y, CUlaunchConfig, gridDimY);
FIELD(cu_launch_config, grid_z, CUlaunchConfig, gridDimZ);
FIELD(cu_launch_config, block_x, CUlaunchConfig, blockDimX);
FIELD(cu_launch_config, block_y, CUlaunchConfig, blockDimY);
FIELD(cu_launch_config, block_z, CUlaunchConfig, blockDimZ);
FIELD(cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
FIELD(cu_launch_config, stream, CUlaunchConfig, hStream);
FIELD(cu_launch_config, attrs, CUlaunchConfig, attrs);
FIELD(cu_launch_config, num_attrs, CUlaunchConfig, numAttrs);

/* ---- constants ---- */

#define ERROR(name) SAME(SYMM_CUDA_ERROR_##name, CUDA_ERROR_##name)
#define ATTR(a, b)  SAME(SYMM_CUDA_ATTR_##a, CU_DEVICE_ATTRIBUTE_##b)

SAME(SYMM_CUDA_SUCCESS, CUDA_SUCCESS);
ERROR(INVALID_VALUE);
ERROR(OUT_OF_MEMORY);
ERROR(NOT_INITIALIZED);
ERROR(DEINITIALIZED);
ERROR(STUB_LIBRARY);
ERROR(DEVICE_UNAVAILABLE);
ERROR(NO_DEVICE);
ERROR(INVALID_DEVICE);
ERROR(INVALID_IMAGE);
ERROR(INVALID_CONTEXT);
ERROR(NO_BINARY_FOR_GPU);
ERROR(ECC_UNCORRECTABLE);
ERROR(PEER_ACCESS_UNSUPPORTED);
ERROR(OPERATING_SYSTEM);
ERROR(INVALID_HANDLE);
ERROR(ILLEGAL_STATE);
#if CUDA_VERSION >= 12030
ERROR(LOSSY_QUERY);
#endif
ERROR(NOT_FOUND);
ERROR(NOT_READY);
ERROR(ILLEGAL_ADDRESS);
ERROR(CONTEXT_IS_DESTROYED);
ERROR(LAUNCH_FAILED);
ERROR(HOST_MEMORY_ALREADY_REGISTERED);
ERROR(HOST_MEMORY_NOT_REGISTERED);
ERROR(NOT_PERMITTED);
ERROR(NOT_SUPPORTED);
ERROR(STREAM_CAPTURE_UNSUPPORTED);
ERROR(STREAM_CAPTURE_INVALIDATED);
ERROR(STREAM_CAPTURE_MERGE);
ERROR(STREAM_CAPTURE_UNMATCHED);
ERROR(STREAM_CAPTURE_UNJOINED);
ERROR(STREAM_CAPTURE_ISOLATION);
ERROR(CAPTURED_EVENT);
ERROR(STREAM_CAPTURE_IMPLICIT);
ERROR(STREAM_CAPTURE_WRONG_THREAD);
ERROR(UNKNOWN);

ATTR(MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK);
ATTR(CLOCK_RATE, CLOCK_RATE);
ATTR(MULTIPROCESSOR_COUNT, MULTIPROCESSOR_COUNT);
ATTR(COMPUTE_MODE, COMPUTE_MODE);
ATTR(MAX_THREADS_PER_MULTIPROCESSOR, MAX_THREADS_PER_MULTIPROCESSOR);
ATTR(UNIFIED_ADDRESSING, UNIFIED_ADDRESSING);
ATTR(COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MAJOR);
ATTR(COMPUTE_CAPABILITY_MINOR, COMPUTE_CAPABILITY_MINOR);
ATTR(COMPUTE_PREEMPTION, COMPUTE_PREEMPTION_SUPPORTED);
ATTR(HOST_POINTER_FOR_REGISTERED, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
ATTR(PAGEABLE_MEMORY_ACCESS, PAGEABLE_MEMORY_ACCESS);
ATTR(MAX_SHARED_MEMORY_OPTIN, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
ATTR(HOST_REGISTER, HOST_REGISTER_SUPPORTED);
ATTR(VMM, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
ATTR(HANDLE_FD, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
ATTR(RDMA_WITH_VMM, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
#if CUDA_VERSION >= 12030
ATTR(HANDLE_FABRIC, HANDLE_TYPE_FABRIC_SUPPORTED);
SAME(SYMM_CUDA_HANDLE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC);
SAME_SIZE(cu_fabric_handle, CUmemFabricHandle);
#endif

SAME(SYMM_CUDA_MEM_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(SYMM_CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
#if CUDA_VERSION >= 12020
SAME(SYMM_CUDA_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
#endif
SAME(SYMM_CUDA_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
SAME(SYMM_CUDA_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(SYMM_CUDA_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(SYMM_CUDA_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(SYMM_CUDA_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(SYMM_CUDA_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(SYMM_CUDA_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(SYMM_CUDA_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(SYMM_CUDA_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(SYMM_CUDA_P2P_NATIVE_ATOMIC, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME(SYMM_CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(SYMM_CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(SYMM_CUDA_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(SYMM_CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(SYMM_CUDA_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(SYMM_CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(SYMM_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);

SAME(SYMM_CUDA_STREAM_DEFAULT, CU_STREAM_DEFAULT);
SAME(SYMM_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(SYMM_CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(SYMM_CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(SYMM_CUDA_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(SYMM_CUDA_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(SYMM_CUDA_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(SYMM_CUDA_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(SYMM_CUDA_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
SAME(SYMM_CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);

SAME(SYMM_CUDA_LAUNCH_IGNORE, CU_LAUNCH_ATTRIBUTE_IGNORE);
SAME(SYMM_CUDA_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(SYMM_CUDA_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(SYMM_CUDA_LAUNCH_PRIORITY, CU_LAUNCH_ATTRIBUTE_PRIORITY);
SAME(SYMM_CUDA_FUNC_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(SYMM_CUDA_FUNC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(SYMM_CUDA_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(SYMM_CUDA_FUNC_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(SYMM_CUDA_FUNC_PTX_VERSION, CU_FUNC_ATTRIBUTE_PTX_VERSION);
SAME(SYMM_CUDA_FUNC_BINARY_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
SAME(SYMM_CUDA_FUNC_MAX_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
SAME(SYMM_CUDA_GRAPH_USER_OBJECT_MOVE, CU_GRAPH_USER_OBJECT_MOVE);
#endif
