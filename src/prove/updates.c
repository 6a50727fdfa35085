// SPDX-License-Identifier: Apache-2.0
#include "prove/updates.h"
#include "prove/reference.h"
#include <math.h>
#include <string.h>

/* ---- one run ---- */

static double largest(const tsr_state_tensor *t) {
  double most = 0;
  for (int64_t i = 0; i < t->count; i++) most = fmax(most, fabs((double)t->data[i]));
  return most;
}

/* Of each parameter, its largest gradient of the steps that update, in parts of the step's largest
 * one. */
static void measure_gradients(const tsr_state *s, double *ret_share) {
  for (int step = 0; step < s->steps_count; step++) {
    const tsr_state_tensors *of = &s->steps[step].of[TSR_RECORDED_GRADIENTS];
    double most = 0;
    for (int i = 0; i < of->count; i++)
      if (of->items[i].param >= 0) most = fmax(most, largest(&of->items[i]));
    for (int i = 0; i < of->count && most > 0 && s->steps[step].updates; i++) {
      int param = of->items[i].param;
      if (param >= 0) ret_share[param] = fmax(ret_share[param], largest(&of->items[i]) / most);
    }
  }
}

static bool has_changed(const tsr_state *s, int param) {
  const tsr_state_tensors *of = &s->steps[s->steps_count - 1].of[TSR_RECORDED_WEIGHTS];
  for (int i = 0; i < of->count; i++)
    if (of->items[i].param == param)
      return memcmp(
          of->items[i].data, s->initial[param], sizeof(float) * (size_t)of->items[i].count);
  return false;
}

tsr_updates tsr_updates_of(const tsr_state *s) {
  const tsr_graph *g = s->graph;
  tsr_updates u = {0};
  double *share = tsr_arena_array(g->arena, double, g->params_count + 1);
  for (int step = 0; step < s->steps_count; step++) u.steps += s->steps[step].updates;
  measure_gradients(s, share);
  for (int p = 0; p < g->params_count; p++) {
    bool changed = share[p] > 0 && has_changed(s, p);
    if (share[p] < TSR_GRADIENT_TOLERANCE) {
      if (share[p] > 0 && !changed && !u.cancelled++) u.first_cancelled = &g->params[p];
      continue;
    }
    u.trained++;
    u.changed += changed;
    if (!changed && !u.kept) u.kept = &g->params[p];
  }
  return u;
}

/* ---- numbers with which they are real ---- */

/* In powers of ten and of two. */
static const double rates[] = {1e-3, 1e-2, 1e-1, 1}, scales[] = {1024, 32, 1};
enum { RATES = sizeof rates / sizeof *rates, SCALES = sizeof scales / sizeof *scales };

static bool has_optimizer(const tsr_config *c) { return c->optimizer.type != TSR_OPTIMIZER_NOOP; }

/* The next larger rate, or the next smaller scale; false: there is none. */
static bool change(const tsr_updates *u, tsr_recording *how) {
  for (int i = 0; i < RATES && u->steps; i++)
    if (rates[i] > how->rate) return how->rate = rates[i], true;
  for (int i = 0; i < SCALES && !u->steps; i++)
    if (scales[i] < how->loss_scale) return how->loss_scale = scales[i], true;
  return false;
}

bool tsr_updates_run(
    tsr_arena *arena, const tsr_prove_run *run, tsr_recording *how, tsr_state *ret,
    tsr_diags *diags) {
  const tsr_recording first = *how;
  for (tsr_recording next = first;;) {
    if (!tsr_state_run(arena, run, &next, ret, diags)) return false;
    tsr_updates u = tsr_updates_of(ret);
    if (!has_optimizer(run->config)) return true;
    *how = next;
    if (tsr_updates_are_real(&u) || !change(&u, &next)) return true;
  }
}

/* ---- the report ---- */

static void add_cancelled(const tsr_updates *u, tsr_text *text) {
  if (u->cancelled)
    tsr_text_add(
        text, "; %d more, the first is '%s', whose gradient cancels out, do%s not", u->cancelled,
        u->first_cancelled->name, u->cancelled == 1 ? "es" : "");
}

static void add_choices(const tsr_config *c, const tsr_recording *how, tsr_text *text) {
  tsr_recording first = tsr_recording_of(c, how->cpu, how->data);
  tsr_text_add(text, ", with learning rate %g", how->rate);
  if (how->rate != first.rate)
    tsr_text_add(
        text, " in place of the schedule's largest, %g, which changes too little", first.rate);
  if (how->loss_scale != first.loss_scale)
    tsr_text_add(
        text, ", with loss scale %g in place of %g, which overflows", how->loss_scale,
        first.loss_scale);
}

bool tsr_updates_report(
    const tsr_config *c, const tsr_state *state, const tsr_recording *how, tsr_text *text,
    tsr_diags *diags) {
  tsr_updates u = tsr_updates_of(state);
  if (!has_optimizer(c)) {
    tsr_text_add(text, "updates: none, the optimizer is NoOp\n");
    return true;
  }
  tsr_text_add(
      text, "updates: %d of %d parameters with a gradient change, in %d of %d steps", u.changed,
      u.trained, u.steps, state->steps_count);
  add_choices(c, how, text);
  add_cancelled(&u, text);
  tsr_text_add(text, "\n");
  if (!u.steps)
    return tsr_diag_failure(
        diags, (tsr_location){.file = c->file},
        "the gradients of all steps overflow, so the proof shows nothing about updates");
  return !u.kept || tsr_diag_failure(
                        diags, u.kept->location,
                        "'%s' has a gradient, and no bit of it changes in %d steps, so the proof "
                        "shows nothing about its updates",
                        u.kept->name, state->steps_count);
}
