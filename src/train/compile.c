// SPDX-License-Identifier: Apache-2.0
#include "train/compile.h"
#include "train/cache_plan.h"
#include "train/compile_checks.h"
#include "train/fp8_layers.h"
#include "graph/routing.h"
#include "schedule/verify.h"
#include "train/sequence_reduction_units.h"
#include <string.h>

/* A multiple of the ranks that share the samples out. */
static int64_t
batch_of(const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_batch_kind kind) {
  int64_t ranks = tsr_parallel_batch_ranks(o->parallel), batch = o->parallel->batch_size;
  if (purpose == TSR_COMPILE_EVALUATE) batch = o->config->training.validation_batch_size;
  if (purpose == TSR_COMPILE_GENERATE) batch = o->rows ? o->rows : 1;
  return kind == TSR_BATCH_WHOLE ? batch : (batch + ranks - 1) / ranks * ranks;
}

/* Training's batch units are the recipe's. A loss by sample has a unit for each. */
static tsr_lowering lowering_of(
    const tsr_compile_options *o, tsr_compile_purpose purpose, const tsr_graph *g, int64_t batch,
    bool alone, tsr_batch_kind kind) {
  tsr_lowering l = {.microbatches = 1, .batch_units = 1};
  l.tree = o->parallel->tree;
  for (int a = 0; a < TSR_AXES; a++) l.size[a] = o->parallel->size[a];
  l.sequence_units = g->units.sequence / l.size[TSR_CP];
  l.zigzag = o->config->device.cp_layout == TSR_CP_ZIGZAG;
  l.tp_units = o->tp_units / l.size[TSR_TP];
  l.expert_leaves = g->units.expert > 1 ? g->units.expert : 1;
  int64_t ranks = tsr_lowering_batch_ranks(&l);
  if (purpose == TSR_COMPILE_TRAIN) {
    l.microbatches = o->parallel->microbatches;
    l.batch_units = o->batch_units / (ranks * l.microbatches);
    l.overlap = tsr_config_overlaps(&o->config->schedule);
    l.bucket_bytes = o->config->schedule.bucket_size;
    l.microbatch_first = tsr_parallel_microbatch_first(o->parallel, o->config);
  } else if (alone) {
    l.batch_units = o->batch_units >= ranks ? o->batch_units / ranks : 1;
  } else if (kind == TSR_BATCH_BY_SAMPLE) {
    l.batch_units = batch / ranks;
  }
  return l;
}

static tsr_param_store store_of(const tsr_config *c) {
  if (c->training.precision != TSR_PRECISION_BF16) return TSR_STORE_F32;
  return c->optimizer.stochastic_rounding ? TSR_STORE_STOCHASTIC
         : c->optimizer.kahan_summation   ? TSR_STORE_KAHAN
                                          : TSR_STORE_F32;
}

/* A command that only reads a model has no f32 parameters to round again before every run. */
static tsr_graph *narrow(const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_graph *g) {
  const tsr_config *c = o->config;
  static const tsr_dtype dtypes[] = {
      [TSR_PRECISION_F32] = TSR_F32,
      [TSR_PRECISION_BF16] = TSR_BF16,
      [TSR_PRECISION_FP16] = TSR_F16,
      [TSR_PRECISION_FP8] = TSR_BF16};
  tsr_precision_types how = {dtypes[c->training.precision], store_of(c), o->placed_of};
  how.only_reads = purpose != TSR_COMPILE_TRAIN && !o->placed_of && how.store == TSR_STORE_F32;
  return how.dtype == TSR_F32 ? g : tsr_pass_precision(g, how);
}

