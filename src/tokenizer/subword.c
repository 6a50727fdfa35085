// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/subword.h"
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"
#include <assert.h>
#include <string.h>

enum { REPLACEMENT_BYTES = 3 }; /* of U+FFFD */

struct tsr_subword_scratch {
  tsr_arena *arena;
  uint64_t serial; /* of the tokenizer whose words are remembered */
  tsr_words *words;
  tsr_step_scratch steps;
  tsr_piece_buffer valid, normal[2];
  tsr_piece_buffer levels[TSR_SUBWORD_STEPS_MAX]; /* what each step of the pre-tokenizer made */
  size_t *begins;                                 /* of a word's tokens */
  size_t begins_capacity;
};

tsr_subword_scratch *tsr_subword_scratch_new(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_subword_scratch *scratch = tsr_arena_array(arena, tsr_subword_scratch, 1);
  scratch->arena = arena;
  scratch->words = tsr_words_new(arena);
  scratch->steps.match = tsr_match_new(arena);
  scratch->steps.normalize.arena = arena;
  scratch->valid.arena = scratch->normal[0].arena = scratch->normal[1].arena = arena;
  for (int i = 0; i < TSR_SUBWORD_STEPS_MAX; i++) scratch->levels[i].arena = arena;
  return scratch;
}

void tsr_subword_scratch_free(tsr_subword_scratch *scratch) {
  if (!scratch) return;
  tsr_match_free(scratch->steps.match);
  tsr_arena_free(scratch->arena);
}

/* Writes the text with U+FFFD for what is broken (`ret_text` NULL: nowhere); returns its length. */
static size_t replace_broken(const char *text, size_t length, char *ret_text) {
  size_t put = 0;
  for (size_t at = 0; at < length;) {
    size_t valid = tsr_utf8_valid(text + at, length - at);
    if (ret_text) memcpy(ret_text + put, text + at, valid);
    at += valid;
    put += valid;
    if (at == length) break;
    if (ret_text) memcpy(ret_text + put, "\xef\xbf\xbd", REPLACEMENT_BYTES);
    at += tsr_utf8_broken(text + at, length - at, NULL);
    put += REPLACEMENT_BYTES;
  }
  return put;
}

/* ---- from the text to words ---- */

typedef struct {
  const tsr_subword *subword;
  tsr_subword_scratch *scratch;
  int32_t *tokens; /* NULL: none are made, `count` is how many there are at most */
  int64_t count;
  int64_t *begins;  /* of the tokens, in the text; NULL: not needed */
  bool lacks_token; /* of a word */
} encoder;

static void add_begin(encoder *e, int64_t token, size_t begin) {
  if (!e->begins) return;
  bool is_back = token && (int64_t)begin < e->begins[token - 1];
  e->begins[token] = is_back ? e->begins[token - 1] : (int64_t)begin;
}

static bool encode_word(encoder *e, const tsr_piece *word) {
  size_t room = tsr_word_room(e->subword, word->length), *begins = NULL;
  if (!e->tokens) return e->count += (int64_t)room, true;
  if (e->begins) {
    tsr_subword_scratch *s = e->scratch;
    if (room > s->begins_capacity)
      s->begins = tsr_arena_array(s->arena, size_t, s->begins_capacity = 2 * room);
    begins = s->begins;
  }
  int64_t first = e->count;
  int64_t count = tsr_word_encode(
      e->subword, e->scratch->words, word->text, word->length, e->tokens + first, begins);
  e->lacks_token = count < 0;
  if (e->lacks_token) return false;
  e->count += count;
  for (int64_t i = 0; begins && i < count; i++)
    add_begin(e, first + i, tsr_piece_source(word, begins[i]));
  return true;
}

/* A piece on its way through the steps of the pre-tokenizer. */
typedef struct {
  encoder *e;
  int level;
} stage;

static bool cut_piece(encoder *e, int level, const tsr_piece *piece);

static bool cut_part(void *context, const tsr_piece *part) {
  const stage *s = context;
  return cut_piece(s->e, s->level + 1, part);
}

