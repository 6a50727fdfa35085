/* The CUDA plugin, libtessera-cuda.so: what the program asks of it. A host without CUDA runs the
 * same program without the plugin. */
#ifndef TSR_DEVICE_CUDA_H
#define TSR_DEVICE_CUDA_H
#include "base/plugin.h"
#include <stdbool.h>
#include <stdint.h>

enum { TSR_CUDA_ABI = 1, TSR_CUDA_WHY_BYTES = 512, TSR_CUDA_UNIQUE_BYTES = 128 };
#define TSR_CUDA_ENTRY "tsr_cuda_entry"

/* One visible device. */
typedef struct {
  char name[128], pci[32]; /* pci: "0000:1b:00.0" */
  int major, minor;        /* of its compute capability */
  int processors;
  int64_t bytes, bytes_free;
} tsr_cuda_device;

/* How two devices reach each other, as `nvidia-smi topo -m` calls it. */
typedef struct {
  int nvlinks;  /* of the first one, active; 0: they have none between them */
  bool peers;   /* each reads and writes the other's memory */
  char path[8]; /* "NV18", else "PIX", "PXB", "PHB", "NODE" or "SYS"; "?": NVML does not say */
} tsr_cuda_link;

typedef struct {
  tsr_plugin_head head;
  int built_cuda, built_nccl; /* versions of their headers: 13000, 22809 */

  /* What is there; the library's own numbers, 0 where there is none. Never fails. */
  void (*versions)(int *ret_driver, int *ret_runtime);
  /* How many devices are visible; `why` (TSR_CUDA_WHY_BYTES) gets the reason of a failure, and what
   * to do about it after a newline. */
  bool (*count)(int *ret_count, char *why);
  bool (*describe)(int device, tsr_cuda_device *ret_device, char *why);
  bool (*link)(int from, int to, tsr_cuda_link *ret_link, char *why);
  /* Whether a device can run what the plugin holds. */
  bool (*fits)(const tsr_cuda_device *device, char *why);
  /* NCCL's version, and an id of a group, which needs no device. */
  bool (*nccl)(int *ret_version, char ret_id[TSR_CUDA_UNIQUE_BYTES], char *why);
} tsr_cuda_table;

/* NULL: each path that was tried with its reason (base/plugin.h). */
const tsr_cuda_table *
tsr_cuda_find(tsr_arena *arena, const char **ret_path, const char **ret_tried);

#endif
