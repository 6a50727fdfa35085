// SPDX-License-Identifier: Apache-2.0
/* The entries of a section against the table. */
#include "config/config_internal.h"
#include <string.h>

/* "in training_config", "at the top level" */
static const char *where(tsr_arena *arena, const char *section) {
  return *section ? tsr_arena_printf(arena, "in %s", section) : "at the top level";
}

/* Keys of tt-train that have another place or no meaning here. */
static const char *foreign_key(const char *key) {
  static const char *const keys[][2] = {
      {"learning_rate", "the optimizer's is optimizer.lr"},
      {"transformer_config_path", "model_config names the model's file"},
      {"model_source", "model_path names weights; `import` makes them of Hugging Face's"},
      {"embedding_placement", "a graph file places its parameters"},
      {"rank_bindings", "the launcher maps ranks to processes: see docs/clusters.md"},
      {"hidden_size", "BERT models are not supported; of others it is embedding_dim"},
      {"num_hidden_layers", "BERT models are not supported; of others it is num_blocks"},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(keys[i][0], key)) return keys[i][1];
  return NULL;
}

void tsr_section_unknown(tsr_loader *l, const char *section, const tsr_yaml *key) {
  const char *keys[TSR_FIELDS_MAX];
  const tsr_field *elsewhere = NULL;
  int count = 0;
  tsr_diag_error(
      l->diags, key->location, "unknown key '%s' %s", key->text, where(l->arena, section));
  if (tsr_diags_errors(l->diags) > TSR_DIAGS_MAX) return; /* it is only counted */
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    bool here = !strcmp(f->section, section);
    if (here && f->verdict != TSR_FIELD_UNSUPPORTED) keys[count++] = f->key;
    if (!here && !elsewhere && !strcmp(f->key, key->text)) elsewhere = f;
  }
  const char *foreign = foreign_key(key->text);
  if (foreign && (!elsewhere || !strcmp(section, "training_config.optimizer")))
    tsr_diag_hint(l->diags, "%s", foreign);
  else if (elsewhere && !tsr_nearest(key->text, keys, count))
    tsr_diag_hint(l->diags, "'%s' belongs %s", key->text, where(l->arena, elsewhere->section));
  else tsr_diag_nearest(l->diags, key->text, keys, count);
}

static bool is_standard(const tsr_field *f, const tsr_yaml *node) {
  if (!f->standard || node->kind != TSR_YAML_SCALAR) return false;
  if (f->type == TSR_FIELD_TEXT || f->type == TSR_FIELD_PATH || f->type == TSR_FIELD_CHOICE)
    return !strcmp(node->text, f->standard);
  tsr_yaml standard = {.kind = TSR_YAML_SCALAR, .text = f->standard};
  double a, b;
  bool x, y;
  if (tsr_yaml_float(node, &a) && tsr_yaml_float(&standard, &b)) return a == b;
  return tsr_yaml_bool(node, &x) && tsr_yaml_bool(&standard, &y) && x == y;
}

/* Some sections of tt-train have a key that turns them on. */
static bool is_switched_off(const tsr_yaml *node) {
  bool enabled;
  return tsr_yaml_bool(tsr_yaml_get(node, "enabled"), &enabled) && !enabled;
}

static bool
check_verdict(tsr_loader *l, const tsr_field *f, const tsr_yaml *key, const tsr_yaml *node) {
  if (f->verdict == TSR_FIELD_USED || f->verdict == TSR_FIELD_MODEL || is_standard(f, node))
    return true;
  bool is_scalar = f->type != TSR_FIELD_FREE && f->type != TSR_FIELD_SECTION;
  if (f->verdict == TSR_FIELD_UNSUPPORTED && is_scalar && !tsr_value_read(l, f, key->text, node))
    return false;
  if (f->verdict == TSR_FIELD_UNSUPPORTED && !is_switched_off(node))
    return tsr_value_unsupported(l, key->location, f->why);
  tsr_diag(
      l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location, "'%s' has no effect: %s",
      key->text, f->verdict == TSR_FIELD_UNSUPPORTED ? "it is not enabled" : f->why);
  return true;
}

static bool is_legacy(const tsr_loader *l, const tsr_yaml *key) {
  for (int i = 0; i < tsr_fields_count; i++)
    if (tsr_fields[i].legacy && l->origins->keys[i] == key) return true;
  return false;
}

/* Remembers where a row's value comes from; it may be given once, under one of its names. An
 * override under any of them takes the file's place. */
