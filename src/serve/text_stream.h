// SPDX-License-Identifier: Apache-2.0
/* The text of a choice, which grows token by token. What may still change is held back: a character
 * of which bytes are missing, and the beginning of a stop string. */
#ifndef TSR_SERVE_TEXT_STREAM_H
#define TSR_SERVE_TEXT_STREAM_H
#include "data/tokenizer.h"

typedef struct {
  const char *bytes;
  size_t length; /* at least 1 */
} tsr_stop_string;

typedef struct {
  tsr_token_stream *tokens; /* NULL: it has ended */
  tsr_text text;
  tsr_text held;       /* bytes of the tokens whose text a later token may change */
  bool has_tokens;     /* with a text, of the prompt or behind it */
  size_t final_length; /* bytes of `text` that are final */
  bool is_stopped;     /* a stop string was found: the text ends before it */
} tsr_text_stream;

/* Special tokens are no part of a text. */
bool tsr_token_is_shown(const tsr_tokenizer *tokenizer, int32_t token);

/* Characters of UTF-8; of a broken one its first byte counts. */
int64_t tsr_text_characters(const char *bytes, size_t length);

/* The empty text behind a prompt, whose own text is appended: without the begin of a character that
 * tokens behind it may complete. `ret_offsets` (count; NULL: not wanted): the characters of the
 * prompt's text before each of its tokens. */
tsr_text_stream tsr_text_stream_new(
    tsr_arena *arena, const tsr_tokenizer *tokenizer, const int32_t *prompt, int64_t count,
    tsr_text *prompt_text, int64_t *ret_offsets);
void tsr_text_stream_add(
    tsr_text_stream *stream, const tsr_tokenizer *tokenizer, int32_t token,
    const tsr_stop_string *stops, int stops_count);
/* No token follows: all of the text is final. */
void tsr_text_stream_end(tsr_text_stream *stream, const tsr_stop_string *stops, int stops_count);
void tsr_text_stream_free(tsr_text_stream *stream);

#endif
