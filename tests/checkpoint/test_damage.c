// SPDX-License-Identifier: Apache-2.0
/* A checkpoint of four ranks, made by the program: each byte of its headers, of its manifest and of
 * its other files, and a sample of its data, is damaged; files are split, grown, emptied, removed,
 * and put in each other's place. Always an error that names the file, never a crash, never a load.
 */
#include "../data/scratch.h"
#include "../faults/runner.h"
#include "base/file_read.h"
#include "checkpoint/reader.h"
#include "tests/check.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { DATA_SAMPLE = 3000, LENGTHS = 40 };

static runner r;
static const char *folder; /* of the checkpoint */
static tsr_manifest whole;

/* ---- reading it ---- */

/* All that a load looks at: the manifest (unless that is known to be sound), lengths, headers,
 * data. NULL: nothing is wrong; else the diagnostics, which live until the next call. */
static const char *read_all(bool with_manifest) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_manifest m = whole;
  tsr_checkpoint_reader *in;
  bool ok = !with_manifest || tsr_manifest_read(arena, folder, TSR_NOWHERE, &m, diags);
  if (ok && tsr_checkpoint_reader_open(arena, &m, true, &in, diags)) {
    ok = tsr_checkpoint_reader_verify(in, diags);
    tsr_checkpoint_reader_close(in);
  } else {
    ok = false;
  }
  CHECK(ok == (tsr_diags_errors(diags) == 0));
  const char *text = ok ? NULL : scratch_diags(diags);
  tsr_arena_free(arena);
  return text;
}

static const char *path_of(const char *name) { return tsr_path_join(r.arena, folder, name); }

/* The first error stands at that file. */
static bool names(const char *text, const char *path) {
  size_t length = strlen(path);
  return text && !strncmp(text, path, length) && !strncmp(text + length, ": error: ", 9);
}

static char *bytes_of(const char *name, size_t *ret_length) {
  char *bytes;
  tsr_diags *diags = tsr_diags_new(r.arena);
  bool ok = tsr_file_read(r.arena, path_of(name), 1 << 26, TSR_NOWHERE, &bytes, ret_length, diags);
  assert(ok);
  return bytes;
}

/* ---- bytes ---- */

static void put_byte(int fd, int64_t at, char byte) {
  ssize_t put = pwrite(fd, &byte, 1, (off_t)at);
  assert(put == 1);
}

/* One byte becomes another one, is found, and is as before. */
static void flip(int fd, const char *path, const char *bytes, int64_t at, int mask) {
  put_byte(fd, at, (char)(bytes[at] ^ mask));
  const char *text = read_all(false);
  CHECK_AT(
      names(text, path), "%s, byte %lld ^ %d: %s", path, (long long)at, mask,
      text ? text : "nothing was found");
  put_byte(fd, at, bytes[at]);
}

static void flip_file(const tsr_stored_file *f) {
  size_t length;
  const char *path = path_of(f->name), *bytes = bytes_of(f->name, &length);
  int fd = open(path, O_WRONLY);
  assert(fd >= 0 && (int64_t)length == f->bytes);
  for (int64_t at = 0; at < f->header; at++) flip(fd, path, bytes, at, 1 + (int)draw(&r, 255));
  for (int64_t at = 0; at < f->header; at += at < 16 ? 1 : 61)
    for (int bit = 0; bit < 8; bit++) flip(fd, path, bytes, at, 1 << bit);
  int64_t data = f->bytes - f->header;
  for (int i = 0; data && i < DATA_SAMPLE / whole.files_count + 1; i++)
    flip(fd, path, bytes, f->header + (int64_t)draw(&r, (uint64_t)data), 1 + (int)draw(&r, 255));
  for (int bit = 0; data && bit < 8; bit++) {
    flip(fd, path, bytes, f->header, 1 << bit);
    flip(fd, path, bytes, f->bytes - 1, 1 << bit);
  }
  close(fd);
}

/* The manifest is read from memory, for it has many bytes; some of them from the file, too. */
static void flip_manifest(void) {
  size_t length;
  const char *path = path_of(TSR_MANIFEST_NAME);
  char *bytes = bytes_of(TSR_MANIFEST_NAME, &length);
  int fd = open(path, O_WRONLY);
  for (size_t at = 0; at < length; at++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_manifest m;
    int mask = 1 + (int)draw(&r, 255);
    bytes[at] = (char)(bytes[at] ^ mask);
    bool ok = tsr_manifest_parse(arena, path, bytes, length, &m, diags);
    bytes[at] = (char)(bytes[at] ^ mask);
    CHECK_AT(!ok && tsr_diags_errors(diags) == 1, "byte %zu ^ %d of the manifest", at, mask);
    CHECK(names(scratch_diags(diags), path));
    tsr_arena_free(arena);
    if (at % 97) continue;
    put_byte(fd, (int64_t)at, (char)(bytes[at] ^ mask));
    CHECK(names(read_all(true), path));
    put_byte(fd, (int64_t)at, bytes[at]);
  }
  close(fd);
}

