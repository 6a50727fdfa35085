// SPDX-License-Identifier: Apache-2.0
#include "compare/error_paths.h"
#include "passes/passes.h"
#include <math.h>

/* F32 operations that an element of a result takes, beside the sums. */
enum { OPERATIONS = 4 };

typedef struct {
  const tsr_graph *g;
  const tsr_step_sizes *of;
  tsr_error_path *paths;
  double *squares; /* per value: the mean square of its elements, measured or estimated */
} walk;

/* A node's output, and its path as it grows. */
typedef struct {
  const walk *w;
  const tsr_node *n;
  int output;
  tsr_error_path path;
  double square;
} step;

static const tsr_value *input(const step *s, int i) { return &s->w->g->values[s->n->inputs[i]]; }
static double square_of(const step *s, int i) { return s->w->squares[s->n->inputs[i]]; }
/* Of the weights of a norm, which may be stored minus 1. */
static double weights_square(const step *s, int i, bool zero_centered) {
  const tsr_value_size *size = &s->w->of->sizes[s->n->inputs[i]];
  return square_of(s, i) + (zero_centered ? 1 + 2 * size->mean : 0);
}
static double elements(const tsr_value *v) { return (double)tsr_value_elements(v); }
static double last(const tsr_value *v) { return (double)v->shape[v->ndim - 1]; }
static double rows(const tsr_value *v) { return elements(v) / last(v); }
static const tsr_value *output(const step *s) { return &s->w->g->values[s->n->outputs[s->output]]; }

/* The error of input i, times the square of what the node makes of it. Of a choice only that it may
 * be another one is an error. */
static void carry(step *s, int i, double gain) {
  const tsr_error_path *p = &s->w->paths[s->n->inputs[i]];
  s->path.choices += p->choices * gain;
  if (input(s, i)->dtype == TSR_I32) return;
  s->path.roundings += p->roundings * gain;
  s->path.stored += p->stored * gain;
  s->path.sums += p->sums * gain;
}

/* As large in the result as the input is in itself. */
static void carry_share(step *s, int i, double share) {
  double square = square_of(s, i);
  carry(s, i, square > 0 ? share * s->square / square : 1);
}

/* How much larger the result is than a sum of independent summands would be. */
static double alike(const step *s, double independent) {
  return independent > 0 ? fmax(1, s->square / independent) : 1;
}

/* An element is the sum of products: of each two inputs one of `count` pairs of their elements. */
static void add_products(step *s, int inputs, double count) {
  double independent = 0;
  for (int i = 0; i + 1 < inputs; i += 2)
    independent += count * square_of(s, i) * square_of(s, i + 1);
  double factor = count * alike(s, independent);
  for (int i = 0; i + 1 < inputs; i += 2) {
    carry(s, i, square_of(s, i + 1) * factor);
    carry(s, i + 1, square_of(s, i) * factor);
  }
  s->path.sums += count * fmax(independent, s->square);
}

/* An element is the sum of `count` elements of input i. */
static void add_sum(step *s, int i, double count) {
  double independent = count * square_of(s, i);
  carry(s, i, count * alike(s, independent));
  s->path.sums += count * fmax(independent, s->square);
}

static void add_addition(step *s) {
  double independent = 0;
  for (int i = 0; i < 2; i++) independent += square_of(s, i);
  for (int i = 0; i < 2; i++) carry(s, i, alike(s, independent));
}

/* Errors of logits, relative to the result: softmax is an exponential function. */
static void add_softmax(step *s) { carry(s, 0, s->square); }
static void add_loss_stats(step *s) { carry(s, 0, fmax(1, s->square)); }

/* The mean of logarithms of such results, whose errors are partly independent; and the numbers of
 * each row. */
static void add_loss(step *s) {
  if (s->output) add_loss_stats(s);
  else carry(s, 0, 1 / sqrt(rows(input(s, 0))));
}

/* probabilities - 1 at the target: the 1 is exact. Of V logits with a variance v the squares of the
 * probabilities add up to about exp(v) / V. */
static void add_loss_dx(step *s) {
  const tsr_value_size *logits = &s->w->of->sizes[s->n->inputs[0]];
  double variance = fmax(0, logits->square - logits->mean * logits->mean);
  carry(s, 0, s->square * fmin(1, exp(variance) / last(input(s, 0))));
}

