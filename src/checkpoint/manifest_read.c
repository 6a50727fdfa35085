// SPDX-License-Identifier: Apache-2.0
/* Nothing of a manifest is believed before it was compared with the rest of it. */
#include "base/file_read.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_BYTES_MAX = 1 << 30, FRONT = 45, HASH_AT = 10 };

typedef struct {
  tsr_arena *arena;
  const char *path;
  tsr_manifest *m;
  tsr_diags *diags;
  bool is_part; /* of what several have written */
} reader;

static bool wrong(const reader *r, const char *what) {
  return tsr_diag_failure(r->diags, (tsr_location){.file = r->path}, "%s", what);
}

/* The first line holds the hash of all behind it. */
static bool check_hash(const reader *r, const char *text, size_t length) {
  static const char before[] = "{\"xxh3\": \"", after[] = "\",\n";
  char hash[TSR_HASH_TEXT];
  if (length < FRONT || memcmp(text, before, HASH_AT) || memcmp(text + FRONT - 3, after, 3))
    return wrong(r, "this is no manifest of a checkpoint: it does not begin with its hash");
  tsr_hash_text(text + FRONT, length - FRONT, hash);
  if (!memcmp(hash, text + HASH_AT, TSR_HASH_TEXT - 1)) return true;
  return tsr_diag_failure(
      r->diags, (tsr_location){.file = r->path},
      "the manifest is damaged: its hash is %s, not %.32s as recorded in it", hash, text + HASH_AT);
}

/* A whole number in [0, 2^53]. */
static bool get_count(const reader *r, const cJSON *o, const char *key, int64_t *ret) {
  if (!tsr_json_int(o, key, r->path, ret, r->diags)) return false;
  if (*ret >= 0) return true;
  return tsr_diag_failure(
      r->diags, (tsr_location){.file = r->path}, "'%s' is %" PRId64 ", which is below 0", key,
      *ret);
}

/* A text, or null. */
static bool get_optional(const reader *r, const cJSON *o, const char *key, const char **ret) {
  const cJSON *item = tsr_json_get(o, key);
  *ret = NULL;
  return cJSON_IsNull(item) || tsr_json_text(o, key, r->path, ret, r->diags);
}

static bool get_hash(const reader *r, const cJSON *o, char ret_hash[TSR_HASH_TEXT]) {
  const char *text;
  if (!tsr_json_text(o, "xxh3", r->path, &text, r->diags)) return false;
  if (strlen(text) != TSR_HASH_TEXT - 1 || strspn(text, "0123456789abcdef") != TSR_HASH_TEXT - 1)
    return wrong(r, "'xxh3' is not 32 hexadecimal digits");
  memcpy(ret_hash, text, TSR_HASH_TEXT);
  return true;
}

/* Exactly `count` whole numbers from 0; a count of -1: up to TSR_DIMS_MAX, and how many. */
static bool get_list(const reader *r, const cJSON *o, const char *key, int *count, int64_t *ret) {
  const cJSON *list = tsr_json_get(o, key);
  int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
  bool ok = n >= 0 && n <= TSR_DIMS_MAX && (*count < 0 || n == *count);
  const cJSON *item = ok ? list->child : NULL;
  for (int i = 0; ok && i < n; i++, item = item->next) {
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    ok = v >= 0 && v <= 9007199254740992.0 && v == floor(v);
    ret[i] = ok ? (int64_t)v : 0;
  }
  const char *up_to = *count < 0 ? "up to " : "";
  int most = *count < 0 ? TSR_DIMS_MAX : *count;
  *count = n;
  return ok || tsr_diag_failure(
                   r->diags, (tsr_location){.file = r->path},
                   "'%s' is not a list of %s%d whole number%s from 0", key, up_to, most,
                   most == 1 ? "" : "s");
}

static bool read_evaluated(const reader *r, const cJSON *o, tsr_evaluated_step *ret) {
  if (!get_count(r, o, "step", &ret->step) ||
      !tsr_json_double(o, "loss", r->path, &ret->loss, r->diags))
    return false;
  return (ret->step > 0 && isfinite(ret->loss)) ||
         wrong(r, "an evaluation is not of a step from 1 with a finite loss");
}

