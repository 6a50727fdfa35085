// SPDX-License-Identifier: Apache-2.0
/* The memory that a run has, and how much of it its programs need. */
#ifndef TSR_CLI_MEMORY_NEED_H
#define TSR_CLI_MEMORY_NEED_H
#include "cli/run_compile.h"

/* Which ranks share a memory. */
typedef enum { MEMORY_OF_RANK, MEMORY_OF_PROCESS, MEMORY_OF_HOST } memory_owner;

typedef struct {
  memory_owner owner;
  int64_t bytes; /* 0: not known */
  const char *what;
} memory_room;

static inline const char *memory_owner_name(memory_owner owner) {
  return owner == MEMORY_OF_RANK ? "a rank" : owner == MEMORY_OF_PROCESS ? "a process" : "a host";
}

/* Bytes that all programs of the run need of the memory that needs the most. */
int64_t memory_bytes_needed(app *a, const setup *s, const prepared *p, memory_owner owner);

#endif
