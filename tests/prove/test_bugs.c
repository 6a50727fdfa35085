// SPDX-License-Identifier: Apache-2.0
/* A proof finds bugs of distributed training that were published: each class as several faults, on
 * several models and meshes. Each must be found, and the message must name a tensor that is made
 * from what the fault spoils, by its line in the graph file. Whether the static verifier refuses a
 * fault, too, is counted for itself. */
#include "bug_classes.h"
#include "tests/check.h"

enum { LEAST_VARIANTS = 2 };

typedef struct {
  int variants, refused, found;
  bug_run first; /* the run of the first variant */
  bool runs;     /* there is one of another run */
} tally;

static const char *text_of(bug_outcome o) {
  return o == BUG_FOUND ? "found" : o == BUG_MISSED ? "MISSED" : "CRASHED";
}

/* The report names the kind that differs first, and its step, which is that of the message: weights
 * and state differ after it, what makes losses and gradients in it. */
static bool is_kind(const bug_result *r) {
  const char *step = strstr(r->first, " of step "), *named = strstr(r->message, " step ");
  bool later = !strncmp(r->first, "weights of", 10) || !strncmp(r->first, "optimizer state of", 18);
  bool earlier = !strncmp(r->first, "losses of", 9) || !strncmp(r->first, "gradients of", 12);
  bool after = strstr(r->message, " after step ") != NULL;
  return later != earlier && later == after && step && named && step[9] == named[6];
}

static void try_variant(const bug_variant *v, tally *of) {
  const bug_recipe *recipe = &bug_recipes[v->run];
  bug_base base;
  bug_open(&base, recipe);
  bug b = bug_begin(base.p.arena, &base);
  v->apply(&b);
  bug_result r = bug_try(&b);
  bool downstream = r.proof == BUG_FOUND && bug_is_downstream(&b, &r);
  printf(
      "  %-26s %-16s %-24s %-36s verifier %-7s proof %-7s %s:%d %.90s\n", bug_class_names[v->class],
      recipe->family, recipe->mesh, v->name,
      r.verifier_crashed ? "crashed"
      : r.refused        ? "refuses"
                         : "accepts",
      text_of(r.proof), strrchr(r.file, '/') ? strrchr(r.file, '/') + 1 : r.file, r.line,
      r.message);
  CHECK_AT(
      is_kind(&r), "%s, %s: '%s' differs first, and: %s", bug_class_names[v->class], v->name,
      r.first, r.message);
  CHECK_AT(r.proof == BUG_FOUND, "%s, %s: not found", bug_class_names[v->class], v->name);
  CHECK_AT(
      downstream, "%s, %s: not downstream of the fault: %s:%d: %s", bug_class_names[v->class],
      v->name, r.file, r.line, r.message);
  of->refused += r.refused;
  of->found += r.proof == BUG_FOUND;
  if (!of->variants++) of->first = v->run;
  of->runs |= of->first != v->run;
  bug_close(&base);
}

int main(void) {
  const bug_variants *all[] = {&bugs_of_sums, &bugs_of_moves, &bugs_of_splits};
  tally classes[BUG_CLASSES] = {0};
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < all[t]->count; i++)
      try_variant(&all[t]->items[i], &classes[all[t]->items[i].class]);
  printf("%-28s %8s %8s %6s\n", "class", "variants", "verifier", "proof");
  int found = 0;
  for (int i = 0; i < BUG_CLASSES; i++) {
    const tally *c = &classes[i];
    printf("%-28s %8d %8d %6d\n", bug_class_names[i], c->variants, c->refused, c->found);
    CHECK_AT(c->variants >= LEAST_VARIANTS && c->runs, "%s: too few", bug_class_names[i]);
    CHECK_INT(c->found, c->variants);
    found += c->found;
  }
  CHECK(found >= 50);
  return check_done("bugs");
}
