// SPDX-License-Identifier: Apache-2.0
/* A run's data from its configuration: token files and texts, several sources, documents, and a
 * token that is outside the vocabulary where nobody looked. */
#include "train/run_data.h"
#include "graph/documents.h"
#include "tests/check.h"
#include "tests/data/token_bytes.h"

enum { T = 4 };

static tsr_arena *arena;
static tsr_diags *diags;
static byte_file file;

static bool open_source(const char *training, tsr_run_data *ret) {
  char text[1024];
  tsr_config *config;
  snprintf(
      text, sizeof text,
      "training_config:\n  %s\ntransformer_config: {model_type: llama, vocab_size: 1000}\n",
      training);
  bool ok = tsr_config_parse(arena, "run.yaml", text, strlen(text), NULL, 0, false, &config, diags);
  tsr_run_data_needs needs = {.text = true, .sequence = T, .vocab = 1000};
  ok = ok && tsr_run_data_open(arena, config, &needs, ret, diags);
  if (ok) ret->sequence = T;
  return ok && tsr_run_data_check(ret, &needs, diags);
}

/* Sample `sample` of a step of the positions from `first`. */
static void fill(const tsr_run_data *s, int64_t first, int64_t sample, int32_t *x, int32_t *y) {
  tsr_run_data_step step = {s, TSR_SPLIT_TRAIN, first, 4};
  tsr_run_data_fill(&step, "tokens", sample, x);
  tsr_run_data_fill(&step, "targets", sample, y);
}

static void test_token_file(void) {
  tsr_run_data s;
  int32_t x[T], y[T], again[T];
  bool seen[25] = {0};
  CHECK(open_source("data_path: one.bin", &s));
  CHECK_STR(scratch_diags(diags), "");
  CHECK_INT(s.dataset.tokenizer.kind, TSR_TOKENIZER_IDS);
  /* 101 tokens, of which 10 are for evaluation: 22 windows of 4 */
  CHECK_INT(tsr_dataset_samples(&s.dataset, TSR_SPLIT_TRAIN, T), 22);
  for (int p = 0; p < 22; p++) {
    fill(&s, p, 0, x, y);
    CHECK(x[0] % T == 0 && !seen[x[0] / T]);
    seen[x[0] / T] = true;
    for (int t = 0; t < T; t++) CHECK(x[t] == x[0] + t && y[t] == x[t] + 1);
    fill(&s, p - p % 4, p % 4, again, y); /* the position counts, not the step */
    CHECK(!memcmp(x, again, sizeof x));
  }
  tsr_run_data_step step = {&s, TSR_SPLIT_TRAIN, 0, 4};
  CHECK_INT(tsr_run_data_targets(&step, 4), 16);
  fill(&s, 0, 5, x, y); /* padding */
  for (int t = 0; t < T; t++) CHECK_INT(y[t], TSR_TARGET_IGNORED);
  CHECK(tsr_run_data_check_used(&s, diags));
  tsr_dataset_close(&s.dataset);
}

static void test_documents(void) {
  tsr_run_data s;
  int32_t x[T], y[T];
  int64_t count = 0, want = 0;
  CHECK(open_source(
      "data_path: one.bin\n  documents: separate\n  end_of_text: 41\n  ignore_index: 3\n  "
      "validation_path: two.bin",
      &s));
  CHECK_INT(tsr_dataset_samples(&s.dataset, TSR_SPLIT_TRAIN, T), 25);
  CHECK_INT(tsr_dataset_samples(&s.dataset, TSR_SPLIT_VALIDATION, T), 5);
  for (int p = 0; p < 25; p++) {
    tsr_run_data_step step = {&s, TSR_SPLIT_TRAIN, p, 1};
    count += tsr_run_data_targets(&step, 1);
    fill(&s, p, 0, x, y);
    for (int t = 0; t < T; t++) {
      bool ignored = x[t] == 41 || x[t] == 2;
      CHECK_INT(y[t], ignored ? TSR_TARGET_IGNORED : x[t] + 1);
      want += !ignored;
    }
  }
  CHECK(count == want && want == 98);
  for (int p = 0; p < 25; p++) {
    tsr_run_data_step step = {&s, TSR_SPLIT_TRAIN, p, 1};
    int32_t positions[T];
    tsr_run_data_fill(&step, "tokens", 0, x);
    tsr_run_data_fill(&step, TSR_DOCUMENT_POSITIONS, 0, positions);
    for (int t = 0; t < T; t++) CHECK_INT(positions[t], x[0] == 40 && t > 1 ? t - 2 : t);
  }
  tsr_dataset_close(&s.dataset);
}

