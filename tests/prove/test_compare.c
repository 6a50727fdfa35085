// SPDX-License-Identifier: Apache-2.0
/* Differences between states, and faults in one of two runs, are reported with their tensor,
 * element, unit, task and place. */
#include "base/text.h"
#include "config/override.h"
#include "proof.h"
#include "prove/locate.h"
#include "tests/check.h"
#include "tests/printed.h"

static const char yaml[] =
    "training_config: {seed: 5, batch_size: 8, sequence_length: 16, max_steps: 4,\n"
    "  optimizer: {type: AdamW, lr: 0.01}}\n"
    "transformer_config: {model_type: llama, vocab_size: 64, embedding_dim: 32, num_heads: 4,\n"
    "  num_groups: 2, num_blocks: 2, intermediate_dim: 24, max_sequence_length: 16}\n"
    "mesh: {axes: [dp, tp], shape: [2, 2]}\n";

static tsr_state_tensor *find(tsr_state *s, int step, tsr_recorded_kind kind, const char *name) {
  tsr_state_tensors *of = &s->steps[step].of[kind];
  for (int i = 0; i < of->count; i++)
    if (!strcmp(of->items[i].name, name)) return &of->items[i];
  abort();
}

static tsr_state_tensor *find_weight(tsr_state *s, const char *name) {
  return find(s, 1, TSR_RECORDED_WEIGHTS, name);
}

/* The report without the path before configs/ and without the quoted line. */
static const char *explained(proof *p, const tsr_state_difference *d, const tsr_state *mesh) {
  tsr_state_explain(d, mesh, p->full.parallel, p->diags);
  const char *text = printed_diags(p->arena, p->diags), *begin = strstr(text, "configs/");
  return begin ? begin : text;
}

static void check_element(proof *p, tsr_state *mesh, tsr_state *single) {
  tsr_state_difference d;
  CHECK(tsr_state_compare(mesh, single, &d));
  tsr_state_tensor *t = find_weight(single, "block.1.attn.wo");
  CHECK(t->ndim == 2 && t->count == 16 * 16);
  float kept = t->data[2 * 16 + 13];
  t->data[2 * 16 + 13] = 0.25f;
  find_weight(mesh, "block.1.attn.wo")->data[2 * 16 + 13] = 1.5f;
  float later = find_weight(single, "ln_f")->data[1];
  CHECK(!tsr_state_compare(mesh, single, &d));
  CHECK_STR(d.name, "block.1.attn.wo");
  CHECK_INT(d.kind, TSR_RECORDED_WEIGHTS);
  CHECK_INT(d.element, 2 * 16 + 13);
  CHECK_INT(d.differing, 1);
  const char *text = explained(p, &d, mesh);
  CHECK_AT(
      strstr(
          text, "configs/graphs/llama.yaml:127:5: error: 'block.1.attn.wo' differs after step 2: "
                "element (2, 13) is 1.5 on the mesh and 0.25 on one rank; 1 of 256 differ\n"),
      "%s", text);
  CHECK_AT(strstr(text, "= tp unit 1 of 2, tp shard 1 of 2\n"), "%s", text);
  CHECK_AT(
      strstr(text, "(adamw, 'update.block.1.attn.wo') of stage 0, in the update\n"), "%s", text);
  CHECK_AT(strstr(text, "= 1 of 21 tensors of the weights of step 2 differ\n"), "%s", text);
  CHECK_INT(tsr_diags_exit_code(p->diags), 1);
  t->data[2 * 16 + 13] = find_weight(mesh, "block.1.attn.wo")->data[2 * 16 + 13] = kept;
  CHECK(later == find_weight(single, "ln_f")->data[1]);
}

