// SPDX-License-Identifier: Apache-2.0
/* Whether a pipeline schedule runs every microbatch through all stages without deadlock. */
#include "schedule/pipeline.h"
#include "schedule/pipeline_walk.h"
#include <string.h>

typedef struct {
  const tsr_pipeline *pipeline;
  tsr_diags *diags;
  int *index; /* per kind, chunk and microbatch of one stage: where it stands, from 1; 0: nowhere */
} checker;

/* A generated schedule has no file to point into: its name stands for one. */
static tsr_location place_of(const checker *c, int stage, const tsr_action *action) {
  if (action && action->location.file) return action->location;
  if (!action && c->pipeline->places) return c->pipeline->places[stage];
  return (tsr_location){.file = c->pipeline->name};
}

static int *index_of(const checker *c, tsr_action a) {
  const tsr_pipeline *o = c->pipeline;
  return &c->index[((int64_t)a.kind * o->chunks + a.chunk) * o->microbatches + a.microbatch];
}

/* ---- one stage ------------------------------------------------------------------------------- */

static bool is_wanted(const tsr_pipeline *o, tsr_action_kind kind) {
  if (kind == TSR_ACTION_WEIGHTS) return o->splits_backward;
  return kind == TSR_ACTION_FORWARD || !o->forward_only;
}

static bool fits(const tsr_pipeline *o, const tsr_action *a) {
  return a->microbatch >= 0 && a->microbatch < o->microbatches && a->chunk >= 0 &&
         a->chunk < o->chunks && is_wanted(o, a->kind);
}

static bool check_fits(const checker *c, int stage, const tsr_action *a) {
  const tsr_pipeline *o = c->pipeline;
  if (fits(o, a)) return true;
  const tsr_short_text name = tsr_action_text(*a);
  const char *text = name.text;
  tsr_location location = place_of(c, stage, a);
  if (a->microbatch < 0 || a->microbatch >= o->microbatches)
    return tsr_diag_error(
        c->diags, location, "stage %d: %s: microbatch %d is not one of 0 to %d (microbatches: %d)",
        stage, text, a->microbatch, o->microbatches - 1, o->microbatches);
  if (a->chunk < 0 || a->chunk >= o->chunks)
    return tsr_diag_error(
        c->diags, location, "stage %d: %s: chunk %d is not one of 0 to %d (chunks: %d)", stage,
        text, a->chunk, o->chunks - 1, o->chunks);
  return tsr_diag_error(
      c->diags, location, "stage %d: %s in a schedule %s", stage, text,
      o->forward_only ? "of forward passes only" : "whose B make the weights' gradients");
}

/* Notes where every action stands; those that do not fit or stand twice are errors. */
static bool check_once(const checker *c, int stage) {
  bool ok = true;
  for (int i = 0; i < c->pipeline->counts[stage]; i++) {
    const tsr_action *a = &c->pipeline->actions[stage][i];
    if (!check_fits(c, stage, a)) {
      ok = false;
      continue;
    }
    int *index = index_of(c, *a);
    if (!*index) {
      *index = i + 1;
      continue;
    }
    tsr_location location = place_of(c, stage, a);
    ok = tsr_diag_error(
        c->diags, location, "stage %d: %s stands twice", stage, tsr_action_text(*a).text);
    tsr_location first = place_of(c, stage, &c->pipeline->actions[stage][*index - 1]);
    if (first.line) tsr_diag_hint(c->diags, "first at line %d, column %d", first.line, first.col);
  }
  return ok;
}

static bool check_sequence(const checker *c, int stage) {
  bool ok = true;
  for (int i = 0; i < c->pipeline->counts[stage]; i++) {
    const tsr_action *a = &c->pipeline->actions[stage][i];
    if (a->kind == TSR_ACTION_FORWARD || !fits(c->pipeline, a)) continue;
    tsr_action before = *a;
    before.kind--;
    if (*index_of(c, before) <= i + 1) continue; /* or it is missing, which is said elsewhere */
    tsr_location location = place_of(c, stage, a);
    ok = tsr_diag_error(
        c->diags, location, "stage %d: %s stands before %s", stage, tsr_action_text(*a).text,
        tsr_action_text(before).text);
    tsr_diag_hint(c->diags, "a microbatch's F comes first, then its B, then its W if there are W");
  }
  return ok;
}

/* Gradients are added in the tree over microbatches, one after the other. */
static bool check_ascends(const checker *c, int stage) {
  bool ok = true;
  for (int i = 0; i < c->pipeline->counts[stage]; i++) {
    const tsr_action *a = &c->pipeline->actions[stage][i];
    if (a->kind == TSR_ACTION_FORWARD || a->microbatch < 1 || !fits(c->pipeline, a)) continue;
    tsr_action before = *a;
    before.microbatch--;
    if (*index_of(c, before) <= i + 1) continue;
    ok = tsr_diag_error(
        c->diags, place_of(c, stage, a), "stage %d: %s stands before %s", stage,
        tsr_action_text(*a).text, tsr_action_text(before).text);
    tsr_diag_hint(
        c->diags, "gradients are added in the order of the microbatches: a chunk's B, and its W, "
                  "must come in that order");
  }
  return ok;
}

