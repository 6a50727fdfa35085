// SPDX-License-Identifier: Apache-2.0
#include "harness.h"
#include "schedule/verify.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const tsr_device *harness_device;
tsr_target harness_target;

tsr_target harness_target_on(const tsr_cpu_context *cpu) {
  tsr_target target = tsr_cpu_target(cpu);
  if (harness_target.scratch) return harness_target;
  if (!harness_target.fuses) return target;
  target.fuses = harness_target.fuses;
  target.epilogues = harness_target.epilogues;
  target.exact = harness_target.exact;
  if (harness_target.tile_rows) target.tile_rows = harness_target.tile_rows;
  return target;
}

/* ---- graphs from text ---- */

static int read_shape(const char *text, int64_t *shape, const char **ret_rest) {
  int ndim = 0;
  char *end;
  for (;;) {
    shape[ndim++] = strtoll(text, &end, 10);
    if (*end != ',') break;
    text = end + 1;
  }
  *ret_rest = end + strspn(end, " ");
  return ndim;
}

int harness_input(tsr_graph *g, const char *text) {
  int64_t shape[TSR_DIMS_MAX];
  size_t name = strcspn(text, " ");
  const char *rest;
  int ndim = read_shape(text + name, shape, &rest);
  tsr_dtype dtype = strcmp(rest, "tokens") ? TSR_F32 : TSR_I32;
  return tsr_graph_input(
      g, tsr_arena_strndup(g->arena, text, name), dtype, ndim, shape, TSR_NOWHERE);
}

int harness_param(tsr_graph *g, const char *text) {
  size_t name = strcspn(text, " ");
  const char *rest;
  tsr_param p = {.name = tsr_arena_strndup(g->arena, text, name)};
  p.ndim = read_shape(text + name, p.shape, &rest);
  p.init = (tsr_init){.kind = TSR_INIT_NORMAL, .b = 0.5};
  p.decay = p.ndim > 1;
  bool experts = !strncmp(rest, "experts", 7);
  if (experts) {
    p.placement[TSR_EP] = (tsr_placement){TSR_SHARD, 0};
    rest += 7 + strspn(rest + 7, " ");
  }
  if (*rest) p.placement[TSR_TP] = (tsr_placement){TSR_SHARD, atoi(rest)};
  return tsr_graph_param(g, &p);
}

int harness_find(const tsr_graph *g, const char *name) {
  for (int i = g->values_count - 1; i >= 0; i--)
    if (!strcmp(g->values[i].name, name)) return i;
  fprintf(stderr, "the test's graph has no '%s'\n", name);
  abort();
}

const char *harness_sized(tsr_arena *arena, const char *text, int64_t batch, int64_t sequence) {
  char *out = tsr_arena_alloc(arena, strlen(text) * 4 + 1), *to = out;
  for (; *text; text++)
    if (*text != '$') *to++ = *text;
    else to += sprintf(to, "%d", (int)(*++text == 'B' ? batch : sequence));
  return out;
}

static char *word(tsr_graph *g, const char **at, const char *stop) {
  *at += strspn(*at, " ");
  size_t n = strcspn(*at, stop);
  char *out = tsr_arena_strndup(g->arena, *at, n);
  *at += n;
  while (n && out[n - 1] == ' ') out[--n] = '\0';
  return out;
}

static tsr_location place_at(const char *text, const char *at, size_t length) {
  at += strspn(at, " ");
  return (tsr_location){"call", 1, (int)(at - text) + 1, (int)length};
}

static void read_attr(tsr_graph *g, tsr_call_attr *a, const char **at) {
  *at += strspn(*at, ": ");
  if (**at == '[') {
    const char *rest;
    a->list_count = read_shape(*at + 1, a->list, &rest);
    *at = rest + 1;
    return;
  }
  char *text = word(g, at, ",)"), *end;
  a->value = strtod(text, &end);
  if (*end) a->word = text;
}

static tsr_call read_call(tsr_graph *g, const char *text) {
  const char *at = text;
  tsr_call c = {.location = place_at(text, text, 1)};
  c.attrs = tsr_arena_array(g->arena, tsr_call_attr, TSR_CALL_ATTRS_MAX);
  c.result = word(g, &at, ":");
  at++;
  const char *op = at;
  c.op = word(g, &at, "(");
  c.op_place = place_at(text, op, strlen(c.op));
  at++;
  while (*at && *at != ')') {
    const char *begin = at;
    char *name = word(g, &at, ":,)");
    tsr_location location = place_at(text, begin, strlen(name));
    if (*at == ':') {
      tsr_call_attr *a = &c.attrs[c.attrs_count++];
      *a = (tsr_call_attr){.name = name, .location = location};
      read_attr(g, a, &at);
    } else if (*name) {
      c.input_places[c.inputs_count] = location;
      c.inputs[c.inputs_count++] = harness_find(g, name);
    }
    at += *at == ',';
  }
  return c;
}

