// SPDX-License-Identifier: Apache-2.0
/* A compiled run and its plan as pictures: what `--svg` of plan and check writes. */
#ifndef TSR_PICTURES_PICTURES_H
#define TSR_PICTURES_PICTURES_H
#include "plan/report.h"

/* Each appends one SVG document (svg.h); its size is bounded whatever the mesh and the model: what
 * is drawn together is stated in the picture. */

/* The rank that needs the most: its memory by kind, the planned addresses of WORK over the tasks of
 * a step, bytes in use over the tasks, what fills the peak, and all stages. */
void tsr_picture_memory(tsr_arena *arena, const tsr_report *report, tsr_text *svg);
/* The devices in their topology with ranks and coordinates, the links of each axis, and which part
 * of some tensors each device has. */
void tsr_picture_mesh(tsr_arena *arena, const tsr_report *report, tsr_text *svg);
/* The pipeline schedule over time, by stage. */
void tsr_picture_pipeline(tsr_arena *arena, const tsr_report *report, tsr_text *svg);
/* Bytes from each rank to each other one in a step: all, by axis and by collective. */
void tsr_picture_communication(tsr_arena *arena, const tsr_report *report, tsr_text *svg);

/* Writes DIR/memory.svg, mesh.svg, pipeline.svg and communication.svg; the folder is made where
 * there is none. Files of the same names are replaced if they begin as pictures do; else an error,
 * and nothing is written. */
bool tsr_pictures_write(
    tsr_arena *arena, const tsr_report *report, const char *folder, tsr_diags *diags);

#endif
