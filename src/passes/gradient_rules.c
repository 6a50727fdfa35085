// SPDX-License-Identifier: Apache-2.0
/* The gradient rules, one per op (ops.def, gradient column). Notation: y = op(x, …), dy is the
 * gradient of the loss by y. A rule asks for nothing that is not wanted. */
#include "passes/autodiff.h"
#include <assert.h>
#include <string.h>

typedef tsr_gradient_call call;
typedef void gradient_rule(const call *c);

static int input(const call *c, int i) { return c->g->nodes[c->node].inputs[i]; }
static int output(const call *c, int i) { return c->g->nodes[c->node].outputs[i]; }
static const tsr_attrs *attr(const call *c) { return &c->g->nodes[c->node].attr; }
static bool wanted(const call *c, int i) { return tsr_gradient_wanted(c->grads, input(c, i)); }

/* Adds a backward node named after the input that it is for. */
static int
add(const call *c, tsr_op op, int for_input, int count, const int *inputs, const tsr_attrs *attrs) {
  const char *name = c->g->values[input(c, for_input)].name;
  const char *of = c->g->nodes[c->node].name;
  name = tsr_arena_printf(c->g->arena, "d.%s@%s", name, of);
  return tsr_graph_add(
      c->g, op, c->section, name, c->g->nodes[c->node].location, count, inputs, attrs);
}

static void give(const call *c, int i, int value) {
  tsr_gradient_give(c->grads, input(c, i), value);
}

static void grad_none(const call *c) {
  (void)c;
  assert(!"an op that the passes make has no gradient");
}

static void grad_linear(const call *c) {
  tsr_gradient_give_product(c->grads, input(c, 0), c->dy[0], input(c, 1));
  if (wanted(c, 1))
    give(c, 1, add(c, TSR_OP_LINEAR_DW, 1, 3, (int[]){c->dy[0], input(c, 0), input(c, 1)}, NULL));
}

static int matmul(const call *c, int for_input, int a, bool ta, int b, bool tb) {
  return add(c, TSR_OP_MATMUL, for_input, 2, (int[]){a, b}, &(tsr_attrs){.matmul = {ta, tb}});
}

/* y = A B with A = a or a^T, B = b or b^T: dA = dy B^T, dB = A^T dy, transposed back where needed.
 */
static void grad_matmul(const call *c) {
  int a = input(c, 0), b = input(c, 1), dy = c->dy[0];
  bool ta = attr(c)->matmul.transpose_a, tb = attr(c)->matmul.transpose_b;
  if (wanted(c, 0))
    give(c, 0, ta ? matmul(c, 0, b, tb, dy, true) : matmul(c, 0, dy, false, b, !tb));
  if (wanted(c, 1))
    give(c, 1, tb ? matmul(c, 1, dy, true, a, ta) : matmul(c, 1, a, !ta, dy, false));
}

static void grad_embedding(const call *c) {
  if (wanted(c, 1))
    give(
        c, 1, add(c, TSR_OP_EMBEDDING_DW, 1, 3, (int[]){input(c, 0), c->dy[0], input(c, 1)}, NULL));
}

static bool same_shape(const tsr_value *a, const tsr_value *b) {
  return a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

/* `value` summed over the leading dimensions that input i was broadcast over. */
static int sum_to(const call *c, int i, int value) {
  if (same_shape(&c->g->values[value], &c->g->values[input(c, i)])) return value;
  return add(c, TSR_OP_SUM_TO, i, 2, (int[]){value, input(c, i)}, NULL);
}

static void grad_add(const call *c) {
  if (wanted(c, 0)) give(c, 0, c->dy[0]);
  if (wanted(c, 1)) give(c, 1, sum_to(c, 1, c->dy[0]));
}

static int scaled(const call *c, int i, int value, double factor) {
  return add(c, TSR_OP_SCALE, i, 1, &value, &(tsr_attrs){.scale = {factor}});
}

static void grad_sub(const call *c) {
  if (wanted(c, 0)) give(c, 0, c->dy[0]);
  if (wanted(c, 1)) give(c, 1, scaled(c, 1, c->dy[0], -1));
}

static void grad_scale(const call *c) {
  if (wanted(c, 0)) give(c, 0, scaled(c, 0, c->dy[0], attr(c)->scale.factor));
}

static void grad_mul(const call *c) {
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_MUL, 0, 2, (int[]){c->dy[0], input(c, 1)}, NULL));
  if (wanted(c, 1)) {
    int product = add(c, TSR_OP_MUL, 1, 2, (int[]){c->dy[0], input(c, 0)}, NULL);
    give(c, 1, sum_to(c, 1, product));
  }
}

static void grad_unary(const call *c) {
  tsr_attrs attrs = {.unary_dx = {c->g->nodes[c->node].op}};
  if (wanted(c, 0))
    give(c, 0, add(c, TSR_OP_UNARY_DX, 0, 2, (int[]){c->dy[0], input(c, 0)}, &attrs));
}

static void grad_gated(const call *c) {
  static const tsr_op dx[TSR_OPS] = {
#define OP(...)
#define UNARY(...)
#define GATED(...)
#define GATED_DX(id, ...) [TSR_OP_##id] = TSR_OP_##id##_DX,
#include "graph/ops.def"
#undef OP
  };
  int inputs[] = {c->dy[0], input(c, 0), input(c, 1)};
  int first = add(c, dx[c->g->nodes[c->node].op], 0, 3, inputs, NULL);
  give(c, 0, first);
  give(c, 1, first + 1); /* a node's outputs are consecutive values */
}

