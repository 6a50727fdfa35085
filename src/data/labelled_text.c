// SPDX-License-Identifier: Apache-2.0
#include "data/labelled_text.h"
#include "data/jsonl.h"
#include <stdlib.h>
#include <string.h>

static const char text_key[] = "text", label_key[] = "label";

/* ---- a line ---- */

typedef struct {
  const tsr_label_format *format;
  const tsr_text_file *file;
  size_t offset;
  const char *line;
  size_t length;
  tsr_diags *diags;
} reader;

static bool fail(const reader *r, size_t offset, const char *message) {
  return tsr_diag_error(
      r->diags, tsr_text_file_place(r->file, r->offset + offset, 1, r->diags), "%s", message);
}

/* The value of a key that is a text; its bytes end with a 0. */
static bool
read_text(const reader *r, tsr_arena *arena, const char *key, char **ret_text, size_t *ret_length) {
  tsr_jsonl_fault fault;
  *ret_text = tsr_arena_alloc(arena, r->length + 1);
  if (!tsr_jsonl_text(arena, r->line, r->length, key, *ret_text, ret_length, &fault))
    return fail(r, fault.offset, fault.message);
  (*ret_text)[*ret_length] = '\0';
  return true;
}

const char *tsr_label_names_list(tsr_arena *arena, const tsr_label_names *names) {
  enum { SHOWN = TSR_LABEL_NAMES_SHOWN };
  const char *text = "";
  for (int i = 0; i < names->count && i < SHOWN; i++)
    text = tsr_arena_printf(arena, "%s%s'%s'", text, i ? ", " : "", names->names[i]);
  return names->count > SHOWN ? tsr_arena_printf(arena, "%s, …", text) : text;
}

static bool
find_name(const reader *r, tsr_arena *arena, size_t at, const char *name, int32_t *ret_label) {
  const tsr_label_names *labels = &r->format->labels;
  if (!*name) return fail(r, at, "a label without characters is no class");
  for (int i = 0; labels->names && i < labels->count; i++)
    if (!strcmp(labels->names[i], name)) return *ret_label = i, true;
  const char *why =
      labels->names
          ? tsr_arena_printf(arena, "label '%s' is none of the classes", name)
          : tsr_arena_printf(arena, "label '%s' is a name, and the classes have none", name);
  fail(r, at, why);
  if (labels->names)
    tsr_diag_hint(r->diags, "data.labels: %s", tsr_label_names_list(arena, labels));
  return false;
}

/* A whole number from 0 on, which a comma, a bracket or a blank ends. */
static bool read_number(const reader *r, tsr_arena *arena, size_t at, int32_t *ret_label) {
  enum { DIGITS_MAX = 9 };
  const tsr_label_names *labels = &r->format->labels;
  const char *begin = r->line + at, *end = begin, *limit = r->line + r->length;
  while (end < limit && !strchr(",} \t\r\n", *end)) end++;
  const char *text = tsr_arena_strndup(arena, begin, (size_t)(end - begin));
  size_t digits = strspn(text, "0123456789");
  if (!digits || text[digits])
    return fail(
        r, at,
        tsr_arena_printf(
            arena, "a label is the name of a class or its number from 0 on, not %s", text));
  if (r->format->are_sorted) {
    fail(r, at, tsr_arena_printf(arena, "label %s is a number, and other lines have names", text));
    tsr_diag_hint(r->diags, "data.labels: [NAME, …] gives the names their numbers");
    return false;
  }
  long number = strtol(text, NULL, 10);
  *ret_label = (int32_t)number;
  if (labels->count ? number < labels->count : digits <= DIGITS_MAX) return true;
  if (!labels->count)
    return fail(
        r, at,
        tsr_arena_printf(
            arena, "label %s is no number of a class, which has at most %d digits", text,
            DIGITS_MAX));
  return fail(
      r, at,
      tsr_arena_printf(
          arena, "label %s is none of the %d classes, whose numbers are 0 to %d", text,
          labels->count, labels->count - 1));
}

static bool read_label(const reader *r, tsr_arena *arena, int32_t *ret_label) {
  char *name;
  size_t length, at = tsr_jsonl_find(r->line, label_key, -1);
  if (!at) return fail(r, 0, "key 'label' is missing");
  if (r->line[at] != '"') return read_number(r, arena, at, ret_label);
  return read_text(r, arena, label_key, &name, &length) && find_name(r, arena, at, name, ret_label);
}

/* ---- tokens ---- */

