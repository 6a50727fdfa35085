// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/peft.h"
#include "base/file_read.h"
#include "base/hash.h"
#include "checkpoint/folder_output.h"
#include "checkpoint/hf_folder.h"
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

/* A tensor of theirs, and the parameters of ours that are (parts of) it. */
typedef struct {
  const char *name, *file_name; /* of transformers 5 and of files of a model */
  int ndim;
  int64_t shape[TSR_DIMS_MAX], elements;
  float *numbers; /* theirs; NULL before they are needed */
  int64_t filled; /* rows of its parts, of each `of` */
} theirs;

/* An occurrence of a parameter in one of their tensors. */
typedef struct {
  int param, tensor;
  int64_t expert;
  tsr_hf_place place;
} part;

typedef struct {
  tsr_arena *arena;
  const tsr_trained_values *values;
  theirs *tensors;
  part *parts;
  int tensors_count, parts_count;
  tsr_diags *diags;
} layout;

/* ---- names ---- */

const char *tsr_peft_module_name(tsr_arena *arena, const char *name) {
  static const char there[] = ".block_sparse_moe.";
  const char *at = strstr(name, there);
  return at ? tsr_arena_printf(arena, "%.*s.mlp.%s", (int)(at - name), name, at + sizeof there - 1)
            : name;
}

/* Whether a module has adapters: a parameter of ours is its lora_B. */
static bool has_adapter(const tsr_graph *g, const char *module, size_t length) {
  static const char b[] = ".lora_B.weight";
  for (int p = 0; p < g->params_count; p++) {
    const char *name = g->params[p].hf_name;
    if (g->params[p].is_adapter && name && !strncmp(name, module, length) &&
        !strncmp(name + length, b, sizeof b - 1))
      return true;
  }
  return false;
}

/* The name in PEFT's files, with the mark of a part. PEFT wraps a layer with adapters, so that its
 * own bias is another level down. */
static const char *peft_name(tsr_arena *arena, const tsr_graph *g, const tsr_param *p) {
  static const char bias[] = ".bias";
  size_t length = strcspn(p->hf_name, "#"), end = sizeof bias - 1;
  const char *base = "";
  if (length > end && !strncmp(p->hf_name + length - end, bias, end) &&
      has_adapter(g, p->hf_name, length - end))
    base = ".base_layer", length -= end;
  return tsr_arena_printf(
      arena, "base_model.model.%.*s%s%s", (int)length, p->hf_name, base, p->hf_name + length);
}

static int find_tensor(const layout *l, const char *name) {
  for (int i = 0; i < l->tensors_count; i++)
    if (!strcmp(l->tensors[i].name, name) || !strcmp(l->tensors[i].file_name, name)) return i;
  return -1;
}

static void add_part(layout *l, int param, const tsr_hf_place *place, int64_t expert) {
  const char *name = tsr_hf_place_name(l->arena, place, expert);
  int tensor = find_tensor(l, name);
  if (tensor < 0) {
    theirs *t = &l->tensors[tensor = l->tensors_count++];
    *t = (theirs){tsr_peft_module_name(l->arena, name), name, place->ndim, .elements = 1};
    memcpy(t->shape, place->whole, sizeof t->shape);
    for (int d = 0; d < t->ndim; d++) t->elements *= t->shape[d];
  }
  l->parts[l->parts_count++] = (part){param, tensor, expert, *place};
}

/* transformers has the experts of a layer in one tensor, which peft does not take from a folder.
 * Here they are the only parameters of three dimensions. */
static bool check_experts(const tsr_trained_values *values, tsr_diags *diags) {
  const tsr_graph *g = values->graph;
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    if (values->values[p] && param->hf_name && param->ndim > 2)
      return tsr_diag_error(
          diags, TSR_NOWHERE,
          "'%s' is weights of experts, which PEFT's folders do not have in modules_to_save",
          param->hf_name);
  }
  return true;
}

