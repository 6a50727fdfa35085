// SPDX-License-Identifier: Apache-2.0
#include "train/learning_rate_recipe.h"
#include "config/fields.h"
#include <stdlib.h>
#include <string.h>

#define SECTION "scheduler_config."
static const char total[] = "training_config.max_steps";

bool tsr_lr_recipe_has(const char *key) {
  return !strncmp(key, SECTION, strlen(SECTION)) || !strcmp(key, total) ||
         !strcmp(key, "training_config.optimizer.lr");
}

static bool find_kind(const char *name, tsr_lr_kind *ret) {
  const tsr_field *f = &tsr_fields[tsr_field_find_dotted(SECTION "type")];
  for (const tsr_field_choice *c = f->choices; name && c->name; c++)
    if (!strcmp(c->name, name)) return *ret = (tsr_lr_kind)c->value, true;
  return false;
}

typedef struct {
  const tsr_recipe_entry *entries;
  int count;
} recipe;

static const char *text_of(const recipe *r, const char *key) {
  const char *text = tsr_recipe_find(r->entries, r->count, key);
  return text ? text : "0"; /* keys that the curve does not read are left out */
}

static int64_t number(const recipe *r, const char *key) {
  return strtoll(text_of(r, key), NULL, 10);
}

static bool read_curve(const recipe *r, tsr_lr_curve *ret) {
  *ret = (tsr_lr_curve){
      .base = strtod(text_of(r, SECTION "max_lr"), NULL),
      .min = strtod(text_of(r, SECTION "min_lr"), NULL),
      .total_steps = number(r, total),
      .warmup_steps = number(r, SECTION "warmup_steps"),
      .stable_steps = number(r, SECTION "hold_steps")};
  return find_kind(tsr_recipe_find(r->entries, r->count, SECTION "type"), &ret->kind);
}

bool tsr_lr_recipe_agrees(
    const tsr_recipe_entry *entries, int count, const tsr_lr_curve *curve, int64_t steps) {
  recipe r = {entries, count};
  tsr_lr_curve there;
  if (!read_curve(&r, &there)) return false;
  for (int64_t s = 0; s < steps; s++) {
    double a = tsr_learning_rate(curve, s), b = tsr_learning_rate(&there, s);
    if (memcmp(&a, &b, sizeof a)) return false;
  }
  return true;
}
