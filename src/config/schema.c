// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"
#include "config/fields.h"
#include <math.h>
#include <string.h>

static void add_string(tsr_text *text, const char *string) {
  tsr_text_add(text, "\"");
  for (; *string; string++)
    tsr_text_add(text, *string == '"' || *string == '\\' ? "\\%c" : "%c", *string);
  tsr_text_add(text, "\"");
}

static const tsr_field *target_of(const tsr_field *f) {
  return f->same_as ? &tsr_fields[tsr_field_find_dotted(f->same_as)] : f;
}

static void add_range(const tsr_field *f, tsr_text *text) {
  const tsr_field_range *r = &f->range;
  if (!(r->min < r->max)) return;
  if (isfinite(r->min))
    tsr_text_add(text, ", \"%s\": %.15g", r->min_open ? "exclusiveMinimum" : "minimum", r->min);
  if (isfinite(r->max))
    tsr_text_add(text, ", \"%s\": %.15g", r->max_open ? "exclusiveMaximum" : "maximum", r->max);
}

static void add_choices(const tsr_field *f, tsr_text *text) {
  const char *comma = "";
  tsr_text_add(text, "\"enum\": [");
  for (const tsr_field_choice *c = f->choices; c->name; c++) {
    if (c->unsupported) continue;
    tsr_text_add(text, "%s", comma);
    if (!strcmp(c->name, "true") || !strcmp(c->name, "false")) tsr_text_add(text, "%s", c->name);
    else add_string(text, c->name);
    comma = ", ";
  }
  tsr_text_add(text, "]");
}

static void add_sources(const tsr_field *f, tsr_text *text) {
  tsr_text_add(
      text, "\"type\": [\"array\", \"null\"], \"items\": {\"type\": [\"string\", \"object\"], "
            "\"properties\": {\"path\": {\"type\": \"string\"}, \"weight\": {\"type\": \"number\"");
  add_range(f, text);
  tsr_text_add(text, "}, \"format\": {");
  add_choices(&tsr_fields[tsr_field_find_dotted("training_config.data_format")], text);
  tsr_text_add(
      text, "}}, \"required\": [\"path\"], \"additionalProperties\": false}, \"maxItems\": %d",
      TSR_DATA_SOURCES_MAX);
}

static void add_blocks(const tsr_field *f, tsr_text *text) {
  tsr_text_add(text, "\"type\": [\"array\", \"object\", \"null\"]");
  for (int i = 0; i < 2; i++) {
    tsr_text_add(text, ", \"%s\": {\"type\": \"integer\"", i ? "additionalProperties" : "items");
    add_range(f, text);
    tsr_text_add(text, "}");
  }
}

static void add_type(const tsr_field *f, tsr_text *text) {
  switch (f->type) {
  case TSR_FIELD_INT:
  case TSR_FIELD_SEED:
    tsr_text_add(text, "\"type\": \"integer\"");
    add_range(f, text);
    break;
  case TSR_FIELD_FLOAT:
    tsr_text_add(text, "\"type\": \"number\"");
    add_range(f, text);
    break;
  case TSR_FIELD_BOOL:
    tsr_text_add(text, "\"type\": \"boolean\"");
    break;
  case TSR_FIELD_TEXT:
  case TSR_FIELD_PATH:
    tsr_text_add(text, "\"type\": \"string\"");
    break;
  case TSR_FIELD_CHOICE:
    add_choices(f, text);
    break;
  case TSR_FIELD_BYTES:
    tsr_text_add(text, "\"type\": [\"integer\", \"string\"]");
    break;
  case TSR_FIELD_SHAPE:
  case TSR_FIELD_IDS:
    tsr_text_add(text, "\"type\": [\"array\", \"null\"], \"items\": {\"type\": \"integer\"");
    add_range(f, text);
    tsr_text_add(text, "}");
    if (f->type == TSR_FIELD_SHAPE) tsr_text_add(text, ", \"maxItems\": %d", TSR_MESH_NDIM_MAX);
    else tsr_text_add(text, ", \"uniqueItems\": true");
    break;
  case TSR_FIELD_AXES:
    tsr_text_add(text, "\"type\": [\"array\", \"null\"], \"items\": {\"enum\": [");
    for (int a = 0; a < TSR_AXES; a++)
      tsr_text_add(text, "%s\"%s\"", a ? ", " : "", tsr_axis_name(a));
    tsr_text_add(text, "]}, \"maxItems\": %d, \"uniqueItems\": true", TSR_MESH_NDIM_MAX);
    break;
  case TSR_FIELD_STAGES:
    tsr_text_add(
        text, "\"type\": [\"array\", \"null\"], \"items\": {\"type\": [\"string\", \"object\"], "
              "\"properties\": {\"name\": {\"type\": \"string\"}, \"begin\": {\"type\": "
              "\"string\"}}, \"required\": [\"name\"], \"additionalProperties\": false}");
    break;
  case TSR_FIELD_BLOCKS:
    add_blocks(f, text);
    break;
  case TSR_FIELD_SOURCES:
    add_sources(f, text);
    break;
  case TSR_FIELD_NAMES:
    tsr_text_add(
        text, "\"type\": [\"array\", \"string\", \"null\"], \"items\": {\"type\": \"string\"}");
    break;
  case TSR_FIELD_NUMBERS:
    tsr_text_add(
        text, "\"type\": [\"object\", \"null\"], \"additionalProperties\": {\"type\": \"number\"");
    add_range(f, text);
    tsr_text_add(text, "}");
    break;
  case TSR_FIELD_SECTION:
    tsr_text_add(text, "\"type\": \"object\"");
    break;
  case TSR_FIELD_FREE:
    tsr_text_add(text, "\"$comment\": \"any value\"");
    break;
  }
}

