// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the post-processor, of which the tokens before and behind a text count. */
#include "tokenizer/internal.h"

static bool
check_id(const tsr_subword_reader *r, const cJSON *id, const char *type, const char *name) {
  bool ok = cJSON_IsNumber(id) && id->valuedouble >= 0 &&
            id->valuedouble < r->subword->vocab_size && id->valuedouble == id->valueint;
  if (ok) return true;
  return tsr_diag_error(
      r->diags, r->location, "%s: an id of '%s' is outside the vocabulary of %d", type, name,
      r->subword->vocab_size);
}

static void append(const tsr_subword_reader *r, tsr_token_row *row, int32_t token) {
  tsr_arena_grow(r->arena, (void **)&row->tokens, sizeof *row->tokens, row->count, &row->capacity);
  row->tokens[row->count++] = token;
}

/* What one processor adds stands outside of what those before it have added. */
static void wrap(const tsr_subword_reader *r, tsr_token_row before, const tsr_token_row *behind) {
  tsr_subword *s = r->subword;
  for (int i = 0; i < s->before.count; i++) append(r, &before, s->before.tokens[i]);
  s->before = before;
  for (int i = 0; i < behind->count; i++) append(r, &s->behind, behind->tokens[i]);
}

/* Appends the ids of a template's special token. */
static bool add_special(
    const tsr_subword_reader *r, const cJSON *specials, const cJSON *id, tsr_token_row *row) {
  const char *name = cJSON_IsString(id) ? id->valuestring : "";
  const cJSON *ids = tsr_json_get(tsr_json_get(specials, name), "ids"), *item;
  cJSON_ArrayForEach(item, ids) {
    if (!check_id(r, item, "TemplateProcessing", name)) return false;
    append(r, row, item->valueint);
  }
  if (cJSON_GetArraySize(ids)) return true;
  return tsr_diag_error(r->diags, r->location, "TemplateProcessing: '%s' has no ids", name);
}

static bool read_template(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
  const cJSON *specials = tsr_json_get(item, "special_tokens"), *part;
  tsr_token_row rows[2] = {0}; /* before and behind */
  int texts = 0;
  if (!tsr_json_keys_known(r, item, "TemplateProcessing", known)) return false;
  cJSON_ArrayForEach(part, tsr_json_get(item, "single")) {
    const cJSON *special = tsr_json_get(part, "SpecialToken");
    if (special) {
      if (!add_special(r, specials, tsr_json_get(special, "id"), &rows[texts > 0])) return false;
    } else if (tsr_json_get(part, "Sequence")) {
      texts++;
    } else {
      return tsr_diag_error(
          r->diags, r->location,
          "TemplateProcessing: an item of 'single' has neither SpecialToken nor Sequence");
    }
  }
  if (texts == 1) return wrap(r, rows[0], &rows[1]), true;
  return tsr_diag_error(
      r->diags, r->location, "TemplateProcessing: 'single' has the text %d times, not once", texts);
}

/* BERT's [CLS] … [SEP] and RoBERTa's <s> … </s>. */
static bool read_pair(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "sep", "cls", "trim_offsets", "add_prefix_space",
                                      NULL};
  static const char *const keys[2] = {"cls", "sep"};
  const char *type = tsr_json_type(item);
  tsr_token_row rows[2] = {0};
  if (!tsr_json_keys_known(r, item, type, known)) return false;
  for (int i = 0; i < 2; i++) {
    const cJSON *pair = tsr_json_get(item, keys[i]), *id = cJSON_GetArrayItem(pair, 1);
    if (!cJSON_IsArray(pair) || !id || id->next)
      return tsr_diag_error(
          r->diags, r->location, "'%s' of %s should be [token, id]", keys[i], type);
    if (!check_id(r, id, type, keys[i])) return false;
    append(r, &rows[i], id->valueint);
  }
  return wrap(r, rows[0], &rows[1]), true;
}

/* It only moves where tokens begin for the package: what it has is checked, and not used. */
static bool read_byte_level(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {
      "type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  bool unused;
  return tsr_json_keys_known(r, item, "ByteLevel", known) &&
         tsr_json_flag(r, item, "add_prefix_space", 1, &unused) &&
         tsr_json_flag(r, item, "trim_offsets", 1, &unused) &&
         tsr_json_flag(r, item, "use_regex", 1, &unused);
}

bool tsr_post_processor_read(const tsr_subword_reader *r, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return true;
  if (tsr_json_is_type(item, "ByteLevel")) return read_byte_level(r, item);
  if (tsr_json_is_type(item, "TemplateProcessing")) return read_template(r, item);
  if (tsr_json_is_type(item, "BertProcessing") || tsr_json_is_type(item, "RobertaProcessing"))
    return read_pair(r, item);
  if (!tsr_json_is_type(item, "Sequence"))
    return tsr_json_refuse_type(
        r, item, "post-processor",
        "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, a Sequence of them");
  const cJSON *list, *inner;
  if (!tsr_json_sequence(r, item, "processors", &list)) return false;
  cJSON_ArrayForEach(inner, list) {
    if (!tsr_post_processor_read(r, inner)) return false;
  }
  return true;
}
