// SPDX-License-Identifier: Apache-2.0
/* Every kind of model and step of tokenizer.json: ids, places and texts of the tokenizers package
 * (scripts/make_subword). Argument: tests/data/subword. */
#include "base/file_read.h"
#include "base/json.h"
#include "data/tokenizer.h"
#include "tests/check.h"
#include "tests/printed.h"

/* Where the package says that tokens begin is not compared where a form composes characters, which
 * this program has at the begin of what was composed, and where characters without a token are left
 * out, which the package does not count. */
typedef struct {
  const char *name;
  bool has_begins;
  int before, behind; /* what the post-processor adds */
  const char *newline;
} kind;

static const kind kinds[] = {
    {"llama", true, 1, 0, "<0x0A>"},
    {"unigram", true, 0, 1, NULL},
    {"unigram_bytes", true, 0, 0, "<0x0A>"},
    {"bert", true, 1, 1, NULL},
    {"words", true, 0, 0, NULL},
    {"suffix", false, 1, 1, NULL},
    {"prefix", false, 0, 0, NULL},
    {"ctc", true, 0, 0, NULL},
};

static tsr_subword *
read_subword(tsr_arena *arena, const char *folder, const char *name, tsr_diags *diags) {
  tsr_subword *subword = NULL;
  const char *path = tsr_arena_printf(arena, "%s/%s.json", folder, name);
  bool ok = tsr_subword_read(arena, path, TSR_NOWHERE, &subword, diags);
  tsr_diags_print(diags, stderr);
  CHECK(ok);
  return subword;
}

/* ---- texts ---- */

static void check_numbers(
    const char *name, const char *text, const char *what, const cJSON *want, const int32_t *got32,
    const int64_t *got64, int64_t count) {
  CHECK_AT(
      cJSON_GetArraySize(want) == count, "%s: '%s' has %lld %s, not %d", name, text,
      (long long)count, what, cJSON_GetArraySize(want));
  int64_t i = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, want) {
    if (i == count) break;
    int64_t got = got32 ? got32[i] : got64[i];
    CHECK_AT(
        got == item->valueint, "%s: '%s': number %lld of its %s is %lld, not %d", name, text,
        (long long)i, what, (long long)got, item->valueint);
    i++;
  }
}

static void check_decoded(
    tsr_arena *arena, const kind *k, const tsr_tokenizer *tokenizer, const int32_t *tokens,
    int64_t count, const char *want) {
  tsr_text all = {0}, single = {0};
  tsr_text_add(&all, "%s", "");
  tsr_text_add(&single, "%s", "");
  tsr_tokenizer_decode(tokenizer, tokens, count, &all);
  tsr_token_stream *stream = tsr_token_stream_new(arena, tokenizer, false);
  for (int64_t i = 0; i < count; i++) {
    tsr_token_stream_add(stream, tokens[i], &single);
    size_t length = single.length;
    CHECK_AT(
        !length || tsr_tokenizer_whole(single.data, length) == length, "%s: a part of a character",
        k->name);
  }
  tsr_token_stream_end(stream, &single);
  CHECK_STR(all.data ? all.data : "", want);
  CHECK_STR(single.data ? single.data : "", want);
  tsr_text_free(&all), tsr_text_free(&single);
}

static void check_case(
    tsr_arena *arena, const kind *k, const tsr_tokenizer *tokenizer, tsr_subword_scratch *scratch,
    const cJSON *json, tsr_diags *diags) {
  const char *text = tsr_json_get(json, "text")->valuestring;
  tsr_text_file file = {"text", text, strlen(text)};
  int64_t room = tsr_tokenizer_room(tokenizer, text, file.length), count = 0, again = 0;
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  int32_t *others = tsr_arena_array(arena, int32_t, room + 1);
  int64_t *begins = tsr_arena_array(arena, int64_t, room + 2);
  CHECK(tsr_subword_encode(tokenizer->subword, scratch, text, file.length, tokens, &count, diags));
  CHECK(count <= room);
  check_numbers(k->name, text, "ids", tsr_json_get(json, "ids"), tokens, NULL, count);
  CHECK(tsr_tokenizer_encode_begins(tokenizer, scratch, &file, others, begins, &again, diags));
  CHECK(count == again && (!count || !memcmp(tokens, others, sizeof *tokens * (size_t)count)));
  CHECK_INT(begins[count], file.length);
  for (int64_t i = 0; i < count; i++) CHECK(begins[i] >= 0 && begins[i] <= begins[i + 1]);
  /* The package counts in characters. */
  for (int64_t i = 0; i < count; i++)
    while (begins[i] && ((unsigned char)text[begins[i]] & 0xc0) == 0x80) begins[i]--;
  if (k->has_begins)
    check_numbers(k->name, text, "begins", tsr_json_get(json, "begins"), NULL, begins, count);
  check_decoded(arena, k, tokenizer, tokens, count, tsr_json_get(json, "decoded")->valuestring);
}

