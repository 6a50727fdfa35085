// SPDX-License-Identifier: Apache-2.0
/* Proves that the verifier bites: single faults, chosen by seed, are put into sound programs. Those
 * that it refuses must be said; those that it accepts are run, in a process of their own on memory
 * full of NaN, and must give the bits that the sound programs give: loss, norm and all weights
 * after two steps. */
#include "effect.h"
#include "faults.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>

typedef harness_trace trace;

enum { SECONDS = 60 };

/* ---- the test ---- */

/* What is verified: the programs of all stages with one that is spoilt; where the fault is on one
 * rank alone, its neighbours on the stage run the sound program. */
typedef struct {
  tsr_programs spoilt, verified;
  tsr_verify_mesh mesh;
} trial;

static bool spoil(mutant *m, const fault *f, const harness *h, trial *ret) {
  int stages = h->programs.pipeline->stages, stage = mutant_below(m, stages);
  ret->verified = ret->spoilt = sample_copy_all(m->arena, &h->programs);
  ret->mesh = sample_mesh(&h->parallel);
  m->p = ret->spoilt.of_stage[stage];
  if (!f->apply(m)) return false;
  if (!f->one_rank) return true;
  const tsr_program **of_rank = tsr_arena_array(m->arena, const tsr_program *, ret->mesh.ranks);
  int chosen = mutant_below(m, ret->mesh.ranks / stages);
  for (int r = 0; r < ret->mesh.ranks; r++)
    if (tsr_parallel_coord(&h->parallel, r, TSR_PP) == stage && !chosen--) of_rank[r] = m->p;
  ret->mesh.of_rank = of_rank;
  ret->verified = h->programs;
  return true;
}

static bool verify(tsr_arena *arena, const trial *t, const char **ret_text) {
  tsr_diags *diags = tsr_diags_new(arena);
  bool ok = tsr_programs_verify(arena, &t->verified, &t->mesh, diags);
  CHECK_INT(tsr_diags_errors(diags) > 0, !ok);
  CHECK(tsr_diags_errors(diags) <= TSR_VERIFY_FINDINGS_MAX);
  *ret_text = printed_diags(arena, diags);
  return ok;
}

static void
try_fault(const harness *h, const trace *want, fault *f, uint64_t seed, const char *name) {
  tsr_arena *arena = tsr_arena_new();
  mutant m = {.arena = arena, .state = seed};
  trial t;
  const char *text, *again;
  if (spoil(&m, f, h, &t)) {
    f->made++;
    if (!verify(arena, &t, &text)) {
      f->refused++;
      verify(arena, &t, &again);
      CHECK_STR(again, text); /* the same findings every time */
    } else
      CHECK_AT(
          effect_is_harmless(arena, h, t.spoilt, want, SECONDS),
          "%s: '%s' with seed %llu was accepted", name, f->name, (unsigned long long)seed);
  }
  tsr_arena_free(arena);
}

static void run_case(harness_options o, int seeds) {
  tsr_arena *arena = tsr_arena_new();
  o = sample_options(o);
  harness h = sample_compile(arena, &o);
  const char *name = sample_text(arena, &o);
  trace want = effect_train(arena, &h, false), poisoned = effect_train(arena, &h, true);
  CHECK_AT(effect_same(&want, &poisoned), "%s: reads what nobody has written", name);
  CHECK_AT(
      effect_is_harmless(arena, &h, h.programs, &want, SECONDS),
      "%s: waits are not where they must be", name);
  for (int i = 0; i < faults_count; i++)
    for (int k = 0; k < seeds; k++) {
      uint64_t seed = (uint64_t)(i * 1000 + k) * 64 + (uint64_t)(o.pp * 7) + o.pipeline * 3 +
                      (uint64_t)(o.zero + o.overlap * 11);
      try_fault(&h, &want, &faults[i], seed + (uint64_t)(o.dp + o.cp), name);
    }
  tsr_arena_free(arena);
}

static void report(void) {
  int made = 0, refused = 0;
  printf("%-42s %6s %8s %9s\n", "fault", "made", "refused", "harmless");
  for (int i = 0; i < faults_count; i++) {
    const fault *f = &faults[i];
    printf("%-42s %6d %8d %9d\n", f->name, f->made, f->refused, f->made - f->refused);
    CHECK_AT(f->refused > 0, "no '%s' was refused", f->name);
    made += f->made;
    refused += f->refused;
  }
  printf("%-42s %6d %8d %9d\n", "all", made, refused, made - refused);
  CHECK(made >= 2000);
}

int main(int argc, char **argv) {
  int seeds = argc > 1 ? atoi(argv[1]) : 4;
  static const struct {
    tsr_pipeline_kind kind;
    int chunks;
  } orders[] = {
      {TSR_PIPELINE_GPIPE, 1},
      {TSR_PIPELINE_1F1B, 1},
      {TSR_PIPELINE_INTERLEAVED, 2},
      {TSR_PIPELINE_ZB_H1, 1},
      {TSR_PIPELINE_ZB_V, 2}};
  run_case((harness_options){.dp = 1, .tp = 1, .microbatches = 1}, seeds);
  run_case((harness_options){.dp = 1, .tp = 1, .microbatches = 4}, seeds);
  run_case((harness_options){.dp = 2, .tp = 1, .microbatches = 2}, seeds);
  run_case((harness_options){.dp = 1, .tp = 2, .microbatches = 2}, seeds);
  run_case((harness_options){.dp = 2, .tp = 2, .microbatches = 2}, seeds);
  run_case(
      (harness_options){.dp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true}, seeds);
  run_case((harness_options){.dp = 2, .tp = 1, .microbatches = 2, .zero = 3}, seeds);
  run_case(
      (harness_options){.dp = 2, .tp = 1, .microbatches = 2, .zero = 2, .zero_owners = true},
      seeds);
  run_case((harness_options){.dp = 1, .tp = 1, .cp = 2, .microbatches = 2}, seeds);
  for (int zero = 0; zero <= 2; zero += 2)
    run_case(
        (harness_options){.dp = 2, .tp = 1, .microbatches = 4, .zero = zero, .tree = TSR_TREE_FLAT},
        seeds);
  for (int zero = 0; zero <= 3; zero += 3)
    for (int microbatches = 1; microbatches <= 2; microbatches++)
      run_case(
          (harness_options){
              .dp = 2, .tp = 1, .microbatches = microbatches, .zero = zero, .overlap = true},
          seeds);
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
    for (int pp = 2; pp <= 4; pp *= 2) {
      harness_options o = {.dp = 1, .tp = 1, .pp = pp, .microbatches = 4};
      o.pipeline = orders[i].kind;
      o.chunks = orders[i].chunks;
      run_case(o, seeds);
    }
  for (int pp = 1; pp <= 2; pp++) {
    harness_options o = {.dp = 1, .tp = 1, .pp = pp, .microbatches = 4, .offload = true};
    o.pipeline = TSR_PIPELINE_1F1B;
    run_case(o, seeds);
  }
  run_case(
      (harness_options){
          .dp = 2,
          .tp = 2,
          .pp = 2,
          .pipeline = TSR_PIPELINE_1F1B,
          .microbatches = 4,
          .overlap = true},
      seeds);
  report();
  return check_done("verify faults");
}
