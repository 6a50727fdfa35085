// SPDX-License-Identifier: Apache-2.0
/* The GPU decodes NF4 to the bits that the CPU decodes it to. */
#include "cuda_check.h"
#include "kernels/quantize.h"

static numbers cpu_decoded(tsr_cuda_type type, const tsr_quantized_layout &l, const void *data) {
  static const tsr_element rounds[] = {TSR_ELEMENT_F32, TSR_ELEMENT_BF16, TSR_ELEMENT_F16};
  tsr_quantized x = {
      data, l, type == TSR_CUDA_F32 ? rounds[0] : rounds[type == TSR_CUDA_BF16 ? 1 : 2]};
  numbers y((size_t)(l.rows * l.cols));
  cpu->quantized_to_f32(y.data(), &x, 0, l.rows * l.cols);
  return y;
}

static void check_layout(const tsr_quantized_layout &l) {
  numbers w = random_numbers(l.rows * l.cols, 0.1f);
  integers bytes((size_t)(tsr_quantized_bytes(&l) + 3) / 4);
  for (int64_t i = 0; i < TSR_QUANTIZED_BLOCK; i++) w[(size_t)i] = 0;
  tsr_quantize(&l, bytes.data(), w.data());
  for (tsr_cuda_type type : {TSR_CUDA_F32, TSR_CUDA_BF16, TSR_CUDA_F16}) {
    call_arrays arrays;
    arrays.shift = 0;
    void *out = arrays.out(type, l.rows * l.cols);
    tsr_cuda_nf4_decode(NULL, type, out, &l, arrays.in(bytes));
    finish_work();
    for (const array &x : arrays.all) CHECK(array_intact(&x));
    check_same(
        "decoded", numbers_get(type, out, l.rows * l.cols), cpu_decoded(type, l, bytes.data()));
  }
}

int main() {
  check_layout({1, 64, 1, 64, TSR_QUANTIZED_NF4});
  check_layout({7, 128, 7, 128, TSR_QUANTIZED_NF4});
  check_layout({96, 320, 96, 320, TSR_QUANTIZED_NF4});
  check_layout({96, 320, 24, 320, TSR_QUANTIZED_NF4});
  check_layout({30, 384, 15, 192, TSR_QUANTIZED_NF4});
  check_layout({30, 384, 30, 64, TSR_QUANTIZED_NF4});
  return check_done("cuda.nf4");
}
