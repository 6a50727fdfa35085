// SPDX-License-Identifier: Apache-2.0
#include "comm/transport.h"
#include "base/plugin.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name, *title;
  const char *packages; /* that Debian has it in */
} library;

static const library libraries[] = {
    {"openmpi", "Open MPI", "openmpi-bin and libopenmpi-dev"},
    {"mpich", "MPICH", "mpich and libmpich-dev"},
};
enum { OPENMPI, MPICH };

/* What started this process. */
typedef struct {
  const library *library; /* NULL: it is alone */
  const char *by;         /* the variable: "PMI_SIZE=4" */
  const char *count_by;   /* what `processes` is from; `by` unless the user chose the library */
  int processes;          /* 0: unknown */
} launch;

static bool read_count(tsr_arena *arena, const char *variable, launch *l, tsr_diags *diags) {
  const char *text = getenv(variable);
  char *end;
  errno = 0;
  long count = strtol(text, &end, 10);
  if (end == text || *end || errno || count < 1 || count > INT_MAX)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "%s is '%s', which is no number of processes", variable, text);
  l->processes = (int)count;
  l->by = l->count_by = tsr_arena_printf(arena, "%s=%s", variable, text);
  return true;
}

/* srun without a PMI gives every process the same environment as one that is alone has, but for
 * this. */
static bool check_bare_srun(tsr_arena *arena, launch *l, tsr_diags *diags) {
  if (!getenv("SLURM_STEP_NUM_TASKS")) return true;
  if (!read_count(arena, "SLURM_STEP_NUM_TASKS", l, diags)) return false;
  if (l->processes == 1) return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "srun started %d processes (%s) that cannot find each other",
      l->processes, l->by);
  tsr_diag_hint(diags, "srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)");
  tsr_diag_hint(diags, "TESSERA_TRANSPORT=none: each is meant to be alone");
  return false;
}

/* MPICH's mpirun may itself come by srun --mpi=pmix, whose variables its processes then have too:
 * so its own are asked first. */
static bool read_launcher(tsr_arena *arena, launch *l, tsr_diags *diags) {
  *l = (launch){.by = "no launcher"};
  if (getenv("OMPI_COMM_WORLD_SIZE")) {
    l->library = &libraries[OPENMPI];
    return read_count(arena, "OMPI_COMM_WORLD_SIZE", l, diags);
  }
  if (getenv("PMI_RANK") && getenv("PMI_SIZE")) {
    l->library = &libraries[MPICH];
    return read_count(arena, "PMI_SIZE", l, diags);
  }
  const char *rank = getenv("PMIX_RANK");
  if (!rank) return check_bare_srun(arena, l, diags);
  l->library = &libraries[OPENMPI];
  if (getenv("SLURM_STEP_NUM_TASKS") && !read_count(arena, "SLURM_STEP_NUM_TASKS", l, diags))
    return false;
  l->by = tsr_arena_printf(
      arena, "PMIX_RANK=%s%s%s", rank, l->count_by ? " and " : "", l->count_by ? l->count_by : "");
  return true;
}

static const char *const names[] = {"openmpi", "mpich", "none"};
enum { NAMES = sizeof names / sizeof *names };

bool tsr_transport_is_name(const char *text) {
  for (int i = 0; i < NAMES; i++)
    if (!strcmp(text, names[i])) return true;
  return false;
}

bool tsr_transport_has_launcher(void) {
  return getenv("OMPI_COMM_WORLD_SIZE") || (getenv("PMI_RANK") && getenv("PMI_SIZE")) ||
         getenv("PMIX_RANK");
}

