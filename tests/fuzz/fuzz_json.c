// SPDX-License-Identifier: Apache-2.0
/* Any bytes as JSON: the scanner takes nothing that cJSON does not, and every text of what was read
 * is the same again after it was written. */
#include "base/json.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(tsr_arena *arena, const char *bytes, tsr_diags *diags) {
  tsr_text text = {0};
  cJSON *again;
  tsr_json_add_text(&text, bytes, strlen(bytes));
  bool ok = tsr_json_parse(arena, "again", text.data, text.length, &again, diags);
  assert(ok && !strcmp(again->valuestring, bytes));
  tsr_text_free(&text);
}

static void check_item(tsr_arena *arena, const cJSON *item, tsr_diags *diags) {
  if (cJSON_IsString(item)) check_text(arena, item->valuestring, diags);
  for (const cJSON *child = item->child; child; child = child->next) {
    if (child->string) {
      check_text(arena, child->string, diags);
      assert(tsr_json_get(item, child->string) == child);
    }
    check_item(arena, child, diags);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  cJSON *json;
  if (tsr_json_parse(arena, "fuzz", (const char *)data, size, &json, diags)) {
    assert(tsr_diags_errors(diags) == 0);
    check_item(arena, json, diags);
  }
  char said[4096] = "";
  FILE *stream = fmemopen(said, sizeof said, "w");
  tsr_diags_print(diags, stream);
  fclose(stream);
  assert(strncmp(said, "fuzz: error: cJSON", 18) != 0);
  tsr_arena_free(arena);
  return 0;
}
