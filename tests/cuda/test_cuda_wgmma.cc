// SPDX-License-Identifier: Apache-2.0
/* The GPU's attention with wgmma: near the CPU's, with bits that neither the order of blocks,
 * threads and copies changes nor what is beside a sequence, a group of heads, a document or a rank's
 * rows. */
#include "document_case.h"

static void test_calls(void) {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    int64_t window = 0;
    float soft_cap = 0;
  } list[] = {
      {1, 401, 1, 1, 128, true},
      {1, 520, 1, 1, 64, false},
      {2, 1, 1, 1, 64, true},
      {1, 5, 3, 1, 128, true},
      {1, 65, 6, 2, 64, true},
      {1, 128, 1, 1, 128, false},
      {1, 130, 2, 1, 64, false},
      {2, 129, 2, 1, 128, true},
      {1, 300, 1, 1, 64, true},
      {1, 300, 2, 1, 64, true, 7},
      {1, 300, 1, 1, 128, true, 70},
      {2, 270, 2, 2, 64, true, 129},
      {2, 70, 2, 1, 64, true, 1},
      {1, 150, 4, 2, 64, true, 0, 1.5f},
      {1, 140, 2, 1, 128, false, 0, 0.8f}};
  int n = 0;
  for (const auto &s : list) {
    tsr_attention a = attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, 0, s.window, s.soft_cap);
    check_call(TSR_CUDA_BF16, a, {}, true);
    if (n++ % 3 == 0) check_call(TSR_CUDA_F16, a, {}, true);
  }
}

static void test_sinks(void) {
  const numbers sinks = {0.3f, 95, -120, 1.7f};
  check_call(TSR_CUDA_BF16, attention_of(1, 130, 4, 2, 64, true, 0), sinks, true);
  check_call(TSR_CUDA_F16, attention_of(1, 200, 4, 1, 128, true, 0, 70), sinks, true);
}

static void test_documents(void) {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    int64_t window;
  } list[] = {
      {2, 150, 2, 2, 64, true, 0},
      {1, 300, 2, 1, 64, true, 33},
      {1, 132, 1, 1, 128, false, 0},
      {1, 400, 1, 1, 128, true, 0}};
  for (const auto &s : list)
    for (int again = 0; again < 2; again++)
      check_documents(
          TSR_CUDA_BF16, attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, 0, s.window), true);
}

int main() {
  needs_architecture(9, 0);
  test_calls();
  test_sinks();
  test_documents();
  return check_done("cuda.wgmma");
}
