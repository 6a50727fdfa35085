// SPDX-License-Identifier: Apache-2.0
/* The trained parameters of a graph with frozen ones, whole and without padding, in f32. Counts
 * that balance experts are left out: neither PEFT nor Hugging Face's models have them. */
#ifndef TSR_CHECKPOINT_TRAINED_VALUES_H
#define TSR_CHECKPOINT_TRAINED_VALUES_H
#include "checkpoint/manifest.h"
#include "runtime/process.h"

typedef struct {
  const tsr_graph *graph;
  float **values; /* per parameter, of tsr_param_real_elements; NULL: it is left out or frozen */
} tsr_trained_values;

tsr_trained_values tsr_trained_values_new(tsr_arena *arena, const tsr_graph *graph);
/* Of a checkpoint of such a run, whose hashes are compared. */
bool tsr_trained_values_read(
    tsr_arena *arena, const tsr_manifest *manifest, const tsr_trained_values *values,
    tsr_diags *diags);
/* Into the memory of a program of the same model, by names. Processes call it alike. */
void tsr_trained_values_load(
    tsr_arena *arena, const tsr_trained_values *values, tsr_executable *executable);

/* n numbers of a dtype as f32. */
void tsr_numbers_to_f32(
    const tsr_kernels *kernels, tsr_dtype dtype, const void *numbers, int64_t n, float *ret);

#endif
