#include "double_ops.h"
#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct {
  const doubles *d;
  const tsr_node *n;
  double *out;
  const double *in[TSR_CALL_INPUTS_MAX];
  const tsr_value *type[TSR_CALL_INPUTS_MAX], *out_type;
} call;

typedef void double_op(const call *c);

static int64_t last(const tsr_value *v) { return v->shape[v->ndim - 1]; }
static int64_t size(const call *c, int i) { return tsr_value_elements(c->type[i]); }
static int64_t rows(const call *c, int i) { return size(c, i) / last(c->type[i]); }

static void run_linear(const call *c) {
  int64_t K = last(c->type[0]), N = c->type[1]->shape[0];
  for (int64_t r = 0; r < rows(c, 0); r++)
    for (int64_t n = 0; n < N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < K; k++) sum += c->in[0][r * K + k] * c->in[1][n * K + k];
      c->out[r * N + n] = sum;
    }
}

static void run_matmul(const call *c) {
  int n = c->out_type->ndim;
  bool ta = c->n->attr[0] != 0, tb = c->n->attr[1] != 0;
  int64_t M = c->out_type->shape[n - 2], N = c->out_type->shape[n - 1],
          K = c->type[0]->shape[ta ? n - 2 : n - 1];
  for (int64_t b = 0; b < tsr_value_elements(c->out_type) / (M * N); b++)
    for (int64_t i = 0; i < M; i++)
      for (int64_t j = 0; j < N; j++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
          sum += c->in[0][b * M * K + (ta ? k * M + i : i * K + k)] *
                 c->in[1][b * K * N + (tb ? j * K + k : k * N + j)];
        c->out[(b * M + i) * N + j] = sum;
      }
}

static void run_embedding(const call *c) {
  int64_t C = c->type[1]->shape[1];
  for (int64_t r = 0; r < size(c, 0); r++)
    memcpy(c->out + r * C, c->in[1] + (int64_t)c->in[0][r] * C, sizeof(double) * (size_t)C);
}

/* ---- element by element; a shorter second input goes round ---- */

static void run_add(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = c->in[0][i] + c->in[1][i % size(c, 1)];
}
static void run_sub(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = c->in[0][i] - c->in[1][i];
}
static void run_mul(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = c->in[0][i] * c->in[1][i % size(c, 1)];
}
static void run_scale(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = c->in[0][i] * (double)(float)c->n->attr[0];
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double unary(tsr_op op, double x) {
  static const double pi = 3.14159265358979323846;
  switch ((int)op) {
  case TSR_OP_GELU:
    return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
  case TSR_OP_GELU_ERF:
    return 0.5 * x * (1 + erf(x / sqrt(2)));
  case TSR_OP_RELU:
    return x > 0 ? x : 0;
  case TSR_OP_SILU:
    return x * sigmoid(x);
  case TSR_OP_TANH:
    return tanh(x);
  default:
    return sigmoid(x);
  }
}
static void run_unary(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = unary(c->n->op, c->in[0][i]);
}
static void run_swiglu(const call *c) {
  for (int64_t i = 0; i < size(c, 0); i++)
    c->out[i] = c->in[0][i] * sigmoid(c->in[0][i]) * c->in[1][i];
}
static void run_same(const call *c) {
  memcpy(c->out, c->in[0], sizeof(double) * (size_t)size(c, 0));
}

/* Ones dropped out: the mask with its factor, as the stream of this node gives it. */
static double *mask(const call *c, double p, int ndim, const int64_t *shape) {
  tsr_box box = {.ndim = ndim};
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= box.shape[d] = box.global[d] = shape[d];
  float *ones = tsr_arena_array(c->d->g->arena, float, n);
  double *out = tsr_arena_array(c->d->g->arena, double, n);
  for (int64_t i = 0; i < n; i++) ones[i] = 1;
  uint64_t key = tsr_random_key(c->d->seed, c->n->stream, (uint64_t)c->d->step);
  if (p > 0) c->d->kernels->dropout(ones, ones, (float)p, key, &box, 0, n / shape[ndim - 1]);
  for (int64_t i = 0; i < n; i++) out[i] = (double)ones[i];
  return out;
}
static void run_dropout(const call *c) {
  const double *m = mask(c, c->n->attr[0], c->out_type->ndim, c->out_type->shape);
  for (int64_t i = 0; i < size(c, 0); i++) c->out[i] = c->in[0][i] * m[i];
}

/* ---- rows ---- */

static void run_norm(const call *c) {
  int64_t C = last(c->type[0]);
  for (int64_t r = 0; r < rows(c, 0); r++) {
    const double *x = c->in[0] + r * C;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < C && c->n->op == TSR_OP_LAYERNORM; i++) mean += x[i] / (double)C;
    for (int64_t i = 0; i < C; i++) square += (x[i] - mean) * (x[i] - mean) / (double)C;
    double rstd = 1 / sqrt(square + (double)(float)c->n->attr[0]);
    for (int64_t i = 0; i < C; i++)
      c->out[r * C + i] =
          (x[i] - mean) * rstd * c->in[1][i] + (c->n->inputs_count == 3 ? c->in[2][i] : 0);
  }
}

