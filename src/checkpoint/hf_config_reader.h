// SPDX-License-Identifier: Apache-2.0
/* Values of config.json, with what they may be. A wrong one is an error, and reading goes on. */
#ifndef TSR_CHECKPOINT_HF_CONFIG_READER_H
#define TSR_CHECKPOINT_HF_CONFIG_READER_H
#include "checkpoint/hf_config.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const char *path;
  const cJSON *root;
  tsr_hf_config *c;
  tsr_diags *diags;
  bool ok;
} reader;

/* A value as a message shows it. */
static inline const char *describe(const reader *r, const cJSON *item) {
  if (cJSON_IsString(item)) return tsr_arena_printf(r->arena, "'%s'", item->valuestring);
  if (cJSON_IsNumber(item)) return tsr_arena_printf(r->arena, "%.15g", item->valuedouble);
  if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
  if (cJSON_IsArray(item)) return "a list";
  return cJSON_IsObject(item) ? "an object" : "null";
}

static inline void
unsupported(reader *r, const char *key, const char *value, const char *supported) {
  r->ok =
      tsr_diag_error(r->diags, TSR_NOWHERE, "'%s': %s %s is not supported", r->path, key, value);
  if (supported) tsr_diag_hint(r->diags, "supported: %s", supported);
}

/* A member; NULL for one that is missing or null: for keys whose class treats them alike. Other
 * keys refuse null, for a class may take a missing key as its default and null as false or none. */
static inline const cJSON *get(const cJSON *object, const char *key) {
  const cJSON *item = tsr_json_get(object, key);
  return cJSON_IsNull(item) ? NULL : item;
}

/* A whole number of at least `least`; `otherwise` -1: it must be there. */
static inline int64_t
whole_in(reader *r, const cJSON *object, const char *key, int64_t otherwise, int64_t least) {
  int64_t value = least;
  if (!tsr_json_get(object, key) && otherwise >= 0) return otherwise;
  if (!tsr_json_int(object, key, r->path, &value, r->diags)) r->ok = false;
  else if (value < least)
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': key '%s' should be at least %" PRId64 ", not %" PRId64,
        r->path, key, least, value);
  return value < least ? least : value;
}

static inline int64_t count_in(reader *r, const cJSON *object, const char *key, int64_t otherwise) {
  return whole_in(r, object, key, otherwise, 1);
}

static inline int64_t count(reader *r, const char *key, int64_t otherwise) {
  return count_in(r, r->root, key, otherwise);
}

/* The same where the class reads null as another value than a missing key. */
static inline int64_t count_or_null(reader *r, const char *key, int64_t missing, int64_t null) {
  return cJSON_IsNull(tsr_json_get(r->root, key)) ? null : count(r, key, missing);
}

/* A number of at least 0; `otherwise` -1: it must be there. */
static inline double number_in(reader *r, const cJSON *object, const char *key, double otherwise) {
  double value = 0;
  if (!tsr_json_get(object, key) && otherwise >= 0) return otherwise;
  if (!tsr_json_double(object, key, r->path, &value, r->diags)) r->ok = false;
  else if (value < 0)
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': key '%s' should be at least 0, not %g", r->path, key, value);
  return value;
}

/* The same above 0. */
static inline double
positive_in(reader *r, const cJSON *object, const char *key, double otherwise) {
  int errors = tsr_diags_errors(r->diags);
  double value = number_in(r, object, key, otherwise);
  if (value > 0 || tsr_diags_errors(r->diags) > errors) return value;
  r->ok = tsr_diag_error(
      r->diags, TSR_NOWHERE, "'%s': key '%s' should be above 0, not %g", r->path, key, value);
  return 1;
}

static inline double number(reader *r, const char *key, double otherwise) {
  return number_in(r, r->root, key, otherwise);
}

static inline bool flag_in(reader *r, const cJSON *object, const char *key, bool otherwise) {
  bool value = otherwise;
  if (tsr_json_get(object, key)) r->ok &= tsr_json_bool(object, key, r->path, &value, r->diags);
  return value;
}

static inline bool flag(reader *r, const char *key, bool otherwise) {
  return flag_in(r, r->root, key, otherwise);
}

/* A switch that the model does not have any other way. */
static inline void fixed(reader *r, const char *key, bool value) {
  bool ok = r->ok;
  if (flag(r, key, value) != value && ok == r->ok)
    unsupported(r, key, value ? "false" : "true", value ? "true" : "false");
}

static inline bool is_text(const cJSON *item, const char *value) {
  return cJSON_IsString(item) && !strcmp(item->valuestring, value);
}

static inline void fixed_text(reader *r, const char *key, const char *value) {
  const cJSON *item = tsr_json_get(r->root, key);
  if (!item || is_text(item, value)) return;
  unsupported(r, key, describe(r, item), tsr_arena_printf(r->arena, "'%s'", value));
}

#endif
