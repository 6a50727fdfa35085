// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize_block.h"
#include "data/text_check.h"
#include "data/jsonl.h"
#include <string.h>

/* ---- where a text may be cut ---- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Whether the text's two parts give the tokens of the whole. */
static bool splits(const tsr_tokenizer *tokenizer, const char *text, size_t at) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena); /* unsaid */
  size_t length = strlen(text);
  tsr_text_file whole = {"", text, length}, first = {"", text, at},
                second = {"", text + at, length - at};
  int64_t room = tsr_tokenizer_room(tokenizer, text, length);
  room += tsr_tokenizer_room(tokenizer, second.text, second.length);
  int32_t *a = tsr_arena_array(arena, int32_t, room),
          *b = tsr_arena_array(arena, int32_t, 2 * room);
  int64_t all = 0, begin = 0, rest = 0;
  bool ok = tsr_tokenizer_encode(tokenizer, &whole, a, &all, diags) &&
            tsr_tokenizer_encode(tokenizer, &first, b, &begin, diags) &&
            tsr_tokenizer_encode(tokenizer, &second, b + begin, &rest, diags);
  ok = ok && all == begin + rest && !memcmp(a, b, sizeof *a * (size_t)all);
  tsr_arena_free(arena);
  return ok;
}

bool tsr_tokenize_has_cuts(const tsr_tokenizer *tokenizer) {
  static const char *const texts[] = {"ab\ncd", "ab\n\ncd", "ab\n  cd", "ab\n(1)"};
  if (tokenizer->kind != TSR_TOKENIZER_SUBWORD) return true;
  bool ok = tsr_subword_has_cuts(tokenizer->subword);
  for (int i = 0; i < 4; i++) ok = ok && splits(tokenizer, texts[i], 2);
  return ok;
}

static bool is_cut(const tsr_tokenizer *tokenizer, const char *text, size_t at) {
  switch (tokenizer->kind) {
  case TSR_TOKENIZER_BYTE:
  case TSR_TOKENIZER_CHAR: /* before what begins a character */
    return (text[at] & 0xc0) != 0x80;
  case TSR_TOKENIZER_IDS:
    return is_space(text[at]);
  case TSR_TOKENIZER_SUBWORD:
    return text[at] == '\n' && is_letter(text[at - 1]);
  }
  return false;
}

size_t tsr_tokenize_block_end(
    const tsr_tokenize_rules *rules, const tsr_tokenize_file *file, size_t begin, size_t bytes) {
  const tsr_text_file *t = &file->text;
  size_t at = begin + bytes;
  if (at >= t->length || (!file->is_jsonl && !rules->has_cuts)) return t->length;
  if (file->is_jsonl) {
    const char *line_end = memchr(t->text + at, '\n', t->length - at);
    return line_end ? (size_t)(line_end - t->text) + 1 : t->length;
  }
  while (at < t->length && !is_cut(&rules->tokenizer, t->text, at)) at++;
  return at;
}

/* ---- encoding ---- */

void tsr_tokenize_process_open(const tsr_tokenize_rules *rules, tsr_tokenize_process *ret) {
  *ret = (tsr_tokenize_process){.rules = rules, .arena = tsr_arena_new()};
  ret->unsaid = tsr_diags_new(ret->arena);
  if (rules->tokenizer.kind == TSR_TOKENIZER_SUBWORD) ret->scratch = tsr_subword_scratch_new();
}

void tsr_tokenize_process_close(tsr_tokenize_process *w) {
  if (w->scratch) tsr_subword_scratch_free(w->scratch);
  tsr_arena_free(w->arena);
}

/* Room for `more` tokens after the present ones. */
static void make_room(tsr_tokenize_process *w, int64_t more) {
  if (w->count + more <= w->capacity) return;
  int64_t capacity = w->count + more + w->capacity;
  int32_t *tokens = tsr_arena_array(w->arena, int32_t, capacity);
  if (w->count) memcpy(tokens, w->tokens, sizeof *tokens * (size_t)w->count);
  w->tokens = tokens;
  w->capacity = capacity;
}

