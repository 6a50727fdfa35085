// SPDX-License-Identifier: Apache-2.0
/* The command `compare`. */
#include "cli/compare_runs.h"
#include "cli/console.h"
#include "base/file_read.h"
#include "checkpoint/checkpoint_commands.h"
#include "checkpoint/folder.h"
#include "compare/tensor_files.h"
#include "report/run_lock.h"

typedef enum { RUNS, CHECKPOINTS, TENSORS } kind;

/* A folder with a run.lock is a run, and any other one a checkpoint, or has some. */
static kind kind_of(const app *a, const char *path) {
  static const char *const names[] = {TSR_RUN_LOCK_NAME, TSR_MANIFEST_NAME};
  if (tsr_path_ends(path, ".safetensors")) return TENSORS;
  bool is_run = tsr_file_exists(tsr_path_join(a->arena, path, names[0]));
  bool is_folder = tsr_file_is_folder(path);
  return is_folder && !is_run ? CHECKPOINTS : RUNS;
}

static bool compare_files(app *a, const char *const *paths, tsr_text *text, bool *ret_passes) {
  tsr_file_comparison c;
  if (!tsr_tensor_files_compare(a->arena, paths[0], paths[1], &c, text, a->diags)) return false;
  *ret_passes = !c.beyond && !c.unbounded;
  return true;
}

static bool compare_checkpoints(app *a, const char *const *paths, tsr_text *text, bool *ret_equal) {
  tsr_manifest m[2];
  tsr_checkpoint_hold hold;
  int differences = 0;
  for (int i = 0; i < 2; i++)
    if (!tsr_checkpoint_find_held(a->arena, paths[i], TSR_NOWHERE, &m[i], &hold, a->diags))
      return false;
  if (!tsr_checkpoint_diff(
          a->arena, tsr_kernels_get(NULL), &m[0], &m[1], &differences, text, a->diags))
    return false;
  *ret_equal = !differences;
  if (!differences)
    tsr_text_add(
        text, "equal: weights and optimizer state of step %lld\n", (long long)m[0].state.step);
  return true;
}

int app_run_compare(app *a) {
  const char *const *paths = a->options.arguments.items;
  kind kinds[2] = {kind_of(a, paths[0]), kind_of(a, paths[1])};
  tsr_text text = {0};
  bool passes = false, ok;
  app_catch_signals();
  if (kinds[0] != kinds[1])
    ok = tsr_diag_error(
        a->diags, TSR_NOWHERE,
        "'%s' and '%s' are of two kinds: runs or recipes, checkpoints, files "
        "of tensors",
        paths[0], paths[1]);
  else if (kinds[0] == TENSORS) ok = compare_files(a, paths, &text, &passes);
  else if (kinds[0] == CHECKPOINTS) ok = compare_checkpoints(a, paths, &text, &passes);
  else ok = compare_runs(a, paths[0], paths[1], &text, &passes);
  if (ok && !passes)
    ok = tsr_diag_failure(a->diags, TSR_NOWHERE, "'%s' and '%s' differ", paths[0], paths[1]);
  a->options.quiet ? tsr_text_free(&text) : console_print(&text);
  return console_finish_stoppable(a, ok);
}