/* The sign of a zero is a bit, too; and NaNs with the same bits are equal. */
static void check_bits(tsr_state *mesh, tsr_state *single) {
  tsr_state_difference d;
  char a[TSR_SHA256_TEXT_BYTES], b[TSR_SHA256_TEXT_BYTES];
  tsr_arena *arena = tsr_arena_new();
  tsr_state_tensor *t = find(mesh, 1, TSR_RECORDED_STATE, "ln_f.m"),
                   *u = find(single, 1, TSR_RECORDED_STATE, "ln_f.m");
  float kept = t->data[0];
  t->data[0] = u->data[0] = NAN;
  CHECK(tsr_state_compare(mesh, single, &d));
  t->data[0] = 0;
  u->data[0] = -0.0f;
  CHECK(!tsr_state_compare(mesh, single, &d));
  CHECK_STR(d.name, "ln_f.m");
  CHECK_INT(d.kind, TSR_RECORDED_STATE);
  for (int kind = 0; kind < TSR_RECORDED_KINDS; kind++) {
    tsr_state_sha256(arena, mesh, (tsr_recorded_kind)kind, a);
    tsr_state_sha256(arena, single, (tsr_recorded_kind)kind, b);
    CHECK_INT(strcmp(a, b) != 0, kind == TSR_RECORDED_STATE);
  }
  t->data[0] = u->data[0] = kept;
  tsr_state_sha256(arena, mesh, TSR_RECORDED_STATE, a);
  tsr_state_sha256(arena, single, TSR_RECORDED_STATE, b);
  CHECK(!strcmp(a, b));
  tsr_arena_free(arena);
}

/* One more unit in the last place of a number that a step makes. */
static void check_first(
    tsr_state *mesh, tsr_state *single, int step, tsr_recorded_kind kind, const char *name) {
  tsr_state_difference d;
  tsr_state_tensor *t = find(single, step, kind, name);
  float kept = t->data[0];
  t->data[0] = nextafterf(kept, INFINITY);
  CHECK(!tsr_state_compare(mesh, single, &d));
  CHECK_STR(d.name, name);
  CHECK_INT(d.kind, kind);
  CHECK_INT(d.step, step);
  CHECK_INT(d.differing, 1);
  CHECK_INT(d.tensors_differing, 1);
  t->data[0] = kept;
}

/* What a step makes first is named: of two steps the first one; its loss before gradients, these
 * before weights, and weights before state; of gradients the one of the last layer. */
static void check_order(tsr_state *mesh, tsr_state *single) {
  static const struct {
    tsr_recorded_kind kind;
    const char *name;
  } made[] = {
      {TSR_RECORDED_LOSS, "loss"},
      {TSR_RECORDED_GRADIENTS, "ln_f"},
      {TSR_RECORDED_GRADIENTS, "block.1.attn.wq"},
      {TSR_RECORDED_GRADIENTS, "block.0.attn.wq"},
      {TSR_RECORDED_GRADIENTS, "clip"},
      {TSR_RECORDED_WEIGHTS, "block.0.attn.wq"},
      {TSR_RECORDED_STATE, "block.0.attn.wq.m"}};
  enum { MADE = sizeof made / sizeof *made };
  float *last[2 * MADE], kept[2 * MADE];
  tsr_state_difference d;
  for (int i = 2 * MADE; i-- > 0;) {
    int step = i / MADE;
    check_first(mesh, single, step, made[i % MADE].kind, made[i % MADE].name);
    last[i] = find(single, step, made[i % MADE].kind, made[i % MADE].name)->data;
    kept[i] = *last[i];
  }
  for (int i = 2 * MADE; i-- > 0;) { /* from the last to the first, all behind it differ, too */
    *last[i] = nextafterf(kept[i], INFINITY);
    CHECK(!tsr_state_compare(mesh, single, &d));
    CHECK_STR(d.name, made[i % MADE].name);
    CHECK_INT(d.kind, made[i % MADE].kind);
    CHECK_INT(d.step, i / MADE);
  }
  for (int i = 0; i < 2 * MADE; i++) *last[i] = kept[i];
  CHECK(tsr_state_compare(mesh, single, &d));
}

/* A tensor that one run lacks, or that has another size there, differs. */
static void check_absent(proof *p, tsr_state *mesh, tsr_state *single) {
  tsr_state_difference d;
  tsr_state_tensors *weights = &single->steps[0].of[TSR_RECORDED_WEIGHTS];
  tsr_state *runs[2][2] = {{mesh, single}, {single, mesh}};
  for (int i = 0; i < 2; i++) {
    weights->count--;
    CHECK(!tsr_state_compare(runs[i][0], runs[i][1], &d));
    CHECK(d.is_absent);
    CHECK_STR(d.name, weights->items[weights->count].name);
    const char *text = explained(p, &d, mesh);
    CHECK_AT(strstr(text, "' is not of both runs after step 1\n"), "%s", text);
    weights->items[weights->count++].count--;
    CHECK(!tsr_state_compare(runs[i][0], runs[i][1], &d));
    CHECK(d.is_absent);
    weights->items[weights->count - 1].count++;
  }
  CHECK(tsr_state_compare(mesh, single, &d));
}

