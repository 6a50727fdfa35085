// SPDX-License-Identifier: Apache-2.0
/* The device that this process computes on: the host's cores, or one of its GPUs. */
#include "job/compute_device.h"
#include "comm/peers.h"
#include "device/cuda/plugin_abi.h"
#include "runtime/device_communicators.h"
#include "device/cpu/thread_pool.h"
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- the host's part, which every process has ---- */

/* Levels that the program has may be another machine's. */
static bool refuse_level(tsr_diags *diags, tsr_location location, const char *by, const char *isa) {
  const char *here[16];
  int count = 0, most = sizeof here / sizeof *here;
  bool is_known = false;
  for (const char *const *level = tsr_kernels_levels(); *level; level++) {
    is_known |= !strcmp(*level, isa);
    if (count < most && tsr_kernels_get(*level)) here[count++] = *level;
  }
  tsr_diag_error(diags, location, "%sthis machine does not run the level '%s'", by, isa);
  tsr_diag_nearest(diags, is_known ? "" : isa, here, count);
  return false;
}

bool tsr_compute_check_level(tsr_diags *diags) {
  const char *level = tsr_kernels_requested();
  return !level || tsr_kernels_get(level) ||
         refuse_level(diags, TSR_NOWHERE, "TESSERA_ISA: ", level);
}

typedef struct {
  char host[TSR_HOST_BYTES];
  cpu_set_t cores;
} affinity;

int tsr_compute_threads(tsr_job *job) {
  int cores = tsr_pool_cores(), sharing = 0;
  if (tsr_job_is_alone(job)) return cores;
  affinity mine = {{0}}, *all = tsr_arena_array(job->arena, affinity, job->transport.processes);
  gethostname(mine.host, sizeof mine.host - 1);
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores)) return 1;
  if (!tsr_job_gather(job, &mine, sizeof mine, all)) return 1;
  for (int p = 0; p < job->transport.processes; p++)
    sharing += !strcmp(all[p].host, mine.host) && CPU_EQUAL(&all[p].cores, &mine.cores);
  return cores / sharing > 0 ? cores / sharing : 1;
}

bool tsr_compute_choose_cpu(tsr_job *job, const tsr_config *config, tsr_compute *compute) {
  const char *isa = config && config->numerics.isa[0] ? config->numerics.isa : NULL;
  int64_t threads = config ? config->numerics.threads : 0;
  bool bf16 = config && config->training.precision == TSR_PRECISION_BF16;
  compute->kernels = bf16 && !isa ? tsr_kernels_get_for_bf16() : tsr_kernels_get(isa);
  if (!compute->kernels)
    return refuse_level(job->diags, tsr_config_location(config, "numerics.isa"), "", isa);
  compute->arch = compute->kernels->isa;
  compute->cpu =
      (tsr_cpu_context){compute->kernels, threads > 0 ? (int)threads : tsr_compute_threads(job)};
  return true;
}

/* ---- which kind ---- */

static tsr_location place_of_device(const tsr_config *config) {
  return tsr_config_location(config, "device_config.device");
}

/* `why` has the reason of a failure, and perhaps what to do about it after a newline. */
static bool refuse(tsr_diags *diags, tsr_location location, const char *what, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_diag_failure(diags, location, "%s: %s", what, why);
  if (remedy) tsr_diag_hint(diags, "%s", remedy);
  tsr_diag_hint(diags, "`tessera-train doctor` shows what is there; device: cpu needs no GPU");
  return false;
}

static bool refuse_plugin(tsr_diags *diags, tsr_location location, const char *tried) {
  tsr_diag_failure(diags, location, "the device is cuda, but no libtessera-cuda.so can be loaded");
  tsr_diag_hint(diags, "tried:%s", tried);
  tsr_diag_hint(
      diags, "install the CUDA toolkit, then build the plugin: scripts/build -Dcuda=enabled");
  tsr_diag_hint(diags, "device: cpu needs no GPU");
  return false;
}

static bool note_cpu(tsr_diags *diags, tsr_location location, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_diag_note(diags, location, "there is an NVIDIA driver, but %s: the CPU computes", why);
  if (remedy) tsr_diag_hint(diags, "%s", remedy);
  return true;
}

/* `auto` is the CPU where no CUDA device can be used. */
static bool choose_auto(tsr_job *job, tsr_location location, tsr_compute *compute) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES];
  int count = 0;
  if (!tsr_cuda_has_driver()) return true;
  const tsr_cuda_table *table = tsr_cuda_find(job->arena, &path, &tried);
  if (table && table->count(&count, why)) {
    if (count > 0) compute->cuda = table;
    return true;
  }
  if (table) return note_cpu(job->diags, location, why);
  tsr_diag_note(
      job->diags, location,
      "there is an NVIDIA driver, but no libtessera-cuda.so: the CPU computes");
  tsr_diag_hint(job->diags, "tried:%s", tried);
  return true;
}

