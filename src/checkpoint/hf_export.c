// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_export.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "checkpoint/folder_output.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_merge.h"
#include "checkpoint/hf_side_files.h"
#include "checkpoint/reader.h"
#include "checkpoint/stored_model.h"
#include "data/padding_token.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PORTION = 1 << 18, SIDE_BYTES_MAX = 1 << 28 }; /* elements; bytes of a side file */

/* A tensor of theirs: one parameter of ours, or several that are its parts; of a parameter that has
 * a tensor there for each expert, one expert. */
typedef struct {
  const char *name;
  int64_t expert;
  struct {
    tsr_hf_place place;
    const tsr_stored *stored;
    tsr_hf_merge *merge; /* NULL: it stays as it is */
  } * parts;             /* in the order of their rows there */
  int parts_count, parts_capacity, shard;
  tsr_dtype dtype;
  int64_t bytes;
} target;

typedef struct {
  tsr_arena *arena;
  const tsr_hf_export_options *options;
  tsr_manifest manifest;
  tsr_checkpoint_reader *input;
  const tsr_kernels *kernels;
  tsr_hf_export_config config;
  target *targets;
  int targets_count, shards;
  int64_t bytes;
  void *portion, *converted;
  float *wide;
  int64_t overflows; /* finite values of a tensor that have become infinite */
  tsr_folder_output *out;
  tsr_diags *diags;
} exporter;

/* ---- which tensor is what ---- */

static bool read_dtype(const exporter *x, tsr_dtype stored, tsr_dtype *ret_dtype) {
  static const tsr_dtype known[] = {TSR_F32, TSR_BF16, TSR_F16};
  *ret_dtype = stored;
  if (!x->options->dtype) return true;
  for (int i = 0; i < 3; i++)
    if (!strcmp(x->options->dtype, tsr_dtype_name(known[i]))) return *ret_dtype = known[i], true;
  tsr_diag_error(x->diags, TSR_NOWHERE, "'%s' is no dtype to export weights in", x->options->dtype);
  tsr_diag_hint(x->diags, "valid: f32, bf16, f16");
  return false;
}

static const tsr_hf_change *change_of(const exporter *x, const tsr_param *param) {
  for (int i = 0; i < x->options->changes_count; i++)
    if (!strcmp(x->options->changes[i].param, param->name)) return &x->options->changes[i];
  return NULL;
}

/* What a run has trained whole beside a model that has another output. */
static const tsr_stored *
new_tensor(const exporter *x, const tsr_param *param, const int64_t *shape) {
  tsr_stored *t = tsr_arena_alloc(x->arena, sizeof *t);
  *t = (tsr_stored){param->name, x->manifest.tensors[0].dtype, param->ndim};
  memcpy(t->shape, shape, sizeof t->shape);
  return t;
}

static bool find_stored(
    const exporter *x, const tsr_param *param, const tsr_hf_change *change,
    const tsr_stored **ret) {
  const tsr_stored *t = tsr_manifest_find(&x->manifest, param->name);
  int64_t shape[TSR_DIMS_MAX];
  tsr_param_real_shape(param, shape);
  if (!t && change && change->values && param->replaces) t = new_tensor(x, param, shape);
  *ret = t;
  if (!t)
    return tsr_diag_error(
        x->diags, TSR_NOWHERE, "'%s' has no parameter '%s'", x->manifest.folder, param->name);
  bool same = t->ndim == param->ndim;
  for (int d = 0; same && d < t->ndim; d++) same = t->shape[d] == shape[d];
  return same || tsr_diag_error(
                     x->diags, TSR_NOWHERE,
                     "'%s': parameter '%s' has the shape %s, not %s as its configuration asks for",
                     x->manifest.folder, t->name, tsr_shape_text(t->ndim, t->shape).text,
                     tsr_shape_text(param->ndim, shape).text);
}

/* What is added to scores before the choice of experts stays as it is: rounded it would choose
 * others, so transformers keeps it in f32, too. */
static bool is_choice_bias(const tsr_graph *g, const tsr_param *param) {
  return tsr_param_is_input(g, param, TSR_OP_CHOOSE_EXPERTS, 1);
}

static target *target_of(exporter *x, const tsr_hf_place *location, int64_t expert) {
  const char *name = tsr_hf_place_name(x->arena, location, expert);
  for (int i = x->targets_count - 1; tsr_hf_place_is_part(location) && i >= 0; i--)
    if (!strcmp(x->targets[i].name, name)) return &x->targets[i];
  target *t = &x->targets[x->targets_count++];
  *t = (target){.name = name, .expert = expert};
  return t;
}

