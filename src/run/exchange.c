/* What workers tell each other outside programs. */
#include "run/internal.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG = TSR_TRANSPORT_TAGS - 1, ROUNDS_BEFORE_CLOCK = 64 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "worker 1 on host b: waits in step 7 of stage 0 for task 12, block.3.wo (run.yaml:5): all_reduce over
 * tp; ranks 2 3; for 30.0 s" */
static void describe_waiting(const tsr_waiting *w, tsr_text *text) {
  const tsr_bound *b = w->bound;
  const tsr_hosting *h = tsr_bound_hosting(b);
  tsr_text_add(
      text, "worker %d of %d on %s ", h->worker, h->workers,
      h->transport->table->host(h->transport->state, h->worker));
  if (w->stage < 0) {
    tsr_text_add(text, "waits %s", w->what);
  } else {
    const tsr_stage_at *at = &b->at[w->stage];
    const tsr_program *p = b->programs->of_stage[w->stage];
    const tsr_task *t = &p->tasks[at->task < 0 ? 0 : at->task];
    const tsr_node *n = &p->graph->nodes[t->node];
    tsr_text_add(
        text, "waits in step %lld, stage %d, microbatch %d, for task %d: %s '%s'",
        (long long)b->step + 1, w->stage, p->runs[at->run].microbatch, at->task, tsr_op_name(t->op),
        n->name);
    if (t->axis >= 0) tsr_text_add(text, " over %s", tsr_axis_name(t->axis));
    if (n->place.file) tsr_text_add(text, " (%s:%d)", n->place.file, n->place.line);
    tsr_text_add(text, ", ranks");
    for (int i = 0; i < b->ranks_count[w->stage]; i++)
      tsr_text_add(text, " %d", b->ranks_of_stage[w->stage][i]);
  }
  if (w->since) tsr_text_add(text, ", for %.1f s", now() - w->since);
}

/* Which workers' messages have not come. */
static void describe_missing(const tsr_waiting *w, tsr_text *text) {
  const tsr_bound *b = w->bound;
  if (w->stage < 0) return;
  uint64_t missing = tsr_task_missing(b, w->stage);
  if (!missing) return;
  tsr_text_add(text, "; nothing from worker");
  for (int i = 0; i < 63; i++)
    if (missing & (uint64_t)1 << i) tsr_text_add(text, " %d", i);
}

void tsr_wait_lost(const tsr_waiting *w, const char *why) {
  const tsr_worker_options *o = &w->bound->worker->options;
  tsr_text text = {0};
  describe_waiting(w, &text);
  describe_missing(w, &text);
  if (why && *why) tsr_text_add(&text, ": %s", why);
  if (o->lost) o->lost(o->lost_context, text.data);
  fprintf(stderr, "%s\n", text.data);
  o->hosting.transport->table->abort(o->hosting.transport->state, 1);
  abort();
}

void tsr_wait_round(tsr_waiting *w) {
  double limit = w->bound->worker->options.timeout_s;
  if (!w->since) w->since = now();
  sched_yield();
  if (limit > 0 && now() - w->since > limit) tsr_wait_lost(w, "the time that others have is over");
}

static void wait_for(const tsr_bound *b, const char *what, tsr_message *messages, int count) {
  const tsr_transport *t = tsr_bound_hosting(b)->transport;
  tsr_waiting w = {.bound = b, .stage = -1, .what = what};
  char why[TSR_WHY_BYTES] = "";
  for (int done = 0; done < count;) {
    tsr_message_state state = t->table->test(t->state, &messages[done], why);
    if (state == TSR_MESSAGE_FAILED) tsr_wait_lost(&w, why);
    if (state == TSR_MESSAGE_DONE) done++;
    else tsr_wait_round(&w);
  }
}

static void begin_send(const tsr_bound *b, int to, const void *bytes, int64_t length, tsr_message *ret) {
  const tsr_transport *t = tsr_bound_hosting(b)->transport;
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->send(t->state, to, TAG, bytes, length, ret, why))
    tsr_wait_lost(&(tsr_waiting){.bound = b, .stage = -1, .what = "to send"}, why);
}

static void begin_receive(const tsr_bound *b, int from, void *bytes, int64_t length, tsr_message *ret) {
  const tsr_transport *t = tsr_bound_hosting(b)->transport;
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->receive(t->state, from, TAG, bytes, length, ret, why))
    tsr_wait_lost(&(tsr_waiting){.bound = b, .stage = -1, .what = "to receive"}, why);
}

void tsr_bound_send(const tsr_bound *b, int to, const void *bytes, int64_t length) {
  tsr_message m;
  begin_send(b, to, bytes, length, &m);
  wait_for(b, "to hand over a tensor", &m, 1);
}

void tsr_bound_receive(const tsr_bound *b, int from, void *bytes, int64_t length) {
  tsr_message m;
  begin_receive(b, from, bytes, length, &m);
  wait_for(b, "for a tensor", &m, 1);
}

void *tsr_wait_memory(const tsr_bound *b, int64_t bytes) {
  void *memory = malloc((size_t)(bytes ? bytes : 1));
  if (!memory)
    tsr_wait_lost(
        &(tsr_waiting){.bound = b, .stage = -1, .what = "for memory"},
        "out of memory for another worker's tensor");
  return memory;
}

enum { SENT_AT_ONCE = 64 };

void tsr_bound_broadcast(const tsr_bound *b, int from, void *bytes, int64_t length) {
  const tsr_hosting *h = tsr_bound_hosting(b);
  tsr_message messages[SENT_AT_ONCE];
  int count = 0;
  if (h->worker != from) {
    tsr_bound_receive(b, from, bytes, length);
    return;
  }
  for (int w = 0; w < h->workers; w++) {
    if (w != from) begin_send(b, w, bytes, length, &messages[count++]);
    if (count < SENT_AT_ONCE && w + 1 < h->workers) continue;
    wait_for(b, "to hand over a tensor", messages, count);
    count = 0;
  }
}

/* Everybody's flags to the first worker, and back. */
uint64_t tsr_bound_agree(tsr_bound *b, uint64_t flags) {
  const tsr_hosting *h = tsr_bound_hosting(b);
  if (tsr_bound_is_alone(b)) return flags;
  if (h->worker) tsr_bound_send(b, 0, &flags, sizeof flags);
  for (int w = 1; h->worker == 0 && w < h->workers; w++) {
    uint64_t theirs;
    tsr_bound_receive(b, w, &theirs, sizeof theirs);
    flags |= theirs;
  }
  tsr_bound_broadcast(b, 0, &flags, sizeof flags);
  return flags;
}
