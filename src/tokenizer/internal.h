// SPDX-License-Identifier: Apache-2.0
/* What the files of subword tokenizers share.
 *
 * A text is cut at the added tokens, each piece is changed by the steps of the normalizer, cut by
 * those of the pre-tokenizer, and each word that is left is given to the model. */
#ifndef TSR_TOKENIZER_INTERNAL_H
#define TSR_TOKENIZER_INTERNAL_H
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/pattern.h"
#include "tokenizer/subword.h"

enum { TSR_SUBWORD_STEPS_MAX = 32 };

/* ---- pieces of a text ---- */

/* A part of a text, as it is or changed. */
typedef struct {
  const char *text;
  size_t length;
  size_t base;        /* where it begins in the text that is encoded, if it is not changed */
  const size_t *from; /* of each byte, where the source begins that it is made of; NULL: base + i */
} tsr_piece;

static inline size_t tsr_piece_source(const tsr_piece *piece, size_t at) {
  return piece->from ? piece->from[at] : piece->base + at;
}

static inline tsr_piece tsr_piece_part(const tsr_piece *piece, size_t begin, size_t end) {
  return (tsr_piece){
      piece->text + begin, end - begin, piece->base + begin,
      piece->from ? piece->from + begin : NULL};
}

/* A changed piece that is being written; what it had before is lost when it is begun anew. */
typedef struct {
  tsr_arena *arena;
  char *bytes;
  size_t *from;
  size_t length, capacity;
} tsr_piece_buffer;

/* Room for `length` bytes behind those that are there. */
void tsr_piece_reserve(tsr_piece_buffer *buffer, size_t length);
/* Appends bytes that are all made of the source at `from`. */
void tsr_piece_add(tsr_piece_buffer *buffer, const char *bytes, size_t length, size_t from);
/* Appends bytes [begin, end) of a piece as they are. */
void tsr_piece_copy(tsr_piece_buffer *buffer, const tsr_piece *piece, size_t begin, size_t end);
tsr_piece tsr_piece_of(const tsr_piece_buffer *buffer);

/* ---- steps ---- */

typedef enum {
  /* change a piece */
  TSR_STEP_FORM,         /* a normalization form */
  TSR_STEP_LOWER,        /* each character by itself */
  TSR_STEP_LEAVE_OUT,    /* the characters that have `classes` */
  TSR_STEP_STRIP,        /* white space at the ends */
  TSR_STEP_REPLACE,      /* each match of the pattern by `content` */
  TSR_STEP_PREPEND,      /* `content` before a piece that begins otherwise, or any */
  TSR_STEP_CHARSMAP,     /* sentencepiece's Precompiled */
  TSR_STEP_NMT,          /* sentencepiece's nmt_nfkc without nfkc */
  TSR_STEP_CLEAN,        /* BERT's: no control characters, one kind of space */
  TSR_STEP_IDEOGRAPHS,   /* BERT's: a space on each side of them */
  TSR_STEP_BYTE_LETTERS, /* bytes as the letters of byte-level vocabularies */
  /* cut a piece */
  TSR_STEP_SPLIT,   /* at the matches of the pattern */
  TSR_STEP_SCRIPTS, /* where the script changes */
  TSR_STEP_LENGTH,  /* into `count` characters each */
} tsr_step_kind;

/* What becomes of matches, by the package's names. */
typedef enum {
  TSR_SPLIT_REMOVED,
  TSR_SPLIT_ISOLATED,
  TSR_SPLIT_MERGED_WITH_PREVIOUS,
  TSR_SPLIT_MERGED_WITH_NEXT,
  TSR_SPLIT_CONTIGUOUS,
} tsr_split_behavior;

typedef struct tsr_charsmap tsr_charsmap;

typedef struct {
  tsr_step_kind kind;
  tsr_pattern *pattern; /* NULL: single characters, those with `classes` or the one `character` */
  unsigned classes;
  uint32_t character;
  tsr_split_behavior behavior;
  bool inverts; /* what is no match counts as one */
  const char *content;
  size_t content_length;
  bool unless_there, at_begin; /* prepend: not before itself; only where the text begins */
  bool strips_left, strips_right;
  int64_t count;
  const tsr_normalizer *form;
  const tsr_charsmap *charsmap;
} tsr_step;

