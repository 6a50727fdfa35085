// SPDX-License-Identifier: Apache-2.0
/* What the tests of interrupted runs share: one tiny recipe that a mesh, a ZeRO stage, an order,
 * and so on may be drawn for; the program run with a fault and a signal; and what must be true of
 * the folder that it leaves. */
#ifndef TSR_TESTS_FAULTS_RUNNER_H
#define TSR_TESTS_FAULTS_RUNNER_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { WORDS_MAX = 64 };

typedef struct {
  const char *program;
  const char *config;
  const char *scratch; /* a folder of its own */
  tsr_arena *arena;
  uint64_t random; /* the generator's state */
} runner;

/* The words of a command. */
typedef struct {
  const char *items[WORDS_MAX];
  int count;
} words;

typedef struct {
  int status; /* the exit code, or 128 and the signal that ended it */
  double seconds;
  const char *said; /* both streams */
} ending;

uint64_t draw(runner *r, uint64_t below); /* uniform in [0, below); 0 where that is 0 */

/* A folder for many runs, in memory if the machine lends it: what is tested is the order of things
 * before a kill, which needs no slow disk. With run.yaml and its data. NULL: it cannot be made. */
const char *scratch_new(tsr_arena *arena);
void folder_remove(const char *path); /* with all that is in it */

/* Adds a word, printf-like. */
void words_add(runner *r, words *w, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "PROGRAM --config … --out FOLDER" of the recipe. */
words words_run(runner *r, const char *folder);
/* A mesh with settings of all else that must not change the bits. */
void words_mesh(runner *r, words *w);
const char *words_text(runner *r, const words *w, const char *fault);

/* Runs it. `fault` (NULL: none) becomes TESSERA_FAULT. After `after_s` (below 0: never) it gets
 * `signal`. What it says goes to scratch/said. */
ending run(runner *r, const words *w, const char *fault, double after_s, int signal);
/* The same, with the signal when `metrics` has the line of step `step`. */
ending run_until(runner *r, const words *w, const char *metrics, int step, int signal);
/* "done: … weights sha256 …": the 64 digits, or "". */
const char *sha256_of(runner *r, const char *said);

/* The steps of a folder of checkpoints: all that have a committed one's name, and those whose every
 * byte is as it was written. */
typedef struct {
  int named, whole;
  int64_t newest, newest_whole; /* -1: there is none */
} kept;
kept look(const char *checkpoints);

/* Loss and gradient norm of each step as the metrics have them, and how many steps there are.
 * False, with a message, where a step is there twice, is missing or out of order. */
bool read_losses(
    runner *r, const char *metrics, const char *const **ret_losses, int *ret_count,
    const char **ret_wrong);
/* NULL: the file has exactly these steps, each once, with these numbers, and ends with the hash of
 * the weights; else what is wrong. */
const char *compare_losses(
    runner *r, const char *metrics, const char *const *losses, int count, const char *sha256);

#endif
