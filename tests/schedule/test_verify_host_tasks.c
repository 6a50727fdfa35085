// SPDX-License-Identifier: Apache-2.0
/* Tasks that the host runs for a device: their copies are planned, printed and proved, and the
 * verifier names each fault in one. The program is of a CUDA target that is made to have no kernels
 * for experts. */
#include "device/cuda/plugin_abi.h"
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <string.h>

static harness compile(tsr_arena *arena) {
  harness_options o =
      sample_options((harness_options){.dp = 1, .tp = 1, .microbatches = 2, .expert_units = 8});
  o.precision = TSR_BF16;
  return sample_compile(arena, &o);
}

/* A task with several copies, of which some are cast for its kernel. */
static tsr_task *find(tsr_program *p) {
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    if (t->op == TSR_OP_EXPERT_WEIGHTS && t->host && t->host->copies_count > 2) return t;
  }
  return NULL;
}

/* A program's host tasks are constant but for those that plan them. */
static tsr_host_task *host_of(tsr_task *t) { return (tsr_host_task *)t->host; }

static tsr_host_copy *find_copy(tsr_task *t, bool out) {
  tsr_host_task *h = host_of(t);
  for (int i = 0; i < h->copies_count; i++)
    if (out ? h->copies[i].out : h->copies[i].in) return &h->copies[i];
  return NULL;
}

/* ---- faults ---- */

static tsr_program *spoilt;

static void forget_host(tsr_task *t) { t->host = NULL; }
static void run_on_device(tsr_task *t) { t->on_host = false; }
static void scratch_on_device(tsr_task *t) { t->scratch_bytes = 64; }
static void other_op(tsr_task *t) { host_of(t)->task.op = TSR_OP_ADD; }
static void other_value(tsr_task *t) { host_of(t)->task.inputs[0].value++; }
static void other_shape(tsr_task *t) { host_of(t)->task.outputs[0].shape[0]--; }
static void move_operand(tsr_task *t) { host_of(t)->task.inputs[0].offset += 64; }
static void leave_on_device(tsr_task *t) { host_of(t)->task.inputs[0] = t->inputs[0]; }
static void copy_other_bytes(tsr_task *t) { find_copy(t, false)->tensor.offset += 64; }
static void copy_less(tsr_task *t) { find_copy(t, false)->bytes -= 4; }
static void forget_in(tsr_task *t) { find_copy(t, false)->in = false; }
static void forget_out(tsr_task *t) { find_copy(t, true)->out = false; }
static void grow_copy(tsr_task *t) { host_of(t)->copies[0].bytes += 64; }
static void scratch_in_copy(tsr_task *t) { host_of(t)->task.scratch_offset -= 64; }
static void plan_less(tsr_task *t) {
  (void)t;
  spoilt->host_bytes = 64;
}

/* rule: the format of the verifier's message (check_rules.py compares them with its sources). */
static const struct {
  const char *rule;
  void (*spoil)(tsr_task *t);
  const char *text; /* of the finding */
} faults[] = {
    {"it is neither the device's nor the host's alone", forget_host, "it is neither the device's"},
    {"it is neither the device's nor the host's alone", run_on_device, "it is neither the device"},
    {"it is neither the device's nor the host's alone", scratch_on_device, "it is neither the "},
    {"the host has another task for it", other_op, "the host has another task for it"},
    {"the host's operand %d is not '%s'", other_value, "the host's operand 0 is not '"},
    {"the host's operand %d is not '%s'", other_shape, "the host's operand "},
    {"the host has no copy of '%s'", move_operand, "the host has no copy of '"},
    {"the host has no copy of '%s'", leave_on_device, "the host has no copy of '"},
    {"the host has no copy of '%s'", copy_other_bytes, "the host has no copy of '"},
    {"the host has no copy of '%s'", copy_less, "the host has no copy of '"},
    {"the host reads '%s', which is not copied to it", forget_in, "which is not copied to it"},
    {"the host writes '%s', which is not copied back", forget_out, "which is not copied back"},
    {"its copies on the host share bytes", grow_copy, "its copies on the host share bytes"},
    {"its copies on the host share bytes", scratch_in_copy, "its copies on the host share bytes"},
    {"it needs %lld bytes of the host, of which %lld are planned", plan_less,
     " bytes of the host, of which 64 are planned"}};

static void check_fault(int index) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  spoilt = h.programs.of_stage[0];
  faults[index].spoil(find(spoilt));
  CHECK_AT(!tsr_programs_verify(arena, &h.programs, &mesh, diags), "fault %d", index);
  const char *printed = printed_diags(arena, diags);
  CHECK_AT(strstr(printed, faults[index].text), "fault %d: %s", index, printed);
  tsr_arena_free(arena);
}

/* The dump has the bytes of a task's copies, the memory plan the room for all. */
static void check_dump(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena);
  tsr_program *p = h.programs.of_stage[0];
  tsr_text tasks = {0}, memory = {0};
  CHECK(find(p));
  tsr_program_print(p, &tasks);
  tsr_program_print_memory(p, &memory);
  CHECK(strstr(tasks.data, " on the host ("));
  CHECK(strstr(memory.data, "copies on the host, for the tasks that it runs: "));
  tsr_text_free(&tasks);
  tsr_text_free(&memory);
  tsr_arena_free(arena);
}

/* Experts' weights, which are cast, and rows, whose gradients are stacks. */
static bool supports_no_experts(const tsr_target *t, const tsr_program *p, const tsr_task *task) {
  (void)t, (void)p;
  return task->op != TSR_OP_EXPERT_WEIGHTS && !(tsr_op_facts(task->op) & TSR_FACT_ROUTED);
}

int main(void) {
  const tsr_cpu_context cpu = {tsr_kernels_get(NULL), 1};
  const tsr_target host = tsr_cpu_target(&cpu);
  harness_target = tsr_cuda_target(&host, false, false);
  harness_target.supports = supports_no_experts;
  check_dump();
  for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) check_fault(i);
  return check_done("schedule.verify_host_tasks");
}
