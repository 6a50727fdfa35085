// SPDX-License-Identifier: Apache-2.0
/* Text into tokens and back by a tokenizer.json of Hugging Face's tokenizers, with its ids.
 *
 * A text is cut at the added tokens ("<|endoftext|>"), normalized, cut into words by the
 * pre-tokenizer, and each word becomes tokens by the model: byte pair encoding (Sennrich et al.
 * 2016; on bytes: Radford et al. 2019), Unigram (Kudo 2018), WordPiece or WordLevel. Bytes that are
 * no UTF-8 become U+FFFD, one for each maximal part of a character, as Python's
 * bytes.decode(errors='replace') has it. */
#ifndef TSR_TOKENIZER_SUBWORD_H
#define TSR_TOKENIZER_SUBWORD_H
#include "base/diag.h"
#include "base/text.h"
#include <stdint.h>

typedef struct tsr_subword tsr_subword;

enum { TSR_SUBWORD_TOKENS_MAX = 1 << 24 };

/* Reads a tokenizer.json; `file` is what errors name. All lives in `arena`, and is freed with it.
 * Refused by name: everything that would give other ids or texts than the tokenizers package, such
 * as dropout and steps that it does not have. `truncation` and `padding` are of batches for a
 * model: texts are encoded whole. Patterns mean what they mean to Oniguruma. */
bool tsr_subword_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_subword **ret_subword,
    tsr_diags *diags);
/* The same from a file; one that cannot be read is an error at `place`. */
bool tsr_subword_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_subword **ret_subword,
    tsr_diags *diags);

/* What one thread needs to encode: buffers, matches, and a memory of the words seen. A subword
 * itself never changes, so any number of threads may use it, each with a scratch of its own. */
typedef struct tsr_subword_scratch tsr_subword_scratch;
tsr_subword_scratch *tsr_subword_scratch_new(void);
void tsr_subword_scratch_free(tsr_subword_scratch *scratch); /* NULL is fine */

/* The tokens that this text gives at most, without those of the template. Where the steps may make
 * the text longer this takes them, and the time for it. */
int64_t tsr_subword_room(const tsr_subword *subword, const char *text, size_t length);

/* Writes the tokens of the text; `ret_tokens` has room for tsr_subword_room of them. Added tokens
 * are found in the text, special ones too. Fails where a pattern needs more steps or memory than it
 * may take, and where a word has no token and there is none for the unknown. A scratch may be used
 * with one subword after the other. */
bool tsr_subword_encode(
    const tsr_subword *subword, tsr_subword_scratch *scratch, const char *text, size_t length,
    int32_t *ret_tokens, int64_t *ret_count, tsr_diags *diags);

/* The same with the place of each token: token i is made of bytes [begins[i], begins[i + 1]) of a
 * text that is valid UTF-8; bytes that a step leaves out belong to the token before them.
 * `ret_begins` has room for one more than there are tokens. */
bool tsr_subword_encode_begins(
    const tsr_subword *subword, tsr_subword_scratch *scratch, const char *text, size_t length,
    int32_t *ret_tokens, int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags);

/* The tokens that the file's template (post_processor) puts before and behind a text, such as
 * "<|begin_of_text|>": what `add_special_tokens` adds. */
int tsr_subword_before(const tsr_subword *subword, const int32_t **ret_tokens);
int tsr_subword_behind(const tsr_subword *subword, const int32_t **ret_tokens);

/* The largest id + 1; there may be holes. */
int32_t tsr_subword_vocab_size(const tsr_subword *subword);
/* Whether the model is BPE over the letters of all bytes, as GPT-2's. */
bool tsr_subword_is_byte_level(const tsr_subword *subword);

/* The id of an added token by its text, else of the vocabulary's token with these bytes, or -1. */
int32_t tsr_subword_find(const tsr_subword *subword, const char *text);
/* Whether it is an added token with "special": true. */
bool tsr_subword_is_special(const tsr_subword *subword, int32_t token);

/* The text of a token in the vocabulary: of byte-level BPE the bytes that it stands for, perhaps a
 * part of a character. Of an unused id, "". Any id in [0, vocab_size). */
const char *tsr_subword_token(const tsr_subword *subword, int32_t token, size_t *ret_length);

/* Appends what a token stands for among others. Of byte-level BPE and of the tokens of byte
 * fallback ("<0xE2>") that is their bytes, perhaps a part of a character. */
void tsr_subword_token_text(const tsr_subword *subword, int32_t token, tsr_text *out);

/* Whether the tokens of a text are those of its pieces, if it is cut where a line ends behind a
 * letter, as far as normalizer and pre-tokenizer tell. */
bool tsr_subword_has_cuts(const tsr_subword *subword);

/* From tokens to text by the file's decoder, token by token; special tokens too. All that is
 * appended to `out` together is the text of the tokens. What a later token may change (a part of a
 * character) comes with that, or at the end. `is_inside`: other tokens stand before these, so that
 * none is the first, which may lose a blank. One thread's own; NULL to free is fine. */
typedef struct tsr_subword_stream tsr_subword_stream;
tsr_subword_stream *tsr_subword_stream_new(const tsr_subword *subword, bool is_inside);
void tsr_subword_stream_add(tsr_subword_stream *stream, int32_t token, tsr_text *out);
void tsr_subword_stream_end(tsr_subword_stream *stream, tsr_text *out); /* no token may follow */
void tsr_subword_stream_free(tsr_subword_stream *stream);

#endif
