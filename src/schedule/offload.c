// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks in their parts, each copy where its node stands
 * produces: copies in buckets, one for each block, and the waits for them in the same part
 * invalidates: the tasks' indices
 *
 * A part is a sequence of blocks. At most the activations of two of them are in the device's memory
 * on the way to the host, or from there: one block's copies go on while the next block computes. */
#include "schedule/offload.h"
#include "schedule/task_moves.h"

typedef struct {
  tsr_program *p;
  tsr_task_moves moves;
  int *first, *last; /* per block, from -1: its tasks in the part; first -1: it has none */
  int blocks;        /* -1 included */
  int *tasks, count; /* a bucket's */
} offload;

static int block_of(const offload *o, int task) { return tsr_task_node(o->p, task)->block + 1; }

/* Whether a task is one of a block's own. */
static bool computes(const tsr_task *t) {
  return t->op != TSR_OP_SEND && t->op != TSR_OP_WAIT && !tsr_op_copies_to_or_from_host(t->op);
}

static bool reads(const offload *o, int task, int value) {
  const tsr_node *n = tsr_task_node(o->p, task);
  for (int k = 0; k < n->inputs_count; k++)
    if (n->inputs[k] == value) return true;
  return false;
}

static void find_blocks(offload *o, const tsr_part *part) {
  for (int b = 0; b < o->blocks; b++) o->first[b] = o->last[b] = -1;
  for (int i = part->begin; i < part->end; i++) {
    int b = block_of(o, i);
    if (!computes(&o->p->tasks[i])) continue;
    if (o->first[b] < 0) o->first[b] = i;
    o->last[b] = i;
  }
}

static void begin_bucket(offload *o, tsr_task_spot begin, tsr_task_spot wait) {
  if (o->count) tsr_task_begin_bucket(&o->moves, o->tasks, o->count, false, begin, wait);
  o->count = 0;
}

/* ---- to the host ---- */

/* The block of the last task of the part that reads what a copy reads; else that writes it. */
static int last_reader(const offload *o, const tsr_part *part, int copy) {
  int value = tsr_task_node(o->p, copy)->inputs[0], block = block_of(o, copy);
  for (int i = part->end - 1; i > copy; i--)
    if (computes(&o->p->tasks[i]) && reads(o, i, value)) return block_of(o, i);
  return block;
}

/* The block that ends next after one; -1: it is the part's last. */
static int next_end(const offload *o, int block) {
  int next = -1;
  for (int b = 0; b < o->blocks; b++)
    if (o->last[b] > o->last[block] && (next < 0 || o->last[b] < o->last[next])) next = b;
  return next;
}

static void begin_copies_to_host(offload *o, int part) {
  const tsr_part *of = &o->p->parts[part];
  int *block = tsr_arena_array(o->p->graph->arena, int, of->end - of->begin + 1);
  for (int i = of->begin; i < of->end; i++)
    if (o->p->tasks[i].op == TSR_OP_OFFLOAD) block[i - of->begin] = last_reader(o, of, i);
  for (int b = 0; b < o->blocks; b++) {
    for (int i = of->begin; i < of->end; i++)
      if (o->p->tasks[i].op == TSR_OP_OFFLOAD && block[i - of->begin] == b)
        o->tasks[o->count++] = i;
    int next = next_end(o, b), until = next < 0 ? of->end : o->last[next] + 1;
    begin_bucket(o, (tsr_task_spot){part, o->last[b] + 1}, (tsr_task_spot){part, until});
  }
}

/* ---- back ---- */

/* The block that begins last before one; -1: none does. */
static int previous_begin(const offload *o, int block) {
  int previous = -1;
  for (int b = 0; b < o->blocks; b++)
    if (o->first[b] >= 0 && o->first[b] < o->first[block] &&
        (previous < 0 || o->first[b] > o->first[previous]))
      previous = b;
  return previous;
}

/* The first task of the part that reads what a bucket's copies write. */
static int first_reader(const offload *o, const tsr_part *part) {
  for (int i = part->begin; i < part->end; i++)
    for (int k = 0; k < o->count; k++)
      if (reads(o, i, tsr_task_node(o->p, o->tasks[k])->outputs[0])) return i;
  return part->end;
}

static void begin_copies_back(offload *o, int part) {
  const tsr_part *of = &o->p->parts[part];
  for (int b = 0; b < o->blocks; b++) {
    for (int i = of->begin; i < of->end; i++)
      if (o->p->tasks[i].op == TSR_OP_RELOAD && block_of(o, i) == b) o->tasks[o->count++] = i;
    if (!o->count) continue;
    int previous = previous_begin(o, b), begin = previous < 0 ? of->begin : o->first[previous];
    begin_bucket(o, (tsr_task_spot){part, begin}, (tsr_task_spot){part, first_reader(o, of)});
  }
}

static int count_blocks(const tsr_graph *g) {
  int blocks = 0;
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].block >= blocks) blocks = g->nodes[i].block + 1;
  return blocks;
}

static bool has_copies(const tsr_program *p) {
  for (int i = 0; i < p->tasks_count; i++)
    if (tsr_op_copies_to_or_from_host(p->tasks[i].op)) return true;
  return false;
}

void tsr_program_offload(tsr_program *p) {
  tsr_arena *arena = p->graph->arena;
  if (!has_copies(p)) return;
  offload o = {.p = p, .blocks = count_blocks(p->graph) + 1, .moves = tsr_task_moves_begin(p)};
  o.first = tsr_arena_array(arena, int, o.blocks);
  o.last = tsr_arena_array(arena, int, o.blocks);
  o.tasks = tsr_arena_array(arena, int, p->tasks_count + 1);
  for (int k = 0; k < p->parts_count; k++) {
    find_blocks(&o, &p->parts[k]);
    if (p->parts[k].section == TSR_FORWARD) begin_copies_to_host(&o, k);
    else begin_copies_back(&o, k);
  }
  tsr_task_moves_end(&o.moves);
}
