// SPDX-License-Identifier: Apache-2.0
/* The command tokenize: round trips, the same bytes with any number of threads, located errors, and
 * a full disk. */
#include "data/tokenize.h"
#include "base/fault.h"
#include "data/sources.h"
#include "data/jsonl.h"
#include "tests/check.h"
#include "tests/data/bpe_json.h"
#include "tests/data/token_bytes.h"
#include <glob.h>
#include <sys/wait.h>

static tsr_arena *arena;
static tsr_diags *diags;

/* Each time as a command of its own. */
static bool tokenize(const tsr_tokenize_options *o) {
  tsr_file_forget();
  return tsr_tokenize(arena, o, diags);
}

static tsr_tokenize_options options_of(const char *const *inputs, int count, const char *out) {
  return (tsr_tokenize_options){
      .inputs = inputs,
      .inputs_count = count,
      .tokenizer = tsr_tokenizer_byte(),
      .out = out,
      .end_of_text = -1,
      .threads = 1,
      .overwrites = true,
      .quiet = true};
}

static tsr_token_file open_file(const char *path, tsr_token_format format, int64_t vocab) {
  tsr_token_file f = {0};
  CHECK(tsr_token_file_open(arena, path, format, vocab, TSR_NOWHERE, &f, diags));
  CHECK_STR(scratch_diags(diags), "");
  return f;
}

/* The file's tokens are the bytes of the text; -1 stands for the end of text. */
static void check_bytes(const tsr_token_file *f, const char *text, int64_t end_of_text) {
  CHECK_INT(f->count, strlen(text));
  for (int64_t i = 0; i < f->count && i < (int64_t)strlen(text); i++)
    CHECK_INT(tsr_token_at(f, i), text[i] == '|' ? end_of_text : (unsigned char)text[i]);
}

static int files_like(const char *pattern) {
  glob_t found = {0};
  int status = glob(pattern, 0, NULL, &found), count = (int)found.gl_pathc;
  CHECK(!status || status == GLOB_NOMATCH);
  globfree(&found);
  return count;
}

static const char *const mixed[] = {"a.txt", "b.jsonl", "c*.txt"};

static void write_mixed(void) {
  scratch_text("a.txt", "one\ntwo");
  scratch_text(
      "b.jsonl",
      "{\"text\": \"x\\ny\", \"id\": 7}\n\n  {\"id\": {\"text\": \"no\"}, \"te\\u0078t\" : "
      "\"z\"}\r\n{\"text\":\"\"}\n{\"a\":[1,{\"b\":\"]\"}],\"text\":\"\\u00e9\\ud83d\\ude00\"}");
  scratch_text("c1.txt", "");
  scratch_text("c2.txt", "end");
}

#define DOCUMENTS "one\ntwo|x\ny|z|\xc3\xa9\xf0\x9f\x98\x80|end|"

static void test_formats(void) {
  tsr_tokenize_options o = options_of(mixed, 3, "out.bin");
  o.end_of_text = 256;
  CHECK(tokenize(&o));
  tsr_token_file f = open_file("out.bin", TSR_TOKEN_FILE_AUTO, 257);
  CHECK(f.format == TSR_TOKEN_FILE_LLMC && f.type == TSR_TOKEN_U16);
  check_bytes(&f, DOCUMENTS, 256);
  tsr_token_file_close(&f);

  o.end_of_text = 70000; /* does not fit in 2 bytes */
  CHECK(tokenize(&o));
  f = open_file("out.bin", TSR_TOKEN_FILE_AUTO, 70001);
  CHECK(f.format == TSR_TOKEN_FILE_LLMC && f.type == TSR_TOKEN_U32);
  check_bytes(&f, DOCUMENTS, 70000);
  tsr_token_file_close(&f);

  o.as = TSR_TOKENS_AS_NANOGPT;
  CHECK(tokenize(&o));
  f = open_file("out.bin", TSR_TOKEN_FILE_NANOGPT_U32, 70001);
  check_bytes(&f, DOCUMENTS, 70000);
  tsr_token_file_close(&f);

  o.end_of_text = -2;
  CHECK(tokenize(&o));
  f = open_file("out.bin", TSR_TOKEN_FILE_AUTO, 256);
  CHECK(f.format == TSR_TOKEN_FILE_NANOGPT_U16);
  check_bytes(
      &f,
      "one\ntwox\nyz\xc3\xa9\xf0\x9f\x98\x80"
      "end",
      0);
  tsr_token_file_close(&f);
}