/* Only of runs that remember their evaluations. */
static bool read_validation(const reader *r, const cJSON *root) {
  tsr_validation_state *v = &r->m->state.validation;
  const cJSON *all = tsr_json_get(root, "validation"), *best = tsr_json_get(all, "best");
  const cJSON *improved = tsr_json_get(all, "improved");
  if (!all) return true;
  if (!cJSON_IsArray(best) || cJSON_GetArraySize(best) > TSR_BEST_MAX)
    return tsr_diag_failure(
        r->diags, (tsr_location){.file = r->path}, "'best' is not a list of up to %d evaluations",
        TSR_BEST_MAX);
  for (const cJSON *e = best->child; e; e = e->next)
    if (!read_evaluated(r, e, &v->best[v->best_count++])) return false;
  if (!cJSON_IsNull(improved) && !read_evaluated(r, improved, &v->improved)) return false;
  return get_count(r, all, "stale", &v->stale);
}

static bool read_state(const reader *r, const cJSON *root) {
  tsr_run_state *s = &r->m->state;
  const char *seed;
  char *end;
  if (!get_count(r, root, "step", &s->step) || !get_count(r, root, "updates", &s->updates) ||
      !get_count(r, root, "samples", &s->samples) ||
      !tsr_json_text(root, "seed", r->path, &seed, r->diags))
    return false;
  errno = 0;
  s->seed = strtoull(seed, &end, 10);
  if (*end || *seed < '0' || *seed > '9' || errno)
    return wrong(r, "'seed' is not a whole number in quotes");
  s->loss = NAN;
  if (!cJSON_IsNull(tsr_json_get(root, "loss")) &&
      !tsr_json_double(root, "loss", r->path, &s->loss, r->diags))
    return false;
  s->loss = (double)(float)s->loss; /* nine digits are all of an f32's, and not of a double's */
  if (!read_validation(r, root)) return false;
  const cJSON *scale = tsr_json_get(root, "loss_scale");
  double value = 0;
  if (!scale) return true;
  s->has_scale = true;
  if (!tsr_json_double(scale, "scale", r->path, &value, r->diags) ||
      !get_count(r, scale, "good_steps", &s->scale_good_steps))
    return false;
  s->scale = (float)value;
  return (s->scale >= 1 && isfinite(s->scale)) || wrong(r, "'scale' is not a finite number from 1");
}

static bool read_recipe(const reader *r, const cJSON *root) {
  const cJSON *recipe = tsr_json_get(root, "recipe");
  if (!cJSON_IsObject(recipe)) return wrong(r, "'recipe' is not an object");
  tsr_manifest *m = r->m;
  m->recipe = tsr_arena_array(r->arena, tsr_recipe_entry, cJSON_GetArraySize(recipe) + 1);
  for (const cJSON *e = recipe->child; e; e = e->next) {
    if (!cJSON_IsString(e)) return wrong(r, "a value of 'recipe' is not a text");
    m->recipe[m->recipe_count++] = (tsr_recipe_entry){e->string, e->valuestring};
  }
  return true;
}

/* Names stay inside the folder. */
static bool is_file_name(const char *name) {
  return *name && *name != '.' && !strchr(name, '/') && strlen(name) < 200;
}

static bool read_file(const reader *r, const cJSON *o, tsr_stored_file *ret) {
  if (!tsr_json_text(o, "name", r->path, &ret->name, r->diags) ||
      !get_count(r, o, "bytes", &ret->bytes) || !get_count(r, o, "header", &ret->header) ||
      !get_hash(r, o, ret->hash))
    return false;
  if (!is_file_name(ret->name)) return wrong(r, "a file's name is no name of a file in the folder");
  return ret->header <= ret->bytes || wrong(r, "a file's header is longer than the file");
}

static bool read_files(const reader *r, const cJSON *root) {
  const cJSON *files = tsr_json_get(root, "files");
  if (!cJSON_IsArray(files)) return wrong(r, "'files' is not a list");
  tsr_manifest *m = r->m;
  m->files = tsr_arena_array(r->arena, tsr_stored_file, cJSON_GetArraySize(files) + 1);
  for (const cJSON *e = files->child; e; e = e->next)
    if (!read_file(r, e, &m->files[m->files_count++])) return false;
  return true;
}

/* ---- tensors ---- */

static bool wrong_tensor(const reader *r, const tsr_stored *t, const char *what) {
  return tsr_diag_failure(
      r->diags, (tsr_location){.file = r->path}, "tensor '%s': %s", t->name, what);
}

/* Product of a shape, or -1 where it is more than 2^60. */
static int64_t elements_of(int ndim, const int64_t *shape) {
  int64_t n = 1, many = (int64_t)1 << 60;
  for (int d = 0; d < ndim; d++)
    if (shape[d] == 0) return 0;
  for (int d = 0; d < ndim; d++) {
    if (n > many / shape[d]) return -1;
    n *= shape[d];
  }
  return n;
}

