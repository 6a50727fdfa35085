// SPDX-License-Identifier: Apache-2.0
/* Faults that tests plan: which file operation, read, allocation or error of the process fails, and
 * how. Only the library tsr_base_faults has them (tests link it, and build/tessera-train-faults
 * does); without TSR_FAULT_INJECTION nothing fails and nothing reads the environment.
 *
 * TESSERA_FAULT=KIND@N (the N-th of its count, from 1), KIND@N- (that and all that follow),
 * KIND@N-M. Kinds:
 *   ENOSPC, EIO   the file operation fails with that error; a write has put half of its bytes
 *   short         a write puts fewer bytes than it was given, which is no error
 *   kill          SIGKILL, after half of the bytes of a write, before anything else
 *   killed        SIGKILL behind the operation
 *   torn          a rename is done, what it names loses the second half of its largest file,
 *                 SIGKILL: what a disk may show after a power cut when nothing was flushed
 *   slow          the operation takes a second longer
 *   ENOLCK        a lock fails with that error, as on a file system without locks
 *   EIO-read      the N-th operation that reads fails
 *   ENOMEM        the N-th allocation fails
 *   silent        the N-th error is not said
 * May be called from any thread. */
#ifndef TSR_BASE_FAULT_H
#define TSR_BASE_FAULT_H
#include <stdbool.h>

typedef enum {
  TSR_FAULT_NONE,
  TSR_FAULT_NO_SPACE,
  TSR_FAULT_IO_ERROR,
  TSR_FAULT_SHORT,
  TSR_FAULT_KILL,
  TSR_FAULT_KILLED,
  TSR_FAULT_TORN,
  TSR_FAULT_SLOW,
  TSR_FAULT_NO_LOCKS,
  TSR_FAULT_UNREADABLE,
  TSR_FAULT_NO_MEMORY,
  TSR_FAULT_SILENT
} tsr_fault;

/* Each is counted by itself; operations are those that change files. */
typedef enum {
  TSR_FAULT_OPERATIONS,
  TSR_FAULT_READS,
  TSR_FAULT_ALLOCATIONS,
  TSR_FAULT_ERRORS,
  TSR_FAULT_COUNTS
} tsr_fault_counted;

#ifdef TSR_FAULT_INJECTION
/* Counts one more; what happens to it. */
tsr_fault tsr_fault_next(tsr_fault_counted counted);
/* Reads the environment, which is done once otherwise, and counts from 0: for a forked process. */
void tsr_fault_read(void);
#else
static inline tsr_fault tsr_fault_next(tsr_fault_counted counted) {
  (void)counted;
  return TSR_FAULT_NONE;
}
#endif

#endif
