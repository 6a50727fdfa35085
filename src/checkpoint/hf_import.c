// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_import.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_side_files.h"
#include "checkpoint/folder_writer.h"
#include "checkpoint/mxfp4.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CONFIG_BYTES_MAX = 1 << 24, BLOCK_BYTES = 1 << 20, SEQUENCE_MAX = 1024 };
enum { DEQUANTIZED_AT_ONCE = 1 << 18 }; /* elements */

/* A parameter of ours and the tensors that it comes out of: one, or one for each expert. */
typedef struct {
  const tsr_param *param;
  tsr_hf_place location;
  tsr_hf_tensor **from;
} source;

typedef struct {
  tsr_arena *arena;
  const char *folder;
  const tsr_hf_import_options *options;
  tsr_hf_config config;
  const cJSON *json; /* config.json */
  tsr_hf_sides sides;
  bool dtype_refused, experts_refused; /* are said once */
  const tsr_graph *graph;
  tsr_hf_folder weights;
  source *sources; /* per parameter of the graph */
  tsr_checkpoint_writer *output;
  const tsr_kernels *kernels;
  float *wide; /* DEQUANTIZED_AT_ONCE elements, and the same in bf16 */
  uint16_t *half;
  tsr_diags *diags;
} importer;

/* ---- the model ---- */

static bool read_config(importer *m) {
  const char *path = tsr_path_join(m->arena, m->folder, "config.json");
  char *text;
  size_t length;
  if (!tsr_file_read_regular(
          m->arena, path, CONFIG_BYTES_MAX, TSR_NOWHERE, &text, &length, m->diags) ||
      !tsr_hf_config_read(
          m->arena, m->options->graphs_folder, path, text, length, &m->config, &m->json, m->diags))
    return false;
  int64_t longest = tsr_hf_config_size(&m->config, "max_sequence_length");
  if (!longest || m->options->sequence_length <= longest) return true;
  return tsr_diag_error(
      m->diags, TSR_NOWHERE,
      "'%s': a sequence_length of %" PRId64 " is longer than the model's %" PRId64, path,
      m->options->sequence_length, longest);
}

static void print_config(const importer *m, tsr_text *text) {
  int64_t sequence = m->options->sequence_length;
  if (!sequence) sequence = tsr_hf_config_size(&m->config, "max_sequence_length");
  if (!m->options->sequence_length && sequence > SEQUENCE_MAX) sequence = SEQUENCE_MAX;
  tsr_text_add(text, "training_config:\n");
  if (m->sides.reads_text)
    tsr_text_add(text, "  tokenizer_type: bpe\n  tokenizer_path: %s\n", tsr_hf_side_files[0]);
  tsr_text_add(text, "  sequence_length: %" PRId64 "\n", sequence);
  tsr_hf_config_yaml(&m->config, text);
}

/* Before a graph of that many is made. */
static bool check_blocks(const importer *m) {
  int64_t blocks = tsr_hf_config_size(&m->config, "num_blocks");
  if (blocks <= m->weights.tensors_count) return true;
  return tsr_diag_error(
      m->diags, TSR_NOWHERE,
      "'%s': config.json asks for %" PRId64 " blocks, but there are %d tensors", m->folder, blocks,
      m->weights.tensors_count);
}

/* The graph defines the parameters, with their shapes and names. */
static bool read_graph(importer *m, const char *text, size_t length) {
  tsr_model_options options = {
      .batch = 1, .sequence = 1, .units = {1, 1, 1}, .graphs_folder = m->options->graphs_folder};
  const char *name = tsr_arena_printf(m->arena, "config.yaml of '%s'", m->folder);
  tsr_config *config;
  tsr_model *model;
  if (!tsr_config_parse(m->arena, name, text, length, NULL, 0, false, &config, m->diags) ||
      !tsr_model_read(m->arena, config, &options, &model, m->diags))
    return false;
  m->graph = model->graph;
  return true;
}

/* ---- which tensor is what ---- */

static bool is_quantized(const importer *m, const tsr_hf_tensor *t) {
  return tsr_hf_is_quantized(&m->config.quantization, t);
}

/* The blocks of a tensor, not the tensor. */
static bool is_mxfp4(const importer *m, const tsr_hf_tensor *t) {
  return m->config.quantization.kind == TSR_HF_MXFP4 && tsr_path_ends(t->tensor->name, "_blocks");
}

