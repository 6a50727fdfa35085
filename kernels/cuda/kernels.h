// SPDX-License-Identifier: Apache-2.0
/* The GPU's kernels: the same math as kernels/kernels.h, under the same names, on pointers into one
 * device's memory. A call only puts work into a stream; nothing here allocates, waits or copies to
 * the host. Errors of a launch are the runtime's last error, which the caller asks for.
 *
 * The contract on bits: an output element is computed in an order that depends on its own sums
 * alone, never on how many rows there are or how many blocks run; there is no atomic addition of
 * floats. Sums over rows are made of runs of TSR_CUDA_ROWS rows, each added in its order, and the
 * runs are added by base/reduction_tree.h's tree.
 *
 * What changes from step to step is read from device memory, so that a captured step can be run
 * again: what the options below point to, `clip` (norm, factor, whether there is an update; or
 * NULL) and the `key` of a stream of random numbers.
 *
 * Letters as there: B batch, T sequence, C embedding, V vocabulary, H query heads, G key/value
 * heads, D head size, R rows, U units. `void *` arrays are of the `type` that stands before them,
 * all else is f32; arithmetic is f32, and a result is rounded once, when it is written. */
#ifndef TSR_KERNELS_CUDA_KERNELS_H
#define TSR_KERNELS_CUDA_KERNELS_H
#include "base/fp8_layout.h"
#include "base/norm_grid.h"
#include "base/quantized_layout.h"
#include "base/tensor_slice.h"
#include "kernels/members_sum.h"
#include "kernels/cuda/kernel_limits.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *tsr_cuda_stream;
typedef enum { TSR_CUDA_F32, TSR_CUDA_BF16, TSR_CUDA_F16 } tsr_cuda_type;

/* ---- elementwise.cu: n elements; an output may be one of the inputs ---- */
void tsr_cuda_add(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n);
void tsr_cuda_sub(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n);
void tsr_cuda_mul(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n);
void tsr_cuda_scale(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, float factor, int64_t n);
/* Of functions with tsr_cuda_has_unary. */
void tsr_cuda_unary(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *x, int64_t n);
void tsr_cuda_unary_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dx, const void *dy, const void *x,
    int64_t n);
/* out = function(gate) up; dgate and dup from dout */
void tsr_cuda_gated(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *gate,
    const void *up, int64_t n);
void tsr_cuda_gated_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dgate, void *dup, const void *dout,
    const void *gate, const void *up, int64_t n);
/* The same of kernels.h's clamped_swiglu: what is clamped has the gradient 0. */
void tsr_cuda_clamped_swiglu(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *out, const void *gate,
    const void *up, int64_t n);
void tsr_cuda_clamped_swiglu_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *dgate, void *dup,
    const void *dout, const void *gate, const void *up, int64_t n);
/* x (R, C) + row (C), x * row */
void tsr_cuda_add_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C);
void tsr_cuda_mul_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C);
/* out = x (R, C) + row (C) + plus (R, C), or gelu (by tanh) of that, in one pass with the bits of
 * one after the other; sum = x + row. sum, row, plus: or NULL. What is written may be what is read
 * at the same place. */
void tsr_cuda_epilogue(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, void *sum, const void *x, const void *row,
    const void *plus, bool gelu, int64_t R, int64_t C);

/* ---- cast.cu: from one type to another, to nearest even ---- */
void tsr_cuda_cast(
    tsr_cuda_stream s, tsr_cuda_type to, void *out, tsr_cuda_type from, const void *x, int64_t n);
/* The same of at most TSR_CUDA_CASTS arrays, in one launch. */
typedef struct {
  void *out;
  const void *x;
  int64_t n;
} tsr_cuda_cast_pair;
enum { TSR_CUDA_CASTS = 136 };
void tsr_cuda_casts(
    tsr_cuda_stream s, tsr_cuda_type to, tsr_cuda_type from, const tsr_cuda_cast_pair *pairs,
    int count);

/* ---- hash.cu: adds the hash of elements [begin, end) of x, a part of a tensor, to *sum
 * (base/tensor_hash.h). A dimension may be stored in blocks with padding (graph/padding.h). ---- */
typedef struct {
  int dim;
  int64_t real, blocks;
} tsr_cuda_padding;
void tsr_cuda_hash(
    tsr_cuda_stream s, tsr_cuda_type type, uint64_t *sum, const void *x,
    const tsr_tensor_slice *part, const tsr_cuda_padding *padding, int64_t begin, int64_t end);