static void add_part(
    exporter *x, const tsr_hf_place *location, int64_t expert, const tsr_stored *stored,
    tsr_dtype dtype, tsr_hf_merge *merge) {
  target *t = target_of(x, location, expert);
  if (!t->bytes) t->dtype = dtype;
  tsr_arena_grow(
      x->arena, (void **)&t->parts, sizeof *t->parts, t->parts_count, &t->parts_capacity);
  int at = t->parts_count++;
  for (; at > 0 && t->parts[at - 1].place.begin > location->begin; at--)
    t->parts[at] = t->parts[at - 1];
  t->parts[at].place = *location;
  t->parts[at].stored = stored;
  t->parts[at].merge = merge;
  t->bytes += tsr_stored_elements(location->ndim, location->shape) * tsr_dtype_bytes(t->dtype);
}

static bool
add_param(exporter *x, const tsr_graph *g, const tsr_param *param, const tsr_hf_place *location) {
  const tsr_stored *stored;
  const tsr_hf_change *change = change_of(x, param);
  tsr_dtype dtype;
  if (!find_stored(x, param, change, &stored) || !read_dtype(x, stored->dtype, &dtype))
    return false;
  if (is_choice_bias(g, param)) dtype = stored->dtype;
  tsr_hf_merge *merge = change ? tsr_hf_merge_new(x->arena, change) : NULL;
  for (int64_t e = 0; e < tsr_hf_place_tensors(location); e++)
    add_part(x, location, e, stored, dtype, merge);
  return true;
}

static bool add_params(exporter *x, const tsr_graph *g) {
  tsr_hf_place *all = tsr_arena_array(x->arena, tsr_hf_place, g->params_count + 1);
  memset(all, 0, sizeof *all * (size_t)(g->params_count + 1));
  int64_t count = 0;
  for (int i = 0; i < g->params_count; i++) {
    const tsr_param *p = &g->params[i];
    if (tsr_param_is_load(g, p)) continue;
    if (!tsr_hf_place_of(x->arena, p, &all[i]))
      return tsr_diag_error(
          x->diags, p->location, "parameter '%s' has no name in Hugging Face's files", p->name);
    count += tsr_hf_place_tensors(&all[i]);
  }
  x->targets = tsr_arena_array(x->arena, target, count + 1);
  for (int i = 0; i < g->params_count; i++)
    if (all[i].name && !add_param(x, g, &g->params[i], &all[i])) return false;
  return true;
}

/* The parts of a tensor have each of its rows once. */
static bool check_parts(const exporter *x) {
  for (int i = 0; i < x->targets_count; i++) {
    const target *t = &x->targets[i];
    int64_t end = 0, of = t->parts[0].place.of;
    bool ok = true;
    for (int p = 0; p < t->parts_count && ok; p++) {
      const tsr_hf_place *part = &t->parts[p].place;
      ok = part->begin == end && part->ndim == t->parts[0].place.ndim &&
           !memcmp(part->whole, t->parts[0].place.whole, sizeof part->whole);
      if (ok) end = part->end;
    }
    if (!ok || end != of)
      return tsr_diag_error(
          x->diags, TSR_NOWHERE,
          "the graph's parameters for '%s' do not have each of its rows once: row %" PRId64
          " of each %" PRId64,
          t->name, end, of);
  }
  return true;
}

static void split_shards(exporter *x) {
  int64_t limit = x->options->shard_bytes ? x->options->shard_bytes : 5000000000, size = 0;
  x->shards = 1;
  for (int i = 0; i < x->targets_count; i++) {
    target *t = &x->targets[i];
    if (size && size + t->bytes > limit) x->shards++, size = 0;
    t->shard = x->shards - 1;
    size += t->bytes;
    x->bytes += t->bytes;
  }
}

/* Of what is beside the weights: generation_config.json's, else the tokenizer's; -1: there is none,
 * or the model predicts tokens, for which it does not matter. */
