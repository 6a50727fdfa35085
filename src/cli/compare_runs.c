// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_runs.h"
#include "cli/compare_bounds.h"
#include "cli/replay.h"
#include "checkpoint/checkpoint_commands.h"
#include "compare/report.h"
#include "report/run_lock_diff.h"
#include "train/locked_checkpoint.h"
#include <inttypes.h>
#include <string.h>

enum { STEPS_USUAL = 10 };

/* One of the two. */
typedef struct {
  const char *path;
  bool has_lock;
  tsr_run_lock lock;     /* of a run */
  tsr_run_record record; /* of its steps; of a run that was not repeated yet those of its lock */
  const tsr_compiled *compiled;
  const tsr_parallel *parallel;
} side;

typedef struct {
  app *a;
  side sides[2];
  tsr_text *text;
} comparison;

static bool read_lock(comparison *c, side *s) {
  s->has_lock = !replay_is_recipe(s->path);
  if (!s->has_lock) return true;
  if (!tsr_run_lock_read(c->a->arena, s->path, &s->lock, c->a->diags)) return false;
  const tsr_run_lock *l = &s->lock;
  s->record = (tsr_run_record){
      .recipe = l->recipe,
      .recipe_count = l->recipe_count,
      .steps = l->steps,
      .first = l->first.step,
      .steps_count = l->steps_count};
  return true;
}

/* Makes steps again up to `last`, tracing one; a capture is of the trace before. */
static bool repeat(comparison *c, side *s, int64_t last, int64_t traced, tsr_capture capture) {
  replay r;
  tsr_run_record *record = tsr_arena_alloc(c->a->arena, sizeof *record);
  bool ok = replay_open(c->a, s->path, &r);
  if (ok && last > r.steps) last = r.steps;
  if (ok && traced > last) traced = last;
  if (ok) tsr_run_record_init(c->a->arena, last, traced, capture, &s->record, record);
  ok = ok && replay_run(&r, traced, &record->observer);
  if (ok) {
    s->record = *record;
    s->compiled = tsr_arena_alloc(c->a->arena, sizeof *s->compiled);
    *(tsr_compiled *)s->compiled = r.prepared.training;
    s->parallel = r.setup.parallel;
  }
  replay_close(&r);
  return ok;
}

static int64_t last_of(const side *s) { return s->record.first + s->record.steps_count; }

/* What both have: the weights after `first`, and all of the steps behind it up to `last`. */
static bool find_common(const comparison *c, int64_t *ret_first, int64_t *ret_last) {
  const side *x = &c->sides[0], *y = &c->sides[1];
  bool locked = x->has_lock && y->has_lock; /* else the weights after `first` are not known */
  *ret_first = x->record.first > y->record.first ? x->record.first : y->record.first;
  *ret_last = last_of(x) < last_of(y) ? last_of(x) : last_of(y);
  if (*ret_first < *ret_last || (locked && *ret_first == *ret_last)) return true;
  return tsr_diag_error(
      c->a->diags, TSR_NOWHERE,
      "there is no step to compare: '%s' has the steps %" PRId64 " to %" PRId64
      ", and '%s' %" PRId64 " to %" PRId64,
      x->path, x->record.first + 1, last_of(x), y->path, y->record.first + 1, last_of(y));
}

/* The weights that one of the runs begins with, behind a step that the other one has made. */
static void add_begin(const comparison *c, int64_t step) {
  int later = c->sides[1].lock.first.step == step;
  tsr_text_add(
      c->text,
      "'%s' begins after step %" PRId64
      " with other weights than '%s' had: their hash is %016" PRIx64 ", not %016" PRIx64 "\n",
      c->sides[later].path, step, c->sides[!later].path,
      tsr_run_lock_at(&c->sides[later].lock, step)->weights,
      tsr_run_lock_at(&c->sides[!later].lock, step)->weights);
}

