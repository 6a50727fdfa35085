// SPDX-License-Identifier: Apache-2.0
#include "plan/path.h"
#include <stdlib.h>
#include <string.h>

/* ---- levels ---- */

/* The architecture that a description stands for: its transport and its threads tell. */
static tsr_mesh_shape shape_of(const tsr_machine *m) {
  return (tsr_mesh_shape){
      .arch = m->threads    ? TSR_ARCH_CPU
              : m->has_nccl ? TSR_ARCH_CUDA
                            : TSR_ARCH_WORMHOLE_B0};
}

/* A level that has the name of a path is that path; others get their architecture's. */
static const char *name_of(const tsr_machine *m, const tsr_machine_link *link) {
  static const char *const names[] = {"shm", "pcie", "nvlink", "nvswitch", "ethernet", "ib"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(link->name, names[i])) return names[i];
  tsr_mesh_shape shape = shape_of(m);
  return tsr_mesh_path_name(&shape, link->within_host || m->threads > 0);
}

void tsr_path_levels(tsr_machine *m, const tsr_mesh *mesh) {
  m->paths_count = 0;
  if (!mesh || !mesh->file) {
    for (int l = 0; l < m->links_count; l++)
      m->paths[m->paths_count++] = (tsr_machine_path){
          name_of(m, &m->links[l]), m->links[l].devices, m->links[l].within_host};
    return;
  }
  bool several = mesh->hosts > 1;
  m->paths[m->paths_count++] = (tsr_machine_path){
      tsr_mesh_path_name(&mesh->shape, true), several ? mesh->shape.devices / mesh->shape.hosts : 0,
      true};
  if (several)
    m->paths[m->paths_count++] =
        (tsr_machine_path){tsr_mesh_path_name(&mesh->shape, false), 0, false};
}

/* ---- groups of tasks ---- */

int tsr_path_replicas(const tsr_program *p, const tsr_task *t) {
  const tsr_value *values = p->graph->values;
  if (!tsr_op_is_collective(t->op)) return 1;
  int before = values[t->inputs[0].value].placement[t->axis].groups;
  int after = t->outputs_count ? values[t->outputs[0].value].placement[t->axis].groups : 0;
  return before > 1 ? before : after > 1 ? after : 1;
}

tsr_machine_group
tsr_path_group(const tsr_parallel *parallel, const tsr_program *p, const tsr_task *t) {
  int axis = tsr_op_is_collective(t->op) ? t->axis : TSR_PP;
  int64_t stride = parallel->stride[axis] ? parallel->stride[axis] : 1;
  bool sums_copies = tsr_op_sums_members(t->op);
  int replicas = sums_copies ? 1 : tsr_path_replicas(p, t);
  return (tsr_machine_group){parallel->size[axis] / replicas, stride, parallel->ranks};
}

/* ---- ranks on levels ---- */

int64_t tsr_path_device(const tsr_machine *m, int64_t rank) {
  int64_t device = m->parts_count ? 0 : rank;
  for (int i = 0; i < m->parts_count; i++)
    device += rank / m->parts[i].stride % m->parts[i].size * m->parts[i].step;
  return device;
}

static bool joins(const tsr_machine_path *level, int64_t a, int64_t b) {
  return !level->devices || a / level->devices == b / level->devices;
}

/* The innermost level that joins two devices. */
static int level_of(const tsr_machine *m, int64_t a, int64_t b) {
  int l = 0;
  while (l < m->paths_count && !joins(&m->paths[l], a, b)) l++;
  return l;
}

static const char *level_name(const tsr_machine *m, int level) {
  return level >= 0 && level < m->paths_count ? m->paths[level].name : "";
}

/* If the members of a group are not all in one block, two neighbours are in different ones. */
const char *tsr_path_farthest(const tsr_machine *m, tsr_machine_group g) {
  int farthest = -1;
  for (int64_t r = 0; g.members > 1 && r < g.ranks && farthest < m->paths_count; r++) {
    if (r / g.stride % g.members == g.members - 1) continue;
    int level = level_of(m, tsr_path_device(m, r), tsr_path_device(m, r + g.stride));
    if (level > farthest) farthest = level;
  }
  return level_name(m, farthest);
}

/* The level that a host's devices share: the outermost one within hosts. */
static const tsr_machine_path *host_level(const tsr_machine *m) {
  const tsr_machine_path *host = NULL;
  for (int l = 0; l < m->paths_count; l++)
    if (m->paths[l].within_host) host = &m->paths[l];
  return host;
}

int64_t tsr_path_host_devices(const tsr_machine *m) {
  const tsr_machine_path *host = host_level(m);
  return host ? host->devices : 0;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Whether some members have different hosts, and some the same one. */
static bool
is_by_host(tsr_arena *arena, const tsr_machine *m, int64_t first, int64_t members, int64_t stride) {
  const tsr_machine_path *level = host_level(m);
  if (!level || !level->devices) return false;
  int64_t *hosts = tsr_arena_array(arena, int64_t, members);
  bool several = false, shared = false;
  for (int64_t i = 0; i < members; i++)
    hosts[i] = tsr_path_device(m, first + i * stride) / level->devices;
  qsort(hosts, (size_t)members, sizeof *hosts, compare);
  for (int64_t i = 1; i < members; i++) *(hosts[i] == hosts[i - 1] ? &shared : &several) = true;
  return several && shared;
}

tsr_path tsr_path_of(
    tsr_arena *arena, const tsr_machine *m, int64_t first, int64_t members, int64_t stride) {
  int farthest = -1;
  for (int64_t i = 1; i < members; i++) {
    int64_t from = tsr_path_device(m, first + (i - 1) * stride);
    int level = level_of(m, from, tsr_path_device(m, first + i * stride));
    if (level > farthest) farthest = level;
  }
  return (tsr_path){level_name(m, farthest), is_by_host(arena, m, first, members, stride)};
}
