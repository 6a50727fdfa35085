// SPDX-License-Identifier: Apache-2.0
/* Several sources with weights, windows and documents of token files, and the fingerprint. */
#include "data/sources.h"
#include "tests/check.h"
#include "tests/data/token_bytes.h"

#define AT "run.yaml:3:14: error: "
static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};
static tsr_arena *arena;
static tsr_diags *diags;
static byte_file file;

/* ---- the mix ---- */

static void check_mix(const double *weights, int count) {
  tsr_mixture mix;
  double sum = 0;
  int64_t taken[TSR_MIX_SOURCES_MAX] = {0}, shares = 0;
  tsr_mixture_make(arena, weights, count, &mix);
  for (int i = 0; i < count; i++) {
    sum += weights[i];
    shares += mix.shares[i];
    CHECK(mix.shares[i] >= 1);
  }
  CHECK_INT(shares, TSR_MIX_CYCLE);
  int64_t position = 0;
  bool dense = true, even = true;
  for (int cycle = 1; cycle <= 2; cycle++) {
    for (; position < (int64_t)cycle * TSR_MIX_CYCLE; position++) {
      int64_t before;
      int source = tsr_mixture_at(&mix, position, &before);
      dense = dense && source >= 0 && source < count && before == taken[source];
      taken[source]++;
      double due = (double)(position + 1) * mix.shares[source] / TSR_MIX_CYCLE;
      even = even && fabs((double)taken[source] - due) <= count;
    }
    for (int i = 0; i < count; i++) CHECK_INT(taken[i], (int64_t)cycle * mix.shares[i]);
  }
  CHECK(dense); /* the samples of each source in their order, none left out */
  CHECK(even);
  for (int i = 0; i < count; i++)
    if (weights[i] / sum * TSR_MIX_CYCLE >= 1)
      CHECK(fabs(mix.shares[i] - weights[i] / sum * TSR_MIX_CYCLE) <= 1 + (count > 4) * count);
}

static void test_mix(void) {
  check_mix((double[]){3}, 1);
  check_mix((double[]){1, 1}, 2);
  check_mix((double[]){0.7, 0.3}, 2);
  check_mix((double[]){0.999999, 1e-9}, 2);
  check_mix((double[]){5e9, 3e9, 1e9, 7}, 4);
  double many[TSR_MIX_SOURCES_MAX];
  uint64_t state = 1;
  for (int i = 0; i < TSR_MIX_SOURCES_MAX; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    many[i] = (double)(state >> 40) + 1;
  }
  check_mix(many, TSR_MIX_SOURCES_MAX);
  for (int i = 1; i < TSR_MIX_SOURCES_MAX; i++) many[i] = 1e-9; /* all but one take the least */
  many[0] = 1;
  check_mix(many, TSR_MIX_SOURCES_MAX);

  tsr_mixture mix; /* frozen: a run that is resumed by a later version must see the same */
  int64_t before;
  static const int want[16] = {0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0};
  tsr_mixture_make(arena, (double[]){0.7, 0.3}, 2, &mix);
  CHECK(mix.shares[0] == 45875 && mix.shares[1] == 19661);
  for (int p = 0; p < 16; p++) CHECK_INT(tsr_mixture_at(&mix, p, &before), want[p]);
  CHECK_INT(tsr_mixture_at(&mix, INT64_MAX / 2, &before), 0);
  CHECK_INT(before, INT64_MAX / 2 / TSR_MIX_CYCLE * 45875 + 45874);
}

/* ---- samples ---- */

static tsr_data_options options_of(const tsr_data_input *inputs, int count) {
  return (tsr_data_options){
      .inputs = inputs,
      .inputs_count = count,
      .tokenizer = tsr_tokenizer_ids(60000),
      .vocab_size = 60000,
      .end_of_text = -1};
}

static tsr_data_input input_of(const char *path, double weight) {
  return (tsr_data_input){path, TSR_TOKEN_FILE_AUTO, weight, PLACE};
}

static void check_sample(
    const tsr_dataset *d, tsr_split split, int64_t index, int first, const int32_t *ignored) {
  int32_t tokens[4], targets[4];
  tsr_dataset_fill_tokens(d, split, index, 4, tokens, targets);
  int64_t count = 4;
  for (int t = 0; t < 4; t++) {
    CHECK_INT(tokens[t], first + t);
    CHECK_INT(targets[t], ignored && ignored[t] ? TSR_TARGET_IGNORED : first + t + 1);
    count -= ignored && ignored[t];
  }
  CHECK_INT(tsr_dataset_count_targets(d, split, index, 4, TSR_TARGET_IGNORED), count);
}

