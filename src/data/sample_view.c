// SPDX-License-Identifier: Apache-2.0
#include "data/sample_view.h"
#include "base/utf8.h"
#include "data/sources.h"
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 9 }; /* of the position and two blanks */

typedef struct {
  const tsr_tokenizer *tokenizer;
  const tsr_sample_style *style;
  tsr_text *text;
  const int32_t *tokens, *positions;
  const bool *trained;
  const tsr_label_names *labels;
  int column;      /* of the line; 0: none is begun */
  bool in_targets; /* a mark is open */
  bool is_bright;
} view;

/* ---- lines ---- */

static void close_mark(view *v) {
  if (v->in_targets) tsr_text_add(v->text, "⟧");
  v->in_targets = false;
}

static void end_line(view *v) {
  if (!v->column) return;
  close_mark(v);
  tsr_text_add(v->text, "\n");
  v->column = 0;
}

static void begin_line(view *v, int64_t position) {
  const char *dim = v->style->in_colour ? "\033[2m" : "", *plain = *dim ? "\033[0m" : "";
  tsr_text_add(v->text, "%s%7lld%s  ", dim, (long long)position, plain);
  v->column = MARGIN;
}

/* ---- tokens ---- */

/* Appends printable characters; returns their columns. */
static int add_printable(const char *bytes, size_t length, tsr_text *text) {
  int columns = 0;
  for (size_t i = 0; i < length;) {
    uint32_t code;
    int n = tsr_utf8_next(bytes + i, length - i, &code);
    bool control = n > 0 && (code < 0x20 || (code >= 0x7f && code < 0xa0));
    if (n > 0 && code == '\n') tsr_text_add(text, "↵");
    else if (n > 0 && code == '\t') tsr_text_add(text, "⇥");
    else if (n > 0 && !control) tsr_text_add_bytes(text, bytes + i, (size_t)n);
    else {
      n = n > 0 ? n : 1;
      for (int k = 0; k < n; k++)
        tsr_text_add(text, "\\x%02x", (unsigned char)bytes[i + (size_t)k]);
      columns += 4 * n - 1;
    }
    columns++;
    i += (size_t)n;
  }
  return columns;
}

/* The bytes of tokens from `at` that are whole characters; returns how many tokens. Those of one
 * kind alone go together. */
static int64_t decode_unit(const view *v, int64_t at, int64_t end, tsr_text *bytes) {
  int64_t next = at;
  do tsr_tokenizer_token_text(v->tokenizer, v->tokens[next++], bytes);
  while (next < end && v->trained[next] == v->trained[at] &&
         tsr_tokenizer_whole(bytes->data ? bytes->data : "", bytes->length) < bytes->length);
  return next - at;
}

static void add_unit(view *v, bool trained, const tsr_text *printable) {
  static const char *const colours[2][2] = {{"\033[2m", "\033[0m"}, {"\033[32m", "\033[92m"}};
  if (v->style->in_colour) {
    tsr_text_add(
        v->text, "%s%s\033[0m", colours[trained][v->is_bright],
        printable->data ? printable->data : "");
    v->is_bright = !v->is_bright;
    return;
  }
  if (v->in_targets && !trained) close_mark(v);
  if (trained && !v->in_targets) tsr_text_add(v->text, "⟦");
  v->in_targets = trained;
  tsr_text_add(v->text, "%s", printable->data ? printable->data : "");
}

static void print_tokens(view *v, int64_t begin, int64_t end) {
  bool blanks = v->tokenizer->kind == TSR_TOKENIZER_IDS;
  for (int64_t at = begin, n; at < end; at += n) {
    tsr_text bytes = {0}, printable = {0};
    n = decode_unit(v, at, end, &bytes);
    int columns = add_printable(bytes.data ? bytes.data : "", bytes.length, &printable);
    if (blanks) tsr_text_add(&printable, " ");
    columns += blanks;
    if (v->column > MARGIN && v->column + columns > v->style->width) end_line(v);
    if (!v->column) begin_line(v, v->positions[at]);
    add_unit(v, v->trained[at], &printable);
    v->column += columns;
    if (bytes.length && memchr(bytes.data, '\n', bytes.length)) end_line(v);
    tsr_text_free(&bytes);
    tsr_text_free(&printable);
  }
  end_line(v);
}

/* ---- documents ---- */

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

