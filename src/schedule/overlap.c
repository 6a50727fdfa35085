// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks in their parts
 * produces: collectives over dp that only begin where their input is complete, in buckets, and
 * waits where their results are first used
 * invalidates: the tasks' indices
 *
 * Three kinds move: sums of gradients that the update reads begin in the last microbatch's
 * backward pass; sums that each microbatch makes (ZeRO 2 and 3) are waited for when the next bucket
 * begins; and the parameters of a block (ZeRO 3) are asked for when the block before it is waited
 * for. What is computed, and from what, is the same. Sums that each microbatch adds to those before
 * it (a flat reduction tree) do not move: the next one needs them. */
#include "schedule/overlap.h"
#include "schedule/task_moves.h"

typedef struct {
  tsr_program *p;
  tsr_arena *arena;
  int *writer;  /* per value: the task that writes it, or -1 */
  int *readers; /* the nodes of this stage's body that read a value, which are readers_from[value]
                   to readers_from[value + 1] of these */
  int *readers_from;
  tsr_task_moves moves;
} overlap;

/* Collectives that begin together. */
typedef struct {
  int count, *tasks;
  int64_t bytes;
} bucket;

static const tsr_node *node_of(const overlap *o, int task) { return tsr_task_node(o->p, task); }

static bucket new_bucket(const overlap *o) {
  return (bucket){.tasks = tsr_arena_array(o->arena, int, o->p->tasks_count + 1)};
}

static void add_to(const overlap *o, bucket *b, int task) {
  b->tasks[b->count++] = task;
  b->bytes += tsr_tensor_bytes(&o->p->tensors[node_of(o, task)->inputs[0]]);
}

static void
begin_bucket(overlap *o, const bucket *b, tsr_task_spot begin, bool last_only, tsr_task_spot wait) {
  tsr_task_begin_bucket(&o->moves, b->tasks, b->count, last_only, begin, wait);
}

/* Where the input of a collective over dp is complete: the task that writes it, or -1. */
static int source_of(const overlap *o, int task) {
  const tsr_task *t = &o->p->tasks[task];
  if (t->axis != TSR_DP || !tsr_op_is_collective(t->op)) return -1;
  int value = node_of(o, task)->inputs[0], node = o->p->graph->values[value].node;
  for (; node >= 0 && tsr_program_has_node(o->p, node) && tsr_program_is_alias(o->p, node);
       node = o->p->graph->values[value].node)
    value = o->p->graph->nodes[node].inputs[0];
  return o->writer[value];
}

/* Whether a collective makes a tensor whole on all members of what they, or its owner, have. */
static bool gathers(const overlap *o, int task) {
  const tsr_task *t = &o->p->tasks[task];
  if (t->op == TSR_OP_ALL_GATHER) return true;
  const tsr_value *in = &o->p->graph->values[node_of(o, task)->inputs[0]];
  return t->op == TSR_OP_BROADCAST && in->placement[t->axis].kind == TSR_OWNED;
}

/* ---- sums that the update reads ---- */

static void begin_sums_of_update(overlap *o, int part, int64_t bucket_bytes) {
  const tsr_program *p = o->p;
  int last = p->parts_count - 1, begin = p->parts[part].begin, end = p->parts[part].end;
  bool last_only = p->lowering.microbatches > 1;
  int *reader = tsr_arena_array(o->arena, int, end - begin + 1); /* per task of the part, from 1 */
  for (int i = p->parts[last].end - 1; i >= p->parts[last].begin; i--) {
    int w = gathers(o, i) ? -1 : source_of(o, i); /* no sum */
    if (w >= begin && w < end) reader[w - begin] = i + 1;
  }
  bucket b = new_bucket(o);
  int first = p->tasks_count;
  for (int w = begin; w < end; w++) {
    int i = reader[w - begin] - 1;
    if (i >= 0) add_to(o, &b, i);
    if (i >= 0 && i < first) first = i;
    if (!b.count || (b.bytes < bucket_bytes && w + 1 < end)) continue;
    begin_bucket(o, &b, (tsr_task_spot){part, w + 1}, last_only, (tsr_task_spot){last, first});
    b = new_bucket(o);
    first = p->tasks_count;
  }
}

/* ---- sums that each microbatch makes ---- */

/* The task of this part that adds a sum to those of other microbatches, or -1. */
static int adder_of(const overlap *o, int part, int task) {
  int value = node_of(o, task)->outputs[0];
  for (int i = task + 1; i < o->p->parts[part].end; i++)
    if (o->p->tasks[i].op == TSR_OP_ACCUMULATE && node_of(o, i)->inputs[0] == value) return i;
  return -1;
}

/* Whether nothing of the body reads a value, as it is or by another name, but a task of the same
 * section that adds it to those of other microbatches. */
