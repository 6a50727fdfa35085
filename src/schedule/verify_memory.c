// SPDX-License-Identifier: Apache-2.0
/* Goes through a whole step of one program with a memory that knows what every byte holds.
 *
 * A cell (verify_memory_cells.c) knows the last write to it, and a write what it wrote: a value, of
 * which microbatch. A task's inputs must be those of its graph, whole. What other ranks may still
 * read or write (sends, collectives that have only begun) is held until the wait for it, and nobody
 * may write there.
 *
 * Where ranks own values, that is done once for each owner among them: it runs its own tasks, and
 * has no bytes of what others own. */
#include "schedule/fuse.h"
#include "schedule/verify_checks.h"

/* What a write left. Of a sum over microbatches `microbatch` counts what was added, of what is made
 * once a step it is ONCE; parameters and state become UPDATED. */
typedef struct {
  int value, microbatch, task; /* task -1: it existed before, or is an input */
} content;
enum { NOTHING = -1, SCRATCH = -2 };                   /* as a value */
enum { ONCE = 0, UPDATED = 1, UNDER_WAY = INT32_MIN }; /* as a microbatch */

typedef tsr_verify_cells cells;

/* What a send or a collective that began keeps until it is waited for. */
typedef struct {
  cells cells;
  int value, task, bucket, microbatch;
  bool on, written; /* written: it is an output, not to be read before */
} hold;

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  const tsr_program *p;
  tsr_arena *arena;
  tsr_verify_map map;
  int *inside; /* per cell: the content */
  int *holds;  /* per cell: moves that hold it */
  int held;    /* holds that are on */
  content *contents;
  int contents_count, contents_capacity;
  hold *sent;  /* per transfer and microbatch */
  hold *begun; /* of buckets, not waited for yet */
  int begun_count, begun_capacity;
  int *inputs, inputs_count; /* the values that are filled for every microbatch */
  bool *said;                /* per task: the first finding is enough */
} memory;

static cells place_of(const memory *m, int owner, int microbatch) {
  int slot_group = m->p->tensors[owner].slot_group;
  int slot = slot_group < 0 ? 0 : m->p->slot_groups[slot_group].slot_of[microbatch];
  return m->map.places[m->map.place_of[owner] + slot];
}

/* ---- contents ---- */

static int add_content(memory *m, content c) {
  if (m->contents_count == m->contents_capacity)
    tsr_arena_grow(
        m->arena, (void **)&m->contents, sizeof c, m->contents_count, &m->contents_capacity);
  m->contents[m->contents_count] = c;
  return m->contents_count++;
}

static void put(memory *m, cells at, content c) {
  int id = add_content(m, c);
  for (int i = at.first; i < at.end; i++) m->inside[i] = id;
}

/* Which microbatch's a task reads when it runs for `microbatch`. */
static int wanted(const memory *m, int owner, int microbatch) {
  const tsr_value *x = &m->p->graph->values[owner];
  if (x->kind == TSR_VALUE_INPUT) return microbatch;
  if (x->kind != TSR_VALUE_NODE) return ONCE;
  const tsr_node *n = &m->p->graph->nodes[x->node];
  if (!tsr_verify_is_body(n->section)) return ONCE;
  return tsr_node_accumulates(n) ? m->v->microbatches : microbatch;
}

static const char *name_of(const memory *m, int value) { return m->p->graph->values[value].name; }

/* What a cell has instead of a value, as the end of a sentence. */
static const char *instead(const memory *m, int owner, int cell) {
  const content *c = &m->contents[m->inside[cell]];
  const char *at = tsr_verify_cell_address(m->v, &m->map, cell),
             *name = c->value >= 0 ? name_of(m, c->value) : NULL;
  const char *since = c->task >= 0 ? tsr_arena_printf(m->v->arena, " since task %d", c->task) : "";
  if (c->value == NOTHING)
    return tsr_arena_printf(m->v->arena, ", whose bytes %s nothing has written", at);
  if (c->value == SCRATCH)
    return tsr_arena_printf(m->v->arena, ", whose bytes %s are scratch of task %d", at, c->task);
  if (c->value != owner)
    return tsr_arena_printf(m->v->arena, ", whose bytes %s hold '%s'%s", at, name, since);
  if (c->microbatch == UNDER_WAY)
    return tsr_arena_printf(m->v->arena, ", which task %d has only begun to move there", c->task);
  if (m->p->graph->values[owner].kind != TSR_VALUE_NODE &&
      m->p->graph->values[owner].kind != TSR_VALUE_INPUT)
    return tsr_arena_printf(m->v->arena, ", which task %d has already updated", c->task);
  if (tsr_verify_is_sum(m->p->graph, owner))
    return tsr_arena_printf(
        m->v->arena, ", which has %d of %d microbatches%s", c->microbatch, m->v->microbatches,
        since);
  return tsr_arena_printf(
      m->v->arena, ", whose bytes %s hold microbatch %d's%s", at, c->microbatch, since);
}

