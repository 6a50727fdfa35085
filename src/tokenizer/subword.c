// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/subword.h"
#include "tokenizer/internal.h"
#include "base/utf8.h"
#include <assert.h>
#include <string.h>

enum { REPLACEMENT_BYTES = 3 }; /* of U+FFFD */

/* A buffer that is filled anew; the old one stays in the arena until the scratch is freed. */
typedef struct {
  char *bytes;
  size_t capacity;
} buffer;

struct tsr_subword_scratch {
  tsr_arena *arena;
  uint64_t serial; /* of the subword whose words are remembered */
  tsr_bpe_words *words;
  tsr_match *match;
  tsr_normalize_scratch normalize;
  buffer valid, normal, spaced, from;
};

tsr_subword_scratch *tsr_subword_scratch_new(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_subword_scratch *scratch = tsr_arena_array(arena, tsr_subword_scratch, 1);
  *scratch = (tsr_subword_scratch){
      .arena = arena,
      .words = tsr_bpe_words_new(arena),
      .match = tsr_match_new(arena),
      .normalize = {.arena = arena},
  };
  return scratch;
}

void tsr_subword_scratch_free(tsr_subword_scratch *scratch) {
  if (!scratch) return;
  tsr_match_free(scratch->match);
  tsr_arena_free(scratch->arena);
}

static char *reserve(tsr_subword_scratch *scratch, buffer *b, size_t length) {
  if (length > b->capacity) {
    b->capacity = length > 2 * b->capacity ? length : 2 * b->capacity;
    b->bytes = tsr_arena_alloc(scratch->arena, b->capacity);
  }
  return b->bytes;
}

/* ---- bytes that are no UTF-8 ---- */

/* The bytes of the broken character at `text`: as many as could begin one, at least 1. */
static size_t broken_bytes(const char *text, size_t length) {
  const unsigned char *bytes = (const unsigned char *)text;
  unsigned lead = bytes[0];
  if (lead < 0xc2 || lead > 0xf4) return 1;
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2, count = 1;
  for (; count < whole && count < length; count++) {
    if (bytes[count] < low || bytes[count] > high) break;
    low = 0x80, high = 0xbf;
  }
  return count;
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
    at += broken_bytes(text + at, length - at);
    put += REPLACEMENT_BYTES;
  }
  return put;
}

int64_t tsr_subword_room(const tsr_subword *subword, const char *text, size_t length) {
  int64_t room = (int64_t)replace_broken(text, length, NULL);
  /* Broken bytes are not plain to the normalizer's look, which costs room and nothing else. */
  if (subword->normalizer && !tsr_normalizer_is_plain(subword->normalizer, text, length))
    room *= tsr_normalizer_growth(subword->normalizer);
  return subword->space_at < 0 ? room : 2 * room; /* a space for every piece, of a byte at least */
}

/* ---- from the text to words ---- */

typedef struct {
  const tsr_subword *subword;
  tsr_subword_scratch *scratch;
  int32_t *tokens;
  int64_t count;
  int64_t *begins;     /* of the tokens, in the text; NULL: not needed */
  const char *piece;   /* the piece that is being cut, as it is or normalized */
  size_t piece_begin;  /* of the piece, in the text */
  const size_t *from;  /* of each byte of a normalized piece, its source; NULL: not normalized */
  const char *spaced;  /* a part of the piece with a space in front; NULL: none is being cut */
  size_t spaced_begin; /* of that part, in the piece */
} encoder;

/* The offset in the text of a byte that is being cut. */
static int64_t source_of(const encoder *e, const char *at) {
  size_t offset = e->spaced ? e->spaced_begin + (size_t)(at - e->spaced) - (at > e->spaced)
                            : (size_t)(at - e->piece);
  return (int64_t)(e->piece_begin + (e->from ? e->from[offset] : offset));
}

/* Of the tokens from `first` on, whose bytes are at `at`. */
static void add_begins(encoder *e, int64_t first, const char *at) {
  for (int64_t i = first; e->begins && i < e->count; i++) {
    int64_t begin = source_of(e, at);
    e->begins[i] = i && begin < e->begins[i - 1] ? e->begins[i - 1] : begin;
    at += e->subword->lengths[e->tokens[i]];
  }
}

static bool split(encoder *e, int level, const char *text, size_t length);

/* The matches of a pattern, and what lies between them, each cut further. As the tokenizers package
 * has it, an empty match cuts too, unless it stands where the last match ended. */
static bool split_by(encoder *e, int level, const char *text, size_t length) {
  const tsr_pattern *pattern = e->subword->splits[level];
  size_t done = 0, at = 0, begin, end;
  bool ok = true, has_matched = false;
  while (ok && at <= length) {
    int found = tsr_pattern_find(pattern, e->scratch->match, text, length, at, &begin, &end);
    if (found < 0) return false;
    if (!found) break;
    if (begin == end && has_matched && end == done) {
      at = end + 1;
      while (at < length && ((unsigned char)text[at] & 0xc0) == 0x80) at++;
      continue;
    }
    if (begin > done) ok = split(e, level + 1, text + done, begin - done);
    if (end > begin) ok = ok && split(e, level + 1, text + begin, end - begin);
    at = done = end;
    has_matched = true;
  }
  if (ok && done < length) ok = split(e, level + 1, text + done, length - done);
  return ok;
}

