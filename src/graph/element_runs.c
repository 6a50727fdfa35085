// SPDX-License-Identifier: Apache-2.0
#include "graph/element_runs.h"

/* The outermost dimension along which neighbours stay neighbours: all behind it are whole and have
 * no padding. */
static int contiguous_dim(const tsr_tensor_slice *part, const tsr_padding *padding) {
  bool padded = padding->real != part->global[padding->dim];
  int dim = part->ndim - 1;
  while (dim > 0 && part->shape[dim] == part->global[dim] && !(padded && padding->dim == dim))
    dim--;
  return dim;
}

/* A stored index of the whole dimension without padding; -1: it is padding. */
static int64_t
real_index(const tsr_tensor_slice *part, const tsr_padding *padding, int dim, int64_t stored) {
  tsr_real_run run = {0};
  if (padding->dim != dim) return stored;
  return tsr_padding_next(padding, part->global[dim], stored, 1, &run) ? run.begin : -1;
}

static int64_t real_size(const tsr_tensor_slice *part, const tsr_padding *padding, int dim) {
  return padding->dim == dim ? padding->real : part->global[dim];
}

/* The index of a row (of all dimensions before `dim`) in the whole tensor; -1: it is padding. */
static int64_t
whole_row(const tsr_tensor_slice *part, const tsr_padding *padding, int dim, int64_t row) {
  int64_t at = 0, each = 1;
  for (int d = dim - 1; d >= 0; d--) {
    int64_t index = real_index(part, padding, d, part->offset[d] + row % part->shape[d]);
    if (index < 0) return -1;
    at += index * each;
    each *= real_size(part, padding, d);
    row /= part->shape[d];
  }
  return at;
}

/* The first run of real indices of a row, from index i on; false: there is none. */
static bool find_in_row(
    const tsr_tensor_slice *part, const tsr_padding *padding, int dim, int64_t i,
    tsr_real_run *ret) {
  int64_t first = part->offset[dim] + i, left = part->shape[dim] - i;
  *ret = (tsr_real_run){0};
  if (padding->dim == dim) return tsr_padding_next(padding, part->global[dim], first, left, ret);
  *ret = (tsr_real_run){.begin = first, .size = left};
  return left > 0;
}

bool tsr_element_run_next(
    const tsr_tensor_slice *part, const tsr_padding *padding, int64_t begin, int64_t end,
    tsr_element_run *run) {
  int dim = contiguous_dim(part, padding);
  int64_t inner = 1, at = run->count ? run->at + run->count : begin;
  for (int d = dim + 1; d < part->ndim; d++) inner *= part->shape[d];
  int64_t row_elements = part->shape[dim] * inner;
  while (at < end) {
    int64_t row = at / row_elements, index = at % row_elements / inner, rest = at % inner;
    int64_t whole = whole_row(part, padding, dim, row);
    tsr_real_run real;
    if (whole < 0 || !find_in_row(part, padding, dim, index, &real)) {
      at = (row + 1) * row_elements;
      continue;
    }
    if (real.at) rest = 0;
    run->at = row * row_elements + (index + real.at) * inner + rest;
    int64_t stop = row * row_elements + (index + real.at + real.size) * inner;
    run->whole = (whole * real_size(part, padding, dim) + real.begin) * inner + rest;
    run->count = (stop < end ? stop : end) - run->at;
    return run->count > 0;
  }
  return false;
}
