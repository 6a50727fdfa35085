// SPDX-License-Identifier: Apache-2.0
#include "schedule/assign_target.h"

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void tsr_program_size_outputs(tsr_program *p, const tsr_target *target) {
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    if (!(tsr_op_facts(t->op) & TSR_FACT_SIZED) || !target->output_bytes) continue;
    p->tensors[t->outputs[0].value].shape[0] = target->output_bytes(target, p, t) / 4;
  }
}

/* The operands as the kernel has them, copies at offsets from the task's scratch on. */
static tsr_tensor *cast_operands(
    tsr_arena *arena, tsr_task *t, tsr_tensor *operands, const tsr_dtype *types, int count) {
  tsr_tensor *kernel = tsr_arena_array(arena, tsr_tensor, count + 1);
  for (int k = 0; k < count; k++) {
    kernel[k] = operands[k];
    if (types[k] == operands[k].dtype) continue;
    kernel[k].dtype = types[k];
    kernel[k].segment = TSR_SEGMENT_WORK;
    kernel[k].slot_group = -1;
    kernel[k].offset = t->cast_bytes;
    t->cast_bytes += aligned(tsr_tensor_elements(&operands[k]) * tsr_dtype_bytes(types[k]));
  }
  return kernel;
}

static bool differ(const tsr_tensor *operands, const tsr_dtype *types, int count) {
  for (int k = 0; k < count; k++)
    if (operands[k].dtype != types[k]) return true;
  return false;
}

static void set_types(const tsr_tensor *operands, tsr_dtype *types, int count) {
  for (int k = 0; k < count; k++) types[k] = operands[k].dtype;
}

static void cast(const tsr_target *target, const tsr_program *p, tsr_task *t, tsr_dtype *types) {
  tsr_dtype *outputs = types + t->inputs_count;
  set_types(t->inputs, types, t->inputs_count);
  set_types(t->outputs, outputs, t->outputs_count);
  t->kernel_inputs = t->kernel_outputs = NULL;
  t->cast_bytes = 0;
  if (!target->kernel_types) return;
  target->kernel_types(p, t, types, outputs);
  if (differ(t->inputs, types, t->inputs_count))
    t->kernel_inputs = cast_operands(p->graph->arena, t, t->inputs, types, t->inputs_count);
  if (differ(t->outputs, outputs, t->outputs_count))
    t->kernel_outputs = cast_operands(p->graph->arena, t, t->outputs, outputs, t->outputs_count);
}

static int most_operands(const tsr_program *p) {
  int most = 0;
  for (int i = 0; i < p->tasks_count; i++) {
    int count = p->tasks[i].inputs_count + p->tasks[i].outputs_count;
    if (count > most) most = count;
  }
  return most;
}

void tsr_task_size_scratch(
    const tsr_target *target, const tsr_program *p, tsr_task *t, tsr_dtype *types) {
  cast(target, p, t, types);
  if (target->scratch) t->scratch_bytes = t->cast_bytes + target->scratch(target, p, t);
}

void tsr_program_assign(tsr_program *p, const tsr_target *target) {
  tsr_dtype *types = tsr_arena_array(p->graph->arena, tsr_dtype, most_operands(p) + 1);
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    bool runs = t->op != TSR_OP_SEND && t->op != TSR_OP_RECEIVE && t->op != TSR_OP_WAIT &&
                !tsr_op_is_collective(t->op);
    if (!runs) continue; /* it moves bytes, of any type */
    t->on_host = target->supports && !target->supports(target, p, t);
    if (!t->on_host) tsr_task_size_scratch(target, p, t, types);
  }
}

static void bind(tsr_tensor *kernel, const tsr_tensor *operands, int count, int64_t scratch) {
  for (int k = 0; k < count; k++)
    if (kernel[k].dtype == operands[k].dtype) kernel[k] = operands[k];
    else kernel[k].offset += scratch;
}

void tsr_task_bind_kernel(tsr_task *t) {
  if (t->kernel_inputs) bind(t->kernel_inputs, t->inputs, t->inputs_count, t->scratch_offset);
  if (t->kernel_outputs) bind(t->kernel_outputs, t->outputs, t->outputs_count, t->scratch_offset);
}

void tsr_program_bind_kernels(tsr_program *p) {
  for (int i = 0; i < p->tasks_count; i++) tsr_task_bind_kernel(&p->tasks[i]);
}
