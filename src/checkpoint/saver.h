// SPDX-License-Identifier: Apache-2.0
/* A run's checkpoints while it trains. At a step's end a copy of what the ranks hold is taken; a
 * thread writes it to the disk beside the next steps, slowly enough that they do not feel it, and
 * at full speed when somebody waits for it. What fails costs that checkpoint alone.
 *
 * Memory: the copy, which is allocated once (as many bytes as a checkpoint has), and some megabytes
 * to write with. */
#ifndef TSR_CHECKPOINT_SAVER_H
#define TSR_CHECKPOINT_SAVER_H
#include "checkpoint/manifest.h"
#include "runtime/process.h"

/* A small file that goes along in every checkpoint. */
typedef struct {
  const char *name, *bytes;
  size_t length;
} tsr_side_file;

typedef struct {
  const char *folder; /* of the run's checkpoints */
  int64_t keep_last, keep_every;
  const char *tag;        /* NULL: none */
  bool optimizer;         /* false: weights alone */
  bool background;        /* false: tsr_saver_take returns when all is on the disk */
  int process, processes; /* of the run; each writes what it holds, and process 0 commits */
  double
      timeout_s; /* that processes wait for each other's disks while nothing comes to them; 0: for
                       ever */
  const char *mesh, *isa, *version; /* for the manifest */
  const tsr_recipe_entry *recipe;
  int recipe_count;
  const char *config; /* the text of config.yaml */
  /* The tokenizer's file: its name in the checkpoint (NULL: none), and either its bytes or where it
   * is copied from. */
  const char *tokenizer, *tokenizer_bytes, *tokenizer_from;
  size_t tokenizer_length;
  const tsr_side_file *sides;
  int sides_count;
} tsr_saver_options;

typedef struct tsr_saver tsr_saver;

/* The losses and gradient norms of steps 1 … state.step; NaN where there is none. */
typedef struct {
  const float *loss, *norm;
} tsr_saver_history;

/* For a folder that this run holds. Allocates the copy (with a warning it does without where there
 * is not enough), and plans the files: each distinct part of a parameter that is not frozen, or of
 * state, goes to the file of the first rank that holds it. */
bool tsr_saver_open(
    tsr_arena *arena, tsr_executable *executable, const tsr_saver_options *options,
    tsr_saver **ret_saver, tsr_diags *diags);

int64_t tsr_saver_bytes(const tsr_saver *saver); /* of a checkpoint's tensors, and of the copy */

/* Called by all processes after the same step. Waits until the one before is done (at full speed
 * from then on), and copies. What went wrong with the one before, or with this one where it is not
 * written in the background, comes as warnings; false when no copy could be taken, or when the one
 * before does not come to its end. */
bool tsr_saver_take(
    tsr_saver *saver, const tsr_run_state *state, tsr_saver_history history, tsr_diags *diags);

/* Waits for the last one, at full speed, and for those of all other processes, which call it as
 * well: as long as any of their disks does something, however long that takes. False if it failed,
 * with warnings. */
bool tsr_saver_wait(tsr_saver *saver, tsr_diags *diags);
/* What has gone wrong since the last call of any of these functions, as warnings, without waiting.
 */
void tsr_saver_report(tsr_saver *saver, tsr_diags *diags);
/* Why the last write that failed did; "": none has. */
const char *tsr_saver_reason(const tsr_saver *saver);
bool tsr_saver_is_busy(tsr_saver *saver);   /* a checkpoint is being written */
double tsr_saver_seconds(tsr_saver *saver); /* that a write at full speed takes, about */

/* Waits, and ends the thread. NULL is fine. */
void tsr_saver_close(tsr_saver *saver);

#endif