static bool find_launcher(tsr_arena *arena, launch *ret_launch, tsr_diags *diags) {
  const char *request = getenv("TESSERA_TRANSPORT");
  if (!request || !*request) return read_launcher(arena, ret_launch, diags);
  const char *by = tsr_arena_printf(arena, "TESSERA_TRANSPORT=%s", request);
  if (!strcmp(request, "none")) {
    *ret_launch = (launch){.by = by};
    return true;
  }
  for (int i = 0; i < (int)(sizeof libraries / sizeof *libraries); i++) {
    if (strcmp(request, libraries[i].name)) continue;
    *ret_launch = (launch){0};
    if (tsr_transport_has_launcher() && !read_launcher(arena, ret_launch, diags)) return false;
    ret_launch->library = &libraries[i];
    if (ret_launch->processes != 1) ret_launch->by = by;
    return true;
  }
  tsr_diag_error(diags, TSR_NOWHERE, "TESSERA_TRANSPORT is '%s', which is no transport", request);
  tsr_diag_nearest(diags, request, names, NAMES);
  return read_launcher(arena, ret_launch, diags); /* the others may wait for this process */
}

static const tsr_transport_table *find_plugin(tsr_arena *arena, const launch *l, tsr_diags *diags) {
  const char *path, *tried;
  const tsr_plugin_request request = {
      l->library->name, TSR_TRANSPORT_ENTRY, TSR_TRANSPORT_ABI, sizeof(tsr_transport_table)};
  const tsr_transport_table *table = tsr_plugin_find(arena, &request, &path, &tried);
  if (table) return table;
  tsr_diag_failure(
      diags, TSR_NOWHERE, "%s asks for %s, but no libtessera-%s.so can be loaded", l->by,
      l->library->title, l->library->name);
  tsr_diag_hint(diags, "tried:%s", tried);
  tsr_diag_hint(
      diags,
      "install Debian's %s (scripts/setup --cluster does), then build the plugin: scripts/build "
      "-D%s=enabled",
      l->library->packages, l->library->name);
  tsr_diag_hint(diags, "TESSERA_TRANSPORT=none: this process is meant to be alone");
  return NULL;
}

int tsr_transport_launched(tsr_arena *arena) {
  launch l;
  bool ok = find_launcher(arena, &l, tsr_diags_new(arena));
  return ok && l.processes > 1 ? l.processes : 1;
}

int tsr_transport_started(tsr_arena *arena) {
  launch l;
  bool ok = read_launcher(arena, &l, tsr_diags_new(arena));
  return ok && l.processes > 1 ? l.processes : 1;
}

static bool join(tsr_arena *arena, tsr_transport *ret_transport, tsr_diags *diags) {
  launch l;
  *ret_transport = (tsr_transport){.processes = 1};
  if (!find_launcher(arena, &l, diags)) return false;
  ret_transport->why = l.by;
  if (!l.library || l.processes == 1) return true;
  tsr_transport t = {.table = find_plugin(arena, &l, diags)};
  if (!t.table) return false;

  char why[TSR_WHY_BYTES] = "";
  if (!t.table->open(&t.state, &t.process, &t.processes, why))
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot join the job by %s (%s): %s", l.library->title, l.by, why);
  const char *version = tsr_arena_strdup(arena, t.table->version(t.state));
  t.why = tsr_arena_printf(arena, "%s, by %s", version, l.by);
  if (t.processes != 1 && (!l.processes || t.processes == l.processes)) {
    *ret_transport = t;
    return true;
  }
  int processes = t.processes;
  tsr_transport_close(&t);
  if (l.processes) {
    tsr_diag_failure(
        diags, TSR_NOWHERE, "%s: there are %d processes, but %s sees %d", l.count_by, l.processes,
        version, processes);
    tsr_diag_hint(
        diags, "another MPI's launcher started them, or one that has no PMI for %s",
        l.library->title);
    return false;
  }
  ret_transport->why = tsr_arena_printf(arena, "%s has one process, by %s", version, l.by);
  return true;
}

bool tsr_transport_open(tsr_arena *arena, tsr_transport *ret_transport, tsr_diags *diags) {
  int before = tsr_diags_errors(diags);
  return join(arena, ret_transport, diags) && tsr_diags_errors(diags) == before;
}

void tsr_transport_close(tsr_transport *transport) {
  if (transport->table) transport->table->close(transport->state);
  *transport = (tsr_transport){.processes = 1, .why = transport->why};
}