static bool choose_cuda(tsr_job *job, tsr_location location, bool computes, tsr_compute *compute) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES] = "none is visible\nlook at CUDA_VISIBLE_DEVICES";
  int count = 0;
  compute->cuda = tsr_cuda_find(job->arena, &path, &tried);
  if (!computes) return true;
  if (!compute->cuda) return refuse_plugin(job->diags, location, tried);
  return (compute->cuda->count(&count, why) && count > 0) ||
         refuse(job->diags, location, "the device is cuda", why);
}

/* GPUs compute in bf16, with f32 parameters, unless the configuration names a precision. */
static void use_gpu_precision(tsr_config *config) {
  tsr_config_training *t = &config->training;
  if (tsr_config_location(config, "training_config.precision").file ||
      tsr_config_location(config, "training_config.mixed_precision").file)
    return;
  t->precision = TSR_PRECISION_BF16;
  t->mixed_precision = true;
}

/* Where ranks are on the CPU. */
static bool check_transport(tsr_diags *diags, const tsr_config *config) {
  if (config->collectives.transport != TSR_TRANSPORT_NCCL) return true;
  tsr_diag_error(
      diags, tsr_config_location(config, "collectives.transport.type"),
      "the transport is nccl, which connects GPUs, but ranks are on the CPU");
  tsr_diag_hint(diags, "write device_config.device: cuda, or transport: auto");
  return false;
}

bool tsr_compute_choose_kind(
    tsr_job *job, tsr_config *config, bool computes, tsr_compute *compute) {
  tsr_device_kind kind = config->device.kind;
  tsr_location location = place_of_device(config);
  if (kind == TSR_DEVICE_CPU) return check_transport(job->diags, config);
  if (kind == TSR_DEVICE_AUTO ? !choose_auto(job, location, compute)
                              : !choose_cuda(job, location, computes, compute))
    return false;
  if (!compute->cuda && kind == TSR_DEVICE_AUTO) return check_transport(job->diags, config);
  use_gpu_precision(config);
  return true;
}

/* ---- which one ---- */

/* The index of this process among those of its host. */
static int local_process(const tsr_transport *t) {
  int local = 0;
  if (t->processes <= 1) return 0;
  const char *own = t->table->host(t->state, t->process);
  for (int p = 0; p < t->process; p++) local += !strcmp(t->table->host(t->state, p), own);
  return local;
}

static int count_local_processes(const tsr_transport *t) {
  int count = 0;
  if (t->processes <= 1) return 1;
  const char *own = t->table->host(t->state, t->process);
  for (int p = 0; p < t->processes; p++) count += !strcmp(t->table->host(t->state, p), own);
  return count;
}

static int first_rank(const tsr_job *job, const tsr_rank_map *ranks) {
  int rank = 0;
  while (tsr_rank_map_process(ranks, rank) != job->transport.process) rank++;
  return rank;
}

/* device_ids names a device for each rank; a process computes on that of its first one. Without it
 * the processes of a host take its devices in turn; a launcher may have made one device visible to
 * each. */
static bool
choose_number(tsr_job *job, const tsr_config *config, int rank, int visible, int *ret_number) {
  const int *ids = config->device.device_ids;
  *ret_number = ids ? ids[rank] : visible == 1 ? 0 : local_process(&job->transport);
  if (*ret_number < visible) return true;
  if (ids) {
    tsr_diag_error(
        job->diags, tsr_config_location(config, "device_config.device_ids"),
        "Physical chip id %d not found in control plane chip mapping. %d CUDA device%s visible to "
        "rank %d, 0 to %d",
        *ret_number, visible, visible == 1 ? " is" : "s are", rank, visible - 1);
    tsr_diag_hint(
        job->diags,
        "check device_ids against CUDA_VISIBLE_DEVICES and the descriptor's device_topology");
    return false;
  }
  tsr_diag_error(
      job->diags, place_of_device(config),
      "%d processes are on this host, which has %d CUDA devices",
      count_local_processes(&job->transport), visible);
  tsr_diag_hint(
      job->diags, "start one process for each device: a process hosts any number of ranks");
  return false;
}

static bool check_axes(tsr_diags *diags, tsr_location location, const tsr_parallel *parallel) {
  for (int axis = 0; axis < TSR_AXES; axis++) {
    if (parallel->size[axis] <= TSR_DEVICE_MEMBERS_MAX) continue;
    tsr_diag_failure(
        diags, location, "axis %s has %d ranks, and a device adds for %d at most",
        tsr_axis_name(axis), parallel->size[axis], TSR_DEVICE_MEMBERS_MAX);
    tsr_diag_hint(diags, "device: cpu has no such limit");
    return false;
  }
  return true;
}

