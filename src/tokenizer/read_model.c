// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the model's vocabulary and merges. */
#include "base/file_read.h"
#include "base/text.h"
#include "tokenizer/internal.h"
#include <stdatomic.h>
#include <string.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 30;

typedef struct {
  tsr_arena *arena;
  tsr_subword *subword;
  tsr_location location;
  tsr_text left, right; /* the bytes of a merge's parts, used again and again */
  tsr_diags *diags;
} reader;

/* ---- the vocabulary ---- */

static bool check_id(const reader *r, const cJSON *item, const char *where, const char *text) {
  bool ok = cJSON_IsNumber(item) && item->valuedouble >= 0 &&
            item->valuedouble < TSR_SUBWORD_TOKENS_MAX &&
            item->valuedouble == (double)(int32_t)item->valuedouble;
  if (ok) return true;
  return tsr_diag_error(
      r->diags, r->location, "%s: the id of '%s' should be a whole number in [0, %d)", where, text,
      TSR_SUBWORD_TOKENS_MAX);
}

static bool count_ids(reader *r, const cJSON *vocab, const cJSON *added) {
  int32_t largest = -1;
  const cJSON *item;
  cJSON_ArrayForEach(item, vocab) {
    if (!check_id(r, item, "model.vocab", item->string)) return false;
    if (item->valueint > largest) largest = item->valueint;
  }
  cJSON_ArrayForEach(item, added) {
    const cJSON *id = tsr_json_get(item, "id"), *content = tsr_json_get(item, "content");
    if (!cJSON_IsString(content) || !content->valuestring[0])
      return tsr_diag_error(r->diags, r->location, "added_tokens: a token has no 'content'");
    if (!check_id(r, id, "added_tokens", content->valuestring)) return false;
    if (id->valueint > largest) largest = id->valueint;
  }
  r->subword->vocab_size = largest + 1;
  return true;
}

static uint32_t table_size(int64_t items) {
  uint32_t size = 16;
  while (size < 2 * items) size *= 2;
  return size;
}

static bool add_token(reader *r, const char *text, int32_t token) {
  tsr_subword *subword = r->subword;
  if (subword->texts[token])
    return tsr_diag_error(
        r->diags, r->location, "model.vocab: '%s' has the id %d, which another token has too", text,
        token);
  bool is_bytes = tsr_byte_letters_unmap(text, &r->left);
  /* What no bytes are written as can never be in a word: such a token is decoded only. */
  const char *bytes = is_bytes ? r->left.data : text;
  size_t length = is_bytes ? r->left.length : strlen(text);
  subword->texts[token] = tsr_arena_strndup(r->arena, bytes, length);
  subword->lengths[token] = (uint32_t)length;
  if (!is_bytes) return true;
  *tsr_subword_word_slot(subword, bytes, length) = token;
  if (length == 1) subword->byte_tokens[(unsigned char)bytes[0]] = token;
  return true;
}

static bool check_bytes(const reader *r) {
  for (int byte = 0; byte < 256; byte++) {
    bool is_in_utf8 = byte < 0xc0 || (byte > 0xc1 && byte < 0xf5);
    if (is_in_utf8 && r->subword->byte_tokens[byte] < 0)
      return tsr_diag_error(
          r->diags, r->location,
          "model.vocab: no token for the byte 0x%02x: a byte-level BPE is supported with its whole "
          "alphabet of bytes",
          byte);
  }
  return true;
}

static bool read_vocab(reader *r, const cJSON *vocab, const cJSON *added) {
  tsr_subword *subword = r->subword;
  if (!cJSON_IsObject(vocab))
    return tsr_diag_error(
        r->diags, r->location, "model.vocab should be an object of tokens and ids");
  if (!count_ids(r, vocab, added)) return false;
  subword->texts = tsr_arena_array(r->arena, const char *, subword->vocab_size);
  subword->lengths = tsr_arena_array(r->arena, uint32_t, subword->vocab_size);
  subword->special = tsr_arena_array(r->arena, uint8_t, subword->vocab_size);
  uint32_t size = table_size(subword->vocab_size);
  subword->words = tsr_arena_array(r->arena, int32_t, size);
  subword->words_mask = size - 1;
  memset(subword->words, -1, size * sizeof *subword->words);
  memset(subword->byte_tokens, -1, sizeof subword->byte_tokens);
  const cJSON *item;
  cJSON_ArrayForEach(item, vocab) {
    if (!add_token(r, item->string, item->valueint)) return false;
  }
  return check_bytes(r);
}

/* ---- merges ---- */

/* The parts of "a b" or ["a", "b"]. */
static bool merge_parts(reader *r, const cJSON *item, int rank, const char **left, char **right) {
  const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
  if (cJSON_IsString(item)) {
    *left = item->valuestring;
    *right = strchr(item->valuestring, ' ');
    if (*right && !strchr(*right + 1, ' ')) {
      *(*right)++ = 0;
      return true;
    }
  } else if (cJSON_IsString(first) && cJSON_IsString(first->next) && !first->next->next) {
    *left = first->valuestring;
    *right = first->next->valuestring;
    return true;
  }
  return tsr_diag_error(
      r->diags, r->location, "model.merges: merge %d should be \"a b\" or [\"a\", \"b\"]", rank);
}

