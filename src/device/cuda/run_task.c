// SPDX-License-Identifier: Apache-2.0
/* A task as calls of kernels: the casts of its operands, and its op between them. It is the same on
 * a device (device.c) and where the calls are only recorded (task_launches.c). */
#include "device/cuda/ops.h"

/* Collectives are the executor's. */
const cuda_op cuda_collective = NULL;
const cuda_op cuda_adapted_squares = NULL, cuda_divide_root = NULL; /* the host's (target.c) */

static const cuda_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cuda_##lower,
#include "graph/ops.def"
#undef OP
};

static void decode(const cuda_call *c, const tsr_tensor *to, const tsr_tensor *from) {
  tsr_quantized_layout layout = tsr_tensor_quantized_layout(from);
  tsr_cuda_nf4_decode(c->state->stream, cuda_type(to), cuda_at(c, to), &layout, cuda_at(c, from));
}

/* The planned copies of a task's operands (schedule/assign_target.h). */
static void cast(const cuda_call *c, const tsr_tensor *to, const tsr_tensor *from, int count) {
  for (int i = 0; i < count; i++)
    if (tsr_dtype_is_quantized(from[i].dtype) && !tsr_dtype_is_quantized(to[i].dtype))
      decode(c, &to[i], &from[i]);
    else if (to[i].dtype != from[i].dtype)
      tsr_cuda_cast(
          c->state->stream, cuda_type(&to[i]), cuda_at(c, &to[i]), cuda_type(&from[i]),
          cuda_at(c, &from[i]), tsr_tensor_elements(&from[i]));
}

static cuda_op op_of(const tsr_task *t) {
  if (t->fused == TSR_FUSED_LOGITS_GRADIENT) return cuda_logits_gradient;
  return t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY ? cuda_linear_cross_entropy : *table[t->op];
}

void cuda_run_task(const cuda_call *c) {
  const tsr_task *task = c->call.task;
  if (task->cast_bytes) cast(c, tsr_kernel_inputs(task), task->inputs, task->inputs_count);
  op_of(task)(c);
  if (task->cast_bytes) cast(c, task->outputs, tsr_kernel_outputs(task), task->outputs_count);
}
