// SPDX-License-Identifier: Apache-2.0
/* Whole tensors in and out of the ranks' parts, and their first values. */
#include "base/memory.h"
#include "runtime/executable_internal.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

tsr_tensor_slice tsr_executable_slice(const tsr_executable *b, int value, int rank) {
  return tsr_program_slice(tsr_executable_program(b, rank), value, b->ranks[rank].coord);
}

static int64_t slice_rows(const tsr_tensor_slice *slice) {
  int64_t rows = 1;
  for (int d = 0; d < slice->ndim - 1; d++) rows *= slice->shape[d];
  return rows;
}

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
  int64_t cols = slice.shape[slice.ndim - 1], rows = slice_rows(&slice);
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
  int64_t count = slice_rows(&slice) * slice.shape[slice.ndim - 1];
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
  int64_t whole_cols = slice->global[slice->ndim - 1], rows = slice_rows(slice);
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
  int64_t cols = slice.shape[slice.ndim - 1], rows = slice_rows(&slice);
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
    int64_t cols = slice.shape[slice.ndim - 1], rows = slice_rows(&slice),
            row = cols * tsr_dtype_bytes(dtype);
    for (int64_t i = 0; i < rows; i++)
      write_numbers(b, dtype, part + i * row, whole + whole_index(b, &slice, value, r, i), cols);
    tsr_device_view_close(&view);
  }
}

int tsr_executable_param(const tsr_executable *b, int param) { return b->param_values[param]; }

int tsr_executable_first_holder(const tsr_executable *b, int value, int rank) {
  tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
  for (int r = 0; r < rank; r++) {
    if (!tsr_executable_holds(b, value, r)) continue;
    tsr_tensor_slice other = tsr_executable_slice(b, value, r);
    if (!memcmp(slice.offset, other.offset, sizeof slice.offset)) return r;
  }
  return rank;
}

const tsr_graph *tsr_executable_graph(const tsr_executable *b) { return b->programs->graph; }
int tsr_executable_ranks(const tsr_executable *b) { return b->process->options.parallel->ranks; }
tsr_pool *tsr_executable_pool(const tsr_executable *b) { return b->process->pool; }
const char *tsr_executable_arch(const tsr_executable *b) { return b->process->device->arch; }
const tsr_kernels *tsr_executable_kernels(const tsr_executable *b) {
  return b->process->options.kernels;
}

/* ---- first values ---- */

static void initialise_padding_mask(
    const tsr_init *init, const tsr_tensor_slice *slice, float *part, int64_t begin, int64_t end) {
  int last = slice->ndim - 1;
  int64_t cols = slice->shape[last];
  tsr_padding padding = {last, (int64_t)init->a, (int64_t)init->b};
  memset(part + begin * cols, 0, sizeof *part * (size_t)((end - begin) * cols));
  for (int64_t i = begin; i < end; i++)
    for (tsr_real_run run = {0};
         tsr_padding_next(&padding, slice->global[last], slice->offset[last], cols, &run);)
      for (int64_t k = 0; k < run.size; k++) part[i * cols + run.at + k] = 1;
}

static void initialise_rope(
    const tsr_kernels *k, const tsr_init *init, const tsr_tensor_slice *slice, float *table) {
  const double *s = init->scaling;
  tsr_rope_scaling scaling = {s[0], s[1],      s[2], s[3], s[4],         s[5],
                              s[6], s[7] != 0, s[8], s[9], init->factors};
  k->rope_table(table, slice->shape[0], (int64_t)init->a, slice->offset[0], init->b, &scaling);
}

/* Parameters are a function of seed, name and global index, so every mesh starts from the same.
 * Rows [begin, end) of the slice; of a rope's table always all. */
static void initialise(
    const tsr_executable *b, const tsr_init *init, const char *name, const tsr_tensor_slice *slice,
    float *part, int64_t begin, int64_t end) {
  const tsr_kernels *k = b->process->options.kernels;
  int64_t cols = slice->shape[slice->ndim - 1];
  uint64_t key = tsr_random_key(b->process->options.seed, name, 0);
  switch (init->kind) {
  case TSR_INIT_ZEROS:
    k->fill(part, 0, begin * cols, end * cols);
    return;
  case TSR_INIT_ONES:
    k->fill(part, 1, begin * cols, end * cols);
    return;
  case TSR_INIT_NORMAL:
    k->random_normal(part, (float)init->a, (float)init->b, key, slice, begin, end);
    return;
  case TSR_INIT_UNIFORM:
    k->random_uniform(part, (float)init->a, (float)init->b, key, slice, begin, end);
    return;
  case TSR_INIT_ROPE:
    initialise_rope(k, init, slice, part);
    return;
  case TSR_INIT_PADDING_MASK:
    initialise_padding_mask(init, slice, part, begin, end);
  }
}