bool harness_try(tsr_graph *g, const char *text, int *ret_value, tsr_diags *diags) {
  tsr_call c = read_call(g, text);
  int values[TSR_CALL_INPUTS_MAX], count;
  tsr_diags_source(diags, "call", text, strlen(text));
  bool ok = tsr_graph_call(g, &c, values, &count, diags);
  *ret_value = ok ? values[0] : -1;
  return ok;
}

int harness_call(tsr_graph *g, const char *text) {
  tsr_diags *diags = tsr_diags_new(g->arena);
  int value;
  if (harness_try(g, text, &value, diags)) return value;
  tsr_diags_print(diags, stderr);
  abort();
}

static void each(tsr_graph *g, const char *text, int (*add)(tsr_graph *g, const char *text)) {
  for (const char *at = text; *at;) {
    at += strspn(at, " \n;");
    size_t n = strcspn(at, "\n;");
    if (n) add(g, tsr_arena_strndup(g->arena, at, n));
    at += n;
  }
}

void harness_inputs(tsr_graph *g, const char *text) { each(g, text, harness_input); }
void harness_params(tsr_graph *g, const char *text) { each(g, text, harness_param); }
void harness_calls(tsr_graph *g, const char *text) { each(g, text, harness_call); }

/* ---- mesh and program ---- */

const harness_order harness_orders[HARNESS_ORDERS] = {
    {TSR_PIPELINE_GPIPE, 1},
    {TSR_PIPELINE_1F1B, 1},
    {TSR_PIPELINE_INTERLEAVED, 2},
    {TSR_PIPELINE_ZB_H1, 1},
    {TSR_PIPELINE_ZB_V, 2}};

tsr_parallel harness_parallel(int pp, int dp, int ep, int cp, int tp) {
  int axes[] = {TSR_PP, TSR_DP, TSR_EP, TSR_CP, TSR_TP};
  int sizes[] = {pp ? pp : 1, dp, ep ? ep : 1, cp ? cp : 1, tp};
  tsr_parallel p = {.ranks = 1, .ndim = TSR_AXES, .fsdp_size = 1};
  for (int a = 0; a < TSR_AXES; a++) p.size[a] = 1;
  for (int d = TSR_AXES - 1; d >= 0; d--) {
    p.axis_of_dim[d] = axes[d];
    p.size[axes[d]] = sizes[d];
    p.enabled[axes[d]] = true;
    p.stride[axes[d]] = p.ranks;
    p.ranks *= sizes[d];
  }
  return p;
}

static void show_gradients(tsr_graph *g) {
  for (int p = 0; p < g->params_count; p++)
    if (g->grads[p] >= 0)
      tsr_graph_output(g, tsr_arena_printf(g->arena, "d.%s", g->params[p].name), g->grads[p]);
}

/* The graphs of tests have no repeats: every run of six nodes is a block. */
static void number_blocks(tsr_graph *g, int forward) {
  for (int i = 0; i < forward - 3; i++) g->nodes[i].block = i / 6;
  for (int i = forward; i < g->nodes_count; i++)
    if (g->nodes[i].of >= 0) g->nodes[i].block = g->nodes[g->nodes[i].of].block;
}

/* Stages of equally many forward nodes. */
static tsr_stage_split even_split(const tsr_graph *g, int stages) {
  tsr_stage_split split = {
      .count = stages - 1, .first = tsr_arena_array(g->arena, const char *, stages)};
  int nodes = 0;
  while (nodes < g->nodes_count && g->nodes[nodes].section <= TSR_FORWARD) nodes++;
  for (int i = 1; i < stages; i++) split.first[i - 1] = g->nodes[nodes * i / stages].name;
  return split;
}

