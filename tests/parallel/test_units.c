// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/bench.h"

/* dp, tp, batch and accumulation with the units asked for (0: not given) -> the units, or the hint.
 */
typedef struct {
  int dp, tp, batch, accumulation, units_batch, units_tp, want_batch, want_tp;
  const char *said;
} units_case;

static const units_case cases[] = {
    {1, 1, 8, 1, 0, 0, 1, 1, NULL},
    {2, 2, 8, 1, 0, 0, 2, 2, NULL},
    {3, 1, 6, 2, 0, 0, 6, 1, NULL}, /* no canonical tree, but nobody asked for one */
    {2, 4, 8, 1, 8, 8, 8, 8, NULL},
    {1, 1, 8, 1, 8, 4, 8, 4, NULL},
    {4, 1, 8, 1, 8, 1, 8, 1, NULL},
    {2, 1, 4, 2, 8, 1, 8, 1, NULL},
    {2, 1, 8, 1, 6, 1, 0, 0,
     "6 batch units do not fit dp = 2 with 1 microbatch of 4 rows a rank|batch: 4 or 8 would fit"},
    {4, 1, 8, 1, 2, 1, 0, 0, "2 batch units do not fit dp = 4|batch: 4 would fit"},
    {2, 1, 8, 1, 100, 1, 0, 0, "batch: 8 would fit"},
    {2, 1, 4, 3, 8, 1, 0, 0,
     "8 batch units do not fit dp = 2 with 3 microbatches of 2 rows a rank|batch: 6 would "
     "fit"},
    {3, 1, 6, 2, 12, 1, 0, 0, "leave 'batch' out"},
    {1, 4, 8, 1, 1, 6, 0, 0, "6 tp units do not fit tp = 4|tp: 4 or 8 would fit"},
    {1, 4, 8, 1, 1, 2, 0, 0, "2 tp units do not fit tp = 4|tp: 4 would fit"},
    {1, 3, 8, 1, 1, 6, 0, 0, "tp: 3 would fit"},
    {1, 3, 8, 1, 1, 3, 1, 3, NULL},
};

static void case_test(const units_case *c) {
  char yaml[512], units[96] = "", number[32];
  if (c->units_batch) snprintf(units, sizeof units, "batch: %d", c->units_batch);
  if (c->units_tp) {
    snprintf(number, sizeof number, "%stp: %d", *units ? ", " : "", c->units_tp);
    strcat(units, number);
  }
  snprintf(
      yaml, sizeof yaml,
      "device_config: {enable_ddp: true, enable_tp: true, mesh_shape: [%d, %d]}\n"
      "training_config: {batch_size: %d, gradient_accumulation_steps: %d}\n"
      "numerics: {units: {%s}}\n",
      c->dp, c->tp, c->batch, c->accumulation, units);
  bench b = bench_make(yaml, MESH(c->dp * c->tp));
  CHECK_AT(b.good, "%s", yaml);
  int64_t batch = -1, tp = -1;
  if (b.good) b.good = tsr_parallel_units(b.parallel, b.config, &batch, &tp, b.diags);
  bench_expect(&b, yaml, c->said);
  if (!c->said) {
    CHECK_INT(batch, c->want_batch);
    CHECK_INT(tp, c->want_tp);
  }
  bench_free(&b);
}

/* dp, ep, accumulation, batch units, the expert units asked for (0: not given), ZeRO's stage, tree ->
 * the expert units, or the hint. A microbatch has 8 samples. */
typedef struct {
  int dp, ep, accumulation, units_batch, units_expert, zero;
  const char *tree;
  int want_batch, want_expert;
  const char *said;
} expert_case;

static const expert_case expert_cases[] = {
    {1, 1, 1, 0, 0, 0, "binary", 1, 1, NULL},
    {1, 4, 1, 0, 0, 0, "binary", 4, 1, NULL},
    {2, 2, 1, 0, 0, 0, "binary", 4, 2, NULL},
    {2, 2, 2, 0, 0, 0, "binary", 8, 2, NULL},
    {2, 2, 2, 0, 0, 2, "binary", 8, 4, NULL}, /* a leaf for each microbatch */
    {1, 2, 2, 0, 0, 2, "binary", 4, 1, NULL}, /* nothing to scatter */
    {2, 1, 1, 8, 0, 0, "flat", 8, 8, NULL},
    {2, 2, 1, 8, 2, 0, "binary", 8, 2, NULL},
    {2, 2, 1, 8, 4, 0, "binary", 8, 4, NULL},
    {2, 2, 1, 8, 8, 0, "binary", 8, 8, NULL},
    {1, 4, 1, 8, 2, 0, "binary", 8, 2, NULL},
    {2, 1, 2, 8, 4, 2, "binary", 8, 4, NULL},
    {4, 2, 1, 8, 2, 0, "binary", 0, 0,
     "2 units of expert gradients do not fit dp = 4 with 8 batch units|"
     "a multiple of 4 that divides the batch units would fit"},
    {2, 1, 1, 8, 6, 0, "binary", 0, 0, "6 units of expert gradients do not fit dp = 2"},
    {2, 1, 1, 8, 16, 0, "binary", 0, 0, "16 units of expert gradients do not fit dp = 2"},
    {2, 1, 2, 8, 2, 2, "binary", 0, 0, "a multiple of 4 that divides the batch units would fit"},
    {2, 1, 1, 8, 4, 0, "flat", 0, 0, "in a flat tree it must be 8, the batch units"},
    {1, 2, 1, 8, 8, 0, "flat", 0, 0, "'reduce_tree' must be binary with ep = 2"},
    {2, 2, 1, 2, 2, 0, "binary", 0, 0, "2 batch units do not fit dp × ep = 4 with 1 microbatch"},
    {1, 4, 1, 2, 2, 0, "binary", 0, 0, "2 batch units do not fit ep = 4 with 1 microbatch"},
};

static void expert_test(const expert_case *c) {
  char yaml[512], batch[32] = "", expert[32] = "";
  if (c->units_batch) snprintf(batch, sizeof batch, "batch: %d, ", c->units_batch);
  if (c->units_expert) snprintf(expert, sizeof expert, "expert: %d, ", c->units_expert);
  snprintf(
      yaml, sizeof yaml,
      "device_config: {enable_ddp: true, enable_ep: true, mesh_shape: [%d, %d]}\n"
      "training_config: {batch_size: 8, gradient_accumulation_steps: %d}\n"
      "zero: {stage: %d}\nnumerics: {reduce_tree: %s, units: {%s%stp: 1}}\n",
      c->dp, c->ep, c->accumulation, c->zero, c->tree, batch, expert);
  bench b = bench_make(yaml, MESH(c->dp * c->ep));
  CHECK_AT(b.good, "%s", yaml);
  int64_t units = -1, tp, leaves = -1;
  if (b.good) b.good = tsr_parallel_units(b.parallel, b.config, &units, &tp, b.diags);
  if (b.good) b.good = tsr_parallel_expert_units(b.parallel, b.config, units, &leaves, b.diags);
  bench_expect(&b, yaml, c->said);
  if (!c->said) {
    CHECK_INT(units, c->want_batch);
    CHECK_INT(leaves, c->want_expert);
  }
  bench_free(&b);
}

int main(void) {
  for (size_t i = 0; i < sizeof expert_cases / sizeof *expert_cases; i++)
    expert_test(&expert_cases[i]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) case_test(&cases[i]);
  return check_done("parallel.units");
}
