// SPDX-License-Identifier: Apache-2.0
/* The gradients of a step as a safetensors file: whole tensors in f32, named as their parameters,
 * complete (the mean over the step's targets, reduced over all ranks) and before clipping. */
#ifndef TSR_TRAIN_GRADIENT_DUMP_H
#define TSR_TRAIN_GRADIENT_DUMP_H
#include "runtime/process.h"
#include "train/compile.h"
#include "train/out_folder.h"

enum { TSR_GRADIENT_PATH_BYTES = 32 }; /* of a file's name, behind its folder */

typedef struct {
  const char *folder;
  const char *recipe; /* of the run: its hash */
  char *path;         /* room for folder and TSR_GRADIENT_PATH_BYTES; messages keep it */
  int64_t step;       /* its file is step-00000001.safetensors, … */
  double factor;      /* the numbers are multiplied by it: 1 / the loss scale */
  bool writes;        /* this process writes the file */
} tsr_gradient_dump;

/* What else the run writes, and how it begins. */
typedef struct {
  const tsr_config *config;
  const char *metrics;       /* the file of --metrics; NULL: none */
  const tsr_out_folder *out; /* of --out, which is taken and may be the same folder */
  bool resumes, overwrites;
} tsr_gradient_run;

/* Takes the folder of --dump-grads, as that of --out is taken (train/out_folder.h). Errors: it has
 * gradients of another run, and the run does not overwrite them; it has another run's results; it
 * has a config.yaml that no run has written. */
bool tsr_gradient_folder_take(
    tsr_arena *arena, const char *path, const tsr_gradient_run *run, tsr_out_folder *ret_folder,
    tsr_diags *diags);

/* The run begins: removes files of gradients where it overwrites them, and writes config.yaml. */
bool tsr_gradient_folder_begin(
    tsr_arena *arena, tsr_out_folder *folder, bool overwrites, const tsr_config *config,
    tsr_diags *diags);

/* Collective, after a step of a program that was compiled with TSR_OUTPUTS_GRADIENTS. Failures of
 * the disk are those of the writing process alone. */
bool tsr_gradient_dump_write(
    const tsr_gradient_dump *dump, const tsr_compiled *training, tsr_executable *executable,
    tsr_diags *diags);

#endif
