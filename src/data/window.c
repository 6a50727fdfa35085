// SPDX-License-Identifier: Apache-2.0
#include "data/window.h"
#include <string.h>

/* ---- packs ---- */

static void pack_fill_tokens(const tsr_packs *p, int64_t pack, int32_t *ret_tokens) {
  int64_t at = 0;
  for (int64_t i = p->begins[pack]; i < p->begins[pack + 1]; i++) {
    int64_t length = tsr_pack_length(p, p->members[i]);
    const int32_t *tokens = p->from->tokens + p->from->begins[p->members[i]];
    memcpy(ret_tokens + at, tokens, sizeof *tokens * (size_t)length);
    at += length;
  }
  while (at < p->sequence) ret_tokens[at++] = p->rule.padding;
}

/* The target at token t - 1 of a document of which the pack has `length`. */
static int32_t
target_of(const tsr_masked_documents *d, int64_t document, int64_t t, int64_t length) {
  int64_t next = d->begins[document] + t;
  if (d->labels) return t == length ? d->labels[document] : TSR_TARGET_IGNORED;
  return t < length && tsr_document_trains(d, next) ? d->tokens[next] : TSR_TARGET_IGNORED;
}

static int64_t
pack_fill_targets(const tsr_packs *p, int64_t pack, int64_t ignored, int32_t *ret_targets) {
  int64_t at = 0, count = 0;
  for (int64_t i = p->begins[pack]; i < p->begins[pack + 1]; i++) {
    int64_t length = tsr_pack_length(p, p->members[i]);
    for (int64_t t = 1; t <= length; t++, at++) {
      int32_t target = target_of(p->from, p->members[i], t, length);
      if (ret_targets) ret_targets[at] = target;
      count += target != TSR_TARGET_IGNORED && target != ignored;
    }
  }
  while (ret_targets && at < p->sequence) ret_targets[at++] = TSR_TARGET_IGNORED;
  return count;
}

static void pack_fill_positions(const tsr_packs *p, int64_t pack, int32_t *ret_positions) {
  int64_t at = 0;
  for (int64_t i = p->begins[pack]; i < p->begins[pack + 1]; i++) {
    int64_t length = tsr_pack_length(p, p->members[i]);
    for (int64_t t = 0; t < length; t++) ret_positions[at++] = (int32_t)t;
  }
  while (at < p->sequence) ret_positions[at++] = 0;
}

/* ---- files ---- */

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
  if (w->packs) {
    pack_fill_tokens(w->packs, w->pack, ret_tokens);
    return;
  }
  for (int64_t t = 0; t < T; t++) ret_tokens[t] = (int32_t)tsr_token_at(w->file, w->begin + t);
}

int64_t
tsr_window_fill_targets(const tsr_window *w, int64_t T, int64_t ignored, int32_t *ret_targets) {
  if (w->packs) return pack_fill_targets(w->packs, w->pack, ignored, ret_targets);
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
  if (w->packs) {
    pack_fill_positions(w->packs, w->pack, ret_positions);
    return;
  }
  document_scan documents = scan_documents(w);
  ret_positions[0] = 0;
  for (int64_t t = 1; t < T; t++)
    ret_positions[t] = begins_document(&documents, w->begin + t) ? 0 : ret_positions[t - 1] + 1;
}

int64_t tsr_window_tokens(const tsr_window *w, int64_t T) {
  return w->packs ? tsr_pack_tokens(w->packs, w->pack) : T;
}
