// SPDX-License-Identifier: Apache-2.0
/* Rotary positions and attention over heads. */
#include "interpreter/rule.h"
#include <assert.h>
#include <math.h>

/* YaRN (Peng et al. 2023): what turns `fast` times or more in the original context keeps its speed,
 * what turns `slow` times or fewer is slowed; a ramp over the pairs lies between. */
static double yarn_frequency(const tsr_init *init, int64_t i, double turn) {
  const double pi = 3.14159265358979323846, *s = init->scaling, D = init->a;
  double at[2];
  for (int k = 0; k < 2; k++) at[k] = D * log(s[3] / (s[5 + k] * 2 * pi)) / (2 * log(init->b));
  if (s[7] != 0) at[0] = floor(at[0]), at[1] = ceil(at[1]);
  if (at[0] < 0) at[0] = 0;
  if (at[1] > D - 1) at[1] = D - 1;
  if (at[0] == at[1]) at[1] += 0.001;
  double ramp = ((double)i - at[0]) / (at[1] - at[0]);
  ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
  return turn * (1 - ramp) + turn / s[4] * ramp;
}

/* Angles position * theta^(-2i/D); Llama 3 divides slow ones by `factor`, with a smooth passage
 * between wavelengths context/high and context/low; linear scaling divides all of them
 * alike, LongRoPE each by a factor of its own. */
static double frequency(const tsr_init *init, int64_t i) {
  const double pi = 3.14159265358979323846, *s = init->scaling;
  double turn = pow(init->b, -2.0 * (double)i / init->a), wave = 2 * pi / turn;
  if (s[9] != 0) return turn / s[9];
  if (init->factors) return turn / init->factors[i];
  if (s[4] != 0) return yarn_frequency(init, i, turn);
  if (s[0] == 0 || wave <= s[3] / s[2]) return turn;
  if (wave > s[3] / s[1]) return turn / s[0];
  double smooth = (s[3] / wave - s[1]) / (s[2] - s[1]);
  return (1 - smooth) * turn / s[0] + smooth * turn;
}

void tsr_interpreter_rope_table(double *out, const tsr_value *table) {
  assert(table->init->kind == TSR_INIT_ROPE);
  for (int64_t t = 0; t < table->shape[0]; t++)
    for (int64_t i = 0; i < table->shape[1]; i++) {
      double angle = (double)t * frequency(table->init, i);
      out[(t * table->shape[1] + i) * 2] = cos(angle) * table->init->scaling[8];
      out[(t * table->shape[1] + i) * 2 + 1] = sin(angle) * table->init->scaling[8];
    }
}

/* Pairs of a head's rotary part, (i, i + half) or (2i, 2i + 1), are turned by the position's angle,
 * and the rest of the head is kept: y += R x, or R^T x. */
static void add_turned(const tsr_interpreted *n, double sign, double *y, const double *x) {
  const tsr_rope_attrs *rope = &n->node->attr.rope;
  int64_t D = rope->head_dim, C = tsr_interpreted_columns(n, 0), size = tsr_rope_rotary(rope);
  int64_t T = n->type[0]->shape[1], half = size / 2, apart = rope->interleaved ? 1 : half;
  for (int64_t at = 0; at < tsr_interpreted_size(n, 0); at += D) {
    for (int64_t d = 0; d < D; d++)
      if (d < rope->offset || d >= rope->offset + size) y[at + d] += x[at + d];
    for (int64_t i = 0; i < half; i++) {
      int64_t position = n->in[2] ? (int64_t)n->in[2][at / C] : at / C % T;
      const double *turn = n->in[1] + (position * half + i) * 2;
      double cosine = turn[0], sine = sign * turn[1];
      int64_t a = at + rope->offset + (rope->interleaved ? 2 * i : i), b = a + apart;
      y[a] += x[a] * cosine - x[b] * sine;
      y[b] += x[b] * cosine + x[a] * sine;
    }
  }
}

static void forward_rope(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) n->out[i] = 0;
  add_turned(n, (double)n->node->attr.rope.sign, n->out, n->in[0]);
}
static void vjp_rope(const tsr_interpreted *n) {
  add_turned(n, -(double)n->node->attr.rope.sign, n->d_in[0], n->d_out);
}
const tsr_interpreter_rule tsr_interpret_rope = {.forward = forward_rope, .vjp = vjp_rope};
/* x, table, the position of each token */
const tsr_interpreter_rule tsr_interpret_rope_at = {.forward = forward_rope, .vjp = vjp_rope};

