// SPDX-License-Identifier: Apache-2.0
/* A transport inside one process, for tests: every process is a thread, so that ASan and TSan see
 * all of a job, and a test decides when messages come and which never do.
 *
 * A send is done only when its receive took it (no message is kept anywhere), which is the
 * strictest that MPI may be. With `delay`, messages that may overtake each other do; of one pair
 * and tag they keep their order, but the later of two that are under way may be done first, as with
 * MPI. */
#ifndef TSR_COMM_TRANSPORT_THREADS_H
#define TSR_COMM_TRANSPORT_THREADS_H
#include "comm/transport.h"

typedef struct {
  int processes;
  int per_host;  /* processes w/per_host are on "host" w/per_host; 0: all are on "host0" */
  int delay;     /* a message comes up to so many calls of test (of anybody) late */
  uint64_t seed; /* of the delays */
} tsr_threads_options;

typedef struct tsr_threads tsr_threads;

tsr_threads *tsr_threads_new(const tsr_threads_options *options);
void tsr_threads_free(tsr_threads *threads); /* when no endpoint is used any more */

/* A process's end, which one thread may use. Nothing to open; close does nothing; abort fails all
 * messages of all processes from then on and ends the calling thread. */
void tsr_threads_endpoint(tsr_threads *threads, int process, tsr_transport *ret_transport);

typedef enum {
  TSR_THREADS_RUNS,
  TSR_THREADS_SILENT, /* stopped, dead or cut off: messages to and from it stay pending */
  TSR_THREADS_GONE,   /* messages to and from it that are not done fail */
} tsr_threads_fate;
/* What happens to a process from now on; any thread may set it. A silent one may run again, and
 * then what is under way comes. */
void tsr_threads_set_fate(tsr_threads *threads, int process, tsr_threads_fate fate);

/* Whether somebody called abort; who was the first, and with which code. */
bool tsr_threads_ended(tsr_threads *threads, int *ret_process, int *ret_code);

#endif
