// SPDX-License-Identifier: Apache-2.0
#include "prove/prove.h"
#include "prove/compare.h"
#include "prove/reference.h"
#include <stdlib.h>
#include <string.h>

/* Loss and norm where no bits are promised; half precision rounds 2^13 and 2^16 times coarser. */
static const double fast_tolerance = 1e-4, fast_tolerance_half = 2e-2;

typedef struct {
  const tsr_prove_request *request;
  tsr_reduced_run plan;
  tsr_synthetic data;
  tsr_state mesh, single;
  tsr_text *text;
  tsr_diags *diags;
} prover;

static bool is_half(const prover *p) {
  return p->request->config->training.precision != TSR_PRECISION_F32;
}

/* ---- the table ---- */

enum { NAME_WIDTH = 28, NUMBER_WIDTH = 12 };

static void
add_line(tsr_text *text, const char *name, const char *full, const char *reduced, const char *why) {
  bool kept = !strcmp(full, reduced);
  tsr_text_add(text, "  %-*s %*s", NAME_WIDTH, name, NUMBER_WIDTH, full);
  if (!kept || *why) tsr_text_add(text, " %*s", NUMBER_WIDTH, kept ? "" : reduced);
  tsr_text_add(text, "%s%s\n", *why ? "  " : "", why);
}

static void
add_numbers(tsr_text *text, const char *name, int64_t full, int64_t reduced, const char *why) {
  add_line(text, name, tsr_text_count(full).text, tsr_text_count(reduced).text, why);
}

static tsr_short_text grouped(const char *number) {
  char *end;
  long long n = strtoll(number, &end, 10);
  tsr_short_text text;
  if (*number && !*end) return tsr_text_count(n);
  snprintf(text.text, sizeof text.text, "%s", number);
  return text;
}

static void add_sizes(prover *p) {
  const tsr_reduced_sizes *sizes = &p->plan.sizes;
  const tsr_config *c = p->request->config;
  for (int i = 0; i < sizes->count; i++) {
    const tsr_reduced_size *row = &sizes->rows[i];
    const char *why = row->why;
    const tsr_yaml *given = c->model.map ? tsr_yaml_get(c->model.map, "vocab_size") : NULL;
    int64_t vocabulary = 0;
    bool counted = !strcmp(row->name, "vocab_size") &&
                   !(given && tsr_yaml_int(given, &vocabulary) && vocabulary > 0);
    if (counted)
      why = tsr_arena_printf(
          p->request->arena, "%s%scounted in the data, or assumed", why, *why ? "; " : "");
    add_line(p->text, row->name, grouped(row->full).text, grouped(row->reduced).text, why);
  }
  int literal = sizes->literal_tensors;
  if (literal)
    tsr_text_add(
        p->text, "  %d tensor%s dimensions written as numbers, which stay\n", literal,
        literal == 1 ? " has" : "s have");
}

static void add_runs(prover *p) {
  const tsr_reduced_run *plan = &p->plan;
  int mesh = plan->mesh.compiled.programs.pipeline->microbatches;
  int single = plan->single.compiled.programs.pipeline->microbatches;
  tsr_text_add(p->text, "proof: %d steps on ", TSR_PROVE_STEPS);
  tsr_reduced_mesh_print(&plan->shape, p->text);
  if (plan->shape.ranks > 1) tsr_text_add(p->text, ", %lld ranks", (long long)plan->shape.ranks);
  if (plan->shape.ranks > 1 || mesh != single) tsr_text_add(p->text, ", and on one rank");
  if (mesh != single) tsr_text_add(p->text, " in %d microbatch%s", single, single == 1 ? "" : "es");
}

static void add_table(prover *p) {
  const tsr_reduced_run *plan = &p->plan;
  add_runs(p);
  tsr_text_add(p->text, "; on the CPU, with synthetic samples\n");
  add_line(p->text, "size", "full", "reduced", "split by, or why it stays");
  for (int i = 0; i < plan->shape.count; i++) {
    const tsr_reduced_axis *d = &plan->shape.dims[i];
    add_numbers(p->text, d->name, d->full, d->reduced, d->why);
  }
  for (int i = 0; i < plan->rows_count; i++) {
    const tsr_run_row *row = &plan->rows[i];
    add_numbers(p->text, row->name, row->full, row->reduced, row->why);
  }
  add_sizes(p);
}