static tsr_optimizer optimizer_of(const tsr_config *c) {
  tsr_optimizer o = {
      .beta1 = c->optimizer.beta1, .beta2 = c->optimizer.beta2, .eps = c->optimizer.epsilon};
  o.coupled = c->optimizer.type == TSR_OPTIMIZER_ADAM;
  o.kind = c->optimizer.type == TSR_OPTIMIZER_ADAMW || o.coupled ? TSR_RULE_ADAMW
           : c->optimizer.type == TSR_OPTIMIZER_SGD              ? TSR_RULE_SGD
                                                                 : TSR_RULE_NONE;
  o.weight_decay = c->optimizer.weight_decay;
  o.amsgrad = c->optimizer.amsgrad;
  o.momentum = c->optimizer.momentum;
  o.dampening = c->optimizer.dampening;
  o.nesterov = c->optimizer.nesterov;
  o.store = store_of(c);
  o.may_skip = c->training.precision == TSR_PRECISION_FP16;
  o.clip_max_norm = c->training.use_clip_grad_norm ? c->training.clip_grad_norm_max_norm : 0;
  return o;
}

/* Of a graph with a loss little else is asked for: other outputs would keep their memory to the
 * end. */
static void keep_only_loss(tsr_graph *g, bool keeps_logits) {
  int kept = 0, logits = keeps_logits ? tsr_graph_find_output(g, "logits") : -1;
  for (int i = 0; i < g->outputs_count; i++)
    if (g->outputs[i].value == g->loss || g->outputs[i].value == logits)
      g->outputs[kept++] = g->outputs[i];
  g->outputs_count = kept;
}

/* A graph file's collectives, over axes that the mesh does not have. */
static void
note_idle_collectives(const tsr_graph *g, const tsr_parallel *parallel, tsr_diags *diags) {
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    int axis = tsr_node_axis(n);
    if (axis < 0 || parallel->size[axis] > 1) continue;
    const char *name = tsr_axis_name(axis);
    tsr_diag_warning(
        diags, n->location, "this %s does nothing: the mesh has no %s", tsr_op_name(n->op), name);
  }
}

/* Training runs in the configuration's order, everything else forward alone. */
static bool choose_order(
    tsr_arena *arena, const tsr_compile_options *o, bool training, const tsr_pipeline **ret,
    tsr_diags *diags) {
  if (training) return tsr_pipeline_order(arena, o->config, o->parallel, ret, diags);
  int stages = o->parallel->size[TSR_PP], chunks = 1;
  if (o->split) chunks = (o->split->count + 1) / stages;
  tsr_pipeline *pipeline = tsr_pipeline_make(arena, TSR_PIPELINE_FORWARD, stages, chunks, 1);
  pipeline->v_shaped = o->training_pipeline && o->training_pipeline->v_shaped;
  *ret = pipeline;
  return true;
}

static tsr_placing placing_of(
    const tsr_compile_options *o, const tsr_lowering *l, const tsr_graph *g, bool alone,
    tsr_batch_kind kind) {
  tsr_placing p = {.units = {1, 1, 1, 1, 1}, .batch = kind, .is_model = !alone};
  for (int a = 0; a < TSR_AXES; a++) p.size[a] = o->parallel->size[a];
  p.units[TSR_DP] = l->batch_units * l->microbatches * tsr_lowering_batch_ranks(l);
  p.units[TSR_TP] = o->tp_units;
  p.units[TSR_CP] = g->units.sequence > 1 ? g->units.sequence : 1;
  p.sequence_units = g->units.sequence;
  p.zigzag = l->zigzag;
  p.sequence_parallel = o->config->device.enable_sp;
  p.zero = (int)o->config->zero.stage;
  p.zero_owners = o->config->zero.partition == TSR_PARTITION_OWNER_HASH;
  p.stored = o->placed_of;
  p.zero_groups = o->parallel->fsdp ? o->parallel->size[TSR_DP] / o->parallel->fsdp_size : 1;
  return p;
}

