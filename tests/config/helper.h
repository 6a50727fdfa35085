// SPDX-License-Identifier: Apache-2.0
/* A configuration from a text in the test, and what was said about it. */
#ifndef TSR_TESTS_CONFIG_HELPER_H
#define TSR_TESTS_CONFIG_HELPER_H
#include "config/config.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_config *config;
  bool ok;
  char *said; /* the printed diagnostics */
} loaded;

enum { SETS_MAX = 16 };

static inline loaded load_with(const char *text, const char *const *texts, int count) {
  tsr_set sets[SETS_MAX] = {0};
  for (int i = 0; i < count && i < SETS_MAX; i++) sets[i].text = texts[i];
  loaded l = {.arena = tsr_arena_new()};
  l.diags = tsr_diags_new(l.arena);
  l.ok = tsr_config_parse(
      l.arena, "run.yaml", text, strlen(text), sets, count, true, &l.config, l.diags);
  l.said = printed_diags(l.arena, l.diags);
  return l;
}

static inline loaded load(const char *text) { return load_with(text, NULL, 0); }

static inline void unload(loaded *l) { tsr_arena_free(l->arena); }

/* The text is refused, or accepted with warnings, with exactly these words. */
#define CHECK_SAID(text, want_ok, want_words)                                                      \
  do {                                                                                             \
    loaded said_ = load(text);                                                                     \
    CHECK_INT(said_.ok, want_ok);                                                                  \
    CHECK_STR(said_.said, want_words);                                                             \
    unload(&said_);                                                                                \
  } while (0)

/* The text is accepted silently and gives the value. */
#define CHECK_VALUE(text, member, want)                                                            \
  do {                                                                                             \
    loaded value_ = load(text);                                                                    \
    CHECK_STR(value_.said, "");                                                                    \
    CHECK_NEAR((double)value_.config->member, (double)(want), 0);                                  \
    unload(&value_);                                                                               \
  } while (0)

#endif
