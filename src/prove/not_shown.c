// SPDX-License-Identifier: Apache-2.0
#include "prove/not_shown.h"
#include "prove/reference.h"
#include <string.h>

static const int64_t limit = (int64_t)1 << 31; /* of signed offsets of 32 bits */

/* ---- extents ---- */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void add_tensors(tsr_program_extent *e, const tsr_program *p) {
  for (int v = 0; v < p->graph->values_count; v++) {
    const tsr_tensor *t = &p->tensors[v];
    if (t->segment == TSR_SEGMENT_ABSENT) continue;
    int64_t elements = tsr_tensor_elements(t), bytes = tsr_tensor_bytes(t);
    e->large += elements >= limit || bytes >= limit;
    if (bytes <= e->bytes) continue;
    e->tensor = p->graph->values[v].name;
    e->elements = elements;
    e->bytes = bytes;
  }
  for (int s = 0; s < TSR_SEGMENTS; s++) e->segment = most(e->segment, p->bytes[s]);
  for (int i = 0; i < p->graph->params_count; i++) {
    const tsr_param *q = &p->graph->params[i];
    e->padding = most(e->padding, q->shape[q->padding.dim] - q->padding.real);
  }
}

/* Linear layers and their gradients to the input sum over the first operand's last dimension. */
static void add_task(tsr_program_extent *e, const tsr_task *t) {
  for (int i = 0; t->covered && i < t->nodes_count; i++) add_task(e, &t->covered[i]);
  if (t->covered) return;
  if (!t->inputs_count || tsr_op_is_collective(t->op)) return;
  if (t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT) return;
  const tsr_tensor *x = &t->inputs[0];
  tsr_cpu_partition p = tsr_cpu_partition_of(t, 1, 1);
  bool linear = t->op == TSR_OP_LINEAR || t->op == TSR_OP_LINEAR_DX;
  bool attention = tsr_op_facts(t->op) & TSR_FACT_ATTENTION && t->inputs_count > 2;
  if (p.strips) e->strips = most(e->strips, p.items);
  else e->items = most(e->items, p.items);
  if (linear && x->ndim) e->terms = most(e->terms, x->shape[x->ndim - 1]);
  if (attention && t->inputs[1].ndim == 3) e->positions = most(e->positions, t->inputs[1].shape[1]);
}

tsr_program_extent tsr_program_extent_of(const tsr_programs *programs) {
  tsr_program_extent e = {.tensor = ""};
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    add_tensors(&e, p);
    for (int t = 0; t < p->tasks_count; t++) add_task(&e, &p->tasks[t]);
  }
  return e;
}

/* ---- lines ---- */

static void
add_offsets(const tsr_program_extent *full, const tsr_program_extent *reduced, tsr_text *text) {
  tsr_text_add(
      text,
      "  offsets of 32 bits: the largest tensor of a rank is '%s', %s elements in %s, and its "
      "largest buffer %s; ",
      full->tensor, tsr_text_count(full->elements).text, tsr_text_bytes(full->bytes).text,
      tsr_text_bytes(full->segment).text);
  if (full->large)
    tsr_text_add(
        text, "%d tensor%s 2^31 elements or bytes or more, of the reduced model %d\n", full->large,
        full->large == 1 ? " has" : "s have", reduced->large);
  else tsr_text_add(text, "none has 2^31 elements or bytes\n");
}

static void add_extent(tsr_text *text, const char *format, int64_t full, int64_t reduced) {
  if (full <= reduced) return;
  tsr_text_add(text, text->length ? ", " : "");
  tsr_text_add(text, format, tsr_text_count(full).text);
  tsr_text_add(text, " (reduced: %s)", tsr_text_count(reduced).text);
}

static void
add_tiles(const tsr_program_extent *full, const tsr_program_extent *reduced, tsr_text *text) {
  tsr_text parts = {0};
  add_extent(&parts, "GEMMs of %s strips", full->strips, reduced->strips);
  add_extent(&parts, "sums of %s terms", full->terms, reduced->terms);
  add_extent(&parts, "padding of %s rows", full->padding, reduced->padding);
  add_extent(&parts, "attention to %s positions", full->positions, reduced->positions);
  add_extent(&parts, "other tasks of %s rows or elements", full->items, reduced->items);
  tsr_text_add(
      text, "  tiles, blocks and shares of threads that only full size has: %s\n",
      parts.length ? parts.data : "none");
  tsr_text_free(&parts);
}

static bool has_dropout(const tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].section == TSR_FORWARD && tsr_node_dropout(&g->nodes[i]) > 0) return true;
  return false;
}

static void add_common(const tsr_config *c, const tsr_graph *g, tsr_text *text) {
  bool half = c->training.precision != TSR_PRECISION_F32;
  bool scaled = c->training.precision == TSR_PRECISION_FP16;
  tsr_text_add(
      text,
      "  errors of both runs: the interpreter covers forward and backward pass of step 1%s; not "
      "norms, clipping, the optimizer, first values%s%s%s\n",
      half ? " in f32" : "", has_dropout(g) ? ", dropout's random numbers" : "",
      half ? ", rounding to half precision" : "", scaled ? ", the loss scale" : "");
}

static void add_devices(const tsr_prove_request *r, tsr_text *text) {
  bool cuda = r->config->device.kind == TSR_DEVICE_CUDA;
  tsr_text_add(
      text, "  other devices: tasks ran on the CPU, %s%s\n", r->cpu.k->isa,
      cuda ? "; the program is the CPU's, too, and no kernel of the GPU ran" : "");
}

void tsr_not_shown_print(const tsr_prove_request *r, const tsr_reduced_run *plan, tsr_text *text) {
  tsr_program_extent full = tsr_program_extent_of(&r->training->programs);
  tsr_program_extent reduced = tsr_program_extent_of(&plan->mesh.compiled.programs);
  tsr_text_add(text, "not shown:\n");
  add_offsets(&full, &reduced, text);
  add_tiles(&full, &reduced, text);
  add_common(r->config, plan->mesh.compiled.graph, text);
  tsr_text_add(
      text, "  data and files: samples are synthetic; no data, tokenizer, weights or checkpoint "
            "is read or written\n");
  tsr_text_add(
      text, "  timing: all ranks are in one process, which runs them task by task; no messages or "
            "races between processes, no failures\n");
  add_devices(r, text);
}
