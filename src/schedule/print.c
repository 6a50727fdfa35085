// SPDX-License-Identifier: Apache-2.0
/* The text of a program: --dump program and --dump memory. */
#include "schedule/fuse.h"

static void print_tensor(const tsr_program *p, const tsr_tensor *t, tsr_text *text) {
  static const char *const segments[] = {"param", "state", "const", "input",
                                         "cache", "work",  "host"};
  tsr_text_add(text, "%s ", p->graph->values[t->value].name);
  if (t->dtype == TSR_BF16 || t->dtype == TSR_F16)
    tsr_text_add(text, "%s ", tsr_dtype_name(t->dtype));
  if (t->units) tsr_text_add(text, "%lld×", (long long)t->units);
  tsr_text_add(
      text, "%s @%s+%lld", tsr_shape_text(t->ndim, t->shape).text, segments[t->segment],
      (long long)t->offset);
  if (t->slot_group >= 0 && p->slot_groups[t->slot_group].slots > 1)
    tsr_text_add(text, " slot group %d", t->slot_group);
}

/* The type in which the kernel has the operand, where it is another one. */
static void print_cast(const tsr_tensor *t, const tsr_tensor *kernel, tsr_text *text) {
  if (kernel->dtype != t->dtype) tsr_text_add(text, " as %s", tsr_dtype_name(kernel->dtype));
}

/* Which virtual stage the other end of a send, receive or wait is on. */
static int peer_of(const tsr_program *p, const tsr_task *t) {
  const tsr_node *n = &p->graph->nodes[t->node];
  return t->op == TSR_OP_RECEIVE ? tsr_value_stage(p->graph, n->inputs[0]) : n->stage;
}

tsr_task_name tsr_task_op_name(const tsr_program *p, const tsr_task *t) {
  tsr_task_name name;
  size_t at = 0, room = sizeof name.text;
  int batch = tsr_task_batch(t);
  bool covers = t->covered != NULL, biased = batch && t->nodes_count > batch;
  if (batch) snprintf(name.text, room, "%d %s%s", batch, tsr_op_name(t->op), biased ? "+add" : "");
  else snprintf(name.text, room, "%s", t->fused && !covers ? "" : tsr_task_kind_name(t));
  for (int i = 0; t->fused && !batch && !covers && i < t->nodes_count && at < room; i++)
    at += (size_t)snprintf(
        name.text + at, room - at, "%s%s", i ? "+" : "",
        tsr_op_name(p->graph->nodes[t->nodes[i]].op));
  return name;
}

/* Who runs a task, where that is not all ranks: its owner's place on the axis. */
static void print_owner(const tsr_program *p, const tsr_task *t, tsr_text *text) {
  const tsr_tensor *x = t->outputs_count ? t->outputs : t->inputs;
  if (tsr_task_ranks_apart(p, t) == 1) return;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement over = p->graph->values[x->value].placement[a];
    if (over.kind == TSR_OWNED) tsr_text_add(text, " on %s %d", tsr_axis_name(a), over.owner);
  }
}

/* How many bytes are copied to the host before it runs a task, and back. */
static void print_host_copies(const tsr_task *t, tsr_text *text) {
  int64_t in = 0, out = 0;
  for (int i = 0; i < t->host->copies_count; i++) {
    const tsr_host_copy *c = &t->host->copies[i];
    in += c->in ? c->bytes : 0;
    out += c->out ? c->bytes : 0;
  }
  tsr_text_add(
      text, " on the host (%s bytes there, %s back)", tsr_text_count(in).text,
      tsr_text_count(out).text);
}

static void print_task(const tsr_program *p, int index, tsr_text *text) {
  const tsr_task *t = &p->tasks[index], *run = t->host ? &t->host->task : t;
  const tsr_node *n = &p->graph->nodes[t->node];
  tsr_text_add(text, "%5d  %-16s", index, tsr_task_op_name(p, t).text);
  if (t->axis >= 0) tsr_text_add(text, " over %s", tsr_axis_name(t->axis));
  if (tsr_reduction_leaves(&t->sum) > 1)
    tsr_text_add(text, " in %lld units", (long long)tsr_reduction_leaves(&t->sum));
  if (t->fp8) tsr_text_add(text, " in fp8");
  if (t->bucket && t->op != TSR_OP_WAIT)
    tsr_text_add(
        text, " begins with bucket %d%s", t->bucket, t->last_only ? ", last microbatch" : "");
  else if (t->last_only) tsr_text_add(text, " with the last microbatch");
  if (t->op == TSR_OP_SEND) tsr_text_add(text, " to stage %d", peer_of(p, t));
  if (t->op == TSR_OP_RECEIVE) tsr_text_add(text, " from stage %d", peer_of(p, t));
  if (t->op == TSR_OP_WAIT && t->bucket) tsr_text_add(text, " for bucket %d:", t->bucket);
  else if (t->op == TSR_OP_WAIT && t->lag == TSR_WAIT_ALL)
    tsr_text_add(text, " for all that was sent of");
  else if (t->op == TSR_OP_WAIT && t->lag)
    tsr_text_add(text, " for what was sent %d microbatches before of", t->lag);
  else if (t->op == TSR_OP_WAIT) tsr_text_add(text, " for what was sent of");
  if (t->on_host) print_host_copies(t, text);
  print_owner(p, t, text);
  for (int i = 0; i < t->outputs_count; i++) {
    tsr_text_add(text, i ? ", " : "  ");
    print_tensor(p, &t->outputs[i], text);
    print_cast(&run->outputs[i], &tsr_kernel_outputs(run)[i], text);
  }
  bool ends = t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT;
  if (!t->outputs_count && !ends) tsr_text_add(text, "  %s", n->name);
  if (!ends) tsr_text_add(text, " <-");
  for (int i = 0; i < t->inputs_count; i += t->bucket && ends ? 2 : 1) {
    tsr_text_add(text, "%s %s", i ? "," : "", p->graph->values[tsr_task_input(p, t, i)].name);
    print_cast(&run->inputs[i], &tsr_kernel_inputs(run)[i], text);
  }
  if (n->location.file && n->location.line)
    tsr_text_add(text, "  # %s:%d", n->location.file, n->location.line);
  tsr_text_add(text, "\n");
}

