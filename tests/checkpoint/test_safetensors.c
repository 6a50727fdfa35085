// SPDX-License-Identifier: Apache-2.0
/* safetensors: every rule of the format, files of Hugging Face's writer, and our own. */
#include "checkpoint/safetensors.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include <inttypes.h>

static tsr_arena *arena;
static tsr_diags *diags;

/* t.safetensors: a length, a header, and so many bytes of data. */
static void write_file(uint64_t length, const char *header, size_t header_bytes, size_t data) {
  char bytes[4096] = {0};
  for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
  memcpy(bytes + 8, header, header_bytes);
  for (size_t i = 0; i < data; i++) bytes[8 + header_bytes + i] = (char)i;
  scratch_write("t.safetensors", bytes, 8 + header_bytes + data);
}

static bool open_file(tsr_safetensors *ret_file) {
  return tsr_safetensors_open(arena, "t.safetensors", TSR_NOWHERE, ret_file, diags);
}

/* What is said of a header in front of so much data, without the file's name. */
static void check_said(const char *header, size_t data, const char *want) {
  write_file(strlen(header), header, strlen(header), data);
  tsr_safetensors file;
  CHECK_AT(!open_file(&file), "%s is taken", header);
  CHECK(!file.map);
  const char *said = scratch_diags(diags);
  CHECK_STR(said, tsr_arena_printf(arena, "error: 't.safetensors', %s\n", want));
}

static void check_good(const char *header, size_t data, int count) {
  write_file(strlen(header), header, strlen(header), data);
  tsr_safetensors file;
  CHECK_AT(open_file(&file), "%s: %s", header, scratch_diags(diags));
  CHECK_INT(file.tensors_count, count);
  tsr_safetensors_close(&file);
  CHECK(!file.map);
}

