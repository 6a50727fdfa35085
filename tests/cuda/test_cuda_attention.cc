// SPDX-License-Identifier: Apache-2.0
/* The GPU's attention against the CPU's: forward and backward, in f32 and, by the tensor cores'
 * fragments, in halves. */
#include "attention_case.h"

static void test_f32(void) {
  static const int64_t lengths[] = {1, 5, 64, 65, 130}, widths[] = {16, 64, 80, 128};
  for (int64_t T : lengths)
    for (int64_t D : widths)
      for (int way = 0; way < 4; way++) {
        int64_t G = way == 1 && T < 100 ? 2 : 1, H = way % 2 ? 3 * G : 1;
        tsr_attention a =
            attention_of(G == 1 && T < 100 ? 2 : 1, T, H, G, D, way != 2, way > 1 ? 0.1f : 0);
        check_call(TSR_CUDA_F32, a);
      }
  check_call(TSR_CUDA_F32, attention_of(2, 70, 2, 1, 3, true, 0.1f));
  check_call(TSR_CUDA_F32, attention_of(1, 70, 1, 1, 130, false, 0));
  check_call(TSR_CUDA_F32, attention_of(1, 67, 2, 1, 256, true, 0.1f));
  check_call(TSR_CUDA_F32, attention_of(2, 20, 2, 1, 8, true, 0, 1));
  check_call(TSR_CUDA_F32, attention_of(1, 200, 2, 1, 16, true, 0.1f, 5));
  check_call(TSR_CUDA_F32, attention_of(1, 150, 1, 1, 80, true, 0, 64));
  check_call(TSR_CUDA_F32, attention_of(1, 130, 1, 1, 64, true, 0, 129));
}

static void test_halves(void) {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    float dropout;
    int64_t window = 0;
  } list[] = {{2, 1, 1, 1, 64, true, 0},          {1, 5, 3, 1, 128, true, 0.1f},
              {2, 64, 1, 1, 16, true, 0},         {1, 65, 6, 2, 64, true, 0},
              {1, 65, 1, 1, 80, false, 0.1f},     {1, 130, 1, 1, 64, false, 0},
              {1, 130, 3, 1, 128, true, 0},       {2, 130, 1, 1, 96, true, 0.1f},
              {1, 130, 1, 1, 128, false, 0.1f},   {1, 200, 1, 1, 40, true, 0.1f},
              {1, 70, 2, 1, 36, true, 0.1f},      {1, 40, 1, 1, 160, false, 0},
              {1, 1, 1, 1, 256, true, 0},         {1, 130, 2, 1, 256, true, 0},
              {2, 17, 1, 1, 192, false, 0},       {1, 67, 2, 2, 232, true, 0.1f},
              {1, 70, 1, 1, 256, true, 0, 20},    {1, 200, 2, 1, 64, true, 0, 7},
              {1, 150, 1, 1, 96, true, 0.1f, 64}, {1, 200, 1, 1, 128, true, 0, 70},
              {2, 70, 2, 1, 40, true, 0, 1}};
  int n = 0;
  for (const auto &s : list) {
    tsr_attention a = attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, s.dropout, s.window);
    check_call(TSR_CUDA_BF16, a);
    if (n++ % 3 == 0) check_call(TSR_CUDA_F16, a);
  }
}

static void test_soft_caps(void) {
  check_call(TSR_CUDA_F32, attention_of(2, 70, 4, 2, 16, true, 0.1f, 0, 1.5f));
  check_call(TSR_CUDA_F32, attention_of(1, 67, 2, 1, 256, true, 0, 20, 0.8f));
  check_call(TSR_CUDA_F32, attention_of(1, 40, 1, 1, 16, false, 0, 0, 0.8f));
  for (int64_t D : {24, 64, 80, 96, 128, 192, 256})
    check_call(TSR_CUDA_BF16, attention_of(1, 70, 1, 1, D, true, 0, 0, 1.5f));
  check_call(TSR_CUDA_BF16, attention_of(1, 70, 2, 1, 64, true, 0.1f, 0, 1.5f));
  check_call(TSR_CUDA_BF16, attention_of(2, 33, 4, 2, 256, true, 0.1f, 12, 0.8f));
  check_call(TSR_CUDA_F16, attention_of(1, 65, 2, 1, 128, false, 0, 0, 0.5f));
  check_call(TSR_CUDA_F16, attention_of(2, 37, 2, 2, 256, false, 0, 0, 50));
}

/* Far below and above the scores, and among them. */
static void test_sinks(void) {
  const numbers sinks = {0.3f, 95, -120, 1.7f};
  check_call(TSR_CUDA_F32, attention_of(2, 70, 4, 2, 16, true, 0.1f), sinks);
  check_call(TSR_CUDA_F32, attention_of(1, 40, 4, 1, 160, false, 0), sinks);
  check_call(TSR_CUDA_BF16, attention_of(1, 130, 4, 2, 64, true, 0.1f), sinks);
  check_call(TSR_CUDA_BF16, attention_of(1, 200, 4, 1, 128, true, 0, 70), sinks);
  check_call(TSR_CUDA_F16, attention_of(2, 65, 4, 4, 64, true, 0, 20), sinks);
  check_call(TSR_CUDA_BF16, attention_of(1, 40, 4, 2, 256, true, 0, 20, 1.5f), sinks);
}

/* Heads of values of another width, as multi-head latent attention has them. */
static void test_values(void) {
  const numbers sinks = {0.3f, 5, -20, 1.7f};
  check_call(TSR_CUDA_F32, with_values(attention_of(2, 70, 4, 2, 24, true, 0.1f), 16));
  check_call(TSR_CUDA_F32, with_values(attention_of(1, 67, 2, 1, 16, false, 0), 100));
  check_call(TSR_CUDA_F32, with_values(attention_of(1, 67, 2, 2, 192, true, 0), 128));
  check_call(TSR_CUDA_F32, with_values(attention_of(1, 33, 4, 4, 3, true, 0, 20, 1.5f), 5), sinks);
  check_call(TSR_CUDA_BF16, with_values(attention_of(1, 130, 3, 3, 192, true, 0), 128));
  check_call(
      TSR_CUDA_BF16, with_values(attention_of(2, 70, 4, 2, 192, true, 0.1f, 20), 128), sinks);
  check_call(TSR_CUDA_BF16, with_values(attention_of(1, 100, 4, 2, 24, true, 0.1f), 16));
  check_call(TSR_CUDA_F16, with_values(attention_of(1, 65, 2, 1, 96, false, 0), 64));
  check_call(TSR_CUDA_F16, with_values(attention_of(1, 65, 2, 1, 64, true, 0), 128));
  check_call(TSR_CUDA_BF16, with_values(attention_of(1, 40, 2, 2, 64, true, 0), 160));
  check_call(
      TSR_CUDA_BF16, with_values(attention_of(2, 40, 2, 1, 256, true, 0.1f, 12), 24), {3, 1});
  check_call(TSR_CUDA_F16, with_values(attention_of(1, 67, 2, 2, 192, true, 0, 0, 1.5f), 128));
}

int main() {
  test_f32();
  test_halves();
  test_soft_caps();
  test_sinks();
  test_values();
  return check_done("cuda.attention");
}
