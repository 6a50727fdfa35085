// SPDX-License-Identifier: Apache-2.0
/* Tasks whose tensors are of several types where a kernel takes one. In half precision what is
 * still owed to a sum over ranks is f32, and so are a loss and its gradient; whoever reads that
 * beside half tensors is given copies, in front of its scratch: products in half precision, for the
 * matrix units' sake, all others in f32. */
#include "device/cuda_recast.h"
#include <assert.h>

static bool is_product(tsr_op op) {
  return tsr_op_facts(op) & TSR_FACT_PRODUCT || op == TSR_OP_LINEAR_DW;
}

/* Ops that know what types they mix. */
static bool mixes(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_EMBEDDING:
  case TSR_OP_EMBEDDING_DW:
  case TSR_OP_CAST:
    return true;
  }
  /* What goes round the ring of cp beside queries, keys and values is f32 by itself. */
  if (op >= TSR_OP_RING_ATTENTION && op <= TSR_OP_RING_DKV_OUT) return true;
  return tsr_op_facts(op) & (TSR_FACT_WIDE | TSR_FACT_KEEPS_DTYPE | TSR_FACT_UPDATE);
}

/* Numbers that are f32 whatever the rest is: statistics of rows, sums of attention. */
static bool is_f32_always(const tsr_program *p, const tsr_tensor *t) {
  const tsr_value *v = &p->graph->values[t->value];
  if (v->kind != TSR_VALUE_NODE) return v->kind != TSR_VALUE_PARAM && v->kind != TSR_VALUE_INPUT;
  const tsr_node *n = &p->graph->nodes[v->node];
  unsigned facts = tsr_op_facts(n->op);
  return facts & TSR_FACT_SIZED || (facts & TSR_FACT_STATISTICS && n->outputs[0] != t->value);
}

/* Tensors that the op's kernel takes in one type. */
static bool is_uniform_input(const tsr_program *p, const tsr_task *t, int i) {
  const tsr_tensor *x = &t->inputs[i];
  return x->dtype != TSR_I32 && x->segment != TSR_SEGMENT_ABSENT &&
         i != tsr_op_shape_input(t->op, t->inputs_count) && !is_f32_always(p, x);
}

static bool is_uniform_output(const tsr_program *p, const tsr_task *t, int i) {
  if (is_product(t->op) || tsr_op_facts(t->op) & TSR_FACT_GRADIENT) return false;
  return !is_f32_always(p, &t->outputs[i]);
}

/* Whether both a half type and f32 are there; *ret_half: which. */
static bool is_mixed(const tsr_program *p, const tsr_task *t, tsr_dtype *ret_half) {
  bool wide = false, half = false;
  for (int i = 0; i < t->inputs_count + t->outputs_count; i++) {
    bool input = i < t->inputs_count;
    int at = input ? i : i - t->inputs_count;
    if (!(input ? is_uniform_input(p, t, at) : is_uniform_output(p, t, at))) continue;
    tsr_dtype dtype = input ? t->inputs[at].dtype : t->outputs[at].dtype;
    if (tsr_dtype_is_half(dtype)) half = true, *ret_half = dtype;
    else wide = true;
  }
  return wide && half;
}

/* A tensor's copy, or the tensor. */
static tsr_tensor recast(cuda_recast_task *r, const tsr_tensor *t, bool uniform, tsr_dtype dtype) {
  tsr_tensor copy = *t;
  if (!uniform || t->dtype == dtype) return copy;
  copy.dtype = dtype;
  copy.segment = TSR_SEGMENT_WORK;
  copy.frame = -1;
  copy.offset = r->task.scratch_offset + r->bytes;
  r->bytes += cuda_aligned(tsr_tensor_elements(t) * tsr_dtype_bytes(dtype));
  return copy;
}

bool cuda_recast(const tsr_program *p, const tsr_task *t, cuda_recast_task *r) {
  tsr_dtype half = TSR_F32;
  if (mixes(t->op) || !is_mixed(p, t, &half)) return false;
  assert(t->inputs_count <= CUDA_RECAST_MAX && t->outputs_count <= CUDA_RECAST_MAX);
  tsr_dtype dtype = is_product(t->op) ? half : TSR_F32;
  r->task = *t;
  r->bytes = 0;
  for (int i = 0; i < t->inputs_count; i++)
    r->inputs[i] = recast(r, &t->inputs[i], is_uniform_input(p, t, i), dtype);
  for (int i = 0; i < t->outputs_count; i++)
    r->outputs[i] = recast(r, &t->outputs[i], is_uniform_output(p, t, i), dtype);
  r->task.inputs = r->inputs;
  r->task.outputs = r->outputs;
  r->task.scratch_offset += r->bytes;
  return true;
}

static void copy(const cuda_call *c, const tsr_tensor *to, const tsr_tensor *from) {
  if (to->dtype != from->dtype)
    tsr_cuda_cast(
        c->state->stream, cuda_type(to), cpu_address(&c->base, to), cuda_type(from),
        cpu_address(&c->base, from), tsr_tensor_elements(from));
}

void cuda_run_task(const cuda_call *c, const cuda_op *op) {
  const tsr_task *t = c->base.task;
  cuda_recast_task r;
  if (!cuda_recast(c->base.program, t, &r)) {
    op->run(c);
    return;
  }
  cuda_call other = *c;
  other.base.task = &r.task;
  for (int i = 0; i < t->inputs_count; i++) copy(c, &r.inputs[i], &t->inputs[i]);
  op->run(&other);
  for (int i = 0; i < t->outputs_count; i++) copy(c, &t->outputs[i], &r.outputs[i]);
}
