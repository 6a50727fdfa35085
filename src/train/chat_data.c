// SPDX-License-Identifier: Apache-2.0
#include "train/chat_data.h"
#include "base/file_read.h"
#include "data/conversation.h"
#include "data/padding_token.h"
#include "train/data_paths.h"
#include <string.h>

/* ---- lines ---- */

static void *open_scratch(const void *context) {
  const tsr_conversation_format *format = context;
  return format->tokenizer.kind == TSR_TOKENIZER_SUBWORD ? tsr_subword_scratch_new() : NULL;
}

static void close_scratch(void *scratch) {
  if (scratch) tsr_subword_scratch_free(scratch);
}

static bool encode(
    const void *context, void *scratch, tsr_arena *arena, const tsr_text_file *file, size_t offset,
    size_t length, tsr_masked_tokens *ret, tsr_diags *diags) {
  tsr_conversation c;
  if (!tsr_conversation_read(arena, context, scratch, file, offset, length, &c, diags))
    return false;
  *ret = (tsr_masked_tokens){c.tokens, c.trained, c.count};
  return true;
}

/* ---- options ---- */

static bool open_template(
    tsr_arena *arena, const tsr_config *c, const char *tokenizer_file,
    tsr_conversation_format *format, tsr_diags *diags) {
  const char *folder = tokenizer_file ? tsr_path_folder(arena, tokenizer_file) : NULL;
  const char *named = c->data.template_path;
  bool own = strcmp(named, "tokenizer") != 0;
  return tsr_chat_template_open(
      arena, folder, own ? tsr_data_path(arena, c, named) : NULL, &format->tokenizer,
      tsr_config_location(c, own ? "data.template" : "training_config.tokenizer_path"),
      &format->template, diags);
}

/* Today's date would make other data every day. */
static void fix_date(tsr_arena *arena, const tsr_config *c, tsr_conversation_format *format) {
  int64_t now = *c->data.date ? c->data.date_s : TSR_JINJA_NO_TIME;
  if (*c->data.date && !now) now = 1; /* the begin of 1970, where 0 is the clock */
  format->template = tsr_chat_template_at(arena, format->template, now);
}

static bool check_tokenizer(const tsr_config *c, const tsr_tokenizer *t, tsr_diags *diags) {
  bool counts = t->kind == TSR_TOKENIZER_CHAR && !t->chars;
  if (!counts && t->kind != TSR_TOKENIZER_IDS) return true;
  tsr_diag_error(
      diags, tsr_config_location(c, "data.format"),
      "conversations need a tokenizer: training_config.tokenizer_path is not given");
  tsr_diag_hint(diags, "with tokenizer_type: bpe a tokenizer.json; type byte needs no file");
  return false;
}

bool tsr_chat_data_open(
    tsr_arena *arena, const tsr_config *c, const tsr_data_options *options,
    const char *tokenizer_file, tsr_dataset *ret, tsr_diags *diags) {
  tsr_conversation_format *format = tsr_arena_alloc(arena, sizeof *format);
  *format = (tsr_conversation_format){
      .tokenizer = options->tokenizer, .train_on = (tsr_train_on)c->data.train_on};
  const char *folder = tokenizer_file ? tsr_path_folder(arena, tokenizer_file) : NULL;
  int32_t padding;
  *ret = (tsr_dataset){0};
  if (!check_tokenizer(c, &options->tokenizer, diags) ||
      !tsr_padding_token(arena, folder, &options->tokenizer, &padding, diags) ||
      !open_template(arena, c, tokenizer_file, format, diags))
    return false;
  fix_date(arena, c, format);
  tsr_line_sources chat = {
      .inputs = options->inputs,
      .inputs_count = options->inputs_count,
      .validation = options->validation,
      .tokenizer = options->tokenizer,
      .encoder = {encode, format, open_scratch, close_scratch},
      .threads = (int)c->numerics.threads};
  chat.packing = (tsr_packing_rule){
      .best_fit = c->data.packing == TSR_PACKING_BEST_FIT,
      .drops = c->data.too_long == TSR_TOO_LONG_DROP,
      .padding = padding < 0 ? 0 : padding};
  return tsr_dataset_lines(arena, &chat, ret, diags);
}
