// SPDX-License-Identifier: Apache-2.0
#include "config/print.h"
#include "config/config_internal.h"
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void tsr_config_print_float(double value, tsr_text *text) {
  char digits[40];
  if (value == floor(value) && fabs(value) < 1e6) {
    tsr_text_add(text, "%.1f", value);
    return;
  }
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  bool whole = !strpbrk(digits, ".enf");
  tsr_text_add(text, "%s%s", digits, whole ? ".0" : "");
}

/* --- YAML text of scalars --- */

static bool is_plain_char(const char *text, size_t i, bool flow) {
  unsigned char c = (unsigned char)text[i];
  if (isalnum(c) || strchr("_./+*()=<>~$^|%-", c)) return true;
  if (c == ' ') return text[i + 1] && text[i + 1] != '#' && text[i + 1] != ' ';
  if (c == ':') return text[i + 1] && text[i + 1] != ' ' && !flow;
  return c == ',' && !flow;
}

/* Whether the text means itself without quotes. */
static bool is_plain(const char *text, bool flow) {
  if (!*text || !(isalnum((unsigned char)*text) || strchr("_./+-(", *text))) return false;
  if (*text == '-' && !isalnum((unsigned char)text[1]) && text[1] != '.') return false;
  size_t i = 0;
  while (text[i] && is_plain_char(text, i, flow)) i++;
  return !text[i] && text[i - 1] != ' ';
}

static void print_quoted(const char *string, tsr_text *text) {
  tsr_text_add(text, "\"");
  for (const unsigned char *at = (const unsigned char *)string; *at; at++) {
    if (*at == '"' || *at == '\\') tsr_text_add(text, "\\%c", *at);
    else if (*at == '\n') tsr_text_add(text, "\\n");
    else if (*at < 0x20 || *at == 0x7f) tsr_text_add(text, "\\x%02x", *at);
    else if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f) tsr_text_add(text, "\\x%02x", *++at);
    else if (*at == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9)) {
      tsr_text_add(text, "\\u20%02x", at[2] - 0x80); /* line and paragraph separators */
      at += 2;
    } else tsr_text_add_bytes(text, at, 1);
  }
  tsr_text_add(text, "\"");
}

/* A text that must stay a text. */
static void print_string(const char *string, bool flow, tsr_text *text) {
  tsr_yaml node = {.kind = TSR_YAML_SCALAR, .text = string, .text_length = strlen(string)};
  int64_t integer;
  double number;
  bool truth;
  bool other = tsr_yaml_int(&node, &integer) || tsr_yaml_float(&node, &number) ||
               tsr_yaml_bool(&node, &truth) || !strcasecmp(string, "null") || *string == '~';
  if (other || !is_plain(string, flow)) print_quoted(string, text);
  else tsr_text_add(text, "%s", string);
}

static void print_scalar(const tsr_yaml *node, bool flow, tsr_text *text) {
  if (node->kind == TSR_YAML_NULL) tsr_text_add(text, "~");
  else if (node->quoted || !is_plain(node->text, flow)) print_quoted(node->text, text);
  else tsr_text_add(text, "%s", node->text);
}

static void print_origin(const tsr_yaml *node, tsr_text *text) {
  if (!node || !node->location.file) tsr_text_add(text, "  # default\n");
  else if (tsr_is_override(node) || !node->location.line)
    tsr_text_add(text, "  # %s\n", node->location.file);
  else tsr_text_add(text, "  # %s:%d\n", node->location.file, node->location.line);
}

void tsr_yaml_print_line(const tsr_yaml *node, tsr_text *text) {
  bool is_map = node->kind == TSR_YAML_MAP;
  if (!is_map && node->kind != TSR_YAML_LIST) {
    print_scalar(node, true, text);
    return;
  }
  tsr_text_add(text, is_map ? "{" : "[");
  for (int i = 0; i < node->count; i++) {
    if (i) tsr_text_add(text, ", ");
    if (is_map) print_scalar(node->keys[i], true, text);
    if (is_map) tsr_text_add(text, ": ");
    tsr_yaml_print_line(node->items[i], text);
  }
  tsr_text_add(text, is_map ? "}" : "]");
}

