// SPDX-License-Identifier: Apache-2.0
#include "faults.h"
#include <string.h>

/* ---- chance ---- */

static uint64_t draw(mutant *m) { /* splitmix64 */
  uint64_t x = m->state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
int mutant_below(mutant *m, int n) { return (int)(draw(m) % (uint64_t)n); }
static int below(mutant *m, int n) { return mutant_below(m, n); }
static int64_t some_offset(mutant *m) { return (1 + below(m, 8)) * (below(m, 2) ? 64 : -64); }

int mutant_pick_task(mutant *m, mutant_task_kind *wanted) {
  int count = 0, chosen = -1;
  for (int i = 0; i < m->p->tasks_count; i++)
    if (wanted(m, &m->p->tasks[i]) && below(m, ++count) == 0) chosen = i;
  return chosen;
}
static bool any(const mutant *m, const tsr_task *t) { return (void)m, (void)t, true; }
static bool is_send(const mutant *m, const tsr_task *t) { return (void)m, t->op == TSR_OP_SEND; }
static bool is_receive(const mutant *m, const tsr_task *t) {
  return (void)m, t->op == TSR_OP_RECEIVE;
}
static bool is_wait(const mutant *m, const tsr_task *t) {
  return (void)m, t->op == TSR_OP_WAIT && !t->bucket;
}
static bool is_bucket_wait(const mutant *m, const tsr_task *t) {
  return (void)m, t->op == TSR_OP_WAIT && t->bucket;
}
static bool is_begun(const mutant *m, const tsr_task *t) {
  return (void)m, t->op != TSR_OP_WAIT && t->bucket;
}
static bool is_transfer(const mutant *m, const tsr_task *t) {
  return is_send(m, t) || is_receive(m, t) || is_wait(m, t);
}
static bool is_collective(const mutant *m, const tsr_task *t) {
  return (void)m, tsr_op_is_collective(t->op);
}
static bool has_inputs(const mutant *m, const tsr_task *t) {
  return (void)m, t->inputs_count > 0 && t->op != TSR_OP_WAIT;
}
static bool has_scratch(const mutant *m, const tsr_task *t) {
  return (void)m, t->scratch_bytes > 0;
}

bool mutant_is_work(const mutant *m, int value) {
  const tsr_tensor *t = &m->p->tensors[value];
  const tsr_value *v = &m->p->graph->values[value];
  bool named = v->kind == TSR_VALUE_NODE && tsr_program_has_node(m->p, v->node) &&
               tsr_program_is_alias(m->p, v->node);
  return t->segment == TSR_SEGMENT_WORK && !named;
}
bool mutant_is_framed(const mutant *m, int value) {
  const tsr_tensor *t = &m->p->tensors[value];
  return t->segment != TSR_SEGMENT_ABSENT && t->slot_group >= 0 &&
         (mutant_is_work(m, value) || t->segment == TSR_SEGMENT_INPUT);
}
static bool is_here(const mutant *m, int value) {
  return m->p->tensors[value].segment != TSR_SEGMENT_ABSENT;
}
int mutant_pick_value(mutant *m, mutant_value_kind *wanted) {
  int count = 0, chosen = -1;
  for (int x = 0; x < m->p->graph->values_count; x++)
    if (wanted(m, x) && below(m, ++count) == 0) chosen = x;
  return chosen;
}

/* ---- faults: false where the program has nothing of the kind ---- */

static bool drop_task(mutant *m) {
  return sample_remove_task(m->p, below(m, m->p->tasks_count)), true;
}
static bool double_task(mutant *m) {
  int i = mutant_pick_task(m, any);
  sample_insert_task(m->arena, m->p, i, m->p->tasks[i], sample_part_of(m->p, i));
  return true;
}
static bool drop_transfer(mutant *m) {
  int i = mutant_pick_task(m, is_transfer);
  if (i < 0) return false;
  return sample_remove_task(m->p, i), true;
}
static bool swap_tasks(tsr_program *p, int i, int j) {
  if (i < 0 || j < 0 || i >= p->tasks_count || j >= p->tasks_count || i == j) return false;
  if (sample_part_of(p, i) != sample_part_of(p, j)) return false;
  tsr_task t = p->tasks[i];
  p->tasks[i] = p->tasks[j];
  p->tasks[j] = t;
  return true;
}
static bool swap_neighbours(mutant *m) {
  int i = mutant_pick_task(m, any);
  return swap_tasks(m->p, i, i + 1);
}
static bool swap_far(mutant *m) {
  int i = mutant_pick_task(m, any), part = sample_part_of(m->p, i);
  const tsr_part *k = &m->p->parts[part];
  return swap_tasks(m->p, i, k->begin + below(m, k->end - k->begin));
}
static bool move_within(mutant *m, int i) {
  if (i < 0) return false;
  const tsr_part *k = &m->p->parts[sample_part_of(m->p, i)];
  sample_move_task(m->p, i, k->begin + below(m, k->end - k->begin));
  return true;
}
static bool move_task(mutant *m) { return move_within(m, mutant_pick_task(m, any)); }
static bool swap_moves(mutant *m) {
  int i = mutant_pick_task(m, is_collective), j = mutant_pick_task(m, is_collective);
  return swap_tasks(m->p, i, j);
}
static bool move_part(mutant *m) {
  int k = 1 + below(m, m->p->parts_count - 1);
  int to = m->p->parts[k].begin + (below(m, 2) ? 1 : -1);
  if (to < m->p->parts[k - 1].begin || to > m->p->parts[k].end) return false;
  m->p->parts[k].begin = m->p->parts[k - 1].end = to;
  return true;
}

static bool drop_run(mutant *m) {
  tsr_program *p = m->p;
  int r = below(m, p->runs_count--);
  memmove(p->runs + r, p->runs + r + 1, sizeof *p->runs * (size_t)(p->runs_count - r));
  return true;
}
static bool double_run(mutant *m) {
  tsr_program *p = m->p;
  tsr_run *runs = tsr_arena_array(m->arena, tsr_run, p->runs_count + 1);
  int r = below(m, p->runs_count);
  memcpy(runs, p->runs, sizeof *runs * (size_t)(r + 1));
  memcpy(runs + r + 1, p->runs + r, sizeof *runs * (size_t)(p->runs_count++ - r));
  p->runs = runs;
  return true;
}
static bool swap_runs(mutant *m) {
  int a = below(m, m->p->runs_count), b = below(m, 2) ? a + 1 : below(m, m->p->runs_count);
  if (a == b || b >= m->p->runs_count) return false;
  tsr_run r = m->p->runs[a];
  m->p->runs[a] = m->p->runs[b];
  m->p->runs[b] = r;
  return true;
}
static bool change_run(mutant *m) {
  tsr_run *r = &m->p->runs[below(m, m->p->runs_count)];
  r->microbatch = (r->microbatch + 1) % (int)m->p->lowering.microbatches;
  return m->p->lowering.microbatches > 1;
}

/* Another receive node, if there is one. */
static int other_transfer(mutant *m, int node) {
  int count = 0, chosen = -1;
  for (int i = 0; i < m->p->graph->nodes_count; i++)
    if (m->p->graph->nodes[i].op == TSR_OP_RECEIVE && i != node && below(m, ++count) == 0)
      chosen = i;
  return chosen;
}
static bool receive_other(mutant *m) {
  int i = mutant_pick_task(m, is_receive);
  if (i < 0) return false;
  int node = other_transfer(m, m->p->tasks[i].node);
  if (node < 0) return false;
  m->p->tasks[i].inputs[0].value = m->p->graph->nodes[node].inputs[0];
  return true;
}
static bool receive_size(mutant *m) {
  int i = mutant_pick_task(m, is_receive);
  if (i < 0) return false;
  m->p->tasks[i].inputs[0].shape[0] *= 2;
  return true;
}
static bool change_node(mutant *m, int task) {
  int node = task < 0 ? -1 : other_transfer(m, m->p->tasks[task].node);
  if (node < 0) return false;
  m->p->tasks[task].node = node;
  return true;
}
static bool send_node(mutant *m) { return change_node(m, mutant_pick_task(m, is_send)); }
static bool wait_node(mutant *m) { return change_node(m, mutant_pick_task(m, is_wait)); }
static bool send_value(mutant *m) {
  int i = mutant_pick_task(m, is_send), x = mutant_pick_value(m, is_here);
  if (i < 0 || m->p->tasks[i].inputs[0].value == x) return false;
  m->p->tasks[i].inputs[0] = m->p->tensors[x];
  return true;
}
static bool wait_lag(mutant *m) {
  int i = mutant_pick_task(m, is_wait), to = below(m, 6) - 1;
  if (i < 0 || m->p->tasks[i].lag == to) return false;
  m->p->tasks[i].lag = to;
  return true;
}
static bool change_axis(mutant *m) {
  int i = mutant_pick_task(m, is_collective);
  if (i < 0) return false;
  m->p->tasks[i].axis = (m->p->tasks[i].axis + 1 + below(m, TSR_AXES - 1)) % TSR_AXES;
  return true;
}

static bool drop_bucket_wait(mutant *m) {
  int i = mutant_pick_task(m, is_bucket_wait);
  if (i < 0) return false;
  return sample_remove_task(m->p, i), true;
}
static bool move_bucket_wait(mutant *m) {
  return move_within(m, mutant_pick_task(m, is_bucket_wait));
}
static bool move_begin(mutant *m) { return move_within(m, mutant_pick_task(m, is_begun)); }
static bool change_bucket(mutant *m) {
  int i = mutant_pick_task(m, is_begun), to = mutant_pick_task(m, is_bucket_wait);
  if (i < 0 || to < 0 || m->p->tasks[i].bucket == m->p->tasks[to].bucket) return false;
  m->p->tasks[i].bucket = below(m, 4) ? m->p->tasks[to].bucket : 0;
  return true;
}
static bool change_last_only(mutant *m) {
  int i = mutant_pick_task(m, below(m, 2) ? is_begun : any);
  if (i < 0) return false;
  m->p->tasks[i].last_only = !m->p->tasks[i].last_only;
  return true;
}

static bool task_offset(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_task(m, has_inputs)];
  bool out = t->outputs_count && below(m, 2);
  tsr_tensor *x =
      out ? &t->outputs[below(m, t->outputs_count)] : &t->inputs[below(m, t->inputs_count)];
  if (x->segment == TSR_SEGMENT_ABSENT) return false;
  x->offset += some_offset(m);
  return true;
}
static bool task_input(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_task(m, has_inputs)];
  int k = below(m, t->inputs_count), x = mutant_pick_value(m, is_here);
  if (t->inputs[k].value == x) return false;
  t->inputs[k] = m->p->tensors[x];
  return true;
}
static bool value_offset(mutant *m) {
  m->p->tensors[mutant_pick_value(m, mutant_is_work)].offset += some_offset(m);
  return sample_bind(m->p), true;
}
static bool value_place(mutant *m) {
  int x = mutant_pick_value(m, mutant_is_work), y = mutant_pick_value(m, mutant_is_work);
  if (x == y) return false;
  m->p->tensors[x].offset = m->p->tensors[y].offset;
  m->p->tensors[x].slot_group = m->p->tensors[y].slot_group;
  return sample_bind(m->p), true;
}
static bool slot_group_offset(mutant *m) {
  int x = mutant_pick_value(m, mutant_is_framed);
  if (x < 0) return false;
  m->p->tensors[x].offset += some_offset(m);
  return sample_bind(m->p), true;
}
static bool change_slot_group(mutant *m) {
  int x = mutant_pick_value(m, mutant_is_framed),
      f = m->p->slot_groups_count ? below(m, m->p->slot_groups_count) : 0;
  if (x < 0 || m->p->tensors[x].slot_group == f) return false;
  m->p->tensors[x].slot_group = f;
  return sample_bind(m->p), true;
}
static bool change_slot(mutant *m) {
  if (!m->p->slot_groups_count) return false;
  tsr_slot_group *f = &m->p->slot_groups[below(m, m->p->slot_groups_count)];
  int *slot = &f->slot_of[below(m, (int)m->p->lowering.microbatches)];
  int to = below(m, f->slots + (below(m, 8) == 0));
  if (*slot == to) return false;
  *slot = to;
  return true;
}
static bool shrink_slot_group(mutant *m) {
  if (!m->p->slot_groups_count) return false;
  tsr_slot_group *f = &m->p->slot_groups[below(m, m->p->slot_groups_count)];
  if (below(m, 2)) f->bytes -= 64 * (1 + below(m, 2));
  else f->slots--;
  return true;
}
static bool shrink_segment(mutant *m) {
  int64_t *bytes = &m->p->bytes[below(m, TSR_SEGMENTS)];
  if (!*bytes) return false;
  *bytes -= 64;
  return true;
}
static bool scratch_offset(mutant *m) {
  int i = mutant_pick_task(m, has_scratch), x = mutant_pick_value(m, mutant_is_work);
  if (i < 0) return false;
  tsr_task *t = &m->p->tasks[i];
  if (below(m, 2)) t->scratch_offset += some_offset(m);
  else t->scratch_offset = m->p->tensors[x].offset;
  return true;
}
static bool change_shape(mutant *m) {
  tsr_tensor *t = &m->p->tensors[mutant_pick_value(m, is_here)];
  if (t->ndim) t->shape[below(m, t->ndim)] += below(m, 2) ? 1 : -1;
  return sample_bind(m->p), t->ndim > 0;
}
static bool change_dtype(mutant *m) {
  tsr_tensor *t = &m->p->tensors[mutant_pick_value(m, is_here)];
  t->dtype = (tsr_dtype)((t->dtype + 1 + (unsigned)below(m, 3)) % 4);
  return sample_bind(m->p), true;
}

