// SPDX-License-Identifier: Apache-2.0
/* The architectures of devices: their names and limits. */
#include "mesh/mesh_internal.h"

const char *tsr_mesh_arch_name(tsr_mesh_arch arch) {
  switch (arch) {
  case TSR_ARCH_WORMHOLE_B0:
    return "WORMHOLE_B0";
  case TSR_ARCH_BLACKHOLE:
    return "BLACKHOLE";
  case TSR_ARCH_CPU:
    return "CPU";
  case TSR_ARCH_CUDA:
    return "CUDA";
  }
  return "INVALID_ARCHITECTURE";
}

static bool is_pcie(const tsr_mesh_shape *shape) {
  bool ring = false;
  for (int i = 0; i < shape->ndim; i++)
    ring |= shape->dims[i] > 1 && shape->dim_types[i] == TSR_MESH_RING;
  return shape->channels.count == 1 && !ring;
}

const char *tsr_mesh_path_name(const tsr_mesh_shape *shape, bool within_host) {
  switch (shape->arch) {
  case TSR_ARCH_WORMHOLE_B0:
  case TSR_ARCH_BLACKHOLE:
    return "ethernet";
  case TSR_ARCH_CPU:
    return within_host ? "shm" : "ib";
  case TSR_ARCH_CUDA:
    break;
  }
  if (!within_host) return "ib";
  return is_pcie(shape) ? "pcie" : "nvlink";
}

int tsr_mesh_arch_dims_max(int arch) {
  switch (arch) {
  case TSR_ARCH_WORMHOLE_B0:
    return 2;
  case TSR_ARCH_BLACKHOLE:
    return 3;
  case TSR_ARCH_CPU:
  case TSR_ARCH_CUDA:
    return TSR_MESH_DIMS_MAX;
  default:
    return 0;
  }
}