static bool find_locked_step(comparison *c, int64_t *ret_step) {
  const tsr_run_lock *x = &c->sides[0].lock, *y = &c->sides[1].lock;
  int64_t first, last, step = tsr_run_lock_first_difference(x, y);
  if (!find_common(c, &first, &last)) return false;
  if (step == first && step > 0) add_begin(c, step);
  *ret_step = step < 0 ? 0 : step == first ? step + 1 : step;
  return true;
}

/* Recipes are run; steps of two runs that are locked are compared as they were. 0: none differs. */
static bool find_step(comparison *c, int64_t *ret_step) {
  side *x = &c->sides[0], *y = &c->sides[1];
  int64_t first, last = c->a->options.steps ? c->a->options.steps : STEPS_USUAL;
  if (x->has_lock && y->has_lock) return find_locked_step(c, ret_step);
  for (int i = 0; i < 2; i++)
    if (c->sides[i].has_lock && last_of(&c->sides[i]) < last) last = last_of(&c->sides[i]);
  for (int i = 0; i < 2; i++)
    if (!c->sides[i].has_lock && !repeat(c, &c->sides[i], last, last, (tsr_capture){0}))
      return false;
  *ret_step = tsr_first_different_step(&x->record, &y->record);
  return find_common(c, &first, &last);
}

static void add_equal(const comparison *c) {
  int64_t first, last;
  find_common(c, &first, &last);
  if (first == last) tsr_text_add(c->text, "equal: the weights after step %" PRId64 "\n", first);
  else
    tsr_text_add(
        c->text, "equal: the losses and weights of steps %" PRId64 " to %" PRId64 "\n", first + 1,
        last);
}

/* The newest checkpoint up to a step beside a run.lock; false: there is none that can be read. */
static bool find_kept(const comparison *c, const side *s, int64_t step, tsr_manifest *ret) {
  tsr_diags *ignored = tsr_diags_new(c->a->arena);
  return tsr_locked_checkpoint_find(c->a->arena, &s->lock, "", step + 1, ret, ignored);
}

/* The optimizer state of two runs whose steps are equal, in the newest checkpoints that both have
 * of one step. */
static bool compare_kept(comparison *c, bool *ret_equal) {
  const side *x = &c->sides[0], *y = &c->sides[1];
  tsr_manifest a, b;
  int differences;
  int64_t step = last_of(x) < last_of(y) ? last_of(x) : last_of(y);
  for (bool same = false; !same; step = b.state.step) {
    if (!find_kept(c, x, step, &a) || !find_kept(c, y, a.state.step, &b)) return true;
    same = a.state.step == b.state.step;
  }
  if (!tsr_checkpoint_diff(
          c->a->arena, tsr_kernels_get(NULL), &a, &b, &differences, c->text, c->a->diags))
    return false;
  *ret_equal = !differences;
  if (!differences)
    tsr_text_add(
        c->text,
        "equal: the weights and the optimizer state in the checkpoints of step %" PRId64 "\n",
        step);
  return true;
}

/* What the run itself had at the step, where that is not what its repetition has. */
static void add_faults(const comparison *c, const side *s, int64_t step) {
  const tsr_run_record *r = &s->record;
  int64_t at = step - r->first - 1;
  const tsr_locked_step *was = s->has_lock ? tsr_run_lock_at(&s->lock, step) : NULL;
  if (!was || at < 0 || at >= r->steps_count) return;
  const tsr_locked_step *is = &r->steps[at];
  if (was->loss == is->loss && was->weights == is->weights) return;
  tsr_text_add(
      c->text,
      "'%s' had other numbers at step %" PRId64 " than its repetition here: the run was faulty, or "
      "its program or data were others\n",
      s->path, step);
}

static bool needs_trace(const side *s, int64_t step) { return s->record.traced != step; }

