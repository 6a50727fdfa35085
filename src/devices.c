/* The device that this worker computes on: the host's cores, or one of its GPUs. */
#include "app.h"
#include "comm/peers.h"
#include "device/cuda.h"
#include "run/links.h"
#include <string.h>

/* ---- the host's part, which every worker has ---- */

static bool refuse_level(app *a, tsr_place place, const char *by, const char *isa) {
  int count = 0;
  const char *const *levels = tsr_kernels_levels();
  while (levels[count]) count++;
  tsr_diag_error(a->diags, place, "%sthis machine does not run the level '%s'", by, isa);
  tsr_diag_nearest(a->diags, isa, levels, count);
  return false;
}

bool app_check_level(app *a) {
  const char *level = tsr_kernels_requested();
  return !level || tsr_kernels_get(level) || refuse_level(a, TSR_NOWHERE, "TESSERA_ISA: ", level);
}

static bool choose_kernels(app *a) {
  const char *isa = a->config && a->config->numerics.isa[0] ? a->config->numerics.isa : NULL;
  a->kernels = tsr_kernels_get(isa);
  return a->kernels || refuse_level(a, tsr_config_place(a->config, "numerics.isa"), "", isa);
}

bool app_choose_device(app *a) {
  if (!choose_kernels(a)) return false;
  int64_t threads = a->config ? a->config->numerics.threads : 0;
  a->cpu = (tsr_cpu_context){a->kernels, threads > 0 ? (int)threads : app_threads(a)};
  return true;
}

/* ---- which kind ---- */

/* Commands that compute on a device; others only say what would happen there. */
static bool computes(const app *a) {
  switch ((int)a->cli.command) {
  case TSR_COMMAND_TRAIN:
  case TSR_COMMAND_PROFILE:
  case TSR_COMMAND_EVALUATE:
  case TSR_COMMAND_GENERATE:
    return true;
  }
  return false;
}

static tsr_place place_of_device(const app *a) {
  return tsr_config_place(a->config, "device_config.device");
}

/* The reason, and behind a newline what to do about it. */
static bool refuse(app *a, const char *what, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_diag_failure(a->diags, place_of_device(a), "%s: %s", what, why);
  if (remedy) tsr_diag_hint(a->diags, "%s", remedy);
  tsr_diag_hint(a->diags, "`tessera-train doctor` shows what is there; device: cpu needs no GPU");
  return false;
}

static bool refuse_plugin(app *a, const char *tried) {
  tsr_diag_failure(
      a->diags, place_of_device(a), "the device is cuda, but no libtessera-cuda.so can be loaded");
  tsr_diag_hint(a->diags, "tried:%s", tried);
  tsr_diag_hint(
      a->diags, "install the CUDA toolkit, then build the plugin: scripts/build -Dcuda=enabled");
  tsr_diag_hint(a->diags, "device: cpu needs no GPU");
  return false;
}

static bool note_device(app *a, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_diag_note(
      a->diags, place_of_device(a), "there is an NVIDIA driver, but %s: the CPU computes", why);
  if (remedy) tsr_diag_hint(a->diags, "%s", remedy);
  return true;
}

/* `auto` computes on the CPU where that is all there is. */
static bool choose_auto(app *a) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES];
  int count = 0;
  if (!tsr_cuda_has_driver()) return true;
  const tsr_cuda_table *table = tsr_cuda_find(a->arena, &path, &tried);
  if (table && table->count(&count, why)) {
    if (count > 0) a->cuda = table;
    return true;
  }
  if (table) return note_device(a, why);
  tsr_diag_note(
      a->diags, place_of_device(a),
      "there is an NVIDIA driver, but no libtessera-cuda.so: the CPU computes");
  tsr_diag_hint(a->diags, "tried:%s", tried);
  return true;
}

/* What only plans makes do without the plugin; its scratch is the CPU's then. */
static bool choose_cuda(app *a) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES] = "none is visible\nlook at CUDA_VISIBLE_DEVICES";
  int count = 0;
  a->cuda = tsr_cuda_find(a->arena, &path, &tried);
  if (!computes(a)) return true;
  if (!a->cuda) return refuse_plugin(a, tried);
  return (a->cuda->count(&count, why) && count > 0) || refuse(a, "the device is cuda", why);
}

/* GPUs compute in bf16, with f32 parameters, unless the configuration says otherwise. */
static void take_precision(app *a) {
  tsr_config_training *t = &a->config->training;
  if (tsr_config_place(a->config, "training_config.precision").file ||
      tsr_config_place(a->config, "training_config.mixed_precision").file)
    return;
  t->precision = TSR_PRECISION_BF16;
  t->mixed_precision = true;
}

bool app_choose_kind(app *a) {
  tsr_device_kind kind = a->config->device.kind;
  if (kind == TSR_DEVICE_CPU) return true;
  if (kind == TSR_DEVICE_AUTO ? !choose_auto(a) : !choose_cuda(a)) return false;
  if (a->cuda || kind == TSR_DEVICE_CUDA) take_precision(a);
  return true;
}

/* ---- which one ---- */

/* This worker's place among those of its host, and how many they are. */
static int local_worker(const app *a, int *ret_count) {
  const tsr_transport *t = &a->transport;
  int local = 0;
  *ret_count = 1;
  if (t->workers <= 1) return 0;
  const char *own = t->table->host(t->state, t->worker);
  for (int w = *ret_count = 0; w < t->workers; w++) {
    bool here = !strcmp(t->table->host(t->state, w), own);
    *ret_count += here;
    local += here && w < t->worker;
  }
  return local;
}

