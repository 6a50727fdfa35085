// SPDX-License-Identifier: Apache-2.0
/* Pipeline orders by brute force: stages are looked at over and over until nothing moves. */
#ifndef TSR_TESTS_SCHEDULE_NAIVE_H
#define TSR_TESTS_SCHEDULE_NAIVE_H
#include "schedule/pipeline.h"
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* 0 .. below - 1 */
static inline int naive_random(uint64_t *seed, int below) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((*seed >> 33) % (uint64_t)below);
}

/* Writes a new file; `path` ends in XXXXXX. */
static inline void naive_file(char *path, const char *text, size_t length) {
  int fd = mkstemp(path);
  assert(fd >= 0);
  ssize_t put = write(fd, text, length);
  assert(put == (ssize_t)length);
  close(fd);
}

static inline int naive_virtual(const tsr_pipeline *o, int stage, int chunk) {
  bool turns = o->v_shaped && chunk % 2 == 1;
  return chunk * o->stages + (turns ? o->stages - 1 - stage : stage);
}

typedef struct {
  bool sound;
  double **end; /* per stage, per action */
} naive_result;

typedef struct {
  const tsr_pipeline *pipeline;
  const tsr_pipeline_costs *costs; /* NULL: everything takes no time */
  bool *done;                      /* per kind, virtual stage and microbatch */
  double *end;                     /* the same */
  int *stage;                      /* per virtual stage */
} naive_state;

static inline int naive_slot(const naive_state *n, int kind, int v, int microbatch) {
  return (kind * n->pipeline->stages * n->pipeline->chunks + v) * n->pipeline->microbatches +
         microbatch;
}

/* Whether it is done, and later than *when if so: then *when is that. */
static inline bool
naive_has(const naive_state *n, int kind, int v, int microbatch, int stage, double *when) {
  int slot = naive_slot(n, kind, v, microbatch);
  if (!n->done[slot]) return false;
  double there = n->end[slot];
  if (n->costs && n->stage[v] != stage) there += n->costs->send;
  if (there > *when) *when = there;
  return true;
}

static inline bool naive_may(const naive_state *n, int stage, tsr_action a, double *when) {
  int v = naive_virtual(n->pipeline, stage, a.chunk),
      last = n->pipeline->stages * n->pipeline->chunks - 1;
  if (a.kind == TSR_ACTION_WEIGHTS) return naive_has(n, 1, v, a.microbatch, stage, when);
  if (a.kind == TSR_ACTION_BACKWARD)
    return naive_has(n, 0, v, a.microbatch, stage, when) &&
           (v == last || naive_has(n, 1, v + 1, a.microbatch, stage, when));
  return v == 0 || naive_has(n, 0, v - 1, a.microbatch, stage, when);
}

static inline bool naive_fits(const tsr_pipeline *o, tsr_action a) {
  return a.microbatch >= 0 && a.microbatch < o->microbatches && a.chunk >= 0 &&
         a.chunk < o->chunks && (a.kind != TSR_ACTION_WEIGHTS || o->splits_backward) &&
         (a.kind == TSR_ACTION_FORWARD || !o->forward_only);
}

/* False if it must not stand here at all. */
static inline bool naive_do(const naive_state *n, int stage, tsr_action a, double *when) {
  int v = naive_virtual(n->pipeline, stage, a.chunk), slot = naive_slot(n, a.kind, v, a.microbatch);
  if (n->done[slot]) return false;
  if (n->costs) {
    const double *costs[] = {n->costs->forward, n->costs->backward, n->costs->weights};
    *when += costs[a.kind][v];
  }
  n->done[slot] = true;
  n->end[slot] = *when;
  return true;
}

static inline naive_result
naive_run(tsr_arena *memory, const tsr_pipeline *o, const tsr_pipeline_costs *costs) {
  int slots = 3 * o->stages * o->chunks * o->microbatches, did = 0, actions = 0;
  naive_state n = {o, costs, tsr_arena_array(memory, bool, slots)};
  n.end = tsr_arena_array(memory, double, slots);
  n.stage = tsr_arena_array(memory, int, o->stages * o->chunks);
  int *next = tsr_arena_array(memory, int, o->stages);
  naive_result r = {.end = tsr_arena_array(memory, double *, o->stages)};
  for (int s = 0; s < o->stages; s++) {
    actions += o->counts[s];
    r.end[s] = tsr_arena_array(memory, double, o->counts[s]);
    for (int c = 0; c < o->chunks; c++) n.stage[naive_virtual(o, s, c)] = s;
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < o->stages; s++) {
      if (next[s] == o->counts[s]) continue;
      tsr_action a = o->actions[s][next[s]];
      double when = next[s] ? r.end[s][next[s] - 1] : 0;
      if (!naive_fits(o, a)) return r;
      if (!naive_may(&n, s, a, &when)) continue;
      if (!naive_do(&n, s, a, &when)) return r;
      r.end[s][next[s]++] = when;
      did++;
      moved = true;
    }
  }
  int kinds = o->forward_only ? 1 : o->splits_backward ? 3 : 2;
  r.sound = did == actions && did == slots / 3 * kinds;
  return r;
}

#endif
