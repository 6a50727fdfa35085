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

/* Zero is the empty text. */
typedef struct {
  tsr_text text;
  size_t settled;  /* bytes of it that are final */
  bool is_stopped; /* a stop string was found: the text ends before it */
} tsr_text_stream;

/* Special tokens are no part of the text. Numbers (TSR_TOKENIZER_IDS) have a blank before them. */
void tsr_text_add_token(const tsr_tokenizer *tokenizer, int32_t token, tsr_text *text);

void tsr_text_stream_add(
    tsr_text_stream *stream, const tsr_tokenizer *tokenizer, int32_t token,
    const tsr_stop_string *stops, int stops_count);
/* No token follows: all of the text is final. */
void tsr_text_stream_end(tsr_text_stream *stream);

#endif
