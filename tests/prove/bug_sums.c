// SPDX-License-Identifier: Apache-2.0
/* Sums and what they are multiplied by: of gradients, of the loss, of a norm. */
#include "bug_classes.h"

const char *const bug_class_names[BUG_CLASSES] = {
    "wrong gradient scale",
    "missing all-reduce",
    "stale gather",
    "wrong group",
    "tied weights reduced twice",
    "wrong loss normalisation",
    "mis-split heads",
    "wrong position offset",
    "wrong dropout seed",
    "missing norm's gradient",
    "wrong stage's input",
    "state of another shard",
    "clipping by a local norm",
    "stale parameter of a stage"};

int bug_gradient(const bug *b, const char *param) {
  int update = bug_find(b, tsr_arena_printf(b->arena, "update.%s", param));
  return b->g->nodes[update].inputs[1];
}

void bug_run_over(bug *b, int node, int axis) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  b->node = node;
  for (int s = 0; s < programs->pipeline->stages; s++)
    for (int t = 0; t < programs->of_stage[s]->tasks_count; t++)
      if (programs->of_stage[s]->tasks[t].node == node) programs->of_stage[s]->tasks[t].axis = axis;
}

static void scale(bug *b, int value, double factor) {
  b->node = bug_insert(b, value, TSR_OP_SCALE, &(tsr_attrs){.scale = {factor}});
  bug_lower(b, NULL, NULL);
}

/* ---- wrong gradient scale ---- */

/* The mean over ranks is taken of gradients that are complete. */
static void mean_of_one(bug *b) { scale(b, bug_gradient(b, "block.0.mlp.w_up"), 0.5); }

/* Gradients of microbatches are means, which are added and not divided. */
static void sum_of_microbatches(bug *b) { scale(b, bug_find_value(b, "d.logits@loss"), 2); }

/* The scale of an adapter is missing in its backward pass. */
static void adapter_scale(bug *b) {
  b->node = bug_find_op(b, -1, TSR_OP_SCALE, TSR_BACKWARD, "");
  b->g->nodes[b->node].attr.scale.factor = 1;
  bug_lower(b, NULL, NULL);
}

/* Experts' gradients are divided by the ranks of ep, which have no other samples. */
static void expert_mean(bug *b) { scale(b, bug_gradient(b, "block.1.moe.w_down"), 0.5); }

/* ---- missing all-reduce: the collective runs over an axis of one rank ---- */

/* The task, since a sum over an axis of one rank is no task. */
static void run_alone(bug *b, int node) { bug_run_over(b, node, bug_idle_axis(b)); }

static void gradient_of_ranks(bug *b) {
  run_alone(b, b->g->values[bug_gradient(b, "block.1.attn.wo")].node);
}
static void row_parallel(bug *b) { run_alone(b, bug_find(b, "block.0.o.product.reduced_tp")); }
static void router_over_ep(bug *b) {
  run_alone(b, bug_find(b, "d.block.0.moe.router@block.0.g.reduced_ep"));
}
static void column_parallel(bug *b) { run_alone(b, bug_find(b, "d.n.reduced_tp")); }

/* ---- wrong group ---- */

static void gradient_over_tp(bug *b) {
  bug_run_over(b, b->g->values[bug_gradient(b, "block.1.attn.wo")].node, TSR_TP);
}
static void rows_over_dp(bug *b) {
  bug_run_over(b, bug_find(b, "block.0.o.product.reduced_tp"), TSR_DP);
}
static void experts_over_dp(bug *b) {
  bug_run_over(b, bug_find(b, "block.0.f.scattered_ep"), TSR_DP);
}
static void choices_over_dp(bug *b) {
  bug_run_over(b, bug_find(b, "block.1.weights.gathered_ep"), TSR_DP);
}

/* ---- tied weights reduced twice ---- */

static void reduce_again(bug *b, int axis) {
  int value = bug_gradient(b, "wte");
  b->node = bug_insert(b, value, TSR_OP_ALL_REDUCE, &(tsr_attrs){.move = {.axis = axis}});
  bug_lower(b, NULL, NULL);
}
static void tied_over_dp(bug *b) { reduce_again(b, TSR_DP); }
/* The output layer's part is that of both stages. */
static void tied_over_stages(bug *b) {
  b->node = bug_find(b, "d.wte");
  tsr_node *n = &b->g->nodes[b->node];
  if (n->op != TSR_OP_ADD) abort();
  int received = bug_find_op(b, -1, TSR_OP_RECEIVE, TSR_UPDATE, "wte");
  n->inputs[0] = n->inputs[1] = b->g->nodes[received].outputs[0];
  bug_lower(b, NULL, NULL);
}
static void tied_over_ep(bug *b) { reduce_again(b, TSR_EP); }

/* ---- wrong loss normalisation ---- */

