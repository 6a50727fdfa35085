// SPDX-License-Identifier: Apache-2.0
/* The commands `import` and `export`: model folders of Hugging Face. */
#include "cli/console.h"
#include "base/file_read.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include <time.h>

/* Characters and bytes are no tokenizer that goes with a model. */
static void note_tokenizer(app *a) {
  static const char name[] = "tokenizer.json";
  if (!tsr_file_exists(tsr_path_join(a->arena, a->options.out, name)))
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' has no %s: it is a model of token numbers, not of texts",
        a->options.out, name);
}

int app_run_import(app *a) {
  tsr_hf_import_options o = {
      .graphs_folder = app_graphs_folder(a), .version = TSR_VERSION, .time = (int64_t)time(NULL)};
  const char *from = a->options.arguments.items[0];
  app_stop_files_on_signals(a);
  bool ok = console_require_out(a) && tsr_hf_import(a->arena, from, a->options.out, &o, a->diags);
  if (ok) note_tokenizer(a);
  if (ok && !a->options.quiet) printf("%s: the weights of '%s'\n", a->options.out, from);
  return console_finish_stoppable(a, ok);
}

int app_run_export(app *a) {
  tsr_hf_export_options o = {.graphs_folder = app_graphs_folder(a), .dtype = a->options.dtype};
  const char *from = a->options.arguments.items[0];
  app_stop_files_on_signals(a);
  bool ok = console_require_out(a) && tsr_hf_export(a->arena, from, a->options.out, &o, a->diags);
  if (ok) note_tokenizer(a);
  if (ok && !a->options.quiet) printf("%s: a model folder of '%s'\n", a->options.out, from);
  return console_finish_stoppable(a, ok);
}
