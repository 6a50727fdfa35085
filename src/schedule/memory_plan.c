// SPDX-License-Identifier: Apache-2.0
/* requires: tasks with local shapes, and the order in which their parts run
 * produces: an offset in WORK for every tensor that a task writes and for every task's scratch, and
 * slot groups for what lives from one action to another
 * invalidates: nothing
 *
 * Tasks are walked in an order in which they may run. A tensor's block begins when it is written
 * and ends after its last use; a map over elements takes over that of its input if no task reads it
 * later. Then all blocks are placed (offsets.h). Where the body runs for several microbatches, what
 * comes out of it (accumulated gradients) and the slot groups are taken before its first task, so
 * that it can run again under them; what goes into it is given back after its last. Slots are
 * needed when several microbatches are alive at once: where each is done before the next one
 * begins, lifetimes inside the body are sufficient. */
#include "base/reduction_tree.h"
#include "schedule/activation_slots.h"
#include "schedule/fuse.h"
#include "schedule/gemm_neighbours.h"
#include "schedule/offsets.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The lifetime of a value, from the tasks. */
typedef struct {
  int owner;       /* the value whose bytes it names */
  int first, last; /* times of the walk: when it is written, and read last; -1: never */
  int task;        /* that writes it; -1: none */
  uint64_t parts;  /* of the body that write or read it, as in tsr_slot_group */
  int lag;
  bool out_of; /* written in the body and read after it */
  bool taken;
  int begin, end; /* times: from when and until when it has its bytes; begin -1: never */
  int block;      /* of its bytes; -1: none of its own */
} life;

typedef struct {
  int64_t bytes[TSR_USES];
} usage;

typedef struct {
  tsr_program *p;
  tsr_arena *arena;
  tsr_blocks work;
  int *slot_group_blocks, *scratch_blocks; /* per slot group, per time; -1: none */
  int *walk, walk_count;                   /* tasks in the order of the plan */
  int body_begin, body_end;                /* of the walk */
  bool repeats;                            /* the body runs for several microbatches */
  bool straight;                           /* and each is done before the next begins */
  life *lives;                             /* per value */
  tsr_gemm_neighbours neighbours;
  int *dead, *next_dead; /* per time: the values that no task reads after it, as lists */
  int slot_groups_end;   /* the time after which no task needs the slot groups */
  usage *used;           /* [0]: on all ranks; [i]: what the owner at place i - 1 has beside that */
  int owners;
  int64_t used_peak; /* of the rank that needs the most */
} planner;

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static tsr_use use_of(const tsr_task *t) {
  if (t->axis >= 0 || t->op == TSR_OP_RECEIVE) return TSR_USE_COMMUNICATION;
  return tsr_op_facts(t->op) & TSR_FACT_GRADIENT ? TSR_USE_GRADIENT : TSR_USE_ACTIVATION;
}

/* An accumulator keeps a stack of partial sums; its total ends up in the first. */
static int64_t bytes_of(const planner *m, int value) {
  return aligned(tsr_tensor_bytes(&m->p->tensors[value])) * tsr_program_stack_entries(m->p, value);
}

/* ---- the walk ---- */

static void walk_part(planner *m, int part) {
  for (int i = m->p->parts[part].begin; i < m->p->parts[part].end; i++)
    m->walk[m->walk_count++] = i;
}

/* A step of one microbatch is walked as it runs; of several, the body's parts stand for all. */
static void find_walk(planner *m) {
  const tsr_program *p = m->p;
  int last = p->parts_count - 1;
  m->walk = tsr_arena_array(p->graph->arena, int, p->tasks_count + 1);
  m->repeats = p->lowering.microbatches > 1;
  m->straight = m->repeats && p->pipeline->chunks == 1 &&
                tsr_pipeline_alive(p->pipeline, p->stage, true) <= 1;
  walk_part(m, 0);
  m->body_begin = m->walk_count;
  if (m->repeats)
    for (int k = 1; k < last; k++) walk_part(m, k);
  else
    for (int r = 1; r < p->runs_count - 1; r++) walk_part(m, p->runs[r].part);
  m->body_end = m->walk_count;
  walk_part(m, last);
}

