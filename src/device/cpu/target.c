// SPDX-License-Identifier: Apache-2.0
/* What the CPU computes: all tasks, in which types, with how much scratch. */
#include "device/cpu/ops.h"

const cpu_op cpu_collective = {0};

static const cpu_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cpu_##lower,
#include "graph/ops.def"
#undef OP
};

const cpu_op *cpu_op_of(const tsr_task *t) {
  return t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY ? &cpu_linear_cross_entropy : table[t->op];
}

tsr_cpu_partition tsr_cpu_partition_of(const tsr_task *t, int ranks, int threads) {
  const cpu_op *op = cpu_op_of(t);
  int each = op->ranges ? op->ranges : 1;
  return (tsr_cpu_partition){
      .items = op->items(t),
      .strips = op->strips && op->strips(t),
      .ranges = ranks % threads ? threads * each : 1,
      .rounds = op->rounds ? op->rounds(t) : 1};
}

/* Whether the kernel takes the operands as they are. What joins tensors takes one type. */
static bool takes_half(const tsr_task *t) {
  if (t->op != TSR_OP_CONCAT) return cpu_op_of(t)->takes_half;
  for (int i = 0; i < t->inputs_count; i++)
    if (t->inputs[i].dtype != t->outputs[0].dtype) return false;
  return true;
}

/* Kernels compute in f32; GEMMs cast what they read. */
static void
kernel_types(const tsr_program *p, const tsr_task *t, tsr_dtype *inputs, tsr_dtype *outputs) {
  (void)p;
  int shape_only = tsr_task_shape_input(t);
  if (takes_half(t)) return;
  bool (*takes)(const tsr_task *, int) = cpu_op_of(t)->takes_half_input;
  for (int i = 0; i < t->inputs_count; i++)
    if (tsr_dtype_is_half(inputs[i]) && i != shape_only && !(takes && takes(t, i)))
      inputs[i] = TSR_F32;
  for (int i = 0; i < t->outputs_count; i++)
    if (tsr_dtype_is_half(outputs[i])) outputs[i] = TSR_F32;
}

static int64_t scratch(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  const tsr_cpu_context *cpu = target->context;
  const cpu_op *op = cpu_op_of(t);
  return op->scratch ? op->scratch(cpu->k, p, t, cpu->threads) : 0;
}

static int64_t output_bytes(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  const tsr_cpu_context *cpu = target->context;
  return table[t->op]->output(cpu->k, p, t);
}

tsr_target tsr_cpu_target(const tsr_cpu_context *context) {
  return (tsr_target){
      .fuses = 1u << TSR_FUSED_EPILOGUE | 1u << TSR_FUSED_LINEAR_CROSS_ENTROPY |
               1u << TSR_FUSED_EMBEDDING_DW_SUM,
      .epilogues = TSR_EPILOGUE_BIAS | TSR_EPILOGUE_HALF,
      .exact = true,
      .rows_are_alone = true,
      .tile_rows = cpu_tile_rows,
      .kernel_types = kernel_types,
      .scratch = scratch,
      .output_bytes = output_bytes,
      .context = context};
}
