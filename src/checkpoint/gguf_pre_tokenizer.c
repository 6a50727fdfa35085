// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_pre_tokenizer.h"
#include "base/sha256.h"
#include "config/yaml.h"
#include <string.h>

enum { SPLITS_MAX = 16 };

/* The text that convert_hf_to_gguf.py encodes: spaces, line ends, emojis, digits, several scripts
 * and contractions, which pre-tokenizers cut differently. */
static const char check_text[] =
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n"
    "🚀 (normal) 😶\xe2\x80\x8d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 "
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 "
    "កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ "
    "------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? "
    "I've been 'told he's there, 'RE you sure? 'M not sure "
    "I'll make it, 'D you like some tea? We'Ve a'lL";

static void add_tokens(tsr_text *text, const int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    tsr_text_add(text, "%s%d", text->length > 1 ? ", " : "", tokens[i]);
}

/* SHA-256 of "[1, 2, 3]", the text's tokens with those of the template. */
static bool hash_tokens(
    tsr_arena *arena, const tsr_subword *bpe, char ret_hash[TSR_SHA256_TEXT_BYTES],
    tsr_diags *diags) {
  const int32_t *before, *behind;
  int before_count = tsr_subword_before(bpe, &before),
      behind_count = tsr_subword_behind(bpe, &behind);
  int64_t count, room = tsr_subword_room(bpe, check_text, strlen(check_text));
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  bool ok = tsr_subword_encode(bpe, scratch, check_text, strlen(check_text), tokens, &count, diags);
  tsr_subword_scratch_free(scratch);
  if (!ok) return false;
  tsr_text text = {0};
  tsr_text_add(&text, "[");
  add_tokens(&text, before, before_count);
  add_tokens(&text, tokens, count);
  add_tokens(&text, behind, behind_count);
  tsr_text_add(&text, "]");
  tsr_sha256 *sha = tsr_sha256_new(arena);
  tsr_sha256_update(sha, text.data, text.length);
  tsr_sha256_final(sha, ret_hash);
  tsr_text_free(&text);
  return true;
}

static bool holds_text(const tsr_yaml *node, const char *text) {
  for (int i = 0; node->kind == TSR_YAML_LIST && i < node->count; i++)
    if (!strcmp(node->items[i]->text, text)) return true;
  return false;
}

static const char *find_hash(const tsr_yaml *table, const char *hash) {
  const tsr_yaml *hashes = tsr_yaml_get(table, "hashes");
  for (int i = 0; hashes && i < hashes->count; i++)
    if (holds_text(hashes->items[i], hash)) return hashes->keys[i]->text;
  return NULL;
}

/* ---- by patterns ---- */

/* The patterns of a pre_tokenizer behind each other; false where something is no such pattern. */
static bool list_splits(const cJSON *item, const char *splits[SPLITS_MAX], int *count) {
  static const char gpt2[] =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  const cJSON *type = tsr_json_get(item, "type"), *inner;
  if (!cJSON_IsString(type) || *count == SPLITS_MAX) return false;
  if (!strcmp(type->valuestring, "Sequence")) {
    cJSON_ArrayForEach(inner, tsr_json_get(item, "pretokenizers")) {
      if (!list_splits(inner, splits, count)) return false;
    }
    return true;
  }
  const char *split = NULL;
  if (!strcmp(type->valuestring, "ByteLevel")) {
    if (cJSON_IsTrue(tsr_json_get(item, "add_prefix_space"))) return false;
    if (cJSON_IsFalse(tsr_json_get(item, "use_regex"))) return true;
    split = gpt2;
  } else if (!strcmp(type->valuestring, "Digits")) {
    split = cJSON_IsTrue(tsr_json_get(item, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
  } else if (!strcmp(type->valuestring, "Split")) {
    const cJSON *regex = tsr_json_get(tsr_json_get(item, "pattern"), "Regex");
    const cJSON *behavior = tsr_json_get(item, "behavior");
    bool isolates = cJSON_IsString(behavior) && !strcmp(behavior->valuestring, "Isolated") &&
                    !cJSON_IsTrue(tsr_json_get(item, "invert"));
    split = isolates && cJSON_IsString(regex) ? regex->valuestring : NULL;
  }
  if (split) splits[(*count)++] = split;
  return split;
}

static bool same_splits(const tsr_yaml *entry, const char *const *splits, int count, bool ignores) {
  const tsr_yaml *list = tsr_yaml_get(entry, "splits"),
                 *flag = tsr_yaml_get(entry, "ignore_merges");
  bool ignores_there;
  bool same = list && list->kind == TSR_YAML_LIST && list->count == count && flag &&
              tsr_yaml_bool(flag, &ignores_there) && ignores_there == ignores;
  for (int i = 0; same && i < count; i++) same = !strcmp(list->items[i]->text, splits[i]);
  return same;
}

/* llama.cpp normalizes no text, so a tokenizer that does has other tokens there. */
static const char *find_patterns(const tsr_yaml *table, const cJSON *json) {
  const char *splits[SPLITS_MAX];
  const cJSON *normalizer = tsr_json_get(json, "normalizer");
  const tsr_yaml *patterns = tsr_yaml_get(table, "patterns"), *name;
  bool ignores = cJSON_IsTrue(tsr_json_get(tsr_json_get(json, "model"), "ignore_merges"));
  int count = 0;
  if ((normalizer && !cJSON_IsNull(normalizer)) ||
      !list_splits(tsr_json_get(json, "pre_tokenizer"), splits, &count))
    return NULL;
  for (int i = 0; patterns && i < patterns->count; i++)
    if (same_splits(patterns->items[i], splits, count, ignores) &&
        (name = tsr_yaml_get(patterns->items[i], "name")))
      return name->text;
  return NULL;
}

bool tsr_gguf_pre_tokenizer_find(
    tsr_arena *arena, const char *table, const tsr_subword *bpe, const cJSON *json,
    const char *file, tsr_gguf_pre_tokenizer *ret, tsr_diags *diags) {
  char hash[TSR_SHA256_TEXT_BYTES];
  tsr_yaml *root;
  *ret = (tsr_gguf_pre_tokenizer){0};
  if (!tsr_yaml_read(arena, table, TSR_NOWHERE, &root, diags) ||
      !hash_tokens(arena, bpe, hash, diags))
    return false;
  ret->name = find_hash(root, hash);
  ret->is_known = ret->name != NULL;
  if (!ret->name) ret->name = find_patterns(root, json);
  if (ret->name) return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "'%s': llama.cpp has no name for this pre-tokenizer, whose hash is %s",
      file, hash);
  tsr_diag_hint(
      diags,
      "llama.cpp cuts texts by the patterns of GPT-2, Llama 3, Qwen 2 and SmolLM, without a "
      "normalizer, and as the tokenizers that '%s' lists by hash",
      table);
  return false;
}