/* ---- lifetimes ---- */

static bool is_body(const planner *m, int time) {
  return time >= m->body_begin && time < m->body_end;
}

static void read_value(planner *m, int value, int time, const tsr_task *t, const tsr_part *part) {
  life *v = &m->lives[m->lives[value].owner];
  v->last = time;
  if (t->lag > v->lag) v->lag = t->lag;
  if (is_body(m, time)) v->parts |= tsr_part_bit(part);
  else if (is_body(m, v->first) && (t->op != TSR_OP_WAIT || t->bucket)) v->out_of = true;
  if (t->op == TSR_OP_WAIT && !t->bucket && !is_body(m, time)) m->slot_groups_end = time;
}

static void write_value(planner *m, int value, int time, int task, const tsr_part *part) {
  life *v = &m->lives[value];
  if (v->owner != value) return; /* read_value has seen it */
  v->first = v->last = time;
  v->task = task;
  if (is_body(m, time)) v->parts |= tsr_part_bit(part);
  if (tsr_node_accumulates(&m->p->graph->nodes[m->p->tasks[task].node]))
    v->out_of = true; /* of one microbatch into the next */
}

/* Of what each microbatch makes it is the last one's, so no two may be alive at once. */
static void keep_to_the_end(planner *m, int value) {
  if (value < 0 || m->p->tensors[value].segment == TSR_SEGMENT_ABSENT) return;
  life *v = &m->lives[m->lives[value].owner];
  v->last = m->walk_count;
  if (!is_body(m, v->first)) return;
  assert(v->out_of || !m->repeats || m->straight || !(v->parts & (v->parts - 1)));
  v->out_of = true;
}

static void find_owners(planner *m) {
  const tsr_program *p = m->p;
  for (int v = 0; v < p->graph->values_count; v++)
    m->lives[v] = (life){.owner = v, .first = -1, .last = -1, .task = -1, .begin = -1, .block = -1};
  for (int i = 0; i < p->values_count; i++) {
    int v = p->values[i], node = p->graph->values[v].node;
    bool alias = node >= 0 && tsr_program_has_node(p, node) && tsr_program_is_alias(p, node);
    if (alias) m->lives[v].owner = m->lives[p->graph->nodes[node].inputs[0]].owner;
    bool first = node >= 0 && p->graph->values[v].output == 0 && tsr_program_has_node(p, node);
    int in_place = first ? tsr_program_in_place(p, node) : -1;
    if (in_place >= 0) m->lives[v].owner = m->lives[in_place].owner;
  }
}

/* What goes into a body that runs again, or is added up in it, must be there until its end. */
static void extend_into(planner *m) {
  for (int i = 0; i < m->p->values_count; i++) {
    life *l = &m->lives[m->p->values[i]];
    bool stays = l->out_of || (l->first < m->body_begin && l->parts);
    if (m->repeats && l->task >= 0 && stays && l->last < m->body_end - 1) l->last = m->body_end - 1;
  }
}

static void find_lifetimes(planner *m) {
  const tsr_program *p = m->p;
  find_owners(m);
  m->slot_groups_end = m->body_end - 1;
  for (int time = 0, part = 0; time < m->walk_count; time++) {
    int i = m->walk[time];
    const tsr_task *t = &p->tasks[i];
    while (i < p->parts[part].begin || i >= p->parts[part].end) part = (part + 1) % p->parts_count;
    for (int k = 0; k < t->inputs_count && t->op != TSR_OP_RECEIVE; k++)
      read_value(m, t->inputs[k].value, time, t, &p->parts[part]);
    for (int k = 0; k < t->outputs_count; k++)
      write_value(m, t->outputs[k].value, time, i, &p->parts[part]);
  }
  extend_into(m);
  for (int i = 0; i < p->graph->outputs_count; i++) keep_to_the_end(m, p->graph->outputs[i].value);
  keep_to_the_end(m, p->graph->loss);
}