static bool encode_text(tsr_tokenize_process *w, const tsr_text_file *text, tsr_diags *diags) {
  const tsr_tokenizer *tokenizer = &w->rules->tokenizer;
  int64_t added = 0;
  make_room(w, tsr_tokenizer_room(tokenizer, text->text, text->length) + 1);
  int32_t *tokens = w->tokens + w->count;
  bool ok =
      tokenizer->kind == TSR_TOKENIZER_SUBWORD
          ? tsr_subword_encode(
                tokenizer->subword, w->scratch, text->text, text->length, tokens, &added, diags)
          : tsr_tokenizer_encode(tokenizer, text, tokens, &added, diags);
  w->count += added;
  return ok;
}

static void end_document(tsr_tokenize_process *w) {
  if (w->rules->end_of_text >= 0) {
    make_room(w, 1);
    w->tokens[w->count++] = (int32_t)w->rules->end_of_text;
  }
  tsr_arena_grow(w->arena, (void **)&w->ends, sizeof *w->ends, w->ends_count, &w->ends_capacity);
  w->ends[w->ends_count++] = w->count;
}

/* A text is located from the file's begin, since its pieces know no lines. */
static bool
encode_piece(tsr_tokenize_process *w, const tsr_tokenize_block *b, bool locate, tsr_diags *diags) {
  const tsr_text_file *t = &b->file->text;
  size_t begin = locate ? 0 : b->begin;
  tsr_text_file piece = {t->path, t->text + begin, b->end - begin};
  if (!tsr_content_check_bytes(&piece, diags) || !encode_text(w, &piece, diags)) return false;
  if (b->end == t->length) end_document(w);
  return true;
}

/* One line of [begin, end). */
static bool encode_line(
    tsr_tokenize_process *w, const tsr_text_file *file, size_t begin, size_t end, bool locate,
    tsr_diags *diags) {
  tsr_jsonl_fault fault;
  if (end - begin > w->text_capacity) {
    w->text_capacity = 2 * (end - begin);
    w->text = tsr_arena_alloc(w->arena, w->text_capacity);
  }
  tsr_text_file text = {"", w->text, 0};
  if (!tsr_jsonl_text(
          w->arena, file->text + begin, end - begin, w->rules->jsonl_key, w->text, &text.length,
          &fault))
    return locate && tsr_diag_error(
                         diags, tsr_text_file_place(file, begin + fault.offset, 1, diags), "%s",
                         fault.message);
  if (!text.length) return true;
  if (encode_text(w, &text, locate ? w->unsaid : diags)) return end_document(w), true;
  if (!locate) return false;
  /* Only of the line that is wrong: its number is counted from the file's begin. */
  text.path = tsr_arena_printf(
      w->rules->arena, "%s:%d: the text", file->path,
      tsr_text_file_place(file, begin, 1, diags).line);
  return encode_text(w, &text, diags);
}

static bool is_blank(const char *line, size_t length) {
  size_t i = 0;
  while (i < length && is_space(line[i])) i++;
  return i == length;
}

static bool
encode_lines(tsr_tokenize_process *w, const tsr_tokenize_block *b, bool locate, tsr_diags *diags) {
  const tsr_text_file *t = &b->file->text;
  for (size_t at = b->begin, end; at < b->end; at = end + 1) {
    const char *line_end = memchr(t->text + at, '\n', b->end - at);
    end = line_end ? (size_t)(line_end - t->text) : b->end;
    int64_t count = w->count;
    if (is_blank(t->text + at, end - at) || encode_line(w, t, at, end, locate, diags)) continue;
    if (!w->rules->skips_lines) return false;
    w->count = count;
    if (!w->skipped++) w->first_skipped = at;
  }
  return true;
}

/* 16-bit tokens move up to the front of their own place. */
static void narrow(tsr_tokenize_process *w) {
  char *to = (char *)w->tokens;
  for (int64_t i = 0; i < w->count; i++) {
    uint16_t token = (uint16_t)w->tokens[i];
    memcpy(to + 2 * i, &token, sizeof token);
  }
}

bool tsr_tokenize_block_encode(
    tsr_tokenize_process *w, const tsr_tokenize_block *block, bool locate, tsr_diags *diags) {
  w->count = 0;
  w->ends_count = 0;
  w->skipped = 0;
  bool ok = block->file->is_jsonl ? encode_lines(w, block, locate, diags)
                                  : encode_piece(w, block, locate, diags);
  if (ok && !w->rules->is_wide) narrow(w);
  return ok;
}
