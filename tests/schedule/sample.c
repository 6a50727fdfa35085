// SPDX-License-Identifier: Apache-2.0
#include "sample.h"
#include <stdlib.h>
#include <string.h>

/* The text with the number for '#' and the one before it for '<'. */
static const char *numbered(tsr_arena *arena, const char *text, int number) {
  char *out = tsr_arena_alloc(arena, strlen(text) * 2 + 1), *to = out;
  for (; *text; text++) {
    if (*text == '#' || *text == '<') to += sprintf(to, "%d", number - (*text == '<'));
    else *to++ = *text;
  }
  return out;
}

static void add_block(tsr_graph *g, int number) {
  harness_params(
      g, numbered(
             g->arena,
             "n# 16; q# 16,16 0; k# 16,16 0; v# 16,16 0; o# 16,16 1; b# 16; m# 16; u# 32,16 0\n"
             "g# 32,16 0; d# 16,32 1",
             number));
  harness_calls(
      g,
      numbered(
          g->arena,
          "h#: rmsnorm(x<, n#); hq#: linear(h#, q#); hk#: linear(h#, k#); hv#: linear(h#, v#)\n"
          "rq#: rope(hq#, head_dim: 4); rk#: rope(hk#, head_dim: 4)\n"
          "a#: attention(rq#, rk#, hv#, head_dim: 4); ao#: linear(a#, o#, b#); y#: add(x<, ao#)\n"
          "l#: rmsnorm(y#, m#); lu#: linear(l#, u#); lg#: linear(l#, g#); s#: swiglu(lu#, lg#)\n"
          "dd#: linear(s#, d#); r#: dropout(dd#, p: 0.1); x#: add(y#, r#)",
          number));
}

/* ep shares the experts out, and tp splits each. */
static void add_experts(tsr_graph *g) {
  harness_params(g, "er 8,16; eu 8,8,16 experts 1; ed 8,16,8 experts 2");
  harness_calls(
      g, "es: router(x2, er); ep: softmax(es); ec: choose_experts(ep, k: 3)\n"
         "ew: expert_weights(ep, ec, normalize: 1); plan: expert_plan(ec, eu)\n"
         "e0: permute_experts(x2, plan); e1: expert_linear(e0, eu, plan); e2: gelu(e1)\n"
         "e3: expert_linear(e2, ed, plan); ef: combine_experts(e3, ew, plan); x3: add(x2, ef)");
}

tsr_graph *sample_graph(tsr_arena *arena, const harness_options *o) {
  tsr_units units = {
      .batch = o->batch_units, .sequence = o->sequence_units, .tp = 4, .tree = o->tree};
  units.tp_in_half = o->tp_in_half;
  tsr_graph *g = tsr_graph_new(arena, "sample", units);
  int positions = o->sequence_units > 4 ? (int)o->sequence_units : 4;
  int batch = (int)((o->dp == 3 ? 12 : 16) / o->microbatches);
  harness_inputs(
      g,
      tsr_arena_printf(
          arena, "tokens %d,%d tokens; targets %d,%d tokens", batch, positions, batch, positions));
  harness_params(g, "wte 24,16 0; nf 16");
  harness_calls(g, "x0: embedding(tokens, wte)");
  for (int i = 1; i <= 2; i++) add_block(g, i);
  if (o->expert_units) add_experts(g);
  harness_calls(g, o->expert_units ? "f: rmsnorm(x3, nf)" : "f: rmsnorm(x2, nf)");
  harness_calls(g, "logits: linear(f, wte); loss: cross_entropy(logits, targets)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

harness_options sample_options(harness_options o) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(0.5);
  o.threads = 1;
  o.batch_units = o.dp == 3 ? 3 : 8;
  o.tp_units = 4;
  if (!o.sequence_units && (o.sequence_parallel || o.cp > 1)) o.sequence_units = 4;
  o.vocabulary = 24;
  o.optimizer = &adamw;
  return o;
}

harness sample_compile(tsr_arena *arena, const harness_options *o) {
  tsr_diags *diags = tsr_diags_new(arena);
  harness h;
  if (harness_compile(sample_graph(arena, o), o, &h, diags)) return h;
  tsr_diags_print(diags, stderr);
  abort();
}

const char *sample_text(tsr_arena *arena, const harness_options *o) {
  return tsr_arena_printf(
      arena, "pp %d dp %d cp %d tp %d %s, %d microbatches%s%s%s%s", o->pp ? o->pp : 1, o->dp,
      o->cp ? o->cp : 1, o->tp, o->pp > 1 ? tsr_pipeline_name(o->pipeline) : "alone",
      (int)o->microbatches, o->sequence_parallel ? ", sequence parallel" : "",
      o->zero ? tsr_arena_printf(arena, ", ZeRO %d", o->zero) : "",
      o->zero_owners ? " with owners" : "", o->overlap ? ", overlap" : "");
}

tsr_verify_mesh sample_mesh(const tsr_parallel *parallel) {
  tsr_verify_mesh mesh = {.ranks = parallel->ranks};
  memcpy(mesh.size, parallel->size, sizeof mesh.size);
  memcpy(mesh.stride, parallel->stride, sizeof mesh.stride);
  return mesh;
}

/* ---- copies ---- */

static void *copy_of(tsr_arena *arena, const void *items, size_t bytes) {
  void *copy = tsr_arena_alloc(arena, bytes + 1);
  if (bytes) memcpy(copy, items, bytes);
  return copy;
}
#define COPY(items, count) copy_of(arena, items, sizeof *(items) * (size_t)(count))

tsr_program *sample_copy(tsr_arena *arena, const tsr_program *program) {
  tsr_program *p = COPY(program, 1);
  p->tasks = COPY(p->tasks, p->tasks_count);
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    t->inputs = COPY(t->inputs, t->inputs_count);
    t->outputs = COPY(t->outputs, t->outputs_count);
  }
  p->parts = COPY(p->parts, p->parts_count);
  p->runs = COPY(p->runs, p->runs_count);
  p->slot_groups = COPY(p->slot_groups, p->slot_groups_count);
  for (int i = 0; i < p->slot_groups_count; i++)
    p->slot_groups[i].slot_of = COPY(p->slot_groups[i].slot_of, p->lowering.microbatches);
  p->tensors = COPY(p->tensors, p->graph->values_count);
  return p;
}