/* Each row of a microbatch's activations is planned for by itself (schedule/verify_sum_rows.c). */
static bool check_rows(
    const tsr_compile_options *o, tsr_compile_purpose purpose, int64_t batch, int64_t sequence,
    tsr_diags *diags) {
  enum { ROWS_MAX = 1 << 28 };
  static const char *const keys[] = {
      [TSR_COMPILE_TRAIN] = "training_config.batch_size",
      [TSR_COMPILE_EVALUATE] = "training_config.validation_batch_size",
      [TSR_COMPILE_GENERATE] = NULL};
  const char *key = keys[purpose];
  if (sequence <= ROWS_MAX / batch) return true;
  tsr_diag_error(
      diags, key ? tsr_config_location(o->config, key) : TSR_NOWHERE,
      "%lld samples of %lld tokens are more than the %d tokens that can go through a model at once",
      (long long)batch, (long long)sequence, ROWS_MAX);
  if (purpose == TSR_COMPILE_TRAIN)
    tsr_diag_hint(diags, "a smaller batch_size, and more gradient_accumulation_steps");
  if (purpose == TSR_COMPILE_GENERATE) tsr_diag_hint(diags, "a smaller --max-batch");
  return false;
}

/* With a cache positions are not split, so any number of them will do. */
static bool read_model(
    tsr_arena *arena, const tsr_compile_options *o, tsr_compile_purpose purpose, bool caches,
    tsr_compiled *ret, tsr_diags *diags) {
  tsr_model_options model = tsr_compile_model(o, purpose, ret->batch);
  if (!tsr_compile_read_model(arena, o->config, &model, &ret->model, diags)) return false;
  if (ret->model->reads_batch && !tsr_parallel_check_batch(o->parallel, o->config, diags))
    return false;
  if (!check_rows(o, purpose, ret->batch, ret->model->sequence, diags)) return false;
  ret->graph = ret->model->graph;
  if (purpose != TSR_COMPILE_TRAIN && tsr_dtype_is_quantized(o->weights)) {
    tsr_pass_quantize(ret->graph, o->weights);
    if (!tsr_pass_check_blocks(ret->graph, diags)) return false;
  }
  int output = tsr_graph_find_output(ret->graph, "logits");
  ret->has_logits = output >= 0 && !ret->model->num_labels;
  const tsr_value *logits = output >= 0 ? &ret->graph->values[output] : NULL;
  ret->logits_width = logits && logits->ndim ? logits->shape[logits->ndim - 1] : 0;
  if (caches) ret->graph->units.sequence = 1;
  if (caches) return true;
  return tsr_sequence_units_check(
      o->config, o->parallel, ret->model->sequence, &ret->graph->units.sequence, diags);
}

/* The recipe's units of the gradients of experts, where the model has any. */
static bool find_expert_units(const tsr_compile_options *o, tsr_graph *g, tsr_diags *diags) {
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].op == TSR_OP_EXPERT_LINEAR)
      return tsr_parallel_expert_units(
          o->parallel, o->config, o->batch_units, &g->units.expert, diags);
  return true;
}

static void add_outputs(tsr_graph *g, tsr_compile_outputs outputs) {
  for (int p = 0; p < g->params_count && outputs == TSR_OUTPUTS_GRADIENTS; p++)
    if (g->grads[p] >= 0)
      tsr_graph_output(g, tsr_arena_printf(g->arena, "d.%s", g->params[p].name), g->grads[p]);
  for (int i = 0; i < g->nodes_count && outputs == TSR_OUTPUTS_VALUES; i++) {
    int value = g->nodes[i].outputs_count ? g->nodes[i].outputs[0] : g->loss;
    if (value != g->loss) tsr_graph_output(g, tsr_arena_printf(g->arena, "v.%d", value), value);
  }
}

static void add_training(const tsr_compile_options *o, tsr_graph *g) {
  tsr_optimizer optimizer = optimizer_of(o->config);
  g->microbatches = o->parallel->microbatches;
  tsr_pass_autodiff(g);
  add_outputs(g, o->outputs);
  tsr_pass_optimizer(g, &optimizer);
}

