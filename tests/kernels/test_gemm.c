// SPDX-License-Identifier: Apache-2.0
/* The matrix product: right, and the same bits for every split, for either operand packed before, of either precision,
 * with few rows, with the bias added in it or behind it, and from many threads. */
#include "kernel_check.h"
#include <pthread.h>
#include <string.h>

static const tsr_kernels *k;

/* An operand in bf16 has an order of its own, which test_dot_gemm.c has the reference of. */
static bool has_dot(void) { return strstr(k->isa, "bf16") != NULL; }

static tsr_matrix rows_of(const float *x, int64_t cols) {
  return (tsr_matrix){x, cols, 1, TSR_ELEMENT_F32};
}
static tsr_matrix columns_of(const float *x, int64_t rows) {
  return (tsr_matrix){x, 1, rows, TSR_ELEMENT_F32};
}

static double *gemm_reference(const tsr_gemm *p) {
  const float *x = p->a.data, *y = p->b.data;
  double *want = reference_new(p->M * p->c_stride);
  for (int64_t i = 0; i < p->M; i++) {
    for (int64_t n = 0; n < p->K; n++) {
      double a = x[i * p->a.rs + n * p->a.cs];
      for (int64_t j = 0; j < p->N; j++)
        want[i * p->c_stride + j] += a * y[n * p->b.rs + j * p->b.cs];
    }
    for (int64_t j = 0; j < p->c_stride; j++)
      if (j >= p->N || p->adds) want[i * p->c_stride + j] += (double)p->c[i * p->c_stride + j];
  }
  return want;
}

static void *aligned(int64_t bytes) {
  void *memory;
  if (posix_memalign(&memory, 64, (size_t)(bytes ? bytes : 64))) abort();
  return memory;
}

static int64_t strip_of(bool rows) { return rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS; }
static int64_t strips(int64_t n, bool rows) { return (n + strip_of(rows) - 1) / strip_of(rows); }

static void multiply(const tsr_gemm *p, const float *packed, int64_t begin, int64_t end) {
  int64_t n = p->by_rows ? p->M : p->N, strip = strip_of(p->by_rows);
  k->gemm(p, packed, begin * strip, end * strip < n ? end * strip : n);
}

/* Packed in random pieces too. */
static float *pack(const tsr_gemm *p) {
  float *packed = aligned(k->gemm_bytes(p));
  int64_t n = p->by_rows ? p->N : p->M, all = strips(n, !p->by_rows),
          half = (int64_t)(check_random() % (uint64_t)all) * strip_of(!p->by_rows);
  k->gemm_pack(p, packed, half, n);
  k->gemm_pack(p, packed, 0, half);
  return packed;
}

static output gemm_output(tsr_gemm p) {
  output o = output_from(p.c, p.M * p.c_stride);
  float *packed = pack(&p);
  RUN(strips(p.by_rows ? p.M : p.N, p.by_rows), p.c = o.pass[pass];
      multiply(&p, packed, begin, end));
  free(packed);
  return o;
}

/* With the bias added in it, or by another pass behind it: the same bits. */
static void check_bias(tsr_gemm p) {
  float *bias = input_new(p.N, 1);
  output apart = gemm_output(p);
  for (int64_t i = 0; i < p.M; i++) {
    float *row = apart.pass[0] + i * p.c_stride;
    k->add_row(row, row, bias, p.N, 0, 1);
  }
  p.bias = bias;
  output together = gemm_output(p);
  CHECK_OUTPUT(together, NULL, 0, 0);
  CHECK_AT(
      !memcmp(together.pass[0], apart.pass[0], (size_t)(p.M * p.c_stride) * sizeof(float)),
      "%s: (%lld, %lld, %lld), by rows: %d", k->isa, (long long)p.M, (long long)p.N, (long long)p.K,
      p.by_rows);
  output_free(&apart), output_free(&together), free(bias);
}

/* x rounded to 16 bits; x then has the rounded values. */
static uint16_t *halves_of(float *x, int64_t n, tsr_element type) {
  uint16_t *half = calloc((size_t)n, sizeof *half);
  if (type == TSR_ELEMENT_BF16) k->f32_to_bf16(half, x, 0, n), k->bf16_to_f32(x, half, 0, n);
  else k->f32_to_fp16(half, x, 0, n), k->fp16_to_f32(x, half, 0, n);
  return half;
}

