// SPDX-License-Identifier: Apache-2.0
/* When peers do not respond: which tasks wait for what, which peers are alive, and what the rest
 * may be doing. The text has a line per process and per stage that waits, so that of many reports
 * side by side each can be read alone. */
#include "comm/peers.h"
#include "runtime/executable_internal.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A tag of its own: transfers and groups leave out the last two of their halves. */
enum { TAG = TSR_TRANSPORT_TAGS / 2 - 1, LISTED_MAX = 16 };
static const double answers_s = 3; /* in which a live process must answer */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- where a stage is ---- */

static bool is_done(const tsr_executable *b, int stage) {
  return b->at[stage].run == b->programs->of_stage[stage]->runs_count;
}

static const tsr_task *task_of(const tsr_executable *b, int stage) {
  const tsr_stage_at *at = &b->at[stage];
  return &b->programs->of_stage[stage]->tasks[at->task < 0 ? 0 : at->task];
}

static int microbatch_of(const tsr_executable *b, int stage) {
  return b->programs->of_stage[stage]->runs[b->at[stage].run].microbatch;
}

static bool trains(const tsr_executable *b) {
  for (int n = 0; n < b->programs->graph->nodes_count; n++)
    if (b->programs->graph->nodes[n].section == TSR_UPDATE) return true;
  return false;
}

/* Steps that the process has trained. */
static int64_t steps_trained(const tsr_executable *b) {
  int64_t most = 0;
  for (int i = 0; i < b->process->executables_count; i++) {
    const tsr_executable *of = &b->process->executable[i];
    if (of->steps_done > most && trains(of)) most = of->steps_done;
  }
  return most;
}

/* What runs, where that is no step: "evaluation after step 7". */
static void add_pass(const tsr_executable *b, tsr_text *text) {
  int64_t steps = steps_trained(b);
  tsr_text_add(text, b->programs->graph->loss >= 0 ? "evaluation" : "forward pass");
  if (steps) tsr_text_add(text, " after step %lld", (long long)steps);
}

/* "step 7, stage 0, microbatch 1, task 12: all_reduce 'wo' over tp (run.yaml:5)" */
static void add_place(const tsr_executable *b, int stage, tsr_text *text) {
  const tsr_task *t = task_of(b, stage);
  const tsr_node *n = &b->programs->graph->nodes[t->node];
  if (trains(b)) tsr_text_add(text, "step %lld", (long long)b->step + 1);
  else add_pass(b, text);
  tsr_text_add(
      text, ", stage %d, microbatch %d, task %d: %s '%s'", stage, microbatch_of(b, stage),
      b->at[stage].task, tsr_op_name(t->op), n->name);
  if (tsr_op_is_collective(t->op)) tsr_text_add(text, " over %s", tsr_axis_name(t->axis));
  if (n->location.file) tsr_text_add(text, " (%s:%d)", n->location.file, n->location.line);
}

/* "before the first step", "after step 7", "in the evaluation after step 7" */
static void add_time(const tsr_executable *b, tsr_text *text) {
  if (!trains(b)) tsr_text_add(text, "in the "), add_pass(b, text);
  else if (!b->steps_done) tsr_text_add(text, "before the first step");
  else tsr_text_add(text, "after step %lld", (long long)b->steps_done);
}

/* "before the first step, sends: send 'x' (graph.yaml:7)" */
static void add_wait(const tsr_waiting *w, tsr_text *text) {
  add_time(w->executable, text);
  tsr_text_add(text, ", %s", w->what ? w->what : "");
  if (!w->node) return;
  const tsr_node *n = &w->executable->programs->graph->nodes[w->node - 1];
  tsr_text_add(text, ": %s '%s'", tsr_op_name(n->op), n->name);
  if (n->location.file) tsr_text_add(text, " (%s:%d)", n->location.file, n->location.line);
}

static void add_number(tsr_text *text, int number) { tsr_text_add(text, " %d", number); }

static void add_ranks(tsr_text *text, const int *ranks, int count) {
  tsr_text_add(text, count == 1 ? "rank" : "ranks");
  for (int i = 0; i < count; i++) add_number(text, ranks[i]);
}

/* ---- the other processes' answers ---- */

static void fill_answer(const tsr_waiting *w, tsr_answer *mine) {
  const tsr_executable *b = w->executable;
  tsr_text text = {0};
  *mine = (tsr_answer){.step = b->step};
  for (int s = 0; w->stage >= 0 && s < b->programs->pipeline->stages; s++) {
    if (!b->ranks_count[s] || is_done(b, s)) continue;
    if (!text.length) add_place(b, s, &text);
    if (mine->count == TSR_ANSWER_STAGES) continue;
    mine->at[mine->count++] = (tsr_answer_at){s, task_of(b, s)->node, microbatch_of(b, s)};
  }
  if (!text.length) add_wait(w, &text);
  snprintf(mine->text, sizeof mine->text, "%s", text.data);
  tsr_text_free(&text);
}