static void print_heading(view *v, const char *heading) {
  bool colour = v->style->in_colour;
  tsr_text_add(v->text, "%s%s%s\n", colour ? "\033[1m" : "", heading, colour ? "\033[0m" : "");
}

/* ", 10 targets", ", label 'spam'" */
static const char *describe_targets(
    const view *v, tsr_arena *arena, const tsr_window *w, int64_t document, int64_t targets) {
  const tsr_masked_documents *d = w->packs ? w->packs->from : NULL;
  if (!d || !d->labels)
    return tsr_arena_printf(arena, "%lld target%s", (long long)targets, plural(targets));
  int32_t label = d->labels[document];
  if (!v->labels->names) return tsr_arena_printf(arena, "label %d", label);
  return tsr_arena_printf(arena, "label %d '%s'", label, v->labels->names[label]);
}

/* "document 2 (chat.jsonl:17): 24 tokens, 10 targets" */
static void head_document(
    view *v, tsr_arena *arena, const tsr_window *w, int number, int64_t begin, int64_t end) {
  const char *place = "";
  int64_t targets = 0, document = 0;
  for (int64_t t = begin; t < end; t++) targets += v->trained[t];
  if (w->packs) {
    const tsr_masked_documents *c = w->packs->from;
    document = w->packs->members[w->packs->begins[w->pack] + number];
    const tsr_document_place *at = &c->places[document];
    int64_t cut = tsr_document_length(c, document) - (end - begin);
    place = tsr_arena_printf(arena, " (%s:%d)", c->paths[at->file], at->line);
    if (cut)
      place = tsr_arena_printf(
          arena, " (%s:%d, without its last %lld token%s)", c->paths[at->file], at->line,
          (long long)cut, plural(cut));
  }
  print_heading(
      v, tsr_arena_printf(
             arena, "document %d%s: %lld token%s, %s", number + 1, place, (long long)(end - begin),
             plural(end - begin), describe_targets(v, arena, w, document, targets)));
}

/* "corpus.bin, tokens 640 to 703: 64 targets"; the files of a text count as one. */
static void
head_window(view *v, tsr_arena *arena, const tsr_window *w, int64_t T, int64_t targets) {
  const char *name = w->file->path;
  int64_t others = w->file->begins_count - 1;
  if (others > 0) name = tsr_arena_printf(arena, "%s (and %lld more)", name, (long long)others);
  print_heading(
      v, tsr_arena_printf(
             arena, "%s, tokens %lld to %lld: %lld target%s", name, (long long)w->begin,
             (long long)(w->begin + T - 1), (long long)targets, plural(targets)));
}

void tsr_sample_print(
    const tsr_dataset *d, tsr_split split, int64_t index, int64_t T, int64_t ignored,
    const tsr_sample_style *style, tsr_text *text) {
  tsr_arena *arena = tsr_arena_new();
  tsr_window w = tsr_dataset_find_window(d, split, index, T);
  int32_t *tokens = tsr_arena_array(arena, int32_t, T);
  int32_t *targets = tsr_arena_array(arena, int32_t, T);
  int32_t *positions = tsr_arena_array(arena, int32_t, T);
  bool *trained = tsr_arena_array(arena, bool, T);
  tsr_window_fill_tokens(&w, T, tokens);
  int64_t count = tsr_window_fill_targets(&w, T, ignored, targets);
  tsr_window_fill_positions(&w, T, positions);
  int64_t before = w.packs && w.packs->from->labels ? 0 : 1; /* a label is at its token */
  for (int64_t t = before; t < T; t++)
    trained[t] = targets[t - before] != TSR_TARGET_IGNORED && targets[t - before] != ignored;
  view v = {&d->tokenizer, style, text, tokens, positions, trained, &d->labels, .column = 0};
  int64_t used = tsr_window_tokens(&w, T);
  int number = 0;
  if (!w.packs) head_window(&v, arena, &w, T, count);
  for (int64_t begin = 0, end; begin < used; begin = end, number++) {
    for (end = begin + 1; end < used && positions[end]; end++) continue;
    if (w.separate) head_document(&v, arena, &w, number, begin, end);
    print_tokens(&v, begin, end);
  }
  if (used < T)
    print_heading(
        &v,
        tsr_arena_printf(arena, "padding: %lld token%s", (long long)(T - used), plural(T - used)));
  tsr_arena_free(arena);
}
