// SPDX-License-Identifier: Apache-2.0
/* Collectives of very many processes: whole jobs of hundreds, on a transport that a seed drives,
 * with and without a process that is lost; and one process of 65,536, whose others are a stub. */
#include "../check.h"
#include "collective_case.h"
#include "collective_oracle.h"
#include "fake_net.h"
#include <stdlib.h>

enum { PROCESSES_MAX = 400, IDLE_TURNS = 100 };

static void *must(void *memory) {
  if (!memory) abort();
  return memory;
}

/* Numbers whose sum depends on the order. */
static float number_of(int64_t member, int64_t element) {
  uint64_t state = (uint64_t)(member * 1000003 + element);
  return (float)(int32_t)case_draw(&state, 0) * 1e-6f;
}

/* ---- whole jobs ---- */

typedef struct {
  tsr_collective c;
  int64_t before, after; /* elements of a member's */
  int *process_of;
  float **in, **out;
  fake_net *net;
  tsr_transport transports[PROCESSES_MAX];
  tsr_arena *arena;
  tsr_pending *pending[PROCESSES_MAX];
  tsr_pending_state state[PROCESSES_MAX];
} job;

static tsr_pending_call
plan(tsr_arena *arena, const tsr_collective *c, const int *process_of, const int *hosts, int own) {
  tsr_pending_call call = {.collective = c, .tag = 5, .threads = 1};
  call.layout = tsr_layout_new(arena, c->members, process_of, hosts, own);
  const tsr_collective_request request = {.collective = c, .layout = call.layout};
  call.list = tsr_algorithm_plan(arena, &request);
  return call;
}

/* One member on each process, in an order of their own when they are `mixed`. */
static void begin(job *j, tsr_op op, int processes, const int *hosts, bool mixed) {
  int64_t n = op == TSR_OP_ALL_TO_ALL ? (int64_t)processes * processes : 3 * processes;
  *j = (job){.c = {.op = op, .members = processes, .groups = 1, .ndim = 1, .from = -1, .to = -1}};
  j->c.element = sizeof(float);
  j->c.k = tsr_kernels_get(NULL);
  j->c.shape[0] = n;
  j->before = j->after = op == TSR_OP_ALL_REDUCE ? n + 5 : n;
  if (op == TSR_OP_ALL_REDUCE) j->c.shape[0] = n + 5;
  if (op == TSR_OP_REDUCE_SCATTER) j->c.to = 0, j->after /= processes;
  if (op == TSR_OP_ALL_GATHER) j->c.from = 0, j->before /= processes;
  if (op == TSR_OP_RING_SHIFT) j->c.by = 7;
  if (op == TSR_OP_BROADCAST || op == TSR_OP_REDUCE) j->c.root = processes / 2;
  if (op == TSR_OP_ALL_TO_ALL) {
    j->c.ndim = 2, j->c.from = 0, j->c.to = 1;
    j->c.shape[0] = j->c.shape[1] = processes;
    j->before = j->after = processes;
  }
  j->process_of = must(malloc(sizeof(int) * (size_t)processes));
  j->in = must(malloc(sizeof(float *) * (size_t)processes));
  j->out = must(malloc(sizeof(float *) * (size_t)processes));
  j->net = fake_net_new(processes, (uint64_t)processes);
  j->arena = tsr_arena_new();
  for (int m = 0; m < processes; m++) {
    j->process_of[m] = mixed ? (int)((int64_t)m * 7 % processes) : m;
    j->in[m] = must(malloc(sizeof(float) * (size_t)j->before));
    j->out[m] = must(calloc((size_t)j->after, sizeof(float)));
    for (int64_t i = 0; i < j->before; i++) j->in[m][i] = number_of(m, i);
  }
  float **in = must(calloc((size_t)processes, sizeof *in)),
        **out = must(calloc((size_t)processes, sizeof *out));
  for (int m = 0; m < processes; m++) {
    int w = j->process_of[m];
    tsr_collective own = j->c;
    own.in = in, own.out = out;
    in[m] = j->in[m], out[m] = j->out[m];
    fake_net_endpoint(j->net, w, &j->transports[w]);
    tsr_pending_call call = plan(j->arena, &own, j->process_of, hosts, w);
    call.transport = &j->transports[w];
    size_t bytes = (size_t)tsr_pending_bytes(call.list, processes);
    j->pending[w] = tsr_pending_begin(&call, must(aligned_alloc(64, bytes)));
    in[m] = out[m] = NULL;
  }
  free((void *)in);
  free((void *)out);
}

