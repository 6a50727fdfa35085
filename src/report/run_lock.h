// SPDX-License-Identifier: Apache-2.0
/* run.lock: what fixes a run's bits, where it ran, and a chain of hashes over its steps. A file of
 * report/json_lines.h:
 *
 *   lock    format, note, recipe_hash, policy, recipe (keys and values as in checkpoints), config
 *           (the resolved configuration, a text)
 *   start   step, weights, chain; of what ran from there on: mesh, ranks, processes, threads, isa,
 *           cpu, version, compiler, program (XXH3-128 of its file), config_hash (of the values
 *           of the resolved configuration, config/print.h, which are others where a run resumes
 *           with more steps, say)
 *   step    step, loss, loss_bits, weights, chain
 *
 * `weights` is the hash of all parameters after the step (base/tensor_hash.h), loss_bits the f32
 * loss. The chain is SHA-256 in hexadecimal; at the first start over the lines of text
 * "tessera-train run.lock 1", "KEY=VALUE" for each entry of the recipe, and "STEP WEIGHTS", then
 * at each step over the line before's chain and "STEP LOSS_BITS WEIGHTS". So two runs of one recipe
 * have one chain at a step just if all their steps up to there have the same losses and weights,
 * whatever mesh they ran on. A run that resumes continues the chain of its file; without one it
 * begins a chain at its step. Nothing in the file is signed: it detects faults, not forgery. */
#ifndef TSR_REPORT_RUN_LOCK_H
#define TSR_REPORT_RUN_LOCK_H
#include "base/diag.h"
#include "base/sha256.h"
#include "config/recipe_keys.h"

enum { TSR_RUN_LOCK_FORMAT = 1 };
#define TSR_RUN_LOCK_NAME "run.lock"

typedef struct {
  int64_t step;
  uint32_t loss; /* its bits */
  uint64_t weights;
  char chain[TSR_SHA256_TEXT_BYTES];
} tsr_locked_step;

/* What a part of the run ran on. */
typedef struct {
  int64_t step; /* steps that were done */
  uint64_t weights;
  const char *mesh, *isa, *cpu;
  int64_t ranks, processes, threads;
  const char *version, *compiler, *program;
  const char *config_hash; /* NULL: a version that did not write it */
} tsr_lock_start;

typedef struct {
  const char *path;
  const char *policy; /* "deterministic", or "fast": no bits are promised */
  const char *config, *recipe_hash;
  tsr_recipe_entry *recipe; /* rising by key */
  int recipe_count;
  tsr_lock_start *starts; /* at least one */
  int starts_count;
  tsr_locked_step first; /* of the first start: its loss is 0 */
  tsr_locked_step *steps;
  int64_t steps_count; /* of step first.step + 1, and so on */
} tsr_run_lock;

/* Reads a file, or of a folder its run.lock, and computes the chain again. Errors, with the line:
 * a file of another kind or format, steps that do not follow each other, a chain that is broken. A
 * last line that was not written whole does not count. */
bool tsr_run_lock_read(
    tsr_arena *arena, const char *path, tsr_run_lock *ret_lock, tsr_diags *diags);
/* The same of its lines up to the first of a step behind `step`, whatever comes after them. */
bool tsr_run_lock_read_up_to(
    tsr_arena *arena, const char *path, int64_t step, tsr_run_lock *ret_lock, tsr_diags *diags);

int64_t tsr_run_lock_last(const tsr_run_lock *lock);
/* Step `step` (the first start is one), or NULL. */
const tsr_locked_step *tsr_run_lock_at(const tsr_run_lock *lock, int64_t step);

/* The chain's first link, and the one behind `last`; both set step->chain. */
void tsr_run_lock_begin_chain(
    tsr_arena *arena, const tsr_recipe_entry *recipe, int count, tsr_locked_step *step);
void tsr_run_lock_continue_chain(
    tsr_sha256 *sha, const tsr_locked_step *last, tsr_locked_step *step);

/* What this process runs: cpu, compiler and program; the rest is the caller's. */
void tsr_lock_start_describe(tsr_arena *arena, tsr_lock_start *ret_start);

#endif
