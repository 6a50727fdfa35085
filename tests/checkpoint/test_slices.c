// SPDX-License-Identifier: Apache-2.0
/* Random tensors, split into random pieces that lie in random files, written in portions of any
 * size: what is read back, in other slices and dtypes, from there or from a checkpoint in other
 * shards, are the elements that a plain loop finds. */
#include "../data/scratch.h"
#include "base/file_read.h"
#include "checkpoint/checkpoint_commands.h"
#include "made.h"
#include "tests/check.h"

enum { PIECES_MAX = 64, TENSORS_MAX = 5, FILES_MAX = 3, ROUNDS = 150 };

/* A slice of a tensor. */
typedef struct {
  int64_t begin[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
} part;

typedef struct {
  const char *name;
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  bool exact; /* numbers that every dtype has */
  char *bytes;
} tensor;

static tsr_arena *arena;
static tsr_diags *diags;
static uint64_t random_state;

static int64_t draw(int64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return below > 0 ? (int64_t)(random_state >> 33) % below : 0;
}

/* ---- the plain way ---- */

/* The number in 32 or 16 bits; it is a small whole number of quarters. */
static uint32_t bits_of(tsr_dtype dtype, int64_t quarters) {
  float v = (float)quarters / 4;
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  if (dtype == TSR_I32) return (uint32_t)quarters;
  if (dtype == TSR_F32) return bits;
  if (dtype == TSR_BF16) return bits >> 16;
  uint32_t exponent = (bits >> 23) & 255;
  return !quarters ? 0 : (bits >> 31) << 15 | (exponent - 127 + 15) << 10 | ((bits >> 13) & 1023);
}

static void put(tsr_dtype dtype, void *memory, int64_t at, uint32_t bits) {
  if (tsr_dtype_bytes(dtype) == 4) ((uint32_t *)memory)[at] = bits;
  else ((uint16_t *)memory)[at] = (uint16_t)bits;
}

static int64_t quarters_of(const tensor *t, int64_t at) { return (at * 7 + t->ndim) % 255 - 127; }

/* What an element of a slice must be, as bytes of `dtype`. */
static void plain(const tensor *t, const part *b, tsr_dtype dtype, char *ret_bytes) {
  int64_t n = tsr_stored_elements(t->ndim, b->shape), each = tsr_dtype_bytes(t->dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0, rest = i, index[TSR_DIMS_MAX];
    for (int d = t->ndim - 1; d >= 0; rest /= b->shape[d--])
      index[d] = b->begin[d] + rest % b->shape[d];
    for (int d = 0; d < t->ndim; d++) at = at * t->shape[d] + index[d];
    if (dtype == t->dtype) memcpy(ret_bytes + i * each, t->bytes + at * each, (size_t)each);
    else put(dtype, ret_bytes, i, bits_of(dtype, quarters_of(t, at)));
  }
}

/* ---- making them ---- */

static void make_tensor(tensor *t, int number) {
  *t = (tensor){tsr_arena_printf(arena, "t%d", number), (tsr_dtype)draw(TSR_F16 + 1)};
  bool large = draw(25) == 0;
  t->ndim = large ? 2 : 1 + (int)draw(TSR_DIMS_MAX);
  for (int d = 0; d < t->ndim; d++) t->shape[d] = large ? 500 + draw(400) : 1 + draw(8);
  if (draw(12) == 0) t->shape[draw(t->ndim)] = 0;
  t->exact = draw(2);
  int64_t n = tsr_stored_elements(t->ndim, t->shape), bytes = n * tsr_dtype_bytes(t->dtype);
  t->bytes = tsr_arena_alloc(arena, (size_t)bytes + 8);
  for (int64_t i = 0; i < n; i++)
    put(t->dtype, t->bytes, i,
        t->exact ? bits_of(t->dtype, quarters_of(t, i)) : (uint32_t)draw((int64_t)1 << 32));
}

/* Cuts the first of `parts` again and again. */
static int split(const tensor *t, part *parts) {
  int count = 1;
  parts[0] = (part){{0}};
  memcpy(parts[0].shape, t->shape, sizeof t->shape);
  for (int64_t n = draw(2) ? 0 : draw(12); n > 0; n--) {
    part *p = &parts[draw(count)], *q = &parts[count];
    int d = (int)draw(t->ndim);
    if (p->shape[d] < 2) continue;
    int64_t rows = 1 + draw(p->shape[d] - 1);
    *q = *p;
    q->begin[d] += rows;
    q->shape[d] -= rows;
    p->shape[d] = rows;
    count++;
  }
  if (draw(6) == 0 && t->shape[0]) { /* padding alone: a rank that has no real rows */
    parts[count] = (part){{t->shape[0]}};
    memcpy(parts[count].shape, t->shape, sizeof t->shape);
    parts[count++].shape[0] = 0;
  }
  return count;
}

static tsr_checkpoint_writer_piece piece_of(const tensor *t, const part *p) {
  tsr_checkpoint_writer_piece o = {t->name, t->dtype, t->ndim};
  memcpy(o.shape, t->shape, sizeof o.shape);
  memcpy(o.begin, p->begin, sizeof o.begin);
  memcpy(o.piece, p->shape, sizeof o.piece);
  return o;
}

static bool write_file(
    tsr_checkpoint_writer *out, int file, tsr_checkpoint_writer_piece *pieces, const tensor **of,
    int count) {
  if (!tsr_checkpoint_writer_tensors(
          out, tsr_arena_printf(arena, "rank-%05d.safetensors", file), pieces, count, diags))
    return false;
  for (int i = 0; i < count; i++) {
    part p;
    memcpy(p.begin, pieces[i].begin, sizeof p.begin);
    memcpy(p.shape, pieces[i].piece, sizeof p.shape);
    int64_t bytes = tsr_stored_elements(of[i]->ndim, p.shape) * tsr_dtype_bytes(of[i]->dtype);
    char *data = tsr_arena_alloc(arena, (size_t)bytes + 1);
    plain(of[i], &p, of[i]->dtype, data);
    for (int64_t at = 0; at < bytes;) {
      int64_t some = draw(2) ? bytes - at : 1 + draw(bytes - at);
      if (!tsr_checkpoint_writer_data(out, data + at, (size_t)some, diags)) return false;
      at += some;
    }
  }
  return tsr_checkpoint_writer_end_tensors(out, diags);
}

/* The pieces of all tensors, each in a file of its own choice. */
static void write_all(const char *folder, tensor *tensors, int count) {
  tsr_checkpoint_writer_piece *pieces[FILES_MAX];
  const tensor **of[FILES_MAX];
  int counts[FILES_MAX] = {0}, files = 1 + (int)draw(FILES_MAX);
  for (int f = 0; f < files; f++) {
    pieces[f] = tsr_arena_array(arena, tsr_checkpoint_writer_piece, TENSORS_MAX * PIECES_MAX);
    of[f] = tsr_arena_array(arena, const tensor *, TENSORS_MAX *PIECES_MAX);
  }
  for (int i = 0; i < count; i++) {
    part parts[PIECES_MAX];
    int n = split(&tensors[i], parts);
    for (int k = 0; k < n; k++) {
      int64_t f = draw(files);
      pieces[f][counts[f]] = piece_of(&tensors[i], &parts[k]);
      of[f][counts[f]++] = &tensors[i];
    }
  }
  tsr_checkpoint_writer *out;
  tsr_manifest about = {.state = {.step = 3, .loss = NAN}, .config = "config.yaml"};
  bool ok = tsr_checkpoint_writer_begin(arena, folder, NULL, NULL, &out, diags);
  for (int f = 0; ok && f < files; f++)
    ok = !counts[f] || write_file(out, f, pieces[f], of[f], counts[f]);
  ok = ok && tsr_checkpoint_writer_bytes(out, "config.yaml", "a: 1\n", 5, diags) &&
       tsr_checkpoint_writer_copy(out, "copy", "copied", 0, diags) &&
       tsr_checkpoint_writer_commit(out, &about, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
}

/* ---- reading them ---- */

typedef struct {
  const tensor *t;
  const tsr_stored *stored;
  tsr_tensor_slice slices[PIECES_MAX];
  tsr_dtype dtypes[PIECES_MAX];
  char *memory[PIECES_MAX];
  int count;
} taking;

static void
take(void *context, const tsr_stored_piece *p, int64_t first, int64_t count, const void *elements) {
  taking *k = context;
  for (int i = 0; i < k->count; i++) {
    int64_t all = tsr_stored_elements(k->slices[i].ndim, k->slices[i].shape);
    const tsr_part_of_value whole = {0, k->memory[i], NULL, k->slices[i], all, all};
    tsr_portion_copy(
        tsr_kernels_get(NULL), k->stored, p, first, count, elements, k->dtypes[i], &whole);
  }
}

static void
check_same(const tensor *t, const part *p, tsr_dtype dtype, const char *got, const char *what) {
  int64_t bytes = tsr_stored_elements(t->ndim, p->shape) * tsr_dtype_bytes(dtype);
  char *want = tsr_arena_alloc(arena, (size_t)bytes + 1);
  plain(t, p, dtype, want);
  CHECK_AT(
      !memcmp(got, want, (size_t)bytes), "%s of %s, %s as %s", what, t->name,
      tsr_dtype_name(t->dtype), tsr_dtype_name(dtype));
}

/* As a run on another mesh does it. */
static void check_read(tsr_checkpoint_reader *in, const tensor *t, const tsr_stored *stored) {
  part parts[PIECES_MAX];
  taking k = {t, stored, .count = split(t, parts)};
  for (int i = 0; i < k.count; i++) {
    k.dtypes[i] = t->exact && t->dtype != TSR_I32 ? (tsr_dtype)draw(TSR_F16 + 1) : t->dtype;
    if (k.dtypes[i] == TSR_I32) k.dtypes[i] = t->dtype;
    k.slices[i].ndim = t->ndim;
    memcpy(k.slices[i].global, t->shape, sizeof t->shape);
    memcpy(k.slices[i].offset, parts[i].begin, sizeof t->shape);
    memcpy(k.slices[i].shape, parts[i].shape, sizeof t->shape);
    k.memory[i] =
        tsr_arena_alloc(arena, (size_t)(tsr_stored_elements(t->ndim, parts[i].shape) * 4) + 8);
  }
  CHECK_AT(
      tsr_checkpoint_reader_read(in, stored, NULL, take, &k, diags), "%s", scratch_diags(diags));
  for (int i = 0; i < k.count; i++) check_same(t, &parts[i], k.dtypes[i], k.memory[i], "a slice");
}

/* Elements of a slice, from the middle of it. */
static void check_read_slice(tsr_checkpoint_reader *in, const tensor *t, const tsr_stored *stored) {
  part p = {{0}};
  for (int d = 0; d < t->ndim; d++) {
    p.begin[d] = draw(3) ? 0 : draw(t->shape[d]);
    p.shape[d] = draw(2) ? t->shape[d] - p.begin[d] : 1 + draw(t->shape[d] - p.begin[d]);
  }
  int64_t n = tsr_stored_elements(t->ndim, p.shape), each = tsr_dtype_bytes(t->dtype);
  if (!tsr_stored_elements(t->ndim, t->shape)) return;
  int64_t first = draw(2) ? 0 : draw(n), count = draw(2) ? n - first : 1 + draw(n - first);
  char *got = tsr_arena_alloc(arena, (size_t)(n * each)),
       *want = tsr_arena_alloc(arena, (size_t)(n * each));
  CHECK(tsr_checkpoint_reader_read_slice(in, stored, p.begin, p.shape, first, count, got, diags));
  plain(t, &p, t->dtype, want);
  CHECK_AT(!memcmp(got, want + first * each, (size_t)(count * each)), "part of %s", t->name);
}

/* Files that any reader of the format takes, with as many tensors as the manifest has pieces. */
static void check_files(const tsr_manifest *m) {
  int pieces = 0, found = 0;
  for (int i = 0; i < m->tensors_count; i++) pieces += m->tensors[i].pieces_count;
  for (int i = 0; i < m->files_count; i++) {
    tsr_safetensors file;
    if (!strstr(m->files[i].name, ".safetensors")) continue;
    const char *path = tsr_path_join(arena, m->folder, m->files[i].name);
    bool ok = tsr_safetensors_open(arena, path, TSR_NOWHERE, &file, diags);
    CHECK_AT(ok, "%s", scratch_diags(diags));
    if (!ok) continue;
    found += file.tensors_count;
    tsr_safetensors_close(&file);
  }
  CHECK_INT(found, pieces);
}

static void check_all(const char *folder, tensor *tensors, int count, tsr_manifest *ret_manifest) {
  tsr_checkpoint_reader *in;
  bool ok = tsr_manifest_read(arena, folder, TSR_NOWHERE, ret_manifest, diags) &&
            tsr_checkpoint_reader_open(arena, ret_manifest, true, &in, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return;
  CHECK(tsr_checkpoint_reader_verify(in, diags));
  CHECK_INT(ret_manifest->tensors_count, count);
  for (int i = 0; i < count; i++) {
    const tsr_stored *stored = tsr_manifest_find(ret_manifest, tensors[i].name);
    CHECK_AT(stored, "%s is not there", tensors[i].name);
    if (!stored) continue;
    CHECK(stored->dtype == tensors[i].dtype && stored->ndim == tensors[i].ndim);
    CHECK(!memcmp(stored->shape, tensors[i].shape, sizeof(int64_t) * (size_t)stored->ndim));
    check_read(in, &tensors[i], stored);
    for (int k = 0; k < 4; k++) check_read_slice(in, &tensors[i], stored);
  }
  tsr_checkpoint_reader_close(in);
  check_files(ret_manifest);
}

static void check_same_file(const char *folder, const char *name, const char *want) {
  char *text;
  size_t length;
  CHECK(tsr_file_read(
      arena, tsr_path_join(arena, folder, name), 100, TSR_NOWHERE, &text, &length, diags));
  CHECK_STR(text, want);
}

static void check_round(int round) {
  tensor tensors[TENSORS_MAX];
  tsr_manifest first, other;
  int count = 1 + (int)draw(TENSORS_MAX);
  const char *folder = tsr_arena_printf(arena, "round-%d", round);
  for (int i = 0; i < count; i++) make_tensor(&tensors[i], i);
  write_all(folder, tensors, count);
  check_all(folder, tensors, count, &first);
  int64_t shards[] = {1, 1 + draw(7)};
  for (int i = 0; i < 2; i++) {
    const char *out = tsr_arena_printf(arena, "round-%d-%d", round, i);
    int64_t files;
    bool ok = tsr_checkpoint_reshard(arena, &first, shards[i], out, &files, diags);
    CHECK_AT(ok, "%s", scratch_diags(diags));
    if (!ok) continue;
    check_all(out, tensors, count, &other);
    check_same_file(out, "config.yaml", "a: 1\n");
    check_same_file(out, "copy", "what is copied");
    CHECK_INT(other.state.step, 3);
    CHECK_STR(other.config, "config.yaml");
    for (int k = 0; k < other.tensors_count; k++)
      CHECK(other.tensors[k].pieces_count <= files && files <= shards[i]);
  }
  int64_t files;
  CHECK(!tsr_checkpoint_reshard(arena, &first, 2, folder, &files, diags));
  CHECK_STR(
      scratch_diags(diags), tsr_arena_printf(arena, "error: '%s' is there already\n", folder));
}

int main(void) {
  char folder[64];
  scratch_enter(folder);
  scratch_text("copied", "what is copied");
  for (int i = 0; i < ROUNDS && check_failed < 20; i++) {
    arena = tsr_arena_new();
    diags = tsr_diags_new(arena);
    random_state = 1000 + (uint64_t)i;
    check_round(i);
    tsr_arena_free(arena);
  }
  scratch_leave(folder);
  return check_done("slices");
}
