/* The memory plan against an analysis of its own: a whole step is unrolled (every microbatch, then
 * the update), each write and read of a tensor widens the time that its bytes are taken, and no two
 * tensors that are taken at once may share a byte. Every pair is looked at. */
#include "base/tree.h"
#include "tests/check.h"
#include "tests/run/harness.h"

typedef struct {
  const char *name;
  int64_t begin, end;  /* bytes in WORK */
  int64_t first, last; /* moments */
} span;

typedef struct {
  const tsr_program *p;
  span *spans;
  int count;
  int *newest; /* per value: the span of its bytes, -1 none yet */
} unrolled;

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* The value whose bytes a value names. */
static int owner(const tsr_program *p, int value) {
  for (;;) {
    int node = p->graph->values[value].node;
    if (node < 0 || !tsr_program_is_alias(p, node)) return value;
    value = p->graph->nodes[node].inputs[0];
  }
}

static void
write_tensor(unrolled *u, const tsr_task *t, const tsr_tensor *x, int64_t now, int64_t microbatch) {
  CHECK(x->segment == TSR_SEGMENT_WORK && x->offset >= 0 && x->offset % 64 == 0);
  int64_t bytes = round_up(tsr_tensor_elements(x) * 4);
  if (t->op == TSR_OP_ACCUMULATE) bytes *= tsr_tree_depth(u->p->lowering.microbatches);
  CHECK(x->offset + bytes <= u->p->bytes[TSR_SEGMENT_WORK]);
  if (t->op == TSR_OP_ACCUMULATE && microbatch > 0) { /* the same bytes, added to */
    u->spans[u->newest[x->value]].last = now;
    return;
  }
  u->newest[x->value] = u->count;
  u->spans[u->count++] =
      (span){u->p->graph->values[x->value].name, x->offset, x->offset + bytes, now, now};
}

static void read_tensor(unrolled *u, const tsr_tensor *x, int64_t now) {
  CHECK(x->segment < TSR_SEGMENTS && x->offset >= 0);
  CHECK(x->offset + tsr_tensor_elements(x) * 4 <= u->p->bytes[x->segment]);
  if (x->segment != TSR_SEGMENT_WORK) return;
  int from = owner(u->p, x->value);
  CHECK_INT(x->offset, u->p->tensors[from].offset);
  CHECK_AT(
      u->newest[from] >= 0, "'%s' is read before it is written", u->p->graph->values[from].name);
  if (u->newest[from] >= 0) u->spans[u->newest[from]].last = now;
}

static void run_task(unrolled *u, const tsr_task *t, int64_t now, int64_t microbatch) {
  const tsr_node *n = &u->p->graph->nodes[t->node];
  for (int i = 0; i < t->inputs_count; i++) read_tensor(u, &t->inputs[i], now);
  for (int i = 0; i < n->outputs_count; i++) write_tensor(u, t, &t->outputs[i], now, microbatch);
  if (!t->scratch_bytes) return;
  CHECK(
      t->scratch_offset >= 0 &&
      t->scratch_offset + t->scratch_bytes <= u->p->bytes[TSR_SEGMENT_WORK]);
  u->spans[u->count++] =
      (span){n->name, t->scratch_offset, t->scratch_offset + t->scratch_bytes, now, now};
}

static unrolled unroll(tsr_arena *arena, const tsr_program *p) {
  int64_t microbatches = p->lowering.microbatches, now = 0;
  unrolled u = {.p = p, .newest = tsr_arena_array(arena, int, p->graph->values_count)};
  u.spans = tsr_arena_array(arena, span, p->tasks_count * (TSR_OUTPUTS_MAX + 1) * microbatches);
  for (int v = 0; v < p->graph->values_count; v++) u.newest[v] = -1;
  for (int64_t m = 0; m < microbatches; m++)
    for (int i = 0; i < p->update_begin; i++) run_task(&u, &p->tasks[i], now++, m);
  for (int i = p->update_begin; i < p->tasks_count; i++)
    run_task(&u, &p->tasks[i], now++, microbatches);
  for (int i = 0; i < p->graph->outputs_count; i++) { /* what the user reads afterwards */
    int from = owner(p, p->graph->outputs[i].value);
    if (p->tensors[from].segment == TSR_SEGMENT_WORK) u.spans[u.newest[from]].last = now;
  }
  return u;
}

static void check_plan(tsr_arena *arena, const char *name, const tsr_program *p) {
  unrolled u = unroll(arena, p);
  int overlaps = 0;
  for (int i = 0; i < u.count; i++)
    for (int k = 0; k < i; k++) {
      const span *a = &u.spans[i], *b = &u.spans[k];
      if (a->first > b->last || b->first > a->last || a->begin >= b->end || b->begin >= a->end)
        continue;
      CHECK_AT(
          overlaps++ > 3,
          "%s: '%s' [%lld, %lld) from %lld to %lld and '%s' [%lld, %lld) from %lld to %lld", name,
          a->name, (long long)a->begin, (long long)a->end, (long long)a->first, (long long)a->last,
          b->name, (long long)b->begin, (long long)b->end, (long long)b->first, (long long)b->last);
    }
  CHECK_INT(overlaps, 0);
  CHECK(u.count > p->tasks_count / 2);
}

/* At no moment may more be taken than the plan says is taken at its fullest. */
static void check_peak(const tsr_program *p) {
  int64_t peak = 0;
  for (int i = 0; i < TSR_USES; i++) peak += p->peak_bytes[i];
  CHECK(
      peak > 0 && peak <= p->bytes[TSR_SEGMENT_WORK] &&
      peak <= p->unplanned_bytes + p->bytes[TSR_SEGMENT_WORK]);
  CHECK(p->peak_task >= 0 && p->peak_task < p->tasks_count);
}

