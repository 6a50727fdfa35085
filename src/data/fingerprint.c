// SPDX-License-Identifier: Apache-2.0
/* A hash of what samples are drawn from: of large files the first MiB, the last, and 64 between. */
#include "data/dataset.h"
#include <string.h>
#include <xxhash.h>

enum { BLOCK = 1 << 20, WHOLE_BLOCKS = 64 };

/* Each piece is hashed by itself, and the sum so far with its hash: a state of 32 bytes. */
typedef struct {
  XXH128_canonical_t parts[2]; /* the sum so far, the piece */
} digest;

static void add(digest *d, const void *bytes, size_t length) {
  XXH128_canonicalFromHash(&d->parts[1], XXH3_128bits(bytes, length));
  XXH128_canonicalFromHash(&d->parts[0], XXH3_128bits(d->parts, sizeof d->parts));
}

static void add_number(digest *d, int64_t number) { add(d, &number, sizeof number); }

static void add_block(digest *d, const char *bytes, size_t length, size_t at) {
  add(d, bytes + at, length - at < BLOCK ? length - at : BLOCK);
}

/* A large file's first and last MiB, and 64 between them at equal distances. */
static void add_content(digest *d, const char *bytes, size_t length) {
  size_t blocks = (length + BLOCK - 1) / BLOCK;
  if (blocks <= WHOLE_BLOCKS) {
    for (size_t at = 0; at < length; at += BLOCK) add_block(d, bytes, length, at);
    return;
  }
  for (size_t i = 0; i <= WHOLE_BLOCKS; i++)
    add_block(d, bytes, length, blocks * i / (WHOLE_BLOCKS + 1) * BLOCK);
  add_block(d, bytes, length, length - BLOCK);
}

static void add_file(digest *d, const tsr_token_file *file) {
  size_t bytes = (size_t)(file->count * tsr_token_bytes(file->type));
  add_number(d, file->type);
  add_number(d, file->count);
  add_content(d, file->tokens, bytes);
}

/* Where documents end matters only where they are separate; of many the ends are enough. */
static void add_documents(digest *d, const tsr_token_file *file) {
  enum { MOST = 4096 };
  int64_t at = -1;
  for (int i = 0; i < MOST && at < file->count; i++) {
    at = tsr_token_file_next_document(file, at);
    add_number(d, at);
  }
  if (!file->index) return;
  add_number(d, file->index->entries);
  add_number(d, file->index->sequences);
}

/* Documents of lines and how they are packed. */
static void add_lines(digest *d, const tsr_masked_documents *c, const tsr_packs *packs) {
  size_t tokens = (size_t)c->begins[c->count];
  const int64_t numbers[] = {c->count,   packs->rule.padding, packs->sequence, packs->first,
                             packs->end, packs->count,        packs->tokens,   packs->targets};
  add(d, numbers, sizeof numbers);
  add_content(d, (const char *)c->begins, sizeof *c->begins * (size_t)(c->count + 1));
  add_content(d, (const char *)c->tokens, sizeof *c->tokens * tokens);
  add_content(d, (const char *)c->trained, (tokens + 7) / 8);
  if (c->labels) add_content(d, (const char *)c->labels, sizeof *c->labels * (size_t)c->count);
  if (!packs->count) return;
  size_t members = (size_t)packs->begins[packs->count];
  add_content(d, (const char *)packs->begins, sizeof *packs->begins * (size_t)packs->count);
  add_content(d, (const char *)packs->members, sizeof *packs->members * members);
}

static void add_files(digest *d, const tsr_dataset *dataset, const tsr_data_source *s) {
  add_number(d, s->files_count);
  for (int k = 0; k < s->files_count; k++) {
    add_file(d, &s->files[k]);
    if (dataset->separate) add_documents(d, &s->files[k]);
  }
}

static void add_tokens(digest *d, const tsr_dataset *dataset) {
  add_number(d, dataset->stride);
  add_number(d, dataset->separate);
  add_number(d, dataset->separate ? dataset->end_of_text : -1);
  for (int i = 0; i < dataset->sources_count; i++) {
    const tsr_data_source *s = &dataset->sources[i];
    add_number(d, dataset->mix.shares[i]);
    add_number(d, s->is_text);
    add_number(d, s->validation_at);
    if (s->documents) add_lines(d, s->documents, &s->packs[TSR_SPLIT_TRAIN]);
    else add_files(d, dataset, s);
  }
}

static void add_table(digest *d, const tsr_dataset *dataset) {
  const tsr_table *t = &dataset->table;
  size_t rows = (size_t)t->rows, features = (size_t)t->features;
  const int64_t numbers[] = {t->rows, t->features, t->classes, t->targets, dataset->validation_at};
  add(d, numbers, sizeof numbers);
  if (t->pixels) add_content(d, (const char *)t->pixels, rows * features);
  else add_content(d, (const char *)t->x, rows * features * sizeof *t->x);
  if (t->labels) add_content(d, (const char *)t->labels, rows * sizeof *t->labels);
  if (t->y) add_content(d, (const char *)t->y, rows * (size_t)t->targets * sizeof *t->y);
}

static void print_digest(const digest *d, char ret_text[33]) {
  for (int i = 0; i < 16; i++) snprintf(ret_text + 2 * i, 3, "%02x", d->parts[0].digest[i]);
}

void tsr_dataset_fingerprint(const tsr_dataset *dataset, char ret_text[33]) {
  digest d = {0};
  add_number(&d, dataset->kind);
  add_number(&d, dataset->sources_count);
  if (dataset->kind == TSR_DATASET_TEXT) add_tokens(&d, dataset);
  else add_table(&d, dataset);
  print_digest(&d, ret_text);
}

void tsr_dataset_validation_fingerprint(const tsr_dataset *dataset, char ret_text[33]) {
  digest d = {0};
  const tsr_data_source *own = dataset->validation;
  if (own && own->documents) add_lines(&d, own->documents, &own->packs[TSR_SPLIT_VALIDATION]);
  else if (own) add_files(&d, dataset, own);
  print_digest(&d, ret_text);
}
