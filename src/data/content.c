#include "data/content.h"
#include "base/file.h"
#include "base/json_scan.h"
#include "data/utf8.h"
#include <string.h>

#define COMPRESSED "is compressed", "decompress it first"
#define ARRAYS "holds arrays", "write its tokens as data_format nanogpt_u16 or nanogpt_u32"
#define ROWS "holds the rows of a table", "write its texts as JSONL for `tessera-train tokenize`"
#define ARCHIVE "is an archive", "unpack it first"
#define DOCUMENT "is a document", "write its text to a file of its own"
#define TOKENS "holds tokens", "data_format says of which program; names that end in .bin need none"

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
    {"\xc8\xd7\x34\x01", 4, "llm.c", TOKENS}, /* 20240328, its tokenizer */
    {"\x88\xd8\x34\x01", 4, "llm.c", TOKENS}, /* 20240520 */
    {"\xa1\xd9\x34\x01", 4, "llm.c", TOKENS}, /* 20240801 */
    {"MMIDIDX", 7, "Megatron", TOKENS},
};

static bool check_begin(const tsr_text_file *file, tsr_place place, tsr_diags *diags) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    if (file->length < formats[i].length ||
        memcmp(file->text, formats[i].begin, formats[i].length) != 0)
      continue;
    tsr_diag_error(
        diags, place, "'%s' %s (%s), not text", file->path, formats[i].what,
        formats[i].format);
    tsr_diag_hint(diags, "%s", formats[i].hint);
    return false;
  }
  return true;
}

/* Lines of JSON under another name; an object that fills several lines is not told from a text. */
static bool begins_with_object(const tsr_text_file *file) {
  enum { LINE_MAX_BYTES = 1 << 24 };
  const char *end = memchr(file->text, '\n', file->length);
  size_t length = end ? (size_t)(end - file->text) : file->length;
  if (!length || *file->text != '{' || length > LINE_MAX_BYTES) return false;
  tsr_arena *scratch = tsr_arena_new();
  tsr_json_fault fault;
  bool is_object = tsr_json_scan(scratch, file->text, length, &fault);
  tsr_arena_free(scratch);
  return is_object;
}

static bool check_json(const tsr_text_file *file, tsr_place place, tsr_diags *diags) {
  bool lines = tsr_path_ends(file->path, ".jsonl") || tsr_path_ends(file->path, ".ndjson");
  if (!lines && !tsr_path_ends(file->path, ".json") && !begins_with_object(file)) return true;
  tsr_diag_error(diags, place, "'%s' holds JSON, not text", file->path);
  tsr_diag_hint(
      diags, "`tessera-train tokenize` makes a token file of the texts in %s",
      lines ? "it" : "a .jsonl file");
  return false;
}

bool tsr_content_check_kind(const tsr_text_file *file, tsr_place place, tsr_diags *diags) {
  return check_begin(file, place, diags) && check_json(file, place, diags);
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