static void test_sources(void) {
  tsr_run_data s;
  int32_t x[T], y[T];
  int from[2] = {0};
  CHECK(open_source(
      "data_sources: [{path: one.bin, weight: 3}, {path: two.bin, weight: 1}]\n  eval_every: 0",
      &s));
  CHECK_STR(scratch_diags(diags), "");
  for (int p = 0; p < 400; p++) {
    fill(&s, p, 0, x, y);
    from[x[0] >= 500]++;
  }
  CHECK(from[0] == 300 && from[1] == 100);
  tsr_dataset_close(&s.dataset);
  CHECK(!open_source("data_sources: [one.bin, {path: none.bin}]", &s));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:2:27: error: cannot read 'none.bin': No such file or directory\n"
      "    2 |   data_sources: [one.bin, {path: none.bin}]\n      |                           ^\n");
  CHECK(!open_source("data_path: one.bin\n  data_format: text", &s));
  CHECK(scratch_diags_start(diags, "one.bin:1:1: error: invalid UTF-8: byte 0x88\n"));
}

/* Megatron's pair by the name that both files begin with. */
static void test_pair(void) {
  static const int lengths[] = {30, 11};
  tsr_run_data s;
  file.length = 0;
  put_tokens(&file, 100, 41, 2);
  write_file("pair.bin", &file);
  index_file(&file, 8, 2, lengths, 2);
  write_file("pair.idx", &file);
  CHECK(open_source("data_path: pair\n  eval_every: 0", &s));
  CHECK_STR(scratch_diags(diags), "");
  CHECK(tsr_run_data_exist(arena, s.config));
  CHECK_INT(s.dataset.sources[0].files[0].format, TSR_TOKEN_FILE_MEGATRON);
  tsr_dataset_close(&s.dataset);
}

static void test_outside(void) {
  tsr_run_data s;
  int32_t x[T], y[T];
  CHECK(!open_source("data_path: big.bin", &s));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:2:14: error: 'big.bin', byte 1124: token 50 is 1000, but the vocabulary has 1000\n"
      "    2 |   data_path: big.bin\n      |              ^~~~~~~\n");
  CHECK(open_source("data_path: one.bin", &s));
  s.dataset.vocab_size = 80; /* as if the end of a large file had not been looked at */
  for (int p = 0; p < 22; p++) {
    fill(&s, p, 0, x, y);
    for (int t = 0; t < T; t++) CHECK(x[t] < 80 && y[t] < 80);
  }
  CHECK(!tsr_run_data_check_used(&s, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:2:14: error: 'one.bin', byte 1184: token 80 is 80, but the vocabulary has 80\n"
      "    2 |   data_path: one.bin\n      |              ^~~~~~~\n");
  tsr_dataset_close(&s.dataset);
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  llmc_file(&file, 0, 101, 2);
  write_file("one.bin", &file);
  llmc_file(&file, 500, 21, 2);
  write_file("two.bin", &file);
  llmc_file(&file, 950, 100, 2);
  write_file("big.bin", &file);
  test_token_file();
  test_documents();
  test_sources();
  test_pair();
  test_outside();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("train.run_data");
}
