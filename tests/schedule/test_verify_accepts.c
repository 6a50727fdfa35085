// SPDX-License-Identifier: Apache-2.0
/* The verifier says nothing of sound programs: meshes, pipelines, forward graphs alone. */
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"

static void accept(harness_options o) {
  tsr_arena *arena = tsr_arena_new();
  o = sample_options(o);
  harness h = sample_compile(arena, &o);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  bool ok = tsr_programs_verify(arena, &h.programs, &mesh, diags);
  const char *text = printed_diags(arena, diags);
  CHECK_AT(ok && !*text, "%s:\n%s", sample_text(arena, &o), text);
  tsr_arena_free(arena);
}

static void accept_pipelines(void) {
  static const struct {
    tsr_pipeline_kind kind;
    int chunks;
  } orders[] = {{TSR_PIPELINE_GPIPE, 1},       {TSR_PIPELINE_1F1B, 1},
                {TSR_PIPELINE_INTERLEAVED, 2}, {TSR_PIPELINE_INTERLEAVED, 3},
                {TSR_PIPELINE_ZB_H1, 1},       {TSR_PIPELINE_ZB_V, 2}};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
    for (int pp = 2; pp <= 4; pp *= 2)
      for (int microbatches = 1; microbatches <= 8; microbatches *= 2) {
        harness_options o = {.dp = 1, .tp = 1, .pp = pp, .microbatches = microbatches};
        o.pipeline = orders[i].kind, o.chunks = orders[i].chunks;
        if (o.pipeline == TSR_PIPELINE_INTERLEAVED && microbatches % pp) continue;
        accept(o);
        if (microbatches == 8) continue;
        o.dp = 2, o.zero = pp == 2 ? 3 : 1;
        accept(o);
        o.zero_owners = true;
        accept(o);
        o.overlap = true;
        accept(o);
        o.zero_owners = false;
        accept(o);
        o.tp = 2, o.zero = 0, o.sequence_parallel = true;
        accept(o);
      }
}

static void accept_meshes(void) {
  for (int microbatches = 1; microbatches <= 4; microbatches *= 2)
    for (int dp = 1; dp <= 2; dp++)
      for (int tp = 1; tp <= 4; tp *= 2)
        for (int kind = 0; kind < 7; kind++) {
          int zero = kind < 4 ? kind : kind - 3;
          if (dp == 1 && kind >= 4) continue;
          harness_options o = {.dp = dp, .tp = tp, .microbatches = microbatches, .zero = zero};
          o.zero_owners = kind >= 4;
          accept(o);
          o.overlap = dp > 1;
          accept(o);
          o.recompute.every = 1;
          o.recompute.kind = zero % 2 ? TSR_RECOMPUTE_MAPS : TSR_RECOMPUTE_BLOCKS;
          accept(o);
          o.sequence_parallel = true;
          accept(o);
          o.sequence_parallel = false, o.cp = 2;
          accept(o);
        }
}

/* Beside everything else that a schedule may have. */
static void accept_offload(void) {
  for (size_t i = 0; i < HARNESS_ORDERS; i++)
    for (int microbatches = 2; microbatches <= 4; microbatches *= 2) {
      harness_options o = {
          .dp = 1, .tp = 1, .pp = 2, .microbatches = microbatches, .offload = true};
      o.pipeline = harness_orders[i].kind, o.chunks = harness_orders[i].chunks;
      accept(o);
      o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 2};
      accept(o);
      o.dp = 2, o.zero = 3, o.overlap = true, o.offload_blocks = 1;
      accept(o);
    }
  for (int tp = 1; tp <= 2; tp++) {
    harness_options o = {.dp = 2, .tp = tp, .cp = 2, .microbatches = 2, .offload = true};
    o.sequence_parallel = tp > 1;
    accept(o);
    o = (harness_options){.dp = 2, .ep = 2, .tp = tp, .microbatches = 2, .expert_units = 8};
    o.offload = true;
    accept(o);
  }
}

/* Of the eight units each is a microbatch's on one rank. */
static void accept_flat(void) {
  for (int dp = 1; dp <= 8; dp *= 2)
    for (int zero = 0; zero <= 3; zero++) {
      harness_options o = {.dp = dp, .tp = 1, .zero = zero, .tree = TSR_TREE_FLAT};
      o.microbatches = 8 / dp;
      accept(o);
      o.overlap = true, o.tp = 4;
      accept(o);
      o.tp = 1, o.pp = 2, o.pipeline = TSR_PIPELINE_ZB_H1;
      accept(o);
    }
}

/* Evaluation: forward passes only, over several microbatches. */
static void accept_forward(void) {
  for (int pp = 1; pp <= 4; pp *= 2) {
    tsr_arena *arena = tsr_arena_new();
    harness_options o = sample_options(
        (harness_options){.dp = 1, .tp = 2, .pp = pp, .pipeline = TSR_PIPELINE_FORWARD});
    o.microbatches = 4;
    tsr_graph *g = sample_graph(arena, &o);
    g->loss = -1;
    tsr_diags *diags = tsr_diags_new(arena);
    harness h;
    CHECK(harness_compile(g, &o, &h, diags));
    tsr_verify_mesh mesh = sample_mesh(&h.parallel);
    CHECK(tsr_programs_verify(arena, &h.programs, &mesh, diags));
    CHECK_STR(printed_diags(arena, diags), "");
    tsr_arena_free(arena);
  }
}

int main(void) {
  accept_meshes();
  accept_flat();
  accept_offload();
  accept_pipelines();
  accept_forward();
  return check_done("schedule.verify_accepts");
}