static bool check_tensor(importer *m, const source *s, tsr_hf_tensor *from) {
  const tsr_safetensor *t = from->tensor;
  if (is_mxfp4(m, from)) return tsr_hf_mxfp4_open(&m->weights, from, &s->location, m->diags);
  bool same = t->ndim == s->location.ndim;
  for (int d = 0; same && d < t->ndim; d++) same = t->shape[d] == s->location.whole[d];
  if (!same)
    return tsr_diag_error(
        m->diags, TSR_NOWHERE, "'%s': tensor '%s' has the shape %s, not %s as config.json asks for",
        from->file->path, t->name, tsr_shape_text(t->ndim, t->shape).text,
        tsr_shape_text(s->location.ndim, s->location.whole).text);
  if (!strcmp(t->dtype, "F32") || !strcmp(t->dtype, "BF16") || !strcmp(t->dtype, "F16"))
    return true;
  if (is_quantized(m, from) && !tsr_hf_place_is_part(&s->location) &&
      tsr_hf_place_is_run(&s->location))
    return tsr_hf_quantized_open(&m->config.quantization, &m->weights, from, m->diags);
  if (m->dtype_refused) return false;
  m->dtype_refused = true;
  return tsr_diag_error(
      m->diags, TSR_NOWHERE, "'%s': tensor '%s' has the dtype %s; F32, BF16 and F16 are taken",
      from->file->path, t->name, t->dtype);
}

/* A tensor of ours has one dtype. */
static bool check_dtypes(const importer *m, const source *s) {
  const tsr_hf_tensor *first = s->from[0];
  for (int64_t e = 1; e < s->location.tensors; e++)
    if (strcmp(s->from[e]->tensor->dtype, first->tensor->dtype))
      return tsr_diag_error(
          m->diags, TSR_NOWHERE, "'%s': tensor '%s' has the dtype %s, but '%s' has %s",
          s->from[e]->file->path, s->from[e]->tensor->name, s->from[e]->tensor->dtype,
          first->tensor->name, first->tensor->dtype);
  return true;
}

static bool find_tensor(importer *m, source *s, int64_t expert) {
  const char *name = tsr_hf_place_name(m->arena, &s->location, expert);
  tsr_hf_tensor *from = tsr_hf_folder_find(&m->weights, name);
  if (!from) from = tsr_hf_mxfp4_find(&m->config.quantization, &m->weights, name);
  s->from[expert] = from;
  if (!from)
    return s->location.begin > 0 ||
           tsr_diag_error(
               m->diags, TSR_NOWHERE, "'%s': tensor '%s' of shape %s is missing", m->folder, name,
               tsr_shape_text(s->location.ndim, s->location.whole).text);
  bool again = from->used;
  from->used = true;
  return again || check_tensor(m, s, from);
}

/* Before so many are looked for. */
static bool refuse_experts(importer *m, int64_t count) {
  if (m->experts_refused) return false;
  m->experts_refused = true;
  return tsr_diag_error(
      m->diags, TSR_NOWHERE,
      "'%s': config.json asks for %" PRId64 " experts, but there are %d tensors", m->folder, count,
      m->weights.tensors_count);
}

/* Parts of one tensor are reported once. */
static bool find_source(importer *m, const tsr_param *param, source *s) {
  s->param = param;
  if (!tsr_hf_place_of(m->arena, param, &s->location))
    return tsr_diag_error(
        m->diags, param->location, "parameter '%s' has no name in Hugging Face's files",
        param->name);
  int64_t count = tsr_hf_place_tensors(&s->location);
  if (count > m->weights.tensors_count) return refuse_experts(m, count);
  s->from = tsr_arena_array(m->arena, tsr_hf_tensor *, count);
  bool ok = true, all = true;
  for (int64_t e = 0; e < count; e++) {
    ok &= find_tensor(m, s, e);
    all &= s->from[e] != NULL;
  }
  return ok && (!all || check_dtypes(m, s));
}

/* Ends with these components. */
static bool has_end(importer *m, const char *name, const char *end) {
  return !strcmp(name, end) || tsr_path_ends(name, tsr_arena_printf(m->arena, ".%s", end));
}

/* What is no weight: rotary tables, and what the class names. */
static bool is_no_weight(importer *m, const char *name) {
  static const char *const tables[] = {
      "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"};
  const tsr_hf_class *c = &m->config.class;
  bool is = false;
  for (int i = 0; i < 3; i++) is |= has_end(m, name, tables[i]);
  for (int i = 0; i < c->ignored_count; i++) is |= has_end(m, name, c->ignored[i]);
  return is;
}