static bool tokenize(
    const reader *r, tsr_arena *arena, void *scratch, const char *text, size_t length,
    tsr_masked_tokens *ret) {
  const tsr_tokenizer *t = &r->format->tokenizer;
  const tsr_text_file file = {r->file->path, text, length};
  const int32_t *before = NULL, *behind = NULL;
  bool subword = t->kind == TSR_TOKENIZER_SUBWORD;
  int64_t first = subword ? tsr_subword_before(t->subword, &before) : 0, count;
  int64_t last = subword ? tsr_subword_behind(t->subword, &behind) : 0;
  int64_t room = tsr_tokenizer_room(t, text, length);
  int32_t *tokens = tsr_arena_array(arena, int32_t, first + room + last + 1);
  int64_t *begins = tsr_arena_array(arena, int64_t, room + 1);
  tsr_diags *errors = tsr_diags_new(arena); /* their places would be inside the text */
  if (!tsr_tokenizer_encode_begins(t, scratch, &file, tokens + first, begins, &count, errors))
    return fail(r, tsr_jsonl_find(r->line, text_key, -1), tsr_diags_first_error(errors));
  if (first) memcpy(tokens, before, sizeof *tokens * (size_t)first);
  if (last) memcpy(tokens + first + count, behind, sizeof *tokens * (size_t)last);
  *ret = (tsr_masked_tokens){.tokens = tokens, .count = first + count + last};
  ret->trained = tsr_arena_array(arena, uint8_t, ret->count + 1);
  return ret->count > 0 || fail(
                               r, tsr_jsonl_find(r->line, text_key, -1),
                               "the text has no tokens, and so none that its label could be at");
}

static bool encode(
    const void *context, void *scratch, tsr_arena *arena, const tsr_text_file *file, size_t offset,
    size_t length, tsr_masked_tokens *ret, tsr_diags *diags) {
  reader r = {context, file, offset, file->text + offset, length, diags};
  char *text;
  size_t bytes;
  int32_t label = 0;
  if (!read_text(&r, arena, text_key, &text, &bytes) || !read_label(&r, arena, &label) ||
      !tokenize(&r, arena, scratch, text, bytes, ret))
    return false;
  ret->label = label;
  return true;
}

static void *open_scratch(const void *context) {
  const tsr_label_format *format = context;
  return format->tokenizer.kind == TSR_TOKENIZER_SUBWORD ? tsr_subword_scratch_new() : NULL;
}

static void close_scratch(void *scratch) {
  if (scratch) tsr_subword_scratch_free(scratch);
}

tsr_line_encoder tsr_labelled_text_encoder(const tsr_label_format *format) {
  return (tsr_line_encoder){encode, format, open_scratch, close_scratch, .has_labels = true};
}

/* ---- names ---- */

/* Where a name is among the sorted ones, or would be. */
static int place_of(const tsr_label_collector *names, const char *name) {
  int begin = 0, end = names->count;
  while (begin < end) {
    int middle = begin + (end - begin) / 2;
    if (strcmp(names->items[middle], name) < 0) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

static void
add_name(tsr_label_collector *names, const char *name, const tsr_text_file *file, int line) {
  int at = place_of(names, name);
  if (names->count > TSR_CLASSES_MAX) return;
  if (at < names->count && !strcmp(names->items[at], name)) return;
  tsr_arena_grow(
      names->arena, (void **)&names->items, sizeof *names->items, names->count, &names->capacity);
  for (int i = names->count++; i > at; i--) names->items[i] = names->items[i - 1];
  names->items[at] = tsr_arena_strdup(names->arena, name);
  int beyond = names->count - names->most - 1;
  if (beyond < 0 || beyond >= TSR_LABEL_NAMES_SHOWN) return;
  names->beyond[beyond] = names->items[at];
  if (beyond) return;
  names->beyond_file = tsr_arena_strdup(names->arena, file->path);
  names->beyond_line = line;
}

static void collect_line(
    tsr_label_collector *names, const tsr_text_file *file, int number, const char *line,
    size_t length) {
  tsr_arena *arena = tsr_arena_new();
  char *name = tsr_arena_alloc(arena, length + 1);
  size_t bytes;
  tsr_jsonl_fault fault;
  if (tsr_jsonl_text(arena, line, length, label_key, name, &bytes, &fault)) {
    name[bytes] = '\0';
    if (bytes) add_name(names, name, file, number);
  }
  tsr_arena_free(arena);
}

void tsr_label_names_collect(tsr_label_collector *names, const tsr_text_file *file) {
  int number = 1;
  for (size_t at = 0, end; at < file->length; at = end + 1, number++) {
    const char *line_end = memchr(file->text + at, '\n', file->length - at);
    end = line_end ? (size_t)(line_end - file->text) : file->length;
    if (end > at) collect_line(names, file, number, file->text + at, end - at);
  }
}
