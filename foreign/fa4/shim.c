// Stands in for the part of the CUDA runtime that the host code of a CuTe DSL kernel calls, on a machine without a GPU.
//
// Nothing is launched: each launch is added to the file $SHIM_LOG as one line of JSON. $SHIM_PARAM_BYTES gives the
// size of each kernel parameter, separated by commas, since a launch itself does not carry them.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;

// cudaLaunchAttribute and cudaLaunchConfig_t, as far as they are read here.
typedef struct { int id; char padding[4]; union { char bytes[64]; dim3 dim; } value; } attribute;
typedef struct { dim3 grid, block; size_t shared_bytes; void *stream; attribute *attributes; unsigned count; } config;
enum { CLUSTER_DIMENSION = 4 };

// cudaDeviceAttr numbers that are asked for, with a B200's answers.
static int device_attribute(int which) {
  switch (which) {
  case 1: case 2: case 3: return 1024;       // threads per block; block x, y
  case 4: return 64;                         // block z
  case 5: return 0x7fffffff;                 // grid x
  case 6: case 7: return 65535;              // grid y, z
  case 8: return 49152;                      // shared memory per block
  case 16: return 148;                       // SMs
  case 75: return 10;                        // compute capability, major
  case 76: return 0;                         // and minor
  case 81: return 228 * 1024;                // shared memory per SM
  case 97: return 227 * 1024;                // shared memory per block, opted in
  default: return 1;
  }
}

static FILE *open_log(void) {
  const char *path = getenv("SHIM_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) { perror(path ? path : "SHIM_LOG is not set"); abort(); }
  return file;
}

int _cudaLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
  *library = (void *)code;
  return 0;
}

// A kernel's handle is its name.
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) { *kernel = strdup(name); return 0; }

int _cuKernelGetAttribute(int *value, int which, void *kernel, int device) { *value = 0; return 0; }
int _cudaFuncSetAttribute(void *kernel, int which, int value) { return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int which, int value, int device) { return 0; }
int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaDeviceGetAttribute(int *value, int which, int device) { *value = device_attribute(which); return 0; }

int cuda_dialect_init_library_once(void **library, int (*init)(void **), int (*load)(void **, int), void *unload) {
  if (*library) return 0;
  void *loaded = NULL;
  int error = init(&loaded);
  if (!error && load) error = load(&loaded, 0);
  if (!error) *library = loaded ? loaded : (void *)1;
  return error;
}
int cuda_dialect_unload_library_once(void **library, void *unload) { return 0; }

void CuteDSLRT_TVMFFISetRaisedCudaError(void *frame, int code) { fprintf(stderr, "shim: CUDA error %d raised\n", code); }

int _cudaLaunchKernelEx(config *launch, void *kernel, void **parameters) {
  FILE *out = open_log();
  dim3 cluster = {1, 1, 1};
  for (unsigned i = 0; i < launch->count; i++)
    if (launch->attributes[i].id == CLUSTER_DIMENSION) cluster = launch->attributes[i].value.dim;
  fprintf(out, "{\"entry\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"cluster\":[%u,%u,%u],\"shared_bytes\":%zu,",
          (char *)kernel, launch->grid.x, launch->grid.y, launch->grid.z, launch->block.x, launch->block.y,
          launch->block.z, cluster.x, cluster.y, cluster.z, launch->shared_bytes);
  fprintf(out, "\"params\":[");
  const char *sizes = getenv("SHIM_PARAM_BYTES");
  char *list = strdup(sizes ? sizes : ""), *rest = list;
  for (int i = 0; *rest; i++) {
    long bytes = strtol(rest, &rest, 10);
    if (*rest == ',') rest++;
    fprintf(out, "%s\"", i ? "," : "");
    for (long at = 0; at < bytes; at++) fprintf(out, "%02x", ((uint8_t *)parameters[i])[at]);
    fprintf(out, "\"");
  }
  free(list);
  fprintf(out, "]}\n");
  fclose(out);
  return 0;
}
