// SPDX-License-Identifier: Apache-2.0
/* What Linux's /proc tells of a process, which may be gone at any time. */
#ifndef TSR_BASE_PROCESS_INFO_H
#define TSR_BASE_PROCESS_INFO_H
#include "base/arena.h"
#include "base/hash.h"
#include <stdbool.h>

/* /proc/PID/`what`. */
bool tsr_process_read(
    tsr_arena *arena, long pid, const char *what, char **ret_text, size_t *ret_length);
/* Of the environment that it was started with; NULL: it has none, or it may not be read. */
const char *tsr_process_variable(tsr_arena *arena, long pid, const char *name);
/* Whether it runs the same file as this process. */
bool tsr_process_runs_this_program(tsr_arena *arena, long pid);
/* XXH3-128 of the file that this process runs: another build may compute other bits. "unknown"
 * where it cannot be read. */
void tsr_process_program_hash(char ret_text[TSR_HASH_TEXT]);

#endif
