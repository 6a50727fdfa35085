// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_folder.h"
#include "base/file_read.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 1 << 28, PARTS_MAX = 1 << 16 };
static const char single[] = "model.safetensors", index_name[] = "model.safetensors.index.json";
static const char expert_mark[] = "{expert}";

/* ---- opening ---- */

static bool open_file(tsr_hf_folder *f, const char *path, tsr_diags *diags) {
  return tsr_safetensors_open(f->arena, path, TSR_NOWHERE, &f->files[f->files_count++], diags);
}

static bool is_file_name(const char *name) { return *name && *name != '.' && !strchr(name, '/'); }

/* The files of the index, each once, in its order. */
static bool open_listed(
    tsr_hf_folder *f, const char *folder, const char *path, const cJSON *map, tsr_diags *diags) {
  f->files = tsr_arena_array(f->arena, tsr_safetensors, cJSON_GetArraySize(map) + 1);
  const cJSON *item;
  cJSON_ArrayForEach(item, map) {
    if (!cJSON_IsString(item) || !is_file_name(item->valuestring))
      return tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': the file of tensor '%s' should be a name in this folder", path,
          item->string);
    const char *name = tsr_path_join(f->arena, folder, item->valuestring);
    bool is_open = false;
    for (int i = f->files_count - 1; i >= 0 && !is_open; i--)
      is_open = !strcmp(f->files[i].path, name);
    if (!is_open && !open_file(f, name, diags)) return false;
  }
  return true;
}

/* The index has each tensor of each file, and no other. */
static bool check_index(
    const tsr_hf_folder *f, const char *folder, const char *path, const cJSON *map,
    tsr_diags *diags) {
  bool ok = true;
  const cJSON *item;
  int64_t listed = 0, stored = 0;
  cJSON_ArrayForEach(item, map) {
    const char *name = tsr_path_join(f->arena, folder, item->valuestring);
    const tsr_safetensors *file = f->files;
    while (strcmp(file->path, name)) file++;
    listed++;
    if (tsr_safetensors_find(file, item->string) < 0)
      ok = tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': tensor '%s' is not in '%s'", path, item->string,
          item->valuestring);
  }
  for (int i = 0; i < f->files_count; i++) stored += f->files[i].tensors_count;
  if (!ok || listed == stored) return ok;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' lists %lld tensors, its files have %lld", path, (long long)listed,
      (long long)stored);
}

static bool open_index(tsr_hf_folder *f, const char *folder, const char *path, tsr_diags *diags) {
  char *text;
  size_t length;
  cJSON *root;
  if (!tsr_file_read_regular(f->arena, path, INDEX_BYTES_MAX, TSR_NOWHERE, &text, &length, diags) ||
      !tsr_json_parse(f->arena, path, text, length, &root, diags))
    return false;
  const cJSON *map = tsr_json_get(root, "weight_map");
  if (!cJSON_IsObject(map))
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s': 'weight_map' should be an object", path);
  return open_listed(f, folder, path, map, diags) && check_index(f, folder, path, map, diags);
}

static bool open_files(tsr_hf_folder *f, const char *folder, tsr_diags *diags) {
  const char *index = tsr_path_join(f->arena, folder, index_name);
  const char *one = tsr_path_join(f->arena, folder, single);
  if (tsr_file_exists(index)) return open_index(f, folder, index, diags);
  f->files = tsr_arena_array(f->arena, tsr_safetensors, 1);
  if (tsr_file_exists(one)) return open_file(f, one, diags);
  tsr_diag_error(
      diags, TSR_NOWHERE, "there is neither '%s' nor '%s' in '%s'", single, index_name, folder);
  if (tsr_file_exists(tsr_path_join(f->arena, folder, "pytorch_model.bin")) ||
      tsr_file_exists(tsr_path_join(f->arena, folder, "pytorch_model.bin.index.json")))
    tsr_diag_hint(
        diags, "pytorch_model.bin is not read: transformers' save_pretrained writes safetensors");
  return false;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const tsr_hf_tensor *)a)->tensor->name, ((const tsr_hf_tensor *)b)->tensor->name);
}

static bool join(tsr_hf_folder *f, tsr_diags *diags) {
  int count = 0;
  for (int i = 0; i < f->files_count; i++) count += f->files[i].tensors_count;
  f->tensors = tsr_arena_array(f->arena, tsr_hf_tensor, count);
  for (int i = 0; i < f->files_count; i++)
    for (int k = 0; k < f->files[i].tensors_count; k++)
      f->tensors[f->tensors_count++] =
          (tsr_hf_tensor){.tensor = &f->files[i].tensors[k], .file = &f->files[i]};
  qsort(f->tensors, (size_t)count, sizeof *f->tensors, by_name);
  for (int i = 1; i < count; i++)
    if (!by_name(&f->tensors[i - 1], &f->tensors[i]))
      return tsr_diag_error(
          diags, TSR_NOWHERE, "tensor '%s' is in '%s' and in '%s'", f->tensors[i].tensor->name,
          f->tensors[i - 1].file->path, f->tensors[i].file->path);
  return true;
}

