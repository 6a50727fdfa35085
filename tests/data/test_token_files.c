// SPDX-License-Identifier: Apache-2.0
/* Token files of other programs: what is read, how a format is found, and every way to be damaged.
 */
#include "data/token_files.h"
#include "tests/check.h"
#include "tests/data/token_bytes.h"

static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};
#define AT "run.yaml:3:14: error: "

static tsr_arena *arena;
static tsr_diags *diags;
static byte_file file;

static bool open_as(const char *path, tsr_token_format format, int64_t vocab, tsr_token_file *ret) {
  return tsr_token_file_open(arena, path, format, vocab, PLACE, ret, diags);
}

/* Opens it, and it has these tokens: first, first + 1, … */
static void check_tokens(
    const char *path, tsr_token_format format, int64_t vocab, tsr_token_format found, int first,
    int count) {
  tsr_token_file f;
  bool ok = open_as(path, format, vocab, &f);
  CHECK_STR(scratch_diags(diags), "");
  CHECK(ok);
  if (!ok) return;
  CHECK_INT(f.format, found);
  CHECK_INT(f.count, count);
  for (int i = 0; i < count && i < f.count; i++) CHECK_INT(tsr_token_at(&f, i), first + i);
  tsr_token_file_close(&f);
}

static void
check_refused(const char *path, tsr_token_format format, int64_t vocab, const char *words) {
  tsr_token_file f;
  CHECK(!open_as(path, format, vocab, &f));
  CHECK_STR(scratch_diags(diags), words);
}

static void test_formats(void) {
  llmc_file(&file, 7, 100, 2);
  write_file("v1.bin", &file);
  check_tokens("v1.bin", TSR_TOKEN_FILE_AUTO, 50257, TSR_TOKEN_FILE_LLMC, 7, 100);
  check_tokens("v1.bin", TSR_TOKEN_FILE_LLMC, 0, TSR_TOKEN_FILE_LLMC, 7, 100);
  llmc_file(&file, 100000, 100, 4);
  write_file("v7.bin", &file);
  check_tokens("v7.bin", TSR_TOKEN_FILE_AUTO, 128256, TSR_TOKEN_FILE_LLMC, 100000, 100);
  llmc_file(&file, 0, 0, 2);
  write_file("none.bin", &file);
  check_tokens("none.bin", TSR_TOKEN_FILE_AUTO, 9, TSR_TOKEN_FILE_LLMC, 0, 0);

  file.length = 0;
  put_tokens(&file, 300, 50, 2);
  write_file("u16.bin", &file);
  check_tokens("u16.bin", TSR_TOKEN_FILE_AUTO, 65536, TSR_TOKEN_FILE_NANOGPT_U16, 300, 50);
  file.length = 0;
  put_tokens(&file, 300, 50, 4);
  write_file("u32.bin", &file);
  check_tokens("u32.bin", TSR_TOKEN_FILE_AUTO, 65537, TSR_TOKEN_FILE_NANOGPT_U32, 300, 50);
  check_tokens("u32.bin", TSR_TOKEN_FILE_NANOGPT_U32, 9, TSR_TOKEN_FILE_NANOGPT_U32, 300, 50);
  scratch_text("empty.bin", "");
  check_tokens("empty.bin", TSR_TOKEN_FILE_AUTO, 256, TSR_TOKEN_FILE_NANOGPT_U16, 0, 0);
}

static void test_headerless(void) {
  check_refused(
      "u32.bin", TSR_TOKEN_FILE_AUTO, 65536,
      AT "'u32.bin' has no header with the size of its tokens: the vocabulary would fit in 2 "
         "bytes, but every other token would be 0\n"
         "      = write data_format: nanogpt_u16 for tokens of 2 bytes, nanogpt_u32 for 4\n");
  check_refused(
      "u16.bin", TSR_TOKEN_FILE_AUTO, 0,
      AT "'u16.bin' has no header with the size of its tokens, and the size of the "
         "vocabulary is not known\n"
         "      = write data_format: nanogpt_u16 for tokens of 2 bytes, nanogpt_u32 for 4\n");
  file.length = 0;
  put_tokens(&file, 0, 9, 2);
  put(&file, 1, 1);
  write_file("odd.bin", &file);
  check_refused(
      "odd.bin", TSR_TOKEN_FILE_AUTO, 256,
      AT "'odd.bin' is cut off: its 19 bytes end in a token of 2 bytes, which begins at byte 18\n");
  check_refused(
      "odd.bin", TSR_TOKEN_FILE_NANOGPT_U32, 256,
      AT "'odd.bin' is cut off: its 19 bytes end in a token of 4 bytes, which begins at byte 16\n");
  check_refused(
      "nowhere.bin", TSR_TOKEN_FILE_NANOGPT_U16, 256,
      AT "cannot read 'nowhere.bin': No such file or directory\n");
  check_refused(
      "/dev/zero", TSR_TOKEN_FILE_NANOGPT_U16, 256,
      AT "cannot read '/dev/zero': it is a device or a pipe, not a file\n");
  check_refused(".", TSR_TOKEN_FILE_NANOGPT_U16, 256, AT "cannot read '.': Is a directory\n");
}