static void print_part(const tsr_program *p, const tsr_part *part, tsr_text *text) {
  if (part->begin == part->end) return;
  tsr_text_add(text, "%s", tsr_section_name(part->section));
  if (p->pipeline->chunks > 1 && part->section != TSR_PROLOGUE && part->section != TSR_UPDATE)
    tsr_text_add(text, " of chunk %d", part->chunk);
  tsr_text_add(text, "\n");
  for (int i = part->begin; i < part->end; i++) print_task(p, i, text);
}

static void print_slot_groups(const tsr_program *p, tsr_text *text) {
  for (int i = 0; i < p->slot_groups_count; i++) {
    const tsr_slot_group *f = &p->slot_groups[i];
    if (f->slots < 2) continue;
    tsr_text_add(
        text, "slot group %d: %d × %s bytes, for", i, f->slots, tsr_text_count(f->bytes).text);
    for (int k = 0; k < 3 * p->pipeline->chunks; k++)
      if (f->parts >> k & 1) {
        tsr_text_add(text, " %c", "FBW"[k % 3]);
        if (p->pipeline->chunks > 1) tsr_text_add(text, ".%d", k / 3);
      }
    if (f->lag)
      tsr_text_add(text, ", until %d microbatch%s later", f->lag, f->lag == 1 ? "" : "es");
    if (f->pool != i) tsr_text_add(text, ", in the slots of group %d", f->pool);
    tsr_text_add(text, "\n");
  }
}

static void print_runs(const tsr_program *p, tsr_text *text) {
  tsr_text_add(text, "runs:");
  for (int r = 0; r < p->runs_count; r++) {
    const tsr_part *part = &p->parts[p->runs[r].part];
    if (part->section == TSR_PROLOGUE && part->begin < part->end) tsr_text_add(text, " prologue");
    if (part->section == TSR_UPDATE && part->begin < part->end) tsr_text_add(text, " update");
    if (part->section == TSR_PROLOGUE || part->section == TSR_UPDATE) continue;
    tsr_text_add(text, " %c%d", "FBW"[part->section - TSR_FORWARD], p -> runs[r].microbatch);
    if (p->pipeline->chunks > 1) tsr_text_add(text, ".%d", part->chunk);
  }
  tsr_text_add(text, "\n");
}

void tsr_program_print(const tsr_program *p, tsr_text *text) {
  tsr_text_add(text, "program %s", p->graph->name);
  if (p->pipeline->stages > 1)
    tsr_text_add(text, ", stage %d of %d", p->stage, p->pipeline->stages);
  tsr_text_add(text, ": %d tasks\n", p->tasks_count);
  print_runs(p, text);
  print_slot_groups(p, text);
  for (int k = 0; k < p->parts_count; k++) print_part(p, &p->parts[k], text);
}

void tsr_program_print_memory(const tsr_program *p, tsr_text *text) {
  static const char *const segments[] = {
      "parameters", "optimizer state", "constants", "inputs", "cache", "work", "on the host"};
  static const char *const uses[] = {"activations", "gradients", "communication", "scratch"};
  tsr_text_add(text, "memory of one rank: %s bytes\n", tsr_text_count(tsr_program_bytes(p)).text);
  for (int s = 0; s < TSR_SEGMENTS; s++)
    if (p->bytes[s] || (s != TSR_SEGMENT_CACHE && s != TSR_SEGMENT_HOST))
      tsr_text_add(text, "  %-16s %20s\n", segments[s], tsr_text_count(p->bytes[s]).text);
  if (p->host_bytes)
    tsr_text_add(
        text, "copies on the host, for the tasks that it runs: %s bytes\n",
        tsr_text_count(p->host_bytes).text);
  if (!p->tasks_count) return;
  tsr_text_add(
      text, "work at its fullest, task %d (%s):\n", p->peak_task,
      p->graph->nodes[p->tasks[p->peak_task].node].name);
  for (int u = 0; u < TSR_USES; u++)
    tsr_text_add(text, "  %-16s %20s\n", uses[u], tsr_text_count(p->peak_bytes[u]).text);
  tsr_text_add(text, "  %-16s %20s\n", "without reuse", tsr_text_count(p->unplanned_bytes).text);
}
