// SPDX-License-Identifier: Apache-2.0
/* Byte-level BPE: the ids of the tokenizers package, and what holds of all ids. Argument:
 * tests/data/bpe. */
#include "tokenizer/subword.h"
#include "base/file_read.h"
#include "tokenizer/normal_form.h"
#include "data/tokenizer.h"
#include "tests/check.h"
#include "tests/data/bpe_json.h"
#include "tests/data/mixed_text.h"
#include "tests/printed.h"
#include <pthread.h>

static const char *folder;
static mixed_fragments fragments;

static tsr_subword *read_bpe(tsr_arena *arena, const char *name, tsr_diags *diags) {
  tsr_subword *bpe = NULL;
  const char *path = tsr_arena_printf(arena, "%s/%s.json", folder, name);
  bool ok = tsr_subword_read(arena, path, TSR_NOWHERE, &bpe, diags);
  tsr_diags_print(diags, stderr);
  CHECK(ok);
  return bpe;
}

/* ---- the package's ids ---- */

static void test_package(tsr_arena *arena, const char *name, int texts, tsr_diags *diags) {
  tsr_subword *bpe = read_bpe(arena, name, diags);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  FILE *file = fopen(tsr_arena_printf(arena, "%s/%s.ids", folder, name), "r");
  CHECK(file);
  char line[128], *text = malloc(MIXED_ROOM);
  int32_t *tokens = malloc(sizeof *tokens * 6 * MIXED_ROOM);
  int seed = 0;
  while (file && fgets(line, sizeof line, file)) {
    if (line[0] == '#') continue;
    char *end;
    int64_t want = strtoll(line, &end, 10), count = 0;
    size_t length = mixed_text((uint64_t)seed, &fragments, text);
    CHECK(tsr_subword_encode(bpe, scratch, text, length, tokens, &count, diags));
    CHECK_AT(
        count == want && mixed_hash(tokens, count) == strtoull(end, NULL, 16),
        "%s: text %d: %lld ids, not %lld, or others", name, seed, (long long)count,
        (long long)want);
    CHECK(count <= tsr_subword_room(bpe, text, length));
    seed++;
  }
  CHECK_INT(seed, texts);
  if (file) fclose(file);
  free(text);
  free(tokens);
  tsr_subword_scratch_free(scratch);
}

/* ---- there and back ---- */

/* Valid UTF-8 of the mixed text: what is broken is left out. */
static size_t take_valid(char *text, size_t length) {
  size_t put = 0;
  for (size_t at = 0; at < length;) {
    uint32_t code;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    memmove(text + put, text + at, (size_t)bytes);
    put += (size_t)bytes;
    at += bytes ? (size_t)bytes : 1;
  }
  return put;
}

static void test_round_trip(tsr_arena *arena, const char *name, bool is_nfc, tsr_diags *diags) {
  tsr_subword *bpe = read_bpe(arena, name, diags);
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(bpe);
  char *text = tsr_arena_alloc(arena, MIXED_ROOM), *want = text;
  char *normal = tsr_arena_alloc(arena, 3 * MIXED_ROOM);
  const tsr_normalizer *nfc = tsr_normalizer_new(arena, TSR_NFC);
  tsr_normalize_scratch scratch = {.arena = arena};
  for (uint64_t seed = 500; seed < 506; seed++) {
    tsr_text_file file = {"text", text, take_valid(text, mixed_text(seed, &fragments, text))};
    size_t length = file.length;
    if (is_nfc) length = tsr_normalize(nfc, &scratch, text, length, want = normal, NULL);
    int64_t room = tsr_tokenizer_room(&tokenizer, text, file.length), count = 0;
    int32_t *tokens = tsr_arena_array(arena, int32_t, room);
    CHECK(tsr_tokenizer_encode(&tokenizer, &file, tokens, &count, diags));
    CHECK(count <= room);
    tsr_text all = {0}, single = {0};
    tsr_tokenizer_decode(&tokenizer, tokens, count, &all);
    tsr_token_stream *stream = tsr_token_stream_new(arena, &tokenizer, false);
    for (int64_t i = 0; i < count; i++) tsr_token_stream_add(stream, tokens[i], &single);
    tsr_token_stream_end(stream, &single);
    CHECK(all.length == length && !memcmp(all.data, want, length));
    CHECK(single.length == length && !memcmp(single.data, want, length));
    tsr_text_free(&all);
    tsr_text_free(&single);
  }
}