static void list_dead(planner *m) {
  m->dead = tsr_arena_array(m->arena, int, m->walk_count + 2);
  m->next_dead = tsr_arena_array(m->arena, int, m->p->graph->values_count + 1);
  for (int t = 0; t <= m->walk_count; t++) m->dead[t] = -1;
  for (int i = 0; i < m->p->values_count; i++) {
    int v = m->p->values[i];
    if (m->lives[v].task < 0) continue;
    m->next_dead[v] = m->dead[m->lives[v].last];
    m->dead[m->lives[v].last] = v;
  }
}

/* ---- slot groups ---- */

/* Values of the body that must be kept for each microbatch by itself; in the host's memory all. */
static bool is_framed(const planner *m, int value) {
  const life *v = &m->lives[value];
  if (m->p->graph->values[value].kind == TSR_VALUE_INPUT)
    return m->p->tensors[value].segment == TSR_SEGMENT_INPUT;
  if (v->task >= 0 && m->p->tensors[value].segment == TSR_SEGMENT_HOST) return true;
  if (v->task < 0 || v->out_of || !m->repeats || v->first < m->body_begin) return false;
  if (m->p->tensors[value].segment == TSR_SEGMENT_CACHE) return false;
  bool several = v->parts & (v->parts - 1);
  return v->lag > 0 || (several && !m->straight);
}

/* An input is written when the forward pass begins, and may only be handed on then. */
static uint64_t parts_of_input(const planner *m, uint64_t parts) {
  if (!parts) return 1;
  for (int c = 0; c < m->p->pipeline->chunks; c++)
    if (parts >> (3 * c) & 7) parts |= (uint64_t)1 << (3 * c);
  return parts;
}

static void make_slot_groups(planner *m) {
  tsr_program *p = m->p;
  tsr_kept *kept = tsr_arena_array(m->arena, tsr_kept, p->values_count + 1);
  int count = 0;
  for (int i = 0; i < p->values_count; i++) {
    int v = p->values[i];
    const life *l = &m->lives[v];
    if (l->owner != v || !is_framed(m, v)) continue;
    bool input = p->tensors[v].segment == TSR_SEGMENT_INPUT;
    kept[count++] = (tsr_kept){
        .value = v,
        .lag = l->lag,
        .parts = input ? parts_of_input(m, l->parts) : l->parts,
        .use = input ? TSR_USE_ACTIVATION : use_of(&p->tasks[l->task]),
        .bytes = aligned(tsr_tensor_bytes(&p->tensors[v]))};
  }
  tsr_program_make_slot_groups(p, kept, count);
}

static tsr_use use_of_value(const planner *m, int value) {
  return use_of(&m->p->tasks[m->lives[value].task]);
}

/* Slots that several slot groups share are counted with the first one. */
static bool has_slots(const planner *m, int slot_group) {
  const tsr_slot_group *f = &m->p->slot_groups[slot_group];
  return f->segment == TSR_SEGMENT_WORK && f->pool == slot_group;
}

/* Which ranks have a value's bytes, as in tsr_block: 0: all, else the owner's place in its group of
 * dp, from 1. Slot groups are on all ranks. */
static int holders_of(const planner *m, int value) {
  tsr_placement dp = m->p->graph->values[m->lives[value].owner].placement[TSR_DP];
  return dp.kind == TSR_OWNED && m->p->tensors[value].slot_group < 0 ? dp.owner + 1 : 0;
}

static int64_t *used_for(planner *m, int value) {
  return &m->used[holders_of(m, value)].bytes[use_of_value(m, value)];
}

