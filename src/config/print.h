// SPDX-License-Identifier: Apache-2.0
/* `--print-config`: the configuration with every value resolved, as YAML that loads again. */
#ifndef TSR_CONFIG_PRINT_H
#define TSR_CONFIG_PRINT_H
#include "base/hash.h"
#include "base/text.h"
#include "config/config.h"
#include "config/yaml.h"

/* Each line ends with where its value came from: "# default", "# run.yaml:4", "# --set". */
void tsr_config_print(const tsr_config *config, tsr_text *text);

/* The hash of a text that was printed so, without its comments: two configurations of the same
 * values have the same, wherever these came from. */
void tsr_config_print_hash(const char *text, char ret_hash[TSR_HASH_TEXT]);

/* A value as YAML on one line, which reads back as the same value. */
void tsr_yaml_print_line(const tsr_yaml *node, tsr_text *text);

/* The shortest decimal that reads back as the same double, with a point or an exponent. */
void tsr_config_print_float(double value, tsr_text *text);

#endif
