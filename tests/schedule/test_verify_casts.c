// SPDX-License-Identifier: Apache-2.0
/* The copies in which kernels compute in another type: a program in half precision has them, they
 * are proved, and the verifier names each fault in one. */
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <string.h>

static harness compile(tsr_arena *arena) {
  harness_options o = sample_options((harness_options){.dp = 1, .tp = 1, .microbatches = 1});
  o.precision = TSR_BF16;
  return sample_compile(arena, &o);
}

/* A task with copies of inputs and of outputs. */
static tsr_task *find(tsr_program *p) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].kernel_inputs && p->tasks[i].kernel_outputs) return &p->tasks[i];
  return NULL;
}

static tsr_tensor *find_copy(tsr_tensor *kernel, const tsr_tensor *operands, int count) {
  for (int k = 0; k < count; k++)
    if (kernel[k].dtype != operands[k].dtype) return &kernel[k];
  return NULL;
}

/* ---- faults ---- */

static void move_copy(tsr_task *t) {
  find_copy(t->kernel_inputs, t->inputs, t->inputs_count)->offset += 64;
}
static void overlap_copy(tsr_task *t) {
  tsr_tensor *out = find_copy(t->kernel_outputs, t->outputs, t->outputs_count);
  out->offset = t->scratch_offset;
}
static void plan_less(tsr_task *t) { t->cast_bytes -= 64; }
static void plan_in_less(tsr_task *t) { t->scratch_bytes = t->cast_bytes - 64; }
static void move_segment(tsr_task *t) {
  find_copy(t->kernel_inputs, t->inputs, t->inputs_count)->segment = TSR_SEGMENT_INPUT;
}
static void forget_copies(tsr_task *t) { t->kernel_inputs = t->kernel_outputs = NULL; }

/* rule: the format of the verifier's message (check_rules.py compares them with its sources). */
static const struct {
  const char *rule;
  void (*spoil)(tsr_task *t);
  const char *text; /* of the finding */
} faults[] = {
    {"its kernel has %s '%s' %s, which is %s", move_copy, "its kernel has input '"},
    {"its kernel has %s '%s' %s, which is %s", overlap_copy, "its kernel has output '"},
    {"its kernel has %s '%s' %s, which is %s", move_segment, "@input+"},
    {"its kernel's copies have %lld bytes, of which %lld are planned", plan_less,
     "its kernel's copies have "},
    {"its kernel's copies have %lld bytes, of which %lld are planned", plan_in_less,
     "its kernel's copies have "},
    {"its kernel's copies have %lld bytes, of which %lld are planned", forget_copies,
     "its kernel's copies have 0 bytes, of which "}};

static void check_fault(int index) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  faults[index].spoil(find(h.programs.of_stage[0]));
  CHECK_AT(!tsr_programs_verify(arena, &h.programs, &mesh, diags), "fault %d", index);
  const char *printed = printed_diags(arena, diags);
  CHECK_AT(strstr(printed, faults[index].text), "fault %d: %s", index, printed);
  tsr_arena_free(arena);
}

/* Of a dump: the type of a copy stands at its operand. */
static void check_dump(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  tsr_text text = {0};
  CHECK(find(h.programs.of_stage[0]));
  tsr_program_print(h.programs.of_stage[0], &text);
  CHECK(strstr(text.data, " as f32"));
  tsr_text_free(&text);
  tsr_arena_free(arena);
}

int main(void) {
  check_dump();
  for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) check_fault(i);
  return check_done("schedule.verify_casts");
}