tsr_programs sample_copy_all(tsr_arena *arena, const tsr_programs *programs) {
  tsr_programs copy = *programs;
  copy.of_stage = tsr_arena_array(arena, tsr_program *, programs->pipeline->stages);
  for (int s = 0; s < programs->pipeline->stages; s++)
    copy.of_stage[s] = sample_copy(arena, programs->of_stage[s]);
  return copy;
}

/* ---- changes ---- */

int sample_part_of(const tsr_program *p, int task) {
  int k = 0;
  while (task >= p->parts[k].end) k++;
  return k;
}

static void shift_parts(tsr_program *p, int part, int by) {
  p->parts[part].end += by;
  for (int k = part + 1; k < p->parts_count; k++) {
    p->parts[k].begin += by;
    p->parts[k].end += by;
  }
}

void sample_remove_task(tsr_program *p, int task) {
  shift_parts(p, sample_part_of(p, task), -1);
  memmove(
      p->tasks + task, p->tasks + task + 1, sizeof *p->tasks * (size_t)(--p->tasks_count - task));
}

void sample_insert_task(tsr_arena *arena, tsr_program *p, int at, tsr_task task, int part) {
  tsr_task *tasks = tsr_arena_array(arena, tsr_task, p->tasks_count + 1);
  memcpy(tasks, p->tasks, sizeof *tasks * (size_t)at);
  tasks[at] = task;
  memcpy(tasks + at + 1, p->tasks + at, sizeof *tasks * (size_t)(p->tasks_count - at));
  p->tasks = tasks;
  p->tasks_count++;
  shift_parts(p, part, 1);
}

void sample_move_task(tsr_program *p, int from, int to) {
  tsr_task task = p->tasks[from];
  for (; from < to; from++) p->tasks[from] = p->tasks[from + 1];
  for (; from > to; from--) p->tasks[from] = p->tasks[from - 1];
  p->tasks[to] = task;
}

void sample_bind(tsr_program *p) {
  const tsr_graph *g = p->graph;
  for (int i = 0; i < g->nodes_count; i++) {
    if (!tsr_program_has_node(p, i) || !tsr_program_is_alias(p, i)) continue;
    const tsr_tensor *from = &p->tensors[g->nodes[i].inputs[0]];
    tsr_tensor *to = &p->tensors[g->nodes[i].outputs[0]];
    to->segment = from->segment;
    to->offset = from->offset;
    to->slot_group = from->slot_group;
  }
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    for (int k = 0; k < t->inputs_count && t->op != TSR_OP_RECEIVE; k++)
      t->inputs[k] = p->tensors[t->inputs[k].value];
    for (int k = 0; k < t->outputs_count; k++) t->outputs[k] = p->tensors[t->outputs[k].value];
  }
}
