// SPDX-License-Identifier: Apache-2.0
/* The keys of the configuration as sections of the manual page (mdoc), from the table of keys. */
#ifndef TSR_CONFIG_MANUAL_H
#define TSR_CONFIG_MANUAL_H
#include "base/text.h"

void tsr_config_manual(tsr_text *text);

#endif
