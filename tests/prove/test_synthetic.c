// SPDX-License-Identifier: Apache-2.0
/* Synthetic samples: documents that follow each other in each sample and cross the borders of what
 * ranks of cp have, and masks that differ between samples, ranks and steps. */
#include "prove/synthetic.h"
#include "graph/documents.h"
#include "tests/check.h"

enum { T = 64, SAMPLES = 8, LONGEST = 64 };

static tsr_value input_of(const char *name, int64_t positions) {
  return (tsr_value){
      .name = name,
      .kind = TSR_VALUE_INPUT,
      .dtype = TSR_I32,
      .ndim = 2,
      .shape = {SAMPLES, positions}};
}

static void check_documents(void) {
  tsr_value value = input_of(TSR_DOCUMENT_POSITIONS, T);
  tsr_graph graph = {.values = &value, .values_count = 1};
  tsr_synthetic data = {.graph = &graph, .seed = 7, .tokens = 3, .samples = SAMPLES};
  int32_t rows[2][T];
  int begins = 0;
  for (int sample = 0; sample < SAMPLES; sample++) {
    int32_t *row = rows[sample % 2];
    tsr_synthetic_fill(&data, TSR_DOCUMENT_POSITIONS, sample, row);
    CHECK_INT(row[0], 0);
    for (int t = 1; t < T; t++) {
      CHECK(row[t] == 0 || row[t] == row[t - 1] + 1);
      begins += row[t] == 0;
    }
    CHECK(sample == 0 || memcmp(rows[0], rows[1], sizeof rows[0]));
  }
  int tokens = SAMPLES * T;
  CHECK(begins > tokens / 24 && begins < tokens / 6); /* about one in twelve */
  tsr_synthetic_fill(&data, TSR_DOCUMENT_POSITIONS, 0, rows[1]);
  data.step = 1;
  tsr_synthetic_fill(&data, TSR_DOCUMENT_POSITIONS, 0, rows[0]);
  CHECK(memcmp(rows[0], rows[1], sizeof rows[0])); /* each step has documents of its own */
}

/* However few positions there are, three samples of four have two documents or more, and whatever
 * even number of positions the ranks have, a document crosses a border between two of them. */
static void check_borders(int64_t positions) {
  tsr_value value = input_of(TSR_DOCUMENT_POSITIONS, positions);
  tsr_graph graph = {.values = &value, .values_count = 1};
  int separate = 0;
  for (int step = 0; step < 2; step++)
    for (int sample = 0; sample < SAMPLES; sample++) {
      tsr_synthetic data = {.graph = &graph, .seed = 7, .step = step, .samples = SAMPLES};
      int32_t row[LONGEST];
      int begins = 0, crosses = 0;
      tsr_synthetic_fill(&data, TSR_DOCUMENT_POSITIONS, sample, row);
      for (int64_t t = 1; t < positions; t++) begins += row[t] == 0;
      for (int64_t t = 2; t < positions; t += 2) crosses += row[t] != 0;
      separate += begins > 0;
      CHECK_AT(crosses || positions < 4, "%lld positions, sample %d", (long long)positions, sample);
    }
  CHECK_INT(separate, 2 * SAMPLES * 3 / 4);
}

/* Targets of a sample that count. */
static int64_t targets_of(const tsr_synthetic *s, int64_t sample, int64_t from, int64_t to) {
  int64_t count = 0;
  for (int64_t i = from; i < to; i++) count += tsr_synthetic_number(s, 0, sample, i) >= 0;
  return count;
}

/* The two halves of a step's samples, as two ranks or microbatches have them, have other numbers of
 * targets, which are other ones in the next step; and so have the two halves of some sample's
 * positions. One sample has none, and one has all. */
static void check_masks(int64_t samples, int64_t positions) {
  tsr_value value = input_of("targets", positions);
  tsr_graph graph = {.values = &value, .values_count = 1};
  tsr_synthetic data = {.graph = &graph, .seed = 7, .tokens = 9, .ignores = true};
  int64_t halves[2][2] = {{0}}, uneven = 0, whole = 0, none = 0;
  data.samples = samples;
  for (data.step = 0; data.step < 2; data.step++) {
    for (int64_t sample = 0; sample < samples; sample++) {
      int64_t first = targets_of(&data, sample, 0, positions / 2);
      int64_t last = targets_of(&data, sample, positions / 2, positions);
      uneven += first != last;
      whole += first + last == positions;
      none += first + last == 0;
      halves[data.step][sample >= samples / 2] += first + last;
    }
    int64_t all = halves[data.step][0] + halves[data.step][1];
    CHECK_INT(tsr_synthetic_targets(&data, samples), all);
    CHECK(all > 0);
    if (samples % 2 == 0) CHECK(halves[data.step][0] != halves[data.step][1]);
  }
  if (samples % 2 == 0) CHECK((halves[0][0] > halves[0][1]) != (halves[1][0] > halves[1][1]));
  CHECK(uneven > 0);
  CHECK(samples == 1 || whole >= 2);
  CHECK(samples < 4 || none == 2);
}

int main(void) {
  check_documents();
  for (int64_t positions = 2; positions <= LONGEST; positions++) check_borders(positions);
  for (int64_t samples = 1; samples <= 17; samples++)
    for (int64_t positions = 3; positions <= 9; positions++) check_masks(samples, positions);
  return check_done("synthetic");
}