static void
check_positions(const tsr_dataset *d, int64_t index, int64_t T, const int32_t *positions) {
  int32_t got[8];
  tsr_dataset_fill_positions(d, TSR_SPLIT_TRAIN, index, T, got);
  for (int t = 0; t < T; t++) CHECK_INT(got[t], positions[t]);
}

static void test_windows(void) {
  llmc_file(&file, 100, 13, 2);
  write_file("a-1.bin", &file);
  llmc_file(&file, 200, 12, 2);
  write_file("a-2.bin", &file);
  tsr_data_input input = input_of("a-*.bin", 0);
  tsr_data_options options = options_of(&input, 1);
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 4), 3 + 2); /* 12 / 4 + 11 / 4 */
  check_sample(&d, TSR_SPLIT_TRAIN, 0, 100, NULL);
  check_sample(&d, TSR_SPLIT_TRAIN, 2, 108, NULL);
  check_sample(&d, TSR_SPLIT_TRAIN, 3, 200, NULL); /* no window leaves its file */
  check_sample(&d, TSR_SPLIT_TRAIN, 4, 204, NULL);
  tsr_dataset_split(&d, 0.4); /* the last 10 of 25 tokens: 202 and later */
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 4), 3);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_VALIDATION, 4), 2);
  check_sample(&d, TSR_SPLIT_VALIDATION, 1, 206, NULL);
  tsr_dataset_close(&d);
  options.stride = 3;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 4), 3 + 3);
  check_sample(&d, TSR_SPLIT_TRAIN, 1, 103, NULL);
  check_sample(&d, TSR_SPLIT_TRAIN, 5, 206, NULL);
  CHECK(!tsr_dataset_check(&d, TSR_SPLIT_TRAIN, 13, PLACE, diags));
  CHECK_STR(
      scratch_diags(diags),
      AT "the training part of 'a-*.bin' has 25 tokens, too few for a sequence length of 13: one "
         "sample takes 14\n      = in 2 files, of which each must be long enough by itself\n");
  tsr_dataset_close(&d);
}

