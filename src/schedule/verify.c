#include "schedule/verify.h"
#include "base/tree.h"
#include "schedule/verify_checks.h"
#include <assert.h>
#include <string.h>

/* ---- findings ---- */

static bool say(tsr_verify *v, tsr_place place, const char *who, const char *format, va_list args) {
  if (v->mesh->leave_out && v->mesh->leave_out(v->mesh->context, format)) return true;
  if (v->found++ < TSR_VERIFY_FINDINGS_MAX)
    tsr_diag_error(v->diags, place, "%s: %s", who, tsr_arena_vprintf(v->arena, format, args));
  return false;
}

/* "rank 5", with its stage where there are several. */
static const char *rank_text(tsr_verify *v, const tsr_verify_subject *s) {
  if (v->programs->order->stages == 1) return tsr_arena_printf(v->arena, "rank %d", s->rank);
  return tsr_arena_printf(v->arena, "rank %d, stage %d", s->rank, s->p->stage);
}

bool tsr_verify_say_task(
    tsr_verify *v, const tsr_verify_subject *s, int task, int microbatch, const char *format, ...) {
  const tsr_task *t = &s->p->tasks[task];
  const tsr_node *n = &v->graph->nodes[t->node];
  const char *who = tsr_arena_printf(
      v->arena, "'%s', %s, task %d (%s)", n->name, rank_text(v, s), task, tsr_op_name(t->op));
  bool in_body = tsr_verify_is_body(s->p->parts[s->part_of[task]].section);
  if (microbatch >= 0 && in_body)
    who = tsr_arena_printf(v->arena, "%s, microbatch %d", who, microbatch);
  va_list args;
  va_start(args, format);
  bool left_out = say(v, n->place, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say_node(
    tsr_verify *v, const tsr_verify_subject *s, int node, const char *format, ...) {
  const tsr_node *n = &v->graph->nodes[node];
  const char *who = tsr_arena_printf(v->arena, "'%s', %s", n->name, rank_text(v, s));
  va_list args;
  va_start(args, format);
  bool left_out = say(v, n->place, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say_value(
    tsr_verify *v, const tsr_verify_subject *s, int value, const char *format, ...) {
  const tsr_value *x = &v->graph->values[value];
  const char *who = tsr_arena_printf(v->arena, "'%s', %s", x->name, rank_text(v, s));
  va_list args;
  va_start(args, format);
  bool left_out = say(v, x->place, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say(tsr_verify *v, const tsr_verify_subject *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  bool left_out = say(v, TSR_NOWHERE, rank_text(v, s), format, args);
  va_end(args);
  return left_out;
}

const char *tsr_verify_address(tsr_verify *v, tsr_segment segment, int64_t offset) {
  static const char *const names[] = {"param", "state", "const", "input", "cache", "work"};
  return tsr_arena_printf(v->arena, "@%s+%lld", names[segment], (long long)offset);
}

/* ---- what was checked before ---- */

struct tsr_verify_proved {
  struct tsr_verify_proved *next;
  size_t bytes;
  char key[];
};

bool tsr_verify_is_proved(const tsr_verify *v, const void *key, size_t bytes) {
  for (const struct tsr_verify_proved *p = v->proved; p; p = p->next)
    if (p->bytes == bytes && !memcmp(p->key, key, bytes)) return true;
  return false;
}

void tsr_verify_keep_proved(tsr_verify *v, const void *key, size_t bytes) {
  struct tsr_verify_proved *p = tsr_arena_alloc(v->arena, sizeof *p + bytes);
  p->next = v->proved;
  p->bytes = bytes;
  memcpy(p->key, key, bytes);
  v->proved = p;
}

/* ---- what the checks share ---- */

bool tsr_verify_is_sum(const tsr_graph *g, int value) {
  const tsr_value *x = &g->values[value];
  return x->kind == TSR_VALUE_NODE && g->nodes[x->node].op == TSR_OP_ACCUMULATE;
}

int64_t tsr_verify_bytes(const tsr_program *p, int value) {
  int64_t bytes = tsr_verify_aligned(tsr_tensor_bytes(&p->tensors[value]));
  if (!tsr_verify_is_sum(p->graph, value)) return bytes;
  return bytes * tsr_tree_depth(p->order->microbatches);
}

static int stage_of(const tsr_verify *v, int virtual_stage) {
  int stage, chunk;
  tsr_order_locate(v->programs->order, virtual_stage, &stage, &chunk);
  return stage;
}

int tsr_verify_source(const tsr_verify *v, int node) {
  return stage_of(v, tsr_value_stage(v->graph, v->graph->nodes[node].inputs[0]));
}

int tsr_verify_target(const tsr_verify *v, int node) {
  return stage_of(v, v->graph->nodes[node].stage);
}

int tsr_verify_transfer_microbatch(const tsr_graph *g, int node, int microbatch) {
  const tsr_value *x = &g->values[g->nodes[node].inputs[0]];
  tsr_section made = x->kind == TSR_VALUE_NODE ? g->nodes[x->node].section : TSR_PROLOGUE;
  return made == TSR_PROLOGUE || g->nodes[node].section == TSR_UPDATE ? 0 : microbatch;
}

bool tsr_verify_walk_next(tsr_verify_walk *w) {
  const tsr_program *p = w->s->p;
  for (; w->run < p->runs_count; w->run++, w->at = 0) {
    const tsr_run *run = &p->runs[w->run];
    while (w->at < w->s->moves_count[run->part]) {
      w->task = w->s->moves[run->part][w->at++];
      w->microbatch = run->microbatch;
      if (tsr_verify_runs(w->v, &p->tasks[w->task], run->microbatch)) return true;
    }
  }
  return false;
}

/* ---- the programs ---- */

static void find_transfers(tsr_verify *v) {
  const tsr_graph *g = v->graph;
  v->transfer_of = tsr_arena_array(v->arena, int, g->nodes_count + 1);
  v->transfers = tsr_arena_array(v->arena, int, g->nodes_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    bool is_receive = g->nodes[i].op == TSR_OP_RECEIVE;
    v->transfer_of[i] = is_receive ? v->transfers_count : -1;
    if (is_receive) v->transfers[v->transfers_count++] = i;
  }
}

/* The subject of a program: most often the one that its stage had last. */
static int find_subject(tsr_verify *v, const tsr_program *p, int rank, int *latest) {
  if (*latest >= 0 && v->subjects[*latest].p == p) return *latest;
  for (int i = 0; i < v->subjects_count; i++)
    if (v->subjects[i].p == p) return *latest = i;
  tsr_arena_grow(
      v->arena, (void **)&v->subjects, sizeof *v->subjects, v->subjects_count,
      &v->subjects_capacity);
  v->subjects[v->subjects_count] = (tsr_verify_subject){.p = p, .rank = rank};
  return *latest = v->subjects_count++;
}

static bool find_subjects(tsr_verify *v) {
  const tsr_verify_mesh *m = v->mesh;
  int stages = v->programs->order->stages, before = v->found;
  int *latest = tsr_arena_array(v->arena, int, stages);
  for (int s = 0; s < stages; s++) latest[s] = -1;
  v->subject_of = tsr_arena_array(v->arena, int, m->ranks);
  for (int r = 0; r < m->ranks; r++) {
    int stage = tsr_verify_coord(m, r, TSR_PP);
    const tsr_program *p = m->of_rank ? m->of_rank[r] : NULL;
    if (!p) p = v->programs->of_stage[stage];
    v->subject_of[r] = find_subject(v, p, r, &latest[stage]);
    tsr_verify_subject at = {.p = p, .rank = r};
    if (p->stage != stage)
      tsr_verify_say(v, &at, "the program is for stage %d, the rank on %d", p->stage, stage);
  }
  return v->found == before;
}

static void find_moves(tsr_verify *v, tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  s->moves = tsr_arena_array(v->arena, int *, p->parts_count);
  s->moves_count = tsr_arena_array(v->arena, int, p->parts_count);
  int *all = tsr_arena_array(v->arena, int, p->tasks_count + 1), count = 0;
  for (int k = 0; k < p->parts_count; k++) {
    s->moves[k] = all + count;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      tsr_op op = p->tasks[i].op;
      bool moves = op == TSR_OP_SEND || op == TSR_OP_RECEIVE || op == TSR_OP_WAIT;
      if (moves || tsr_op_is_collective(op)) all[count++] = i;
    }
    s->moves_count[k] = (int)(all + count - s->moves[k]);
  }
}

/* One program by itself; whether the others may rely on it. */
static bool check_subject(tsr_verify *v, tsr_verify_subject *s) {
  v->brief = tsr_arena_new();
  bool sound = tsr_verify_lists(v, s) && tsr_verify_tensors(v, s) && tsr_verify_tasks(v, s);
  if (sound) {
    find_moves(v, s);
    tsr_verify_sums(v, s);
    tsr_verify_memory(v, s);
  }
  tsr_arena_free(v->brief);
  s->owner = NULL;
  return sound;
}

bool tsr_programs_verify(
    tsr_arena *arena, const tsr_programs *programs, const tsr_verify_mesh *mesh, tsr_diags *diags) {
  assert(mesh->size[TSR_PP] == programs->order->stages);
  tsr_verify v = {
      .arena = arena,
      .programs = programs,
      .graph = programs->graph,
      .mesh = mesh,
      .diags = diags,
      .microbatches = programs->order->microbatches};
  find_transfers(&v);
  if (!find_subjects(&v)) return false;
  bool sound = true;
  for (int i = 0; i < v.subjects_count && !tsr_verify_is_full(&v); i++)
    sound = check_subject(&v, &v.subjects[i]) && sound;
  if (sound && !tsr_verify_is_full(&v) && tsr_verify_moves(&v)) tsr_verify_waits(&v);
  return v.found == 0;
}
