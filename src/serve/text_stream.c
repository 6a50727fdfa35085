// SPDX-License-Identifier: Apache-2.0
#include "serve/text_stream.h"
#include <string.h>

void tsr_text_add_token(const tsr_tokenizer *tokenizer, int32_t token, tsr_text *text) {
  bool subword = tokenizer->kind == TSR_TOKENIZER_SUBWORD;
  if (subword && tsr_subword_is_special(tokenizer->subword, token)) return;
  if (tokenizer->kind == TSR_TOKENIZER_IDS) tsr_text_add(text, " ");
  tsr_tokenizer_token_text(tokenizer, token, text);
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

void tsr_text_stream_add(
    tsr_text_stream *s, const tsr_tokenizer *tokenizer, int32_t token, const tsr_stop_string *stops,
    int stops_count) {
  size_t from = s->text.length;
  tsr_text_add_token(tokenizer, token, &s->text);
  if (s->text.length == from) return;
  size_t stop = find_stop(&s->text, from, stops, stops_count);
  if (stop < s->text.length) {
    s->text.length = s->settled = stop;
    s->text.data[stop] = 0;
    s->is_stopped = true;
    return;
  }
  const char *open = s->text.data + s->settled;
  size_t settled = s->settled + tsr_tokenizer_whole(open, s->text.length - s->settled);
  size_t held = s->text.length - held_for_stops(&s->text, stops, stops_count);
  if (held < settled) settled = held;
  if (settled > s->settled) s->settled = settled;
}

void tsr_text_stream_end(tsr_text_stream *s) { s->settled = s->text.length; }