/* One operand of 16 bits, or both: the bits are those of the same numbers in f32. */
static void check_halves(tsr_gemm p, tsr_element type, int which) {
  if (has_dot() && type == TSR_ELEMENT_BF16) return;
  float *a = input_new(p.M * p.K, 1), *b = input_new(p.K * p.N, 1);
  uint16_t *half_a = halves_of(a, p.M * p.K, type), *half_b = halves_of(b, p.K * p.N, type);
  p.a.data = a, p.b.data = b;
  output wide = gemm_output(p);
  if (which & 1) p.a.data = half_a, p.a.type = type;
  if (which & 2) p.b.data = half_b, p.b.type = type;
  output half = gemm_output(p);
  CHECK_AT(
      !memcmp(half.pass[0], wide.pass[0], (size_t)(p.M * p.c_stride) * sizeof(float)),
      "%s: (%lld, %lld, %lld), by rows: %d, type %d, operands %d", k->isa, (long long)p.M,
      (long long)p.N, (long long)p.K, p.by_rows, type, which);
  output_free(&wide), output_free(&half);
  free(a), free(b), free(half_a), free(half_b);
}

static void check_gemm(int64_t M, int64_t N, int64_t K, int layout, bool adds) {
  int64_t stride = N + 3;
  float *a = input_new(M * K, 1), *b = input_new(K * N, 1), *c = input_new(M * stride, 1);
  for (int64_t i = 0; i < M * stride && !adds; i++)
    if (i % stride < N) c[i] = NAN; /* not read */
  tsr_gemm p = {.M = M, .N = N, .K = K, .c = c, .c_stride = stride, .adds = adds};
  p.a = layout & 1 ? columns_of(a, M) : rows_of(a, K);
  p.b = layout & 2 ? columns_of(b, K) : rows_of(b, N);
  double *want = gemm_reference(&p);
  output columns = gemm_output(p);
  check_bias(p);
  check_halves(p, TSR_ELEMENT_BF16, 1 + (int)(M % 3));
  p.by_rows = true;
  output rows = gemm_output(p);
  check_bias(p);
  check_halves(p, TSR_ELEMENT_BF16, 1 + (int)(N % 3));
  check_halves(p, TSR_ELEMENT_F16, 1 + (int)(K % 3));
  CHECK_OUTPUT(rows, want, 3e-5, 1);
  CHECK_OUTPUT(columns, want, 3e-5, 1);
  CHECK(!memcmp(rows.pass[0], columns.pass[0], (size_t)(M * stride) * sizeof(float)));
  output_free(&rows), output_free(&columns);
  free(a), free(b), free(c), free(want);
}

static void test_shapes(void) {
  static const int64_t shapes[][3] = {
      {1, 1, 1},      {3, 7, 5},     {17, 33, 65}, {6, 16, 384}, {65, 17, 100},   {100, 96, 7},
      {64, 130, 400}, {12, 32, 385}, {1, 50, 800}, {50, 1, 33},  {400, 257, 768}, {30, 400, 1153}};
  for (int i = 0; i < 12; i++)
    for (int layout = 0; layout < 4; layout++)
      check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], layout, i % 2);
}

