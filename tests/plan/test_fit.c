// SPDX-License-Identifier: Apache-2.0
/* From measured tasks to a machine: what made the numbers is found again. */
#include "plan/machine_regression.h"
#include "plan/plan.h"
#include "tests/check.h"

static uint64_t state = 1;
static double random_from(double low, double high) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return low * pow(high / low, (double)(state >> 11) / 9007199254740992.0);
}

enum { EACH = 60 };

/* Tasks of some ops on a machine whose figures are known, with an error of up to `noise`. */
static int make_samples(
    const tsr_machine *m, const tsr_op *ops, int count, double noise, tsr_fit_sample *ret) {
  int n = 0;
  for (int o = 0; o < count; o++)
    for (int i = 0; i < EACH; i++) {
      tsr_fit_sample *s = &ret[n++];
      *s = (tsr_fit_sample){.op = ops[o]};
      bool empty = i < EACH / 8; /* some do nearly nothing, which shows the overhead */
      s->work.flops = random_from(1e3, 1e9) * !empty;
      s->work.bytes = random_from(1e3, 1e8) * !empty;
      s->work.calls = floor(random_from(1, 64)) * !empty;
      s->seconds = tsr_machine_task_seconds(m, tsr_op_name(ops[o]), TSR_MACHINE_F32, s->work) *
                   random_from(1 / (1 + noise), 1 + noise);
    }
  return n;
}

static tsr_machine known_machine(tsr_arena *arena) {
  tsr_machine m = {.name = "known", .doc = "", .overhead = 2e-6, .memory_bandwidth = 1e10};
  m.flops[TSR_MACHINE_F32] = 1e11;
  m.efficiency_products = m.efficiency_attention = m.efficiency_memory = 1;
  m.threads = 2;
  const tsr_machine_rate rates[] = {
      {"linear", -1, 5e10, 2e10, 4e-6, 2e-6},
      {"add", -1, 0, 2e10, 0, 2e-6},
      {"attention", -1, 2e10, 0, 1e-5, 2e-6},
      {"all_reduce", -1, 0, 8e9, 3e-6, 2e-6}};
  for (int i = 0; i < 4; i++) tsr_machine_set_rate(arena, &m, &rates[i]);
  return m;
}

static const tsr_machine_rate *rate_of(const tsr_machine *m, const char *op) {
  for (int i = 0; i < m->rates_count; i++)
    if (!strcmp(m->rates[i].op, op)) return &m->rates[i];
  return NULL;
}

/* Without errors in the samples the figures come back; each within what rounding to three digits
 * costs. Those that are 0 may come back as ones that cost nothing. */
static void test_exact(tsr_arena *arena) {
  static const tsr_op ops[] = {TSR_OP_LINEAR, TSR_OP_ADD, TSR_OP_ATTENTION, TSR_OP_ALL_REDUCE};
  tsr_machine known = known_machine(arena), m = {.name = "fitted", .doc = "", .threads = 2};
  tsr_fit_sample samples[4 * EACH];
  int count = make_samples(&known, ops, 4, 0, samples);
  tsr_machine_fit(arena, &m, samples, count);
  CHECK_NEAR(m.overhead * 1e6, 2, 0.01);
  CHECK_INT(m.rates_count, 4);
  const tsr_machine_rate *linear = rate_of(&m, "linear"), *add = rate_of(&m, "add");
  CHECK_NEAR(linear->flops / 1e10, 5, 0.02);
  CHECK_NEAR(linear->bytes / 1e10, 2, 0.02);
  CHECK_NEAR(linear->call * 1e6, 4, 0.02);
  CHECK_NEAR(add->bytes / 1e10, 2, 0.02);
  for (int i = 0; i < count; i++) {
    double planned =
        tsr_machine_task_seconds(&m, tsr_op_name(samples[i].op), TSR_MACHINE_F32, samples[i].work);
    CHECK_AT(
        fabs(planned / samples[i].seconds - 1) < 0.02, "sample %d: %g, not %g", i, planned,
        samples[i].seconds);
  }
}