/* ---- graphs ---- */

static void block(tsr_graph *g, const char *x, int i, bool biased) {
  harness_params(
      g, tsr_arena_printf(
             g->arena,
             "n%d 16; q%d 16,16 0; k%d 16,16 0; v%d 16,16 0; o%d 16,16 1; m%d 16; u%d 48,16 0; w%d "
             "48,16 0; d%d 16,48 1;"
             "b%d 16; c%d 48 0",
             i, i, i, i, i, i, i, i, i, i, i));
  harness_calls(
      g, tsr_arena_printf(
             g->arena,
             "h%d: rmsnorm(%s, n%d); hq%d: linear(h%d, q%d); hk%d: linear(h%d, k%d); hv%d: "
             "linear(h%d, v%d)\n"
             "rq%d: rope(hq%d, head_dim: 4); rk%d: rope(hk%d, head_dim: 4)\n"
             "a%d: attention(rq%d, rk%d, hv%d, head_dim: 4); ao%d: linear(a%d, o%d%s%.0d); y%d: "
             "add(%s, ao%d)\n",
             i, x, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i,
             biased ? ", b" : "", biased ? i : 0, i, x, i));
  harness_calls(
      g, tsr_arena_printf(
             g->arena,
             "l%d: layernorm(y%d, m%d, b%d); uu%d: linear(l%d, u%d, c%d); uw%d: linear(l%d, w%d); "
             "s%d: swiglu(uu%d, uw%d)\n"
             "dd%d: linear(s%d, d%d); r%d: dropout(dd%d, p: 0.1); x%d: add(y%d, r%d)",
             i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i));
}

static tsr_graph *transformer(tsr_arena *arena, int64_t batch) {
  tsr_graph *g = tsr_graph_new(arena, "transformer", (tsr_units){.batch = 8, .tp = 4});
  harness_inputs(
      g,
      tsr_arena_printf(arena, "tokens %d,6 tokens; targets %d,6 tokens", (int)batch, (int)batch));
  harness_params(g, "wte 24,16 0; nf 16");
  harness_calls(g, "x0: embedding(tokens, wte)");
  for (int i = 1; i <= 3; i++) block(g, tsr_arena_printf(arena, "x%d", i - 1), i, i > 1);
  harness_calls(
      g, "f: rmsnorm(x3, nf); logits: linear(f, wte); loss: cross_entropy(logits, targets)");
  return g;
}

/* Values that go by several names, are read twice by one task, or by nobody. */
static tsr_graph *shapes(tsr_arena *arena, int64_t batch) {
  tsr_graph *g = tsr_graph_new(arena, "shapes", (tsr_units){.batch = 8, .tp = 4});
  harness_inputs(g, tsr_arena_printf(arena, "x %d,4,6; z %d,6", (int)batch, (int)batch));
  harness_params(g, "w 6,6; u 24; unused 5");
  harness_calls(
      g,
      tsr_arena_printf(
          arena,
          "r: reshape(x, shape: [%d,24]); ru: mul(r, u); rr: reshape(ru, shape: [%d,4,6]); h: "
          "linear(rr, w)\n"
          "hh: mul(h, h); nobody: tanh(hh); s: split(hh, sections: 4, dim: 1); a: add(s.0, s.1)\n"
          "t: transpose(s.3, dim0: 1, dim1: 2); tt: reshape(t, shape: [%d,6]); b: reshape(a, "
          "shape: [%d,6])\n"
          "c: sub(b, tt); d: all_reduce(c, axis: cp); loss: mse(d, z)",
          (int)batch, (int)batch, (int)batch, (int)batch));
  return g;
}

static const tsr_optimizer adamw = {
    .kind = TSR_RULE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip_max_norm = 1};

static void
run(tsr_graph *(*build)(tsr_arena *arena, int64_t batch), harness_options o, const char *output) {
  tsr_arena *arena = tsr_arena_new();
  o.batch_units = 8;
  o.tp_units = 4;
  o.vocabulary = 24;
  tsr_graph *g = build(arena, 16 / o.microbatches);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  if (output) tsr_graph_output(g, output, harness_find(g, output));
  harness h = harness_open(arena, g, &o);
  const char *name = tsr_arena_printf(
      arena, "%s dp %d tp %d microbatches %d", g->name, o.dp, o.tp, (int)o.microbatches);
  check_plan(arena, name, h.program);
  check_peak(h.program);
  CHECK_INT(tsr_worker_bytes(h.worker), tsr_program_bytes(h.program) * o.dp * o.tp);
  harness_close(&h);
  tsr_arena_free(arena);
}

int main(void) {
  for (int microbatches = 1; microbatches <= 4; microbatches *= 2) {
    harness_options one = {
        .dp = 1, .tp = 1, .threads = 2, .microbatches = microbatches, .optimizer = &adamw};
    harness_options four = one;
    four.dp = four.tp = 2;
    run(transformer, one, NULL);
    run(transformer, four, NULL);
    run(transformer, four, "logits");
    run(shapes, one, NULL);
    run(shapes, four, "rr");
  }
  harness_options plain = {
      .dp = 2, .tp = 2, .threads = 1, .microbatches = 1}; /* gradients as outputs */
  run(shapes, plain, NULL);
  return check_done("memory");
}
