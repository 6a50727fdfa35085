// SPDX-License-Identifier: Apache-2.0
/* Strict JSON (RFC 8259) over cJSON, which by itself takes duplicate keys, control characters,
 * invalid UTF-8, leading zeros and bytes behind the end.
 *
 * A text is first checked as a whole, with errors at its line and column; then cJSON reads it, into
 * the arena: nothing is freed. cJSON's numbers are doubles, so whole numbers are exact up to 2^53;
 * what may be larger is written as a string. */
#ifndef TSR_BASE_JSON_H
#define TSR_BASE_JSON_H
#include "base/diag.h"
#include "base/text.h"
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

enum { TSR_JSON_DEPTH_MAX = 128 };

/* `file` is what errors name; the text need not end in a NUL. Errors: anything that RFC 8259 has no
 * place for, the same key twice in an object, "\u0000" (C strings end there), a lone surrogate,
 * invalid UTF-8, a number too large for a double, more than TSR_JSON_DEPTH_MAX levels. Not
 * thread-safe: cJSON's allocator is global. */
bool tsr_json_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, cJSON **ret_json,
    tsr_diags *diags);

/* A member of an object by its exact name, or NULL; NULL for what is no object. Linear in its
 * members. */
const cJSON *tsr_json_get(const cJSON *object, const char *key);

/* The same with a type; a member that is missing or of another type is the error
 * "key 'x' …" at `file`, e.g. "'config.json': key 'num_heads' should be a whole number, not a
 * string". A whole number is one without fraction in [-2^53, 2^53]. */
bool tsr_json_text(
    const cJSON *object, const char *key, const char *file, const char **ret_text,
    tsr_diags *diags);
bool tsr_json_int(
    const cJSON *object, const char *key, const char *file, int64_t *ret_value, tsr_diags *diags);
bool tsr_json_double(
    const cJSON *object, const char *key, const char *file, double *ret_value, tsr_diags *diags);
bool tsr_json_bool(
    const cJSON *object, const char *key, const char *file, bool *ret_value, tsr_diags *diags);

/* That error, of an item that is missing (NULL) or not what is wanted. Returns false. */
bool tsr_json_wrong(
    const cJSON *item, const char *key, const char *file, const char *wanted, tsr_diags *diags);

/* Appends a string in quotes, with the escapes that JSON requires; bytes that are no UTF-8 become
 * U+FFFD. */
void tsr_json_add_text(tsr_text *text, const char *bytes, size_t length);

#endif
