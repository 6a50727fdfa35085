// SPDX-License-Identifier: Apache-2.0
#include "base/diag.h"
#include "base/fault.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

typedef struct source {
  struct source *next;
  const char *file, *text;
  size_t length;
} source;

typedef struct {
  tsr_severity severity;
  tsr_location location;
  const char *message, *hints[4];
  int hints_count;
} diag;

struct tsr_diags {
  tsr_arena *arena;
  source *sources;
  diag items[TSR_DIAGS_MAX];
  int count, dropped, errors, failures;
  int errors_dropped; /* of `dropped` */
  bool quiet, strict;
};

tsr_diags *tsr_diags_new(tsr_arena *arena) {
  tsr_diags *diags = tsr_arena_alloc(arena, sizeof *diags);
  diags->arena = arena;
  return diags;
}

void tsr_diags_source(tsr_diags *diags, const char *file, const char *text, size_t length) {
  source *s = tsr_arena_alloc(diags->arena, sizeof *s);
  *s = (source){
      diags->sources, tsr_arena_strdup(diags->arena, file),
      tsr_arena_strndup(diags->arena, text, length), length};
  diags->sources = s;
}

bool tsr_diag(
    tsr_diags *diags, tsr_severity severity, tsr_location location, const char *format, ...) {
  if (severity >= TSR_ERROR && tsr_fault_next(TSR_FAULT_ERRORS) != TSR_FAULT_NONE) return false;
  diags->errors += severity >= TSR_ERROR;
  diags->failures += severity == TSR_FAILURE;
  if (diags->count == TSR_DIAGS_MAX) {
    diags->dropped++;
    diags->errors_dropped += severity >= TSR_ERROR;
    return false;
  }
  va_list args;
  va_start(args, format);
  const char *message = tsr_arena_vprintf(diags->arena, format, args);
  va_end(args);
  diags->items[diags->count++] =
      (diag){.severity = severity, .location = location, .message = message};
  return false;
}

void tsr_diag_hint(tsr_diags *diags, const char *format, ...) {
  if (!diags->count || diags->dropped) return;
  diag *d = &diags->items[diags->count - 1];
  if (d->hints_count == (int)(sizeof d->hints / sizeof *d->hints)) return;
  va_list args;
  va_start(args, format);
  d->hints[d->hints_count++] = tsr_arena_vprintf(diags->arena, format, args);
  va_end(args);
}

void tsr_diag_nearest(
    tsr_diags *diags, const char *word, const char *const *candidates, int count) {
  if (!diags->count || diags->dropped) return; /* a file of mistakes: searching takes its time */
  const char *near = tsr_nearest(word, candidates, count);
  if (near) {
    tsr_diag_hint(diags, "did you mean '%s'?", near);
    return;
  }
  if (count == 0 || count > 13) return;
  tsr_text list = {0};
  for (int i = 0; i < count; i++) tsr_text_add(&list, "%s%s", i ? ", " : "", candidates[i]);
  tsr_diag_hint(diags, "valid: %s", list.data);
  tsr_text_free(&list);
}

int tsr_diags_errors(const tsr_diags *diags) { return diags->errors; }
int tsr_diags_waiting(const tsr_diags *diags) { return diags->count + diags->dropped; }

const char *tsr_diags_first_error(const tsr_diags *diags) {
  for (int i = 0; i < diags->count; i++)
    if (diags->items[i].severity >= TSR_ERROR) return diags->items[i].message;
  return "";
}

tsr_location tsr_diags_first_location(const tsr_diags *diags) {
  for (int i = 0; i < diags->count; i++)
    if (diags->items[i].severity >= TSR_ERROR) return diags->items[i].location;
  return TSR_NOWHERE;
}

int tsr_diags_exit_code(const tsr_diags *diags) {
  return diags->failures ? 1 : diags->errors ? 2 : 0;
}

/* The bytes of line `line` of the file, or NULL. */
static const char *find_line(const tsr_diags *diags, tsr_location location, int *ret_length) {
  const source *s = diags->sources;
  while (s && strcmp(s->file, location.file)) s = s->next;
  if (!s) return NULL;
  const char *at = s->text, *end = s->text + s->length;
  for (int line = 1; line < location.line; line++) {
    at = memchr(at, '\n', (size_t)(end - at));
    if (!at) return NULL;
    at++;
  }
  const char *stop = memchr(at, '\n', (size_t)(end - at));
  if (!stop) stop = end;
  if (stop > at && stop[-1] == '\r') stop--;
  *ret_length = (int)(stop - at);
  return at;
}

/* Of a line: the bytes from `begin` to before `end` are shown. */
typedef struct {
  int begin, end;
} window;

static bool is_inside(const char *line, int i) { return ((unsigned char)line[i] & 0xc0) == 0x80; }

/* Up to `columns` characters to the left or to the right of *at, which moves there; a character is
 * a byte and at most 3 continuation bytes in UTF-8. Returns how many there were. */
static int walk_left(const char *line, int columns, int *at) {
  int count = 0;
  for (; count < columns && *at; count++) {
    --*at;
    for (int more = 0; more < 3 && *at && is_inside(line, *at); more++) --*at;
  }
  return count;
}

