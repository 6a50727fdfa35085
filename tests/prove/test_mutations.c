// SPDX-License-Identifier: Apache-2.0
/* Random mutations of the mesh's graph, programs, collectives, schedule and units: a proof finds
 * each that changes what is computed. Of a node of the forward pass the interpreter tells whether
 * it does; of all others, and where the interpreter does not know the node, a run of the mutated
 * programs on other samples and weights does, whose results are compared directly with those of the
 * sound programs. What changes nothing is listed with the reason.
 *
 * Of other seeds about one mutation in a thousand shows in the direct runs alone: another order of
 * a sum of one number, the loss or the norm, which mostly rounds to the same bits, or scratch that
 * is overwritten with some loads of experts only. The verifier refuses most of these.
 *
 * usage: test_mutations [SEED [COUNT OF EACH KIND IN PER CENT]] */
#include "direct_run.h"
#include "mutations.h"
#include "prove/prove.h"
#include "tests/check.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60, TRIES = 40, BASES = BUG_RECIPES };

/* How many are made, and how many of these change results at least. */
static const int quotas[MUTATION_KINDS] = {60, 40, 50, 25, 10, 15},
                 least[MUTATION_KINDS] = {40, 24, 20, 14, 6, 4};

typedef struct {
  bug_base base;
  tsr_text sound[DIRECT_RUNS];
} subject;

/* ---- a process of its own ---- */

typedef enum { CHANGES, SAME, UNREAD } oracle;

/* What a child writes as it goes on: what ends it leaves the rest. */
typedef struct {
  volatile bool made, verified, refused, proved, found, interpreted, ran;
  volatile int loss; /* mutation_loss */
  volatile bool differs;
  char place[96]; /* the node's name; empty: it has none */
} report;

static void prove(const bug *b, report *r) {
  tsr_diags *diags = tsr_diags_new(b->arena);
  tsr_text text = {0};
  r->found = !tsr_prove_plan(&b->base->p.request, &b->plan, &text, diags);
  r->proved = true;
}

static void verify(const bug *b, report *r) {
  tsr_verify_mesh mesh = sample_mesh(b->plan.mesh.parallel);
  r->refused = !tsr_programs_verify(
      b->arena, &b->plan.mesh.compiled.programs, &mesh, tsr_diags_new(b->arena));
  r->verified = true;
}

static void run_directly(const bug *b, const subject *s, report *r) {
  for (int i = 0; i < DIRECT_RUNS && !r->differs; i++) {
    tsr_text bytes = {0};
    direct_run(b->arena, &b->plan.mesh, i, &bytes);
    r->differs = bytes.length != s->sound[i].length ||
                 memcmp(bytes.data, s->sound[i].data, bytes.length) != 0;
  }
  r->ran = true;
}

static void interpret(const bug *b, report *r) {
  r->loss = mutation_interpret(b);
  r->interpreted = true;
}

typedef enum { MAKE, VERIFY, PROVE, INTERPRET, RUN, STAGES } stage;

/* Each stage makes the mutation anew, by its seed. */
static void run_stage(const mutation *m, const subject *s, uint64_t seed, stage which, report *r) {
  bug b = bug_begin(tsr_arena_new(), &s->base);
  b.m.state = seed;
  if (!mutation_apply(m, &b)) return;
  if (which == MAKE) {
    snprintf(r->place, sizeof r->place, "%s", b.node < 0 ? "" : b.g->nodes[b.node].name);
    r->made = true;
  }
  if (which == VERIFY) verify(&b, r);
  if (which == PROVE) prove(&b, r);
  if (which == INTERPRET && b.node >= 0) interpret(&b, r);
  if (which == RUN) run_directly(&b, s, r);
}

static void in_child(const mutation *m, const subject *s, uint64_t seed, stage which, report *r) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    if (!freopen("/dev/null", "w", stderr)) _exit(2);
    run_stage(m, s, seed, which, r);
    _exit(0);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) abort();
}

/* ---- one mutation ---- */

typedef struct {
  int made, refused, changes, interpreted, found, crashed, equivalent;
} tally;

/* A program may not read what the interpreter does, as the heads that its tensors have anyway. */
static oracle decide(const mutation *m, const subject *s, uint64_t seed, report *r, tally *t) {
  if (m->kind == MUTATE_FORWARD) in_child(m, s, seed, INTERPRET, r);
  bool differs = r->interpreted && r->loss == LOSS_DIFFERS;
  t->interpreted += differs;
  if (differs && r->found) return CHANGES;
  in_child(m, s, seed, RUN, r);
  return r->differs || !r->ran ? CHANGES : differs ? UNREAD : SAME;
}

