/* The matrix product, by cuBLASLt. Each shape's algorithm is chosen once, by the library's
 * heuristic, and kept; a call of the same shape then has the same bits, which is all that the
 * contract on bits asks of it: sums that an axis can split, and rows and columns that it splits,
 * are made by calls whose shape is fixed by the recipe (device/cuda_products.c). */
#ifndef TSR_KERNELS_CUDA_PRODUCT_H
#define TSR_KERNELS_CUDA_PRODUCT_H
#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_cuda_blas tsr_cuda_blas;

/* One operand: element (i, j) is data[i * stride + j], or where it is turned data[j * stride + i].
 */
typedef struct {
  const void *data;
  int64_t stride;
  bool turned;
} tsr_cuda_matrix;

/* c (M, N) = a (M, K) b (K, N), added to c where `adds`, and with the row `bias` (N), of c's type,
 * added where that is not NULL; `count` of them, `step`s of elements apart. a and b are of `type`; c
 * too, or f32. */
typedef struct {
  int64_t M, N, K;
  tsr_cuda_type type, c_type;
  tsr_cuda_matrix a, b;
  void *c;
  int64_t c_stride;
  const void *bias;
  bool adds;
  int count; /* >= 1 */
  int64_t a_step, b_step, c_step;
} tsr_cuda_product;

/* On the current device, with a workspace of its own. `fast`: products of f32 may be rounded to
 * TF32. `why` gets the reason of a failure (512 bytes). */
bool tsr_cuda_blas_open(bool fast, tsr_cuda_blas **ret_blas, char *why);
void tsr_cuda_blas_close(tsr_cuda_blas *blas);
/* False: no algorithm for that shape; tsr_cuda_blas_error says why. */
bool tsr_cuda_run_product(tsr_cuda_blas *blas, tsr_cuda_stream stream, const tsr_cuda_product *p);
const char *tsr_cuda_blas_error(const tsr_cuda_blas *blas);

#ifdef __cplusplus
}
#endif
#endif