/* A name that is no token file's is one's where all files are. */
static void test_tokens_by_any_name(void) {
  llmc_file(&file, 300, 9, 2);
  write_file("tokens.txt", &file);
  tsr_data_input input = input_of("tokens.txt", 0);
  tsr_data_options options = options_of(&input, 1);
  tsr_dataset d;
  CHECK(!tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK(scratch_diags_start(diags, AT "'tokens.txt'"));
  input.tokens = true;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_sample(&d, TSR_SPLIT_TRAIN, 1, 304, NULL);
  tsr_dataset_close(&d);
}

static void test_documents(void) {
  static const int lengths[] = {3, 0, 2, 9};
  file.length = 0;
  put_tokens(&file, 10, 14, 2);
  write_file("m.bin", &file);
  index_file(&file, 8, 2, lengths, 4);
  write_file("m.idx", &file);
  tsr_data_input input = input_of("m", 0);
  tsr_data_options options = options_of(&input, 1);
  options.separate = true;
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 4), 3);
  check_sample(&d, TSR_SPLIT_TRAIN, 0, 10, (int32_t[]){0, 0, 1, 0});
  check_sample(&d, TSR_SPLIT_TRAIN, 1, 14, (int32_t[]){1, 0, 0, 0});
  check_sample(&d, TSR_SPLIT_TRAIN, 2, 18, NULL);
  check_positions(&d, 0, 4, (int32_t[]){0, 1, 2, 0}); /* begins at 10, 13, 13 and 15 */
  check_positions(&d, 1, 4, (int32_t[]){0, 0, 1, 2});
  check_positions(&d, 2, 4, (int32_t[]){0, 1, 2, 3}); /* from the sample's begin */
  check_positions(&d, 0, 8, (int32_t[]){0, 1, 2, 0, 1, 0, 1, 2});
  tsr_dataset_close(&d);
  options.separate = false;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_sample(&d, TSR_SPLIT_TRAIN, 0, 10, NULL);
  check_positions(&d, 0, 8, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
  tsr_dataset_close(&d);

  input = input_of("a-1.bin", 0); /* 100 … 112 */
  options.separate = true;
  options.end_of_text = 101;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_sample(&d, TSR_SPLIT_TRAIN, 0, 100, (int32_t[]){0, 1, 0, 0});
  check_sample(&d, TSR_SPLIT_TRAIN, 1, 104, NULL);
  CHECK_INT(tsr_dataset_count_targets(&d, TSR_SPLIT_TRAIN, 0, 4, 103), 2);
  check_positions(&d, 0, 4, (int32_t[]){0, 1, 0, 1}); /* behind the end of text */
  check_positions(&d, 1, 4, (int32_t[]){0, 1, 2, 3});
  tsr_dataset_close(&d);
  options.end_of_text = -1;
  CHECK(!tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_STR(
      scratch_diags(diags), AT "'a-1.bin' does not mark where its documents end\n"
                               "      = training_config.end_of_text: the token that ends one\n");
}

/* Documents of one token: ends of text that follow each other, and files of one letter. */
static void test_short_documents(void) {
  static const int tokens[] = {7, 7, 5, 7, 7, 1, 2, 3, 7};
  file.length = 0;
  for (int i = 0; i < 9; i++) put_tokens(&file, tokens[i], 1, 2);
  write_file("short.bin", &file);
  tsr_data_input input = input_of("short.bin", 0);
  tsr_data_options options = options_of(&input, 1);
  options.separate = true;
  options.end_of_text = 7;
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_positions(&d, 0, 8, (int32_t[]){0, 0, 0, 1, 0, 0, 1, 2});
  check_positions(&d, 0, 1, (int32_t[]){0});
  tsr_dataset_close(&d);

  scratch_text("text-1", "abc");
  scratch_text("text-2", "d");
  scratch_text("text-3", "efgh");
  input = (tsr_data_input){"text-*", TSR_TOKEN_FILE_TEXT, 0, PLACE};
  options = (tsr_data_options){&input, 1, .tokenizer = tsr_tokenizer_byte(), .end_of_text = -1};
  options.separate = true;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_positions(&d, 0, 6, (int32_t[]){0, 1, 2, 0, 0, 1});
  check_positions(&d, 1, 6, (int32_t[]){0, 1, 0, 0, 1, 2});
  tsr_dataset_close(&d);
}

/* Over whole epochs of each source every sample comes once in each, in the given proportions. */
static void test_order(void) {
  enum { T = 4, POSITIONS = 3 * TSR_MIX_CYCLE };
  static const int tokens[] = {401, 4001};
  tsr_data_input inputs[] = {input_of("one.bin", 3), input_of("two.bin", 1)};
  for (int i = 0; i < 2; i++) {
    llmc_file(&file, i * 10000, tokens[i], 2);
    write_file(inputs[i].path, &file);
  }
  tsr_data_options options = options_of(inputs, 2);
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 100 + 1000);
  static int seen[1100];
  memset(seen, 0, sizeof seen);
  int64_t taken[2] = {0};
  bool once = true;
  for (int64_t p = 0; p < POSITIONS; p++) {
    int64_t index = tsr_dataset_sample_at(&d, TSR_SPLIT_TRAIN, T, 42, p);
    int source = index >= 100;
    /* the epoch of its source that it belongs to */
    once = once && seen[index] == taken[source] / (source ? 1000 : 100);
    seen[index]++;
    taken[source]++;
  }
  CHECK(once);
  CHECK_INT(taken[0], POSITIONS / 4 * 3);
  CHECK_INT(taken[1], POSITIONS / 4);
  int64_t other = 0, forward = 0;
  for (int64_t p = 0; p < 1000; p++) {
    int64_t index = tsr_dataset_sample_at(&d, TSR_SPLIT_TRAIN, T, 42, p);
    other += index == tsr_dataset_sample_at(&d, TSR_SPLIT_TRAIN, T, 43, p);
    forward += tsr_dataset_sample_at(&d, TSR_SPLIT_TRAIN, T, 42, p + 1) == index + 1;
  }
  CHECK(other < 40 && forward < 40);
  tsr_dataset_close(&d);
}

/* Without weights each source counts by its tokens. */
static void test_no_weights(void) {
  tsr_data_input inputs[] = {input_of("one.bin", 0), input_of("two.bin", 0)};
  tsr_data_options options = options_of(inputs, 2);
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_STR(d.name, "one.bin (and 1 more)");
  CHECK_INT(d.mix.shares[0], 5970); /* 65536 * 401 / 4402 = 5969.98… */
  tsr_dataset_close(&d);
}

/* ---- texts beside token files, and what is refused ---- */

static void test_texts(void) {
  scratch_text("t.txt", "abcabc");
  scratch_text("v.txt", "cab");
  tsr_data_input inputs[] = {input_of("t.txt", 1), input_of("one.bin", 1)};
  tsr_data_input validation = input_of("v.txt", 0);
  tsr_data_options options = options_of(inputs, 2);
  options.tokenizer = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  options.validation = &validation;
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_INT(d.tokenizer.vocab_size, 3);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 2), 4 + 200);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_VALIDATION, 2), 1);
  int32_t tokens[2], targets[2];
  tsr_dataset_fill_tokens(&d, TSR_SPLIT_VALIDATION, 0, 2, tokens, targets);
  CHECK(tokens[0] == 2 && tokens[1] == 0 && targets[0] == 0 && targets[1] == 1);
  CHECK_INT(tsr_dataset_sample_at(&d, TSR_SPLIT_VALIDATION, 2, 7, 12345), 0);
  tsr_dataset_close(&d);
  scratch_text("v.txt", "cad");
  CHECK(!tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK(scratch_diags_start(
      diags,
      "v.txt:1:3: error: character 'd' (U+0064) is not in the vocabulary of 3 characters\n"));
}

