// SPDX-License-Identifier: Apache-2.0
#include "serve/text_stream.h"
#include "base/utf8.h"
#include <string.h>

bool tsr_token_is_shown(const tsr_tokenizer *tokenizer, int32_t token) {
  return tokenizer->kind != TSR_TOKENIZER_SUBWORD ||
         !tsr_subword_is_special(tokenizer->subword, token);
}

int64_t tsr_text_characters(const char *bytes, size_t length) {
  int64_t count = 0;
  for (size_t i = 0; i < length; i++) count += ((unsigned char)bytes[i] & 0xc0) != 0x80;
  return count;
}

/* Whether a text that begins with the token has nothing of it, as of the blank in SentencePiece's
 * "▁". */
static bool is_nothing_first(const tsr_tokenizer *tokenizer, int32_t token) {
  tsr_arena *arena = tsr_arena_new();
  tsr_text text = {0};
  tsr_token_stream *alone = tsr_token_stream_new(arena, tokenizer, false);
  tsr_token_stream_add(alone, token, &text);
  tsr_token_stream_end(alone, &text);
  bool is_nothing = !text.length;
  tsr_text_free(&text);
  tsr_arena_free(arena);
  return is_nothing;
}

/* Adds a token to both: `held` has the bytes of those whose text a later token may change. */
static void
add_token(tsr_text_stream *s, const tsr_tokenizer *tokenizer, int32_t token, tsr_text *text) {
  size_t from = text->length;
  bool is_first = !s->has_tokens;
  s->has_tokens = true;
  tsr_token_stream_add(s->tokens, token, text);
  if (text->length > from) s->held.length = 0;
  else if (!is_first || !is_nothing_first(tokenizer, token))
    tsr_tokenizer_token_text(tokenizer, token, &s->held);
}

static bool are_characters(const tsr_text *held) {
  return held->length && tsr_utf8_valid(held->data, held->length) == held->length;
}

tsr_text_stream tsr_text_stream_new(
    tsr_arena *arena, const tsr_tokenizer *tokenizer, const int32_t *prompt, int64_t count,
    tsr_text *prompt_text, int64_t *ret_offsets) {
  tsr_text_stream s = {.tokens = tsr_token_stream_new(arena, tokenizer, false)};
  int64_t characters = 0;
  for (int64_t i = 0; i < count; i++) {
    size_t from = prompt_text->length;
    if (ret_offsets) ret_offsets[i] = characters + tsr_text_characters(s.held.data, s.held.length);
    if (!tsr_token_is_shown(tokenizer, prompt[i])) continue;
    add_token(&s, tokenizer, prompt[i], prompt_text);
    if (prompt_text->length > from)
      characters += tsr_text_characters(prompt_text->data + from, prompt_text->length - from);
  }
  if (!are_characters(&s.held)) return s;
  tsr_token_stream_end(s.tokens, prompt_text);
  s.held.length = 0;
  s.tokens = tsr_token_stream_new(arena, tokenizer, true);
  return s;
}

/* Where the first stop string begins that ends behind `from`; the text's length: there is none. */
static size_t
find_stop(const tsr_text *text, size_t from, const tsr_stop_string *stops, int count) {
  size_t first = text->length;
  for (int i = 0; i < count; i++) {
    size_t before = stops[i].length - 1, begin = from > before ? from - before : 0;
    const char *at =
        memmem(text->data + begin, text->length - begin, stops[i].bytes, stops[i].length);
    if (at && (size_t)(at - text->data) < first) first = (size_t)(at - text->data);
  }
  return first;
}

/* The bytes at the text's end that may be the beginning of a stop string. */
static size_t held_for_stops(const tsr_text *text, const tsr_stop_string *stops, int count) {
  size_t held = 0;
  for (int i = 0; i < count; i++) {
    size_t most = stops[i].length - 1 < text->length ? stops[i].length - 1 : text->length;
    for (size_t n = most; n > held; n--)
      if (!memcmp(text->data + text->length - n, stops[i].bytes, n)) held = n;
  }
  return held;
}

/* Bytes behind `from` are new. */
static void
finalize(tsr_text_stream *s, size_t from, const tsr_stop_string *stops, int stops_count) {
  if (s->text.length == from) return;
  size_t stop = find_stop(&s->text, from, stops, stops_count);
  if (stop < s->text.length) {
    s->text.length = s->final_length = stop;
    s->text.data[stop] = 0;
    s->is_stopped = true;
    return;
  }
  size_t final_length = s->text.length - held_for_stops(&s->text, stops, stops_count);
  if (final_length > s->final_length) s->final_length = final_length;
}

/* Bytes that are held back and are characters may be a stop string: then no token follows that
 * could change them, and they are text. */
static void stop_in_held(tsr_text_stream *s, const tsr_stop_string *stops, int stops_count) {
  size_t from = s->text.length;
  if (!are_characters(&s->held)) return;
  tsr_text_add_bytes(&s->text, s->held.data, s->held.length);
  if (find_stop(&s->text, from, stops, stops_count) < s->text.length)
    finalize(s, from, stops, stops_count);
  else s->text.data[s->text.length = from] = 0;
}

void tsr_text_stream_add(
    tsr_text_stream *s, const tsr_tokenizer *tokenizer, int32_t token, const tsr_stop_string *stops,
    int stops_count) {
  size_t from = s->text.length;
  if (!tsr_token_is_shown(tokenizer, token)) return;
  add_token(s, tokenizer, token, &s->text);
  finalize(s, from, stops, stops_count);
  if (!s->is_stopped && stops_count) stop_in_held(s, stops, stops_count);
}

void tsr_text_stream_end(tsr_text_stream *s, const tsr_stop_string *stops, int stops_count) {
  size_t from = s->text.length;
  tsr_text unwanted = {0};
  tsr_token_stream_end(s->tokens, s->is_stopped ? &unwanted : &s->text);
  tsr_text_free(&unwanted);
  s->tokens = NULL;
  if (!s->is_stopped) finalize(s, from, stops, stops_count);
  s->final_length = s->text.length;
}

void tsr_text_stream_free(tsr_text_stream *s) {
  tsr_token_stream_end(s->tokens, &s->text);
  tsr_text_free(&s->text);
  tsr_text_free(&s->held);
}
