// SPDX-License-Identifier: Apache-2.0
#include "train/label_scores.h"
#include <math.h>
#include <stdio.h>

tsr_label_scorer tsr_label_scorer_new(
    tsr_arena *arena, const tsr_compiled *evaluation, const tsr_executable *executable) {
  tsr_label_scorer s = {.executable = executable, .logits = -1, .T = evaluation->model->sequence};
  if (!evaluation->model->num_labels) return s;
  s.logits = tsr_graph_find_output(evaluation->placed, "logits");
  if (s.logits < 0) return s;
  const tsr_value *logits = &evaluation->placed->values[s.logits]; // (B, T, classes)
  s.classes = (int)logits->shape[logits->ndim - 1];
  s.row = tsr_arena_array(arena, float, s.classes);
  return s;
}

static tsr_label_score score(const tsr_label_scorer *s, int32_t label) {
  int largest = 0;
  double sum = 0;
  for (int i = 1; i < s->classes; i++)
    if (s->row[i] > s->row[largest]) largest = i;
  for (int i = 0; i < s->classes; i++) sum += exp((double)s->row[i] - (double)s->row[largest]);
  double log_likelihood = (double)s->row[label] - (double)s->row[largest] - log(sum);
  return (tsr_label_score){label, largest, log_likelihood};
}

int64_t tsr_label_scorer_read(
    const tsr_label_scorer *s, int64_t sample, const int32_t *labels, tsr_label_score *ret_scores) {
  int64_t count = 0;
  for (int64_t t = 0; t < s->T && s->logits >= 0; t++) {
    if (labels[t] < 0) continue;
    tsr_executable_read_row(s->executable, s->logits, sample * s->T + t, s->row);
    ret_scores[count++] = score(s, labels[t]);
  }
  return count;
}

void tsr_accuracy_add(tsr_accuracy *a, const tsr_label_score *scores, int64_t count) {
  a->count += count;
  for (int64_t i = 0; i < count; i++) a->right += scores[i].predicted == scores[i].label;
}

double tsr_accuracy_value(const tsr_accuracy *a) { return (double)a->right / (double)a->count; }

double tsr_accuracy_error(const tsr_accuracy *a) {
  double p = tsr_accuracy_value(a);
  return a->count > 1 ? sqrt(p * (1 - p) / ((double)a->count - 1)) : NAN;
}

void tsr_accuracy_print(const tsr_accuracy *a, int digits) {
  printf("%.*f", digits, tsr_accuracy_value(a));
  if (a->count > 1) printf(" ± %.*f", digits, tsr_accuracy_error(a));
  printf(" (%lld of %lld)", (long long)a->right, (long long)a->count);
}
