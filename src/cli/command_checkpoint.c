// SPDX-License-Identifier: Apache-2.0
/* The command `checkpoint`. */
#include "cli/console.h"
#include "checkpoint/folder.h"
#include "checkpoint/checkpoint_commands.h"
#include <string.h>

static bool find(app *a, int argument, tsr_manifest *ret) {
  tsr_checkpoint_hold hold; /* until the process ends */
  return tsr_checkpoint_find_held(
      a->arena, a->options.arguments.items[argument], TSR_NOWHERE, ret, &hold, a->diags);
}

static bool list(app *a, tsr_text *text) {
  return tsr_checkpoint_ls(a->arena, a->options.arguments.items[1], text, a->diags);
}

static bool show(app *a, tsr_text *text) {
  tsr_manifest m;
  if (!find(a, 1, &m)) return false;
  tsr_checkpoint_show(&m, text);
  return true;
}

static bool verify(app *a, tsr_text *text) {
  tsr_manifest m;
  return find(a, 1, &m) && tsr_checkpoint_verify(a->arena, &m, text, a->diags);
}

static bool diff(app *a, tsr_text *text) {
  tsr_manifest first, second;
  int differences = 0;
  if (!(find(a, 1, &first) & find(a, 2, &second)) ||
      !tsr_checkpoint_diff(
          a->arena, tsr_kernels_get(NULL), &first, &second, &differences, text, a->diags))
    return false;
  if (!differences) tsr_text_add(text, "no difference: step %lld\n", (long long)first.state.step);
  return true;
}

static bool write_shards(app *a, int64_t shards, tsr_text *text) {
  tsr_manifest m;
  int64_t files;
  app_stop_files_on_signals(a);
  if (!(console_require_out(a) & find(a, 1, &m)) ||
      !tsr_checkpoint_reshard(a->arena, &m, shards, a->options.out, &files, a->diags))
    return false;
  tsr_text_add(
      text, "%s: step %lld in %lld file%s of tensors\n", a->options.out, (long long)m.state.step,
      (long long)files, files == 1 ? "" : "s");
  if (files < shards)
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "there are %lld files, not %lld: no tensor has more rows",
        (long long)files, (long long)shards);
  return true;
}

static bool merge(app *a, tsr_text *text) { return write_shards(a, 1, text); }

static bool reshard(app *a, tsr_text *text) {
  if (a->options.shards) return write_shards(a, a->options.shards, text);
  return tsr_diag_error(a->diags, TSR_NOWHERE, "into how many files? --shards N is needed");
}

int app_run_checkpoint(app *a) {
  static const struct {
    const char *name;
    int arguments;
    bool (*run)(app *, tsr_text *);
  } words[] = {{"ls", 2, list},   {"show", 2, show},   {"verify", 2, verify},
               {"diff", 3, diff}, {"merge", 2, merge}, {"reshard", 2, reshard}};
  enum { WORDS = sizeof words / sizeof *words };
  const char *names[WORDS], *word = a->options.arguments.items[0];
  tsr_text text = {0};
  for (int i = 0; i < WORDS; i++) names[i] = words[i].name;
  for (int i = 0; i < WORDS; i++) {
    if (strcmp(word, words[i].name)) continue;
    bool ok = a->options.arguments.count == words[i].arguments;
    if (ok) ok = words[i].run(a, &text);
    else
      tsr_diag_error(
          a->diags, TSR_NOWHERE, "checkpoint %s takes %d folder%s, not %d", word,
          words[i].arguments - 1, words[i].arguments > 2 ? "s" : "",
          a->options.arguments.count - 1);
    console_print(&text);
    return console_finish_stoppable(a, ok);
  }
  tsr_diag_error(a->diags, TSR_NOWHERE, "checkpoint has nothing called '%s'", word);
  tsr_diag_nearest(a->diags, word, names, WORDS);
  return console_finish(a, false);
}
