// SPDX-License-Identifier: Apache-2.0
/* From the command line to the parallelism context: configuration, mesh, ranks, units. */
#include "cli/run_setup.h"
#include "base/uri.h"
#include "device/cuda/plugin_abi.h"
#include "mesh/choose.h"
#include <stdlib.h>
#include <string.h>

bool setup_override_policy(app *a, tsr_config *config) {
  const char *value = getenv("TESSERA_DETERMINISTIC");
  bool fast = config->numerics.policy == TSR_NUMERICS_FAST;
  if (!value || !*value || !strcmp(value, "0")) return true;
  if (strcmp(value, "1"))
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "TESSERA_DETERMINISTIC is '%s', which is neither 1 nor 0", value);
  if (!fast) return true;
  config->numerics.policy = TSR_NUMERICS_DETERMINISTIC;
  tsr_diag_note(
      a->diags, tsr_config_location(config, "numerics.policy"),
      "TESSERA_DETERMINISTIC=1: the policy is deterministic, not fast");
  return true;
}

bool setup_computes(const app *a) {
  tsr_command c = a->options.command;
  if (c == TSR_COMMAND_TRACE) return a->options.save != NULL;
  return c == TSR_COMMAND_TRAIN || c == TSR_COMMAND_PROFILE || c == TSR_COMMAND_EVALUATE ||
         c == TSR_COMMAND_GENERATE || c == TSR_COMMAND_SERVE || c == TSR_COMMAND_VERIFY ||
         c == TSR_COMMAND_COMPARE;
}

bool setup_load_config(app *a, setup *s) {
  const tsr_options *o = &a->options;
  return tsr_config_load(a->arena, o->config, o->sets, o->sets_count, &s->config, a->diags) &&
         setup_use_config(a, s);
}

bool setup_use_config(app *a, setup *s) {
  if (!setup_override_policy(a, s->config)) return false;
  a->job.timeout_s = s->config->collectives.timeout_s;
  return tsr_compute_choose_kind(&a->job, s->config, setup_computes(a), &s->compute);
}

bool setup_choose_cpu(app *a, setup *s) {
  if (!tsr_compute_choose_cpu(&a->job, s->config, &s->compute)) return false;
  int *threads = &s->compute.cpu.threads;
  if (a->options.determinism && *threads < 2)
    *threads = 2; /* and then with one (train/determinism.h) */
  return true;
}

/* Whether an option or a variable names a descriptor's file. */
static bool names_file(const char *value) { return value && *value && strcmp(value, "auto") != 0; }

/* mesh: auto without a shape, a count, ids or a descriptor: the processes of the job, or the GPUs
 * of this host. */
static bool detect_devices(app *a, const setup *s, int64_t *ret_count, const char **ret_what) {
  int processes = a->job.transport.processes, gpus = 0;
  char why[TSR_CUDA_WHY_BYTES] = "no libtessera-cuda.so can be loaded";
  *ret_count = processes > 1 ? processes : 1;
  *ret_what = processes > 1 ? "processes" : "process";
  if (processes > 1 || (!s->compute.cuda && s->config->device.kind != TSR_DEVICE_CUDA)) return true;
  if (!s->compute.cuda || !s->compute.cuda->count(&gpus, why) || gpus < 1) {
    why[strcspn(why, "\n")] = 0;
    tsr_diag_error(
        a->diags, tsr_config_location(s->config, "mesh"),
        "mesh: auto counts GPUs, but none can be used: %s", why);
    tsr_diag_hint(a->diags, "write mesh: {axes: [dp], shape: [8]}, or name a descriptor by --mesh");
    return false;
  }
  *ret_count = gpus;
  *ret_what = gpus == 1 ? "GPU" : "GPUs";
  return true;
}

