// SPDX-License-Identifier: Apache-2.0
/* Every op that a graph file can call: its result against the interpreter's in double, and the
 * gradient of every parameter against differences of the interpreter's loss. The interpreter's own
 * gradients must agree with the same differences closely. Sizes are odd on purpose. */
#include "oracle.h"
#include "tests/check.h"
#include <stdlib.h>

typedef struct {
  const char *op;     /* as tsr_graph_call_names gives it */
  const char *inputs; /* separated by ';'; gradients are those of parameters */
  const char *params;
  const char *calls;  /* the result is y, or the loss `loss` */
  const char *unused; /* a parameter without a gradient */
  bool adapts, dora;  /* the layers that read `unused`, which is frozen, have adapters */
} op_case;

/* x chooses k experts by a softmax, and the rows of e's product are combined. */
#define ROUTED(k, normalizes)                                                                      \
  "s: router(x, r); p: softmax(s); c: choose_experts(p, k: " #k                                    \
  "); v: expert_weights(p, c, normalize: " #normalizes ")\n"
#define EXPERTS                                                                                    \
  "plan: expert_plan(c, e); a: permute_experts(x, plan); l: expert_linear(a, e, plan)\n"           \
  "h: tanh(l)\n"
#define COMBINED "y: combine_experts(h, v, plan)"

