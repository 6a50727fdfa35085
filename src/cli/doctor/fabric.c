// SPDX-License-Identifier: Apache-2.0
/* What connects GPUs and hosts: NVLink, InfiniBand, GPUDirect RDMA, and the libraries of one-sided
 * messages, which only the all-to-all of experts would use. */
#include "base/diag.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "cli/doctor/findings.h"
#include "device/cuda/plugin_abi.h"
#include <dlfcn.h>
#include <string.h>

void tsr_doctor_nvlink(tsr_findings *f) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES];
  int devices = 0, pairs = 0, linked = 0;
  const tsr_cuda_table *table = tsr_cuda_find(f->arena, &path, &tried);
  if (!table || !table->count(&devices, why)) devices = 0;
  for (int a = 0; a < devices; a++)
    for (int b = a + 1; b < devices; b++) {
      tsr_cuda_link link;
      pairs++;
      linked += table->link(a, b, &link, why) && link.nvlinks > 0;
    }
  if (linked) tsr_find(f, "nvlink", TSR_FOUND, "between %d of %d pairs of GPUs", linked, pairs);
  else if (pairs) tsr_find(f, "nvlink", TSR_MISSING, "%d GPUs, linked by PCIe", devices);
  else tsr_find(f, "nvlink", TSR_MISSING, "it links GPUs, of which there are %d", devices);
}

/* The first line of a file in /sys; "": there is none. */
static const char *read_line(tsr_arena *arena, const char *path) {
  enum { BYTES_MAX = 4096 };
  char *text;
  size_t length;
  if (!tsr_file_read(arena, path, BYTES_MAX, TSR_NOWHERE, &text, &length, tsr_diags_new(arena)))
    return "";
  text[strcspn(text, "\n")] = 0;
  return text;
}

/* "mlx5_0: 4: ACTIVE, 400 Gb/sec (4X NDR)" of each adapter's first port. */
void tsr_doctor_infiniband(tsr_findings *f) {
  static const char folder[] = "/sys/class/infiniband";
  DIR *adapters = tsr_disk_open_folder(folder);
  int count = 0;
  for (const struct dirent *e; adapters && (e = readdir(adapters));) {
    if (e->d_name[0] == '.') continue;
    const char *port = tsr_arena_printf(f->arena, "%s/%s/ports/1", folder, e->d_name);
    const char *state = read_line(f->arena, tsr_path_join(f->arena, port, "state"));
    const char *rate = read_line(f->arena, tsr_path_join(f->arena, port, "rate"));
    bool active = strstr(state, "ACTIVE") != NULL;
    tsr_find(
        f, "infiniband", active ? TSR_FOUND : TSR_MISMATCHED, "%s: %s, %s", e->d_name,
        *state ? state : "no port", *rate ? rate : "no rate");
    if (!active)
      tsr_find_remedy(f, "a port that is down: look at the cable and the subnet manager");
    count++;
  }
  if (adapters) closedir(adapters);
  if (!count)
    tsr_find(f, "infiniband", TSR_MISSING, "no adapter in %s: hosts talk by Ethernet", folder);
}

/* The kernel's module that lets an adapter read a GPU's memory. */
void tsr_doctor_gpudirect(tsr_findings *f) {
  static const char *const modules[] = {"nvidia_peermem", "nv_peer_mem"};
  for (int i = 0; i < 2; i++) {
    const char *path = tsr_arena_printf(f->arena, "/sys/module/%s", modules[i]);
    if (!tsr_file_exists(path)) continue;
    tsr_find(f, "gpudirect", TSR_FOUND, "RDMA by the kernel module %s", modules[i]);
    return;
  }
  tsr_find(
      f, "gpudirect", TSR_MISSING, "no kernel module nvidia_peermem: messages go through the host");
  tsr_find_remedy(f, "for GPUs with InfiniBand: modprobe nvidia-peermem");
}

void tsr_doctor_nvshmem(tsr_findings *f) {
  static const char *const names[] = {"libnvshmem_host.so.3", "libnvshmem_host.so.2"};
  for (int i = 0; i < 2; i++)
    if (dlopen(names[i], RTLD_NOW | RTLD_LOCAL)) {
      tsr_find(
          f, "nvshmem", TSR_FOUND, "%s; unused: dense models have no one-sided messages", names[i]);
      return;
    }
  tsr_find(f, "nvshmem", TSR_MISSING, "no %s; dense models do not use it", names[0]);
}

void tsr_doctor_deepep(tsr_findings *f) {
  tsr_find(
      f, "deepep", TSR_MISSING,
      "the all-to-all of experts over NVSHMEM; dense models do not use it");
}
