/* The command `checkpoint`, and models from and to Hugging Face. */
#include "app.h"
#include "base/disk.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/inspect.h"
#include <string.h>
#include <time.h>

static bool find(app *a, int argument, tsr_manifest *ret) {
  return tsr_checkpoint_find(a->arena, a->cli.arguments.items[argument], TSR_NOWHERE, ret, a->diags);
}

static bool need_out(app *a) {
  return a->cli.out || tsr_diag_error(a->diags, TSR_NOWHERE, "no folder to write: --out is needed");
}

static bool list(app *a, tsr_text *text) {
  return tsr_checkpoint_ls(a->arena, a->cli.arguments.items[1], text, a->diags);
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

/* A signal ends what a command writes, and removes it. */
static void stop_on_signals(app *a) {
  app_catch_signals();
  tsr_disk_stop_on(a->stop);
}

static int finish(app *a, bool ok) {
  int code = app_finish(a, ok);
  return ok || !*a->stop ? code : 128 + (int)*a->stop;
}

static bool write_shards(app *a, int64_t shards, tsr_text *text) {
  tsr_manifest m;
  stop_on_signals(a);
  if (!(need_out(a) & find(a, 1, &m)) ||
      !tsr_checkpoint_reshard(a->arena, &m, shards, a->cli.out, a->diags))
    return false;
  tsr_text_add(
      text, "%s: step %lld in %lld file%s of tensors\n", a->cli.out, (long long)m.state.step,
      (long long)shards, shards == 1 ? "" : "s");
  return true;
}

static bool merge(app *a, tsr_text *text) { return write_shards(a, 1, text); }

static bool reshard(app *a, tsr_text *text) {
  if (a->cli.shards) return write_shards(a, a->cli.shards, text);
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
  const char *names[WORDS], *word = a->cli.arguments.items[0];
  tsr_text text = {0};
  for (int i = 0; i < WORDS; i++) names[i] = words[i].name;
  for (int i = 0; i < WORDS; i++) {
    if (strcmp(word, words[i].name)) continue;
    bool ok = a->cli.arguments.count == words[i].arguments;
    if (ok) ok = words[i].run(a, &text);
    else
      tsr_diag_error(
          a->diags, TSR_NOWHERE, "checkpoint %s takes %d folder%s, not %d", word,
          words[i].arguments - 1, words[i].arguments > 2 ? "s" : "", a->cli.arguments.count - 1);
    app_print(&text);
    return finish(a, ok);
  }
  tsr_diag_error(a->diags, TSR_NOWHERE, "checkpoint has nothing called '%s'", word);
  tsr_diag_nearest(a->diags, word, names, WORDS);
  return app_finish(a, false);
}

/* ---- Hugging Face ---- */

/* Characters and bytes are no tokenizer that goes with a model. */
static void note_tokenizer(app *a) {
  static const char name[] = "tokenizer.json";
  if (!tsr_file_exists(tsr_path_join(a->arena, a->cli.out, name)))
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' has no %s: it is a model of token numbers, not of texts",
        a->cli.out, name);
}

int app_run_import(app *a) {
  tsr_hf_import_options o = {
      .graphs_folder = app_graphs_folder(a), .version = TSR_VERSION, .time = (int64_t)time(NULL)};
  const char *from = a->cli.arguments.items[0];
  stop_on_signals(a);
  bool ok = need_out(a) && tsr_hf_import(a->arena, from, a->cli.out, &o, a->diags);
  if (ok) note_tokenizer(a);
  if (ok && !a->cli.quiet) printf("%s: the weights of '%s'\n", a->cli.out, from);
  return finish(a, ok);
}

int app_run_export(app *a) {
  tsr_hf_export_options o = {.graphs_folder = app_graphs_folder(a), .dtype = a->cli.dtype};
  const char *from = a->cli.arguments.items[0];
  stop_on_signals(a);
  bool ok = need_out(a) && tsr_hf_export(a->arena, from, a->cli.out, &o, a->diags);
  if (ok) note_tokenizer(a);
  if (ok && !a->cli.quiet) printf("%s: a model folder of '%s'\n", a->cli.out, from);
  return finish(a, ok);
}
