// SPDX-License-Identifier: Apache-2.0
/* Parameters and optimizer state that several ranks hold, after the steps of a test. */
#ifndef TSR_TESTS_REPLICAS_H
#define TSR_TESTS_REPLICAS_H
#include "runtime/replica_check.h"
#include <stdlib.h>

/* The name of the first one of which two ranks hold other bits; NULL: there is none. Once in a
 * process. */
static inline const char *differing_replicas(tsr_arena *arena, tsr_executable *executable) {
  tsr_replica_check *check;
  if (!tsr_replica_check_open(arena, executable, &check, tsr_diags_new(arena))) abort();
  if (tsr_replica_check_run(check)) return NULL;
  tsr_replica_report report = tsr_replica_check_find(arena, check);
  return tsr_executable_graph(executable)->values[report.differences[0].value].name;
}

#endif
