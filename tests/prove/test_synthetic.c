// SPDX-License-Identifier: Apache-2.0
/* Synthetic positions in documents: of documents that follow each other in each sample. */
#include "prove/synthetic.h"
#include "graph/documents.h"
#include "tests/check.h"

enum { T = 64, SAMPLES = 8 };

int main(void) {
  tsr_value value = {
      .name = TSR_DOCUMENT_POSITIONS,
      .kind = TSR_VALUE_INPUT,
      .dtype = TSR_I32,
      .ndim = 2,
      .shape = {SAMPLES, T}};
  tsr_graph graph = {.values = &value, .values_count = 1};
  tsr_synthetic data = {.graph = &graph, .seed = 7, .tokens = 3};
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
  CHECK(begins > tokens / 12 && begins < tokens / 3); /* about one in six */
  data.step = 1;
  tsr_synthetic_fill(&data, TSR_DOCUMENT_POSITIONS, SAMPLES - 1, rows[0]);
  CHECK(memcmp(rows[0], rows[1], sizeof rows[0])); /* each step has documents of its own */
  return check_done("synthetic");
}