/* ---- attention: out_i = sum over j of m_ij p_ij v_j, p_i = softmax over j of the scores, which
 * are s_ij = scale q_i . k_j, or with a soft cap c those capped, c tanh(s_ij / c);
 * with sinks the softmax is of one logit more, that of the head, to which no value belongs ---- */

/* T positions, heads of D features and of Dv in values and out: H of queries, G of keys and values,
 * each for H / G of queries. */
typedef struct {
  int64_t B, T, D, Dv, H, G;
  double scale;
  bool causal;
  int sinks;               /* the input that they are, or -1 */
  const double *positions; /* (B, T): of each token in its document; NULL: there is one document */
  int64_t window;          /* 0: all */
  double soft_cap;         /* 0: none */
} attention_sizes;

static attention_sizes sizes_of(const tsr_interpreted *n) {
  const tsr_attention_attrs *attr = &n->node->attr.attention;
  attention_sizes s = {.B = n->type[0]->shape[0], .T = n->type[0]->shape[1]};
  s.D = attr->head_dim;
  s.Dv = tsr_node_value_head(n->node);
  s.H = tsr_interpreted_columns(n, 0) / s.D;
  s.G = tsr_interpreted_columns(n, 1) / s.D;
  s.causal = attr->causal;
  s.sinks = tsr_node_sinks(n->node);
  if (n->node->op == TSR_OP_DOCUMENT_ATTENTION) s.positions = n->in[3];
  s.window = attr->window;
  s.soft_cap = attr->soft_cap;
  s.scale = attr->scale != 0 ? attr->scale : 1 / sqrt((double)s.D);
  return s;
}

/* Where things are for query i of head h of sample b. */
typedef struct {
  int64_t q, out;           /* its features */
  int64_t p;                /* its T probabilities, in saved and mask */
  int64_t k, v;             /* the features of key 0 */
  int64_t stride, v_stride; /* from one key to the next */
  int64_t first, keys;      /* it sees the keys [first, keys) */
  int64_t h;
} query;

/* The tokens [begin, end) of the document of token i. */
static void
find_document(const attention_sizes *s, int64_t b, int64_t i, int64_t *begin, int64_t *end) {
  const double *positions = s->positions + b * s->T;
  *begin = 0, *end = s->T;
  if (!s->positions) return;
  for (*begin = i; *begin > 0 && positions[*begin] != 0;) --*begin;
  for (*end = i + 1; *end < s->T && positions[*end] != 0;) ++*end;
}

static query query_at(const attention_sizes *s, int64_t b, int64_t h, int64_t i) {
  int64_t begin, end;
  find_document(s, b, i, &begin, &end);
  return (query){
      .q = ((b * s->T + i) * s->H + h) * s->D,
      .out = ((b * s->T + i) * s->H + h) * s->Dv,
      .p = ((b * s->H + h) * s->T + i) * s->T,
      .k = (b * s->T * s->G + h / (s->H / s->G)) * s->D,
      .v = (b * s->T * s->G + h / (s->H / s->G)) * s->Dv,
      .stride = s->G * s->D,
      .v_stride = s->G * s->Dv,
      .first = s->window && i - begin >= s->window ? i - s->window + 1 : begin,
      .keys = s->causal ? i + 1 : end,
      .h = h};
}

typedef void for_query(const tsr_interpreted *n, const attention_sizes *s, const query *at);

static void each_query(const tsr_interpreted *n, for_query *work) {
  attention_sizes s = sizes_of(n);
  for (int64_t b = 0; b < s.B; b++)
    for (int64_t h = 0; h < s.H; h++)
      for (int64_t i = 0; i < s.T; i++) {
        query at = query_at(&s, b, h, i);
        work(n, &s, &at);
      }
}

static double multiplier(const tsr_interpreted *n, int64_t i) { return n->mask ? n->mask[i] : 1; }

static double score_of(const attention_sizes *s, const double *q, const double *k) {
  double sum = 0;
  for (int64_t d = 0; d < s->D; d++) sum += s->scale * q[d] * k[d];
  return sum;
}