/* The first cell that does not hold the value; -1: all do. */
static int find_other(const memory *m, cells at, int owner, int microbatch) {
  if (at.first == at.end) return -1;
  int id = m->inside[at.first], i = at.first;
  const content *c = &m->contents[id];
  if (c->value != owner || c->microbatch != microbatch) return i;
  while (i < at.end && m->inside[i] == id) i++;
  return i < at.end ? i : -1;
}

/* ---- reads and writes ---- */

static void
read_content(memory *m, int task, int run, int value, cells at, int microbatch, const char *verb) {
  int owner = m->s->owner[value], other = find_other(m, at, owner, microbatch);
  if (other < 0) return;
  if (!m->said[task])
    m->said[task] = !tsr_verify_say_task(
        m->v, m->s, task, run, "%s '%s'%s", verb, name_of(m, value), instead(m, owner, other));
  put(m, at, (content){owner, microbatch, -1}); /* so that others do not report it again */
}

/* Whether a task may go without bytes of an input: a norm over all stages and owners takes those
 * that it has, a collective those of the members that have them, and some need the shape alone. */
static bool may_lack(const memory *m, int task, int input) {
  const tsr_task *t = &m->p->tasks[task];
  return m->p->tensors[t->inputs[input].value].segment == TSR_SEGMENT_ABSENT ||
         tsr_op_facts(t->op) & TSR_FACT_EVERYWHERE || tsr_op_is_collective(t->op) ||
         input == tsr_task_shape_input(t);
}

static void read_input(memory *m, int task, int input, int microbatch) {
  int value = m->p->tasks[task].inputs[input].value, owner = m->s->owner[value];
  if (!tsr_verify_has_bytes(m->s, owner)) {
    if (!may_lack(m, task, input) && !m->said[task])
      m->said[task] = !tsr_verify_say_task(
          m->v, m->s, task, microbatch, "reads '%s', which another rank owns", name_of(m, value));
    return;
  }
  read_content(
      m, task, microbatch, value, place_of(m, owner, microbatch), wanted(m, owner, microbatch),
      "reads");
}

static const hold *find_hold(const memory *m, cells at) {
  int sent = m->v->transfers_count * m->v->microbatches;
  for (int i = 0; i < sent + m->begun_count; i++) {
    const hold *h = i < sent ? &m->sent[i] : &m->begun[i - sent];
    if (h->on && h->cells.first < at.end && at.first < h->cells.end) return h;
  }
  return NULL;
}

/* Nobody may write what is on its way. */
static void check_free(memory *m, int task, int microbatch, cells at, const char *what) {
  const hold *h = m->held ? find_hold(m, at) : NULL;
  if (!h || m->said[task]) return;
  const char *of = "";
  if (tsr_verify_is_body(m->p->parts[m->s->part_of[h->task]].section))
    of = tsr_arena_printf(m->v->arena, " of microbatch %d", h->microbatch);
  int cell = h->cells.first > at.first ? h->cells.first : at.first;
  m->said[task] = !tsr_verify_say_task(
      m->v, m->s, task, microbatch, "%s %s, where '%s'%s is, which task %d (%s) still moves", what,
      tsr_verify_cell_address(m->v, &m->map, cell), name_of(m, h->value), of, h->task,
      tsr_op_name(m->p->tasks[h->task].op));
}

static void write_content(memory *m, int task, int microbatch, cells at, content c) {
  if (m->held) {
    int i = at.first;
    while (i < at.end && !m->holds[i]) i++;
    if (i < at.end) {
      const char *what = "its scratch is";
      if (c.value >= 0) what = tsr_arena_printf(m->v->arena, "writes '%s' to", name_of(m, c.value));
      check_free(m, task, microbatch, at, what);
    }
  }
  put(m, at, c);
}

static void write_value(memory *m, int task, int output, int microbatch) {
  int value = m->s->owner[output];
  if (!tsr_verify_has_bytes(m->s, value)) return; /* of a reduce to another rank */
  cells at = place_of(m, value, microbatch);
  content c = {value, wanted(m, value, microbatch), task};
  if (tsr_node_accumulates(&m->p->graph->nodes[m->p->tasks[task].node])) {
    if (microbatch) read_content(m, task, microbatch, value, at, microbatch, "adds to");
    c.microbatch = microbatch + 1;
  }
  write_content(m, task, microbatch, at, c);
}

