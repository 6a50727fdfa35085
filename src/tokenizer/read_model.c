// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the model, and the merges of BPE. */
#include "tokenizer/internal.h"
#include <string.h>

/* ---- merges ---- */

typedef struct {
  const tsr_subword_reader *r;
  tsr_text left, right; /* the bytes of a merge's parts, used again and again */
} merge_reader;

/* The parts of "a b" or ["a", "b"]. */
static bool merge_parts(
    const tsr_subword_reader *r, const cJSON *item, int rank, const char **left, char **right) {
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

static int32_t find_part(const tsr_subword *s, const char *text, tsr_text *bytes) {
  bytes->length = 0;
  if (s->model != TSR_MODEL_BPE_BYTES) tsr_text_add_bytes(bytes, text, strlen(text));
  else if (!tsr_byte_letters_unmap(text, bytes)) return -1;
  return tsr_vocabulary_find(s, bytes->data, bytes->length);
}

static bool add_merge(merge_reader *m, const cJSON *item, int rank) {
  const tsr_subword_reader *r = m->r;
  tsr_subword *s = r->subword;
  const char *left_text = "";
  char *right_text = NULL;
  if (!merge_parts(r, item, rank, &left_text, &right_text)) return false;
  int32_t left = find_part(s, left_text, &m->left), right = find_part(s, right_text, &m->right);
  int32_t made = -1;
  if (left >= 0 && right >= 0 && m->right.length >= s->prefix_length) {
    tsr_text_add_bytes(
        &m->left, m->right.data + s->prefix_length, m->right.length - s->prefix_length);
    made = tsr_vocabulary_find(s, m->left.data, m->left.length);
  }
  if (made < 0)
    return tsr_diag_error(
        r->diags, r->location, "model.merges: merge %d: '%s%s' is not in the vocabulary", rank,
        left < 0    ? left_text
        : right < 0 ? ""
                    : left_text,
        left < 0 ? "" : right_text);
  tsr_bpe_merge *slot = tsr_bpe_merge_slot(s->merges, s->merges_mask, left, right);
  if (slot->made >= 0)
    return tsr_diag_error(
        r->diags, r->location, "model.merges: merge %d, '%s' and '%s', is merge %u again", rank,
        left_text, right_text, slot->rank);
  *slot = (tsr_bpe_merge){left, right, made, (uint32_t)rank};
  return true;
}

static bool read_merges(const tsr_subword_reader *r, const cJSON *merges) {
  if (!cJSON_IsArray(merges))
    return tsr_diag_error(r->diags, r->location, "model.merges should be a list");
  uint32_t size = 16;
  while (size < 2 * (uint32_t)cJSON_GetArraySize(merges)) size *= 2;
  r->subword->merges = tsr_arena_array(r->arena, tsr_bpe_merge, size);
  r->subword->merges_mask = size - 1;
  for (uint32_t i = 0; i < size; i++) r->subword->merges[i].made = -1;
  merge_reader m = {.r = r};
  bool ok = true;
  int rank = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, merges) {
    ok = add_merge(&m, item, rank++);
    if (!ok) break;
  }
  tsr_text_free(&m.left);
  tsr_text_free(&m.right);
  return ok;
}

/* ---- models ---- */

/* Dropout leaves merges out at random. */
static bool check_dropout(const tsr_subword_reader *r, const cJSON *model) {
  const cJSON *dropout = tsr_json_get(model, "dropout");
  if (!dropout || cJSON_IsNull(dropout) || (cJSON_IsNumber(dropout) && !dropout->valuedouble))
    return true;
  return tsr_diag_error(
      r->diags, r->location, "model.dropout %.15g is not supported",
      cJSON_IsNumber(dropout) ? dropout->valuedouble : 0.0);
}

static bool read_unknown(const tsr_subword_reader *r, const cJSON *model, bool is_needed) {
  tsr_subword *s = r->subword;
  const cJSON *item = tsr_json_get(model, "unk_token");
  bool is_absent = !item || cJSON_IsNull(item);
  if (is_absent && !is_needed) return true;
  return tsr_json_string(r, model, "unk_token", NULL, &s->unknown_text);
}

