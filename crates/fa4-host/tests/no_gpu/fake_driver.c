// A CUDA driver that has one GPU and computes nothing, for tests of what the launcher says when things fail.
//
// Environment: FAKE_CUDA is a list such as "cuInit=100,cuMemAlloc_v2=2": these functions answer with that status.
// FAKE_VERSION (13000), FAKE_COUNT (1) and FAKE_CC (90) change what the machine looks like. LACK, a macro, leaves out
// cuLaunchKernelEx, as a driver too old to know it does.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int otherwise) {
    const char* text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int status_of(const char* function) {
    const char* at = getenv("FAKE_CUDA");
    size_t length = strlen(function);
    while (at && *at) {
        if (strncmp(at, function, length) == 0 && at[length] == '=') return atoi(at + length + 1);
        at = strchr(at, ',');
        if (at) ++at;
    }
    return 0;
}

#define DRIVER(name, parameters, body)     \
    int name parameters {                  \
        const int status = status_of(#name); \
        if (status != 0) return status;    \
        body;                              \
        return 0;                          \
    }

typedef void* Handle;
typedef uint64_t Address;
static char some_object[1];

static const char* name_of(int status) {
    switch (status) {
        case 1: return "CUDA_ERROR_INVALID_VALUE";
        case 2: return "CUDA_ERROR_OUT_OF_MEMORY";
        case 100: return "CUDA_ERROR_NO_DEVICE";
        case 209: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
        case 700: return "CUDA_ERROR_ILLEGAL_ADDRESS";
        case 719: return "CUDA_ERROR_LAUNCH_FAILED";
        case 999: return "CUDA_ERROR_UNKNOWN";
        default: return 0;
    }
}

int cuGetErrorName(int status, const char** text) { return (*text = name_of(status)) ? 0 : 1; }
int cuGetErrorString(int status, const char** text) { return (*text = name_of(status) ? "as told" : 0) ? 0 : 1; }

DRIVER(cuInit, (unsigned flags), (void)flags)
DRIVER(cuDriverGetVersion, (int* version), *version = number("FAKE_VERSION", 13000))
DRIVER(cuDeviceGetCount, (int* count), *count = number("FAKE_COUNT", 1))
DRIVER(cuDeviceGet, (int* device, int ordinal), *device = ordinal)
DRIVER(cuDeviceGetName, (char* name, int size, int device), snprintf(name, size, "Fake %d", device))
DRIVER(cuDeviceTotalMem_v2, (size_t * bytes, int device), *bytes = (size_t)1 << 30; (void)device)
DRIVER(cuDeviceGetAttribute, (int* value, int attribute, int device),
       *value = attribute == 75 ? number("FAKE_CC", 90) / 10 : attribute == 76 ? number("FAKE_CC", 90) % 10 : 232448;
       (void)device)
DRIVER(cuDevicePrimaryCtxRetain, (Handle * context, int device), *context = some_object; (void)device)
DRIVER(cuDevicePrimaryCtxRelease_v2, (int device), (void)device)
DRIVER(cuCtxSetCurrent, (Handle context), (void)context)
DRIVER(cuMemGetInfo_v2, (size_t * available, size_t* total), *available = 4096; *total = (size_t)1 << 30)
DRIVER(cuMemAlloc_v2, (Address * address, size_t bytes), *address = (Address)(uintptr_t)malloc(bytes))
DRIVER(cuMemFree_v2, (Address address), free((void*)(uintptr_t)address))
DRIVER(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Handle stream),
       memcpy((void*)(uintptr_t)to, from, bytes); (void)stream)
DRIVER(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Handle stream),
       memcpy(to, (void*)(uintptr_t)from, bytes); (void)stream)
DRIVER(cuMemsetD8Async, (Address to, unsigned char byte, size_t bytes, Handle stream),
       memset((void*)(uintptr_t)to, byte, bytes); (void)stream)
DRIVER(cuModuleLoadData, (Handle * module, const void* image), *module = some_object; (void)image)
DRIVER(cuModuleUnload, (Handle module), (void)module)
DRIVER(cuModuleGetFunction, (Handle * function, Handle module, const char* name),
       *function = some_object; (void)module; (void)name)
int cuModuleGetGlobal_v2(Address* address, size_t* bytes, Handle module, const char* name) {
    (void)address, (void)bytes, (void)module, (void)name;
    return 1;
}
DRIVER(cuFuncGetAttribute, (int* value, int attribute, Handle function),
       *value = 512; (void)attribute; (void)function)
DRIVER(cuFuncSetAttribute, (Handle function, int attribute, int value), (void)function; (void)attribute; (void)value)
int cuFuncGetParamInfo(Handle function, size_t index, size_t* offset, size_t* size) {
    (void)function, (void)index, (void)offset, (void)size;
    return 1;  // no parameters
}
DRIVER(cuStreamCreate, (Handle * stream, unsigned flags), *stream = some_object; (void)flags)
DRIVER(cuStreamDestroy_v2, (Handle stream), (void)stream)
DRIVER(cuStreamQuery, (Handle stream), (void)stream)
DRIVER(cuStreamSynchronize, (Handle stream), (void)stream)
DRIVER(cuStreamBeginCapture_v2, (Handle stream, int mode), (void)stream; (void)mode)
DRIVER(cuStreamEndCapture, (Handle stream, Handle* graph), *graph = some_object; (void)stream)
DRIVER(cuEventCreate, (Handle * event, unsigned flags), *event = some_object; (void)flags)
DRIVER(cuEventDestroy_v2, (Handle event), (void)event)
DRIVER(cuEventRecord, (Handle event, Handle stream), (void)event; (void)stream)
DRIVER(cuEventSynchronize, (Handle event), (void)event)
DRIVER(cuEventElapsedTime_v2, (float* ms, Handle from, Handle to), *ms = 1; (void)from; (void)to)
DRIVER(cuTensorMapEncodeTiled, (Handle map), (void)map)
#ifndef LACK
DRIVER(cuLaunchKernelEx, (const void* config), (void)config)
#endif
DRIVER(cuGraphGetNodes, (Handle graph, Handle* node, size_t* count), *node = some_object; (void)graph; (void)count)
DRIVER(cuGraphInstantiateWithFlags, (Handle * exec, Handle graph), *exec = some_object; (void)graph)
DRIVER(cuGraphExecKernelNodeSetParams_v2, (Handle exec), (void)exec)
DRIVER(cuGraphLaunch, (Handle exec, Handle stream), (void)exec; (void)stream)
DRIVER(cuGraphExecDestroy, (Handle exec), (void)exec)
DRIVER(cuGraphDestroy, (Handle graph), (void)graph)