static tsr_graph *recompute(const tsr_compile_options *o, tsr_graph *g) {
  const tsr_config_schedule *s = &o->config->schedule;
  if (s->recompute == TSR_RECOMPUTE_NONE) return g;
  tsr_recomputing how = {.kind = TSR_RECOMPUTE_MAPS, .every = s->recompute_every};
  if (s->recompute == TSR_RECOMPUTE_FULL) how.kind = TSR_RECOMPUTE_BLOCKS;
  if (s->recompute == TSR_RECOMPUTE_SELECTIVE) how.kind = TSR_RECOMPUTE_ATTENTION;
  how.keeps_norms = o->config->device.enable_sp;
  /* Elsewhere a rank computes loss and gradients of a tile of logits at once. */
  int64_t tp = o->parallel->size[TSR_TP];
  bool apart = tp > 1 || o->config->zero.stage >= 3;
  how.logits = apart && s->recompute == TSR_RECOMPUTE_FULL ? tp : 0;
  return tsr_pass_recompute(g, how);
}

/* Where the host's memory is another one than the device's. */
static tsr_graph *offload(const tsr_compile_options *o, tsr_graph *placed) {
  const tsr_config_schedule *s = &o->config->schedule;
  if (s->activation_offload == TSR_ACTIVATION_OFFLOAD_NONE || !o->target.host) return placed;
  tsr_offloading how = {s->activation_offload_blocks, s->activation_offload_min_size, {0}};
  for (int a = 0; a < TSR_AXES; a++) how.size[a] = o->parallel->size[a];
  return tsr_pass_offload(placed, &how);
}

/* Verifies that the programs of all ranks end, and compute the graph. */
static bool
prove(tsr_arena *arena, const tsr_parallel *p, const tsr_programs *programs, tsr_diags *diags) {
  tsr_verify_mesh mesh = {.ranks = p->ranks};
  for (int a = 0; a < TSR_AXES; a++) {
    mesh.size[a] = p->size[a];
    mesh.stride[a] = p->stride[a];
  }
  return tsr_programs_verify(arena, programs, &mesh, diags);
}

/* What is made: `new_tokens` > 0: with a cache. Where the graph does not allow that, or a loss by
 * sample, there is no program, which is no error. */
typedef struct {
  tsr_compile_purpose purpose;
  int64_t new_tokens, chunk; /* chunk: the most that any of the programs takes */
  tsr_batch_kind batch;
  bool scores; /* the logits of all new tokens, not of the last one */
} request;

/* Makes the graph one of `new_tokens` of each text; false where something else than attention mixes
 * positions. */
static bool cache(const tsr_compile_options *o, tsr_compiled *c, request want) {
  tsr_graph *cached;
  tsr_cache_shape shape = {.new_tokens = want.new_tokens, .last_only = !want.scores};
  int64_t most = c->model->sequence;
  if (shape.new_tokens > most) shape.new_tokens = most;
  if (!most) c->why_no_cache = "the model has no sequence";
  if (!most) return false;
  int64_t pools = want.batch == TSR_BATCH_SHARED ? tsr_parallel_batch_ranks(o->parallel) : 1;
  c->cache = tsr_cache_plan_make(o, c, pools, want.chunk);
  shape.page = c->cache.page;
  shape.pages = c->cache.pages * c->cache.pools;
  if (!tsr_pass_cache(c->graph, &shape, &cached, &c->why_no_cache)) return false;
  c->graph = cached;
  c->new_tokens = shape.new_tokens;
  return true;
}

static bool has_samples(const tsr_graph *g) {
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_INPUT) return true;
  return false;
}

/* False for a loss that is none of the ops for losses, or of no samples. */
static bool split_loss(const tsr_compile_options *o, tsr_compiled *ret) {
  ret->samples = o->config->training.validation_batch_size;
  ret->joins_samples =
      tsr_graph_find_loss(ret->graph, ret->graph->loss) < 0 || !has_samples(ret->graph);
  if (!ret->joins_samples) ret->graph = tsr_pass_by_sample(ret->graph, ret->batch, ret->samples);
  return !ret->joins_samples;
}

