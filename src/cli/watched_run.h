// SPDX-License-Identifier: Apache-2.0
/* A run that `watch` follows: its metrics, and the other files of its folder, each read again when
 * it has changed. */
#ifndef TSR_CLI_WATCHED_RUN_H
#define TSR_CLI_WATCHED_RUN_H
#include "cli/page_run.h"
#include "html_report/feed.h"
#include "html_report/metrics_follow.h"
#include <sys/stat.h>

/* A file or folder, and what was made of it. */
typedef struct {
  const char *path;
  struct timespec modified;
  ino_t inode;
  off_t size;
  tsr_arena *arena; /* NULL: it was not read yet */
  tsr_text notes;
  double rests_until; /* so that reading takes a part of the time alone */
} watched_file;

typedef struct {
  const char *path;
  bool is_folder; /* else a file of metrics */
  bool is_fed;    /* the feed has it */
  bool is_read;   /* the other files of its folder, too */
  tsr_metrics_follow metrics;
  watched_file config, lock, checkpoints;
  page_config texts;
  tsr_page_run page;
  tsr_run_live live;
  char owner[TSR_FOLDER_OWNER_BYTES];
  tsr_text warnings;
} watched_run;

/* `path` outlives it, as the run outlives the feed. */
void watched_run_open(tsr_arena *arena, const char *path, watched_run *ret_run);
/* Gives the feed, as run `index`, what is new in its metrics and of its process. */
void watched_run_look(watched_run *run, tsr_feed *feed, int index);
/* The same of its other files, behind it. A configuration is compiled, which may take seconds. */
void watched_run_read(app *a, watched_run *run, tsr_feed *feed, int index);

#endif