/* --- nodes as they stand in a file --- */

static bool is_collection(const tsr_yaml *node) {
  return node->kind == TSR_YAML_LIST || node->kind == TSR_YAML_MAP;
}

static bool fits_in_flow(const tsr_yaml *node) {
  if (!is_collection(node)) return true;
  if (node->count == 0) return true;
  for (int i = 0; i < node->count; i++)
    if (is_collection(node->items[i])) return false;
  return node->kind == TSR_YAML_LIST;
}

static void print_flow(const tsr_yaml *node, tsr_text *text) {
  if (!is_collection(node)) print_scalar(node, false, text);
  else if (node->kind == TSR_YAML_MAP) tsr_text_add(text, "{}");
  else {
    tsr_text_add(text, "[");
    for (int i = 0; i < node->count; i++) {
      if (i) tsr_text_add(text, ", ");
      print_scalar(node->items[i], true, text);
    }
    tsr_text_add(text, "]");
  }
}

static void print_children(const tsr_yaml *node, int indent, tsr_text *text) {
  for (int i = 0; i < node->count; i++) {
    const tsr_yaml *item = node->items[i];
    tsr_text_add(text, "%*s", indent, "");
    if (node->kind == TSR_YAML_LIST) tsr_text_add(text, "-");
    else {
      print_scalar(node->keys[i], false, text);
      tsr_text_add(text, ":");
    }
    if (fits_in_flow(item)) {
      tsr_text_add(text, " ");
      print_flow(item, text);
      print_origin(item, text);
    } else {
      tsr_text_add(text, "\n");
      print_children(item, indent + 2, text);
    }
  }
}

static void print_node(const char *key, const tsr_yaml *node, tsr_text *text) {
  if (!node) return;
  tsr_text_add(text, "%s:", key);
  if (fits_in_flow(node)) {
    tsr_text_add(text, " ");
    print_flow(node, text);
    print_origin(node, text);
  } else {
    tsr_text_add(text, "\n");
    print_children(node, 2, text);
  }
}

/* --- the table's values --- */

static void print_ints(const int *items, int count, tsr_text *text) {
  tsr_text_add(text, "[");
  for (int i = 0; i < count; i++) tsr_text_add(text, "%s%d", i ? ", " : "", items[i]);
  tsr_text_add(text, "]");
}

/* Stages without names as a list of nodes, which is of those behind the first. */
static void print_stages(const tsr_config_pipeline *p, tsr_text *text) {
  bool named = p->stages_count && *p->stages[0].name;
  int first = named ? 0 : 1;
  tsr_text_add(text, "[");
  for (int i = first; i < p->stages_count; i++) {
    const tsr_config_stage *s = &p->stages[i];
    tsr_text_add(text, "%s", i > first ? ", " : "");
    if (named) {
      tsr_text_add(text, "{name: ");
      print_string(s->name, true, text);
      tsr_text_add(text, "%s", *s->begin ? ", begin: " : "");
    }
    if (*s->begin) print_string(s->begin, true, text);
    tsr_text_add(text, "%s", named ? "}" : "");
  }
  tsr_text_add(text, "]");
}

static void print_sources(const tsr_config_training *t, tsr_text *text) {
  const tsr_field *formats = &tsr_fields[tsr_field_find_dotted("training_config.data_format")];
  tsr_text_add(text, "[");
  for (int i = 0; i < t->data_sources_count; i++) {
    const tsr_config_data_source *s = &t->data_sources[i];
    tsr_text_add(text, "%s{path: ", i ? ", " : "");
    print_string(s->path, true, text);
    if (s->weight > 0) tsr_text_add(text, ", weight: ");
    if (s->weight > 0) tsr_config_print_float(s->weight, text);
    if (s->format != TSR_DATA_AUTO)
      tsr_text_add(text, ", format: %s", tsr_field_choice_name(formats, s->format));
    tsr_text_add(text, "}");
  }
  tsr_text_add(text, "]");
}

