/* Which machine a plan is for. */
#include "plan/machine.h"

/* The shipped description that a mesh's devices come closest to. */
static const char *name_of_arch(tsr_mesh_arch arch) {
  switch (arch) {
  case TSR_ARCH_CPU:
    return "cpu";
  case TSR_ARCH_WORMHOLE_B0:
    return "galaxy";
  case TSR_ARCH_BLACKHOLE:
  case TSR_ARCH_CUDA:
    break;
  }
  return "h100";
}

bool tsr_machine_choose(
    tsr_arena *arena, const char *share_folder, const char *option, tsr_mesh_arch arch,
    tsr_machine **ret_machine, const char **ret_why, tsr_diags *diags) {
  const char *path, *name = option ? option : name_of_arch(arch);
  *ret_why = option ? "named by --machine"
                    : tsr_arena_printf(
                          arena, "for a mesh of %s devices; --machine names another",
                          tsr_mesh_arch_name(arch));
  return tsr_machine_find(arena, share_folder, name, TSR_NOWHERE, &path, diags) &&
         tsr_machine_read(arena, path, TSR_NOWHERE, ret_machine, diags);
}
