// SPDX-License-Identifier: Apache-2.0
/* A hand-written graph without a loss: once forward, its outputs printed and written as NumPy
 * files. */
#include "train/trainer.h"
#include "base/file_read.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "report/comm_trace.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char npy_magic[] = "\x93NUMPY";

static const char *npy_path(tsr_arena *arena, const char *folder, const char *name) {
  return tsr_arena_printf(arena, "%s/%s.npy", folder, name);
}

/* NumPy's format 1.0: magic, header length, a header padded to 64 bytes, the numbers. */
static bool write_npy(
    tsr_arena *arena, const char *folder, const char *name, const tsr_value *v, const float *data,
    tsr_diags *diags) {
  tsr_text shape = {0}, file = {0};
  for (int d = 0; d < v->ndim; d++) tsr_text_add(&shape, "%lld,", (long long)v->shape[d]);
  char header[256];
  int n = snprintf(
      header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }",
      shape.data);
  int padded = (n + 1 + 10 + 63) / 64 * 64 - 10;
  tsr_text_add(&file, "%s", npy_magic);
  tsr_text_add_bytes(&file, "\x01\x00", 2);
  unsigned char length[2] = {(unsigned char)(padded & 255), (unsigned char)(padded >> 8)};
  tsr_text_add_bytes(&file, length, 2);
  tsr_text_add(&file, "%-*s\n", padded - 1, header);
  tsr_text_add_bytes(&file, data, sizeof *data * (size_t)tsr_value_elements(v));
  bool ok = tsr_file_write(npy_path(arena, folder, name), file.data, file.length, diags);
  tsr_text_free(&shape);
  tsr_text_free(&file);
  return ok;
}

/* Before anything is computed: only files of NumPy are replaced, in the folder of a run. */
static bool check_files(const tsr_trainer_options *o, const tsr_graph *g, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; o->out && i < g->outputs_count; i++) {
    const char *path = npy_path(o->arena, o->out->path, g->outputs[i].name);
    if (!o->out->is_used && tsr_file_exists(path))
      ok = tsr_diag_error(
          diags, TSR_NOWHERE,
          "'%s' is there, and no run of tessera-train has used '%s': it is not overwritten", path,
          o->out->path);
    else ok &= tsr_file_check_replaced(path, npy_magic, "file of NumPy", diags);
  }
  return ok;
}

static bool report_output(
    const tsr_trainer_options *o, const tsr_executable *executable, const tsr_graph *g, int i,
    tsr_diags *diags) {
  const tsr_value *v = &g->values[g->outputs[i].value];
  int64_t n = tsr_value_elements(v);
  float *data = tsr_memory_try(sizeof *data * (size_t)n);
  if (!data)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for '%s'", tsr_text_bytes(4 * n).text, v->name);
  tsr_executable_read(executable, g->outputs[i].value, data);
  double sum = 0, squares = 0;
  for (int64_t k = 0; k < n; k++) {
    sum += data[k];
    squares += (double)data[k] * data[k];
  }
  if (!o->quiet)
    printf(
        "%s %s: sum %.9g, norm %.9g\n", g->outputs[i].name, tsr_shape_text(v->ndim, v->shape).text,
        sum, sqrt(squares));
  bool ok = !o->out || write_npy(o->arena, o->out->path, g->outputs[i].name, v, data, diags);
  free(data);
  return ok;
}

/* The name of a loss that the graph makes and does not give, or NULL. */
static const char *find_loss(const tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++)
    if (tsr_op_facts(g->nodes[i].op) & TSR_FACT_LOSS) return g->nodes[i].name;
  return NULL;
}

/* Inputs are random numbers; there are no random tokens. Where the graph makes a loss, its output
 * is misspelt or missing, which is said once. */
bool tsr_graph_check_inputs(const tsr_graph *g, tsr_diags *diags) {
  const char *loss = find_loss(g);
  bool ok = true;
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind != TSR_VALUE_INPUT || v->dtype != TSR_I32) continue;
    if (loss && g->outputs_count) {
      tsr_diag_error(
          diags, g->outputs[0].location,
          "the graph makes the loss '%s', and no output is called 'loss'", loss);
      tsr_diag_hint(diags, "'outputs' names it: {loss: %s}", loss);
      return false;
    }
    ok = tsr_diag_error(
        diags, v->location, "'%s' needs data, which only a graph with a loss is given", v->name);
  }
  return ok;
}

/* The one run counts as step 1. */
static void print_communication(const tsr_trainer_options *o, const tsr_recorder *recorder) {
  tsr_text text = {0};
  tsr_record record = tsr_recorder_read(o->arena, recorder);
  tsr_comm_trace trace = tsr_comm_trace_start(o->arena, o->parallel->ranks);
  trace.rank_map = &o->rank_map;
  trace.fast = o->config->numerics.policy == TSR_NUMERICS_FAST;
  trace.all_reduce = tsr_config_all_reduce(o->config);
  tsr_comm_trace_print(&trace, &record, 1, &text);
  tsr_comm_trace_write(&text);
  tsr_text_free(&text);
}

bool tsr_run_graph(const tsr_trainer_options *o, const tsr_compiled *graph, tsr_diags *diags) {
  tsr_process_options options = {
      o->parallel, o->kernels, o->threads, o->config->training.seed,
      o->config->device.memory_limit};
  options.device = o->device;
  options.fast = o->config->numerics.policy == TSR_NUMERICS_FAST;
  options.all_reduce = tsr_config_all_reduce(o->config);
  options.rank_map = o->rank_map;
  options.timeout_s = o->timeout_s;
  options.lost = o->lost;
  options.lost_context = o->lost_context;
  tsr_process *process = NULL;
  tsr_executable *executable = NULL;
  if (!check_files(o, graph->placed, diags) ||
      !tsr_process_open(o->arena, &options, &graph->programs, 1, &process, &executable, diags))
    return false;
  tsr_recorder *recorder = NULL;
  int64_t events = tsr_recorder_events_of_step(&graph->programs, o->parallel);
  if (o->comm_trace) recorder = tsr_executable_record(o->arena, executable, 0, 1, events);
  tsr_executable_run(executable, 0, NULL, NULL);
  if (recorder) print_communication(o, recorder);
  bool ok = !o->out || tsr_out_folder_begin(o->arena, o->out, o->config, diags);
  for (int i = 0; ok && i < graph->placed->outputs_count; i++)
    ok = report_output(o, executable, graph->placed, i, diags);
  tsr_process_close(process);
  return ok;
}
