// SPDX-License-Identifier: Apache-2.0
/* Another mesh than that of a configuration which a run has left: one rank, or what options set. */
#ifndef TSR_CLI_MESH_OVERRIDE_H
#define TSR_CLI_MESH_OVERRIDE_H
#include "cli/run_setup.h"

/* Whether a --set is of that section, or of what begins so. */
bool mesh_override_has_set(const app *a, const char *section);
/* Before the configuration is read, which `option` names: lets options that lay out ranks by other
 * sections replace its own. */
void mesh_override_sections(app *a, const char *option);
/* After it: one rank, unless an option lays out ranks. */
void mesh_override_by_one_rank(const app *a, tsr_config *config);

#endif
