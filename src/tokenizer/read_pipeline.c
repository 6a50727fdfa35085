// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: everything but its model. What is not known is refused by its name. */
#include "tokenizer/internal.h"
#include <string.h>

/* GPT-2's, which ByteLevel has in itself. */
static const char GPT2_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct {
  tsr_arena *arena;
  tsr_subword *subword;
  tsr_location location;
  bool has_bytes; /* ByteLevel has come: nothing may follow */
  tsr_diags *diags;
} reader;

/* ---- keys and types ---- */

bool tsr_subword_check_keys(
    const cJSON *object, const char *where, const char *const *known, const char *file,
    tsr_diags *diags) {
  int count = 0;
  while (known[count]) count++;
  const cJSON *item;
  cJSON_ArrayForEach(item, object) {
    bool is_known = false;
    for (int i = 0; i < count; i++) is_known |= !strcmp(item->string, known[i]);
    if (is_known) continue;
    tsr_diag_error(
        diags, (tsr_location){.file = file}, "%s%s%s is not supported", where, where[0] ? "." : "",
        item->string);
    tsr_diag_nearest(diags, item->string, known, count);
    return false;
  }
  return true;
}

bool tsr_subword_check_off(
    const cJSON *object, const char *where, const char *const *keys, const char *file,
    tsr_diags *diags) {
  for (; *keys; keys++) {
    const cJSON *item = tsr_json_get(object, *keys);
    bool is_off = !item || cJSON_IsNull(item) || cJSON_IsFalse(item) ||
                  (cJSON_IsNumber(item) && item->valuedouble == 0) ||
                  (cJSON_IsString(item) && !item->valuestring[0]);
    if (is_off) continue;
    tsr_text value = {0};
    if (cJSON_IsString(item)) tsr_text_add(&value, " '%s'", item->valuestring);
    else if (cJSON_IsNumber(item)) tsr_text_add(&value, " %.15g", item->valuedouble);
    else if (cJSON_IsTrue(item)) tsr_text_add(&value, " true");
    tsr_diag_error(
        diags, (tsr_location){.file = file}, "%s%s%s%s is not supported", where,
        where[0] ? "." : "", *keys, value.data ? value.data : "");
    tsr_text_free(&value);
    return false;
  }
  return true;
}

/* "" where there is none. */
static const char *type_of(const cJSON *object) {
  const cJSON *type = tsr_json_get(object, "type");
  return cJSON_IsString(type) ? type->valuestring : "";
}

static bool is_type(const cJSON *object, const char *type) {
  return !strcmp(type_of(object), type);
}

static bool refuse_type(const reader *r, const cJSON *object, const char *what, const char *valid) {
  tsr_diag_error(r->diags, r->location, "the %s '%s' is not supported", what, type_of(object));
  tsr_diag_hint(r->diags, "valid: %s", valid);
  return false;
}

static bool read_flag(const reader *r, const cJSON *object, const char *key, bool *ret) {
  const cJSON *item = tsr_json_get(object, key);
  *ret = cJSON_IsTrue(item);
  if (cJSON_IsBool(item)) return true;
  return tsr_diag_error(
      r->diags, r->location, "'%s' of %s should be true or false", key,
      tsr_json_get(object, "content") ? "an added token" : type_of(object));
}

/* ---- added tokens ---- */

/* Whether an id that the vocabulary has is the vocabulary's token of this text, and the other way
 * round. */
static bool check_with_vocab(const reader *r, const tsr_added_token *added, tsr_text *bytes) {
  const tsr_subword *subword = r->subword;
  const char *there = subword->texts[added->token];
  uint32_t length = subword->lengths[added->token];
  bool is_bytes = tsr_byte_letters_unmap(added->text, bytes);
  int32_t in_vocab = is_bytes ? *tsr_subword_word_slot(subword, bytes->data, bytes->length) : -1;
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

static bool read_token(const reader *r, const cJSON *item, tsr_added_token *ret) {
  static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                      "rstrip", "normalized", "special",     NULL};
  const char *content = tsr_json_get(item, "content")->valuestring;
  *ret = (tsr_added_token){
      .text = tsr_arena_strdup(r->arena, content),
      .length = strlen(content),
      .token = tsr_json_get(item, "id")->valueint,
  };
  return tsr_subword_check_keys(item, "added_tokens", known, r->subword->file, r->diags) &&
         read_flag(r, item, "single_word", &ret->is_single_word) &&
         read_flag(r, item, "lstrip", &ret->takes_left) &&
         read_flag(r, item, "rstrip", &ret->takes_right) &&
         read_flag(r, item, "normalized", &ret->is_normalized) &&
         read_flag(r, item, "special", &ret->is_special);
}

