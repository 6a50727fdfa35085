// SPDX-License-Identifier: Apache-2.0
/* Prints what a tokenizer.json makes of texts, for comparison with the tokenizers package
 * (scripts/check_tokenizers).
 *
 * usage: subword_tokens TOKENIZER.JSON TEXTS.JSONL: each line of the texts is a JSON string; of each
 * one line is printed: {"ids": […], "begins": […], "text": "…"}, the text being what the ids decode
 * to, or {"error": "…"}. */
#include "base/file_read.h"
#include "base/json.h"
#include "data/tokenizer.h"
#include <stdio.h>
#include <string.h>

static const size_t BYTES_MAX = (size_t)1 << 30;

static void add_numbers(tsr_text *line, const char *key, const int64_t *numbers, int64_t count) {
  tsr_text_add(line, ", \"%s\": [", key);
  for (int64_t i = 0; i < count; i++)
    tsr_text_add(line, "%s%lld", i ? ", " : "", (long long)numbers[i]);
  tsr_text_add(line, "]");
}

/* The text of tokens one by one, or NULL where the stream's bytes are not those of all at once. */
static void decode_both(
    tsr_arena *arena, const tsr_tokenizer *tokenizer, const int32_t *tokens, int64_t count,
    tsr_text *line) {
  tsr_text all = {0}, single = {0};
  tsr_tokenizer_decode(tokenizer, tokens, count, &all);
  tsr_token_stream *stream = tsr_token_stream_new(arena, tokenizer, false);
  for (int64_t i = 0; i < count; i++) tsr_token_stream_add(stream, tokens[i], &single);
  tsr_token_stream_end(stream, &single);
  bool same =
      all.length == single.length && (!all.length || !memcmp(all.data, single.data, all.length));
  tsr_text_add(line, "\"streams\": %s, \"text\": ", same ? "true" : "false");
  tsr_json_add_text(line, all.data ? all.data : "", all.length);
  tsr_text_free(&all), tsr_text_free(&single);
}

static void print_text(
    const tsr_tokenizer *tokenizer, tsr_subword_scratch *scratch, const char *text, size_t length) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text line = {0};
  tsr_text_file file = {"text", text, length};
  int64_t room = tsr_tokenizer_room(tokenizer, text, length), count = 0, again = 0;
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  int32_t *others = tsr_arena_array(arena, int32_t, room + 1);
  int64_t *begins = tsr_arena_array(arena, int64_t, room + 2);
  tokens[room] = -7;
  bool ok = tsr_tokenizer_encode_begins(tokenizer, scratch, &file, tokens, begins, &count, diags) &&
            tsr_subword_encode(tokenizer->subword, scratch, text, length, others, &again, diags);
  if (!ok) {
    tsr_text_add(&line, "{\"error\": ");
    const char *error = tsr_diags_first_error(diags);
    tsr_json_add_text(&line, error, strlen(error));
  } else {
    int64_t *ids = tsr_arena_array(arena, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) ids[i] = tokens[i];
    bool is_same = count == again && !memcmp(tokens, others, sizeof *tokens * (size_t)count);
    tsr_text_add(&line, "{\"fits\": %s, ", count <= room && tokens[room] == -7 ? "true" : "false");
    tsr_text_add(&line, "\"same\": %s, ", is_same ? "true" : "false");
    decode_both(arena, tokenizer, tokens, count, &line);
    add_numbers(&line, "ids", ids, count);
    add_numbers(&line, "begins", begins, count + 1);
  }
  printf("%s}\n", line.data);
  tsr_text_free(&line);
  tsr_arena_free(arena);
}

int main(int count, char **arguments) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_subword *subword;
  char *text;
  size_t length;
  if (count != 3 || !tsr_subword_read(arena, arguments[1], TSR_NOWHERE, &subword, diags) ||
      !tsr_file_read(arena, arguments[2], BYTES_MAX, TSR_NOWHERE, &text, &length, diags)) {
    tsr_diags_print(diags, stderr);
    tsr_arena_free(arena);
    return 2;
  }
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(subword);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  for (size_t at = 0, end; at < length; at = end + 1) {
    end = at + strcspn(text + at, "\n");
    cJSON *line;
    if (!tsr_json_parse(arena, arguments[2], text + at, end - at, &line, diags) ||
        !cJSON_IsString(line)) {
      tsr_diags_print(diags, stderr);
      return 2;
    }
    print_text(&tokenizer, scratch, line->valuestring, strlen(line->valuestring));
  }
  tsr_subword_scratch_free(scratch);
  tsr_arena_free(arena);
  return 0;
}
