// SPDX-License-Identifier: Apache-2.0
/* A model that text is drawn from: a configuration in a text, on a mesh made by hand, with random
 * weights. */
#ifndef TSR_TESTS_TEXT_MODEL_H
#define TSR_TESTS_TEXT_MODEL_H
#include "train/generate.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  int pp, dp, cp, tp, threads;              /* 0: 1 */
  int64_t rows, chunk, window, page, pages; /* as in tsr_compile_options */
  bool scores;
} text_options;

typedef struct {
  tsr_arena *arena;
  tsr_parallel parallel;
  tsr_cpu_context device;
  tsr_compiled compiled;
  tsr_process *process;
  tsr_generator generator;
} text_model;

static inline void text_fail(tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  abort();
}

/* pp × dp × cp × tp ranks, row-major. */
static inline tsr_parallel text_parallel(const text_options *o) {
  const int axes[] = {TSR_PP, TSR_DP, TSR_CP, TSR_TP}, sizes[] = {o->pp, o->dp, o->cp, o->tp};
  tsr_parallel p = {.ranks = 1, .ndim = 4, .fsdp_size = 1, .microbatches = 1, .batch_size = 4};
  for (int a = 0; a < TSR_AXES; a++) p.size[a] = 1;
  for (int d = 3; d >= 0; d--) {
    p.axis_of_dim[d] = axes[d];
    p.size[axes[d]] = sizes[d] ? sizes[d] : 1;
    p.stride[axes[d]] = p.ranks;
    p.ranks *= p.size[axes[d]];
  }
  return p;
}

/* Ends the process on errors. Units of tp are 4. */
static inline text_model *text_model_open(const char *yaml, text_options o) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  text_model *m = tsr_arena_alloc(arena, sizeof *m);
  tsr_config *config;
  tsr_programs programs[TSR_GENERATION_PROGRAMS_MAX];
  tsr_executable *executable[TSR_GENERATION_PROGRAMS_MAX];
  m->arena = arena;
  m->parallel = text_parallel(&o);
  m->device = (tsr_cpu_context){tsr_kernels_get(NULL), o.threads ? o.threads : 1};
  if (!tsr_config_parse(arena, "model.yaml", yaml, strlen(yaml), NULL, 0, false, &config, diags))
    text_fail(diags);
  tsr_compile_options c = {
      .config = config, .parallel = &m->parallel, .graphs_folder = "configs/graphs"};
  c.batch_units = m->parallel.size[TSR_DP];
  c.tp_units = 4;
  c.target = tsr_cpu_target(&m->device);
  c.rows = o.rows;
  c.chunk = o.chunk;
  c.window = o.window;
  c.page = o.page;
  c.pages = o.pages;
  c.scores = o.scores;
  if (!tsr_compile(arena, &c, TSR_COMPILE_GENERATE, &m->compiled, diags)) text_fail(diags);
  int count = tsr_generation_programs(&m->compiled, programs);
  tsr_process_options w = {
      .parallel = &m->parallel, .kernels = m->device.k, .threads = m->device.threads, .seed = 5};
  if (!tsr_process_open(arena, &w, programs, count, &m->process, executable, diags))
    text_fail(diags);
  m->generator = tsr_generator_of(&m->compiled, executable, m->compiled.model->vocab_size);
  return m;
}

static inline void text_model_close(text_model *m) {
  tsr_process_close(m->process);
  tsr_arena_free(m->arena);
}

#endif
