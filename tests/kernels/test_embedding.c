// SPDX-License-Identifier: Apache-2.0
/* Embedding forward and backward, its shards, and rotary positions. */
#include "kernel_check.h"
#include "base/reduction_tree.h"

static int32_t *tokens_new(int64_t R, int64_t V) {
  int32_t *tokens = check_alloc((size_t)R * sizeof *tokens);
  for (int64_t r = 0; r < R; r++)
    tokens[r] = (int32_t)(check_random() % (uint64_t)(r % 3 ? V : V < 5 ? V : 5)); /* some often */
  return tokens;
}

static void check_forward(const tsr_kernels *k, int64_t R, int64_t C, int64_t V) {
  int64_t v_begin = V / 3, v_end = V - V / 4;
  int32_t *tokens = tokens_new(R, V);
  float *table = input_new((v_end - v_begin) * C, 1);
  table[0] = -0.0f;
  double *want = reference_new(R * C);
  for (int64_t i = 0; i < R * C; i++) {
    int64_t v = tokens[i / C];
    want[i] = v >= v_begin && v < v_end ? table[(v - v_begin) * C + i % C] : 0;
  }
  output out = output_new(R * C);
  RUN(R, k->embedding(out.pass[pass], tokens, table, C, v_begin, v_end, begin, end));
  CHECK_OUTPUT(out, want, 0, 0);
  for (int64_t i = 0; i < R * C; i++)
    if (out.pass[0][i] == 0) CHECK(!signbit(out.pass[0][i]));
  output_free(&out);
  free(tokens), free(table), free(want);
}

