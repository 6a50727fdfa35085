// SPDX-License-Identifier: Apache-2.0
/* The values that a configuration leaves out, from the recipe of a checkpoint. */
#include "config/config_internal.h"
#include "config/recipe_keys.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_loader loader;
  const char *file;
} filler;

/* A section that implies a value (scheduler_config without a type) does not name it. */
static bool is_named(const filler *f, const char *key) {
  int row = tsr_field_find_dotted(key);
  const tsr_yaml *node = row < 0 ? NULL : f->loader.origins->values[row];
  return node && node->kind != TSR_YAML_MAP;
}

static bool is_scalar(const tsr_field *f) {
  return f->type == TSR_FIELD_INT || f->type == TSR_FIELD_SEED || f->type == TSR_FIELD_FLOAT ||
         f->type == TSR_FIELD_BOOL || f->type == TSR_FIELD_TEXT || f->type == TSR_FIELD_CHOICE ||
         f->type == TSR_FIELD_BYTES;
}

/* Units, levels, trees and the type of tp's sums have rules of their own (train/resume_recipe.h).
 * The end of a run that is set by epochs is not that of the steps. */
static bool is_filled(const filler *l, const tsr_field *f) {
  if (!strcmp(f->key, "max_steps") && is_named(l, "training_config.num_epochs")) return false;
  bool own = !strcmp(f->section, "numerics.units") || !strcmp(f->key, "isa") ||
             !strcmp(f->key, "reduce_tree") || !strcmp(f->key, "tp_reductions");
  return is_scalar(f) && !own && (tsr_recipe_has_key(f) || !strcmp(f->key, "cp_layout"));
}

static void set_place(filler *f, int row, tsr_yaml *node) {
  node->location = (tsr_location){.file = f->file};
  f->loader.origins->values[row] = f->loader.origins->keys[row] = node;
}

/* A value that this version does not know is left to the comparison of the recipes. */
static bool fill_value(filler *f, const char *key, const char *value) {
  tsr_yaml *node;
  int row = tsr_field_find_dotted(key);
  if (row < 0 || is_named(f, key)) return false;
  if (!tsr_yaml_parse(f->loader.arena, f->file, value, strlen(value), &node, f->loader.diags) ||
      !tsr_value_read(&f->loader, &tsr_fields[row], key, node))
    return false;
  set_place(f, row, node);
  return true;
}

/* Units, the tree and the type of tp's sums that are the recipe's already. */
static void place_own(filler *f, const tsr_recipe_entry *entry) {
  int row = tsr_field_find_dotted(entry->key);
  if (row < 0 || is_named(f, entry->key)) return;
  const tsr_field *field = &tsr_fields[row];
  const char *at = (const char *)f->loader.config + field->at;
  bool is_unit = !strcmp(field->section, "numerics.units") && *(const int64_t *)at;
  bool is_order =
      !strcmp(entry->key, "numerics.reduce_tree") || !strcmp(entry->key, "numerics.tp_reductions");
  if (!is_unit && !is_order) return;
  tsr_yaml *node = tsr_arena_alloc(f->loader.arena, sizeof *node);
  *node = (tsr_yaml){.kind = TSR_YAML_SCALAR, .text = entry->value};
  set_place(f, row, node);
}

static const char *
find(const tsr_recipe_entry *entries, int count, const char *key, const char *absent) {
  for (int i = 0; i < count; i++)
    if (!strcmp(entries[i].key, key)) return entries[i].value;
  return absent;
}

/* The samples of a step are those of a microbatch by the number of these: what is left out of the
 * two makes the product. */
static void fill_batch(filler *f, int64_t samples) {
  static const char batch[] = "training_config.batch_size",
                    microbatches[] = "training_config.gradient_accumulation_steps";
  tsr_config_training *t = &f->loader.config->training;
  bool whole = is_named(f, batch), by_rank = is_named(f, "training_config.batch_size_per_rank");
  int64_t other = whole ? t->batch_size : t->gradient_accumulation_steps;
  if (by_rank || other < 1 || samples % other) return;
  const char *value = tsr_arena_printf(f->loader.arena, "%lld", (long long)(samples / other));
  if (whole) fill_value(f, microbatches, value);
  else if (fill_value(f, batch, value)) t->batch_size_given = true;
}

/* What the resolution of a configuration derives from others of its values. */
static void derive(filler *f) {
  tsr_config *c = f->loader.config;
  const char *optimizer = tsr_field_choice_name(
      &tsr_fields[tsr_field_find_dotted("training_config.optimizer.type")], (int)c->optimizer.type);
  if (!is_named(f, "eval_config.seed")) c->eval.seed = c->training.seed;
  c->training.mixed_precision = c->training.precision != TSR_PRECISION_F32;
  if (*optimizer) c->optimizer.type_name = optimizer;
}

void tsr_config_fill(
    tsr_arena *arena, tsr_config *config, const tsr_recipe_entry *entries, int count,
    const char *file) {
  filler f = {.file = file};
  f.loader = (tsr_loader){.arena = arena, .diags = tsr_diags_new(arena), .config = config};
  f.loader.origins = (tsr_config_origins *)config->origins;
  for (int i = 0; i < count; i++) {
    int row = tsr_field_find_dotted(entries[i].key);
    place_own(&f, &entries[i]);
    if (row >= 0 && is_filled(&f, &tsr_fields[row]))
      fill_value(&f, entries[i].key, entries[i].value);
  }
  fill_batch(&f, strtoll(find(entries, count, "samples_per_step", "0"), NULL, 10));
  derive(&f);
}
