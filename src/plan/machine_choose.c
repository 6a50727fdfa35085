// SPDX-License-Identifier: Apache-2.0
/* Which machine a plan is for, and how a mesh descriptor's hosts lie in it. */
#include "plan/path.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* The shipped description that a mesh's devices come closest to. */
static const char *name_of_arch(tsr_mesh_arch arch) {
  switch (arch) {
  case TSR_ARCH_CPU:
    return "cpu";
  case TSR_ARCH_WORMHOLE_B0:
    return "galaxy";
  case TSR_ARCH_BLACKHOLE:
    return "blackhole";
  case TSR_ARCH_CUDA:
    break;
  }
  return "h100";
}

/* Of a descriptor H200X8_4 the machine h200: the name ends before anything but a digit. */
static const char *
name_in_descriptor(tsr_arena *arena, const char *share_folder, const tsr_mesh *mesh) {
  const char **names, *of = mesh->file ? mesh->shape.name : "";
  int count = tsr_machine_list(arena, share_folder, &names);
  for (int i = 0; i < count; i++) {
    size_t n = strlen(names[i]);
    if (!strncasecmp(of, names[i], n) && !isdigit((unsigned char)of[n])) return names[i];
  }
  return NULL;
}

/* Numbers the devices host by host, each host's block of the mesh and the hosts themselves
 * row-major. */
static void number_devices(tsr_machine *m, const tsr_mesh *mesh) {
  const tsr_mesh_shape *s = &mesh->shape;
  int64_t stride = 1, in_host = 1, host = s->devices / s->hosts;
  m->parts_count = 0;
  for (int i = s->ndim - 1; i >= 0; i--) {
    int64_t block = s->dims[i] / s->host_dims[i], hosts = s->host_dims[i];
    m->parts[m->parts_count++] = (tsr_machine_part){stride, block, in_host};
    m->parts[m->parts_count++] = (tsr_machine_part){stride * block, hosts, host};
    stride *= block * hosts, in_host *= block, host *= hosts;
  }
  m->parts[m->parts_count++] = (tsr_machine_part){stride, mesh->meshes, s->devices};
}

/* Returns the level that has become smaller, or NULL. */
static const tsr_machine_link *lay_hosts(tsr_machine *m, int64_t devices) {
  const tsr_machine_link *changed = NULL;
  for (int l = 0; l < m->links_count; l++) {
    tsr_machine_link *link = &m->links[l];
    if (link->within_host && (!link->devices || link->devices > devices)) {
      link->devices = devices;
      changed = link;
    } else if (l && link->devices) { /* whole blocks of the level inside it */
      link->devices -= link->devices % link[-1].devices;
    }
  }
  return changed;
}

bool tsr_machine_choose(
    tsr_arena *arena, const char *share_folder, const char *option, const tsr_mesh *mesh,
    tsr_machine **ret_machine, const char **ret_why, tsr_diags *diags) {
  const char *path, *arch = tsr_mesh_arch_name(mesh->shape.arch);
  const char *found = option ? NULL : name_in_descriptor(arena, share_folder, mesh);
  const char *name = option ? option : found ? found : name_of_arch(mesh->shape.arch);
  bool guessed = !option && !found && !strcmp(name, "h100");
  *ret_why =
      option  ? "named by --machine"
      : found ? tsr_arena_printf(
                    arena, "for the descriptor '%s'; --machine names another", mesh->shape.name)
      : guessed
          ? tsr_arena_printf(arena, "assumed; --machine selects the %s devices", arch)
          : tsr_arena_printf(arena, "for a mesh of %s devices; --machine names another", arch);
  if (!tsr_machine_find(arena, share_folder, name, TSR_NOWHERE, &path, diags) ||
      !tsr_machine_read(arena, path, TSR_NOWHERE, ret_machine, diags))
    return false;
  tsr_path_levels(*ret_machine, mesh);
  if (mesh->hosts <= 1) return true;
  int64_t devices = mesh->shape.devices / mesh->shape.hosts;
  number_devices(*ret_machine, mesh);
  const tsr_machine_link *changed = lay_hosts(*ret_machine, devices);
  if (changed)
    *ret_why = tsr_arena_printf(
        arena, "%s; %s joins %lld, as the descriptor's hosts have them", *ret_why, changed->name,
        (long long)devices);
  return true;
}
