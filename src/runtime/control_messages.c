// SPDX-License-Identifier: Apache-2.0
/* What processes tell each other outside programs. */
#include "runtime/executable_internal.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

enum { TAG = TSR_TRANSPORT_TAGS - 1 };

void tsr_wait_lost(const tsr_waiting *w, const char *why) {
  const tsr_process_options *o = &w->executable->process->options;
  char *report = w->executable->failure_report;
  tsr_text text = {0};
  tsr_wait_report(w, why, &text);
  snprintf(report, TSR_FAILURE_REPORT_BYTES, "%s", text.data);
  tsr_text_free(&text);
  if (o->lost) o->lost(o->lost_context, report);
  fprintf(stderr, "%s\n", report);
  o->rank_map.transport->table->abort(o->rank_map.transport->state, 1);
  abort();
}

void tsr_wait_round(tsr_waiting *w) {
  double limit = w->executable->process->options.timeout_s;
  if (!w->since) w->backoff = (tsr_backoff){0};
  double waited = tsr_backoff_wait(&w->backoff);
  w->since = w->backoff.since;
  if (limit > 0 && waited > limit) tsr_wait_lost(w, NULL);
}

/* One after the other; messages[i] is to or from process of[i]. */
static void wait_for(
    const tsr_executable *b, const char *what, tsr_message *messages, const int *of, int count) {
  const tsr_transport *t = tsr_executable_rank_map(b)->transport;
  tsr_waiting w = {.executable = b, .stage = -1, .what = what, .peers_count = 1};
  char why[TSR_WHY_BYTES] = "";
  for (int done = 0; done < count;) {
    w.peers = &of[done];
    tsr_message_state state = t->table->test(t->state, &messages[done], why);
    if (state == TSR_MESSAGE_FAILED) tsr_wait_lost(&w, why);
    if (state == TSR_MESSAGE_DONE) done++, w.since = 0;
    else tsr_wait_round(&w);
  }
}

static void
begin_send(const tsr_executable *b, int to, const void *bytes, int64_t length, tsr_message *ret) {
  const tsr_transport *t = tsr_executable_rank_map(b)->transport;
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->send(t->state, to, TAG, bytes, length, ret, why))
    tsr_wait_lost(
        &(tsr_waiting){
            .executable = b, .stage = -1, .what = "sends", .peers = &to, .peers_count = 1},
        why);
}

static void
begin_receive(const tsr_executable *b, int from, void *bytes, int64_t length, tsr_message *ret) {
  const tsr_transport *t = tsr_executable_rank_map(b)->transport;
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->receive(t->state, from, TAG, bytes, length, ret, why))
    tsr_wait_lost(
        &(tsr_waiting){
            .executable = b, .stage = -1, .what = "receives", .peers = &from, .peers_count = 1},
        why);
}

static void
send_bytes(const tsr_executable *b, int to, const void *bytes, int64_t length, const char *what) {
  tsr_message m;
  begin_send(b, to, bytes, length, &m);
  wait_for(b, what, &m, &to, 1);
}

static void
receive_bytes(const tsr_executable *b, int from, void *bytes, int64_t length, const char *what) {
  tsr_message m;
  begin_receive(b, from, bytes, length, &m);
  wait_for(b, what, &m, &from, 1);
}

static const char tensor_out[] = "hands over a tensor", tensor_in[] = "waits for a tensor";

void tsr_executable_send(const tsr_executable *b, int to, const void *bytes, int64_t length) {
  send_bytes(b, to, bytes, length, tensor_out);
}

void tsr_executable_receive(const tsr_executable *b, int from, void *bytes, int64_t length) {
  receive_bytes(b, from, bytes, length, tensor_in);
}

void *tsr_wait_memory(const tsr_executable *b, int64_t bytes) {
  void *memory = tsr_memory_try((size_t)bytes);
  if (!memory)
    tsr_wait_lost(
        &(tsr_waiting){.executable = b, .stage = -1, .what = "needs memory"},
        "out of memory for another process's tensor");
  return memory;
}

enum { SENT_AT_ONCE = 64 };

static void broadcast(
    const tsr_executable *b, int from, void *bytes, int64_t length, const char *in,
    const char *out) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  tsr_message messages[SENT_AT_ONCE];
  int of[SENT_AT_ONCE], count = 0;
  if (h->process != from) {
    receive_bytes(b, from, bytes, length, in);
    return;
  }
  for (int w = 0; w < h->processes; w++) {
    if (w != from) {
      of[count] = w;
      begin_send(b, w, bytes, length, &messages[count++]);
    }
    if (count < SENT_AT_ONCE && w + 1 < h->processes) continue;
    wait_for(b, out, messages, of, count);
    count = 0;
  }
}

void tsr_executable_broadcast(const tsr_executable *b, int from, void *bytes, int64_t length) {
  broadcast(b, from, bytes, length, tensor_in, tensor_out);
}

static uint64_t all_bits(uint64_t a, uint64_t b) { return a | b; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t sum(uint64_t a, uint64_t b) { return a + b; }

/* Everybody's numbers to the first process, and back; `theirs` is room for as many. */
static void join_numbers(
    const tsr_executable *b, uint64_t *numbers, uint64_t *theirs, int count,
    uint64_t (*join)(uint64_t, uint64_t)) {
  static const char what[] = "agrees with the others on what is next";
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  int64_t bytes = (int64_t)sizeof *numbers * count;
  if (tsr_executable_is_alone(b)) return;
  if (h->process) send_bytes(b, 0, numbers, bytes, what);
  for (int w = 1; h->process == 0 && w < h->processes; w++) {
    receive_bytes(b, w, theirs, bytes, what);
    for (int i = 0; i < count; i++) numbers[i] = join(numbers[i], theirs[i]);
  }
  broadcast(b, 0, numbers, bytes, what, what);
}

static uint64_t
agree(const tsr_executable *b, uint64_t mine, uint64_t (*join)(uint64_t, uint64_t)) {
  uint64_t theirs;
  join_numbers(b, &mine, &theirs, 1, join);
  return mine;
}

uint64_t tsr_executable_agree(tsr_executable *b, uint64_t flags) {
  return agree(b, flags, all_bits);
}

uint64_t tsr_executable_agree_least(const tsr_executable *b, uint64_t mine) {
  return agree(b, mine, least);
}

uint64_t tsr_executable_agree_sum(const tsr_executable *b, uint64_t mine) {
  return agree(b, mine, sum);
}

void tsr_executable_agree_sums(
    const tsr_executable *b, uint64_t *numbers, uint64_t *room, int count) {
  join_numbers(b, numbers, room, count, sum);
}