/* Few rows have the product's bits, whatever the strides; x, w and y are parts of larger ones. */
static void check_skinny_gemm(int64_t R, int64_t N, int64_t K, bool has_bias, tsr_element type) {
  if (has_dot() && type == TSR_ELEMENT_BF16) return;
  int64_t x_stride = K + 5, w_stride = K + 3, y_stride = N + 2;
  float *x = input_new(R * x_stride, 1), *w = input_new(N * w_stride, 1), *bias = input_new(N, 1);
  tsr_skinny_gemm few = {R, K, x_stride, y_stride, has_bias ? bias : NULL};
  float *start = input_new(R * y_stride, 1);
  output y = output_from(start, R * y_stride);
  tsr_gemm p = {
      .M = R,
      .N = N,
      .K = K,
      .a = {.data = x, .rs = x_stride, .cs = 1},
      .b = {.data = w, .rs = 1, .cs = w_stride},
      .c = start,
      .c_stride = y_stride,
      .by_rows = true,
      .bias = few.bias};
  uint16_t *half = type == TSR_ELEMENT_F32 ? NULL : halves_of(w, N * w_stride, type);
  few.w = (tsr_matrix){half ? (const void *)half : w, 1, w_stride, type};
  float *packed = pack(&p);
  k->gemm(&p, packed, 0, R);
  RUN(N, k->skinny_gemm(&few, y.pass[pass], x, begin, end));
  CHECK_OUTPUT(y, NULL, 0, 0);
  CHECK_AT(
      !memcmp(y.pass[0], start, (size_t)(R * y_stride) * sizeof *start), "%s: (%lld, %lld, %lld)",
      k->isa, (long long)R, (long long)N, (long long)K);
  output_free(&y);
  free(x), free(w), free(bias), free(start), free(packed), free(half);
}

static void test_skinny_gemm(void) {
  static const int64_t sizes[] = {1, 3, 8, 16, 31, 33, 100, 257};
  static const int64_t depths[] = {1, 5, 16, 77, 384, 400, 768, 1500, 2100};
  for (int i = 0; i < 8; i++)
    for (int d = 0; d < 9; d++) {
      check_skinny_gemm(1 + (i * 9 + d) % 37, sizes[i], depths[d], false, TSR_ELEMENT_F32);
      check_skinny_gemm(1 + (i + d) % 9, sizes[i], depths[d], true, TSR_ELEMENT_F32);
      check_skinny_gemm(1 + (i * 9 + d) % 17, sizes[i], depths[d], true, TSR_ELEMENT_BF16);
      check_skinny_gemm(1 + (i + d) % 9, sizes[i], depths[d], false, TSR_ELEMENT_F16);
    }
}

/* Rows of x that fill SIMD vectors, or nearly; sums over more of K than is transposed at once. */
static void test_filled_lanes(void) {
  static const int64_t rows[] = {8, 13, 16, 23, 24, 30, 32, 48}, columns[] = {5, 12, 50};
  static const int64_t depths[] = {64, 100, 448, 3900};
  static const tsr_element types[] = {TSR_ELEMENT_F32, TSR_ELEMENT_BF16, TSR_ELEMENT_F16};
  for (int r = 0; r < 8; r++)
    for (int d = 0; d < 4; d++)
      for (int t = 0; t < 3; t++)
        check_skinny_gemm(rows[r], columns[(r + d + t) % 3], depths[d], (r + t) % 2, types[t]);
}

typedef struct {
  tsr_gemm p;
  const float *packed;
} job;

static void *job_run(void *argument) {
  job *j = argument;
  for (int i = 0; i < 20; i++) k->gemm(&j->p, j->packed, 0, j->p.N);
  return NULL;
}

static void test_threads(void) {
  enum { THREADS = 4, M = 70, N = 90, K = 300 };
  float *a = input_new(M * K, 1), *b = input_new(K * N, 1);
  tsr_gemm p = {M, N, K, rows_of(a, K), rows_of(b, N), .c_stride = N};
  float *packed = pack(&p);
  pthread_t threads[THREADS];
  job jobs[THREADS];
  for (int i = 0; i < THREADS; i++) {
    jobs[i] = (job){p, packed};
    jobs[i].p.c = input_new(M * N, 1);
    CHECK(!pthread_create(&threads[i], NULL, job_run, &jobs[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 1; i < THREADS; i++) CHECK(!memcmp(jobs[0].p.c, jobs[i].p.c, M * N * sizeof(float)));
  for (int i = 0; i < THREADS; i++) free(jobs[i].p.c);
  free(a), free(b), free(packed);
}

int main(void) {
  for (const char *const *name = tsr_kernels_levels(); *name; name++) {
    k = tsr_kernels_get(*name);
    if (!k || !is_checked_level(*name)) continue;
    test_shapes();
    test_threads();
    test_skinny_gemm();
    test_filled_lanes();
  }
  return check_done("kernels.gemm");
}
