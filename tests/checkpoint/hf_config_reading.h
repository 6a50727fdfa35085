// SPDX-License-Identifier: Apache-2.0
/* What the tests of config.json share: a text of one is read, and what it became is compared. */
#ifndef TSR_TESTS_CHECKPOINT_HF_CONFIG_READING_H
#define TSR_TESTS_CHECKPOINT_HF_CONFIG_READING_H
#include "checkpoint/hf_config.h"
#include "tests/check.h"
#include "tests/printed.h"

static tsr_arena *arena;
static tsr_diags *diags;
static tsr_hf_config last_read;

/* Our YAML, or what is said. */
static const char *read(const char *json) {
  const cJSON *root;
  tsr_text text = {0};
  if (tsr_hf_config_read(arena, "config.json", json, strlen(json), &last_read, &root, diags))
    tsr_hf_config_yaml(&last_read, &text);
  const char *said = printed_diags(arena, diags);
  const char *all = tsr_arena_printf(arena, "%s%s", said, text.data ? text.data : "");
  tsr_text_free(&text);
  return all;
}

#endif
