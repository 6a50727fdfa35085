// SPDX-License-Identifier: Apache-2.0
#include "prove/prove.h"
#include "base/command_progress.h"
#include "prove/locate.h"
#include "prove/not_shown.h"
#include "prove/proof_table.h"
#include "prove/reference.h"
#include "prove/updates.h"
#include <math.h>
#include <string.h>

/* Loss and norm where no bits are promised; half precision rounds 2^13 and 2^16 times coarser. */
static const double fast_tolerance = 1e-4, fast_tolerance_half = 2e-2;

typedef struct {
  const tsr_prove_request *request;
  const tsr_reduced_run *plan;
  tsr_synthetic data;
  tsr_recording how;
  tsr_state mesh, single;
  tsr_text *text;
  tsr_diags *diags;
} prover;

static bool is_half(const prover *p) {
  return p->request->config->training.precision != TSR_PRECISION_F32;
}

/* ---- the mesh and one rank ---- */

static void add_losses(const prover *p) {
  for (int i = 0; i < p->mesh.recorded; i++) {
    const tsr_recorded_step *mesh = &p->mesh.steps[i], *single = &p->single.steps[i];
    tsr_text_add(
        p->text,
        "step %d: loss %.9g and gradient norm %.9g on the mesh, %.9g and %.9g on one rank\n", i + 1,
        mesh->loss, mesh->norm, single->loss, single->norm);
  }
}

static bool compare_replicas(const prover *p) {
  const tsr_value *v = p->mesh.differing_replica;
  return !v || tsr_diag_failure(
                   p->diags, p->mesh.graph->params[v->param].location,
                   "ranks have other replicas of '%s' after step %d", v->name,
                   p->mesh.differing_step + 1);
}

/* The least and the most choices that an expert of a layer has in step 1, of all layers. */
static void add_experts(const prover *p) {
  const tsr_state_tensors *of = &p->single.steps[0].of[TSR_RECORDED_LOSS];
  int layers = 0, even = 0;
  double least = INFINITY, most = 0;
  for (int i = 0; i < of->count; i++) {
    const tsr_state_tensor *t = &of->items[i];
    if (strncmp(t->name, TSR_EXPERT_COUNTS, strlen(TSR_EXPERT_COUNTS))) continue;
    double low = INFINITY, high = 0;
    int64_t experts = t->shape[t->ndim - 1];
    for (int64_t e = 0; e < experts; e++) {
      double count = (double)t->data[e] + TSR_COUNT_DIGIT * (double)t->data[experts + e];
      low = fmin(low, count);
      high = fmax(high, count);
    }
    layers++;
    even += low == high;
    least = fmin(least, low);
    most = fmax(most, high);
  }
  if (!layers) return;
  tsr_text_add(
      p->text, "experts: %d layer%s, from %g to %g choices of an expert in step 1", layers,
      layers == 1 ? "" : "s", least, most);
  tsr_text_add(p->text, even ? "; of %d all experts have as many\n" : "\n", even);
}

/* The order is that of a step. */
static void add_hashes(const prover *p) {
  for (int k = 0; k < TSR_RECORDED_KINDS; k++) {
    tsr_recorded_kind kind = (tsr_recorded_kind)k;
    char mesh[TSR_SHA256_TEXT_BYTES], single[TSR_SHA256_TEXT_BYTES];
    tsr_state_sha256(p->request->arena, &p->mesh, kind, mesh);
    tsr_state_sha256(p->request->arena, &p->single, kind, single);
    const char *name = tsr_recorded_kind_name(kind);
    int tensors = p->mesh.steps[0].of[k].count;
    if (!tensors) tsr_text_add(p->text, "bits: the optimizer has no state\n");
    else if (!strcmp(mesh, single))
      tsr_text_add(p->text, "bits: one sha256 of the %s: %s\n", name, mesh);
    else
      tsr_text_add(
          p->text, "bits: sha256 of the %s: %s on the mesh, %s on one rank\n", name, mesh, single);
  }
}

static bool compare_bits(prover *p) {
  if (p->plan->refused) {
    tsr_text_add(
        p->text, "bits: not compared, one rank refuses this recipe: %s\n", p->plan->refused);
    return true;
  }
  tsr_state_difference d;
  tsr_location_search search = {p->request->arena, p->plan, &p->how, &p->mesh, &p->single};
  add_hashes(p);
  if (!tsr_locate(&search, &d)) return true;
  tsr_text_add(
      p->text, "bits: the %s of step %d differ first\n", tsr_recorded_kind_name(d.kind),
      d.step + 1);
  add_losses(p);
  tsr_state_explain(&d, &p->mesh, p->plan->mesh.parallel, p->diags);
  return false;
}

