// SPDX-License-Identifier: Apache-2.0
/* Collectives between processes whose members are on devices: bit for bit what one process gives.
 * Each process is a thread, with a device that works at once and whose messages lie in the
 * receiver's mailbox. */
#include "../check.h"
#include "collective_case.h"
#include "collective_oracle.h"
#include <pthread.h>
#include <stdlib.h>

/* ---- devices ---- */

typedef struct message {
  struct message *next;
  int64_t bytes;
  char data[];
} message;

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t came;
  message *first[CASE_PROCESSES_MAX][CASE_PROCESSES_MAX]; /* from, to */
  int64_t sent, crossed; /* bytes; between hosts, which are of so many processes each */
  int host_processes;
} net;

typedef struct {
  net *net;
  int process;
} endpoint;

static void copy(void *state, const tsr_device_copy *copies, int count) {
  (void)state;
  for (int i = 0; i < count; i++) memcpy(copies[i].to, copies[i].from, (size_t)copies[i].bytes);
}

/* The sum at out[0]'s element `to`, whose summands are the elements `from`. */
static float tree_sum(const tsr_members_sum *s, tsr_dtype dtype, int64_t to, int64_t from) {
  float stack[64], sum;
  int depth = 0;
  if (s->onto) stack[depth++] = collective_oracle_read(dtype, s->out[0], to);
  for (int m = 0; m < s->members; m++) {
    stack[depth++] = collective_oracle_read(dtype, s->in[m], from);
    for (int k = s->merges[m]; k > 0; k--, depth--) {
      collective_oracle_write(dtype, &sum, 0, stack[depth - 2] + stack[depth - 1]);
      stack[depth - 2] = collective_oracle_read(dtype, &sum, 0);
    }
  }
  return stack[0];
}

static void sum_members(void *state, const tsr_members_sum *s) {
  static const tsr_dtype dtypes[] = {
      [TSR_SUM_F32] = TSR_F32, [TSR_SUM_BF16] = TSR_BF16, [TSR_SUM_F16] = TSR_F16};
  tsr_dtype dtype = dtypes[s->type];
  (void)state;
  for (int64_t o = 0; o < s->outer; o++)
    for (int64_t i = 0; i < s->part; i++) {
      int64_t to = o * s->part + i, from = o * s->step + s->start + i;
      float sum = tree_sum(s, dtype, to, from);
      for (int k = 0; k < s->outs; k++) collective_oracle_write(dtype, s->out[k], to, sum);
    }
}

static void move(
    void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  int64_t n = 1;
  (void)state;
  for (int d = 0; d < ndim; d++) n *= shape[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, to = 0, from = 0;
    for (int d = ndim - 1; d >= 0; rest /= shape[d--]) {
      to += rest % shape[d] * out_step[d];
      from += rest % shape[d] * x_step[d];
    }
    memcpy((char *)out + to * bytes, (const char *)x + from * bytes, (size_t)bytes);
  }
}

static void send(net *n, int from, int to, const void *data, int64_t bytes) {
  message *m = malloc(sizeof *m + (size_t)bytes), **last = &n->first[from][to];
  m->next = NULL;
  m->bytes = bytes;
  memcpy(m->data, data, (size_t)bytes);
  pthread_mutex_lock(&n->lock);
  while (*last) last = &(*last)->next;
  *last = m;
  n->sent += bytes;
  if (n->host_processes && from / n->host_processes != to / n->host_processes) n->crossed += bytes;
  pthread_cond_broadcast(&n->came);
  pthread_mutex_unlock(&n->lock);
}

static void receive(net *n, int from, int to, void *data, int64_t bytes) {
  pthread_mutex_lock(&n->lock);
  while (!n->first[from][to]) pthread_cond_wait(&n->came, &n->lock);
  message *m = n->first[from][to];
  n->first[from][to] = m->next;
  pthread_mutex_unlock(&n->lock);
  CHECK_INT(m->bytes, bytes);
  memcpy(data, m->data, (size_t)bytes);
  free(m);
}

