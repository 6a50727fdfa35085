// SPDX-License-Identifier: Apache-2.0
/* The command `lock`. */
#include "cli/console.h"
#include "report/run_lock_diff.h"
#include <string.h>

int app_run_lock(app *a) {
  static const char *const names[] = {"diff"};
  const char *word = a->options.arguments.items[0];
  tsr_run_lock locks[2];
  tsr_text text = {0};
  if (strcmp(word, names[0])) {
    tsr_diag_error(a->diags, TSR_NOWHERE, "lock has nothing called '%s'", word);
    tsr_diag_nearest(a->diags, word, names, 1);
    return console_finish(a, false);
  }
  bool ok = true;
  for (int i = 0; i < 2; i++)
    ok &= tsr_run_lock_read(a->arena, a->options.arguments.items[i + 1], &locks[i], a->diags);
  if (ok) tsr_run_lock_diff(&locks[0], &locks[1], &text);
  console_print(&text);
  return console_finish(a, ok);
}
