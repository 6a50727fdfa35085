// SPDX-License-Identifier: Apache-2.0
#include "data/window.h"

/* The documents of a window, token by token. */
typedef struct {
  const tsr_token_file *file;
  int64_t end_of_text; /* -1: no token ends a document */
  int64_t next;        /* the next document by the index or the text's files */
} document_scan;

static document_scan scan_documents(const tsr_window *w) {
  if (!w->separate) return (document_scan){w->file, -1, w->file->count};
  int64_t next = tsr_token_file_next_document(w->file, w->begin);
  return (document_scan){w->file, w->end_of_text, next};
}

/* Whether a document begins at `at`. Called for each token behind the window's first, in order. */
static bool begins_document(document_scan *d, int64_t at) {
  bool begins = d->end_of_text >= 0 && tsr_token_at(d->file, at - 1) == d->end_of_text;
  if (at < d->next) return begins;
  d->next = tsr_token_file_next_document(d->file, at);
  return true;
}

void tsr_window_fill_tokens(const tsr_window *w, int64_t T, int32_t *ret_tokens) {
  for (int64_t t = 0; t < T; t++) ret_tokens[t] = (int32_t)tsr_token_at(w->file, w->begin + t);
}

int64_t
tsr_window_fill_targets(const tsr_window *w, int64_t T, int64_t ignored, int32_t *ret_targets) {
  document_scan documents = scan_documents(w);
  int64_t count = 0;
  for (int64_t at = w->begin + 1; at <= w->begin + T; at++) {
    bool ends = begins_document(&documents, at);
    int32_t target = ends ? TSR_TARGET_IGNORED : (int32_t)tsr_token_at(w->file, at);
    if (ret_targets) ret_targets[at - w->begin - 1] = target;
    count += target != TSR_TARGET_IGNORED && target != ignored;
  }
  return count;
}

void tsr_window_fill_positions(const tsr_window *w, int64_t T, int32_t *ret_positions) {
  document_scan documents = scan_documents(w);
  ret_positions[0] = 0;
  for (int64_t t = 1; t < T; t++)
    ret_positions[t] = begins_document(&documents, w->begin + t) ? 0 : ret_positions[t - 1] + 1;
}
