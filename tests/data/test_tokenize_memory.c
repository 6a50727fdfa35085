// SPDX-License-Identifier: Apache-2.0
/* An error behind thousands of good lines of JSONL: tokenize copied the file for the number of each
 * of them. */
#include "data/tokenize.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include <sys/resource.h>

static int64_t most_memory(void) {
  struct rusage usage;
  CHECK(!getrusage(RUSAGE_SELF, &usage));
  return usage.ru_maxrss * 1024;
}

/* The address sanitizer keeps freed memory, 256 MiB of it without this. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=16"; }

int main(void) {
  enum { LINES = 5000, MEMORY_MAX = 300 << 20 };
  static const char *const inputs[] = {"many.jsonl"};
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text text = {0};
  char folder[64];
  scratch_enter(folder);
  for (int i = 0; i < LINES; i++) tsr_text_add(&text, "{\"text\": \"a line of some words\"}\n");
  tsr_text_add(&text, "{\n");
  scratch_text("many.jsonl", text.data);
  tsr_text_free(&text);
  int64_t before = most_memory();
  const tsr_tokenize_options o = {
      .inputs = inputs,
      .inputs_count = 1,
      .tokenizer = tsr_tokenizer_byte(),
      .out = "many.bin",
      .end_of_text = -1,
      .threads = 1,
      .quiet = true};
  CHECK(!tsr_tokenize(arena, &o, diags));
  const char *said = scratch_diags(diags);
  CHECK_AT(!strncmp(said, "many.jsonl:5001:2: error: ", 26), "%s", said);
  CHECK(most_memory() - before < MEMORY_MAX);
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("tokenize.memory");
}
