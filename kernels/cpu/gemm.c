/* The matrix product: BLIS's typed expert interface with a runtime object of our own. */
#include "kernels/kernels.h"
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include <blis.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

static pthread_once_t runtime_once = PTHREAD_ONCE_INIT, depth_once = PTHREAD_ONCE_INIT;
static rntm_t runtime;
static const tsr_kernels *selected;
static int64_t depth;

/* BLIS chooses its kernels by the CPU's name, so it takes an AVX-512 machine that is newer than
 * itself for a Haswell, and the bits would depend on its guess. The environment variable, which
 * holds the number of an arch_t, is the only way to tell it. A BLIS built without that arch
 * chooses. */
static void arch_set(const char *isa) {
  int arch = -1;
#if defined(BLIS_CONFIG_SKX)
  if (!strcmp(isa, "x86-64-v4")) arch = BLIS_ARCH_SKX;
#endif
#if defined(BLIS_CONFIG_HASWELL)
  if (!strcmp(isa, "x86-64-v3")) arch = BLIS_ARCH_HASWELL;
#endif
#if defined(BLIS_CONFIG_GENERIC)
  if (!strcmp(isa, "x86-64")) arch = BLIS_ARCH_GENERIC;
#endif
  if (arch < 0) return;
  char number[16];
  snprintf(number, sizeof number, "%d", arch);
  setenv("BLIS_ARCH_TYPE", number, 1);
}

/* BLIS's small-matrix path orders the sum over K by the shape of the call; the usual path does
 * not. */
static void runtime_make(void) {
  arch_set(selected ? selected->isa : tsr_kernels_get(NULL)->isa);
  bli_init();
  bli_rntm_init(&runtime);
  bli_rntm_set_num_threads(1, &runtime);
  bli_rntm_disable_l3_sup(&runtime);
}

void tsr_gemm_select(const tsr_kernels *level) {
  selected = level;
  pthread_once(&runtime_once, runtime_make);
}

void tsr_gemm(
    int64_t M, int64_t N, int64_t K, float alpha, tsr_matrix a, tsr_matrix b, float beta, float *c,
    int64_t c_rs, int64_t c_cs) {
  pthread_once(&runtime_once, runtime_make);
  rntm_t local = runtime; /* BLIS writes into it */
  bli_sgemm_ex(
      BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, M, N, K, &alpha, (float *)(uintptr_t)a.data, a.rs, a.cs,
      (float *)(uintptr_t)b.data, b.rs, b.cs, &beta, c, c_rs, c_cs, NULL, &local);
}

/* ---- the chain of an element's sum, found out by trying ---- */

enum { TRIAL_R = 3, TRIAL_N = 37, TRIAL_K = 2085 };
typedef struct {
  float x[TRIAL_R * TRIAL_K], w[TRIAL_N * TRIAL_K];
} trial;

static void fill_trial(float *x, int64_t n) {
  uint32_t words[4];
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0) tsr_philox((uint64_t)i / 4, 0, (uint64_t)n, words);
    x[i] = (float)(words[i % 4] >> 8) * 0x1p-23f - 1;
  }
}

/* Whether few_rows with that depth has the bits of a product (R, K) by (N, K). */
static bool has_bits(const trial *t, int64_t R, int64_t N, int64_t K, int64_t tried) {
  const tsr_kernels *k = selected ? selected : tsr_kernels_get(NULL);
  tsr_few_rows p = {R, K, TRIAL_K, TRIAL_K, N, tried};
  float want[TRIAL_R * TRIAL_N], got[TRIAL_R * TRIAL_N];
  tsr_matrix x = {t->x, TRIAL_K, 1}, w = {t->w, 1, TRIAL_K};
  tsr_gemm(R, N, K, 1, x, w, 0, want, N, 1);
  k->few_rows(&p, got, t->x, t->w, 0, N);
  return !memcmp(got, want, sizeof *got * (size_t)(R * N));
}

static void depth_find(void) {
  static const int64_t sizes[] = {7, 128, 500, 1100, TRIAL_K};
  static trial t; /* too large for a stack */
  fill_trial(t.x, TRIAL_R * TRIAL_K);
  fill_trial(t.w, TRIAL_N * TRIAL_K);
  for (int64_t tried = 64; tried <= 1024 && !depth; tried += 8)
    if (has_bits(&t, 1, 4, TRIAL_K, tried)) depth = tried;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && depth; i++)
    for (int64_t R = 1; R <= TRIAL_R; R++)
      if (depth && !has_bits(&t, R, TRIAL_N, sizes[i], depth)) depth = 0;
}

int64_t tsr_gemm_depth(void) {
  pthread_once(&depth_once, depth_find);
  return depth;
}
