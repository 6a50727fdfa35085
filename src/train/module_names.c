// SPDX-License-Identifier: Apache-2.0
#include "train/module_names.h"
#include "base/text.h"
#include "tokenizer/pattern.h"
#include <ctype.h>
#include <string.h>

typedef struct {
  const tsr_config_name *name; /* of the configuration's list */
  tsr_pattern *pattern;        /* NULL: a plain name */
  bool used;
} item;

struct tsr_module_names {
  tsr_arena *arena;
  const char *key;
  tsr_module_names_rule rule;
  item *items;
  int count;
};

static bool is_plain(const char *text) {
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && !strchr("_-./", *text)) return false;
  return true;
}

static bool compile(tsr_module_names *names, item *i, tsr_diags *diags) {
  const char *before = names->rule == TSR_NAMES_OF_NUMBERS ? "(?:.*\\.)?" : "";
  const char *whole = tsr_arena_printf(names->arena, "\\A%s(?:%s)\\z", before, i->name->text);
  tsr_diags *unsaid = tsr_diags_new(names->arena);
  if (tsr_pattern_compile(names->arena, whole, false, names->key, &i->pattern, unsaid)) return true;
  const char *why = strstr(tsr_diags_first_error(unsaid), "is not right: ");
  return tsr_diag_error(
      diags, i->name->location, "'%s' is no regular expression: %s", i->name->text,
      why ? why + strlen("is not right: ") : "");
}

bool tsr_module_names_compile(
    tsr_arena *arena, const tsr_config_names *from, const char *key, tsr_module_names_rule rule,
    tsr_module_names **ret, tsr_diags *diags) {
  tsr_module_names *names = *ret = tsr_arena_alloc(arena, sizeof *names);
  *names = (tsr_module_names){.arena = arena, .key = key, .rule = rule, .count = from->count};
  names->items = tsr_arena_array(arena, item, from->count + 1);
  bool ok = true;
  for (int i = 0; i < from->count; i++) {
    names->items[i] = (item){.name = &from->items[i]};
    if (from->is_one || !is_plain(from->items[i].text))
      ok &= compile(names, &names->items[i], diags);
  }
  return ok;
}

static bool matches_name(const char *name, const char *module, bool any_end) {
  size_t length = strlen(name), all = strlen(module);
  if (length > all || strcmp(module + all - length, name)) return false;
  return any_end || length == all || module[all - length - 1] == '.';
}

static bool matches_pattern(tsr_arena *arena, const tsr_pattern *pattern, const char *module) {
  size_t begin, end;
  tsr_match *match = tsr_match_new(arena);
  int found = tsr_pattern_find(pattern, match, module, strlen(module), 0, &begin, &end);
  tsr_match_free(match);
  return found == 1;
}

static const tsr_config_name *match(tsr_module_names *names, const char *module, bool any_end) {
  const tsr_config_name *first = NULL;
  for (int i = 0; i < names->count; i++) {
    item *one = &names->items[i];
    bool found = one->pattern ? matches_pattern(names->arena, one->pattern, module)
                              : matches_name(one->name->text, module, any_end);
    one->used |= found;
    if (found && !first) first = one->name;
  }
  return first;
}

const tsr_config_name *tsr_module_names_match(tsr_module_names *names, const char *module) {
  return match(names, module, names->rule == TSR_NAMES_SAVED);
}

const tsr_config_name *tsr_module_names_match_param(tsr_module_names *names, const char *param) {
  return match(names, param, false);
}

static bool is_one_of(const char *name, const char *const *names, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

bool tsr_module_names_check_used(
    const tsr_module_names *names, const char *const *candidates, int count, const char *tied,
    tsr_diags *diags) {
  const char *key = strchr(names->key, '.') + 1;
  bool ok = true;
  for (int i = 0; i < names->count; i++) {
    const item *one = &names->items[i];
    if (one->used) continue;
    ok = tsr_diag_error(
        diags, one->name->location, "%s: no module%s is called '%s'", key,
        names->rule == TSR_NAMES_OF_NUMBERS ? " with adapters" : "", one->name->text);
    if (is_one_of(one->name->text, candidates, count))
      tsr_diag_hint(
          diags, "a text is a regular expression of whole names; [%s], a list, matches their ends",
          one->name->text);
    else tsr_diag_nearest(diags, one->name->text, candidates, count);
    if (tied && !strcmp(one->name->text, "lm_head"))
      tsr_diag_hint(
          diags, "the output layer's weight is that of the embedding '%s', which cannot %s", tied,
          names->rule == TSR_NAMES_SAVED ? "be in modules_to_save" : "have adapters");
    if (strchr(one->name->text, '/'))
      tsr_diag_hint(
          diags,
          "names are those of Hugging Face's modules, such as model.layers.0.self_attn.q_proj, "
          "or of the graph's parameters");
  }
  return ok;
}