fault faults[] = {
    {"task dropped", drop_task},
    {"task dropped on one rank", drop_task, true},
    {"send, receive or wait dropped", drop_transfer},
    {"task doubled", double_task},
    {"neighbours swapped", swap_neighbours},
    {"neighbours swapped on one rank", swap_neighbours, true},
    {"tasks swapped", swap_far},
    {"tasks swapped on one rank", swap_far, true},
    {"collectives swapped on one rank", swap_moves, true},
    {"task moved", move_task},
    {"part's begin moved", move_part},
    {"run dropped", drop_run},
    {"run doubled", double_run},
    {"runs swapped", swap_runs},
    {"run of another microbatch", change_run},
    {"receive of another value", receive_other},
    {"receive of another size", receive_size},
    {"send to another receive", send_node},
    {"send of another value", send_value},
    {"wait for another send", wait_node},
    {"wait with another lag", wait_lag},
    {"collective over another axis", change_axis},
    {"collective over another axis on one rank", change_axis, true},
    {"wait for a bucket dropped", drop_bucket_wait},
    {"wait for a bucket moved", move_bucket_wait},
    {"begin in a bucket moved", move_begin},
    {"begin in a bucket moved on one rank", move_begin, true},
    {"another bucket", change_bucket},
    {"with the last microbatch only, or not", change_last_only},
    {"offset in a task", task_offset},
    {"input of a task", task_input},
    {"offset of a value", value_offset},
    {"place of another value", value_place},
    {"offset in a slot group", slot_group_offset},
    {"another slot group", change_slot_group},
    {"another slot", change_slot},
    {"slot group shrunk", shrink_slot_group},
    {"segment shrunk", shrink_segment},
    {"offset of scratch", scratch_offset},
    {"shape on one rank", change_shape, true},
    {"dtype on one rank", change_dtype, true},
};
const int faults_count = sizeof faults / sizeof *faults;