/* Reserves or releases the memory of all slot groups. */
static void count_slot_groups(planner *m, int sign) {
  const tsr_program *p = m->p;
  for (int i = 0; i < p->values_count; i++) {
    int v = p->values[i];
    const tsr_tensor *t = &p->tensors[v];
    if (m->lives[v].owner != v || t->slot_group < 0 || !has_slots(m, t->slot_group)) continue;
    int64_t bytes = aligned(tsr_tensor_bytes(t)) * p->slot_groups[t->slot_group].slots;
    *used_for(m, v) += sign * bytes;
    if (sign > 0) m->p->unplanned_bytes += bytes;
  }
}

static void take_slot_groups(planner *m) {
  m->slot_group_blocks = tsr_arena_array(m->arena, int, m->p->slot_groups_count + 1);
  for (int i = 0; i < m->p->slot_groups_count; i++) {
    const tsr_slot_group *f = &m->p->slot_groups[i];
    if (has_slots(m, i))
      m->slot_group_blocks[i] = tsr_block_begin(&m->work, f->bytes * f->slots, 0);
  }
  count_slot_groups(m, 1);
}

static void give_back_slot_groups(planner *m) {
  for (int i = 0; i < m->p->slot_groups_count; i++)
    if (has_slots(m, i)) tsr_block_end(&m->work, m->slot_group_blocks[i]);
  count_slot_groups(m, -1);
}

/* ---- the plan ---- */

static int64_t sum_of(const usage *u) {
  int64_t sum = 0;
  for (int i = 0; i < TSR_USES; i++) sum += u->bytes[i];
  return sum;
}

/* Of the owner that has the most. */
static void count_peak(planner *m, int task) {
  const usage *most = m->owners ? &m->used[1] : NULL;
  for (int i = 2; i <= m->owners; i++)
    if (sum_of(&m->used[i]) > sum_of(most)) most = &m->used[i];
  int64_t sum = sum_of(&m->used[0]) + (most ? sum_of(most) : 0);
  if (sum <= m->used_peak) return;
  m->used_peak = sum;
  m->p->peak_task = task;
  m->p->peak_holders = most ? (int)(most - m->used) : 0;
  for (int u = 0; u < TSR_USES; u++)
    m->p->peak_bytes[u] = m->used[0].bytes[u] + (most ? most->bytes[u] : 0);
}

static void take_value(planner *m, int value, int time) {
  life *v = &m->lives[value];
  if (v->owner != value) return;
  if (v->taken || m->p->tensors[value].slot_group >= 0) return;
  if (m->p->tensors[value].segment != TSR_SEGMENT_WORK) return; /* it is kept, and has its place */
  int64_t bytes = bytes_of(m, value);
  v->block = tsr_block_begin(&m->work, bytes, holders_of(m, value));
  *used_for(m, value) += bytes;
  m->p->unplanned_bytes += bytes;
  v->taken = true;
  v->begin = time;
  v->end = m->walk_count - 1;
}

/* The value of an input whose bytes an output may take over, since no task reads them after the
 * task; -1: it may not. What lives longer than the body's run is not asked: its place was chosen
 * for that. */
static int find_predecessor(const planner *m, const tsr_task *t, int time, int input, int output) {
  bool may = t->fused ? tsr_fused_may_overwrite(m->p, t, output, input)
                      : !input && !output && tsr_op_facts(t->op) & TSR_FACT_OVERWRITES;
  if (!may) return -1;
  int from = m->lives[t->inputs[input].value].owner, to = t->outputs[output].value;
  const life *a = &m->lives[from], *b = &m->lives[to];
  bool again = is_body(m, time) && m->repeats;
  if (b->owner != to || b->taken || m->p->tensors[to].slot_group >= 0 || (again && b->out_of))
    return -1;
  if (!a->taken || a->last != time || (again && (a->out_of || a->first < m->body_begin))) return -1;
  if (holders_of(m, from) != holders_of(m, to)) return -1;
  if (m->p->tensors[from].dtype != m->p->tensors[to].dtype || bytes_of(m, from) != bytes_of(m, to))
    return -1;
  for (int k = 0; k < t->inputs_count; k++)
    if (k != input && m->lives[t->inputs[k].value].owner == from) return -1;
  return from;
}

