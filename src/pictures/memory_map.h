// SPDX-License-Identifier: Apache-2.0
/* WORK over the tasks of a step: which bytes are taken when, and how many by use. */
#ifndef TSR_PICTURES_MEMORY_MAP_H
#define TSR_PICTURES_MEMORY_MAP_H
#include "schedule/program.h"

typedef struct {
  const tsr_program *program;
  tsr_arena *arena;
  double left, top, width, height; /* of a plot */
} tsr_memory_plot;

/* The addresses, from below; the sections' names stand above it. Returns how many pieces are too
 * small to have a rectangle of their own. */
int tsr_memory_map_draw(const tsr_memory_plot *plot, tsr_text *svg);
/* The bytes by use, with the peak. */
void tsr_memory_curve_draw(const tsr_memory_plot *plot, tsr_text *svg);

/* "activations" …, and their classes. */
extern const char *const tsr_memory_use_names[TSR_USES], *const tsr_memory_use_classes[TSR_USES];
/* Whether the rank that has the peak has a piece. */
bool tsr_memory_is_counted(const tsr_program *program, const tsr_work_piece *piece);
/* The place of the peak's task in the order of the plan. */
int tsr_memory_peak_place(const tsr_program *program);

#endif