/* ---- nf4.cu: out (rows, cols), which is aligned to 16 bytes, to nearest even ---- */
void tsr_cuda_nf4_decode(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const tsr_quantized_layout *layout,
    const void *data);

/* ---- fp8_quantize.cu: codes and scales (base/fp8_layout.h) of an operand, which a GEMM sums over
 * its rows (blocks of these, or squares) or over its columns. The bits are the CPU's; codes lie as
 * fp8_shape.h has them, aligned to 16 bytes. ---- */

/* `count` matrices of this layout, one behind the other: one, or the weights of experts. Or, where
 * it has runs, rows of experts, of which the device knows whose they are: run r of `count` has the
 * rows [starts[r], starts[r + 1]) of the layout's. A GEMM that sums over rows sums those of a run,
 * and blocks begin anew in each (fp8_shape.h); of a GEMM that sums over columns rows behind the
 * last run are left alone. */
typedef struct {
  tsr_fp8_layout layout;
  bool sums_rows, has_runs;
  int64_t count;
  const int32_t *starts; /* NULL: it has no runs */
} tsr_cuda_fp8_operand;
void tsr_cuda_fp8_quantize(
    tsr_cuda_stream s, tsr_cuda_type type, uint8_t *codes, float *scales, const void *x,
    const tsr_cuda_fp8_operand *operand);

/* ---- fp8_gemm.cu: c (M, N), of `type`, = A (M, K) B (K, N), added to c where `adds`. K is one
 * unit. Bits depend on the device and on K, not on M, N or the place in c. The error against the
 * same codes and scales in exact arithmetic is at most
 *   (TSR_CUDA_FP8_STEPS + 3 + blocks) 2^-24 * sum over k of |value_a[m,k] value_b[k,n]|,
 * before c is rounded to its type, where the tensor cores multiply halves (mma_fp8.cuh). NVIDIA
 * documents no bound: it is assumed that an instruction truncates each of its 16 products and the
 * sum before at 2^-23 of the largest of them. Where they multiply codes, it is assumed that 32
 * products are truncated at 2^-13, and the first term is TSR_CUDA_FP8_COARSE_STEPS. ---- */
enum { TSR_CUDA_FP8_STEPS = 128 / 16 * 17 * 2, TSR_CUDA_FP8_COARSE_STEPS = 128 / 32 * 33 << 11 };
/* An operand's first row in the unit, A's or B^T's: rows of codes are `stride` bytes apart. The
 * scale of block i of K and of row r is the one at i * k_stride + r * row_stride; where row_unit is
 * positive TSR_FP8_BLOCK rows have one, counted in each unit of so many. */
typedef struct {
  const uint8_t *codes;
  int64_t stride;
  const float *scales;
  int64_t k_stride, row_stride, row_unit;
} tsr_cuda_fp8_matrix;
typedef struct {
  int64_t M, N, K;
  tsr_cuda_fp8_matrix a, b;
  tsr_fp8_format a_format; /* b is in E4M3 */
  void *c;
  bool adds;
} tsr_cuda_fp8_gemm;
void tsr_cuda_run_fp8_gemm(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_fp8_gemm *p);

/* ---- norm.cu: rows (R, C); weights w, b are of `type` too, statistics f32 ---- */
/* x = from (R, C) + row (C) + plus (R, C), with the bits of one after the other; row: or NULL. x,
 * and a norm's y, may be what is read at the same place. */
typedef struct {
  const void *from, *row, *plus;
} tsr_cuda_summands;
/* `sum` NULL: x is given; else it is written first. RMS norm: times w + offset. */
void tsr_cuda_layernorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *mean, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, const void *b, int64_t R, int64_t C, float eps);
void tsr_cuda_rmsnorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, float offset, int64_t R, int64_t C, float eps);
/* dx is rounded, and `plus` (R, C) is added to it where that is not NULL. dx may be dy, x or
 * plus. */
void tsr_cuda_layernorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    const float *mean, const float *rstd, const void *plus, int64_t R, int64_t C);
void tsr_cuda_rmsnorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    float offset, const float *rstd, const void *plus, int64_t R, int64_t C);
void tsr_cuda_softmax(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, int64_t R, int64_t C);
void tsr_cuda_softmax_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *y, int64_t R,
    int64_t C);

