// SPDX-License-Identifier: Apache-2.0
/* The command `import`: of model folders of Hugging Face. */
#include "cli/console.h"
#include "checkpoint/hf_import.h"
#include <time.h>

int app_run_import(app *a) {
  tsr_hf_import_options o = {
      .graphs_folder = app_graphs_folder(a), .version = TSR_VERSION, .time = (int64_t)time(NULL)};
  const char *from = a->options.arguments.items[0];
  app_stop_files_on_signals(a);
  bool ok = console_require_out(a) && tsr_hf_import(a->arena, from, a->options.out, &o, a->diags);
  if (ok) console_note_tokenizer(a);
  if (ok && !a->options.quiet) printf("%s: the weights of '%s'\n", a->options.out, from);
  return console_finish_stoppable(a, ok);
}
