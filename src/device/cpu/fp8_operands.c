// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/fp8_operands.h"

static int64_t tiles_of(const tsr_fp8_operand *o) {
  return o->layout.rows ? tsr_fp8_tiles(&o->layout) : 0;
}

/* Tiles [begin, end) of input i; may be none. */
static void quantize(const cpu_call *c, char *to, int i, int64_t begin, int64_t end) {
  const tsr_fp8_operand *o = &c->call.task->fp8->inputs[i];
  int64_t tiles = tiles_of(o);
  if (begin < 0) begin = 0;
  if (end > tiles) end = tiles;
  if (begin >= end) return;
  float *scales = (float *)(void *)(to + o->scales);
  c->k->fp8_quantize(
      &o->layout, (uint8_t *)to + o->codes, scales, cpu_in(c, i), cpu_element(c, i), begin, end);
}

void cpu_fp8_quantize(const cpu_call *c, void *to, int part, int parts) {
  const tsr_fp8_operands *all = c->call.task->fp8;
  int64_t tiles = 0, before = 0;
  for (int i = 0; i < all->count; i++) tiles += tiles_of(&all->inputs[i]);
  int64_t begin = tiles * part / parts, end = tiles * (part + 1) / parts;
  for (int i = 0; i < all->count; i++) {
    quantize(c, to, i, begin - before, end - before);
    before += tiles_of(&all->inputs[i]);
  }
}

tsr_matrix cpu_fp8_matrix(
    const cpu_call *c, const void *operands, int i, int64_t first, int64_t rs, int64_t cs) {
  const tsr_fp8_operand *o = &c->call.task->fp8->inputs[i];
  const tsr_fp8_layout *l = &o->layout;
  int64_t across = tsr_fp8_scale_cols(l);
  int64_t row = tsr_fp8_block_of(first / l->cols, l->unit_rows, l->block_rows);
  int64_t col = tsr_fp8_block_of(first % l->cols, l->unit_cols, l->block_cols);
  const char *codes = (const char *)operands + o->codes,
             *scales = (const char *)operands + o->scales;
  tsr_matrix m = {.data = codes, .rs = rs, .cs = cs, .first = first};
  m.type = l->format == TSR_FP8_E5M2 ? TSR_ELEMENT_E5M2 : TSR_ELEMENT_E4M3;
  m.scales.data = (const float *)(const void *)scales + row * across + col;
  m.scales.k_stride = o->sums_rows ? across : 1;
  m.scales.lane_stride = o->sums_rows ? 1 : across;
  if (l->block_rows == l->block_cols)
    m.scales.lane_unit = o->sums_rows ? l->unit_cols : l->unit_rows;
  return m;
}

static int64_t run_scale(const tsr_fp8_layout *l, const cpu_fp8_run *run) {
  return (run->first / TSR_FP8_BLOCK + run->run) * l->cols;
}

void cpu_fp8_quantize_run(
    const cpu_call *c, void *to, const cpu_fp8_run *run, int part, int parts) {
  for (int i = 0; i < 2 && run->count; i++) {
    const tsr_fp8_operand *o = &c->call.task->fp8->inputs[i];
    tsr_fp8_layout l = o->layout;
    l.rows = l.unit_rows = run->count;
    int64_t tiles = tsr_fp8_tiles(&l), first = run->first * l.cols;
    float *scales = (float *)(void *)((char *)to + o->scales) + run_scale(&l, run);
    c->k->fp8_quantize(
        &l, (uint8_t *)to + o->codes + first, scales,
        tsr_element_at(cpu_in(c, i), cpu_element(c, i), first), cpu_element(c, i),
        tiles * part / parts, tiles * (part + 1) / parts);
  }
}

tsr_matrix cpu_fp8_run_matrix(
    const cpu_call *c, const void *operands, int i, const cpu_fp8_run *run, int64_t done,
    int64_t rs, int64_t cs) {
  const tsr_fp8_operand *o = &c->call.task->fp8->inputs[i];
  const tsr_fp8_layout *l = &o->layout;
  const char *codes = (const char *)operands + o->codes,
             *scales = (const char *)operands + o->scales;
  tsr_matrix m = {.data = codes, .rs = rs, .cs = cs, .first = (run->first + done) * l->cols};
  m.type = l->format == TSR_FP8_E5M2 ? TSR_ELEMENT_E5M2 : TSR_ELEMENT_E4M3;
  m.scales.data =
      (const float *)(const void *)scales + run_scale(l, run) + done / TSR_FP8_BLOCK * l->cols;
  m.scales.k_stride = l->cols;
  m.scales.lane_stride = 1;
  return m;
}
