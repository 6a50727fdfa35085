// SPDX-License-Identifier: Apache-2.0
#include "train/determinism.h"
#include "base/command_progress.h"
#include <stdlib.h>
#include <string.h>

enum { RUNS = 2 };

typedef struct {
  const tsr_trainer_options *o;
  const tsr_compiled *training;
  int threads[RUNS];
  tsr_determinism_run runs[RUNS];
  tsr_diags *diags;
} comparison;

static tsr_short_text threads_text(const comparison *c, int run) {
  tsr_short_text t;
  int n = c->threads[run];
  snprintf(t.text, sizeof t.text, "%d thread%s", n, n == 1 ? "" : "s");
  return t;
}

/* Nothing is written, wherever the run would write. */
static bool run(comparison *c, int index, int *ret_signal) {
  tsr_trainer_options o = *c->o;
  tsr_determinism_run *r = &c->runs[index];
  r->digests.arena = o.arena;
  o.threads = c->threads[index];
  o.quiet = true;
  o.out = NULL;
  o.out_folder = NULL;
  o.hashes = false;
  o.lock = NULL;
  o.tensorboard = NULL;
  o.gradients = NULL;
  o.gradient_folder = NULL;
  o.routing = NULL;
  o.routing_folder = NULL;
  o.keep = (tsr_checkpoint_manager_options){
      .resume = c->o->keep.resume,
      .forks = c->o->keep.forks,
      .named = true,
      .weights = c->o->keep.weights,
      .adapter = c->o->keep.adapter,
      .adapter_hash = c->o->keep.adapter_hash};
  o.determinism = r;
  if (!tsr_metrics_open(o.arena, NULL, NULL, &o.metrics, c->diags)) return false;
  bool ok = tsr_train(&o, c->training, NULL, NULL, ret_signal, c->diags);
  tsr_metrics_close(o.metrics);
  return ok;
}

static bool fail_collective(const comparison *c, const tsr_collective_digest *d) {
  const tsr_program *p = c->training->programs.of_stage[d->stage];
  const tsr_task *t = &p->tasks[d->task];
  const tsr_node *n = &p->graph->nodes[t->node];
  return tsr_diag_failure(
      c->diags, n->location,
      "step %lld, microbatch %lld, rank %d: %s '%s' over %s differs between %s and %s; it is the "
      "first of %s collectives that does",
      (long long)d->step + 1, (long long)d->microbatch, d->rank, tsr_op_name(t->op), n->name,
      tsr_axis_name(t->axis), threads_text(c, 0).text, threads_text(c, 1).text,
      tsr_text_count(c->runs[0].digests.count).text);
}

static int compare_places(const void *a, const void *b) {
  const tsr_collective_digest *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->microbatch != y->microbatch) return x->microbatch < y->microbatch ? -1 : 1;
  if (x->stage != y->stage) return x->stage - y->stage;
  return x->task != y->task ? x->task - y->task : x->rank - y->rank;
}

/* Which stage of a process goes first depends on when messages come: both runs are sorted. The one
 * that differs and ended first in the first run; NULL: none does. */
static const tsr_collective_digest *
find_different(tsr_collective_digests *a, tsr_collective_digests *b) {
  const tsr_collective_digest *first = NULL;
  if (a->count) qsort(a->items, (size_t)a->count, sizeof *a->items, compare_places);
  if (b->count) qsort(b->items, (size_t)b->count, sizeof *b->items, compare_places);
  for (int i = 0; i < a->count && i < b->count; i++)
    if (a->items[i].hash != b->items[i].hash && (!first || a->items[i].order < first->order))
      first = &a->items[i];
  return first;
}

static bool compare(comparison *c) {
  tsr_determinism_run *a = &c->runs[0], *b = &c->runs[1];
  tsr_short_text first = threads_text(c, 0), second = threads_text(c, 1);
  const tsr_collective_digest *different = find_different(&a->digests, &b->digests);
  if (different) return fail_collective(c, different);
  for (int64_t i = 0; i < a->steps; i++)
    if (memcmp(&a->losses[i], &b->losses[i], sizeof *a->losses) != 0)
      return tsr_diag_failure(
          c->diags, TSR_NOWHERE, "step %lld: the loss is %.9g with %s and %.9g with %s",
          (long long)(a->first_step + i + 1), (double)a->losses[i], first.text,
          (double)b->losses[i], second.text);
  return !strcmp(a->sha256, b->sha256) ||
         tsr_diag_failure(
             c->diags, TSR_NOWHERE,
             "the weights after step %lld differ between %s and %s, though all collectives and "
             "losses agree",
             (long long)(a->first_step + a->steps), first.text, second.text);
}

/* The run ends before as many steps as were asked for. */
static void note_fewer(const comparison *c, int64_t wanted) {
  const tsr_determinism_run *r = &c->runs[0];
  tsr_diag_note(
      c->diags, tsr_config_location(c->o->config, "training_config.max_steps"),
      "%lld step%s left of the run's %lld: %lld of %lld were compared", (long long)r->steps,
      r->steps == 1 ? " is" : "s are", (long long)(r->first_step + r->steps), (long long)r->steps,
      (long long)wanted);
}

bool tsr_determinism_check(
    const tsr_trainer_options *o, const tsr_compiled *training, int64_t steps, int *ret_signal,
    const char **ret_text, tsr_diags *diags) {
  comparison c = {.o = o, .training = training, .diags = diags};
  c.threads[0] = o->threads;
  c.threads[1] = 1;
  for (int i = 0; i < RUNS; i++) c.runs[i].steps = steps;
  bool ok = true;
  tsr_command_progress_begin("checking determinism", RUNS * steps, "steps");
  for (int i = 0; ok && i < RUNS && !*ret_signal; i++) ok = run(&c, i, ret_signal);
  tsr_command_progress_end();
  if (!ok) return false;
  if (*ret_signal) return true;
  if (c.runs[0].steps < steps && !o->rank_map.process) note_fewer(&c, steps);
  steps = c.runs[0].steps;
  *ret_text = tsr_arena_printf(
      o->arena,
      "determinism: %lld step%s twice, with %s and with %s: the results of %s collectives, the "
      "losses and the weights are equal, sha256 %s",
      (long long)steps, steps == 1 ? "" : "s", threads_text(&c, 0).text, threads_text(&c, 1).text,
      tsr_text_count(c.runs[0].digests.count).text, c.runs[0].sha256);
  return compare(&c);
}
