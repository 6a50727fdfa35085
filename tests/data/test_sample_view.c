// SPDX-License-Identifier: Apache-2.0
/* Samples as text, and what a part consists of. */
#include "data/sample_view.h"
#include "data/line_sources.h"
#include "data/statistics.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};
static tsr_arena *arena;
static tsr_diags *diags;

/* Bytes as tokens, trained from '<' to '>', which are none; '|' is a line's end and '^' ESC. */
static bool encode_bytes(
    const void *context, void *state, tsr_arena *a, const tsr_text_file *file, size_t offset,
    size_t length, tsr_masked_tokens *ret, tsr_diags *said) {
  const char *text = file->text + offset;
  (void)context, (void)state, (void)said;
  int32_t *tokens = tsr_arena_array(a, int32_t, length + 1);
  uint8_t *trained = tsr_arena_array(a, uint8_t, length + 1);
  bool in = false;
  *ret = (tsr_masked_tokens){tokens, trained, 0};
  for (size_t i = 0; i < length; i++) {
    if (strchr("<>", text[i])) {
      in = text[i] == '<';
      continue;
    }
    trained[ret->count] = in;
    tokens[ret->count++] = text[i] == '|' ? '\n' : text[i] == '^' ? 27 : (unsigned char)text[i];
  }
  return true;
}

static void open_chat(const char *lines, int64_t T, tsr_dataset *ret) {
  tsr_data_input input = {.path = "chat.jsonl", .location = PLACE};
  tsr_line_sources options = {
      .inputs = &input,
      .inputs_count = 1,
      .tokenizer = tsr_tokenizer_byte(),
      .encoder = {.encode = encode_bytes},
      .packing = {.best_fit = true}};
  scratch_text("chat.jsonl", lines);
  CHECK(tsr_dataset_lines(arena, &options, ret, diags));
  tsr_dataset_pack(arena, ret, T);
}

static void check_view(
    const tsr_dataset *d, int64_t index, int64_t T, int width, bool colour, const char *want) {
  tsr_text text = {0};
  tsr_sample_style style = {colour, width};
  tsr_sample_print(d, TSR_SPLIT_TRAIN, index, T, -100, &style, &text);
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
}

static void check_statistics(
    const tsr_dataset *d, int64_t T, int64_t ignored, const tsr_data_statistics *want) {
  tsr_data_statistics got;
  tsr_dataset_statistics(d, TSR_SPLIT_TRAIN, T, ignored, &got);
  CHECK_INT(got.packs, want->packs);
  CHECK_INT(got.tokens, want->tokens);
  CHECK_INT(got.documents, want->documents);
  CHECK_INT(got.shortest, want->shortest);
  CHECK_INT(got.median, want->median);
  CHECK_INT(got.p95, want->p95);
  CHECK_INT(got.longest, want->longest);
  CHECK_INT(got.in_samples, want->in_samples);
  CHECK_INT(got.targets, want->targets);
  CHECK_INT(got.truncated, want->truncated);
  CHECK_INT(got.dropped, want->dropped);
  CHECK_INT(got.untrained, want->untrained);
  CHECK_INT(got.samples, want->samples);
}

