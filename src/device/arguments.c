// SPDX-License-Identifier: Apache-2.0
#include "device/arguments.h"
#include <math.h>

tsr_unary tsr_unary_of(tsr_op op) {
  static const tsr_unary kinds[TSR_OPS] = {
#define OP(...)
#define UNARY(id, name) [TSR_OP_##id] = TSR_UNARY_##id,
#define GATED(...)
#define GATED_DX(...)
#include "graph/ops.def"
#undef OP
  };
  return kinds[tsr_op_function(op)];
}

tsr_rope tsr_rope_of(const tsr_task_call *c) {
  const tsr_rope_attrs *of = &tsr_task_attrs(c)->rope;
  const tsr_tensor *x = &c->task->inputs[0];
  return (tsr_rope){
      .T = x->shape[1],
      .H = x->shape[2] / of->head_dim,
      .D = of->head_dim,
      .rotary = tsr_rope_rotary(of),
      .offset = of->offset,
      .interleaved = of->interleaved,
      .sign = (float)of->sign};
}

tsr_attention_inputs tsr_attention_inputs_of(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_ATTENTION_DX:
  case TSR_OP_DOCUMENT_ATTENTION_DX:
  case TSR_OP_RING_DQ:
    return (tsr_attention_inputs){1, 2};
  case TSR_OP_RING_DKV:
    return (tsr_attention_inputs){1, 3};
  default:
    return (tsr_attention_inputs){0, 1};
  }
}

tsr_attention_operands tsr_attention_operands_of(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_ATTENTION:
  case TSR_OP_DOCUMENT_ATTENTION:
  case TSR_OP_ATTENTION_CACHED: /* q, k, v → out */
    return (tsr_attention_operands){1 << 0 | 1 << 1 | 1 << 2, 1 << 0};
  case TSR_OP_ATTENTION_DX:
  case TSR_OP_DOCUMENT_ATTENTION_DX: /* dout, q, k, v, out → dq, dk, dv */
    return (tsr_attention_operands){
        1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4, 1 << 0 | 1 << 1 | 1 << 2};
  case TSR_OP_RING_ATTENTION: /* q, k, v */
    return (tsr_attention_operands){1 << 0 | 1 << 1 | 1 << 2, 0};
  case TSR_OP_RING_ROWS:
  case TSR_OP_ATTENTION_SINKS_DX: /* dout, out */
    return (tsr_attention_operands){1 << 0 | 1 << 1, 0};
  case TSR_OP_RING_OUT:
  case TSR_OP_RING_DQ_OUT: /* q, k → out, or dq */
    return (tsr_attention_operands){1 << 0 | 1 << 1, 1 << 0};
  case TSR_OP_RING_DQ: /* dout, q, k, v */
    return (tsr_attention_operands){1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, 0};
  case TSR_OP_RING_DKV: /* dout, q, rows, k, v */
    return (tsr_attention_operands){1 << 0 | 1 << 1 | 1 << 3 | 1 << 4, 0};
  case TSR_OP_RING_DKV_OUT: /* q, k → dk, dv */
    return (tsr_attention_operands){1 << 0 | 1 << 1, 1 << 0 | 1 << 1};
  default:
    return (tsr_attention_operands){0, 0};
  }
}

bool tsr_attention_is_bf16(const tsr_task *t) {
  tsr_attention_operands of = tsr_attention_operands_of(t->op);
  for (int i = 0; i < t->inputs_count; i++)
    if (of.inputs >> i & 1 && t->inputs[i].dtype != TSR_BF16) return false;
  for (int i = 0; i < t->outputs_count; i++)
    if (of.outputs >> i & 1 && t->outputs[i].dtype != TSR_BF16) return false;
  return of.inputs != 0;
}

static float scale_of(double scale, int64_t head_dim) {
  return scale != 0 ? (float)scale : (float)(1 / sqrt((double)head_dim));
}

/* Sizes alone: q (B,T,H*D) and k (B,T,G*D) of this rank; of ring_rows dout and out, which have
 * heads of values. */
static tsr_attention attention_sizes(const tsr_task_call *c) {
  /* the attributes of all ops of attention begin alike, but of those with a cache (attrs.def) */
  const tsr_ring_attrs *attr = &tsr_task_attrs(c)->ring;
  tsr_attention_inputs in = tsr_attention_inputs_of(c->task->op);
  const tsr_tensor *q = &c->task->inputs[in.q], *k = &c->task->inputs[in.k];
  int64_t D = attr->head_dim, Dv = tsr_node_value_head(&c->program->graph->nodes[c->task->node]);
  int64_t width = c->task->op == TSR_OP_RING_ROWS ? Dv : D;
  tsr_attention a = {.B = q->shape[0], .T = k->shape[1], .D = D, .Dv = Dv};
  a.H = q->shape[2] / width;
  a.G = k->shape[2] / width;
  a.causal = attr->causal;
  a.scale = scale_of(attr->scale, D);
  a.soft_cap = (float)attr->soft_cap;
  a.bf16 = tsr_attention_is_bf16(c->task);
  a.dropout = (float)attr->dropout;
  a.window = attr->window;
  return a;
}