static void test_llmc_damage(void) {
  llmc_file(&file, 7, 100, 2);
  size_t whole = file.length;
  for (size_t length = 4; length < whole + 9; length++) {
    char words[256];
    file.length = length;
    write_file("cut.bin", &file);
    if (length == whole) continue;
    if (length < 1024)
      snprintf(
          words, sizeof words,
          AT "'cut.bin' is cut off: it ends at byte %zu, in its header of 1024 bytes\n", length);
    else
      snprintf(
          words, sizeof words,
          AT "'cut.bin' %s at byte %zu, but its header speaks of 100 tokens of 2 bytes, which end "
             "at byte 1224\n",
          length < whole ? "is cut off: it ends" : "ends", length);
    check_refused("cut.bin", TSR_TOKEN_FILE_AUTO, 50257, words);
  }
  file.length = 3; /* then nothing says that it is one of llm.c */
  write_file("cut.bin", &file);
  check_refused(
      "cut.bin", TSR_TOKEN_FILE_LLMC, 50257,
      AT "'cut.bin' is no token file of llm.c: it begins with 0, not with 20240520 (16-bit tokens) "
         "or 20240801 (32-bit ones)\n");
  llmc_file(&file, 7, 100, 2);
  put_at(&file, 4, 2, 4);
  write_file("cut.bin", &file);
  check_refused(
      "cut.bin", TSR_TOKEN_FILE_AUTO, 50257,
      AT "'cut.bin', byte 4: version 2 of llm.c's format 20240520; read is version 1\n");
  put_at(&file, 4, 1, 4);
  put_at(&file, 8, 0x80000001u, 4);
  write_file("cut.bin", &file);
  check_refused(
      "cut.bin", TSR_TOKEN_FILE_AUTO, 50257,
      AT "'cut.bin', byte 8: the header speaks of -2147483647 tokens\n");
  put_at(&file, 0, 20240326, 4);
  write_file("cut.bin", &file);
  check_refused(
      "cut.bin", TSR_TOKEN_FILE_AUTO, 50257,
      AT "'cut.bin' is a checkpoint of llm.c (it begins with 20240326), not a token file\n");
}

/* c.bin and c.idx of three documents, 4, 0 and 6 tokens long. */
static void write_pair(int code, int width) {
  static const int lengths[] = {4, 0, 6};
  file.length = 0;
  put_tokens(&file, 20, 10, width);
  write_file("c.bin", &file);
  index_file(&file, code, width, lengths, 3);
  write_file("c.idx", &file);
}

static void test_megatron(void) {
  static const int codes[] = {8, 4}, widths[] = {2, 4};
  static const char *const names[] = {"c", "c.bin", "c.idx"};
  for (int i = 0; i < 6; i++) {
    write_pair(codes[i / 3], widths[i / 3]);
    CHECK(tsr_token_file_is(arena, names[i % 3]));
    check_tokens(
        names[i % 3], i % 3 ? TSR_TOKEN_FILE_AUTO : TSR_TOKEN_FILE_MEGATRON, 99,
        TSR_TOKEN_FILE_MEGATRON, 20, 10);
  }
  tsr_token_file f;
  CHECK(open_as("c", TSR_TOKEN_FILE_AUTO, 99, &f));
  CHECK(tsr_token_file_has_documents(&f));
  static const int next[] = {4, 4, 4, 4, 10, 10, 10, 10, 10, 10};
  for (int i = 0; i < 10; i++) CHECK_INT(tsr_token_file_next_document(&f, i), next[i]);
  tsr_token_file_close(&f);
  CHECK(!tsr_token_file_is(arena, "c.txt") && !tsr_token_file_is(arena, "nothing"));
}

/* One number of the index is another. */
static void check_index(size_t at, uint64_t value, int bytes, const char *words) {
  static const int lengths[] = {4, 0, 6};
  index_file(&file, 8, 2, lengths, 3);
  put_at(&file, at, value, bytes);
  write_file("c.idx", &file);
  check_refused("c", TSR_TOKEN_FILE_AUTO, 99, words);
}