/* Until nothing has changed for some turns of everybody. */
static void drive(job *j) {
  uint64_t seed = 3;
  int processes = j->c.members;
  int64_t begun = -1;
  for (int idle = 0; idle < IDLE_TURNS * processes; idle++) {
    int w = (int)case_draw(&seed, (uint64_t)processes);
    if (j->state[w] != TSR_PENDING || fake_net_is_stopped(j->net, w)) continue;
    j->state[w] = tsr_pending_advance(j->pending[w]);
    if (j->state[w] != TSR_PENDING || fake_net_begun(j->net) != begun) idle = 0;
    begun = fake_net_begun(j->net);
  }
}

/* Returns the messages that were begun. */
static int64_t end(job *j) {
  int64_t begun = fake_net_begun(j->net);
  for (int m = 0; m < j->c.members; m++) {
    free(j->in[m]);
    free(j->out[m]);
    free(j->pending[m]); /* it begins the memory that it was given */
  }
  fake_net_free(j->net);
  tsr_arena_free(j->arena);
  free((void *)j->in);
  free((void *)j->out);
  free(j->process_of);
  return begun;
}

static int64_t check_whole(job *j, tsr_op op, int processes, const int *hosts, bool mixed) {
  int pending = 0;
  begin(j, op, processes, hosts, mixed);
  drive(j);
  for (int w = 0; w < processes; w++) pending += j->state[w] != TSR_PENDING_DONE;
  CHECK_AT(!pending, "collective %d: %d of %d processes are not done", op, pending, processes);
  j->c.in = j->in, j->c.out = j->out;
  if (!pending) CHECK_INT(collective_oracle_differences(&j->c, NULL), 0);
  return end(j);
}

/* The one that is lost is named, alone or (from 63 on) as one of those above. */
static void check_lost(job *j, int processes, const int *hosts, int lost, int64_t at) {
  int done = 0, named = 0;
  begin(j, TSR_OP_ALL_REDUCE, processes, hosts, false);
  fake_net_stop_at(j->net, lost, at, false);
  drive(j);
  for (int w = 0; w < processes; w++) {
    if (w == lost) continue;
    done += j->state[w] == TSR_PENDING_DONE;
    named += tsr_pending_missing(j->pending[w]) >> (lost < 63 ? lost : 63) & 1;
  }
  CHECK_AT(
      named > 0 && done < processes - 1,
      "process %d of %d lost at message %lld: %d done, named by %d", lost, processes, (long long)at,
      done, named);
  end(j);
}

static void test_whole(void) {
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_REDUCE_SCATTER, TSR_OP_ALL_GATHER,
                               TSR_OP_RING_SHIFT, TSR_OP_ALL_TO_ALL,     TSR_OP_BROADCAST,
                               TSR_OP_REDUCE};
  static const int counts[] = {65, 150, PROCESSES_MAX};
  static int blocks[PROCESSES_MAX], turns[PROCESSES_MAX];
  static job j;
  for (int w = 0; w < PROCESSES_MAX; w++) blocks[w] = w / 8, turns[w] = w % 9;
  for (int i = 0; i < 3; i++)
    for (int op = 0; op < 7; op++)
      for (int layout = 0; layout < 3; layout++) {
        if (i == 2 && op == 4 && layout) continue; /* all_to_all knows no hosts */
        const int *hosts = layout == 0 ? NULL : layout == 1 ? blocks : turns;
        int64_t messages = check_whole(&j, ops[op], counts[i], hosts, layout == 2);
        uint64_t seed = (uint64_t)messages;
        for (int n = 0; op == 0 && i < 2 && n < 4; n++) {
          int lost = (int)case_draw(&seed, (uint64_t)counts[i]);
          check_lost(
              &j, counts[i], hosts, lost, 1 + (int64_t)case_draw(&seed, (uint64_t)messages / 2));
        }
      }
}

