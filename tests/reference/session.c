// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/session.h"
#include "base/file_read.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 32, THREADS = 2 };

static void require(const session *s, bool ok, const char *what) {
  if (ok) return;
  fprintf(
      stderr, "%s on dp %d, tp %d: cannot %s\n", s->options.name, s->options.dp, s->options.tp,
      what);
  tsr_diags_print(s->diags, stderr);
  abort();
}

/* ---- names and parts ---- */

/* It is rows begin to end of each `of` rows there. */
typedef struct {
  int64_t begin, end, of;
} rows_there;

/* The name in the reference's file, and which of its rows, for a parameter of `rows`. What is every
 * so manyth row there ("#0%2") has a tensor of its own here. */
static const char *find_part(const session *s, int param, int64_t rows, rows_there *ret) {
  const tsr_param *p = &s->training.placed->params[param];
  *ret = (rows_there){0, rows, rows};
  if (p->hf_name) {
    const char *mark = strchr(p->hf_name, '#');
    long long a, b, of;
    if (!mark || strchr(mark, '%')) return p->hf_name;
    if (sscanf(mark, "#%lld:%lld/%lld", &a, &b, &of) == 3) *ret = (rows_there){a, b, of};
    else {
      assert(sscanf(mark, "#%lld/%lld", &a, &of) == 2);
      *ret = (rows_there){a * rows, (a + 1) * rows, of * rows};
    }
    return tsr_arena_strndup(s->arena, p->hf_name, (size_t)(mark - p->hf_name));
  }
  int layer;
  char kind[16];
  if (sscanf(p->name, "layer.%d.%15s", &layer, kind) == 2)
    return tsr_arena_printf(s->arena, "%d.%s", 2 * layer, kind);
  if (sscanf(p->name, "output.%15s", kind) == 1) return tsr_arena_printf(s->arena, "4.%s", kind);
  return !strcmp(p->name, "bias_values") ? "bias" : p->name;
}

bool session_is_part(const session *s, int param, const char *what) {
  const char *name = s->training.placed->params[param].hf_name;
  return name && strstr(name, what) != NULL;
}

int64_t session_elements(const session *s, int param) {
  const tsr_param *p = &s->training.placed->params[param];
  int64_t n = p->padding.real;
  for (int d = 1; d < p->ndim; d++) n *= p->shape[d];
  return n;
}

float *session_reference(const session *s, const char *prefix, int param, float *ret_largest) {
  const tsr_param *p = &s->training.placed->params[param];
  int64_t n = session_elements(s, param), cols = p->ndim > 1 ? p->shape[1] : 1, rows = n / cols;
  rows_there there;
  const char *name = find_part(s, param, rows, &there);
  const char *whole = tsr_arena_printf(s->arena, "%s%s", prefix, name);
  const float *from = tsr_reference_f32(s->ref, whole, NULL, NULL);
  int64_t all = tsr_reference_elements(s->ref, whole), span = there.end - there.begin;
  assert(rows % span == 0 && all == rows / span * there.of * cols);
  float *out = malloc(sizeof *out * (size_t)n);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = i / cols / span * there.of + there.begin + i / cols % span, col = i % cols;
    bool transposed = p->hf_transposed && p->ndim == 2;
    out[i] = from[transposed ? col * (all / cols) + row : row * cols + col];
  }
  *ret_largest = 0;
  for (int64_t i = 0; i < all; i++) *ret_largest = fmaxf(*ret_largest, fabsf(from[i]));
  return out;
}

/* ---- opening ---- */

static void load_config(session *s) {
  tsr_set sets[SETS_MAX] = {
      {"training_config.eval_every=0"}, {"numerics.threads=2"}, {"scheduler_config.type=constant"}};
  int count = 3;
  if (s->options.dp > 1) sets[count++].text = "device_config.enable_ddp=true";
  if (s->options.tp > 1) sets[count++].text = "device_config.enable_tp=true";
  if (s->options.dp > 1 || s->options.tp > 1)
    sets[count++].text = tsr_arena_printf(
        s->arena, "device_config.mesh_shape=[%d, %d]", s->options.dp, s->options.tp);
  for (int i = 0; s->options.sets[i]; i++) sets[count++].text = s->options.sets[i];
  const char *folder =
      strcmp(s->options.name, "linear_regression") ? "/tests/reference/data/" : "/tests/reference/";
  const char *path =
      tsr_arena_printf(s->arena, TSR_SOURCE_ROOT "%s%s.yaml", folder, s->options.name);
  require(s, tsr_config_load(s->arena, path, sets, count, &s->config, s->diags), "load");
}

