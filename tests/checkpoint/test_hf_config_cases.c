// SPDX-License-Identifier: Apache-2.0
/* config.json with a key missing or null, and with forms of rotary positions: the sizes are those of
 * what transformers' configuration class makes of it (data/hf_config_cases.json, written by
 * scripts/make_hf_config_cases), or the file is refused by name. */
#include "base/file_read.h"
#include "checkpoint/hf_config.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>

static tsr_arena *arena;
static tsr_diags *diags;

/* Our YAML; NULL with what is reported. */
static const char *read(const cJSON *json, const char **ret_said) {
  char *printed = cJSON_PrintUnformatted(json);
  tsr_hf_config config;
  const cJSON *root;
  tsr_text yaml = {0};
  bool ok = tsr_hf_config_read(
      arena, TSR_SOURCE_ROOT "/configs/graphs", "config.json", printed, strlen(printed), &config,
      &root, diags);
  if (ok) tsr_hf_config_yaml(&config, &yaml);
  const char *text = ok ? tsr_arena_strdup(arena, yaml.data) : NULL;
  *ret_said = printed_diags(arena, diags);
  diags = tsr_diags_new(arena);
  tsr_text_free(&yaml);
  free(printed);
  return text;
}

static void set_all(cJSON *json, const cJSON *keys) {
  const cJSON *item;
  cJSON_ArrayForEach(item, keys) {
    cJSON_DeleteItemFromObjectCaseSensitive(json, item->string);
    cJSON_AddItemToObject(json, item->string, cJSON_Duplicate(item, true));
  }
}

/* The class's own form has all of rotary positions in rope_parameters. */
static cJSON *class_form(const char *family, const cJSON *has, const cJSON *becomes) {
  cJSON *json = cJSON_Duplicate(has, true);
  set_all(json, becomes);
  cJSON_AddStringToObject(json, "model_type", family);
  return json;
}

/* Names of keys that the edit touches, for messages. */
static const char *edit_text(const cJSON *one) {
  char *set = cJSON_PrintUnformatted(tsr_json_get(one, "set"));
  char *removed = cJSON_PrintUnformatted(tsr_json_get(one, "remove"));
  const char *text = tsr_arena_printf(arena, "set %s remove %s", set, removed);
  free(set);
  free(removed);
  return text;
}

/* Whether it was read. */
static bool check_case(const cJSON *family, const cJSON *one) {
  const cJSON *becomes = tsr_json_get(one, "becomes"), *key;
  if (cJSON_IsNull(becomes)) return false; /* transformers refuses it */
  cJSON *edited = cJSON_Duplicate(tsr_json_get(family, "config"), true);
  set_all(edited, tsr_json_get(one, "set"));
  cJSON_ArrayForEach(key, tsr_json_get(one, "remove"))
      cJSON_DeleteItemFromObjectCaseSensitive(edited, key->valuestring);
  cJSON *form = class_form(family->string, tsr_json_get(family, "class_has"), becomes);
  const char *said, *class_said, *ours = read(edited, &said), *want = read(form, &class_said);
  bool named = strstr(said, "error: 'config.json': ") != NULL;
  CHECK_AT(
      ours ? want && !strcmp(ours, want) : named, "%s: %s: %s%s, not %s%s", family->string,
      edit_text(one), ours ? ours : "", said, want ? want : "", class_said);
  cJSON_Delete(edited);
  cJSON_Delete(form);
  return ours != NULL;
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  const char *path = TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_config_cases.json";
  char *text;
  size_t length;
  int read_count = 0;
  CHECK(tsr_file_read_regular(arena, path, 1 << 24, TSR_NOWHERE, &text, &length, diags));
  cJSON *families = cJSON_Parse(text);
  const cJSON *family, *one;
  cJSON_ArrayForEach(family, families) {
    const char *said;
    CHECK_AT(read(tsr_json_get(family, "config"), &said), "%s: %s", family->string, said);
    cJSON_ArrayForEach(one, tsr_json_get(family, "cases")) read_count += check_case(family, one);
  }
  CHECK_INT(cJSON_GetArraySize(families), 21);
  CHECK_AT(read_count > 150, "%d files were read", read_count);
  cJSON_Delete(families);
  tsr_arena_free(arena);
  return check_done("hf_config_cases");
}
