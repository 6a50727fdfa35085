// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"
#include "base/json.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

/* The file begins so, with the hash of all that follows in place of the letters. */
static const char front[] = "{\"xxh3\": \"hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh\",\n";
enum { HASH_AT = 10, FRONT = sizeof front - 1 };

static int by_name(const void *a, const void *b) {
  return strcmp(((const tsr_stored *)a)->name, ((const tsr_stored *)b)->name);
}

static void add_string(tsr_text *text, const char *string) {
  tsr_json_add_text(text, string, strlen(string));
}

static void add_key(tsr_text *text, const char *key, const char *string) {
  tsr_text_add(text, " \"%s\": ", key);
  if (string) add_string(text, string);
  else tsr_text_add(text, "null");
  tsr_text_add(text, ",\n");
}

static void add_list(tsr_text *text, int count, const int64_t *items) {
  tsr_text_add(text, "[");
  for (int i = 0; i < count; i++) tsr_text_add(text, "%s%" PRId64, i ? ", " : "", items[i]);
  tsr_text_add(text, "]");
}

/* All digits: a resumed run compares with them. */
static void add_evaluated(tsr_text *text, tsr_evaluated_step e) {
  tsr_text_add(text, "{\"step\": %" PRId64 ", \"loss\": %.17g}", e.step, e.loss);
}

static void add_validation(tsr_text *text, const tsr_validation_state *v) {
  if (!v->best_count && !v->improved.step && !v->stale) return;
  tsr_text_add(text, " \"validation\": {\"best\": [");
  for (int i = 0; i < v->best_count; i++) {
    tsr_text_add(text, "%s", i ? ", " : "");
    add_evaluated(text, v->best[i]);
  }
  tsr_text_add(text, "], \"improved\": ");
  if (v->improved.step) add_evaluated(text, v->improved);
  else tsr_text_add(text, "null");
  tsr_text_add(text, ", \"stale\": %" PRId64 "},\n", v->stale);
}

static void add_state(tsr_text *text, const tsr_run_state *s) {
  tsr_text_add(
      text, " \"step\": %" PRId64 ",\n \"updates\": %" PRId64 ",\n \"samples\": %" PRId64 ",\n",
      s->step, s->updates, s->samples);
  tsr_text_add(text, " \"seed\": \"%" PRIu64 "\",\n", s->seed);
  if (isfinite(s->loss)) tsr_text_add(text, " \"loss\": %.9g,\n", s->loss);
  else tsr_text_add(text, " \"loss\": null,\n");
  if (s->has_scale)
    tsr_text_add(
        text, " \"loss_scale\": {\"scale\": %.9g, \"good_steps\": %" PRId64 "},\n",
        (double)s->scale, s->scale_good_steps);
  add_validation(text, &s->validation);
}

static void add_recipe(tsr_text *text, const tsr_manifest *m) {
  tsr_text_add(text, " \"recipe\": {");
  for (int i = 0; i < m->recipe_count; i++) {
    tsr_text_add(text, "%s\n  ", i ? "," : "");
    add_string(text, m->recipe[i].key);
    tsr_text_add(text, ": ");
    add_string(text, m->recipe[i].value);
  }
  char hash[TSR_HASH_TEXT];
  tsr_recipe_hash(m->recipe, m->recipe_count, hash);
  tsr_text_add(text, "},\n \"recipe_hash\": \"%s\",\n", hash);
}

static void add_files(tsr_text *text, const tsr_manifest *m) {
  tsr_text_add(text, " \"files\": [");
  for (int i = 0; i < m->files_count; i++) {
    const tsr_stored_file *f = &m->files[i];
    tsr_text_add(text, "%s\n  {\"name\": ", i ? "," : "");
    add_string(text, f->name);
    tsr_text_add(
        text, ", \"bytes\": %" PRId64 ", \"header\": %" PRId64 ", \"xxh3\": \"%s\"}", f->bytes,
        f->header, f->hash);
  }
  tsr_text_add(text, "],\n");
}

static void add_tensor(tsr_text *text, const tsr_stored *t) {
  add_string(text, t->name);
  tsr_text_add(text, ": {\"dtype\": \"%s\", \"shape\": ", tsr_dtype_name(t->dtype));
  add_list(text, t->ndim, t->shape);
  tsr_text_add(text, ", \"pieces\": [");
  for (int i = 0; i < t->pieces_count; i++) {
    const tsr_stored_piece *p = &t->pieces[i];
    tsr_text_add(
        text, "%s\n   {\"file\": %d, \"offset\": %" PRId64 ", \"bytes\": %" PRId64 ", \"begin\": ",
        i ? "," : "", p->file, p->offset, p->bytes);
    add_list(text, t->ndim, p->begin);
    tsr_text_add(text, ", \"shape\": ");
    add_list(text, t->ndim, p->shape);
    tsr_text_add(text, ", \"xxh3\": \"%s\"}", p->hash);
  }
  tsr_text_add(text, "]}");
}