static void softmax(double *y, const double *x, int64_t n) {
  double max = x[0], sum = 0;
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
  for (int64_t i = 0; i < n; i++) sum += y[i] = exp(x[i] - max);
  for (int64_t i = 0; i < n; i++) y[i] /= sum;
}
static void run_softmax(const call *c) {
  int64_t C = last(c->type[0]);
  for (int64_t r = 0; r < rows(c, 0); r++) softmax(c->out + r * C, c->in[0] + r * C, C);
}

/* Pairs (i, i + D/2) of every head are turned by the position's angle. */
static void run_rope(const call *c) {
  int64_t D = (int64_t)c->n->attr[0], C = last(c->type[0]), T = c->type[0]->shape[1];
  for (int64_t r = 0; r < rows(c, 0); r++)
    for (int64_t h = 0; h < C / D; h++)
      for (int64_t i = 0; i < D / 2; i++) {
        const double *x = c->in[0] + r * C + h * D + i,
                     *turn = c->in[1] + ((r % T) * (D / 2) + i) * 2;
        double *y = c->out + r * C + h * D + i;
        y[0] = x[0] * turn[0] - x[D / 2] * turn[1];
        y[D / 2] = x[D / 2] * turn[0] + x[0] * turn[1];
      }
}

static void run_attention(const call *c) {
  const double *attr = c->n->attr;
  int64_t B = c->type[0]->shape[0], T = c->type[0]->shape[1], D = (int64_t)attr[0],
          H = last(c->type[0]) / D, G = last(c->type[1]) / D;
  double scale = attr[2] != 0 ? attr[2] : 1 / sqrt((double)D);
  const double *kept = mask(c, attr[3], 4, (int64_t[]){B, H, T, T});
  double *p = tsr_arena_array(c->d->g->arena, double, T);
  for (int64_t at = 0; at < B * H * T; at++) {
    int64_t i = at % T, h = at / T % H, b = at / T / H, g = h / (H / G),
            n = attr[1] != 0 ? i + 1 : T;
    const double *q = c->in[0] + (b * T + i) * H * D + h * D;
    double *out = c->out + (b * T + i) * H * D + h * D;
    for (int64_t j = 0; j < n; j++) {
      p[j] = 0;
      for (int64_t d = 0; d < D; d++)
        p[j] += scale * q[d] * c->in[1][(b * T + j) * G * D + g * D + d];
    }
    softmax(p, p, n);
    for (int64_t d = 0; d < D; d++) {
      out[d] = 0;
      for (int64_t j = 0; j < n; j++)
        out[d] += p[j] * kept[at * T + j] * c->in[2][(b * T + j) * G * D + g * D + d];
    }
  }
}

/* ---- shapes: every element's index by index ---- */

static void run_moved(const call *c) {
  const tsr_value *x = c->type[0], *y = c->out_type;
  for (int64_t at = 0; at < tsr_value_elements(y); at++) {
    int64_t index[TSR_DIMS_MAX], rest = at, from = 0;
    for (int d = y->ndim - 1; d >= 0; d--) {
      index[d] = rest % y->shape[d];
      rest /= y->shape[d];
    }
    int a = (int)c->n->attr[0], b = (int)c->n->attr[1];
    if (c->n->op == TSR_OP_TRANSPOSE) {
      int64_t swap = index[a];
      index[a] = index[b];
      index[b] = swap;
    } else {
      index[a] += b;
    }
    for (int d = 0; d < x->ndim; d++) from = from * x->shape[d] + index[d];
    c->out[at] = c->in[0][from];
  }
}

/* ---- losses ---- */

static void run_nothing(const call *c) { (void)c; }

static void run_ce_loss(const call *c) {
  int64_t V = last(c->type[0]), valid = (int64_t)c->n->attr[0];
  double *p = tsr_arena_array(c->d->g->arena, double, valid);
  c->out[0] = 0;
  for (int64_t r = 0; r < rows(c, 0); r++) {
    if (c->in[2][r] < 0) continue;
    softmax(p, c->in[0] + r * V, valid);
    c->out[0] -= log(p[(int64_t)c->in[2][r]]) * c->d->inv_count;
  }
}

