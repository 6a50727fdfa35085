// SPDX-License-Identifier: Apache-2.0
/* What a plan says of programs, over meshes: the bytes that a run allocates, the seconds that its
 * tasks add up to, and what more bandwidth or overlap can change. */
#include "plan/estimate.h"
#include "tests/check.h"
#include "tests/run/harness.h"

/* Two blocks with heads, norms and a tied embedding. */
static tsr_graph *build(tsr_arena *arena, const harness_options *o) {
  int samples = 8 / (int)o->microbatches;
  tsr_graph *g =
      tsr_graph_new(arena, "m", (tsr_units){o->batch_units, o->sequence_units, o->tp_units});
  harness_inputs(
      g, tsr_arena_printf(arena, "tokens %d,8 tokens; targets %d,8 tokens", samples, samples));
  harness_params(
      g, "wte 24,16 0; n1 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; wo 16,16 1; n2 16; up 32,16 0; "
         "down 16,32 1; n3 16");
  harness_calls(
      g, "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk); v: "
         "linear(h, wv); a: attention(q, k, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o); h2: "
         "rmsnorm(x1, n2); u: linear(h2, up); s: gelu(u); d: linear(s, down); x2: add(x1, d); h3: "
         "rmsnorm(x2, n3); logits: linear(h3, wte); loss: cross_entropy(logits, targets, valid: "
         "21)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

static const tsr_optimizer adamw = {
    .kind = TSR_RULE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip_max_norm = 1};

static harness_options options(int pp, int dp, int tp, int microbatches) {
  harness_options o = {.pp = pp, .dp = dp, .tp = tp, .threads = 1, .microbatches = microbatches};
  o.batch_units = 8;
  o.tp_units = 4;
  o.sequence_units = 1;
  o.chunks = 1;
  o.pipeline = TSR_PIPELINE_1F1B;
  o.optimizer = &adamw;
  o.vocabulary = 21;
  return o;
}

/* All that a plan has to say different things of. */
static int list_meshes(harness_options *ret) {
  int n = 0;
  static const int shapes[][4] = {{1, 1, 1, 1}, {1, 4, 2, 1}, {1, 2, 2, 4}, {2, 1, 1, 4},
                                  {2, 2, 2, 2}, {4, 2, 1, 4}, {1, 8, 1, 1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int zero = 0; zero < 4; zero++) {
      harness_options o = options(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
      o.zero = zero;
      if (zero && o.dp == 1) continue;
      ret[n++] = o;
      o.overlap = true;
      if (o.dp > 1) ret[n++] = o;
      o.zero_owners = true;
      if (zero) ret[n++] = o;
    }
  for (int i = 0; i < HARNESS_ORDERS; i++) {
    ret[n] = options(2, 2, 1, 4);
    ret[n].pipeline = harness_orders[i].kind;
    ret[n++].chunks = harness_orders[i].chunks;
  }
  ret[n] = options(1, 2, 1, 2);
  ret[n++].recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_ATTENTION, .every = 1};
  ret[n] = options(1, 4, 1, 2);
  ret[n].zero = 3;
  ret[n++].zero_groups = 2;
  return n;
}
enum { MESHES_MAX = 192 };

static const char *name_of(tsr_arena *arena, const harness_options *o) {
  return tsr_arena_printf(
      arena, "pp %d dp %d tp %d, %d microbatches, zero %d%s, %s, %d chunks%s", o->pp, o->dp, o->tp,
      (int)o->microbatches, o->zero, o->zero_owners ? " with owners" : "",
      tsr_pipeline_name(o->pipeline), o->chunks, o->overlap ? ", overlap" : "");
}

/* ---- memory ---- */

/* What the plan says, all ranks together, is what a process allocates. */
static void test_bytes(const harness_options *meshes, int count) {
  for (int i = 0; i < count; i++) {
    tsr_arena *arena = tsr_arena_new();
    harness h = harness_open(arena, build(arena, &meshes[i]), &meshes[i]);
    int stages = h.programs.pipeline->stages;
    int64_t planned = 0;
    for (int s = 0; s < stages; s++) {
      tsr_memory m;
      tsr_memory_of(&h.programs, 1, s, &m);
      CHECK_INT(m.total, m.parameters + m.state + m.sources + m.work);
      planned += m.total * (h.parallel.ranks / stages);
    }
    CHECK_AT(
        planned == tsr_process_bytes(h.process), "%s: %lld bytes planned, %lld allocated",
        name_of(arena, &meshes[i]), (long long)planned, (long long)tsr_process_bytes(h.process));
    harness_close(&h);
    tsr_arena_free(arena);
  }
}

/* ---- time ---- */

/* Nothing but its overhead takes a task any time. */
static tsr_machine counting_machine(int threads) {
  tsr_machine m = {.name = "counts", .doc = "", .overhead = 1, .memory_bandwidth = 1e300};
  m.flops[TSR_MACHINE_F32] = 1e300;
  m.efficiency_products = m.efficiency_attention = m.efficiency_memory = 1;
  m.threads = threads;
  m.memory = 1;
  m.links[m.links_count++] =
      (tsr_machine_link){.name = "wire", .bandwidth = 1e300, .efficiency = 1};
  m.paths[m.paths_count++] = (tsr_machine_path){.name = "wire"};
  return m;
}

/* The place on dp of the rank that owns the most bytes of parameters and state; 0 where none does.
 */
static int find_owner(const tsr_program *p) {
  int64_t bytes[8] = {0};
  int owner = 0;
  for (int v = 0; v < p->graph->values_count; v++) {
    const tsr_value *x = &p->graph->values[v];
    bool is_kept = x->kind == TSR_VALUE_PARAM || x->kind == TSR_VALUE_STATE;
    bool is_here = p->tensors[v].segment != TSR_SEGMENT_ABSENT;
    if (is_kept && is_here && x->placement[TSR_DP].kind == TSR_OWNED)
      bytes[x->placement[TSR_DP].owner] += tsr_tensor_bytes(&p->tensors[v]);
  }
  for (int i = 1; i < 8; i++)
    if (bytes[i] > bytes[owner]) owner = i;
  return owner;
}

/* Whether a task makes, or updates, what another rank of dp owns. */
static bool is_of_other(const tsr_program *p, const tsr_task *t, int owner) {
  int value = t->outputs_count ? t->outputs[0].value : t->inputs[0].value;
  tsr_placement dp = p->graph->values[value].placement[TSR_DP];
  bool moves = t->op == TSR_OP_WAIT || (tsr_op_is_collective(t->op) && t->axis == TSR_DP);
  return dp.kind == TSR_OWNED && dp.owner != owner && !moves;
}

/* Tasks that a step runs on the ranks of one stage, as the program's runs say; of devices, those of
 * the rank that owns the most. */
static double count_tasks(const tsr_program *p, bool is_host, int owner) {
  double count = 0;
  for (int r = 0; r < p->runs_count; r++) {
    const tsr_part *part = &p->parts[p->runs[r].part];
    for (int i = part->begin; i < part->end; i++) {
      const tsr_task *t = &p->tasks[i];
      bool last = p->runs[r].microbatch == p->lowering.microbatches - 1;
      bool waits = t->op == TSR_OP_WAIT || t->op == TSR_OP_SEND;
      bool elsewhere = tsr_op_is_collective(t->op) && t->axis == TSR_PP && p->stage > 0;
      if (waits || (t->last_only && !last) || (is_host && elsewhere)) continue;
      if (!is_host && is_of_other(p, t, owner)) continue;
      count += is_host || t->op != TSR_OP_RECEIVE;
    }
  }
  return count;
}

typedef struct {
  tsr_arena *arena;
  harness h;
  tsr_estimate e;
} planned;

static planned plan(const harness_options *o, const tsr_machine *m) {
  planned p = {.arena = tsr_arena_new()};
  tsr_diags *diags = tsr_diags_new(p.arena);
  bool ok = harness_compile(build(p.arena, o), o, &p.h, diags);
  if (!ok) tsr_diags_print(diags, stderr);
  CHECK_AT(ok, "%s does not compile", name_of(p.arena, o));
  tsr_estimate_options options = {&p.h.programs, p.h.graph, &p.h.parallel, m, false};
  tsr_estimate_make(p.arena, &options, &p.e);
  return p;
}

/* On one host a step is all tasks of all stages, one after another. */
static void test_host(const harness_options *meshes, int count) {
  tsr_machine m = counting_machine(2);
  for (int i = 0; i < count; i++) {
    planned p = plan(&meshes[i], &m);
    double tasks = 0;
    for (int s = 0; s < p.h.programs.pipeline->stages; s++)
      tasks += count_tasks(p.h.programs.of_stage[s], true, -1);
    CHECK_AT(
        fabs(p.e.step - tasks) < 1e-6 * tasks, "%s: %g s, not the %g tasks that it runs",
        name_of(p.arena, &meshes[i]), p.e.step, tasks);
    CHECK_INT(p.e.devices, 1);
    tsr_arena_free(p.arena);
  }
}

/* On devices of their own a rank's time is its tasks, what it waits for its collectives, and idle;
 * without a pipeline and overlap there is nothing else. */
static void test_devices(const harness_options *meshes, int count) {
  tsr_machine m = counting_machine(0);
  for (int i = 0; i < count; i++) {
    planned p = plan(&meshes[i], &m);
    const char *name = name_of(p.arena, &meshes[i]);
    int stages = p.h.programs.pipeline->stages;
    for (int s = 0; s < stages; s++) {
      const tsr_estimate_stage *e = &p.e.stages[s];
      const tsr_program *program = p.h.programs.of_stage[s];
      double tasks = count_tasks(program, false, find_owner(program));
      CHECK_AT(
          fabs(e->compute + e->waits + e->idle - p.e.step) < 1e-6 * p.e.step,
          "%s, stage %d: %g + %g + %g is not %g", name, s, e->compute, e->waits, e->idle, p.e.step);
      CHECK_AT(
          e->compute + e->waits <= tasks * (1 + 1e-9) &&
              e->compute + e->communication >= tasks * (1 - 1e-9),
          "%s, stage %d: %g s and %g s of transfers, but %g tasks", name, s, e->compute,
          e->communication, tasks);
      if (stages == 1 && !meshes[i].overlap)
        CHECK_AT(
            fabs(p.e.step - tasks) < 1e-6 * tasks, "%s: %g s, %g tasks", name, p.e.step, tasks);
    }
    CHECK(p.e.times.total <= p.e.step * (1 + 1e-9) && p.e.before >= 0 && p.e.after >= 0);
    CHECK_INT(p.e.devices, p.h.parallel.ranks);
    tsr_arena_free(p.arena);
  }
}

/* Faster links never make a step longer, and with overlap a rank never waits longer for its
 * collectives. */
static void test_links(const harness_options *meshes, int count) {
  tsr_machine m = counting_machine(0);
  m.overhead = 1e-6;
  m.flops[TSR_MACHINE_F32] = 1e9;
  m.memory_bandwidth = 1e9;
  for (int i = 0; i < count; i++) {
    double before = INFINITY;
    for (double bandwidth = 1e6; bandwidth < 1e10; bandwidth *= 10) {
      m.links[0].bandwidth = bandwidth;
      planned p = plan(&meshes[i], &m);
      CHECK_AT(
          p.e.step <= before * (1 + 1e-9), "%s: %g s, and %g s with slower links",
          name_of(p.arena, &meshes[i]), p.e.step, before);
      before = p.e.step;
      tsr_arena_free(p.arena);
      if (!meshes[i].overlap) continue;
      harness_options alone = meshes[i];
      alone.overlap = false;
      planned a = plan(&alone, &m), b = plan(&meshes[i], &m);
      for (int s = 0; s < a.h.programs.pipeline->stages; s++)
        CHECK_AT(
            b.e.stages[s].waits <= a.e.stages[s].waits * (1 + 1e-9),
            "%s: %g s of waits, without overlap %g", name_of(b.arena, &meshes[i]),
            b.e.stages[s].waits, a.e.stages[s].waits);
      tsr_arena_free(a.arena);
      tsr_arena_free(b.arena);
    }
  }
}

/* Bytes of activations that a step copies to the host. */
static double copied_bytes(const tsr_program *p) {
  double sum = 0;
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == TSR_OP_OFFLOAD)
      sum += (double)tsr_tensor_bytes(&p->tasks[i].inputs[0]) * (double)p->lowering.microbatches;
  return sum;
}

/* Copies of activations take what their bytes take, there and back; of that a rank waits for what
 * its tasks do not hide, which is nothing where the link is fast and all but the tasks' time where
 * it is slow. */
static void test_copies(void) {
  tsr_machine m = counting_machine(0);
  for (int microbatches = 1; microbatches <= 4; microbatches *= 4) {
    harness_options o = options(1, 1, 1, microbatches);
    planned kept = plan(&o, &m);
    CHECK(kept.e.stages[0].copies == 0 && kept.e.stages[0].copied == 0);
    o.offload = true;
    m.host_bandwidth = 1e300;
    planned fast = plan(&o, &m);
    CHECK(fast.e.step == kept.e.step && fast.e.stages[0].copies_open < 1e-6);
    m.host_bandwidth = 1;
    planned slow = plan(&o, &m);
    const tsr_estimate_stage *e = &slow.e.stages[0];
    double bytes = copied_bytes(slow.h.programs.of_stage[0]), ends = e->compute + e->copies_open;
    CHECK(bytes > 1e4 && e->copied == bytes && e->copies == 2 * bytes);
    CHECK(e->copies_open <= e->copies && e->copies_open >= e->copies - e->compute);
    CHECK(e->compute == kept.e.stages[0].compute && fabs(slow.e.step - ends) < 1e-6 * ends);
    tsr_arena_free(kept.arena);
    tsr_arena_free(fast.arena);
    tsr_arena_free(slow.arena);
  }
}

/* ---- work ---- */

/* 6 N tokens and causal attention's half, by hand; it does not depend on the mesh, nor on what is
 * computed again. */
static void test_model_work(const harness_options *meshes, int count) {
  tsr_machine m = counting_machine(0);
  double tokens = 8 * 8, weights = 24 * 16 + 4 * 16 * 16 + 2 * 32 * 16;
  for (int i = 0; i < count; i++) {
    planned p = plan(&meshes[i], &m);
    CHECK_NEAR(p.e.model.products, 6 * weights * tokens, 1e-9);
    CHECK_NEAR(p.e.model.attention, 3 * 0.5 * 4 * 8 * tokens * 16, 1e-9);
    CHECK_NEAR(
        p.e.utilization,
        (p.e.model.products + p.e.model.attention) / (p.h.parallel.ranks * 1e300 * p.e.step), 1e-9);
    tsr_arena_free(p.arena);
  }
}

/* Every rank's tasks together do at least the model's work, and stages share it. */
static void test_stage_work(const harness_options *meshes, int count) {
  tsr_machine m = counting_machine(0);
  for (int i = 0; i < count; i++) {
    planned p = plan(&meshes[i], &m);
    double sum = 0;
    int stages = p.h.programs.pipeline->stages;
    for (int s = 0; s < stages; s++) {
      tsr_plan of_stage;
      tsr_plan_make(p.h.programs.of_stage[s], &of_stage);
      CHECK_NEAR(p.e.stages[s].flops, of_stage.flops, 1e-12);
      sum += of_stage.flops * (p.h.parallel.ranks / stages);
    }
    CHECK(sum >= p.e.model.products);
    tsr_arena_free(p.arena);
  }
}

/* A sum over dp of an n-byte gradient sends 2 n (m - 1) / m, whichever link it goes over. */
static void test_transfers(void) {
  tsr_machine m = counting_machine(0);
  harness_options o = options(1, 4, 1, 1);
  planned p = plan(&o, &m);
  double sums = 4 * (1 + 24 * 16); /* the loss; the tied embedding's two uses are summed apart */
  for (int i = 0; i < p.h.graph->params_count; i++) {
    double n = 4;
    for (int d = 0; d < p.h.graph->params[i].ndim; d++) n *= (double)p.h.graph->params[i].shape[d];
    sums += n;
  }
  double bytes = 0;
  for (int i = 0; i < p.e.stages[0].transfers_count; i++) {
    const tsr_estimate_transfer *t = &p.e.stages[0].transfers[i];
    CHECK_INT(t->axis, TSR_DP);
    CHECK_STR(t->path, "wire");
    CHECK_NEAR(t->sent, t->sent_over[0], 1e-12);
    if (t->op == TSR_OP_ALL_REDUCE) CHECK_NEAR(t->sent, 2 * t->bytes * 3 / 4, 1e-9);
    bytes += t->bytes;
  }
  CHECK_NEAR(bytes, sums, 1e-12);
  tsr_arena_free(p.arena);
}

int main(void) {
  harness_options meshes[MESHES_MAX];
  int count = list_meshes(meshes);
  test_bytes(meshes, count);
  test_host(meshes, count);
  test_devices(meshes, count);
  test_links(meshes, count);
  test_copies();
  test_model_work(meshes, count);
  test_stage_work(meshes, count);
  test_transfers();
  return check_done("plan.estimate");
}