tsr_attention tsr_attention_of(const tsr_task_call *c) {
  tsr_attention a = attention_sizes(c);
  if (!c->rank) return a;
  const tsr_tensor *q = &c->task->inputs[tsr_attention_inputs_of(c->task->op).q];
  tsr_tensor_slice slice = tsr_operand_sample_slice(c, q);
  a.batch_offset = slice.offset[0];
  a.head_offset = slice.offset[2] / a.D;
  a.heads_global = slice.global[2] / a.D;
  if (tsr_operand_is_zigzag(c, q, 2)) {
    tsr_tensor_slice run = tsr_operand_run_slice(c, q, &slice, 2, 0),
                     next = tsr_operand_run_slice(c, q, &slice, 2, 1);
    a.head_offset = run.offset[2] / a.D;
    a.head_gap = (next.offset[2] - run.offset[2] - run.shape[2]) / a.D;
  }
  a.key = tsr_random_key(
      c->at.seed, c->program->graph->nodes[c->task->node].stream, (uint64_t)c->at.step);
  return a;
}

/* The positions of the task's results, where cp splits them and not the keys. */
static tsr_attention_rows rows_of(const tsr_task_call *c) {
  const tsr_tensor *out = &c->task->outputs[0]; // (B, T, features)
  int64_t own = out->shape[1];
  tsr_tensor_slice slice = tsr_operand_slice(c, out);
  tsr_attention_rows rows = {.runs = 1, .each = own, .first = {slice.offset[1]}};
  if (own == slice.global[1]) return (tsr_attention_rows){0};
  if (!tsr_operand_is_zigzag(c, out, 1)) return rows;
  int members = (int)c->program->lowering.size[TSR_CP], coord = c->rank->coord[TSR_CP];
  rows.runs = 2;
  rows.each = own / 2;
  for (int i = 0; i < 2; i++)
    rows.first[i] = tsr_sequence_position(true, members, coord, own, i * rows.each);
  return rows;
}

tsr_attention tsr_document_attention_of(const tsr_task_call *c) {
  tsr_attention a = tsr_attention_of(c);
  int at = c->task->op == TSR_OP_DOCUMENT_ATTENTION ? 3 : 6;
  if (!c->rank) return a;
  a.positions = tsr_operand_address(c, &c->task->inputs[at]);
  a.rows = rows_of(c);
  return a;
}

/* inputs: q, keys, values, positions, counts, pages */
tsr_attention_cached tsr_attention_cached_of(const tsr_task_call *c) {
  const tsr_tensor *q = &c->task->inputs[0], *k = &c->task->inputs[1];
  const tsr_attention_cached_attrs *attr = &tsr_task_attrs(c)->attention_cached;
  int64_t D = attr->head_dim;
  tsr_attention_cached a = {.page = k->shape[1], .pages_each = c->task->inputs[5].shape[1]};
  a.a = (tsr_attention){
      .B = q->shape[0], .T = q->shape[1], .H = q->shape[2] / D, .G = k->shape[2] / D, .D = D};
  a.a.Dv = attr->v_head_dim;
  a.a.bf16 = tsr_attention_is_bf16(c->task);
  a.a.soft_cap = (float)attr->soft_cap;
  a.a.causal = true;
  a.a.window = attr->window;
  a.a.scale = scale_of(attr->scale, D);
  if (!c->rank) return a;
  a.positions = tsr_operand_address(c, &c->task->inputs[3]);
  a.counts = tsr_operand_address(c, &c->task->inputs[4]);
  a.pages = tsr_operand_address(c, &c->task->inputs[5]);
  return a;
}

tsr_attention_ring tsr_attention_ring_of(const tsr_task_call *c) {
  const tsr_lowering *l = &c->program->lowering;
  bool whole = c->task->op == TSR_OP_ATTENTION || c->task->op == TSR_OP_ATTENTION_DX;
  tsr_attention_ring r = {.a = tsr_attention_of(c), .zigzag = l->zigzag};
  if (whole) { /* the sequence is, whatever cp splits elsewhere */
    r.members = 1;
    r.length = r.a.T;
    r.units = tsr_program_splits_sequences(c->program) ? c->program->graph->units.sequence : 1;
    return r;
  }
  r.members = (int)l->size[TSR_CP];
  r.length = r.a.T * r.members;
  r.units = (l->sequence_units > 1 ? l->sequence_units : 1) * r.members;
  r.step = (int)tsr_task_attrs(c)->ring.step;
  if (c->rank) r.coord = c->rank->coord[TSR_CP];
  return r;
}
