// SPDX-License-Identifier: Apache-2.0
/* A document has the same bits wherever it stands in a sample: everything that forward and backward
 * pass make of its tokens, losses' statistics and activations' gradients, in packs of random
 * documents of which each sample has the same one somewhere, first of all alone. For each family of
 * graph files, on one rank and on meshes. */
#include "config/config.h"
#include "runtime/process.h"
#include "tests/check.h"
#include "train/compile.h"
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8, T = 64, VOCABULARY = 50, LENGTH_MAX = 40 };

/* Documents of a sample, one behind the other; the one that all have begins at `at`. */
typedef struct {
  int32_t tokens[SAMPLES][T], targets[SAMPLES][T], positions[SAMPLES][T];
  int at[SAMPLES], length;
} packs;

static uint64_t state = 1;
static int draw(int below) {
  state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (int)((state >> 33) % (uint64_t)below);
}

static void add_document(packs *p, int sample, int first, const int32_t *tokens, int length) {
  for (int i = 0; i < length; i++) {
    p->tokens[sample][first + i] = tokens[i];
    p->targets[sample][first + i] = i + 1 < length && i % 3 ? tokens[i + 1] : -100;
    p->positions[sample][first + i] = i;
  }
}

static void add_random(packs *p, int sample, int first, int length) {
  int32_t tokens[T];
  for (int i = 0; i < length; i++) tokens[i] = draw(VOCABULARY);
  add_document(p, sample, first, tokens, length);
}

/* Sample 0 has the document at its begin and padding behind it, a document of each token. */
static void draw_packs(packs *p) {
  int32_t tokens[LENGTH_MAX];
  p->length = 2 + draw(LENGTH_MAX - 1);
  for (int i = 0; i < p->length; i++) tokens[i] = draw(VOCABULARY);
  for (int s = 0; s < SAMPLES; s++) {
    int t = 0;
    p->at[s] = s ? draw(T - p->length + 1) : 0;
    while (t < T) {
      if (t == p->at[s]) add_document(p, s, t, tokens, p->length), t += p->length;
      int limit = t < p->at[s] ? p->at[s] : T;
      if (t == limit) continue;
      int length = s ? 1 + draw(limit - t) : 1;
      add_random(p, s, t, length);
      t += length;
    }
  }
}

static void fill(void *context, const char *input, int64_t sample, void *row) {
  const packs *p = context;
  const int32_t *from = !strcmp(input, "tokens")    ? p->tokens[sample]
                        : !strcmp(input, "targets") ? p->targets[sample]
                                                    : p->positions[sample];
  memcpy(row, from, T * sizeof *from);
}

/* ---- the model ---- */

static tsr_parallel mesh_of(int dp, int cp, int tp) {
  const int axes[] = {TSR_DP, TSR_CP, TSR_TP}, sizes[] = {dp, cp, tp};
  tsr_parallel p = {.ranks = 1, .ndim = 3, .fsdp_size = 1, .microbatches = 1};
  p.batch_size = SAMPLES;
  for (int a = 0; a < TSR_AXES; a++) p.size[a] = 1;
  for (int d = 2; d >= 0; d--) {
    p.axis_of_dim[d] = axes[d];
    p.size[axes[d]] = sizes[d];
    p.stride[axes[d]] = p.ranks;
    p.ranks *= sizes[d];
  }
  return p;
}

typedef struct {
  tsr_arena *arena;
  tsr_config *config;
  tsr_parallel parallel;
  tsr_cpu_context device;
  tsr_compiled compiled;
  tsr_process *process;
  tsr_executable *executable;
} model;

static void fail(tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  abort();
}

static model model_open(const char *family, const char *precision, tsr_parallel mesh) {
  model m = {.arena = tsr_arena_new(), .parallel = mesh};
  tsr_diags *diags = tsr_diags_new(m.arena);
  const char *text = tsr_arena_printf(
      m.arena,
      "training_config: {documents: separate, sequence_length: %d, batch_size: %d, precision: %s}\n"
      "numerics: {units: {batch: 4, tp: 2, sequence: 4}}\n"
      "transformer_config: {vocab_size: %d, max_sequence_length: %d, num_blocks: 2, %s}\n",
      T, SAMPLES, precision, VOCABULARY, T, family);
  if (!tsr_config_parse(
          m.arena, "model.yaml", text, strlen(text), NULL, 0, false, &m.config, diags))
    fail(diags);
  return m;
}