static void test_megatron(void) {
  static const int64_t ends[] = {8, 12, 14, 21, 25};
  for (int wide = 0; wide < 2; wide++) {
    tsr_tokenize_options o = options_of(mixed, 3, wide ? "meg.idx" : "meg");
    o.end_of_text = wide ? 99999 : 256;
    o.as = TSR_TOKENS_AS_MEGATRON;
    CHECK(tokenize(&o));
    tsr_token_file f = open_file("meg", TSR_TOKEN_FILE_AUTO, 100000);
    CHECK(f.format == TSR_TOKEN_FILE_MEGATRON);
    CHECK_INT(f.type, wide ? TSR_TOKEN_I32 : TSR_TOKEN_U16);
    check_bytes(&f, DOCUMENTS, o.end_of_text);
    CHECK_INT(f.index->sequences, 5);
    int64_t at = 0;
    for (int i = 0; i < 5; i++) CHECK_INT(at = tsr_token_file_next_document(&f, at), ends[i]);
    tsr_token_file_close(&f);
    CHECK(access("meg.bin.tmp", F_OK) != 0 && access("meg.idx.tmp", F_OK) != 0);
  }
}

/* ---- threads ---- */

static char *read_whole(const char *path, size_t *ret_length) {
  FILE *stream = fopen(path, "rb");
  assert(stream);
  char *bytes = malloc(1 << 22);
  assert(bytes);
  *ret_length = fread(bytes, 1, 1 << 22, stream);
  fclose(stream);
  return bytes;
}

