// SPDX-License-Identifier: Apache-2.0
/* What a sample of tokens consists of: tokens, targets, and positions in documents. */
#ifndef TSR_DATA_WINDOW_H
#define TSR_DATA_WINDOW_H
#include "data/token_files.h"

enum { TSR_TARGET_IGNORED = -100 }; /* a target that has no loss */

/* Consecutive tokens of a file. */
typedef struct {
  const tsr_token_file *file;
  int64_t begin;       /* the first token */
  bool separate;       /* documents are; else the window counts as one */
  int64_t end_of_text; /* of separate ones: the token that ends a document; -1: none does */
} tsr_window;

/* Of the window's first T tokens, in arrays of T. Targets are the tokens behind them; of separate
 * documents the last token has none, be it the end of text or the one before a document's begin. */
void tsr_window_fill_tokens(const tsr_window *window, int64_t T, int32_t *ret_tokens);
/* Returns how many targets are neither ignored nor `ignored`; `ret_targets` may be NULL. */
int64_t
tsr_window_fill_targets(const tsr_window *window, int64_t T, int64_t ignored, int32_t *ret_targets);
/* The position of each token in its document (graph/documents.h). */
void tsr_window_fill_positions(const tsr_window *window, int64_t T, int32_t *ret_positions);

#endif
