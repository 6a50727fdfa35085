// SPDX-License-Identifier: Apache-2.0
/* What would suit the model better, and notes that need no machine. */
#include "plan/report.h"
#include <string.h>

/* Bytes that training a model keeps, whole: parameters, a gradient each, the optimizer's state. */
static double kept_bytes(const tsr_graph *g) {
  double bytes = 0;
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind != TSR_VALUE_PARAM && v->kind != TSR_VALUE_STATE) continue;
    double own = (double)tsr_dtype_size(v->dtype, tsr_value_elements(v));
    bytes += v->kind == TSR_VALUE_PARAM && g->loss >= 0 ? 2 * own : own;
  }
  return bytes;
}

static double parameters_of(const tsr_graph *g) {
  double count = 0;
  for (int i = 0; i < g->params_count; i++) {
    double n = 1;
    for (int d = 0; d < g->params[i].ndim; d++) n *= (double)g->params[i].shape[d];
    count += n;
  }
  return count;
}

/* ---- which strategy ---- */

/* The most ranks that the innermost links join: as far as tp should reach. */
static int64_t near_devices(const tsr_machine *m) {
  return m->links_count && m->links[0].devices ? m->links[0].devices : 8;
}

/* A rank's share of the memory; a host's is for all of its ranks. */
static double memory_of_rank(const tsr_report *r) {
  double memory = (double)r->machine->memory;
  return r->machine->threads ? memory / r->parallel->ranks : memory;
}

/* Small: whole on every rank with room for activations. Large: not even half would do. */
static void advise_strategy(const tsr_report *r, tsr_text *text) {
  double kept = kept_bytes(r->graph), have = memory_of_rank(r);
  const tsr_short_text whole = tsr_text_bytes((int64_t)kept);
  int64_t samples = r->parallel->batch_size * r->programs->pipeline->microbatches;
  if (r->graph->loss < 0) return;
  if (4 * kept <= have && samples >= r->parallel->ranks) {
    tsr_text_add(
        text,
        "advice: data parallel (dp) suits this model: parameters, gradients and state are %s "
        "whole, "
        "which every rank can hold; dp alone sums gradients once a step and nothing else\n",
        whole.text);
  } else if (2 * kept > have) {
    tsr_text_add(
        text,
        "advice: tensor parallel (tp) suits this model: parameters, gradients and state are %s "
        "whole, %.3g times what a rank has; each rank of tp = n holds 1/n of the weights, up to "
        "the "
        "%lld devices that %s joins; then pp, and zero over dp\n",
        whole.text, kept / have, (long long)near_devices(r->machine),
        r->machine->links_count ? r->machine->links[0].name : "one host");
  }
}

/* ---- what does not fit ---- */

static void advise_memory(const tsr_report *r, tsr_text *text) {
  int stages = r->programs->pipeline->stages;
  double have = memory_of_rank(r);
  tsr_memory m, most = {0};
  for (int s = 0; s < stages; s++) {
    tsr_memory_of(r->programs, r->programs_count, s, &m);
    if (m.total > most.total) most = m;
  }
  if ((double)most.total <= have) return;
  const int64_t *use = most.fullest->peak_bytes;
  if (use[TSR_USE_ACTIVATION] > most.total / 4 &&
      (r->config->schedule.recompute == TSR_RECOMPUTE_NONE ||
       r->config->schedule.recompute == TSR_RECOMPUTE_CHEAP))
    tsr_text_add(
        text, "advice: %s of activations: schedule.recompute: full computes them again instead\n",
        tsr_text_bytes(use[TSR_USE_ACTIVATION]).text);
  if (r->parallel->size[TSR_DP] > 1 && r->config->zero.stage < 3 && !r->parallel->fsdp)
    tsr_text_add(
        text, "advice: zero.stage: %lld shares out %s over dp = %d\n",
        (long long)r->config->zero.stage + 1,
        r->config->zero.stage == 0   ? "the optimizer's state"
        : r->config->zero.stage == 1 ? "gradients too"
                                     : "parameters too",
        r->parallel->size[TSR_DP]);
}

/* ---- the pipeline ---- */

static double bubble_of(int stages, int chunks, int microbatches) {
  return 100.0 * (stages - 1) / (chunks * microbatches + stages - 1);
}

static void advise_pipeline(const tsr_report *r, tsr_text *text) {
  const tsr_pipeline *o = r->programs->pipeline;
  double bubble = 100 * r->estimate->times.bubble, most = 0, sum = 0;
  if (o->stages == 1) return;
  if (bubble > 15 && !o->forward_only)
    tsr_text_add(
        text, "advice: a bubble of %.0f%%: with %d microbatches it would be about %.0f%%%s\n",
        bubble, 2 * o->microbatches, bubble_of(o->stages, o->chunks, 2 * o->microbatches),
        o->chunks > 1
            ? ""
            : tsr_arena_printf(
                  r->graph->arena, ", with schedule interleaved and 2 chunks about %.0f%%",
                  bubble_of(o->stages, 2, o->microbatches)));
  for (int s = 0; s < o->stages; s++) {
    sum += r->estimate->stages[s].flops;
    if (r->estimate->stages[s].flops > most) most = r->estimate->stages[s].flops;
  }
  if (most * o->stages > 1.1 * sum)
    tsr_text_add(
        text, "advice: stages are uneven: pipeline.balance: flops, blocks_per_rank or stages by "
              "name split "
              "the model elsewhere\n");
}

void tsr_report_advise(const tsr_report *r, tsr_text *text) {
  advise_strategy(r, text);
  advise_memory(r, text);
  advise_pipeline(r, text);
}

/* ---- notes ---- */

enum { AXES_WANTED = 3 };
static const double many_parameters = 1e12;

void tsr_plan_lint(
    const tsr_config *c, const tsr_parallel *p, const tsr_graph *g, tsr_diags *diags) {
  double parameters = parameters_of(g);
  int axes = 0;
  for (int a = 0; a < TSR_AXES; a++) axes += p->size[a] > 1;
  if (parameters > many_parameters && axes < AXES_WANTED)
    tsr_diag_note(
        diags, tsr_config_location(c, "device_config.mesh_shape"),
        "%.3g parameters on a mesh of %d ax%s: models of more than 10^12 need three, such as dp, "
        "pp "
        "and tp",
        parameters, axes, axes == 1 ? "is" : "es");
  if (c->numerics.policy == TSR_NUMERICS_FAST && p->size[TSR_DP] > 1 &&
      c->schedule.all_reduce_overlap == TSR_OVERLAP_OFF)
    tsr_diag_note(
        diags, tsr_config_location(c, "schedule.all_reduce_overlap"),
        "'fast' without schedule.all_reduce_overlap: the gradients' sums wait for the backward "
        "pass");
}
