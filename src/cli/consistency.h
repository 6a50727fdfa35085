// SPDX-License-Identifier: Apache-2.0
/* That the processes of a job do the same thing. */
#ifndef TSR_CLI_CONSISTENCY_H
#define TSR_CLI_CONSISTENCY_H
#include "base/hash.h"
#include "cli/setup.h"
#include "train/compile.h"

/* Collective: all processes have the same build, configuration, mesh, plan and input; an error with
 * the first difference otherwise. Then the devices' communicators and, under policy fast, the
 * transport's groups are formed. `input_hash` is that of data or prompts; "": there are none. */
bool consistency_check(
    app *a, setup *s, const tsr_compiled *compiled, const char input_hash[TSR_HASH_TEXT]);

#endif
