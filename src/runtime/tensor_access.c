// SPDX-License-Identifier: Apache-2.0
/* Whole tensors in and out of the ranks' parts. */
#include "base/memory.h"
#include "runtime/executable_internal.h"
#include <stdlib.h>
#include <string.h>

int64_t tsr_executable_position(
    const tsr_executable *b, const tsr_tensor_slice *slice, int value, int rank, int dim,
    int64_t i) {
  const tsr_program *p = tsr_executable_program(b, rank);
  const tsr_value *v = &p->graph->values[value];
  if (!tsr_lowering_is_zigzag(&p->lowering, v, dim)) return slice->offset[dim] + i;
  return tsr_lowering_zigzag_position(
      &p->lowering, v, dim, b->ranks[rank].coord, slice->shape[dim], i);
}

/* The whole tensor's index of the first element of a rank's local row. */
static int64_t whole_index(
    const tsr_executable *b, const tsr_tensor_slice *slice, int value, int rank, int64_t row) {
  int64_t index[TSR_SLICE_DIMS_MAX] = {0}, at = 0;
  for (int d = slice->ndim - 2; d >= 0; d--) {
    index[d] = row % slice->shape[d];
    row /= slice->shape[d];
  }
  for (int d = 0; d < slice->ndim; d++)
    at = at * slice->global[d] + tsr_executable_position(b, slice, value, rank, d, index[d]);
  return at;
}

/* n numbers of a part, as f32, and back: to nearest. */
static void
read_numbers(const tsr_executable *b, tsr_dtype from, float *out, const void *x, int64_t n) {
  const tsr_kernels *k = b->process->options.kernels;
  if (from == TSR_BF16) k->bf16_to_f32(out, x, 0, n);
  else if (from == TSR_F16) k->fp16_to_f32(out, x, 0, n);
  else memcpy(out, x, sizeof(float) * (size_t)n);
}
static void
write_numbers(const tsr_executable *b, tsr_dtype to, void *out, const float *x, int64_t n) {
  const tsr_kernels *k = b->process->options.kernels;
  if (to == TSR_BF16) k->f32_to_bf16(out, x, 0, n);
  else if (to == TSR_F16) k->f32_to_fp16(out, x, 0, n);
  else memcpy(out, x, sizeof(float) * (size_t)n);
}

static const tsr_tensor *tensor_of(const tsr_executable *b, int value, int rank) {
  return &tsr_executable_program(b, rank)->tensors[value];
}

/* Rows of a rank's part into the whole. */
static void take_part(const tsr_executable *b, int value, int rank, const char *part, float *out) {
  tsr_dtype dtype = b->programs->graph->values[value].dtype;
  tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
  int64_t cols = slice.shape[slice.ndim - 1], rows = tsr_slice_rows(&slice);
  if (tsr_dtype_is_quantized(dtype)) {
    tsr_quantized x = {
        part, tsr_tensor_quantized_layout(tensor_of(b, value, rank)), TSR_ELEMENT_F32};
    for (int64_t i = 0; i < rows; i++)
      b->process->options.kernels->quantized_to_f32(
          out + whole_index(b, &slice, value, rank, i), &x, i * cols, cols);
    return;
  }
  int64_t row = cols * tsr_dtype_bytes(dtype);
  for (int64_t i = 0; i < rows; i++)
    read_numbers(b, dtype, out + whole_index(b, &slice, value, rank, i), part + i * row, cols);
}

static int64_t part_bytes(const tsr_executable *b, int value, int rank) {
  return tsr_tensor_bytes(tensor_of(b, value, rank));
}

/* Numbers at an address of the device, without other processes. */
static void read_here(
    const tsr_executable *b, const tsr_device *d, tsr_dtype dtype, const char *from, int64_t n,
    float *out) {
  int64_t each = tsr_dtype_bytes(dtype);
  tsr_device_pieces pieces;
  const void *piece;
  tsr_device_pieces_begin(&pieces, d, from, n * each);
  for (int64_t bytes; (piece = tsr_device_pieces_next(&pieces, &bytes)); out += bytes / each)
    read_numbers(b, dtype, out, piece, bytes / each);
  tsr_device_pieces_end(&pieces);
}

/* A part that is the whole value, whose numbers follow each other in both. False: it is not. */
static bool read_whole(const tsr_executable *b, int value, int rank, float *out) {
  tsr_dtype dtype = b->programs->graph->values[value].dtype;
  tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
  bool whole = !memcmp(slice.shape, slice.global, sizeof *slice.shape * (size_t)slice.ndim);
  if (!whole || tsr_dtype_is_quantized(dtype)) return false;
  int64_t count = tsr_slice_rows(&slice) * slice.shape[slice.ndim - 1];
  const char *part = tsr_executable_address(b, value, rank, 0);
  return read_here(b, tsr_executable_home(b, value), dtype, part, count, out), true;
}

void tsr_executable_read(const tsr_executable *b, int value, float *out) {
  bool alone = tsr_executable_is_alone(b);
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!tsr_executable_holds(b, value, r)) continue;
    if (alone && read_whole(b, value, r, out)) continue;
    if (!alone && tsr_executable_first_holder(b, value, r) != r) continue;
    char few[256], *part = few;
    int64_t bytes = part_bytes(b, value, r);
    bool here = tsr_executable_is_here(b, r);
    tsr_device_view view;
    if (here) part = tsr_executable_view(b, value, r, 0, TSR_VIEW_READ, &view);
    else if (bytes > (int64_t)sizeof few) part = tsr_wait_memory(b, bytes);
    if (!alone)
      tsr_executable_broadcast(b, tsr_rank_map_process(tsr_executable_rank_map(b), r), part, bytes);
    take_part(b, value, r, part, out);
    if (here) tsr_device_view_close(&view);
    else if (part != few) free(part);
  }
}