/* Hands the bytes of a value that is dead after a task to what the task makes. */
static void take_over(planner *m, int from, int to, int time) {
  int64_t bytes = bytes_of(m, to);
  m->lives[to].block = m->lives[from].block;
  *used_for(m, from) -= bytes;
  *used_for(m, to) += bytes;
  m->p->unplanned_bytes += bytes;
  m->lives[from].taken = false;
  m->lives[from].end = time - 1;
  m->lives[to].taken = true;
  m->lives[to].begin = time;
  m->lives[to].end = m->walk_count - 1;
}

static void take_what_comes_out(planner *m) {
  for (int time = m->body_begin; time < m->body_end; time++) {
    const tsr_task *t = &m->p->tasks[m->walk[time]];
    for (int o = 0; o < t->outputs_count; o++)
      if (m->repeats && m->lives[t->outputs[o].value].out_of)
        take_value(m, t->outputs[o].value, m->body_begin);
  }
}

static void give_back_dead(planner *m, int time) {
  for (int v = m->dead[time]; v >= 0; v = m->next_dead[v]) {
    if (!m->lives[v].taken) continue;
    tsr_block_end(&m->work, m->lives[v].block);
    *used_for(m, v) -= bytes_of(m, v);
    m->lives[v].end = time;
  }
}

/* What lies behind a value is written by the same task. */
static void take_with_neighbours(planner *m, int value, int time) {
  int before = m->work.count, count = 0;
  bool equal = true;
  if (m->neighbours.follows[value]) return;
  for (int v = value; v >= 0; v = m->neighbours.next[v], count++) {
    equal &= holders_of(m, v) == holders_of(m, value);
    take_value(m, v, time);
  }
  if (count > 1 && equal && m->work.count == before + count) tsr_blocks_join(&m->work, count);
}

static void plan_task(planner *m, int time) {
  tsr_task *t = &m->p->tasks[m->walk[time]];
  for (int o = 0; o < t->outputs_count; o++)
    for (int k = 0; k < t->inputs_count; k++) {
      int from = find_predecessor(m, t, time, k, o);
      if (from >= 0) take_over(m, from, t->outputs[o].value, time);
    }
  for (int o = 0; o < t->outputs_count; o++) take_with_neighbours(m, t->outputs[o].value, time);
  int64_t scratch = aligned(t->scratch_bytes);
  m->scratch_blocks[time] = scratch ? tsr_block_begin(&m->work, scratch, 0) : -1;
  m->used[0].bytes[TSR_USE_SCRATCH] += scratch;
  count_peak(m, m->walk[time]);
  if (scratch) tsr_block_end(&m->work, m->scratch_blocks[time]);
  m->used[0].bytes[TSR_USE_SCRATCH] -= scratch;
  give_back_dead(m, time);
}

/* The blocks' offsets, to what lies in them. */
static void bind_offsets(planner *m) {
  tsr_program *p = m->p;
  const tsr_block *blocks = m->work.blocks;
  for (int i = 0; i < p->slot_groups_count; i++) {
    tsr_slot_group *f = &p->slot_groups[i];
    if (f->segment == TSR_SEGMENT_WORK) f->offset = blocks[m->slot_group_blocks[f->pool]].offset;
  }
  for (int i = 0; i < p->values_count; i++) {
    int v = p->values[i];
    tsr_tensor *t = &p->tensors[v];
    if (m->lives[v].block >= 0) t->offset = blocks[m->lives[v].block].offset;
    else if (m->lives[v].owner == v && t->slot_group >= 0)
      t->offset += p->slot_groups[t->slot_group].offset;
  }
  for (int time = 0; time < m->walk_count; time++) {
    int block = m->scratch_blocks[time];
    p->tasks[m->walk[time]].scratch_offset = block >= 0 ? blocks[block].offset : 0;
  }
}

