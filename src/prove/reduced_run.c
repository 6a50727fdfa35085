// SPDX-License-Identifier: Apache-2.0
#include "prove/reduced_run.h"
#include "base/reduction_tree.h"
#include "train/sequence_reduction_units.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 64 };

/* What stays as it is, from little to everything. */
typedef enum { SHRINK_ALL, KEEP_MICROBATCHES, KEEP_MESH, KEEP_BATCH, STRATEGIES } strategy;

typedef struct {
  const tsr_prove_request *request;
  strategy strategy;
  bool single_may_fail;
  tsr_kept_size kept[KEPT_MAX];
  int kept_count;
  int64_t sequence_units; /* of the full run */
  /* of the reduced one */
  int64_t accumulation, splits, rows, batch_units, tp_units, reduced_sequence_units;
  int64_t expert_units; /* 0: there are no experts */
} attempt;

static int64_t at_least_1(int64_t n) { return n > 1 ? n : 1; }

/* ---- mesh and microbatches ---- */

static const char *fixed_stages(const tsr_config *c) {
  if (c->pipeline.stages_count) return "pipeline.stages";
  if (c->pipeline.blocks_count) return "blocks_per_rank";
  if (c->pipeline.schedule_file) return "the schedule file";
  return NULL;
}

/* The dimensions that ZeRO may split: those that tp does not. */
static void find_zero_sizes(const tsr_prove_request *r, tsr_reduced_limits *limits) {
  const tsr_graph *g = r->training->graph;
  int64_t *sizes = NULL;
  int count = 0, capacity = 0;
  for (int i = 0; i < g->params_count && r->config->zero.stage > 0; i++)
    for (int d = 0; d < g->params[i].ndim; d++) {
      tsr_placement tp = g->params[i].placement[TSR_TP];
      if (r->parallel->size[TSR_TP] > 1 && tp.kind == TSR_SHARD && tp.dim == d) continue;
      tsr_arena_grow(r->arena, (void **)&sizes, sizeof *sizes, count, &capacity);
      sizes[count++] = g->params[i].shape[d];
    }
  limits->zero_sizes = sizes;
  limits->zero_sizes_count = count;
}

static tsr_reduced_mesh shape_of(const attempt *a) {
  const tsr_prove_request *r = a->request;
  tsr_reduced_limits limits = {.full_mesh = r->full_mesh || a->strategy >= KEEP_MESH};
  const tsr_config_device *d = &r->config->device;
  limits.hybrid = d->enable_ddp && d->enable_fsdp && !d->axes_count;
  limits.processes = r->config->pipeline.workers > 1;
  limits.fixed_stages = fixed_stages(r->config) != NULL;
  find_zero_sizes(r, &limits);
  return tsr_reduced_mesh_reduce(r->parallel, limits);
}

/* Fewer than the stages stay fewer, as many stay as many; of more there are at least two rounds, so
 * that every stage frees the memory of one and uses it for another. */
static int64_t pipeline_microbatches(int64_t m, int64_t stages, int64_t reduced) {
  if (m < stages) return at_least_1(m * reduced / stages);
  tsr_size_split split = {"stages", stages, reduced};
  return tsr_size_reduce(m, &split, 1, m >= 2 * stages ? 2 * reduced : reduced);
}

/* A step's microbatches are accumulation × splits. */
static void reduce_microbatches(attempt *a, const tsr_reduced_mesh *shape) {
  const tsr_prove_request *r = a->request;
  int64_t stages = r->parallel->size[TSR_PP], reduced = shape->size[TSR_PP];
  a->accumulation = r->config->training.gradient_accumulation_steps;
  a->splits = at_least_1(r->config->schedule.pipeline_microbatches);
  if (a->strategy >= KEEP_MICROBATCHES || r->config->pipeline.schedule_file) return;
  if (stages == 1) {
    a->accumulation = tsr_axis_reduce(a->accumulation);
    a->splits = tsr_axis_reduce(a->splits);
  } else if (a->splits > 1) {
    a->splits = pipeline_microbatches(a->splits, stages, reduced);
    a->accumulation = tsr_axis_reduce(a->accumulation);
  } else {
    a->accumulation = pipeline_microbatches(a->accumulation, stages, reduced);
  }
}

