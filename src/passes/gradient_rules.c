// SPDX-License-Identifier: Apache-2.0
/* The gradient rules, one per op (ops.def, gradient column). Notation: y = op(x, …), dy is the
 * gradient of the loss by y. A rule asks for nothing that is not wanted. */
#include "passes/autodiff.h"
#include "passes/gradient_terms.h"
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
  tsr_attrs attrs = {.linear = {attr(c)->linear.fp8}};
  tsr_gradient_give_product(c->grads, input(c, 0), c->dy[0], input(c, 1), attrs.linear.fp8);
  if (wanted(c, 1))
    give(c, 1, add(c, TSR_OP_LINEAR_DW, 1, 3, (int[]){c->dy[0], input(c, 0), input(c, 1)}, &attrs));
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
        c, 1,
        add(c, TSR_OP_EMBEDDING_DW, 1, 3, (int[]){input(c, 0), c->dy[0], input(c, 1)}, attr(c)));
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

static void grad_clamped_swiglu(const call *c) {
  int inputs[] = {c->dy[0], input(c, 0), input(c, 1)};
  tsr_attrs attrs = *attr(c);
  int first = add(c, TSR_OP_CLAMPED_SWIGLU_DX, 0, 3, inputs, &attrs);
  give(c, 0, first);
  give(c, 1, first + 1);
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
  tsr_attrs dx = {.rmsnorm_dx = {attr(c)->rmsnorm.zero_centered}};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_RMSNORM_DX, 0, 4, (int[]){dy, x, w, rstd}, &dx));
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

static void grad_rope_at(const call *c) {
  tsr_attrs attrs = *attr(c);
  attrs.rope.sign = -attrs.rope.sign;
  int inputs[] = {c->dy[0], input(c, 1), input(c, 2)};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_ROPE_AT, 0, 3, inputs, &attrs));
}

/* dout, q, k, v, out, stats, and of documents the positions. */
static void attention_gradients(const call *c, tsr_op op, int count, int positions) {
  int inputs[] = {c->dy[0],     input(c, 0),  input(c, 1), input(c, 2),
                  output(c, 0), output(c, 1), positions};
  tsr_attrs attrs = *attr(c);
  int sinks = tsr_node_sinks(&c->g->nodes[c->node]), first = add(c, op, 0, count, inputs, &attrs);
  c->g->nodes[c->g->values[first].node].stream = c->g->nodes[c->node].stream;
  for (int i = 0; i < 3; i++) give(c, i, first + i);
  if (sinks < 0 || !wanted(c, sinks)) return;
  int of_rows[] = {c->dy[0], output(c, 0), output(c, 1), input(c, sinks)};
  int dx = add(c, TSR_OP_ATTENTION_SINKS_DX, sinks, 4, of_rows, &attrs);
  give(c, sinks, sum_to(c, sinks, dx));
}

static void grad_attention(const call *c) { attention_gradients(c, TSR_OP_ATTENTION_DX, 6, -1); }

static void grad_document_attention(const call *c) {
  attention_gradients(c, TSR_OP_DOCUMENT_ATTENTION_DX, 7, input(c, 3));
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

/* The norm of an adapted weight is a constant. */
static void grad_adapted_squares(const call *c) { (void)c; }

static void grad_divide_root(const call *c) {
  if (wanted(c, 0))
    give(c, 0, add(c, TSR_OP_DIVIDE_ROOT, 0, 2, (int[]){c->dy[0], input(c, 1)}, NULL));
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

/* ---- mixture of experts ---- */

/* Its products are in f32, so no others are summed with them. */
static void grad_router(const call *c) {
  if (wanted(c, 0))
    give(c, 0, add(c, TSR_OP_ROUTER_DX, 0, 2, (int[]){c->dy[0], input(c, 1)}, NULL));
  if (wanted(c, 1))
    give(c, 1, add(c, TSR_OP_LINEAR_DW, 1, 3, (int[]){c->dy[0], input(c, 0), input(c, 1)}, NULL));
}

/* A choice has no gradient. */
static void grad_choice(const call *c) { (void)c; }

static void grad_expert_weights(const call *c) {
  int inputs[] = {c->dy[0], input(c, 0), input(c, 1)};
  tsr_attrs attrs = *attr(c);
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_EXPERT_WEIGHTS_DX, 0, 3, inputs, &attrs));
}

/* Choices of each expert, of a forward node that balances them. Counts of a whole forward pass are
 * made in it, since other stages read them. */
static int add_counts(const call *c, int node, bool by_sample, tsr_section section) {
  const tsr_node of = c->g->nodes[node];
  const tsr_value *scores = &c->g->values[of.inputs[0]];
  tsr_attrs attrs = {.expert_counts = {scores->shape[scores->ndim - 1], by_sample}};
  int saved = c->g->of;
  c->g->of = node;
  int counts = tsr_graph_add(
      c->g, TSR_OP_EXPERT_COUNTS, section, tsr_arena_printf(c->g->arena, "counts@%s", of.name),
      of.location, 1, &of.inputs[1], &attrs);
  c->g->of = saved;
  return counts;
}

static bool balances_forward(const tsr_node *n) {
  return n->op == TSR_OP_BALANCE_LOSS && n->attr.balance_loss.per == TSR_BALANCE_FORWARD;
}

