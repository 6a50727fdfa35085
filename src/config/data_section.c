// SPDX-License-Identifier: Apache-2.0
/* The keys of the data: one path or several sources, and the rules between them. */
#include "config/config_internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool
read_path(tsr_loader *l, const char *where, const tsr_yaml *node, tsr_config_data_source *source) {
  if (node->kind == TSR_YAML_SCALAR && *node->text) return tsr_path_read(l, node, &source->path);
  return tsr_diag_error(
      l->diags, node->location, "'%s' must be a path, found %s", where,
      tsr_yaml_describe(l->arena, node));
}

/* One row's value, read by the table's own rules but into `source`. */
static bool read_entry(
    tsr_loader *l, const tsr_field *f, const char *where, const tsr_yaml *key, const tsr_yaml *node,
    tsr_config_data_source *source) {
  static const char *const keys[] = {"path", "weight", "format"};
  const char *name = tsr_arena_printf(l->arena, "%s.%s", where, key->text);
  if (!strcmp(key->text, "path")) return read_path(l, name, node, source);
  if (!strcmp(key->text, "weight")) {
    tsr_field weight = {.key = "weight", .section = "", .type = TSR_FIELD_FLOAT, .range = f->range};
    return tsr_scalar_read(l, &weight, name, node) && tsr_yaml_float(node, &source->weight);
  }
  if (!strcmp(key->text, "format")) {
    tsr_field format = tsr_fields[tsr_field_find_dotted("training_config.data_format")];
    format.at = 0;
    if (!tsr_scalar_read(l, &format, name, node)) return false;
    for (const tsr_field_choice *c = format.choices; c->name; c++)
      if (!strcmp(c->name, node->text)) source->format = (tsr_data_format)c->value;
    return true;
  }
  tsr_diag_error(l->diags, key->location, "unknown key '%s' in %s", key->text, where);
  tsr_diag_nearest(l->diags, key->text, keys, 3);
  return false;
}

static bool read_source(
    tsr_loader *l, const tsr_field *f, const char *where, const tsr_yaml *node,
    tsr_config_data_source *source) {
  if (node->kind != TSR_YAML_MAP) return read_path(l, where, node, source);
  bool ok = true;
  for (int i = 0; i < node->count; i++)
    ok = read_entry(l, f, where, node->keys[i], node->items[i], source) && ok;
  if (ok && !tsr_yaml_get(node, "path"))
    return tsr_diag_error(l->diags, node->location, "'%s' has no path", where);
  return ok;
}

/* Weights are shares of each other, so a single one has no meaning. */
static bool check_weights(tsr_loader *l, const tsr_config_data_source *sources, int count) {
  for (int i = 1; i < count; i++)
    if ((sources[i].weight > 0) != (sources[0].weight > 0))
      return tsr_diag_error(
          l->diags, sources[i].location,
          "'data_sources[%d]' has %s weight, but 'data_sources[0]' has %s: all have one, or none",
          i, sources[i].weight > 0 ? "a" : "no", sources[0].weight > 0 ? "one" : "none");
  return true;
}

bool tsr_sources_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_LIST) return tsr_value_wrong_type(l, f, key, node);
  if (node->count > TSR_DATA_SOURCES_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'%s' has %d sources; there may be %d", key, node->count,
        TSR_DATA_SOURCES_MAX);
  tsr_config_data_source *sources =
      tsr_arena_array(l->arena, tsr_config_data_source, node->count + 1);
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    const char *where = tsr_arena_printf(l->arena, "%s[%d]", key, i);
    sources[i].path = "";
    sources[i].location = node->items[i]->location;
    ok = read_source(l, f, where, node->items[i], &sources[i]) && ok;
  }
  if (!ok || !check_weights(l, sources, node->count)) return false;
  l->config->training.data_sources = sources;
  l->config->training.data_sources_count = node->count;
  return true;
}

/* ---- the data section ---- */

/* Whether files of a format (training_config.data_format) may be what data.format says. */
static bool agree(tsr_files_format files, tsr_data_format format) {
  if (files == TSR_FILES_AUTO || format == TSR_DATA_AUTO) return true;
  return files != TSR_FILES_CHAT && files != TSR_FILES_LABELS &&
         (files == TSR_FILES_TEXT) == (format == TSR_DATA_TEXT);
}

static void check_formats(tsr_loader *l) {
  const tsr_config_training *t = &l->config->training;
  tsr_files_format files = l->config->data.format;
  if (!agree(files, t->data_format))
    tsr_loader_contradict(l, "training_config.data_format", "data.format");
  for (int i = 0; i < t->data_sources_count; i++)
    if (!agree(files, t->data_sources[i].format))
      tsr_diag_error(
          l->diags, t->data_sources[i].location,
          "the format of 'data_sources[%d]' contradicts data.format: %s", i,
          tsr_loader_value(l, "data.format")->text);
}

