/* needs: tasks with local shapes
 * gives: an offset in WORK for every tensor that a task writes, and for every task's scratch
 * breaks: nothing
 *
 * Tasks are walked in their order. A tensor takes the smallest free block that holds it when it is
 * written and gives it back after its last use. What must outlive a microbatch (accumulated
 * gradients and what the update reads) is taken before the first task, so that the body can run
 * again under it. */
#include "base/tree.h"
#include "schedule/program.h"
#include <assert.h>
#include <string.h>

typedef struct {
  int64_t offset, size;
} block;

typedef struct {
  tsr_program *p;
  tsr_arena *arena;
  block *free; /* sorted by offset, never touching one another */
  int free_count, free_capacity;
  int64_t top;
  int *owner;   /* per value: the value whose bytes it names */
  int *last;    /* per value: the last task that reads it */
  int *task_of; /* per node */
  int64_t used[TSR_USES];
  int64_t used_peak;
} planner;

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static void insert_free(planner *m, int at, block b) {
  tsr_arena_grow(m->arena, (void **)&m->free, sizeof *m->free, m->free_count, &m->free_capacity);
  memmove(m->free + at + 1, m->free + at, sizeof *m->free * (size_t)(m->free_count - at));
  m->free[at] = b;
  m->free_count++;
}

static void remove_free(planner *m, int at) {
  memmove(m->free + at, m->free + at + 1, sizeof *m->free * (size_t)(m->free_count - at - 1));
  m->free_count--;
}

static int64_t take(planner *m, int64_t size) {
  int best = -1;
  for (int i = 0; i < m->free_count; i++)
    if (m->free[i].size >= size && (best < 0 || m->free[i].size < m->free[best].size)) best = i;
  if (best >= 0) {
    int64_t offset = m->free[best].offset;
    m->free[best].offset += size;
    m->free[best].size -= size;
    if (!m->free[best].size) remove_free(m, best);
    return offset;
  }
  int64_t offset = m->top;
  if (m->free_count &&
      m->free[m->free_count - 1].offset + m->free[m->free_count - 1].size == m->top)
    offset = m->free[--m->free_count].offset; /* grow the last free block */
  m->top = offset + size;
  return offset;
}

static void give_back(planner *m, int64_t offset, int64_t size) {
  int at = 0, high = m->free_count;
  while (at < high) {
    int mid = (at + high) / 2;
    if (m->free[mid].offset < offset) at = mid + 1;
    else high = mid;
  }
  bool before = at > 0 && m->free[at - 1].offset + m->free[at - 1].size == offset;
  bool after = at < m->free_count && offset + size == m->free[at].offset;
  if (before && after) {
    m->free[at - 1].size += size + m->free[at].size;
    remove_free(m, at);
  } else if (before) {
    m->free[at - 1].size += size;
  } else if (after) {
    m->free[at].offset -= size;
    m->free[at].size += size;
  } else {
    insert_free(m, at, (block){offset, size});
  }
}

static tsr_use use_of(const tsr_task *t) {
  if (t->axis >= 0) return TSR_USE_COMMUNICATION;
  return tsr_op_facts(t->op) & TSR_FACT_GRADIENT ? TSR_USE_GRADIENT : TSR_USE_ACTIVATION;
}

/* An accumulator keeps a stack of partial sums; its total ends up in the first. */
static int64_t bytes_of(const planner *m, const tsr_task *t, int output) {
  int64_t bytes = aligned(tsr_tensor_elements(&t->outputs[output]) * 4);
  return t->op == TSR_OP_ACCUMULATE ? bytes * tsr_tree_depth(m->p->lowering.microbatches) : bytes;
}

static void count_peak(planner *m, int task) {
  int64_t sum = 0;
  for (int u = 0; u < TSR_USES; u++) sum += m->used[u];
  if (sum <= m->used_peak) return;
  m->used_peak = sum;
  m->p->peak_task = task;
  memcpy(m->p->peak_bytes, m->used, sizeof m->used);
}