static const char *reason_of(const mutation *m, oracle answer) {
  if (answer == UNREAD) return "a number that programs take from the tensors' sizes";
  return m->equivalent ? m->equivalent : "NO REASON";
}

static void try_one(const mutation *m, const subject *s, uint64_t seed, report *r, tally *t) {
  in_child(m, s, seed, VERIFY, r);
  in_child(m, s, seed, PROVE, r);
  const bug_recipe *recipe = s->base.recipe;
  oracle answer = decide(m, s, seed, r, t);
  bool found = r->found || !r->proved, same = answer != CHANGES && !found;
  t->made++;
  t->refused += r->refused || !r->verified;
  t->changes += answer == CHANGES;
  t->found += found;
  t->crashed += !r->proved;
  t->equivalent += same;
  CHECK_AT(
      answer != CHANGES || found,
      "%s '%s' at '%s' of %s, %s with seed %llu changes results and is not found",
      mutation_kind_names[m->kind], m->name, r->place, recipe->family, recipe->mesh,
      (unsigned long long)seed);
  if (!same) return;
  printf(
      "  equivalent: %-13s %-40s %-15s %-23s '%s' verifier %s: %s\n", mutation_kind_names[m->kind],
      m->name, recipe->family, recipe->mesh, r->place, r->refused ? "refuses" : "accepts",
      reason_of(m, answer));
  CHECK_AT(
      m->equivalent || answer == UNREAD, "%s '%s' at '%s' of %s, %s with seed %llu changes nothing",
      mutation_kind_names[m->kind], m->name, r->place, recipe->family, recipe->mesh,
      (unsigned long long)seed);
}

/* ---- all ---- */

static uint64_t next(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

/* One of the operators of a kind. */
static const mutation *choose(const mutation_table *tables, mutation_kind kind, uint64_t *state) {
  const mutation *chosen = NULL;
  uint64_t count = 0;
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < tables[t].count; i++)
      if (tables[t].items[i].kind == kind && next(state) % ++count == 0)
        chosen = &tables[t].items[i];
  return chosen;
}

static void try_kind(
    const mutation_table *tables, mutation_kind kind, const subject *s, int quota, uint64_t *state,
    tally *t) {
  report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (r == MAP_FAILED) abort();
  for (int tries = 0; t->made < quota && tries < quota * TRIES; tries++) {
    const mutation *m = choose(tables, kind, state);
    const subject *of = &s[next(state) % BASES];
    uint64_t seed = next(state);
    memset(r, 0, sizeof *r);
    in_child(m, of, seed, MAKE, r);
    if (r->made) try_one(m, of, seed, r, t);
  }
  munmap(r, sizeof *r);
}

static void open_all(subject *s) {
  for (int i = 0; i < BASES; i++) {
    bug_open(&s[i].base, &bug_recipes[i]);
    for (int k = 0; k < DIRECT_RUNS; k++)
      direct_run(s[i].base.p.arena, &s[i].base.plan.mesh, k, &s[i].sound[k]);
  }
}

int main(int argc, char **argv) {
  uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  int percent = argc > 2 ? atoi(argv[2]) : 100;
  static subject subjects[BASES];
  tsr_arena *arena = tsr_arena_new();
  const mutation_table tables[] = {graph_mutations, run_mutations, program_mutations(arena)};
  tally all = {0};
  open_all(subjects);
  for (int k = 0; k < MUTATION_KINDS; k++) {
    tally t = {0};
    try_kind(tables, (mutation_kind)k, subjects, quotas[k] * percent / 100, &state, &t);
    printf(
        "%-14s %4d made, %3d change results (%d by the interpreter), %3d found (%d crashed), "
        "%2d equivalent; the verifier refuses %d\n",
        mutation_kind_names[k], t.made, t.changes, t.interpreted, t.found, t.crashed, t.equivalent,
        t.refused);
    CHECK_INT(t.made, quotas[k] * percent / 100);
    CHECK_AT(
        t.changes >= least[k] * percent / 100, "%s: %d of %d change results",
        mutation_kind_names[k], t.changes, t.made);
    all.made += t.made;
    all.changes += t.changes;
    all.found += t.found;
    all.equivalent += t.equivalent;
    all.interpreted += t.interpreted;
  }
  printf(
      "%d mutations: %d change results, %d are found, %d are equivalent\n", all.made, all.changes,
      all.found, all.equivalent);
  CHECK_INT(all.found + all.equivalent, all.made);
  CHECK(all.interpreted > 0);
  return check_done("mutations");
}
