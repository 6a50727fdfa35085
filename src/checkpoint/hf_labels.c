// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_labels.h"
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

tsr_hf_labels tsr_hf_labels_default(tsr_arena *arena, int count) {
  tsr_hf_labels labels = {tsr_arena_array(arena, const char *, count + 1), count};
  for (int i = 0; i < count; i++) labels.names[i] = tsr_arena_printf(arena, "LABEL_%d", i);
  return labels;
}

/* The number that a key is; -1: none below `count`. */
static int number_of(const char *key, int count) {
  size_t digits = strspn(key, "0123456789");
  if (!digits || digits > DIGITS_MAX || key[digits] || (key[0] == '0' && digits > 1)) return -1;
  int number = (int)strtol(key, NULL, 10);
  return number < count ? number : -1;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *find_twice(tsr_arena *arena, const tsr_hf_labels *labels) {
  const char **sorted = tsr_arena_array(arena, const char *, labels->count + 1);
  for (int i = 0; i < labels->count; i++) sorted[i] = labels->names[i];
  qsort(sorted, (size_t)labels->count, sizeof *sorted, by_text);
  for (int i = 1; i < labels->count; i++)
    if (!strcmp(sorted[i - 1], sorted[i])) return sorted[i];
  return NULL;
}

bool tsr_hf_labels_read(
    tsr_arena *arena, const char *path, const char *name, const cJSON *item, tsr_hf_labels *ret,
    tsr_diags *diags) {
  const cJSON *one;
  if (!cJSON_IsObject(item))
    return tsr_json_wrong(item, name, path, "an object of numbers and names", diags);
  int count = cJSON_GetArraySize(item);
  *ret = (tsr_hf_labels){tsr_arena_array(arena, const char *, count + 1), count};
  cJSON_ArrayForEach(one, item) {
    int number = number_of(one->string, count);
    if (number < 0 || ret->names[number])
      return tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': %s has the key '%s', and should have each number from 0 to %d",
          path, name, one->string, count - 1);
    if (!cJSON_IsString(one) || !*one->valuestring)
      return tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': %s has no name for '%s'", path, name, one->string);
    ret->names[number] = one->valuestring;
  }
  const char *twice = find_twice(arena, ret);
  return !twice || tsr_diag_error(diags, TSR_NOWHERE, "'%s': %s has '%s' twice", path, name, twice);
}

bool tsr_hf_labels_are_inverse(const tsr_hf_labels *labels, const cJSON *label2id) {
  if (!cJSON_IsObject(label2id) || cJSON_GetArraySize(label2id) != labels->count) return false;
  for (int i = 0; i < labels->count; i++) {
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(label2id, labels->names[i]);
    if (!cJSON_IsNumber(id) || id->valuedouble != i) return false;
  }
  return true;
}

/* ---- as JSON ---- */

static void add_name(const tsr_hf_labels *labels, int number, tsr_text *text) {
  tsr_json_add_text(text, labels->names[number], strlen(labels->names[number]));
}

static const char *take(tsr_arena *arena, tsr_text *text) {
  const char *copy = tsr_arena_strndup(arena, text->data, text->length);
  tsr_text_free(text);
  return copy;
}

const char *tsr_hf_labels_json(tsr_arena *arena, const tsr_hf_labels *labels) {
  tsr_text text = {0};
  tsr_text_add(&text, "{");
  for (int i = 0; i < labels->count; i++) {
    tsr_text_add(&text, "%s\n    \"%d\": ", i ? "," : "", i);
    add_name(labels, i, &text);
  }
  tsr_text_add(&text, "\n  }");
  return take(arena, &text);
}

const char *tsr_hf_label_ids_json(tsr_arena *arena, const tsr_hf_labels *labels) {
  tsr_text text = {0};
  tsr_text_add(&text, "{");
  for (int i = 0; i < labels->count; i++) {
    tsr_text_add(&text, "%s\n    ", i ? "," : "");
    add_name(labels, i, &text);
    tsr_text_add(&text, ": %d", i);
  }
  tsr_text_add(&text, "\n  }");
  return take(arena, &text);
}
