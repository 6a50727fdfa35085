// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"
#include "base/file_read.h"
#include "data/text_files.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *at;
  int length;
} field;

typedef struct {
  tsr_text_file file;
  size_t data_begin;  /* after the header */
  const char **names; /* of the columns; NULL: no header */
  int columns;
  int *features, *targets; /* column numbers */
  int features_count, targets_count;
} reader;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The field that starts at *at, without blanks and quotes around it; *at moves to the next one, or
 * to NULL after the last. */
static field next_field(const char **at, const char *end) {
  const char *begin = *at, *stop = begin;
  bool is_quoted = false;
  while (stop < end && (is_quoted || *stop != ',')) is_quoted ^= *stop++ == '"';
  *at = stop < end ? stop + 1 : NULL;
  while (begin < stop && is_blank(*begin)) begin++;
  while (stop > begin && is_blank(stop[-1])) stop--;
  if (stop - begin >= 2 && *begin == '"' && stop[-1] == '"') begin++, stop--;
  return (field){begin, (int)(stop - begin)};
}

/* The next line that is not blank, from *offset on, which moves behind it. */
static bool
next_line(const tsr_text_file *file, size_t *offset, const char **ret_line, const char **ret_end) {
  while (*offset < file->length) {
    const char *line = file->text + *offset;
    const char *end = memchr(line, '\n', file->length - *offset);
    if (!end) end = file->text + file->length;
    *offset = (size_t)(end - file->text) + 1;
    const char *at = line;
    while (at < end && is_blank(*at)) at++;
    *ret_line = line;
    *ret_end = end;
    if (at < end) return true;
  }
  return false;
}

/* A number in form; one like 1e99 is infinite. */
static bool read_number(field f, float *ret_value) {
  char word[64];
  if (f.length == 0 || f.length >= (int)sizeof word) return false;
  memcpy(word, f.at, (size_t)f.length);
  word[f.length] = 0;
  if (strspn(word, "0123456789+-.eE") != (size_t)f.length) return false;
  char *end;
  *ret_value = strtof(word, &end);
  return end > word && *end == 0;
}

static bool parse_number(field f, float *ret_value) {
  return read_number(f, ret_value) && isfinite(*ret_value);
}

static int find_column(const reader *r, const char *name) {
  for (int i = 0; r->names && i < r->columns; i++)
    if (!strcmp(r->names[i], name)) return i;
  char *end;
  long number = strtol(name, &end, 10);
  return name[0] >= '0' && name[0] <= '9' && *end == 0 && number < r->columns ? (int)number : -1;
}

static bool find_columns(
    tsr_arena *arena, const reader *r, const char *const *names, int count, tsr_location location,
    int **ret_columns, tsr_diags *diags) {
  *ret_columns = tsr_arena_array(arena, int, count);
  bool ok = true;
  for (int i = 0; i < count; i++) {
    int column = (*ret_columns)[i] = find_column(r, names[i]);
    if (column >= 0) continue;
    ok = tsr_diag_error(diags, location, "no column '%s' in '%s'", names[i], r->file.path);
    if (r->names) tsr_diag_nearest(diags, names[i], r->names, r->columns);
    else tsr_diag_hint(diags, "it has no header, and columns 0 to %d", r->columns - 1);
  }
  return ok;
}

static bool is_target(const reader *r, int column) {
  for (int i = 0; i < r->targets_count; i++)
    if (r->targets[i] == column) return true;
  return false;
}

static bool choose_columns(
    tsr_arena *arena, reader *r, const tsr_table_columns *columns, tsr_location location,
    tsr_diags *diags) {
  r->targets_count = columns->targets_count;
  bool ok = find_columns(
      arena, r, columns->targets, columns->targets_count, location, &r->targets, diags);
  r->features_count = columns->features_count;
  ok &= find_columns(
      arena, r, columns->features, columns->features_count, location, &r->features, diags);
  if (!ok) return false;
  if (!r->targets_count) {
    r->targets = tsr_arena_array(arena, int, 1);
    r->targets[0] = r->columns - 1;
    r->targets_count = 1;
  }
  if (!r->features_count) {
    r->features = tsr_arena_array(arena, int, r->columns);
    for (int i = 0; i < r->columns; i++)
      if (!is_target(r, i)) r->features[r->features_count++] = i;
  }
  if (!r->features_count)
    return tsr_diag_error(diags, location, "'%s' has no column left for features", r->file.path);
  if (columns->is_label && r->targets_count != 1)
    return tsr_diag_error(
        diags, location, "class labels need one target column, not %d", r->targets_count);
  return true;
}

static tsr_location place_of(const reader *r, const char *at, int length, tsr_diags *diags) {
  return tsr_text_file_place(&r->file, (size_t)(at - r->file.text), length, diags);
}

