// SPDX-License-Identifier: Apache-2.0
/* Sums over tp in half precision: a program of a recipe that has them is proved, and the verifier
 * names a record that does not round, one that does where it must not, and sums that the recipe has
 * in f32. */
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <string.h>

static harness compile(tsr_arena *arena) {
  harness_options o = sample_options((harness_options){.dp = 1, .tp = 2, .microbatches = 1});
  o.precision = TSR_BF16;
  o.tp_in_half = true;
  return sample_compile(arena, &o);
}

/* Whose sum the units of tp split, or do not. */
static tsr_task *find(harness *h, tsr_op op, bool rounds) {
  tsr_program *p = h->programs.of_stage[0];
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == op && (p->tasks[i].sum.rounds != TSR_F32) == rounds) return &p->tasks[i];
  return NULL;
}

/* ---- faults ---- */

static void round_once(harness *h) { find(h, TSR_OP_LINEAR, true)->sum.rounds = TSR_F32; }
static void round_gradient_once(harness *h) {
  find(h, TSR_OP_LINEAR_DX, true)->sum.rounds = TSR_F32;
}
static void round_to_other(harness *h) { find(h, TSR_OP_LINEAR, true)->sum.rounds = TSR_F16; }
static void round_weight(harness *h) { find(h, TSR_OP_LINEAR_DW, false)->sum.rounds = TSR_BF16; }
static void change_recipe(harness *h) { h->placed->units.tp_in_half = false; }

/* rule: the format of the verifier's message (check_rules.py compares them with its sources). */
static const struct {
  const char *rule;
  void (*spoil)(harness *h);
  const char *text; /* of the finding */
} faults[] = {
    {"its record rounds each of its sums to %s, '%s' is added in %s", round_once,
     "its record rounds each of its sums to f32, 'ao1.product' is added in bf16"},
    {"its record rounds each of its sums to %s, '%s' is added in %s", round_gradient_once,
     "its record rounds each of its sums to f32, 'd."},
    {"its record rounds each of its sums to %s, '%s' is added in %s", round_to_other,
     "its record rounds each of its sums to f16, 'ao1.product' is added in bf16"},
    {"its record rounds each of its sums to %s, '%s' is added in %s", round_weight,
     "its record rounds each of its sums to bf16, 'd."},
    {"'%s' is added over %s in %s, in the recipe in f32", change_recipe,
     "'x0' is added over tp in bf16, in the recipe in f32"}};

static void check_fault(int index) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  CHECK(tsr_programs_verify(arena, &h.programs, &mesh, diags));
  faults[index].spoil(&h);
  CHECK_AT(!tsr_programs_verify(arena, &h.programs, &mesh, diags), "fault %d", index);
  const char *printed = printed_diags(arena, diags);
  CHECK_AT(strstr(printed, faults[index].text), "fault %d: %s", index, printed);
  tsr_arena_free(arena);
}

/* What ranks of tp exchange between the layers has 2 bytes an element; the sums of weights' and
 * norms' gradients are in f32. */
static void check_types(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  const tsr_program *p = h.programs.of_stage[0];
  int half = 0;
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    bool rows = t->inputs_count && t->inputs[0].ndim == 3;
    if (t->op != TSR_OP_ALL_REDUCE || t->axis != TSR_TP) continue;
    CHECK_AT((t->inputs[0].dtype == TSR_BF16) == rows, "task %d", i);
    half += rows;
  }
  CHECK(half > 8);
  tsr_arena_free(arena);
}

int main(void) {
  check_types();
  for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) check_fault(i);
  return check_done("schedule.verify_rounding");
}
