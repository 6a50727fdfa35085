// SPDX-License-Identifier: Apache-2.0
/* From text to token numbers and back.
 *
 * char: one token per Unicode character; the vocabulary is the sorted set of the characters found
 * in the training text, as tt-train and nanoGPT have it. byte: 256 tokens, one per byte; takes any
 * file. ids: the text already holds token numbers, in decimal, divided by white space. subword:
 * by a tokenizer.json (tokenizer/subword.h). */
#ifndef TSR_DATA_TOKENIZER_H
#define TSR_DATA_TOKENIZER_H
#include "base/text.h"
#include "tokenizer/subword.h"
#include "data/text_files.h"

typedef enum {
  TSR_TOKENIZER_CHAR,
  TSR_TOKENIZER_BYTE,
  TSR_TOKENIZER_IDS,
  TSR_TOKENIZER_SUBWORD,
} tsr_tokenizer_kind;

typedef struct {
  tsr_tokenizer_kind kind;
  int32_t vocab_size;
  const uint32_t *chars;      /* char: the code point of each token, rising; in the maker's arena */
  int32_t ascii[128];         /* char: the token of each ASCII character, or -1 */
  const tsr_subword *subword; /* subword: never changes; in the maker's arena */
} tsr_tokenizer;

/* The vocabulary of all the files together. Invalid UTF-8 is an error at its line and column. The
 * characters of a vocabulary, decoded in order, make the same tokenizer again: that text is what a
 * checkpoint keeps. */
bool tsr_tokenizer_char(
    tsr_arena *arena, const tsr_text_file *files, int count, tsr_tokenizer *ret_tokenizer,
    tsr_diags *diags);
tsr_tokenizer tsr_tokenizer_byte(void);
tsr_tokenizer tsr_tokenizer_ids(int32_t vocab_size);

tsr_tokenizer tsr_tokenizer_subword(const tsr_subword *subword);

/* The tokens that the text gives at most. That is one per byte; a tokenizer.json may give more,
 * where bytes are no UTF-8 or its steps make the text longer. */
int64_t tsr_tokenizer_room(const tsr_tokenizer *tokenizer, const char *text, size_t length);

/* Writes the tokens of the text: `ret_tokens` has room for tsr_tokenizer_room of them. Errors, at
 * line and column of the text: invalid UTF-8, a character or number outside the vocabulary,
 * something that is not a number. subword takes any bytes, finds added tokens ("<|endoftext|>") in
 * the text, and adds none of its template (tsr_subword_before). */
bool tsr_tokenizer_encode(
    const tsr_tokenizer *tokenizer, const tsr_text_file *file, int32_t *ret_tokens,
    int64_t *ret_count, tsr_diags *diags);

/* The same with the place of each token: token i is made of bytes [begins[i], begins[i + 1]) of a
 * text that is valid UTF-8. `ret_begins` has room for one more than there are tokens; `scratch`
 * (NULL: a new one) belongs to one thread. */
bool tsr_tokenizer_encode_begins(
    const tsr_tokenizer *tokenizer, tsr_subword_scratch *scratch, const tsr_text_file *file,
    int32_t *ret_tokens, int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags);

/* Appends the text of tokens, each in [0, vocab_size). Numbers are divided by blanks. A
 * tokenizer.json decodes as the tokenizers package does, with U+FFFD for what is no UTF-8. */
void tsr_tokenizer_decode(
    const tsr_tokenizer *tokenizer, const int32_t *tokens, int64_t count, tsr_text *text);

/* Appends what one token stands for among others: perhaps a part of a character. */
void tsr_tokenizer_token_text(const tsr_tokenizer *tokenizer, int32_t token, tsr_text *text);

/* The same text token by token, in whole characters, as soon as no later token can change it.
 * `is_inside`: other tokens stand before these. */
typedef struct tsr_token_stream tsr_token_stream;
tsr_token_stream *
tsr_token_stream_new(tsr_arena *arena, const tsr_tokenizer *tokenizer, bool is_inside);
void tsr_token_stream_add(tsr_token_stream *stream, int32_t token, tsr_text *text);
/* What waited for a token that does not come; then the stream is freed. NULL is fine. */
void tsr_token_stream_end(tsr_token_stream *stream, tsr_text *text);

/* The token that ends a line, or -1. */
int32_t tsr_tokenizer_newline(const tsr_tokenizer *tokenizer);

/* The special token <|endoftext|>, <|end_of_text|>, </s> or <eos>, or -1. */
int64_t tsr_tokenizer_end_of_text(const tsr_tokenizer *tokenizer);

/* How many of the first bytes are whole characters: all but a last one that may still be completed,
 * so that a stream can be shown as it comes. */
size_t tsr_tokenizer_whole(const char *bytes, size_t length);

#endif
