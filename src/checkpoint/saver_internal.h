// SPDX-License-Identifier: Apache-2.0
/* What the step loop's side of a run's checkpoints (saver.c) and the thread that writes them
 * (saver_thread.c) share. */
#ifndef TSR_CHECKPOINT_SAVER_INTERNAL_H
#define TSR_CHECKPOINT_SAVER_INTERNAL_H
#include "checkpoint/folder.h"
#include "checkpoint/folder_writer.h"
#include "checkpoint/saver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* A part of a value on its way from a rank to a file. */
typedef struct {
  const tsr_device *device;
  const char *memory;  /* the rank's on it, in runs */
  int64_t run, stride; /* bytes */
  int64_t bytes, at;   /* at: in the copy */
} tsr_saver_source;

/* The pieces of one file. */
typedef struct {
  char name[32];
  tsr_checkpoint_writer_piece *pieces;
  tsr_saver_source *sources;
  int count, capacity, sources_capacity;
} tsr_saver_file;

struct tsr_saver {
  tsr_arena *arena;
  tsr_saver_options options;
  tsr_executable *executable;
  struct tsr_pool *pool; /* the process's */
  tsr_saver_file *files;
  int files_count;
  int64_t bytes;
  bool waits; /* for the disk: nothing is written beside the steps */
  char *copy; /* NULL: it is written from the ranks' memory */
  /* what is to be written */
  tsr_run_state state;
  float *history; /* losses, then norms */
  /* the thread; all below under `mutex` but atomics */
  pthread_t thread;
  bool has_thread;
  bool again;                 /* there was one of the same step */
  tsr_checkpoint_steps known; /* what was in the folder at the begin, and what was written since */
  int known_capacity;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool busy, ends;
  atomic_bool hurry;
  atomic_bool stale;      /* what is written is not of that step any more */
  char *trouble;          /* what went wrong and was not reported yet, or NULL */
  char reason[256];       /* of the last one that failed */
  bool failed;            /* the last one */
  double seconds, rested; /* of the last write; of them idle */
  double share;           /* of its time that the thread works, unless it must hurry */
  double worked;          /* CPU seconds at the last pause */
};

/* ---- saver_thread.c ---- */

void *tsr_saver_run_thread(void *saver);
/* Writes the saver's content, prunes, and reports the outcome. */
void tsr_saver_write(tsr_saver *saver);
/* Notes what is in the folder at the begin. */
bool tsr_saver_find(tsr_saver *saver, tsr_diags *diags);
/* Makes the folder that all processes write into; gives one that it replaces its name back. */
bool tsr_saver_prepare(tsr_saver *saver, tsr_arena *arena, tsr_diags *diags);
void tsr_saver_clear_aside(tsr_saver *saver, tsr_arena *arena, tsr_diags *diags);
/* So many seconds from now, for waits on saver->changed. */
struct timespec tsr_saver_until(double seconds);
/* To be freed. */
char *tsr_saver_text(tsr_diags *diags);

#endif