/* Units keep their ratio to ranks and microbatches; a rank's rows of a microbatch, to the units. */
static void reduce_batch(attempt *a, const tsr_reduced_mesh *shape) {
  const tsr_prove_request *r = a->request;
  const tsr_parallel *p = r->parallel;
  int64_t blocks = tsr_reduced_mesh_batch_ranks(shape) * a->accumulation * a->splits;
  int64_t each = at_least_1(r->batch_units / (tsr_parallel_batch_ranks(p) * p->microbatches));
  tsr_size_split split = {"batch units", each, each};
  int64_t least = p->batch_size_local >= 2 * each ? 2 * each : each; /* samples of a unit */
  a->batch_units = each * blocks;
  a->rows = a->strategy >= KEEP_BATCH ? p->batch_size_local
                                      : tsr_size_reduce(p->batch_size_local, &split, 1, least);
  a->tp_units = r->tp_units / p->size[TSR_TP] * shape->size[TSR_TP];
}

static void reduce_sequence_units(attempt *a, const tsr_reduced_mesh *shape) {
  const tsr_prove_request *r = a->request;
  const int *full = r->parallel->size;
  int64_t tp = r->config->device.enable_sp ? full[TSR_TP] : 1;
  int64_t reduced_tp = r->config->device.enable_sp ? shape->size[TSR_TP] : 1;
  a->sequence_units = at_least_1(r->training->graph->units.sequence);
  a->reduced_sequence_units =
      a->sequence_units * shape->size[TSR_CP] * reduced_tp / (full[TSR_CP] * tp);
  a->reduced_sequence_units = at_least_1(a->reduced_sequence_units);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* A leaf of experts' gradients keeps its batch units, if those of a rank are whole leaves. */
static void reduce_expert_units(attempt *a, const tsr_reduced_mesh *shape) {
  const tsr_prove_request *r = a->request;
  int64_t leaves = r->training->graph->units.expert, parts = shape->size[TSR_DP];
  tsr_tree_shape tree = r->parallel->tree;
  if (tsr_microbatch_first(tree, r->config, shape->size)) parts *= a->accumulation * a->splits;
  if (tree == TSR_TREE_FLAT) parts = a->batch_units;
  a->expert_units = 0;
  if (!leaves) return;
  int64_t leaf = common_divisor(at_least_1(r->batch_units / leaves), a->batch_units / parts);
  a->expert_units = a->batch_units / leaf;
  if (!tsr_tree_of_is_subtree(tree, a->expert_units, a->expert_units / parts))
    a->expert_units = parts;
}

/* ---- the model ---- */

static tsr_size_split zero_shards(const tsr_prove_request *r, const tsr_reduced_mesh *shape) {
  const tsr_parallel *p = r->parallel;
  int64_t reduced = shape->size[TSR_DP];
  for (int i = 0; i < shape->count; i++)
    if (!strcmp(shape->dims[i].name, "fsdp")) reduced = shape->dims[i].reduced;
  bool shards = r->config->zero.stage > 0 && p->size[TSR_DP] > 1;
  int64_t full = p->fsdp ? p->fsdp_size : p->size[TSR_DP];
  return (tsr_size_split){"ZeRO shards", shards ? full : 1, shards ? reduced : 1};
}

static tsr_run_splits splits_of(const attempt *a, const tsr_reduced_mesh *shape) {
  const tsr_prove_request *r = a->request;
  tsr_run_splits c = {.recompute_every = 1};
  for (int axis = 0; axis < TSR_AXES; axis++)
    c.axis[axis] =
        (tsr_size_split){tsr_axis_name(axis), r->parallel->size[axis], shape->size[axis]};
  c.axis[TSR_DP].full = r->batch_units;
  c.axis[TSR_DP].reduced = a->batch_units;
  c.axis[TSR_TP] = (tsr_size_split){"tp units", r->tp_units, a->tp_units};
  c.sequence_units =
      (tsr_size_split){"sequence units", a->sequence_units, a->reduced_sequence_units};
  c.zero_shards = zero_shards(r, shape);
  c.has_tp = r->parallel->size[TSR_TP] > 1;
  int64_t chunks = r->training->programs.pipeline->chunks;
  c.stages = (tsr_size_split){
      "virtual stages", chunks * r->parallel->size[TSR_PP], chunks * shape->size[TSR_PP]};
  if (r->config->schedule.recompute == TSR_RECOMPUTE_FULL)
    c.recompute_every = at_least_1(r->config->schedule.recompute_every);
  if (!r->config->pipeline.schedule_file) c.fixed_blocks = fixed_stages(r->config);
  return c;
}

static bool reduce_sizes(
    const attempt *a, const tsr_reduced_mesh *shape, tsr_reduced_sizes *ret, tsr_diags *diags) {
  const tsr_prove_request *r = a->request;
  const tsr_parallel *p = r->parallel;
  tsr_compile_options full = {.config = r->config, .parallel = p};
  full.batch_units = r->batch_units;
  full.tp_units = r->tp_units;
  full.graphs_folder = r->graphs_folder;
  full.vocab_detected = r->training->model->vocab_size;
  tsr_reduced_sizes_request s = {.config = r->config, .model = r->training->model};
  s.full = tsr_compile_model(&full, TSR_COMPILE_TRAIN, r->training->batch);
  s.splits = splits_of(a, shape);
  s.kept = a->kept;
  s.kept_count = a->kept_count;
  return tsr_reduced_sizes_make(r->arena, &s, ret, diags);
}

/* ---- configurations ---- */

static bool configure_common(
    const attempt *a, const tsr_reduced_run *plan, tsr_config **ret, tsr_diags *diags) {
  const tsr_prove_request *r = a->request;
  tsr_config *c = tsr_arena_alloc(r->arena, sizeof *c);
  *c = *r->config;
  *ret = c;
  c->training.batch_size_given = true;
  c->training.batch_size_per_rank = 0;
  c->zero.offload = TSR_OFFLOAD_NONE;
  c->numerics.units_batch = plan->own_order ? 0 : a->batch_units;
  c->numerics.units_expert = plan->own_order ? 0 : a->expert_units;
  c->numerics.units_tp = a->tp_units;
  c->numerics.units_sequence = a->reduced_sequence_units;
  return tsr_reduced_sizes_apply(r->arena, &plan->sizes, c, diags);
}

static bool compile_mesh(attempt *a, tsr_reduced_run *plan, tsr_diags *diags) {
  tsr_config *c;
  if (!configure_common(a, plan, &c, diags)) return false;
  tsr_reduced_mesh_apply(&plan->shape, c);
  c->training.batch_size = a->rows * tsr_reduced_mesh_batch_ranks(&plan->shape) * a->splits;
  c->training.gradient_accumulation_steps = a->accumulation;
  c->schedule.pipeline_microbatches = a->splits;
  return tsr_prove_compile(a->request, c, TSR_OUTPUTS_LOSS, &plan->mesh, diags);
}

/* The same samples in so many microbatches. */
static bool
compile_single(attempt *a, tsr_reduced_run *plan, int64_t microbatches, tsr_diags *diags) {
  int64_t samples =
      a->rows * tsr_reduced_mesh_batch_ranks(&plan->shape) * a->splits * a->accumulation;
  tsr_config *c;
  if (!configure_common(a, plan, &c, diags)) return false;
  tsr_reduced_mesh_single(c);
  c->training.batch_size = samples / microbatches;
  c->training.gradient_accumulation_steps = microbatches;
  c->schedule.pipeline_microbatches = 1;
  return tsr_prove_compile(a->request, c, TSR_OUTPUTS_LOSS, &plan->single, diags);
}

/* One microbatch, so that nothing of the recipe may depend on how many the mesh has. As many as the
 * mesh has where a graph file is of that number of samples alone; or one a unit. */
static bool compile_reference(attempt *a, tsr_reduced_run *plan, tsr_diags *diags) {
  int64_t counts[] = {1, a->accumulation * a->splits, a->batch_units};
  tsr_diags *first = tsr_diags_new(a->request->arena), *ignored = tsr_diags_new(a->request->arena);
  for (int i = 0; i < 3; i++)
    if (compile_single(a, plan, counts[i], i ? ignored : first)) return true;
  plan->refused = tsr_diags_first_error(first);
  if (!*plan->refused) plan->refused = "the graph needs it";
  if (!a->single_may_fail) return tsr_diag_error(diags, TSR_NOWHERE, "%s", plan->refused);
  tsr_config *c = plan->mesh.config;
  return tsr_prove_compile(a->request, c, TSR_OUTPUTS_LOSS, &plan->single, diags);
}

bool tsr_prove_compile(
    const tsr_prove_request *r, tsr_config *config, tsr_compile_outputs outputs, tsr_prove_run *ret,
    tsr_diags *diags) {
  static const int one = 1;
  const tsr_config_device *d = &config->device;
  tsr_mesh *mesh = tsr_mesh_make_cpu(
      r->arena, d->mesh_ndim ? d->mesh_shape : &one, d->mesh_ndim ? d->mesh_ndim : 1);
  *ret = (tsr_prove_run){.config = config};
  if (!tsr_parallel_make(r->arena, config, mesh, &ret->parallel, diags) ||
      !tsr_parallel_units(ret->parallel, config, &ret->batch_units, &ret->tp_units, diags))
    return false;
  tsr_compile_options *o = &ret->options;
  o->config = config;
  o->parallel = ret->parallel;
  o->batch_units = ret->batch_units;
  o->tp_units = ret->tp_units;
  o->graphs_folder = r->graphs_folder;
  o->target = tsr_cpu_target(&r->cpu);
  o->outputs = outputs;
  return tsr_compile(r->arena, o, TSR_COMPILE_TRAIN, &ret->compiled, diags);
}

static void
add_row(tsr_reduced_run *plan, const char *name, int64_t full, int64_t reduced, const char *why) {
  plan->rows[plan->rows_count++] = (tsr_run_row){name, full, reduced, why};
}

static void add_rows(const attempt *a, tsr_reduced_run *plan) {
  const tsr_config *c = a->request->config;
  const tsr_parallel *p = a->request->parallel;
  int64_t accumulation = c->training.gradient_accumulation_steps;
  int64_t splits = at_least_1(c->schedule.pipeline_microbatches);
  int64_t ranks = tsr_reduced_mesh_batch_ranks(&plan->shape);
  const char *ratio = "ratio to ranks and microbatches";
  const char *kept = c->pipeline.schedule_file ? "kept: the schedule file" : "";
  bool pipeline = p->size[TSR_PP] > 1 && !*kept;
  add_row(
      plan, "batch_size", p->batch_size * splits, a->rows * ranks * a->splits,
      "ranks, batch units");
  if (accumulation > 1)
    add_row(
        plan, "gradient_accumulation_steps", accumulation, a->accumulation,
        pipeline && splits == 1 ? "stages" : kept);
  if (splits > 1)
    add_row(plan, "pipeline.microbatches", splits, a->splits, pipeline ? "stages" : kept);
  add_row(plan, "units.batch", a->request->batch_units, a->batch_units, ratio);
  if (a->expert_units)
    add_row(
        plan, "units.expert", a->request->training->graph->units.expert, a->expert_units,
        "ratio to batch units");
  if (a->sequence_units > 1)
    add_row(
        plan, "units.sequence", a->sequence_units, a->reduced_sequence_units, "ratio to cp and tp");
  add_row(plan, "units.tp", a->request->tp_units, a->tp_units, "ratio to tp");
  add_row(plan, "max_steps", c->training.max_steps, TSR_PROVE_STEPS, "");
}

static bool try(attempt *a, tsr_reduced_run *plan, tsr_diags *diags) {
  *plan = (tsr_reduced_run){.shape = shape_of(a)};
  reduce_microbatches(a, &plan->shape);
  reduce_batch(a, &plan->shape);
  reduce_sequence_units(a, &plan->shape);
  reduce_expert_units(a, &plan->shape);
  tsr_tree_shape tree = a->request->parallel->tree;
  plan->own_order = tsr_batch_units_have_own_order(
      tree, a->batch_units, plan->shape.size, a->accumulation * a->splits,
      tsr_microbatch_first(tree, a->request->config, plan->shape.size));
  add_rows(a, plan);
  return reduce_sizes(a, &plan->shape, &plan->sizes, diags) && compile_mesh(a, plan, diags) &&
         compile_reference(a, plan, diags);
}

/* ---- what stays ---- */

static bool try_quietly(attempt *a, tsr_reduced_run *plan, const char **ret_why) {
  tsr_diags *diags = tsr_diags_new(a->request->arena);
  if (try(a, plan, diags)) return true;
  *ret_why = tsr_diags_first_error(diags);
  if (!**ret_why) *ret_why = "the graph needs it";
  return false;
}

static void keep(attempt *a, const tsr_reduced_size *row, const char *why) {
  const char *name = row->key ? row->name : "sequence";
  if (a->kept_count < KEPT_MAX) a->kept[a->kept_count++] = (tsr_kept_size){name, why};
}

/* One size alone, where that is enough; else as many as it needs, in their order. */
static bool keep_sizes(attempt *a, tsr_reduced_run *plan, const char *why) {
  const tsr_reduced_sizes first = plan->sizes;
  const char *other;
  for (int together = 0; together < 2; together++)
    for (int i = 0; i < first.count; i++) {
      if (!together) a->kept_count = 0;
      if (!first.rows[i].shrinks) continue;
      keep(a, &first.rows[i], why);
      if (try_quietly(a, plan, &other)) return true;
    }
  return false;
}

bool tsr_reduced_run_make(
    const tsr_prove_request *request, tsr_reduced_run *plan, tsr_diags *diags) {
  attempt a = {.request = request};
  const char *why;
  if (try_quietly(&a, plan, &why) || keep_sizes(&a, plan, why)) return true;
  int all = a.kept_count;
  for (int i = 1; i < 2 * STRATEGIES; i++)
    for (int sizes = 0; sizes < 2; sizes++) {
      a.strategy = (strategy)(i % STRATEGIES);
      a.single_may_fail = i >= STRATEGIES;
      a.kept_count = sizes ? all : 0;
      if (try_quietly(&a, plan, &why)) return true;
    }
  return try(&a, plan, diags);
}
