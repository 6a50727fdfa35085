// SPDX-License-Identifier: Apache-2.0
/* The gradients of a step as a safetensors file: whole tensors in f32, named as their parameters,
 * complete (the mean over the step's targets, reduced over all ranks) and before clipping. */
#ifndef TSR_TRAIN_GRADIENT_DUMP_H
#define TSR_TRAIN_GRADIENT_DUMP_H
#include "runtime/process.h"
#include "train/compile.h"

typedef struct {
  const char *folder;
  const char *recipe; /* of the run: its hash */
  char *path;         /* room for folder and TSR_STEP_FILE_BYTES; messages keep it */
  int64_t step;       /* its file is step-00000001.safetensors, … */
  double factor;      /* the numbers are multiplied by it: 1 / the loss scale */
  bool writes;        /* this process writes the file */
} tsr_gradient_dump;

/* Collective, after a step of a program that was compiled with TSR_OUTPUTS_GRADIENTS. Failures of
 * the disk are those of the writing process alone. */
bool tsr_gradient_dump_write(
    const tsr_gradient_dump *dump, const tsr_compiled *training, tsr_executable *executable,
    tsr_diags *diags);

#endif