static void test_index_damage(void) {
  write_pair(8, 2);
  size_t whole = file.length; /* 34 + 3 * 12 + 4 * 8 */
  CHECK_INT(whole, 102);
  for (size_t length = 0; length < whole; length++) {
    tsr_token_file f;
    char want[64];
    file.length = length;
    write_file("c.idx", &file);
    CHECK(!open_as("c", TSR_TOKEN_FILE_AUTO, 99, &f));
    snprintf(want, sizeof want, "cut off: it ends at byte %zu", length);
    CHECK(strstr(scratch_diags(diags), want) != NULL);
  }
  check_index(0, 'm', 1, AT "'c.idx' is no index of Megatron: it does not begin with MMIDIDX\n");
  check_index(9, 2, 8, AT "'c.idx', byte 9: the index has version 2; read is version 1\n");
  check_index(
      17, 5, 1,
      AT "'c.idx', byte 17: tokens of type 5 (int64) are not read\n"
         "      = read are 8 (uint16) and 4 (int32)\n");
  check_index(
      17, 77, 1,
      AT "'c.idx', byte 17: tokens of type 77 are not read\n"
         "      = read are 8 (uint16) and 4 (int32)\n");
  check_index(
      18, 4, 8,
      AT "'c.idx' is cut off: it ends at byte 102, but the 4 sequences (byte 18) and 4 document "
         "entries (byte 26) of its header\n      = they end at byte 114\n");
  check_index(
      18, UINT64_MAX, 8,
      AT
      "'c.idx' is cut off: it ends at byte 102, but the 18446744073709551615 sequences (byte 18) "
      "and 4 document entries (byte 26) of its header are more than a file holds\n");
  check_index(34, (uint64_t)-1, 4, AT "'c.idx', byte 34: sequence 0 has a length of -1\n");
  check_index(
      34, 5, 4,
      AT "'c.idx', byte 54: sequence 1 begins at byte 8, but those before it end at byte 10\n");
  check_index(
      62, 10, 8,
      AT "'c.idx', byte 62: sequence 2 begins at byte 10, but those before it end at byte 8\n");
  check_index(
      42, 7, 4,
      AT "'c.bin' is cut off: it ends at byte 20, but the sequences of 'c.idx' end at byte 22\n");
  check_index(
      42, 5, 4, AT "'c.bin' ends at byte 20, but the sequences of 'c.idx' end at byte 18\n");
  check_index(
      78, 3, 8,
      AT "'c.idx', byte 86: document 2 begins with sequence 2, but the one before it with 3\n");
  check_index(
      94, 4, 8, AT "'c.idx', byte 94: document 3 begins with sequence 4, but there are 3\n");
  unlink("c.idx");
  check_refused(
      "c.bin", TSR_TOKEN_FILE_MEGATRON, 99, AT "cannot read 'c.idx': No such file or directory\n");
}

static void test_modes_and_no_documents(void) {
  static const int lengths[] = {4, 6};
  tsr_megatron_index index;
  index_file(&file, 8, 2, lengths, 2);
  put(&file, 0, 2); /* a mode for each sequence */
  CHECK(tsr_megatron_index_read("m.idx", file.bytes, file.length, PLACE, &index, diags));
  CHECK(index.tokens == 10 && index.sequences == 2 && index.entries == 3);
  index_header(&file, 8, 0, 0);
  CHECK(tsr_megatron_index_read("m.idx", file.bytes, file.length, PLACE, &index, diags));
  CHECK(index.tokens == 0);
}

static void test_vocabulary(void) {
  for (int width = 2; width <= 4; width += 2) {
    tsr_token_file f;
    file.length = 0;
    put_tokens(&file, 0, 10000, width);
    write_file("t.bin", &file);
    CHECK(open_as(
        "t.bin", width == 2 ? TSR_TOKEN_FILE_NANOGPT_U16 : TSR_TOKEN_FILE_NANOGPT_U32, 0, &f));
    CHECK_INT(tsr_token_file_find_outside(&f, 0, 10000, 10000), -1);
    CHECK_INT(tsr_token_file_find_outside(&f, 0, 10000, 9999), 9999);
    CHECK_INT(tsr_token_file_find_outside(&f, 0, 10000, 5000), 5000);
    CHECK_INT(tsr_token_file_find_outside(&f, 5001, 2, 5000), 5001);
    CHECK_INT(tsr_token_file_find_outside(&f, 100, 50, 150), -1);
    CHECK(!tsr_token_file_outside(&f, 9999, 9999, PLACE, diags));
    CHECK_STR(
        scratch_diags(diags),
        width == 2 ? AT "'t.bin', byte 19998: token 9999 is 9999, but the vocabulary has 9999\n"
                        "      = it was read as nanogpt_u16; data_format selects another format\n"
                   : AT "'t.bin', byte 39996: token 9999 is 9999, but the vocabulary has 9999\n"
                        "      = it was read as nanogpt_u32; data_format selects another format\n");
    tsr_token_file_close(&f);
  }
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  test_formats();
  test_headerless();
  test_llmc_damage();
  test_megatron();
  test_index_damage();
  test_modes_and_no_documents();
  test_vocabulary();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("token files");
}
