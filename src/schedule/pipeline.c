// SPDX-License-Identifier: Apache-2.0
#include "schedule/pipeline.h"
#include "schedule/pipeline_walk.h"
#include <assert.h>
#include <ctype.h>
#include <string.h>

const char *tsr_pipeline_name(tsr_pipeline_kind kind) {
  static const char *const names[TSR_ORDERS] = {"gpipe", "1f1b", "interleaved",
                                                "zb_h1", "zb_v", "forward"};
  assert(kind >= 0 && kind < TSR_ORDERS);
  return names[kind];
}

/* Whether they differ only in capitals, blanks, '-' and '_'. */
static bool is_spelling(const char *a, const char *b) {
  for (;;) {
    a += strspn(a, "-_ ");
    b += strspn(b, "-_ ");
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (!*a) return true;
    a++, b++;
  }
}

tsr_pipeline_kind tsr_pipeline_find(const char *name) {
  /* The last two as PyTorch calls them. */
  static const struct {
    const char *name;
    tsr_pipeline_kind kind;
  } spellings[] = {
      {"gpipe", TSR_PIPELINE_GPIPE},
      {"1f1b", TSR_PIPELINE_1F1B},
      {"interleaved", TSR_PIPELINE_INTERLEAVED},
      {"zbh1", TSR_PIPELINE_ZB_H1},
      {"zbv", TSR_PIPELINE_ZB_V},
      {"interleaved1f1b", TSR_PIPELINE_INTERLEAVED},
      {"zbvzerobubble", TSR_PIPELINE_ZB_V},
  };
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
    if (is_spelling(name, spellings[i].name)) return spellings[i].kind;
  return TSR_ORDERS;
}

tsr_short_text tsr_action_text(tsr_action action) {
  tsr_short_text text;
  char *out = text.text;
  int n = snprintf(out, sizeof text.text, "%c%d", "FBW"[action.kind], action.microbatch);
  if (action.chunk) snprintf(out + n, sizeof text.text - (size_t)n, ".%d", action.chunk);
  return text;
}

/* ---- virtual stages -------------------------------------------------------------------------- */

/* Of every other chunk of a v; it is its own inverse. */
static int turned(const tsr_pipeline *pipeline, int stage, int chunk) {
  return pipeline->v_shaped && chunk % 2 ? pipeline->stages - 1 - stage : stage;
}

int tsr_pipeline_virtual(const tsr_pipeline *pipeline, int stage, int chunk) {
  return chunk * pipeline->stages + turned(pipeline, stage, chunk);
}

void tsr_pipeline_locate(
    const tsr_pipeline *pipeline, int virtual_stage, int *ret_stage, int *ret_chunk) {
  assert(virtual_stage >= 0 && virtual_stage < pipeline->stages * pipeline->chunks);
  *ret_chunk = virtual_stage / pipeline->stages;
  *ret_stage = turned(pipeline, virtual_stage % pipeline->stages, *ret_chunk);
}

bool tsr_pipeline_needs(
    const tsr_pipeline *pipeline, int stage, tsr_action action, tsr_need *ret_need) {
  if (action.kind == TSR_ACTION_WEIGHTS) return false;
  int from = tsr_pipeline_virtual(pipeline, stage, action.chunk);
  from += action.kind == TSR_ACTION_FORWARD ? -1 : 1;
  if (from < 0 || from == pipeline->stages * pipeline->chunks) return false;
  ret_need->action = action;
  tsr_pipeline_locate(pipeline, from, &ret_need->stage, &ret_need->action.chunk);
  return true;
}

int tsr_pipeline_alive(const tsr_pipeline *pipeline, int stage, bool until_weights) {
  if (pipeline->forward_only) return 1;
  tsr_action_kind last =
      until_weights && pipeline->splits_backward ? TSR_ACTION_WEIGHTS : TSR_ACTION_BACKWARD;
  int alive = 0, most = 0;
  for (int i = 0; i < pipeline->counts[stage]; i++) {
    tsr_action_kind kind = pipeline->actions[stage][i].kind;
    if (kind == TSR_ACTION_FORWARD && ++alive > most) most = alive;
    if (kind == last) alive--;
  }
  return most;
}

/* ---- the walk -------------------------------------------------------------------------------- */

int64_t tsr_pipeline_slots(const tsr_pipeline *pipeline) {
  return (int64_t)pipeline->stages * pipeline->chunks * pipeline->microbatches;
}

int64_t tsr_pipeline_slot(const tsr_pipeline *pipeline, int stage, tsr_action action) {
  return ((int64_t)stage * pipeline->chunks + action.chunk) * pipeline->microbatches +
         action.microbatch;
}

static void wake(tsr_pipeline_walk *walk, int stage) {
  if (walk->is_ready[stage]) return;
  walk->is_ready[stage] = true;
  walk->ready[walk->ready_count++] = stage;
}

void tsr_pipeline_walk_begin(
    tsr_arena *arena, const tsr_pipeline *pipeline, tsr_pipeline_walk *ret_walk) {
  tsr_pipeline_walk *w = ret_walk;
  *w = (tsr_pipeline_walk){.pipeline = pipeline};
  w->next = tsr_arena_array(arena, int, pipeline->stages);
  w->ready = tsr_arena_array(arena, int, pipeline->stages);
  w->is_ready = tsr_arena_array(arena, bool, pipeline->stages);
  for (int kind = 0; kind < 2; kind++)
    w->done[kind] = tsr_arena_array(arena, bool, tsr_pipeline_slots(pipeline));
  for (int s = pipeline->stages - 1; s >= 0; s--) wake(w, s);
}

/* The stage that an action may have kept waiting: the one behind for F, the one before for B. */
static void wake_next(tsr_pipeline_walk *w, int stage, tsr_action action) {
  int last = w->pipeline->stages * w->pipeline->chunks - 1, chunk;
  int to = tsr_pipeline_virtual(w->pipeline, stage, action.chunk);
  to += action.kind == TSR_ACTION_FORWARD ? 1 : -1;
  if (to < 0 || to > last) return;
  tsr_pipeline_locate(w->pipeline, to, &stage, &chunk);
  wake(w, stage);
}

bool tsr_pipeline_walk_next(tsr_pipeline_walk *w, int *ret_stage, int *ret_index) {
  while (w->ready_count) {
    int s = w->ready[w->ready_count - 1], i = w->next[s];
    const tsr_action *a = i < w->pipeline->counts[s] ? &w->pipeline->actions[s][i] : NULL;
    tsr_need need;
    if (!a || (tsr_pipeline_needs(w->pipeline, s, *a, &need) &&
               !w->done[a->kind][tsr_pipeline_slot(w->pipeline, need.stage, need.action)])) {
      w->is_ready[s] = false;
      w->ready_count--;
      continue;
    }
    w->next[s]++;
    if (a->kind != TSR_ACTION_WEIGHTS) {
      w->done[a->kind][tsr_pipeline_slot(w->pipeline, s, *a)] = true;
      wake_next(w, s, *a);
    }
    *ret_stage = s;
    *ret_index = i;
    return true;
  }
  return false;
}