static double capped(const attention_sizes *s, double score) {
  return s->soft_cap != 0 ? s->soft_cap * tanh(score / s->soft_cap) : score;
}

/* d capped / d score */
static double cap_slope(const attention_sizes *s, double score) {
  double t = s->soft_cap != 0 ? tanh(score / s->soft_cap) : 0;
  return 1 - t * t;
}

static void forward_query(const tsr_interpreted *n, const attention_sizes *s, const query *at) {
  const double *q = n->in[0] + at->q;
  double *p = n->saved + at->p, *out = n->out + at->out;
  for (int64_t j = at->first; j < at->keys; j++) {
    const double *k = n->in[1] + at->k + j * at->stride;
    p[j] = capped(s, score_of(s, q, k));
  }
  double lse = tsr_interpreter_softmax(p + at->first, p + at->first, at->keys - at->first);
  if (s->sinks >= 0)
    for (int64_t j = at->first; j < at->keys; j++) p[j] /= 1 + exp(n->in[s->sinks][at->h] - lse);
  for (int64_t d = 0; d < s->Dv; d++) {
    out[d] = 0;
    for (int64_t j = at->first; j < at->keys; j++)
      out[d] += multiplier(n, at->p + j) * p[j] * n->in[2][at->v + j * at->v_stride + d];
  }
}

/* dp_j = m_j dout . v_j */
static double
d_probability(const tsr_interpreted *n, const attention_sizes *s, const query *at, int64_t j) {
  double dot = 0;
  for (int64_t d = 0; d < s->Dv; d++)
    dot += n->d_out[at->out + d] * n->in[2][at->v + j * at->v_stride + d];
  return multiplier(n, at->p + j) * dot;
}

/* dv_j = m_j p_j dout; of the scores ds_j = p_j (dp_j - sum over l of p_l dp_l). */
static void vjp_query(const tsr_interpreted *n, const attention_sizes *s, const query *at) {
  const double *p = n->saved + at->p;
  double mean = 0;
  for (int64_t j = at->first; j < at->keys; j++) mean += p[j] * d_probability(n, s, at, j);
  mean = tsr_interpreted_round(n, 0, at->q, mean);
  double of_sink = 1; /* its probability */
  for (int64_t j = at->first; j < at->keys && s->sinks >= 0; j++) of_sink -= p[j];
  if (s->sinks >= 0) n->d_in[s->sinks][at->h] -= of_sink * mean;
  for (int64_t j = at->first; j < at->keys; j++) {
    const double *k_j = n->in[1] + at->k + j * at->stride;
    double slope = cap_slope(s, score_of(s, n->in[0] + at->q, k_j));
    double ds = s->scale * slope * p[j] * (d_probability(n, s, at, j) - mean);
    for (int64_t d = 0; d < s->D; d++) {
      int64_t q = at->q + d, k = at->k + j * at->stride + d;
      n->d_in[0][q] += ds * n->in[1][k];
      n->d_in[1][k] += ds * n->in[0][q];
    }
    for (int64_t d = 0; d < s->Dv; d++)
      n->d_in[2][at->v + j * at->v_stride + d] +=
          multiplier(n, at->p + j) * p[j] * n->d_out[at->out + d];
  }
}

static void forward_attention(const tsr_interpreted *n) { each_query(n, forward_query); }
static void vjp_attention(const tsr_interpreted *n) { each_query(n, vjp_query); }

static int
attention_mask(const tsr_interpreted *n, double *ret_p, int64_t ret_shape[TSR_DIMS_MAX]) {
  attention_sizes s = sizes_of(n);
  *ret_p = tsr_node_dropout(n->node);
  ret_shape[0] = s.B;
  ret_shape[1] = s.H;
  ret_shape[2] = ret_shape[3] = s.T;
  return 4;
}
static int64_t saved_probabilities(const tsr_interpreted *n) {
  attention_sizes s = sizes_of(n);
  return s.B * s.H * s.T * s.T;
}
const tsr_interpreter_rule tsr_interpret_attention = {
    .forward = forward_attention,
    .vjp = vjp_attention,
    .saved = saved_probabilities,
    .mask_shape = attention_mask};
const tsr_interpreter_rule tsr_interpret_document_attention = {
    .forward = forward_attention,
    .vjp = vjp_attention,
    .saved = saved_probabilities,
    .mask_shape = attention_mask};