/* A copy of another tensor, as the output's weights are of the embedding's where they are tied, may
 * be stored as long as it is one. */
static bool check_copy(const importer *m, const tsr_hf_tensor *head, const char *name) {
  const tsr_hf_tensor *wte = tsr_hf_folder_find(&m->weights, name);
  const tsr_safetensor *a = head->tensor, *b = wte ? wte->tensor : NULL;
  if (b && a->bytes == b->bytes && !strcmp(a->dtype, b->dtype) &&
      !memcmp(head->file->map + a->offset, wte->file->map + b->offset, (size_t)a->bytes))
    return true;
  return tsr_diag_error(
      m->diags, TSR_NOWHERE, "'%s': tensor '%s' is not '%s', although config.json ties them",
      head->file->path, a->name, name);
}

/* Of the blocks behind the last one, which predict further tokens. */
static bool is_mtp(const importer *m, const char *name) {
  long long block;
  int end = 0;
  int64_t blocks = tsr_hf_config_size(&m->config, "num_blocks");
  const char *layers = strstr(name, "layers.");
  if (layers) name = layers;
  bool numbered = sscanf(name, "layers.%lld%n", &block, &end) == 1 && name[end] == '.';
  return numbered && block >= blocks && block < blocks + m->config.prediction_blocks;
}

static void note_mtp(const importer *m) {
  int count = 0;
  for (int i = 0; i < m->weights.tensors_count; i++)
    count += is_mtp(m, m->weights.tensors[i].tensor->name);
  if (count)
    tsr_diag_note(
        m->diags, TSR_NOWHERE,
        "'%s': the %d tensors of the layer%s for multi-token prediction, from model.layers.%" PRId64
        " on, are left out",
        m->folder, count, m->config.prediction_blocks == 1 ? "" : "s",
        tsr_hf_config_size(&m->config, "num_blocks"));
}

static bool check_surplus(importer *m, const tsr_hf_tensor *t) {
  const char *name = t->tensor->name;
  bool empty = t->tensor->bytes == 0; /* of no shared experts, as transformers saves them */
  if (t->used || empty || is_no_weight(m, name) || is_mtp(m, name)) return true;
  const tsr_yaml *of = tsr_yaml_get(m->config.class.copies, name);
  if (of) return check_copy(m, t, of->text);
  return tsr_diag_error(
      m->diags, TSR_NOWHERE, "'%s': tensor '%s' of shape %s has no place in the model",
      t->file->path, name, tsr_shape_text(t->tensor->ndim, t->tensor->shape).text);
}

static void note_quantized(const importer *m) {
  int count = 0;
  for (int i = 0; i < m->weights.tensors_count; i++) count += m->weights.tensors[i].scales != NULL;
  if (count)
    tsr_diag_note(
        m->diags, TSR_NOWHERE, "'%s': %d tensors of %s are taken in bf16", m->folder, count,
        tsr_hf_quantization_text(m->arena, &m->config.quantization));
}

static bool match(importer *m) {
  bool ok = true;
  m->sources = tsr_arena_array(m->arena, source, m->graph->params_count);
  for (int i = 0; i < m->graph->params_count; i++)
    ok &= find_source(m, &m->graph->params[i], &m->sources[i]);
  if (m->experts_refused) return false;
  for (int i = 0; i < m->weights.tensors_count; i++) ok &= check_surplus(m, &m->weights.tensors[i]);
  if (ok) note_mtp(m);
  if (ok) note_quantized(m);
  return ok;
}

/* ---- writing ---- */

static tsr_dtype dtype_of(const source *s) {
  const char *dtype = s->from[0]->tensor->dtype;
  return !strcmp(dtype, "F32") ? TSR_F32 : !strcmp(dtype, "F16") ? TSR_F16 : TSR_BF16;
}

/* Rows [begin, end) of ours (experts * out, in). */
static void gather_rows(
    const tsr_hf_place *p, int64_t each, const char *theirs, int64_t begin, int64_t end,
    char *ours) {
  for (int64_t i = 0; i < p->in; i++)
    for (int64_t r = begin; r < end; r++) {
      int64_t from = tsr_hf_place_row(p, r / p->out, r % p->out) + i * p->column;
      char *to = ours + ((r - begin) * p->in + i) * each;
      if (each == 4) memcpy(to, theirs + from * 4, 4);
      else memcpy(to, theirs + from * 2, 2);
    }
}

