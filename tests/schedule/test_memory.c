// SPDX-License-Identifier: Apache-2.0
/* The memory plan against an analysis of its own: a whole step is unrolled (every run of every
 * part), each write and read of a tensor widens the time that its bytes are taken, and no two
 * tensors that are taken at once may share a byte. Every pair is looked at. */
#include "base/reduction_tree.h"
#include "tests/check.h"
#include "tests/run/harness.h"

typedef struct {
  const char *name;
  int64_t begin, end;  /* bytes in WORK */
  int64_t first, last; /* moments */
  int taken_over;      /* the span whose bytes the task that writes this one may take; -1: none */
  int holder;          /* the rank of dp that owns it, from 1; 0: every rank has it */
} span;

typedef struct {
  const tsr_program *p;
  span *spans;
  int count;
  int *newest; /* per value and microbatch: the span of its bytes, -1 none yet */
} unrolled;

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* The value whose bytes a value names. */
static int owner(const tsr_program *p, int value) {
  for (;;) {
    int node = p->graph->values[value].node;
    bool here = node >= 0 && tsr_program_has_node(p, node);
    int in_place = here ? tsr_program_in_place(p, node) : -1;
    if (in_place < 0 && (!here || !tsr_program_is_alias(p, node))) return value;
    value = in_place >= 0 ? in_place : p->graph->nodes[node].inputs[0];
  }
}

/* The newest span of a value for a microbatch; what is made once a step, and sums over the
 * microbatches, have one. */
static int *newest(unrolled *u, int value, int64_t microbatch) {
  const tsr_node *n = &u->p->graph->nodes[u->p->graph->values[value].node];
  bool once = n->op == TSR_OP_ACCUMULATE || n->section == TSR_PROLOGUE || n->section == TSR_UPDATE;
  return &u->newest[value * u->p->lowering.microbatches + (once ? 0 : microbatch)];
}

/* How many partial sums of microbatches are kept at once: a microbatch's is not where it completes
 * another one. */
static int stacked(int64_t microbatches) {
  int entries = 0, most = 1;
  for (int64_t i = 0; i < microbatches; i++) {
    int merges = tsr_tree_merges(microbatches, i);
    entries += 1 - merges;
    if (!merges && entries > most) most = entries;
  }
  return most;
}

static void
write_tensor(unrolled *u, const tsr_task *t, const tsr_tensor *x, int64_t now, int64_t microbatch) {
  int64_t offset = tsr_tensor_offset(u->p, x, microbatch);
  CHECK(x->segment == TSR_SEGMENT_WORK && offset >= 0 && offset % 64 == 0);
  int64_t bytes = round_up(tsr_tensor_bytes(x));
  if (t->op == TSR_OP_ACCUMULATE) bytes *= stacked(u->p->lowering.microbatches);
  CHECK(offset + bytes <= u->p->bytes[TSR_SEGMENT_WORK]);
  int *at = newest(u, owner(u->p, x->value), microbatch);
  if (owner(u->p, x->value) != x->value) return; /* the bytes that it read */
  if (t->op == TSR_OP_ACCUMULATE && *at >= 0) {  /* the same bytes, added to */
    u->spans[*at].last = now;
    return;
  }
  bool overwrites = tsr_op_facts(t->op) & TSR_FACT_OVERWRITES && t->inputs[0].dtype == x->dtype;
  int from = overwrites && t->inputs[0].segment == TSR_SEGMENT_WORK
                 ? *newest(u, owner(u->p, t->inputs[0].value), microbatch)
                 : -1;
  tsr_placement dp = u->p->graph->values[x->value].placement[TSR_DP];
  int holder = dp.kind == TSR_OWNED ? dp.owner + 1 : 0;
  *at = u->count;
  u->spans[u->count++] =
      (span){u->p->graph->values[x->value].name, offset, offset + bytes, now, now, from, holder};
}

