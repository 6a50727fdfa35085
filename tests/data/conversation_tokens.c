// SPDX-License-Identifier: Apache-2.0
/* Reads lines of conversations with the template and the tokenizer of a folder, for tests: prints a
 * line of JSON for each, {"text": …, "tokens": […], "trained": [0, 1, …], "begins": […]} or
 * {"error": …}.
 * usage: conversation_tokens FOLDER JSONL TRAIN_ON [TEMPLATE] */
#include "base/file_read.h"
#include "base/json.h"
#include "data/conversation.h"
#include "tests/printed.h"
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 1 << 28 };

static void add_numbers(tsr_text *line, const char *name, const tsr_conversation *c, int which) {
  tsr_text_add(line, ", \"%s\": [", name);
  for (int64_t i = 0; i < c->count; i++)
    tsr_text_add(
        line, "%s%lld", i ? ", " : "",
        (long long)(which == 0 ? c->tokens[i] : which == 1 ? c->trained[i] : c->begins[i]));
  tsr_text_add(line, "]");
}

static void print_conversation(const tsr_conversation *c) {
  tsr_text line = {0};
  tsr_text_add(&line, "{\"text\": ");
  tsr_json_add_text(&line, c->text, (size_t)c->length);
  add_numbers(&line, "tokens", c, 0);
  add_numbers(&line, "trained", c, 1);
  add_numbers(&line, "begins", c, 2);
  printf("%s}\n", line.data);
  tsr_text_free(&line);
}

static bool
open_format(tsr_arena *arena, char **arguments, tsr_conversation_format *ret, tsr_diags *diags) {
  tsr_subword *bpe;
  const char *path = tsr_path_join(arena, arguments[1], "tokenizer.json");
  if (!tsr_subword_read(arena, path, TSR_NOWHERE, &bpe, diags)) return false;
  ret->tokenizer = tsr_tokenizer_subword(bpe);
  while (tsr_train_on_names[ret->train_on] &&
         strcmp(tsr_train_on_names[ret->train_on], arguments[3]) != 0)
    ret->train_on++;
  return tsr_chat_template_open(
      arena, arguments[1], arguments[4], &ret->tokenizer, TSR_NOWHERE, &ret->template, diags);
}

int main(int count, char **arguments) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_conversation_format format = {0};
  tsr_text_file file = {.path = count > 3 ? arguments[2] : ""};
  char *text;
  if (count < 4 || !open_format(arena, arguments, &format, diags) ||
      !tsr_file_read(arena, file.path, BYTES_MAX, TSR_NOWHERE, &text, &file.length, diags)) {
    tsr_diags_print(diags, stderr);
    return 2;
  }
  file.text = text;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  for (size_t at = 0, end; at < file.length; at = end + 1) {
    tsr_arena *line_arena = tsr_arena_new();
    tsr_diags *line_diags = tsr_diags_new(line_arena);
    tsr_conversation c;
    end = at + strcspn(text + at, "\n");
    if (tsr_conversation_read(line_arena, &format, scratch, &file, at, end - at, &c, line_diags))
      print_conversation(&c);
    else print_diags_json(line_arena, line_diags);
    tsr_arena_free(line_arena);
  }
  tsr_subword_scratch_free(scratch);
  tsr_arena_free(arena);
  return 0;
}