bool tsr_compute_open(
    tsr_job *job, const tsr_config *config, const tsr_parallel *parallel, const tsr_rank_map *ranks,
    tsr_compute *compute) {
  char why[TSR_CUDA_WHY_BYTES];
  int visible, number;
  tsr_location location = place_of_device(config);
  if (!compute->cuda) return true;
  if (!check_axes(job->diags, location, parallel)) return false;
  if (!compute->cuda->count(&visible, why))
    return refuse(job->diags, location, "the device is cuda", why);
  int rank = first_rank(job, ranks);
  if (!choose_number(job, config, rank, visible, &number)) return false;
  bool fast = config->numerics.policy == TSR_NUMERICS_FAST;
  tsr_cuda_request request = {number, fast, tsr_job_abort, job};
  if (compute->cuda->open(&request, &compute->device, why))
    return compute->arch = compute->device->arch, true;
  const char *what = tsr_arena_printf(job->arena, "rank %d: cuda:%d", rank, number);
  return refuse(job->diags, location, what, why);
}

/* ---- between processes ---- */

typedef struct {
  char host[TSR_HOST_BYTES], name[64], why[TSR_CUDA_WHY_BYTES], id[TSR_CUDA_UNIQUE_BYTES];
  bool has_nccl;
} device_identity;

/* Why there are no communicators between the processes' devices; NULL: there can be. */
static const char *why_not(tsr_arena *arena, const device_identity *all, int processes) {
  for (int p = 0; p < processes; p++) {
    if (!all[p].has_nccl)
      return tsr_arena_printf(arena, "process %d has no NCCL: %s", p, all[p].why);
    for (int q = 0; q < p; q++)
      if (!strcmp(all[q].host, all[p].host) && !strcmp(all[q].name, all[p].name))
        return tsr_arena_printf(
            arena, "processes %d and %d share the device at %s", q, p, all[p].name);
  }
  return NULL;
}

static device_identity identify(const tsr_transport *t, const tsr_compute *compute) {
  device_identity mine = {.host = ""};
  int version;
  snprintf(mine.host, sizeof mine.host, "%s", t->table->host(t->state, t->process));
  snprintf(mine.name, sizeof mine.name, "%s", compute->device->location);
  mine.has_nccl = compute->cuda->nccl(&version, t->process ? NULL : mine.id, mine.why);
  return mine;
}

bool tsr_compute_link(
    tsr_job *job, const tsr_config *config, const tsr_parallel *parallel, tsr_rank_map *ranks,
    const tsr_compute *compute, const tsr_location *graph_place) {
  const tsr_transport *t = &job->transport;
  char why[TSR_CUDA_WHY_BYTES] = "";
  if (!compute->device || tsr_job_is_alone(job)) return true;
  device_identity mine = identify(t, compute),
                  *all = tsr_arena_array(job->arena, device_identity, t->processes);
  if (!tsr_job_gather(job, &mine, sizeof mine, all)) return false;
  const char *reason = tsr_device_communicators_fit(parallel, ranks)
                           ? why_not(job->arena, all, t->processes)
                           : "a process has ranks of several stages";
  bool by_config = config->collectives.transport == TSR_TRANSPORT_NCCL;
  if (config->collectives.transport == TSR_TRANSPORT_MPI) reason = "collectives.transport is mpi";
  if (reason && (by_config || graph_place))
    return tsr_diag_failure(
        job->diags,
        by_config ? tsr_config_location(config, "collectives.transport.type") : *graph_place,
        "the transport is nccl, but NCCL cannot be used: %s", reason);
  if (reason) {
    tsr_diag_note(job->diags, place_of_device(config), "messages go through the host: %s", reason);
    return true;
  }
  bool fast = config->numerics.policy == TSR_NUMERICS_FAST;
  tsr_cuda_job joins = {t->process, t->processes, all[0].id, job->timeout_s};
  tsr_job_set_deadline(job->timeout_s, "linked its devices");
  bool ok = compute->cuda->join(compute->device, &joins, why) &&
            tsr_device_communicators_form(
                job->arena, parallel, ranks, compute->device, fast, &ranks->communicators, why);
  tsr_job_end_deadline();
  if (!ok)
    refuse(
        job->diags, place_of_device(config), tsr_arena_printf(job->arena, "process %d", t->process),
        why);
  return tsr_job_all_succeeded(job, ok);
}

void tsr_compute_close(tsr_compute *compute) {
  if (compute->device) compute->cuda->close(compute->device);
  compute->device = NULL;
}
