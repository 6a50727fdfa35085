// SPDX-License-Identifier: Apache-2.0
#include "data/padding_token.h"
#include "data/chat_template.h"

bool tsr_padding_token(
    tsr_arena *arena, const char *folder, const tsr_tokenizer *tokenizer, int32_t *ret_token,
    tsr_diags *diags) {
  static const char *const names[] = {"pad_token", "eos_token"};
  *ret_token = -1;
  if (tokenizer->kind != TSR_TOKENIZER_SUBWORD) return true;
  for (int i = 0; i < 2 && folder && *ret_token < 0; i++) {
    const char *text;
    if (!tsr_chat_template_special(arena, folder, tokenizer, names[i], &text, diags)) return false;
    if (text) *ret_token = tsr_subword_find(tokenizer->subword, text);
  }
  if (*ret_token < 0) *ret_token = (int32_t)tsr_tokenizer_end_of_text(tokenizer);
  return true;
}

bool tsr_padding_ends_texts(const tsr_tokenizer *tokenizer, int64_t token) {
  const int32_t *behind;
  int count = tokenizer->kind == TSR_TOKENIZER_SUBWORD
                  ? tsr_subword_behind(tokenizer->subword, &behind)
                  : 0;
  return count > 0 && behind[count - 1] == token;
}
