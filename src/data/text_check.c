// SPDX-License-Identifier: Apache-2.0
#include "data/text_check.h"
#include "base/file_read.h"
#include "base/json_scan.h"
#include "base/utf8.h"
#include <string.h>

#define COMPRESSED "is compressed", "decompress it first"
#define ARRAYS "holds arrays", "write its tokens as data_format nanogpt_u16 or nanogpt_u32"
#define ROWS "holds the rows of a table", "write its texts as JSONL for `tessera-train tokenize`"
#define ARCHIVE "is an archive", "unpack it first"
#define DOCUMENT "is a document", "write its text to a file of its own"
#define PROGRAM "is a program", "a text is needed"
#define PICTURE "is a picture", "a text is needed"
#define WEIGHTS "holds weights", "a text is needed"
#define UTF16 "is UTF-16", "convert it to UTF-8 first, as `iconv -f UTF-16 -t UTF-8` does"
#define TOKENS                                                                                     \
  "holds tokens", "a run reads it by training_config.data_format, or if its name ends in .bin"

/* What formats begin with. */
static const struct {
  const char *begin;
  size_t length;
  const char *format, *what, *hint;
} formats[] = {
    {"\x1f\x8b", 2, "gzip", COMPRESSED},
    {"\x28\xb5\x2f\xfd", 4, "Zstandard", COMPRESSED},
    {"BZh", 3, "bzip2", COMPRESSED},
    {"\xfd\x37zXZ", 5, "xz", COMPRESSED},
    {"\x04\x22\x4d\x18", 4, "LZ4", COMPRESSED},
    {"PAR1", 4, "Parquet", ROWS},
    {"ARROW1", 6, "Arrow", ROWS},
    {"SQLite format 3", 16, "SQLite", ROWS},
    {"\x93NUMPY", 6, "NumPy", ARRAYS},
    {"\x89HDF\r\n", 6, "HDF5", ARRAYS},
    {"PK\x03\x04", 4, "ZIP", ARCHIVE},
    {"7z\xbc\xaf\x27\x1c", 6, "7-Zip", ARCHIVE},
    {"%PDF-", 5, "PDF", DOCUMENT},
    {"\x7f"
     "ELF",
     4, "ELF", PROGRAM},
    {"\x89PNG", 4, "PNG", PICTURE},
    {"\xff\xd8\xff", 3, "JPEG", PICTURE},
    {"GGUF", 4, "GGUF", WEIGHTS},
    {"\xff\xfe\0\0", 4, "with a byte order mark", "is UTF-32",
     "convert it to UTF-8 first, as `iconv -f UTF-32 -t UTF-8` does"},
    {"\xff\xfe", 2, "with a byte order mark", UTF16},
    {"\xfe\xff", 2, "with a byte order mark", UTF16},
    {"\xc8\xd7\x34\x01", 4, "llm.c", TOKENS}, /* 20240328, its tokenizer */
    {"\x88\xd8\x34\x01", 4, "llm.c", TOKENS}, /* 20240520 */
    {"\xa1\xd9\x34\x01", 4, "llm.c", TOKENS}, /* 20240801 */
    {"version https://git-lfs", 23, "Git LFS", "is a pointer to a file that is not in this folder",
     "`git lfs pull` fetches it"},
    {"MMIDIDX", 7, "Megatron", TOKENS},
};

/* Of beginnings of at least `least` bytes. */
static bool check_begin(
    const tsr_text_file *file, size_t least, const char *wanted, tsr_location location,
    tsr_diags *diags) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    size_t length = formats[i].length;
    if (length < least || file->length < length || memcmp(file->text, formats[i].begin, length))
      continue;
    tsr_diag_error(
        diags, location, "'%s' %s (%s), not %s", file->path, formats[i].what, formats[i].format,
        wanted);
    tsr_diag_hint(diags, "%s", formats[i].hint);
    return false;
  }
  return true;
}

/* 8 bytes of a length, and a header of JSON (huggingface.co/docs/safetensors). */
static bool is_safetensors(const tsr_text_file *file) {
  return file->length > 9 && !memcmp(file->text + 4, "\0\0\0\0{", 5);
}

enum { JSON_BYTES_MAX = 1 << 28 };

/* Whether the first lines, two at least, are an array each: a text may begin with "[1]". */
static bool is_arrays(tsr_arena *arena, const char *begin, const char *end) {
  enum { LINES_MAX = 8 };
  int lines = 0;
  tsr_json_fault fault;
  while (begin < end && lines < LINES_MAX) {
    const char *line = memchr(begin, '\n', (size_t)(end - begin));
    size_t length = (size_t)((line ? line : end) - begin), blank = 0;
    while (blank < length && strchr(" \t\r", begin[blank]) && begin[blank]) blank++;
    if (blank < length) {
      if (begin[blank] != '[' || length > JSON_BYTES_MAX ||
          !tsr_json_scan(arena, begin, length, &fault))
        return false;
      lines++;
    }
    begin += length + 1;
  }
  return lines > 1;
}

