// SPDX-License-Identifier: Apache-2.0
/* A configuration as text on a made-up mesh, and what the rules say of it. */
#ifndef TSR_TESTS_PARALLEL_BENCH_H
#define TSR_TESTS_PARALLEL_BENCH_H
#include "parallel/parallel.h"
#include "tests/check.h"
#include <stdlib.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_config *config;
  tsr_mesh *mesh;
  tsr_parallel *parallel;
  bool good;
} bench;

/* `devices`: the descriptor's dims, ended by 0. */
static inline bench bench_make(const char *yaml, const int *devices) {
  bench b = {.arena = tsr_arena_new()};
  b.diags = tsr_diags_new(b.arena);
  int ndim = 0;
  while (devices[ndim]) ndim++;
  b.mesh = tsr_mesh_make_cpu(b.arena, devices, ndim);
  b.good = tsr_config_parse(
               b.arena, "run.yaml", yaml, strlen(yaml), NULL, 0, false, &b.config, b.diags) &&
           tsr_parallel_make(b.arena, b.config, b.mesh, &b.parallel, b.diags);
  return b;
}

/* What was diagnosed, as printed; free it. */
static inline char *bench_said(bench *b) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(b->diags, stream);
  fclose(stream);
  return text;
}

/* Checks that all words (separated by |) stand in what was said; NULL: nothing may be said. */
static inline void bench_expect(bench *b, const char *yaml, const char *words) {
  char *said = bench_said(b);
  CHECK_AT(b->good == !words || (words && strstr(words, "warning")), "%s\nsaid:\n%s", yaml, said);
  if (!words) {
    CHECK_AT(!*said, "%s\nsaid:\n%s", yaml, said);
  } else {
    char *copy = strdup(words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|")) {
      CHECK_AT(strstr(said, word), "%s\nexpected: %s\nsaid:\n%s", yaml, word, said);
    }
    free(copy);
  }
  free(said);
}

static inline void bench_free(bench *b) { tsr_arena_free(b->arena); }

/* A device_config on one line, as most of these tests need it. */
#define DEVICE(text) "device_config: {" text "}\n"
#define TRAINING(text) "training_config: {" text "}\n"
#define MESH(...) ((const int[]){__VA_ARGS__, 0})

#endif
