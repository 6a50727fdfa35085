// SPDX-License-Identifier: Apache-2.0
/* The command `tokenize`. */
#include "cli/console.h"
#include "data/tokenize.h"
#include <string.h>

/* byte, char, a tokenizer.json, or a file of characters. */
static bool choose_tokenizer(app *a, tsr_tokenizer *ret) {
  const char *word = a->options.tokenizer ? a->options.tokenizer : "byte";
  size_t length = strlen(word);
  *ret = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  if (!strcmp(word, "char")) return true;
  if (!strcmp(word, "byte")) return *ret = tsr_tokenizer_byte(), true;
  if (length > 5 && !strcmp(word + length - 5, ".json")) {
    tsr_subword *subword;
    if (!tsr_subword_read(a->arena, word, TSR_NOWHERE, &subword, a->diags)) return false;
    *ret = tsr_tokenizer_subword(subword);
    return true;
  }
  tsr_text_file *files;
  int count;
  return tsr_text_files_read(a->arena, &word, 1, TSR_NOWHERE, &files, &count, a->diags) &&
         tsr_tokenizer_char(a->arena, files, count, ret, a->diags);
}

static bool choose_format(app *a, tsr_tokens_as *ret) {
  const char *word = a->options.format ? a->options.format : tsr_tokens_as_names[0];
  int count = 0;
  for (; tsr_tokens_as_names[count]; count++)
    if (!strcmp(word, tsr_tokens_as_names[count])) return *ret = (tsr_tokens_as)count, true;
  tsr_diag_error(a->diags, TSR_NOWHERE, "--format: there is nothing called '%s'", word);
  tsr_diag_nearest(a->diags, word, tsr_tokens_as_names, count);
  return false;
}

int app_run_tokenize(app *a) {
  tsr_tokenize_options o = {
      .inputs = a->options.arguments.items,
      .inputs_count = a->options.arguments.count,
      .out = a->options.out,
      .jsonl_key = a->options.jsonl_key,
      .end_of_text = -1,
      .overwrites = a->options.overwrite,
      .skips_lines = a->options.skip_bad_lines,
      .threads = (int)a->options.threads,
      .quiet = a->options.quiet,
      .stop = a->stop};
  app_catch_signals();
  bool ok = a->options.out ||
            tsr_diag_error(a->diags, TSR_NOWHERE, "no file to write: --out FILE is needed");
  ok = ok && choose_format(a, &o.as) && choose_tokenizer(a, &o.tokenizer) &&
       tsr_tokenize(a->arena, &o, a->diags);
  int code = console_finish(a, ok);
  return code || ok ? code : 128 + (int)*a->stop;
}
