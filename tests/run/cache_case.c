// SPDX-License-Identifier: Apache-2.0
#include "cache_case.h"
#include "schedule/verify.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TP_UNITS = 4, STAGES_MAX = 4, PROGRAMS = 2 };

/* ---- programs ---- */

typedef struct {
  const cache_case *of;
  tsr_arena *arena;
  tsr_parallel parallel;
  tsr_cpu_context cpu;
  tsr_graph *placed[PROGRAMS];
  tsr_programs programs[PROGRAMS];
  tsr_executable *executable[PROGRAMS];
  tsr_process *process;
} session;

static void die(tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  abort();
}

tsr_graph *cache_case_graph(tsr_arena *arena, const cache_case *c) {
  tsr_graph *g = tsr_graph_new(arena, c->model->name, (tsr_units){.batch = c->B, .tp = TP_UNITS});
  harness_inputs(g, harness_sized(arena, "tokens $B,$T tokens", c->B, c->T));
  harness_params(g, c->model->params);
  harness_calls(g, harness_sized(arena, c->model->calls, c->B, c->T));
  tsr_graph_output(g, "logits", harness_find(g, "logits"));
  return g;
}

/* With a seed there are more pages than the sequences need, and these have any of them. */
static tsr_cache_shape shape_of(const session *s, int64_t new_tokens) {
  const cache_case *c = s->of;
  tsr_cache_shape shape = {
      new_tokens, c->last_only, TSR_CACHE_PAGE_STEP * (1 + (int64_t)(c->seed % 3))};
  int64_t ranks = s->parallel.size[TSR_DP] * s->parallel.size[TSR_EP];
  if (c->seed) shape.pages = c->B * tsr_cache_pages_each(c->T, shape.page) + 2 * ranks;
  return shape;
}

static tsr_graph *cached(const session *s, tsr_graph *g, int64_t new_tokens) {
  const char *why;
  tsr_graph *out;
  tsr_cache_shape shape = shape_of(s, new_tokens);
  if (tsr_pass_cache(g, &shape, &out, &why)) return out;
  fprintf(stderr, "%s\n", why);
  abort();
}

static tsr_graph *build(const session *s, int64_t new_tokens, tsr_diags *diags) {
  const cache_case *c = s->of;
  tsr_graph *g = cache_case_graph(s->arena, c);
  int stages = s->parallel.size[TSR_PP];
  tsr_stage_split split = {
      .count = stages - 1, .first = tsr_arena_array(s->arena, const char *, STAGES_MAX)};
  for (int i = 1; i < stages; i++) split.first[i - 1] = g->nodes[g->nodes_count * i / stages].name;
  if (!tsr_pass_stages(g, &split, diags)) die(diags);
  if (new_tokens) g = cached(s, g, new_tokens);
  return c->dtype ? tsr_pass_precision(g, (tsr_precision_types){c->dtype, TSR_STORE_F32}) : g;
}

static void compile(session *s, int index, int64_t new_tokens, tsr_diags *diags) {
  const cache_case *c = s->of;
  const int *size = s->parallel.size;
  tsr_placing placing = {.units = {1, 1, 1, 1, 1}, .sequence_units = 1};
  memcpy(placing.size, size, sizeof placing.size);
  placing.whole_positions = true;
  if (c->unit_samples) placing.units[TSR_DP] = c->B;
  placing.units[TSR_TP] = TP_UNITS;
  tsr_graph *g = build(s, new_tokens, diags);
  if (!tsr_pass_placement(g, &placing, &s->placed[index], diags)) die(diags);
  tsr_lowering l = {.microbatches = 1, .batch_units = 1, .sequence_units = 1};
  tsr_verify_mesh over = {.ranks = s->parallel.ranks};
  for (int a = 0; a < TSR_AXES; a++) {
    l.size[a] = over.size[a] = size[a];
    over.stride[a] = s->parallel.stride[a];
  }
  if (c->unit_samples) l.batch_units = c->B / tsr_lowering_batch_ranks(&l);
  l.tp_units = TP_UNITS / size[TSR_TP];
  const tsr_pipeline *pipeline =
      tsr_pipeline_make(s->arena, TSR_PIPELINE_FORWARD, size[TSR_PP], 1, 1);
  tsr_target target = c->device ? harness_target : tsr_cpu_target(&s->cpu);
  s->programs[index] = tsr_programs_make(s->placed[index], &l, pipeline, &target);
  if (c->look) c->look(&s->programs[index]);
  if (!tsr_programs_verify(s->arena, &s->programs[index], &over, diags)) die(diags);
}

/* Chunks by the first program, single tokens by the second. */
static void session_open(session *s, tsr_arena *arena, const cache_case *c) {
  const cache_mesh *m = &c->mesh;
  int threads = m->threads ? m->threads : 1, programs = c->chunk ? PROGRAMS : 1;
  *s = (session){.of = c, .arena = arena, .cpu = {tsr_kernels_get(NULL), threads}};
  s->parallel = harness_parallel(m->pp, m->dp, m->ep, m->cp, m->tp);
  tsr_diags *diags = tsr_diags_new(arena);
  for (int i = 0; i < programs; i++) compile(s, i, i ? 1 : c->chunk, diags);
  tsr_process_options o = {.parallel = &s->parallel, .kernels = s->cpu.k, .threads = threads};
  o.seed = HARNESS_SEED;
  o.device = c->device;
  if (!tsr_process_open(arena, &o, s->programs, programs, &s->process, s->executable, diags))
    die(diags);
}

