// SPDX-License-Identifier: Apache-2.0
/* The folder of --out: config.yaml, metrics.jsonl, and by default the checkpoints. A run takes it
 * for itself, and nothing in it changes before the run is known to be the one that resumes there,
 * or a new one in a folder without another's results. */
#ifndef TSR_TRAIN_OUT_FOLDER_H
#define TSR_TRAIN_OUT_FOLDER_H
#include "base/folder_lock.h"
#include "config/config.h"

typedef struct {
  const char *path;
  bool is_made; /* by this run */
  bool is_used; /* by a run before, whose config.yaml exists */
  bool has_begun;
  tsr_folder_lock lock;
} tsr_out_folder;

typedef enum {
  TSR_OUT_NEW,       /* the folder must have no results */
  TSR_OUT_ONCE,      /* the same, of a command that cannot resume */
  TSR_OUT_RESUMES,   /* its results are this run's */
  TSR_OUT_ANOTHER,   /* the same as NEW, of a run that was to resume and is another one */
  TSR_OUT_OVERWRITES /* its results are given up */
} tsr_out_purpose;

/* Makes the folder where it is missing, and takes it, whatever it has. Error: another process has
 * it. */
bool tsr_out_folder_lock(
    tsr_arena *arena, const char *path, tsr_out_folder *ret_folder, tsr_diags *diags);

/* The same of the folder of --out. Errors: another process has it; it has a
 * run's results, of which the purpose says that there are none; it has a config.yaml that no run
 * has written; it is a sweep's. */
bool tsr_out_folder_take(
    tsr_arena *arena, const char *path, tsr_out_purpose purpose, const tsr_config *config,
    tsr_out_folder *ret_folder, tsr_diags *diags);

/* Whether config.yaml there is of this run, up to what may change when a run resumes: the mesh and
 * orders, the number of steps, intervals of reports. */
bool tsr_out_folder_is_of(tsr_arena *arena, const char *path, const tsr_config *config);

/* After an error that it is not: hints of the keys that differ, and of what can be done. Always
 * false. */
bool tsr_out_folder_explain(
    tsr_arena *arena, const char *path, const tsr_config *config, tsr_diags *diags);

/* After an error that a run's results are there: a hint of what can be done. `other`: where results
 * would not be in the way. Always false. */
bool tsr_out_folder_suggest(tsr_out_purpose purpose, const char *other, tsr_diags *diags);

/* Whether it has a run's checkpoints, or metrics other than the file `own_metrics` (NULL: none).
 * False with an error where that cannot be read. */
bool tsr_out_folder_has_results(
    tsr_arena *arena, const char *path, const char *own_metrics, bool *ret_has, tsr_diags *diags);

/* The file that a sweep keeps in its folder, which holds its runs' folders, and how it begins. */
#define TSR_SWEEP_JOURNAL_NAME "decisions.jsonl"
#define TSR_SWEEP_JOURNAL_BEGIN "{\"event\":\"sweep\","

/* Whether a run has its config.yaml there. */
bool tsr_out_folder_has_run(tsr_arena *arena, const char *path);

/* An error where --metrics names a file of another run's folder than `out` (NULL: none). */
bool tsr_out_folder_check_metrics(
    tsr_arena *arena, const char *metrics, const char *out, tsr_diags *diags);

/* The run begins: writes config.yaml. */
bool tsr_out_folder_begin(
    tsr_arena *arena, tsr_out_folder *folder, const tsr_config *config, tsr_diags *diags);

/* Gives it back, and removes it if this run has made it and has not begun. */
void tsr_out_folder_close(tsr_out_folder *folder);

#endif
