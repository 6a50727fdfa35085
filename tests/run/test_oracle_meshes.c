// SPDX-License-Identifier: Apache-2.0
/* The graphs of oracle_cases.c on meshes: losses, gradient norms and weights after two clipped
 * updates have the bits that one rank gives them, for every mesh that the recipe's units allow.
 * usage: test_run_oracle_meshes [CASE]: that case alone */
#include "oracle_cases.h"
#include "tests/check.h"
#include "tests/replicas.h"
#include <stdlib.h>

enum { STEPS = 2, NUMBERS = 4 };

static const tsr_optimizer adamw = HARNESS_ADAMW(0.01);

typedef struct {
  const oracle_case *c;
  const oracle_recipe *r;
  int compared, refused;
} meshes;

/* Loss, norm, factor and whether there is an update, of each step; then all weights. */
static harness_trace train(tsr_arena *arena, const meshes *m, const harness_options *o) {
  harness h = harness_open(arena, oracle_build(arena, m->c, m->r), o);
  harness_trace t = {0};
  int64_t n;
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep(arena, &t, harness_read(arena, &h, "loss", &n), 1);
    harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 3);
  }
  harness_keep_weights(arena, &h, &t);
  const char *differs = differing_replicas(arena, h.executable);
  CHECK_AT(!differs, "%s: replicas of '%s' differ", m->c->name, differs);
  harness_close(&h);
  return t;
}

static bool is_accepted(const meshes *m, const harness_options *o) {
  tsr_arena *arena = tsr_arena_new();
  harness h;
  bool ok = harness_compile(oracle_build(arena, m->c, m->r), o, &h, tsr_diags_new(arena));
  tsr_arena_free(arena);
  return ok;
}

static void compare(meshes *m, const harness_trace *want, const harness_options *o) {
  if (!is_accepted(m, o)) {
    m->refused++;
    return;
  }
  tsr_arena *arena = tsr_arena_new();
  harness_trace got = train(arena, m, o);
  int64_t i = 0;
  while (i < got.count && i < want->count && !memcmp(got.data + i, want->data + i, 4)) i++;
  CHECK_AT(
      i == want->count && i == got.count,
      "%s, %s, dp %d ep %d cp %d%s tp %d%s, zero %d%s%s: number %d (of %d, the weights from %d on) "
      "is "
      "%.9g, on "
      "one rank %.9g",
      m->c->name, m->r->name, o->dp, o->ep, o->cp, o->zigzag ? " zigzag" : "", o->tp,
      o->sequence_parallel ? " sequence parallel" : "", o->zero,
      o->zero_owners ? " with owners" : "", o->overlap ? " overlapped" : "", (int)i,
      (int)want->count, NUMBERS * STEPS, i < got.count ? (double)got.data[i] : 0,
      i < want->count ? (double)want->data[i] : 0);
  m->compared++;
  tsr_arena_free(arena);
}

static void run_mesh(meshes *m, const harness_trace *want, harness_options o) {
  bool many = o.dp * o.ep * o.cp * o.tp > 1;
  for (o.zero = 0; o.zero <= (o.dp > 1 ? 3 : 0); o.zero++) {
    o.overlap = o.zero == 2;
    bool may_split = o.tp > 1 && o.cp * o.tp <= m->r->sequence && !o.zigzag;
    for (int parallel = 0; parallel <= may_split; parallel++) {
      o.sequence_parallel = parallel;
      if (many) compare(m, want, &o);
      o.zero_owners = o.zero > 0;
      if (o.zero_owners) compare(m, want, &o);
      o.zero_owners = false;
    }
  }
}

static void run_layout(meshes *m, bool zigzag) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = oracle_options(m->r);
  o.optimizer = &adamw;
  o.zigzag = zigzag;
  o.ep = o.cp = 1;
  o.threads = 1;
  harness_trace want = train(arena, m, &o);
  for (o.dp = 1; o.dp <= m->r->batch; o.dp *= 2)
    for (o.ep = 1; o.dp * o.ep <= m->r->batch; o.ep *= 2)
      for (o.cp = 1; o.cp * (1 + zigzag) <= (m->r->sequence ? m->r->sequence : 1); o.cp *= 2)
        for (o.tp = 1; o.tp <= m->r->tp; o.tp *= 2) run_mesh(m, &want, o);
  tsr_arena_free(arena);
}

int main(int argc, char **argv) {
  int compared = 0, refused = 0;
  for (int i = 0; i < oracle_cases_count; i++)
    for (int k = 0; k < ORACLE_RECIPES; k++) {
      meshes m = {.c = &oracle_cases[i], .r = &oracle_recipes[k]};
      bool many = m.r->batch > 1 && m.r->microbatches == 1;
      if (!many || m.c->refused >> k & 1 || (argc > 1 && strcmp(argv[1], m.c->name))) continue;
      run_layout(&m, false);
      if (m.r->sequence) run_layout(&m, true);
      if (argc > 1) printf("%s: %d meshes, %d refused\n", m.r->name, m.compared, m.refused);
      compared += m.compared;
      refused += m.refused;
    }
  CHECK_AT(argc > 1 || compared > 20 * refused, "%d meshes, %d refused", compared, refused);
  CHECK(compared > 0);
  return check_done("oracle_meshes");
}