/* By all positions, and not by the targets that count: of loss and gradients. */
static void all_positions(bug *b) {
  const tsr_value *targets = &b->g->values[bug_find_value(b, "targets")];
  proof p = b->base->p;
  tsr_synthetic data = proof_data(&p, &b->plan.mesh);
  int64_t samples = b->plan.mesh.compiled.batch * b->g->microbatches;
  data.samples = samples > 0 ? samples : b->plan.mesh.compiled.batch;
  double counted = (double)tsr_synthetic_targets(&data, data.samples);
  double share = counted / (double)(data.samples * targets->shape[1]);
  if (!(share < 1)) abort();
  bug_insert(b, bug_find_value(b, "loss"), TSR_OP_SCALE, &(tsr_attrs){.scale = {share}});
  scale(b, bug_find_value(b, "d.logits@loss"), share);
}

/* The mask is lost in the gradient: all next tokens count. */
static void without_mask(bug *b) {
  b->node = bug_find(b, "d.logits@loss");
  b->g->nodes[b->node].inputs[2] = bug_find_value(b, "tokens");
  bug_lower(b, NULL, NULL);
}

/* The loss of microbatches is not divided by their number. */
static void loss_of_microbatches(bug *b) { scale(b, bug_find_value(b, "loss"), 2); }

/* ---- missing gradient of a norm: its parts are not added over tp ---- */

static void alone_over_tp(bug *b, const char *part) {
  int node = bug_find_op(b, -1, TSR_OP_ALL_REDUCE, TSR_UPDATE, part);
  while (node >= 0 && b->g->nodes[node].attr.move.axis != TSR_TP)
    node = bug_find_op(b, node, TSR_OP_ALL_REDUCE, TSR_UPDATE, part);
  if (node < 0) abort();
  run_alone(b, node);
}
static void norm_of_block(bug *b) { alone_over_tp(b, "block.0.ln_2@"); }
static void norm_of_keys(bug *b) { alone_over_tp(b, "block.1.attn.k_norm@"); }
static void bias_of_norm(bug *b) { alone_over_tp(b, "ln_f.bias@"); }

/* ---- clipping by a local norm ---- */

static void local_norm(bug *b) {
  int clip = bug_find(b, "clip");
  run_alone(b, b->g->values[b->g->nodes[clip].inputs[0]].node);
}

static const bug_variant table[] = {
    {BUG_GRADIENT_SCALE, LLAMA_DP, "a complete gradient divided by dp", mean_of_one},
    {BUG_GRADIENT_SCALE, GPT2_DP, "gradients not divided by microbatches", sum_of_microbatches},
    {BUG_GRADIENT_SCALE, LORA_TP, "an adapter's scale missing backward", adapter_scale},
    {BUG_GRADIENT_SCALE, MIXTRAL_EP, "experts' gradient divided by ep", expert_mean},
    {BUG_MISSING_REDUCTION, LLAMA_DP, "of a gradient over dp", gradient_of_ranks},
    {BUG_MISSING_REDUCTION, GPT2_DP_TP, "of a row-parallel layer over tp", row_parallel},
    {BUG_MISSING_REDUCTION, MIXTRAL_EP, "of a router's gradient over ep", router_over_ep},
    {BUG_MISSING_REDUCTION, LORA_TP, "of a column-parallel layer's dx", column_parallel},
    {BUG_WRONG_GROUP, LLAMA_DP_TP, "a gradient's all-reduce over tp", gradient_over_tp},
    {BUG_WRONG_GROUP, GPT2_DP_TP, "a row-parallel layer's over dp", rows_over_dp},
    {BUG_WRONG_GROUP, MIXTRAL_EP, "experts' results over dp", experts_over_dp},
    {BUG_WRONG_GROUP, MIXTRAL_EP, "experts' weights gathered over dp", choices_over_dp},
    {BUG_TIED_TWICE, GPT2_DP, "over dp", tied_over_dp},
    {BUG_TIED_TWICE, GPT2_PP, "over the stages", tied_over_stages},
    {BUG_TIED_TWICE, MIXTRAL_EP, "over ep", tied_over_ep},
    {BUG_LOSS_COUNT, CHAT_DP, "by all positions of conversations", all_positions},
    {BUG_LOSS_COUNT, CHAT_CP, "without the mask, backward", without_mask},
    {BUG_LOSS_COUNT, GPT2_DP, "loss not divided by microbatches", loss_of_microbatches},
    {BUG_NORM_GRADIENT, LLAMA_SP, "of a block's norm", norm_of_block},
    {BUG_NORM_GRADIENT, QWEN3_SP, "of the norm of keys", norm_of_keys},
    {BUG_NORM_GRADIENT, GPT2_SP, "of a norm's bias", bias_of_norm},
    {BUG_LOCAL_NORM, LLAMA_SP, "of a rank of tp", local_norm},
    {BUG_LOCAL_NORM, GPT2_PP, "of a stage", local_norm},
    {BUG_LOCAL_NORM, MIXTRAL_EP, "of a rank of ep", local_norm},
    {BUG_LOCAL_NORM, QWEN3_ZERO1, "of a ZeRO shard", local_norm},
};
BUG_VARIANTS(bugs_of_sums, table);
