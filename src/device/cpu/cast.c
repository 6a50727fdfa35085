// SPDX-License-Identifier: Apache-2.0
/* Between f32 and half precision. Kernels compute in f32: the planned copies of a task's operands
 * (schedule/assign_target.h) are cast to f32 before it, and what it wrote is rounded once, to
 * nearest, after it. The inputs of GEMMs have no such copies: packing casts them. */
#include "device/cpu/ops.h"
#include <assert.h>
#include <math.h>

void cpu_cast_from_half(
    const tsr_kernels *k, tsr_dtype from, float *out, const void *x, int64_t begin, int64_t end) {
  if (from == TSR_BF16) k->bf16_to_f32(out, x, begin, end);
  else k->fp16_to_f32(out, x, begin, end);
}

void cpu_cast_to_half(
    const tsr_kernels *k, tsr_dtype to, void *out, const float *x, int64_t begin, int64_t end) {
  if (to == TSR_BF16) k->f32_to_bf16(out, x, begin, end);
  else k->f32_to_fp16(out, x, begin, end);
}

/* A number of less than 2^-14 stays what it is where it is a multiple of 2^-24; adding and
 * subtracting 1.5 * 2^23 rounds to a whole number. */
static void count_losses(tsr_f16_losses *losses, const float *x, int64_t begin, int64_t end) {
  const float magic = 0x1.8p23f;
  int64_t underflows = 0, overflows = 0;
  for (int64_t i = begin; i < end; i++) {
    float size = fabsf(x[i]), steps = size * 0x1p24f;
    underflows += size < 0x1p-14f && (steps + magic) - magic != steps;
    overflows += size >= 65520.0f && size < INFINITY;
  }
  if (underflows) losses->underflows += underflows;
  if (overflows) losses->overflows += overflows;
}

void cpu_cast_inputs(const cpu_call *c, int part, int parts) {
  for (int i = 0; i < c->call.task->inputs_count; i++) {
    const tsr_tensor *t = &c->call.task->inputs[i], *copy = &tsr_kernel_inputs(c->call.task)[i];
    int64_t n = tsr_tensor_elements(t);
    if (copy->dtype != t->dtype && !cpu_half_has(c->half.inputs, i))
      cpu_cast_from_half(
          c->k, t->dtype, tsr_operand_address(&c->call, copy), tsr_operand_address(&c->call, t),
          n * part / parts, n * (part + 1) / parts);
  }
}

void cpu_cast_outputs(const cpu_call *c, int part, int parts) {
  for (int i = 0; i < c->call.task->outputs_count; i++) {
    const tsr_tensor *t = &c->call.task->outputs[i], *copy = &tsr_kernel_outputs(c->call.task)[i];
    int64_t n = tsr_tensor_elements(t);
    int64_t begin = n * part / parts, end = n * (part + 1) / parts;
    if (copy->dtype == t->dtype || cpu_half_has(c->half.outputs, i)) continue;
    const float *x = tsr_operand_address(&c->call, copy);
    if (c->losses) count_losses(c->losses, x, begin, end);
    cpu_cast_to_half(c->k, t->dtype, tsr_operand_address(&c->call, t), x, begin, end);
  }
}

/* ---- the op ---- */

static void cast_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_dtype from = c->call.task->inputs[0].dtype, to = c->call.task->outputs[0].dtype;
  assert(tsr_dtype_is_half(from) != tsr_dtype_is_half(to));
  if (tsr_dtype_is_half(to) && c->losses) count_losses(c->losses, cpu_in(c, 0), begin, end);
  if (tsr_dtype_is_half(to)) cpu_cast_to_half(c->k, to, cpu_out(c, 0), cpu_in(c, 0), begin, end);
  else cpu_cast_from_half(c->k, from, cpu_out(c, 0), cpu_in(c, 0), begin, end);
}
const cpu_op cpu_cast = {.items = cpu_items_elements, .run = cast_run, .takes_half = true};