/* Where no bits are promised, numbers are. A norm has the place of the first weight that differs
 * behind it. */
static void check_numbers(tsr_state *mesh, tsr_state *single) {
  tsr_state_difference d;
  double kept = single->steps[1].loss;
  CHECK(tsr_state_distance(mesh, single) == 0);
  single->steps[1].loss *= 1.001;
  double distance = tsr_state_distance(mesh, single);
  CHECK(distance > 0.9e-3 && distance < 1.1e-3);
  single->steps[1].loss = NAN;
  CHECK(tsr_state_distance(mesh, single) == INFINITY);
  single->steps[1].loss = kept;
  float *norm = find(single, 1, TSR_RECORDED_GRADIENTS, "clip")->data;
  float *weight = find_weight(single, "block.1.attn.wo")->data, before[2] = {*norm, *weight};
  *norm += 1;
  *weight += 1;
  CHECK(!tsr_state_compare(mesh, single, &d));
  CHECK_STR(d.name, "clip");
  CHECK_INT(d.location.line, 127);
  *norm = before[0];
  *weight = before[1];
}

/* One rank's norms have another epsilon: the first tensor that differs is the first norm's, whose
 * numbers a second run gives. */
static void check_located(proof *p, const tsr_reduced_run *plan) {
  tsr_config *other = tsr_arena_alloc(p->arena, sizeof *other);
  *other = *plan->single.config;
  tsr_yaml *map = (tsr_yaml *)other->model.map;
  tsr_override o = {.path = "norm_eps", .location = other->model.location};
  CHECK(tsr_yaml_parse(p->arena, "x", "0.001", 5, &o.value, p->diags));
  CHECK(tsr_override_apply(p->arena, &o, "norm_eps", &map, p->diags));
  other->model.map = map;
  tsr_reduced_run changed = *plan;
  CHECK(tsr_prove_compile(&p->request, other, TSR_OUTPUTS_LOSS, &changed.single, p->diags));
  tsr_synthetic data = proof_data(p, &plan->mesh);
  tsr_recording how = tsr_recording_of(plan->mesh.config, &p->request.cpu, &data);
  tsr_state a = proof_run(p, &plan->mesh, 1), b = proof_run(p, &changed.single, 1);
  tsr_location_search search = {p->arena, &changed, &how, &a, &b};
  tsr_state_difference d;
  CHECK(tsr_locate(&search, &d));
  CHECK_INT(d.kind, TSR_RECORDED_LOSS);
  CHECK_STR(d.name, "block.0.n");
  CHECK(d.differing > 0 && d.task >= 0);
  const char *text = explained(p, &d, &a);
  CHECK_AT(strstr(text, "(rmsnorm, 'block.0.n') of stage 0, in the forward\n"), "%s", text);
  CHECK_AT(strstr(text, "configs/graphs/llama.yaml:165:"), "%s", text);
  CHECK_AT(strstr(text, "'block.0.n' differs in step 1: element (0, 0, 0) is "), "%s", text);
  tsr_state same = proof_run(p, &changed.single, 1);
  CHECK(!tsr_state_find_value(&b, &same, 0, &d));
  search.mesh = &same;
  CHECK(!tsr_locate(&search, &d));
}

static tsr_reference_result refer(proof *p, const tsr_prove_run *run, const tsr_state *state) {
  tsr_reference_result r;
  tsr_synthetic data = proof_data(p, run);
  data.samples = run->compiled.batch * run->compiled.programs.pipeline->microbatches;
  if (!tsr_reference_compare(p->arena, run, &p->request.cpu, &data, state, &r, p->diags))
    proof_fail(p);
  return r;
}