/* Every single byte, and pairs of them, come back as Python's replacement has them. */
static void test_broken_bytes(tsr_arena *arena, tsr_diags *diags) {
  static const struct {
    const char *given, *want;
  } cases[] = {/* want: '?' for U+FFFD; from Python's bytes.decode("utf-8", "replace") */
               {"a\x80z", "a?z"},
               {"\xc0\xaf", "??"},
               {"\xc2", "?"},
               {"\xc2\xc2\xa0", "?\xc2\xa0"},
               {"\xe2\x82", "?"},
               {"\xe2\x82x", "?x"},
               {"\xe2(\xa1", "?(?"},
               {"\xe0\x9f\xbf", "???"},
               {"\xed\xa0\x80", "???"},
               {"\xed\x9f", "?"},
               {"\xf0\x9f\x99", "?"},
               {"\xf0\x9f\x99\xf0", "??"},
               {"\xf0\x8f\xbf\xbf", "????"},
               {"\xf4\x8f\xbf", "?"},
               {"\xf4\x90\x80\x80", "????"},
               {"\xf5\x80", "??"},
               {"\xff\xfe", "??"},
               {"\xe2\x82\xac\xe2\x82", "\xe2\x82\xac?"}};
  tsr_subword *bpe;
  CHECK(bpe_json_parse(arena, &(bpe_json){0}, &bpe, diags));
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(bpe);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_text_file file = {"text", cases[i].given, strlen(cases[i].given)};
    int32_t tokens[32];
    int64_t count = 0;
    CHECK(tsr_tokenizer_encode(&tokenizer, &file, tokens, &count, diags));
    CHECK_INT(tsr_tokenizer_room(&tokenizer, file.text, file.length), count);
    tsr_text got = {0}, want = {0};
    tsr_tokenizer_decode(&tokenizer, tokens, count, &got);
    for (const char *c = cases[i].want; *c; c++)
      tsr_text_add(&want, *c == '?' ? "\xef\xbf\xbd" : "%c", *c);
    CHECK_STR(got.data, want.data);
    tsr_text_free(&got);
    tsr_text_free(&want);
  }
}