/* What cancels inside the node: its result would have this mean square without. */
static void add_cancelling(step *s, double whole) {
  for (int i = 0; i < s->n->inputs_count; i++)
    if (i != tsr_op_shape_input(s->n->op, s->n->inputs_count))
      carry_share(s, i, s->square > 0 ? fmax(1, whole / s->square) : 1);
}

static void add_shares(step *s) { add_cancelling(s, 0); }

/* A slope has a step, which an input near it may be on either side of. */
static void add_kink(step *s, int x) {
  const tsr_error_path *p = &s->w->paths[s->n->inputs[x]];
  double error = sqrt(p->stored + p->sums * 0x1p-48), size = sqrt(square_of(s, x));
  add_shares(s);
  if (size > 0) s->path.stored += s->square * fmin(1, error / size);
}

static void add_unary_dx(step *s) {
  s->n->attr.unary_dx.op == TSR_OP_RELU ? add_kink(s, 1) : add_shares(s);
}

/* The square of what an error of a query or key is in the scores, by which the weights of the
 * values change: scale^2 D times the other one's mean square. */
static double score_gain(const step *s, int other) {
  const tsr_attention_attrs *a = &s->n->attr.attention;
  double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim);
  return scale * scale * (double)a->head_dim * square_of(s, other);
}

static void add_attention(step *s) {
  carry(s, 0, s->square * score_gain(s, 1));
  carry(s, 1, s->square * score_gain(s, 0));
  for (int i = 2; i < s->n->inputs_count; i++) carry_share(s, i, 1);
  s->path.sums += (double)input(s, 1)->shape[1] * s->square;
}

/* dq, dk and dv from dout, q, k and v. dq and dk are sums of p (dp - sum of p dp), which cancels
 * where values are alike; without, and with equal weights p, whose squares add up to about
 * (1 + ln T) / T, they would be so large. */
static void add_attention_dx(step *s) {
  double positions = (double)input(s, 2)->shape[1], whole = 0;
  double products = (double)s->n->attr.attention.head_dim * square_of(s, 0) * square_of(s, 3);
  if (s->output < 2)
    whole = products * score_gain(s, 2 - s->output) / (double)s->n->attr.attention.head_dim *
            (1 + log(positions)) / positions;
  add_cancelling(s, whole);
  carry(s, 1, s->square * score_gain(s, 2));
  carry(s, 2, s->square * score_gain(s, 1));
  s->path.sums += positions * s->square;
}

/* y = (x - mean) rstd w: where the mean is large, or rows differ in size, x - mean has the error of
 * x. The mean and rstd of C elements have less. */
static void add_norm(step *s) {
  int rstd = s->n->outputs[s->n->outputs_count - 1];
  if (s->output) {
    carry_share(s, 0, 1 / last(input(s, 0)));
    return;
  }
  bool centered = s->n->op == TSR_OP_RMSNORM && s->n->attr.rmsnorm.zero_centered;
  carry(s, 0, s->w->squares[rstd] * weights_square(s, 1, centered));
  for (int i = 1; i < s->n->inputs_count; i++) carry_share(s, i, 1);
}

/* rstd (w dy - …), which is smaller than w dy where this is along x. x counts by means of C
 * elements. */
static void add_norm_dx(step *s) {
  bool centered = s->n->op == TSR_OP_RMSNORM_DX && s->n->attr.rmsnorm_dx.zero_centered;
  double weights = weights_square(s, 2, centered);
  double whole = square_of(s, s->n->inputs_count - 1) * weights * square_of(s, 0);
  double factor = s->square > 0 ? fmax(1, whole / s->square) : 1;
  carry_share(s, 0, factor);
  carry_share(s, 1, factor * fmin(1, 4 / last(input(s, 1))));
  carry_share(s, 2, factor);
}

/* weights (dy - sum of weights dy), of k of the E scores. */
static void add_expert_weights_dx(step *s) {
  double scale = s->n->attr.expert_weights.scale;
  add_cancelling(s, scale * scale * square_of(s, 0) / last(output(s)));
}

/* factor (counts - their mean by scores), of scores that add up to one. */
static void add_balance_dx(step *s) {
  double factor = s->n->attr.balance_loss_dx.factor;
  double scores = s->w->of->sizes[s->n->inputs[1]].mean * last(output(s));
  add_cancelling(s, factor * factor * square_of(s, 0) / fmax(1, scores * scores));
}

/* Rows of the experts, and the product of each token's gradient with its rows. */
static void add_combine_dx(step *s) {
  if (s->output) add_products(s, 2, last(input(s, 0)));
  else add_shares(s);
}