static bool find_padding(const exporter *x, const tsr_stored_model *m, int64_t *ret_token) {
  const char *name = x->manifest.tokenizer, *folder = x->manifest.folder;
  tsr_subword *subword;
  int32_t token;
  *ret_token = -1;
  if (!m->model->num_labels) return true;
  if (!tsr_hf_padding(x->arena, folder, m->vocab_stored, ret_token, x->diags)) return false;
  if (!name || !strstr(name, ".json")) return true;
  const char *path = tsr_path_join(x->arena, folder, name);
  if (!tsr_subword_read(x->arena, path, TSR_NOWHERE, &subword, x->diags)) return false;
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(subword);
  if (!tsr_padding_token(x->arena, folder, &tokenizer, &token, x->diags)) return false;
  if (*ret_token < 0) *ret_token = token;
  if (tsr_padding_ends_texts(&tokenizer, *ret_token)) {
    tsr_diag_warning(
        x->diags, TSR_NOWHERE,
        "texts end with token %" PRId64
        ", which is pad_token_id, too: transformers scores their classes at the token before it",
        *ret_token);
    tsr_diag_hint(x->diags, "the tokenizer needs a pad_token of its own, before the training");
  }
  return true;
}

static bool read_model(exporter *x) {
  tsr_stored_model m;
  int64_t padding;
  const char *graphs = x->options->graphs_folder;
  if (!tsr_stored_model_read(x->arena, &x->manifest, x->options->config, graphs, &m, x->diags) ||
      !find_padding(x, &m, &padding) ||
      !tsr_hf_config_of(
          x->arena, m.config, m.vocab_stored, padding, graphs, &x->config, x->diags) ||
      !add_params(x, m.model->graph) || !check_parts(x))
    return false;
  split_shards(x);
  return true;
}

/* ---- tensors ---- */

static int64_t
count_overflows(const float *wide, const uint16_t *half, tsr_dtype dtype, int64_t n) {
  uint16_t infinity = dtype == TSR_F16 ? 0x7c00 : 0x7f80;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += (half[i] & 0x7fff) == infinity && isfinite(wide[i]);
  return count;
}

/* At most PORTION elements from one dtype to another one, through f32. */
static const void *convert(exporter *x, tsr_dtype from, const void *in, tsr_dtype to, int64_t n) {
  if (from == to) return in;
  const float *wide = from == TSR_F32 ? in : x->wide;
  if (from == TSR_BF16) x->kernels->bf16_to_f32(x->wide, in, 0, n);
  else if (from == TSR_F16) x->kernels->fp16_to_f32(x->wide, in, 0, n);
  if (to == TSR_F32) return wide;
  if (to == TSR_BF16) x->kernels->f32_to_bf16(x->converted, wide, 0, n);
  else x->kernels->f32_to_fp16(x->converted, wide, 0, n);
  x->overflows += count_overflows(wide, x->converted, to, n);
  return x->converted;
}

static int64_t part_elements(const target *t, int part) {
  return tsr_stored_elements(t->parts[part].place.ndim, t->parts[part].place.shape);
}

static bool read_stored(void *context, const tsr_stored *s, int64_t first, int64_t n, void *ret) {
  static const int64_t begin[TSR_DIMS_MAX];
  exporter *x = context;
  return tsr_checkpoint_reader_read_slice(x->input, s, begin, s->shape, first, n, ret, x->diags);
}

/* Elements [first, first + n) of a part, as they are stored, or f32 where something is merged. */
static bool read_part(
    exporter *x, const target *t, int part, int64_t first, int64_t n, void *ret_elements,
    tsr_dtype *ret_dtype) {
  const tsr_stored *s = t->parts[part].stored;
  tsr_hf_merge *merge = t->parts[part].merge;
  first += t->expert * part_elements(t, part);
  *ret_dtype = merge ? TSR_F32 : s->dtype;
  if (merge) return tsr_hf_merge_read(merge, s, first, n, read_stored, x, ret_elements);
  return read_stored(x, s, first, n, ret_elements);
}

static bool write_runs(exporter *x, const target *t) {
  for (int p = 0; p < t->parts_count; p++) {
    int64_t all = part_elements(t, p);
    for (int64_t at = 0; at < all; at += PORTION) {
      int64_t n = all - at < PORTION ? all - at : PORTION;
      tsr_dtype dtype;
      if (!read_part(x, t, p, at, n, x->portion, &dtype)) return false;
      const void *out = convert(x, dtype, x->portion, t->dtype, n);
      if (!tsr_folder_output_put(x->out, out, n * tsr_dtype_bytes(t->dtype))) return false;
      tsr_command_progress_add(n * tsr_dtype_bytes(t->dtype));
    }
  }
  return true;
}