/* With errors of 30 % in each, all tasks together are still off by little. */
static void test_noise(tsr_arena *arena) {
  static const tsr_op ops[] = {TSR_OP_LINEAR, TSR_OP_ADD, TSR_OP_ATTENTION, TSR_OP_ALL_REDUCE};
  for (int round = 0; round < 20; round++) {
    tsr_machine known = known_machine(arena), m = {.name = "fitted", .doc = "", .threads = 2};
    tsr_fit_sample samples[4 * EACH];
    int count = make_samples(&known, ops, 4, 0.3, samples);
    tsr_machine_fit(arena, &m, samples, count);
    double planned = 0, taken = 0;
    for (int i = 0; i < count; i++) {
      taken += samples[i].seconds;
      planned += tsr_machine_task_seconds(
          &m, tsr_op_name(samples[i].op), TSR_MACHINE_F32, samples[i].work);
    }
    CHECK_AT(fabs(planned / taken - 1) < 0.15, "all together %g, not %g", planned, taken);
  }
}

/* An op of one size alone: what it takes goes with its bytes, so that twice as large takes twice as
 * long, not as long again. */
static void test_one_size(tsr_arena *arena) {
  tsr_machine m = {.name = "fitted", .doc = "", .threads = 1};
  tsr_fit_sample samples[] = {
      {TSR_OP_TANH, 0, {1e6, 8e6, 1e3}, 1e-3},
      {TSR_OP_TANH, 0, {1e6, 8e6, 1e3}, 1e-3},
      {TSR_OP_ADD, 0, {0, 0, 0}, 1e-9}};
  tsr_machine_fit(arena, &m, samples, 3);
  m.rates[1].overhead = 0;
  tsr_machine_work once = {1e6, 8e6, 1e3}, twice = {2e6, 16e6, 2e3};
  double a = tsr_machine_task_seconds(&m, "tanh", TSR_MACHINE_F32, once);
  CHECK_NEAR(tsr_machine_task_seconds(&m, "tanh", TSR_MACHINE_F32, twice) / a, 2, 1e-9);
}

/* A type has a rate of its own where it was measured. */
static void test_types(tsr_arena *arena) {
  tsr_machine m = {.name = "fitted", .doc = "", .threads = 1};
  tsr_fit_sample samples[] = {
      {TSR_OP_LINEAR, TSR_MACHINE_F32, {1e9, 0, 0}, 0.01},
      {TSR_OP_LINEAR, TSR_MACHINE_BF16, {1e9, 0, 0}, 0.02},
      {TSR_OP_ADD, TSR_MACHINE_F32, {0, 0, 0}, 1e-9}};
  tsr_machine_work work = {1e9, 0, 0};
  tsr_machine_fit(arena, &m, samples, 3);
  CHECK_INT(m.rates_count, 3);
  CHECK_NEAR(tsr_machine_task_seconds(&m, "linear", TSR_MACHINE_F32, work), 0.01, 1e-3);
  CHECK_NEAR(tsr_machine_task_seconds(&m, "linear", TSR_MACHINE_FP16, work), 0.01, 1e-3);
  CHECK_NEAR(tsr_machine_task_seconds(&m, "linear", TSR_MACHINE_BF16, work), 0.02, 1e-3);
  CHECK(m.flops[TSR_MACHINE_F32] == 1e11 && m.flops[TSR_MACHINE_BF16] == 0);
}

/* The device's own figures: the best that any task reached, and what its kind reaches. */
static void test_device(tsr_arena *arena) {
  tsr_machine m = {.name = "fitted", .doc = "", .threads = 1, .memory = 77};
  tsr_fit_sample samples[] = {
      {TSR_OP_LINEAR, 0, {1e9, 1e6, 1}, 0.01},    {TSR_OP_LINEAR_DW, 0, {1e9, 1e6, 1}, 0.04},
      {TSR_OP_ATTENTION, 0, {1e9, 1e6, 1}, 0.1},  {TSR_OP_ADD, 0, {1e6, 1e9, 1}, 0.1},
      {TSR_OP_MUL, 0, {1e6, 1e9, 1}, 0.3},        {TSR_OP_GELU, 0, {1e6, 1e9, 1}, 0.01},
      {TSR_OP_ALL_REDUCE, 0, {0, 1e12, 1}, 0.001}};
  tsr_machine_fit(arena, &m, samples, 7);
  CHECK(m.flops[TSR_MACHINE_F32] == 1e11);
  CHECK_NEAR(m.efficiency_products, 0.4, 1e-9);
  CHECK_NEAR(m.efficiency_attention, 0.1, 1e-9);
  CHECK(m.memory_bandwidth == 1e10);
  CHECK_NEAR(m.efficiency_memory, 0.5, 1e-9);
  CHECK_INT(m.memory, 77);
  CHECK_INT(m.rates_count, 7);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  test_exact(arena);
  test_noise(arena);
  test_one_size(arena);
  test_types(arena);
  test_device(arena);
  tsr_arena_free(arena);
  return check_done("plan.fit");
}