typedef struct {
  tsr_step steps[TSR_SUBWORD_STEPS_MAX];
  int count;
} tsr_steps;

/* Memory of changes; a thread's own. */
typedef struct {
  tsr_match *match;
  tsr_normalize_scratch normalize;
} tsr_step_scratch;

/* ---- step_change.c ---- */

/* Writes the changed piece to `ret`, which is begun anew. False: a pattern failed. */
bool tsr_step_change(
    const tsr_step *step, tsr_step_scratch *scratch, const tsr_piece *piece, tsr_piece_buffer *ret);

/* ---- step_find.c ---- */

/* As tsr_pattern_find, of the step's pattern or characters. */
int tsr_step_find(
    const tsr_step *step, tsr_match *match, const char *text, size_t length, size_t at,
    size_t *ret_begin, size_t *ret_end);

/* The matches and what lies between them, in their order, as the package has them: also an empty
 * match, unless it stands where the last one ended. False ends the walk. */
typedef bool (*tsr_segment_function)(void *context, size_t begin, size_t end, bool is_match);
bool tsr_step_segments(
    const tsr_step *step, tsr_match *match, const char *text, size_t length,
    tsr_segment_function segment, void *context);

/* ---- step_cut.c ---- */

/* Calls `part` for each part that is not empty. False: a pattern failed, or a call did. */
typedef bool (*tsr_part_function)(void *context, const tsr_piece *part);
bool tsr_step_cut(
    const tsr_step *step, tsr_match *match, const tsr_piece *piece, tsr_part_function part,
    void *context);

/* ---- charsmap.c ---- */

/* From the base64 text of a Precompiled normalizer. */
bool tsr_charsmap_parse(
    tsr_arena *arena, const char *base64, const char *file, const tsr_charsmap **ret,
    tsr_diags *diags);
void tsr_charsmap_apply(const tsr_charsmap *map, const tsr_piece *piece, tsr_piece_buffer *ret);

/* ---- models ---- */

typedef enum {
  TSR_MODEL_BPE_BYTES, /* byte-level BPE whose vocabulary has all bytes: words stay bytes */
  TSR_MODEL_BPE,
  TSR_MODEL_UNIGRAM,
  TSR_MODEL_WORDPIECE,
  TSR_MODEL_WORDLEVEL,
} tsr_model_kind;

/* An open hash table from a pair of tokens to what it becomes; `made` < 0: free. */
typedef struct {
  int32_t left, right, made;
  uint32_t rank;
} tsr_bpe_merge;

/* Tokens by their bytes. Children of node n are nodes [children[n], children[n + 1]). */
typedef struct {
  uint8_t *labels;    /* the byte that leads to a node */
  int32_t *tokens;    /* the token that ends at a node; -1: none */
  uint32_t *children; /* (nodes + 1) */
} tsr_trie;

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

typedef struct {
  int32_t *tokens;
  int count, capacity;
} tsr_token_row;

/* A step of the decoder: a list of texts, one for each token, into another. */
typedef enum {
  TSR_DECODE_JOIN,          /* no decoder: a blank between tokens */
  TSR_DECODE_BYTE_LEVEL,    /* letters into bytes, all in one text */
  TSR_DECODE_METASPACE,     /* `content` into a blank, and into nothing in the first token */
  TSR_DECODE_WORDPIECE,     /* a blank before all but the first and what has the prefix `content` */
  TSR_DECODE_BYTE_FALLBACK, /* "<0x0A>" into bytes */
  TSR_DECODE_FUSE,          /* all in one text */
  TSR_DECODE_STRIP,         /* `content` at the ends, at most so many times */
  TSR_DECODE_REPLACE,
  TSR_DECODE_SUFFIX, /* `content` into a blank, and into nothing in the last token */
  TSR_DECODE_CTC,    /* repeated tokens and pads left out */
} tsr_decode_kind;

