// SPDX-License-Identifier: Apache-2.0
/* requires: a whole graph, before placement
 * produces: a virtual stage for every node and parameter
 * invalidates: nothing
 *
 * Forward nodes are split in their order. A backward node belongs to the stage of the forward node
 * that it is for, a parameter to the first stage that uses it, an update to its parameter. */
#include "passes/passes.h"
#include <string.h>

/* The first node of a statement or of a repetition: NAME, or what is made for it, NAME.part. */
static int find_node(const tsr_graph *g, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < g->nodes_count; i++) {
    const char *node = g->nodes[i].name;
    bool starts = !strncmp(node, name, length) && (!node[length] || node[length] == '.');
    starts |= g->nodes[i].result && !strcmp(g->nodes[i].result, name);
    if (g->nodes[i].section <= TSR_FORWARD && starts) return i;
  }
  return -1;
}

/* Where a stage begins in a graph that may lack nodes of the one that was split; -1: nowhere. */
static int find_first(const tsr_graph *g, const tsr_stage_split *split, int stage) {
  int here = find_node(g, split->first[stage]), there = -1;
  if (here >= 0 || !split->of) return here;
  there = find_node(split->of, split->first[stage]);
  for (int i = there; i >= 0 && i < split->of->nodes_count && here < 0; i++)
    if (split->of->nodes[i].section <= TSR_FORWARD) here = find_node(g, split->of->nodes[i].name);
  return here < 0 && there >= 0 ? g->nodes_count : here;
}

static void own(tsr_graph *g, int value, int stage, bool *owned) {
  int param = g->values[value].param;
  if (param < 0 || (owned[param] && g->params[param].stage <= stage)) return;
  g->params[param].stage = stage;
  owned[param] = true;
}

static void split_forward(tsr_graph *g, const int *first, int splits, bool *owned) {
  int stage = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    tsr_node *n = &g->nodes[i];
    if (n->section > TSR_FORWARD) return;
    while (stage < splits && i >= first[stage]) stage++;
    n->stage = stage;
    for (int k = 0; k < n->inputs_count; k++) own(g, n->inputs[k], stage, owned);
  }
}

/* Sums of what several uses of a parameter owe to it belong where they are used, which is behind
 * them. */
static void follow_users(tsr_graph *g) {
  int *user = tsr_arena_array(g->arena, int, g->values_count);
  for (int i = 0; i < g->values_count; i++) user[i] = -1;
  for (int i = g->nodes_count - 1; i >= 0; i--) {
    tsr_node *n = &g->nodes[i];
    if (n->section <= TSR_FORWARD && n->of < 0) continue; /* it has its stage */
    if (tsr_op_facts(n->op) & TSR_FACT_EVERYWHERE) continue;
    if (n->of >= 0) n->stage = g->nodes[n->of].stage;
    else if (!n->outputs_count) n->stage = tsr_value_stage(g, n->inputs[0]);
    else if (user[n->outputs[0]] >= 0) n->stage = user[n->outputs[0]];
    else n->stage = -2; /* no reader decides it: its inputs do */
    for (int k = 0; k < n->inputs_count && n->stage >= 0; k++) user[n->inputs[k]] = n->stage;
  }
}

static void follow_inputs(tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].stage == -2) {
      int stage = tsr_value_stage(g, g->nodes[i].inputs[0]);
      g->nodes[i].stage = stage < 0 ? 0 : stage;
    }
}

static void run_everywhere(tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++) g->nodes[i].stage = TSR_EVERY_STAGE;
  for (int i = 0; i < g->params_count; i++) g->params[i].stage = TSR_EVERY_STAGE;
}

bool tsr_pass_stages(tsr_graph *g, const tsr_stage_split *split, tsr_diags *diags) {
  if (split->everywhere) return run_everywhere(g), true;
  int *first = tsr_arena_array(g->arena, int, split->count + 1);
  bool *owned = tsr_arena_array(g->arena, bool, g->params_count + 1), ok = true;
  for (int i = 0; i < split->count; i++) {
    first[i] = find_first(g, split, i);
    if (first[i] < 0)
      ok = tsr_diag_error(
          diags, split->location, "a stage begins at '%s', which the graph does not have",
          split->first[i]);
    else if (i > 0 && first[i] <= first[i - 1] && !split->of)
      ok = tsr_diag_error(
          diags, split->location, "stage %d begins at '%s', which does not come after '%s'", i + 1,
          split->first[i], split->first[i - 1]);
  }
  if (!ok) return false;
  split_forward(g, first, split->count, owned);
  follow_users(g);
  follow_inputs(g);
  return true;
}

/* Puts back what a node of the backward pass, or of another stage, waits for after all. */
static void keep_awaited(tsr_graph *g) {
  bool *awaited = tsr_arena_array(g->arena, bool, g->values_count);
  for (int i = g->nodes_count - 1; i >= 0; i--) {
    tsr_node *n = &g->nodes[i];
    if (n->section != TSR_BACKWARD && n->section != TSR_WEIGHTS) continue;
    for (int k = 0; k < n->outputs_count; k++)
      if (awaited[n->outputs[k]]) n->section = TSR_BACKWARD;
    for (int k = 0; k < n->inputs_count; k++)
      if (n->section == TSR_BACKWARD || tsr_value_stage(g, n->inputs[k]) != n->stage)
        awaited[n->inputs[k]] = true;
  }
}

/* The weights' gradients, and what only they need: no stage upstream waits for it. */
void tsr_pass_weights(tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++) {
    tsr_node *n = &g->nodes[i];
    if (n->section != TSR_BACKWARD) continue;
    bool late = tsr_op_facts(n->op) & TSR_FACT_GRADIENT;
    for (int k = 0; k < n->inputs_count; k++) {
      int from = g->values[n->inputs[k]].node;
      late |= from >= 0 && g->nodes[from].section == TSR_WEIGHTS;
    }
    if (late) n->section = TSR_WEIGHTS;
  }
  keep_awaited(g);
}