static void add_norm_dw(step *s) {
  double count = rows(input(s, 0)), independent = count * square_of(s, 0);
  carry(s, 0, count * alike(s, independent));
  if (square_of(s, 1) > 0) carry(s, 1, independent * alike(s, independent) / square_of(s, 1));
  s->path.sums += count * fmax(independent, s->square);
}

static double matmul_summands(const step *s) {
  const tsr_value *y = output(s);
  double batch = rows(y) / (double)y->shape[y->ndim - 2];
  return sqrt(elements(input(s, 0)) * elements(input(s, 1)) / elements(y) / batch);
}

/* Of each expert. */
static double expert_rows(const step *s) {
  const tsr_routed *r = &input(s, 0)->routed;
  return fmax(1, (double)(r->tokens * r->choices) / (double)r->experts);
}

/* Where a token's k-th and next score are closer than their errors, it may choose another expert.
 * The scores of E experts have a density of about E / 2 for each standard deviation there. */
static void add_choice(step *s) {
  const tsr_value_size *scores = &s->w->of->sizes[s->n->inputs[0]];
  double spread = scores->square - scores->mean * scores->mean, half = last(input(s, 0)) / 2;
  if (spread > 0) carry(s, 0, 2 * half * half / spread);
  s->path.choices = 1;
}

/* What a GEMM in FP8 rounds: both operands of each pair, the first of which is a gradient in the
 * backward pass. A scale has a unit roundoff of its block's largest number's format. */
static void add_quantised(step *s, int inputs, double count) {
  tsr_fp8_recipe recipe = s->n->attr.linear.fp8;
  bool forward = s->n->op == TSR_OP_LINEAR || s->n->op == TSR_OP_EXPERT_LINEAR;
  bool e5m2 = recipe & TSR_FP8_E5M2_GRADIENTS && !forward;
  double a = tsr_unit_roundoff(e5m2 ? "F8_E5M2" : "F8_E4M3"), b = tsr_unit_roundoff("F8_E4M3");
  double independent = 0;
  for (int i = 0; i + 1 < inputs && recipe; i += 2)
    independent += count * square_of(s, i) * square_of(s, i + 1);
  s->path.stored += independent * alike(s, independent) * (a * a + b * b);
}

static void add_linear(step *s) {
  add_products(s, s->n->inputs_count, last(input(s, 0)));
  add_quantised(s, s->n->inputs_count, last(input(s, 0)));
}
static void add_linear_dw(step *s) {
  add_products(s, 2, rows(input(s, 0)));
  add_quantised(s, 2, rows(input(s, 0)));
}
static void add_matmul(step *s) { add_products(s, 2, matmul_summands(s)); }
static void add_accumulate(step *s) { add_sum(s, 0, (double)s->w->g->microbatches); }
static void add_clamped_dx(step *s) { add_kink(s, 1 + s->output); }
static void add_softmax_dx(step *s) { add_cancelling(s, square_of(s, 0) * square_of(s, 1)); }

/* rows, weights and a plan */
static void add_expert_linear(step *s) {
  add_products(s, 2, last(input(s, 0)));
  add_quantised(s, 2, last(input(s, 0)));
}

static void add_expert_dw(step *s) {
  if (s->n->inputs_count == 4) {
    add_products(s, 2, expert_rows(s));
    add_quantised(s, 2, expert_rows(s));
  } else add_sum(s, 0, expert_rows(s));
}

static void add_embedding_dw(step *s) {
  add_sum(s, 1, fmax(1, elements(input(s, 1)) / elements(output(s))));
}

static void add_sum_to(step *s) { add_sum(s, 0, elements(input(s, 0)) / elements(output(s))); }

