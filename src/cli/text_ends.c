// SPDX-License-Identifier: Apache-2.0
#include "cli/text_ends.h"
#include "checkpoint/hf_side_files.h"

bool text_ends_find(const trained_model *m, int32_t ret_ends[TEXT_ENDS_MAX], int *ret_count) {
  const tsr_tokenizer *tokenizer = &m->data.dataset.tokenizer;
  int chat = tsr_chat_stops(tokenizer, ret_ends), ends;
  if (!tsr_hf_ends(
          m->a->arena, m->weights.folder, tokenizer->vocab_size, TEXT_ENDS_OF_FILE_MAX,
          ret_ends + chat, &ends, m->a->diags))
    return false;
  *ret_count = chat + ends;
  return true;
}
