// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "base/json_scan.h"
#include "base/memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cJSON's allocator takes no argument and is the whole process', so the arena of the parse that
 * runs in this thread stands here: a checkpoint's thread parses while the step loop makes JSON. */
static _Thread_local tsr_arena *parsing;

static void *alloc_somewhere(size_t size) {
  return parsing ? tsr_arena_alloc(parsing, size) : tsr_memory_new(size);
}
static void free_somewhere(void *memory) {
  if (!parsing) free(memory);
}
__attribute__((constructor)) static void take_hooks(void) {
  cJSON_InitHooks(&(cJSON_Hooks){alloc_somewhere, free_somewhere});
}

static tsr_location place_of(const char *file, const char *text, size_t offset) {
  tsr_location location = {.file = file, .line = 1, .col = 1};
  const char *line = text;
  for (const char *at; (at = memchr(line, '\n', (size_t)(text + offset - line))); line = at + 1)
    location.line++;
  location.col = (int)(text + offset - line) + 1;
  return location;
}

bool tsr_json_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, cJSON **ret_json,
    tsr_diags *diags) {
  tsr_json_fault fault;
  if (!tsr_json_scan(arena, text, length, &fault)) {
    tsr_diags_source(diags, file, text, length);
    tsr_diag_error(diags, place_of(file, text, fault.offset), "%s", fault.message);
    tsr_location first = place_of(file, text, fault.has_first ? fault.first : 0);
    if (fault.has_first)
      tsr_diag_hint(diags, "the first one stands in line %d, column %d", first.line, first.col);
    return false;
  }
  parsing = arena;
  *ret_json = cJSON_ParseWithLength(text, length);
  parsing = NULL;
  if (*ret_json) return true;
  return tsr_diag_error(diags, (tsr_location){.file = file}, "cJSON cannot read this JSON");
}

const cJSON *tsr_json_get(const cJSON *object, const char *key) {
  return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

static const char *describe(const cJSON *item) {
  if (cJSON_IsNumber(item)) return "a number";
  if (cJSON_IsString(item)) return "a string";
  if (cJSON_IsBool(item)) return "true or false";
  if (cJSON_IsArray(item)) return "a list";
  return cJSON_IsObject(item) ? "an object" : "null";
}

bool tsr_json_wrong(
    const cJSON *item, const char *key, const char *file, const char *wanted, tsr_diags *diags) {
  if (!item) return tsr_diag_error(diags, TSR_NOWHERE, "'%s': key '%s' is missing", file, key);
  if (cJSON_IsNumber(item))
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': key '%s' should be %s, not %.17g", file, key, wanted,
        item->valuedouble);
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s': key '%s' should be %s, not %s", file, key, wanted, describe(item));
}

bool tsr_json_text(
    const cJSON *object, const char *key, const char *file, const char **ret_text,
    tsr_diags *diags) {
  const cJSON *item = tsr_json_get(object, key);
  if (!cJSON_IsString(item)) return tsr_json_wrong(item, key, file, "a string", diags);
  *ret_text = item->valuestring;
  return true;
}

bool tsr_json_int(
    const cJSON *object, const char *key, const char *file, int64_t *ret_value, tsr_diags *diags) {
  const cJSON *item = tsr_json_get(object, key);
  const double limit = 9007199254740992.0; /* 2^53: above, doubles are not every whole number */
  bool ok = cJSON_IsNumber(item) && floor(item->valuedouble) == item->valuedouble &&
            fabs(item->valuedouble) <= limit;
  if (!ok) return tsr_json_wrong(item, key, file, "a whole number", diags);
  *ret_value = (int64_t)item->valuedouble;
  return true;
}

bool tsr_json_double(
    const cJSON *object, const char *key, const char *file, double *ret_value, tsr_diags *diags) {
  const cJSON *item = tsr_json_get(object, key);
  if (!cJSON_IsNumber(item)) return tsr_json_wrong(item, key, file, "a number", diags);
  *ret_value = item->valuedouble;
  return true;
}

bool tsr_json_bool(
    const cJSON *object, const char *key, const char *file, bool *ret_value, tsr_diags *diags) {
  const cJSON *item = tsr_json_get(object, key);
  if (!cJSON_IsBool(item)) return tsr_json_wrong(item, key, file, "true or false", diags);
  *ret_value = cJSON_IsTrue(item);
  return true;
}

/* One character that JSON requires to be escaped. */
static void add_escape(tsr_text *text, unsigned char c) {
  static const char codes[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
  const char *found = memchr(codes, c, sizeof codes - 1);
  if (found) tsr_text_add(text, "\\%c", names[found - codes]);
  else tsr_text_add(text, "\\u%04x", c);
}

void tsr_json_add_text(tsr_text *text, const char *bytes, size_t length) {
  const char *at = bytes, *end = bytes + length;
  tsr_text_add_bytes(text, "\"", 1);
  while (at < end) {
    const char *run = at; /* what may stand as it is */
    int count = 0;
    while (at < end && (unsigned char)*at >= 0x20 && *at != '"' && *at != '\\' &&
           (count = tsr_json_utf8(at, (size_t)(end - at))) > 0)
      at += count;
    tsr_text_add_bytes(text, run, (size_t)(at - run));
    if (at == end) break;
    if ((unsigned char)*at >= 0x80) tsr_text_add_bytes(text, "\xef\xbf\xbd", 3);
    else add_escape(text, (unsigned char)*at);
    at++;
  }
  tsr_text_add_bytes(text, "\"", 1);
}