static int first_rank(const app *a) {
  int rank = 0;
  while (tsr_hosting_worker(&a->hosting, rank) != a->transport.worker) rank++;
  return rank;
}

/* device_ids names a device for each rank; a worker computes on that of its first one. Without it
 * the workers of a host take its devices in turn; a launcher may have shown each worker one only.
 */
static bool choose_number(app *a, int visible, int *ret_number) {
  const int *ids = a->config->device.device_ids;
  tsr_place place = tsr_config_place(a->config, "device_config.device_ids");
  int workers, local = local_worker(a, &workers), rank = first_rank(a);
  *ret_number = ids ? ids[rank] : visible == 1 ? 0 : local;
  if (*ret_number < visible) return true;
  if (ids) {
    tsr_diag_error(
        a->diags, place,
        "Physical chip id %d not found in control plane chip mapping. %d CUDA device%s visible to "
        "rank %d, 0 to %d",
        *ret_number, visible, visible == 1 ? " is" : "s are", rank, visible - 1);
    tsr_diag_hint(
        a->diags, "check device_ids against CUDA_VISIBLE_DEVICES and the descriptor's "
                  "device_topology");
    return false;
  }
  tsr_diag_error(
      a->diags, place_of_device(a), "%d workers are on this host, which has %d CUDA devices",
      workers, visible);
  tsr_diag_hint(a->diags, "start one worker for each device: a worker hosts any number of ranks");
  return false;
}

static bool check_axes(app *a) {
  for (int axis = 0; axis < TSR_AXES; axis++) {
    if (a->parallel->size[axis] <= TSR_DEVICE_MEMBERS_MAX) continue;
    tsr_diag_failure(
        a->diags, place_of_device(a), "axis %s has %d ranks, and a device adds for %d at most",
        tsr_axis_name(axis), a->parallel->size[axis], TSR_DEVICE_MEMBERS_MAX);
    tsr_diag_hint(a->diags, "device: cpu has no such limit");
    return false;
  }
  return true;
}

bool app_open_device(app *a) {
  char why[TSR_CUDA_WHY_BYTES];
  int visible, number;
  if (!a->cuda || !computes(a)) return true;
  if (!check_axes(a)) return false;
  if (!a->cuda->count(&visible, why)) return refuse(a, "the device is cuda", why);
  if (!choose_number(a, visible, &number)) return false;
  tsr_cuda_request request = {number, a->config->numerics.policy == TSR_NUMERICS_FAST, app_lost, a};
  if (a->cuda->open(&request, &a->device, why)) return true;
  return refuse(a, tsr_arena_printf(a->arena, "rank %d: cuda:%d", first_rank(a), number), why);
}

/* ---- between workers ---- */

typedef struct {
  char host[TSR_HOST_BYTES], name[64], why[TSR_CUDA_WHY_BYTES], id[TSR_CUDA_UNIQUE_BYTES];
  bool has_nccl;
} linkable;

/* Why the workers' devices are not linked; NULL: they can be. */
static const char *why_not(app *a, const linkable *all) {
  if (!tsr_links_fit(a->parallel, &a->hosting)) return "a worker has ranks of several stages";
  for (int w = 0; w < a->transport.workers; w++) {
    if (!all[w].has_nccl)
      return tsr_arena_printf(a->arena, "worker %d has no NCCL: %s", w, all[w].why);
    for (int v = 0; v < w; v++)
      if (!strcmp(all[v].host, all[w].host) && !strcmp(all[v].name, all[w].name))
        return tsr_arena_printf(
            a->arena, "workers %d and %d share the device at %s", v, w, all[w].name);
  }
  return NULL;
}

static linkable describe(app *a) {
  linkable mine = {.host = ""};
  int version;
  snprintf(
      mine.host, sizeof mine.host, "%s",
      a->transport.table->host(a->transport.state, a->transport.worker));
  snprintf(mine.name, sizeof mine.name, "%s", a->device->place);
  mine.has_nccl = a->cuda->nccl(&version, a->transport.worker ? NULL : mine.id, mine.why);
  return mine;
}

bool app_link_devices(app *a) {
  double timeout = a->config->collectives.timeout_s;
  char why[TSR_CUDA_WHY_BYTES] = "";
  if (!a->device || a->transport.workers <= 1) return true;
  linkable mine = describe(a), *all = tsr_arena_array(a->arena, linkable, a->transport.workers);
  if (!app_gather(a, &mine, sizeof mine, all)) return false;
  const char *reason = why_not(a, all);
  if (reason) {
    tsr_diag_note(a->diags, place_of_device(a), "messages go through the host: %s", reason);
    return true;
  }
  bool fast = a->config->numerics.policy == TSR_NUMERICS_FAST;
  tsr_cuda_job job = {a->transport.worker, a->transport.workers, all[0].id, timeout};
  app_set_deadline(timeout, "linked its devices");
  bool ok =
      a->cuda->join(a->device, &job, why) &&
      tsr_links_form(a->arena, a->parallel, &a->hosting, a->device, fast, &a->hosting.links, why);
  app_end_deadline();
  ok = ok || refuse(a, tsr_arena_printf(a->arena, "worker %d", job.worker), why);
  return app_all_well(a, ok);
}

void app_close_device(app *a) {
  if (a->device) a->cuda->close(a->device);
  a->device = NULL;
}
