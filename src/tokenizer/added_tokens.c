// SPDX-License-Identifier: Apache-2.0
/* Added tokens in a text: leftmost, and of those the longest, as the tokenizers package's automaton
 * has it. */
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"
#include <stdlib.h>
#include <string.h>

static int compare_bytes(const void *a, const void *b) {
  const tsr_added_token *x = a, *y = b;
  size_t length = x->length < y->length ? x->length : y->length;
  int order = memcmp(x->text, y->text, length);
  return order ? order : (x->length > y->length) - (x->length < y->length);
}

static void sort_set(tsr_added_token_set *set) {
  if (set->count) qsort(set->items, (size_t)set->count, sizeof *set->items, compare_bytes);
  int at = 0;
  for (int byte = 0; byte <= 256; byte++) {
    while (at < set->count && (unsigned char)set->items[at].text[0] < byte) at++;
    set->first[byte] = at;
  }
}

/* The text of a token by all steps of the normalizer. */
static bool
normalize(tsr_arena *arena, const tsr_subword *subword, tsr_added_token *added, tsr_diags *diags) {
  tsr_step_scratch scratch = {.match = tsr_match_new(arena), .normalize = {.arena = arena}};
  tsr_piece piece = {.text = added->text, .length = added->length};
  bool ok = true;
  for (int i = 0; ok && i < subword->normalizer.count; i++) {
    tsr_piece_buffer buffer = {.arena = arena};
    ok = tsr_step_change(&subword->normalizer.steps[i], &scratch, &piece, &buffer);
    piece = tsr_piece_of(&buffer);
  }
  tsr_location location = {.file = subword->file};
  if (!ok)
    tsr_diag_error(
        diags, location, "added_tokens: a pattern of the normalizer fails on '%s': %s", added->text,
        tsr_match_failure(scratch.match));
  else if (!piece.length)
    ok = tsr_diag_error(
        diags, location, "added_tokens: '%s' is empty when it is normalized", added->text);
  tsr_match_free(scratch.match);
  added->text = piece.text;
  added->length = piece.length;
  return ok;
}

bool tsr_added_tokens_sort(tsr_arena *arena, tsr_subword *subword, tsr_diags *diags) {
  subword->raw.items = tsr_arena_array(arena, tsr_added_token, subword->added_count);
  subword->normalized.items = tsr_arena_array(arena, tsr_added_token, subword->added_count);
  for (int i = 0; i < subword->added_count; i++) {
    tsr_added_token added = subword->added[i];
    tsr_added_token_set *set = added.is_normalized ? &subword->normalized : &subword->raw;
    if (added.is_normalized && !normalize(arena, subword, &added, diags)) return false;
    set->items[set->count++] = added;
  }
  sort_set(&subword->raw);
  sort_set(&subword->normalized);
  /* Texts differ, but normalized they may not. */
  for (int i = 0; i + 1 < subword->normalized.count; i++)
    if (!compare_bytes(&subword->normalized.items[i], &subword->normalized.items[i + 1]))
      return tsr_diag_error(
          diags, (tsr_location){.file = subword->file},
          "added_tokens: %d and %d are the same text when they are normalized",
          subword->normalized.items[i].token, subword->normalized.items[i + 1].token);
  return true;
}

/* Of the sorted [low, high), whose first `depth` bytes are alike, the first whose byte there is
 * `byte` or more. */
static int narrow(const tsr_added_token_set *set, int low, int high, size_t depth, unsigned byte) {
  while (low < high) {
    int middle = low + (high - low) / 2;
    const tsr_added_token *item = &set->items[middle];
    if (item->length <= depth || (unsigned char)item->text[depth] < byte) low = middle + 1;
    else high = middle;
  }
  return low;
}

static const tsr_added_token *
find_longest(const tsr_added_token_set *set, const char *text, size_t length) {
  const tsr_added_token *longest = NULL;
  unsigned byte = (unsigned char)text[0];
  int low = set->first[byte], high = set->first[byte + 1];
  for (size_t depth = 1; low < high; depth++) {
    if (set->items[low].length == depth) longest = &set->items[low];
    if (depth == length) break;
    byte = (unsigned char)text[depth];
    low = narrow(set, low, high, depth, byte);
    high = narrow(set, low, high, depth, byte + 1);
  }
  return longest;
}

/* Where the character before `at` begins. */
static size_t step_back(const char *text, size_t at) {
  do at--;
  while (at && ((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

static size_t spaces_before(const char *text, size_t at, size_t floor) {
  if (at < floor) return floor;
  while (at > floor) {
    size_t back = step_back(text, at);
    uint32_t code = 0;
    tsr_utf8_next(text + back, at - back, &code);
    if (!tsr_utf8_is_space(code)) break;
    at = back;
  }
  return at;
}

static size_t spaces_behind(const char *text, size_t length, size_t at) {
  for (uint32_t code = 0; at < length;) {
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    if (!tsr_utf8_is_space(code)) break;
    at += (size_t)bytes;
  }
  return at;
}

static bool is_word_char(const char *text, size_t length, size_t at) {
  uint32_t code = 0;
  tsr_utf8_next(text + at, length - at, &code);
  return tsr_char_classes()[code] & TSR_CHAR_WORD;
}

/* Whether no word continues across either end. */
static bool stands_alone(const char *text, size_t length, const tsr_added_span *span) {
  return (!span->begin || !is_word_char(text, length, step_back(text, span->begin))) &&
         (span->end == length || !is_word_char(text, length, span->end));
}

const tsr_added_token *tsr_added_tokens_find(
    const tsr_added_token_set *set, const char *text, size_t length, size_t at, size_t taken,
    tsr_added_span *ret_span) {
  if (!set->count) return NULL;
  while (at < length) {
    unsigned byte = (unsigned char)text[at];
    const tsr_added_token *added = NULL;
    if (set->first[byte] < set->first[byte + 1]) added = find_longest(set, text + at, length - at);
    if (!added) {
      at++;
      continue;
    }
    tsr_added_span span = {at, at + added->length, at, at + added->length};
    at = span.end;
    if (added->is_single_word && !stands_alone(text, length, &span)) continue;
    if (added->takes_left) span.outer_begin = spaces_before(text, span.begin, taken);
    if (added->takes_right) span.outer_end = spaces_behind(text, length, span.end);
    /* Of space that the token before took already, nothing may be left for this one. */
    if (added->takes_left && span.outer_begin >= span.outer_end) continue;
    *ret_span = span;
    return added;
  }
  return NULL;
}
