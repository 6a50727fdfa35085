// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/hf_session.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "train/generate.h"
#include <string.h>

enum { THREADS = 1 };

typedef struct {
  tsr_arena *arena;
  tsr_manifest manifest;
  tsr_config *config;
  tsr_parallel *parallel;
  tsr_compiled compiled;
  const int32_t *tokens;
  int rows, sequence;
  int chunk; /* of tsr_compile_options: -1: no cache */
  tsr_diags *diags;
} session;

static bool compile(session *s, const tsr_kernels *kernels) {
  tsr_mesh *mesh = tsr_mesh_make_cpu(s->arena, (int[]){1}, 1);
  tsr_cpu_context device = {kernels, THREADS};
  tsr_compile_options o = {.config = s->config, .rows = s->rows, .chunk = s->chunk};
  o.window = s->sequence;
  o.graphs_folder = TSR_SOURCE_ROOT "/configs/graphs";
  o.target = tsr_cpu_target(&device);
  if (!tsr_parallel_make(s->arena, s->config, mesh, &s->parallel, s->diags) ||
      !tsr_parallel_units(s->parallel, s->config, &o.batch_units, &o.tp_units, s->diags))
    return false;
  o.parallel = s->parallel;
  return tsr_compile(s->arena, &o, TSR_COMPILE_GENERATE, &s->compiled, s->diags);
}

static void fill_row(void *context, const char *input, int64_t sample, void *row) {
  const session *s = context;
  if (strcmp(input, "tokens")) return;
  size_t each = sizeof *s->tokens * (size_t)s->sequence;
  memcpy(row, s->tokens + sample * s->sequence, each);
}

static float *read_logits(const session *s, const tsr_executable *executable, int64_t *ret_vocab) {
  const tsr_graph *g = s->compiled.placed;
  int value = tsr_graph_find_output(g, "logits");
  const tsr_value *v = &g->values[value];
  *ret_vocab = v->shape[v->ndim - 1];
  float *out = tsr_arena_array(s->arena, float, tsr_value_elements(v));
  tsr_executable_read(executable, value, out);
  return out;
}

/* The checkpoint's model in memory. */
static tsr_process *open_model(session *s, const char *checkpoint, tsr_executable **executables) {
  tsr_set sets[] = {
      {tsr_arena_printf(s->arena, "training_config.sequence_length=%d", s->sequence)},
      {tsr_arena_printf(s->arena, "training_config.batch_size=%d", s->rows)}};
  const tsr_kernels *kernels = tsr_kernels_get(NULL);
  if (!tsr_checkpoint_find(s->arena, checkpoint, TSR_NOWHERE, &s->manifest, s->diags)) return NULL;
  const char *path = tsr_path_join(s->arena, s->manifest.folder, s->manifest.config);
  if (!tsr_config_load(s->arena, path, sets, 2, &s->config, s->diags) || !compile(s, kernels))
    return NULL;
  tsr_process_options w = {
      .parallel = s->parallel, .kernels = kernels, .threads = THREADS, .seed = 1};
  tsr_process *process;
  tsr_programs programs[TSR_GENERATION_PROGRAMS_MAX];
  int count = tsr_generation_programs(&s->compiled, programs);
  bool ok = tsr_process_open(s->arena, &w, programs, count, &process, executables, s->diags);
  return ok ? process : NULL;
}

int32_t *hf_session_generate(
    tsr_arena *arena, const char *checkpoint, const int32_t *prompt, int count, int new_tokens,
    tsr_diags *diags) {
  session s = {.arena = arena, .rows = 1, .sequence = count + new_tokens, .diags = diags};
  tsr_executable *executables[TSR_GENERATION_PROGRAMS_MAX];
  tsr_process *process = open_model(&s, checkpoint, executables);
  if (!process) return NULL;
  tsr_generator generator =
      tsr_generator_of(&s.compiled, executables, s.compiled.model->vocab_size);
  tsr_generating how = {
      .max_new_tokens = new_tokens, .sampling = {.repetition_penalty = 1, .top_p = 1}};
  tsr_continuation text;
  tsr_generating_speed speed;
  bool ok = generator.decode_count &&
            tsr_checkpoint_load(arena, &s.manifest, executables[0], TSR_LOAD_MODEL, true, diags) &&
            tsr_generate_texts(
                arena, &generator, &(tsr_prompt){prompt, count}, 1, &how, &text, &speed, diags);
  tsr_process_close(process);
  return ok && text.count == new_tokens ? text.tokens : NULL;
}

float *hf_session_logits(
    tsr_arena *arena, const char *checkpoint, const int32_t *tokens, int rows, int sequence,
    int64_t *ret_vocab, tsr_diags *diags) {
  session s = {
      .arena = arena,
      .tokens = tokens,
      .rows = rows,
      .sequence = sequence,
      .chunk = -1,
      .diags = diags};
  tsr_executable *executable;
  tsr_process *process = open_model(&s, checkpoint, &executable);
  if (!process) return NULL;
  float *logits = NULL;
  if (tsr_checkpoint_load(arena, &s.manifest, executable, TSR_LOAD_MODEL, true, diags)) {
    tsr_executable_run(executable, 0, fill_row, &s);
    logits = read_logits(&s, executable, ret_vocab);
  }
  tsr_process_close(process);
  return logits;
}