/* Of what is not here the output has the relative errors of the inputs. */
static void (*const rules[TSR_OPS])(step *) = {
    [TSR_OP_LINEAR] = add_linear,
    [TSR_OP_LINEAR_DX] = add_linear,
    [TSR_OP_LINEAR_DW] = add_linear_dw,
    [TSR_OP_MATMUL] = add_matmul,
    [TSR_OP_ROUTER] = add_linear,
    [TSR_OP_ROUTER_DX] = add_linear,
    [TSR_OP_EXPERT_LINEAR] = add_expert_linear,
    [TSR_OP_EXPERT_LINEAR_DX] = add_expert_linear,
    [TSR_OP_EXPERT_LINEAR_DW] = add_expert_dw,
    [TSR_OP_EXPERT_WEIGHTS_DX] = add_expert_weights_dx,
    [TSR_OP_COMBINE_EXPERTS_DX] = add_combine_dx,
    [TSR_OP_CHOOSE_EXPERTS] = add_choice,
    [TSR_OP_BALANCE_LOSS_DX] = add_balance_dx,
    [TSR_OP_EMBEDDING_DW] = add_embedding_dw,
    [TSR_OP_SUM_TO] = add_sum_to,
    [TSR_OP_SUM_HEADS] = add_sum_to,
    [TSR_OP_ACCUMULATE] = add_accumulate,
    [TSR_OP_ADD] = add_addition,
    [TSR_OP_SUB] = add_addition,
    [TSR_OP_EXPERT_ADD] = add_addition,
    [TSR_OP_SOFTMAX] = add_softmax,
    [TSR_OP_SOFTMAX_DX] = add_softmax_dx,
    [TSR_OP_CE_STATS] = add_loss_stats,
    [TSR_OP_CE_LOSS] = add_loss,
    [TSR_OP_CE_LOSS_DX] = add_loss_dx,
    [TSR_OP_UNARY_DX] = add_unary_dx,
    [TSR_OP_CLAMPED_SWIGLU_DX] = add_clamped_dx,
    [TSR_OP_ATTENTION] = add_attention,
    [TSR_OP_ATTENTION_DX] = add_attention_dx,
    [TSR_OP_DOCUMENT_ATTENTION] = add_attention,
    [TSR_OP_DOCUMENT_ATTENTION_DX] = add_attention_dx,
    [TSR_OP_LAYERNORM] = add_norm,
    [TSR_OP_LAYERNORM_DX] = add_norm_dx,
    [TSR_OP_RMSNORM] = add_norm,
    [TSR_OP_RMSNORM_DX] = add_norm_dx,
    [TSR_OP_NORM_DW] = add_norm_dw};

/* Whether a node only moves numbers, or completes sums whose summands its input has. */
static bool moves(const tsr_node *n) {
  unsigned facts = tsr_op_facts(n->op);
  return tsr_op_moves(n->op) || n->op == TSR_OP_SUM_UNITS ||
         (facts & TSR_FACT_KEEPS_DTYPE && n->op != TSR_OP_SCALE);
}

/* What an unmeasured result is like: rows of experts, and what one microbatch has. */
static double estimate(const step *s) {
  const tsr_node *n = s->n;
  double square = n->inputs_count ? square_of(s, 0) : 0;
  switch ((int)n->op) {
  case TSR_OP_EXPERT_LINEAR:
  case TSR_OP_EXPERT_LINEAR_DX:
    return square * square_of(s, 1) * last(input(s, 0));
  case TSR_OP_EXPERT_LINEAR_DW:
    return square * square_of(s, 1) * expert_rows(s);
  case TSR_OP_LINEAR_DW:
    return square * square_of(s, 1) * rows(input(s, 0));
  case TSR_OP_SUM_TO:
  case TSR_OP_NORM_DW:
    return square * elements(input(s, 0)) / elements(output(s));
  case TSR_OP_EMBEDDING_DW:
    return square_of(s, 1);
  case TSR_OP_MUL:
  case TSR_OP_SWIGLU:
  case TSR_OP_GEGLU:
    return square * square_of(s, 1);
  default:
    return square;
  }
}

static double roundoff_of(tsr_dtype type) {
  return tsr_unit_roundoff(type == TSR_BF16 ? "BF16" : type == TSR_F16 ? "F16" : "F32");
}

/* Of a value of that mean square; numbers of fp16 are at least 2^-24 apart. */
static void round_value(const walk *w, int value, double square, tsr_error_path *path) {
  tsr_dtype type = w->g->values[value].dtype;
  double roundoff = roundoff_of(type), least = type == TSR_F16 ? 0x1p-25 : 0;
  if (w->of->scaled[value]) least /= w->of->loss_scale;
  path->roundings += square;
  path->stored += square * roundoff * roundoff + least * least;
}

