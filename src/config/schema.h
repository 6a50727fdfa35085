// SPDX-License-Identifier: Apache-2.0
/* The JSON Schema (draft 07) of run and model files, from the table of keys: what editors check and
 * complete with, where a file's first line is `# yaml-language-server: $schema=…`. */
#ifndef TSR_CONFIG_SCHEMA_H
#define TSR_CONFIG_SCHEMA_H
#include "base/text.h"

void tsr_config_schema(tsr_text *text);

#endif
