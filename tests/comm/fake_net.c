// SPDX-License-Identifier: Apache-2.0
#include "fake_net.h"
#include "collective_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUES = 1 << 16 }; /* of messages by sender, receiver and tag */

typedef struct side {
  bool sends, done, failed;
  int from, to, tag;
  char *memory;
  char *copy; /* of a send that is done at once */
  int64_t bytes;
  struct side *other;  /* the two that belong together */
  struct side *behind; /* in its queue, of those that wait for their other side */
  struct side *next;   /* of all that were begun */
} side;

typedef struct {
  fake_net *net;
  int process;
} endpoint;

typedef struct {
  endpoint end;
  bool stopped, fails;
  int64_t sent;
} fake_process;

struct fake_net {
  int processes;
  uint64_t state;
  fake_process *process;
  const int *hosts;
  int64_t crossed, begun;
  int64_t stop_at; /* messages; 0: never */
  int stops;       /* the process that does */
  side *all;
  side *waiting[QUEUES];
};

/* Takes the first that waits for this one, or lets this one wait. */
static void find_other(fake_net *n, side *s) {
  uint64_t key = ((uint64_t)s->from * 1000003 + (uint64_t)s->to) * 1000003 + (uint64_t)s->tag;
  side **at = &n->waiting[case_draw(&key, QUEUES)];
  for (; *at; at = &(*at)->behind) {
    side *o = *at;
    bool same = o->from == s->from && o->to == s->to && o->tag == s->tag;
    if (!same || o->sends == s->sends) continue;
    o->other = s;
    s->other = o;
    *at = o->behind;
    return;
  }
  *at = s;
}

static bool fake_begin(endpoint *e, side begun, tsr_message *ret) {
  fake_net *n = e->net;
  side *s = malloc(sizeof *s);
  *s = begun;
  find_other(n, s);
  s->next = n->all;
  n->all = s;
  if (!s->sends) memset(s->memory, 0xee, (size_t)s->bytes);
  else n->process[s->from].sent += s->bytes;
  if (s->sends && n->hosts && n->hosts[s->from] != n->hosts[s->to]) n->crossed += s->bytes;
  if (s->sends && case_draw(&n->state, 3) == 0) {
    s->copy = malloc((size_t)s->bytes + 1);
    memcpy(s->copy, s->memory, (size_t)s->bytes);
  }
  n->begun++;
  if (n->begun == n->stop_at) n->process[n->stops].stopped = true;
  *ret = (tsr_message){{s}};
  return true;
}

static bool fake_send(
    void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why) {
  (void)why;
  endpoint *e = state;
  char *memory = (char *)(uintptr_t)from;
  return fake_begin(
      e,
      (side){
          .sends = true,
          .from = e->process,
          .to = to,
          .tag = tag,
          .memory = memory,
          .bytes = bytes},
      ret);
}

static bool
fake_receive(void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  (void)why;
  endpoint *e = state;
  return fake_begin(
      e, (side){.from = from, .to = e->process, .tag = tag, .memory = to, .bytes = bytes}, ret);
}

static void deliver(side *s) {
  side *send = s->sends ? s : s->other, *receive = s->sends ? s->other : s;
  if (send->bytes == receive->bytes)
    memcpy(receive->memory, send->copy ? send->copy : send->memory, (size_t)send->bytes);
  send->failed = receive->failed = send->bytes != receive->bytes;
  send->done = receive->done = true;
}

static tsr_message_state fake_test(void *state, tsr_message *message, char *why) {
  fake_net *n = ((endpoint *)state)->net;
  side *s = message->words[0];
  int other = s->sends ? s->to : s->from;
  if (!s->done && n->process[other].stopped) {
    if (!n->process[other].fails) return TSR_MESSAGE_PENDING;
    snprintf(why, TSR_WHY_BYTES, "process %d is gone", other);
    return TSR_MESSAGE_FAILED;
  }
  if (case_draw(&n->state, 4)) return TSR_MESSAGE_PENDING;
  if (!s->done && s->other) deliver(s);
  if (!s->done && s->copy) return TSR_MESSAGE_DONE; /* it comes later */
  if (!s->done) return TSR_MESSAGE_PENDING;
  if (!s->failed) return TSR_MESSAGE_DONE;
  snprintf(
      why, TSR_WHY_BYTES, "%lld bytes were sent, %lld asked for",
      (long long)(s->sends ? s : s->other)->bytes, (long long)(s->sends ? s->other : s)->bytes);
  return TSR_MESSAGE_FAILED;
}

static const tsr_transport_table fake_table = {
    .abi = TSR_TRANSPORT_ABI,
    .bytes = sizeof fake_table,
    .name = "fake",
    .send = fake_send,
    .receive = fake_receive,
    .test = fake_test,
};

fake_net *fake_net_new(int processes, uint64_t seed) {
  fake_net *n = calloc(1, sizeof *n);
  n->processes = processes;
  n->state = seed;
  n->process = calloc((size_t)processes, sizeof *n->process);
  for (int w = 0; w < processes; w++) n->process[w].end = (endpoint){n, w};
  return n;
}

int fake_net_free(fake_net *n) {
  int left = 0;
  for (side *s = n->all, *next; s; s = next) {
    next = s->next;
    left += !s->done;
    free(s->copy);
    free(s);
  }
  free(n->process);
  free(n);
  return left;
}

void fake_net_endpoint(fake_net *n, int process, tsr_transport *ret_transport) {
  *ret_transport =
      (tsr_transport){&fake_table, &n->process[process].end, process, n->processes, "a test"};
}

void fake_net_stop(fake_net *n, int process, bool fails) {
  n->process[process].stopped = true;
  n->process[process].fails = fails;
}

void fake_net_stop_at(fake_net *n, int process, int64_t messages, bool fails) {
  n->stop_at = messages;
  n->stops = process;
  n->process[process].fails = fails;
}

bool fake_net_is_stopped(const fake_net *n, int process) { return n->process[process].stopped; }

int64_t fake_net_begun(const fake_net *n) { return n->begun; }

void fake_net_set_hosts(fake_net *n, const int *hosts) { n->hosts = hosts; }

int64_t fake_net_crossed(const fake_net *n) { return n->crossed; }

int64_t fake_net_sent(const fake_net *n, int process) { return n->process[process].sent; }