bool harness_compile(tsr_graph *g, const harness_options *o, harness *ret, tsr_diags *diags) {
  *ret = (harness){
      .options = *o, .graph = g, .parallel = harness_parallel(o->pp, o->dp, o->ep, o->cp, o->tp)};
  int stages = o->pp ? o->pp : 1, chunks = o->chunks ? o->chunks : 1;
  tsr_pipeline_kind kind = o->pp > 1 ? o->pipeline : TSR_PIPELINE_1F1B;
  ret->cpu = (tsr_cpu_context){tsr_kernels_get(NULL), o->threads};
  g->microbatches = o->microbatches;
  if (o->expert_units) g->units.expert = o->expert_units;
  int forward = g->nodes_count;
  if (g->loss >= 0) tsr_pass_autodiff(g);
  if (g->loss >= 0 && o->optimizer) {
    tsr_pass_optimizer(g, o->optimizer);
  } else if (g->loss >= 0) {
    show_gradients(g);
  }
  const tsr_pipeline *pipeline =
      tsr_pipeline_make(g->arena, kind, stages, chunks, (int)o->microbatches);
  tsr_stage_split split = even_split(g, stages * chunks);
  if (!tsr_pass_stages(g, &split, diags)) return false;
  if (o->recompute.kind || o->offload) number_blocks(g, forward);
  if (o->recompute.kind) g = tsr_pass_recompute(g, o->recompute);
  if (pipeline->splits_backward) tsr_pass_weights(g);
  tsr_param_store store = o->optimizer ? o->optimizer->store : TSR_STORE_F32;
  if (o->precision) g = tsr_pass_precision(g, (tsr_precision_types){o->precision, store});
  int64_t together = o->batch_units / o->microbatches;
  if (o->microbatches > 1 && o->batch_units > 1 && !tsr_pass_check_mixed(g, together, diags))
    return false;
  tsr_placing placing = {.units = {1, 1, 1, 1, 1}};
  memcpy(placing.size, ret->parallel.size, sizeof placing.size);
  placing.units[TSR_DP] = o->batch_units;
  placing.units[TSR_TP] = o->tp_units;
  placing.sequence_units = o->sequence_units;
  placing.units[TSR_CP] = o->sequence_units ? o->sequence_units : 1;
  placing.is_model = g->loss >= 0;
  placing.sequence_parallel = o->sequence_parallel;
  placing.zigzag = o->zigzag;
  placing.zero = o->zero;
  placing.zero_groups = o->zero_groups;
  placing.zero_owners = o->zero_owners;
  if (!tsr_pass_placement(g, &placing, &ret->placed, diags)) return false;
  tsr_offloading offloading = {.blocks = o->offload_blocks, .min_bytes = 1};
  memcpy(offloading.size, ret->parallel.size, sizeof offloading.size);
  if (o->offload) ret->placed = tsr_pass_offload(ret->placed, &offloading);
  tsr_lowering lowering = {.microbatches = o->microbatches};
  lowering.microbatch_first = (o->zero >= 2 || o->tree == TSR_TREE_FLAT) && o->dp > 1;
  lowering.tree = o->tree;
  lowering.overlap = o->overlap;
  lowering.bucket_bytes = 2000;
  for (int a = 0; a < TSR_AXES; a++) lowering.size[a] = ret->parallel.size[a];
  lowering.batch_units = o->batch_units / (tsr_lowering_batch_ranks(&lowering) * o->microbatches);
  lowering.expert_leaves = g->units.expert > 1 ? g->units.expert : 1;
  lowering.tp_units = o->tp_units / o->tp;
  lowering.sequence_units = o->sequence_units / (o->cp ? o->cp : 1);
  lowering.zigzag = o->zigzag;
  tsr_target target = harness_target_on(&ret->cpu);
  ret->programs = tsr_programs_make(ret->placed, &lowering, pipeline, &target);
  tsr_verify_mesh mesh = {.ranks = ret->parallel.ranks};
  memcpy(mesh.size, ret->parallel.size, sizeof mesh.size);
  memcpy(mesh.stride, ret->parallel.stride, sizeof mesh.stride);
  return tsr_programs_verify(g->arena, &ret->programs, &mesh, diags);
}

harness harness_open(tsr_arena *arena, tsr_graph *g, const harness_options *o) {
  tsr_diags *diags = tsr_diags_new(arena);
  harness h;
  bool ok = harness_compile(g, o, &h, diags);
  if (ok) {
    /* the process keeps a pointer to it */
    tsr_parallel *parallel = tsr_arena_alloc(arena, sizeof *parallel);
    *parallel = h.parallel;
    tsr_process_options options = {.parallel = parallel, .kernels = h.cpu.k, .threads = o->threads};
    options.seed = HARNESS_SEED;
    options.device = harness_device;
    ok = tsr_process_open(arena, &options, &h.programs, 1, &h.process, &h.executable, diags);
  }
  if (ok) return h;
  tsr_diags_print(diags, stderr);
  abort();
}