static bool write_strided(importer *m, const source *s, const tsr_hf_tensor *from, char *block) {
  const tsr_hf_place *p = &s->location;
  int64_t each = tsr_dtype_bytes(dtype_of(s)), all = p->experts * p->out, row = p->in * each;
  int64_t rows = row < BLOCK_BYTES ? BLOCK_BYTES / row : 1;
  if (row > BLOCK_BYTES) block = tsr_arena_alloc(m->arena, (size_t)row);
  for (int64_t at = 0; at < all; at += rows) {
    int64_t end = at + rows < all ? at + rows : all;
    gather_rows(p, each, from->file->map + from->tensor->offset, at, end, block);
    if (!tsr_checkpoint_writer_data(m->output, block, (size_t)((end - at) * row), m->diags))
      return false;
  }
  return true;
}

/* Pages that were read and are not needed again: else the whole file would come to stand in memory.
 */
static void forget(const tsr_hf_tensor *from, int64_t begin, int64_t end) {
  int64_t page = sysconf(_SC_PAGESIZE), offset = from->tensor->offset;
  begin = (offset + begin + page - 1) / page * page;
  end = (offset + end) / page * page;
  if (begin < end)
    madvise((char *)(uintptr_t)from->file->map + begin, (size_t)(end - begin), MADV_DONTNEED);
}

static bool write_run(importer *m, const source *s, const tsr_hf_tensor *from) {
  enum { AT_ONCE = 1 << 24 };
  const tsr_hf_place *p = &s->location;
  int64_t each = tsr_dtype_bytes(dtype_of(s)), begin = p->first * each,
          bytes = p->experts * p->out * p->in * each;
  const char *data = from->file->map + from->tensor->offset;
  for (int64_t at = begin, end; at < begin + bytes; at = end) {
    end = begin + bytes - at < AT_ONCE ? begin + bytes : at + AT_ONCE;
    if (!tsr_checkpoint_writer_data(m->output, data + at, (size_t)(end - at), m->diags))
      return false;
    forget(from, at, end);
  }
  return true;
}

static bool write_dequantized(importer *m, const tsr_hf_tensor *from) {
  int64_t all = from->tensor->bytes; /* of one element each */
  for (int64_t at = 0, n; at < all; at += n) {
    n = all - at < DEQUANTIZED_AT_ONCE ? all - at : DEQUANTIZED_AT_ONCE;
    tsr_hf_dequantize(&m->config.quantization, from, at, n, m->wide);
    m->kernels->f32_to_bf16(m->half, m->wide, 0, n);
    if (!tsr_checkpoint_writer_data(m->output, m->half, (size_t)n * sizeof *m->half, m->diags))
      return false;
    forget(from, at, at + n);
  }
  return true;
}

/* The blocks of each row of ours. */
static bool write_mxfp4(importer *m, const source *s, const tsr_hf_tensor *from) {
  enum { AT_ONCE = DEQUANTIZED_AT_ONCE / TSR_MXFP4_BLOCK };
  const tsr_hf_place *p = &s->location;
  const uint8_t *blocks = (const uint8_t *)from->file->map + from->tensor->offset;
  const uint8_t *scales = (const uint8_t *)from->scales->file->map + from->scales->tensor->offset;
  int64_t each = p->in / TSR_MXFP4_BLOCK;
  for (int64_t r = 0; r < p->experts * p->out; r++) {
    int64_t row = r / p->out * p->whole[2] + tsr_hf_place_row(p, 0, r % p->out);
    for (int64_t at = row * each, end = at + each, n; at < end; at += n) {
      n = end - at < AT_ONCE ? end - at : AT_ONCE;
      tsr_mxfp4_decode(blocks + at * TSR_MXFP4_BLOCK_BYTES, scales + at, n, m->wide);
      m->kernels->f32_to_bf16(m->half, m->wide, 0, n * TSR_MXFP4_BLOCK);
      size_t bytes = (size_t)(n * TSR_MXFP4_BLOCK) * sizeof *m->half;
      if (!tsr_checkpoint_writer_data(m->output, m->half, bytes, m->diags)) return false;
    }
  }
  return true;
}