/* The same, rounded to nearest, piece by piece of a row. */
static void initialise_half(
    const tsr_executable *b, const tsr_init *init, const char *name, const tsr_tensor_slice *slice,
    tsr_dtype dtype, char *part, int64_t begin, int64_t end) {
  enum { PIECE = 1024 };
  float numbers[PIECE];
  int last = slice->ndim - 1;
  int64_t cols = slice->shape[last];
  assert(init->kind != TSR_INIT_ROPE); /* not a function of the global index */
  for (int64_t i = begin; i < end; i++)
    for (int64_t at = 0; at < cols; at += PIECE) {
      tsr_tensor_slice piece = *slice;
      int64_t row = i;
      for (int d = last - 1; d >= 0; d--) {
        piece.shape[d] = 1;
        piece.offset[d] += row % slice->shape[d];
        row /= slice->shape[d];
      }
      piece.shape[last] = cols - at < PIECE ? cols - at : PIECE;
      piece.offset[last] += at;
      initialise(b, init, name, &piece, numbers, 0, 1);
      char *into = part + (i * cols + at) * tsr_dtype_bytes(dtype);
      write_numbers(b, dtype, into, numbers, piece.shape[last]);
    }
}

/* A value's first numbers, in pieces: some rows of each rank's part, at the rank's view. */
typedef struct {
  tsr_executable *executable;
  int value, pieces;
} first_values;

static const tsr_init *init_of(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  return v->kind == TSR_VALUE_PARAM ? &g->params[v->param].init : v->init;
}

/* The same of a value whose positions are two runs. */
static void
initialise_runs(const first_values *f, int rank, const tsr_tensor_slice *slice, float *part) {
  const tsr_graph *g = f->executable->programs->graph;
  const tsr_init *init = init_of(g, f->value);
  int64_t half = slice->shape[0] / 2, rows = slice_rows(slice) / 2;
  for (int k = 0; k < 2; k++) {
    tsr_tensor_slice run = *slice;
    run.shape[0] = half;
    run.offset[0] = tsr_executable_position(f->executable, slice, f->value, rank, 0, k * half);
    float *into = part + k * rows * slice->shape[slice->ndim - 1];
    initialise(f->executable, init, g->values[f->value].name, &run, into, 0, rows);
  }
}

static bool is_two_runs(const first_values *f, int rank, const tsr_tensor_slice *slice) {
  int64_t half = slice->shape[0] / 2, begin = slice->offset[0];
  return half &&
         (tsr_executable_position(f->executable, slice, f->value, rank, 0, 0) != begin ||
          tsr_executable_position(f->executable, slice, f->value, rank, 0, half) != begin + half);
}

static bool is_padded(const tsr_graph *g, const tsr_value *v) {
  if (v->kind != TSR_VALUE_PARAM) return false;
  const tsr_padding *p = &g->params[v->param].padding;
  return p->real < v->shape[p->dim];
}

/* Rows [begin, end) of a part with padding: real numbers are those of the whole without it. */
static void initialise_padded(
    const first_values *f, const tsr_tensor_slice *stored, char *part, int64_t begin, int64_t end) {
  const tsr_executable *b = f->executable;
  const tsr_value *v = &b->programs->graph->values[f->value];
  const tsr_padding *padding = &b->programs->graph->params[v->param].padding;
  int last = stored->ndim - 1, dim = padding->dim;
  int64_t bytes = tsr_dtype_bytes(v->dtype), cols = stored->shape[last];
  memset(part + begin * cols * bytes, 0, (size_t)((end - begin) * cols * bytes));
  for (int64_t i = begin; i < end; i++) {
    tsr_tensor_slice row = *stored;
    int64_t rest = i;
    for (int d = last - 1; d >= 0; d--) {
      row.offset[d] += rest % stored->shape[d];
      row.shape[d] = 1;
      rest /= stored->shape[d];
    }
    int64_t first = row.offset[dim], size = row.shape[dim];
    row.global[dim] = padding->real;
    for (tsr_real_run run = {0};
         tsr_padding_next(padding, stored->global[dim], first, size, &run);) {
      char *into = part + (i * cols + (dim == last ? run.at : 0)) * bytes;
      row.offset[dim] = run.begin;
      row.shape[dim] = run.size;
      if (tsr_dtype_is_half(v->dtype))
        initialise_half(
            b, init_of(b->programs->graph, f->value), v->name, &row, v->dtype, into, 0, 1);
      else
        initialise(
            b, init_of(b->programs->graph, f->value), v->name, &row, (float *)(void *)into, 0, 1);
    }
  }
}