/* JSON under another name: an object on the first line, an array on each, or all of it an object or
 * an array. */
static bool is_json(const tsr_text_file *file) {
  const char *end = file->text + file->length, *begin = file->text;
  while (begin < end && strchr(" \t\r\n", *begin) && *begin) begin++;
  if (begin == end || !strchr("{[", *begin) || !*begin) return false;
  const char *line = memchr(begin, '\n', (size_t)(end - begin));
  tsr_arena *scratch = tsr_arena_new();
  tsr_json_fault fault;
  bool found = *begin == '{' && line && line - begin < JSON_BYTES_MAX &&
               tsr_json_scan(scratch, begin, (size_t)(line - begin), &fault);
  if (!found && end - begin < JSON_BYTES_MAX)
    found = tsr_json_scan(scratch, begin, (size_t)(end - begin), &fault);
  if (!found && *begin == '[') found = is_arrays(scratch, begin, end);
  tsr_arena_free(scratch);
  return found;
}

/* tt-train's list of tokens under another name (data/tt_train_tokens.h). */
static bool is_token_list(const tsr_text_file *file) {
  static const char *const keys[] = {"tokens:", "tokenizer_vocab_size:"};
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(keys[i]);
    if (file->length > length && !memcmp(file->text, keys[i], length) &&
        strchr(" \r\n", file->text[length]))
      return true;
  }
  return false;
}

static bool check_json(const tsr_text_file *file, tsr_location location, tsr_diags *diags) {
  bool lines = tsr_path_ends(file->path, ".jsonl") || tsr_path_ends(file->path, ".ndjson");
  if (!lines && !tsr_path_ends(file->path, ".json") && !is_json(file)) return true;
  tsr_diag_error(diags, location, "'%s' holds JSON, not text", file->path);
  tsr_diag_hint(
      diags, "`tessera-train tokenize` makes a token file of the texts in %s",
      lines ? "it" : "a .jsonl file");
  return false;
}

bool tsr_content_check_kind(const tsr_text_file *file, tsr_location location, tsr_diags *diags) {
  if (!check_begin(file, 0, "text", location, diags) || !check_json(file, location, diags))
    return false;
  if (is_safetensors(file))
    return tsr_diag_error(
        diags, location, "'%s' holds weights (safetensors), not text", file->path);
  if (!is_token_list(file)) return true;
  tsr_diag_error(diags, location, "'%s' holds tokens (tt-train), not text", file->path);
  tsr_diag_hint(diags, "a configuration's name ends in .yaml");
  return false;
}

bool tsr_content_check_lines(const tsr_text_file *file, tsr_location location, tsr_diags *diags) {
  const char *at = file->text, *end = at + file->length;
  if (!check_begin(file, 0, "lines of JSON", location, diags)) return false;
  while (at < end && *at && strchr(" \t\r\n", *at)) at++;
  if (at == end || *at != '[') return true;
  tsr_diag_error(
      diags, location, "'%s' holds a JSON array, not an object on each line", file->path);
  tsr_diag_hint(diags, "`jq -c '.[]'` writes its elements as lines");
  return false;
}

bool tsr_content_check_bytes(const tsr_text_file *file, tsr_diags *diags) {
  size_t valid = tsr_utf8_valid(file->text, file->length);
  const char *nul = memchr(file->text, 0, valid);
  size_t bad = nul ? (size_t)(nul - file->text) : valid;
  if (bad == file->length) return true;
  tsr_diag_error(
      diags, tsr_text_file_place(file, bad, 1, diags), "%s: byte 0x%02x",
      nul ? "not text" : "invalid UTF-8", (unsigned char)file->text[bad]);
  return false;
}

/* The first bytes of a file are words and lines. Of 16-bit tokens both bytes of every one would be
 * letters. */
static bool is_text(const tsr_text_file *file) {
  enum { TEXT_BYTES_MIN = 64, TEXT_BYTES_MAX = 4096 };
  size_t length = file->length < TEXT_BYTES_MAX ? file->length : TEXT_BYTES_MAX;
  if (length < TEXT_BYTES_MIN) return false;
  for (size_t i = 0; i < length; i++) {
    unsigned char byte = (unsigned char)file->text[i];
    if (!byte || byte == 127 || (byte < ' ' && !strchr("\t\n\r\f", byte))) return false;
  }
  return tsr_utf8_valid(file->text, length) + 4 > length; /* its end may cut a character */
}

bool tsr_content_check_tokens(const tsr_text_file *file, tsr_location location, tsr_diags *diags) {
  if (!check_begin(file, 4, "tokens", location, diags)) return false;
  bool weights = is_safetensors(file);
  if (!weights && !is_text(file)) return true;
  tsr_diag_error(
      diags, location, "'%s' holds %s, not tokens", file->path,
      weights ? "weights (safetensors)" : "text");
  if (!weights)
    tsr_diag_hint(
        diags, "a text's name ends in .txt, not in .bin; if these bytes are tokens, data_format: "
               "nanogpt_u16 or nanogpt_u32 selects it");
  return false;
}