static void run_squared(const call *c) {
  c->out[0] = 0;
  for (int64_t i = 0; i < size(c, 0); i++) {
    double e = c->in[0][i] - c->in[1][i];
    c->out[0] += e * e * c->d->inv_count / (double)last(c->type[0]);
  }
}

static double_op *find(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_LINEAR:
    return run_linear;
  case TSR_OP_MATMUL:
    return run_matmul;
  case TSR_OP_EMBEDDING:
    return run_embedding;
  case TSR_OP_ADD:
    return run_add;
  case TSR_OP_SUB:
    return run_sub;
  case TSR_OP_MUL:
    return run_mul;
  case TSR_OP_SCALE:
    return run_scale;
  case TSR_OP_GELU:
  case TSR_OP_GELU_ERF:
  case TSR_OP_RELU:
  case TSR_OP_SILU:
  case TSR_OP_TANH:
  case TSR_OP_SIGMOID:
    return run_unary;
  case TSR_OP_SWIGLU:
    return run_swiglu;
  case TSR_OP_DROPOUT:
    return run_dropout;
  case TSR_OP_LAYERNORM:
  case TSR_OP_RMSNORM:
    return run_norm;
  case TSR_OP_SOFTMAX:
    return run_softmax;
  case TSR_OP_ROPE:
    return run_rope;
  case TSR_OP_ATTENTION:
    return run_attention;
  case TSR_OP_TRANSPOSE:
  case TSR_OP_SLICE:
    return run_moved;
  case TSR_OP_RESHAPE:
  case TSR_OP_ALL_REDUCE:
  case TSR_OP_ALL_GATHER:
  case TSR_OP_REDUCE_SCATTER:
  case TSR_OP_ALL_TO_ALL:
  case TSR_OP_SCATTER:
    return run_same;
  case TSR_OP_CE_STATS:
    return run_nothing;
  case TSR_OP_CE_LOSS:
    return run_ce_loss;
  case TSR_OP_SQUARED_ERROR:
    return run_squared;
  default:
    return NULL;
  }
}

/* Angles position * theta^(-2i/D); Llama 3 divides slow ones by `factor`, with a smooth passage
 * between wavelengths context/high and context/low. */
static void fill_rope(double *out, const tsr_value *v) {
  static const double pi = 3.14159265358979323846;
  const double *s = v->init.scaling;
  for (int64_t t = 0; t < v->shape[0]; t++)
    for (int64_t i = 0; i < v->shape[1]; i++) {
      double turn = pow(v->init.b, -2.0 * (double)i / v->init.a), wave = 2 * pi / turn;
      if (s[0] != 0 && wave > s[3] / s[1]) turn /= s[0];
      else if (s[0] != 0 && wave > s[3] / s[2]) {
        double smooth = (s[3] / wave - s[1]) / (s[2] - s[1]);
        turn = (1 - smooth) * turn / s[0] + smooth * turn;
      }
      out[(t * v->shape[1] + i) * 2] = cos((double)t * turn);
      out[(t * v->shape[1] + i) * 2 + 1] = sin((double)t * turn);
    }
}

doubles
doubles_make(const tsr_graph *g, const tsr_kernels *kernels, uint64_t seed, double inv_count) {
  doubles d = {.g = g, .kernels = kernels, .seed = seed, .inv_count = inv_count};
  d.values = tsr_arena_array(g->arena, double *, g->values_count);
  for (int v = 0; v < g->values_count; v++) {
    d.values[v] = tsr_arena_array(g->arena, double, tsr_value_elements(&g->values[v]));
    if (g->values[v].kind == TSR_VALUE_CONST) fill_rope(d.values[v], &g->values[v]);
  }
  return d;
}

void doubles_run(const doubles *d) {
  for (int i = 0; i < d->g->nodes_count; i++) {
    const tsr_node *n = &d->g->nodes[i];
    if (n->section > TSR_FORWARD) continue;
    call c = {
        .d = d, .n = n, .out = d->values[n->outputs[0]], .out_type = &d->g->values[n->outputs[0]]};
    for (int k = 0; k < n->inputs_count; k++) {
      c.in[k] = d->values[n->inputs[k]];
      c.type[k] = &d->g->values[n->inputs[k]];
    }
    double_op *op = find(n->op);
    assert(op && "an op without a form in double");
    op(&c);
  }
}
