// SPDX-License-Identifier: Apache-2.0
/* Options that go with another one, or not with another one. */
#ifndef TSR_CLI_OPTION_PAIRS_H
#define TSR_CLI_OPTION_PAIRS_H
#include "cli/options.h"

/* An error for each option without the one that it needs. */
void tsr_options_check_pairs(const tsr_options *options, tsr_diags *diags);

#endif