/* ---- placements ---- */

static const tsr_value *find_param(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM && !strcmp(g->values[v].name, name))
      return &g->values[v];
  return NULL;
}

static bool placed_alike(const tsr_placement *a, const tsr_placement *b) {
  return a->kind == b->kind && (a->kind != TSR_SHARD || a->dim == b->dim);
}

/* Parameters of the reduced model that are placed otherwise than at full size. */
static void add_placements(prover *p) {
  const tsr_graph *full = p->request->training->placed, *g = p->plan.mesh.compiled.placed;
  const int *sizes = p->plan.shape.size;
  int compared = 0, other = 0;
  const char *first = NULL;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    const tsr_value *same = value->kind == TSR_VALUE_PARAM ? find_param(full, value->name) : NULL;
    if (!same) continue;
    bool alike = true;
    for (int a = 0; a < TSR_AXES; a++)
      alike &= sizes[a] == 1 || placed_alike(&value->placement[a], &same->placement[a]);
    compared++;
    other += !alike;
    if (!alike && !first) first = value->name;
  }
  tsr_text_add(
      p->text, "placements: %d of %d parameters are placed as at full size", compared - other,
      compared);
  tsr_text_add(p->text, other ? ", '%s' is the first that is not\n" : "\n", first);
}

/* ---- comparisons ---- */

/* The configuration of the run on one rank, with the same samples in so many microbatches. */
static tsr_config *in_microbatches(const prover *p, int64_t microbatches) {
  const tsr_prove_run *single = &p->plan.single;
  tsr_config *c = tsr_arena_alloc(p->request->arena, sizeof *c);
  *c = *single->config;
  c->training.batch_size *= single->compiled.programs.pipeline->microbatches;
  c->training.batch_size /= microbatches;
  c->training.gradient_accumulation_steps = microbatches;
  return c;
}

/* What both runs can be compared by: gradients always. What a node makes in the last microbatch,
 * where that has the same samples in both, and where no two microbatches are alive at once. */
static tsr_compile_outputs located(const prover *p) {
  const tsr_pipeline *mesh = p->plan.mesh.compiled.programs.pipeline;
  bool by_microbatch = p->plan.shape.size[TSR_DP] == 1 || p->request->config->zero.stage >= 2;
  bool alike = mesh->microbatches == 1 || (by_microbatch && mesh->stages * mesh->chunks == 1);
  return alike ? TSR_OUTPUTS_VALUES : TSR_OUTPUTS_GRADIENTS;
}

/* Runs both again for one step, in as many microbatches, with what their nodes make as outputs.
 * Outputs are not rounded to half precision, so only programs in f32 stay what they are. */
static bool locate(prover *p, tsr_state_difference *ret, tsr_state *mesh) {
  const tsr_prove_request *r = p->request;
  tsr_prove_run runs[2];
  tsr_state states[2];
  int64_t microbatches = p->plan.mesh.compiled.programs.pipeline->microbatches;
  tsr_config *configs[2] = {p->plan.mesh.config, in_microbatches(p, microbatches)};
  tsr_diags *ignored = tsr_diags_new(r->arena);
  if (is_half(p)) return false;
  for (int i = 0; i < 2; i++)
    if (!tsr_prove_compile(r, configs[i], located(p), &runs[i], ignored) ||
        !tsr_state_run(r->arena, &runs[i], &r->cpu, &p->data, 1, &states[i], ignored))
      return false;
  *mesh = states[0];
  return !tsr_state_compare_values(&states[0], &states[1], runs[0].compiled.graph, ret);
}

static void add_losses(const prover *p) {
  for (int i = 0; i < TSR_PROVE_STEPS; i++)
    tsr_text_add(
        p->text,
        "step %d: loss %.9g and gradient norm %.9g on the mesh, %.9g and %.9g on one rank\n", i + 1,
        p->mesh.loss[i], p->mesh.norm[i], p->single.loss[i], p->single.norm[i]);
}

