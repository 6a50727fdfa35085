// SPDX-License-Identifier: Apache-2.0
/* The CUDA plugin, libtessera-cuda.so: what the program asks of it. A host without CUDA runs the
 * same program without the plugin. */
#ifndef TSR_DEVICE_CUDA_PLUGIN_ABI_H
#define TSR_DEVICE_CUDA_PLUGIN_ABI_H
#include "base/plugin.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "schedule/target.h"

enum { TSR_CUDA_ABI = 6, TSR_CUDA_WHY_BYTES = TSR_DEVICE_WHY_BYTES, TSR_CUDA_UNIQUE_BYTES = 128 };
#define TSR_CUDA_ENTRY "tsr_cuda_entry"
/* The program and the plugin read the same programs: structs of other sizes, or
 * other ops, are of another build. */
#define TSR_CUDA_LAYOUT                                                                            \
  (sizeof(tsr_program) + 1009 * sizeof(tsr_graph) + 2003 * sizeof(tsr_node) +                      \
   3001 * sizeof(tsr_task) + 4001 * sizeof(tsr_tensor) + 5003 * sizeof(tsr_launch) +               \
   6007 * sizeof(tsr_rank_memory) + 7001 * sizeof(tsr_device) + 8009 * sizeof(tsr_kernels) +       \
   9001 * (size_t)TSR_OPS)

/* One visible device. */
typedef struct {
  char name[128], pci[32]; /* pci: "0000:1b:00.0" */
  int major, minor;        /* of its compute capability */
  int processors;
  int64_t bytes, bytes_free;
} tsr_cuda_device;

/* A device for a process. `lost` is called with a report when a task or the device fails, and does
 * not return. */
typedef struct {
  int number; /* of the visible ones */
  bool fast;  /* policy fast */
  void (*lost)(void *context, const char *report);
  void *context;
} tsr_cuda_request;

/* The job whose processes' devices are to reach each other. */
typedef struct {
  int process, processes;
  const char *id;   /* process 0's, by `nccl` */
  double timeout_s; /* the longest that nothing may come; 0: for ever */
} tsr_cuda_job;

/* How two devices reach each other, as `nvidia-smi topo -m` calls it. */
typedef struct {
  int nvlinks;  /* active ones of the first, wherever they lead; 0: none between them */
  bool peers;   /* each reads and writes the other's memory */
  char path[8]; /* "NV18", else "PIX", "PXB", "PHB", "NODE" or "SYS"; "?": unknown to NVML */
} tsr_cuda_link;

typedef struct tsr_cuda_table {
  tsr_plugin_head head;
  uint64_t layout;            /* TSR_CUDA_LAYOUT */
  int built_cuda, built_nccl; /* versions of their headers: 13000, 22809 */

  /* The versions found, in the library's numbering; 0 if there is none. Never fails. */
  void (*versions)(int *ret_driver, int *ret_runtime);
  /* How many devices are visible; `why` (TSR_CUDA_WHY_BYTES) gets the reason of a failure, and what
   * to do about it after a newline. */
  bool (*count)(int *ret_count, char *why);
  bool (*describe)(int device, tsr_cuda_device *ret_device, char *why);
  bool (*link)(int from, int to, tsr_cuda_link *ret_link, char *why);
  /* Whether a device can run what the plugin holds. */
  bool (*fits)(const tsr_cuda_device *device, char *why);
  /* NCCL's version, and an id of a job (TSR_CUDA_UNIQUE_BYTES), which needs no device but listens
   * from now on; NULL: none is wanted. */
  bool (*nccl)(int *ret_version, char *ret_id, char *why);

  /* Computing. `why` as above. */
  bool (*open)(const tsr_cuda_request *request, const tsr_device **ret_device, char *why);
  void (*close)(const tsr_device *device);
  /* All processes together: from now on the device forms communicators. */
  bool (*join)(const tsr_device *device, const tsr_cuda_job *job, char *why);
} tsr_cuda_table;

/* Whether an NVIDIA driver is installed, asked without the plugin, whose libraries are large. */
bool tsr_cuda_has_driver(void);

/* Programs for a CUDA device, with or without the plugin. The host runs what the device does not;
 * the target points to it. With `offloads` that are also the updates, on optimizer state in a file.
 */
tsr_target tsr_cuda_target(const tsr_target *host, bool fast, bool offloads);

/* NULL: each path that was tried with its reason (base/plugin.h). */
const tsr_cuda_table *
tsr_cuda_find(tsr_arena *arena, const char **ret_path, const char **ret_tried);

#endif