static bool is_for_update(const overlap *o, int value, tsr_section section) {
  for (int r = o->readers_from[value]; r < o->readers_from[value + 1]; r++) {
    const tsr_node *n = &o->p->graph->nodes[o->readers[r]];
    if (n->op == TSR_OP_ACCUMULATE && n->section == section) continue;
    if (!tsr_program_is_alias(o->p, o->readers[r])) return false;
    if (!is_for_update(o, n->outputs[0], section)) return false;
  }
  return true;
}

static bool is_sum_of_microbatch(const overlap *o, int task) {
  const tsr_node *n = node_of(o, task);
  tsr_op op = o->p->tasks[task].op;
  return (op == TSR_OP_REDUCE_SCATTER || op == TSR_OP_REDUCE) && source_of(o, task) >= 0 &&
         !tsr_node_accumulates(n) && is_for_update(o, n->outputs[0], n->section);
}

static void begin_sums(overlap *o, int part, const bucket *b, int begin, int wait) {
  tsr_task_spot update = {o->p->parts_count - 1, o->p->parts[o->p->parts_count - 1].begin};
  bool here = adder_of(o, part, b->tasks[0]) >= 0;
  begin_bucket(
      o, b, (tsr_task_spot){part, begin}, false, here ? (tsr_task_spot){part, wait} : update);
  for (int i = 0; i < b->count && here; i++)
    tsr_task_move(&o->moves, (tsr_task_spot){part, wait}, adder_of(o, part, b->tasks[i]));
}

static void begin_sums_of_microbatch(overlap *o, int part, int64_t bucket_bytes) {
  const tsr_program *p = o->p;
  bucket b = new_bucket(o), before = {0};
  int begin = 0, end = p->parts[part].end;
  for (int i = p->parts[part].begin; i < end; i++) {
    if (is_sum_of_microbatch(o, i)) add_to(o, &b, i);
    if (!b.count || (b.bytes < bucket_bytes && i + 1 < end)) continue;
    if (before.count) begin_sums(o, part, &before, begin, i + 1);
    before = b;
    begin = i + 1;
    b = new_bucket(o);
  }
  if (before.count) begin_sums(o, part, &before, begin, end);
}

/* ---- parameters of the next block ---- */

static bool is_gather(const overlap *o, int task) {
  if (!gathers(o, task) || o->p->tasks[task].axis != TSR_DP) return false;
  int writer = source_of(o, task);
  return writer < 0 || o->p->tasks[writer].section == TSR_PROLOGUE;
}

static void ask_for_next_block(overlap *o, int part) {
  const tsr_program *p = o->p;
  int begin = -1, end = p->parts[part].end; /* where the block before is waited for */
  for (int i = p->parts[part].begin; i < end;) {
    if (!is_gather(o, i)) {
      i++;
      continue;
    }
    bucket b = new_bucket(o);
    int first = i, block = node_of(o, i)->block;
    for (; i < end && (!is_gather(o, i) || node_of(o, i)->block == block); i++)
      if (is_gather(o, i)) add_to(o, &b, i);
    begin_bucket(
        o, &b, (tsr_task_spot){part, begin < 0 ? first : begin}, false,
        (tsr_task_spot){part, first});
    begin = first;
  }
}

/* ---- the whole ---- */

static void list_readers(overlap *o) {
  const tsr_graph *g = o->p->graph;
  int *from = tsr_arena_array(o->arena, int, g->values_count + 2), count = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < o->p->nodes_count; i++) {
      const tsr_node *n = &g->nodes[o->p->nodes[i]];
      if (n->section == TSR_UPDATE) continue;
      for (int k = 0; k < n->inputs_count; k++) {
        int *at = &from[n->inputs[k] + 2 - pass];
        if (pass) o->readers[(*at)++] = o->p->nodes[i];
        else (*at)++, count++;
      }
    }
    if (pass) break;
    o->readers = tsr_arena_array(o->arena, int, count + 1);
    for (int v = 0; v < g->values_count; v++) from[v + 2] += from[v + 1];
  }
  o->readers_from = from;
}

void tsr_program_overlap(tsr_program *p, int64_t bucket_bytes) {
  overlap o = {.p = p, .arena = tsr_arena_new()};
  o.writer = tsr_arena_array(o.arena, int, p->graph->values_count + 1);
  list_readers(&o);
  o.moves = tsr_task_moves_begin(p);
  for (int v = 0; v < p->graph->values_count; v++) o.writer[v] = -1;
  for (int i = 0; i < p->tasks_count; i++)
    for (int k = 0; k < p->tasks[i].outputs_count; k++) o.writer[node_of(&o, i)->outputs[k]] = i;
  for (int k = 1; k + 1 < p->parts_count; k++) {
    tsr_section section = p->parts[k].section;
    ask_for_next_block(&o, k);
    if (section != TSR_BACKWARD && section != TSR_WEIGHTS) continue;
    begin_sums_of_update(&o, k, bucket_bytes);
    begin_sums_of_microbatch(&o, k, bucket_bytes);
  }
  tsr_task_moves_end(&o.moves);
  tsr_arena_free(o.arena);
}