static void resolve_lines(tsr_loader *l) {
  static const char documents[] = "training_config.documents", format[] = "data.format";
  tsr_config_training *t = &l->config->training;
  bool is_chat = l->config->data.format == TSR_FILES_CHAT;
  if (t->ignore_index >= 0 && !is_chat)
    tsr_loader_contradict(l, "training_config.ignore_index", format);
  if (t->sample_stride) tsr_loader_contradict(l, "training_config.sample_stride", format);
  if (t->end_of_text >= 0) {
    tsr_loader_contradict(l, "training_config.end_of_text", format);
    tsr_diag_hint(
        l->diags, is_chat ? "a conversation ends as its template ends it"
                          : "a labelled text ends with its line");
  }
  if (tsr_loader_value(l, documents) && t->documents == TSR_DOCUMENTS_PACKED) {
    tsr_loader_contradict(l, documents, format);
    tsr_diag_hint(
        l->diags, "%s do not attend to each other: documents are separate",
        is_chat ? "conversations" : "labelled texts");
  }
  t->documents = TSR_DOCUMENTS_SEPARATE;
  tsr_loader_take_origin(l, documents, format);
}

/* Midnight of a day of the years 1970 to 9999. */
static bool read_date(const char *text, int64_t *ret_seconds) {
  struct tm parts = {0}, again;
  int end = 0;
  if (sscanf(text, "%4d-%2d-%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &end) != 3 ||
      end != 10 || text[end])
    return false;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  again = parts;
  time_t seconds = timegm(&again);
  *ret_seconds = seconds;
  return seconds >= 0 && again.tm_mon == parts.tm_mon && again.tm_mday == parts.tm_mday;
}

static void check_date(tsr_loader *l) {
  tsr_config_data *d = &l->config->data;
  const tsr_yaml *node = tsr_loader_value(l, "data.date");
  if (!node || !*d->date || read_date(d->date, &d->date_s)) return;
  tsr_diag_error(
      l->diags, node->location, "'date' must be a day such as 2026-01-31, found %s",
      tsr_yaml_describe(l->arena, node));
}

/* Keys of a format that the files do not have. */
static void warn_without_format(tsr_loader *l) {
  static const struct {
    const char *key;
    bool chat, labels;
  } keys[] = {{"template", true, false}, {"date", true, false},    {"train_on", true, false},
              {"packing", true, true},   {"too_long", true, true}, {"labels", false, true}};
  tsr_files_format format = l->config->data.format;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    bool used = (keys[i].chat && format == TSR_FILES_CHAT) ||
                (keys[i].labels && format == TSR_FILES_LABELS);
    const tsr_yaml *key = tsr_loader_key(l, tsr_arena_printf(l->arena, "data.%s", keys[i].key));
    if (!key || used) continue;
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
        "'%s' has no effect: data.format is not %s%s%s", keys[i].key, keys[i].chat ? "chat" : "",
        keys[i].chat && keys[i].labels ? " or " : "", keys[i].labels ? "labels" : "");
  }
}

/* Classes are told apart by their names. */
static void check_labels(tsr_loader *l) {
  const tsr_config_names *labels = &l->config->data.labels;
  const tsr_yaml *node = tsr_loader_value(l, "data.labels");
  if (labels->is_one)
    tsr_diag_error(
        l->diags, node->location, "'labels' must be a list of names, found %s",
        tsr_yaml_describe(l->arena, node));
  else if (labels->count == 1)
    tsr_diag_error(l->diags, node->location, "'labels' has one class: there are at least 2");
  for (int i = 1; i < labels->count; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(labels->items[i].text, labels->items[k].text)) {
        tsr_diag_error(
            l->diags, labels->items[i].location, "'labels' has '%s' twice", labels->items[i].text);
        break;
      }
}

void tsr_data_resolve(tsr_loader *l) {
  tsr_config_training *t = &l->config->training;
  if (t->data_sources_count && *t->data_path)
    tsr_loader_contradict(l, "training_config.data_path", "training_config.data_sources");
  if (*t->validation_path && t->validation_fraction == 0) {
    tsr_loader_contradict(
        l, "training_config.validation_path", "training_config.validation_fraction");
    tsr_diag_hint(l->diags, "eval_every: 0 switches evaluation off");
  }
  check_formats(l);
  check_date(l);
  if (l->config->data.format == TSR_FILES_TEXT) t->data_format = TSR_DATA_TEXT;
  check_labels(l);
  warn_without_format(l);
  tsr_files_format format = l->config->data.format;
  if (format == TSR_FILES_CHAT || format == TSR_FILES_LABELS) resolve_lines(l);
}