static uint64_t state = 1;
static unsigned next_random(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

/* Random texts and lines of random lengths, with characters of two bytes. */
static void write_random(void) {
  static const char *const words[] = {"be", " or", " not", "\n", ".", " \xc3\xa9t\xc3\xa9",
                                      "  ", "To"};
  FILE *text = fopen("r.txt", "wb"), *lines = fopen("r.jsonl", "wb");
  assert(text && lines);
  for (int i = 0; i < 30000; i++) fputs(words[next_random(8)], text);
  for (int line = 0; line < 800; line++) {
    fputs("{\"n\": [1, 2], \"text\": \"", lines);
    for (unsigned i = next_random(90); i > 0; i--) {
      const char *word = words[next_random(8)];
      fputs(*word == '\n' ? "\\n" : word, lines);
    }
    fputs("\"}\n", lines);
  }
  fclose(text);
  fclose(lines);
}

static void check_threads(const char *const *inputs, int count, tsr_tokenizer tokenizer) {
  size_t lengths[2], index_lengths[2];
  char *bytes[2], *index[2];
  for (int i = 0; i < 2; i++) {
    tsr_tokenize_options o = options_of(inputs, count, i ? "many" : "one");
    o.tokenizer = tokenizer;
    o.as = TSR_TOKENS_AS_MEGATRON;
    o.threads = i ? 7 : 1;
    o.block_bytes = 1000;
    CHECK(tokenize(&o));
    CHECK_STR(scratch_diags(diags), "");
    bytes[i] = read_whole(i ? "many.bin" : "one.bin", &lengths[i]);
    index[i] = read_whole(i ? "many.idx" : "one.idx", &index_lengths[i]);
  }
  CHECK(lengths[0] > 1000 && lengths[0] == lengths[1] && !memcmp(bytes[0], bytes[1], lengths[0]));
  CHECK(index_lengths[0] == index_lengths[1] && !memcmp(index[0], index[1], index_lengths[0]));
  for (int i = 0; i < 2; i++) free(bytes[i]), free(index[i]);
}

static void test_threads(void) {
  static const char *const inputs[] = {"r.txt", "r.jsonl", "r.txt"};
  write_random();
  check_threads(inputs, 3, tsr_tokenizer_byte());
  tsr_tokenizer unknown = {.kind = TSR_TOKENIZER_CHAR};
  check_threads(inputs, 1, unknown);
  tsr_text_file text = {"r.txt", NULL, 0};
  char *bytes = read_whole("r.txt", &text.length);
  text.text = bytes;
  tsr_tokenizer chars;
  CHECK(tsr_tokenizer_char(arena, &text, 1, &chars, diags));
  check_threads(inputs, 3, chars);
  free(bytes);
}

/* Pieces of a text give what the whole gives. */
static void test_pieces(void) {
  static const char *const inputs[] = {"r.txt"};
  size_t lengths[2];
  char *bytes[2];
  for (int i = 0; i < 2; i++) {
    tsr_tokenize_options o = options_of(inputs, 1, "p.bin");
    o.tokenizer = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
    o.as = TSR_TOKENS_AS_NANOGPT;
    o.block_bytes = i ? 3 : 0;
    CHECK(tokenize(&o));
    bytes[i] = read_whole("p.bin", &lengths[i]);
  }
  CHECK(lengths[0] == lengths[1] && !memcmp(bytes[0], bytes[1], lengths[0]));
  free(bytes[0]);
  free(bytes[1]);
  char *chars = read_whole("p.bin.chars.txt", lengths);
  CHECK(lengths[0] == 12 && !memcmp(chars, "\n .Tbenort\xc3\xa9", 12));
  free(chars);
}

/* Texts of byte pairs are cut only where the tokens stay the same. */
static void test_bpe(const char *name) {
  static const char *const texts[] = {"r.txt", "code.txt"}, *const both[] = {"r.txt", "b.jsonl"};
  char path[4096];
  tsr_subword *bpe;
  snprintf(path, sizeof path, "%s/tests/data/bpe/%s.json", TSR_SOURCE_ROOT, name);
  CHECK(tsr_subword_read(arena, path, TSR_NOWHERE, &bpe, diags));
  CHECK_STR(scratch_diags(diags), "");
  for (int k = 0; k < 2; k++) {
    size_t lengths[2];
    char *bytes[2];
    for (int i = 0; i < 2; i++) {
      tsr_tokenize_options o = options_of(&texts[k], 1, "bpe.bin");
      o.tokenizer = tsr_tokenizer_subword(bpe);
      o.threads = 2;
      o.block_bytes = i ? 16 : 0;
      CHECK(tokenize(&o));
      bytes[i] = read_whole("bpe.bin", &lengths[i]);
    }
    CHECK(lengths[0] > 2000 && lengths[0] == lengths[1] && !memcmp(bytes[0], bytes[1], lengths[0]));
    free(bytes[0]);
    free(bytes[1]);
  }
  check_threads(both, 2, tsr_tokenizer_subword(bpe));
}

/* Added tokens may have the end of a line in them, or take it: no text is cut there. */
static void test_added_line_ends(void) {
  static const char *const inputs[] = {"lines.txt"};
  static const char *const contents[] = {"word\\n", "word"};
  FILE *lines = fopen("lines.txt", "wb");
  assert(lines);
  for (int i = 0; i < 500; i++) fputs("word\n", lines);
  fclose(lines);
  for (int k = 0; k < 2; k++) {
    bpe_json json = {
        .added = tsr_arena_printf(
            arena,
            "{\"id\":256,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":%s,"
            "\"normalized\":false,\"special\":false}",
            contents[k], k ? "true" : "false")};
    tsr_subword *bpe;
    CHECK(bpe_json_parse(arena, &json, &bpe, diags));
    tsr_tokenize_options o = options_of(inputs, 1, "lines.bin");
    o.tokenizer = tsr_tokenizer_subword(bpe);
    o.as = TSR_TOKENS_AS_NANOGPT;
    o.threads = 2;
    o.block_bytes = 16;
    CHECK(tokenize(&o));
    size_t length;
    char *bytes = read_whole("lines.bin", &length);
    CHECK_INT(length, 500 * sizeof(uint16_t));
    for (size_t i = 0; i < length / 2; i++)
      CHECK(((unsigned char)bytes[2 * i] | bytes[2 * i + 1] << 8) == 256);
    free(bytes);
  }
}

static void write_code(void) {
  static const char *const words[] = {"int x",  "\n",   "\n\n", "  ", "\t", ";",  "}\n",
                                      "return", "\r\n", "'s",   "12", "é",  "//", "END\n   \n"};
  FILE *code = fopen("code.txt", "wb");
  assert(code);
  for (int i = 0; i < 20000; i++) fputs(words[next_random(14)], code);
  fclose(code);
}

/* ---- errors ---- */

static void check_refused(tsr_tokenize_options o, const char *words) {
  for (o.threads = 1; o.threads < 5; o.threads += 3) {
    CHECK(!tokenize(&o));
    CHECK_STR(scratch_diags(diags), words);
    CHECK(access("no.bin", F_OK) != 0 && access("no.bin.tmp", F_OK) != 0);
    CHECK(access("no.idx", F_OK) != 0 && access("no.idx.tmp", F_OK) != 0);
    CHECK(access("no.bin.chars.txt", F_OK) != 0);
  }
}

static void check_line(const char *text, const char *words) {
  static const char *const inputs[] = {"bad.jsonl"};
  tsr_tokenize_options o = options_of(inputs, 1, "no.bin");
  o.block_bytes = 8; /* the lines are in blocks of their own */
  scratch_text("bad.jsonl", text);
  check_refused(o, words);
}

static void test_lines(void) {
  check_line(
      "{\"text\": \"a\"}\n{\"text\": \"a\"\n{\"text\": 1}\n",
      "bad.jsonl:2:13: error: expected ',' or '}' after a value, not the end of the text\n"
      "    2 | {\"text\": \"a\"\n      |             ^\n");
  check_line(
      "{\"txt\": \"a\"}\n", "bad.jsonl:1:1: error: key 'text' is missing\n"
                            "    1 | {\"txt\": \"a\"}\n      | ^\n");
  check_line(
      "\n{\"text\": [\"a\"]}\n", "bad.jsonl:2:10: error: key 'text' should be a text, not a list\n"
                                 "    2 | {\"text\": [\"a\"]}\n      |          ^\n");
  check_line(
      "17\n", "bad.jsonl:1:1: error: a line should be an object with the key 'text', not a number\n"
              "    1 | 17\n      | ^\n");
  check_line(
      "{\"text\": \"\xff\"}\n", "bad.jsonl:1:11: error: invalid UTF-8: byte 0xff\n"
                                "    1 | {\"text\": \"\xff\"}\n      |           ^\n");
  check_line(
      "{\"text\": \"a\", \"text\": \"b\"}\n",
      "bad.jsonl:1:15: error: key 'text' stands twice\n"
      "    1 | {\"text\": \"a\", \"text\": \"b\"}\n      |               ^\n");
}

static void test_refused(void) {
  static const char *const gone[] = {"gone.txt", "gone-*.txt", "."};
  static const char *const packed[] = {"x.txt.gz"};
  static const char *const jsonl[] = {"b.jsonl"};
  static const char *const latin[] = {"latin.txt"};
  static const char *const small[] = {"small.txt"};
  tsr_tokenize_options o = options_of(gone, 3, "no.bin");
  check_refused(
      o, "error: cannot read 'gone.txt': No such file or directory\n"
         "error: no file matches 'gone-*.txt'\nerror: cannot read '.': Is a directory\n");
  scratch_write("x.txt.gz", "\x1f\x8b\x08\0", 4);
  o = options_of(packed, 1, "no.bin");
  check_refused(
      o, "error: 'x.txt.gz' is compressed (gzip), not text\n      = decompress it first\n");
  o = options_of(jsonl, 1, "no.bin");
  o.tokenizer = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  check_refused(
      o, "error: a char tokenizer takes its characters from texts, not from 'b.jsonl'\n"
         "      = --tokenizer byte, or a tokenizer.json\n");
  scratch_text("latin.txt", "abc\ncaf\xe9");
  o.inputs = latin;
  check_refused(
      o, "latin.txt:2:4: error: invalid UTF-8: byte 0xe9\n    2 | caf\xe9\n      |    ^\n");
  scratch_text("small.txt", "ab\nabab\nxb\n");
  tsr_text_file text = {"", "ab\n", 3};
  CHECK(tsr_tokenizer_char(arena, &text, 1, &o.tokenizer, diags));
  o.inputs = small;
  o.block_bytes = 2;
  check_refused(
      o, "small.txt:3:1: error: character 'x' (U+0078) is not in the vocabulary of 3 characters\n"
         "    3 | xb\n      | ^\n");
  o.inputs = jsonl;
  check_refused(
      o, "b.jsonl:1: the text:1:1: error: character 'x' (U+0078) is not in the vocabulary of 3 "
         "characters\n    1 | x\n      | ^\n");
}

/* ---- a file that becomes shorter ---- */

enum { ALL_READ = 3, SAID_ALONE = 4, SAID_MORE = 5 };

static int tokenize_short(tsr_tokenizer tokenizer, int threads) {
  static const char *const inputs[] = {"short.txt"};
  tsr_tokenize_options o = options_of(inputs, 1, "no.bin");
  o.tokenizer = tokenizer;
  o.threads = threads;
  if (tokenize(&o)) return ALL_READ;
  const char *said = scratch_diags(diags);
  if (!strcmp(said, "short.txt: error: the file has become shorter while it was read\n"))
    return SAID_ALONE;
  fprintf(stderr, "%s", said);
  return SAID_MORE;
}

/* Waits until the process has mapped short.txt, or has ended. */
static void wait_for_map(pid_t process) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/maps", (int)process);
  for (bool is_mapped = false, is_there = true; !is_mapped && is_there;) {
    FILE *maps = fopen(path, "r");
    is_there = false;
    while (maps && fgets(line, sizeof line, maps)) {
      is_there = true;
      is_mapped |= strstr(line, "/short.txt") != NULL;
    }
    if (maps) fclose(maps);
  }
}