bool tsr_hf_folder_open(
    tsr_arena *arena, const char *folder, tsr_hf_folder *ret, tsr_diags *diags) {
  *ret = (tsr_hf_folder){.arena = arena};
  if (open_files(ret, folder, diags) && join(ret, diags)) return true;
  tsr_hf_folder_close(ret);
  return false;
}

void tsr_hf_folder_close(tsr_hf_folder *f) {
  for (int i = 0; i < f->files_count; i++) tsr_safetensors_close(&f->files[i]);
}

/* ---- finding ---- */

static tsr_hf_tensor *find(const tsr_hf_folder *f, const char *name) {
  tsr_safetensor named = {.name = name};
  tsr_hf_tensor key = {.tensor = &named};
  if (!f->tensors_count) return NULL;
  return bsearch(&key, f->tensors, (size_t)f->tensors_count, sizeof key, by_name);
}

tsr_hf_tensor *tsr_hf_folder_find(const tsr_hf_folder *f, const char *name) {
  tsr_hf_tensor *found = find(f, name);
  const char *dot = strchr(name, '.');
  return found || !dot ? found : find(f, dot + 1);
}

const char *tsr_hf_place_name(tsr_arena *arena, const tsr_hf_place *place, int64_t expert) {
  const char *mark = strstr(place->name, expert_mark);
  if (!place->tensors || !mark) return place->name;
  return tsr_arena_printf(
      arena, "%.*s%lld%s", (int)(mark - place->name), place->name, (long long)expert,
      mark + strlen(expert_mark));
}

/* "name#part/parts", "name#part%parts" or "name#begin:end/of", for a place of `out` rows. */
static bool read_part(tsr_arena *arena, const char *name, int64_t out, tsr_hf_place *ret) {
  const char *mark = strchr(name, '#');
  long long a, b, of;
  int length = 0;
  ret->name = name;
  ret->end = ret->of = out;
  if (!mark) return true;
  ret->name = tsr_arena_strndup(arena, name, (size_t)(mark - name));
  if (sscanf(mark, "#%lld/%lld%n", &a, &of, &length) == 2 && !mark[length]) {
    if (a < 0 || a >= of || of > PARTS_MAX) return false;
    b = (a + 1) * out, a *= out, of *= out;
  } else if (sscanf(mark, "#%lld%%%lld%n", &a, &of, &length) == 2 && !mark[length]) b = a + 1;
  else if (sscanf(mark, "#%lld:%lld/%lld%n", &a, &b, &of, &length) != 3 || mark[length])
    return false;
  ret->begin = a;
  ret->end = b;
  ret->of = of;
  return 0 <= a && a < b && b <= of && out % (b - a) == 0;
}

/* The output dimension is number `dim`. */
static void set_strides(tsr_hf_place *p, int dim, bool transposed) {
  int64_t rows = p->end - p->begin, groups = p->out / rows;
  memcpy(p->whole, p->shape, sizeof p->whole);
  p->whole[dim] = groups * p->of;
  p->row = p->in;
  p->column = 1;
  p->expert = p->whole[dim] * p->in;
  if (transposed && p->ndim == dim + 2) {
    p->row = 1;
    p->column = p->whole[dim];
    p->whole[dim + 1] = p->whole[dim];
    p->whole[dim] = p->in;
  }
  p->first = p->begin * p->row;
  p->group = p->of * p->row;
  p->span = rows;
  if (rows == 1) p->row = p->group; /* all rows have one distance */
  if (rows == 1 || groups == 1) p->span = p->out;
}

bool tsr_hf_place_of(tsr_arena *arena, const tsr_param *p, tsr_hf_place *ret) {
  *ret = (tsr_hf_place){.ndim = p->ndim};
  if (!p->hf_name) return false;
  tsr_param_real_shape(p, ret->shape);
  bool together = tsr_param_is_of_experts(p) && p->ndim > 1;
  if (strstr(p->hf_name, expert_mark)) {
    together = false;
    ret->tensors = ret->shape[0];
    memmove(ret->shape, ret->shape + 1, sizeof *ret->shape * (size_t)--ret->ndim);
  }
  ret->experts = together ? ret->shape[0] : 1;
  ret->out = ret->shape[together];
  ret->in = 1;
  for (int d = together + 1; d < ret->ndim; d++) ret->in *= ret->shape[d];
  if (!read_part(arena, p->hf_name, ret->out, ret)) return false;
  set_strides(ret, together, p->hf_transposed);
  return true;
}

const char *tsr_hf_out(tsr_arena *arena, const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  return tsr_arena_strndup(arena, path, length);
}