/* ---- lengths ---- */

static void put_file(const char *name, const char *bytes, size_t length) {
  FILE *f = fopen(path_of(name), "wb");
  assert(f);
  size_t put = fwrite(bytes, 1, length, f);
  assert(put == length);
  fclose(f);
}

static void resize(const char *name) {
  size_t length;
  const char *bytes = bytes_of(name, &length), *path = path_of(name);
  char *more = tsr_arena_alloc(r.arena, length + 8);
  memcpy(more, bytes, length);
  for (int i = 0; i < LENGTHS + 12; i++) {
    size_t split = i < 10            ? (size_t)i
                   : i < LENGTHS     ? (size_t)draw(&r, length)
                   : i < LENGTHS + 4 ? length - 1 - (size_t)(i - LENGTHS)
                                     : length + 1 + (size_t)(i - LENGTHS - 4);
    put_file(name, more, split < length + 8 ? split : length + 8);
    const char *text = read_all(true);
    CHECK_AT(names(text, path), "%s of %zu bytes: %s", name, split, text ? text : "nothing");
  }
  put_file(name, bytes, length);
}

static void remove_and_swap(const char *name) {
  const char *path = path_of(name), *aside = path_of("aside");
  rename(path, aside);
  const char *text = read_all(true);
  const char *location = strcmp(name, TSR_MANIFEST_NAME) ? path : "error";
  CHECK_AT(text && !strncmp(text, location, strlen(location)), "%s removed: %s", name, text);
  mkdir(path, 0777);
  text = read_all(true);
  CHECK_AT(text && strstr(text, path), "%s is a folder: %s", name, text ? text : "nothing");
  rmdir(path);
  for (int i = 0; i < whole.files_count; i++) {
    const char *other = path_of(whole.files[i].name);
    if (!strcmp(other, path)) continue;
    rename(other, path);
    rename(aside, other);
    text = read_all(true);
    CHECK_AT(text && strstr(text, ": error: "), "%s and %s", path, other);
    rename(other, aside);
    rename(path, other);
  }
  rename(aside, path);
}

/* ---- exact texts ---- */

static void check_text(const char *want) {
  const char *text = read_all(true);
  CHECK_STR(text ? text : "nothing", want);
}

static void check_length_text(void) {
  const tsr_stored_file *f = &whole.files[1];
  size_t length;
  const char *bytes = bytes_of(f->name, &length);
  put_file(f->name, bytes, length - 3);
  check_text(tsr_arena_printf(
      r.arena, "%s: error: the file has %zu bytes, not %zu as when it was written\n",
      path_of(f->name), length - 3, length));
  unlink(path_of(f->name));
  check_text(tsr_arena_printf(
      r.arena, "%s: error: cannot read the checkpoint's file: No such file or directory\n",
      path_of(f->name)));
  put_file(f->name, bytes, length);
}

static void check_header_text(void) {
  const tsr_stored_file *f = &whole.files[0];
  size_t length;
  char *bytes = bytes_of(f->name, &length), hash[TSR_HASH_TEXT];
  bytes[20] ^= 4;
  put_file(f->name, bytes, length);
  tsr_hash_text(bytes, (size_t)f->header, hash);
  const char *want = tsr_arena_printf(
      r.arena, "%s: error: the file is damaged in its first %lld bytes: hash %s, not %s\n",
      path_of(f->name), (long long)f->header, hash, f->hash);
  check_text(want);
  bytes[20] ^= 4;
  put_file(f->name, bytes, length);
}

static void check_data_text(void) {
  const tsr_stored *t = tsr_manifest_find(&whole, "history.loss");
  const tsr_stored_piece *p = &t->pieces[0];
  const char *name = whole.files[p->file].name;
  size_t length;
  char *bytes = bytes_of(name, &length), hash[TSR_HASH_TEXT];
  bytes[p->offset + p->bytes - 1] ^= 64;
  put_file(name, bytes, length);
  tsr_hash_text(bytes + p->offset, (size_t)p->bytes, hash);
  check_text(tsr_arena_printf(
      r.arena,
      "%s: error: tensor 'history.loss' is damaged: bytes %lld to %lld have hash %s, not %s\n",
      path_of(name), (long long)p->offset, (long long)(p->offset + p->bytes), hash, p->hash));
  bytes[p->offset + p->bytes - 1] ^= 64;
  put_file(name, bytes, length);
}

