// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_bounds.h"
#include "cli/replay.h"
#include "base/file_ops.h"
#include "compare/tensor_dump.h"
#include "compare/tensor_files.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Keys, or with a dot at their end the begins of keys, that change where a run rounds and not what
 * it computes. */
static const char *const rounding_keys[] = {
    "training_config.precision",
    "training_config.loss_scale.",
    "training_config.fp8.",
    "training_config.optimizer.stochastic_rounding",
    "training_config.optimizer.kahan_summation",
    "numerics.policy",
    "numerics.reduce_tree",
    "numerics.tp_reductions",
    "numerics.units.",
    TSR_RECIPE_ISA,
    TSR_RECIPE_ISA_BEFORE,
    TSR_RECIPE_VOCAB,
    TSR_RECIPE_VOCAB_BEFORE};

static bool is_rounding_key(const char *key) {
  for (size_t i = 0; i < sizeof rounding_keys / sizeof *rounding_keys; i++) {
    size_t length = strlen(rounding_keys[i]);
    bool begins = !strncmp(rounding_keys[i], key, length);
    if (begins && (!key[length] || rounding_keys[i][length - 1] == '.')) return true;
  }
  return false;
}

bool compare_bounds_apply(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count,
    bool *ret_others) {
  bool any = false;
  *ret_others = false;
  for (int i = 0; i < a_count + b_count; i++) {
    const char *key = i < a_count ? a[i].key : b[i - a_count].key;
    const char *here = tsr_recipe_find(a, a_count, key), *there = tsr_recipe_find(b, b_count, key);
    if (here && there && !strcmp(here, there)) continue;
    if (is_rounding_key(key)) any = true;
    else *ret_others = true;
  }
  return any;
}

static int all(void *context, const char *name) {
  (void)context, (void)name;
  return 1;
}

/* The tensors of a step, in a folder. */
static bool dump(app *a, const char *path, const char *folder, int64_t step) {
  replay r;
  bool ok = replay_open(a, path, &r);
  tsr_tensor_dump *d =
      ok ? tsr_tensor_dump_new(a->arena, r.setup.config, r.steps, folder, step, step, all, NULL)
         : NULL;
  ok = ok && replay_run(&r, step, tsr_tensor_dump_observer(d));
  if (d) tsr_tensor_dump_free(d);
  replay_close(&r);
  return ok;
}

bool compare_bounds(
    app *a, const char *const paths[2], int64_t step, tsr_text *text, bool *ret_passes) {
  const char *place = getenv("TMPDIR");
  char *folder =
      tsr_arena_printf(a->arena, "%s/tessera-compare-XXXXXX", place && *place ? place : "/tmp");
  const char *files[2], *folders[2];
  tsr_file_comparison c = {0};
  if (!tsr_disk_make_temporary(folder))
    return tsr_file_cannot("make the folder", folder, errno, TSR_NOWHERE, a->diags);
  bool ok = true;
  for (int i = 0; i < 2; i++) {
    folders[i] = tsr_arena_printf(a->arena, "%s/%d", folder, i + 1);
    files[i] = tsr_tensor_dump_path(a->arena, folders[i], step);
    ok = ok && dump(a, paths[i], folders[i], step);
  }
  tsr_text_add(text, "step %" PRId64 ", against a bound of rounding errors:\n", step);
  ok = ok && tsr_tensor_files_compare(a->arena, files[0], files[1], &c, text, a->diags);
  for (int i = 0; i < 2; i++) {
    tsr_disk_remove(files[i]);
    tsr_disk_remove(tsr_tensor_dump_bounds_path(a->arena, files[i]));
    tsr_disk_remove_empty(folders[i]);
  }
  tsr_disk_remove_empty(folder);
  *ret_passes = ok && !c.beyond && !c.unbounded;
  return ok;
}