static bool split(encoder *e, int level, const char *text, size_t length) {
  bool adds_space = level == e->subword->space_at && text[0] != ' ', ok = true;
  if (adds_space) {
    char *spaced = reserve(e->scratch, &e->scratch->spaced, length + 1);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, length++);
    e->spaced_begin = (size_t)(text - e->piece);
    e->spaced = text = spaced;
  }
  if (level < e->subword->splits_count) {
    ok = split_by(e, level, text, length);
  } else {
    int64_t first = e->count;
    e->count += tsr_bpe_word(e->subword, e->scratch->words, text, length, e->tokens + first);
    add_begins(e, first, text);
  }
  if (adds_space) e->spaced = NULL;
  return ok;
}

typedef bool (*piece_function)(encoder *e, const char *text, size_t length);

/* The set's tokens, and `piece` for what lies between. Where a token takes the space behind it, the
 * next one may begin inside of that, and be there twice: so it is in the tokenizers package. */
static bool cut_added(
    encoder *e, const tsr_added_token_set *set, const char *text, size_t length,
    piece_function piece) {
  size_t at = 0, taken = 0;
  tsr_bpe_span span;
  const tsr_added_token *added;
  while (
      (added = tsr_added_tokens_find(
           e->subword, set, e->scratch->match, text, length, at, taken, &span))) {
    bool has_gap = taken < span.outer_begin;
    if (has_gap && !piece(e, text + taken, span.outer_begin - taken)) return false;
    e->tokens[e->count++] = added->token;
    add_begins(e, e->count - 1, text + span.outer_begin);
    at = span.end;
    taken = span.outer_end;
  }
  return taken == length || piece(e, text + taken, length - taken);
}

static bool encode_words(encoder *e, const char *text, size_t length) {
  return split(e, 0, text, length);
}

static bool encode_piece(encoder *e, const char *text, size_t length) {
  const tsr_normalizer *normalizer = e->subword->normalizer;
  const char *whole = e->piece;
  e->piece = text;
  e->piece_begin = (size_t)(text - whole);
  if (normalizer && !tsr_normalizer_is_plain(normalizer, text, length)) {
    size_t room = length * (size_t)tsr_normalizer_growth(normalizer), *from = NULL;
    char *normal = reserve(e->scratch, &e->scratch->normal, room);
    if (e->begins)
      from = (size_t *)(void *)reserve(e->scratch, &e->scratch->from, (room + 1) * sizeof *from);
    length = tsr_normalize(normalizer, &e->scratch->normalize, text, length, normal, from);
    e->piece = text = normal;
    e->from = from;
  }
  bool ok = cut_added(e, &e->subword->normalized, text, length, encode_words);
  e->piece = whole;
  e->piece_begin = 0;
  e->from = NULL;
  return ok;
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
  if (scratch->serial && scratch->serial != subword->serial) tsr_bpe_words_forget(scratch->words);
  scratch->serial = subword->serial;
  if (tsr_utf8_valid(text, length) < length) {
    size_t valid_length = replace_broken(text, length, NULL);
    char *valid = reserve(scratch, &scratch->valid, valid_length);
    length = replace_broken(text, length, valid);
    text = valid;
  }
  encoder e = {
      .subword = subword,
      .scratch = scratch,
      .tokens = ret_tokens,
      .begins = ret_begins,
      .piece = text};
  bool ok = !length || cut_added(&e, &subword->raw, text, length, encode_piece);
  *ret_count = e.count;
  if (ret_begins) ret_begins[e.count] = (int64_t)length;
  if (ok) return true;
  return tsr_diag_failure(
      diags, (tsr_location){.file = subword->file}, "a split pattern fails on this text: %s",
      tsr_match_failure(scratch->match));
}

/* ---- queries ---- */

int tsr_subword_before(const tsr_subword *subword, const int32_t **ret_tokens) {
  *ret_tokens = subword->before;
  return subword->before_count;
}

int tsr_subword_behind(const tsr_subword *subword, const int32_t **ret_tokens) {
  *ret_tokens = subword->behind;
  return subword->behind_count;
}

int32_t tsr_subword_vocab_size(const tsr_subword *subword) { return subword->vocab_size; }

int32_t tsr_subword_find(const tsr_subword *subword, const char *text) {
  size_t length = strlen(text);
  for (int i = 0; i < subword->added_count; i++)
    if (subword->added[i].length == length && !memcmp(subword->added[i].text, text, length))
      return subword->added[i].token;
  return *tsr_subword_word_slot(subword, text, length);
}

bool tsr_subword_is_special(const tsr_subword *subword, int32_t token) {
  assert(token >= 0 && token < subword->vocab_size);
  return subword->special[token];
}

const char *tsr_subword_token(const tsr_subword *subword, int32_t token, size_t *ret_length) {
  assert(token >= 0 && token < subword->vocab_size);
  *ret_length = subword->texts[token] ? subword->lengths[token] : 0;
  return subword->texts[token] ? subword->texts[token] : "";
}
