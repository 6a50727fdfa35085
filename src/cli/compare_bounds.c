// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_bounds.h"
#include "cli/replay.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "compare/tensor_dump.h"
#include "compare/tensor_files.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Keys that change where a run rounds, and not what it computes. */
static const char *const rounding_keys[] = {
    "training_config.precision",
    "training_config.mixed_precision",
    "training_config.optimizer.stochastic_rounding",
    "training_config.optimizer.kahan_summation",
    "numerics.isa",
    "numerics.policy",
    "numerics.reduce_tree",
    "numerics.units.batch",
    "numerics.units.order",
    "numerics.units.sequence",
    "numerics.units.tp",
    "numerics.units.expert"};

static bool is_rounding_key(const char *key) {
  for (size_t i = 0; i < sizeof rounding_keys / sizeof *rounding_keys; i++)
    if (!strcmp(key, rounding_keys[i])) return true;
  return false;
}

static const char *value_of(const tsr_recipe_entry *recipe, int count, const char *key) {
  for (int i = 0; i < count; i++)
    if (!strcmp(recipe[i].key, key)) return recipe[i].value;
  return NULL;
}

bool compare_bounds_apply(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count) {
  bool any = false;
  for (int i = 0; i < a_count + b_count; i++) {
    const char *key = i < a_count ? a[i].key : b[i - a_count].key;
    const char *here = value_of(a, a_count, key), *there = value_of(b, b_count, key);
    if (here && there && !strcmp(here, there)) continue;
    if (!is_rounding_key(key)) return false;
    any = true;
  }
  return any;
}

static bool all(void *context, const char *name) {
  (void)context, (void)name;
  return true;
}

/* The tensors of the first step, in a folder. */
static bool dump(app *a, const char *path, const char *folder) {
  replay r;
  bool ok = replay_open(a, path, &r);
  tsr_tensor_dump *d =
      ok ? tsr_tensor_dump_new(a->arena, r.setup.config, r.steps, folder, 1, 1, all, NULL) : NULL;
  ok = ok && replay_run(&r, 1, tsr_tensor_dump_observer(d));
  replay_close(&r);
  return ok;
}

/* A name that nothing has. */
static const char *temporary_folder(tsr_arena *arena) {
  const char *place = getenv("TMPDIR"), *name;
  int i = 0;
  do
    name = tsr_arena_printf(
        arena, "%s/tessera-compare-%d-%d", place && *place ? place : "/tmp", (int)getpid(), i++);
  while (tsr_file_exists(name));
  return name;
}

bool compare_bounds(app *a, const char *const paths[2], tsr_text *text, bool *ret_passes) {
  const char *folder = temporary_folder(a->arena);
  const char *files[2], *folders[2];
  tsr_file_comparison c = {0};
  if (!tsr_disk_make_folder(folder))
    return tsr_file_cannot("make the folder", folder, errno, TSR_NOWHERE, a->diags);
  bool ok = true;
  for (int i = 0; i < 2; i++) {
    folders[i] = tsr_arena_printf(a->arena, "%s/%d", folder, i + 1);
    files[i] = tsr_tensor_dump_path(a->arena, folders[i], 1);
    ok = ok && dump(a, paths[i], folders[i]);
  }
  tsr_text_add(text, "step 1, against a bound of rounding errors:\n");
  ok = ok && tsr_tensor_files_compare(a->arena, files[0], files[1], &c, text, a->diags);
  for (int i = 0; i < 2; i++) {
    tsr_disk_remove(files[i]);
    tsr_disk_remove_empty(folders[i]);
  }
  tsr_disk_remove_empty(folder);
  *ret_passes = ok && !c.beyond && !c.unbounded;
  return ok;
}