static bool cut_piece(encoder *e, int level, const tsr_piece *piece) {
  const tsr_steps *steps = &e->subword->pre_tokenizer;
  if (level == steps->count) return encode_word(e, piece);
  const tsr_step *step = &steps->steps[level];
  if (step->kind >= TSR_STEP_SPLIT)
    return tsr_step_cut(step, e->scratch->steps.match, piece, cut_part, &(stage){e, level});
  tsr_piece_buffer *made = &e->scratch->levels[level];
  if (!tsr_step_change(step, &e->scratch->steps, piece, made)) return false;
  tsr_piece changed = tsr_piece_of(made);
  return !changed.length || cut_piece(e, level + 1, &changed);
}

typedef bool (*piece_function)(encoder *e, const tsr_piece *piece);

/* The set's tokens, and `give` for what lies between. Where a token takes the space behind it, the
 * next one may begin inside of that, and be there twice: so it is in the tokenizers package. */
static bool
cut_added(encoder *e, const tsr_added_token_set *set, const tsr_piece *piece, piece_function give) {
  size_t at = 0, taken = 0;
  tsr_added_span span;
  const tsr_added_token *added;
  while ((added = tsr_added_tokens_find(set, piece->text, piece->length, at, taken, &span))) {
    tsr_piece gap =
        tsr_piece_part(piece, taken, taken < span.outer_begin ? span.outer_begin : taken);
    if (gap.length && !give(e, &gap)) return false;
    if (e->tokens) {
      e->tokens[e->count] = added->token;
      add_begin(e, e->count, tsr_piece_source(piece, span.outer_begin));
    }
    e->count++;
    at = span.end;
    taken = span.outer_end;
  }
  tsr_piece rest = tsr_piece_part(piece, taken, piece->length);
  return !rest.length || give(e, &rest);
}

static bool encode_words(encoder *e, const tsr_piece *piece) {
  if (!e->subword->known_words || !e->tokens || e->begins) return cut_piece(e, 0, piece);
  e->count += tsr_words_encode_text(
      e->subword, e->scratch->words, piece->text, piece->length, e->tokens + e->count);
  return true;
}

static bool encode_piece(encoder *e, const tsr_piece *piece) {
  const tsr_steps *steps = &e->subword->normalizer;
  tsr_piece normal = *piece;
  for (int i = 0, turn = 0; i < steps->count; i++) {
    const tsr_step *step = &steps->steps[i];
    bool is_plain = step->kind == TSR_STEP_FORM &&
                    tsr_normalizer_is_plain(step->form, normal.text, normal.length);
    if (is_plain) continue;
    tsr_piece_buffer *made = &e->scratch->normal[turn ^= 1];
    if (!tsr_step_change(step, &e->scratch->steps, &normal, made)) return false;
    normal = tsr_piece_of(made);
  }
  return !normal.length || cut_added(e, &e->subword->normalized, &normal, encode_words);
}

/* Whether a word's bytes are no more than those of the text, but for what a quick look finds. */
static bool keeps_length(const tsr_subword *subword, const char *text, size_t length) {
  bool keeps = !subword->falls_back;
  for (int i = 0; i < subword->normalizer.count; i++) {
    const tsr_step *step = &subword->normalizer.steps[i];
    keeps &= step->kind == TSR_STEP_FORM && tsr_normalizer_is_plain(step->form, text, length);
  }
  for (int i = 0; i < subword->pre_tokenizer.count; i++)
    keeps &= subword->pre_tokenizer.steps[i].kind >= TSR_STEP_SPLIT;
  return keeps;
}

static bool encode(encoder *e, const char *text, size_t length, size_t *ret_length) {
  tsr_subword_scratch *scratch = e->scratch;
  if (scratch->serial && scratch->serial != e->subword->serial) tsr_words_forget(scratch->words);
  scratch->serial = e->subword->serial;
  if (tsr_utf8_valid(text, length) < length) {
    size_t valid_length = replace_broken(text, length, NULL);
    scratch->valid.length = 0;
    tsr_piece_reserve(&scratch->valid, valid_length);
    length = replace_broken(text, length, scratch->valid.bytes);
    text = scratch->valid.bytes;
  }
  *ret_length = length;
  tsr_piece piece = {.text = text, .length = length};
  return !length || cut_added(e, &e->subword->raw, &piece, encode_piece);
}

int64_t tsr_subword_room(const tsr_subword *subword, const char *text, size_t length) {
  if (keeps_length(subword, text, length)) return (int64_t)replace_broken(text, length, NULL);
  encoder e = {.subword = subword, .scratch = tsr_subword_scratch_new()};
  encode(&e, text, length, &length); /* what fails here will fail at the same place again */
  tsr_subword_scratch_free(e.scratch);
  return e.count;
}