/* ---- runs ---- */

typedef struct {
  const session *s;
  int64_t positions[CACHE_SAMPLES_MAX], counts[CACHE_SAMPLES_MAX], width;
} run;

/* Page i of a sequence: those of a rank's sequences, with a seed turned round by some. */
static void fill_pages(const run *r, int64_t sample, int32_t *to) {
  const session *s = r->s;
  tsr_cache_shape shape = shape_of(s, 0);
  int64_t ranks = s->parallel.size[TSR_DP] * s->parallel.size[TSR_EP], each, first;
  each = tsr_cache_pages_each(s->of->T, shape.page);
  first = sample % (s->of->B / ranks) * each;
  int64_t pages = s->of->B / ranks * each + (shape.pages ? 2 : 0);
  for (int64_t i = 0; i < each; i++)
    to[i] = (int32_t)((pages - 1 - first - i + (int64_t)(s->of->seed % 5)) % pages);
}

static int32_t token_at(int64_t sample, int64_t position) {
  return (int32_t)((sample * 31 + position * 17 + position * position * 5) % 24);
}

static void fill(void *context, const char *input, int64_t sample, void *row) {
  const run *r = context;
  int32_t *to = row;
  if (!strcmp(input, TSR_CACHE_POSITIONS)) *to = (int32_t)r->positions[sample];
  else if (!strcmp(input, TSR_CACHE_COUNTS)) *to = (int32_t)r->counts[sample];
  else if (!strcmp(input, TSR_CACHE_PAGES)) fill_pages(r, sample, to);
  else
    for (int64_t i = 0; i < r->width; i++)
      to[i] = i < r->counts[sample] ? token_at(sample, r->positions[sample] + i) : 0;
}

static void keep_logits(const session *s, int index, const run *r, cache_logits *all) {
  int64_t B = s->of->B, T = s->of->T;
  int value = tsr_graph_find_output(s->placed[index], "logits");
  const tsr_value *v = &s->placed[index]->values[value];
  float *got = tsr_arena_array(s->arena, float, tsr_value_elements(v));
  tsr_executable_read(s->executable[index], value, got);
  int64_t rows = v->shape[1], width = v->shape[2];
  if (!all->data)
    *all = (cache_logits){
        tsr_arena_array(s->arena, float, B *T *width), tsr_arena_array(s->arena, bool, B *T),
        width};
  for (int64_t b = 0; b < B; b++) {
    int64_t kept = r->counts[b] < rows ? r->counts[b] : rows;
    int64_t first = b * T + r->positions[b] + r->counts[b] - kept;
    memcpy(all->data + first * width, got + b * rows * width, sizeof *got * (size_t)(kept * width));
    for (int64_t i = 0; i < kept; i++) all->there[first + i] = true;
  }
}

/* With a seed sequences of one batch stand at different positions. */
cache_logits cache_case_run(tsr_arena *arena, const cache_case *c) {
  session s;
  session_open(&s, arena, c);
  cache_logits all = {.width = 0};
  run r = {.s = &s};
  uint64_t chance = c->seed;
  for (int64_t done = 0; done < c->B * c->T;) {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    int which = c->seed && chance >> 60 & 1;
    r.width = which ? 1 : c->chunk ? c->chunk : c->T;
    for (int b = 0; b < c->B; b++) {
      int64_t left = c->T - r.positions[b], most = left < r.width ? left : r.width;
      r.counts[b] = c->seed ? (int64_t)(chance >> (33 + 5 * b) & 31) % (most + 1) : most;
    }
    tsr_executable_run(s.executable[which], 0, fill, &r);
    keep_logits(&s, which, &r, &all);
    for (int b = 0; b < c->B; b++) {
      r.positions[b] += r.counts[b];
      done += r.counts[b];
    }
  }
  tsr_process_close(s.process);
  return all;
}

/* ---- what is compared ---- */

const char *cache_case_text(tsr_arena *arena, const cache_case *c) {
  const cache_mesh *m = &c->mesh;
  return tsr_arena_printf(
      arena, "%s, pp %d dp %d ep %d cp %d tp %d, %s, chunk %d, seed %d%s", c->model->name, m->pp,
      m->dp, m->ep, m->cp, m->tp, tsr_dtype_name(c->dtype), (int)c->chunk, (int)c->seed,
      c->last_only ? ", last ones" : "");
}

const char *cache_case_other(
    tsr_arena *arena, const cache_case *c, const cache_logits *got, const cache_logits *want,
    int64_t token) {
  int64_t i = 0, width = want->width, sequence = token / c->T, position = token % c->T;
  const float *x = got->data + token * width, *y = want->data + token * width;
  if (!got->there[token] || !want->there[token]) {
    if (c->last_only && position < c->T - 1) return NULL;
    return tsr_arena_printf(
        arena, "%s: sequence %d position %d has no logits", cache_case_text(arena, c),
        (int)sequence, (int)position);
  }
  while (i < width && !memcmp(&x[i], &y[i], sizeof *x)) i++;
  if (i == width) return NULL;
  return tsr_arena_printf(
      arena, "%s: sequence %d position %d: %.9g, not %.9g", cache_case_text(arena, c),
      (int)sequence, (int)position, (double)x[i], (double)y[i]);
}
