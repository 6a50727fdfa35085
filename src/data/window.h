// SPDX-License-Identifier: Apache-2.0
/* What a sample of tokens consists of: tokens, targets, and positions in documents. */
#ifndef TSR_DATA_WINDOW_H
#define TSR_DATA_WINDOW_H
#include "data/packing.h"
#include "data/token_files.h"

enum { TSR_TARGET_IGNORED = -100 }; /* a target that has no loss */

/* Consecutive tokens of a file, or a pack of documents. */
typedef struct {
  const tsr_token_file *file;
  int64_t begin;          /* the first token */
  bool separate;          /* documents are; else the window counts as one */
  int64_t end_of_text;    /* of separate ones: the token that ends a document; -1: none does */
  const tsr_packs *packs; /* NULL: a file's */
  int64_t pack;
} tsr_window;

/* Of the window's first T tokens (of a pack: all), in arrays of T. Targets are the tokens behind
 * them; of separate documents the last token has none, be it the end of text or the one before a
 * document's begin. Of a pack, targets are trained tokens alone, or the label of each document at
 * its last token, and what is behind its documents is padding: no targets, and position 0. */
void tsr_window_fill_tokens(const tsr_window *window, int64_t T, int32_t *ret_tokens);
/* Returns how many targets are neither ignored nor `ignored`; `ret_targets` may be NULL. */
int64_t
tsr_window_fill_targets(const tsr_window *window, int64_t T, int64_t ignored, int32_t *ret_targets);
/* The position of each token in its document (graph/documents.h). */
void tsr_window_fill_positions(const tsr_window *window, int64_t T, int32_t *ret_positions);

/* The tokens of documents: T, or of a pack those before the padding. */
int64_t tsr_window_tokens(const tsr_window *window, int64_t T);

#endif
