/* The matrix product of the level that the argument names: right, and the same bits for every split
 * of M and N and from many threads. */
#include "kernel_check.h"
#include <pthread.h>

static tsr_matrix rows_of(const float *x, int64_t cols) { return (tsr_matrix){x, cols, 1}; }
static tsr_matrix columns_of(const float *x, int64_t rows) { return (tsr_matrix){x, 1, rows}; }

static tsr_matrix part(tsr_matrix m, int64_t row, int64_t col) {
  m.data += row * m.rs + col * m.cs;
  return m;
}

typedef struct {
  int64_t M, N, K;
  tsr_matrix a, b;
  float alpha, beta;
} product;

static double *product_reference(const product *p, const float *c) {
  double *want = reference_new(p->M * p->N);
  for (int64_t i = 0; i < p->M; i++)
    for (int64_t k = 0; k < p->K; k++) {
      double a = p->a.data[i * p->a.rs + k * p->a.cs];
      for (int64_t j = 0; j < p->N; j++)
        want[i * p->N + j] += a * p->b.data[k * p->b.rs + j * p->b.cs];
    }
  for (int64_t i = 0; i < p->M * p->N; i++)
    want[i] = p->alpha * want[i] + (p->beta == 0 ? 0 : p->beta * (double)c[i]);
  return want;
}

static void product_rows(const product *p, float *c, int64_t begin, int64_t end) {
  tsr_gemm(
      end - begin, p->N, p->K, p->alpha, part(p->a, begin, 0), p->b, p->beta, c + begin * p->N,
      p->N, 1);
}

static void product_columns(const product *p, float *c, int64_t begin, int64_t end) {
  tsr_gemm(
      p->M, end - begin, p->K, p->alpha, p->a, part(p->b, 0, begin), p->beta, c + begin, p->N, 1);
}

static const tsr_kernels *k;

static void check_product(int64_t M, int64_t N, int64_t K, bool ta, bool tb, float beta) {
  float *a = input_new(M * K, 1), *b = input_new(K * N, 1), *start = input_new(M * N, 1);
  if (beta == 0)
    for (int64_t i = 0; i < M * N; i++) start[i] = NAN; /* not read */
  product p = {
      M,    N,   K, ta ? columns_of(a, M) : rows_of(a, K), tb ? columns_of(b, K) : rows_of(b, N),
      0.7f, beta};
  double *want = product_reference(&p, start);
  output rows = output_from(start, M * N), columns = output_from(start, M * N);
  RUN(M, product_rows(&p, rows.pass[pass], begin, end));
  RUN(N, product_columns(&p, columns.pass[pass], begin, end));
  CHECK_OUTPUT(rows, want, 3e-5, 1);
  CHECK_OUTPUT(columns, want, 3e-5, 1);
  CHECK(!memcmp(rows.pass[0], columns.pass[0], (size_t)(M * N) * sizeof(float)));
  output_free(&rows), output_free(&columns);
  free(a), free(b), free(start), free(want);
}

static void test_shapes(void) {
  static const int64_t shapes[][3] = {{1, 1, 1},     {3, 7, 5},    {17, 33, 65},
                                      {65, 17, 100}, {100, 96, 7}, {64, 130, 400},
                                      {1, 50, 600},  {50, 1, 33},  {129, 257, 768}};
  for (int i = 0; i < 9; i++)
    for (int layout = 0; layout < 4; layout++)
      check_product(
          shapes[i][0], shapes[i][1], shapes[i][2], layout & 1, layout & 2, i % 2 ? 0 : 0.5f);
}

/* Few rows have the product's bits, whatever the strides; x, w and y are parts of larger ones. */
static void check_few_rows(int64_t R, int64_t N, int64_t K, int64_t depth) {
  int64_t x_stride = K + 5, w_stride = K + 3, y_stride = N + 2;
  float *x = input_new(R * x_stride, 1), *w = input_new(N * w_stride, 1);
  tsr_few_rows p = {R, K, x_stride, w_stride, y_stride, depth};
  float *want = input_new(R * N, 1), *start = input_new(R * y_stride, 1);
  output y = output_from(start, R * y_stride);
  tsr_gemm(R, N, K, 1, (tsr_matrix){x, x_stride, 1}, (tsr_matrix){w, 1, w_stride}, 0, want, N, 1);
  RUN(N, k->few_rows(&p, y.pass[pass], x, w, begin, end));
  CHECK_OUTPUT(y, NULL, 0, 0);
  for (int64_t r = 0; r < R; r++) {
    const float *row = y.pass[0] + r * y_stride;
    CHECK_AT(
        !memcmp(row, want + r * N, (size_t)N * sizeof *row), "%s: row %lld of (%lld, %lld, %lld)",
        k->isa, (long long)r, (long long)R, (long long)N, (long long)K);
    CHECK(!memcmp(row + N, start + r * y_stride + N, 2 * sizeof *row)); /* left alone */
  }
  output_free(&y);
  free(x), free(w), free(want), free(start);
}

static void test_few_rows(void) {
  static const int64_t sizes[] = {1, 3, 8, 16, 31, 33, 100, 257};
  static const int64_t depths[] = {1, 5, 16, 77, 256, 300, 768, 1500, 2100};
  int64_t depth = tsr_gemm_depth();
  if (!depth) printf("level %s: few rows have other bits than BLIS, and are not used\n", k->isa);
  for (int i = 0; depth && i < 8; i++)
    for (int d = 0; d < 9; d++) check_few_rows(1 + (i + d) % 9, sizes[i], depths[d], depth);
}

typedef struct {
  const product *p;
  float *c;
} job;

static void *job_run(void *argument) {
  job *j = argument;
  for (int i = 0; i < 20; i++) product_rows(j->p, j->c, 0, j->p->M);
  return NULL;
}

static void test_threads(void) {
  enum { THREADS = 4, M = 70, N = 90, K = 300 };
  float *a = input_new(M * K, 1), *b = input_new(K * N, 1);
  product p = {M, N, K, rows_of(a, K), rows_of(b, N), 1, 0};
  pthread_t threads[THREADS];
  job jobs[THREADS];
  for (int i = 0; i < THREADS; i++) {
    jobs[i] = (job){&p, input_new(M * N, 1)};
    CHECK(!pthread_create(&threads[i], NULL, job_run, &jobs[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 1; i < THREADS; i++) CHECK(!memcmp(jobs[0].c, jobs[i].c, M * N * sizeof(float)));
  for (int i = 0; i < THREADS; i++) free(jobs[i].c);
  free(a), free(b);
}

int main(int argc, char **argv) {
  k = tsr_kernels_get(argc > 1 ? argv[1] : NULL);
  if (!k) {
    printf("level %s: not on this CPU\n", argv[1]);
    return 0;
  }
  tsr_gemm_select(k);
  test_shapes();
  test_threads();
  test_few_rows();
  return check_done("kernels.gemm");
}
