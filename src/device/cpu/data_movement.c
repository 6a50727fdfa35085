// SPDX-License-Identifier: Apache-2.0
/* Ops that move elements: slices, transposes, and the local part of a tensor that all ranks hold
 * whole. */
#include "device/cpu/ops.h"
#include <string.h>

/* The output's element (i0, i1, …) is the input's at start + i0*step[0] + i1*step[1] + … */
typedef struct {
  int ndim;
  int64_t shape[TSR_DIMS_MAX], step[TSR_DIMS_MAX], start;
} view;

static view view_of(const cpu_call *c) {
  view v = {.ndim = c->call.task->inputs[0].ndim};
  memcpy(v.shape, c->call.task->outputs[0].shape, sizeof v.shape);
  tsr_tensor_strides(&c->call.task->inputs[0], v.step);
  return v;
}

/* n elements of 2 or 4 bytes, `step` apart. */
static void copy_row(char *out, const char *x, int64_t n, int64_t step, int64_t bytes) {
  if (step == 1) {
    memcpy(out, x, (size_t)(n * bytes));
  } else if (bytes == 4) {
    const float *from = (const float *)(const void *)x;
    float *to = (float *)(void *)out;
    for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
  } else {
    const uint16_t *from = (const uint16_t *)(const void *)x;
    uint16_t *to = (uint16_t *)(void *)out;
    for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
  }
}

/* Items are the output's rows (all dimensions but the last). */
static void copy_view(const cpu_call *c, const view *v, int64_t begin, int64_t end) {
  int64_t cols = v->shape[v->ndim - 1], step = v->step[v->ndim - 1];
  int64_t bytes = tsr_dtype_bytes(c->call.task->outputs[0].dtype);
  char *out = (char *)cpu_out(c, 0);
  const char *x = (const char *)cpu_in(c, 0);
  for (int64_t row = begin; row < end; row++) {
    int64_t at = v->start, rest = row;
    for (int d = v->ndim - 2; d >= 0; d--) {
      at += rest % v->shape[d] * v->step[d];
      rest /= v->shape[d];
    }
    copy_row(out + row * cols * bytes, x + at * bytes, cols, step, bytes);
  }
}

static void transpose_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  view v = view_of(c);
  int a = cpu_attrs(c)->transpose.dim0, b = cpu_attrs(c)->transpose.dim1;
  int64_t step = v.step[a];
  v.step[a] = v.step[b];
  v.step[b] = step;
  copy_view(c, &v, begin, end);
}
const cpu_op cpu_transpose = {.items = cpu_items_rows, .run = transpose_run, .takes_half = true};

static void slice_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  view v = view_of(c);
  v.start = cpu_attrs(c)->slice.begin * v.step[cpu_attrs(c)->slice.dim];
  copy_view(c, &v, begin, end);
}
const cpu_op cpu_slice = {.items = cpu_items_rows, .run = slice_run, .takes_half = true};

static int64_t zigzag_position(const cpu_call *c, int dim, int64_t i) {
  return tsr_sequence_position(
      true, (int)c->call.program->lowering.size[TSR_CP], c->call.rank->coord[TSR_CP],
      c->call.task->outputs[0].shape[dim], i);
}

/* Rows of which each has its positions in two runs. */
static void scatter_halves(const cpu_call *c, int64_t begin, int64_t end) {
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int64_t bytes = tsr_dtype_bytes(y->dtype), half = tsr_tensor_last(y) / 2;
  char *out = (char *)cpu_out(c, 0);
  const char *in = (const char *)cpu_in(c, 0);
  for (int64_t i = 2 * begin; i < 2 * end; i++) {
    int64_t from = i / 2 * tsr_tensor_last(x) + zigzag_position(c, y->ndim - 1, i % 2 * half);
    memcpy(out + i * half * bytes, in + from * bytes, (size_t)(half * bytes));
  }
}

/* Rows whose positions, along a dimension before the last, lie in two runs. */
static void scatter_zigzag(const cpu_call *c, int dim, int64_t begin, int64_t end) {
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int64_t bytes = tsr_tensor_last(y) * tsr_dtype_bytes(y->dtype), inner = 1;
  char *out = (char *)cpu_out(c, 0);
  const char *in = (const char *)cpu_in(c, 0);
  if (dim == y->ndim - 1) {
    scatter_halves(c, begin, end);
    return;
  }
  for (int d = dim + 1; d < y->ndim - 1; d++) inner *= y->shape[d];
  for (int64_t row = begin; row < end; row++) {
    int64_t outer = row / inner / y->shape[dim],
            from = zigzag_position(c, dim, row / inner % y->shape[dim]);
    memcpy(
        out + row * bytes, in + ((outer * x->shape[dim] + from) * inner + row % inner) * bytes,
        (size_t)bytes);
  }
}

