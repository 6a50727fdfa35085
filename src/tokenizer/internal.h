// SPDX-License-Identifier: Apache-2.0
/* What the files of byte-level BPE share. */
#ifndef TSR_TOKENIZER_INTERNAL_H
#define TSR_TOKENIZER_INTERNAL_H
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/subword.h"
#include "tokenizer/pattern.h"
#include "tokenizer/normal_form.h"

enum { TSR_SUBWORD_SPLITS_MAX = 16 };

/* An open hash table from a pair of tokens to what it becomes; `made` < 0: free. */
typedef struct {
  int32_t left, right, made;
  uint32_t rank;
} tsr_bpe_merge;

typedef struct {
  const char *text;
  size_t length;
  int32_t token;
  bool is_special, is_normalized, is_single_word, takes_left, takes_right;
} tsr_added_token;

/* Added tokens that are looked for together, sorted by their bytes. */
typedef struct {
  tsr_added_token *items;
  int count;
  int first[257]; /* those that begin with byte b are [first[b], first[b + 1]) */
} tsr_added_token_set;

struct tsr_subword {
  const char *file;
  uint64_t serial; /* 1, 2, … in this process: an address may be used again */
  int32_t vocab_size;
  const char **texts; /* (vocab_size) the bytes of each token; NULL: the id is unused */
  uint32_t *lengths;  /* (vocab_size) */
  uint8_t *special;   /* (vocab_size) */
  int32_t *words;     /* a hash table of the vocabulary by bytes; -1: free */
  uint32_t words_mask;
  tsr_bpe_merge *merges;
  uint32_t merges_mask;
  int32_t byte_tokens[256];   /* -1: only of bytes that UTF-8 never has */
  bool ignores_merges;        /* a word that is in the vocabulary is one token */
  tsr_normalizer *normalizer; /* NULL: none */
  tsr_added_token *added;     /* all of them */
  int added_count;
  tsr_added_token_set raw, normalized;         /* looked for before and after normalization */
  tsr_pattern *splits[TSR_SUBWORD_SPLITS_MAX]; /* each cuts the pieces of the one before */
  int splits_count;
  int space_at; /* before split number `space_at` a piece gets a space in front; -1: never */
  tsr_pattern *word_char; /* what Rust's \w is; NULL: no added token stands alone */
  int32_t *before, *behind;
  int before_count, behind_count;
};

/* ---- bpe.c ---- */

typedef struct tsr_bpe_words tsr_bpe_words; /* words seen, and the memory to merge in */
tsr_bpe_words *tsr_bpe_words_new(tsr_arena *arena);
void tsr_bpe_words_forget(tsr_bpe_words *words);

tsr_bpe_merge *tsr_bpe_merge_slot(tsr_bpe_merge *table, uint32_t mask, int32_t left, int32_t right);
/* The slot of the token with these bytes, or a free one. */
int32_t *tsr_subword_word_slot(const tsr_subword *subword, const char *text, size_t length);

/* Writes the tokens of one word and returns how many; at most one per byte. */
int64_t tsr_bpe_word(
    const tsr_subword *subword, tsr_bpe_words *words, const char *text, size_t length,
    int32_t *ret_tokens);

/* ---- added_tokens.c ---- */

/* Makes subword->raw and subword->normalized of subword->added. Two that the normalizer makes one are an
 * error. */
bool tsr_added_tokens_sort(tsr_arena *arena, tsr_subword *subword, tsr_diags *diags);

/* The next added token in text[at..length), leftmost and longest: its bytes [begin, end), with the
 * space that it takes [outer_begin, outer_end). NULL: none. `taken` is where the last one ended.
 */
typedef struct {
  size_t begin, end, outer_begin, outer_end;
} tsr_bpe_span;
const tsr_added_token *tsr_added_tokens_find(
    const tsr_subword *subword, const tsr_added_token_set *set, tsr_match *match, const char *text,
    size_t length, size_t at, size_t taken, tsr_bpe_span *ret_span);

/* ---- byte_letters.c ---- */

/* The bytes that a vocabulary's letters stand for; false where a letter stands for none. */
bool tsr_byte_letters_unmap(const char *text, tsr_text *bytes);

/* ---- read_pipeline.c ---- */

/* Everything of a tokenizer.json but its model; the vocabulary was read before. */
bool tsr_subword_read_parts(
    tsr_arena *arena, const cJSON *json, tsr_subword *subword, tsr_diags *diags);

/* Whether an object has only keys that are known, and nothing but null, false, 0 or "" at those
 * that are not supported. `where` is the object's own key, or "". Lists end in NULL. */
bool tsr_subword_check_keys(
    const cJSON *object, const char *where, const char *const *known, const char *file,
    tsr_diags *diags);
bool tsr_subword_check_off(
    const cJSON *object, const char *where, const char *const *keys, const char *file,
    tsr_diags *diags);

#endif
