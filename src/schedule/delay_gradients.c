// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks in their final form, with local shapes
 * produces: GEMMs of weight gradients at a later place of their part
 * invalidates: the tasks' indices
 *
 * The classifier's weight is often also the embedding's table. Its gradient is then the first that
 * the backward pass computes and the last that it needs: in between, it and the activations of all
 * blocks are in memory at once. Of fewer tokens than a token has features the gradient of the
 * logits is smaller than that of the weight, and is kept in its place. The same is true of
 * gradients that are added up over microbatches at the end of the backward pass. */
#include "schedule/delay_gradients.h"
#include "schedule/fuse_task.h"

static int root_of_input(const tsr_fusing *f, int task, int input) {
  return f->roots.of[tsr_task_input(f->p, &f->p->tasks[task], input)];
}

static bool reads(const tsr_fusing *f, int task, int root) {
  for (int k = 0; k < f->p->tasks[task].inputs_count; k++)
    if (root_of_input(f, task, k) == root) return true;
  return false;
}

/* The first task behind this one in its part that reads the value; -1: there is none. */
static int find_reader(const tsr_fusing *f, int task, int end, int root) {
  for (int i = task + 1; i < end; i++)
    if (reads(f, i, root)) return i;
  return -1;
}

/* Whether the value would be kept until `reader` for this task alone. */
static bool is_extended(const tsr_fusing *f, int task, int reader, int root) {
  if (f->p->tensors[root].segment != TSR_SEGMENT_WORK) return false;
  for (int i = reader; i < f->p->tasks_count; i++)
    if (i != task && reads(f, i, root)) return false;
  return true;
}

/* Communication is not delayed: it may overlap what the GEMM would come behind. */
static bool communicates(const tsr_task *t) {
  bool moves = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT;
  return moves || t->bucket || tsr_op_is_collective(t->op);
}

static int64_t extended_bytes(const tsr_fusing *f, int task, int reader) {
  const tsr_task *t = &f->p->tasks[task];
  int64_t bytes = 0;
  for (int k = 0; k < t->inputs_count; k++) {
    int root = root_of_input(f, task, k);
    if (k != tsr_task_shape_input(t) && is_extended(f, task, reader, root))
      bytes += tsr_tensor_bytes(&f->p->tensors[root]);
  }
  return bytes;
}

static void move(tsr_program *p, int from, int to) {
  tsr_task moved = p->tasks[from];
  for (int i = from; i < to; i++) p->tasks[i] = p->tasks[i + 1];
  p->tasks[to] = moved;
}

static bool delay(const tsr_fusing *f, int task, int end) {
  tsr_program *p = f->p;
  const tsr_task *t = &p->tasks[task];
  if (t->op != TSR_OP_LINEAR_DW || t->fused) return false;
  int output = p->graph->nodes[t->node].outputs[0],
      reader = find_reader(f, task, end, f->roots.of[output]);
  if (reader <= task + 1 || communicates(&p->tasks[reader])) return false;
  if (p->tasks[reader].last_only != t->last_only) return false;
  if (!tsr_fusing_can_meet(f, &task, 1, reader - 1)) return false;
  if (extended_bytes(f, task, reader) >= tsr_tensor_bytes(&p->tensors[output])) return false;
  move(p, task, reader - 1);
  return true;
}

bool tsr_program_delay_gradients(tsr_program *p) {
  tsr_fusing f = {.p = p, .arena = p->graph->arena, .roots = tsr_fusing_roots_of(p)};
  f.absorbed = tsr_arena_array(f.arena, bool, p->tasks_count + 1);
  bool moved = false;
  for (int k = 0; k < p->parts_count; k++)
    for (int i = p->parts[k].end - 1; i >= p->parts[k].begin; i--)
      moved |= delay(&f, i, p->parts[k].end);
  return moved;
}
