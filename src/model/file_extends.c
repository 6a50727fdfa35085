// SPDX-License-Identifier: Apache-2.0
/* requires: a graph file, which may extend another one. produces: one map of sections. */
#include "base/file_read.h"
#include "model/graph_file.h"
#include <string.h>

enum { DEPTH_MAX = 8 };

static tsr_yaml *new_map(tsr_arena *arena, tsr_location location, int room) {
  tsr_yaml *map = tsr_arena_alloc(arena, sizeof *map);
  *map = (tsr_yaml){.kind = TSR_YAML_MAP, .text = "", .location = location};
  map->keys = tsr_arena_array(arena, tsr_yaml *, room + 1);
  map->items = tsr_arena_array(arena, tsr_yaml *, room + 1);
  return map;
}

static void add(tsr_yaml *map, tsr_yaml *key, tsr_yaml *item) {
  map->keys[map->count] = key;
  map->items[map->count++] = item;
}

/* How a key of both is joined: NULL is by the value of `over`. */
typedef tsr_yaml *join_rule(tsr_arena *arena, const tsr_yaml *key, tsr_yaml *base, tsr_yaml *over);

static int index_of(const tsr_yaml *map, const char *key) {
  for (int i = 0; i < map->count; i++)
    if (!strcmp(map->keys[i]->text, key)) return i;
  return -1;
}

/* The keys that `over` alone has, and that directly precede its key `end`. */
static void add_new(tsr_yaml *map, const tsr_yaml *base, const tsr_yaml *over, int end) {
  int begin = end;
  while (begin > 0 && index_of(base, over->keys[begin - 1]->text) < 0) begin--;
  for (int i = begin; i < end; i++) add(map, over->keys[i], over->items[i]);
}

/* The keys of `base` in their order. Those that `over` alone has stand before the next one of both,
 * so that defaults can use them. */
static tsr_yaml *
join_maps(tsr_arena *arena, const tsr_yaml *base, const tsr_yaml *over, join_rule *rule) {
  tsr_yaml *map = new_map(arena, over->location, base->count + over->count);
  for (int i = 0; i < base->count; i++) {
    tsr_yaml *key = base->keys[i], *item = base->items[i];
    int changed = index_of(over, key->text);
    if (changed >= 0) {
      add_new(map, base, over, changed);
      key = over->keys[changed];
      item = rule ? rule(arena, key, item, over->items[changed]) : over->items[changed];
    }
    add(map, key, item);
  }
  add_new(map, base, over, over->count);
  return map;
}

tsr_yaml *tsr_yaml_join(tsr_arena *arena, const tsr_yaml *base, const tsr_yaml *over) {
  return join_maps(arena, base, over, NULL);
}

/* `6` as `{default: 6}`. */
static tsr_yaml *long_form(tsr_arena *arena, tsr_yaml *size) {
  static const char word[] = "default";
  if (size->kind == TSR_YAML_MAP) return size;
  tsr_yaml *map = new_map(arena, size->location, 1), *key = tsr_arena_alloc(arena, sizeof *key);
  *key = (tsr_yaml){.kind = TSR_YAML_SCALAR, .location = size->location, .text = word};
  key->text_length = strlen(word);
  add(map, key, size);
  return map;
}

static tsr_yaml *join_size(tsr_arena *arena, const tsr_yaml *key, tsr_yaml *base, tsr_yaml *over) {
  (void)key;
  return join_maps(arena, long_form(arena, base), long_form(arena, over), NULL);
}

static tsr_yaml *
join_section(tsr_arena *arena, const tsr_yaml *key, tsr_yaml *base, tsr_yaml *over) {
  bool sizes =
      !strcmp(key->text, "sizes") && base->kind == TSR_YAML_MAP && over->kind == TSR_YAML_MAP;
  return sizes ? join_maps(arena, base, over, join_size) : over;
}

static tsr_yaml *without(tsr_arena *arena, const tsr_yaml *map, const char *key) {
  tsr_yaml *rest = new_map(arena, map->location, map->count);
  for (int i = 0; i < map->count; i++)
    if (strcmp(map->keys[i]->text, key)) add(rest, map->keys[i], map->items[i]);
  return rest;
}

static bool read_map(
    tsr_arena *arena, const char *path, tsr_location location, tsr_yaml **ret_map,
    tsr_diags *diags) {
  if (!tsr_yaml_read(arena, path, location, ret_map, diags)) return false;
  return (*ret_map)->kind == TSR_YAML_MAP ||
         tsr_diag_error(
             diags, (*ret_map)->location, "a graph file must be a map, not %s",
             tsr_yaml_describe(arena, *ret_map));
}

bool tsr_graph_file_load(
    tsr_arena *arena, const char *path, tsr_location location, tsr_yaml **ret_root,
    tsr_diags *diags) {
  static const char extends[] = "extends";
  if (!read_map(arena, path, location, ret_root, diags)) return false;
  const tsr_yaml *name;
  for (int depth = 0; (name = tsr_yaml_get(*ret_root, extends)); depth++) {
    if (name->kind != TSR_YAML_SCALAR)
      return tsr_diag_error(
          diags, name->location, "'extends' must be a graph file beside this one, not %s",
          tsr_yaml_describe(arena, name));
    if (depth == DEPTH_MAX)
      return tsr_diag_error(
          diags, name->location, "graph files extend each other more than %d deep", DEPTH_MAX);
    tsr_yaml *base;
    path = tsr_path_join(arena, tsr_path_folder(arena, path), name->text);
    if (!read_map(arena, path, name->location, &base, diags)) return false;
    *ret_root = join_maps(arena, base, without(arena, *ret_root, extends), join_section);
  }
  return true;
}
