// SPDX-License-Identifier: Apache-2.0
/* JSON as Python's json.dumps writes it. */
#include "jinja/run.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_jinja_run *r;
  tsr_location location;
  const tsr_jinja_json_style *style;
  tsr_text *text;
} writer;

static bool write_value(const writer *w, tsr_jinja_value v, int depth);

static void write_escaped(tsr_text *text, uint32_t c) {
  if (c < 0x10000) {
    tsr_text_add(text, "\\u%04x", c);
    return;
  }
  c -= 0x10000;
  tsr_text_add(text, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
}

static void write_string(const writer *w, tsr_jinja_string s) {
  static const char special[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
  tsr_text_add(w->text, "\"");
  for (int64_t at = 0, end; at < s.length; at = end) {
    uint32_t c = tsr_jinja_code_point(s, at, &end);
    const char *found = c && c < 128 ? strchr(special, (int)c) : NULL;
    if (found) tsr_text_add(w->text, "\\%c", letters[found - special]);
    else if (c < 32 || (w->style->ascii && c > 126)) write_escaped(w->text, c);
    else tsr_text_add_bytes(w->text, s.bytes + at, (size_t)(end - at));
  }
  tsr_text_add(w->text, "\"");
}

static void write_break(const writer *w, int depth) {
  if (w->style->indent < 0) return;
  tsr_text_add(w->text, "\n%*s", w->style->indent * depth, "");
}

/* With an indentation no blank follows a comma. */
static void write_separator(const writer *w) {
  const char *separator = w->style->item_separator;
  if (!separator) separator = w->style->indent < 0 ? ", " : ",";
  tsr_text_add(w->text, "%s", separator);
}

static bool write_list(const writer *w, const tsr_jinja_list *list, int depth) {
  bool ok = true;
  tsr_text_add(w->text, "[");
  for (int i = 0; ok && i < list->count; i++) {
    if (i) write_separator(w);
    write_break(w, depth + 1);
    ok = write_value(w, list->items[i], depth + 1);
  }
  if (list->count) write_break(w, depth);
  tsr_text_add(w->text, "]");
  return ok;
}

/* Keys that are no strings become such, as json.dumps has it. */
static bool write_key(const writer *w, tsr_jinja_value key) {
  if (key.kind == TSR_JINJA_STRING) return write_string(w, key.string), true;
  if (key.kind > TSR_JINJA_STRING || key.kind == TSR_JINJA_UNDEFINED)
    return tsr_jinja_fail(w->r, w->location, "%s is no key of JSON", tsr_jinja_kind_name(key.kind));
  tsr_text_add(w->text, "\"");
  bool ok = write_value(w, key, 0);
  tsr_text_add(w->text, "\"");
  return ok;
}

static int compare_keys(const void *a, const void *b) {
  int order = 0;
  int64_t left = INT64_MAX;
  tsr_jinja_order(
      ((const tsr_jinja_entry *)a)->key, ((const tsr_jinja_entry *)b)->key, &left, &order);
  return order;
}

/* An estimate of the steps that sorting takes: each key is in so many comparisons. */
static int64_t sorting_steps(const tsr_jinja_dict *dict) {
  int64_t steps = dict->count, rounds = 1;
  for (int i = 0; i < dict->count; i++)
    if (dict->entries[i].key.kind == TSR_JINJA_STRING)
      steps += dict->entries[i].key.string.length / TSR_JINJA_STEP_BYTES;
  for (int n = dict->count; n > 1; n /= 2) rounds++;
  return steps * rounds;
}

static bool write_dict(const writer *w, const tsr_jinja_dict *dict, int depth) {
  bool ok = true;
  tsr_jinja_entry *entries = tsr_arena_array(w->r->arena, tsr_jinja_entry, dict->count + 1);
  if (dict->count) memcpy(entries, dict->entries, sizeof *entries * (size_t)dict->count);
  if (w->style->sort_keys && !tsr_jinja_count_steps(w->r, w->location, sorting_steps(dict)))
    return false;
  if (w->style->sort_keys) qsort(entries, (size_t)dict->count, sizeof *entries, compare_keys);
  tsr_text_add(w->text, "{");
  for (int i = 0; ok && i < dict->count; i++) {
    if (i) write_separator(w);
    write_break(w, depth + 1);
    ok = write_key(w, entries[i].key);
    tsr_text_add(w->text, "%s", w->style->key_separator ? w->style->key_separator : ": ");
    ok = ok && write_value(w, entries[i].value, depth + 1);
  }
  if (dict->count) write_break(w, depth);
  tsr_text_add(w->text, "}");
  return ok;
}

static bool write_value(const writer *w, tsr_jinja_value v, int depth) {
  if (depth > TSR_JINJA_DEPTH_MAX)
    return tsr_jinja_fail(w->r, w->location, "values are nested too deeply");
  if (!tsr_jinja_count_steps(w->r, w->location, 1)) return false;
  switch (v.kind) {
  case TSR_JINJA_NONE:
    tsr_text_add(w->text, "null");
    return true;
  case TSR_JINJA_BOOL:
    tsr_text_add(w->text, v.truth ? "true" : "false");
    return true;
  case TSR_JINJA_INT:
    tsr_text_add(w->text, "%" PRId64, v.integer);
    return true;
  case TSR_JINJA_FLOAT:
    if (isnan(v.number)) tsr_text_add(w->text, "NaN");
    else if (isinf(v.number)) tsr_text_add(w->text, v.number > 0 ? "Infinity" : "-Infinity");
    else tsr_jinja_print_float(v.number, w->text);
    return true;
  case TSR_JINJA_STRING:
    write_string(w, v.string);
    return true;
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
    return write_list(w, v.list, depth);
  case TSR_JINJA_DICT:
    return write_dict(w, v.dict, depth);
  default:
    break;
  }
  return tsr_jinja_fail(
      w->r, w->location, "%s cannot be written as JSON", tsr_jinja_kind_name(v.kind));
}

bool tsr_jinja_write_json(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value v, const tsr_jinja_json_style *style,
    tsr_text *text) {
  writer w = {r, location, style, text};
  return write_value(&w, v, 0);
}