/* ---- sums.cu ---- */
/* Row r of the sum is row row_first + r*row_step of x, `rows` of them; out (C) is f32. Scratch:
 * tsr_cuda_sum_rows_scratch bytes. */
void tsr_cuda_sum_rows(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *x, void *scratch, int64_t C,
    int64_t row_first, int64_t row_step, int64_t rows);
/* out = sum of dy * (x - mean) * rstd; mean NULL for rmsnorm. The same scratch. */
void tsr_cuda_norm_dw(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const void *x,
    const float *mean, const float *rstd, void *scratch, int64_t C, int64_t row_first,
    int64_t row_step, int64_t rows);
/* out (R, D) = the sum of x (R, units * heads * D) over its heads, in f32 and rounded once: those
 * of a unit one after the other, units by the tree. */
void tsr_cuda_sum_heads(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, int64_t R, int64_t D,
    int64_t heads, tsr_tree_shape tree, int64_t units);
/* out[0] = the sum of x (n): blocks of TSR_SUM_BLOCK elements, which the tree adds in double,
 * rounded once. Scratch: tsr_cuda_sum_scratch bytes. */
void tsr_cuda_sum(tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t n);

/* ---- embedding.cu ---- */
/* out (R, C): table row tokens[r] - v_begin where v_begin <= tokens[r] < v_end, else zeros; -0
 * becomes +0. The table may be of another type, where one of the two is f32. */
void tsr_cuda_embedding(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const int32_t *tokens,
    tsr_cuda_type table_type, const void *table, int64_t R, int64_t C, int64_t v_begin,
    int64_t v_end);
/* dtable (v_end - v_begin, C) in f32, wholly written, as in kernels/kernels.h: no atomics.
 * Scratch holds the tokens' counting sort: rows with one token in their order, by passes whose
 * result does not depend on timing: tsr_cuda_embedding_scratch bytes. */
void tsr_cuda_embedding_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float *dtable, const int32_t *tokens, const void *dout,
    const int32_t *row_of, void *scratch, int64_t R, int64_t C, int64_t v_begin, int64_t v_end,
    int64_t padding, tsr_tree_shape tree, int64_t units, int64_t inner);

/* For it, where the rows of a unit are no neighbours: the tokens (rows) unit by unit, and which row
 * each is of. The rows are those of `ndim` dimensions, row-major; each is split into as many equal
 * intervals as it has units of the batch and, inside those, of positions (1: none). A unit has one
 * interval of each dimension; `leaves` units follow one another, the batch's outermost, each with
 * `sequence` units of positions in the order of the tree's leaves (base/sequence_layout.h). */
typedef struct {
  int ndim;
  int64_t size[5], batch[5], positions[5];
  int64_t rows, leaves, sequence;
  bool zigzag;
} tsr_cuda_leaves;
void tsr_cuda_rows_by_leaves(
    tsr_cuda_stream s, int32_t *by_leaves, int32_t *row_of, const int32_t *tokens,
    const tsr_cuda_leaves *leaves);

/* ---- rope.cu: table (T, rotary/2, 2) in f32; x (B, T, H*D); y may be x ---- */
void tsr_cuda_rope(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table, int64_t B,
    const tsr_rope *rope);
/* The positions of sequence b begin at positions[b]; the table has `rows` positions, and tokens
 * behind them (which are not real) take the last one. */
void tsr_cuda_rope_cached(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table,
    const int32_t *positions, int64_t rows, int64_t B, const tsr_rope *rope);

/* ---- loss.cu; logits (R, V_local) are f32 ---- */
void tsr_cuda_softmax_stats(
    tsr_cuda_stream s, float *stats, const float *logits, const int32_t *targets, int64_t R,
    int64_t V_local, int64_t v_begin, int64_t v_valid, int64_t units);
void tsr_cuda_softmax_loss(
    tsr_cuda_stream s, float *row_loss, float *row_stats, const float *stats,
    const int32_t *targets, int64_t R, int64_t units);
/* `factor` is read from device memory, times `more` where that is not NULL. dlogits is of `type`,
 * rounded once; in f32 it may be logits. */
void tsr_cuda_softmax_loss_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dlogits, const float *logits,
    const float *row_stats, const int32_t *targets, const float *factor, const float *more,
    int64_t R, int64_t V_local, int64_t v_begin, int64_t v_valid);