/* An error of 20 tolerances is found, of any parameter; one of a tenth of a tolerance is none. */
static void check_reference(proof *p, const tsr_reduced_run *plan, tsr_state *single) {
  tsr_reference_result r = refer(p, &plan->single, single);
  CHECK(tsr_reference_agrees(&r) && !r.ill_conditioned);
  for (int i = 0; i < single->graph->params_count; i++) {
    float *g = single->gradients[i], kept = g[0];
    double most = 0;
    int64_t count = single->steps[0].of[TSR_RECORDED_WEIGHTS].items[i].count;
    for (int64_t k = 0; k < count; k++) most = fmax(most, fabs((double)g[k]));
    g[0] = kept + (float)(2e-4 * most);
    r = refer(p, &plan->single, single);
    CHECK_AT(!tsr_reference_agrees(&r), "%s: not found", single->graph->params[i].name);
    CHECK_STR(r.parameter, single->graph->params[i].name);
    CHECK_INT(r.element, 0);
    g[0] = kept + (float)(1e-6 * most);
    r = refer(p, &plan->single, single);
    CHECK(tsr_reference_agrees(&r));
    g[0] = NAN;
    r = refer(p, &plan->single, single);
    CHECK(!tsr_reference_agrees(&r));
    g[0] = kept;
  }
  single->steps[0].loss *= 1 + 1e-5;
  r = refer(p, &plan->single, single);
  CHECK(!tsr_reference_agrees(&r));
  tsr_reference_explain(&r, p->diags);
  CHECK(strstr(printed_diags(p->arena, p->diags), "error: the loss of step 1 is "));
}

/* All that both runs compute is the same, and much of it is compared: with sequence parallelism,
 * where the mesh recomputes other nodes, and over stages and microbatches. Gradients as outputs of
 * a program are those that are traced. */
static void check_values(const char *mesh, int least) {
  proof p;
  char text[1024];
  snprintf(text, sizeof text, "%.*s%s", (int)(strstr(yaml, "mesh:") - yaml), yaml, mesh);
  proof_open(&p, text);
  tsr_reduced_run plan = proof_reduce(&p);
  tsr_prove_run gradients;
  tsr_state_difference d;
  CHECK(
      tsr_prove_compile(&p.request, plan.mesh.config, TSR_OUTPUTS_GRADIENTS, &gradients, p.diags));
  tsr_state a = proof_run(&p, &plan.mesh, 1), b = proof_run(&p, &plan.single, 1);
  tsr_state with = proof_run(&p, &gradients, 1);
  CHECK_AT(!tsr_state_find_value(&a, &b, 0, &d), "%s", d.name);
  CHECK(a.steps[0].values_count >= least && b.steps[0].values_count >= least);
  for (int i = 0; i < a.steps[0].values_count; i++) {
    tsr_traced_value *v = &a.steps[0].values[i];
    v->hash ^= 1; /* each is compared, if one rank has it */
    bool found = tsr_state_find_value(&a, &b, 0, &d);
    least -= found;
    CHECK(!found || !strcmp(d.traced, v->name));
    v->hash ^= 1;
  }
  CHECK_AT(least <= 0, "%d too few are compared", least);
  tsr_state_tensors *x = a.steps[0].of, *y = with.steps[0].of;
  CHECK_INT(x[TSR_RECORDED_GRADIENTS].count, 21 + 1); /* clip */
  for (int i = 0; i < x[TSR_RECORDED_GRADIENTS].count; i++) {
    const tsr_state_tensor *t = &x[TSR_RECORDED_GRADIENTS].items[i];
    CHECK(!memcmp(
        t->data, y[TSR_RECORDED_GRADIENTS].items[i].data, sizeof(float) * (size_t)t->count));
  }
  proof_close(&p);
}

int main(void) {
  proof p;
  check_values("mesh: {axes: [tp], shape: [2]}\ndevice_config: {enable_sp: true}\n", 80);
  check_values("mesh: {axes: [dp, pp], shape: [2, 2]}\npipeline: {microbatches: 4}\n", 80);
  proof_open(&p, yaml);
  tsr_reduced_run plan = proof_reduce(&p);
  CHECK_STR(proof_size(&plan, "embedding_dim")->reduced, "16");
  tsr_state mesh = proof_run(&p, &plan.mesh, TSR_PROVE_STEPS);
  tsr_state single = proof_run(&p, &plan.single, TSR_PROVE_STEPS);
  check_element(&p, &mesh, &single);
  check_bits(&mesh, &single);
  check_order(&mesh, &single);
  check_absent(&p, &mesh, &single);
  check_numbers(&mesh, &single);
  check_located(&p, &plan);
  check_reference(&p, &plan, &single);
  proof_close(&p);
  return check_done("compare");
}