static bool read_piece(const reader *r, const cJSON *o, const tsr_stored *t, tsr_stored_piece *p) {
  int64_t file;
  int ndim = t->ndim, same = t->ndim;
  if (!get_count(r, o, "file", &file) || !get_count(r, o, "offset", &p->offset) ||
      !get_count(r, o, "bytes", &p->bytes) || !get_list(r, o, "begin", &ndim, p->begin) ||
      !get_list(r, o, "shape", &same, p->shape) || !get_hash(r, o, p->hash))
    return false;
  if (file >= r->m->files_count)
    return wrong_tensor(r, t, "a piece is in a file that is not listed");
  p->file = (int)file;
  for (int d = 0; d < ndim; d++)
    if (p->begin[d] > t->shape[d] || p->shape[d] > t->shape[d] - p->begin[d])
      return wrong_tensor(r, t, "a piece reaches over its end");
  if (elements_of(ndim, p->shape) * tsr_dtype_bytes(t->dtype) != p->bytes)
    return wrong_tensor(r, t, "a piece has not as many bytes as its shape");
  const tsr_stored_file *f = &r->m->files[p->file];
  if (p->offset < f->header || p->offset > f->bytes || p->bytes > f->bytes - p->offset)
    return wrong_tensor(r, t, "a piece lies outside its file");
  return true;
}

static bool overlap(int ndim, const tsr_stored_piece *a, const tsr_stored_piece *b) {
  for (int d = 0; d < ndim; d++)
    if (a->begin[d] + a->shape[d] <= b->begin[d] || b->begin[d] + b->shape[d] <= a->begin[d])
      return false;
  return true;
}

/* Disjoint slices with as many elements as the tensor are the tensor. */
static bool check_cover(const reader *r, const tsr_stored *t) {
  int64_t sum = 0;
  for (int i = 0; i < t->pieces_count; i++) {
    int64_t n = elements_of(t->ndim, t->pieces[i].shape);
    sum += n;
    for (int k = 0; n && k < i; k++)
      if (overlap(t->ndim, &t->pieces[i], &t->pieces[k]))
        return wrong_tensor(r, t, "two pieces overlap");
  }
  return r->is_part || sum == elements_of(t->ndim, t->shape) ||
         wrong_tensor(r, t, "its pieces are not all of it");
}

static bool read_dtype(const reader *r, const cJSON *o, tsr_stored *t) {
  const char *name;
  if (!tsr_json_text(o, "dtype", r->path, &name, r->diags)) return false;
  for (int d = TSR_F32; d <= TSR_F16; d++)
    if (!strcmp(name, tsr_dtype_name((tsr_dtype)d))) return t->dtype = (tsr_dtype)d, true;
  return wrong_tensor(r, t, "its dtype is not known");
}

static bool read_tensor(const reader *r, const cJSON *o, tsr_stored *t) {
  *t = (tsr_stored){.name = o->string, .ndim = -1};
  if (!read_dtype(r, o, t) || !get_list(r, o, "shape", &t->ndim, t->shape)) return false;
  if (!t->ndim) return wrong_tensor(r, t, "it has no dimensions");
  if (elements_of(t->ndim, t->shape) < 0) return wrong_tensor(r, t, "its shape overflows");
  const cJSON *pieces = tsr_json_get(o, "pieces");
  if (!cJSON_IsArray(pieces)) return wrong_tensor(r, t, "it has no list of pieces");
  t->pieces = tsr_arena_array(r->arena, tsr_stored_piece, cJSON_GetArraySize(pieces) + 1);
  for (const cJSON *e = pieces->child; e; e = e->next)
    if (!read_piece(r, e, t, &t->pieces[t->pieces_count++])) return false;
  return check_cover(r, t);
}

static bool read_tensors(const reader *r, const cJSON *root) {
  const cJSON *tensors = tsr_json_get(root, "tensors");
  if (!cJSON_IsObject(tensors)) return wrong(r, "'tensors' is not an object");
  tsr_manifest *m = r->m;
  m->tensors = tsr_arena_array(r->arena, tsr_stored, cJSON_GetArraySize(tensors) + 1);
  for (const cJSON *e = tensors->child; e; e = e->next) {
    if (!read_tensor(r, e, &m->tensors[m->tensors_count++])) return false;
    if (m->tensors_count > 1 && strcmp(e->prev->string, e->string) >= 0)
      return wrong_tensor(
          r, &m->tensors[m->tensors_count - 1], "it is not behind the one before it");
  }
  return true;
}

