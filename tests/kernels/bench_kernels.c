/* How fast each kernel of each level is on one thread: `bench_kernels [level]`. Bytes count every
 * array once per read or write; attention counts the products that causality leaves (4 T^2/2 D per
 * head forward, 10 backward, the recomputed scores included). */
#include "kernels/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 1024, WIDTH = 768, N = ROWS * WIDTH, VOCAB = 50257, LOSS_ROWS = 64 };
enum { LOGITS = LOSS_ROWS * VOCAB, LARGEST = LOGITS };

static float *buffers[8];
static int32_t tokens[ROWS];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs `call` for about a tenth of a second and prints the best rate. */
#define BENCH(name, amount, unit, call)                                                            \
  do {                                                                                             \
    double best = 1e9, started = now();                                                            \
    for (int i = 0; i < 3 || now() - started < 0.1; i++) {                                         \
      double start = now();                                                                        \
      call;                                                                                        \
      double seconds = now() - start;                                                              \
      if (seconds < best) best = seconds;                                                          \
    }                                                                                              \
    printf("%-10s %-22s %9.2f %s\n", k->isa, name, (double)(amount) / best * 1e-9, unit);          \
  } while (0)
#define GB(name, floats, call) BENCH(name, 4.0 * (double)(floats), "GB/s", call)

static void bench_elementwise(const tsr_kernels *k) {
  static const char *const names[] = {"gelu_tanh", "gelu_erf", "relu", "silu", "tanh", "sigmoid"};
  float *x = buffers[0], *y = buffers[1], *z = buffers[2], *out = buffers[3], *two = buffers[4];
  GB("copy", 2 * N, k->copy(out, x, 0, N));
  GB("add", 3 * N, k->add(out, x, y, 0, N));
  for (tsr_unary kind = 0; kind < TSR_UNARY_COUNT; kind++) {
    char backward[32];
    snprintf(backward, sizeof backward, "%s backward", names[kind]);
    GB(names[kind], 2 * N, k->unary(kind, out, x, 0, N));
    GB(backward, 3 * N, k->unary_backward(kind, out, y, x, 0, N));
  }
  GB("swiglu", 3 * N, k->swiglu(out, x, y, 0, N));
  GB("swiglu backward", 5 * N, k->swiglu_backward(out, two, x, y, z, 0, N));
}

static void bench_rows(const tsr_kernels *k) {
  float *x = buffers[0], *y = buffers[1], *w = buffers[2], *out = buffers[3];
  float *mean = buffers[4], *rstd = buffers[5];
  GB("add_row", 2 * N, k->add_row(out, x, w, WIDTH, 0, ROWS));
  GB("layernorm", 2 * N, k->layernorm(out, mean, rstd, x, w, w, WIDTH, 1e-5f, 0, ROWS));
  GB("layernorm backward", 3 * N, k->layernorm_backward(out, y, x, w, mean, rstd, WIDTH, 0, ROWS));
  GB("rmsnorm", 2 * N, k->rmsnorm(out, rstd, x, w, WIDTH, 1e-5f, 0, ROWS));
  GB("rmsnorm backward", 3 * N, k->rmsnorm_backward(out, y, x, w, rstd, WIDTH, 0, ROWS));
  GB("softmax", 2 * N, k->softmax(out, x, WIDTH, 0, ROWS));
  GB("softmax backward", 3 * N, k->softmax_backward(out, y, x, WIDTH, 0, ROWS));
  GB("sum_rows", N, k->sum_rows(out, x, WIDTH, 0, 1, ROWS, 0, WIDTH));
  GB("norm_dw", 2 * N, k->norm_dw(out, y, x, mean, rstd, WIDTH, 0, 1, ROWS, 0, WIDTH));
  GB("sum_squares", N, *out = (float)k->sum_squares(x, ROWS, WIDTH, WIDTH));
}

static void bench_tokens(const tsr_kernels *k) {
  float *table = buffers[0], *out = buffers[1], *logits = buffers[2], *stats = buffers[3];
  float *loss = buffers[4], *rows = buffers[5];
  GB("embedding", 2 * N, k->embedding(out, tokens, table, WIDTH, 0, 4096, 0, ROWS));
  void *scratch = malloc((size_t)k->embedding_scratch(ROWS, 0, 4096, WIDTH, 8, 1));
  if (!scratch) exit(1);
  GB("embedding backward", N + 4096 * WIDTH, {
    k->embedding_sort(scratch, tokens, ROWS, 0, 4096);
    k->embedding_backward(logits, out, NULL, scratch, 0, ROWS, WIDTH, 0, 4096, 8, 0, 4096);
  });
  free(scratch);
  GB("softmax_stats", LOGITS,
     k->softmax_stats(stats, logits, tokens, VOCAB, 0, VOCAB, 1, 0, LOSS_ROWS));
  GB("softmax_loss", 3 * LOSS_ROWS, k->softmax_loss(loss, rows, stats, tokens, 1, 0, LOSS_ROWS));
  GB("softmax_loss backward", 2 * LOGITS,
     k->softmax_loss_backward(out, logits, rows, tokens, 1, VOCAB, 0, VOCAB, 0, LOSS_ROWS));
  k->rope_table(table, ROWS, 64, 0, 10000, 0, 0, 0, 0);
  GB("rope", 2 * N, k->rope(out, logits, table, ROWS, 12, 64, 1, 0, ROWS));
}