static bool write_tensor(importer *m, const source *s, const tsr_hf_tensor *from, char *block) {
  if (is_mxfp4(m, from)) {
    bool ok = write_mxfp4(m, s, from);
    forget(from, 0, from->tensor->bytes);
    return ok;
  }
  if (from->scales) return write_dequantized(m, from);
  if (tsr_hf_place_is_run(&s->location)) return write_run(m, s, from);
  bool ok = write_strided(m, s, from, block);
  forget(from, 0, from->tensor->bytes);
  return ok;
}

/* The experts follow each other along dimension 0. */
static bool write_param(importer *m, const source *s, char *block) {
  for (int64_t e = 0; e < tsr_hf_place_tensors(&s->location); e++)
    if (!write_tensor(m, s, s->from[e], block)) return false;
  return true;
}

/* Behind each portion of a file (folder_writer.h). */
static void count_portion(void *context) {
  enum { ABOUT = 1 << 20 };
  (void)context;
  tsr_command_progress_add(ABOUT);
}

static bool write_tensors(importer *m) {
  int count = m->graph->params_count;
  tsr_checkpoint_writer_piece *pieces =
      tsr_arena_array(m->arena, tsr_checkpoint_writer_piece, count + 1);
  for (int i = 0; i < count; i++) {
    const source *s = &m->sources[i];
    pieces[i] = (tsr_checkpoint_writer_piece){s->param->name, dtype_of(s), s->param->ndim};
    tsr_param_real_shape(s->param, pieces[i].shape);
    memcpy(pieces[i].piece, pieces[i].shape, sizeof pieces[i].piece);
  }
  if (!tsr_checkpoint_writer_tensors(m->output, "rank-00000.safetensors", pieces, count, m->diags))
    return false;
  char *block = tsr_arena_alloc(m->arena, BLOCK_BYTES);
  m->kernels = tsr_kernels_get(NULL);
  m->wide = tsr_arena_array(m->arena, float, DEQUANTIZED_AT_ONCE);
  m->half = tsr_arena_array(m->arena, uint16_t, DEQUANTIZED_AT_ONCE);
  for (int i = 0; i < count; i++)
    if (!write_param(m, &m->sources[i], block)) return false;
  return tsr_checkpoint_writer_end_tensors(m->output, m->diags);
}

static int64_t bytes_of(const importer *m) {
  int64_t bytes = 0;
  for (int i = 0; i < m->graph->params_count; i++)
    bytes += tsr_dtype_size(dtype_of(&m->sources[i]), tsr_param_real_elements(m->sources[i].param));
  return bytes;
}

static bool write_all(importer *m, const char *out, const char *config, size_t length) {
  const char *tokenizer = m->sides.reads_text ? tsr_hf_side_files[0] : NULL;
  tsr_manifest about = {
      .state = {.loss = NAN},
      .version = m->options->version,
      .time = m->options->time,
      .config = "config.yaml",
      .tokenizer = tokenizer};
  if (!tsr_checkpoint_writer_begin(
          m->arena, tsr_hf_out(m->arena, out), count_portion, NULL, &m->output, m->diags))
    return false;
  tsr_command_progress_begin("importing", bytes_of(m), NULL);
  bool ok = write_tensors(m);
  tsr_command_progress_end();
  if (ok && tsr_checkpoint_writer_bytes(m->output, "config.yaml", config, length, m->diags) &&
      tsr_hf_sides_write(m->arena, &m->sides, m->output, m->diags) &&
      tsr_file_maps_check(m->diags) && tsr_checkpoint_writer_commit(m->output, &about, m->diags))
    return true;
  tsr_checkpoint_writer_abandon(m->output);
  return false;
}

bool tsr_hf_import(
    tsr_arena *arena, const char *folder, const char *out, const tsr_hf_import_options *options,
    tsr_diags *diags) {
  importer m = {.arena = arena, .folder = folder, .options = options, .diags = diags};
  if (!read_config(&m)) return false;
  int64_t vocab = tsr_hf_config_size(&m.config, "vocab_size");
  if (!tsr_hf_sides_read(arena, folder, m.json, vocab, &m.sides, diags)) return false;
  if (!tsr_hf_folder_open(arena, folder, &m.weights, diags)) return false;
  tsr_text text = {0};
  print_config(&m, &text);
  bool ok = check_blocks(&m) && read_graph(&m, text.data, text.length) && match(&m) &&
            write_all(&m, out, text.data, text.length);
  tsr_hf_folder_close(&m.weights);
  tsr_text_free(&text);
  return ok;
}