/* row_loss (R) = sum over C of (x - y)^2; dx = 2 (x - y) * factor * *more (NULL: 1) */
void tsr_cuda_squared_error(
    tsr_cuda_stream s, float *row_loss, const float *x, const float *y, int64_t R, int64_t C);
void tsr_cuda_squared_error_backward(
    tsr_cuda_stream s, float *dx, const float *x, const float *y, float factor, const float *more,
    int64_t n);

/* ---- dropout.cu: Philox4x32-10, element index = row-major index in slice->global; *key in device
 * memory; numbers have the bits of the CPU's generator before they are transformed ---- */
void tsr_cuda_dropout(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, float p, const uint64_t *key,
    const tsr_tensor_slice *slice);

/* ---- optimizer.cu: updates of many weights in one launch; `clip` as above ---- */
typedef struct {
  float beta1, beta2, eps;
  bool coupled; /* Adam: the decay is added to the gradient */
  const float *lr, *correction1, *correction2, *clip;
} tsr_cuda_adamw_options;
typedef struct {
  float momentum, dampening;
  bool nesterov;
  const float *lr, *first, *clip; /* *first != 0: the momentum takes the gradient as it is */
} tsr_cuda_sgd_options;
/* How the update of a weight in bf16 ends (tsr_rounding); *key in device memory. */
typedef struct {
  tsr_rounding_kind kind;
  const uint64_t *key;
  tsr_tensor_slice slice;
  uint16_t *compensation;
} tsr_cuda_rounding;
/* A weight of n elements, f32 or bf16, and what its update reads and writes. SGD: m is the
 * momentum, or NULL, and v is not looked at. */
typedef struct {
  void *w;
  float *m, *v, *v_max; /* v_max: of all weights of a call, or of none (NULL) */
  const float *grad;
  int64_t n;
  float weight_decay;
} tsr_cuda_weight;
/* `count` weights, any number: a launch takes up to TSR_CUDA_WEIGHTS in f32, which is where
 * `roundings` is NULL, and a third of that in bf16: a rounding a weight. */
enum { TSR_CUDA_WEIGHTS = 48 };
void tsr_cuda_adamw(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count);
void tsr_cuda_sgd(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count);

/* ---- gradient_norm.cu ---- */
/* out (units, pieces) = the sum of squares of each rectangle of x (base/norm_grid.h), 0 of one
 * without elements: blocks of TSR_SUM_BLOCK elements of its row-major order, which the tree adds in
 * double, rounded once. */
typedef struct {
  const float *x;
  float *out;
  tsr_norm_grid grid;
} tsr_cuda_gradient;
/* Of at most TSR_CUDA_GRADIENTS gradients, in one launch, and one more where rectangles have
 * several blocks. Scratch: tsr_cuda_gradient_scratch bytes for each. */
enum { TSR_CUDA_GRADIENTS = 34 };
void tsr_cuda_gradient_squares(
    tsr_cuda_stream s, const tsr_cuda_gradient *gradients, int count, void *scratch);
/* Columns (units, pieces) side by side: out[u][k][i] = column i's [u][k], 0 from its `pieces` on,
 * of an out (units, rows, n) at its first column of these. At most TSR_CUDA_COLUMNS. */
typedef struct {
  const float *x;
  int64_t pieces;
} tsr_cuda_column;
enum { TSR_CUDA_COLUMNS = 248 };
void tsr_cuda_join_columns(
    tsr_cuda_stream s, float *out, const tsr_cuda_column *columns, int count, int64_t units,
    int64_t rows, int64_t n);
/* clip (3): from stats (pieces, n), each column added by the tree, in double; loss_scale may be
 * NULL */
void tsr_cuda_clip(
    tsr_cuda_stream s, float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale);

/* ---- attention.cu (tsr_attention of kernels/kernels.h, but for `key`: *key in device memory, NULL
 * without dropout); sinks are f32 ---- */
void tsr_cuda_attention(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v);
/* The same with wgmma (attention_wgmma.cu): where tsr_cuda_has_wgmma, of calls that
 * attention_wgmma_can (attention_shape.h). Results agree to rounding; documents in a sequence and
 * rows of a rank have the bits that they have alone, as those of the other kernels. A NaN or an
 * infinity in the values of a document may become NaNs in others of its sequence. */
