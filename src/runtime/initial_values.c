// SPDX-License-Identifier: Apache-2.0
/* The first numbers of parameters and constants, and how a run gets them again. */
#include "base/memory.h"
#include "runtime/executable_internal.h"
#include "runtime/part_holders.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
  const tsr_kernels *k = b->process->options.kernels;
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
      uint16_t *rounded = (uint16_t *)(void *)into;
      if (dtype == TSR_BF16) k->f32_to_bf16(rounded, numbers, 0, piece.shape[last]);
      else k->f32_to_fp16(rounded, numbers, 0, piece.shape[last]);
    }
}

/* A value's first numbers, in pieces: some rows of each rank's part, at the rank's view. */
typedef struct {
  tsr_executable *executable;
  int value, pieces;
  const int *first; /* per rank: the first one here that holds the same part */
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
  int64_t half = slice->shape[0] / 2, rows = tsr_slice_rows(slice) / 2;
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

/* All of a part in NF4, which is no view, for all ranks here that hold it. */
static void initialise_quantized(void *context, int rank) {
  const first_values *f = context;
  if (f->first[rank] != rank) return;
  const tsr_value *v = &f->executable->programs->graph->values[f->value];
  tsr_tensor_slice slice = tsr_executable_slice(f->executable, f->value, rank);
  int64_t rows = tsr_slice_rows(&slice), cols = slice.shape[slice.ndim - 1];
  float *numbers = tsr_memory_new(sizeof *numbers * (size_t)(rows * cols));
  const tsr_init *init = init_of(f->executable->programs->graph, f->value);
  initialise(f->executable, init, v->name, &slice, numbers, 0, rows);
  tsr_executable_quantize(f->executable, f->value, rank, numbers, true);
  free(numbers);
}

static void initialise_piece(void *context, int job) {
  const first_values *f = context;
  const tsr_graph *g = f->executable->programs->graph;
  const tsr_value *value = &g->values[f->value];
  int rank = job / f->pieces, piece = job % f->pieces;
  if (f->first[rank] != rank) return;
  tsr_tensor_slice slice = tsr_executable_slice(f->executable, f->value, rank);
  int64_t rows = tsr_slice_rows(&slice), begin = rows * piece / f->pieces,
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

static void copy_replica(void *context, int rank) {
  const first_values *f = context;
  const tsr_executable *b = f->executable;
  int first = f->first[rank];
  if (first < 0 || first == rank) return;
  memcpy(b->views[rank].data, b->views[first].data, (size_t)b->views[rank].bytes);
}

/* Of each part: so many that all threads have something to do and each piece is worth it. */
static int pieces_of(const tsr_executable *b, int value, const tsr_part_holders *h) {
  enum { PIECE = 1 << 18, PIECES_MAX = 64 };
  const tsr_value *v = &b->programs->graph->values[value];
  int64_t parts = 0;
  for (int r = 0; r < h->ranks; r++) parts += h->first[r] == r;
  int64_t pieces = parts ? tsr_value_elements(v) / PIECE / parts : 0;
  if (init_of(b->programs->graph, value)->kind == TSR_INIT_ROPE || pieces < 1) return 1;
  return (int)(pieces < PIECES_MAX ? pieces : PIECES_MAX);
}

static void initialise_value(tsr_executable *b, int value, const tsr_part_holders *h) {
  first_values f = {b, value, pieces_of(b, value, h), h->first};
  if (tsr_dtype_is_quantized(b->programs->graph->values[value].dtype)) {
    tsr_pool_run(b->process->pool, initialise_quantized, &f, h->ranks);
    return;
  }
  for (int r = 0; r < h->ranks; r++)
    if (h->first[r] >= 0) tsr_executable_view(b, value, r, 0, TSR_VIEW_WRITE, &b->views[r]);
  tsr_pool_run(b->process->pool, initialise_piece, &f, h->ranks * f.pieces);
  tsr_pool_run(b->process->pool, copy_replica, &f, h->ranks);
  for (int r = 0; r < h->ranks; r++)
    if (h->first[r] >= 0) tsr_device_view_close(&b->views[r]);
}

void tsr_executable_initialise(tsr_executable *executable, bool parameters) {
  const tsr_graph *g = executable->programs->graph;
  tsr_arena *scratch = tsr_arena_new();
  tsr_part_holders holders = tsr_part_holders_new(scratch, executable);
  for (int v = 0; v < g->values_count; v++) {
    bool param = g->values[v].kind == TSR_VALUE_PARAM && parameters;
    if (!param && g->values[v].kind != TSR_VALUE_CONST) continue;
    tsr_part_holders_find(&holders, executable, v, true);
    initialise_value(executable, v, &holders);
  }
  tsr_arena_free(scratch);
}

void tsr_executable_reset(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  tsr_executable_initialise(b, true);
  for (int v = 0; v < g->values_count; v++)
    for (int r = 0; r < b->process->options.parallel->ranks; r++) {
      if (g->values[v].kind != TSR_VALUE_STATE || !tsr_executable_has(b, v, r)) continue;
      tsr_device_view view;
      void *part = tsr_executable_view(b, v, r, 0, TSR_VIEW_WRITE, &view);
      memset(part, 0, (size_t)view.bytes);
      tsr_device_view_close(&view);
    }
}
