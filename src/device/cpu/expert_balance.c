// SPDX-License-Identifier: Apache-2.0
/* What balances the experts of a mixture: counts of choices, gradients of losses, and the updates
 * of what is kept from step to step. */
#include "device/cpu/ops.h"
#include "device/cpu/part_hash.h"

/* A count of all tokens, from its digits (2, E). */
static double total(const float *counts, int64_t E, int64_t expert) {
  return (double)counts[expert] + (double)TSR_COUNT_DIGIT * (double)counts[E + expert];
}

static int64_t one_item(const tsr_task *t) { return (void)t, 1; }

/* Of a plan. */
static void count_rows(float *counts, const int32_t *plan, int64_t rows, int64_t E) {
  for (int64_t e = 0; e < E; e++) counts[e] = 0;
  for (int64_t r = 0; r < rows && plan[2 * r] >= 0; r++) counts[plan[2 * r + 1]]++;
}

static void counts_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  const tsr_task *t = c->call.task;
  bool by_sample = cpu_attrs(c)->expert_counts.by_sample;
  const tsr_value *in = &c->call.program->graph->values[t->inputs[0].value];
  int64_t E = tsr_tensor_last(&t->outputs[0]), k = tsr_tensor_last(&t->inputs[0]),
          tokens = tsr_tensor_rows(&t->inputs[0]), runs = by_sample ? t->outputs[0].shape[0] : 1;
  float *counts = cpu_out(c, 0);
  if (tsr_routed_is_rows(in->routed)) count_rows(counts, cpu_tokens(c, 0), tokens, E);
  else c->k->expert_counts(counts, cpu_tokens(c, 0), tokens / runs, k, E, 0, runs);
  for (int64_t e = 0; e < E && !by_sample; e++) {
    int64_t count = (int64_t)counts[e];
    counts[e] = (float)(count % TSR_COUNT_DIGIT);
    int64_t rest = count / TSR_COUNT_DIGIT;
    counts[E + e] = (float)rest;
  }
}
const cpu_op cpu_expert_counts = {.items = one_item, .run = counts_run};

/* The scale of an fp16 loss, where the task has the step's scalars. */
static float loss_scale(const cpu_call *c, int input) {
  return c->call.task->inputs_count > input ? cpu_scalar(c, input, TSR_SCALAR_LOSS_SCALE) : 1;
}

/* Counts of all tokens as one row. */
static int64_t
balance_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return tsr_tensor_last(&t->inputs[0]) * (int64_t)sizeof(float);
}

static bool has_digits(const cpu_call *c) {
  return !cpu_attrs(c)->balance_loss_dx.by_sample && c->call.task->inputs[0].ndim == 2;
}

static void balance_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  float *row = cpu_scratch(c);
  int64_t E = tsr_tensor_last(&c->call.task->inputs[0]);
  for (int64_t e = 0; e < E && !part && has_digits(c); e++)
    row[e] = (float)total(cpu_in(c, 0), E, e);
}

static void balance_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_balance_loss_dx_attrs *a = &cpu_attrs(c)->balance_loss_dx;
  const tsr_task *t = c->call.task;
  int64_t tokens = tsr_tensor_rows(&t->inputs[1]);
  int64_t each = a->by_sample ? tokens / t->inputs[0].shape[0] : tokens;
  c->k->balance_backward(
      cpu_out(c, 0), has_digits(c) ? cpu_scratch(c) : cpu_in(c, 0), cpu_in(c, 1), each,
      tsr_tensor_last(&t->inputs[1]), (float)a->factor * loss_scale(c, 2), a->normalize, begin,
      end);
}
const cpu_op cpu_balance_loss_dx = {
    .items = cpu_items_rows,
    .scratch = balance_scratch,
    .before = balance_before,
    .run = balance_run};

static void z_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  float factor = (float)cpu_attrs(c)->router_z_loss_dx.factor * loss_scale(c, 1);
  c->k->router_z_backward(
      cpu_out(c, 0), cpu_in(c, 0), tsr_tensor_last(&c->call.task->inputs[0]), factor, begin, end);
}
const cpu_op cpu_router_z_loss_dx = {.items = cpu_items_rows, .run = z_run};

/* ---- updates ---- */

/* Whether fp16 makes this step's update. */
static bool is_made(const cpu_call *c) {
  return c->call.task->inputs_count < 3 || cpu_in(c, 2)[2] != 0;
}

/* bias += rate where an expert has fewer tokens than the mean, -= rate where it has more; centred:
 * the mean of these changes is taken off them (Liu et al. 2024, torchtitan). */
static void bias_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  const tsr_expert_bias_attrs *a = &cpu_attrs(c)->expert_bias;
  float *bias = cpu_in(c, 0);
  const float *counts = cpu_in(c, 1);
  int64_t E = tsr_tensor_last(&c->call.task->inputs[0]), signs = 0;
  double sum = 0;
  if (!is_made(c)) return;
  for (int64_t e = 0; e < E; e++) sum += total(counts, E, e);
  for (int pass = 0; pass < 2; pass++)
    for (int64_t e = 0; e < E; e++) {
      double has = total(counts, E, e) * (double)E;
      int sign = (has < sum) - (has > sum);
      if (!pass) signs += sign;
      else bias[e] += (float)(a->rate * (sign - (a->centre ? (double)signs / (double)E : 0)));
    }
}
const cpu_op cpu_expert_bias = {.items = one_item, .run = bias_run, .after = cpu_update_hash_all};

static void load_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  int64_t E = tsr_tensor_last(&c->call.task->inputs[0]);
  for (int64_t e = 0; e < E && is_made(c); e++) cpu_in(c, 0)[e] = (float)total(cpu_in(c, 1), E, e);
}
const cpu_op cpu_expert_load = {.items = one_item, .run = load_run, .after = cpu_update_hash_all};
