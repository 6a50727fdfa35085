// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the added tokens; the vocabulary and the normalizer were read before. */
#include "tokenizer/internal.h"
#include <string.h>

/* The token of the vocabulary that is written like this, or -1. */
static int32_t find_written(const tsr_subword *s, const tsr_added_token *added, tsr_text *bytes) {
  if (s->model != TSR_MODEL_BPE_BYTES) return tsr_vocabulary_find(s, added->text, added->length);
  bool is_bytes = tsr_byte_letters_unmap(added->text, bytes);
  return is_bytes ? tsr_vocabulary_find(s, bytes->data, bytes->length) : -1;
}

/* Whether an id that the vocabulary has is the vocabulary's token of this text, and the other way
 * round. */
static bool
check_with_vocab(const tsr_subword_reader *r, const tsr_added_token *added, tsr_text *bytes) {
  const tsr_subword *s = r->subword;
  const char *there = s->texts[added->token];
  uint32_t length = s->lengths[added->token];
  int32_t in_vocab = find_written(s, added, bytes);
  if (in_vocab >= 0 && in_vocab != added->token)
    return tsr_diag_error(
        r->diags, r->location, "added_tokens: '%s' has the id %d, but %d in the vocabulary",
        added->text, added->token, in_vocab);
  bool is_other =
      there && in_vocab < 0 && (length != added->length || memcmp(there, added->text, length) != 0);
  if (!is_other) return true;
  return tsr_diag_error(
      r->diags, r->location, "added_tokens: '%s' has the id %d, which another token has too",
      added->text, added->token);
}

static bool read_token(const tsr_subword_reader *r, const cJSON *item, tsr_added_token *ret) {
  static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                      "rstrip", "normalized", "special",     NULL};
  const char *content = tsr_json_get(item, "content")->valuestring;
  *ret = (tsr_added_token){
      .text = tsr_arena_strdup(r->arena, content),
      .length = strlen(content),
      .token = tsr_json_get(item, "id")->valueint,
  };
  return tsr_json_keys_known(r, item, "added_tokens", known) &&
         tsr_json_flag(r, item, "single_word", -1, &ret->is_single_word) &&
         tsr_json_flag(r, item, "lstrip", -1, &ret->takes_left) &&
         tsr_json_flag(r, item, "rstrip", -1, &ret->takes_right) &&
         tsr_json_flag(r, item, "normalized", -1, &ret->is_normalized) &&
         tsr_json_flag(r, item, "special", -1, &ret->is_special);
}

static bool is_free(const tsr_subword_reader *r, const tsr_added_token *added) {
  for (int i = 0; i < r->subword->added_count; i++) {
    const tsr_added_token *other = &r->subword->added[i];
    if (!strcmp(other->text, added->text))
      return tsr_diag_error(
          r->diags, r->location, "added_tokens: '%s' is there twice", added->text);
    if (other->token == added->token)
      return tsr_diag_error(
          r->diags, r->location, "added_tokens: '%s' and '%s' both have the id %d", other->text,
          added->text, added->token);
  }
  return true;
}

bool tsr_added_tokens_read(const tsr_subword_reader *r, const cJSON *list) {
  tsr_subword *s = r->subword;
  s->added = tsr_arena_array(r->arena, tsr_added_token, cJSON_GetArraySize(list));
  tsr_text bytes = {0};
  bool ok = true;
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    tsr_added_token added;
    ok = read_token(r, item, &added) && is_free(r, &added) && check_with_vocab(r, &added, &bytes);
    if (!ok) break;
    s->added[s->added_count++] = added;
  }
  tsr_text_free(&bytes);
  if (!ok) return false;
  for (int i = 0; i < s->added_count; i++) {
    const tsr_added_token *added = &s->added[i];
    s->texts[added->token] = added->text;
    s->lengths[added->token] = (uint32_t)added->length;
    unsigned special = added->is_special ? TSR_TOKEN_SPECIAL : 0;
    unsigned normalized = added->is_normalized ? TSR_TOKEN_NORMALIZED : 0;
    s->flags[added->token] = (uint8_t)(TSR_TOKEN_ADDED | special | normalized);
  }
  return tsr_added_tokens_sort(r->arena, s, r->diags);
}