static void model_start(model *m, bool zigzag) {
  tsr_diags *diags = tsr_diags_new(m->arena);
  tsr_compile_options o = {
      .config = m->config, .parallel = &m->parallel, .batch_units = 4, .tp_units = 2};
  m->device = (tsr_cpu_context){tsr_kernels_get(NULL), 2};
  m->config->device.cp_layout = zigzag ? TSR_CP_ZIGZAG : TSR_CP_CONTIGUOUS;
  o.graphs_folder = TSR_SOURCE_ROOT "/configs/graphs";
  o.outputs = TSR_OUTPUTS_VALUES;
  o.target = tsr_cpu_target(&m->device);
  if (!tsr_compile(m->arena, &o, TSR_COMPILE_TRAIN, &m->compiled, diags)) fail(diags);
  tsr_process_options w = {
      .parallel = &m->parallel, .kernels = m->device.k, .threads = 2, .seed = 5};
  if (!tsr_process_open(m->arena, &w, &m->compiled.programs, 1, &m->process, &m->executable, diags))
    fail(diags);
}

/* ---- the comparison ---- */

/* Rows of `width` numbers by sample and position: (B, T, …) or, of heads, (B, H, T, …). */
typedef struct {
  int64_t lines, width;
} layout;

static bool find_layout(const tsr_value *v, layout *ret) {
  int at = v->ndim > 1 && v->shape[1] == T ? 1 : v->ndim > 2 && v->shape[2] == T ? 2 : 0;
  if (!at || v->shape[0] != SAMPLES) return false;
  *ret = (layout){at == 2 ? v->shape[1] : 1, 1};
  for (int d = at + 1; d < v->ndim; d++) ret->width *= v->shape[d];
  return true;
}

static int compare_value(const char *what, const model *m, const packs *p, int value) {
  const tsr_value *v = &m->compiled.programs.graph->values[value];
  layout l;
  if (v->kind != TSR_VALUE_NODE || !find_layout(v, &l)) return 0;
  float *x = malloc((size_t)tsr_value_elements(v) * sizeof *x);
  tsr_executable_read(m->executable, value, x);
  for (int s = 1; s < SAMPLES; s++)
    for (int64_t line = 0; line < l.lines; line++) {
      const float *first = x + (line * T + p->at[0]) * l.width;
      const float *other = x + ((s * l.lines + line) * T + p->at[s]) * l.width;
      size_t bytes = (size_t)(p->length * l.width) * sizeof *x;
      CHECK_AT(
          !memcmp(first, other, bytes), "%s: '%s' of %d tokens differs in sample %d, token %d",
          what, v->name, p->length, s, p->at[s]);
    }
  free(x);
  return 1;
}

static void check_model(
    const char *what, const char *family, const char *precision, tsr_parallel mesh, bool zigzag) {
  model m = model_open(family, precision, mesh);
  float scalars[TSR_SCALARS] = {
      [TSR_SCALAR_LR] = 0.01f,
      [TSR_SCALAR_CORRECTION1] = 1,
      [TSR_SCALAR_CORRECTION2] = 1,
      [TSR_SCALAR_INV_COUNT] = 0.01f,
      [TSR_SCALAR_LOSS_SCALE] = 1};
  packs p;
  model_start(&m, zigzag);
  const tsr_graph *g = m.compiled.programs.graph;
  for (int step = 0; step < 3; step++) {
    int compared = 0;
    draw_packs(&p);
    tsr_executable_set_step_scalars(m.executable, scalars);
    tsr_executable_run(m.executable, step, fill, &p);
    for (int i = 0; i < g->outputs_count; i++)
      compared += compare_value(what, &m, &p, g->outputs[i].value);
    CHECK_AT(compared > 20, "%s: only %d values have tokens", what, compared);
  }
  tsr_process_close(m.process);
  tsr_arena_free(m.arena);
}

int main(void) {
  static const char *const families[][2] = {
      {"llama", "model_type: llama, embedding_dim: 32, num_heads: 4, num_groups: 2"},
      {"llama with a window",
       "model_type: llama, embedding_dim: 32, num_heads: 4, num_groups: 2, sliding_window: 9"},
      {"gpt2", "model_type: gpt2, embedding_dim: 32, num_heads: 4, dropout_prob: 0"},
      {"qwen3", "model_type: qwen3, embedding_dim: 32, num_heads: 4, num_groups: 2, head_dim: 8"},
      {"gpt_oss",
       "model_type: gpt_oss, embedding_dim: 32, num_heads: 4, num_groups: 2, head_dim: 8"},
      {"deepseek_v3", "model_type: deepseek_v3, embedding_dim: 32, num_heads: 4"},
      {"mixtral", "model_type: mixtral, embedding_dim: 32, num_heads: 4, num_groups: 2"}};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    const char *what = families[i][0], *family = families[i][1];
    check_model(what, family, "f32", mesh_of(1, 1, 1), false);
    check_model(what, family, "bf16", mesh_of(1, 1, 1), false);
    check_model(what, family, "f32", mesh_of(2, 1, 2), false);
    check_model(what, family, "f32", mesh_of(1, 2, 1), i % 2);
  }
  return check_done("train.document_bits");
}