void tsr_manifest_print(const tsr_manifest *m, tsr_text *text) {
  size_t start = text->length;
  tsr_text_add_bytes(text, front, FRONT);
  tsr_text_add(
      text, " \"format\": \"tessera-checkpoint\",\n \"version\": %d,\n", TSR_MANIFEST_VERSION);
  add_state(text, &m->state);
  tsr_text_add(text, " \"has_state\": %s,\n", m->has_state ? "true" : "false");
  add_key(text, "mesh", m->mesh);
  add_key(text, "isa", m->isa);
  if (m->tag) add_key(text, "tag", m->tag);
  add_key(text, "program", m->version);
  tsr_text_add(text, " \"time\": %" PRId64 ",\n", m->time);
  add_key(text, "config", m->config);
  add_key(text, "tokenizer", m->tokenizer);
  add_recipe(text, m);
  add_files(text, m);
  tsr_text_add(text, " \"tensors\": {");
  if (m->tensors_count) qsort(m->tensors, (size_t)m->tensors_count, sizeof *m->tensors, by_name);
  for (int i = 0; i < m->tensors_count; i++) {
    tsr_text_add(text, "%s\n  ", i ? "," : "");
    add_tensor(text, &m->tensors[i]);
  }
  tsr_text_add(text, "}}\n");
  char hash[TSR_HASH_TEXT];
  tsr_hash_text(text->data + start + FRONT, text->length - start - FRONT, hash);
  memcpy(text->data + start + HASH_AT, hash, TSR_HASH_TEXT - 1);
}

static void add_piece_line(tsr_text *text, const tsr_stored *t, const tsr_stored_piece *p) {
  tsr_text_add(text, "tensor %s ", t->name);
  add_list(text, t->ndim, p->begin);
  tsr_text_add(text, " ");
  add_list(text, t->ndim, p->shape);
  tsr_text_add(text, " of %s %s\n", tsr_dtype_name(t->dtype), p->hash);
}

void tsr_manifest_print_content(const tsr_manifest *m, tsr_text *text) {
  const tsr_run_state *s = &m->state;
  char hash[TSR_HASH_TEXT];
  tsr_recipe_hash(m->recipe, m->recipe_count, hash);
  tsr_text_add(text, "step %" PRId64 "\nseed %" PRIu64 "\n", s->step, s->seed);
  tsr_text_add(text, "updates %" PRId64 "\nsamples %" PRId64 "\n", s->updates, s->samples);
  if (s->has_scale)
    tsr_text_add(
        text, "loss scale %.9g, good steps %" PRId64 "\n", (double)s->scale, s->scale_good_steps);
  add_validation(text, &s->validation);
  tsr_text_add(text, "%s\nrecipe %s\n", m->has_state ? "state" : "no state", hash);
  for (int i = 0; i < m->files_count; i++) {
    const tsr_stored_file *f = &m->files[i];
    bool tensors = f->header != f->bytes, config = m->config && !strcmp(f->name, m->config);
    if (!tensors && !config) tsr_text_add(text, "file %s %s\n", f->name, f->hash);
  }
  for (int i = 0; i < m->tensors_count; i++)
    for (int k = 0; k < m->tensors[i].pieces_count; k++)
      add_piece_line(text, &m->tensors[i], &m->tensors[i].pieces[k]);
}

/* ---- looking things up ---- */

int64_t tsr_stored_elements(int ndim, const int64_t *shape) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= shape[d];
  return n;
}

const tsr_stored *tsr_manifest_find(const tsr_manifest *m, const char *name) {
  tsr_stored key = {.name = name};
  return bsearch(&key, m->tensors, (size_t)m->tensors_count, sizeof key, by_name);
}

int64_t tsr_manifest_bytes(const tsr_manifest *m) {
  int64_t sum = 0;
  for (int i = 0; i < m->files_count; i++) sum += m->files[i].bytes;
  return sum;
}

const char *tsr_recipe_value(const tsr_manifest *m, const char *key) {
  return tsr_recipe_find(m->recipe, m->recipe_count, key);
}

bool tsr_manifest_has_adapters(const tsr_manifest *m) {
  return tsr_recipe_value(m, "lora_config.r") != NULL;
}

int64_t tsr_stored_bytes(const tsr_stored *t) {
  return tsr_dtype_size(t->dtype, tsr_stored_elements(t->ndim, t->shape));
}

int64_t tsr_manifest_tensor_bytes(const tsr_manifest *m) {
  int64_t bytes = 0;
  for (int i = 0; i < m->tensors_count; i++) bytes += tsr_stored_bytes(&m->tensors[i]);
  return bytes;
}
