// SPDX-License-Identifier: Apache-2.0
/* libtessera-cuda.so: the table, and reports about drivers, devices and links. NVML and NCCL are
 * looked for when they are asked for: a host without them still has devices. */
#include "device/cuda/device.h"
#include "device/cuda/nccl.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

static void versions(int *ret_driver, int *ret_runtime) {
  *ret_driver = *ret_runtime = 0;
  if (cudaDriverGetVersion(ret_driver) != cudaSuccess) *ret_driver = 0;
  if (cudaRuntimeGetVersion(ret_runtime) != cudaSuccess) *ret_runtime = 0;
}

/* ---- devices ---- */

/* What the runtime's errors mean for whoever looks after the machine. */
static const char *what_to_do(cudaError_t error, int driver) {
  switch ((int)error) {
  case cudaErrorInsufficientDriver:
    return driver ? "install a newer driver, or a CUDA toolkit that this one knows and build again"
                  : "install NVIDIA's driver; a container needs the runtime that hands it on";
  case cudaErrorNoDevice:
    return "look at CUDA_VISIBLE_DEVICES, and at what nvidia-smi lists";
  case cudaErrorSystemNotReady:
    return "start nvidia-fabricmanager, of the driver's version";
  case cudaErrorSystemDriverMismatch:
    return "the kernel's module and the driver's library differ: load the module again, or reboot";
  case cudaErrorCompatNotSupportedOnDevice:
    return "remove CUDA's compat folder from the library path";
  case cudaErrorMemoryAllocation:
    return "another process may use the device (nvidia-smi shows which); a smaller batch_size, "
           "ZeRO or "
           "schedule.recompute: full needs less";
  case cudaErrorNoKernelImageForDevice:
    return "build again, with kernels for this device";
  }
  return "nvidia-smi and the kernel's log (dmesg | grep -i nvrm) report more";
}

bool cuda_fail(char *why, const char *what, int code) {
  cudaError_t error = (cudaError_t)code;
  int driver, runtime;
  versions(&driver, &runtime);
  cudaGetLastError(); /* it is told, and not to be met again */
  snprintf(
      why, TSR_CUDA_WHY_BYTES, "%s: %s (%s)\n%s", what, cudaGetErrorString(error),
      cudaGetErrorName(error), what_to_do(error, driver));
  return false;
}

static bool count(int *ret_count, char *why) {
  cudaError_t error = cudaGetDeviceCount(ret_count);
  if (error == cudaSuccess) return true;
  *ret_count = 0;
  return cuda_fail(why, "no device", error);
}

bool cuda_describe(int device, tsr_cuda_device *ret, char *why) {
  struct cudaDeviceProp p;
  *ret = (tsr_cuda_device){.name = ""};
  cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(ret->pci, sizeof ret->pci, device);
  if (error != cudaSuccess) return cuda_fail(why, "its properties", error);
  snprintf(ret->name, sizeof ret->name, "%.*s", (int)sizeof ret->name - 1, p.name);
  ret->major = p.major;
  ret->minor = p.minor;
  ret->processors = p.multiProcessorCount;
  ret->bytes = (int64_t)p.totalGlobalMem;
  size_t unused, all;
  error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaMemGetInfo(&unused, &all);
  if (error != cudaSuccess) return cuda_fail(why, "its memory", error);
  ret->bytes_free = (int64_t)unused;
  return true;
}

/* A sum over many ranks has more than 4 KiB of parameters (kernels/cuda/collective.cu). */
enum { DRIVER_FOR_LARGE_PARAMETERS = 12010 };

bool cuda_fits(const tsr_cuda_device *d, char *why) {
  int driver, runtime;
  versions(&driver, &runtime);
  if (driver < DRIVER_FOR_LARGE_PARAMETERS) {
    snprintf(
        why, TSR_CUDA_WHY_BYTES,
        "the driver knows CUDA %d.%d: kernels with more than 4 KiB of parameters need 12.1\n"
        "install a driver of version 530 or later",
        driver / 1000, driver / 10 % 100);
    return false;
  }
  if (d->major >= 8) return true;
  snprintf(
      why, TSR_CUDA_WHY_BYTES,
      "sm_%d%d: kernels are for sm_80 (A100) and later\nrun on the CPU, or on a newer device",
      d->major, d->minor);
  return false;
}