static bool
make_layout(tsr_arena *arena, const tsr_trained_values *values, layout *ret, tsr_diags *diags) {
  const tsr_graph *g = values->graph;
  int64_t count = 0;
  *ret = (layout){.arena = arena, .values = values, .diags = diags};
  tsr_hf_place *places = tsr_arena_array(arena, tsr_hf_place, g->params_count + 1);
  for (int p = 0; p < g->params_count; p++) {
    tsr_param named = g->params[p];
    if (!values->values[p]) continue;
    if (named.hf_name) named.hf_name = peft_name(arena, g, &named);
    if (!tsr_hf_place_of(arena, &named, &places[p]))
      return tsr_diag_error(
          diags, named.location, "parameter '%s' has no name in Hugging Face's files", named.name);
    count += tsr_hf_place_tensors(&places[p]);
  }
  ret->tensors = tsr_arena_array(arena, theirs, count + 1);
  ret->parts = tsr_arena_array(arena, part, count + 1);
  for (int p = 0; p < g->params_count; p++)
    for (int64_t e = 0; values->values[p] && e < tsr_hf_place_tensors(&places[p]); e++)
      add_part(ret, p, &places[p], e);
  return true;
}

/* ---- numbers ---- */

/* Between the part of a parameter that one tensor of theirs has, and that tensor. */
static void copy_part(const layout *l, const part *p, float *tensor, bool reads) {
  const tsr_hf_place *at = &p->place;
  float *ours = l->values->values[p->param] + p->expert * at->experts * at->out * at->in;
  for (int64_t e = 0; e < at->experts; e++)
    for (int64_t o = 0; o < at->out; o++)
      for (int64_t i = 0; i < at->in; i++, ours++) {
        float *there = tensor + tsr_hf_place_row(at, e, o) + i * at->column;
        if (reads) *ours = *there;
        else *there = *ours;
      }
}

static bool read_tensor(const layout *l, const tsr_safetensors *file, theirs *t) {
  int index = tsr_safetensors_find(file, t->name);
  if (index < 0) index = tsr_safetensors_find(file, t->file_name);
  if (index < 0)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s': tensor '%s' of shape %s is missing", file->path, t->name,
        tsr_shape_text(t->ndim, t->shape).text);
  const tsr_safetensor *s = &file->tensors[index];
  bool same = s->ndim == t->ndim;
  for (int d = 0; same && d < t->ndim; d++) same = s->shape[d] == t->shape[d];
  if (!same)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s': tensor '%s' has the shape %s, not %s", file->path, t->name,
        tsr_shape_text(s->ndim, s->shape).text, tsr_shape_text(t->ndim, t->shape).text);
  bool f32 = !strcmp(s->dtype, "F32"), bf16 = !strcmp(s->dtype, "BF16");
  if (!f32 && !bf16 && strcmp(s->dtype, "F16") != 0)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s': tensor '%s' has the dtype %s; F32, BF16 and F16 are taken",
        file->path, t->name, s->dtype);
  t->numbers = tsr_arena_array(l->arena, float, t->elements);
  tsr_numbers_to_f32(
      tsr_kernels_get(NULL),
      f32    ? TSR_F32
      : bf16 ? TSR_BF16
             : TSR_F16,
      file->map + s->offset, t->elements, t->numbers);
  return true;
}

/* Of an output layer with adapters PEFT keeps the model's own weight too, and with bias: all the
 * biases of a module that is trained whole twice. */
static bool is_copy(const layout *l, const char *name) {
  if (strstr(name, ".original_module.") || strstr(name, ".modules_to_save.")) return true;
  static const char prefix[] = "base_model.model.", end[] = ".base_layer.weight";
  size_t length = strlen(name), front = sizeof prefix - 1, back = sizeof end - 1;
  return length > front + back && tsr_path_ends(name, end) &&
         has_adapter(l->values->graph, name + front, length - front - back);
}

static bool check_surplus(const layout *l, const tsr_safetensors *file) {
  bool ok = true;
  for (int i = 0; i < file->tensors_count; i++)
    if (find_tensor(l, file->tensors[i].name) < 0 && !is_copy(l, file->tensors[i].name))
      ok = tsr_diag_error(
          l->diags, TSR_NOWHERE, "'%s': tensor '%s' has no place in the model's adapters",
          file->path, file->tensors[i].name);
  return ok;
}

static bool read_all(const layout *l, const tsr_safetensors *file) {
  bool ok = true;
  for (int i = 0; i < l->tensors_count; i++) ok &= read_tensor(l, file, &l->tensors[i]);
  if (!ok || !check_surplus(l, file)) return false;
  for (int i = 0; i < l->parts_count; i++)
    copy_part(l, &l->parts[i], l->tensors[l->parts[i].tensor].numbers, true);
  return true;
}