static void scatter_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  view v = view_of(c);
  int axis = (int)cpu_attrs(c)->scatter.axis, dim = cpu_attrs(c)->scatter.dim;
  if (axis == TSR_CP && tsr_operand_is_zigzag(&c->call, &c->call.task->outputs[0], dim)) {
    scatter_zigzag(c, dim, begin, end);
    return;
  }
  int block = tsr_placement_block(
      tsr_operand_value(&c->call, &c->call.task->outputs[0])->placement[axis],
      (int)c->call.program->lowering.size[axis], c->call.rank->coord[axis]);
  v.start = block * v.shape[dim] * v.step[dim];
  copy_view(c, &v, begin, end);
}
const cpu_op cpu_scatter = {.items = cpu_items_rows, .run = scatter_run, .takes_half = true};

/* Zeros around the input along one dimension: the gradient of a slice. Items are (dimensions before
 * it). */
static int64_t unslice_items(const tsr_task *t) { return t->outputs[0].shape[0]; }

static void unslice_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int dim = cpu_attrs(c)->unslice.dim;
  int64_t first = cpu_attrs(c)->unslice.begin, outer = 1, inner = 1,
          block = tsr_tensor_elements(y) / y->shape[0];
  int64_t bytes = tsr_dtype_bytes(y->dtype);
  char *out = (char *)cpu_out(c, 0);
  const char *in = (const char *)cpu_in(c, 0);
  memset(out + begin * block * bytes, 0, (size_t)((end - begin) * block * bytes));
  for (int d = 0; d < dim; d++) outer *= x->shape[d];
  for (int d = dim + 1; d < x->ndim; d++) inner *= x->shape[d];
  int64_t run = x->shape[dim] * inner;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < x->shape[dim]; i++) {
      int64_t to = (o * y->shape[dim] + first + i) * inner;
      if (to / block < begin || to / block >= end) continue;
      memcpy(out + to * bytes, in + (o * run + i * inner) * bytes, (size_t)(inner * bytes));
    }
}
const cpu_op cpu_unslice = {.items = unslice_items, .run = unslice_run, .takes_half = true};

/* Rows of the output (all dimensions but the last): parts of all inputs one behind the other where
 * these are joined along the last dimension, else a row of one of them. */
static void concat_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_task *t = c->call.task;
  const tsr_tensor *y = &t->outputs[0];
  int dim = cpu_attrs(c)->concat.dim;
  int64_t bytes = tsr_dtype_bytes(tsr_kernel_outputs(t)[0].dtype), inner = 1, first = 0;
  for (int d = dim + 1; d < y->ndim; d++) inner *= y->shape[d];
  int64_t run = y->shape[dim] * inner, row = tsr_tensor_last(y);
  for (int i = 0; i < t->inputs_count; i++) {
    int64_t part = t->inputs[i].shape[dim] * inner;
    const char *x = (const char *)cpu_in(c, i);
    char *out = (char *)cpu_out(c, 0);
    for (int64_t o = begin * row / run; o * run < end * row; o++) {
      int64_t from = o * run + first, to = from + part;
      if (from < begin * row) from = begin * row;
      if (to > end * row) to = end * row;
      if (from >= to) continue;
      int64_t at = from - o * run - first + o * part;
      memcpy(out + from * bytes, x + at * bytes, (size_t)((to - from) * bytes));
    }
    first += part;
  }
}
const cpu_op cpu_concat = {.items = cpu_items_rows, .run = concat_run, .takes_half = true};

/* Items are (batch, sequence): a row of the input, once for each head of this rank. */
static void expand_heads_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int64_t bytes = tsr_tensor_last(x) * tsr_dtype_bytes(tsr_kernel_inputs(c->call.task)[0].dtype);
  int64_t heads = tsr_tensor_last(y) / tsr_tensor_last(x);
  const char *in = (const char *)cpu_in(c, 0);
  char *out = (char *)cpu_out(c, 0);
  for (int64_t i = begin * heads; i < end * heads; i++)
    memcpy(out + i * bytes, in + i / heads * bytes, (size_t)bytes);
}
const cpu_op cpu_expand_heads = {
    .items = cpu_items_rows, .run = expand_heads_run, .takes_half = true};
