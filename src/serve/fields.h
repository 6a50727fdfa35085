// SPDX-License-Identifier: Apache-2.0
/* The keys of a request's JSON object. A key that is missing or null leaves the value as it is; one
 * of another type, or outside the bounds, is the error 400 with its name as `param`. */
#ifndef TSR_SERVE_FIELDS_H
#define TSR_SERVE_FIELDS_H
#include "base/json.h"
#include "serve/api_error.h"

typedef struct {
  tsr_arena *arena; /* of what outlasts the JSON: messages and texts */
  const cJSON *object;
  tsr_api_error *error;
} tsr_fields;

/* NULL: missing or null. */
const cJSON *tsr_field(const tsr_fields *fields, const char *key);
bool tsr_field_wrong(const tsr_fields *fields, const char *key, const char *wanted);
bool tsr_field_bool(const tsr_fields *fields, const char *key, bool *value);
bool tsr_field_int(
    const tsr_fields *fields, const char *key, int64_t least, int64_t most, int64_t *value);
/* Within [least, most]. */
bool tsr_field_number(
    const tsr_fields *fields, const char *key, double least, double most, double *value);
/* The text lives in the arena. */
bool tsr_field_text(const tsr_fields *fields, const char *key, const char **value);

#endif