static bool not_a_number(const reader *r, field f, tsr_diags *diags) {
  return tsr_diag_error(
      diags, place_of(r, f.at, f.length, diags), "'%.*s' is not a finite number",
      f.length < 40 ? f.length : 40, f.at);
}

/* Counts the columns by the first line, and takes it as the header when it is one. */
static bool read_header(tsr_arena *arena, reader *r, tsr_diags *diags) {
  size_t offset = 0;
  const char *line, *end;
  if (!next_line(&r->file, &offset, &line, &end))
    return tsr_diag_error(diags, (tsr_location){.file = r->file.path}, "the table is empty");
  int numbers = 0;
  field word = {0};
  for (const char *at = line; at; r->columns++) {
    float value;
    field f = next_field(&at, end);
    if (read_number(f, &value)) numbers++;
    else if (!word.at) word = f;
  }
  if (!word.at) return true;
  if (numbers) {
    not_a_number(r, word, diags);
    tsr_diag_hint(diags, "the first line is a header only if none of its fields is a number");
    return false;
  }
  r->data_begin = offset;
  r->names = tsr_arena_array(arena, const char *, r->columns);
  int column = 0;
  for (const char *at = line; at;) {
    field f = next_field(&at, end);
    r->names[column++] = tsr_arena_strndup(arena, f.at, (size_t)f.length);
  }
  return true;
}

static bool read_row(
    const reader *r, const char *line, const char *end, float *ret_values, field *ret_fields,
    tsr_diags *diags) {
  int width = 0;
  for (const char *at = line; at; width++) {
    field f = next_field(&at, end);
    if (width >= r->columns) continue;
    ret_fields[width] = f;
    if (!parse_number(f, &ret_values[width])) return not_a_number(r, f, diags);
  }
  if (width == r->columns) return true;
  return tsr_diag_error(
      diags, place_of(r, line, 1, diags), "the row has %d columns, not %d as the first line", width,
      r->columns);
}

enum { CLASSES_MAX = 1 << 20 };

static bool read_label(
    const reader *r, field f, float value, int32_t *ret_label, tsr_table *table, tsr_diags *diags) {
  if (value < 0 || value >= CLASSES_MAX || value != floorf(value))
    return tsr_diag_error(
        diags, place_of(r, f.at, f.length, diags), "'%.*s' is not a class number (0, 1, …)",
        f.length, f.at);
  *ret_label = (int32_t)value;
  if (*ret_label >= table->classes) table->classes = *ret_label + 1;
  return true;
}

static bool
read_rows(tsr_arena *arena, const reader *r, bool is_label, tsr_table *table, tsr_diags *diags) {
  float *x = tsr_arena_array(arena, float, table->rows * table->features);
  float *y = tsr_arena_array(arena, float, table->rows * table->targets);
  int32_t *labels = is_label ? tsr_arena_array(arena, int32_t, table->rows) : NULL;
  float *values = tsr_arena_array(arena, float, r->columns);
  field *fields = tsr_arena_array(arena, field, r->columns);
  table->x = x;
  table->y = y;
  table->labels = labels;
  size_t offset = r->data_begin;
  const char *line, *end;
  for (int64_t row = 0; next_line(&r->file, &offset, &line, &end); row++) {
    if (!read_row(r, line, end, values, fields, diags)) return false;
    for (int64_t i = 0; i < table->features; i++)
      x[row * table->features + i] = values[r->features[i]];
    for (int64_t i = 0; i < table->targets; i++)
      y[row * table->targets + i] = values[r->targets[i]];
    int target = r->targets[0];
    if (is_label && !read_label(r, fields[target], values[target], &labels[row], table, diags))
      return false;
  }
  return true;
}

bool tsr_table_read(
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_location location,
    tsr_table *ret_table, tsr_diags *diags) {
  reader r = {.file.path = tsr_arena_strdup(arena, path)};
  char *text;
  if (!tsr_text_file_check(path, location, diags) ||
      !tsr_file_read(arena, path, (size_t)1 << 40, location, &text, &r.file.length, diags))
    return false;
  r.file.text = text;
  if (!read_header(arena, &r, diags) || !choose_columns(arena, &r, columns, location, diags))
    return false;
  tsr_table table = {.features = r.features_count};
  if (!columns->is_label) table.targets = r.targets_count;
  size_t offset = r.data_begin;
  for (const char *line, *end; next_line(&r.file, &offset, &line, &end);) table.rows++;
  if (!table.rows)
    return tsr_diag_error(
        diags, (tsr_location){.file = r.file.path}, "the table has a header but no rows");
  if (!read_rows(arena, &r, columns->is_label, &table, diags)) return false;
  *ret_table = table;
  return true;
}
