// SPDX-License-Identifier: Apache-2.0
/* A part of a text or of a JSONL file that one thread turns into tokens at a time. */
#ifndef TSR_DATA_TOKENIZE_BLOCK_H
#define TSR_DATA_TOKENIZE_BLOCK_H
#include "data/tokenizer.h"

typedef struct {
  tsr_text_file text;
  bool is_jsonl;
} tsr_tokenize_file;

/* Whole lines of a JSONL file, each a document; or a piece of a text, all of which is one. */
typedef struct {
  const tsr_tokenize_file *file;
  size_t begin, end;
} tsr_tokenize_block;

/* The same for all threads. */
typedef struct {
  tsr_arena *arena; /* of what diagnostics name; used with `locate` only */
  tsr_tokenizer tokenizer;
  const char *jsonl_key;
  int64_t end_of_text; /* put behind each document; -1: nothing */
  bool is_wide;        /* 4 bytes a token, else 2 */
  bool has_cuts;       /* see tsr_tokenize_has_cuts */
  bool skips_lines;    /* of JSONL, that cannot be encoded */
} tsr_tokenize_rules;

/* Whether a long text may be encoded in pieces. Words of byte pairs are found by patterns, and all
 * that are in use begin a new one where a line ends behind a letter; whether the tokenizer does is
 * tried out on a few texts. Other tokenizers can be cut anywhere. */
bool tsr_tokenize_has_cuts(const tsr_tokenizer *tokenizer);

/* The end of the block that begins at `begin` and has `bytes` bytes or little more. It depends on
 * the file alone. */
size_t tsr_tokenize_block_end(
    const tsr_tokenize_rules *rules, const tsr_tokenize_file *file, size_t begin, size_t bytes);

/* A thread's buffers, and the tokens of its last block. */
typedef struct {
  const tsr_tokenize_rules *rules;
  tsr_arena *arena;
  tsr_diags *unsaid; /* of what is encoded again for its error */
  tsr_subword_scratch *scratch;
  int32_t *tokens; /* then, in the same place, as they lie in the file */
  int64_t count, capacity;
  int64_t *ends; /* where documents end in them */
  int ends_count, ends_capacity;
  int64_t skipped;      /* lines of the last block */
  size_t first_skipped; /* where the first of them begins */
  char *text;           /* of a line */
  size_t text_capacity;
} tsr_tokenize_process;

void tsr_tokenize_process_open(const tsr_tokenize_rules *rules, tsr_tokenize_process *ret);
void tsr_tokenize_process_close(tsr_tokenize_process *process);

/* Encodes a block. Errors are located in the file if `locate`, which costs reading it from its
 * begin, and one thread may do at a time; else only that there is one counts. */
bool tsr_tokenize_block_encode(
    tsr_tokenize_process *process, const tsr_tokenize_block *block, bool locate, tsr_diags *diags);

#endif
