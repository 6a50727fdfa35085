// SPDX-License-Identifier: Apache-2.0
/* The host: its cores, and what starts several processes of the program. */
#include "base/file_read.h"
#include "base/plugin.h"
#include "comm/transport.h"
#include "cli/doctor/findings.h"
#include "device/cpu/thread_pool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tsr_doctor_cpu(tsr_findings *f) {
  const char *others = "";
  for (const char *const *level = tsr_kernels_levels(); *level; level++)
    if (strcmp(*level, f->kernels->isa) && tsr_kernels_get(*level))
      others = tsr_arena_printf(f->arena, "%s%s%s", others, *others ? ", " : "", *level);
  const tsr_kernels *bf16 = tsr_kernels_get_for_bf16();
  bool differs = strcmp(bf16->isa, tsr_kernels_get(NULL)->isa) != 0;
  tsr_find(
      f, "cpu", TSR_FOUND, "%d of %ld cores for this process, level %s%s%s%s%s%s", tsr_pool_cores(),
      sysconf(_SC_NPROCESSORS_ONLN), f->kernels->isa, differs ? ", " : "", differs ? bf16->isa : "",
      differs ? " in bf16" : "", *others ? "; numerics.isa may also be " : "", others);
}

/* The first program of that name in PATH, or NULL. */
static const char *find_program(tsr_arena *arena, const char *name) {
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t length = strcspn(path, ":");
    const char *folder = tsr_arena_strndup(arena, path, length);
    const char *file = tsr_path_join(arena, *folder ? folder : ".", name);
    if (!access(file, X_OK)) return file;
    path += length + (path[length] == ':');
  }
  return NULL;
}

static void ask_mpi(tsr_findings *f, const char *name, const char *packages) {
  const tsr_plugin_request request = {
      name, TSR_TRANSPORT_ENTRY, TSR_TRANSPORT_ABI, sizeof(tsr_transport_table)};
  const char *path, *tried, *own = tsr_arena_printf(f->arena, "mpirun.%s", name),
                            *launcher = find_program(f->arena, own);
  const void *plugin = tsr_plugin_find(f->arena, &request, &path, &tried);
  if (!launcher) launcher = find_program(f->arena, "mpirun");
  if (plugin && launcher) {
    tsr_find(f, name, TSR_FOUND, "%s\nstarted by %s", path, launcher);
    return;
  }
  if (plugin) tsr_find(f, name, TSR_MISMATCHED, "%s, but no mpirun in PATH", path);
  else tsr_find(f, name, TSR_MISSING, "no libtessera-%s.so; tried:%s", name, tried);
  tsr_find_remedy(
      f, tsr_arena_printf(
             f->arena,
             "for jobs of several processes: install Debian's %s, then scripts/build -D%s=enabled",
             packages, name));
}

void tsr_doctor_openmpi(tsr_findings *f) {
  ask_mpi(f, "openmpi", "openmpi-bin and libopenmpi-dev");
}
void tsr_doctor_mpich(tsr_findings *f) { ask_mpi(f, "mpich", "mpich and libmpich-dev"); }

void tsr_doctor_slurm(tsr_findings *f) {
  const char *srun = find_program(f->arena, "srun");
  if (srun) tsr_find(f, "slurm", TSR_FOUND, "%s", srun);
  else tsr_find(f, "slurm", TSR_MISSING, "no srun in PATH: jobs are started by mpirun");
}