/* Cuts the file once it is mapped, until a command has not read all of it before. Its zeros are not
 * told of as a mistake in the text. */
static void test_short(tsr_tokenizer tokenizer, int threads) {
  enum { LENGTH = 1 << 24, ATTEMPTS = 50 };
  char *text = malloc(LENGTH);
  assert(text);
  memset(text, 'a', LENGTH);
  int status = 0;
  for (int i = 0; i < ATTEMPTS; i++) {
    scratch_write("short.txt", text, LENGTH);
    pid_t child = fork();
    if (!child) _exit(tokenize_short(tokenizer, threads));
    wait_for_map(child);
    CHECK(!truncate("short.txt", 100));
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != ALL_READ) break;
  }
  CHECK(WIFEXITED(status));
  CHECK_INT(WEXITSTATUS(status), SAID_ALONE);
  unlink("no.bin");
  unlink("short.txt");
  free(text);
}

/* The disk is full at the n-th operation, for every n: nothing is left, or all is well. */
static void test_full_disk(void) {
  static const char *const kinds[] = {"ENOSPC", "EIO"};
  bool done = false;
  int failures = 0;
  for (int n = 1; n < 40 && !done; n++) {
    int status;
    pid_t child = fork();
    if (!child) {
      char fault[32];
      tsr_tokenize_options o = options_of(mixed, 3, "no.bin");
      o.as = TSR_TOKENS_AS_MEGATRON;
      snprintf(fault, sizeof fault, "%s@%d", kinds[n % 2], n);
      setenv("TESSERA_FAULT", fault, 1);
      tsr_fault_read();
      bool ok = tokenize(&o);
      _exit(ok ? 0 : tsr_diags_exit_code(diags));
    }
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    failures += !done;
    if (done) break;
    CHECK_INT(WEXITSTATUS(status), 1);
    CHECK_INT(files_like("no.*"), 0);
  }
  CHECK(done && failures > 8);
  unlink("no.bin");
  unlink("no.idx");
}

