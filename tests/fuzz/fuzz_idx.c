// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a Megatron index: refused with words, or its numbers agree with each other. */
#include "data/token_files.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Documents end one behind the other, and the last one with the tokens. */
static void check_documents(const tsr_megatron_index *index) {
  tsr_token_file file = {.index = index, .type = index->type, .count = index->tokens};
  int64_t at = -1;
  while (at < index->tokens) {
    int64_t next = tsr_token_file_next_document(&file, at);
    assert(next > at || next == index->tokens);
    assert(next <= index->tokens);
    at = next;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_megatron_index index;
  bool ok = tsr_megatron_index_read("fuzz.idx", data, size, TSR_NOWHERE, &index, diags);
  assert(ok == (tsr_diags_errors(diags) == 0));
  if (ok) check_documents(&index);
  tsr_arena_free(arena);
  return 0;
}