/* The counts of all layers together; made once. */
static int forward_counts(const call *c, int *ret_layers) {
  int sum = c->grads->forward_counts, nodes = c->g->nodes_count;
  *ret_layers = 0;
  for (int i = 0; i < nodes; i++) *ret_layers += balances_forward(&c->g->nodes[i]);
  for (int i = 0; i < nodes && c->grads->forward_counts < 0; i++) {
    if (!balances_forward(&c->g->nodes[i])) continue;
    int counts = add_counts(c, i, false, TSR_FORWARD);
    if (sum >= 0)
      counts = tsr_graph_add(
          c->g, TSR_OP_ADD, TSR_FORWARD, c->g->values[counts].name, c->g->nodes[i].location, 2,
          (int[]){sum, counts}, NULL);
    sum = counts;
  }
  return c->grads->forward_counts = sum;
}

/* With f = E / (k T) * counts and P = sum of the scores / T over the T tokens that are counted, the
 * loss is coefficient * sum of f P, of sequences the mean over these. Hugging Face's has no 1 / k
 * and T tokens of all layers. Counts have no gradient. */
static void grad_balance_loss(const call *c) {
  const tsr_balance_loss_attrs a = attr(c)->balance_loss;
  const tsr_value scores = c->g->values[input(c, 0)], chosen = c->g->values[input(c, 1)];
  double experts = (double)scores.shape[scores.ndim - 1], k = (double)chosen.shape[chosen.ndim - 1];
  double microbatches = c->g->microbatches > 1 ? (double)c->g->microbatches : 1;
  double tokens = (double)tsr_value_elements(&scores) / experts * microbatches, per = tokens;
  give(c, 0, c->dy[0]);
  if (!wanted(c, 0) || a.coefficient == 0) return;
  int counts, layers = 1;
  if (a.per == TSR_BALANCE_SEQUENCE) {
    counts = add_counts(c, c->node, true, c->section);
    per = (double)scores.shape[1];
  } else {
    counts = a.per == TSR_BALANCE_FORWARD ? forward_counts(c, &layers) : input(c, 2);
  }
  double factor = a.coefficient * experts / (k * per * tokens);
  if (a.per == TSR_BALANCE_FORWARD) factor *= k / ((double)layers * (double)layers);
  tsr_attrs attrs = {.balance_loss_dx = {factor, a.normalize, a.per == TSR_BALANCE_SEQUENCE}};
  give(c, 0, add(c, TSR_OP_BALANCE_LOSS_DX, 0, 2, (int[]){counts, input(c, 0)}, &attrs));
}

static void grad_router_z_loss(const call *c) {
  const tsr_value *logits = &c->g->values[input(c, 0)];
  double tokens = (double)tsr_value_elements(logits) / (double)logits->shape[logits->ndim - 1];
  double microbatches = c->g->microbatches > 1 ? (double)c->g->microbatches : 1;
  double coefficient = attr(c)->router_z_loss.coefficient;
  tsr_attrs attrs = {.router_z_loss_dx = {2 * coefficient / (tokens * microbatches)}};
  give(c, 0, c->dy[0]);
  if (wanted(c, 0) && coefficient > 0)
    give(c, 0, add(c, TSR_OP_ROUTER_Z_LOSS_DX, 0, 1, (int[]){input(c, 0)}, &attrs));
}

static void grad_permute_experts(const call *c) {
  int inputs[] = {c->dy[0], input(c, 1), input(c, 0)};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_PERMUTE_EXPERTS_DX, 0, 3, inputs, NULL));
}

static void grad_expert_linear(const call *c) {
  int dy = c->dy[0], x = input(c, 0), w = input(c, 1), plan = input(c, 2);
  tsr_attrs dx = {.linear = {attr(c)->linear.fp8}};
  tsr_attrs dw = {.expert_linear_dw = {.fp8 = dx.linear.fp8}};
  if (wanted(c, 0)) give(c, 0, add(c, TSR_OP_EXPERT_LINEAR_DX, 0, 3, (int[]){dy, w, plan}, &dx));
  if (wanted(c, 1)) give(c, 1, add(c, TSR_OP_EXPERT_LINEAR_DW, 1, 4, (int[]){dy, x, plan, w}, &dw));
}

static void grad_expert_add(const call *c) {
  int of_rows[] = {c->dy[0], input(c, 2), input(c, 1)};
  if (wanted(c, 0)) give(c, 0, c->dy[0]);
  if (wanted(c, 1)) give(c, 1, add(c, TSR_OP_EXPERT_LINEAR_DW, 1, 3, of_rows, NULL));
}

static void grad_combine_experts(const call *c) {
  int dy = c->dy[0], rows = input(c, 0), weights = input(c, 1), plan = input(c, 2);
  int first = add(c, TSR_OP_COMBINE_EXPERTS_DX, 0, 4, (int[]){dy, rows, weights, plan}, NULL);
  give(c, 0, first);
  give(c, 1, first + 1);
}

static gradient_rule *const rules[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, ...) grad_##gradient,
#include "graph/ops.def"
#undef OP
};

void tsr_gradient_apply(const tsr_gradient_call *c) { rules[c->g->nodes[c->node].op](c); }