/* Conversations of 12, 2 (without a target), 8, 13 and 2 tokens. */
static void test_chat(void) {
  static const char lines[] = "user|<answer|>\nno\n\n^q\t<äö\xc3>\nmore than <ten>\nx<y>\n";
  tsr_dataset d;
  open_chat(lines, 11, &d);
  check_view(
      &d, 0, 11, 80, false,
      "document 1 (chat.jsonl:1, without its last 1 token): 11 tokens, 6 targets\n"
      "      0  user↵\n"
      "      5  ⟦answer⟧\n");
  check_view(
      &d, 1, 11, 14, false,
      "document 1 (chat.jsonl:5, without its last 2 tokens): 11 tokens, 1 target\n"
      "      0  more \n"
      "      5  than \n"
      "     10  ⟦t⟧\n");
  check_view(
      &d, 2, 11, 80, false,
      "document 1 (chat.jsonl:4): 8 tokens, 5 targets\n"
      "      0  \\x1bq⇥⟦äö\\xc3⟧\n"
      "document 2 (chat.jsonl:6): 2 tokens, 1 target\n"
      "      0  x⟦y⟧\n"
      "padding: 1 token\n");
  check_view(
      &d, 2, 11, 80, true,
      "\033[1mdocument 1 (chat.jsonl:4): 8 tokens, 5 targets\033[0m\n"
      "\033[2m      0\033[0m  \033[2m\\x1b\033[0m\033[0mq\033[0m\033[2m⇥\033[0m"
      "\033[92mä\033[0m\033[32mö\033[0m\033[92m\\xc3\033[0m\n"
      "\033[1mdocument 2 (chat.jsonl:6): 2 tokens, 1 target\033[0m\n"
      "\033[2m      0\033[0m  \033[2mx\033[0m\033[92my\033[0m\n"
      "\033[1mpadding: 1 token\033[0m\n");
  check_statistics(
      &d, 11, -100, &(tsr_data_statistics){true, 37, 5, 2, 8, 13, 13, 32, 13, 2, 0, 1, 3});
  d.packing.drops = true;
  tsr_dataset_pack(arena, &d, 11);
  check_statistics(
      &d, 11, -100, &(tsr_data_statistics){true, 37, 5, 2, 8, 13, 13, 10, 6, 0, 2, 1, 1});
  tsr_dataset_close(&d);
}

static void test_files(void) {
  tsr_dataset d;
  tsr_data_input input = {"text-*", TSR_TOKEN_FILE_TEXT, 0, PLACE, false};
  tsr_data_options options = {
      .inputs = &input,
      .inputs_count = 1,
      .tokenizer = tsr_tokenizer_byte(),
      .separate = true,
      .end_of_text = -1};
  scratch_text("text-1", "ab\ncd");
  scratch_text("text-2", "xyz");
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_view(
      &d, 2, 4, 80, false,
      "text-1 (and 1 more), tokens 2 to 5: 3 targets\n"
      "document 1: 3 tokens, 2 targets\n"
      "      0  ↵\n"
      "      1  ⟦cd⟧\n"
      "document 2: 1 token, 0 targets\n"
      "      0  x\n");
  check_statistics(&d, 4, -100, &(tsr_data_statistics){false, 8, 2, 3, 3, 5, 5, 8, 6, 0, 0, 0, 4});
  check_statistics(&d, 4, 'y', &(tsr_data_statistics){false, 8, 2, 3, 3, 5, 5, 8, 5, 0, 0, 0, 4});
  tsr_dataset_close(&d);
  tsr_text text = {0}; /* more than is read at once */
  for (int i = 1; i <= 10000; i++) tsr_text_add(&text, i % 1000 ? "a" : "z");
  scratch_text("long", text.data);
  tsr_text_free(&text);
  input.path = "long";
  options.end_of_text = 'z';
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_statistics(
      &d, 4, -100,
      &(tsr_data_statistics){false, 10000, 10, 1000, 1000, 1000, 1000, 10000, 9990, 0, 0, 0, 9996});
  tsr_dataset_close(&d);
  input.path = "text-*";
  options.separate = false;
  options.end_of_text = -1;
  options.tokenizer = tsr_tokenizer_ids(30);
  scratch_text("text-1", "1 20 3");
  scratch_text("text-2", "4 5");
  CHECK(tsr_dataset_tokens(arena, &options, &d, diags));
  check_view(
      &d, 1, 3, 80, false, "text-1 (and 1 more), tokens 1 to 3: 3 targets\n      0  20 ⟦3 4 ⟧\n");
  check_statistics(&d, 3, -100, &(tsr_data_statistics){false, 5, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 2});
  tsr_dataset_close(&d);
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_chat();
  test_files();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("sample_view");
}
