// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_export.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "base/json.h"
#include "base/new_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf_quantize.h"
#include "checkpoint/gguf_types.h"
#include "checkpoint/gguf_vocabulary.h"
#include "checkpoint/stored_model.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { SIDE_BYTES_MAX = 1 << 28 };

typedef struct {
  tsr_arena *arena;
  const tsr_hf_export_options *options;
  const char *out;
  tsr_manifest manifest;
  tsr_checkpoint_reader *input;
  const tsr_kernels *kernels;
  const tsr_gguf_precision *precision;
  tsr_gguf_mapping *mapping;
  tsr_gguf_tensors list;
  tsr_new_file file;
  const tsr_gguf_tensor *tensor; /* that is written */
  int64_t overflows;
  void *bytes; /* of a portion */
  int64_t bytes_room;
  tsr_diags *diags;
} exporter;

/* ---- what is written ---- */

static bool read_model(exporter *x) {
  const tsr_manifest *manifest = &x->manifest;
  tsr_stored_model m;
  const char *dtype = x->options->dtype, *graphs = x->options->graphs_folder;
  if (!tsr_stored_model_read(x->arena, manifest, x->options->config, graphs, &m, x->diags))
    return false;
  if (!dtype) dtype = tsr_dtype_name(m.embedding ? m.embedding->dtype : TSR_F32);
  return tsr_gguf_precision_find(dtype, &x->precision, x->diags) &&
         tsr_gguf_mapping_read(
             x->arena, m.config, graphs, m.vocab_stored, x->precision->file_type, &x->mapping,
             x->diags) &&
         tsr_gguf_tensors_list(
             x->arena, x->mapping, m.model->graph, manifest, x->options, &x->list, x->diags) &&
         tsr_gguf_types_choose(x->mapping, x->precision, &x->list, x->diags);
}

/* ---- metadata ---- */

/* "my-model.gguf" as "My Model": words in lower case get a capital letter, but for numbers and
 * versions. */
static const char *title_of(tsr_arena *arena, const char *out) {
  const char *slash = strrchr(out, '/');
  char *title = tsr_arena_strdup(arena, slash ? slash + 1 : out);
  if (tsr_path_ends(title, ".gguf")) title[strlen(title) - 5] = '\0';
  for (char *c = title; *c; c++)
    if (*c == '-') *c = ' ';
  for (char *word = title; *word;) {
    size_t length = strcspn(word, " ");
    bool upper = false, version = *word == 'v' && isdigit((unsigned char)word[1]);
    for (size_t i = 0; i < length; i++) upper |= isupper((unsigned char)word[i]) != 0;
    for (size_t i = version; version && i < length; i++)
      version = isdigit((unsigned char)word[i]) || word[i] == '.';
    bool after_letter = false;
    for (size_t i = 0; i < length; i++) {
      if (!upper && !version && !isdigit((unsigned char)*word) && !after_letter)
        word[i] = (char)toupper((unsigned char)word[i]);
      after_letter = isalpha((unsigned char)word[i]) != 0;
    }
    word += length + (word[length] != '\0');
  }
  return title;
}

/* generation_config.json's way of choosing tokens, which llama.cpp takes as its default. */
static bool add_sampling(exporter *x, tsr_gguf_metadata *m) {
  static const struct {
    const char *key, *name;
    bool whole;
  } keys[] = {
      {"top_k", "top_k", true},
      {"top_p", "top_p", false},
      {"min_p", "min_p", false},
      {"xtc_probability", "xtc_probability", false},
      {"xtc_threshold", "xtc_threshold", false},
      {"temperature", "temp", false},
      {"penalty_last_n", "penalty_last_n", true},
      {"repetition_penalty", "penalty_repeat", false},
      {"mirostat", "mirostat", true},
      {"mirostat_tau", "mirostat_tau", false},
      {"mirostat_eta", "mirostat_eta", false}};
  const char *path = tsr_path_join(x->arena, x->manifest.folder, "generation_config.json");
  char *text;
  size_t length;
  cJSON *json;
  if (!tsr_file_exists(path)) return true;
  if (!tsr_file_read_nofollow(
          x->arena, path, SIDE_BYTES_MAX, TSR_NOWHERE, &text, &length, x->diags) ||
      !tsr_json_parse(x->arena, path, text, length, &json, x->diags))
    return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const cJSON *value = tsr_json_get(json, keys[i].key);
    const char *key = tsr_arena_printf(x->arena, "general.sampling.%s", keys[i].name);
    if (!cJSON_IsNumber(value)) continue;
    if (keys[i].whole) tsr_gguf_add_i32(m, key, value->valueint);
    else tsr_gguf_add_f32(m, key, (float)value->valuedouble);
  }
  return true;
}