/* All of a rank's part in NF4, which is no view. */
static void initialise_quantized(void *context, int rank) {
  const first_values *f = context;
  if (!tsr_executable_has(f->executable, f->value, rank)) return;
  const tsr_value *v = &f->executable->programs->graph->values[f->value];
  tsr_tensor_slice slice = tsr_executable_slice(f->executable, f->value, rank);
  int64_t rows = slice_rows(&slice), cols = slice.shape[slice.ndim - 1];
  float *numbers = tsr_memory_new(sizeof *numbers * (size_t)(rows * cols));
  const tsr_init *init = init_of(f->executable->programs->graph, f->value);
  initialise(f->executable, init, v->name, &slice, numbers, 0, rows);
  tsr_executable_quantize(f->executable, f->value, rank, numbers, false);
  free(numbers);
}

static void initialise_piece(void *context, int job) {
  const first_values *f = context;
  const tsr_graph *g = f->executable->programs->graph;
  const tsr_value *value = &g->values[f->value];
  int rank = job / f->pieces, piece = job % f->pieces;
  if (!tsr_executable_has(f->executable, f->value, rank)) return;
  tsr_tensor_slice slice = tsr_executable_slice(f->executable, f->value, rank);
  int64_t rows = slice_rows(&slice), begin = rows * piece / f->pieces,
          end = rows * (piece + 1) / f->pieces;
  void *part = f->executable->views[rank].data;
  const tsr_init *init = init_of(g, f->value);
  if (is_padded(g, value)) initialise_padded(f, &slice, part, begin, end);
  else if (tsr_dtype_is_half(value->dtype))
    initialise_half(f->executable, init, value->name, &slice, value->dtype, part, begin, end);
  else if (!is_two_runs(f, rank, &slice))
    initialise(f->executable, init, value->name, &slice, part, begin, end);
  else if (piece == 0) initialise_runs(f, rank, &slice, part);
}

/* So many that all threads have something to do and each piece is worth it. */
static int pieces_of(const tsr_executable *b, int value) {
  enum { PIECE = 1 << 18, PIECES_MAX = 64 };
  const tsr_value *v = &b->programs->graph->values[value];
  int64_t pieces = tsr_value_elements(v) / PIECE / b->process->options.parallel->ranks;
  if (init_of(b->programs->graph, value)->kind == TSR_INIT_ROPE || pieces < 1) return 1;
  return (int)(pieces < PIECES_MAX ? pieces : PIECES_MAX);
}

static void initialise_value(tsr_executable *b, int value) {
  int ranks = b->process->options.parallel->ranks;
  first_values f = {b, value, pieces_of(b, value)};
  if (tsr_dtype_is_quantized(b->programs->graph->values[value].dtype)) {
    tsr_pool_run(b->process->pool, initialise_quantized, &f, ranks);
    return;
  }
  for (int r = 0; r < ranks; r++)
    if (tsr_executable_has(b, value, r))
      tsr_executable_view(b, value, r, 0, TSR_VIEW_WRITE, &b->views[r]);
  tsr_pool_run(b->process->pool, initialise_piece, &f, ranks * f.pieces);
  for (int r = 0; r < ranks; r++)
    if (tsr_executable_has(b, value, r)) tsr_device_view_close(&b->views[r]);
}

void tsr_executable_initialise(tsr_executable *executable, bool parameters) {
  const tsr_graph *g = executable->programs->graph;
  for (int v = 0; v < g->values_count; v++) {
    bool param = g->values[v].kind == TSR_VALUE_PARAM && parameters;
    if (param || g->values[v].kind == TSR_VALUE_CONST) initialise_value(executable, v);
  }
}

void tsr_executable_reset(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  tsr_executable_initialise(b, true);
  for (int v = 0; v < g->values_count; v++)
    for (int r = 0; r < b->process->options.parallel->ranks; r++) {
      if (g->values[v].kind != TSR_VALUE_STATE || !tsr_executable_has(b, v, r)) continue;
      tsr_device_view view;
      memset(
          tsr_executable_view(b, v, r, 0, TSR_VIEW_WRITE, &view), 0, (size_t)part_bytes(b, v, r));
      tsr_device_view_close(&view);
    }
}
