// SPDX-License-Identifier: Apache-2.0
/* A plan with a fault, verified and proved in a process of its own, and what the message names. */
#include "bug.h"
#include "prove/prove.h"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60 };

/* ---- the child ---- */

/* What the two processes share. */
typedef struct {
  volatile bool verified, proved;
  bug_result result;
} report;

static void run_verifier(const bug *b, report *r) {
  tsr_diags *diags = tsr_diags_new(b->arena);
  tsr_verify_mesh mesh = sample_mesh(b->plan.mesh.parallel);
  r->result.refused = !tsr_programs_verify(b->arena, &b->plan.mesh.compiled.programs, &mesh, diags);
  r->verified = true;
}

/* "bits: the losses of step 1 differ first" */
static void copy_first(const tsr_text *text, bug_result *r) {
  const char *end = strstr(text->data, " differ first\n"), *begin = end;
  while (begin && begin > text->data && begin[-1] != '\n') begin--;
  const char *words = "bits: the ";
  if (end && !strncmp(begin, words, strlen(words)))
    snprintf(r->first, sizeof r->first, "%.*s", (int)(end - begin - 10), begin + 10);
}

static void run_proof(const bug *b, report *r) {
  tsr_diags *diags = tsr_diags_new(b->arena);
  tsr_text text = {0};
  bool ok = tsr_prove_plan(&b->base->p.request, &b->plan, &text, diags);
  tsr_location location = tsr_diags_first_location(diags);
  snprintf(
      r->result.message, sizeof r->result.message, "%s", ok ? "" : tsr_diags_first_error(diags));
  snprintf(r->result.file, sizeof r->result.file, "%s", location.file ? location.file : "");
  r->result.line = location.line;
  copy_first(&text, &r->result);
  r->result.proof = ok ? BUG_MISSED : BUG_FOUND;
  r->proved = true;
}

/* The fault may end or stop the process. */
static void in_child(const bug *b, report *r, void run(const bug *, report *)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    if (!freopen("/dev/null", "w", stderr)) _exit(2);
    run(b, r);
    _exit(0);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) abort();
}

bug_result bug_try(const bug *b) {
  report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (r == MAP_FAILED) abort();
  in_child(b, r, run_verifier);
  in_child(b, r, run_proof);
  bug_result result = r->result;
  result.verifier_crashed = !r->verified;
  if (!r->proved) result.proof = BUG_CRASHED;
  munmap(r, sizeof *r);
  return result;
}

/* ---- what is made from what ---- */

static bool is_gradient(const char *message) { return !strncmp(message, "the gradient of '", 17); }

const char *bug_named(const bug *b, const char *message) {
  const char *begin = strchr(message, '\''), *end = begin ? strchr(begin + 1, '\'') : NULL;
  return end ? tsr_arena_printf(b->arena, "%.*s", (int)(end - begin - 1), begin + 1) : "";
}

/* Whether a message is about a value: it has its name, or the value is a form that a collective
 * gives to what has. */
static bool is_named(const bug *b, const char *message, int value) {
  const tsr_graph *g = b->g;
  const char *name = bug_named(b, message), *of = g->values[value].name;
  const char *stats = tsr_arena_printf(b->arena, "norm_stats.%s", name);
  size_t length = strlen(name);
  if (!strcmp(name, "loss")) return value == g->loss;
  if (!strcmp(name, "clip")) return value == tsr_graph_find_output(g, "clip");
  for (int i = 0; i < g->nodes_count && is_gradient(message); i++)
    if (!strcmp(g->nodes[i].name, stats)) return value == g->nodes[i].inputs[0];
  for (int i = 0; i < g->outputs_count; i++)
    if (!strcmp(g->outputs[i].name, name)) return value == g->outputs[i].value;
  return !strncmp(of, name, length) && (!of[length] || of[length] == '.');
}

static bool reads_any(const tsr_node *n, const bool *reached) {
  for (int i = 0; i < n->inputs_count; i++)
    if (reached[n->inputs[i]]) return true;
  return false;
}

/* What an update writes. */
static void reach_updated(const tsr_graph *g, const tsr_node *n, bool *reached) {
  if (!(tsr_op_facts(n->op) & TSR_FACT_UPDATE)) return;
  for (int i = 0; i < n->inputs_count; i++) {
    tsr_value_kind kind = g->values[n->inputs[i]].kind;
    if (kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE) reached[n->inputs[i]] = true;
  }
}

/* In a step, what weights that have changed make is of the next one. A stale value is read, so what
 * its readers make counts. */
static void reach_step(const bug *b, bool *reached) {
  const tsr_graph *g = b->g;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool update = tsr_op_facts(n->op) & TSR_FACT_UPDATE;
    if (i != b->node && !reads_any(n, reached)) continue;
    for (int o = 0; o < n->outputs_count; o++) reached[n->outputs[o]] = true;
    if (update) reach_updated(g, n, reached);
  }
}

static tsr_location location_of(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  if (v->param >= 0) return g->params[v->param].location;
  return v->node >= 0 ? g->nodes[v->node].location : v->location;
}

static tsr_location location_of_param(const tsr_graph *g, const char *name) {
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, name)) return g->params[p].location;
  return TSR_NOWHERE;
}

/* The line of the parameter, or of the node that has made the value. */
static bool is_line_of(const bug *b, const bug_result *r, int value) {
  const tsr_graph *g = b->g;
  bool clip = !strcmp(bug_named(b, r->message), "clip");
  tsr_location at = is_gradient(r->message) ? location_of_param(g, bug_named(b, r->message))
                                            : location_of(g, value);
  return strstr(r->file, "configs/graphs/") && (clip ? r->line > 0 : r->line == at.line);
}

bool bug_is_downstream(const bug *b, const bug_result *r) {
  const tsr_graph *g = b->g;
  bool *reached = tsr_arena_array(b->arena, bool, g->values_count + 1);
  bool first_step = strstr(r->message, "step 1") != NULL, found = false;
  if (b->node < 0 || (first_step && b->next_step)) return false;
  for (int pass = 0; pass < (first_step ? 1 : 2); pass++) reach_step(b, reached);
  for (int v = 0; v < g->values_count; v++)
    found |= reached[v] && is_named(b, r->message, v) && is_line_of(b, r, v);
  return found;
}