/* Which of a part's rows are (a piece of) the whole's row; -1: none is. */
static int64_t find_row(
    const tsr_executable *b, const tsr_tensor_slice *slice, int value, int rank, int64_t row,
    int64_t *ret_at) {
  int64_t whole_cols = slice->global[slice->ndim - 1], rows = tsr_slice_rows(slice);
  for (int64_t i = 0; i < rows; i++) {
    int64_t at = whole_index(b, slice, value, rank, i);
    if (at / whole_cols == row) return *ret_at = at % whole_cols, i;
  }
  return -1;
}

void tsr_executable_read_row(const tsr_executable *b, int value, int64_t row, float *out) {
  tsr_dtype dtype = b->programs->graph->values[value].dtype;
  bool alone = tsr_executable_is_alone(b);
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!tsr_executable_holds(b, value, r)) continue;
    if (!alone && tsr_executable_first_holder(b, value, r) != r) continue;
    tsr_tensor_slice slice = tsr_executable_slice(b, value, r);
    int64_t cols = slice.shape[slice.ndim - 1], at, bytes = cols * tsr_dtype_bytes(dtype);
    int64_t i = find_row(b, &slice, value, r, row, &at);
    if (i < 0) continue;
    bool here = tsr_executable_is_here(b, r);
    const tsr_device *d = tsr_executable_home(b, value);
    char *row_at = here ? (char *)tsr_executable_address(b, value, r, 0) + i * bytes : NULL, *piece;
    tsr_device_view view;
    if (alone) {
      read_here(b, d, dtype, row_at, cols, out + at);
      continue;
    }
    if (here) piece = tsr_device_view_open(&view, d, row_at, bytes, TSR_VIEW_READ);
    else piece = tsr_wait_memory(b, bytes);
    tsr_executable_broadcast(b, tsr_rank_map_process(tsr_executable_rank_map(b), r), piece, bytes);
    read_numbers(b, dtype, out + at, piece, cols);
    if (here) tsr_device_view_close(&view);
    else free(piece);
  }
}

void tsr_executable_quantize(
    tsr_executable *b, int value, int rank, const float *numbers, bool replicas) {
  tsr_quantized_layout layout = tsr_tensor_quantized_layout(tensor_of(b, value, rank));
  tsr_device_view view;
  void *part = tsr_executable_view(b, value, rank, 0, TSR_VIEW_WRITE, &view);
  tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
  tsr_quantize(&layout, part, numbers);
  for (int r = rank + 1; replicas && r < b->process->options.parallel->ranks; r++) {
    if (!tsr_executable_has(b, value, r)) continue;
    tsr_tensor_slice other = tsr_executable_slice(b, value, r);
    if (!memcmp(slice.offset, other.offset, sizeof slice.offset))
      tsr_device_write(
          view.device, tsr_executable_address(b, value, r, 0), part, part_bytes(b, value, r));
  }
  tsr_device_view_close(&view);
}

/* A rank's part of a whole value in NF4. */
static void write_quantized(tsr_executable *b, int value, int rank, const float *whole) {
  tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
  int64_t cols = slice.shape[slice.ndim - 1], rows = tsr_slice_rows(&slice);
  float *part = tsr_memory_new(sizeof *part * (size_t)(rows * cols));
  for (int64_t i = 0; i < rows; i++)
    memcpy(
        part + i * cols, whole + whole_index(b, &slice, value, rank, i),
        sizeof *part * (size_t)cols);
  tsr_executable_quantize(b, value, rank, part, false);
  free(part);
}

void tsr_executable_write(tsr_executable *b, int value, const float *whole) {
  tsr_dtype dtype = b->programs->graph->values[value].dtype;
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!tsr_executable_has(b, value, r)) continue;
    if (tsr_dtype_is_quantized(dtype)) {
      write_quantized(b, value, r, whole);
      continue;
    }
    tsr_tensor_slice slice = tsr_executable_slice(b, value, r);
    tsr_device_view view;
    char *part = tsr_executable_view(b, value, r, 0, TSR_VIEW_WRITE, &view);
    int64_t cols = slice.shape[slice.ndim - 1], rows = tsr_slice_rows(&slice),
            row = cols * tsr_dtype_bytes(dtype);
    for (int64_t i = 0; i < rows; i++)
      write_numbers(b, dtype, part + i * row, whole + whole_index(b, &slice, value, r, i), cols);
    tsr_device_view_close(&view);
  }
}

int tsr_executable_param(const tsr_executable *b, int param) { return b->param_values[param]; }

const tsr_graph *tsr_executable_graph(const tsr_executable *b) { return b->programs->graph; }
int tsr_executable_ranks(const tsr_executable *b) { return b->process->options.parallel->ranks; }
tsr_pool *tsr_executable_pool(const tsr_executable *b) { return b->process->pool; }
const char *tsr_executable_arch(const tsr_executable *b) { return b->process->device->arch; }
const tsr_kernels *tsr_executable_kernels(const tsr_executable *b) {
  return b->process->options.kernels;
}