static void test_package(tsr_arena *arena, const char *folder, const kind *k, tsr_diags *diags) {
  enum { BYTES_MAX = 1 << 24 };
  tsr_subword *subword = read_subword(arena, folder, k->name, diags);
  if (!subword) return;
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(subword);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  const char *path = tsr_arena_printf(arena, "%s/%s.cases", folder, k->name);
  char *lines;
  size_t length = 0;
  int cases = 0;
  CHECK(tsr_file_read(arena, path, BYTES_MAX, TSR_NOWHERE, &lines, &length, diags));
  for (size_t at = 0, end; at < length; at = end + 1, cases++) {
    end = at + strcspn(lines + at, "\n");
    cJSON *json;
    if (!tsr_json_parse(arena, path, lines + at, end - at, &json, diags)) break;
    check_case(arena, k, &tokenizer, scratch, json, diags);
  }
  CHECK_STR(printed_diags(arena, diags), "");
  CHECK_INT(cases, 64);
  tsr_subword_scratch_free(scratch);
  const int32_t *ids;
  CHECK_INT(tsr_subword_before(subword, &ids), k->before);
  CHECK_INT(tsr_subword_behind(subword, &ids), k->behind);
  CHECK_INT(
      tsr_tokenizer_newline(&tokenizer), k->newline ? tsr_subword_find(subword, k->newline) : -1);
}

/* ---- what fails with a text, and what does not ---- */

static void test_unknown(tsr_arena *arena, tsr_diags *diags) {
  static const char *const files[][2] = {
      {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"u\"}}",
       "t.json: error: this text has no tokens: the unknown token is not in the vocabulary\n"},
      {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"u\","
       "\"continuing_subword_prefix\":\"#\",\"max_input_chars_per_word\":9}}",
       "t.json: error: this text has no tokens: the unknown token is not in the vocabulary\n"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":null}}",
       "t.json: error: this text has no tokens: the model has no token for a part of it, and no "
       "unknown token\n"},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}",
       "t.json: error: this text has no tokens: the unknown token is not in the vocabulary\n"},
  };
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    tsr_subword *subword;
    int32_t tokens[8];
    int64_t count = 0;
    CHECK(tsr_subword_parse(arena, "t.json", files[i][0], strlen(files[i][0]), &subword, diags));
    CHECK(tsr_subword_encode(subword, scratch, "a", 1, tokens, &count, diags));
    CHECK(count == 1 && tokens[0] == 0);
    CHECK(!tsr_subword_encode(subword, scratch, "b", 1, tokens, &count, diags));
    CHECK_STR(printed_diags(arena, diags), files[i][1]);
    CHECK(tsr_subword_encode(subword, scratch, "a", 1, tokens, &count, diags));
  }
  tsr_subword_scratch_free(scratch);
}

/* A continuing text keeps the blank that the first token of a whole one loses. */
static void test_inside(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  tsr_subword *subword = read_subword(arena, folder, "llama", diags);
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(subword);
  int32_t word = tsr_subword_find(subword, "\xe2\x96\x81world");
  CHECK(word >= 0);
  for (int inside = 0; inside < 2; inside++) {
    tsr_text text = {0};
    tsr_token_stream *stream = tsr_token_stream_new(arena, &tokenizer, inside);
    tsr_token_stream_add(stream, word, &text);
    tsr_token_stream_add(stream, word, &text);
    tsr_token_stream_end(stream, &text);
    CHECK_STR(text.data, inside ? " world world" : "world world");
    tsr_text_free(&text);
  }
  tsr_text text = {0};
  tsr_tokenizer_token_text(&tokenizer, word, &text);
  CHECK_STR(text.data, " world");
  int32_t byte = tsr_subword_find(subword, "<0xE2>");
  CHECK(byte >= 0);
  tsr_tokenizer_token_text(&tokenizer, byte, &text);
  CHECK_STR(text.data, " world\xe2");
  tsr_text_free(&text);
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : ".";
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    test_package(arena, folder, &kinds[i], diags);
  test_unknown(arena, diags);
  test_inside(arena, folder, diags);
  tsr_arena_free(arena);
  return check_done("subword");
}