/* ---- moves ---- */

static void take_hold(memory *m, hold *h) {
  h->on = true;
  m->held++;
  for (int i = h->cells.first; i < h->cells.end; i++) m->holds[i]++;
}

static void release(memory *m, hold *h) {
  if (!h->on) return;
  h->on = false;
  m->held--;
  for (int i = h->cells.first; i < h->cells.end; i++) m->holds[i]--;
}

static hold *find_sent(memory *m, int node, int microbatch) {
  return &m->sent[m->v->transfer_of[node] * m->v->microbatches + microbatch];
}

static void run_send(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  int value = t->inputs[0].value;
  read_input(m, task, 0, microbatch);
  hold *h = find_sent(m, t->node, tsr_verify_transfer_microbatch(m->p->graph, t->node, microbatch));
  if (h->on) return; /* twice; it is said of the send and its receive */
  *h = (hold){
      .cells = place_of(m, m->s->owner[value], microbatch),
      .value = value,
      .task = task,
      .microbatch = microbatch};
  take_hold(m, h);
}

/* A wait is for what was sent so many microbatches before, or for all that was sent. */
static void wait_for_sent(memory *m, const tsr_task *t, int microbatch) {
  int from = tsr_verify_transfer_microbatch(m->p->graph, t->node, microbatch) - t->lag, to = from;
  if (t->lag == TSR_WAIT_ALL) from = 0, to = m->v->microbatches - 1;
  for (int k = from; k <= to; k++)
    if (k >= 0) release(m, find_sent(m, t->node, k));
}

static void wait_for_bucket(memory *m, int bucket) {
  int kept = 0;
  for (int i = 0; i < m->begun_count; i++) {
    hold *h = &m->begun[i];
    if (h->bucket != bucket) {
      m->begun[kept++] = *h;
      continue;
    }
    release(m, h);
    int of = wanted(m, h->value, h->microbatch);
    if (h->written) put(m, h->cells, (content){m->s->owner[h->value], of, h->task});
  }
  m->begun_count = kept;
}

static void begin_move(memory *m, int task, int value, int microbatch, bool written) {
  if (!tsr_verify_has_bytes(m->s, m->s->owner[value])) return;
  tsr_arena_grow(
      m->arena, (void **)&m->begun, sizeof *m->begun, m->begun_count, &m->begun_capacity);
  hold *h = &m->begun[m->begun_count++];
  *h = (hold){
      .cells = place_of(m, m->s->owner[value], microbatch),
      .value = value,
      .task = task,
      .bucket = m->p->tasks[task].bucket,
      .microbatch = microbatch,
      .written = written};
  take_hold(m, h);
}

static void begin_collective(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  for (int k = 0; k < t->outputs_count; k++) {
    content c = {m->s->owner[t->outputs[k].value], UNDER_WAY, task};
    if (!tsr_verify_has_bytes(m->s, c.value)) continue;
    write_content(m, task, microbatch, place_of(m, c.value, microbatch), c);
  }
  for (int k = 0; k < t->inputs_count; k++)
    begin_move(m, task, t->inputs[k].value, microbatch, false);
  for (int k = 0; k < t->outputs_count; k++)
    begin_move(m, task, t->outputs[k].value, microbatch, true);
}

/* ---- tasks ---- */

static bool overlap(cells a, cells b) { return a.first < b.end && b.first < a.end; }

static void say_shared(memory *m, int task, int microbatch, const char *what, const char *with) {
  if (!m->said[task])
    m->said[task] = !tsr_verify_say_task(
        m->v, m->s, task, microbatch, "its %s shares bytes with its %s", what, with);
}

/* Sums are added where they are: an all-reduce, or what adds to an earlier sum of its kind, may
 * have an input's bytes (the first ones of a stack) for its output; a map over elements, its first
 * input's; a fused task, what its form allows. */
static bool may_overwrite(const memory *m, const tsr_task *t, int output, int input) {
  unsigned facts = tsr_op_facts(t->op);
  if (t->fused) return tsr_fused_may_overwrite(m->p, t, output, input);
  if (output) return false;
  bool accumulates = tsr_node_accumulates(&m->p->graph->nodes[t->node]);
  bool sums = (t->op == TSR_OP_ALL_REDUCE && !accumulates) || facts & TSR_FACT_ADDS;
  return sums || (facts & TSR_FACT_OVERWRITES && input == 0);
}