enum { NAMES_MAX = 4 };

/* The missing ones of a kind, of which the first few are named. Returns `count` and theirs. */
static int add_missing(const checker *c, tsr_action_kind kind, int count, tsr_text *names) {
  for (int chunk = 0; chunk < c->pipeline->chunks; chunk++)
    for (int m = 0; m < c->pipeline->microbatches; m++) {
      tsr_action a = {.kind = kind, .microbatch = m, .chunk = chunk};
      if (*index_of(c, a)) continue;
      if (count++ < NAMES_MAX)
        tsr_text_add(names, "%s%s", names->length ? ", " : "", tsr_action_text(a).text);
    }
  return count;
}

static bool check_complete(const checker *c, int stage) {
  tsr_text names = {0};
  int count = 0, weights = 0;
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++) {
    int before = count;
    if (is_wanted(c->pipeline, kind)) count = add_missing(c, kind, count, &names);
    weights = count - before; /* at last: of W */
  }
  if (!count) return true;
  if (count > NAMES_MAX) tsr_text_add(&names, " and %d more", count - NAMES_MAX);
  tsr_diag_error(c->diags, place_of(c, stage, NULL), "stage %d lacks %s", stage, names.data);
  if (weights)
    tsr_diag_hint(c->diags, "where one W is given, every microbatch needs its W on every stage");
  tsr_text_free(&names);
  return false;
}

static bool check_stage(const checker *c, int stage) {
  int64_t slots = (int64_t)TSR_ACTION_KINDS * c->pipeline->chunks * c->pipeline->microbatches;
  memset(c->index, 0, sizeof *c->index * (size_t)slots);
  bool once = check_once(c, stage), sequence = check_sequence(c, stage);
  return check_complete(c, stage) && once && sequence && check_ascends(c, stage);
}

/* ---- circles --------------------------------------------------------------------------------- */

static const tsr_action *blocked(const tsr_pipeline_walk *w, int stage) {
  return &w->pipeline->actions[stage][w->next[stage]];
}

static tsr_need need_of(const tsr_pipeline_walk *w, int stage) {
  tsr_need need = {0};
  tsr_pipeline_needs(w->pipeline, stage, *blocked(w, stage), &need);
  return need;
}

/* From the circle's stage with the lowest number on, until that stage is reached again. */
static void report_circle(const checker *c, const tsr_pipeline_walk *w, int first) {
  int s = first, begin = first;
  while ((s = need_of(w, s).stage) != begin)
    if (s < first) first = s;
  tsr_text text = {0};
  s = first;
  do {
    const tsr_action *a = blocked(w, s);
    tsr_need need = need_of(w, s);
    if (s == first) tsr_text_add(&text, "stage %d waits in %s for", s, tsr_action_text(*a).text);
    else tsr_text_add(&text, ", which waits for");
    tsr_text_add(&text, " %s of stage %d", tsr_action_text(need.action).text, need.stage);
    s = need.stage;
    if (blocked(w, s)->kind != need.action.kind || blocked(w, s)->chunk != need.action.chunk ||
        blocked(w, s)->microbatch != need.action.microbatch)
      tsr_text_add(&text, ", which comes there after %s", tsr_action_text(*blocked(w, s)).text);
  } while (s != first);
  tsr_diag_error(c->diags, place_of(c, first, blocked(w, first)), "deadlock: %s", text.data);
  tsr_text_free(&text);
}

/* Every stage that is blocked waits for one that is blocked too, so following them ends in a
 * circle. Each circle is reported once. */
static bool check_circles(const checker *c, tsr_arena *arena) {
  tsr_pipeline_walk walk;
  tsr_pipeline_walk_begin(arena, c->pipeline, &walk);
  for (int stage, index; tsr_pipeline_walk_next(&walk, &stage, &index);) continue;
  int *seen = tsr_arena_array(arena, int, c->pipeline->stages); /* the walk that came by, from 1 */
  bool ok = true;
  for (int begin = 0; begin < c->pipeline->stages; begin++) {
    if (walk.next[begin] == c->pipeline->counts[begin]) continue;
    ok = false;
    int s = begin;
    for (; !seen[s]; s = need_of(&walk, s).stage) seen[s] = begin + 1;
    if (seen[s] == begin + 1) report_circle(c, &walk, s);
  }
  return ok;
}

bool tsr_pipeline_check(const tsr_pipeline *pipeline, tsr_diags *diags) {
  tsr_arena *arena = tsr_arena_new();
  checker c = {.pipeline = pipeline, .diags = diags};
  c.index = tsr_arena_array(
      arena, int,
      (size_t)TSR_ACTION_KINDS *(size_t)pipeline->chunks *(size_t)pipeline->microbatches);
  bool ok = true;
  for (int s = 0; s < pipeline->stages; s++) ok = check_stage(&c, s) && ok;
  ok = ok && check_circles(&c, arena);
  tsr_arena_free(arena);
  return ok;
}