static void test_length(void) {
  tsr_safetensors file;
  CHECK(!open_file(&file));
  CHECK_STR(
      scratch_diags(diags), "error: cannot read 't.safetensors': No such file or directory\n");
  CHECK(!tsr_safetensors_open(arena, "/tmp", (tsr_location){"run.yaml", 3, 4, 1}, &file, diags));
  CHECK_STR(scratch_diags(diags), "run.yaml:3:4: error: cannot read '/tmp': Is a directory\n");
  static const struct {
    uint64_t length;
    size_t header, size;
    const char *want;
  } cases[] = {
      {0, 0, 0, "byte 0: a file of 0 bytes; the header's length alone has 8"},
      {2, 0, 7, "byte 0: a file of 7 bytes; the header's length alone has 8"},
      {0, 0, 8, "byte 8: the header is empty"},
      {3, 2, 10, "byte 0: a header of 3 bytes, but the file has only 2 more"},
      {100000000, 2, 10, "byte 0: a header of 100000000 bytes, but the file has only 2 more"},
      {100000001, 2, 10, "byte 0: a header of 100000001 bytes; at most 100000000 are read"},
      {UINT64_MAX, 2, 10,
       "byte 0: a header of 18446744073709551615 bytes; at most 100000000 are read"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file(cases[i].length, "{}", cases[i].header, 0);
    CHECK(truncate("t.safetensors", (off_t)cases[i].size) == 0);
    CHECK(!open_file(&file));
    CHECK_STR(
        scratch_diags(diags),
        tsr_arena_printf(arena, "error: 't.safetensors', %s\n", cases[i].want));
  }
}

static void test_json(void) {
  check_good("{}", 0, 0);
  check_good("{}      ", 0, 0);
  check_good("{\"__metadata__\":{}}", 0, 0);
  check_said(" {}", 0, "byte 8: the header begins with byte 0x20, not with '{'");
  check_said("[]", 0, "byte 8: the header begins with byte 0x5b, not with '{'");
  check_said("{}\n ", 0, "byte 10: the header is padded with byte 0x0a, not with blanks");
  check_said("{},", 0, "byte 10: the header is no JSON: ',' after the end of the JSON");
  check_said("{\"a\xff\"}", 0, "byte 11: the header is no JSON: invalid UTF-8: byte 0xff");
  check_said(
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
      2, "byte 61: the header is no JSON: key 'a' stands twice");
  check_said(
      "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
      "byte 27: the header is no JSON: key '__metadata__' stands twice");
  check_said("{\"__metadata__\":[]}", 0, "byte 9: '__metadata__' should be an object");
  check_said(
      "{\"__metadata__\":{\"step\":3}}", 0, "byte 9: 'step' of '__metadata__' should be a string");
}

#define ENTRY(dtype, shape, begin, end)                                                            \
  "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
#define ONE(dtype, shape, begin, end) "{\"a\":" ENTRY(dtype, shape, begin, end) "}"

static void test_entries(void) {
  check_good(ONE("F32", "2,3", 0, 24), 24, 1);
  check_good(ONE("I64", "", 0, 8), 8, 1);      /* a scalar */
  check_good(ONE("F16", "3,0,5", 0, 0), 0, 1); /* no bytes */
  check_good(ONE("F16", "0,9007199254740992,9007199254740992", 0, 0), 0, 1);
  check_good(ONE("U8", "1,1,1,1,1,1,1,1", 0, 1), 1, 1);
  check_said("{\"a\":3}", 0, "byte 9: tensor 'a': should be an object");
  check_said("{\"a\":{}}", 0, "byte 9: tensor 'a': 'dtype' should be a string");
  check_said("{\"a\":{\"dtype\":2}}", 0, "byte 9: tensor 'a': 'dtype' should be a string");
  check_said(ONE("F31", "1", 0, 4), 4, "byte 9: tensor 'a': dtype 'F31' is not known");
  check_said(ONE("f32", "1", 0, 4), 4, "byte 9: tensor 'a': dtype 'f32' is not known");
  check_said(
      "{\"a\":{\"dtype\":\"F32\",\"shapes\":[]}}", 0,
      "byte 9: tensor 'a': key 'shapes' is not of the format");
  check_said("{\"a\":{\"dtype\":\"F32\"}}", 0, "byte 9: tensor 'a': 'shape' should be a list");
  static const char *const bad[] = {"-1", "1.5", "\"1\"", "9007199254740994", "null", "1e300"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_said(
        tsr_arena_printf(
            arena, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,%s],\"data_offsets\":[0,1]}}", bad[i]),
        1, "byte 9: tensor 'a': dimension 1 of 'shape' should be a whole number from 0 to 2^53");
  check_said(
      ONE("U8", "1,1,1,1,1,1,1,1,1", 0, 1), 1,
      "byte 9: tensor 'a': 9 dimensions; at most 8 are read");
  static const char *const offsets[] = {
      "", ",\"data_offsets\":[0]", ",\"data_offsets\":[0,1,2]", ",\"data_offsets\":[-1,0]",
      ",\"data_offsets\":{}"};
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
    check_said(
        tsr_arena_printf(arena, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]%s}}", offsets[i]), 1,
        "byte 9: tensor 'a': 'data_offsets' should be two whole numbers from 0 to 2^53");
  check_said(
      ONE("U8", "1", 1, 0), 1,
      "byte 9: tensor 'a': 'data_offsets' end at 0, before their begin at 1");
  check_said(
      ONE("BF16", "2,3", 0, 24), 24,
      "byte 9: tensor 'a': its shape and dtype BF16 need 12 bytes, its 'data_offsets' span 24");
  check_said(
      ONE("F32", "4294967296,4294967296", 0, 0), 0,
      "byte 9: tensor 'a': its shape has more than 2^63 bytes");
  check_said(
      ONE("F64", "1152921504606846976", 0, 0), 0,
      "byte 9: tensor 'a': dimension 0 of 'shape' should be a whole number from 0 to 2^53");
  /* The place is the entry's own, whatever stands in front of it. */
  check_said(
      "{\"__metadata__\":{\"a,\\\"{\":\"]\",\"b\":\"\"}, \"x\\\\\":" ENTRY(
          "U8", "1", 0, 1) ", \"z\":3}",
      1, "byte 101: tensor 'z': should be an object");
}

