// SPDX-License-Identifier: Apache-2.0
#include "train/tensorboard_run.h"
#include "base/memory.h"
#include "base/text.h"
#include "runtime/process.h"
#include "tokenizer/pattern.h"
#include "train/step_files.h"
#include "train/tensorboard_graph.h"
#include "train/trainer_internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static tsr_tensorboard *writer_of(const tsr_trainer *t) {
  return t->o->tensorboard ? t->o->tensorboard->writer : NULL;
}

/* ---- the begin ---- */

bool tsr_tensorboard_choose(
    tsr_arena *arena, const tsr_graph *g, const char *text, tsr_tensorboard_run *ret,
    tsr_diags *diags) {
  static const char option[] = "--tensorboard-histograms";
  tsr_pattern *pattern;
  if (!tsr_pattern_compile(arena, text, false, option, &pattern, diags)) return false;
  tsr_match *match = tsr_match_new(arena);
  ret->params = tsr_arena_array(arena, int, g->params_count + 1);
  int found = 0;
  size_t begin, end;
  for (int i = 0; i < g->params_count && found >= 0; i++) {
    const char *name = g->params[i].name;
    if (g->params[i].is_frozen) continue;
    found = tsr_pattern_find(pattern, match, name, strlen(name), 0, &begin, &end);
    if (found < 0) tsr_diag_error(diags, TSR_NOWHERE, "%s: %s", option, tsr_match_failure(match));
    if (found > 0) ret->params[ret->count++] = i;
  }
  tsr_match_free(match);
  if (found < 0 || ret->count) return found >= 0;
  tsr_diag_error(diags, TSR_NOWHERE, "%s: no trained parameter's name matches '%s'", option, text);
  tsr_diag_hint(diags, "names of parameters are those of --dump graph");
  return false;
}

static void add_recipe(tsr_trainer *t) {
  tsr_arena *scratch = tsr_arena_new();
  tsr_tensorboard_hparam *list =
      tsr_arena_array(scratch, tsr_tensorboard_hparam, t->recipe_count + 2);
  int count = 0;
  for (int i = 0; i < t->recipe_count; i++)
    list[count++] = (tsr_tensorboard_hparam){t->recipe_entries[i].key, t->recipe_entries[i].value};
  list[count++] = (tsr_tensorboard_hparam){"mesh", t->o->mesh_text};
  list[count++] = (tsr_tensorboard_hparam){"recipe", t->recipe};
  tsr_tensorboard_add_hparams(t->o->tensorboard->writer, list, count);
  tsr_arena_free(scratch);
}

bool tsr_tensorboard_run_begin(tsr_trainer *t) {
  tsr_tensorboard_run *r = t->o->tensorboard;
  bool overwrites = t->o->keep.purpose == TSR_OUT_OVERWRITES, is_new;
  if (!r || !r->folder) return true;
  if (!r->writer) {
    r->writer = tsr_tensorboard_new(t->o->arena, r->folder->path);
    if (!tsr_step_folder_begin(
            t->o->arena, &tsr_tensorboard_files, r->folder, overwrites, t->o->config, t->diags))
      return false;
  }
  if (!tsr_tensorboard_begin(r->writer, t->step, &is_new, t->diags)) return false;
  if (is_new) {
    add_recipe(t);
    tsr_tensorboard_graph_add(r->writer, t->training->graph);
  }
  tsr_tensorboard_flush(r->writer, t->step, t->diags);
  return true;
}

/* ---- steps ---- */

typedef struct {
  tsr_tensorboard_scalar items[TSR_TENSORBOARD_SCALARS_MAX];
  int count;
} scalars;

static void add(scalars *s, const char *tag, double value) {
  s->items[s->count++] = (tsr_tensorboard_scalar){tag, value};
}

/* Of this process, in GiB. */
static void add_memory(scalars *s) {
  static const double gib = 1 << 30, kib = 1 << 10;
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage)) return;
  add(s, "memory/resident_gib", (double)tsr_process_resident_bytes() / gib);
  add(s, "memory/resident_peak_gib", (double)usage.ru_maxrss * kib / gib);
}

static void add_experts(tsr_tensorboard *w, int64_t step, const tsr_metrics_experts *e) {
  char tags[3][256];
  static const char *const names[] = {"imbalance", "entropy", "dropped"};
  double values[] = {tsr_metrics_imbalance(e), tsr_metrics_entropy(e), e->dropped};
  scalars s = {.count = 0};
  for (int i = 0; i < 3; i++) {
    snprintf(tags[i], sizeof tags[i], "experts/%s/%s", e->layer, names[i]);
    add(&s, tags[i], values[i]);
  }
  tsr_tensorboard_add_scalars(w, step, s.items, s.count);
  snprintf(tags[0], sizeof tags[0], "experts/%s/load", e->layer);
  tsr_tensorboard_add_counts(w, step, tags[0], e->counts, (int)e->experts);
}