static bool note_origin(tsr_loader *l, int row, const tsr_yaml *key, const tsr_yaml *node) {
  const tsr_yaml *before = l->origins->keys[row];
  if (before && tsr_is_override(before) && !tsr_is_override(key)) return false;
  if (before && tsr_is_override(key) && !tsr_is_override(before)) before = NULL;
  /* An old key beside an optimizer section: said once, for all of them. */
  if (before && is_legacy(l, before) != is_legacy(l, key)) return false;
  if (before) {
    if (!strcmp(before->text, key->text))
      tsr_diag_error(l->diags, key->location, "'%s' is given twice", key->text);
    else
      tsr_diag_error(
          l->diags, key->location, "'%s' sets the same as '%s'", key->text, before->text);
    tsr_diag_hint(
        l->diags, "'%s' stands in %s:%d", before->text, before->location.file,
        before->location.line);
    return false;
  }
  l->origins->keys[row] = key;
  l->origins->values[row] = node;
  return true;
}

/* A value that is written at `key` for a row that may go by other names too. */
static void read_row(tsr_loader *l, int row, const tsr_yaml *key, const tsr_yaml *node) {
  if (note_origin(l, row, key, node)) tsr_value_read(l, &tsr_fields[row], key->text, node);
}

void tsr_multihost_read(tsr_loader *l, const tsr_yaml *key, const tsr_yaml *node) {
  int row = tsr_field_find_dotted("multihost_config");
  const tsr_yaml *before = l->origins->keys[row];
  bool on = false;
  if (before && before != key) {
    tsr_diag_error(l->diags, key->location, "a second 'multihost_config'");
    tsr_diag_hint(
        l->diags, "the first stands in %s:%d", before->location.file, before->location.line);
    return;
  }
  l->origins->keys[row] = key;
  l->origins->values[row] = node;
  if (node->kind == TSR_YAML_NULL) return; /* a file that could not be read, or nothing */
  if (node->kind != TSR_YAML_MAP) {
    tsr_diag_error(
        l->diags, node->location, "'%s' must be a path or a map, found %s", key->text,
        tsr_yaml_describe(l->arena, node));
    return;
  }
  const tsr_yaml *enabled = tsr_yaml_get(node, "enabled");
  if (!enabled || (tsr_yaml_bool(enabled, &on) && !on))
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
        "'multihost_config' has no effect: it is not enabled");
  else tsr_section_read(l, "multihost_config", node);
}

static void
read_subsection(tsr_loader *l, const tsr_field *f, const tsr_yaml *key, const tsr_yaml *node) {
  if (f->verdict == TSR_FIELD_MODEL || node->kind == TSR_YAML_NULL) return;
  const char *name = *f->section ? tsr_arena_printf(l->arena, "%s.%s", f->section, f->key) : f->key;
  if (!strcmp(name, "mesh") && node->kind == TSR_YAML_SCALAR && !strcmp(node->text, "auto")) return;
  if (!strcmp(name, "multihost_config")) tsr_multihost_read(l, key, node);
  else if (f->word && node->kind == TSR_YAML_SCALAR)
    read_row(l, tsr_field_find_dotted(f->word), key, node);
  else if (node->kind == TSR_YAML_MAP) tsr_section_read(l, name, node);
  else if (!f->file || node->kind != TSR_YAML_SCALAR)
    tsr_diag_error(
        l->diags, node->location, "'%s' must be a map, found %s", key->text,
        tsr_yaml_describe(l->arena, node));
}

static void
read_entry(tsr_loader *l, const char *section, const tsr_yaml *key, const tsr_yaml *node) {
  int row = tsr_field_find(section, strlen(section), key->text);
  if (row < 0) {
    tsr_section_unknown(l, section, key);
    return;
  }
  const tsr_field *f = &tsr_fields[row];
  if (!note_origin(l, row, key, node)) return;
  if (!check_verdict(l, f, key, node)) return;
  if (f->type == TSR_FIELD_SECTION) {
    read_subsection(l, f, key, node);
    return;
  }
  if (f->same_as) read_row(l, tsr_field_find_dotted(f->same_as), key, node);
  else tsr_value_read(l, f, key->text, node);
}

void tsr_section_read(tsr_loader *l, const char *section, const tsr_yaml *map) {
  for (int i = 0; i < map->count; i++) read_entry(l, section, map->keys[i], map->items[i]);
}