static void check_manifest_text(void) {
  size_t length;
  char *bytes = bytes_of(TSR_MANIFEST_NAME, &length), hash[TSR_HASH_TEXT], old = bytes[100];
  const char *path = path_of(TSR_MANIFEST_NAME);
  bytes[100] = '~';
  put_file(TSR_MANIFEST_NAME, bytes, length);
  tsr_hash_text(bytes + 45, length - 45, hash);
  check_text(tsr_arena_printf(
      r.arena, "%s: error: the manifest is damaged: its hash is %s, not %.32s as recorded in it\n",
      path, hash, bytes + 10));
  bytes[100] = old;
  put_file(TSR_MANIFEST_NAME, bytes, 0);
  check_text(tsr_arena_printf(
      r.arena, "%s: error: this is no manifest of a checkpoint: it does not begin with its hash\n",
      path));
  unlink(path);
  check_text(
      tsr_arena_printf(r.arena, "error: '%s' is no checkpoint: it has no manifest.json\n", folder));
  put_file(TSR_MANIFEST_NAME, bytes, length);
}

/* ---- the program ---- */

static words model(const char *out) {
  words w = words_run(&r, out);
  static const char *const sets[] = {
      "transformer_config.num_blocks=1",
      "mesh.axes=[dp,tp]",
      "mesh.shape=[2,2]",
      "zero.stage=1",
      "training_config.max_steps=4",
      "training_config.model_save_interval=2"};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    words_add(&r, &w, "--set");
    words_add(&r, &w, "%s", sets[i]);
  }
  return w;
}

/* One that is named is refused; one that is found is passed over for the one before it. */
static void check_program(const char *out, const char *sha256) {
  const tsr_stored_file *f = &whole.files[whole.files_count > 2 ? 2 : 0];
  size_t length;
  char *bytes = bytes_of(f->name, &length);
  bytes[length - 1] ^= 1;
  put_file(f->name, bytes, length);
  words w = model(out);
  words_add(&r, &w, "--resume");
  words_add(&r, &w, "%s", folder);
  ending e = run(&r, &w, NULL, -1, 0);
  CHECK_INT(e.status, 1);
  CHECK_AT(strstr(e.said, path_of(f->name)) && strstr(e.said, "is damaged: bytes"), "%s", e.said);
  CHECK(!strstr(e.said, "done:"));
  w.count--;
  e = run(&r, &w, NULL, -1, 0);
  CHECK_INT(e.status, 0);
  const char *over = tsr_arena_printf(r.arena, "warning: '%s' is skipped: ", folder);
  CHECK_AT(strstr(e.said, over), "%s", e.said);
  CHECK_STR(sha256_of(&r, e.said), sha256);
  CHECK(read_all(true) == NULL); /* the run has written it again */
}

int main(int argc, char **argv) {
  if (argc != 2) return printf("usage: test_damage PROGRAM\n"), 2;
  r = (runner){.program = argv[1], .arena = tsr_arena_new(), .random = 4};
  r.scratch = scratch_new(r.arena);
  assert(r.scratch);
  r.config = tsr_path_join(r.arena, r.scratch, "run.yaml");
  const char *out = tsr_path_join(r.arena, r.scratch, "out");
  folder = tsr_path_join(r.arena, out, "checkpoints/step-00000004");
  words w = model(out);
  ending e = run(&r, &w, NULL, -1, 0);
  tsr_diags *diags = tsr_diags_new(r.arena);
  CHECK_AT(e.status == 0, "%s", e.said);
  CHECK(tsr_manifest_read(r.arena, folder, TSR_NOWHERE, &whole, diags));
  CHECK_INT(whole.files_count, 7); /* of 4 ranks; history, configuration, vocabulary */
  if (!check_failed) {
    for (int i = 0; i < whole.files_count; i++) flip_file(&whole.files[i]);
    flip_manifest();
    for (int i = 0; i <= whole.files_count; i++) {
      const char *name = i ? whole.files[i - 1].name : TSR_MANIFEST_NAME;
      resize(name);
      remove_and_swap(name);
    }
    check_length_text();
    check_header_text();
    check_data_text();
    check_manifest_text();
    CHECK(read_all(true) == NULL);
    check_program(out, sha256_of(&r, e.said));
  }
  folder_remove(r.scratch);
  tsr_arena_free(r.arena);
  return check_done("damage");
}