void tsr_tensorboard_run_step(tsr_trainer *t, const tsr_metrics_step *step) {
  tsr_tensorboard *w = writer_of(t);
  scalars s = {.count = 0};
  if (!w) return;
  add(&s, "loss/train", step->loss);
  if (tsr_graph_find_output(t->training->placed, "clip") >= 0)
    add(&s, "optimizer/gradient_norm", step->grad_norm);
  add(&s, "optimizer/learning_rate", step->lr);
  if (step->loss_scale > 0) add(&s, "optimizer/loss_scale", step->loss_scale);
  if (step->loss_scale > 0 && step->underflows >= 0) {
    add(&s, "optimizer/loss_underflows", (double)step->underflows);
    add(&s, "optimizer/loss_overflows", (double)step->overflows);
  }
  add(&s, "throughput/tokens", (double)step->tokens);
  add(&s, "throughput/tokens_per_s", step->tokens_per_s);
  add(&s, "throughput/step_ms", step->ms);
  double ideal_ms = t->o->tensorboard->ideal_step_s * 1e3;
  if (ideal_ms > 0 && step->ms > 0) add(&s, "throughput/mfu", ideal_ms / step->ms);
  add_memory(&s);
  tsr_tensorboard_add_scalars(w, step->step, s.items, s.count);
  for (int i = 0; i < step->layers; i++) add_experts(w, step->step, &step->experts[i]);
  tsr_tensorboard_flush(w, step->step, t->diags);
}

void tsr_tensorboard_run_eval(tsr_trainer *t, const tsr_metrics_eval *e) {
  tsr_tensorboard *w = writer_of(t);
  scalars s = {.count = 0};
  if (!w) return;
  add(&s, "loss/validation", e->loss);
  if (e->has_accuracy) add(&s, "accuracy/validation", e->accuracy);
  tsr_tensorboard_add_scalars(w, e->step, s.items, s.count);
  tsr_tensorboard_flush(w, e->step, t->diags);
}

void tsr_tensorboard_run_sample(tsr_trainer *t, const char *text, size_t length) {
  tsr_tensorboard *w = writer_of(t);
  tsr_text clean = {0};
  if (!w) return;
  tsr_text_add_clean(&clean, text, length);
  tsr_tensorboard_add_text(w, t->step, "sample", clean.data ? clean.data : "");
  tsr_text_free(&clean);
  tsr_tensorboard_flush(w, t->step, t->diags);
}

bool tsr_tensorboard_run_end(tsr_trainer *t, bool is_done) {
  tsr_tensorboard *w = writer_of(t);
  if (!w) return true;
  tsr_tensorboard_add_end(w, t->step, is_done);
  return tsr_tensorboard_finish(w, t->diags);
}

/* ---- histograms ---- */

/* The value of the placed graph that is the parameter's gradient; -1: there is none. */
static int find_gradient(const tsr_trainer *t, const tsr_param *param) {
  const tsr_graph *g = t->training->graph;
  for (int i = 0; i < g->outputs_count; i++) {
    const char *name = g->outputs[i].name;
    if (!strncmp(name, "d.", 2) && !strcmp(name + 2, param->name))
      return t->training->placed->outputs[i].value;
  }
  return -1;
}

/* Reading is collective. */
static void add_tensor(
    tsr_trainer *t, const char *kind, const tsr_param *param, int value, double factor,
    float *numbers) {
  tsr_tensorboard *w = writer_of(t);
  tsr_histogram histogram;
  char tag[256];
  tsr_executable_read(t->train, value, numbers);
  if (!w) return;
  tsr_padding_remove(&param->padding, param->ndim, param->shape, numbers);
  int64_t count = tsr_param_real_elements(param);
  for (int64_t i = 0; factor != 1 && i < count; i++)
    numbers[i] = (float)(factor * (double)numbers[i]);
  tsr_histogram_make(numbers, count, &histogram);
  snprintf(tag, sizeof tag, "%s/%s", kind, param->name);
  tsr_tensorboard_add_histogram(w, t->step, tag, &histogram);
}

static int64_t largest_tensor(const tsr_trainer *t, const tsr_tensorboard_run *r) {
  int64_t most = 0;
  for (int i = 0; i < r->count; i++) {
    int value = tsr_executable_param(t->train, r->params[i]);
    int64_t elements = tsr_value_elements(&t->training->placed->values[value]);
    if (elements > most) most = elements;
  }
  return most;
}

bool tsr_tensorboard_run_histograms(tsr_trainer *t) {
  const tsr_tensorboard_run *r = t->o->tensorboard;
  if (!r || !r->count || t->step % r->every) return true;
  int64_t most = largest_tensor(t, r);
  float *numbers = tsr_memory_try(sizeof *numbers * (size_t)(most + 1));
  bool missing = !numbers, ok = !tsr_executable_agree(t->train, missing);
  double scale = tsr_trainer_scales_loss(t) ? t->used_scale : 1;
  for (int i = 0; ok && i < r->count; i++) {
    const tsr_param *param = &t->training->graph->params[r->params[i]];
    int gradient = find_gradient(t, param);
    add_tensor(t, "weights", param, tsr_executable_param(t->train, r->params[i]), 1, numbers);
    if (gradient >= 0) add_tensor(t, "gradients", param, gradient, 1 / scale, numbers);
  }
  if (ok && r->writer) tsr_tensorboard_flush(r->writer, t->step, t->diags);
  if (missing)
    tsr_diag_failure(
        t->diags, TSR_NOWHERE, "out of memory: %s for the histograms of step %lld",
        tsr_text_bytes(4 * most).text, (long long)t->step);
  free(numbers);
  return ok;
}