/* All ranks of cp have the same tokens. */
static void keep_whole_over_cp(const tsr_graph *g, tsr_lowering *l, tsr_placing *p) {
  l->sequence_units = g->units.sequence;
  l->zigzag = p->zigzag = false;
  p->units[TSR_CP] = 1;
  p->whole_positions = true;
  p->sequence_parallel = false;
}

/* What speaks against sharing an evaluation's samples out is no error: each rank can have all. */
static bool location(
    tsr_arena *arena, const tsr_placing *placing, bool by_sample, tsr_compiled *ret,
    tsr_diags *diags) {
  if (!by_sample) return tsr_pass_placement(ret->graph, placing, &ret->placed, diags);
  ret->joins_samples =
      !tsr_pass_placement(ret->graph, placing, &ret->placed, tsr_diags_new(arena)) ||
      tsr_graph_joins_samples(ret->placed);
  return true;
}

static bool compile_program(
    tsr_arena *arena, const tsr_compile_options *o, request want, tsr_compiled *ret,
    tsr_diags *diags) {
  tsr_compile_purpose purpose = want.purpose;
  int64_t new_tokens = want.new_tokens;
  *ret = (tsr_compiled){.batch = batch_of(o, purpose, want.batch), .samples = 1};
  if (!read_model(arena, o, purpose, new_tokens > 0, ret, diags)) return false;
  bool alone = ret->graph->loss < 0 && purpose != TSR_COMPILE_GENERATE;
  if (alone) purpose = TSR_COMPILE_GENERATE;
  if (alone) want.batch = TSR_BATCH_SHARED;
  bool predicts = purpose == TSR_COMPILE_EVALUATE && ret->model->num_labels;
  if (purpose != TSR_COMPILE_GENERATE) keep_only_loss(ret->graph, o->keeps_logits || predicts);
  bool training = purpose == TSR_COMPILE_TRAIN;
  if (purpose == TSR_COMPILE_TRAIN || alone) note_idle_collectives(ret->graph, o->parallel, diags);
  if (training && !tsr_compile_check_loss_scale(o->config, diags)) return false;
  bool learns = training && ret->graph->loss >= 0;
  if (learns && !tsr_pass_check_padding(ret->graph, diags)) return false;
  if (training && !tsr_compile_check_samples(arena, o, ret, diags)) return false;
  if (training && !find_expert_units(o, ret->graph, diags)) return false;
  if (training && !tsr_pass_check_balance(ret->graph, o->parallel->microbatches, diags))
    return false;
  if (want.purpose != TSR_COMPILE_GENERATE &&
      !tsr_compile_fp8(arena, o->config, training, ret->graph, diags))
    return false;
  const tsr_pipeline *pipeline;
  if (!choose_order(arena, o, training, &pipeline, diags)) return false;
  ret->split = o->split ? *o->split : (tsr_stage_split){0};
  ret->split.of = o->split ? o->split_of : NULL;
  if (!o->split && !tsr_pipeline_split(ret->graph, o->config, pipeline, &ret->split, diags))
    return false;
  bool routing = training && (o->records_routing || o->replays_routing);
  if (routing && !tsr_compile_check_routing(arena, o, ret, diags)) return false;
  if (routing && o->replays_routing) tsr_graph_replay_routing(ret->graph);
  if (training) add_training(o, ret->graph);
  if (!tsr_pass_stages(ret->graph, &ret->split, diags)) return false;
  if (ret->split.of && !tsr_pass_take_params(ret->graph, ret->split.of, diags)) return false;
  if (training) ret->graph = recompute(o, ret->graph);
  if (pipeline->splits_backward) tsr_pass_weights(ret->graph);
  if (new_tokens && !cache(o, ret, want)) return true;
  if (new_tokens && !tsr_cache_plan_check(o, ret, diags)) return false;
  bool by_sample = want.batch == TSR_BATCH_BY_SAMPLE;
  if (by_sample && !split_loss(o, ret)) return true;
  ret->graph = narrow(o, want.purpose, ret->graph);
  tsr_lowering lowering = lowering_of(o, purpose, ret->graph, ret->batch, alone, want.batch);
  tsr_placing placing = placing_of(o, &lowering, ret->graph, alone, want.batch);
  if (ret->new_tokens) keep_whole_over_cp(ret->graph, &lowering, &placing);
  if (!location(arena, &placing, by_sample, ret, diags)) return false;
  if (ret->joins_samples) return true;
  if (alone && !tsr_compile_check_flat_units(o, &lowering, ret->placed, diags)) return false;
  if (learns && !o->keeps_activations) ret->placed = offload(o, ret->placed);
  ret->programs = tsr_programs_make(ret->placed, &lowering, pipeline, &o->target);
  return prove(arena, o->parallel, &ret->programs, diags);
}