static void test_whole(void) {
  static const struct {
    const char *text;
    size_t whole;
  } cases[] = {
      {"", 0},
      {"ab", 2},
      {"a\xc3", 1},
      {"a\xc3\xa9", 3},
      {"\xe2\x82", 0},
      {"\xe2\x82\xac", 3},
      {"\xf0\x9f\x99", 0},
      {"\xf0", 0},
      {"\x80\x80", 2},
      {"\xff", 1},
      {"x\x80\x80\x80", 4},
      {"\xf0\x9f\x99\x82", 4},
      {"\xc3\xa9\xc3", 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_INT(tsr_tokenizer_whole(cases[i].text, strlen(cases[i].text)), cases[i].whole);
}

/* ---- merging against the plainest way to do it ---- */

enum { TOKENS_MAX = 320, WORD_MAX = 400 };

typedef struct {
  char text[TOKENS_MAX][16]; /* of tokens from 256 on */
  int32_t left[TOKENS_MAX], right[TOKENS_MAX], made[TOKENS_MAX];
  int tokens, merges;
} random_merges;

/* Merges over a, b and c, in any order of ranks: also those that give a token that another gives.
 */
static void draw_merges(uint64_t *state, random_merges *m, tsr_text *vocab, tsr_text *merges) {
  m->tokens = m->merges = 0;
  const char *letters[3] = {"a", "b", "c"};
  for (int tries = 0; tries < 60; tries++) {
    int count = 3 + m->tokens, x = (int)mixed_draw(state, (uint64_t)count);
    int y = (int)mixed_draw(state, (uint64_t)count), z = 0;
    char text[40];
    snprintf(
        text, sizeof text, "%s%s", x < 3 ? letters[x] : m->text[x - 3],
        y < 3 ? letters[y] : m->text[y - 3]);
    int32_t left = x < 3 ? 'a' + x : 253 + x, right = y < 3 ? 'a' + y : 253 + y;
    bool again = strlen(text) > 12;
    for (int i = 0; i < m->merges; i++) again |= m->left[i] == left && m->right[i] == right;
    if (again) continue;
    while (z < m->tokens && strcmp(m->text[z], text) != 0) z++;
    if (z == m->tokens) {
      strcpy(m->text[m->tokens++], text);
      tsr_text_add(vocab, ",\"%s\":%d", text, 256 + z);
    }
    m->left[m->merges] = left, m->right[m->merges] = right, m->made[m->merges++] = 256 + z;
  }
  for (int i = m->merges - 1; i > 0; i--) { /* shuffled: ranks do not follow how tokens are made */
    int j = (int)mixed_draw(state, (uint64_t)i + 1);
    int32_t l = m->left[i], r = m->right[i], d = m->made[i];
    m->left[i] = m->left[j], m->right[i] = m->right[j], m->made[i] = m->made[j];
    m->left[j] = l, m->right[j] = r, m->made[j] = d;
  }
  for (int i = 0; i < m->merges; i++) {
    const char *parts[2];
    char single[2][2] = {{(char)m->left[i], 0}, {(char)m->right[i], 0}};
    parts[0] = m->left[i] < 256 ? single[0] : m->text[m->left[i] - 256];
    parts[1] = m->right[i] < 256 ? single[1] : m->text[m->right[i] - 256];
    bool as_list = i % 2;
    tsr_text_add(
        merges, as_list ? "%s[\"%s\",\"%s\"]" : "%s\"%s %s\"", i ? "," : "", parts[0], parts[1]);
  }
}

static int64_t merge_plainly(const random_merges *m, int32_t *tokens, int64_t count) {
  for (;;) {
    int best = m->merges;
    int64_t at = 0;
    for (int64_t i = 0; i + 1 < count; i++)
      for (int k = 0; k < best; k++)
        if (m->left[k] == tokens[i] && m->right[k] == tokens[i + 1]) best = k, at = i;
    if (best == m->merges) return count;
    tokens[at] = m->made[best];
    memmove(tokens + at + 1, tokens + at + 2, sizeof *tokens * (size_t)(count - at - 2));
    count--;
  }
}

static void test_merges(tsr_arena *arena, tsr_diags *diags) {
  uint64_t state = 7;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  for (int round = 0; round < 40; round++) {
    random_merges m;
    tsr_text vocab = {0}, merges = {0};
    draw_merges(&state, &m, &vocab, &merges);
    tsr_subword *bpe;
    CHECK(bpe_json_parse(
        arena, &(bpe_json){.vocab = vocab.data, .merges = merges.data}, &bpe, diags));
    for (int i = 0; i < 60; i++) {
      char word[WORD_MAX];
      int32_t got[WORD_MAX], want[WORD_MAX];
      int64_t count, length = 1 + (int64_t)mixed_draw(&state, i % 3 ? 20 : WORD_MAX);
      for (int64_t k = 0; k < length; k++)
        want[k] = word[k] = (char)('a' + mixed_draw(&state, 1 + (uint64_t)i % 3));
      CHECK(tsr_subword_encode(bpe, scratch, word, (size_t)length, got, &count, diags));
      CHECK_INT(count, merge_plainly(&m, want, length));
      CHECK(!memcmp(got, want, sizeof *got * (size_t)count));
    }
    tsr_text_free(&vocab);
    tsr_text_free(&merges);
  }
  tsr_subword_scratch_free(scratch);
}

/* A word of a megabyte takes no quadratic time, in the merges and in the pattern. */
static void test_long_words(tsr_arena *arena, tsr_diags *diags) {
  enum { LENGTH = 1 << 20 };
  tsr_subword *bpe = read_bpe(arena, "llama3", diags);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  char *text = tsr_arena_alloc(arena, LENGTH);
  int32_t *tokens = tsr_arena_array(arena, int32_t, LENGTH);
  static const char fills[] = "a \n-";
  for (int i = 0; i < 4; i++) {
    int64_t count = 0, bytes = 0;
    memset(text, fills[i], LENGTH);
    CHECK(tsr_subword_encode(bpe, scratch, text, LENGTH, tokens, &count, diags));
    for (int64_t k = 0; k < count; k++) {
      size_t length;
      tsr_subword_token(bpe, tokens[k], &length);
      bytes += (int64_t)length;
    }
    CHECK_INT(bytes, LENGTH);
  }
  tsr_subword_scratch_free(scratch);
}

/* ---- templates, tokens by name ---- */

static void test_names(tsr_arena *arena, tsr_diags *diags) {
  tsr_subword *bpe = read_bpe(arena, "llama3", diags);
  int32_t begin = tsr_subword_find(bpe, "<|begin_of_text|>");
  CHECK(begin > 0 && tsr_subword_is_special(bpe, begin));
  const int32_t *ids;
  CHECK_INT(tsr_subword_before(bpe, &ids), 1);
  CHECK_INT(ids[0], begin);
  CHECK_INT(tsr_subword_behind(bpe, &ids), 0);
  CHECK_INT(tsr_subword_find(bpe, "no such token"), -1);
  CHECK_INT(tsr_subword_find(bpe, ""), -1);
  int32_t word = tsr_subword_find(bpe, " wordy"); /* the vocabulary's, by its bytes */
  CHECK(word > 0 && !tsr_subword_is_special(bpe, word));
  size_t length;
  CHECK(!memcmp(tsr_subword_token(bpe, word, &length), " wordy", 6) && length == 6);
  CHECK_INT(tsr_subword_vocab_size(bpe), 2408);
  CHECK_INT(
      tsr_tokenizer_newline(&(tsr_tokenizer){.kind = TSR_TOKENIZER_SUBWORD, .subword = bpe}),
      tsr_subword_find(bpe, "\n"));
}

static void test_holes(tsr_arena *arena, tsr_diags *diags) {
  tsr_subword *bpe;
  bpe_json json = {
      .vocab = ",\"zz\":300",
      .added = "{\"id\":310,\"content\":\"<e>\",\"single_word\":false,\"lstrip\":false,"
               "\"rstrip\":false,\"normalized\":false,\"special\":true}",
      .post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
          "{\"SpecialToken\":{\"id\":\"<e>\"}}],\"special_tokens\":{\"<e>\":{\"ids\":[310,65]}}}"};
  CHECK(bpe_json_parse(arena, &json, &bpe, diags));
  CHECK_INT(tsr_subword_vocab_size(bpe), 311);
  size_t length = 7;
  CHECK_STR(tsr_subword_token(bpe, 305, &length), "");
  CHECK_INT(length, 0);
  CHECK(!tsr_subword_is_special(bpe, 305) && tsr_subword_is_special(bpe, 310));
  const int32_t *ids;
  CHECK_INT(tsr_subword_before(bpe, &ids), 0);
  CHECK_INT(tsr_subword_behind(bpe, &ids), 2);
  CHECK(ids[0] == 310 && ids[1] == 65);
  int32_t tokens[16];
  int64_t count;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  CHECK(tsr_subword_encode(bpe, scratch, "zz<e>", 5, tokens, &count, diags));
  CHECK(count == 3 && tokens[0] == 'z' && tokens[2] == 310); /* zz is in no merge */
  CHECK(tsr_subword_encode(bpe, scratch, "", 0, tokens, &count, diags));
  CHECK_INT(count, 0);
  tsr_subword_scratch_free(scratch);
}

/* ---- threads, and patterns that need much ---- */

typedef struct {
  const tsr_subword *bpe;
  uint64_t hash;
} thread_job;

static void *encode_some(void *argument) {
  thread_job *job = argument;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  char *text = malloc(MIXED_ROOM);
  int32_t *tokens = malloc(sizeof *tokens * 6 * MIXED_ROOM);
  for (uint64_t seed = 0; seed < 6; seed++) {
    int64_t count = 0;
    size_t length = mixed_text(seed, &fragments, text);
    tsr_subword_encode(job->bpe, scratch, text, length, tokens, &count, NULL);
    job->hash = job->hash * 31 + mixed_hash(tokens, count);
  }
  free(text);
  free(tokens);
  tsr_subword_scratch_free(scratch);
  return NULL;
}

static void test_threads(tsr_arena *arena, tsr_diags *diags) {
  tsr_subword *bpe = read_bpe(arena, "qwen", diags);
  thread_job jobs[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    jobs[i] = (thread_job){bpe, 0};
    CHECK(!pthread_create(&threads[i], NULL, encode_some, &jobs[i]));
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 1; i < 4; i++) CHECK(jobs[i].hash == jobs[0].hash);
}

/* A repetition of ten thousand is found; to look for the end of one of millions, from each of its
 * letters, takes too many steps. */
static void test_steps(tsr_arena *arena, tsr_diags *diags) {
  tsr_subword *bpe;
  bpe_json json = {
      .pre_tokenizer =
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
          "\"(?:a|bc)+[de]\"},\"behavior\":\"Isolated\"},"
          "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"};
  CHECK(bpe_json_parse(arena, &json, &bpe, diags));
  enum { LENGTH = 1 << 21 };
  char *text = tsr_arena_alloc(arena, LENGTH);
  int32_t *tokens = tsr_arena_array(arena, int32_t, LENGTH);
  memset(text, 'a', LENGTH);
  text[9999] = 'd';
  int64_t count = 0;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  CHECK(tsr_subword_encode(bpe, scratch, text, 10000, tokens, &count, diags));
  CHECK_INT(count, 10000);
  text[9999] = 'a';
  CHECK(!tsr_subword_encode(bpe, scratch, text, LENGTH, tokens, &count, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "t.json: error: a pattern fails on this text: retry-limit-in-search over\n");
  tsr_subword_scratch_free(scratch);
}

int main(int count, char **arguments) {
  folder = count > 1 ? arguments[1] : ".";
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  mixed_read(tsr_arena_printf(arena, "%s/fragments.txt", folder), &fragments);
  test_package(arena, "gpt2", 160, diags);
  test_package(arena, "llama3", 160, diags);
  test_package(arena, "qwen", 160, diags);
  test_package(arena, "flags", 16, diags);
  test_package(arena, "digits", 16, diags);
  test_round_trip(arena, "gpt2", false, diags);
  test_round_trip(arena, "llama3", false, diags);
  test_round_trip(arena, "digits", false, diags);
  test_round_trip(arena, "qwen", true, diags);
  test_broken_bytes(arena, diags);
  test_whole();
  test_merges(arena, diags);
  test_long_words(arena, diags);
  test_names(arena, diags);
  test_holes(arena, diags);
  test_threads(arena, diags);
  test_steps(arena, diags);
  tsr_arena_free(arena);
  return check_done("bpe");
}