static int by_place(const void *a, const void *b) {
  const tsr_stored_piece *x = *(const tsr_stored_piece *const *)a;
  const tsr_stored_piece *y = *(const tsr_stored_piece *const *)b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Headers, and pieces that follow each other without a gap, are all that is in the files: so every
 * byte is under a hash. */
static bool check_files(const reader *r) {
  const tsr_manifest *m = r->m;
  int count = 0, pieces = 0;
  for (int i = 0; i < m->tensors_count; i++) pieces += m->tensors[i].pieces_count;
  const tsr_stored_piece **list = tsr_arena_array(r->arena, const tsr_stored_piece *, pieces + 1);
  for (int i = 0; i < m->tensors_count; i++)
    for (int k = 0; k < m->tensors[i].pieces_count; k++)
      if (m->tensors[i].pieces[k].bytes) list[count++] = &m->tensors[i].pieces[k];
  qsort(list, (size_t)count, sizeof *list, by_place);
  for (int i = 0, next = 0; i < m->files_count; i++) {
    int64_t at = m->files[i].header;
    for (; next < count && list[next]->file == i && list[next]->offset == at; next++)
      at += list[next]->bytes;
    if (at != m->files[i].bytes || (next < count && list[next]->file == i))
      return wrong(r, "a file is not just its header and its pieces");
  }
  return true;
}

/* ---- the whole ---- */

static bool check_version(const reader *r, const cJSON *root) {
  const char *format;
  int64_t version;
  if (!tsr_json_text(root, "format", r->path, &format, r->diags) ||
      !get_count(r, root, "version", &version))
    return false;
  if (strcmp(format, "tessera-checkpoint")) return wrong(r, "'format' is not tessera-checkpoint");
  if (version == TSR_MANIFEST_VERSION) return true;
  return tsr_diag_error(
      r->diags, (tsr_location){.file = r->path},
      "the checkpoint is of version %" PRId64 "; this program reads version %d", version,
      TSR_MANIFEST_VERSION);
}

static bool has_file(const tsr_manifest *m, const char *name) {
  for (int i = 0; i < m->files_count; i++)
    if (!strcmp(m->files[i].name, name)) return true;
  return false;
}

static bool read_about(const reader *r, const cJSON *root) {
  tsr_manifest *m = r->m;
  if (!tsr_json_bool(root, "has_state", r->path, &m->has_state, r->diags) ||
      !get_optional(r, root, "mesh", &m->mesh) || !get_optional(r, root, "isa", &m->isa) ||
      (tsr_json_get(root, "tag") && !get_optional(r, root, "tag", &m->tag)) ||
      !get_optional(r, root, "program", &m->version) || !get_count(r, root, "time", &m->time) ||
      !get_optional(r, root, "config", &m->config) ||
      !get_optional(r, root, "tokenizer", &m->tokenizer))
    return false;
  return (!m->config || has_file(m, m->config)) && (!m->tokenizer || has_file(m, m->tokenizer))
             ? true
             : wrong(r, "'config' or 'tokenizer' is not one of the files");
}

static bool parse(
    tsr_arena *arena, const char *path, const char *text, size_t length, bool is_part,
    tsr_manifest *ret, tsr_diags *diags) {
  reader r = {arena, path, ret, diags, is_part};
  cJSON *root;
  *ret = (tsr_manifest){.folder = tsr_path_folder(arena, path)};
  return check_hash(&r, text, length) && tsr_json_parse(arena, path, text, length, &root, diags) &&
         check_version(&r, root) && read_state(&r, root) && read_recipe(&r, root) &&
         read_files(&r, root) && read_about(&r, root) && read_tensors(&r, root) && check_files(&r);
}

bool tsr_manifest_parse(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_manifest *ret,
    tsr_diags *diags) {
  return parse(arena, path, text, length, false, ret, diags);
}

bool tsr_manifest_parse_part(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_manifest *ret,
    tsr_diags *diags) {
  return parse(arena, path, text, length, true, ret, diags);
}

bool tsr_manifest_read(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_manifest *ret,
    tsr_diags *diags) {
  const char *path = tsr_path_join(arena, folder, TSR_MANIFEST_NAME);
  char *text;
  size_t length;
  if (!tsr_file_exists(path)) {
    tsr_diag_error(
        diags, location, "'%s' is no checkpoint: it has no %s", folder, TSR_MANIFEST_NAME);
    return false;
  }
  tsr_diags *errors = tsr_diags_new(arena);
  if (!tsr_file_read_nofollow(arena, path, MANIFEST_BYTES_MAX, location, &text, &length, errors))
    return tsr_diag_failure(
        diags, location, "%s", tsr_diags_first_error(errors)); /* it is damaged */
  return tsr_manifest_parse(arena, path, text, length, ret, diags);
}