/* An expert of ours (out, in) to its places in that of theirs. */
static void scatter(const char *ours, const tsr_hf_place *p, int64_t each, char *theirs) {
  for (int64_t i = 0; i < p->in; i++)
    for (int64_t o = 0; o < p->out; o++)
      memcpy(
          theirs + (tsr_hf_place_row(p, 0, o) + i * p->column) * each,
          ours + (o * p->in + i) * each, (size_t)each);
}

/* Expert `expert` of a part, in the dtype of theirs. */
static bool read_expert(exporter *x, const target *t, int part, int64_t expert, char *ret_ours) {
  const tsr_hf_place *p = &t->parts[part].place;
  int64_t all = p->out * p->in, each = tsr_dtype_bytes(t->dtype);
  for (int64_t at = 0; at < all; at += PORTION) {
    int64_t n = all - at < PORTION ? all - at : PORTION;
    tsr_dtype dtype;
    if (!read_part(x, t, part, expert * all + at, n, x->portion, &dtype)) return false;
    const void *out = convert(x, dtype, x->portion, t->dtype, n);
    memcpy(ret_ours + at * each, out, (size_t)(n * each));
  }
  return true;
}

static bool write_strided(exporter *x, const target *t) {
  int64_t each = tsr_dtype_bytes(t->dtype), bytes = t->parts[0].place.expert * each;
  tsr_arena *scratch = tsr_arena_new();
  char *theirs = tsr_arena_alloc(scratch, (size_t)bytes),
       *ours = tsr_arena_alloc(scratch, (size_t)bytes);
  bool ok = true;
  for (int64_t e = 0; e < t->parts[0].place.experts && ok; e++) {
    for (int p = 0; p < t->parts_count && ok; p++) {
      ok = read_expert(x, t, p, e, ours);
      if (ok) scatter(ours, &t->parts[p].place, each, theirs);
    }
    for (int64_t at = 0; at < bytes && ok; at += PORTION)
      ok = tsr_folder_output_put(x->out, theirs + at, bytes - at < PORTION ? bytes - at : PORTION);
    tsr_command_progress_add(bytes);
  }
  tsr_arena_free(scratch);
  return ok;
}

static const char *shard_name(const exporter *x, int shard) {
  if (x->shards == 1) return "model.safetensors";
  return tsr_arena_printf(x->arena, "model-%05d-of-%05d.safetensors", shard + 1, x->shards);
}

static bool write_header(exporter *x, int shard) {
  static const char *const dtypes[] = {[TSR_F32] = "F32", [TSR_BF16] = "BF16", [TSR_F16] = "F16"};
  static const char *const metadata[] = {"format", "pt"};
  tsr_safetensor *list = tsr_arena_array(x->arena, tsr_safetensor, x->targets_count);
  int count = 0;
  for (int i = 0; i < x->targets_count; i++) {
    const target *t = &x->targets[i];
    if (t->shard != shard) continue;
    tsr_safetensor *s = &list[count++];
    *s = (tsr_safetensor){t->name, dtypes[t->dtype], t->parts[0].place.ndim, .bytes = t->bytes};
    memcpy(s->shape, t->parts[0].place.whole, sizeof(int64_t) * (size_t)s->ndim);
  }
  tsr_text text = {0};
  tsr_safetensors_header(list, count, metadata, 1, &text);
  bool ok = tsr_folder_output_put(x->out, text.data, (int64_t)text.length);
  tsr_text_free(&text);
  return ok;
}

static bool write_target(exporter *x, const target *t) {
  x->overflows = 0;
  bool runs = true;
  for (int p = 0; p < t->parts_count; p++) runs &= tsr_hf_place_is_run(&t->parts[p].place);
  if (!(runs ? write_runs(x, t) : write_strided(x, t))) return false;
  if (!x->overflows) return true;
  bool f16 = t->dtype == TSR_F16;
  tsr_diag_error(
      x->diags, TSR_NOWHERE,
      "'%s': tensor '%s' has %" PRId64
      " value%s beyond the range of %s, whose largest number is %s",
      x->manifest.folder, t->name, x->overflows, x->overflows == 1 ? "" : "s",
      tsr_dtype_name(t->dtype), f16 ? "65504" : "3.39e38");
  tsr_diag_hint(x->diags, "export it in %s", f16 ? "bf16 or f32" : "f32");
  return false;
}

static bool write_shard(exporter *x, int shard) {
  if (!tsr_folder_output_begin(x->out, shard_name(x, shard)) || !write_header(x, shard))
    return false;
  for (int i = 0; i < x->targets_count; i++) {
    const target *t = &x->targets[i];
    if (t->shard != shard) continue;
    if (!write_target(x, t)) return false;
  }
  return tsr_folder_output_end(x->out);
}