/* What may stand for a feature that is missing: only its being switched off. */
static void add_unsupported(const tsr_field *f, tsr_text *text) {
  if (!f->standard) tsr_text_add(text, "\"not\": {}");
  else if (f->type == TSR_FIELD_TEXT) tsr_text_add(text, "\"const\": \"%s\"", f->standard);
  else tsr_text_add(text, "\"const\": %s", f->standard);
}

static void add_default(const tsr_field *f, tsr_text *text) {
  if (!f->standard || f->verdict == TSR_FIELD_UNSUPPORTED) return;
  bool quoted =
      f->type == TSR_FIELD_TEXT || f->type == TSR_FIELD_PATH || f->type == TSR_FIELD_CHOICE;
  tsr_text_add(text, ", \"default\": ");
  if (quoted) add_string(text, f->standard);
  else tsr_text_add(text, "%s", f->standard);
}

static void add_section(const char *section, bool open, int indent, tsr_text *text);

static void add_nested(const tsr_field *f, int indent, tsr_text *text) {
  char name[64];
  snprintf(name, sizeof name, "%s%s%s", f->section, *f->section ? "." : "", f->key);
  bool mesh = !strcmp(name, "mesh");
  if (mesh || f->file || f->word) {
    tsr_text_add(text, "\"anyOf\": [\n%*s", indent + 2, "");
    tsr_text_add(
        text, mesh ? "{\"const\": \"auto\"},\n%*s{" : "{\"type\": [\"string\", \"null\"]},\n%*s{",
        indent + 2, "");
    add_section(name, false, indent + 2, text);
    tsr_text_add(text, "}\n%*s]", indent, "");
  } else add_section(name, f->verdict == TSR_FIELD_MODEL, indent, text);
}

static void add_row(const tsr_field *f, int indent, tsr_text *text) {
  const tsr_field *target = target_of(f);
  tsr_text_add(text, "%*s", indent, "");
  add_string(text, f->key);
  tsr_text_add(text, ": {\n%*s\"description\": ", indent + 2, "");
  add_string(text, f->doc);
  tsr_text_add(text, ",\n%*s", indent + 2, "");
  if (f->verdict == TSR_FIELD_UNSUPPORTED) add_unsupported(f, text);
  else if (f->type == TSR_FIELD_SECTION) add_nested(f, indent + 2, text);
  else {
    add_type(target, text);
    add_default(target, text);
  }
  tsr_text_add(text, "\n%*s}", indent, "");
}

/* "type": …, "properties": {…} of a section, without the braces around. */
static void add_section(const char *section, bool open, int indent, tsr_text *text) {
  const char *comma = "";
  tsr_text_add(
      text, "\"type\": %s,\n%*s\"additionalProperties\": %s,\n%*s\"properties\": {\n",
      *section ? "[\"object\", \"null\"]" : "\"object\"", indent, "", open ? "true" : "false",
      indent, "");
  for (int i = 0; i < tsr_fields_count; i++) {
    if (strcmp(tsr_fields[i].section, section)) continue;
    tsr_text_add(text, "%s", comma);
    add_row(&tsr_fields[i], indent + 2, text);
    comma = ",\n";
  }
  tsr_text_add(text, "\n%*s}", indent, "");
}

void tsr_config_schema(tsr_text *text) {
  tsr_text_add(
      text, "{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n"
            "  \"title\": \"A run or a model of tessera-train\",\n  ");
  add_section("", false, 2, text);
  tsr_text_add(text, "\n}\n");
}