static int32_t find_part(const reader *r, const char *text, tsr_text *bytes) {
  if (!tsr_byte_letters_unmap(text, bytes)) return -1;
  return *tsr_subword_word_slot(r->subword, bytes->data, bytes->length);
}

static bool add_merge(reader *r, const cJSON *item, int rank) {
  tsr_subword *subword = r->subword;
  const char *left_text = "";
  char *right_text = NULL;
  if (!merge_parts(r, item, rank, &left_text, &right_text)) return false;
  int32_t left = find_part(r, left_text, &r->left), right = find_part(r, right_text, &r->right);
  int32_t made = -1;
  if (left >= 0 && right >= 0) {
    tsr_text_add_bytes(&r->left, r->right.data, r->right.length);
    made = *tsr_subword_word_slot(subword, r->left.data, r->left.length);
  }
  if (made < 0)
    return tsr_diag_error(
        r->diags, r->location, "model.merges: merge %d: '%s%s' is not in the vocabulary", rank,
        left < 0    ? left_text
        : right < 0 ? ""
                    : left_text,
        left < 0 ? "" : right_text);
  tsr_bpe_merge *slot = tsr_bpe_merge_slot(subword->merges, subword->merges_mask, left, right);
  if (slot->made >= 0)
    return tsr_diag_error(
        r->diags, r->location, "model.merges: merge %d, '%s' and '%s', is merge %u again", rank,
        left_text, right_text, slot->rank);
  *slot = (tsr_bpe_merge){left, right, made, (uint32_t)rank};
  return true;
}

static bool read_merges(reader *r, const cJSON *merges) {
  if (!cJSON_IsArray(merges))
    return tsr_diag_error(r->diags, r->location, "model.merges should be a list");
  uint32_t size = table_size(cJSON_GetArraySize(merges));
  r->subword->merges = tsr_arena_array(r->arena, tsr_bpe_merge, size);
  r->subword->merges_mask = size - 1;
  for (uint32_t i = 0; i < size; i++) r->subword->merges[i].made = -1;
  int rank = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, merges) {
    if (!add_merge(r, item, rank++)) return false;
  }
  return true;
}

/* ---- the model, and all ---- */

static bool check_model(const reader *r, const cJSON *model) {
  static const char *const known[] = {
      "type",
      "vocab",
      "merges",
      "ignore_merges",
      "dropout",
      "unk_token",
      "fuse_unk",
      "continuing_subword_prefix",
      "end_of_word_suffix",
      "byte_fallback",
      NULL};
  static const char *const off[] = {
      "dropout",       "unk_token", "fuse_unk", "continuing_subword_prefix", "end_of_word_suffix",
      "byte_fallback", NULL};
  if (!cJSON_IsObject(model))
    return tsr_diag_error(r->diags, r->location, "there is no 'model': this is no tokenizer.json");
  /* Old files have no type; only BPE has merges. */
  const cJSON *type = tsr_json_get(model, "type");
  bool is_bpe = type ? cJSON_IsString(type) && !strcmp(type->valuestring, "BPE")
                     : tsr_json_get(model, "merges") != NULL;
  if (!is_bpe) {
    tsr_diag_error(
        r->diags, r->location, "the model '%s' is not supported",
        cJSON_IsString(type) ? type->valuestring : "");
    tsr_diag_hint(r->diags, "valid: BPE, on bytes");
    return false;
  }
  return tsr_subword_check_keys(model, "model", known, r->subword->file, r->diags) &&
         tsr_subword_check_off(model, "model", off, r->subword->file, r->diags);
}

static bool read_all(reader *r, const cJSON *json) {
  const cJSON *model = tsr_json_get(json, "model"), *added = tsr_json_get(json, "added_tokens");
  if (!check_model(r, model)) return false;
  if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
    return tsr_diag_error(r->diags, r->location, "added_tokens should be a list");
  r->subword->ignores_merges = cJSON_IsTrue(tsr_json_get(model, "ignore_merges"));
  return read_vocab(r, tsr_json_get(model, "vocab"), added) &&
         read_merges(r, tsr_json_get(model, "merges")) &&
         tsr_subword_read_parts(r->arena, json, r->subword, r->diags);
}

bool tsr_subword_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_subword **ret_bpe,
    tsr_diags *diags) {
  static atomic_ullong made;
  tsr_subword *subword = tsr_arena_array(arena, tsr_subword, 1);
  subword->file = tsr_arena_strdup(arena, file);
  subword->serial = ++made;
  reader r = {
      .arena = arena, .subword = subword, .location = {.file = subword->file}, .diags = diags};
  tsr_arena *scratch = tsr_arena_new(); /* of the JSON, which is many times larger */
  cJSON *json;
  bool ok =
      tsr_json_parse(scratch, subword->file, text, length, &json, diags) && read_all(&r, json);
  tsr_arena_free(scratch);
  tsr_text_free(&r.left);
  tsr_text_free(&r.right);
  if (ok) *ret_bpe = subword;
  return ok;
}

bool tsr_subword_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_subword **ret_bpe,
    tsr_diags *diags) {
  tsr_arena *scratch = tsr_arena_new();
  char *text;
  size_t length;
  bool ok = tsr_file_read(scratch, path, FILE_BYTES_MAX, location, &text, &length, diags) &&
            tsr_subword_parse(arena, path, text, length, ret_bpe, diags);
  tsr_arena_free(scratch);
  return ok;
}