static bool read_bpe(const tsr_subword_reader *r, const cJSON *model) {
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
  tsr_subword *s = r->subword;
  s->model = TSR_MODEL_BPE;
  return tsr_json_keys_known(r, model, "model", known) && check_dropout(r, model) &&
         tsr_json_flag(r, model, "ignore_merges", 0, &s->ignores_merges) &&
         tsr_json_flag(r, model, "fuse_unk", 0, &s->fuses_unknown) &&
         tsr_json_flag(r, model, "byte_fallback", 0, &s->falls_back) &&
         read_unknown(r, model, false) &&
         tsr_json_string(r, model, "continuing_subword_prefix", "", &s->prefix) &&
         tsr_json_string(r, model, "end_of_word_suffix", "", &s->suffix);
}

static bool read_unigram(const tsr_subword_reader *r, const cJSON *model) {
  static const char *const known[] = {"type", "vocab", "unk_id", "byte_fallback", NULL};
  tsr_subword *s = r->subword;
  const cJSON *item = tsr_json_get(model, "unk_id");
  int64_t unknown = -1;
  s->model = TSR_MODEL_UNIGRAM;
  if (!tsr_json_keys_known(r, model, "model", known) ||
      !tsr_json_flag(r, model, "byte_fallback", 0, &s->falls_back))
    return false;
  if (item && !cJSON_IsNull(item) && !tsr_json_count(r, model, "unk_id", &unknown)) return false;
  int count = cJSON_GetArraySize(tsr_json_get(model, "vocab"));
  if (unknown >= count)
    return tsr_diag_error(
        r->diags, r->location, "model.unk_id is %lld, and the vocabulary has %d tokens",
        (long long)unknown, count);
  s->unknown = (int32_t)unknown;
  return true;
}

static bool read_wordpiece(const tsr_subword_reader *r, const cJSON *model) {
  static const char *const known[] = {
      "type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", NULL};
  tsr_subword *s = r->subword;
  s->model = TSR_MODEL_WORDPIECE;
  return tsr_json_keys_known(r, model, "model", known) && read_unknown(r, model, true) &&
         tsr_json_string(r, model, "continuing_subword_prefix", NULL, &s->prefix) &&
         tsr_json_count(r, model, "max_input_chars_per_word", &s->word_chars_max);
}

static bool read_wordlevel(const tsr_subword_reader *r, const cJSON *model) {
  static const char *const known[] = {"type", "vocab", "unk_token", NULL};
  r->subword->model = TSR_MODEL_WORDLEVEL;
  return tsr_json_keys_known(r, model, "model", known) && read_unknown(r, model, true);
}

/* Old files have no type: the members tell. */
static const char *type_of_old(const cJSON *model) {
  if (tsr_json_get(model, "merges")) return "BPE";
  if (cJSON_IsArray(tsr_json_get(model, "vocab"))) return "Unigram";
  if (tsr_json_get(model, "max_input_chars_per_word")) return "WordPiece";
  return tsr_json_get(model, "unk_token") ? "WordLevel" : "";
}

static bool read_kind(const tsr_subword_reader *r, const cJSON *model) {
  const char *type = tsr_json_get(model, "type") ? tsr_json_type(model) : type_of_old(model);
  if (!strcmp(type, "BPE")) return read_bpe(r, model);
  if (!strcmp(type, "Unigram")) return read_unigram(r, model);
  if (!strcmp(type, "WordPiece")) return read_wordpiece(r, model);
  if (!strcmp(type, "WordLevel")) return read_wordlevel(r, model);
  return tsr_json_refuse_type(r, model, "model", "BPE, Unigram, WordPiece, WordLevel");
}

bool tsr_subword_model_read(const tsr_subword_reader *r, const cJSON *model, const cJSON *added) {
  tsr_subword *s = r->subword;
  s->unknown = -1;
  s->prefix = s->suffix = "";
  if (!cJSON_IsObject(model))
    return tsr_diag_error(r->diags, r->location, "there is no 'model': this is no tokenizer.json");
  if (!read_kind(r, model)) return false;
  s->prefix_length = strlen(s->prefix);
  s->suffix_length = strlen(s->suffix);
  return tsr_vocabulary_read(r, tsr_json_get(model, "vocab"), added) &&
         ((s->model != TSR_MODEL_BPE && s->model != TSR_MODEL_BPE_BYTES) ||
          read_merges(r, tsr_json_get(model, "merges")));
}