#define TWO(a, b) "{\"a\":" a ",\"b\":" b "}"

static void test_offsets(void) {
  check_good(TWO(ENTRY("U8", "4", 4, 8), ENTRY("U8", "4", 0, 4)), 8, 2);
  check_good(TWO(ENTRY("U8", "0", 4, 4), ENTRY("U8", "4", 0, 4)), 4, 2);
  /* The header of TWO with such offsets has 105 bytes: the data begin at 113. */
  check_said(
      TWO(ENTRY("U8", "4", 0, 4), ENTRY("U8", "4", 5, 9)), 9,
      "byte 118: tensor 'b': a hole: its data begin here, but 'a' ends at byte 117");
  check_said(
      TWO(ENTRY("U8", "4", 0, 4), ENTRY("U8", "4", 3, 7)), 7,
      "byte 116: tensor 'b': an overlap: its data begin here, but 'a' ends at byte 117");
  check_said(
      TWO(ENTRY("U8", "4", 0, 4), ENTRY("U8", "4", 0, 4)), 4,
      "byte 113: tensor 'b': an overlap: its data begin here, but 'a' ends at byte 117");
  check_said(
      TWO(ENTRY("U8", "4", 0, 4), ENTRY("U8", "0", 2, 2)), 4,
      "byte 115: tensor 'b': an overlap: its data begin here, but 'a' ends at byte 117");
  check_said(
      ONE("U8", "4", 2, 6), 6,
      "byte 63: tensor 'a': a hole: its data begin here, but the header ends at byte 61");
  check_said(
      ONE("U8", "4", 0, 4), 3, "byte 61: tensor 'a': its data need 4 bytes, the file has 3 left");
  check_said(ONE("U8", "4", 0, 4), 6, "byte 65: the data end here, but the file has 67 bytes");
  check_said("{}", 1, "byte 10: the data end here, but the file has 11 bytes");
}

/* A file that Hugging Face's own package wrote (scripts/make_hf_models). */
static void test_real(const char *path) {
  tsr_safetensors file;
  CHECK_AT(
      tsr_safetensors_open(arena, path, TSR_NOWHERE, &file, diags), "%s", scratch_diags(diags));
  if (!file.map) return;
  tsr_text text = {0};
  for (int i = 0; i < file.tensors_count; i++) {
    const tsr_safetensor *t = &file.tensors[i];
    tsr_text_add(&text, "%s %s", t->name, t->dtype);
    for (int d = 0; d < t->ndim; d++) tsr_text_add(&text, " %" PRId64, t->shape[d]);
    tsr_text_add(&text, " at %" PRId64 ":", t->offset % 8);
    for (int64_t b = 0; b < t->bytes; b++)
      tsr_text_add(&text, " %02x", (unsigned char)file.map[t->offset + b]);
    tsr_text_add(&text, "\n");
  }
  CHECK_STR(
      text.data, "scalar I64 at 0: 85 ff ff ff ff ff ff ff\n"
                 "empty F32 0 3 at 0:\n"
                 "größe F32 2 2 at 0: 00 00 80 3f 00 00 00 40 00 00 40 40 00 00 80 40\n"
                 "half BF16 3 at 0: 80 3f 20 c0 c0 7f\n"
                 "flags BOOL 2 1 at 6: 01 00\n");
  CHECK_INT(file.metadata_count, 2);
  for (int i = 0; i < file.metadata_count; i++)
    CHECK_STR(
        file.metadata[2 * i + 1],
        !strcmp(file.metadata[2 * i], "format") ? "pt" : "a \"quoted\"\nline");
  CHECK_INT(tsr_safetensors_find(&file, "half"), 3);
  CHECK_INT(tsr_safetensors_find(&file, "hal"), -1);
  tsr_text_free(&text);
  tsr_safetensors_close(&file);
}

