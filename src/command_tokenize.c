/* The command `tokenize`. */
#include "app.h"
#include "data/tokenize.h"
#include "report/progress.h"
#include <string.h>

/* byte, char, a tokenizer.json, or a file of characters. */
static bool choose_tokenizer(app *a, tsr_tokenizer *ret) {
  const char *word = a->cli.tokenizer ? a->cli.tokenizer : "byte";
  size_t length = strlen(word);
  *ret = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  if (!strcmp(word, "char")) return true;
  if (!strcmp(word, "byte")) return *ret = tsr_tokenizer_byte(), true;
  if (length > 5 && !strcmp(word + length - 5, ".json")) {
    tsr_bpe *bpe;
    if (!tsr_bpe_read(a->arena, word, TSR_NOWHERE, &bpe, a->diags)) return false;
    *ret = tsr_tokenizer_bpe(bpe);
    return true;
  }
  tsr_text_file *files;
  int count;
  return tsr_text_files_read(a->arena, &word, 1, TSR_NOWHERE, &files, &count, a->diags) &&
         tsr_tokenizer_char(a->arena, files, count, ret, a->diags);
}

static bool choose_format(app *a, tsr_tokens_as *ret) {
  const char *word = a->cli.format ? a->cli.format : tsr_tokens_as_names[0];
  int count = 0;
  for (; tsr_tokens_as_names[count]; count++)
    if (!strcmp(word, tsr_tokens_as_names[count])) return *ret = (tsr_tokens_as)count, true;
  tsr_diag_error(a->diags, TSR_NOWHERE, "--format: there is nothing called '%s'", word);
  tsr_diag_nearest(a->diags, word, tsr_tokens_as_names, count);
  return false;
}

int app_run_tokenize(app *a) {
  tsr_tokenize_options o = {
      .inputs = a->cli.arguments.items,
      .inputs_count = a->cli.arguments.count,
      .out = a->cli.out,
      .jsonl_key = a->cli.jsonl_key,
      .end_of_text = -1,
      .skips_lines = a->cli.skip_bad_lines,
      .threads = (int)a->cli.threads,
      .quiet = a->cli.quiet,
      .shows_progress = !a->cli.quiet && tsr_progress_has_terminal(),
      .stop = a->stop};
  app_catch_signals();
  bool ok = a->cli.out ||
            tsr_diag_error(a->diags, TSR_NOWHERE, "no file to write: --out FILE is needed");
  ok = ok && choose_format(a, &o.as) && choose_tokenizer(a, &o.tokenizer) &&
       tsr_tokenize(a->arena, &o, a->diags);
  int code = app_finish(a, ok);
  return code || ok ? code : 128 + (int)*a->stop;
}