static bool is_free(const reader *r, const tsr_added_token *added) {
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

static bool read_added(reader *r, const cJSON *list) {
  tsr_subword *subword = r->subword;
  subword->added = tsr_arena_array(r->arena, tsr_added_token, cJSON_GetArraySize(list));
  tsr_text bytes = {0};
  bool ok = true, has_words = false;
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    tsr_added_token added;
    ok = read_token(r, item, &added) && is_free(r, &added) && check_with_vocab(r, &added, &bytes);
    if (!ok) break;
    has_words |= added.is_single_word;
    subword->added[subword->added_count++] = added;
  }
  tsr_text_free(&bytes);
  if (!ok) return false;
  for (int i = 0; i < subword->added_count; i++) {
    const tsr_added_token *added = &subword->added[i];
    subword->texts[added->token] = added->text;
    subword->lengths[added->token] = (uint32_t)added->length;
    subword->special[added->token] = added->is_special;
  }
  if (!tsr_added_tokens_sort(r->arena, subword, r->diags)) return false;
  /* Rust's \w, which is what "single_word" means. */
  static const char word_char[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
  return !has_words ||
         tsr_pattern_compile(
             r->arena, word_char, false, subword->file, &subword->word_char, r->diags);
}

/* ---- normalizer and pre-tokenizer ---- */

/* Of forms behind each other the last decides whether marks are composed, and one that is
 * compatible is enough. `form` is that of those before, or -1. */
static bool read_forms(reader *r, const cJSON *item, int *form) {
  if (!item || cJSON_IsNull(item)) return true;
  if (is_type(item, "Sequence")) {
    const cJSON *inner;
    cJSON_ArrayForEach(inner, tsr_json_get(item, "normalizers")) {
      if (!read_forms(r, inner, form)) return false;
    }
    return true;
  }
  int named = 0;
  while (tsr_normal_form_names[named] && !is_type(item, tsr_normal_form_names[named])) named++;
  if (!tsr_normal_form_names[named])
    return refuse_type(r, item, "normalizer", "none, NFC, NFD, NFKC, NFKD");
  *form = *form < 0 ? named : (*form & TSR_NFKC) | named;
  return true;
}

static bool read_normalizer(reader *r, const cJSON *item) {
  int form = -1;
  if (!read_forms(r, item, &form)) return false;
  if (form >= 0) r->subword->normalizer = tsr_normalizer_new(r->arena, (tsr_normal_form)form);
  return true;
}

static bool add_split(reader *r, const char *text, bool is_plain) {
  tsr_subword *subword = r->subword;
  if (subword->splits_count == TSR_SUBWORD_SPLITS_MAX)
    return tsr_diag_error(
        r->diags, r->location, "the pre-tokenizer has more than %d patterns",
        TSR_SUBWORD_SPLITS_MAX);
  if (!text[0])
    return tsr_diag_error(r->diags, r->location, "the pre-tokenizer Split has an empty pattern");
  tsr_pattern **split = &subword->splits[subword->splits_count];
  if (!tsr_pattern_compile(r->arena, text, is_plain, subword->file, split, r->diags)) return false;
  subword->splits_count++;
  return true;
}

/* Isolated cuts before and behind each match; inverted or not is the same. */
static bool read_split(reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
  const cJSON *behavior = tsr_json_get(item, "behavior"), *pattern = tsr_json_get(item, "pattern");
  const cJSON *regex = tsr_json_get(pattern, "Regex"), *plain = tsr_json_get(pattern, "String");
  if (!tsr_subword_check_keys(item, "Split", known, r->subword->file, r->diags)) return false;
  if (!cJSON_IsString(behavior) || strcmp(behavior->valuestring, "Isolated") != 0) {
    tsr_diag_error(
        r->diags, r->location, "the behavior '%s' of Split is not supported",
        cJSON_IsString(behavior) ? behavior->valuestring : "");
    tsr_diag_hint(r->diags, "valid: Isolated");
    return false;
  }
  if (cJSON_IsString(regex)) return add_split(r, regex->valuestring, false);
  if (cJSON_IsString(plain)) return add_split(r, plain->valuestring, true);
  return tsr_diag_error(
      r->diags, r->location, "the pattern of Split should be {\"Regex\": …} or {\"String\": …}");
}

static bool read_byte_level(reader *r, const cJSON *item) {
  static const char *const known[] = {
      "type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  bool adds_space, uses_regex = true;
  if (!tsr_subword_check_keys(item, "ByteLevel", known, r->subword->file, r->diags) ||
      !read_flag(r, item, "add_prefix_space", &adds_space))
    return false;
  if (tsr_json_get(item, "use_regex") && !read_flag(r, item, "use_regex", &uses_regex))
    return false;
  if (adds_space) r->subword->space_at = r->subword->splits_count;
  r->has_bytes = true;
  return !uses_regex || add_split(r, GPT2_PATTERN, false);
}

static bool read_digits(reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "individual_digits", NULL};
  bool individual;
  return tsr_subword_check_keys(item, "Digits", known, r->subword->file, r->diags) &&
         read_flag(r, item, "individual_digits", &individual) &&
         add_split(r, individual ? "\\p{N}" : "\\p{N}+", false);
}

static bool read_pre_tokenizer(reader *r, const cJSON *item) {
  if (is_type(item, "Sequence")) {
    const cJSON *inner;
    cJSON_ArrayForEach(inner, tsr_json_get(item, "pretokenizers")) {
      if (!read_pre_tokenizer(r, inner)) return false;
    }
    return true;
  }
  if (r->has_bytes)
    return tsr_diag_error(
        r->diags, r->location,
        "the pre-tokenizer '%s' stands behind ByteLevel, which is not supported", type_of(item));
  if (is_type(item, "ByteLevel")) return read_byte_level(r, item);
  if (is_type(item, "Split")) return read_split(r, item);
  if (is_type(item, "Digits")) return read_digits(r, item);
  return refuse_type(r, item, "pre-tokenizer", "ByteLevel, Split, Digits, a Sequence of them");
}

static bool read_splits(reader *r, const cJSON *item) {
  r->subword->space_at = -1;
  if (item && !cJSON_IsNull(item) && !read_pre_tokenizer(r, item)) return false;
  if (r->has_bytes) return true;
  return tsr_diag_error(
      r->diags, r->location,
      "the pre-tokenizer does not end in ByteLevel: this is no byte-level BPE");
}

/* ---- post-processor, decoder, and all ---- */

/* Appends the ids of a template's special token. */
static bool
add_special(reader *r, const cJSON *specials, const cJSON *id, int32_t *tokens, int *count) {
  const char *name = cJSON_IsString(id) ? id->valuestring : "";
  const cJSON *ids = tsr_json_get(tsr_json_get(specials, name), "ids"), *item;
  cJSON_ArrayForEach(item, ids) {
    bool ok = cJSON_IsNumber(item) && item->valuedouble >= 0 &&
              item->valuedouble < r->subword->vocab_size && item->valuedouble == item->valueint;
    if (!ok)
      return tsr_diag_error(
          r->diags, r->location,
          "TemplateProcessing: an id of '%s' is outside the vocabulary of %d", name,
          r->subword->vocab_size);
    tokens[(*count)++] = item->valueint;
  }
  if (cJSON_GetArraySize(ids)) return true;
  return tsr_diag_error(r->diags, r->location, "TemplateProcessing: '%s' has no ids", name);
}

static int ids_count(const cJSON *specials) {
  int count = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, specials) count += cJSON_GetArraySize(tsr_json_get(item, "ids"));
  return count;
}