static void print_names(const tsr_config_names *names, tsr_text *text) {
  if (names->is_one) {
    print_string(names->items[0].text, false, text);
    return;
  }
  tsr_text_add(text, "[");
  for (int i = 0; i < names->count; i++) {
    tsr_text_add(text, "%s", i ? ", " : "");
    print_string(names->items[i].text, true, text);
  }
  tsr_text_add(text, "]");
}

static void print_numbers(const tsr_config_numbers *numbers, tsr_text *text) {
  tsr_text_add(text, "{");
  for (int i = 0; i < numbers->count; i++) {
    tsr_text_add(text, "%s", i ? ", " : "");
    print_string(numbers->items[i].name.text, true, text);
    tsr_text_add(text, ": ");
    tsr_config_print_float(numbers->items[i].value, text);
  }
  tsr_text_add(text, "}");
}

void tsr_field_print(const tsr_config *config, const tsr_field *f, tsr_text *text) {
  const void *at = (const char *)config + f->at;
  const tsr_config_device *d = &config->device;
  switch (f->type) {
  case TSR_FIELD_INT:
  case TSR_FIELD_BYTES:
    tsr_text_add(text, "%lld", (long long)*(const int64_t *)at);
    break;
  case TSR_FIELD_SEED:
    tsr_text_add(text, "%llu", (unsigned long long)*(const uint64_t *)at);
    break;
  case TSR_FIELD_FLOAT:
    tsr_config_print_float(*(const double *)at, text);
    break;
  case TSR_FIELD_BOOL:
    tsr_text_add(text, "%s", *(const bool *)at ? "true" : "false");
    break;
  case TSR_FIELD_TEXT:
  case TSR_FIELD_PATH:
    print_string(*(const char *const *)at, false, text);
    break;
  case TSR_FIELD_CHOICE:
    tsr_text_add(text, "%s", tsr_field_choice_name(f, *(const int *)at));
    break;
  case TSR_FIELD_SHAPE:
    print_ints(d->mesh_shape, d->mesh_ndim, text);
    break;
  case TSR_FIELD_IDS:
    print_ints(d->device_ids, d->device_ids_count, text);
    break;
  case TSR_FIELD_AXES:
    tsr_text_add(text, "[");
    for (int i = 0; i < d->axes_count; i++)
      tsr_text_add(text, "%s%s", i ? ", " : "", tsr_axis_name(d->axes[i]));
    tsr_text_add(text, "]");
    break;
  case TSR_FIELD_STAGES:
    print_stages(&config->pipeline, text);
    break;
  case TSR_FIELD_BLOCKS:
    print_ints(config->pipeline.blocks_per_rank, config->pipeline.blocks_count, text);
    break;
  case TSR_FIELD_SOURCES:
    print_sources(&config->training, text);
    break;
  case TSR_FIELD_NAMES:
    print_names(at, text);
    break;
  case TSR_FIELD_NUMBERS:
    print_numbers(at, text);
    break;
  case TSR_FIELD_SECTION:
  case TSR_FIELD_FREE:
    break;
  }
}

/* Keys of conversations and of labelled texts. */
static bool has_data_key(tsr_files_format format, const tsr_field *f) {
  bool chat = format == TSR_FILES_CHAT, labels = format == TSR_FILES_LABELS;
  if (f->at == offsetof(tsr_config, data.format)) return true;
  if (f->at == offsetof(tsr_config, data.labels)) return labels;
  bool both =
      f->at == offsetof(tsr_config, data.packing) || f->at == offsetof(tsr_config, data.too_long);
  return chat || (labels && both);
}

bool tsr_field_is_printed(const tsr_config *config, const tsr_field *f) {
  if (!f->at || f->unprinted || f->same_as) return false;
  if (!strcmp(f->section, "training_config.optimizer"))
    return tsr_optimizer_uses(config->optimizer.type, f->key);
  if (!strcmp(f->section, "scheduler_config"))
    return tsr_scheduler_uses(config->scheduler.type, f->key);
  if (!strcmp(f->section, "lora_config")) return config->lora.enabled;
  if (!strcmp(f->section, "data")) return has_data_key(config->data.format, f);
  bool batch = f->at == offsetof(tsr_config, training.batch_size);
  return !batch || config->training.batch_size_given || !config->training.batch_size_per_rank;
}