static const op_case cases[] = {
    {"linear", "", "x 2,3,5; w 7,5", "y: linear(x, w)"},
    {"linear", "", "x 4,5; w 7,5; b 7", "y: linear(x, w, b)"},
    {"linear", "", "x 4,6; w 6,6", "h: linear(x, w); t: tanh(h); y: linear(t, w)"}, /* used twice */
    {"linear", "", "x 2,3,5; w 7,5", "y: linear(x, w)", "w", .adapts = true},
    {"linear", "", "x 2,3,6; w 6,6; b 6", "h: linear(x, w, b); t: tanh(h); y: linear(t, w)", "w",
     .adapts = true}, /* one adapter, used twice */
    {"linear", "", "x 2,3,5; w 7,5; b 7", "y: linear(x, w, b)", "w", .adapts = true, .dora = true},
    {"linear", "", "x 2,3,6; w 6,6", "h: linear(x, w); t: tanh(h); y: linear(t, w)", "w",
     .adapts = true, .dora = true},
    {"matmul", "", "a 3,5; b 5,4", "y: matmul(a, b)"},
    {"matmul", "", "a 5,3; b 5,4", "y: matmul(a, b, transpose_a: 1)"},
    {"matmul", "", "a 3,5; b 4,5", "y: matmul(a, b, transpose_b: 1)"},
    {"matmul", "", "a 5,3; b 4,5", "y: matmul(a, b, transpose_a: 1, transpose_b: 1)"},
    {"matmul", "", "a 2,3,3,5; b 2,3,5,4", "y: matmul(a, b)"},
    {"matmul", "", "a 3,5,3; b 3,5,4", "y: matmul(a, b, transpose_a: 1)"},
    {"matmul", "", "a 3,3,5; b 3,4,5", "y: matmul(a, b, transpose_b: 1)"},
    {"matmul", "", "a 3,5,3; b 3,4,5", "y: matmul(a, b, transpose_a: 1, transpose_b: 1)"},
    {"matmul", "", "a 3,3", "y: matmul(a, a)"},
    {"embedding", "t 3,5 tokens", "w 11,7", "y: embedding(t, w)"},
    {"embedding", "t 9 tokens", "w 11,3", "y: embedding(t, w)"},
    {"add", "", "a 2,3,5; b 2,3,5", "y: add(a, b)"},
    {"add", "", "a 2,3,5; b 3,5", "y: add(a, b)"},
    {"add", "", "a 2,3,5; b 5", "y: add(a, b)"},
    {"add", "", "a 3,5", "y: add(a, a)"},
    {"sub", "", "a 3,5; b 3,5", "y: sub(a, b)"},
    {"mul", "", "a 3,5; b 3,5", "y: mul(a, b)"},
    {"mul", "", "a 2,3,5; b 3,5", "y: mul(a, b)"},
    {"mul", "", "a 2,3,5; b 5", "y: mul(a, b)"},
    {"mul", "", "a 3,5", "y: mul(a, a)"},
    {"scale", "", "x 3,5", "y: scale(x, factor: -1.7)"},
#define OP(...)
#define UNARY(id, name) {#name, "", "x 7,9", "y: " #name "(x)"},
#define GATED(id, name, f) {#name, "", "a 7,9; b 7,9", "y: " #name "(a, b)"},
#define GATED_DX(...)
#include "graph/ops.def"
#undef OP
    {"dropout", "", "x 5,3,7", "y: dropout(x, p: 0.3)"},
    {"dropout", "", "x 5,3,7", "y: dropout(x, p: 0)"},
    {"dropout", "", "x 3,2,2,3,3",
     "y: dropout(x, p: 0.3)"}, /* as many dimensions as there may be */
    {"layernorm", "", "x 3,2,9; w 9", "y: layernorm(x, w)"},
    {"layernorm", "", "x 5,9; w 9; b 9", "y: layernorm(x, w, b, eps: 0.01)"},
    {"rmsnorm", "", "x 3,2,9; w 9", "y: rmsnorm(x, w)"},
    {"rmsnorm", "", "x 2,3,2,5; w 5", "y: rmsnorm(x, w, eps: 0.1)"},
    {"softmax", "", "x 3,2,9", "y: softmax(x)"},
    {"rmsnorm", "", "x 3,2,9; w 9", "y: rmsnorm(x, w, zero_centered: 1)"},
    {"rope", "", "x 2,5,18", "y: rope(x, head_dim: 6)"},
    {"rope", "", "x 2,9,12", "y: rope(x, head_dim: 12, theta: 50, linear_factor: 3)"},
    {"rope", "", "x 2,9,12",
     "y: rope(x, head_dim: 12, theta: 50, scaling_factor: 8, low_freq_factor: 1, high_freq_factor: "
     "4, "
     "original_context_length: 64)"},
    {"rope", "", "x 2,5,18", "y: rope(x, head_dim: 6, interleaved: 1)"},
    {"rope", "", "x 2,5,14", "y: rope(x, head_dim: 7, rotary_dim: 4, offset: 3, interleaved: 1)"},
    {"rope", "", "x 2,9,16",
     "y: rope(x, head_dim: 16, theta: 50, yarn_factor: 8, original_context_length: 64, mscale: "
     "1.5, "
     "mscale_all_dim: 0.5, beta_fast: 4)"},
    {"rope", "", "x 2,9,16",
     "y: rope(x, head_dim: 8, theta: 50, yarn_factor: 8, original_context_length: 64, truncate: "
     "0)"},
    {"rope", "", "x 2,5,16", "y: rope(x, head_dim: 8, rotary_dim: 4, offset: 1, theta: 100)"},
    {"attention", "", "q 2,5,6; k 2,5,6; v 2,5,6", "y: attention(q, k, v, head_dim: 3)"},
    {"attention", "", "q 2,5,6; k 2,5,6; v 2,5,6", "y: attention(q, k, v, head_dim: 3, causal: 0)"},
    {"attention", "", "q 2,7,20; k 2,7,10; v 2,7,10",
     "y: attention(q, k, v, head_dim: 5, scale: 0.7)"},
    {"attention", "", "q 1,7,12; k 1,7,3; v 1,7,3",
     "y: attention(q, k, v, head_dim: 3, causal: 0)"},
    {"attention", "", "q 2,5,12; k 2,5,6; v 2,5,6",
     "y: attention(q, k, v, head_dim: 3, dropout: 0.25)"},
    {"attention", "", "q 2,5,6", "y: attention(q, q, q, head_dim: 3)"},
    {"attention", "", "q 2,7,12; k 2,7,6; v 2,7,6",
     "y: attention(q, k, v, head_dim: 3, window: 3)"},
    {"attention", "", "q 2,5,6; k 2,5,6; v 2,5,6", "y: attention(q, k, v, head_dim: 3, window: 2)"},
    {"attention", "", "q 2,7,20; k 2,7,10; v 2,7,6",
     "y: attention(q, k, v, head_dim: 5, v_head_dim: 3, scale: 0.7)"},
    {"attention", "", "q 2,5,6; k 2,5,6; v 2,5,10",
     "y: attention(q, k, v, head_dim: 3, v_head_dim: 5, dropout: 0.25, window: 3)"},
    {"attention", "", "q 2,7,12; k 2,7,6; v 2,7,6; s 4",
     "y: attention(q, k, v, s, head_dim: 3, window: 3)"},
    {"attention", "", "q 2,5,20; k 2,5,10; v 2,5,6; s 4",
     "y: attention(q, k, v, s, head_dim: 5, v_head_dim: 3, dropout: 0.25)"},
    {"attention", "", "q 2,7,12; k 2,7,6; v 2,7,6",
     "y: attention(q, k, v, head_dim: 3, soft_cap: 0.6)"},
    {"attention", "", "q 2,7,20; k 2,7,10; v 2,7,6; s 4",
     "y: attention(q, k, v, s, head_dim: 5, v_head_dim: 3, dropout: 0.25, window: 3, soft_cap: "
     "0.6)"},
    {"flash_attention", "", "q 2,2,5,3; k 2,2,5,3; v 2,2,5,3",
     "y: flash_attention(q, k, v, scale: 0.9, soft_cap: 0.5)"},
    {"flash_attention", "", "q 2,4,5,3; k 2,2,5,3; v 2,2,5,2", "y: flash_attention(q, k, v)"},
    {"flash_attention", "", "q 2,5,6; k 2,5,6; v 2,5,6",
     "y: flash_attention(q, k, v, head_dim: 3)"},
    {"flash_attention", "", "q 2,2,5,3; k 2,2,5,3; v 2,2,5,3", "y: flash_attention(q, k, v)"},
    {"flash_attention", "", "q 2,4,5,3; k 2,2,5,3; v 2,2,5,3",
     "y: flash_attention(q, k, v, causal: 0, scale: 0.7)"},
    {"router", "", "x 3,5,7; r 9,7", "y: router(x, r)"},
    {"choose_experts", "", "x 3,5,6; r 5,6; e 5,7,6", ROUTED(2, 1) EXPERTS COMBINED},
    {"choose_experts", "b 8", "x 3,5,6; r 8,6; e 8,7,6", /* DeepSeek-V3 */
     "s: router(x, r); p: sigmoid(s)\n"
     "c: choose_experts(p, b, k: 3, groups: 4, kept_groups: 2)\n"
     "v: expert_weights(p, c, normalize: 1, scale: 2.5)\n" EXPERTS COMBINED},
    {"choose_experts", "", "x 3,5,6; r 8,6; e 8,7,6",
     "s: router(x, r); p: sigmoid(s); c: choose_experts(p, k: 2, groups: 2, group_top: 1)\n"
     "v: expert_weights(p, c)\n" EXPERTS COMBINED},
    {"expert_weights", "", "x 3,5,6; r 5,6; e 5,7,6", ROUTED(2, 0) EXPERTS COMBINED},
    {"expert_weights", "", "x 3,5,6; r 5,6; e 5,7,6", /* Mixtral: softmax over the chosen */
     "s: router(x, r); c: choose_experts(s, k: 2); v: expert_weights(s, c, softmax: 1)\n" EXPERTS
         COMBINED},
    {"expert_weights", "", "x 3,5,6; r 5,6", /* all of them: k == E */
     "s: router(x, r); p: softmax(s); c: choose_experts(p, k: 5)\n"
     "v: expert_weights(p, c, scale: 0.7); y: tanh(v)"},
    {"expert_plan", "", "x 3,5,6; r 5,6; e 5,7,6", ROUTED(5, 0) EXPERTS COMBINED},
    {"expert_plan", "", "x 2,3,6; r 24,6; e 24,7,6", /* most experts have no token */
     ROUTED(1, 0) EXPERTS COMBINED},
    {"expert_plan", "b 9", "x 3,5,6; r 9,6; e 9,7,6", /* all tokens have the same experts */
     "s: router(x, r); p: softmax(s); big: scale(b, factor: 1000)\n"
     "c: choose_experts(p, big, k: 2); v: expert_weights(p, c)\n" EXPERTS COMBINED},
    {"balance_loss", "", "x 3,5,6; r 5,6; e 5,7,6",
     "s: router(x, r); p: softmax(s); c: choose_experts(p, k: 2)\n"
     "q: balance_loss(p, c, coefficient: 0.3); v: expert_weights(q, c)\n" EXPERTS COMBINED},
    {"balance_loss", "", "x 3,5,6; r 5,6; e 5,7,6", /* DeepSeek-V3's, of scores without a sum */
     "s: router(x, r); p: sigmoid(s); c: choose_experts(p, k: 2)\n"
     "q: balance_loss(p, c, coefficient: 0.3, per: sequence, normalize: 1)\n"
     "v: expert_weights(q, c)\n" EXPERTS COMBINED},
    {"balance_loss", "", "x 3,5,6; r 5,6; e 5,6,6; r2 5,6; f 5,4,6", /* of two layers together */
     "s: router(x, r); p: softmax(s); c: choose_experts(p, k: 2)\n"
     "q: balance_loss(p, c, coefficient: 0.3, per: forward); v: expert_weights(q, c)\n"
     "plan: expert_plan(c, e); a: permute_experts(x, plan); h: expert_linear(a, e, plan)\n"
     "x2: combine_experts(h, v, plan); s2: router(x2, r2); p2: softmax(s2)\n"
     "c2: choose_experts(p2, k: 1); q2: balance_loss(p2, c2, coefficient: 0.3, per: forward)\n"
     "v2: expert_weights(q2, c2); plan2: expert_plan(c2, f); a2: permute_experts(x2, plan2)\n"
     "h2: expert_linear(a2, f, plan2); y: combine_experts(h2, v2, plan2)"},
    {"balance_loss", "", "x 3,5,6; r 5,6; e 5,7,6; l 5",
     "s: router(x, r); p: softmax(s); c: choose_experts(p, k: 2)\n"
     "q: balance_loss(p, c, l, coefficient: 0.3, per: step); v: expert_weights(q, c)\n" EXPERTS
         COMBINED,
     "l"},
    {"router_z_loss", "", "x 3,5,6; r 5,6; e 5,7,6",
     "s: router(x, r); z: router_z_loss(s, coefficient: 0.2); p: softmax(z)\n"
     "c: choose_experts(p, k: 2); v: expert_weights(p, c)\n" EXPERTS COMBINED},
    {"permute_experts", "", "x 3,5,6; r 5,6; e 5,6,6",
     ROUTED(2, 0) "plan: expert_plan(c, e); a: permute_experts(x, plan); h: mul(a, a)\n"
                  "y: combine_experts(h, v, plan)",
     "e"},
    {"expert_linear", "", "x 3,5,6; r 5,6; gate 5,7,6; up 5,7,6; down 5,4,7",
     ROUTED(2, 1) "plan: expert_plan(c, gate); a: permute_experts(x, plan)\n"
                  "g: expert_linear(a, gate, plan); u: expert_linear(a, up, plan)\n"
                  "m: swiglu(g, u); h: expert_linear(m, down, plan)\n" COMBINED},
    {"expert_add", "", "x 3,5,6; r 5,6; gate 5,7,6; up 5,7,6; down 5,4,7; bg 5,7; bu 5,7; bd 5,4",
     ROUTED(2, 1) "plan: expert_plan(c, gate); a: permute_experts(x, plan)\n"
                  "g: expert_linear(a, gate, plan, bg); u: expert_linear(a, up, plan, bu)\n"
                  "m: clamped_swiglu(g, u); h: expert_linear(m, down, plan, bd)\n" COMBINED},
    {"clamped_swiglu", "", "g 3,40; u 3,40", "y: clamped_swiglu(g, u, limit: 0.6, alpha: 1.3)"},
    {"expert_linear", "", "x 3,5,6; r 5,6; e 5,6,6", /* used twice */
     ROUTED(2, 1) EXPERTS "i: expert_linear(h, e, plan)\n"
                          "y: combine_experts(i, v, plan)"},
    {"combine_experts", "", "x 30,6; r 7,6; e 7,5,6", ROUTED(3, 1) EXPERTS COMBINED},
    {"combine_experts", "", "x 2,3,5,6; r 5,6; e 5,6,6", /* rows combined twice */
     ROUTED(2, 1) EXPERTS "y1: combine_experts(h, v, plan)\n"
                          "y2: combine_experts(a, v, plan); y: mul(y1, y2)"},
    {"reshape", "", "x 2,3,10", "r: reshape(x, shape: [6,5,2]); y: softmax(r)"},
    {"transpose", "", "x 2,3,5", "t: transpose(x, dim0: 0, dim1: 2); y: softmax(t)"},
    {"transpose", "", "x 2,3,5", "t: transpose(x, dim0: -1, dim1: 1); y: softmax(t)"},
    {"slice", "", "x 2,7,5", "t: slice(x, dim: 1, begin: 2, end: 5); y: softmax(t)"},
    {"slice", "", "x 7,5",
     "a: slice(x, dim: 0, begin: 0, end: 3); b: slice(x, dim: 0, begin: 3, end: 6); y: mul(a, b)"},
    {"slice", "", "x 3,9", "t: slice(x, dim: -1, begin: 4, end: 9); y: softmax(t)"},
    {"split", "", "x 3,9", "s: split(x, sections: 3); a: mul(s.0, s.1); y: mul(a, s.2)"},
    {"split", "", "x 3,4,5", "s: split(x, sections: 2, dim: 1); y: swiglu(s.0, s.1)"},
    {"concat", "", "a 3,5; b 3,4", "c: concat(a, b); y: softmax(c)"},
    {"concat", "", "a 2,3,5; b 2,1,5; z 2,4,5", "c: concat(a, b, z, dim: 1); y: softmax(c)"},
    {"concat", "", "a 3,5; b 2,5", "c: concat(b, a, b, dim: 0); y: softmax(c)"},
    {"concat", "", "a 2,3,2,3; b 2,3,2,5", "c: concat(a, b, dim: -1); y: softmax(c)"},
    {"expand_heads", "", "x 2,3,5", "e: expand_heads(x, heads: 3); y: softmax(e)"},
    {"cross_entropy", "targets 3,5 tokens", "x 3,5,11", "loss: cross_entropy(x, targets)"},
    {"cross_entropy", "targets 7 tokens", "x 7,16", "loss: cross_entropy(x, targets, valid: 11)"},
    {"mse", "", "x 5,7; z 5,7", "loss: mse(x, z)"},
    {"all_reduce", "", "x 3,5", "y: all_reduce(x, axis: tp)"},
    {"allreduce", "", "x 3,5", "y: allreduce(x, axis: dp)"},
    {"all_gather", "", "x 3,5", "y: all_gather(x, axis: tp, dim: 1)"},
    {"gather", "", "x 3,5", "y: gather(x, axis: tp)"},
    {"reduce_scatter", "", "x 3,5", "y: reduce_scatter(x, axis: dp, dim: 0)"},
    {"all_to_all", "", "x 3,5", "y: all_to_all(x, axis: tp, from: 0, dim: 1)"},
    {"broadcast", "", "x 3,5", "y: broadcast(x, axis: tp)"},
    {"send", "", "x 3,5", "a: send(x, axis: pp, to: 1); y: softmax(a)"},
    {"receive", "", "x 3,5", "a: tanh(x); b: receive(a, axis: pp, from: 0); y: softmax(a)"},
    {"backward", "", "x 5,7; z 5,7", "loss: mse(x, z); b: backward(loss)"},
    {"autodiff", "", "x 5,7; z 5,7", "loss: mse(x, z); b: autodiff(loss)"},
    {"scatter", "", "x 3,5", "y: scatter(x, axis: tp, dim: 1)"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* y times fixed numbers, so that every element counts differently, then squares. */
static void add_loss(tsr_graph *g) {
  int y = harness_find(g, "y");
  const tsr_value v = g->values[y];
  tsr_graph_input(g, "weights", TSR_F32, v.ndim, v.shape, TSR_NOWHERE);
  tsr_graph_input(g, "goal", TSR_F32, v.ndim, v.shape, TSR_NOWHERE);
  harness_calls(g, "z: mul(y, weights); loss: mse(z, goal)");
  tsr_graph_output(g, "y", y);
}

/* A case's program and the same in double. */
typedef struct {
  const op_case *c;
  harness h;
  tsr_interpreter *t;
  tsr_interpreter_step step;
} comparison;

static double loss_of(const comparison *a) {
  tsr_interpreter_forward(a->t, &a->step);
  return tsr_interpreter_loss(a->t) + tsr_interpreter_added_loss(a->t);
}

static double slope(const comparison *a, double *x, double h) {
  double keep = *x;
  *x = keep + h;
  double up = loss_of(a);
  *x = keep - h;
  double down = loss_of(a);
  *x = keep;
  return (up - down) / (2 * h);
}

/* A factor of DoRA's norm, which is a constant for the gradient, and not for differences. */
static bool is_of_norm(const op_case *c, const char *name) {
  return c->dora && (strstr(name, ".lora_a") || strstr(name, ".lora_b"));
}

/* One parameter at one element. The central differences must have converged; then the float
 * gradient must be near them, the double one very near. */
static void check_element(
    const comparison *a, const char *name, double *x, double scale, int64_t i, double got,
    double exact) {
  const char *calls = a->c->calls;
  double want = slope(a, x, 1e-5), coarse = slope(a, x, 4e-5);
  if (is_of_norm(a->c, name)) want = coarse = exact;
  CHECK_AT(fabs(want - coarse) < 1e-5 * scale, "%s: no limit for '%s' at %d", calls, name, (int)i);
  CHECK_AT(
      fabs(got - want) < 2e-4 * scale, "%s: the gradient of '%s' at %d is %.9g, not %.9g", calls,
      name, (int)i, got, want);
  CHECK_AT(
      fabs(exact - want) < 1e-7 * scale,
      "%s: the interpreter's gradient of '%s' at %d is %.12g, not %.12g", calls, name, (int)i,
      exact, want);
  CHECK_AT(
      fabs(got - exact) < 5e-6 * scale,
      "%s: the gradient of '%s' at %d is %.9g, the interpreter's %.9g", calls, name, (int)i, got,
      exact);
}

/* The scale of what may differ is the interpreter's largest number, which its own check holds to
 * the differences. */
static void check_gradient(const comparison *a, int param) {
  tsr_arena *arena = a->h.graph->arena;
  const char *name = a->h.graph->params[param].name;
  int64_t n, count = 0;
  harness_read_param(arena, &a->h, param, &n);
  float *got = harness_read(arena, &a->h, tsr_arena_printf(arena, "d.%s", name), &count);
  const double *exact = tsr_interpreter_gradient(a->t, param);
  CHECK_AT(got && count == n, "%s: '%s' has no gradient", a->c->calls, name);
  if (!got || count != n) return;
  double scale = oracle_largest(exact, n);
  CHECK_AT(scale > 1e-5, "%s: the gradient of '%s' is all but zero", a->c->calls, name);
  for (int64_t i = 0; i < n; i++)
    check_element(
        a, name, &tsr_interpreter_param(a->t, param)[i], scale, i, (double)got[i], exact[i]);
}

static void check_output(const comparison *a, const char *name) {
  int64_t n;
  float *got = harness_read(a->h.graph->arena, &a->h, name, &n);
  if (!got) return; /* a case that ends in its own loss */
  const double *want = tsr_interpreter_value(a->t, harness_find(a->h.graph, name));
  double scale = oracle_largest(want, n);
  for (int64_t i = 0; i < n; i++)
    CHECK_AT(
        fabs((double)got[i] - want[i]) <= 5e-6 * (scale > 1 ? scale : 1),
        "%s: '%s' at %d is %.9g, not %.9g", a->c->calls, name, (int)i, (double)got[i], want[i]);
}

/* Adapters that are not at their beginning, at which those of A have no gradient. */
static tsr_graph *adapt(tsr_graph *g, const op_case *c) {
  tsr_param_training *training = tsr_arena_array(g->arena, tsr_param_training, g->params_count);
  tsr_adapters adapters = {training, .dropout = 0.3, .has_magnitudes = c->dora};
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, c->unused))
      training[p] = (tsr_param_training){.is_frozen = true, .rank = 3, .scale = 0.7};
  g = tsr_pass_adapters(g, &adapters);
  for (int p = 0; p < g->params_count; p++)
    if (g->params[p].is_adapter)
      g->params[p].init = (tsr_init){.kind = TSR_INIT_UNIFORM, .a = 0.2, .b = 0.9};
  return g;
}

