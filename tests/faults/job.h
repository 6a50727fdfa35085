// SPDX-License-Identifier: Apache-2.0
/* A run of several processes under mpirun, whose processes can be found and hit one by one. */
#ifndef TSR_TESTS_FAULTS_JOB_H
#define TSR_TESTS_FAULTS_JOB_H
#include "runner.h"
#include <sys/types.h>

enum { JOB_PROCESSES_MAX = 8, JOB_JOIN_S = 10 }; /* JOIN: TESSERA_JOIN_TIMEOUT_S */

typedef enum { JOB_ALONE, JOB_OPENMPI, JOB_MPICH } job_launcher;
extern const char *const job_launchers[3];
/* Whether its mpirun is there, and the program's plugin for it. */
bool job_has(const runner *r, job_launcher launcher);

typedef struct {
  job_launcher launcher;
  int processes;
  int faulty;        /* the process whose environment gets TESSERA_FAULT; -1: none */
  const char *fault; /* its value */
} job_options;

typedef struct {
  runner *r;
  job_options options;
  const char *mark; /* in the environment of all its processes */
  const char *log;
  const char *text; /* the command */
  pid_t root;       /* mpirun, or the program */
  pid_t processes[JOB_PROCESSES_MAX];
  double begin;
  int hung; /* processes that job_wait had to kill */
} job;

double job_now(void);
void job_rest(double seconds);

/* `command` is the program's words. */
job job_start(runner *r, const words *command, const job_options *options);
/* Waits until all processes run the program; false where the job ended before, or after 30 s. */
bool job_find_processes(job *j);
bool job_has_ended(job *j, ending *ret);
/* Waits for the end for `seconds` at most; what lives then is killed, and false. */
bool job_wait(job *j, double seconds, ending *ret);
/* Processes of the job that are still there `seconds` after its end; they are killed. */
int job_left_behind(job *j, double seconds);

#endif
