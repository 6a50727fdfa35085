// SPDX-License-Identifier: Apache-2.0
/* Sets of commands, a bit each: which an option belongs to, and which a line of the help is of.
 * Private to options.c and help.c. */
#ifndef TSR_CLI_COMMAND_MASK_H
#define TSR_CLI_COMMAND_MASK_H
#include "cli/options.h"

#define ONLY(command) (1u << TSR_COMMAND_##command)

/* Commands that write text. */
#define TEXTS (ONLY(GENERATE) | ONLY(SERVE))
/* Commands that read a configuration. */
#define CONFIGURED                                                                                 \
  (ONLY(TRAIN) | ONLY(CHECK) | ONLY(INSPECT) | ONLY(TRACE) | ONLY(PROFILE) | ONLY(PLAN) |          \
   ONLY(EVALUATE) | ONLY(GENERATE) | ONLY(SERVE) | ONLY(DATA) | ONLY(SWEEP))
/* Those that run a program, or would. */
#define COMPILED                                                                                   \
  (ONLY(TRAIN) | ONLY(CHECK) | ONLY(PROFILE) | ONLY(PLAN) | ONLY(EVALUATE) | ONLY(GENERATE) |      \
   ONLY(SERVE))

#endif
