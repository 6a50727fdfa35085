#include "base/diag.h"
#include "base/text.h"
#include <string.h>

typedef struct source {
  struct source *next;
  const char *file, *text;
  size_t length;
} source;

typedef struct {
  tsr_severity severity;
  tsr_place place;
  const char *message, *hints[4];
  int hints_count;
} diag;

struct tsr_diags {
  tsr_arena *arena;
  source *sources;
  diag items[TSR_DIAGS_MAX];
  int count, dropped, errors, failures;
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

bool tsr_diag(tsr_diags *diags, tsr_severity severity, tsr_place place, const char *format, ...) {
  diags->errors += severity >= TSR_ERROR;
  diags->failures += severity == TSR_FAILURE;
  if (diags->count == TSR_DIAGS_MAX) {
    diags->dropped++;
    return false;
  }
  va_list args;
  va_start(args, format);
  const char *message = tsr_arena_vprintf(diags->arena, format, args);
  va_end(args);
  diags->items[diags->count++] = (diag){.severity = severity, .place = place, .message = message};
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
  const char *near = tsr_nearest(word, candidates, count);
  if (near) {
    tsr_diag_hint(diags, "did you mean '%s'?", near);
    return;
  }
  if (count == 0 || count > 12) return;
  tsr_text list = {0};
  for (int i = 0; i < count; i++) tsr_text_add(&list, "%s%s", i ? ", " : "", candidates[i]);
  tsr_diag_hint(diags, "valid: %s", list.data);
  tsr_text_free(&list);
}

int tsr_diags_errors(const tsr_diags *diags) { return diags->errors; }

int tsr_diags_exit_code(const tsr_diags *diags) {
  return diags->failures ? 1 : diags->errors ? 2 : 0;
}

/* The bytes of line `line` of the file, or NULL. */
static const char *find_line(const tsr_diags *diags, tsr_place place, int *ret_length) {
  const source *s = diags->sources;
  while (s && strcmp(s->file, place.file)) s = s->next;
  if (!s) return NULL;
  const char *at = s->text, *end = s->text + s->length;
  for (int line = 1; line < place.line; line++) {
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

static void print_line(const tsr_diags *diags, tsr_place place, FILE *stream) {
  int length = 0;
  const char *line = find_line(diags, place, &length);
  if (!line || place.col < 1 || place.col > length + 1) return;
  fprintf(stream, "%5d | ", place.line);
  for (int i = 0; i < length; i++) {
    unsigned char c = (unsigned char)line[i];
    fputc(c == '\t' || (c >= 0x20 && c != 0x7f) ? c : '?', stream);
  }
  fputs("\n      | ", stream);
  for (int i = 0; i < place.col - 1; i++) {
    /* A tab keeps its width; a byte inside a UTF-8 sequence takes none. */
    unsigned char c = (unsigned char)line[i];
    if ((c & 0xc0) != 0x80) fputc(c == '\t' ? '\t' : ' ', stream);
  }
  fputc('^', stream);
  for (int i = 1; i < place.length && place.col - 1 + i < length; i++)
    if (((unsigned char)line[place.col - 1 + i] & 0xc0) != 0x80) fputc('~', stream);
  fputc('\n', stream);
}

static void print_diag(const tsr_diags *diags, const diag *d, FILE *stream) {
  static const char *const words[] = {"note", "warning", "error", "error"};
  if (d->place.file && d->place.line)
    fprintf(stream, "%s:%d:%d: ", d->place.file, d->place.line, d->place.col);
  else if (d->place.file) fprintf(stream, "%s: ", d->place.file);
  fprintf(stream, "%s: %s\n", words[d->severity], d->message);
  if (d->place.file && d->place.line) print_line(diags, d->place, stream);
  for (int i = 0; i < d->hints_count; i++) fprintf(stream, "      = %s\n", d->hints[i]);
}

void tsr_diags_print(tsr_diags *diags, FILE *stream) {
  for (int i = 0; i < diags->count; i++) print_diag(diags, &diags->items[i], stream);
  if (diags->dropped) fprintf(stream, "… and %d more\n", diags->dropped);
  diags->count = diags->dropped = 0;
}