static void
print_section(const tsr_config *config, const char *section, int indent, tsr_text *text);

static void print_mesh(const tsr_config *config, tsr_text *text) {
  const tsr_config_device *d = &config->device;
  const tsr_yaml *mesh = config->origins->values[tsr_field_find_dotted("mesh")];
  if (d->mesh_auto) {
    tsr_text_add(text, "mesh: auto");
    print_origin(mesh, text);
  } else if (d->axes_count || d->devices) {
    tsr_text_add(text, "mesh:\n");
    print_section(config, "mesh", 2, text);
    if (!d->devices) return;
    tsr_text_add(text, "  devices: %d", d->devices);
    print_origin(config->origins->values[tsr_field_find_dotted("mesh.devices")], text);
  }
}

static bool has_rows(const tsr_config *config, const char *section) {
  for (int i = 0; i < tsr_fields_count; i++)
    if (!strcmp(tsr_fields[i].section, section) && tsr_field_is_printed(config, &tsr_fields[i]))
      return true;
  return false;
}

static void
print_section(const tsr_config *config, const char *section, int indent, tsr_text *text) {
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (strcmp(f->section, section)) continue;
    if (tsr_field_is_printed(config, f)) {
      const tsr_yaml *origin = config->origins->values[i];
      const char *comment = f->presence && !origin ? "# " : "";
      tsr_text_add(text, "%*s%s%s: ", indent, "", comment, f->key);
      tsr_field_print(config, f, text);
      print_origin(origin, text);
    }
    if (f->type != TSR_FIELD_SECTION || f->verdict != TSR_FIELD_USED) continue;
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", f->key);
    if (!strcmp(name, "mesh")) print_mesh(config, text);
    else if (has_rows(config, name)) {
      tsr_text_add(text, "%*s%s:\n", indent, "", f->key);
      print_section(config, name, indent + 2, text);
    }
  }
}

/* The model in full, as if it stood in the file, with its type and graph file resolved. */
static void print_model(const tsr_config *config, tsr_text *text) {
  const tsr_config_model *m = &config->model;
  if (!m->map) return;
  tsr_text_add(text, "%s:\n", m->map_name);
  if (!tsr_yaml_get(m->map, "model_type") && !strcmp(m->kind, "transformer")) {
    tsr_text_add(text, "  model_type: ");
    print_string(m->model_type, false, text);
    print_origin(
        config->origins->values[tsr_field_find_dotted("training_config.model_type")], text);
  }
  if (m->graph_file) {
    tsr_yaml node = {.location = m->graph_place};
    tsr_text_add(text, "  graph: ");
    print_string(m->graph_file, false, text);
    print_origin(&node, text);
  }
  for (int i = 0; i < m->map->count; i++) {
    tsr_yaml one = *m->map;
    one.count = 1;
    one.keys = &m->map->keys[i];
    one.items = &m->map->items[i];
    if (strcmp(one.keys[0]->text, "graph")) print_children(&one, 2, text);
  }
}

void tsr_config_print(const tsr_config *config, tsr_text *text) {
  print_section(config, "", 0, text);
  print_model(config, text);
  print_node("graph", config->graph, text);
  print_node("tensors", config->tensors, text);
  print_node("inputs", config->inputs, text);
  print_node("parameters", config->parameters, text);
  print_node("outputs", config->outputs, text);
}

/* A value may have "  # " in it; the last one of a line is the comment's. */
static size_t length_of_value(const char *line, size_t length) {
  static const char comment[] = "  # ";
  size_t end = length, mark = sizeof comment - 1;
  if (*line == '#') return 0;
  for (size_t i = 0; i + mark <= length; i++)
    if (!memcmp(line + i, comment, mark)) end = i;
  return end;
}

void tsr_config_print_hash(const char *text, char ret_hash[TSR_HASH_TEXT]) {
  tsr_text values = {0};
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n"), value = length_of_value(line, length);
    tsr_text_add_bytes(&values, line, value);
    if (value) tsr_text_add(&values, "\n");
    line += length + (line[length] == '\n');
  }
  tsr_hash_text(values.data ? values.data : "", values.length, ret_hash);
  tsr_text_free(&values);
}
