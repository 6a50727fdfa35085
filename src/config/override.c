// SPDX-License-Identifier: Apache-2.0
#include "config/override.h"
#include "base/text.h"
#include <string.h>

static const char file_name[] = "--set";

/* The value's text stands after blank lines and blanks, so that its places are those in what
 * diagnostics quote: the list of all --set. */
static bool parse_value(
    tsr_arena *arena, const char *value, tsr_location at, tsr_yaml **ret_value, tsr_diags *diags) {
  tsr_text padded = {0};
  for (int i = 1; i < at.line; i++) tsr_text_add(&padded, "\n");
  tsr_text_add(&padded, "%*s%s", at.col - 1, "", value);
  bool ok = tsr_yaml_parse(arena, at.file, padded.data, padded.length, ret_value, diags);
  tsr_text_free(&padded);
  return ok;
}

static bool check_path(const char *path, tsr_location location, tsr_diags *diags) {
  size_t length = strlen(path);
  if (length && path[0] != '.' && path[length - 1] != '.' && !strstr(path, "..")) return true;
  return tsr_diag_error(diags, location, "'%s' is not a key", path);
}

static bool parse_set(tsr_arena *arena, const char *set, tsr_override *override, tsr_diags *diags) {
  const char *equals = strchr(set, '=');
  int length = equals ? (int)(equals - set) : (int)strlen(set);
  tsr_location at = override->location;
  override->location.length = length;
  if (strchr(set, '\n'))
    return tsr_diag_error(diags, override->location, "an override is one line");
  if (!equals) {
    tsr_diag_error(diags, override->location, "an override is section.key=value");
    tsr_diag_hint(diags, "such as training_config.batch_size=8");
    return false;
  }
  override->path = tsr_arena_strndup(arena, set, (size_t)length);
  at.col = length + 2;
  if (!check_path(override->path, override->location, diags) ||
      !parse_value(arena, equals + 1, at, &override->value, diags))
    return false;
  if (override->value->kind == TSR_YAML_NULL) override->value->location = override->location;
  return true;
}

static bool
parse_option(tsr_arena *arena, const tsr_set *set, tsr_override *override, tsr_diags *diags) {
  override->is_option = true;
  override->path = set->key;
  override->location = (tsr_location){set->option, 1, 1, (int)strlen(set->text)};
  if (!set->is_verbatim)
    return parse_value(arena, set->text, override->location, &override->value, diags);
  override->value = tsr_arena_alloc(arena, sizeof *override->value);
  *override->value = (tsr_yaml){
      .kind = TSR_YAML_SCALAR, .location = override->location, .text = set->text, .quoted = true};
  override->value->text_length = strlen(set->text);
  tsr_diags_source(diags, set->option, set->text, strlen(set->text));
  return true;
}

/* The line of a --set in their list, with which it stays one line. */
static void add_line(const char *set, tsr_text *list) {
  for (; *set; set++) tsr_text_add(list, "%c", *set == '\n' ? ' ' : *set);
  tsr_text_add(list, "\n");
}

bool tsr_overrides_parse(
    tsr_arena *arena, const tsr_set *sets, int count, tsr_override **ret_overrides,
    tsr_diags *diags) {
  bool ok = true;
  int line = 0;
  tsr_text all = {0};
  *ret_overrides = tsr_arena_array(arena, tsr_override, count + 1);
  for (int i = 0; i < count; i++) {
    tsr_override *o = &(*ret_overrides)[i];
    *o = (tsr_override){.location = {file_name, line + 1, 1, 1}};
    o->done = sets[i].option ? !parse_option(arena, &sets[i], o, diags)
                             : !parse_set(arena, sets[i].text, o, diags);
    ok = ok && !o->done;
    if (sets[i].option) continue;
    add_line(sets[i].text, &all);
    line++;
  }
  if (line) tsr_diags_source(diags, file_name, all.data, all.length);
  tsr_text_free(&all);
  return ok;
}

/* The index of the key in a copy of the map, to which it is added if it was missing. The last key
 * of a path takes the override's place. */
static int copy_with_key(
    tsr_arena *arena, const tsr_yaml *map, const char *name, tsr_location location, bool last,
    tsr_yaml **ret_copy) {
  tsr_yaml *copy = tsr_arena_alloc(arena, sizeof *copy);
  *copy = *map;
  copy->kind = TSR_YAML_MAP;
  copy->keys = tsr_arena_array(arena, tsr_yaml *, map->count + 1);
  copy->items = tsr_arena_array(arena, tsr_yaml *, map->count + 1);
  int index = 0;
  for (int i = 0; i < map->count; i++) {
    copy->keys[i] = map->keys[i];
    copy->items[i] = map->items[i];
  }
  while (index < map->count && strcmp(map->keys[index]->text, name)) index++;
  if (index == map->count || last) {
    tsr_yaml *key = tsr_arena_alloc(arena, sizeof *key);
    *key = (tsr_yaml){.kind = TSR_YAML_SCALAR, .location = location, .text = name};
    key->text_length = strlen(name);
    copy->keys[index] = key;
    if (index == map->count) copy->count++;
  }
  *ret_copy = copy;
  return index;
}

bool tsr_override_apply(
    tsr_arena *arena, tsr_override *override, const char *path, tsr_yaml **root, tsr_diags *diags) {
  tsr_yaml **slot = root;
  int shift = (int)strlen(path) - (int)strlen(override->path); /* of a longer way to the same key */
  override->done = true;
  for (const char *at = path;;) {
    const char *dot = strchr(at, '.');
    const char *name = dot ? tsr_arena_strndup(arena, at, (size_t)(dot - at)) : at;
    tsr_location location = override->location;
    location.col = (int)(at - path) - shift + 1;
    location.length = (int)strlen(name);
    if (location.col < 1 || override->is_option) location = override->location;
    if (*slot && (*slot)->kind != TSR_YAML_MAP && (*slot)->kind != TSR_YAML_NULL)
      return tsr_diag_error(
          diags, location, "'%.*s' is %s, it has no key '%s'",
          at == path ? 0 : (int)(at - path) - 1, path, tsr_yaml_describe(arena, *slot), name);
    tsr_yaml empty = {.kind = TSR_YAML_MAP, .location = location, .text = ""}, *copy;
    int index = copy_with_key(arena, *slot ? *slot : &empty, name, location, !dot, &copy);
    *slot = copy;
    slot = &copy->items[index];
    if (!dot) break;
    at = dot + 1;
  }
  *slot = override->value;
  return true;
}