bool tsr_peft_read(
    tsr_arena *arena, const char *folder, tsr_location location, const tsr_trained_values *values,
    tsr_diags *diags) {
  layout l;
  tsr_safetensors file;
  const char *path = tsr_path_join(arena, folder, TSR_PEFT_WEIGHTS_NAME);
  if (!check_experts(values, diags) || !make_layout(arena, values, &l, diags) ||
      !tsr_safetensors_open(arena, path, location, &file, diags))
    return false;
  bool ok = read_all(&l, &file);
  tsr_safetensors_close(&file);
  return ok;
}

bool tsr_peft_hash(
    tsr_arena *arena, const char *folder, tsr_location location, const char **ret,
    tsr_diags *diags) {
  tsr_safetensors file;
  char text[TSR_HASH_TEXT];
  const char *path = tsr_path_join(arena, folder, TSR_PEFT_WEIGHTS_NAME);
  if (!tsr_safetensors_open(arena, path, location, &file, diags)) return false;
  tsr_hash_text(file.map, (size_t)file.size, text);
  tsr_safetensors_close(&file);
  *ret = tsr_arena_strdup(arena, text);
  return true;
}

/* ---- writing ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const theirs *)a)->name, ((const theirs *)b)->name);
}

typedef struct {
  layout *layout;
  const tsr_peft_config *config;
} writing;

static bool write_weights(const layout *l, tsr_folder_output *out) {
  static const char *const metadata[] = {"format", "pt"};
  tsr_safetensor *list = tsr_arena_array(l->arena, tsr_safetensor, l->tensors_count + 1);
  for (int i = 0; i < l->tensors_count; i++) {
    const theirs *t = &l->tensors[i];
    list[i] = (tsr_safetensor){t->name, "F32", t->ndim, .bytes = t->elements * 4};
    memcpy(list[i].shape, t->shape, sizeof(int64_t) * (size_t)t->ndim);
  }
  tsr_text text = {0};
  tsr_safetensors_header(list, l->tensors_count, metadata, 1, &text);
  bool ok = tsr_folder_output_begin(out, TSR_PEFT_WEIGHTS_NAME) &&
            tsr_folder_output_put(out, text.data, (int64_t)text.length);
  for (int i = 0; ok && i < l->tensors_count; i++)
    ok = tsr_folder_output_put(out, l->tensors[i].numbers, l->tensors[i].elements * 4);
  tsr_text_free(&text);
  return ok && tsr_folder_output_end(out);
}

static bool write_all(void *context, tsr_folder_output *out) {
  const writing *w = context;
  tsr_text text = {0};
  tsr_peft_config_print(w->config, &text);
  bool ok = tsr_folder_output_file(out, TSR_PEFT_CONFIG_NAME, text.data, text.length);
  tsr_text_free(&text);
  return ok && write_weights(w->layout, out);
}

/* A tensor of theirs has one adapter for all its parts, so none is missing. */
static bool check_whole(const layout *l) {
  for (int i = 0; i < l->parts_count; i++)
    l->tensors[l->parts[i].tensor].filled += l->parts[i].place.end - l->parts[i].place.begin;
  for (int i = 0; i < l->parts_count; i++)
    if (l->tensors[l->parts[i].tensor].filled < l->parts[i].place.of)
      return tsr_diag_error(
          l->diags, TSR_NOWHERE, "only a part of '%s' is trained, which PEFT's files cannot have",
          l->tensors[l->parts[i].tensor].name);
  return true;
}

bool tsr_peft_write(
    tsr_arena *arena, const char *out, const tsr_trained_values *values,
    const tsr_peft_config *config, tsr_diags *diags) {
  layout l;
  if (!check_experts(values, diags)) {
    tsr_diag_hint(diags, "`export --merge` writes the model that they are a part of");
    return false;
  }
  if (!make_layout(arena, values, &l, diags) || !check_whole(&l)) return false;
  for (int i = 0; i < l.tensors_count; i++)
    l.tensors[i].numbers = tsr_arena_array(arena, float, l.tensors[i].elements);
  for (int i = 0; i < l.parts_count; i++)
    copy_part(&l, &l.parts[i], l.tensors[l.parts[i].tensor].numbers, false);
  qsort(l.tensors, (size_t)l.tensors_count, sizeof *l.tensors, by_name);
  writing w = {&l, config};
  return tsr_folder_output_write(arena, tsr_hf_out(arena, out), write_all, &w, diags);
}