static bool read_template(reader *r, const cJSON *item) {
  tsr_subword *subword = r->subword;
  const cJSON *single = tsr_json_get(item, "single"), *part;
  const cJSON *specials = tsr_json_get(item, "special_tokens");
  int room = ids_count(specials) * (cJSON_GetArraySize(single) + 1);
  int texts = 0;
  if (subword->before)
    return tsr_diag_error(r->diags, r->location, "a second TemplateProcessing is not supported");
  subword->before = tsr_arena_array(r->arena, int32_t, room);
  subword->behind = tsr_arena_array(r->arena, int32_t, room);
  cJSON_ArrayForEach(part, single) {
    const cJSON *special = tsr_json_get(part, "SpecialToken");
    int32_t *to = texts ? subword->behind : subword->before;
    int *count = texts ? &subword->behind_count : &subword->before_count;
    if (!special) texts += tsr_json_get(part, "Sequence") != NULL;
    else if (!add_special(r, specials, tsr_json_get(special, "id"), to, count)) return false;
  }
  if (texts == 1) return true;
  return tsr_diag_error(
      r->diags, r->location, "TemplateProcessing: 'single' has the text %d times, not once", texts);
}

static bool read_post_processor(reader *r, const cJSON *item) {
  if (!item || cJSON_IsNull(item) || is_type(item, "ByteLevel")) return true;
  if (is_type(item, "TemplateProcessing")) return read_template(r, item);
  if (!is_type(item, "Sequence"))
    return refuse_type(
        r, item, "post-processor", "ByteLevel, TemplateProcessing, a Sequence of them");
  const cJSON *inner;
  cJSON_ArrayForEach(inner, tsr_json_get(item, "processors")) {
    if (!read_post_processor(r, inner)) return false;
  }
  return true;
}

bool tsr_subword_read_parts(
    tsr_arena *arena, const cJSON *json, tsr_subword *subword, tsr_diags *diags) {
  static const char *const known[] = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
  reader r = {
      .arena = arena, .subword = subword, .location = {.file = subword->file}, .diags = diags};
  const cJSON *decoder = tsr_json_get(json, "decoder");
  /* truncation and padding are of batches for a model; texts are encoded whole here */
  if (!tsr_subword_check_keys(json, "", known, subword->file, diags)) return false;
  if (decoder && !cJSON_IsNull(decoder) && !is_type(decoder, "ByteLevel"))
    return refuse_type(&r, decoder, "decoder", "ByteLevel");
  return read_normalizer(&r, tsr_json_get(json, "normalizer")) &&
         read_splits(&r, tsr_json_get(json, "pre_tokenizer")) &&
         read_added(&r, tsr_json_get(json, "added_tokens")) &&
         read_post_processor(&r, tsr_json_get(json, "post_processor"));
}