/* Random tensors: what the writer writes the reader reads, at multiples of 8 in front. */
static void test_round_trip(void) {
  static const char *const dtypes[] = {"F32", "BF16", "I64", "BOOL"};
  for (int round = 0; round < 200; round++) {
    tsr_safetensor tensors[12];
    int count = rand() % 12;
    const char *const metadata[] = {"format", "pt", "\"\\\n", "é"};
    int64_t data = 0;
    for (int i = 0; i < count; i++) {
      tsr_safetensor *t = &tensors[i];
      *t = (tsr_safetensor){
          .name = tsr_arena_printf(arena, "%c\"%d", 'a' + rand() % 26, i),
          .dtype = dtypes[rand() % 4],
          .ndim = rand() % (TSR_SAFETENSORS_DIMS_MAX + 1)};
      t->bytes = tsr_safetensors_dtype_bytes(t->dtype);
      for (int d = 0; d < t->ndim; d++) t->bytes *= t->shape[d] = rand() % 8 ? 1 + rand() % 2 : 0;
      data += t->bytes;
    }
    tsr_text text = {0};
    tsr_safetensors_header(tensors, count, round % 3 ? metadata : NULL, round % 3 ? 2 : 0, &text);
    CHECK_INT(text.length % 8, 0);
    for (int64_t i = 0; i < data; i++) tsr_text_add_bytes(&text, "x", 1);
    scratch_write("t.safetensors", text.data, text.length);
    tsr_text_free(&text);
    tsr_safetensors file;
    CHECK_AT(open_file(&file), "%s", scratch_diags(diags));
    CHECK(file.tensors_count == count && file.metadata_count == (round % 3 ? 2 : 0));
    if (round % 3) CHECK(!strcmp(file.metadata[2], "\"\\\n") && !strcmp(file.metadata[3], "é"));
    for (int i = 0; i < count; i++) {
      int at = tsr_safetensors_find(&file, tensors[i].name);
      CHECK(at >= 0);
      if (at < 0) continue;
      const tsr_safetensor *a = &file.tensors[at], *b = &tensors[i];
      CHECK(!strcmp(a->dtype, b->dtype) && a->ndim == b->ndim && a->offset == b->offset);
      CHECK(a->bytes == b->bytes && !memcmp(a->shape, b->shape, sizeof *a->shape * a->ndim));
    }
    tsr_safetensors_close(&file);
  }
}

/* Whatever byte of a header is another one, the file is refused with an error at its name, or it is
 * a header as good as before: no crash, nothing outside the file. */
static void test_flipped(void) {
  const char *header = "{\"__metadata__\":{\"k\":\"v\"},\"a\":" ENTRY("F32", "2", 0, 8) "}  ";
  size_t length = strlen(header);
  for (size_t i = 0; i < length + 8; i++)
    for (int bit = 0; bit < 8; bit++) {
      char bytes[256] = {0}, *at = bytes + 8;
      bytes[0] = (char)length;
      memcpy(at, header, length);
      bytes[i] ^= (char)(1 << bit);
      scratch_write("t.safetensors", bytes, length + 16);
      tsr_safetensors file;
      if (!open_file(&file)) {
        CHECK(scratch_diags_start(diags, "error: 't.safetensors', byte "));
        continue;
      }
      for (int t = 0; t < file.tensors_count; t++)
        CHECK(file.tensors[t].offset + file.tensors[t].bytes <= file.size);
      tsr_safetensors_close(&file);
    }
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_real(arguments[1]);
  scratch_enter(folder);
  test_length();
  test_json();
  test_entries();
  test_offsets();
  test_round_trip();
  test_flipped();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("safetensors");
}
