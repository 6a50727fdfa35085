// SPDX-License-Identifier: Apache-2.0
/* Sections that stand in files of their own: the path in the tree gives way to the file's contents,
 * so that everything after this reads one tree. */
#include "config/config_internal.h"
#include <string.h>

/* A map with the value of one key replaced: nodes may be shared by aliases, so none is changed. */
static tsr_yaml *with_value(tsr_arena *arena, const tsr_yaml *map, int index, tsr_yaml *value) {
  tsr_yaml *copy = tsr_arena_alloc(arena, sizeof *copy);
  *copy = *map;
  copy->items = tsr_arena_array(arena, tsr_yaml *, map->count);
  memcpy(copy->items, map->items, sizeof *copy->items * (size_t)map->count);
  copy->items[index] = value;
  return copy;
}

/* The section itself, where the file wraps it as `section: {…}`. */
static tsr_yaml *unwrap(tsr_loader *l, tsr_yaml *doc, const tsr_field *f, const char *path) {
  const char *section = !strcmp(f->key, "optimizer_config") ? "optimizer" : f->key;
  tsr_yaml *inner = tsr_yaml_get(doc, f->key);
  if (!inner) inner = tsr_yaml_get(doc, section);
  if (!inner) return doc;
  for (int i = 0; i < doc->count; i++)
    if (doc->items[i] != inner)
      tsr_diag_error(
          l->diags, doc->keys[i]->location, "'%s' stands beside %s in '%s'", doc->keys[i]->text,
          f->key, path);
  return inner;
}

bool tsr_section_has_file(const tsr_field *f) {
  return f->file || !strcmp(f->key, "model_config") || !strcmp(f->key, "optimizer_config");
}

/* `optimizer: AdamW` means a file of that name. */
static void hint_type(tsr_loader *l, const tsr_field *f, const tsr_yaml *node) {
  const tsr_field *type = &tsr_fields[tsr_field_find_dotted("training_config.optimizer.type")];
  for (const tsr_field_choice *c = type->choices; c->name && !strcmp(f->key, "optimizer"); c++)
    if (!strcmp(c->name, node->text))
      tsr_diag_hint(l->diags, "the type is written optimizer.type: %s", c->name);
}

static tsr_yaml *read_section_file(tsr_loader *l, const tsr_field *f, const tsr_yaml *node) {
  const char *path, *from = tsr_loader_file_of(l, node);
  tsr_yaml *doc;
  if (!tsr_config_find_file(l->arena, node->text, from, node->location, &path, l->diags)) {
    hint_type(l, f, node);
    return NULL;
  }
  bool ok = tsr_yaml_read(l->arena, path, node->location, &doc, l->diags);
  /* After a key that is given twice the rest can still be checked. */
  if (!doc || (!ok && doc->kind != TSR_YAML_MAP)) return NULL;
  if (doc->kind != TSR_YAML_MAP) {
    tsr_diag_error(
        l->diags, doc->location, "'%s' must be a map, found %s", path,
        tsr_yaml_describe(l->arena, doc));
    return NULL;
  }
  return strcmp(f->key, "model_config") ? unwrap(l, doc, f, path) : doc;
}

/* A path whose file cannot be read becomes a null: the error has been said. */
static tsr_yaml *include_into(tsr_loader *l, const char *section, tsr_yaml *map) {
  for (int i = 0; i < map->count; i++) {
    int row = tsr_field_find(section, strlen(section), map->keys[i]->text);
    tsr_yaml *node = map->items[i];
    if (row < 0 || !tsr_section_has_file(&tsr_fields[row]) || node->kind != TSR_YAML_SCALAR)
      continue;
    tsr_yaml *got = l->read_files ? read_section_file(l, &tsr_fields[row], node) : NULL;
    if (!got) {
      got = tsr_arena_alloc(l->arena, sizeof *got);
      *got = (tsr_yaml){.location = node->location, .text = ""};
    }
    map = with_value(l->arena, map, i, got);
  }
  return map;
}

void tsr_include_files(tsr_loader *l, tsr_yaml **root) {
  if ((*root)->kind != TSR_YAML_MAP) return;
  *root = include_into(l, "", *root);
  for (int i = 0; i < (*root)->count; i++) {
    if (strcmp((*root)->keys[i]->text, "training_config")) continue;
    tsr_yaml *training = (*root)->items[i];
    if (training->kind != TSR_YAML_MAP) continue;
    tsr_yaml *included = include_into(l, "training_config", training);
    if (included != training) *root = with_value(l->arena, *root, i, included);
  }
}
