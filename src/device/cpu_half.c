// SPDX-License-Identifier: Apache-2.0
/* Half precision. Kernels compute in f32: a task's half tensors are widened to copies in its
 * scratch before it runs, and what it wrote is rounded once, to nearest, after it. Ops that only
 * move elements, and those that know half tensors, are left alone. */
#include "device/cpu_ops.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static int64_t copy_bytes(const tsr_tensor *t) {
  return (tsr_tensor_elements(t) * 4 + 63) / 64 * 64;
}

bool cpu_is_copied(const tsr_task *task, const tsr_tensor *t) {
  const tsr_cpu_op *op = tsr_cpu_find(task->op);
  if (!tsr_dtype_is_half(t->dtype) || !op || op->takes_half) return false;
  int shape_only = tsr_op_shape_input(task->op, task->inputs_count);
  return shape_only < 0 || t != &task->inputs[shape_only];
}

int64_t cpu_copy_offset(const tsr_task *task, const tsr_tensor *of) {
  int64_t offset = 0;
  for (int i = 0; i < task->inputs_count; i++) {
    if (of == &task->inputs[i]) return offset;
    if (cpu_is_copied(task, &task->inputs[i])) offset += copy_bytes(&task->inputs[i]);
  }
  for (int i = 0; i < task->outputs_count; i++) {
    if (of == &task->outputs[i]) return offset;
    if (cpu_is_copied(task, &task->outputs[i])) offset += copy_bytes(&task->outputs[i]);
  }
  return offset;
}

bool tsr_cpu_has_copies(const tsr_task *task) { return cpu_copy_offset(task, NULL) > 0; }

static void
widen(const tsr_kernels *k, tsr_dtype from, float *out, const void *x, int64_t begin, int64_t end) {
  if (from == TSR_BF16) k->bf16_to_f32(out, x, begin, end);
  else k->fp16_to_f32(out, x, begin, end);
}

static void
narrow(const tsr_kernels *k, tsr_dtype to, void *out, const float *x, int64_t begin, int64_t end) {
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

void tsr_cpu_widen(const tsr_cpu_call *c, int part, int parts) {
  for (int i = 0; i < c->task->inputs_count; i++) {
    const tsr_tensor *t = &c->task->inputs[i];
    int64_t n = tsr_tensor_elements(t);
    if (cpu_is_copied(c->task, t))
      widen(
          c->k, t->dtype, cpu_tensor(c, t), cpu_address(c, t), n * part / parts,
          n * (part + 1) / parts);
  }
}

void tsr_cpu_narrow(const tsr_cpu_call *c, int part, int parts) {
  for (int i = 0; i < c->task->outputs_count; i++) {
    const tsr_tensor *t = &c->task->outputs[i];
    int64_t n = tsr_tensor_elements(t);
    int64_t begin = n * part / parts, end = n * (part + 1) / parts;
    if (!cpu_is_copied(c->task, t)) continue;
    if (c->losses) count_losses(c->losses, cpu_tensor(c, t), begin, end);
    narrow(c->k, t->dtype, cpu_address(c, t), cpu_tensor(c, t), begin, end);
  }
}

/* ---- ops of their own ---- */

static void cast_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->task->inputs[0], *y = &c->task->outputs[0];
  assert(tsr_dtype_is_half(x->dtype) != tsr_dtype_is_half(y->dtype));
  if (tsr_dtype_is_half(y->dtype) && c->losses)
    count_losses(c->losses, cpu_address(c, x), begin, end);
  if (tsr_dtype_is_half(y->dtype))
    narrow(c->k, y->dtype, cpu_address(c, y), cpu_address(c, x), begin, end);
  else widen(c->k, x->dtype, cpu_address(c, y), cpu_address(c, x), begin, end);
}
const tsr_cpu_op cpu_cast = {.items = cpu_items_elements, .run = cast_run, .takes_half = true};

/* n numbers, as the kernel of f32 tables gives them: -0 becomes +0. */
static void
look_up(const tsr_kernels *k, tsr_dtype to, void *out, tsr_dtype from, const void *x, int64_t n) {
  enum { BLOCK = 1024 };
  float block[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t size = n - at < BLOCK ? n - at : BLOCK;
    const char *in = (const char *)x + at * tsr_dtype_bytes(from);
    char *into = (char *)out + at * tsr_dtype_bytes(to);
    float *wide = to == TSR_F32 ? (float *)(void *)into : block;
    if (from == TSR_F32) memcpy(wide, in, sizeof *wide * (size_t)size);
    else widen(k, from, wide, in, 0, size);
    for (int64_t i = 0; i < size; i++) wide[i] += 0.0f;
    if (to != TSR_F32) narrow(k, to, into, wide, 0, size);
  }
}

void cpu_embedding_half(
    const cpu_call *c, int64_t v_begin, int64_t v_end, int64_t begin, int64_t end) {
  const tsr_tensor *table = &c->task->inputs[1], *y = &c->task->outputs[0];
  const char *rows = (const char *)cpu_address(c, table);
  int64_t C = table->shape[1], out_row = C * tsr_dtype_bytes(y->dtype);
  for (int64_t r = begin; r < end; r++) {
    char *out = (char *)cpu_address(c, y) + r * out_row;
    int64_t token = cpu_tokens(c, 0)[r];
    if (token < v_begin || token >= v_end) memset(out, 0, (size_t)out_row);
    else
      look_up(
          c->k, y->dtype, out, table->dtype,
          rows + (token - v_begin) * C * tsr_dtype_bytes(table->dtype), C);
  }
}
