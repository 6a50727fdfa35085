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

typedef struct {
  tsr_fusing f;
  int *next; /* per root: the first task behind the current one in its part that reads it, or -1 */
  int *last; /* per root: the last task of the program that reads it, or -1 */
} delaying;

static int root_of_input(const tsr_fusing *f, int task, int input) {
  return f->roots.of[tsr_task_input(f->p, &f->p->tasks[task], input)];
}

static void note_reads(const tsr_fusing *f, int task, int *readers) {
  for (int k = 0; k < f->p->tasks[task].inputs_count; k++)
    readers[root_of_input(f, task, k)] = task;
}

static void forget_reads(const tsr_fusing *f, int *readers) {
  for (int i = 0; i < f->p->graph->values_count; i++) readers[i] = -1;
}

static void find_last(delaying *d) {
  forget_reads(&d->f, d->last);
  for (int i = 0; i < d->f.p->tasks_count; i++) note_reads(&d->f, i, d->last);
}

/* Of the tasks behind this one. */
static void find_next(delaying *d, int task, int end) {
  forget_reads(&d->f, d->next);
  for (int i = end - 1; i > task; i--) note_reads(&d->f, i, d->next);
}

/* Whether the value would be kept until `reader` for the GEMM alone. */
static bool is_extended(const delaying *d, int reader, int root) {
  return d->f.p->tensors[root].segment == TSR_SEGMENT_WORK && d->last[root] < reader;
}

/* Communication is not delayed: it may overlap what the GEMM would come behind. */
static bool communicates(const tsr_task *t) {
  bool moves = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT;
  return moves || t->bucket || tsr_op_is_collective(t->op);
}

static int64_t extended_bytes(const delaying *d, int task, int reader) {
  const tsr_program *p = d->f.p;
  const tsr_task *t = &p->tasks[task];
  int64_t bytes = 0;
  for (int k = 0; k < t->inputs_count; k++) {
    int root = root_of_input(&d->f, task, k);
    if (k != tsr_task_shape_input(t) && is_extended(d, reader, root))
      bytes += tsr_tensor_bytes(&p->tensors[root]);
  }
  return bytes;
}

/* The task in front of which this one is better placed; -1: it stays. */
static int better_place(const delaying *d, int task) {
  const tsr_program *p = d->f.p;
  const tsr_task *t = &p->tasks[task];
  if (t->op != TSR_OP_LINEAR_DW || t->fused) return -1;
  int output = p->graph->nodes[t->node].outputs[0], reader = d->next[d->f.roots.of[output]];
  if (reader <= task + 1 || communicates(&p->tasks[reader])) return -1;
  if (p->tasks[reader].last_only != t->last_only) return -1;
  if (extended_bytes(d, task, reader) >= tsr_tensor_bytes(&p->tensors[output])) return -1;
  return tsr_fusing_can_meet(&d->f, &task, 1, reader - 1) ? reader : -1;
}

static void move(tsr_program *p, int from, int to) {
  tsr_task moved = p->tasks[from];
  for (int i = from; i < to; i++) p->tasks[i] = p->tasks[i + 1];
  p->tasks[to] = moved;
}

static bool delay_in_part(delaying *d, int begin, int end) {
  bool moved = false;
  forget_reads(&d->f, d->next);
  for (int i = end - 1; i >= begin; i--) {
    int reader = better_place(d, i);
    if (reader < 0) {
      note_reads(&d->f, i, d->next);
      continue;
    }
    move(d->f.p, i, reader - 1);
    find_last(d);
    find_next(d, i - 1, end);
    moved = true;
  }
  return moved;
}

bool tsr_program_delay_gradients(tsr_program *p) {
  delaying d = {{.p = p, .arena = p->graph->arena, .roots = tsr_fusing_roots_of(p)}, NULL, NULL};
  d.f.absorbed = tsr_arena_array(d.f.arena, bool, p->tasks_count + 1);
  d.next = tsr_arena_array(d.f.arena, int, p->graph->values_count + 1);
  d.last = tsr_arena_array(d.f.arena, int, p->graph->values_count + 1);
  find_last(&d);
  bool moved = false;
  for (int k = 0; k < p->parts_count; k++)
    moved |= delay_in_part(&d, p->parts[k].begin, p->parts[k].end);
  return moved;
}
