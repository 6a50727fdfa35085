// SPDX-License-Identifier: Apache-2.0
#include "prove/synthetic.h"
#include "graph/documents.h"
#include "kernels/kernels.h"
#include "train/run_data.h"
#include <string.h>

enum { DOCUMENT_EVERY = 12, WHOLE_EVERY = 4, NONE_COUNTS_FROM = 4 };

bool tsr_synthetic_make(
    const tsr_config *c, const tsr_graph *g, tsr_synthetic *ret, tsr_diags *diags) {
  tsr_run_data_needs needs;
  if (!tsr_run_data_needs_of(g, &needs, diags)) return false;
  *ret = (tsr_synthetic){.graph = g, .seed = c->training.seed, .factor = 1};
  ret->tokens = needs.vocab;
  ret->classes = needs.labels ? needs.classes : 0;
  bool separate = needs.text && c->training.documents == TSR_DOCUMENTS_SEPARATE;
  ret->ignores = c->training.ignore_index >= 0 || separate;
  return true;
}

static uint32_t draw(uint64_t key, int64_t sample, int64_t i) {
  uint32_t words[4];
  tsr_philox((uint64_t)i, (uint64_t)sample, key, words);
  return words[0];
}

/* Position `begin` of a sample is the first of a document; it has `positions`. */
static bool begins_document(uint64_t key, int64_t sample, int64_t begin, int64_t positions) {
  if (begin == 0) return true;
  if (sample % WHOLE_EVERY == WHOLE_EVERY - 1) return false;
  int64_t odd = positions / 2;
  if (odd && begin == 1 + 2 * (int64_t)(draw(key, sample, 0) % (uint32_t)odd)) return true;
  return draw(key, sample, begin) % DOCUMENT_EVERY == 0;
}

static int64_t position_in_document(uint64_t key, int64_t sample, int64_t i, int64_t positions) {
  int64_t begin = i;
  while (!begins_document(key, sample, begin, positions)) begin--;
  return i - begin;
}

static int64_t row_elements(const tsr_value *v) { return tsr_value_elements(v) / v->shape[0]; }

/* How many of a sample's targets have no loss. */
static int64_t ignored_targets(const tsr_synthetic *s, int64_t sample, int64_t targets) {
  int64_t at = s->step % 2 ? s->samples - 1 - sample : sample;
  if (s->samples >= NONE_COUNTS_FROM && at == s->samples - 1) return targets;
  return s->samples > 1 ? at * targets / s->samples : targets / 2;
}

/* They begin with a sample, as those of a prompt do, or with its second half, and go on at its
 * begin. */
static bool is_ignored(const tsr_synthetic *s, const tsr_value *v, int64_t sample, int64_t i) {
  int64_t targets = row_elements(v);
  uint64_t key = tsr_random_key(s->seed, "ignored", (uint64_t)s->step);
  int64_t first = draw(key, sample, 0) % 2 * (targets / 2);
  return (i + targets - first) % targets < ignored_targets(s, sample, targets);
}

double tsr_synthetic_number(const tsr_synthetic *s, int input, int64_t sample, int64_t i) {
  const tsr_value *v = &s->graph->values[input];
  uint64_t key = tsr_random_key(s->seed, v->name, (uint64_t)s->step);
  uint32_t words[4];
  if (tsr_value_is_document_positions(v))
    return (double)position_in_document(key, sample, i, row_elements(v));
  tsr_philox((uint64_t)i, (uint64_t)sample, key, words);
  if (v->dtype != TSR_I32) return s->factor * (double)(float)((double)words[0] / 2147483648.0 - 1);
  if (s->ignores && tsr_input_is_target(v->name) && is_ignored(s, v, sample, i))
    return TSR_TARGET_IGNORED;
  bool is_class = s->classes && tsr_input_is_target(v->name);
  int64_t below = is_class ? s->classes : s->tokens;
  return (double)(words[0] % (uint64_t)(below > 0 ? below : 1));
}

static int find_input(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_INPUT && !strcmp(g->values[v].name, name)) return v;
  return -1;
}

void tsr_synthetic_fill(void *context, const char *input, int64_t sample, void *row) {
  const tsr_synthetic *s = context;
  int at = find_input(s->graph, input);
  if (at < 0) return;
  const tsr_value *v = &s->graph->values[at];
  for (int64_t i = 0; i < row_elements(v); i++) {
    double x = tsr_synthetic_number(s, at, sample, i);
    if (v->dtype == TSR_I32) ((int32_t *)row)[i] = (int32_t)x;
    else ((float *)row)[i] = (float)x;
  }
}

int64_t tsr_synthetic_targets(const tsr_synthetic *s, int64_t samples) {
  int64_t count = 0;
  for (int at = 0; at < s->graph->values_count; at++) {
    const tsr_value *v = &s->graph->values[at];
    if (v->kind != TSR_VALUE_INPUT || v->dtype != TSR_I32 || !tsr_input_is_target(v->name))
      continue;
    for (int64_t sample = 0; sample < samples; sample++)
      for (int64_t i = 0; i < row_elements(v); i++)
        count += tsr_synthetic_number(s, at, sample, i) >= 0;
    return count;
  }
  return samples;
}