/* Whether what the model makes of its samples depends on how many they are: so many, or that many.
 * Our own graph files have no such model. */
static bool depends_on_batch(
    tsr_arena *arena, const tsr_compile_options *o, tsr_compile_purpose purpose, int64_t some,
    int64_t others) {
  const int64_t samples[] = {some, others};
  tsr_model *models[2];
  if (!tsr_config_has_own_graph(o->config) || some == others) return false;
  tsr_diags *diags = tsr_diags_new(arena);
  for (int i = 0; i < 2; i++) {
    tsr_model_options options = tsr_compile_model(o, purpose, samples[i]);
    if (!tsr_compile_read_model(arena, o->config, &options, &models[i], diags)) return i > 0;
  }
  return !tsr_pass_check_numbers(models[0]->graph, models[1]->graph, diags);
}

/* Why the model's texts cannot have a cache, whatever the number of rows that are generated at once
 * is, which depends on the mesh; NULL: they can. And whether these rows see each other, or
 * count. */
static const char *
inspect_generation(tsr_arena *arena, const tsr_compile_options *o, bool *ret_mixes) {
  enum { ROWS = 2 };
  tsr_model_options options = tsr_compile_model(o, TSR_COMPILE_GENERATE, ROWS);
  tsr_model *model;
  tsr_graph *cached;
  const char *why = NULL;
  *ret_mixes = false;
  if (!tsr_compile_read_model(arena, o->config, &options, &model, tsr_diags_new(arena)))
    return NULL;
  if (tsr_graph_find_output(model->graph, "logits") < 0) return NULL;
  *ret_mixes = !tsr_pass_check_mixed(model->graph, ROWS, tsr_diags_new(arena)) ||
               depends_on_batch(arena, o, TSR_COMPILE_GENERATE, 1, ROWS);
  tsr_cache_shape shape = {.new_tokens = 1, .last_only = true, .page = TSR_CACHE_PAGE_STEP};
  return tsr_pass_cache(model->graph, &shape, &cached, &why) ? NULL : why;
}

/* The logits of all new tokens may be much memory, so they are fewer where the vocabulary is large.
 */
static bool compile_scores(
    tsr_arena *arena, const tsr_compile_options *o, request want, tsr_compiled *ret,
    tsr_diags *diags) {
  const int64_t logits_max = 1 << 25;
  int64_t tokens = logits_max / (ret->batch * ret->logits_width);
  want.new_tokens = tokens < 2 ? 2 : tokens < ret->new_tokens ? tokens : ret->new_tokens;
  want.scores = true;
  ret->score = tsr_arena_alloc(arena, sizeof *ret->score);
  return compile_program(arena, o, want, ret->score, diags);
}

/* Fewer texts at once do not have to take the time of all: programs for a quarter of the texts, a
 * sixteenth, and so on. They have the same cache, so any text can be in any of them. */