typedef struct {
  tsr_decode_kind kind;
  const char *content, *delimiter;
  size_t content_length;
  bool flag; /* METASPACE: the first token is as the others; WORDPIECE, CTC: cleans up */
  int64_t left, right;
  tsr_step replace; /* its pattern */
} tsr_decode_step;

enum { TSR_TOKEN_ADDED = 1, TSR_TOKEN_SPECIAL = 2, TSR_TOKEN_NORMALIZED = 4 };

struct tsr_subword {
  const char *file;
  uint64_t serial; /* 1, 2, … in this process: an address may be used again */
  tsr_model_kind model;
  int32_t vocab_size;
  const char **texts; /* (vocab_size) the bytes of each token; NULL: the id is unused */
  uint32_t *lengths;  /* (vocab_size) */
  uint8_t *flags;     /* (vocab_size) */
  int32_t *words;     /* a hash table of the vocabulary by bytes; -1: free */
  uint32_t words_mask;
  uint32_t longest; /* bytes of the longest token of the vocabulary */
  /* the model */
  tsr_bpe_merge *merges;
  uint32_t merges_mask;
  int32_t byte_tokens[256]; /* of byte-level BPE, or of byte fallback: "<0x0A>"; -1: none */
  bool ignores_merges;      /* a word that is in the vocabulary is one token */
  bool falls_back;          /* to the tokens of bytes */
  bool fuses_unknown;
  const char *unknown_text;    /* NULL: none */
  int32_t unknown;             /* -1: none, or not in the vocabulary */
  const char *prefix, *suffix; /* of a part of a word that continues it, of its end; "": none */
  size_t prefix_length, suffix_length;
  int64_t word_chars_max;
  double *scores, unknown_score; /* (vocab_size) log probabilities */
  tsr_trie trie;
  const tsr_known_pattern *known_words; /* what alone cuts words of bytes; NULL: something else */
  /* the pipeline */
  tsr_steps normalizer, pre_tokenizer;
  tsr_added_token *added; /* all of them */
  int added_count;
  tsr_added_token_set raw, normalized; /* looked for before and after normalization */
  tsr_token_row before, behind;
  tsr_decode_step decoder[TSR_SUBWORD_STEPS_MAX];
  int decoder_count;
};

/* ---- vocabulary.c ---- */

/* The slot of the token with these bytes, or a free one. */
int32_t *tsr_vocabulary_slot(const tsr_subword *subword, const char *text, size_t length);
/* The token of the vocabulary with these bytes, or -1. */
int32_t tsr_vocabulary_find(const tsr_subword *subword, const char *text, size_t length);

/* How many tokens a word of so many bytes gives at most. */
size_t tsr_word_room(const tsr_subword *subword, size_t length);

/* ---- words.c ---- */

typedef struct tsr_words tsr_words; /* words seen, and the memory of models; a thread's own */
tsr_words *tsr_words_new(tsr_arena *arena);
void tsr_words_forget(tsr_words *words);

/* Writes the tokens of one word and returns how many, or -1 where the model has no token for it.
 * `ret_begins` (NULL: not needed): where each begins in the word. */
int64_t tsr_word_encode(
    const tsr_subword *subword, tsr_words *words, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins);
/* Of subword->known_words: cuts a text into words and writes their tokens; returns how many. */
int64_t tsr_words_encode_text(
    const tsr_subword *subword, tsr_words *words, const char *text, size_t length,
    int32_t *ret_tokens);
/* Why tsr_word_encode returned -1. */
const char *tsr_word_failure(const tsr_subword *subword);

/* ---- the models: as tsr_word_encode, without memory of words ---- */

typedef struct tsr_bpe_memory tsr_bpe_memory;
tsr_bpe_memory *tsr_bpe_memory_new(tsr_arena *arena);
int64_t tsr_bpe_encode(
    const tsr_subword *subword, tsr_bpe_memory *memory, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins);
tsr_bpe_merge *tsr_bpe_merge_slot(tsr_bpe_merge *table, uint32_t mask, int32_t left, int32_t right);

typedef struct tsr_unigram_memory tsr_unigram_memory;
tsr_unigram_memory *tsr_unigram_memory_new(tsr_arena *arena);
int64_t tsr_unigram_encode(
    const tsr_subword *subword, tsr_unigram_memory *memory, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins);