/* Starts to send this process's position to all, and to request theirs. */
static void ask(const tsr_executable *b) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  const tsr_transport *t = h->transport;
  char why[TSR_WHY_BYTES] = "";
  for (int o = 0; o < h->processes; o++) {
    tsr_report *r = &b->reports[o];
    r->asked = o != h->process &&
               t->table->receive(t->state, o, TAG, &r->answer, sizeof r->answer, &r->in, why);
    if (r->asked)
      t->table->send(
          t->state, o, TAG, &b->reports[h->process].answer, sizeof r->answer, &r->out, why);
  }
}

/* Whether it is still worth to wait for somebody. */
static bool any_may_answer(const tsr_executable *b) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  const tsr_transport *t = h->transport;
  char why[TSR_WHY_BYTES] = "";
  bool any = false;
  for (int o = 0; o < h->processes; o++) {
    tsr_report *r = &b->reports[o];
    if (!r->asked) continue;
    tsr_message_state state = t->table->test(t->state, &r->in, why);
    r->asked = state == TSR_MESSAGE_PENDING;
    r->came = state == TSR_MESSAGE_DONE;
    if (!r->asked) continue;
    tsr_peer_state sight = tsr_peer_look(t, o);
    any |= sight == TSR_PEER_ELSEWHERE || sight == TSR_PEER_RUNS;
  }
  return any;
}

static void hear_others(const tsr_waiting *w) {
  const tsr_executable *b = w->executable;
  double begin = now();
  fill_answer(w, &b->reports[tsr_executable_rank_map(b)->process].answer);
  ask(b);
  while (any_may_answer(b) && now() - begin < answers_s)
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* It has said that it waits in the same task. */
static bool waits_there(const tsr_executable *b, int stage, int process) {
  const tsr_report *r = &b->reports[process];
  if (!r->came || r->answer.step != b->step) return false;
  for (int i = 0; i < r->answer.count; i++) {
    const tsr_answer_at *at = &r->answer.at[i];
    bool same = at->stage == stage && at->microbatch == microbatch_of(b, stage);
    if (same && at->node == task_of(b, stage)->node) return true;
  }
  return false;
}

/* ---- whom a stage waits for ---- */

static bool is_among(uint64_t processes, int process) {
  return processes >> (process < 63 ? process : 63) & 1;
}

/* The members that are there, or those that are not: "process 1 (ranks 2 3), process 3 (rank 6)".
 * */
static bool add_members(
    const tsr_executable *b, const int *members, const bool *there, int count, bool want,
    tsr_text *text) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  bool any = false;
  for (int o = 0; o < h->processes; o++) {
    tsr_text ranks = {0};
    int found = 0;
    for (int m = 0; m < count; m++) {
      if (tsr_rank_map_process(h, members[m]) != o || there[m] != want) continue;
      add_number(&ranks, members[m]);
      found++;
    }
    if (found)
      tsr_text_add(
          text, "%sprocess %d (rank%s%s)", any ? ", " : "", o, found == 1 ? "" : "s", ranks.data);
    any |= found > 0;
    tsr_text_free(&ranks);
  }
  return any;
}

/* One group of a collective that is under way. */
static void add_group(
    const tsr_executable *b, int stage, int axis, int first, uint64_t missing, tsr_text *text) {
  const tsr_parallel *p = b->process->options.parallel;
  int count = p->size[axis];
  tsr_arena *arena = tsr_arena_new();
  int *members = tsr_arena_array(arena, int, count);
  bool *there = tsr_arena_array(arena, bool, count);
  for (int m = 0; m < count; m++) {
    members[m] = tsr_parallel_member(p, first, axis, m);
    int of = tsr_rank_map_process(tsr_executable_rank_map(b), members[m]);
    there[m] = !is_among(missing, of) || waits_there(b, stage, of);
  }
  tsr_text_add(text, "\n    group of ");
  add_ranks(text, members, count);
  tsr_text_add(text, ": ");
  add_members(b, members, there, count, true, text);
  tsr_text_add(text, " came; ");
  if (add_members(b, members, there, count, false, text)) tsr_text_add(text, " did not");
  else tsr_text_add(text, "nobody is missing, but messages are");
  tsr_arena_free(arena);
}

static void add_groups(const tsr_executable *b, int stage, tsr_text *text) {
  const tsr_task *t = task_of(b, stage);
  const tsr_pending_task *m =
      &b->pending[t->axis == TSR_PP ? b->programs->pipeline->stages : stage];
  for (int i = 0; m->node == t->node && i < m->count; i++)
    add_group(b, stage, t->axis, m->firsts[i], tsr_pending_missing(m->calls[i]), text);
}

