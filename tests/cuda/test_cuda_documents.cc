// SPDX-License-Identifier: Apache-2.0
/* The GPU's attention inside documents: near the CPU's; of each document the bits that it has alone;
 * and of rows that a rank computes the bits that they have among all. Blocks, threads and fetches
 * come in opposite orders. */
#include "document_case.h"

int main() {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    float dropout;
    int64_t window;
    float soft_cap = 0;
  } list[] = {{1, 40, 2, 1, 16, true, 0, 0},       {2, 150, 2, 2, 64, true, 0, 0},
              {1, 132, 1, 1, 80, false, 0, 0},     {1, 200, 2, 1, 32, true, 0.1f, 0},
              {1, 160, 1, 1, 128, true, 0, 33},    {1, 96, 2, 1, 40, true, 0, 70},
              {1, 70, 2, 1, 16, true, 0, 0, 1.5f}, {1, 72, 2, 1, 256, true, 0, 9, 1.5f}};
  for (const auto &s : list) {
    tsr_attention a =
        attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, s.dropout, s.window, s.soft_cap);
    for (int again = 0; again < 2; again++) {
      check_documents(TSR_CUDA_F32, a);
      check_documents(TSR_CUDA_BF16, a);
    }
  }
  return check_done("cuda.documents");
}