static int walk_right(const char *line, int length, int columns, int *at) {
  int count = 0;
  for (; count < columns && *at < length; count++) {
    ++*at;
    for (int more = 0; more < 3 && *at < length && is_inside(line, *at); more++) ++*at;
  }
  return count;
}

/* The whole line if it is short, else what is around the byte `at`. */
static window choose_window(const char *line, int length, int at) {
  enum { COLUMNS_MAX = 160 };
  window w = {at, at};
  int left = walk_left(line, COLUMNS_MAX, &w.begin);
  int right = walk_right(line, length, COLUMNS_MAX, &w.end);
  if (left + right <= COLUMNS_MAX && w.begin == 0 && w.end == length) return w;
  if (right > COLUMNS_MAX / 2)
    right = left < COLUMNS_MAX / 2 ? COLUMNS_MAX - left : COLUMNS_MAX / 2;
  if (left > COLUMNS_MAX - right) left = COLUMNS_MAX - right;
  w = (window){at, at};
  walk_left(line, left, &w.begin);
  walk_right(line, length, right, &w.end);
  return w;
}

/* A control character at `at`: its code, up to U+009F (two bytes in UTF-8); else -1. */
static int control_at(const char *text, int length, int at) {
  unsigned char c = (unsigned char)text[at],
                next = at + 1 < length ? (unsigned char)text[at + 1] : 0;
  if (c < 0x20 || c == 0x7f) return c;
  return c == 0xc2 && next >= 0x80 && next < 0xa0 ? next : -1;
}

/* Names and messages may have text of files, which must not control the terminal; they may have
 * several lines. What is between control characters is written at once, for others may write to the
 * stream too. */
static void print_text(const char *text, FILE *stream) {
  int length = (int)strlen(text), begin = 0;
  for (int i = 0; i < length; i++) {
    int control = control_at(text, length, i);
    if (control < 0 || control == '\n') continue;
    fprintf(stream, "%.*s", i - begin, text + begin);
    if (control == '\t') fputs("\\t", stream);
    else fprintf(stream, "\\x%02x", (unsigned)control);
    if (control >= 0x80) i++;
    begin = i + 1;
  }
  fputs(text + begin, stream);
}

static void print_line(const tsr_diags *diags, tsr_location location, FILE *stream) {
  int length = 0;
  const char *line = find_line(diags, location, &length);
  if (!line || location.col < 1 || location.col > length + 1) return;
  window w = choose_window(line, length, location.col - 1);
  fprintf(stream, "%5d | %s", location.line, w.begin ? "…" : "");
  for (int i = w.begin; i < w.end; i++) {
    int control = control_at(line, w.end, i);
    fputc(control == '\t' || control < 0 ? line[i] : '?', stream);
    if (control >= 0x80) i++;
  }
  fprintf(stream, "%s\n      | %s", w.end < length ? "…" : "", w.begin ? " " : "");
  /* A tab keeps its width; a byte inside a UTF-8 sequence takes none. */
  for (int i = w.begin; i < location.col - 1; i++)
    if (!is_inside(line, i)) fputc(line[i] == '\t' ? '\t' : ' ', stream);
  fputc('^', stream);
  for (int i = location.col; i < location.col - 1 + location.length && i < w.end; i++)
    if (!is_inside(line, i)) fputc('~', stream);
  fputc('\n', stream);
}

static void print_diag(const tsr_diags *diags, const diag *d, FILE *stream) {
  static const char *const words[] = {"note", "warning", "error", "error"};
  if (d->location.file) print_text(d->location.file, stream);
  if (d->location.file && d->location.line)
    fprintf(stream, ":%d:%d", d->location.line, d->location.col);
  fprintf(stream, "%s%s: ", d->location.file ? ": " : "", words[d->severity]);
  print_text(d->message, stream);
  fputc('\n', stream);
  if (d->location.file && d->location.line) print_line(diags, d->location, stream);
  for (int i = 0; i < d->hints_count; i++) {
    fputs("      = ", stream);
    print_text(d->hints[i], stream);
    fputc('\n', stream);
  }
}

/* In one piece: other processes write to the same terminal. */
static void write_diag(const tsr_diags *diags, const diag *d, FILE *stream) {
  char *text = NULL;
  size_t length = 0;
  FILE *whole = open_memstream(&text, &length);
  print_diag(diags, d, whole ? whole : stream);
  if (whole && !fclose(whole)) fwrite(text, 1, length, stream);
  free(text);
}

tsr_severity tsr_diag_normative(const tsr_diags *diags, tsr_severity severity) {
  return diags->strict ? TSR_ERROR : severity;
}

void tsr_diags_strict(tsr_diags *diags) { diags->strict = true; }

void tsr_diags_quiet(tsr_diags *diags) { diags->quiet = true; }

void tsr_diags_print(tsr_diags *diags, FILE *stream) {
  int more = diags->quiet ? diags->errors_dropped : diags->dropped;
  for (int i = 0; i < diags->count; i++)
    if (!diags->quiet || diags->items[i].severity >= TSR_ERROR)
      write_diag(diags, &diags->items[i], stream);
  if (more) fprintf(stream, "… and %d more\n", more);
  diags->count = diags->dropped = diags->errors_dropped = 0;
}
