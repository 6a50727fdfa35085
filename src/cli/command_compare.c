// SPDX-License-Identifier: Apache-2.0
/* The command `compare`. */
#include "cli/compare_runs.h"
#include "cli/console.h"

int app_run_compare(app *a) {
  const char *const *paths = a->options.arguments.items;
  tsr_text text = {0};
  bool equal = false;
  bool ok = compare_runs(a, paths[0], paths[1], &text, &equal);
  if (ok && !equal)
    ok = tsr_diag_failure(a->diags, TSR_NOWHERE, "'%s' and '%s' differ", paths[0], paths[1]);
  console_print(&text);
  return console_finish(a, ok);
}
