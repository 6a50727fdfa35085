// SPDX-License-Identifier: Apache-2.0
#include "base/fault.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"",     "ENOSPC", "EIO",    "short",    "kill",   "killed",
                                    "torn", "slow",   "ENOLCK", "EIO-read", "ENOMEM", "silent"};
static struct {
  tsr_fault kind;
  long first, last;
} planned;
static atomic_long counts[TSR_FAULT_COUNTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

void tsr_fault_read(void) {
  const char *text = getenv("TESSERA_FAULT");
  const char *at = text ? strchr(text, '@') : NULL;
  planned.kind = TSR_FAULT_NONE;
  for (int i = 0; i < TSR_FAULT_COUNTS; i++) counts[i] = 0;
  if (!at) return;
  for (size_t i = 1; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == (size_t)(at - text) && !strncmp(names[i], text, (size_t)(at - text)))
      planned.kind = (tsr_fault)i;
  char *end;
  planned.first = planned.last = strtol(at + 1, &end, 10);
  if (*end == '-') planned.last = end[1] ? strtol(end + 1, NULL, 10) : LONG_MAX;
}

static tsr_fault_counted counted_by(tsr_fault kind) {
  if (kind == TSR_FAULT_UNREADABLE) return TSR_FAULT_READS;
  if (kind == TSR_FAULT_SILENT) return TSR_FAULT_ERRORS;
  return kind == TSR_FAULT_NO_MEMORY ? TSR_FAULT_ALLOCATIONS : TSR_FAULT_OPERATIONS;
}

tsr_fault tsr_fault_next(tsr_fault_counted counted) {
  pthread_once(&once, tsr_fault_read);
  long number = atomic_fetch_add(&counts[counted], 1) + 1;
  bool now =
      counted_by(planned.kind) == counted && number >= planned.first && number <= planned.last;
  return now ? planned.kind : TSR_FAULT_NONE;
}
