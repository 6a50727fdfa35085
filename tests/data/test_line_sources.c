// SPDX-License-Identifier: Apache-2.0
/* Conversations as a data set: parts, several sources, what the fingerprint covers, what is
 * refused. */
#include "data/line_sources.h"
#include "tests/check.h"
#include "tests/data/letters.h"
#include "tests/data/scratch.h"

enum { T = 8 };

static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};
static tsr_arena *arena;
static tsr_diags *diags;

static tsr_data_input input_of(const char *path, double weight) {
  return (tsr_data_input){.path = path, .weight = weight, .location = PLACE};
}

static tsr_line_sources options_of(const tsr_data_input *inputs, int count) {
  return (tsr_line_sources){
      .inputs = inputs,
      .inputs_count = count,
      .tokenizer = tsr_tokenizer_ids(27),
      .encoder = letters,
      .packing = {.best_fit = true, .padding = 26},
      .threads = 2};
}

/* Ten conversations of 5 tokens from this letter, the third a target: one is a pack. */
static void write_lines(const char *path, char letter) {
  tsr_text text = {0};
  for (int i = 0; i < 10; i++)
    tsr_text_add(&text, "%c%c%cab\n", letter, 'a' + i, letter - 'a' + 'A');
  scratch_text(path, text.data);
  tsr_text_free(&text);
}

static int32_t first_token(const tsr_dataset *d, tsr_split split, int64_t index, int at) {
  int32_t tokens[T];
  tsr_dataset_fill_tokens(d, split, index, T, tokens, NULL);
  return tokens[at];
}

static void test_parts(void) {
  tsr_dataset d;
  tsr_data_input input = input_of("x.jsonl", 0);
  tsr_line_sources options = options_of(&input, 1);
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  CHECK(d.separate && d.sources[0].tokens == 50);
  tsr_dataset_split(&d, 0.25); /* the last two lines */
  tsr_dataset_pack(arena, &d, T);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 8);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_VALIDATION, T), 2);
  for (int i = 0; i < 8; i++) CHECK_INT(first_token(&d, TSR_SPLIT_TRAIN, i, 1), 1 + i);
  CHECK_INT(first_token(&d, TSR_SPLIT_VALIDATION, 0, 1), 9);
  CHECK_INT(tsr_dataset_count_targets(&d, TSR_SPLIT_TRAIN, 3, T, TSR_TARGET_IGNORED), 1);
  int32_t positions[T];
  static const int32_t want[T] = {0, 1, 2, 3, 4, 0, 0, 0};
  tsr_dataset_fill_positions(&d, TSR_SPLIT_TRAIN, 3, T, positions);
  CHECK(!memcmp(positions, want, sizeof want));
  const tsr_token_file *file;
  CHECK_INT(tsr_dataset_find_outside(&d, TSR_SPLIT_TRAIN, 0, T, &file), -1);
  CHECK(tsr_dataset_check(&d, TSR_SPLIT_TRAIN, T, PLACE, diags));
  tsr_dataset_pack(arena, &d, 12); /* two conversations each */
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, 12), 4);
  tsr_dataset_close(&d);

  tsr_data_input own = input_of("y.jsonl", 0);
  options.validation = &own;
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  tsr_dataset_pack(arena, &d, T);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 10);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_VALIDATION, T), 10);
  CHECK_INT(first_token(&d, TSR_SPLIT_VALIDATION, 0, 0), 25);
  tsr_dataset_close(&d);
}

static void test_sources(void) {
  tsr_dataset d;
  tsr_data_input inputs[] = {input_of("x.jsonl", 3), input_of("y.jsonl", 1)};
  tsr_line_sources options = options_of(inputs, 2);
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  CHECK_STR(d.name, "x.jsonl (and 1 more)");
  tsr_dataset_pack(arena, &d, T);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 20);
  int seen[2][10] = {{0}};
  for (int p = 0; p < 40; p++) {
    int64_t index = tsr_dataset_sample_at(&d, TSR_SPLIT_TRAIN, T, 7, p);
    seen[first_token(&d, TSR_SPLIT_TRAIN, index, 0) - 24]
        [first_token(&d, TSR_SPLIT_TRAIN, index, 1) - 1]++;
  }
  for (int i = 0; i < 10; i++) CHECK(seen[0][i] == 3 && seen[1][i] == 1);
  tsr_dataset_close(&d);
  inputs[0] = input_of("?.jsonl", 0); /* one source of both files */
  options.inputs_count = 1;
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  tsr_dataset_pack(arena, &d, T);
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 20);
  CHECK_INT(first_token(&d, TSR_SPLIT_TRAIN, 10, 0), 25);
  tsr_dataset_close(&d);
}

