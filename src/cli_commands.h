/* Sets of commands, a bit each: which an option belongs to, and which a line of the help is of.
 * Private to cli.c and cli_help.c. */
#ifndef TSR_CLI_COMMANDS_H
#define TSR_CLI_COMMANDS_H
#include "cli.h"

#define ONLY(command) (1u << TSR_COMMAND_##command)
/* Commands that read a configuration. */
#define CONFIGURED                                                                                 \
  (ONLY(TRAIN) | ONLY(CHECK) | ONLY(INSPECT) | ONLY(TRACE) | ONLY(PROFILE) | ONLY(PLAN) |          \
   ONLY(EVALUATE) | ONLY(GENERATE))

#endif