void tsr_cuda_attention_wgmma(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *out, float *stats,
    const void *q, const void *k, const void *v);
/* Whether it can be launched on this thread's device: there is code for the device, and the driver
 * encodes tensor maps. */
bool tsr_cuda_has_wgmma(void);
/* d (B,T,H) by the sink of each row's head: -exp(sink - maximum) / sum * dout . out. */
void tsr_cuda_attention_sinks_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *d, const void *dout,
    const void *out, const float *stats);
/* Scratch: tsr_cuda_attention_scratch bytes. */
void tsr_cuda_attention_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const void *out, const float *stats, void *scratch);
/* The same with wgmma (attention_wgmma_backward.cu), as tsr_cuda_attention_wgmma. */
void tsr_cuda_attention_wgmma_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const void *out,
    const float *stats, void *scratch);
/* attention_ring.cu: a sum over the units of a sequence, of which members may have parts
 * (tsr_attention_ring of kernels/kernels.h, which see for the steps; but for `key`, as above). With
 * one unit the bits are those of attention, and else they depend on the units alone. An acc, and
 * the scratch of a step, which begins empty, are of tsr_cuda_attention_ring_acc and
 * tsr_cuda_attention_ring_scratch bytes. */
void tsr_cuda_attention_ring(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *q, const void *k, const void *v, void *scratch);
void tsr_cuda_attention_ring_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *out, float *stats,
    const float *acc);
void tsr_cuda_attention_ring_rows(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, float *rows,
    const void *dout, const void *out, const float *stats);
void tsr_cuda_attention_ring_dq(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const void *k, const void *v, const float *rows,
    void *scratch);
void tsr_cuda_attention_ring_dq_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dq, const float *acc);
void tsr_cuda_attention_ring_dkv(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const float *rows, const void *k, const void *v,
    void *scratch);
void tsr_cuda_attention_ring_dkv_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dk, void *dv,
    const float *acc);
/* positions, counts and pages are in device memory. */
void tsr_cuda_attention_cached(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_cached *c, void *out, const void *q,
    const void *keys, const void *values);

/* ---- kv_cache.cu: rows of `bytes` each, for C new tokens of each sequence b < B, of which the
 * first counts[b] are real and stand at positions[b] and on; both in device memory ---- */
/* The pages of each sequence, (B, each) in device memory; positions of one. */
typedef struct {
  const int32_t *of;
  int64_t page, each;
} tsr_cuda_pages;
/* The real rows of x (B,C) go to their positions in the pool out (pages,page); the rest stays. */
void tsr_cuda_kv_cache_append(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *positions, const int32_t *counts,
    const tsr_cuda_pages *pages, int64_t bytes, int64_t B, int64_t C);
/* out (B,C) = the rows first + position of a table of `rows`; behind its end, the last one. */
void tsr_cuda_gather_rows(
    tsr_cuda_stream s, void *out, const void *table, const int32_t *positions, int64_t bytes,
    int64_t B, int64_t C, int64_t rows, int64_t first);
/* out (B) = the last real row of each sequence of x (B,C); the first one where none is. */
void tsr_cuda_slice_last(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *counts, int64_t bytes, int64_t B,
    int64_t C);

/* ---- data_movement.cu: elements of `bytes` each, a power of 2 up to 16 ---- */
void tsr_cuda_zero(tsr_cuda_stream s, void *out, int64_t bytes);
/* Element (i0, i1, …) of `shape` goes from x[i0*x_step0 + i1*x_step1 + …] to out in its steps;
 * steps NULL: row-major. */
void tsr_cuda_move(
    tsr_cuda_stream s, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape);
/* out[i] = x at the index that `step` leads to: out has `shape` (row-major), its element (i0, i1,
 * …) is x[start + i0*step0 + i1*step1 + …]. Transposes, slices and parts of a dimension are this.
 */
void tsr_cuda_gather(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start);
/* The other way: x (row-major, `shape`) goes to out[start + i0*step0 + …]; the rest of out stays.
 */
void tsr_cuda_scatter(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start);

/* ---- collective.cu: between ranks whose memory is on the device ---- */
enum { TSR_CUDA_MEMBERS_MAX = 256 };
/* Of at most so many outs and members. */
void tsr_cuda_sum_members(tsr_cuda_stream s, const tsr_members_sum *sum);

#ifdef __cplusplus
}
#endif
#endif