void tsr_unigram_make_trie(tsr_arena *arena, tsr_subword *subword);

typedef struct tsr_wordpiece_memory tsr_wordpiece_memory;
tsr_wordpiece_memory *tsr_wordpiece_memory_new(tsr_arena *arena);
int64_t tsr_wordpiece_encode(
    const tsr_subword *subword, tsr_wordpiece_memory *memory, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins);

/* ---- added_tokens.c ---- */

/* Makes subword->raw and subword->normalized of subword->added. Two that the normalizer makes one,
 * and one that it makes empty, are errors. */
bool tsr_added_tokens_sort(tsr_arena *arena, tsr_subword *subword, tsr_diags *diags);

/* The next added token in text[at..length), leftmost and longest: its bytes [begin, end), with the
 * space that it takes [outer_begin, outer_end). NULL: none. `taken` is where the last one ended. */
typedef struct {
  size_t begin, end, outer_begin, outer_end;
} tsr_added_span;
const tsr_added_token *tsr_added_tokens_find(
    const tsr_added_token_set *set, const char *text, size_t length, size_t at, size_t taken,
    tsr_added_span *ret_span);

/* ---- byte_letters.c ---- */

/* The bytes that a vocabulary's letters stand for; false where a letter stands for none. */
bool tsr_byte_letters_unmap(const char *text, tsr_text *bytes);
/* The letter of a byte; returns its bytes. */
int tsr_byte_letter(unsigned char byte, char ret_letter[4]);

/* ---- read_json.c ---- */

typedef struct {
  tsr_arena *arena;
  tsr_subword *subword;
  tsr_location location;
  tsr_diags *diags;
} tsr_subword_reader;

/* Whether an object has only keys that are known. `where` is the object's own key, or "". The list
 * ends in NULL. */
bool tsr_json_keys_known(
    const tsr_subword_reader *r, const cJSON *object, const char *where, const char *const *known);
/* The list under `key` of an object of the type Sequence. */
bool tsr_json_sequence(
    const tsr_subword_reader *r, const cJSON *object, const char *key, const cJSON **ret_list);
const char *tsr_json_type(const cJSON *object); /* "" where there is none */
bool tsr_json_is_type(const cJSON *object, const char *type);
bool tsr_json_refuse_type(
    const tsr_subword_reader *r, const cJSON *object, const char *what, const char *valid);
/* A member that is true or false; `absent`: 0, 1, or -1 where it has to be there. */
bool tsr_json_flag(
    const tsr_subword_reader *r, const cJSON *object, const char *key, int absent, bool *ret);
/* A member that is a text, copied. `absent`: what stands for null and for a missing one; NULL: it
 * has to be there. */
bool tsr_json_string(
    const tsr_subword_reader *r, const cJSON *object, const char *key, const char *absent,
    const char **ret);
/* A whole number in [0, 2^53). */
bool tsr_json_count(
    const tsr_subword_reader *r, const cJSON *object, const char *key, int64_t *ret);

/* ---- read_*.c ---- */

/* The pattern of a Split or a Replace: {"Regex": …} or {"String": …}. */
bool tsr_json_pattern(const tsr_subword_reader *r, const cJSON *object, tsr_step *ret_step);

bool tsr_normalizer_read(const tsr_subword_reader *r, const cJSON *item);
bool tsr_pre_tokenizer_read(const tsr_subword_reader *r, const cJSON *item);
bool tsr_decoder_read(const tsr_subword_reader *r, const cJSON *item);
bool tsr_post_processor_read(const tsr_subword_reader *r, const cJSON *item);
bool tsr_added_tokens_read(const tsr_subword_reader *r, const cJSON *list);
/* Chooses TSR_MODEL_BPE_BYTES where it may; finds the unknown token and those of bytes. */
bool tsr_vocabulary_read(const tsr_subword_reader *r, const cJSON *vocab, const cJSON *added);
bool tsr_subword_model_read(const tsr_subword_reader *r, const cJSON *model, const cJSON *added);

#endif