static bool is_in_place(const memory *m, int task, int o, int input, cells output, cells in) {
  const tsr_task *t = &m->p->tasks[task];
  return may_overwrite(m, t, o, input) && output.first == in.first &&
         tsr_tensor_bytes(&t->outputs[o]) == tsr_tensor_bytes(&t->inputs[input]);
}

static const char *tensor_text(const memory *m, const char *what, int value) {
  return tsr_arena_printf(m->v->arena, "%s '%s'", what, name_of(m, value));
}

/* Of an operand; of one that another rank owns none. */
static cells cells_of(const memory *m, int value, int microbatch) {
  int owner = m->s->owner[value];
  return tsr_verify_has_bytes(m->s, owner) ? place_of(m, owner, microbatch) : (cells){0};
}

/* A task's outputs and scratch are apart from one another and from its inputs. */
static void check_own(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  cells scratch = m->map.scratch[task];
  if (m->said[task]) return;
  for (int k = 0; k < t->inputs_count && t->op != TSR_OP_RECEIVE; k++) {
    int owner = m->s->owner[t->inputs[k].value];
    cells in = cells_of(m, owner, microbatch);
    if (overlap(scratch, in))
      say_shared(m, task, microbatch, "scratch", tensor_text(m, "input", owner));
    for (int o = 0; o < t->outputs_count; o++) {
      cells out = cells_of(m, t->outputs[o].value, microbatch);
      if (overlap(out, in) && !is_in_place(m, task, o, k, out, in))
        say_shared(
            m, task, microbatch, tensor_text(m, "output", t->outputs[o].value),
            tensor_text(m, "input", owner));
    }
  }
  for (int o = 0; o < t->outputs_count; o++) {
    cells out = cells_of(m, t->outputs[o].value, microbatch);
    const char *with = overlap(scratch, out) ? "scratch" : NULL;
    for (int k = 0; k < o; k++)
      if (overlap(out, cells_of(m, t->outputs[k].value, microbatch)))
        with = tensor_text(m, "output", t->outputs[k].value);
    if (with) say_shared(m, task, microbatch, tensor_text(m, "output", t->outputs[o].value), with);
  }
}

/* A task without outputs has an effect in place: the optimizer's parameters and state. */
static void update_in_place(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  for (int k = 0; k < t->inputs_count; k++) {
    int owner = m->s->owner[t->inputs[k].value];
    tsr_value_kind kind = m->p->graph->values[owner].kind;
    if (!tsr_verify_has_bytes(m->s, owner)) continue;
    if (kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE)
      write_content(
          m, task, microbatch, place_of(m, owner, microbatch), (content){owner, UPDATED, task});
  }
}

static void compute(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  for (int k = 0; k < t->inputs_count && t->op != TSR_OP_RECEIVE; k++)
    read_input(m, task, k, microbatch);
  check_own(m, task, microbatch);
  if (t->scratch_bytes)
    write_content(m, task, microbatch, m->map.scratch[task], (content){SCRATCH, ONCE, task});
  if (t->bucket) begin_collective(m, task, microbatch);
  for (int k = 0; k < t->outputs_count && !t->bucket; k++)
    write_value(m, task, t->outputs[k].value, microbatch);
  if (!t->outputs_count) update_in_place(m, task, microbatch);
}

static void run_task(memory *m, int task, int microbatch) {
  const tsr_task *t = &m->p->tasks[task];
  if (!tsr_task_runs_on(m->p, t, m->s->coord)) return;
  if (t->op == TSR_OP_SEND) run_send(m, task, microbatch);
  else if (t->op != TSR_OP_WAIT) compute(m, task, microbatch);
  else if (t->bucket) wait_for_bucket(m, t->bucket);
  else wait_for_sent(m, t, microbatch);
}

/* ---- the step ---- */

/* Values that exist before the first task. */
static void fill_sources(memory *m) {
  const tsr_graph *g = m->p->graph;
  m->inputs = tsr_arena_array(m->arena, int, g->values_count + 1);
  for (int x = 0; x < g->values_count; x++) {
    if (!tsr_verify_has_bytes(m->s, x)) continue;
    if (g->values[x].kind == TSR_VALUE_INPUT) m->inputs[m->inputs_count++] = x;
    else if (g->values[x].kind != TSR_VALUE_NODE) put(m, place_of(m, x, 0), (content){x, ONCE, -1});
  }
}

static void open_memory(memory *m) {
  m->map = tsr_verify_map_make(m->arena, m->s);
  m->inside = tsr_arena_array(m->arena, int, m->map.edges_count + 1);
  m->holds = tsr_arena_array(m->arena, int, m->map.edges_count + 1);
  m->sent = tsr_arena_array(m->arena, hold, m->v->transfers_count * m->v->microbatches + 1);
  add_content(m, (content){NOTHING, ONCE, -1}); /* what every cell holds first */
  fill_sources(m);
}