bool tsr_subword_encode(
    const tsr_subword *subword, tsr_subword_scratch *scratch, const char *text, size_t length,
    int32_t *ret_tokens, int64_t *ret_count, tsr_diags *diags) {
  return tsr_subword_encode_begins(
      subword, scratch, text, length, ret_tokens, NULL, ret_count, diags);
}

bool tsr_subword_encode_begins(
    const tsr_subword *subword, tsr_subword_scratch *scratch, const char *text, size_t length,
    int32_t *ret_tokens, int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags) {
  encoder e = {.subword = subword, .scratch = scratch, .tokens = ret_tokens, .begins = ret_begins};
  bool ok = encode(&e, text, length, &length);
  *ret_count = e.count;
  if (ret_begins) ret_begins[e.count] = (int64_t)length;
  if (ok) return true;
  tsr_location location = {.file = subword->file};
  if (e.lacks_token)
    return tsr_diag_failure(
        diags, location, "this text has no tokens: %s", tsr_word_failure(subword));
  return tsr_diag_failure(
      diags, location, "a pattern fails on this text: %s", tsr_match_failure(scratch->steps.match));
}

/* ---- queries ---- */

int tsr_subword_before(const tsr_subword *subword, const int32_t **ret_tokens) {
  *ret_tokens = subword->before.tokens;
  return subword->before.count;
}

int tsr_subword_behind(const tsr_subword *subword, const int32_t **ret_tokens) {
  *ret_tokens = subword->behind.tokens;
  return subword->behind.count;
}

int32_t tsr_subword_vocab_size(const tsr_subword *subword) { return subword->vocab_size; }

bool tsr_subword_is_byte_level(const tsr_subword *subword) {
  return subword->model == TSR_MODEL_BPE_BYTES;
}

int32_t tsr_subword_find(const tsr_subword *subword, const char *text) {
  size_t length = strlen(text);
  for (int i = 0; i < subword->added_count; i++)
    if (subword->added[i].length == length && !memcmp(subword->added[i].text, text, length))
      return subword->added[i].token;
  return tsr_vocabulary_find(subword, text, length);
}

bool tsr_subword_is_special(const tsr_subword *subword, int32_t token) {
  assert(token >= 0 && token < subword->vocab_size);
  return subword->flags[token] & TSR_TOKEN_SPECIAL;
}

const char *tsr_subword_token(const tsr_subword *subword, int32_t token, size_t *ret_length) {
  assert(token >= 0 && token < subword->vocab_size);
  *ret_length = subword->texts[token] ? subword->lengths[token] : 0;
  return subword->texts[token] ? subword->texts[token] : "";
}

/* Whether a normalizer's step does the same to a text as to pieces cut at line ends. */
static bool is_local(const tsr_step *step) {
  return step->kind == TSR_STEP_FORM || step->kind == TSR_STEP_LOWER ||
         step->kind == TSR_STEP_LEAVE_OUT || step->kind == TSR_STEP_NMT ||
         step->kind == TSR_STEP_CLEAN || step->kind == TSR_STEP_IDEOGRAPHS;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Whether an added token may have the end of a line behind a letter in it, or take it. */
static bool spans_cut(const tsr_added_token *added) {
  bool spans = added->takes_right && added->length && is_letter(added->text[added->length - 1]);
  for (size_t i = 1; i < added->length; i++)
    spans |= added->text[i] == '\n' && is_letter(added->text[i - 1]);
  return spans;
}

bool tsr_subword_has_cuts(const tsr_subword *subword) {
  bool is_local_all = true;
  for (int i = 0; i < subword->added_count; i++) is_local_all &= !spans_cut(&subword->added[i]);
  for (int i = 0; i < subword->normalizer.count; i++)
    is_local_all &= is_local(&subword->normalizer.steps[i]);
  const tsr_step *first = &subword->pre_tokenizer.steps[0];
  bool removes_space = subword->pre_tokenizer.count && first->kind == TSR_STEP_SPLIT &&
                       first->classes == TSR_CHAR_SPACE && first->behavior == TSR_SPLIT_REMOVED;
  return is_local_all && (removes_space || subword->model == TSR_MODEL_BPE_BYTES);
}