/* Whether `later` lies exactly where its first input was, which nobody reads any more. */
static bool takes_over(const unrolled *u, const span *later, const span *before) {
  return later->taken_over >= 0 && &u->spans[later->taken_over] == before &&
         later->first == before->last && later->begin == before->begin && later->end == before->end;
}

static void read_tensor(unrolled *u, const tsr_tensor *x, int64_t now, int64_t microbatch) {
  if (x->segment == TSR_SEGMENT_ABSENT) return; /* another stage's, of a norm over all */
  int64_t offset = tsr_tensor_offset(u->p, x, microbatch);
  CHECK(offset >= 0 && offset + tsr_tensor_bytes(x) <= u->p->bytes[x->segment]);
  if (x->segment != TSR_SEGMENT_WORK) return;
  int from = owner(u->p, x->value);
  CHECK_INT(offset, tsr_tensor_offset(u->p, &u->p->tensors[from], microbatch));
  int *at = newest(u, from, microbatch);
  CHECK_AT(*at >= 0, "'%s' is read before it is written", u->p->graph->values[from].name);
  if (*at >= 0) u->spans[*at].last = now;
}

static void run_task(unrolled *u, const tsr_task *t, int64_t now, int64_t microbatch) {
  if (t->op == TSR_OP_WAIT && (t->lag == TSR_WAIT_ALL || t->lag > microbatch)) return;
  if (t->op == TSR_OP_WAIT) microbatch -= t->lag;
  for (int i = 0; i < t->inputs_count && t->op != TSR_OP_RECEIVE; i++)
    read_tensor(u, &t->inputs[i], now, microbatch);
  for (int i = 0; i < t->outputs_count; i++) write_tensor(u, t, &t->outputs[i], now, microbatch);
  if (!t->scratch_bytes) return;
  CHECK(
      t->scratch_offset >= 0 &&
      t->scratch_offset + t->scratch_bytes <= u->p->bytes[TSR_SEGMENT_WORK]);
  u->spans[u->count++] = (span){
      u->p->graph->nodes[t->node].name,
      t->scratch_offset,
      t->scratch_offset + t->scratch_bytes,
      now,
      now,
      -1,
      0};
}

static unrolled unroll(tsr_arena *arena, const tsr_program *p) {
  int64_t microbatches = p->lowering.microbatches, now = 0;
  int64_t entries = p->graph->values_count * microbatches;
  unrolled u = {.p = p, .newest = tsr_arena_array(arena, int, entries)};
  u.spans = tsr_arena_array(arena, span, p->tasks_count * (TSR_OUTPUTS_MAX + 1) * microbatches);
  for (int64_t i = 0; i < entries; i++) u.newest[i] = -1;
  for (int r = 0; r < p->runs_count; r++)
    for (int i = p->parts[p->runs[r].part].begin; i < p->parts[p->runs[r].part].end; i++)
      if (!p->tasks[i].last_only || p->runs[r].microbatch == microbatches - 1)
        run_task(&u, &p->tasks[i], now++, p->runs[r].microbatch);
  for (int i = 0; i < p->graph->outputs_count; i++) { /* what the user reads afterwards */
    const tsr_tensor *x = &p->tensors[p->graph->outputs[i].value];
    if (x->segment == TSR_SEGMENT_WORK) read_tensor(&u, x, now, microbatches - 1);
  }
  return u;
}

