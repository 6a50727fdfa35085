// SPDX-License-Identifier: Apache-2.0
/* How CUDA tasks divide their scratch. Each layout is made with the address of the scratch, or with
 * NULL for its size alone. The target sizes tasks with them, the plugin runs tasks with them. */
#ifndef TSR_DEVICE_CUDA_SCRATCH_H
#define TSR_DEVICE_CUDA_SCRATCH_H
#include "device/arguments.h"
#include "kernels/cuda/kernel_limits.h"
#include "kernels/cuda/kernels.h"

/* Pieces of a scratch begin at multiples of this. */
static inline int64_t cuda_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Sums of GEMMs (linear, linear_dx, linear_dw, matmul): where several results are added and then
 * rounded to half precision, the sum in f32; then the stack of leaves; then the operands in FP8, or
 * what a call copies its operands to if the library's algorithm refuses them (gemm_calls.h). */
typedef struct {
  float *wide; /* NULL: the sum is made in the output */
  float *stack;
  void *operands; /* NULL: none are quantised, and no call has any that can be refused */
  int64_t bytes;
} cuda_matmul_scratch;
cuda_matmul_scratch cuda_matmul_scratch_at(const tsr_task_call *call, char *at);

/* Input i of a task that quantises its operands, in `operands` above or of experts'. */
typedef struct {
  tsr_cuda_fp8_operand of; /* its starts are NULL: the task's scratch has them */
  uint8_t *codes;          /* kernels/cuda/fp8_shape.h */
  float *scales;
} cuda_fp8_operand;
cuda_fp8_operand cuda_fp8_operand_at(const tsr_task *task, int i, char *operands);

/* Of a logits_gradient (schedule/fuse.h): the gradient of the logits, in front of what the GEMMs
 * need one after the other. */
tsr_tensor cuda_logits_gradient_at(const tsr_task *task);
/* A task that it covers, which writes or reads that gradient and has the scratch behind it. */
typedef struct {
  tsr_task task;
  tsr_tensor gradient, inputs[4];
} cuda_gradient_task;
void cuda_gradient_task_of(
    const tsr_task *covered, bool writes, const tsr_tensor *gradient, cuda_gradient_task *ret);

/* Attention over the units of whole sequences. */
typedef struct {
  float *first, *dkv, *rows; /* the sums of dq (or out) and of dkv, and three numbers a row */
  void *kernel;
  int64_t bytes;
} cuda_attention_scratch;
cuda_attention_scratch
cuda_attention_scratch_at(const tsr_attention_ring *r, bool backward, char *at);

/* The sum that a step of ring attention adds to. */
tsr_attention_sum cuda_ring_sum_of(tsr_op op);

/* Losses: the rows' losses, one run's sum, the stack of leaves, and the kernel's. */
typedef struct {
  int64_t rows;
  float *row_loss, *part, *stack;
  void *kernel;
  int64_t bytes;
} cuda_loss_scratch;
cuda_loss_scratch cuda_loss_scratch_at(const tsr_task *task, char *at);

/* Sums over rows (sum_to, norm_dw): one run's sum, the stack of leaves, and the kernel's. */
typedef struct {
  int64_t C; /* of a row */
  float *part, *stack;
  void *kernel;
  int64_t bytes;
} cuda_row_sum_scratch;
cuda_row_sum_scratch cuda_row_sum_scratch_at(const tsr_task *task, char *at);

/* An embedding's gradient: the kernel's; where a leaf's rows are no neighbours in the inputs, also
 * the tokens leaf by leaf, and the row of each. */
typedef struct {
  void *kernel;
  int32_t *tokens, *row_of; /* NULL: they are neighbours */
  int64_t bytes;
} cuda_embedding_scratch;
cuda_embedding_scratch cuda_embedding_scratch_at(const tsr_task *task, char *at);

/* The linear layers of experts: where several results are added and then rounded to half
 * precision, the sum in f32; the stack of leaves; where the rows of experts, or of experts and
 * batch units, and the tiles of rows begin (kernels/cuda/experts.h); and the operands in FP8. */
typedef struct {
  float *wide; /* NULL: the sum is made in the output */
  float *stack;
  int32_t *starts, *tiles; /* tiles NULL: the tiles are those of weights */
  void *operands;          /* NULL: none are quantised */
  int64_t bytes;
} cuda_expert_scratch;
cuda_expert_scratch
cuda_expert_scratch_at(const tsr_program *program, const tsr_task *task, char *at);

/* Of any task but a linear_cross_entropy (classifier_tiles.h). */
int64_t cuda_scratch_bytes(const tsr_program *program, const tsr_task *task);

#endif