/* ---- what is where, when ---- */

static int by_time(const void *a, const void *b) {
  const tsr_work_piece *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static tsr_work_piece piece_of(const planner *m, int value) {
  const life *l = &m->lives[value];
  const tsr_tensor *t = &m->p->tensors[value];
  tsr_work_piece piece = {value, use_of_value(m, value), holders_of(m, value), 1, t->offset};
  piece.bytes = bytes_of(m, value);
  piece.first = l->begin;
  piece.last = l->end;
  if (t->slot_group < 0) return piece;
  const tsr_slot_group *f = &m->p->slot_groups[t->slot_group];
  piece.slots = f->slots;
  piece.stride = f->bytes;
  piece.first = m->body_begin;
  piece.last = m->slot_groups_end;
  return piece;
}

static bool has_piece(const planner *m, int value) {
  int slot_group = m->p->tensors[value].slot_group;
  bool in_slots = m->lives[value].owner == value && slot_group >= 0 && has_slots(m, slot_group);
  return in_slots || m->lives[value].begin >= 0;
}

static void list_pieces(planner *m) {
  tsr_program *p = m->p;
  int count = 0;
  int room = m->walk_count + 1;
  for (int i = 0; i < p->values_count; i++) room += has_piece(m, p->values[i]);
  tsr_work_piece *pieces = tsr_arena_array(p->graph->arena, tsr_work_piece, room);
  for (int i = 0; i < p->values_count; i++)
    if (has_piece(m, p->values[i])) pieces[count++] = piece_of(m, p->values[i]);
  for (int time = 0; time < m->walk_count; time++) {
    if (m->scratch_blocks[time] < 0) continue;
    const tsr_block *b = &m->work.blocks[m->scratch_blocks[time]];
    pieces[count++] =
        (tsr_work_piece){-1, TSR_USE_SCRATCH, 0, 1, b->offset, b->size, 0, time, time};
  }
  qsort(pieces, (size_t)count, sizeof *pieces, by_time);
  p->pieces = pieces;
  p->pieces_count = count;
  p->plan_order = m->walk;
}

static int count_owners(const tsr_program *p) {
  int owners = 0;
  for (int i = 0; i < p->values_count; i++) {
    tsr_placement dp = p->graph->values[p->values[i]].placement[TSR_DP];
    if (dp.kind == TSR_OWNED && dp.owner >= owners) owners = dp.owner + 1;
  }
  return owners;
}

void tsr_program_plan_memory(tsr_program *program) {
  planner m = {.p = program, .arena = tsr_arena_new()};
  m.work.arena = m.arena;
  m.owners = count_owners(program);
  m.used = tsr_arena_array(m.arena, usage, m.owners + 1);
  m.lives = tsr_arena_array(m.arena, life, program->graph->values_count);
  m.neighbours = tsr_gemm_neighbours_of(program);
  find_walk(&m);
  find_lifetimes(&m);
  make_slot_groups(&m);
  list_dead(&m);
  m.scratch_blocks = tsr_arena_array(m.arena, int, m.walk_count + 1);
  for (int time = 0; time < m.walk_count; time++) {
    if (time == m.body_begin) {
      take_what_comes_out(&m);
      take_slot_groups(&m);
    }
    plan_task(&m, time);
    if (time == m.slot_groups_end && m.body_end > m.body_begin) give_back_slot_groups(&m);
  }
  program->bytes[TSR_SEGMENT_WORK] = tsr_blocks_place(&m.work, m.used_peak);
  bind_offsets(&m);
  list_pieces(&m);
  tsr_arena_free(m.arena);
}
