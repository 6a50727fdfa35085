// SPDX-License-Identifier: Apache-2.0
/* What is known of a sweep's runs so far, and how the table of them is written. */
#ifndef TSR_SWEEP_RESULT_H
#define TSR_SWEEP_RESULT_H
#include "sweep/runs.h"

typedef enum {
  TSR_SWEEP_WAITS,   /* it has more steps to make */
  TSR_SWEEP_DONE,    /* trained to its end, or to the last rung */
  TSR_SWEEP_STOPPED, /* it did not go on from a rung */
  TSR_SWEEP_FAILED
} tsr_sweep_state;

typedef struct {
  tsr_sweep_state state;
  int rung;           /* up to which it was trained; -1: none. Without halving there is one, 0 */
  int64_t step;       /* the last one */
  double objective;   /* NaN: none */
  const char *sha256; /* of the weights after that step; "": none */
  const char *why;    /* of a failed one, "exit code 1" */
} tsr_sweep_result;

/* What a table is made of. */
typedef struct {
  const tsr_sweep *sweep;
  const tsr_sweep_run *runs;
  const tsr_sweep_result *results;
  int count;
  const char *folder, *config;
} tsr_sweep_table;

/* The folder of a run in that of the sweep: "run-001", from 1. */
const char *tsr_sweep_run_folder(tsr_arena *arena, int run);

/* Runs in the order of the table: by the rung that they reached, the last one first, by objective,
 * by number. `ret_order` has room for as many as there are runs; they count from 0. */
void tsr_sweep_order(const tsr_sweep_table *table, int *ret_order);

/* Aligned columns; the same with commas (RFC 4180); JSON. */
void tsr_sweep_table_text(tsr_arena *arena, const tsr_sweep_table *table, tsr_text *text);
void tsr_sweep_table_csv(tsr_arena *arena, const tsr_sweep_table *table, tsr_text *text);
void tsr_sweep_table_json(tsr_arena *arena, const tsr_sweep_table *table, tsr_text *text);

#endif
