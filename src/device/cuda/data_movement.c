// SPDX-License-Identifier: Apache-2.0
/* Ops that move elements: each is a walk through the input, or through the output, in steps. */
#include "device/cuda/ops.h"
#include <string.h>

static int bytes_of(const cuda_call *c) { return (int)tsr_dtype_bytes(cuda_y(c, 0)->dtype); }

static void gather(const cuda_call *c, const int64_t *step, int64_t start) {
  const tsr_tensor *y = cuda_y(c, 0);
  tsr_cuda_gather(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), bytes_of(c), y->ndim, y->shape, step, start);
}

static void transpose_run(const cuda_call *c) {
  int64_t step[TSR_DIMS_MAX];
  int a = cuda_attrs(c)->transpose.dim0, b = cuda_attrs(c)->transpose.dim1;
  tsr_tensor_strides(cuda_x(c, 0), step);
  int64_t kept = step[a];
  step[a] = step[b];
  step[b] = kept;
  gather(c, step, 0);
}
const cuda_op cuda_transpose = transpose_run;

static void slice_run(const cuda_call *c) {
  int64_t step[TSR_DIMS_MAX];
  tsr_tensor_strides(cuda_x(c, 0), step);
  gather(c, step, cuda_attrs(c)->slice.begin * step[cuda_attrs(c)->slice.dim]);
}
const cuda_op cuda_slice = slice_run;

/* Positions that lie in two runs: each run is a part of its own, of input and output alike. */
static void scatter_halves(const cuda_call *c, int dim) {
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  int64_t in[TSR_DIMS_MAX], out[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
  tsr_tensor_strides(x, in);
  tsr_tensor_strides(y, out);
  memcpy(shape, y->shape, sizeof shape);
  int64_t half = shape[dim] /= 2, outer = 1;
  for (int d = 0; d < dim; d++) outer *= y->shape[d];
  for (int64_t o = 0; o < outer; o++)
    for (int side = 0; side < 2; side++) {
      int64_t from = tsr_sequence_position(
          true, (int)c->call.program->lowering.size[TSR_CP], c->call.rank->coord[TSR_CP],
          y->shape[dim], side * half);
      int64_t to = (o * y->shape[dim] + side * half) * out[dim];
      tsr_cuda_gather(
          c->state->stream, (char *)cuda_out(c, 0) + to * bytes_of(c), cuda_in(c, 0), bytes_of(c),
          y->ndim - dim, shape + dim, in + dim, (o * x->shape[dim] + from) * in[dim]);
    }
}

static void scatter_run(const cuda_call *c) {
  int axis = (int)cuda_attrs(c)->scatter.axis, dim = cuda_attrs(c)->scatter.dim;
  const tsr_tensor *y = cuda_y(c, 0);
  if (axis == TSR_CP && tsr_operand_is_zigzag(&c->call, y, dim)) {
    scatter_halves(c, dim);
    return;
  }
  int64_t step[TSR_DIMS_MAX];
  tsr_tensor_strides(cuda_x(c, 0), step);
  int block = tsr_placement_block(
      tsr_operand_value(&c->call, y)->placement[axis], (int)c->call.program->lowering.size[axis],
      c->call.rank->coord[axis]);
  gather(c, step, block * y->shape[dim] * step[dim]);
}
const cuda_op cuda_scatter = scatter_run;

/* Zeros around the input along one dimension: the gradient of a slice. */
static void unslice_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  int64_t step[TSR_DIMS_MAX], bytes = tsr_tensor_elements(y) * bytes_of(c);
  tsr_tensor_strides(y, step);
  tsr_cuda_zero(c->state->stream, cuda_out(c, 0), bytes);
  tsr_cuda_scatter(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), bytes_of(c), x->ndim, x->shape, step,
      cuda_attrs(c)->slice.begin * step[cuda_attrs(c)->slice.dim]);
}
const cuda_op cuda_unslice = unslice_run;

static void concat_run(const cuda_call *c) {
  int64_t step[TSR_DIMS_MAX], first = 0;
  int dim = cuda_attrs(c)->concat.dim;
  tsr_tensor_strides(cuda_y(c, 0), step);
  for (int i = 0; i < c->call.task->inputs_count; i++) {
    const tsr_tensor *x = cuda_x(c, i);
    tsr_cuda_scatter(
        c->state->stream, cuda_out(c, 0), cuda_in(c, i), bytes_of(c), x->ndim, x->shape, step,
        first * step[dim]);
    first += x->shape[dim];
  }
}
const cuda_op cuda_concat = concat_run;

static void expand_heads_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  int64_t D = tsr_tensor_last(x);
  const int64_t shape[] = {tsr_tensor_rows(x), tsr_tensor_last(y) / D, D}, step[] = {D, 0, 1};
  tsr_cuda_gather(c->state->stream, cuda_out(c, 0), cuda_in(c, 0), bytes_of(c), 3, shape, step, 0);
}
const cuda_op cuda_expand_heads = expand_heads_run;