/* No tensor differs, so what is made of all of them does. */
static void explain_number(const prover *p) {
  for (int i = 0; i < TSR_PROVE_STEPS; i++) {
    bool loss = p->mesh.loss[i] != p->single.loss[i], norm = p->mesh.norm[i] != p->single.norm[i];
    if (!loss && !norm) continue;
    tsr_diag_failure(
        p->diags, (tsr_location){.file = p->request->config->file},
        "the %s of step %d differs, but no parameter or state: %.9g on the mesh and %.9g on one "
        "rank",
        loss ? "loss" : "gradient norm", i + 1, loss ? p->mesh.loss[i] : p->mesh.norm[i],
        loss ? p->single.loss[i] : p->single.norm[i]);
    return;
  }
  tsr_diag_failure(p->diags, TSR_NOWHERE, "the two runs have other parameters or state");
}

static bool explain(prover *p, const tsr_state_difference *d) {
  tsr_state_difference first;
  tsr_state values;
  add_losses(p);
  if (locate(p, &first, &values))
    tsr_state_explain(&first, &values, p->plan.mesh.parallel, "in step 1", p->diags);
  else if (d->name) tsr_state_explain(d, &p->mesh, p->plan.mesh.parallel, "after step 2", p->diags);
  else explain_number(p);
  return false;
}

static bool compare_bits(prover *p) {
  tsr_state_difference d;
  if (p->plan.refused) {
    tsr_text_add(
        p->text, "bits: not compared, one rank refuses this recipe: %s\n", p->plan.refused);
    return true;
  }
  char mesh[TSR_SHA256_TEXT_BYTES], single[TSR_SHA256_TEXT_BYTES];
  tsr_state_sha256(p->request->arena, &p->mesh, mesh);
  tsr_state_sha256(p->request->arena, &p->single, single);
  bool equal = tsr_state_compare(&p->mesh, &p->single, &d) && !strcmp(mesh, single);
  if (equal)
    tsr_text_add(
        p->text,
        "bits: one sha256, of parameters, optimizer state, losses and gradient norms: %s\n", mesh);
  else tsr_text_add(p->text, "bits: sha256 %s on the mesh, %s on one rank\n", mesh, single);
  return equal || explain(p, &d);
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

/* The reference of half precision: the same configuration in f32. */
static bool run_in_f32(prover *p, tsr_prove_run *run, tsr_state *state) {
  const tsr_prove_request *r = p->request;
  tsr_config *c = tsr_arena_alloc(r->arena, sizeof *c);
  *c = *p->plan.single.config;
  c->training.precision = TSR_PRECISION_F32;
  c->training.mixed_precision = false;
  c->optimizer.stochastic_rounding = c->optimizer.kahan_summation = false;
  return tsr_prove_compile(r, c, TSR_OUTPUTS_GRADIENTS, run, p->diags) &&
         tsr_state_run(r->arena, run, &r->cpu, &p->data, 1, state, p->diags);
}

static void add_reference(prover *p, const tsr_reference_result *r, bool half) {
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
  tsr_prove_run run = p->plan.single;
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

static bool run_both(prover *p) {
  const tsr_prove_request *r = p->request;
  const tsr_prove_run *mesh = &p->plan.mesh, *single = &p->plan.single;
  return tsr_synthetic_make(mesh->config, mesh->compiled.graph, &p->data, p->diags) &&
         tsr_state_run(r->arena, mesh, &r->cpu, &p->data, TSR_PROVE_STEPS, &p->mesh, p->diags) &&
         tsr_state_run(r->arena, single, &r->cpu, &p->data, TSR_PROVE_STEPS, &p->single, p->diags);
}

bool tsr_prove(const tsr_prove_request *request, tsr_text *text, tsr_diags *diags) {
  prover p = {.request = request, .text = text, .diags = diags};
  if (request->training->graph->loss < 0)
    return tsr_diag_error(
        diags, (tsr_location){.file = request->config->file},
        "there is nothing to prove: the graph has no loss");
  if (!tsr_reduced_run_make(request, &p.plan, diags)) return false;
  add_table(&p);
  add_placements(&p);
  if (!run_both(&p)) return false;
  bool fast = request->config->numerics.policy == TSR_NUMERICS_FAST;
  bool ok = fast               ? compare_numbers(&p, "the policy is fast")
            : p.plan.own_order ? compare_numbers(&p, "the batch units are in this mesh's own order")
                               : compare_bits(&p);
  ok &= compare_reference(&p);
  if (ok) tsr_text_add(text, "tested at reduced size; full size: verified statically\n");
  return ok;
}
