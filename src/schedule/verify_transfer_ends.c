// SPDX-License-Identifier: Apache-2.0
/* What a stage exchanges with others: the two ends of a transfer, the tasks that move data. */
#include "schedule/verify_checks.h"

static int stage_of(const tsr_verify *v, int virtual_stage) {
  int stage, chunk;
  tsr_pipeline_locate(v->programs->pipeline, virtual_stage, &stage, &chunk);
  return stage;
}

int tsr_verify_source(const tsr_verify *v, int node) {
  return stage_of(v, tsr_value_stage(v->graph, v->graph->nodes[node].inputs[0]));
}

int tsr_verify_target(const tsr_verify *v, int node) {
  return stage_of(v, v->graph->nodes[node].stage);
}

int tsr_verify_transfer_microbatch(const tsr_graph *g, int node, int microbatch) {
  const tsr_value *x = &g->values[g->nodes[node].inputs[0]];
  tsr_section made = x->kind == TSR_VALUE_NODE ? g->nodes[x->node].section : TSR_PROLOGUE;
  return made == TSR_PROLOGUE || g->nodes[node].section == TSR_UPDATE ? 0 : microbatch;
}

bool tsr_verify_walk_next(tsr_verify_walk *w) {
  const tsr_program *p = w->s->p;
  for (; w->run < p->runs_count; w->run++, w->at = 0) {
    const tsr_run *run = &p->runs[w->run];
    while (w->at < w->s->moves_count[run->part]) {
      w->task = w->s->moves[run->part][w->at++];
      w->microbatch = run->microbatch;
      if (tsr_verify_runs(w->v, &p->tasks[w->task], run->microbatch)) return true;
    }
  }
  return false;
}