static bool compare_numbers(prover *p, const char *why) {
  bool half = is_half(p);
  double allowed = half ? fast_tolerance_half : fast_tolerance;
  double distance = tsr_state_distance(&p->mesh, &p->single);
  tsr_text_add(
      p->text,
      "no bits are compared: %s; losses and gradient norms differ by %.2g, %.2g is allowed\n", why,
      distance, allowed);
  if (distance <= allowed) return true;
  return tsr_diag_failure(
      p->diags, TSR_NOWHERE, "losses or gradient norms differ by %.2g, %.2g is allowed", distance,
      allowed);
}

/* ---- one rank and the interpreter ---- */

/* The reference of half precision: the same configuration in f32. */
static bool run_in_f32(prover *p, tsr_prove_run *run, tsr_state *state) {
  const tsr_prove_request *r = p->request;
  tsr_config *c = tsr_arena_alloc(r->arena, sizeof *c);
  *c = *p->plan->single.config;
  c->training.precision = TSR_PRECISION_F32;
  c->training.mixed_precision = false;
  c->optimizer.stochastic_rounding = c->optimizer.kahan_summation = false;
  tsr_recording how = p->how;
  tsr_diags *diags = tsr_diags_new(r->arena); /* which warn of what f32 has no use for */
  how.steps = 1;
  how.ends_small = false;
  if (tsr_prove_compile(r, c, TSR_OUTPUTS_LOSS, run, diags) &&
      tsr_state_run(r->arena, run, &how, state, diags))
    return true;
  return tsr_diag_error(p->diags, TSR_NOWHERE, "%s", tsr_diags_first_error(diags));
}

static void add_reference(const prover *p, const tsr_reference_result *r, bool half) {
  tsr_text_add(p->text, "interpreter, step 1%s: ", half ? ", in f32" : "");
  if (r->overflows) {
    tsr_text_add(p->text, "not compared, f32 cannot hold the numbers of this step\n");
    return;
  }
  tsr_text_add(
      p->text, "loss within %.2g (%.2g is allowed), gradients within %.2g (%.2g is allowed)%s\n",
      r->loss_error, TSR_LOSS_TOLERANCE, r->gradient_error, TSR_GRADIENT_TOLERANCE,
      r->ill_conditioned ? " of size and conditioning" : "");
}

static bool compare_reference(prover *p) {
  bool half = is_half(p);
  tsr_prove_run run = p->plan->single;
  tsr_state state = p->single;
  tsr_reference_result result;
  if (half && !run_in_f32(p, &run, &state)) return false;
  if (!tsr_reference_compare(
          p->request->arena, &run, &p->request->cpu, &p->data, &state, &result, p->diags))
    return false;
  add_reference(p, &result, half);
  if (tsr_reference_agrees(&result)) return true;
  tsr_reference_explain(&result, p->diags);
  return false;
}

/* ---- phases ---- */

/* The run on one rank first: it shows which learning rate changes the weights. */
static bool run_both(prover *p) {
  const tsr_prove_request *r = p->request;
  const tsr_prove_run *mesh = &p->plan->mesh, *single = &p->plan->single;
  if (!tsr_synthetic_make(mesh->config, mesh->compiled.graph, &p->data, p->diags)) return false;
  p->how = tsr_recording_of(mesh->config, &r->cpu, &p->data);
  int steps = p->how.steps + p->how.ends_small;
  tsr_command_progress_begin("proving: one rank", steps, "steps");
  bool ok = tsr_updates_run(r->arena, single, &p->how, &p->single, p->diags);
  tsr_command_progress_end();
  tsr_command_progress_begin("proving: the mesh", steps, "steps");
  ok = ok && tsr_state_run(r->arena, mesh, &p->how, &p->mesh, p->diags);
  tsr_command_progress_end();
  return ok;
}

bool tsr_prove_plan(
    const tsr_prove_request *request, const tsr_reduced_run *plan, tsr_text *text,
    tsr_diags *diags) {
  prover p = {.request = request, .plan = plan, .text = text, .diags = diags};
  tsr_proof_table_print(request, plan, text);
  if (!run_both(&p)) return false;
  bool fast = request->config->numerics.policy == TSR_NUMERICS_FAST;
  bool ok = fast              ? compare_numbers(&p, "the policy is fast")
            : plan->own_order ? compare_numbers(&p, "the batch units are in this mesh's own order")
                              : compare_bits(&p);
  ok &= compare_replicas(&p);
  add_experts(&p);
  ok &= tsr_updates_report(plan->single.config, &p.single, &p.how, text, diags);
  ok &= compare_reference(&p);
  tsr_not_shown_print(request, plan, text);
  if (ok) tsr_text_add(text, "tested at reduced size; full size: verified statically\n");
  return ok;
}

bool tsr_prove(const tsr_prove_request *request, tsr_text *text, tsr_diags *diags) {
  tsr_reduced_run plan;
  if (request->training->graph->loss < 0)
    return tsr_diag_error(
        diags, (tsr_location){.file = request->config->file},
        "there is nothing to prove: the graph has no loss");
  return tsr_reduced_run_make(request, &plan, diags) && tsr_prove_plan(request, &plan, text, diags);
}