/* A group is a list of processes. */
static void exchange(void *state, void *group, const tsr_device_message *messages, int count) {
  const endpoint *e = state;
  const int *processes = group;
  for (int i = 0; i < count; i++)
    if (!messages[i].receives)
      send(e->net, e->process, processes[messages[i].peer], messages[i].address, messages[i].bytes);
  for (int i = 0; i < count; i++)
    if (messages[i].receives)
      receive(
          e->net, processes[messages[i].peer], e->process, messages[i].address, messages[i].bytes);
}

/* ---- processes ---- */

typedef struct {
  const collective_case *c;
  endpoint endpoint;
  case_process process;
} part;

static void *run_part(void *context) {
  part *p = context;
  const tsr_device device = {
      .state = &p->endpoint,
      .copy = copy,
      .sum_members = sum_members,
      .move = move,
      .exchange = exchange};
  case_process_run(&p->process, p->c, p->endpoint.process, &device);
  return NULL;
}

static net between = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

/* Returns the bytes that were sent. */
static int64_t check(collective_case *c, int processes) {
  part parts[CASE_PROCESSES_MAX];
  pthread_t threads[CASE_PROCESSES_MAX];
  int failed = 0, left = 0;
  between.sent = between.crossed = 0;
  collective_case_reference(c);
  for (int w = 0; w < processes; w++) {
    parts[w] = (part){.c = c, .endpoint = {&between, w}};
    if (pthread_create(&threads[w], NULL, run_part, &parts[w])) abort();
  }
  for (int w = 0; w < processes; w++) {
    pthread_join(threads[w], NULL);
    failed += case_process_end(&parts[w].process);
  }
  for (int w = 0; w < processes; w++)
    for (int v = 0; v < processes; v++) left += between.first[w][v] != NULL;
  CHECK_AT(!failed && !left, "%s: %d wrong, messages for %d left", c->name, failed, left);
  collective_case_free(c);
  return between.sent;
}

static void test_random(void) {
  for (uint64_t seed = 0; seed < 1500; seed++) {
    collective_case c;
    uint64_t state = seed;
    int processes = 1 + (int)case_draw(&state, 9);
    collective_case_draw(&c, seed, processes, seed % 40 == 0 ? 100000 : 2000);
    check(&c, processes);
  }
}

/* 2 N (W - 1) of all processes together, also where several members are on each. */
static void test_traffic(void) {
  enum { PROCESSES = 4, ELEMENTS = 1 << 12 };
  for (int members = PROCESSES; members <= 4 * PROCESSES; members *= 2) {
    collective_case c;
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, members, ELEMENTS);
    for (int m = 0; m < members; m++) c.process_of[m] = m * PROCESSES / members;
    CHECK_INT(check(&c, PROCESSES), 2 * INT64_C(4) * ELEMENTS * (PROCESSES - 1));
  }
}

/* The same cases on hosts of two processes each, and of processes in turn. */
static void test_hosts(void) {
  static const int pairs[] = {0, 0, 1, 1, 2, 2, 3, 3}, turns[] = {0, 1, 0, 1, 0, 1, 0, 1};
  for (uint64_t seed = 3000; seed < 3600; seed++) {
    collective_case c;
    uint64_t state = seed;
    int processes = 2 + (int)case_draw(&state, 7);
    collective_case_draw(&c, seed, processes, seed % 40 == 0 ? 100000 : 2000);
    c.hosts = seed % 2 ? pairs : turns;
    check(&c, processes);
  }
}

/* What leaves a host of four processes, of two hosts: of an all_reduce of S bytes half of the
 * summands and half of the sums; where nobody knows of hosts, what each process sends to the other
 * host's. */
static void test_hosts_traffic(void) {
  enum { PROCESSES = 8, ELEMENTS = 1 << 12 };
  static const int halves[] = {0, 0, 0, 0, 1, 1, 1, 1};
  between.host_processes = PROCESSES / 2;
  for (int hosts = 0; hosts < 2; hosts++) {
    collective_case c;
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, PROCESSES, ELEMENTS);
    c.hosts = hosts ? halves : NULL;
    check(&c, PROCESSES);
    CHECK_INT(between.crossed / 2, INT64_C(4) * ELEMENTS * (hosts ? 1 : 4));
  }
  between.host_processes = 0;
}

int main(void) {
  test_random();
  test_hosts();
  test_hosts_traffic();
  test_traffic();
  return check_done("comm.remote_device");
}