void harness_close(harness *h) { tsr_process_close(h->process); }

/* ---- steps ---- */

/* Any function with scattered values does; this is splitmix64 over FNV-1a. */
static uint64_t scatter(const char *name, int64_t sample, int64_t i) {
  uint64_t x = 1469598103934665603u;
  for (; *name; name++) x = (x ^ (unsigned char)*name) * 1099511628211u;
  x += (uint64_t)sample * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1b54a32d192ed03u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double
harness_number(const harness_options *o, const char *name, bool tokens, int64_t sample, int64_t i) {
  uint64_t x = scatter(name, sample, i);
  if (!tokens) return (float)((double)(x >> 11) / 4503599627370496.0 - 1); /* in [-1, 1) */
  if (o->ignore_some && !strcmp(name, "targets") && x % 5 == 0) return -100;
  return (double)(x / 5 % (uint64_t)o->vocabulary);
}

static void fill(void *context, const char *input, int64_t sample, void *row) {
  const harness *h = context;
  const tsr_value *v = &h->placed->values[harness_find(h->placed, input)];
  int64_t n = tsr_value_elements(v) / v->shape[0];
  bool tokens = v->dtype == TSR_I32;
  for (int64_t i = 0; i < n; i++) {
    double x = harness_number(&h->options, input, tokens, sample, i);
    if (tokens) ((int32_t *)row)[i] = (int32_t)x;
    else ((float *)row)[i] = (float)x;
  }
}

/* Rows that the loss is the mean of, over the step. */
static int64_t count_rows(const harness *h) {
  const tsr_graph *g = h->graph;
  int64_t rows = 1;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op != TSR_OP_SQUARED_ERROR && n->op != TSR_OP_CE_LOSS) continue;
    const tsr_value *x = &g->values[n->inputs[0]];
    rows = tsr_value_elements(x) / x->shape[x->ndim - 1] * h->options.microbatches;
  }
  return rows;
}

void harness_step_scalars(const harness *h, int64_t step, float step_scalars[TSR_SCALARS]) {
  step_scalars[TSR_SCALAR_LR] = 0.01f;
  step_scalars[TSR_SCALAR_CORRECTION1] = (float)(1 - pow(0.9, (double)step + 1));
  step_scalars[TSR_SCALAR_CORRECTION2] = (float)(1 - pow(0.999, (double)step + 1));
  step_scalars[TSR_SCALAR_INV_COUNT] = 1.0f / (float)count_rows(h);
  step_scalars[TSR_SCALAR_FIRST] = step == 0;
  step_scalars[TSR_SCALAR_LOSS_SCALE] = h->options.loss_scale > 0 ? h->options.loss_scale : 1;
}

void harness_step(harness *h, int64_t step) {
  float step_scalars[TSR_SCALARS];
  harness_step_scalars(h, step, step_scalars);
  tsr_executable_set_step_scalars(h->executable, step_scalars);
  tsr_executable_run(h->executable, step, fill, h);
}

static float *read_value(tsr_arena *arena, const harness *h, int value, int64_t *ret_count) {
  *ret_count = tsr_value_elements(&h->placed->values[value]);
  float *out = tsr_arena_array(arena, float, *ret_count);
  tsr_executable_read(h->executable, value, out);
  return out;
}

float *harness_read(tsr_arena *arena, const harness *h, const char *name, int64_t *ret_count) {
  int value = tsr_graph_find_output(h->placed, name);
  if (value < 0) return NULL;
  return read_value(arena, h, value, ret_count);
}

float *harness_read_param(tsr_arena *arena, const harness *h, int param, int64_t *ret_count) {
  return read_value(arena, h, tsr_executable_param(h->executable, param), ret_count);
}

void harness_keep(tsr_arena *arena, harness_trace *t, const float *data, int64_t count) {
  float *all = tsr_arena_array(arena, float, t->count + count);
  if (t->count) memcpy(all, t->data, sizeof *all * (size_t)t->count);
  memcpy(all + t->count, data, sizeof *all * (size_t)count);
  t->data = all;
  t->count += count;
}

void harness_keep_weights(tsr_arena *arena, const harness *h, harness_trace *t) {
  for (int p = 0; p < h->graph->params_count; p++) {
    int64_t n;
    float *w = harness_read_param(arena, h, p, &n);
    harness_keep(arena, t, w, n);
  }
}