/* ---- one of 65,536 ---- */

enum { MANY = 65536, ME = 12345 };

/* Of what another process sends the first are its summands, and then come sums. */
typedef struct {
  unsigned char *received; /* per process: messages */
  int64_t sent, sent_sums;
  float sum; /* what is sent after all summands have come */
} stub;

static bool stub_send(
    void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why) {
  stub *s = state;
  float number;
  (void)tag, (void)why;
  CHECK_INT(bytes, sizeof number);
  memcpy(&number, from, sizeof number);
  if (number == number_of(ME, to)) s->sent++;
  else s->sum = number, s->sent_sums++;
  ret->words[0] = NULL;
  return true;
}

static bool
stub_receive(void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  stub *s = state;
  (void)tag, (void)why;
  CHECK_INT(bytes, sizeof(float));
  float number = s->received[from]++ ? (float)from : number_of(from, ME);
  memcpy(to, &number, sizeof number);
  ret->words[0] = NULL;
  return true;
}

static tsr_message_state stub_test(void *state, tsr_message *message, char *why) {
  (void)state, (void)message, (void)why;
  return TSR_MESSAGE_DONE;
}

static const tsr_transport_table stub_table = {
    .name = "stub", .send = stub_send, .receive = stub_receive, .test = stub_test};

/* An all_reduce of an element each: this process adds one of them, by halves. */
static float sum_of(int begin, int count) {
  if (count == 1) return number_of(begin, ME);
  return sum_of(begin, count / 2) + sum_of(begin + count / 2, count / 2);
}

static void test_one(void) {
  stub s = {.received = must(calloc(MANY, 1))};
  tsr_transport t = {&stub_table, &s, ME, MANY, "a test"};
  float *in[MANY] = {0}, *out[MANY] = {0};
  int *process_of = must(malloc(sizeof(int) * MANY));
  in[ME] = must(malloc(sizeof(float) * MANY));
  out[ME] = must(calloc(MANY, sizeof(float)));
  for (int m = 0; m < MANY; m++) process_of[m] = m, in[ME][m] = number_of(ME, m);
  tsr_collective c = {
      .op = TSR_OP_ALL_REDUCE, .members = MANY, .groups = 1, .ndim = 1, .from = -1, .to = -1};
  c.shape[0] = MANY, c.element = sizeof(float), c.k = tsr_kernels_get(NULL), c.in = in, c.out = out;
  tsr_arena *arena = tsr_arena_new();
  tsr_pending_call call = plan(arena, &c, process_of, NULL, ME);
  call.transport = &t;
  char *memory = must(aligned_alloc(64, (size_t)tsr_pending_bytes(call.list, MANY)));
  tsr_pending *pending = tsr_pending_begin(&call, memory);
  CHECK_INT(tsr_pending_advance(pending), TSR_PENDING_DONE);
  CHECK_INT(s.sent, MANY - 1);
  CHECK_INT(s.sent_sums, MANY - 1);
  CHECK(s.sum == sum_of(0, MANY) && out[ME][ME] == s.sum);
  int wrong = 0;
  for (int m = 0; m < MANY; m++) wrong += m != ME && out[ME][m] != (float)m;
  CHECK_INT(wrong, 0);
  free(memory);
  tsr_arena_free(arena);
  free(in[ME]);
  free(out[ME]);
  free(process_of);
  free(s.received);
}

int main(void) {
  test_whole();
  test_one();
  return check_done("remote.many");
}
