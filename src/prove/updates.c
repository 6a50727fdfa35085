// SPDX-License-Identifier: Apache-2.0
#include "prove/updates.h"
#include "prove/reference.h"
#include <math.h>
#include <string.h>

/* Of a number in bf16, of the largest one of a sum. */
static const double HALF_ROUNDING = 1.0 / 256;

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

static bool is_other(const tsr_state_tensor *t, const float *first) {
  return memcmp(t->data, first, sizeof(float) * (size_t)t->count) != 0;
}

/* A weight, or what rounding to bf16 has left of its updates so far (passes/optimizer.c). */
static bool has_changed(const tsr_state *s, int param) {
  const tsr_recorded_step *last = &s->steps[s->steps_count - 1];
  const tsr_state_tensors *weights = &last->of[TSR_RECORDED_WEIGHTS];
  const tsr_state_tensors *states = &last->of[TSR_RECORDED_STATE];
  bool changed = false;
  for (int i = 0; i < weights->count; i++)
    if (weights->items[i].param == param)
      changed |= is_other(&weights->items[i], s->initial[param]);
  for (int i = 0; i < states->count; i++)
    if (states->items[i].param == param && strstr(states->items[i].name, ".compensation"))
      changed |= largest(&states->items[i]) > 0;
  return changed;
}

/* Whether the run is in half precision, in which a gradient that cancels out leaves more. */
static double least_share(const tsr_graph *g) {
  for (int v = 0; v < g->values_count; v++)
    if (tsr_dtype_is_half(g->values[v].dtype)) return HALF_ROUNDING;
  return TSR_GRADIENT_TOLERANCE;
}

tsr_updates tsr_updates_of(const tsr_state *s) {
  const tsr_graph *g = s->graph;
  const double least = least_share(g);
  tsr_updates u = {.is_finite = true};
  double *share = tsr_arena_array(g->arena, double, g->params_count + 1);
  for (int step = 0; step < s->steps_count; step++) {
    u.steps += s->steps[step].updates;
    u.is_finite &= isfinite(s->steps[step].loss) != 0;
  }
  measure_gradients(s, share);
  for (int p = 0; p < g->params_count; p++) {
    if (share[p] == 0) continue;
    bool changed = has_changed(s, p);
    if (!changed && share[p] < least) {
      if (!u.cancelled++) u.first_cancelled = &g->params[p];
      continue;
    }
    u.trained++;
    u.changed += changed;
    if (!changed && !u.kept) u.kept = &g->params[p];
  }
  return u;
}

/* ---- numbers with which they are real ---- */

static const double rates[] = {1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}, scales[] = {1024, 32, 1};
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

/* Last, larger matrices, for gradients that vanish, and the model's own. */
static bool change_gain(const tsr_recording *first, tsr_recording *next) {
  static const double gains[] = {0.5, 1, 0};
  for (size_t i = 1; i < sizeof gains / sizeof *gains; i++)
    if (next->gain == gains[i - 1]) {
      *next = *first;
      next->gain = gains[i];
      return true;
    }
  return false;
}

/* More parameters change, and the loss of the next step is still a number. */
static bool is_better(const tsr_updates *u, const tsr_updates *best) {
  return u->is_finite && (!best->is_finite || u->steps > best->steps || u->changed > best->changed);
}

bool tsr_updates_run(
    tsr_arena *arena, const tsr_prove_run *run, tsr_recording *how, tsr_state *ret,
    tsr_diags *diags) {
  const tsr_recording first = *how;
  if (!tsr_state_run(arena, run, how, ret, diags)) return false;
  tsr_updates best = tsr_updates_of(ret), u = best;
  tsr_recording next = first;
  while (has_optimizer(run->config) && !tsr_updates_are_real(&best)) {
    tsr_state state;
    if (!(u.is_finite && change(&u, &next)) && !change_gain(&first, &next)) break;
    if (!tsr_state_run(arena, run, &next, &state, diags)) return false;
    u = tsr_updates_of(&state);
    if (!is_better(&u, &best)) continue;
    best = u;
    *how = next;
    *ret = state;
  }
  return true;
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
  if (!how->gain) tsr_text_add(text, ", with matrices as the model begins with them");
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
