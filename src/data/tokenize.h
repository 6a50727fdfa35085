// SPDX-License-Identifier: Apache-2.0
/* The command `tokenize`: texts and JSONL into token files, by as many threads as there are. */
#ifndef TSR_DATA_TOKENIZE_H
#define TSR_DATA_TOKENIZE_H
#include "data/token_writer.h"
#include "data/tokenizer.h"
#include <signal.h>

typedef struct {
  const char *const *inputs; /* paths or patterns; .jsonl and .ndjson are JSONL, others text */
  int inputs_count;
  tsr_tokenizer tokenizer; /* char without `chars`: of all the texts, and kept in OUT.chars.txt */
  const char *out;
  tsr_tokens_as as;
  const char *jsonl_key; /* NULL: "text" */
  int64_t end_of_text;   /* behind each document; -1: the tokenizer's, if it has one; -2: nothing */
  int threads;           /* 0: one for each core */
  bool overwrites;       /* existing files that cannot be recognised as that kind */
  bool skips_lines;      /* of JSONL that are none, or without a text; else the first is an error */
  bool quiet;            /* no report */
  const volatile sig_atomic_t *stop; /* ends the work when it is not 0; NULL: nothing does */
  size_t block_bytes;                /* 0: a MiB; other numbers are for tests */
} tsr_tokenize_options;

/* A text is a document, and so is each line of JSONL; documents follow each other in the order of
 * the inputs. The bytes written depend on neither the number of threads nor the time that each
 * takes. Memory: some MiB for each thread, besides what the longest line, or a text that cannot be
 * cut (data/tokenize_block.h), takes. Tokens have 2 bytes where the vocabulary and end_of_text fit,
 * else 4. The speed, in MB (10^6 bytes) of input, is printed to stdout.
 * On errors, which are located in the inputs, on a full disk and when it is stopped nothing is
 * left. */
bool tsr_tokenize(tsr_arena *arena, const tsr_tokenize_options *options, tsr_diags *diags);

/* "llmc", "nanogpt", "megatron", then NULL: in the order of tsr_tokens_as. */
extern const char *const tsr_tokens_as_names[];

#endif