/* The numbers of the first tensor that differs, of both. */
static bool
compare_numbers(comparison *c, const tsr_difference *d, int64_t step, tsr_element_difference *ret) {
  tsr_capture capture = {.name = d->name, .before = d->kind == TSR_DIFFERS_STORED_BEFORE};
  capture.is_stored = capture.before || d->kind == TSR_DIFFERS_STORED_AFTER;
  ret->first = -1;
  if (d->kind == TSR_DIFFERS_NOTHING || d->kind == TSR_DIFFERS_FORM) return true;
  for (int i = 0; i < 2; i++)
    if (!repeat(c, &c->sides[i], step, step, capture)) return false;
  const tsr_run_record *x = &c->sides[0].record, *y = &c->sides[1].record;
  int64_t n = tsr_traced_elements(&x->of);
  if (x->numbers && y->numbers && n == tsr_traced_elements(&y->of))
    tsr_elements_compare(x->numbers, y->numbers, n, ret);
  return true;
}

static bool explain(comparison *c, int64_t step) {
  side *x = &c->sides[0], *y = &c->sides[1];
  tsr_element_difference elements;
  for (int i = 0; i < 2; i++)
    if (needs_trace(&c->sides[i], step) && !repeat(c, &c->sides[i], step, step, (tsr_capture){0}))
      return false;
  tsr_difference d = tsr_difference_find(&x->record, &y->record);
  if (!compare_numbers(c, &d, step, &elements)) return false;
  const tsr_compared_run first = {&x->record, x->compiled, x->parallel};
  tsr_compare_report_first(&d, &first, &y->record, step, &elements, c->text);
  tsr_compare_report_counts(&d, step, c->text);
  for (int i = 0; i < 2; i++) add_faults(c, &c->sides[i], step);
  return true;
}

/* Equal steps may leave other gradients or states: of the last one all is compared. */
static bool explain_last(comparison *c, bool *ret_equal) {
  const side *x = &c->sides[0], *y = &c->sides[1];
  bool traced = x->record.traced && x->record.traced == y->record.traced;
  if (!traced) return true;
  tsr_difference d = tsr_difference_find(&x->record, &y->record);
  tsr_compare_report_counts(&d, x->record.traced, c->text);
  if (d.kind == TSR_DIFFERS_NOTHING) return true;
  *ret_equal = false;
  return explain(c, x->record.traced);
}

/* Within the bound are runs that compute the same: the step alone cannot tell it. */
static bool compare_rounded(comparison *c, int64_t step, bool others, bool *ret_passes) {
  const char *const paths[2] = {c->sides[0].path, c->sides[1].path};
  if (!compare_bounds(c->a, paths, step, c->text, ret_passes)) return false;
  if (others && *ret_passes)
    tsr_text_add(c->text, "the recipes differ in more than where they round\n");
  *ret_passes = *ret_passes && !others;
  return true;
}

bool compare_runs(app *a, const char *first, const char *second, tsr_text *text, bool *ret_equal) {
  comparison c = {.a = a, .sides = {{.path = first}, {.path = second}}, .text = text};
  int64_t step;
  *ret_equal = false;
  if (!(read_lock(&c, &c.sides[0]) & read_lock(&c, &c.sides[1])) || !find_step(&c, &step))
    return false;
  const tsr_run_record *x = &c.sides[0].record, *y = &c.sides[1].record;
  tsr_recipe_diff(x->recipe, x->recipe_count, y->recipe, y->recipe_count, text);
  bool others;
  if (compare_bounds_apply(x->recipe, x->recipe_count, y->recipe, y->recipe_count, &others) && step)
    return compare_rounded(&c, step, others, ret_equal);
  if (step > last_of(&c.sides[0]) || step > last_of(&c.sides[1])) return true;
  if (step) return explain(&c, step);
  *ret_equal = true;
  add_equal(&c);
  bool locked = c.sides[0].has_lock && c.sides[1].has_lock;
  return locked ? compare_kept(&c, ret_equal) : explain_last(&c, ret_equal);
}