/* Returns how often bytes are those of two tensors at once that different ranks own. */
static int check_plan(tsr_arena *arena, const char *name, const tsr_program *p) {
  unrolled u = unroll(arena, p);
  int overlaps = 0, shared = 0;
  for (int i = 0; i < u.count; i++)
    for (int k = 0; k < i; k++) {
      const span *a = &u.spans[i], *b = &u.spans[k];
      if (a->first > b->last || b->first > a->last || a->begin >= b->end || b->begin >= a->end)
        continue;
      if (takes_over(&u, a, b)) continue;
      if (a->holder && b->holder && a->holder != b->holder) {
        shared++;
        continue;
      }
      CHECK_AT(
          overlaps++ > 3,
          "%s: '%s' [%lld, %lld) from %lld to %lld and '%s' [%lld, %lld) from %lld to %lld", name,
          a->name, (long long)a->begin, (long long)a->end, (long long)a->first, (long long)a->last,
          b->name, (long long)b->begin, (long long)b->end, (long long)b->first, (long long)b->last);
    }
  CHECK_INT(overlaps, 0);
  CHECK(u.count > p->tasks_count / 4);
  return shared;
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

static bool piece_is_taken(const tsr_work_piece *x, int time) {
  return x->first <= time && time <= x->last;
}

/* Whether a rank has both pieces at once, with a byte in common. */
static bool pieces_collide(const tsr_work_piece *a, const tsr_work_piece *b) {
  if (a->first > b->last || b->first > a->last) return false;
  if (a->holders && b->holders && a->holders != b->holders) return false;
  for (int i = 0; i < a->slots; i++)
    for (int k = 0; k < b->slots; k++) {
      int64_t x = a->offset + i * a->stride, y = b->offset + k * b->stride;
      if (x < y + b->bytes && y < x + a->bytes) return true;
    }
  return false;
}

/* The pieces at the peak are the bytes that the plan counts there, by use; no task has more; and no
 * two of a rank are the same bytes. */
static void check_pieces(const char *name, const tsr_program *p) {
  int peak = -1, collisions = 0;
  for (int i = 0; i < p->tasks_count; i++)
    if (p->plan_order[i] == p->peak_task) peak = i;
  CHECK(peak >= 0);
  int64_t at_peak[TSR_USES] = {0}, most = 0, sum = 0;
  for (int time = 0; time < p->tasks_count; time++) {
    int64_t bytes = 0;
    for (int i = 0; i < p->pieces_count; i++) {
      const tsr_work_piece *x = &p->pieces[i];
      if (!piece_is_taken(x, time) || (x->holders && x->holders != p->peak_holders)) continue;
      bytes += x->bytes * x->slots;
      if (time == peak) at_peak[x->use] += x->bytes * x->slots;
    }
    if (bytes > most) most = bytes;
  }
  for (int u = 0; u < TSR_USES; u++) {
    CHECK_AT(at_peak[u] == p->peak_bytes[u], "%s: use %d of the pieces at the peak", name, u);
    sum += at_peak[u];
  }
  CHECK_INT(most, sum);
  for (int i = 0; i < p->pieces_count; i++)
    for (int k = 0; k < i; k++) collisions += pieces_collide(&p->pieces[i], &p->pieces[k]);
  CHECK_AT(!collisions, "%s: %d pieces that are taken at once share bytes", name, collisions);
}

static tsr_action_kind kind_of(const tsr_part *part) {
  return (tsr_action_kind)(part->section - TSR_FORWARD);
}

/* How many microbatches of some chunks are alive at most, from the first of some kinds of actions
 * to the last; kinds and chunks as bits. */
static int count_alive(const tsr_program *p, uint64_t chunks, uint64_t kinds) {
  int alive = 0, most = 0, first = __builtin_ctzll(kinds), last = 63 - __builtin_clzll(kinds);
  for (int r = 0; r < p->runs_count; r++) {
    const tsr_part *part = &p->parts[p->runs[r].part];
    if (part->section == TSR_PROLOGUE || part->section == TSR_UPDATE) continue;
    if (!(chunks >> part->chunk & 1)) continue;
    if ((int)kind_of(part) == first && ++alive > most) most = alive;
    if ((int)kind_of(part) == last) alive--;
  }
  return most;
}

/* What is kept from a forward pass to its backward pass is kept as often as the order has it alive;
 * where all chunks keep the like of it, that is the order's bound. */
static void check_alive(const char *name, const tsr_program *p) {
  int bounds = 0;
  for (int i = 0; i < p->slot_groups_count; i++) {
    const tsr_slot_group *f = &p->slot_groups[i];
    uint64_t all = ((uint64_t)1 << p->pipeline->chunks) - 1;
    int chunk = __builtin_ctzll(f->parts) / 3;
    uint64_t kinds = f->parts >> 3 * chunk, chunks = f->chunks ? f->chunks : (uint64_t)1 << chunk;
    CHECK(f->pool >= 0 && f->pool <= i && (!f->chunks || f->chunks >> chunk & 1));
    CHECK_INT(f->bytes, p->slot_groups[f->pool].bytes);
    CHECK_INT(f->offset, p->slot_groups[f->pool].offset);
    CHECK_INT(f->slots, p->slot_groups[f->pool].slots);
    if (f->lag || kinds == 1 || kinds > 7 || !(kinds & 1) || f->segment != TSR_SEGMENT_WORK)
      continue;
    int alive = count_alive(p, chunks, kinds);
    CHECK_AT(f->slots == alive, "%s: %d slots, but %d are alive", name, f->slots, alive);
    if (chunks != all) continue;
    int executable = tsr_pipeline_alive(p->pipeline, p->stage, kinds >> 2 & 1);
    CHECK_AT(
        f->slots == executable, "%s: %d slots, but the bound is %d", name, f->slots, executable);
    bounds++;
  }
  if (p->pipeline->chunks > 1 && p->pipeline->stages == 2)
    CHECK_AT(bounds >= p->pipeline->chunks, "%s: the chunks share no slots", name);
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
  int64_t bytes = 0;
  for (int i = 0; i < h.programs.pipeline->stages; i++) {
    const char *name = tsr_arena_printf(
        arena, "%s dp %d tp %d zero %d%s microbatches %d, %s stage %d of %d", g->name, o.dp, o.tp,
        o.zero, o.zero_owners ? " with owners" : "", (int)o.microbatches, h.programs.pipeline->name,
        i, h.programs.pipeline->stages);
    int shared = check_plan(arena, name, h.programs.of_stage[i]);
    bool accumulates = o.zero >= 2 && o.microbatches > 1 && o.dp > 2;
    if (o.zero_owners && accumulates) CHECK_AT(shared > 0, "%s: owners share no bytes", name);
    if (!o.zero_owners) CHECK_INT(shared, 0);
    check_peak(h.programs.of_stage[i]);
    check_pieces(name, h.programs.of_stage[i]);
    check_alive(name, h.programs.of_stage[i]);
    bytes += tsr_program_bytes(h.programs.of_stage[i]) * o.dp * o.tp;
  }
  CHECK_INT(tsr_process_bytes(h.process), bytes);
  harness_close(&h);
  tsr_arena_free(arena);
}

static void run_pipelines(void) {
  for (size_t i = 0; i < HARNESS_ORDERS; i++)
    for (int pp = 2; pp <= 4; pp *= 2)
      for (int microbatches = 4; microbatches <= 8; microbatches *= 2) {
        harness_options o = {.dp = 1, .tp = 1, .threads = 1, .optimizer = &adamw};
        o.pp = pp;
        o.chunks = harness_orders[i].chunks;
        o.pipeline = harness_orders[i].kind;
        o.microbatches = microbatches;
        run(transformer, o, NULL);
        o.dp = 2;
        o.overlap = true;
        for (o.zero = 0; o.zero <= 3 && microbatches == 4; o.zero++) run(transformer, o, NULL);
        o.zero_owners = true;
        for (o.zero = 1; o.zero <= 3 && microbatches == 4; o.zero++) run(transformer, o, NULL);
      }
}

int main(void) {
  run_pipelines();
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
    harness_options owners = one;
    owners.dp = microbatches < 4 ? 4 : 2;
    owners.zero_owners = true;
    for (owners.zero = 1; owners.zero <= 3; owners.zero++) run(transformer, owners, NULL);
  }
  harness_options plain = {
      .dp = 2, .tp = 2, .threads = 1, .microbatches = 1}; /* gradients as outputs */
  run(shapes, plain, NULL);
  return check_done("memory");
}
