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

static pthread_once_t runtime_once = PTHREAD_ONCE_INIT;
static rntm_t runtime;
static const tsr_kernels *selected;

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