static bool compile_fewer(
    tsr_arena *arena, const tsr_compile_options *o, request want, tsr_compiled *ret,
    tsr_diags *diags) {
  enum { TIMES_FEWER = 4 };
  tsr_compile_options other = *o;
  int64_t ranks = ret->cache.pools;
  other.pages = ret->cache.pages * ranks;
  for (int i = 1; i < TSR_TEXT_COUNTS_MAX && ret->batch > ranks; i++, ret = ret->fewer) {
    int64_t each = (ret->batch / ranks + TIMES_FEWER - 1) / TIMES_FEWER;
    other.rows = each * ranks;
    ret->fewer = tsr_arena_alloc(arena, sizeof *ret->fewer);
    if (!compile_program(arena, &other, want, ret->fewer, diags)) return false;
  }
  return true;
}

/* The window's tokens come in chunks; each new one comes alone. Without a cache a text is of the
 * model's own sequence: what is not filled of that may be seen by attention that is not causal.
 * Where texts would see each other, there is one at a time, which every rank of dp computes. */
static bool compile_generation(
    tsr_arena *arena, const tsr_compile_options *o, tsr_compiled *ret, tsr_diags *diags) {
  enum { CHUNK = 64 };
  int64_t chunk = o->chunk < 0 ? 0 : o->chunk ? o->chunk : CHUNK;
  bool mixes;
  const char *obstacle = inspect_generation(arena, o, &mixes);
  const char *why = chunk ? obstacle : "it is not wanted";
  request want = {.purpose = TSR_COMPILE_GENERATE, .new_tokens = why ? 0 : chunk};
  want.chunk = chunk;
  tsr_compile_options other = *o;
  if (mixes) other.rows = 1;
  if (mixes) want.batch = TSR_BATCH_WHOLE;
  if (why) other.window = 0;
  if (!compile_program(arena, &other, want, ret, diags)) return false;
  if (!why && !ret->new_tokens) { /* a model without a sequence */
    why = ret->why_no_cache;
    other.window = want.new_tokens = 0;
    if (!compile_program(arena, &other, want, ret, diags)) return false;
  }
  ret->why_no_cache = why;
  if (why) return true;
  ret->decode = tsr_arena_alloc(arena, sizeof *ret->decode);
  other.split = &ret->split;
  other.split_of = ret->split.of;
  bool alone = o->target.rows_are_alone;
  if (alone && !compile_fewer(arena, &other, want, ret, diags)) return false;
  want.new_tokens = 1;
  if (!compile_program(arena, &other, want, ret->decode, diags)) return false;
  if (alone && !compile_fewer(arena, &other, want, ret->decode, diags)) return false;
  return !o->scores || compile_scores(arena, &other, want, ret, diags);
}

/* Where samples see each other, or their number counts, every rank of dp has exactly those that are
 * evaluated; also where dp has one rank, so that the loss is the same sum. */
static bool compile_evaluation(
    tsr_arena *arena, const tsr_compile_options *o, tsr_compiled *ret, tsr_diags *diags) {
  request want = {.purpose = TSR_COMPILE_EVALUATE, .batch = TSR_BATCH_BY_SAMPLE};
  int64_t samples = o->config->training.validation_batch_size;
  int64_t filled = batch_of(o, want.purpose, want.batch);
  if (!depends_on_batch(arena, o, want.purpose, samples, 2 * samples) &&
      !depends_on_batch(arena, o, want.purpose, samples, filled)) {
    if (!compile_program(arena, o, want, ret, diags)) return false;
    if (!ret->joins_samples) return true;
  }
  want.batch = TSR_BATCH_WHOLE;
  return compile_program(arena, o, want, ret, diags);
}

bool tsr_compile(
    tsr_arena *arena, const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_compiled *ret,
    tsr_diags *diags) {
  if (purpose == TSR_COMPILE_GENERATE) return compile_generation(arena, o, ret, diags);
  if (purpose == TSR_COMPILE_EVALUATE) return compile_evaluation(arena, o, ret, diags);
  return compile_program(arena, o, (request){.purpose = purpose}, ret, diags);
}
