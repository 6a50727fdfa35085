// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache as tests make it: chunks by one program and single tokens by another take
 * turns until every sequence is whole, and all logits are kept. */
#ifndef TSR_TESTS_CACHE_CASE_H
#define TSR_TESTS_CACHE_CASE_H
#include "harness.h"

/* As harness.h writes them, from `tokens` (B,T), which are below 24, to `logits`. */
typedef struct {
  const char *name, *params, *calls;
} cache_model;

typedef struct {
  int pp, dp, cp, tp, threads, ep; /* threads, ep 0: 1 */
} cache_mesh;

enum { CACHE_SAMPLES_MAX = 4 };

typedef struct {
  const cache_model *model;
  int64_t B, T;
  /* A sample is a unit of the batch: products have the same shapes on every mesh. */
  bool unit_samples;
  cache_mesh mesh;
  tsr_dtype dtype;
  const tsr_device *device;                   /* NULL: the CPU */
  void (*look)(const tsr_programs *programs); /* at each that is about to run; may be NULL */
  int64_t chunk;                              /* 0: the whole window, without a cache */
  bool last_only;                             /* logits of a run's last tokens alone */
  uint64_t seed; /* of turns and counts; 0: chunks in which every sequence takes all it can */
} cache_case;

/* (B,T,width) of the tokens (B,T) that are `there`: of others none were asked for. */
typedef struct {
  float *data;
  bool *there;
  int64_t width;
} cache_logits;

tsr_graph *cache_case_graph(tsr_arena *arena, const cache_case *c);
/* Ends the process where the model cannot be run so. */
cache_logits cache_case_run(tsr_arena *arena, const cache_case *c);
const char *cache_case_text(tsr_arena *arena, const cache_case *c);
/* NULL where `got`, the case's, has the bits of `want` for a token; else what is wrong. Both may
 * lack a token that is not the last one where the case asks for last ones only. */
const char *cache_case_other(
    tsr_arena *arena, const cache_case *c, const cache_logits *got, const cache_logits *want,
    int64_t token);

#endif