static void take_output(planner *m, const tsr_task *t, int output) {
  tsr_tensor *tensor = &m->p->tensors[t->outputs[output].value];
  int64_t bytes = bytes_of(m, t, output);
  tensor->offset = take(m, bytes);
  m->used[use_of(t)] += bytes;
  m->p->unplanned_bytes += bytes;
}

/* Who owns each value's bytes, and after which task they are free. */
static void find_lifetimes(planner *m) {
  const tsr_program *p = m->p;
  for (int v = 0; v < p->graph->values_count; v++) {
    int node = p->graph->values[v].node;
    m->owner[v] =
        node >= 0 && tsr_program_is_alias(p, node) ? m->owner[p->graph->nodes[node].inputs[0]] : v;
    m->last[v] = -1;
  }
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_node *n = &p->graph->nodes[p->tasks[i].node];
    m->task_of[p->tasks[i].node] = i;
    for (int k = 0; k < n->inputs_count; k++) m->last[m->owner[n->inputs[k]]] = i;
    for (int k = 0; k < n->outputs_count; k++)
      if (m->last[n->outputs[k]] < i) m->last[n->outputs[k]] = i;
  }
  for (int i = 0; i < p->graph->outputs_count; i++)
    m->last[m->owner[p->graph->outputs[i].value]] = p->tasks_count;
  if (p->graph->loss >= 0) m->last[m->owner[p->graph->loss]] = p->tasks_count;
}

static void give_back_dead(planner *m, int task) {
  const tsr_task *t = &m->p->tasks[task];
  const tsr_node *n = &m->p->graph->nodes[t->node];
  for (int k = 0; k < n->inputs_count + n->outputs_count; k++) {
    int v = m->owner[k < n->inputs_count ? n->inputs[k] : n->outputs[k - n->inputs_count]];
    const tsr_value *value = &m->p->graph->values[v];
    if (m->last[v] != task || value->kind != TSR_VALUE_NODE) continue;
    m->last[v] = -2; /* given back: the same value may stand twice among the inputs */
    const tsr_task *by = &m->p->tasks[m->task_of[value->node]];
    int64_t bytes = bytes_of(m, by, value->output);
    give_back(m, m->p->tensors[v].offset, bytes);
    m->used[use_of(by)] -= bytes;
  }
}

static bool outlives_body(const planner *m, const tsr_task *t, int output) {
  return m->p->lowering.microbatches > 1 && t->section != TSR_UPDATE &&
         m->last[t->outputs[output].value] >= m->p->update_begin;
}

void tsr_program_plan_memory(tsr_program *program) {
  planner m = {.p = program, .arena = program->graph->arena};
  m.owner = tsr_arena_array(m.arena, int, program->graph->values_count);
  m.last = tsr_arena_array(m.arena, int, program->graph->values_count);
  m.task_of = tsr_arena_array(m.arena, int, program->graph->nodes_count);
  find_lifetimes(&m);
  for (int i = 0; i < program->update_begin; i++)
    for (int o = 0; o < program->graph->nodes[program->tasks[i].node].outputs_count; o++)
      if (outlives_body(&m, &program->tasks[i], o)) take_output(&m, &program->tasks[i], o);
  for (int i = 0; i < program->tasks_count; i++) {
    tsr_task *t = &program->tasks[i];
    for (int o = 0; o < program->graph->nodes[t->node].outputs_count; o++)
      if (!outlives_body(&m, t, o)) take_output(&m, t, o);
    int64_t scratch = aligned(t->scratch_bytes);
    t->scratch_offset = scratch ? take(&m, scratch) : 0;
    m.used[TSR_USE_SCRATCH] += scratch;
    count_peak(&m, i);
    if (scratch) give_back(&m, t->scratch_offset, scratch);
    m.used[TSR_USE_SCRATCH] -= scratch;
    give_back_dead(&m, i);
  }
  program->bytes[TSR_SEGMENT_WORK] = m.top;
}
