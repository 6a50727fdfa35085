// SPDX-License-Identifier: Apache-2.0
/* requires: attention's inputs in a graph that is being placed, split over cp along their positions
 * produces: the steps of a ring that make it, and the shifts between them; its results keep their
 *           names
 * invalidates: nothing
 *
 * Ring attention (Liu et al. 2023): keys and values go from member to member while queries stay; in
 * the backward pass they go round once more for dq, and then queries and what flows back into them
 * do for dk and dv (tt-train's two_pass). Each member adds to an accumulator of its own. */
#include "passes/passes.h"
#include <string.h>

typedef struct {
  tsr_graph *g;
  const tsr_node *node; /* the attention */
  int members;
} ring;

static void stamp(const ring *r) {
  tsr_node *n = &r->g->nodes[r->g->nodes_count - 1];
  n->stage = r->node->stage;
  n->block = r->node->block;
  n->stream = r->node->stream;
}

/* A node with the attention's attributes and a step, where the attention stands. */
static int add(const ring *r, tsr_op op, const char *what, int step, int count, const int *inputs) {
  const tsr_node *of = r->node;
  const tsr_attention_attrs *a = &of->attr.attention;
  tsr_attrs attr = {
      .ring = {
          a->head_dim, a->causal, a->scale, a->dropout, a->window, a->v_head_dim, a->soft_cap, step,
          .sinks = of->op == TSR_OP_ATTENTION && of->inputs_count == 4}};
  const char *name = tsr_arena_printf(r->g->arena, "%s.%s%d", of->name, what, step);
  int id = tsr_graph_add(r->g, op, of->section, name, of->location, count, inputs, &attr);
  stamp(r);
  return id;
}

/* The part that the neighbour has at hand; `first`: the member's own. */
static int shift(const ring *r, int value, int first, int by, int step) {
  const tsr_value v = r->g->values[value];
  tsr_attrs attr = {.ring_shift = {TSR_CP, by}};
  const char *name =
      tsr_arena_printf(r->g->arena, "%s.shift%d", r->g->values[first].name, step * by);
  int id = tsr_graph_add_shaped(
      r->g, TSR_OP_RING_SHIFT, r->node->section, name, r->node->location, 1, &value, &attr, v.ndim,
      v.shape);
  stamp(r);
  memcpy(r->g->values[id].placement, v.placement, sizeof v.placement);
  r->g->values[id].dtype = v.dtype;
  return id;
}

/* All steps of a pass: the inputs that move are sent on after each. The accumulator. */
static int go_round(
    const ring *r, tsr_op op, const char *what, int by, int count, const int *inputs,
    const bool *moves) {
  int in[TSR_CALL_INPUTS_MAX], acc = -1;
  memcpy(in, inputs, sizeof *in * (size_t)count);
  for (int step = 0; step < r->members; step++) {
    for (int i = 0; i < count && step; i++)
      if (moves[i]) in[i] = shift(r, in[i], inputs[i], by, step);
    in[count] = acc;
    acc = add(r, op, what, step, count + (step > 0), in);
  }
  return acc;
}

/* in: q, k, v[, sinks] */
static void forward(const ring *r, const int *in, int *ret) {
  int acc = go_round(r, TSR_OP_RING_ATTENTION, "step", 1, 3, in, (bool[]){false, true, true});
  bool sinks = r->node->inputs_count == 4;
  int ends[] = {in[0], in[1], acc, sinks ? in[3] : -1};
  ret[0] = add(r, TSR_OP_RING_OUT, "out", r->members, 3 + sinks, ends);
  ret[1] = ret[0] + 1;
}

/* in: dout, q, k, v, out, stats (B, H, T, 2) */
static void backward(const ring *r, const int *in, int *ret) {
  int rows = add(r, TSR_OP_RING_ROWS, "rows", 0, 3, (int[]){in[0], in[4], in[5]});
  memcpy(
      r->g->values[rows].placement, r->g->values[in[5]].placement,
      sizeof r->g->values[rows].placement);
  int dq = go_round(
      r, TSR_OP_RING_DQ, "dq", 1, 5, (int[]){in[0], in[1], in[2], in[3], rows},
      (bool[]){false, false, true, true, false});
  ret[0] = add(r, TSR_OP_RING_DQ_OUT, "dq", r->members, 3, (int[]){in[1], in[2], dq});
  int dkv = go_round(
      r, TSR_OP_RING_DKV, "dkv", -1, 5, (int[]){in[0], in[1], rows, in[2], in[3]},
      (bool[]){true, true, true, false, false});
  ret[1] = add(r, TSR_OP_RING_DKV_OUT, "dkv", r->members, 3, (int[]){in[1], in[2], dkv});
  ret[2] = ret[1] + 1;
}

void tsr_pass_ring_attention(
    tsr_graph *g, const tsr_graph *from, int node, const int *inputs, int members,
    int ret_outputs[TSR_OUTPUTS_MAX]) {
  ring r = {g, &from->nodes[node], members};
  if (r.node->op == TSR_OP_ATTENTION) forward(&r, inputs, ret_outputs);
  else backward(&r, inputs, ret_outputs);
  for (int o = 0; o < r.node->outputs_count; o++)
    g->values[ret_outputs[o]].name = from->values[r.node->outputs[o]].name;
}