static bool add_metadata(exporter *x, tsr_gguf_metadata *m) {
  const char *table = tsr_path_join(x->arena, x->options->graphs_folder, "../gguf");
  table = tsr_path_join(x->arena, table, "pre_tokenizers.yaml");
  const char *name = title_of(x->arena, x->out);
  tsr_gguf_add_text(m, "general.architecture", tsr_gguf_architecture(x->mapping));
  if (!tsr_gguf_mapping_metadata(x->mapping, true, m, x->diags)) return false;
  tsr_gguf_add_text(m, "general.type", "model");
  if (!add_sampling(x, m)) return false;
  tsr_gguf_add_text(m, "general.name", name);
  tsr_gguf_add_text(m, "general.size_label", tsr_gguf_size_label(x->arena, &x->list));
  if (!tsr_gguf_mapping_metadata(x->mapping, false, m, x->diags)) return false;
  tsr_gguf_add_u32(m, "general.quantization_version", 2);
  return tsr_gguf_vocabulary_add(
      x->arena, x->manifest.folder, name, table, x->mapping, m, x->diags);
}

/* ---- the file ---- */

static bool put_elements(void *context, const float *elements, int64_t count) {
  exporter *x = context;
  tsr_gguf_type type = x->tensor->type;
  int64_t bytes = count / tsr_gguf_block_elements(type) * tsr_gguf_block_bytes(type);
  if (bytes > x->bytes_room) {
    x->bytes_room = bytes;
    x->bytes = tsr_arena_alloc(x->arena, (size_t)bytes);
  }
  tsr_gguf_quantize(x->kernels, type, elements, count, x->bytes, &x->overflows);
  tsr_command_progress_add(bytes);
  return tsr_new_file_write(&x->file, x->bytes, (size_t)bytes, x->diags);
}

static bool check_overflows(const exporter *x) {
  if (!x->overflows) return true;
  bool f16 = x->tensor->type == TSR_GGUF_F16;
  if (!f16 && x->tensor->type != TSR_GGUF_BF16)
    return tsr_diag_error(
        x->diags, TSR_NOWHERE, "'%s': tensor '%s' has %" PRId64 " value%s that %s cannot hold",
        x->manifest.folder, x->tensor->name, x->overflows, x->overflows == 1 ? "" : "s",
        x->precision->name);
  tsr_diag_error(
      x->diags, TSR_NOWHERE,
      "'%s': tensor '%s' has %" PRId64
      " value%s beyond the range of %s, whose largest number is %s",
      x->manifest.folder, x->tensor->name, x->overflows, x->overflows == 1 ? "" : "s",
      f16 ? "f16" : "bf16", f16 ? "65504" : "3.39e38");
  tsr_diag_hint(x->diags, "export it in %s", f16 ? "bf16 or f32" : "f32");
  return false;
}

static bool write_tensor(exporter *x, int i) {
  static const char zeros[32];
  const tsr_gguf_source *s = &x->list.sources[i];
  x->tensor = &x->list.tensors[i];
  x->overflows = 0;
  bool ok = s->values ? put_elements(x, s->values, tsr_gguf_row(x->tensor))
                      : tsr_gguf_tensor_read(x->input, s, put_elements, x, x->diags);
  int64_t padding = tsr_gguf_padding(tsr_gguf_bytes(x->tensor));
  return ok && check_overflows(x) && tsr_new_file_write(&x->file, zeros, (size_t)padding, x->diags);
}

static bool write_all(exporter *x, const tsr_text *header) {
  if (!tsr_new_file_write(&x->file, header->data, header->length, x->diags)) return false;
  int64_t bytes = 0;
  bool ok = true;
  for (int i = 0; i < x->list.count; i++) bytes += tsr_gguf_bytes(&x->list.tensors[i]);
  tsr_command_progress_begin("exporting", bytes, NULL);
  for (int i = 0; ok && i < x->list.count; i++) ok = write_tensor(x, i);
  tsr_command_progress_end();
  return ok;
}

static bool write_file(exporter *x, const tsr_text *header) {
  if (!tsr_file_check_replaced(x->out, "GGUF", "GGUF file", x->diags) ||
      !tsr_new_file_open(x->out, &x->file, x->diags))
    return false;
  bool ok = write_all(x, header) && tsr_new_file_commit(&x->file, x->diags);
  if (!ok) tsr_new_file_drop(&x->file);
  return ok;
}

static bool make_header(exporter *x, tsr_text *header) {
  tsr_gguf_metadata metadata = {0};
  bool ok = add_metadata(x, &metadata);
  if (ok) tsr_gguf_header(&metadata, x->list.tensors, x->list.count, header);
  tsr_text_free(&metadata.text);
  return ok;
}

bool tsr_gguf_export(
    tsr_arena *arena, const char *checkpoint, const char *out, const tsr_hf_export_options *options,
    tsr_diags *diags) {
  exporter x = {.arena = arena, .options = options, .out = out, .diags = diags};
  tsr_checkpoint_hold hold; /* until the process ends */
  tsr_text header = {0};
  x.kernels = tsr_kernels_get(NULL);
  if (!tsr_checkpoint_find_held(arena, checkpoint, TSR_NOWHERE, &x.manifest, &hold, diags) ||
      !tsr_checkpoint_reader_check_sides(arena, &x.manifest, diags) || !read_model(&x) ||
      !tsr_checkpoint_reader_open(arena, &x.manifest, true, &x.input, diags))
    return false;
  bool ok = make_header(&x, &header) && tsr_checkpoint_reader_verify(x.input, diags) &&
            write_file(&x, &header) && tsr_gguf_mapping_warn(x.mapping, diags);
  tsr_text_free(&header);
  tsr_checkpoint_reader_close(x.input);
  return ok;
}
