// SPDX-License-Identifier: Apache-2.0
/* The command lines of the processes that a sweep starts. */
#ifndef TSR_CLI_SWEEP_COMMAND_H
#define TSR_CLI_SWEEP_COMMAND_H
#include "cli/sweep_request.h"

enum { SWEEP_WORDS_MAX = 2 * TSR_SETS_MAX + 300 };
typedef struct {
  char *items[SWEEP_WORDS_MAX]; /* NULL ends them */
  int count;
} sweep_words;

typedef struct {
  int run;            /* from 0, whose values it has */
  const char *folder; /* of --out */
  const char *fork;   /* a checkpoint to begin with; NULL: it resumes in its folder, or begins */
  int64_t stop_at;    /* 0: its last step */
  int jobs;           /* at a time */
} sweep_job;

/* `train` behind --launcher. */
void sweep_command(app *a, const sweep_request *request, const sweep_job *job, sweep_words *ret);

#endif