static bool write_index(exporter *x) {
  tsr_text text = {0};
  tsr_text_add(
      &text, "{\n  \"metadata\": {\"total_size\": %" PRId64 "},\n  \"weight_map\": {", x->bytes);
  for (int i = 0; i < x->targets_count; i++) {
    const target *t = &x->targets[i];
    tsr_text_add(&text, "%s\n    ", i ? "," : "");
    tsr_json_add_text(&text, t->name, strlen(t->name));
    tsr_text_add(&text, ": \"%s\"", shard_name(x, t->shard));
  }
  tsr_text_add(&text, "\n  }\n}\n");
  bool ok = tsr_folder_output_file(x->out, "model.safetensors.index.json", text.data, text.length);
  tsr_text_free(&text);
  return ok;
}

/* ---- what stands beside the weights ---- */

/* NULL where the checkpoint does not have it. */
static bool read_side(const exporter *x, const char *name, char **ret_text, size_t *ret_length) {
  const char *path = tsr_path_join(x->arena, x->manifest.folder, name);
  *ret_text = NULL;
  return !tsr_file_exists(path) ||
         tsr_file_read_nofollow(
             x->arena, path, SIDE_BYTES_MAX, TSR_NOWHERE, ret_text, ret_length, x->diags);
}

static bool write_config(exporter *x) {
  static const char *const names[] = {
      [TSR_F32] = "float32", [TSR_BF16] = "bfloat16", [TSR_F16] = "float16"};
  char *generation;
  size_t length;
  cJSON *ids = NULL;
  if (!read_side(x, "generation_config.json", &generation, &length) ||
      (generation &&
       !tsr_json_parse(x->arena, "generation_config.json", generation, length, &ids, x->diags)))
    return false;
  tsr_text text = {0};
  tsr_hf_config_json(&x->config, names[x->targets[0].dtype], ids, &text);
  bool ok = tsr_folder_output_file(x->out, "config.json", text.data, text.length);
  tsr_text_free(&text);
  return ok;
}

/* A tokenizer.json alone is loaded by the class that this small file names. */
static bool write_side_files(exporter *x) {
  static const char class[] = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
  bool has_tokenizer = false;
  for (int i = 0; tsr_hf_side_files[i]; i++) {
    char *text;
    size_t length;
    if (!read_side(x, tsr_hf_side_files[i], &text, &length)) return false;
    if (text && !tsr_folder_output_file(x->out, tsr_hf_side_files[i], text, length)) return false;
    if (i == 0) has_tokenizer = text != NULL;
    else if (
        !text && has_tokenizer && !strcmp(tsr_hf_side_files[i], "tokenizer_config.json") &&
        !tsr_folder_output_file(x->out, tsr_hf_side_files[i], class, sizeof class - 1))
      return false;
  }
  return true;
}

static bool write_all(void *context, tsr_folder_output *output) {
  exporter *x = context;
  bool ok = true;
  x->out = output;
  tsr_command_progress_begin("exporting", x->bytes, NULL);
  for (int i = 0; ok && i < x->shards; i++) ok = write_shard(x, i);
  tsr_command_progress_end();
  return ok && (x->shards == 1 || write_index(x)) && write_config(x) && write_side_files(x);
}

bool tsr_hf_export(
    tsr_arena *arena, const char *checkpoint, const char *out, const tsr_hf_export_options *options,
    tsr_diags *diags) {
  exporter x = {.arena = arena, .options = options, .diags = diags};
  x.kernels = tsr_kernels_get(NULL);
  tsr_checkpoint_hold hold; /* until the process ends */
  if (!tsr_checkpoint_find_held(arena, checkpoint, TSR_NOWHERE, &x.manifest, &hold, diags) ||
      !tsr_checkpoint_reader_check_sides(arena, &x.manifest, diags) || !read_model(&x) ||
      !tsr_checkpoint_reader_open(arena, &x.manifest, true, &x.input, diags))
    return false;
  x.portion = tsr_arena_alloc(arena, PORTION * 4);
  x.converted = tsr_arena_alloc(arena, PORTION * 4);
  x.wide = tsr_arena_array(arena, float, PORTION);
  bool ok = tsr_checkpoint_reader_verify(x.input, diags) &&
            tsr_folder_output_write(arena, tsr_hf_out(arena, out), write_all, &x, diags);
  tsr_checkpoint_reader_close(x.input);
  return ok;
}
