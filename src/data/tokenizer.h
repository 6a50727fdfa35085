/* From text to token numbers and back.
 *
 * char: one token per Unicode character; the vocabulary is the sorted set of the characters found
 * in the training text, as tt-train and nanoGPT have it. byte: 256 tokens, one per byte; takes any
 * file. ids: the text already holds token numbers, in decimal, divided by white space. */
#ifndef TSR_DATA_TOKENIZER_H
#define TSR_DATA_TOKENIZER_H
#include "base/text.h"
#include "data/text_files.h"

typedef enum { TSR_TOKENIZER_CHAR, TSR_TOKENIZER_BYTE, TSR_TOKENIZER_IDS } tsr_tokenizer_kind;

typedef struct {
  tsr_tokenizer_kind kind;
  int32_t vocab_size;
  const uint32_t *chars; /* char: the code point of each token, rising; in the maker's arena */
  int32_t ascii[128];    /* char: the token of each ASCII character, or -1 */
} tsr_tokenizer;

/* The vocabulary of all the files together. Invalid UTF-8 is an error at its line and column. The
 * characters of a vocabulary, decoded in order, make the same tokenizer again: that text is what a
 * checkpoint keeps. */
bool tsr_tokenizer_char(
    tsr_arena *arena, const tsr_text_file *files, int count, tsr_tokenizer *ret_tokenizer,
    tsr_diags *diags);
tsr_tokenizer tsr_tokenizer_byte(void);
tsr_tokenizer tsr_tokenizer_ids(int32_t vocab_size);

/* Writes the tokens of the text, at most one per byte: `ret_tokens` has room for `file->length`.
 * Errors, at line and column of the text: invalid UTF-8, a character or number outside the
 * vocabulary, something that is not a number. */
bool tsr_tokenizer_encode(
    const tsr_tokenizer *tokenizer, const tsr_text_file *file, int32_t *ret_tokens,
    int64_t *ret_count, tsr_diags *diags);

/* Appends the text of tokens, each in [0, vocab_size). Numbers are divided by blanks. */
void tsr_tokenizer_decode(
    const tsr_tokenizer *tokenizer, const int32_t *tokens, int64_t count, tsr_text *text);

#endif
