// SPDX-License-Identifier: Apache-2.0
/* A tokenizer.json as a whole. */
#include "base/file_read.h"
#include "tokenizer/internal.h"
#include <stdatomic.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 30;

static bool read_all(const tsr_subword_reader *r, const cJSON *json) {
  static const char *const known[] = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
  const cJSON *added = tsr_json_get(json, "added_tokens");
  if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
    return tsr_diag_error(r->diags, r->location, "added_tokens should be a list");
  /* The model last of the four: whether words may stay bytes depends on the others. */
  return tsr_json_keys_known(r, json, "", known) &&
         tsr_normalizer_read(r, tsr_json_get(json, "normalizer")) &&
         tsr_pre_tokenizer_read(r, tsr_json_get(json, "pre_tokenizer")) &&
         tsr_decoder_read(r, tsr_json_get(json, "decoder")) &&
         tsr_subword_model_read(r, tsr_json_get(json, "model"), added) &&
         tsr_added_tokens_read(r, added) &&
         tsr_post_processor_read(r, tsr_json_get(json, "post_processor"));
}

bool tsr_subword_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_subword **ret_subword,
    tsr_diags *diags) {
  static atomic_ullong made;
  tsr_subword *subword = tsr_arena_array(arena, tsr_subword, 1);
  subword->file = tsr_arena_strdup(arena, file);
  subword->serial = ++made;
  tsr_subword_reader r = {arena, subword, {.file = subword->file}, diags};
  tsr_arena *scratch = tsr_arena_new(); /* of the JSON, which is many times larger */
  cJSON *json;
  bool ok =
      tsr_json_parse(scratch, subword->file, text, length, &json, diags) && read_all(&r, json);
  tsr_arena_free(scratch);
  if (ok) *ret_subword = subword;
  return ok;
}

bool tsr_subword_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_subword **ret_subword,
    tsr_diags *diags) {
  tsr_arena *scratch = tsr_arena_new();
  char *text;
  size_t length;
  bool ok = tsr_file_read(scratch, path, FILE_BYTES_MAX, location, &text, &length, diags) &&
            tsr_subword_parse(arena, path, text, length, ret_subword, diags);
  tsr_arena_free(scratch);
  return ok;
}
