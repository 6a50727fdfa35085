// SPDX-License-Identifier: Apache-2.0
#include "train/fork_metrics.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool tsr_fork_begins_files(const tsr_trainer_options *o) {
  return o->keep.forks && o->keep.purpose != TSR_OUT_RESUMES;
}

/* Not what the recipe fixes, and what two runs of one sequence of steps may have differently. */
static bool evaluates_alike(const tsr_trainer *t, const tsr_manifest *m) {
  const tsr_config *c = t->o->config;
  tsr_config *other;
  if (!m->config || !tsr_config_load(
                        t->o->arena, tsr_path_join(t->o->arena, m->folder, m->config), NULL, 0,
                        &other, tsr_diags_new(t->o->arena)))
    return false;
  const char *here = c->training.validation_path, *there = other->training.validation_path;
  return c->training.validation_batch_size == other->training.validation_batch_size &&
         c->training.validation_fraction == other->training.validation_fraction &&
         (!strcmp(here, there) || tsr_file_is_same(here, there));
}

/* "OUT/metrics.jsonl" of the checkpoint "OUT/checkpoints/step-00000060"; a link to it may be
 * elsewhere. */
static const char *metrics_beside(tsr_arena *arena, const tsr_manifest *m) {
  char folder[PATH_MAX];
  if (!realpath(m->folder, folder)) snprintf(folder, sizeof folder, "%s", m->folder);
  const char *out = tsr_path_folder(arena, tsr_path_folder(arena, folder));
  return tsr_path_join(arena, out, "metrics.jsonl");
}

void tsr_fork_metrics_add(tsr_trainer *t) {
  const tsr_manifest *m = t->manager ? tsr_checkpoint_manager_resumed(t->manager) : NULL;
  tsr_arena *arena = t->o->arena;
  char recipe[TSR_HASH_TEXT];
  const char *why;
  if (!m || t->o->rank_map.process || !tsr_fork_begins_files(t->o)) return;
  tsr_recipe_hash(m->recipe, m->recipe_count, recipe);
  tsr_metrics_origin origin = {metrics_beside(arena, m), recipe, t->step};
  if (evaluates_alike(t, m)) origin.evaluations = t->step < t->steps ? t->step : t->step - 1;
  if (tsr_metrics_add_origin(arena, t->o->metrics, &origin, &why, t->diags)) return;
  tsr_diag_note(
      t->diags, TSR_NOWHERE, "the metrics begin behind step %" PRId64 ": '%s': %s", t->step,
      origin.path, why);
  tsr_diags_print(t->diags, stderr);
}