static void bench_random(const tsr_kernels *k) {
  float *x = buffers[0], *out = buffers[1], *m = buffers[2], *v = buffers[3], *w = buffers[4];
  tsr_box box = {2, {ROWS, WIDTH}, {ROWS, WIDTH}, {0, 0}};
  GB("random_uniform", N, k->random_uniform(out, 0, 1, 7, &box, 0, ROWS));
  GB("random_normal", N, k->random_normal(out, 0, 1, 7, &box, 0, ROWS));
  GB("dropout", 2 * N, k->dropout(out, x, 0.1f, 7, &box, 0, ROWS));
  tsr_adamw adamw = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, false};
  tsr_sgd sgd = {1e-4f, 0.9f, 0, 0.1f, true, false};
  memset(v, 0, sizeof *v * N);
  GB("adamw", 7 * N, k->adamw(&adamw, w, m, v, NULL, x, 1, 0, N));
  GB("sgd", 5 * N, k->sgd(&sgd, w, m, x, 1, 0, N));
}

static void bench_attention(const tsr_kernels *k, int64_t T, int64_t D, float dropout) {
  tsr_attention a = {
      .B = 1,
      .T = T,
      .H = 4,
      .G = 4,
      .D = D,
      .scale = 0.125f,
      .causal = true,
      .dropout = dropout,
      .key = 3,
      .heads_global = 4};
  double products = 0.5 * (double)(T * T * D * a.H);
  float *q = buffers[0], *key = buffers[1], *v = buffers[2], *out = buffers[3], *dk = buffers[4];
  float *dv = buffers[5], *dq = buffers[6], *stats = buffers[7];
  char name[64];
  void *scratch = malloc((size_t)k->attention_scratch(&a));
  if (!scratch) exit(1);
  snprintf(name, sizeof name, "attention %d %d%s", (int)T, (int)D, dropout == 0 ? "" : " drop");
  BENCH(name, 4 * products, "GFLOP/s", k->attention(&a, out, stats, q, key, v, scratch, 0, 4));
  snprintf(name, sizeof name, "  backward %d %d%s", (int)T, (int)D, dropout == 0 ? "" : " drop");
  BENCH(
      name, 10 * products, "GFLOP/s",
      k->attention_backward(&a, dq, dk, dv, out, q, key, v, out, stats, scratch, 0, 4));
  free(scratch);
}

static void bench_product(const tsr_kernels *k) {
  tsr_product p = {ROWS, WIDTH, WIDTH, {buffers[0], WIDTH, 1}, {buffers[1], 1, WIDTH}, buffers[2], WIDTH,
                   false, false};
  float *packed = buffers[3];
  BENCH("product, packing x", p.M * p.K * 4, "GB/s", k->product_pack(&p, packed, 0, p.M));
  BENCH(
      "product 1024x768x768", 2.0 * ROWS * WIDTH * WIDTH, "GFLOP/s",
      k->product(&p, packed, 0, p.N));
}

int main(int argc, char **argv) {
  for (int i = 0; i < 8; i++) {
    buffers[i] = malloc(sizeof(float) * LARGEST);
    if (!buffers[i]) return 1;
    for (int64_t j = 0; j < LARGEST; j++)
      buffers[i][j] = (float)((j * 2654435761u + (unsigned)i) >> 8 & 0xFFFF) / 16384.0f - 2.0f;
  }
  for (int i = 0; i < ROWS; i++) tokens[i] = (int32_t)((unsigned)i * 2654435761u >> 20);
  for (const char *const *name = tsr_kernels_levels(); *name; name++) {
    const tsr_kernels *k = tsr_kernels_get(*name);
    if (!k || (argc > 1 && strcmp(argv[1], *name))) continue;
    bench_product(k);
    bench_elementwise(k);
    bench_rows(k);
    bench_tokens(k);
    bench_random(k);
    bench_attention(k, 256, 64, 0);
    bench_attention(k, 1024, 64, 0);
    bench_attention(k, 1024, 64, 0.1f);
  }
  for (int i = 0; i < 8; i++) free(buffers[i]);
  return 0;
}
