// SPDX-License-Identifier: Apache-2.0
/* Proves that every rule of the verifier is needed: for each there is a fault that is rejected with
 * this rule's message alone, that is accepted when the rule is left out, and that then does harm
 * when the program runs. A rule is known by the format of its message. The faults are in
 * faults_*.c; check_rules.py compares their rules with the verifier's sources.
 *
 * A seed chooses what is spoilt. The first seeds whose fault is another rule's, too, are passed
 * over. */
#include "effect.h"
#include "faults.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 400, RUNS = 8, SECONDS_HARM = 4, SECONDS_NONE = 60 };

static const rule_faults *const groups[] = {&faults_of_lists,  &faults_of_tasks, &faults_of_memory,
                                            &faults_of_moves,  &faults_of_sums,  &faults_of_graphs,
                                            &faults_of_experts};
enum { GROUPS = sizeof groups / sizeof *groups };

/* ---- sound runs ---- */

typedef struct {
  tsr_arena *arena;
  harness h;
  harness_trace want;
} sound_run;

static harness_options options_of(rule_sample sample) {
  static const harness_options all[RULE_SAMPLES] = {
      [ON_ALONE] = {.dp = 1, .tp = 1, .microbatches = 2},
      [ON_LOSS] = {.dp = 1, .tp = 1, .microbatches = 2},
      [ON_OVERLAP] = {.dp = 2, .tp = 1, .microbatches = 2, .overlap = true},
      [ON_OFFLOAD] = {.dp = 1, .tp = 1, .microbatches = 2, .offload = true},
      [ON_TP] = {.dp = 2, .tp = 2, .microbatches = 2},
      [ON_DP3] = {.dp = 3, .tp = 1, .microbatches = 1},
      [ON_ZERO] = {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3},
      [ON_ZERO_OVERLAP] = {.dp = 2, .tp = 1, .microbatches = 2, .zero = 2, .overlap = true},
      [ON_FLAT] = {.dp = 2, .tp = 1, .microbatches = 4, .zero = 1, .tree = TSR_TREE_FLAT},
      [ON_OWNERS] = {.dp = 2, .tp = 1, .microbatches = 2, .zero = 2, .zero_owners = true},
      [ON_ZIGZAG] =
          {.dp = 2, .tp = 1, .cp = 2, .microbatches = 2, .zigzag = true, .sequence_units = 8},
      [ON_PIPE] = {.dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 4},
      [ON_PIPE_DP] = {.dp = 2, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 2},
      [ON_CHUNKS] =
          {.dp = 1,
           .tp = 1,
           .pp = 2,
           .chunks = 2,
           .pipeline = TSR_PIPELINE_INTERLEAVED,
           .microbatches = 4},
      [ON_FORWARD] =
          {.dp = 2, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_FORWARD, .microbatches = 4},
      [ON_FP8] = {.dp = 2, .tp = 2, .microbatches = 2},
      [ON_EXPERTS] = {.dp = 2, .ep = 2, .tp = 2, .microbatches = 2, .expert_units = 4},
      [ON_EXPERT_AXES] =
          {.dp = 1,
           .ep = 4,
           .cp = 2,
           .tp = 2,
           .microbatches = 2,
           .expert_units = 4,
           .sequence_parallel = true},
  };
  return sample_options(all[sample]);
}

static sound_run open_sound(rule_sample sample) {
  sound_run s = {.arena = tsr_arena_new()};
  tsr_diags *diags = tsr_diags_new(s.arena);
  harness_options o = options_of(sample);
  tsr_graph *g = sample_graph(s.arena, &o);
  if (sample == ON_FORWARD) g->loss = -1; /* evaluation */
  if (sample == ON_FP8) tsr_pass_fp8(g, TSR_FP8_ON, tsr_graph_fp8_weights(g));
  if (!harness_compile(g, &o, &s.h, diags)) tsr_diags_print(diags, stderr), abort();
  if (sample == ON_LOSS) s.h.placed->outputs_count = 1;
  s.want = effect_train(s.arena, &s.h, true);
  return s;
}

/* ---- verifying ---- */

static bool is_rule(const char *format) {
  for (int g = 0; g < GROUPS; g++)
    for (int i = 0; i < groups[g]->count; i++)
      if (!strcmp(groups[g]->items[i].rule, format)) return true;
  return false;
}