/* The same mask again: the stream is the forward node's. */
static void grad_dropout(const call *c) {
  if (!wanted(c, 0)) return;
  tsr_attrs attrs = *attr(c);
  int dx = add(c, TSR_OP_DROPOUT, 0, 1, &c->dy[0], &attrs);
  c->g->nodes[c->g->values[dx].node].stream = c->g->nodes[c->node].stream;
  give(c, 0, dx);
}

static void grad_layernorm(const call *c) {
  int dy = c->dy[0], x = input(c, 0), w = input(c, 1), mean = output(c, 1), rstd = output(c, 2);
  bool has_bias = c->g->nodes[c->node].inputs_count == 3;
  if (wanted(c, 0))
    give(c, 0, add(c, TSR_OP_LAYERNORM_DX, 0, 5, (int[]){dy, x, w, mean, rstd}, NULL));
  if (wanted(c, 1)) give(c, 1, add(c, TSR_OP_NORM_DW, 1, 5, (int[]){dy, x, mean, rstd, w}, NULL));
  if (has_bias && wanted(c, 2)) give(c, 2, sum_to(c, 2, dy));
}

static void grad_rmsnorm(const call *c) {
  int dy = c->dy[0], x = input(c, 0), w = input(c, 1), rstd = output(c, 1);
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_RMSNORM_DX, 0, 4, (int[]){dy, x, w, rstd}, NULL));
  if (wanted(c, 1)) give(c, 1, add(c, TSR_OP_NORM_DW, 1, 4, (int[]){dy, x, rstd, w}, NULL));
}

static void grad_softmax(const call *c) {
  if (wanted(c, 0))
    give(c, 0, add(c, TSR_OP_SOFTMAX_DX, 0, 2, (int[]){c->dy[0], output(c, 0)}, NULL));
}

/* A rotation's transpose is the rotation back. */
static void grad_rope(const call *c) {
  tsr_attrs attrs = *attr(c);
  attrs.rope.sign = -attrs.rope.sign;
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_ROPE, 0, 2, (int[]){c->dy[0], input(c, 1)}, &attrs));
}

static void grad_attention(const call *c) {
  int inputs[] = {c->dy[0], input(c, 0), input(c, 1), input(c, 2), output(c, 0), output(c, 1)};
  tsr_attrs attrs = *attr(c);
  int first = add(c, TSR_OP_ATTENTION_DX, 0, 6, inputs, &attrs);
  c->g->nodes[c->g->values[first].node].stream = c->g->nodes[c->node].stream;
  for (int i = 0; i < 3; i++) give(c, i, first + i);
}

static void grad_reshape(const call *c) {
  if (!wanted(c, 0)) return;
  const tsr_value x = c->g->values[input(c, 0)];
  const char *name = tsr_arena_printf(c->g->arena, "d.%s@%s", x.name, c->g->nodes[c->node].name);
  give(
      c, 0,
      tsr_graph_add_shaped(
          c->g, TSR_OP_RESHAPE, c->section, name, c->g->nodes[c->node].location, 1, &c->dy[0], NULL,
          x.ndim, x.shape));
}

static void grad_transpose(const call *c) {
  tsr_attrs attrs = *attr(c);
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_TRANSPOSE, 0, 1, &c->dy[0], &attrs));
}

static void grad_slice(const call *c) {
  const tsr_slice_attrs *split = &attr(c)->slice;
  int64_t size = c->g->values[input(c, 0)].shape[split->dim];
  tsr_attrs attrs = {.unslice = {split->dim, split->begin, size}};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_UNSLICE, 0, 1, &c->dy[0], &attrs));
}

static void grad_unslice(const call *c) {
  const tsr_unslice_attrs *in = &attr(c)->unslice;
  int64_t size = c->g->values[input(c, 0)].shape[in->dim];
  tsr_attrs attrs = {.slice = {in->dim, in->begin, in->begin + size}};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_SLICE, 0, 1, &c->dy[0], &attrs));
}

static void grad_concat(const call *c) {
  int dim = attr(c)->concat.dim;
  int64_t begin = 0;
  for (int i = 0; i < c->g->nodes[c->node].inputs_count; i++) {
    int64_t size = c->g->values[input(c, i)].shape[dim];
    tsr_attrs attrs = {.slice = {dim, begin, begin + size}};
    if (wanted(c, i)) give(c, i, add(c, TSR_OP_SLICE, i, 1, &c->dy[0], &attrs));
    begin += size;
  }
}

static void grad_expand_heads(const call *c) {
  tsr_attrs attrs = *attr(c);
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_SUM_HEADS, 0, 1, &c->dy[0], &attrs));
}

/* The statistics carry no gradient of their own: the loss gives it to the logits. */
static void grad_ce_stats(const call *c) { (void)c; }

static void grad_ce_loss(const call *c) {
  int inputs[] = {input(c, 0), output(c, 1), input(c, 2), input(c, 3)};
  tsr_attrs attrs = {.ce_loss_dx = {.valid = attr(c)->ce_loss.valid}};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_CE_LOSS_DX, 0, 4, inputs, &attrs));
}

static void grad_squared(const call *c) {
  int x = input(c, 0), y = input(c, 1);
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_SQUARED_DX, 0, 2, (int[]){x, y}, NULL));
  if (wanted(c, 1)) give(c, 1, add(c, TSR_OP_SQUARED_DX, 1, 2, (int[]){y, x}, NULL));
}

/* Written-out collectives say where data is, not what it is: as functions of the whole tensor they
 * are the identity, and so are their gradients. The placement pass moves the gradient as its users
 * need. */
static void grad_identity(const call *c) {
  if (wanted(c, 0)) give(c, 0, c->dy[0]);
}

static gradient_rule *const rules[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, ...) grad_##gradient,
#include "graph/ops.def"
#undef OP
};

void tsr_gradient_apply(const tsr_gradient_call *c) { rules[c->g->nodes[c->node].op](c); }
