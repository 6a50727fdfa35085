// SPDX-License-Identifier: Apache-2.0
/* A process that runs another command beside this one. It ends with this process, however that
 * ends: the kernel sends it a signal then. */
#ifndef TSR_SWEEP_CHILD_H
#define TSR_SWEEP_CHILD_H
#include "base/diag.h"
#include <sys/types.h>

/* Starts a program; words[0] is searched in PATH, NULL ends the list. It reads nothing, and what it
 * prints is added to the file `log`. `at_end`: the signal. Failure: it cannot be started, or the
 * log not be written; a program that does not exist ends with the code 127 and says so in the log.
 */
bool tsr_child_start(
    char *const *words, const char *log, int at_end, pid_t *ret_child, tsr_diags *diags);

/* "exit code 1", "Segmentation fault", of a status that waitpid gives. */
const char *tsr_child_end_text(tsr_arena *arena, int status);

#endif
