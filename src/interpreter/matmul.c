// SPDX-License-Identifier: Apache-2.0
/* linear, matmul, embedding. */
#include "interpreter/rule.h"
#include <assert.h>

/* y (rows, N) = x (rows, K) w (N, K)^T */
static void forward_linear(const tsr_interpreted *n) {
  int64_t K = tsr_interpreted_columns(n, 0), N = n->type[1]->shape[0];
  const double *x = n->in[0], *w = n->in[1];
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++)
    for (int64_t j = 0; j < N; j++) {
      double sum = 0;
      for (int64_t k = 0; k < K; k++) sum += x[r * K + k] * w[j * K + k];
      n->out[r * N + j] = sum;
    }
}

static void vjp_linear(const tsr_interpreted *n) {
  int64_t K = tsr_interpreted_columns(n, 0), N = n->type[1]->shape[0];
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++)
    for (int64_t j = 0; j < N; j++) {
      double dy = n->d_out[r * N + j];
      for (int64_t k = 0; k < K; k++) {
        n->d_in[0][r * K + k] += dy * n->in[1][j * K + k];
        n->d_in[1][j * K + k] += dy * n->in[0][r * K + k];
      }
    }
}
const tsr_interpreter_rule tsr_interpret_linear = {.forward = forward_linear, .vjp = vjp_linear};
/* A linear layer whose kernels compute otherwise. */
const tsr_interpreter_rule tsr_interpret_router = {.forward = forward_linear, .vjp = vjp_linear};

/* y (…, M, N) = A B, A (M, K) = a or a^T and B (K, N) = b or b^T of the last two dimensions. */
typedef struct {
  int64_t batches, M, N, K;
  bool ta, tb;
} matmul_sizes;

static matmul_sizes sizes_of(const tsr_interpreted *n) {
  const tsr_value *a = n->type[0], *y = n->out_type;
  int d = y->ndim;
  matmul_sizes s = {.ta = n->node->attr.matmul.transpose_a, .tb = n->node->attr.matmul.transpose_b};
  s.M = y->shape[d - 2];
  s.N = y->shape[d - 1];
  s.K = a->shape[s.ta ? d - 2 : d - 1];
  s.batches = tsr_value_elements(y) / (s.M * s.N);
  return s;
}

static int64_t index_a(const matmul_sizes *s, int64_t batch, int64_t i, int64_t k) {
  return batch * s->M * s->K + (s->ta ? k * s->M + i : i * s->K + k);
}

static int64_t index_b(const matmul_sizes *s, int64_t batch, int64_t k, int64_t j) {
  return batch * s->K * s->N + (s->tb ? j * s->K + k : k * s->N + j);
}

static void forward_matmul(const tsr_interpreted *n) {
  matmul_sizes s = sizes_of(n);
  for (int64_t batch = 0; batch < s.batches; batch++)
    for (int64_t i = 0; i < s.M; i++)
      for (int64_t j = 0; j < s.N; j++) {
        double sum = 0;
        for (int64_t k = 0; k < s.K; k++)
          sum += n->in[0][index_a(&s, batch, i, k)] * n->in[1][index_b(&s, batch, k, j)];
        n->out[(batch * s.M + i) * s.N + j] = sum;
      }
}

static void vjp_matmul(const tsr_interpreted *n) {
  matmul_sizes s = sizes_of(n);
  for (int64_t batch = 0; batch < s.batches; batch++)
    for (int64_t i = 0; i < s.M; i++)
      for (int64_t j = 0; j < s.N; j++) {
        double dy = n->d_out[(batch * s.M + i) * s.N + j];
        for (int64_t k = 0; k < s.K; k++) {
          int64_t a = index_a(&s, batch, i, k), b = index_b(&s, batch, k, j);
          n->d_in[0][a] += dy * n->in[1][b];
          n->d_in[1][b] += dy * n->in[0][a];
        }
      }
}
const tsr_interpreter_rule tsr_interpret_matmul = {.forward = forward_matmul, .vjp = vjp_matmul};

static int64_t table_row(const tsr_interpreted *n, int64_t token) {
  int64_t row = (int64_t)n->in[0][token];
  assert(row >= 0 && row < n->type[1]->shape[0]);
  return row;
}

static void forward_embedding(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 1);
  for (int64_t r = 0; r < tsr_interpreted_size(n, 0); r++)
    for (int64_t i = 0; i < C; i++) n->out[r * C + i] = n->in[1][table_row(n, r) * C + i];
}

static void vjp_embedding(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 1), padding = n->node->attr.embedding.padding;
  for (int64_t r = 0; r < tsr_interpreted_size(n, 0); r++)
    for (int64_t i = 0; i < C && table_row(n, r) != padding; i++)
      n->d_in[1][table_row(n, r) * C + i] += n->d_out[r * C + i];
}
const tsr_interpreter_rule tsr_interpret_embedding = {
    .forward = forward_embedding, .vjp = vjp_embedding};