static void check_refused(tsr_data_options options, const char *words) {
  tsr_dataset d;
  CHECK(!tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK_STR(scratch_diags(diags), words);
}

static void test_refused(void) {
  tsr_data_input input = input_of("[at]*[1t]*", 0);
  tsr_data_options options = options_of(&input, 1);
  check_refused(
      options,
      AT "'[at]*[1t]*' means 'a-1.bin', a token file, and 't.txt', a text: a source is one "
         "or the other\n");
  input = input_of("one.bin", 0);
  options.vocab_size = 400;
  check_refused(options, AT "'one.bin', byte 1824: token 400 is 400, but the vocabulary has 400\n");
  options.vocab_size = 0;
  options.tokenizer = (tsr_tokenizer){.kind = TSR_TOKENIZER_SUBWORD, .vocab_size = 0};
  options.end_of_text = 1;
  check_refused(
      options, AT "'one.bin' holds token numbers, but the size of the vocabulary is not known\n"
                  "      = transformer_config.vocab_size sets it\n");
  input = input_of("none-*.bin", 0);
  check_refused(options, AT "no file matches 'none-*.bin'\n");
}

/* Both files of a pair match, and are one. */
static void test_pairs(void) {
  tsr_data_input input = input_of("m.*", 0);
  tsr_data_options options = options_of(&input, 1);
  tsr_dataset d;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  CHECK(d.sources[0].files_count == 1 && d.sources[0].tokens == 14);
  tsr_dataset_close(&d);
}

/* ---- tokens that nobody looked at when the file was opened ---- */

static void test_outside(void) {
  tsr_data_input input = input_of("one.bin", 0);
  tsr_data_options options = options_of(&input, 1);
  tsr_dataset d;
  const tsr_token_file *at;
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  d.vocab_size = 50;
  CHECK_INT(tsr_dataset_find_outside(&d, TSR_SPLIT_TRAIN, 11, 4, &at), -1);
  CHECK_INT(tsr_dataset_find_outside(&d, TSR_SPLIT_TRAIN, 12, 4, &at), 50);
  CHECK_STR(at->path, "one.bin");
  tsr_dataset_close(&d);
}

/* ---- the fingerprint ---- */

static void fingerprint(tsr_data_options options, double fraction, char ret_text[33]) {
  tsr_dataset d;
  ret_text[0] = 0;
  bool ok = tsr_dataset_tokens(arena, &options, &d, diags);
  CHECK(ok);
  if (!ok) return;
  tsr_dataset_split(&d, fraction);
  tsr_dataset_fingerprint(&d, ret_text);
  tsr_dataset_close(&d);
}

static void test_fingerprint(void) {
  tsr_data_input inputs[] = {input_of("one.bin", 1), input_of("two.bin", 1)};
  tsr_data_input copies[] = {input_of("uno.bin", 2), input_of("two.bin", 2)};
  tsr_data_options options = options_of(inputs, 2);
  char texts[8][33], again[33];
  llmc_file(&file, 0, 401, 2);
  write_file("uno.bin", &file);
  fingerprint(options, 0, texts[0]);
  CHECK_STR(texts[0], "b6e7e1a489a1c48d7ad9751fe3c8d02c"); /* frozen */
  options.inputs = copies; /* other names, and weights that say the same */
  fingerprint(options, 0, again);
  CHECK_STR(again, texts[0]);
  put_at(&file, 1024 + 200, 5, 2); /* one token */
  write_file("uno.bin", &file);
  fingerprint(options, 0, texts[1]);
  llmc_file(&file, 0, 400, 2); /* a token less */
  write_file("uno.bin", &file);
  fingerprint(options, 0, texts[2]);
  options.inputs = inputs;
  fingerprint(options, 0.5, texts[3]);
  options.stride = 2;
  fingerprint(options, 0, texts[4]);
  options.stride = 0;
  options.separate = true;
  options.end_of_text = 3;
  fingerprint(options, 0, texts[5]);
  options.end_of_text = 4;
  fingerprint(options, 0, texts[6]);
  inputs[1].weight = 2;
  options.separate = false;
  fingerprint(options, 0, texts[7]);
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < i; k++) CHECK(strcmp(texts[i], texts[k]) != 0);
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  test_mix();
  test_windows();
  test_tokens_by_any_name();
  test_documents();
  test_short_documents();
  test_order();
  test_no_weights();
  test_texts();
  test_refused();
  test_pairs();
  test_outside();
  test_fingerprint();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("sources");
}
