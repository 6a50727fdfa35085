// SPDX-License-Identifier: Apache-2.0
/* Operands laid out for the micro-kernel (Goto and van de Geijn 2008, "Anatomy of high-performance
 * matrix multiplication"; Van Zee and van de Geijn 2015, "BLIS"). */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/transpose.h"

/* What every panel of one call has in common. */
typedef struct {
  const float *data; /* lane 0 at the first k */
  int64_t stride;    /* of k where lanes are neighbours, else of lanes */
  int64_t depth, count;
} source;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- lanes are neighbours: a copy ---- */

/* As many panels side by side as share a few lines of the cache */
enum { GROUP = 8 };

static inline __attribute__((always_inline)) void
copy_group(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  int64_t whole = least(end, s->count / panel), rest = s->count - whole * panel;
  for (int64_t k = 0; k < s->depth; k++) {
    const float *from = s->data + k * s->stride;
    float *line = to + k * panel;
    for (int64_t i = begin; i < whole; i++, line += s->depth * panel)
      memcpy(line, from + i * panel, sizeof *to * (size_t)panel);
    if (whole == end) continue;
    memset(line, 0, sizeof *to * (size_t)panel);
    memcpy(line, from + whole * panel, sizeof *to * (size_t)rest);
  }
}

static inline __attribute__((always_inline)) void
copy_panels(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  for (int64_t i = begin; i < end; i += GROUP) {
    copy_group(s, i, least(end, i + GROUP), to, panel);
    to += GROUP * s->depth * panel;
  }
}

/* ---- K's are neighbours: squares are turned in registers ---- */

/* [k, k + wide) of a panel of which `valid` lanes are in use. */
static inline __attribute__((always_inline)) void
turn_part(const source *s, const float *from, int valid, int64_t wide, float *to, const int panel) {
  for (int l = 0; l < panel; l += WIDTH) {
    const int here = panel - l < WIDTH ? panel - l : WIDTH;
    vector rows[WIDTH];
    if (here == WIDTH && l + WIDTH <= valid && wide == WIDTH) {
      turn_loaded(from + l * s->stride, s->stride, rows);
    } else {
      _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) {
        if (i >= here || l + i >= valid) rows[i] = (vector){0};
        else
          rows[i] = wide == WIDTH ? lanes_load(from + (l + i) * s->stride, 0)
                                  : vector_part(from + (l + i) * s->stride, wide);
      }
      turn_square(rows);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) if (i < wide)
        memcpy(to + i * panel + l, &rows[i], sizeof *to * (size_t)here);
  }
}

static inline __attribute__((always_inline)) void
turn_panels(const source *s, int64_t begin, int64_t end, float *to, const int panel) {
  for (int64_t i = begin; i < end; i++) {
    const float *from = s->data + i * panel * s->stride;
    int64_t left = s->count - i * panel, k = 0;
    for (; k + WIDTH <= s->depth && left >= panel; k += WIDTH, to += WIDTH * panel)
      turn_part(s, from + k, panel, WIDTH, to, panel);
    for (int64_t wide; k < s->depth; k += wide, to += wide * panel) {
      wide = least(s->depth - k, WIDTH);
      turn_part(s, from + k, (int)least(left, panel), wide, to, panel);
    }
  }
}

void LEVEL(operand_pack)(
    const operand *o, int64_t k, int64_t depth, int64_t begin, int64_t end, float *to) {
  bool turns = o->lane_stride != 1;
  source s = {o->data + k * o->k_stride, turns ? o->lane_stride : o->k_stride, depth, o->count};
  if (o->lanes == COLUMNS && turns) turn_panels(&s, begin, end, to, COLUMNS);
  else if (o->lanes == COLUMNS) copy_panels(&s, begin, end, to, COLUMNS);
  else if (turns) turn_panels(&s, begin, end, to, ROWS);
  else copy_panels(&s, begin, end, to, ROWS);
}