/* By the stack machine, or from left to right. */
static float tree_of(tsr_tree_shape shape, const float *x, int64_t n) {
  float stack[64], sum = x[0];
  int depth = 0;
  for (int64_t i = 1; i < n && shape == TSR_TREE_FLAT; i++) sum += x[i];
  if (shape == TSR_TREE_FLAT) return sum;
  for (int64_t i = 0; i < n; i++) {
    stack[depth++] = x[i];
    for (int m = tsr_tree_merges(n, i); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
  }
  return stack[0];
}

enum { PADDING = 7 }; /* in some of the tables */

/* The contract in scalar float: zeros, rows in order, a tree over units inside the tree over their
 * runs of `inner`. */
static float table_gradient(
    const int32_t *tokens, const float *dout, int64_t R, int64_t C, int64_t v, int64_t c,
    tsr_tree_shape shape, int64_t units, int64_t inner) {
  float *sums = calloc((size_t)units, sizeof *sums), *runs = calloc((size_t)units, sizeof *runs);
  for (int64_t r = 0; r < R; r++)
    if (tokens[r] == v && v != PADDING) sums[r / (R / units)] += dout[r * C + c];
  for (int64_t i = 0; i < units / inner; i++) runs[i] = tree_of(shape, sums + i * inner, inner);
  float sum = tree_of(shape, runs, units / inner);
  free(sums), free(runs);
  return sum;
}

static void check_backward(
    const tsr_kernels *k, int64_t R, int64_t C, int64_t V, tsr_tree_shape shape, int64_t units,
    int64_t inner, bool adds) {
  int64_t v_begin = V / 3, v_end = V, rows = v_end - v_begin;
  int32_t *tokens = tokens_new(R, V);
  float *dout = input_new(R * C, 1);
  dout[0] = -0.0f;
  float *plus = adds ? input_new(rows * C, 2) : NULL;
  if (adds) plus[0] = plus[rows * C - 1] = -0.0f;
  double *want = reference_new(rows * C);
  for (int64_t i = 0; i < rows * C; i++)
    want[i] = table_gradient(tokens, dout, R, C, v_begin + i / C, i % C, shape, units, inner);
  for (int64_t i = 0; adds && i < rows * C; i++) want[i] = plus[i] + (float)want[i];
  int64_t bytes =
      k->embedding_scratch(R, v_begin, v_end, C, tsr_tree_nested_depth(shape, units, inner), 2);
  output scratch = output_new((bytes + 3) / 4), dtable = output_new(rows * C);
  k->embedding_sort(scratch.pass[0], tokens, R, v_begin, v_end, PADDING);
  RUN(rows, k->embedding_backward(
                dtable.pass[pass], plus, dout, NULL, scratch.pass[0], begin % 2, R, C, v_begin,
                v_end, shape, units, inner, begin, end));
  CHECK_OUTPUT(dtable, want, 0, 0);
  CHECK(guard_intact(scratch.pass[0] - GUARD) && guard_intact(scratch.pass[0] + scratch.n));
  output_free(&scratch), output_free(&dtable);
  free(tokens), free(dout), free(plus), free(want);
}

static void test_embedding(const tsr_kernels *k) {
  check_forward(k, 1, 1, 1);
  check_forward(k, 37, 7, 20);
  check_forward(k, 100, 65, 50);
  static const int64_t units[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
  for (int i = 0; i < 18; i++) {
    tsr_tree_shape shape = i % 2 ? TSR_TREE_FLAT : TSR_TREE_BINARY;
    int64_t n = units[i / 2];
    bool adds = i / 2 % 2;
    check_backward(k, n, 3, 4, shape, n, 1, adds);
    check_backward(k, 10 * n, 17, 30, shape, n, n, adds);
    check_backward(k, 24 * n, 33, 11, shape, 2 * n, 2, adds);
    check_backward(k, 24 * n, 33, 11, shape, 12 * n, 4, adds);
  }
}

static double llama3_frequency(double f) {
  double wavelength = 2 * M_PI / f;
  if (wavelength < 8192 / 4.0) return f;
  if (wavelength > 8192 / 1.0) return f / 8;
  double smooth = (8192 / wavelength - 1) / (4 - 1);
  return (1 - smooth) * f / 8 + smooth * f;
}

/* Of theta 500000: with 64 features pairs 5 to 14 are between 32 turns in 4096 positions and one. */
static double yarn_frequency(double f, int64_t i, int64_t D) {
  double first = D * log(4096 / (32 * 2 * M_PI)) / (2 * log(500000));
  double last = D * log(4096 / (1 * 2 * M_PI)) / (2 * log(500000));
  first = fmax(floor(first), 0), last = fmin(ceil(last), (double)D - 1);
  double ramp = fmin(fmax(((double)i - first) / (last - first), 0), 1);
  return f / 40 * ramp + f * (1 - ramp);
}

enum { PLAIN, LLAMA3, YARN, SCALINGS };

static double scaled_frequency(int how, double f, int64_t i, int64_t D) {
  if (how == YARN) return yarn_frequency(f, i, D);
  return how == LLAMA3 ? llama3_frequency(f) : f;
}

static void check_table(const tsr_kernels *k, int64_t D, int how) {
  static const tsr_rope_scaling scalings[] = {
      [PLAIN] = {.low_freq = 1},
      [LLAMA3] = {8, 1, 4, 8192},
      [YARN] = {
          .original_context = 4096,
          .yarn_factor = 40,
          .beta_fast = 32,
          .beta_slow = 1,
          .truncate = true,
          .attention = 1.25}};
  int64_t T = 9, offset = 5, n = T * D;
  double *want = reference_new(n);
  for (int64_t i = 0; i < n; i++) {
    double f = pow(500000, -2.0 * (double)(i % D / 2) / (double)D);
    double angle = (double)(i / D + offset) * scaled_frequency(how, f, i % D / 2, D);
    want[i] = (i % 2 ? sin(angle) : cos(angle)) * (how == YARN ? 1.25 : 1);
  }
  output table = output_new(n);
  for (int pass = 0; pass < 2; pass++)
    k->rope_table(table.pass[pass], T, D, offset, 500000, &scalings[how]);
  CHECK_OUTPUT(table, want, 2e-7, 1);
  output_free(&table);
  free(want);
}

/* The feature that a turned one is a pair with; *ret_pair: which pair, *ret_first: whether the
 * feature is its first. */
static int64_t partner(const tsr_rope *r, int64_t d, int64_t *ret_pair, bool *ret_first) {
  int64_t at = d - r->offset, half = r->rotary / 2;
  *ret_pair = r->interleaved ? at / 2 : at % half;
  *ret_first = r->interleaved ? at % 2 == 0 : at < half;
  int64_t apart = r->interleaved ? 1 : half;
  return *ret_first ? d + apart : d - apart;
}

static double turned(const tsr_rope *r, const float *x, const float *table, int64_t i) {
  int64_t d = i % r->D, t = i / (r->H * r->D) % r->T, pair;
  bool first;
  if (d < r->offset || d >= r->offset + r->rotary) return x[i];
  int64_t other = i - d + partner(r, d, &pair, &first);
  double cosine = table[t * r->rotary + 2 * pair],
         sine = r->sign * table[t * r->rotary + 2 * pair + 1];
  return x[i] * cosine + (first ? -x[other] : x[other]) * sine;
}

static void check_rope(const tsr_kernels *k, tsr_rope r) {
  int64_t B = 2, n = B * r.T * r.H * r.D;
  float *x = input_new(n, 3), *table = input_new(r.T * r.rotary, 1);
  double *want = reference_new(n);
  for (r.sign = -1; r.sign <= 1; r.sign += 2) {
    for (int64_t i = 0; i < n; i++) want[i] = turned(&r, x, table, i);
    output y = output_new(n), in_place = output_from(x, n);
    RUN(B * r.T, k->rope(&r, y.pass[pass], x, table, begin, end));
    RUN(B * r.T, k->rope(&r, in_place.pass[pass], in_place.pass[pass], table, begin, end));
    CHECK_OUTPUT(y, want, 1e-6, 1);
    CHECK_OUTPUT(in_place, want, 1e-6, 1);
    output_free(&y), output_free(&in_place);
  }
  free(x), free(table), free(want);
}

static void test_rope(const tsr_kernels *k) {
  for (int how = 0; how < SCALINGS; how++) {
    check_table(k, 2, how);
    check_table(k, 64, how);
    check_table(k, 128, how);
  }
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    check_rope(k, (tsr_rope){1, 1, 2, 2, .interleaved = interleaved});
    check_rope(k, (tsr_rope){7, 3, 6, 6, .interleaved = interleaved});
    check_rope(k, (tsr_rope){5, 2, 64, 64, .interleaved = interleaved});
    check_rope(k, (tsr_rope){3, 1, 70, 70, .interleaved = interleaved});
    check_rope(k, (tsr_rope){5, 3, 7, 4, .offset = 3, .interleaved = interleaved});
    check_rope(k, (tsr_rope){5, 2, 96, 34, .offset = 1, .interleaved = interleaved});
    check_rope(k, (tsr_rope){5, 2, 96, 32, .interleaved = interleaved});
  }
}

int main(void) {
  each_level(test_embedding);
  each_level(test_rope);
  return check_done("kernels.embedding");
}