/* The collective in flight that the wait for a bucket waits for. */
static void add_background(const tsr_executable *b, int stage, tsr_text *text) {
  if (!b->background || !b->background[stage].count) return;
  const tsr_background *g = &b->background[stage];
  const tsr_task *t = g->begun[g->first].task;
  tsr_text_add(
      text, "\n    %s '%s' over %s", tsr_op_name(t->op), b->programs->graph->nodes[t->node].name,
      tsr_axis_name(t->axis));
  for (int i = 0; i < g->in_flight.count; i++)
    add_group(
        b, stage, t->axis, g->in_flight.firsts[i], tsr_pending_missing(g->in_flight.calls[i]),
        text);
}

/* Ranks of another stage that have not sent, or not taken what was sent to them. */
static void add_transfers(const tsr_executable *b, int stage, tsr_text *text) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  const tsr_parallel *p = b->process->options.parallel;
  const tsr_task *t = task_of(b, stage);
  bool receives = t->op == TSR_OP_RECEIVE;
  int from, to;
  tsr_task_ends(
      &(tsr_task_at){
          .executable = (tsr_executable *)b, .program = b->programs->of_stage[stage], .task = t},
      &from, &to);
  for (int i = 0; i < b->ranks_count[stage]; i++) {
    bool waits = false;
    for (int m = 0; m < b->programs->pipeline->microbatches; m++) {
      const tsr_transfer *of = &b->transfers[t->node][m];
      waits |= receives ? of->begun && of->in_waits[i] : of->out_waits[i];
    }
    if (!waits) continue;
    int rank = b->ranks_of_stage[stage][i];
    int other = tsr_parallel_member(p, rank, TSR_PP, receives ? from : to);
    int process = tsr_rank_map_process(h, other);
    tsr_text_add(
        text,
        receives ? "\n    rank %d of stage %d, process %d, has sent nothing to rank %d"
                 : "\n    rank %d of stage %d, process %d, has not taken what rank %d sent",
        other, receives ? from : to, process, rank);
  }
}

static void add_stage(const tsr_executable *b, int stage, tsr_text *text) {
  const tsr_task *t = task_of(b, stage);
  size_t before;
  tsr_text_add(text, "\n  ");
  add_ranks(text, b->ranks_of_stage[stage], b->ranks_count[stage]);
  tsr_text_add(text, ": ");
  add_place(b, stage, text);
  before = text->length;
  bool moves = t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT;
  if (tsr_op_is_collective(t->op)) add_groups(b, stage, text);
  else if (t->bucket) add_background(b, stage, text);
  else if (moves && b->transfers[t->node]) add_transfers(b, stage, text);
  if (text->length == before) tsr_text_add(text, "\n    waits for another stage of this process");
}

/* ---- the report ---- */

static void add_here(const tsr_waiting *w, tsr_text *text) {
  const tsr_executable *b = w->executable;
  if (w->stage >= 0) {
    for (int s = 0; s < b->programs->pipeline->stages; s++)
      if (b->ranks_count[s] && !is_done(b, s)) add_stage(b, s, text);
    return;
  }
  tsr_arena *arena = tsr_arena_new();
  int *ranks = tsr_arena_array(arena, int, b->process->options.parallel->ranks), count = 0;
  for (int r = 0; r < b->process->options.parallel->ranks; r++)
    if (tsr_executable_is_here(b, r)) ranks[count++] = r;
  tsr_text_add(text, "\n  ");
  add_ranks(text, ranks, count);
  tsr_text_add(text, ": ");
  add_wait(w, text);
  if (w->peers_count) tsr_text_add(text, "; nothing from process%s", w->peers_count > 1 ? "s" : "");
  for (int i = 0; i < w->peers_count; i++) add_number(text, w->peers[i]);
  tsr_arena_free(arena);
}

static void add_others(const tsr_executable *b, tsr_text *text) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  int waiting = 0;
  for (int o = 0; o < h->processes; o++) {
    if (o == h->process) continue;
    waiting += b->reports[o].came;
    if (b->reports[o].came && waiting > LISTED_MAX) continue;
    tsr_text_add(text, "\n  ");
    tsr_peer_name(h->transport, o, text);
    if (b->reports[o].came) {
      tsr_text_add(text, ": waits, too: %s", b->reports[o].answer.text);
      continue;
    }
    tsr_peer_state state = tsr_peer_look(h->transport, o);
    bool certain = state == TSR_PEER_DEAD || state == TSR_PEER_STOPPED;
    tsr_text_add(text, certain ? ": " : ": does not answer: ");
    tsr_peer_describe(h->transport, o, text);
  }
  if (waiting > LISTED_MAX)
    tsr_text_add(text, "\n  and %d more that wait, too", waiting - LISTED_MAX);
}

void tsr_wait_report(const tsr_waiting *w, const char *why, tsr_text *text) {
  const tsr_executable *b = w->executable;
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  double waited = w->since ? now() - w->since : 0; /* before the others are asked */
  hear_others(w);
  tsr_peer_name(h->transport, h->process, text);
  if (why) tsr_text_add(text, " cannot continue: %s", why);
  else
    tsr_text_add(
        text, " has waited %.1f s for others; collectives.timeout_s is %g", waited,
        b->process->options.timeout_s);
  add_here(w, text);
  add_others(b, text);
}
