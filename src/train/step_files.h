// SPDX-License-Identifier: Apache-2.0
/* Folders in which a run leaves a safetensors file of each step, its gradients or its routing, or
 * event files. */
#ifndef TSR_TRAIN_STEP_FILES_H
#define TSR_TRAIN_STEP_FILES_H
#include "train/out_folder.h"

typedef struct {
  const char *what;   /* "gradients" */
  const char *option; /* that names the folder */
  const char *prefix; /* "step-": files are step-00000001.safetensors, … */
  const char *ending; /* ".safetensors"; "": any */
  /* Whether this program has written the file; `otherwise`: where that cannot be told. NULL: all
   * are taken for such. */
  bool (*is_own)(const char *path, bool otherwise);
} tsr_step_files;
extern const tsr_step_files tsr_gradient_files, tsr_routing_files, tsr_tensorboard_files;

/* A step's file in a folder; room for the folder's name and TSR_STEP_FILE_BYTES. */
enum { TSR_STEP_FILE_BYTES = 40 };
void tsr_step_file_path(
    const tsr_step_files *files, const char *folder, int64_t step, char *ret_path);

/* What else the run writes, and how it begins. */
enum { TSR_STEP_FOLDERS = 3 };
typedef struct {
  const tsr_config *config;
  const char *metrics; /* the file of --metrics; NULL: none */
  const tsr_out_folder
      *taken[TSR_STEP_FOLDERS]; /* already, and may be the same folder; NULL: none */
  bool resumes, overwrites;
} tsr_step_files_run;

/* Takes the folder, as that of --out is taken (train/out_folder.h). Errors: it has such files of
 * another run, and the run does not overwrite them; it has files of
 * such names that another program has written; it has another run's results; it has a
 * config.yaml that no run has written. */
bool tsr_step_folder_take(
    tsr_arena *arena, const tsr_step_files *files, const char *path, const tsr_step_files_run *run,
    tsr_out_folder *ret_folder, tsr_diags *diags);

/* The run begins: removes such files where it overwrites them, and writes config.yaml. */
bool tsr_step_folder_begin(
    tsr_arena *arena, const tsr_step_files *files, tsr_out_folder *folder, bool overwrites,
    const tsr_config *config, tsr_diags *diags);

#endif