static void test_jsonl(void) {
  char text[64];
  size_t length;
  tsr_jsonl_fault fault;
  static const char line[] =
      "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20AC\", \"b\": -1.5e3 , \"c\":null}";
  CHECK(tsr_jsonl_text(arena, line, strlen(line), "a", text, &length, &fault));
  text[length] = 0;
  CHECK_STR(text, "\"\\/\b\f\n\r\t\xe2\x82\xac");
  CHECK(!tsr_jsonl_text(arena, line, strlen(line), "b", text, &length, &fault));
  CHECK_STR(fault.message, "key 'b' should be a text, not a number");
  CHECK(!tsr_jsonl_text(arena, line, strlen(line), "c", text, &length, &fault));
  CHECK_STR(fault.message, "key 'c' should be a text, not null");
  CHECK(!tsr_jsonl_text(arena, "{}", 2, "c", text, &length, &fault));
  CHECK_STR(fault.message, "key 'c' is missing");
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  write_mixed();
  test_full_disk(); /* before this process asks for faults itself, which it does once */
  for (int threads = 1; threads < 5; threads += 3) {
    test_short(tsr_tokenizer_byte(), threads);
    test_short((tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR}, threads);
  }
  test_jsonl();
  test_formats();
  test_megatron();
  test_threads();
  test_pieces();
  write_code();
  test_bpe("gpt2");
  test_bpe("llama3");
  test_bpe("qwen");
  test_bpe("digits");
  test_bpe("flags");
  test_added_line_ends();
  test_lines();
  test_refused();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("tokenize");
}