/* "Detected 4 GPUs: [0, 1, 2, 3]" */
static const char *
detected_text(tsr_arena *arena, const tsr_config_device *d, int64_t count, const char *what) {
  enum { SHOWN_MAX = 16 };
  tsr_text text = {0};
  tsr_text_add(&text, "Detected %lld %s: [", (long long)count, what);
  for (int64_t i = 0; i < count; i++) {
    if (count > SHOWN_MAX && i == 2) tsr_text_add(&text, ", …");
    if (count > SHOWN_MAX && i >= 2 && i < count - 1) continue;
    tsr_text_add(
        &text, "%s%lld", i ? ", " : "", d->device_ids ? (long long)d->device_ids[i] : (long long)i);
  }
  tsr_text_add(&text, "]\n");
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

bool setup_open_mesh(app *a, setup *s) {
  const tsr_config_device *d = &s->config->device;
  tsr_mesh_request request = {.option = a->options.mesh, .config_value = d->mesh_graph_descriptor};
  request.config_file = s->config->file;
  request.config_place = tsr_config_location(s->config, "device_config.mesh_graph_descriptor");
  const char *named = getenv("TT_MESH_GRAPH_DESC_PATH");
  tsr_location by = {.file = "TT_MESH_GRAPH_DESC_PATH"};
  if (named && !tsr_uri_path(a->arena, named, by, &request.environment, a->diags)) return false;
  request.tt_metal_home = getenv("TT_METAL_HOME");
  request.shipped_folder = tsr_arena_printf(a->arena, "%s/mesh_descriptors", a->share);
  request.ndim = d->mesh_ndim;
  request.devices = d->mesh_ndim || d->devices < 1 ? 1 : d->devices;
  for (int i = 0; i < d->mesh_ndim; i++) {
    request.dims[i] = d->mesh_shape[i];
    request.devices *= d->mesh_shape[i];
  }
  bool is_named = names_file(request.option) || names_file(request.config_value) ||
                  names_file(request.environment);
  bool detects = d->mesh_auto && !d->mesh_ndim && !d->devices;
  const char *what = "devices";
  if (detects && d->device_ids) request.devices = d->device_ids_count;
  else if (detects && !is_named && !detect_devices(a, s, &request.devices, &what)) return false;
  /* Ids of GPUs number those of this host, of which a mesh may use some. */
  for (int i = 0; d->kind != TSR_DEVICE_CPU && i < d->device_ids_count; i++)
    if (d->device_ids[i] >= request.devices) request.devices = d->device_ids[i] + 1;
  request.arch = d->kind == TSR_DEVICE_CUDA ? TSR_ARCH_CUDA : TSR_ARCH_CPU;
  if (!tsr_mesh_choose(a->arena, &request, &s->mesh, &s->mesh_why, a->diags)) return false;
  int64_t found = is_named && !d->device_ids ? s->mesh->devices : request.devices;
  if (detects) s->detected = detected_text(a->arena, d, found, what);
  return tsr_parallelism_device_open(a->diags);
}

bool setup_build_context(app *a, setup *s) {
  return tsr_parallel_make(a->arena, s->config, s->mesh, &s->parallel, a->diags) &&
         tsr_parallelism_context_open(s->parallel, a->diags);
}

/* ---- ranks to processes ---- */

/* A descriptor has a number of hosts; a process without a launcher simulates all of them. */
static bool check_hosts(app *a, const setup *s) {
  const tsr_transport *t = &a->job.transport;
  if (!s->mesh->file) return true;
  if (tsr_job_is_alone(&a->job)) {
    if (s->mesh->hosts > 1)
      tsr_diag_note(
          a->diags, s->mesh->shape.location,
          "the descriptor has %lld hosts, which one process simulates", (long long)s->mesh->hosts);
    return true;
  }
  tsr_text names = {0};
  int64_t hosts = 0;
  for (int p = 0; p < t->processes; p++) {
    const char *host = t->table->host(t->state, p);
    bool seen = false;
    for (int q = 0; q < p && !seen; q++) seen = !strcmp(host, t->table->host(t->state, q));
    if (!seen) tsr_text_add(&names, "%s%s", hosts++ ? ", " : "", host);
  }
  bool ok = hosts == s->mesh->hosts;
  if (!ok)
    tsr_diag_error(
        a->diags, s->mesh->shape.location,
        "the descriptor has %lld host%s, and the %d processes of this job are on %lld: %s",
        (long long)s->mesh->hosts, s->mesh->hosts == 1 ? "" : "s", t->processes, (long long)hosts,
        names.data);
  tsr_text_free(&names);
  return ok;
}

static bool
refuse_count(app *a, const setup *s, const char *key, int64_t wanted, const char *fewer) {
  int processes = a->job.transport.processes;
  return tsr_diag_error(
      a->diags, tsr_config_location(s->config, key), "%d process%s started, %s than the %lld of %s",
      processes, processes == 1 ? " was" : "s were", fewer, (long long)wanted, key);
}

static bool check_process_count(app *a, const setup *s) {
  const tsr_config_elastic *e = &s->config->elastic;
  int64_t processes = a->job.transport.processes;
  if (a->options.command != TSR_COMMAND_TRAIN) return true;
  if (processes < e->min_workers)
    return refuse_count(a, s, "elastic.min_workers", e->min_workers, "fewer");
  if (e->max_workers && processes > e->max_workers)
    return refuse_count(a, s, "elastic.max_workers", e->max_workers, "more");
  return true;
}

bool setup_map_ranks(app *a, setup *s) {
  return check_process_count(a, s) && check_hosts(a, s) &&
         tsr_rank_map_make(a->arena, s->parallel, &a->job.transport, &s->ranks, a->diags);
}

/* A recipe that is to be repeated elsewhere says its seed. */
static void note_default_seed(app *a, const setup *s) {
  tsr_command c = a->options.command;
  bool trains = c == TSR_COMMAND_TRAIN || c == TSR_COMMAND_PROFILE || c == TSR_COMMAND_CHECK;
  bool fast = s->config->numerics.policy == TSR_NUMERICS_FAST;
  if (!trains || fast || tsr_config_location(s->config, "training_config.seed").file) return;
  tsr_diag(
      a->diags, tsr_diag_normative(a->diags, TSR_NOTE), (tsr_location){.file = s->config->file},
      "no seed: training_config.seed is %llu, the default",
      (unsigned long long)s->config->training.seed);
}

/* Bits that no other mesh has: the line of the recipe says it, and --strict refuses it. */
static bool check_own_order(app *a, const setup *s) {
  const char *own = tsr_parallel_own_order(a->arena, s->parallel, s->config, s->batch_units);
  if (!a->options.strict || !*own) return true;
  tsr_diag_error(
      a->diags, tsr_config_location(s->config, "numerics.units.batch"),
      "%lld batch units are added in this mesh's own order: another mesh computes other bits",
      (long long)s->batch_units);
  tsr_diag_hint(a->diags, "set numerics.units.batch to a number that dp and microbatches share");
  return false;
}

bool setup_fix_recipe(app *a, setup *s) {
  int errors = tsr_diags_errors(a->diags);
  note_default_seed(a, s);
  tsr_parallel_warn(s->parallel, s->config, a->diags);
  return tsr_parallel_units(s->parallel, s->config, &s->batch_units, &s->tp_units, a->diags) &&
         check_own_order(a, s) && tsr_diags_errors(a->diags) == errors;
}

bool setup_open_device(app *a, setup *s) {
  return !setup_computes(a) ||
         tsr_compute_open(&a->job, s->config, s->parallel, &s->ranks, &s->compute);
}

const char *setup_mesh_text(const setup *s, tsr_arena *arena) {
  tsr_text text = {0};
  for (int i = 0; i < TSR_AXES; i++)
    if (s->parallel->size[i] > 1)
      tsr_text_add(
          &text, "%s%s=%d", text.length ? " " : "", tsr_axis_name(i), s->parallel->size[i]);
  const char *copy = tsr_arena_strdup(arena, text.data ? text.data : "1 rank");
  tsr_text_free(&text);
  return copy;
}

bool setup_traces_communication(tsr_diags *diags, bool *ret_traces) {
  const char *trace = getenv("TESSERA_COMM_TRACE");
  *ret_traces = trace && !strcmp(trace, "1");
  if (!trace || !*trace || *ret_traces || !strcmp(trace, "0")) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "TESSERA_COMM_TRACE is '%s', which is neither 1 nor 0", trace);
}