static void add_rounding(step *s) {
  if (moves(s->n) || output(s)->dtype == TSR_I32) return;
  round_value(s->w, s->n->outputs[s->output], s->square, &s->path);
  s->path.sums += OPERATIONS * s->square;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* An accumulator that the node adds its part to. */
static void take_accumulator(step *s) {
  const tsr_error_path *p = &s->w->paths[s->n->inputs[s->n->inputs_count - 1]];
  s->path.roundings = larger(s->path.roundings, p->roundings);
  s->path.stored = larger(s->path.stored, p->stored);
  s->path.sums = larger(s->path.sums, p->sums);
  s->path.choices = larger(s->path.choices, p->choices);
}

static tsr_error_path times(tsr_error_path p, double factor) {
  return (tsr_error_path){
      p.roundings * factor, p.stored * factor, p.sums * factor, p.choices * factor};
}

/* What the optimizer keeps of a gradient has its errors, a mean of its squares 2 g times those, and
 * what rounding has lost of a weight may be a unit roundoff of it. */
static void add_states(walk *w, const tsr_node *n) {
  const tsr_graph *g = w->g;
  const tsr_error_path *gradient = &w->paths[n->inputs[1]];
  double lost = roundoff_of(TSR_BF16) * roundoff_of(TSR_BF16) * w->squares[n->inputs[0]];
  int first = 2 + (n->op == TSR_OP_ADAMW); /* of the squares */
  for (int i = 2; i < n->inputs_count; i++) {
    if (g->values[n->inputs[i]].kind != TSR_VALUE_STATE) continue;
    bool of_squares = n->op == TSR_OP_ADAMW && i >= first;
    w->paths[n->inputs[i]] = g->values[n->inputs[i]].dtype == TSR_BF16
                                 ? (tsr_error_path){.stored = 4 * lost}
                             : of_squares ? times(*gradient, 4 * w->squares[n->inputs[1]])
                                          : *gradient;
  }
}

static void take_output(walk *w, const tsr_node *n, int output) {
  step s = {.w = w, .n = n, .output = output, .square = w->squares[n->outputs[output]]};
  if (tsr_op_facts(n->op) & TSR_FACT_ADDS && n->attr.ring.step > 0) take_accumulator(&s);
  else (rules[n->op] ? rules[n->op] : add_shares)(&s);
  add_rounding(&s);
  s.path.choices = fmin(s.path.choices, n->op == TSR_OP_CHOOSE_EXPERTS ? 1 : s.square);
  w->paths[n->outputs[output]] = s.path;
}

static void take_node(walk *w, const tsr_node *n) {
  if (n->op == TSR_OP_ADAMW || n->op == TSR_OP_SGD) add_states(w, n);
  for (int o = 0; o < n->outputs_count; o++) {
    int value = n->outputs[o];
    step s = {.w = w, .n = n, .output = o};
    bool measured = w->of->sizes[value].square >= 0,
         is_choice = w->g->values[value].dtype == TSR_I32;
    w->squares[value] = is_choice ? 1 : measured ? w->of->sizes[value].square : estimate(&s);
  }
  for (int o = 0; o < n->outputs_count; o++) take_output(w, n, o);
}

/* Parameters are exact, but for earlier steps and where they are stored in half precision. */
static void take_param(walk *w, int value) {
  const tsr_value *v = &w->g->values[value];
  if (w->of->errors) w->paths[value].stored = w->of->errors[v->param];
  if (tsr_dtype_is_half(v->dtype)) round_value(w, value, w->squares[value], &w->paths[value]);
}

/* DoRA's magnitudes begin as the norms of weights that may be stored in half precision. */
static void take_magnitudes(walk *w) {
  const tsr_graph *g = w->g;
  tsr_adapter adapter;
  double roundoff;
  for (int v = 0; v < g->values_count; v++) {
    bool half = g->values[v].kind == TSR_VALUE_PARAM && tsr_dtype_is_half(g->values[v].dtype);
    if (!half || !tsr_adapter_find(g, g->values[v].param, &adapter) || adapter.m < 0) continue;
    roundoff = roundoff_of(g->values[v].dtype);
    for (int m = 0; m < g->values_count; m++)
      if (g->values[m].kind == TSR_VALUE_PARAM && g->values[m].param == adapter.m)
        w->paths[m].stored += w->squares[m] * roundoff * roundoff;
  }
}

tsr_error_path *tsr_error_paths(tsr_arena *arena, const tsr_graph *g, const tsr_step_sizes *sizes) {
  walk w = {.g = g, .of = sizes};
  w.paths = tsr_arena_array(arena, tsr_error_path, g->values_count + 1);
  w.squares = tsr_arena_array(arena, double, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    w.squares[v] = fmax(0, sizes->sizes[v].square);
    if (g->values[v].kind == TSR_VALUE_PARAM) take_param(&w, v);
  }
  take_magnitudes(&w);
  for (int i = 0; i < g->nodes_count; i++) take_node(&w, &g->nodes[i]);
  return w.paths;
}
