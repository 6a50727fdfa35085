// SPDX-License-Identifier: Apache-2.0
/* A file of an evaluation set: its lines, and their requests in small windows with and without an
 * example. The first byte says how the texts are read. */
#include "data/eval_requests.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A byte is a token, so the tokens that are scored can be counted. */
static void check_requests(
    const tsr_eval_set *set, const tsr_eval_prompting *how, const tsr_eval_request *requests,
    int count) {
  int64_t scored = 0, bytes = 0;
  for (int i = 0; i < count; i++) {
    const tsr_eval_request *r = &requests[i];
    assert(r->item >= 0 && r->item < set->count && (!i || requests[i - 1].item <= r->item));
    assert(r->choice >= 0 && r->choice < set->items[r->item].choices_count);
    assert(r->scored >= 1 && r->scored < r->count && r->count <= how->window + 1);
    for (int64_t t = 0; t < r->count; t++) assert(r->tokens[t] >= 0 && r->tokens[t] < 256);
    scored += r->scored;
  }
  for (int i = 0; i < set->count; i++) bytes += (int64_t)strlen(set->items[i].choices[0]);
  assert(set->kind != TSR_EVAL_TEXT || scored == bytes);
}

static void check_set(tsr_arena *arena, const tsr_eval_set *set, tsr_diags *diags) {
  for (int i = 0; i < set->count; i++) {
    const tsr_eval_item *item = &set->items[i];
    assert(item->answer >= 0 && item->answer < item->choices_count && item->line >= 1);
    for (int c = 0; c < item->choices_count; c++) assert(item->choices[c][0]);
  }
  for (int shots = 0; shots <= (set->kind != TSR_EVAL_TEXT); shots++) {
    tsr_eval_prompting how = {
        .tokenizer = tsr_tokenizer_byte(), .prefix = '\n', .window = shots ? 64 : 7};
    how.delimiter = " ";
    how.shots = shots;
    how.examples = set;
    how.shots_delimiter = "\n";
    tsr_eval_request *requests;
    int count;
    if (tsr_eval_requests(arena, set, &how, &requests, &count, diags))
      check_requests(set, &how, requests, count);
    else assert(tsr_diags_errors(diags));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  FILE *sink = fopen("/dev/null", "w");
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  const char *text = tsr_arena_strndup(arena, (const char *)data + 1, size - 1);
  const tsr_text_file file = {"fuzz.jsonl", text, size - 1};
  const tsr_eval_format format = {.last_word = data[0] == 'w'};
  tsr_eval_set set;
  if (tsr_eval_set_read(arena, &file, &format, &set, diags)) check_set(arena, &set, diags);
  else assert(tsr_diags_errors(diags));
  tsr_diags_print(diags, sink);
  tsr_arena_free(arena);
  fclose(sink);
  return 0;
}