/* The fingerprint of a text's conversations, in packs of T tokens. */
static const char *print_of(const char *text, double fraction, int64_t sequence, int32_t padding) {
  static char prints[2][33];
  static int at;
  tsr_dataset d;
  tsr_data_input input = input_of("one.jsonl", 0);
  tsr_line_sources options = options_of(&input, 1);
  options.packing.padding = padding;
  scratch_text("one.jsonl", text);
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  tsr_dataset_split(&d, fraction);
  tsr_dataset_pack(arena, &d, sequence);
  tsr_dataset_fingerprint(&d, prints[at ^= 1]);
  tsr_dataset_close(&d);
  return prints[at];
}

static void test_fingerprint(void) {
  static const char text[] = "abC\nbcD\ncdE\n";
  char want[33];
  strcpy(want, print_of(text, 0, 8, 26));
  CHECK_STR(print_of(text, 0, 8, 26), want);
  CHECK(strcmp(print_of("abC\nbCD\ncdE\n", 0, 8, 26), want)); /* the mask */
  CHECK(strcmp(print_of("abD\nbcD\ncdE\n", 0, 8, 26), want)); /* a token */
  CHECK(strcmp(print_of("bcD\nabC\ncdE\n", 0, 8, 26), want)); /* the order */
  CHECK(strcmp(print_of("abCb\ncD\ncdE\n", 0, 8, 26), want)); /* the documents */
  CHECK(strcmp(print_of(text, 0.5, 8, 26), want));            /* the parts */
  CHECK(strcmp(print_of(text, 0, 9, 26), want));              /* the packs */
  CHECK(strcmp(print_of(text, 0, 8, 25), want));              /* what is behind them */
  CHECK_STR(print_of("abC\n\nbcD\ncdE", 0, 8, 26), want);     /* lines are no part of it */
}

static void test_refused(void) {
  static const struct {
    const char *text, *says;
  } files[] = {
      {"[{}]", "run.yaml:3:14: error: 'bad.jsonl' holds a JSON array, not an object on each line\n"
               "      = `jq -c '.[]'` writes its elements as lines\n"},
      {"PAR1 and so on", "run.yaml:3:14: error: 'bad.jsonl' holds the rows of a table (Parquet), "},
      {"ab\na!b\nab\n!", "bad.jsonl:2:2: error: no letter\n    2 | a!b\n      |  ^\n"
                         "bad.jsonl:4:1: error: no letter\n    4 | !\n      | ^\n"}};
  tsr_dataset d;
  tsr_data_input input = input_of("bad.jsonl", 0);
  tsr_line_sources options = options_of(&input, 1);
  for (int i = 0; i < 3; i++) {
    scratch_text("bad.jsonl", files[i].text);
    CHECK(!tsr_dataset_lines(arena, &options, &d, diags));
    CHECK(scratch_diags_start(diags, files[i].says));
  }
  input.path = "none.jsonl";
  CHECK(!tsr_dataset_lines(arena, &options, &d, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: cannot read 'none.jsonl': No such file or directory\n");

  scratch_text("bad.jsonl", "abc\nabcdefghijK\nabcdefghiJ\n");
  input.path = "bad.jsonl";
  options.packing.drops = true;
  CHECK(tsr_dataset_lines(arena, &options, &d, diags));
  tsr_dataset_pack(arena, &d, T);
  CHECK(!tsr_dataset_check(&d, TSR_SPLIT_TRAIN, T, PLACE, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: the training part of 'bad.jsonl' has no conversation to train on\n"
      "      = of 3, 2 are dropped as longer than 8 tokens, and 1 have no target\n");
  tsr_dataset_close(&d);
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  write_lines("x.jsonl", 'x');
  write_lines("y.jsonl", 'y');
  test_parts();
  test_sources();
  test_fingerprint();
  test_refused();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("line_sources");
}