static void run_part(memory *m, const tsr_run *run) {
  const tsr_part *part = &m->p->parts[run->part];
  for (int k = 0; k < m->inputs_count; k++)
    if (tsr_program_fills(m->p, run->part, m->inputs[k]))
      put(m, place_of(m, m->inputs[k], run->microbatch),
          (content){m->inputs[k], run->microbatch, -1});
  for (int i = part->begin; i < part->end; i++)
    if (tsr_verify_runs(m->v, &m->p->tasks[i], run->microbatch)) run_task(m, i, run->microbatch);
}

/* What is read when the step is over: parameters and state, the loss and the outputs. */
static void check_end(memory *m, int value) {
  const tsr_graph *g = m->p->graph;
  if (value < 0) return;
  int owner = m->s->owner[value];
  if (!tsr_verify_has_bytes(m->s, owner)) return;
  cells at = place_of(m, owner, 0);
  const content *c = &m->contents[m->inside[at.first]];
  int microbatch = c->microbatch == UNDER_WAY ? ONCE : c->microbatch;
  if (tsr_verify_is_sum(g, owner)) microbatch = m->v->microbatches;
  int other = find_other(m, at, owner, microbatch);
  if (other < 0) return;
  tsr_verify_say_value(m->v, m->s, value, "the step ends with it%s", instead(m, owner, other));
  put(m, at, (content){owner, microbatch, -1});
}

static void check_ends(memory *m) {
  const tsr_graph *g = m->p->graph;
  for (int x = 0; x < g->values_count; x++)
    if (tsr_verify_has_bytes(m->s, x) && g->values[x].kind != TSR_VALUE_NODE &&
        g->values[x].kind != TSR_VALUE_INPUT)
      check_end(m, x);
  for (int i = 0; i < g->outputs_count; i++) check_end(m, g->outputs[i].value);
  check_end(m, g->loss);
  int sent = m->v->transfers_count * m->v->microbatches;
  for (int i = 0; i < sent + m->begun_count; i++) {
    const hold *h = i < sent ? &m->sent[i] : &m->begun[i - sent];
    if (h->on && !m->said[h->task])
      m->said[h->task] = !tsr_verify_say_task(
          m->v, m->s, h->task, h->microbatch, "nothing waits until '%s' has moved",
          name_of(m, h->value));
  }
}

/* Per place in a group over dp: whether its rank owns a value; the places are *ret_count, 1 where
 * nobody owns any. */
static bool *find_owners(tsr_arena *arena, const tsr_program *p, int *ret_count) {
  int size = (int)p->lowering.size[TSR_DP];
  bool *owns = tsr_arena_array(arena, bool, size);
  *ret_count = 1;
  for (int x = 0; x < p->graph->values_count; x++) {
    tsr_placement dp = p->graph->values[x].placement[TSR_DP];
    if (dp.kind != TSR_OWNED || p->tensors[x].segment == TSR_SEGMENT_ABSENT) continue;
    owns[dp.owner] = true;
    *ret_count = tsr_placement_blocks(dp, size);
  }
  return owns;
}

/* The memory of one rank, of which there may be hundreds. */
static void check_rank(tsr_verify *v, const tsr_verify_subject *s, bool *said) {
  memory m = {.v = v, .s = s, .p = s->p, .arena = tsr_arena_new(), .said = said};
  open_memory(&m);
  for (int r = 0; r < s->p->runs_count && !tsr_verify_is_full(v); r++) run_part(&m, &s->p->runs[r]);
  if (!tsr_verify_is_full(v)) check_ends(&m);
  tsr_arena_free(m.arena);
}

/* One rank that owns nothing stands for all such. */
void tsr_verify_memory(tsr_verify *v, const tsr_verify_subject *s) {
  bool *said = tsr_arena_array(v->brief, bool, s->p->tasks_count + 1), has_plain = false;
  int count;
  const bool *owns = find_owners(v->brief, s->p, &count);
  for (int i = 0; i < count; i++) {
    tsr_verify_subject of = *s;
    if (!owns[i] && has_plain) continue;
    has_plain |= !owns[i];
    if (count > 1) of.rank = tsr_verify_member(v->mesh, s->rank, TSR_DP, i);
    for (int a = 0; a < TSR_AXES; a++) of.coord[a] = tsr_verify_coord(v->mesh, of.rank, a);
    check_rank(v, &of, said);
  }
}
