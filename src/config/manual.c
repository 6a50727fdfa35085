// SPDX-License-Identifier: Apache-2.0
#include "config/manual.h"
#include "config/fields.h"
#include "config/recipe_keys.h"
#include <string.h>

enum { LINE_MAX_BYTES = 78 };

/* Text lines of mdoc: at most 80 bytes, each sentence on its own, backslashes doubled. No word
 * begins with a dot. */
static void add_lines(tsr_text *text, const char *words) {
  size_t column = 0;
  while (*words) {
    size_t length = strcspn(words, " ");
    if (column && column + 1 + length > LINE_MAX_BYTES) column = 0, tsr_text_add(text, "\n");
    if (column) tsr_text_add(text, " ");
    for (size_t i = 0; i < length; i++)
      tsr_text_add(text, words[i] == '\\' ? "\\e" : "%c", words[i]);
    column += length + (column > 0);
    bool sentence_ends = words[length - 1] == '.';
    words += length;
    while (*words == ' ') words++;
    if (sentence_ends && *words) column = 0, tsr_text_add(text, "\n");
  }
  tsr_text_add(text, "\n");
}

static void add_type(const tsr_field *f, tsr_text *text) {
  tsr_text type = {0};
  tsr_field_describe(f, &type);
  if (*type.data >= 'a' && *type.data <= 'z') type.data[0] -= 'a' - 'A';
  tsr_text range = {0};
  tsr_field_range_describe(f, &range);
  if (range.length) tsr_text_add(&type, ", %s", range.data);
  if (f->standard && *f->standard) tsr_text_add(&type, "; default %s", f->standard);
  tsr_text_add(&type, ".");
  add_lines(text, type.data);
  tsr_text_free(&type);
  tsr_text_free(&range);
}

static void add_row(const tsr_field *f, tsr_text *text) {
  tsr_text_add(text, ".It Cm %s\n", f->key);
  add_lines(text, f->doc);
  if (f->verdict == TSR_FIELD_UNSUPPORTED) {
    if (f->standard) tsr_text_add(text, "Unsupported but for its default.\n");
    else tsr_text_add(text, "Unsupported.\n");
    return;
  }
  if (f->verdict == TSR_FIELD_NO_EFFECT) {
    tsr_text why = {0};
    tsr_text_add(&why, "No effect: %s.", f->why);
    add_lines(text, why.data);
    tsr_text_free(&why);
  }
  if (f->type == TSR_FIELD_SECTION || f->type == TSR_FIELD_FREE) return;
  add_type(f->same_as ? &tsr_fields[tsr_field_find_dotted(f->same_as)] : f, text);
  if (tsr_recipe_has_key(f)) tsr_text_add(text, "Normative: part of the recipe.\n");
}

static void add_section(const char *section, const char *title, tsr_text *text) {
  bool any = false;
  for (int i = 0; i < tsr_fields_count; i++) any |= !strcmp(tsr_fields[i].section, section);
  if (!any) return;
  tsr_text_add(text, ".Ss %s\n.Bl -tag -width Ds\n", title);
  for (int i = 0; i < tsr_fields_count; i++)
    if (!strcmp(tsr_fields[i].section, section)) add_row(&tsr_fields[i], text);
  tsr_text_add(text, ".El\n");
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (strcmp(f->section, section) || f->type != TSR_FIELD_SECTION) continue;
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", f->key);
    add_section(name, name, text);
  }
}

void tsr_config_manual(tsr_text *text) { add_section("", "Sections", text); }
