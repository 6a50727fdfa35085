// SPDX-License-Identifier: Apache-2.0
/* Text data sets: files and patterns, windows, the split, and what is refused. */
#include "data/dataset.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};

static bool load(
    tsr_arena *arena, const char *const *patterns, int count, tsr_dataset *ret_dataset,
    tsr_diags *diags) {
  tsr_tokenizer tokenizer = {.kind = TSR_TOKENIZER_CHAR};
  return tsr_dataset_text(arena, patterns, count, &tokenizer, PLACE, ret_dataset, diags);
}

static void check_window(
    const tsr_dataset *dataset, tsr_split split, int64_t index, const char *tokens,
    const char *targets) {
  int32_t got_tokens[3], got_targets[3];
  tsr_dataset_fill_tokens(dataset, split, index, 3, got_tokens, got_targets);
  tsr_text text = {0};
  tsr_tokenizer_decode(&dataset->tokenizer, got_tokens, 3, &text);
  CHECK_STR(text.data, tokens);
  text.length = 0;
  tsr_tokenizer_decode(&dataset->tokenizer, got_targets, 3, &text);
  CHECK_STR(text.data, targets);
  tsr_text_free(&text);
}

static void test_windows(tsr_arena *arena, tsr_diags *diags) {
  scratch_text("abc.txt", "abcdefghij");
  tsr_dataset dataset;
  CHECK(load(arena, (const char *[]){"abc.txt"}, 1, &dataset, diags));
  CHECK_INT(dataset.sources[0].tokens, 10);
  CHECK_INT(dataset.tokenizer.vocab_size, 10);
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_TRAIN, 3), 7);
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_VALIDATION, 3), 0);
  check_window(&dataset, TSR_SPLIT_TRAIN, 0, "abc", "bcd");
  check_window(&dataset, TSR_SPLIT_TRAIN, 6, "ghi", "hij");

  tsr_dataset_split(&dataset, 0.45); /* the last 4 tokens */
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_TRAIN, 3), 3);
  check_window(&dataset, TSR_SPLIT_TRAIN, 2, "cde", "def");
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_VALIDATION, 3), 1);
  check_window(&dataset, TSR_SPLIT_VALIDATION, 0, "ghi", "hij");
  CHECK(tsr_dataset_check(&dataset, TSR_SPLIT_TRAIN, 5, PLACE, diags));
  CHECK(!tsr_dataset_check(&dataset, TSR_SPLIT_TRAIN, 6, PLACE, diags));
  CHECK(!tsr_dataset_check(&dataset, TSR_SPLIT_VALIDATION, 16, PLACE, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: the training part of 'abc.txt' has 6 tokens, too few for a "
      "sequence length of 6: one sample takes 7\n"
      "run.yaml:3:14: error: the validation part of 'abc.txt' has 4 tokens, too few for a "
      "sequence length of 16: one sample takes 17\n");
}

static void test_files(tsr_arena *arena, tsr_diags *diags) {
  scratch_text("part-2.txt", "zz");
  scratch_text("part-1.txt", "xy");
  scratch_text("odd[1].txt", "o");
  tsr_dataset dataset;
  CHECK(
      load(arena, (const char *[]){"odd[1].txt", "part-*.txt", "part-1.txt"}, 3, &dataset, diags));
  tsr_text text = {0};
  const tsr_token_file *all = &dataset.sources[0].files[0];
  tsr_tokenizer_decode(&dataset.tokenizer, all->tokens, all->count, &text);
  CHECK_STR(text.data, "oxyzzxy");
  tsr_text_free(&text);
  CHECK_STR(dataset.name, "odd[1].txt (and 2 more)");

  CHECK(!load(arena, (const char *[]){"none-*.txt"}, 1, &dataset, diags));
  CHECK(!load(arena, (const char *[]){"none.txt"}, 1, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: no file matches 'none-*.txt'\n"
      "run.yaml:3:14: error: cannot read 'none.txt': No such file or directory\n");
  CHECK(!load(arena, (const char *[]){"/dev/zero"}, 1, &dataset, diags));
  CHECK(!load(arena, (const char *[]){"/dev/zer?"}, 1, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: cannot read '/dev/zero': it is a character device, not a file\n"
      "run.yaml:3:14: error: cannot read '/dev/zero': it is a character device, not a file\n");
  scratch_text("latin.txt", "caf\xe9");
  CHECK(!load(arena, (const char *[]){"part-1.txt", "latin.*"}, 2, &dataset, diags));
  CHECK(scratch_diags_start(diags, "latin.txt:1:4: error: invalid UTF-8: byte 0xe9\n"));

  scratch_text("empty.txt", "");
  CHECK(load(arena, (const char *[]){"empty.txt"}, 1, &dataset, diags));
  CHECK(!tsr_dataset_check(&dataset, TSR_SPLIT_TRAIN, 8, PLACE, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: the training part of 'empty.txt' has 0 tokens, too few for a "
      "sequence length of 8: one sample takes 9\n");
}

static void test_given_tokenizer(tsr_arena *arena, tsr_diags *diags) {
  scratch_text("train.txt", "hello");
  scratch_text("more.txt", "hold\n");
  tsr_dataset dataset, more;
  CHECK(load(arena, (const char *[]){"train.txt"}, 1, &dataset, diags));
  CHECK(!tsr_dataset_text(
      arena, (const char *[]){"more.txt"}, 1, &dataset.tokenizer, PLACE, &more, diags));
  CHECK(scratch_diags_start(
      diags,
      "more.txt:1:4: error: character 'd' (U+0064) is not in the vocabulary of 4 characters\n"));
  scratch_text("ids.txt", "3 1\n2");
  tsr_tokenizer ids = tsr_tokenizer_ids(4);
  CHECK(tsr_dataset_text(arena, (const char *[]){"ids.txt"}, 1, &ids, PLACE, &more, diags));
  const tsr_token_file *tokens = &more.sources[0].files[0];
  CHECK(tokens->count == 3 && tsr_token_at(tokens, 0) == 3 && tsr_token_at(tokens, 2) == 2);
}

/* The text that most people start with; false: it is not here. */
static bool test_shakespeare(tsr_arena *arena, tsr_diags *diags) {
  char path[4096];
  const char *shared = getenv("TESSERA_SHARED");
  if (shared) snprintf(path, sizeof path, "%s/data/tinyshakespeare.txt", shared);
  else snprintf(path, sizeof path, "%s/../shared/data/tinyshakespeare.txt", TSR_SOURCE_ROOT);
  if (access(path, R_OK)) return false;
  tsr_dataset dataset;
  CHECK(load(arena, (const char *[]){path}, 1, &dataset, diags));
  CHECK_INT(dataset.sources[0].tokens, 1115394);
  CHECK_INT(dataset.tokenizer.vocab_size, 65);
  tsr_dataset_split(&dataset, 0.1);
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_TRAIN, 256), 1115394 - 111539 - 256);
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_VALIDATION, 256), 111539 - 256);
  return true;
}

/* usage: test_dataset [shakespeare]: with it that text alone, where it is */
int main(int count, char **words) {
  bool is_there = true;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  if (count > 1 && !strcmp(words[1], "shakespeare")) {
    is_there = test_shakespeare(arena, diags);
  } else {
    test_windows(arena, diags);
    test_files(arena, diags);
    test_given_tokenizer(arena, diags);
  }
  scratch_leave(folder);
  tsr_arena_free(arena);
  if (is_there) return check_done("dataset");
  printf("data.dataset_shakespeare: skipped, there is no tinyshakespeare.txt\n");
  return 77;
}
