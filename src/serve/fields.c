// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"
#include <math.h>

const cJSON *tsr_field(const tsr_fields *f, const char *key) {
  const cJSON *item = tsr_json_get(f->object, key);
  return cJSON_IsNull(item) ? NULL : item;
}

bool tsr_field_wrong(const tsr_fields *f, const char *key, const char *wanted) {
  return tsr_api_fail(f->error, f->arena, 400, key, NULL, "'%s' should be %s", key, wanted);
}

bool tsr_field_bool(const tsr_fields *f, const char *key, bool *value) {
  const cJSON *item = tsr_field(f, key);
  if (item && !cJSON_IsBool(item)) return tsr_field_wrong(f, key, "true or false");
  if (item) *value = cJSON_IsTrue(item);
  return true;
}

bool tsr_field_int(
    const tsr_fields *f, const char *key, int64_t least, int64_t most, int64_t *value) {
  const cJSON *item = tsr_field(f, key);
  if (!item) return true;
  double number = cJSON_IsNumber(item) ? item->valuedouble : NAN;
  if (!(number >= (double)least && number <= (double)most) || floor(number) != number)
    return tsr_api_fail(
        f->error, f->arena, 400, key, NULL, "'%s' should be a whole number from %lld to %lld", key,
        (long long)least, (long long)most);
  *value = (int64_t)number;
  return true;
}

bool tsr_field_number(
    const tsr_fields *f, const char *key, double least, double most, double *value) {
  const cJSON *item = tsr_field(f, key);
  if (!item) return true;
  double number = cJSON_IsNumber(item) ? item->valuedouble : NAN;
  if (!(number >= least && number <= most))
    return tsr_api_fail(
        f->error, f->arena, 400, key, NULL, "'%s' should be a number from %g to %g", key, least,
        most);
  *value = number;
  return true;
}

bool tsr_field_text(const tsr_fields *f, const char *key, const char **value) {
  const cJSON *item = tsr_field(f, key);
  if (item && !cJSON_IsString(item)) return tsr_field_wrong(f, key, "a string");
  if (item) *value = tsr_arena_strdup(f->arena, item->valuestring);
  return true;
}
