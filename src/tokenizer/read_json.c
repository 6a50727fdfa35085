// SPDX-License-Identifier: Apache-2.0
/* Members of the objects of a tokenizer.json; what is not known is refused by its name. */
#include "tokenizer/internal.h"
#include <string.h>

bool tsr_json_keys_known(
    const tsr_subword_reader *r, const cJSON *object, const char *where, const char *const *known) {
  int count = 0;
  while (known[count]) count++;
  const cJSON *item;
  cJSON_ArrayForEach(item, object) {
    bool is_known = !item->string; /* of a list: not what is checked here */
    for (int i = 0; i < count && !is_known; i++) is_known = !strcmp(item->string, known[i]);
    if (is_known) continue;
    tsr_diag_error(
        r->diags, r->location, "%s%s%s is not supported", where, where[0] ? "." : "", item->string);
    tsr_diag_nearest(r->diags, item->string, known, count);
    return false;
  }
  return true;
}

bool tsr_json_sequence(
    const tsr_subword_reader *r, const cJSON *object, const char *key, const cJSON **ret_list) {
  const char *const known[] = {"type", key, NULL};
  *ret_list = tsr_json_get(object, key);
  return tsr_json_keys_known(r, object, "Sequence", known) &&
         (cJSON_IsArray(*ret_list) ||
          tsr_diag_error(r->diags, r->location, "'%s' of Sequence should be a list", key));
}

const char *tsr_json_type(const cJSON *object) {
  const cJSON *type = tsr_json_get(object, "type");
  return cJSON_IsString(type) ? type->valuestring : "";
}

bool tsr_json_is_type(const cJSON *object, const char *type) {
  return !strcmp(tsr_json_type(object), type);
}

bool tsr_json_refuse_type(
    const tsr_subword_reader *r, const cJSON *object, const char *what, const char *valid) {
  tsr_diag_error(
      r->diags, r->location, "the %s '%s' is not supported", what, tsr_json_type(object));
  tsr_diag_hint(r->diags, "valid: %s", valid);
  return false;
}

/* How messages name an object: only added tokens have no type. */
static const char *name_of(const cJSON *object) {
  return tsr_json_get(object, "type") ? tsr_json_type(object) : "an added token";
}

bool tsr_json_flag(
    const tsr_subword_reader *r, const cJSON *object, const char *key, int absent, bool *ret) {
  const cJSON *item = tsr_json_get(object, key);
  bool is_absent = !item || cJSON_IsNull(item);
  *ret = is_absent ? absent > 0 : cJSON_IsTrue(item);
  if (is_absent ? absent >= 0 : cJSON_IsBool(item)) return true;
  return tsr_diag_error(
      r->diags, r->location, "'%s' of %s should be true or false", key, name_of(object));
}

bool tsr_json_string(
    const tsr_subword_reader *r, const cJSON *object, const char *key, const char *absent,
    const char **ret) {
  const cJSON *item = tsr_json_get(object, key);
  if (cJSON_IsString(item)) return *ret = tsr_arena_strdup(r->arena, item->valuestring), true;
  *ret = absent;
  if (absent && (!item || cJSON_IsNull(item))) return true;
  return tsr_diag_error(r->diags, r->location, "'%s' of %s should be a text", key, name_of(object));
}

bool tsr_json_count(
    const tsr_subword_reader *r, const cJSON *object, const char *key, int64_t *ret) {
  const cJSON *item = tsr_json_get(object, key);
  double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
  bool ok = value >= 0 && value < 9007199254740992.0 && value == (double)(int64_t)value;
  if (ok) return *ret = (int64_t)value, true;
  return tsr_diag_error(
      r->diags, r->location, "'%s' of %s should be a whole number, at least 0", key,
      name_of(object));
}

bool tsr_json_pattern(const tsr_subword_reader *r, const cJSON *object, tsr_step *ret_step) {
  const cJSON *pattern = tsr_json_get(object, "pattern");
  const cJSON *regex = tsr_json_get(pattern, "Regex"), *plain = tsr_json_get(pattern, "String");
  const cJSON *text = cJSON_IsString(regex) ? regex : plain;
  if (!cJSON_IsString(text))
    return tsr_diag_error(
        r->diags, r->location, "the pattern of %s should be {\"Regex\": …} or {\"String\": …}",
        tsr_json_type(object));
  if (!text->valuestring[0])
    return tsr_diag_error(r->diags, r->location, "%s has an empty pattern", tsr_json_type(object));
  return tsr_pattern_compile(
      r->arena, text->valuestring, text == plain, r->subword->file, &ret_step->pattern, r->diags);
}