static void compile(session *s, const tsr_kernels *kernels) {
  int shape[] = {s->options.dp, s->options.tp};
  if (s->options.ranks) shape[0] = 1, shape[1] = s->options.ranks;
  tsr_mesh *mesh = tsr_mesh_make_cpu(s->arena, shape, 2);
  require(s, tsr_parallel_make(s->arena, s->config, mesh, &s->parallel, s->diags), "make the mesh");
  tsr_compile_options o = {.config = s->config, .parallel = s->parallel};
  tsr_cpu_context device = {kernels, THREADS};
  require(
      s, tsr_parallel_units(s->parallel, s->config, &o.batch_units, &o.tp_units, s->diags),
      "choose units");
  o.replays_routing = session_replays(s);
  o.graphs_folder = TSR_SOURCE_ROOT "/configs/graphs";
  o.target = tsr_cpu_target(&device);
  bool ok = tsr_compile(s->arena, &o, TSR_COMPILE_TRAIN, &s->training, s->diags);
  require(s, ok, "compile");
  if (!s->options.generation) return;
  o.split = &s->training.split;
  o.split_of = s->training.graph;
  o.placed_of = s->training.placed;
  o.training_pipeline = s->training.programs.pipeline;
  o.chunk = -1; /* the logits of all positions */
  ok = tsr_compile(s->arena, &o, TSR_COMPILE_GENERATE, &s->generation, s->diags);
  require(s, ok, "compile for logits");
}

static void decay_everything(session *s) {
  for (int i = 0; i < s->training.placed->nodes_count; i++) {
    tsr_node *n = &s->training.placed->nodes[i];
    if (n->op == TSR_OP_ADAMW) n->attr.adamw.decay = s->config->optimizer.weight_decay;
    if (n->op == TSR_OP_SGD) n->attr.sgd.decay = s->config->optimizer.weight_decay;
  }
}

static void write_parameters(session *s) {
  for (int i = 0; i < s->training.placed->params_count; i++) {
    int value = tsr_executable_param(s->train, i);
    float largest, *from = session_reference(s, "param.", i, &largest);
    size_t whole = (size_t)tsr_value_elements(&s->training.placed->values[value]);
    float *padded = calloc(whole, sizeof *padded);
    memcpy(padded, from, sizeof *padded * (size_t)session_elements(s, i));
    tsr_executable_write(s->train, value, padded);
    free(padded);
    free(from);
  }
}

static void read_batch(session *s) {
  static const char *const inputs[] = {"inputs", "tokens"};
  bool labels = strcmp(s->options.name, "linear_regression") != 0,
       text = tsr_reference_has(s->ref, "tokens");
  s->samples = text ? 4 : 16;
  const char *names[] = {inputs[text], "targets"};
  for (int i = 0; i < 2; i++) {
    bool whole_numbers = text || (i && labels);
    s->rows[i] = whole_numbers ? (const void *)tsr_reference_i32(s->ref, names[i], NULL, NULL)
                               : tsr_reference_f32(s->ref, names[i], NULL, NULL);
    s->row_bytes[i] = 4 * tsr_reference_elements(s->ref, names[i]) / s->samples;
  }
  s->counted = labels ? s->samples * s->row_bytes[1] / 4 : s->samples;
  const int32_t *targets = s->rows[1];
  for (int64_t i = 0; labels && i < s->samples * s->row_bytes[1] / 4; i++)
    s->counted -= targets[i] == -100;
}

session *session_open(const session_options *options) {
  tsr_arena *arena = tsr_arena_new();
  session *s = tsr_arena_alloc(arena, sizeof *s);
  *s = (session){.options = *options, .arena = arena, .diags = tsr_diags_new(arena)};
  s->ref = tsr_reference_open(tsr_arena_printf(
      arena, TSR_SOURCE_ROOT "/tests/reference/data/%s.safetensors", options->name));
  read_batch(s);
  const tsr_kernels *kernels = tsr_kernels_get(NULL);
  load_config(s);
  compile(s, kernels);
  tsr_process_options w = {
      .parallel = s->parallel, .kernels = kernels, .threads = THREADS, .seed = 1};
  const tsr_programs programs[] = {s->training.programs, s->generation.programs};
  tsr_executable *executable[2] = {0};
  int count = options->generation ? 2 : 1;
  require(
      s, tsr_process_open(arena, &w, programs, count, &s->process, executable, s->diags), "open");
  s->train = executable[0];
  s->generate = executable[1];
  decay_everything(s);
  write_parameters(s);
  return s;
}

