#include "fake_net.h"
#include "collective_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 16 };

typedef struct side {
  bool sends, done, failed;
  int from, to, tag;
  char *memory;
  char *copy; /* of a send that is done at once */
  int64_t bytes;
  struct side *other; /* the two that belong together */
  struct side *next;  /* of all that were begun, in their order */
} side;

typedef struct {
  fake_net *net;
  int worker;
} endpoint;

struct fake_net {
  int workers;
  uint64_t state;
  endpoint ends[WORKERS_MAX];
  bool stopped[WORKERS_MAX], fails[WORKERS_MAX];
  const int *hosts;
  int64_t sent[WORKERS_MAX], crossed, begun;
  int64_t stop_at[WORKERS_MAX]; /* messages; 0: never */
  side *first, **last;
};

static bool fake_begin(endpoint *e, side begun, tsr_message *ret) {
  fake_net *n = e->net;
  side *s = malloc(sizeof *s);
  *s = begun;
  for (side *o = n->first; o; o = o->next) {
    bool same = o->from == s->from && o->to == s->to && o->tag == s->tag;
    if (!same || o->other || o->sends == s->sends) continue;
    o->other = s;
    s->other = o;
    break;
  }
  *n->last = s;
  n->last = &s->next;
  if (!s->sends) memset(s->memory, 0xee, (size_t)s->bytes);
  else n->sent[s->from] += s->bytes;
  if (s->sends && n->hosts && n->hosts[s->from] != n->hosts[s->to]) n->crossed += s->bytes;
  if (s->sends && case_draw(&n->state, 3) == 0) {
    s->copy = malloc((size_t)s->bytes + 1);
    memcpy(s->copy, s->memory, (size_t)s->bytes);
  }
  n->begun++;
  for (int w = 0; w < n->workers; w++) n->stopped[w] |= n->stop_at[w] && n->begun >= n->stop_at[w];
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
          .sends = true, .from = e->worker, .to = to, .tag = tag, .memory = memory, .bytes = bytes},
      ret);
}

static bool
fake_receive(void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  (void)why;
  endpoint *e = state;
  return fake_begin(
      e, (side){.from = from, .to = e->worker, .tag = tag, .memory = to, .bytes = bytes}, ret);
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
  if (!s->done && n->stopped[other]) {
    if (!n->fails[other]) return TSR_MESSAGE_PENDING;
    snprintf(why, TSR_WHY_BYTES, "worker %d is gone", other);
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

fake_net *fake_net_new(int workers, uint64_t seed) {
  fake_net *n = calloc(1, sizeof *n);
  n->workers = workers;
  n->state = seed;
  n->last = &n->first;
  for (int w = 0; w < workers; w++) n->ends[w] = (endpoint){n, w};
  return n;
}

int fake_net_free(fake_net *n) {
  int left = 0;
  for (side *s = n->first, *next; s; s = next) {
    next = s->next;
    left += !s->done;
    free(s->copy);
    free(s);
  }
  free(n);
  return left;
}

void fake_net_endpoint(fake_net *n, int worker, tsr_transport *ret_transport) {
  *ret_transport = (tsr_transport){&fake_table, &n->ends[worker], worker, n->workers, "a test"};
}

void fake_net_stop(fake_net *n, int worker, bool fails) {
  n->stopped[worker] = true;
  n->fails[worker] = fails;
}

void fake_net_stop_at(fake_net *n, int worker, int64_t messages, bool fails) {
  n->stop_at[worker] = messages;
  n->fails[worker] = fails;
}

bool fake_net_is_stopped(const fake_net *n, int worker) { return n->stopped[worker]; }

int64_t fake_net_begun(const fake_net *n) { return n->begun; }

void fake_net_set_hosts(fake_net *n, const int *hosts) { n->hosts = hosts; }

int64_t fake_net_crossed(const fake_net *n) { return n->crossed; }

int64_t fake_net_sent(const fake_net *n, int worker) { return n->sent[worker]; }
