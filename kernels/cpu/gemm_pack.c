// SPDX-License-Identifier: Apache-2.0
/* Operands laid out for the micro-kernel (Goto and van de Geijn 2008, "Anatomy of high-performance
 * matrix multiplication"; Van Zee and van de Geijn 2015, "BLIS"). */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/transpose.h"

/* What every panel of one call has in common. */
typedef struct {
  const void *data;
  int64_t first; /* the element of lane 0 at the first k */
  tsr_element type;
  int64_t stride; /* of k where lanes are neighbours, else of lanes */
  int64_t depth, count;
  int64_t lines; /* of a panel, with that of scales */
} source;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static const float *numbers(const source *s) { return (const float *)s->data + s->first; }

/* n neighbours from element `at` on, in `to`. */
static void cast_to_f32(const source *s, int64_t at, int64_t n, float *to) {
  const uint16_t *x = s->data;
  if (s->type == TSR_ELEMENT_CODES) LEVEL(quantized_to_f32)(to, s->data, s->first + at, n);
  else if (s->type == TSR_ELEMENT_E4M3)
    LEVEL(e4m3_to_f32)(to, (const uint8_t *)s->data + s->first + at, 0, n);
  else if (s->type == TSR_ELEMENT_E5M2)
    LEVEL(e5m2_to_f32)(to, (const uint8_t *)s->data + s->first + at, 0, n);
  else if (s->type == TSR_ELEMENT_BF16) LEVEL(bf16_to_f32)(to, x + s->first + at, 0, n);
  else LEVEL(fp16_to_f32)(to, x + s->first + at, 0, n);
}

/* ---- lanes are neighbours: a copy ---- */

/* As many panels side by side as share a few lines of the cache */
enum { GROUP = 8 };

static inline __attribute__((always_inline)) void
copy_group(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  float wide[GROUP * TSR_GEMM_COLUMNS];
  int64_t whole = least(end, s->count / panel), rest = s->count - whole * panel,
          first = begin * panel, neighbours = least(end * panel, s->count) - first;
  for (int64_t k = 0; k < s->depth; k++) {
    const float *from = wide;
    if (s->type == TSR_ELEMENT_F32) from = numbers(s) + k * s->stride + first;
    else cast_to_f32(s, k * s->stride + first, neighbours, wide);
    float *line = to + k * panel;
    for (int64_t i = begin; i < whole; i++, line += s->lines * panel, from += panel)
      memcpy(line, from, sizeof *to * (size_t)panel);
    if (whole == end) continue;
    memset(line, 0, sizeof *to * (size_t)panel);
    memcpy(line, from, sizeof *to * (size_t)rest);
  }
}

static inline __attribute__((always_inline)) void
copy_panels(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  for (int64_t i = begin; i < end; i += GROUP) {
    copy_group(s, i, least(end, i + GROUP), to, panel);
    to += GROUP * s->lines * panel;
  }
}

/* ---- K's are neighbours: squares are transposed in registers ---- */

/* A panel's lanes, `valid` of which are in use, `stride` apart. */
typedef struct {
  const float *data;
  int64_t stride;
  int valid;
} panel_lanes;

/* [k, k + wide) of a panel. */
static inline __attribute__((always_inline)) void
transpose_part(const panel_lanes *x, int64_t k, int64_t wide, float *to, const int panel) {
  const float *from = x->data + k;
  for (int l = 0; l < panel; l += WIDTH) {
    const int here = panel - l < WIDTH ? panel - l : WIDTH;
    vector rows[WIDTH];
    if (here == WIDTH && l + WIDTH <= x->valid && wide == WIDTH) {
      transpose_loaded(from + l * x->stride, x->stride * 4, rows);
    } else {
      _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) {
        if (i >= here || l + i >= x->valid) rows[i] = (vector){0};
        else
          rows[i] = wide == WIDTH ? lanes_load(from + (l + i) * x->stride, 0)
                                  : vector_part(from + (l + i) * x->stride, wide);
      }
      transpose_square(rows);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) if (i < wide)
        memcpy(to + i * panel + l, &rows[i], sizeof *to * (size_t)here);
  }
}

/* [0, depth) of a panel. */
static inline __attribute__((always_inline)) void
transpose_panel(const panel_lanes *x, int64_t depth, float *to, const int panel) {
  int64_t k = 0;
  for (; k + WIDTH <= depth && x->valid == panel; k += WIDTH)
    transpose_part(x, k, WIDTH, to + k * panel, panel);
  for (int64_t wide; k < depth; k += wide) {
    wide = least(depth - k, WIDTH);
    transpose_part(x, k, wide, to + k * panel, panel);
  }
}

/* What is cast at a time stays in the first cache. */
enum { WIDE_DEPTH = 64 };

static inline __attribute__((always_inline)) void
transpose_cast(const source *s, int64_t lane, int valid, float *to, const int panel) {
  float wide[TSR_GEMM_COLUMNS * WIDE_DEPTH] __attribute__((aligned(64)));
  panel_lanes x = {wide, WIDE_DEPTH, valid};
  for (int64_t k = 0; k < s->depth; k += WIDE_DEPTH) {
    int64_t depth = least(s->depth - k, WIDE_DEPTH);
    for (int l = 0; l < valid; l++)
      cast_to_f32(s, (lane + l) * s->stride + k, depth, wide + l * WIDE_DEPTH);
    transpose_panel(&x, depth, to + k * panel, panel);
  }
}

static inline __attribute__((always_inline)) void
transpose_panels(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  for (int64_t i = begin; i < end; i++, to += s->lines * panel) {
    int valid = (int)least(s->count - i * panel, panel);
    if (s->type == TSR_ELEMENT_F32) {
      panel_lanes x = {numbers(s) + i * panel * s->stride, s->stride, valid};
      transpose_panel(&x, s->depth, to, panel);
    } else {
      transpose_cast(s, i * panel, valid, to, panel);
    }
  }
}

/* The line behind each panel: the scale of each lane for a block of K. */
static void
add_scales(const operand *o, const source *s, int64_t k, int64_t begin, int64_t end, float *to) {
  const tsr_fp8_operand_scales *x = &o->scales;
  const float *of_block = x->data + k / TSR_FP8_BLOCK * x->k_stride;
  for (int64_t lane = begin * o->lanes; lane < end * o->lanes; lane++) {
    int64_t panel = lane / o->lanes, block = lane;
    if (x->lane_unit) {
      int64_t each = (x->lane_unit + TSR_FP8_BLOCK - 1) / TSR_FP8_BLOCK;
      block = lane / x->lane_unit * each + lane % x->lane_unit / TSR_FP8_BLOCK;
    }
    float *line = to + ((panel - begin) * s->lines + s->depth) * o->lanes;
    line[lane % o->lanes] = lane < o->count ? of_block[block * x->lane_stride] : 0;
  }
}

void LEVEL(operand_pack)(
    const operand *o, int64_t k, int64_t depth, int64_t begin, int64_t end, float *to) {
  bool transposes = o->lane_stride != 1;
  source s = {o->data, o->first + k * o->k_stride,
              o->type, transposes ? o->lane_stride : o->k_stride,
              depth,   o->count,
              depth};
  if (o->scales.data) s.lines++;
  if (o->lanes == COLUMNS && transposes) transpose_panels(&s, begin, end, to, COLUMNS);
  else if (o->lanes == COLUMNS) copy_panels(&s, begin, end, to, COLUMNS);
  else if (transposes) transpose_panels(&s, begin, end, to, ROWS);
  else copy_panels(&s, begin, end, to, ROWS);
  if (o->scales.data) add_scales(o, &s, k, begin, end, to);
}