void session_close(session *s) {
  tsr_process_close(s->process);
  tsr_reference_close(s->ref);
  tsr_arena_free(s->arena);
}

/* ---- running ---- */

/* The reference's tensors with choices of experts are named as the inputs. */
bool session_replays(const session *s) {
  return tsr_reference_has(s->ref, TSR_ROUTING_INPUT "block.0.chosen");
}

static void fill_choices(const session *s, const char *input, int64_t sample, void *row) {
  const int64_t *from = tsr_reference_i64(s->ref, input, NULL, NULL);
  int64_t each = tsr_reference_elements(s->ref, input) / s->samples;
  for (int64_t i = 0; i < each; i++) ((int32_t *)row)[i] = (int32_t)from[sample * each + i];
}

static void fill_row(void *context, const char *input, int64_t sample, void *row) {
  const session *s = context;
  if (!strncmp(input, TSR_ROUTING_INPUT, sizeof TSR_ROUTING_INPUT - 1))
    return fill_choices(s, input, s->first + sample, row);
  int i = strcmp(input, "tokens") && strcmp(input, "features");
  memcpy(
      row, (const char *)s->rows[i] + s->row_bytes[i] * (s->first + sample),
      (size_t)s->row_bytes[i]);
}

static void set_step_scalars(session *s, int64_t step) {
  const tsr_config_optimizer *o = &s->config->optimizer;
  float step_scalars[TSR_SCALARS] = {0};
  step_scalars[TSR_SCALAR_LR] = (float)o->lr;
  step_scalars[TSR_SCALAR_CORRECTION1] = (float)(1 - pow(o->beta1, (double)(step + 1)));
  step_scalars[TSR_SCALAR_CORRECTION2] = (float)(1 - pow(o->beta2, (double)(step + 1)));
  step_scalars[TSR_SCALAR_INV_COUNT] = (float)(1 / (double)s->counted);
  step_scalars[TSR_SCALAR_FIRST] = step == 0;
  tsr_executable_set_step_scalars(s->train, step_scalars);
}

static float *read_value(const tsr_executable *executable, const tsr_graph *g, int value) {
  float *out = malloc(sizeof *out * (size_t)tsr_value_elements(&g->values[value]));
  tsr_executable_read(executable, value, out);
  return out;
}

float *session_value(const session *s, int value) {
  return read_value(s->train, s->training.placed, value);
}

int session_state(const session *s, int param) {
  const tsr_graph *g = s->training.placed;
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_STATE && g->values[v].param == param) return v;
  return -1;
}

void session_step(session *s, int64_t step, float *ret_loss, float *ret_norm) {
  s->first = 0;
  set_step_scalars(s, step);
  tsr_executable_run(s->train, step, fill_row, s);
  float *loss = session_value(s, s->training.placed->loss);
  float *clip = session_value(s, tsr_graph_find_output(s->training.placed, "clip"));
  *ret_loss = loss[0];
  *ret_norm = clip[0];
  free(loss);
  free(clip);
}

float *session_logits(session *s) {
  const tsr_graph *g = s->generation.placed;
  int value = tsr_graph_find_output(g, "logits");
  if (value < 0) value = tsr_graph_find_output(g, "prediction");
  const tsr_value *v = &g->values[value];
  int64_t padded = v->shape[v->ndim - 1], batch = s->generation.batch;
  int64_t all = tsr_reference_elements(s->ref, "logits"), each = all / s->samples;
  int64_t rows = tsr_value_elements(v) / padded / batch, cols = each / rows;
  float *out = malloc(sizeof *out * (size_t)all);
  for (s->first = 0; s->first < s->samples; s->first += batch) {
    tsr_executable_run(s->generate, 0, fill_row, s);
    float *part = read_value(s->generate, g, value);
    for (int64_t r = 0; r < batch * rows; r++)
      memcpy(out + (s->first * rows + r) * cols, part + r * padded, sizeof *out * (size_t)cols);
    free(part);
  }
  return out;
}