static tsr_graph *build(tsr_arena *arena, const op_case *c) {
  tsr_graph *g = tsr_graph_new(arena, c->op, (tsr_units){.batch = 1, .tp = 1});
  harness_inputs(g, c->inputs);
  harness_params(g, c->params);
  harness_calls(g, c->calls);
  if (!strstr(c->calls, "loss:")) add_loss(g);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return c->adapts ? adapt(g, c) : g;
}

/* Over how many ranks and units does not matter: whatever the case allows. */
static void run_case(const op_case *c) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = build(arena, c);
  comparison a = {.c = c, .t = tsr_interpreter_new(arena, g)};
  harness_options o = {
      .dp = 1, .tp = 1, .threads = 2, .microbatches = 1, .batch_units = 1, .tp_units = 1};
  o.vocabulary = 11;
  o.ignore_some = true;
  a.h = harness_open(arena, g, &o);
  harness_step(&a.h, 0);
  oracle_moment moment = {.h = &a.h};
  a.step = oracle_step_of(&moment);
  oracle_run(a.t, &a.h, 0);
  check_output(&a, "y");
  check_output(&a, "loss");
  for (int p = 0; p < g->params_count; p++)
    if (!c->unused || strcmp(c->unused, g->params[p].name)) check_gradient(&a, p);
    else CHECK_AT(g->grads[p] < 0, "%s: '%s' has a gradient", c->calls, c->unused);
  harness_close(&a.h);
  tsr_arena_free(arena);
}

static void check_all_named(void) {
  int count;
  const char *const *names = tsr_graph_call_names(&count);
  for (int i = 0; i < count; i++) {
    bool found = false;
    for (int k = 0; k < CASES; k++) found |= !strcmp(cases[k].op, names[i]);
    CHECK_AT(found, "no case for the op '%s'", names[i]);
  }
}

int main(void) {
  check_all_named();
  for (int i = 0; i < CASES; i++) run_case(&cases[i]);
  return check_done("gradients");
}