/* ---- links, by NVML ---- */

/* NVML's interface is stable, and its header is not in every toolkit. */
typedef void *nvml_device;
enum { NVML_SUCCESS = 0, NVML_P2P_NVLINK = 2, NVML_P2P_OK = 0, NVML_LINKS_MAX = 18 };

typedef struct {
  int (*init)(void);
  int (*by_pci)(const char *pci, nvml_device *ret);
  int (*p2p)(nvml_device a, nvml_device b, int index, int *ret_status);
  int (*ancestor)(nvml_device a, nvml_device b, int *ret_level);
  int (*link_state)(nvml_device d, unsigned link, int *ret_active);
} nvml;

static bool open_nvml(nvml *ret) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  *(void **)&ret->init = dlsym(library, "nvmlInit_v2");
  *(void **)&ret->by_pci = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
  *(void **)&ret->p2p = dlsym(library, "nvmlDeviceGetP2PStatus");
  *(void **)&ret->ancestor = dlsym(library, "nvmlDeviceGetTopologyCommonAncestor");
  *(void **)&ret->link_state = dlsym(library, "nvmlDeviceGetNvLinkState");
  return ret->init && ret->by_pci && ret->p2p && ret->ancestor && ret->link_state &&
         ret->init() == NVML_SUCCESS;
}

static const char *name_of_level(int level) {
  static const struct {
    int level;
    const char *name;
  } names[] = {{0, "PIX"}, {10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].level == level) return names[i].name;
  return "?";
}

static int active_links(const nvml *n, nvml_device d) {
  int links = 0;
  for (unsigned i = 0; i < NVML_LINKS_MAX; i++) {
    int active = 0;
    if (n->link_state(d, i, &active) == NVML_SUCCESS && active) links++;
  }
  return links;
}

static void ask_nvml(const char *from, const char *to, tsr_cuda_link *ret) {
  nvml n;
  nvml_device a, b;
  int status, level;
  if (!open_nvml(&n) || n.by_pci(from, &a) != NVML_SUCCESS || n.by_pci(to, &b) != NVML_SUCCESS)
    return;
  if (n.p2p(a, b, NVML_P2P_NVLINK, &status) == NVML_SUCCESS && status == NVML_P2P_OK)
    ret->nvlinks = active_links(&n, a);
  if (ret->nvlinks) snprintf(ret->path, sizeof ret->path, "NV%d", ret->nvlinks);
  else if (n.ancestor(a, b, &level) == NVML_SUCCESS)
    snprintf(ret->path, sizeof ret->path, "%s", name_of_level(level));
}

static bool find_link(int from, int to, tsr_cuda_link *ret, char *why) {
  char a[32], b[32];
  int there = 0, back = 0;
  *ret = (tsr_cuda_link){.path = "?"};
  cudaError_t error = cudaDeviceCanAccessPeer(&there, from, to);
  if (error == cudaSuccess) error = cudaDeviceCanAccessPeer(&back, to, from);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(a, sizeof a, from);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(b, sizeof b, to);
  if (error != cudaSuccess) return cuda_fail(why, "the link between two devices", error);
  ret->peers = there && back;
  ask_nvml(a, b, ret);
  return true;
}

extern const tsr_cuda_table tsr_cuda_entry;
__attribute__((visibility("default"))) const tsr_cuda_table tsr_cuda_entry = {
    .head = {TSR_CUDA_ABI, sizeof(tsr_cuda_table), "cuda"},
    .layout = TSR_CUDA_LAYOUT,
    .built_cuda = CUDART_VERSION,
    .built_nccl = NCCL_VERSION_CODE,
    .versions = versions,
    .count = count,
    .describe = cuda_describe,
    .link = find_link,
    .fits = cuda_fits,
    .nccl = cuda_nccl_ask,
    .open = cuda_device_open,
    .close = cuda_device_close,
    .join = cuda_device_join};