typedef struct {
  const char *rule;
  bool leave_out;
  int of_rule, others; /* findings */
} listener;

static bool hear(void *context, const char *format) {
  listener *l = context;
  bool same = !strcmp(l->rule, format);
  CHECK_AT(is_rule(format), "no fault is for the rule \"%s\"", format);
  *(same ? &l->of_rule : &l->others) += 1;
  return same && l->leave_out;
}

static bool verify(mutant *m, listener *l) {
  tsr_diags *diags = tsr_diags_new(m->arena);
  m->mesh->leave_out = hear;
  m->mesh->context = l;
  bool ok = tsr_programs_verify(m->arena, m->programs, m->mesh, diags);
  CHECK_INT(ok, tsr_diags_errors(diags) == 0);
  return ok;
}

/* ---- faults ---- */

typedef enum { PASSED_OVER, PROVED, REFUTED } verdict;

static verdict try_seed(const sound_run *s, const rule_fault *f, mutant *m) {
  tsr_programs programs = sample_copy_all(m->arena, &s->h.programs);
  tsr_verify_mesh mesh = sample_mesh(&s->h.parallel);
  m->programs = &programs;
  m->mesh = &mesh;
  m->h = &s->h;
  m->p = programs.of_stage[mutant_below(m, programs.pipeline->stages)];
  if (!f->apply(m)) return PASSED_OVER;
  listener l = {.rule = f->rule};
  bool accepted = verify(m, &l);
  if (accepted || !l.of_rule || l.others) return PASSED_OVER;
  l = (listener){.rule = f->rule, .leave_out = true};
  if (!verify(m, &l)) return PASSED_OVER;
  if (f->effect == EFFECT_UNRUN) return PROVED;
  bool want_none = f->effect == EFFECT_NONE;
  int seconds = want_none ? SECONDS_NONE : SECONDS_HARM;
  return effect_is_harmless(m->arena, &s->h, programs, &s->want, seconds) == want_none ? PROVED
                                                                                       : REFUTED;
}

static void try_fault(const sound_run *s, const rule_fault *f, int number) {
  verdict found = PASSED_OVER;
  int seed = 0;
  for (int runs = 0; seed < SEEDS && runs < RUNS && found != PROVED; seed++) {
    mutant m = {.arena = tsr_arena_new(), .state = (uint64_t)number * 1000 + (uint64_t)seed};
    found = try_seed(s, f, &m);
    runs += found == REFUTED;
    tsr_arena_free(m.arena);
  }
  static const char *const effects[] = {"harm", "none", "not run"};
  printf("%4d %-8s %s\n", seed, effects[f->effect], f->rule);
  CHECK_AT(found != PASSED_OVER, "no fault is rejected by \"%s\" alone", f->rule);
  CHECK_AT(found != REFUTED, "a fault for \"%s\" has another effect when it runs", f->rule);
  CHECK_AT((f->effect != EFFECT_HARM) == (f->why != NULL), "\"%s\": why?", f->rule);
}

/* Whatever numbers a program has, the verifier reads within its tables and ends. */
static void try_garbage(const sound_run *s, rule_sample sample, int count) {
  for (int k = 0; k < count; k++) {
    mutant m = {.arena = tsr_arena_new(), .state = (uint64_t)sample * 100000 + (uint64_t)k};
    tsr_programs programs = sample_copy_all(m.arena, &s->h.programs);
    tsr_verify_mesh mesh = sample_mesh(&s->h.parallel);
    m.p = programs.of_stage[mutant_below(&m, programs.pipeline->stages)];
    m.programs = &programs;
    m.mesh = &mesh;
    mutant_garble(&m);
    verify(&m, &(listener){.rule = ""});
    tsr_arena_free(m.arena);
  }
}

int main(int argc, char **argv) {
  int garbage = argc > 1 ? atoi(argv[1]) : 300;
  printf("seeds without the rule its message\n");
  for (int sample = 0; sample < RULE_SAMPLES; sample++) {
    sound_run s = open_sound((rule_sample)sample);
    for (int g = 0; g < GROUPS; g++)
      for (int i = 0; i < groups[g]->count; i++)
        if (groups[g]->items[i].sample == (rule_sample)sample)
          try_fault(&s, &groups[g]->items[i], g * 100 + i);
    try_garbage(&s, (rule_sample)sample, garbage);
    tsr_arena_free(s.arena);
  }
  return check_done("verify rules");
}
