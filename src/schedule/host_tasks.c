// SPDX-License-Identifier: Apache-2.0
#include "schedule/host_tasks.h"
#include "schedule/assign_target.h"

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Some write a part of an output: what keeps values adds to them, a sum over microbatches too, and
 * rows of experts have room for more than there are. */
static bool writes_part(const tsr_program *p, const tsr_task *t) {
  return tsr_op_facts(t->op) & (TSR_FACT_KEPT | TSR_FACT_ROUTED) ||
         tsr_node_accumulates(&p->graph->nodes[t->node]);
}

static bool has_bytes(const tsr_task *t, int operand) {
  bool input = operand < t->inputs_count;
  const tsr_tensor *x = input ? &t->inputs[operand] : &t->outputs[operand - t->inputs_count];
  return x->segment != TSR_SEGMENT_ABSENT && !(input && operand == tsr_task_shape_input(t));
}

bool tsr_host_task_reads(const tsr_program *p, const tsr_task *t, int operand) {
  return has_bytes(t, operand) && (operand < t->inputs_count || writes_part(p, t));
}

/* A task without outputs writes parameters and state in place. */
bool tsr_host_task_writes(const tsr_program *p, const tsr_task *t, int operand) {
  if (!has_bytes(t, operand)) return false;
  if (operand >= t->inputs_count) return true;
  tsr_value_kind kind = p->graph->values[t->inputs[operand].value].kind;
  return !t->outputs_count && (kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE);
}

typedef struct {
  const tsr_program *p;
  const tsr_task *t;
  tsr_host_task *host;
  bool state_in_file;
} planning;

/* Of a sum over microbatches all entries of its stack. */
static int64_t bytes_of(const tsr_program *p, const tsr_tensor *x) {
  int64_t bytes = tsr_tensor_bytes(x), entries = tsr_program_stack_entries(p, x->value);
  return entries > 1 ? aligned(bytes) * entries : bytes;
}

/* Operands with the same bytes have the same copy, of the larger one's. */
static tsr_host_copy *find_copy(const planning *h, const tsr_tensor *x) {
  for (int i = 0; i < h->host->copies_count; i++) {
    tsr_host_copy *c = &h->host->copies[i];
    if (c->tensor.segment == x->segment && c->tensor.slot_group == x->slot_group &&
        c->tensor.offset == x->offset)
      return c;
  }
  return NULL;
}

static void add_copy(const planning *h, int operand, const tsr_tensor *x) {
  if (h->state_in_file && x->segment == TSR_SEGMENT_STATE) return;
  bool in = tsr_host_task_reads(h->p, h->t, operand);
  bool out = tsr_host_task_writes(h->p, h->t, operand);
  tsr_host_copy *c = find_copy(h, x);
  if (!in && !out) return;
  if (!c) {
    c = &h->host->copies[h->host->copies_count++];
    *c = (tsr_host_copy){.tensor = *x};
  }
  if (bytes_of(h->p, x) > c->bytes) c->bytes = bytes_of(h->p, x);
  c->in |= in;
  c->out |= out;
}

static void place_copies(tsr_host_task *host) {
  for (int i = 0; i < host->copies_count; i++) {
    host->copies[i].offset = host->bytes;
    host->bytes += aligned(host->copies[i].bytes);
  }
}

static tsr_tensor *bind(const planning *h, const tsr_tensor *operands, int count) {
  tsr_tensor *bound = tsr_arena_array(h->p->graph->arena, tsr_tensor, count + 1);
  for (int i = 0; i < count; i++) {
    bound[i] = operands[i];
    const tsr_host_copy *c = find_copy(h, &operands[i]);
    if (!c) continue;
    bound[i].segment = TSR_SEGMENT_WORK;
    bound[i].slot_group = -1;
    bound[i].offset = c->offset;
  }
  return bound;
}

static void plan_task(tsr_program *p, tsr_task *t, const tsr_target *target) {
  tsr_arena *arena = p->graph->arena;
  int operands = t->inputs_count + t->outputs_count;
  tsr_host_task *host = tsr_arena_alloc(arena, sizeof *host);
  planning h = {p, t, host, target->state_in_file};
  *host =
      (tsr_host_task){.task = *t, .copies = tsr_arena_array(arena, tsr_host_copy, operands + 1)};
  for (int i = 0; i < operands; i++)
    add_copy(&h, i, i < t->inputs_count ? &t->inputs[i] : &t->outputs[i - t->inputs_count]);
  place_copies(host);
  host->task.on_host = false;
  host->task.inputs = bind(&h, t->inputs, t->inputs_count);
  host->task.outputs = bind(&h, t->outputs, t->outputs_count);
  host->task.scratch_offset = host->bytes;
  tsr_task_size_scratch(
      target->host, p, &host->task, tsr_arena_array(arena, tsr_dtype, operands + 1));
  tsr_task_bind_kernel(&host->task);
  host->bytes += aligned(host->task.scratch_bytes);
  t->host = host;
  if (host->bytes > p->host_bytes) p->host_bytes = host->bytes;
}

void tsr_program_plan_host_tasks(tsr_program *p, const tsr_target *target) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].on_host) plan_task(p, &p->tasks[i], target);
}
