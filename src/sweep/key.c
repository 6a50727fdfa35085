// SPDX-License-Identifier: Apache-2.0
#include "sweep/key.h"
#include "config/recipe_keys.h"
#include "config/yaml.h"
#include <string.h>

/* Whether the row's key is the name, or ends with a dot and the name. */
static bool ends_with(const tsr_field *f, const char *name) {
  size_t key = strlen(f->key), length = strlen(name), section = strlen(f->section);
  if (length <= key) return length == key && !strcmp(f->key, name);
  size_t left = length - key; /* of the section and a dot */
  if (strcmp(name + left, f->key) || name[left - 1] != '.' || left - 1 > section) return false;
  const char *end = f->section + section - (left - 1);
  return !strncmp(end, name, left - 1) && (end == f->section || end[-1] == '.');
}

typedef struct {
  const tsr_field *rows[TSR_FIELDS_MAX];
  int count;
} candidates;

/* Rows that set something, or other spellings of those. */
static candidates collect(const char *name, bool spellings) {
  candidates found = {.count = 0};
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    bool sets = spellings ? f->same_as != NULL : f->at != 0 && f->type != TSR_FIELD_SECTION;
    if (sets && f->verdict == TSR_FIELD_USED && ends_with(f, name)) found.rows[found.count++] = f;
  }
  return found;
}

static void keep_recipe_keys(candidates *c) {
  candidates kept = {.count = 0};
  for (int i = 0; i < c->count; i++)
    if (tsr_recipe_has_key(c->rows[i])) kept.rows[kept.count++] = c->rows[i];
  if (kept.count == 1) *c = kept;
}

/* The rows that the name may mean: none, one, or several. */
static candidates find_rows(const char *name) {
  int whole = tsr_field_find_dotted(name);
  candidates found = {.rows = {whole < 0 ? NULL : &tsr_fields[whole]}, .count = whole >= 0};
  if (!found.count) found = collect(name, false);
  if (found.count > 1) keep_recipe_keys(&found);
  if (!found.count) found = collect(name, true);
  return found;
}

const tsr_field *tsr_sweep_key_row(const char *name) {
  candidates found = find_rows(name);
  return found.count == 1 ? found.rows[0] : NULL;
}

static bool is_of_model(const tsr_config *c, const char *name, size_t *ret_prefix) {
  const char *map = c->model.map_name;
  size_t length = map ? strlen(map) : 0;
  *ret_prefix = 0;
  if (!map) return false;
  if (strncmp(name, map, length) || name[length] != '.') return tsr_yaml_get(c->model.map, name);
  return *ret_prefix = length + 1, true;
}

static bool refuse_several(
    tsr_arena *arena, const char *name, const candidates *c, tsr_location at, tsr_diags *d) {
  tsr_text list = {0};
  for (int i = 0; i < c->count; i++)
    tsr_text_add(&list, "%s%s", i ? ", " : "", tsr_field_dotted_key(arena, c->rows[i]));
  tsr_diag_error(d, at, "'%s' is the end of several keys", name);
  tsr_diag_hint(d, "one of: %s", list.data);
  tsr_text_free(&list);
  return false;
}

static bool refuse_unknown(
    tsr_arena *arena, const char *name, const tsr_config *c, tsr_location at, tsr_diags *diags) {
  const tsr_yaml *map = c->model.map;
  int count = 0, model = map ? map->count : 0;
  const char **words = tsr_arena_array(arena, const char *, tsr_fields_count + model);
  bool is_whole = strchr(name, '.') != NULL;
  for (int i = 0; i < tsr_fields_count; i++)
    if (tsr_fields[i].at)
      words[count++] = is_whole ? tsr_field_dotted_key(arena, &tsr_fields[i]) : tsr_fields[i].key;
  for (int i = 0; i < model; i++)
    words[count++] = is_whole
                         ? tsr_arena_printf(arena, "%s.%s", c->model.map_name, map->keys[i]->text)
                         : map->keys[i]->text;
  tsr_diag_error(diags, at, "no key of a configuration ends with '%s'", name);
  tsr_diag_nearest(diags, name, words, count);
  return false;
}

bool tsr_sweep_key_find(
    tsr_arena *arena, const char *name, const tsr_config *config, tsr_location location,
    const char **ret_key, const tsr_field **ret_field, tsr_diags *diags) {
  size_t prefix;
  candidates found = find_rows(name);
  bool of_model = is_of_model(config, name, &prefix);
  *ret_field = NULL;
  if (of_model && (!found.count || prefix)) {
    *ret_key = tsr_arena_printf(arena, "%s.%s", config->model.map_name, name + prefix);
    return true;
  }
  if (!found.count) return refuse_unknown(arena, name, config, location, diags);
  if (found.count > 1) return refuse_several(arena, name, &found, location, diags);
  if (found.rows[0]->type == TSR_FIELD_SECTION)
    return tsr_diag_error(diags, location, "'%s' is a section: a sweep sets one key of it", name);
  *ret_field = found.rows[0];
  *ret_key =
      found.rows[0]->same_as ? found.rows[0]->same_as : tsr_field_dotted_key(arena, found.rows[0]);
  return true;
}
