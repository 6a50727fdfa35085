// SPDX-License-Identifier: Apache-2.0
/* Programs for tests of the verifier: a small transformer on many meshes, and copies of its
 * programs that may be spoilt. */
#ifndef TSR_TESTS_SCHEDULE_SAMPLE_H
#define TSR_TESTS_SCHEDULE_SAMPLE_H
#include "schedule/verify.h"
#include "tests/run/harness.h"

/* 16 samples a step (12 for three ranks of dp), whatever the microbatches; token and output
 * embedding are one parameter. The options are those of sample_options. */
tsr_graph *sample_graph(tsr_arena *arena, const harness_options *o);
/* Filled in what all runs share: units, optimizer, vocabulary. */
harness_options sample_options(harness_options o);
/* Compiled, without a process; ends the process when it cannot be. */
harness sample_compile(tsr_arena *arena, const harness_options *options);
/* "pp 2 dp 1 tp 2 1f1b, 4 microbatches" */
const char *sample_text(tsr_arena *arena, const harness_options *options);

tsr_verify_mesh sample_mesh(const tsr_parallel *parallel);
tsr_program *sample_copy(tsr_arena *arena, const tsr_program *program);
tsr_programs sample_copy_all(tsr_arena *arena, const tsr_programs *programs);

/* Tasks are moved, taken out and put in; the parts go with them. */
void sample_remove_task(tsr_program *p, int task);
void sample_insert_task(tsr_arena *arena, tsr_program *p, int at, tsr_task task, int part);
void sample_move_task(tsr_program *p, int from, int to);
int sample_part_of(const tsr_program *p, int task);
/* After a tensor of the program changed: its other names and the tasks follow. */
void sample_bind(tsr_program *p);

#endif
