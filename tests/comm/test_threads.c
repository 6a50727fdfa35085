// SPDX-License-Identifier: Apache-2.0
/* The transport whose processes are threads: what every transport must do, with delays and without,
 * and what only it can: processes that are silent, gone, or end the job. Runs under TSan as well.
 * */
#include "../check.h"
#include "comm/transport_threads.h"
#include "processes.h"
#include <pthread.h>

enum { PROCESSES_MAX = 4 };

typedef struct {
  tsr_transport transport;
  int failed;
} process;

static void *work(void *context) {
  process *w = context;
  w->failed = processes_check_all(&w->transport);
  return NULL;
}

static void check_all(tsr_threads_options options) {
  process processes[PROCESSES_MAX] = {0};
  pthread_t ids[PROCESSES_MAX];
  tsr_threads *t = tsr_threads_new(&options);
  for (int w = 0; w < options.processes; w++) {
    tsr_threads_endpoint(t, w, &processes[w].transport);
    pthread_create(&ids[w], NULL, work, &processes[w]);
  }
  for (int w = 0; w < options.processes; w++) {
    pthread_join(ids[w], NULL);
    CHECK_INT(processes[w].failed, 0);
    tsr_transport_close(&processes[w].transport);
  }
  tsr_threads_free(t);
}

typedef struct {
  tsr_threads *threads;
  tsr_transport at[3];
  char why[TSR_WHY_BYTES];
} trio;

static void begin_trio(trio *t, tsr_threads_options options) {
  *t = (trio){.threads = tsr_threads_new(&options)};
  for (int w = 0; w < options.processes; w++) tsr_threads_endpoint(t->threads, w, &t->at[w]);
}

static tsr_message send_int(trio *t, int from, int to, int tag, const int *value) {
  tsr_message m;
  CHECK(t->at[from].table->send(t->at[from].state, to, tag, value, sizeof *value, &m, t->why));
  return m;
}

static tsr_message receive_int(trio *t, int to, int from, int tag, int *value) {
  tsr_message m;
  CHECK(t->at[to].table->receive(t->at[to].state, from, tag, value, sizeof *value, &m, t->why));
  return m;
}

static tsr_message_state test(trio *t, int of, tsr_message *m) {
  return t->at[of].table->test(t->at[of].state, m, t->why);
}

static bool stays_pending(trio *t, int of, tsr_message *m) {
  for (int i = 0; i < 1000; i++)
    if (test(t, of, m) != TSR_MESSAGE_PENDING) return false;
  return true;
}

/* Of a silent process nothing comes, neither what it sent before nor what it sends now; the others
 * go on; and when it runs again all of it comes. */
static void test_silent(void) {
  trio t;
  begin_trio(&t, (tsr_threads_options){.processes = 3});
  const int sent[4] = {10, 11, 12, 13};
  int got[4] = {0};
  tsr_message before = send_int(&t, 1, 0, 1, &sent[0]);
  tsr_threads_set_fate(t.threads, 1, TSR_THREADS_SILENT);
  tsr_message after = send_int(&t, 1, 0, 2, &sent[1]), to_it = send_int(&t, 2, 1, 3, &sent[2]);
  tsr_message in_before = receive_int(&t, 0, 1, 1, &got[0]);
  tsr_message in_after = receive_int(&t, 0, 1, 2, &got[1]);
  tsr_message in_it = receive_int(&t, 1, 2, 3, &got[2]);
  tsr_message other = send_int(&t, 2, 0, 4, &sent[3]), in_other = receive_int(&t, 0, 2, 4, &got[3]);
  CHECK(stays_pending(&t, 0, &in_before) && stays_pending(&t, 0, &in_after));
  CHECK(stays_pending(&t, 1, &before) && stays_pending(&t, 1, &after));
  CHECK(stays_pending(&t, 2, &to_it) && stays_pending(&t, 1, &in_it));
  CHECK_INT(test(&t, 0, &in_other), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 2, &other), TSR_MESSAGE_DONE);
  tsr_threads_set_fate(t.threads, 1, TSR_THREADS_RUNS);
  CHECK_INT(test(&t, 0, &in_before), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 0, &in_after), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 1, &in_it), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 1, &before), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 1, &after), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 2, &to_it), TSR_MESSAGE_DONE);
  CHECK(!memcmp(sent, got, sizeof sent));
  tsr_threads_free(t.threads);
}

/* What a process that is gone has not done yet fails, matched or not, and what it did stays done.
 * */
static void test_gone(void) {
  trio t;
  begin_trio(&t, (tsr_threads_options){.processes = 3});
  const int sent[3] = {20, 21, 22};
  int got[3] = {0};
  tsr_message early = send_int(&t, 1, 0, 1, &sent[0]), in_early = receive_int(&t, 0, 1, 1, &got[0]);
  CHECK_INT(test(&t, 0, &in_early), TSR_MESSAGE_DONE);
  tsr_message matched = send_int(&t, 1, 0, 2, &sent[1]);
  tsr_message in_matched = receive_int(&t, 0, 1, 2, &got[1]);
  tsr_message lonely = send_int(&t, 0, 1, 3, &sent[2]),
              in_never = receive_int(&t, 2, 1, 4, &got[2]);
  tsr_threads_set_fate(t.threads, 1, TSR_THREADS_GONE);
  tsr_message *failing[] = {&in_matched, &lonely, &in_never, &matched};
  const int of[] = {0, 0, 2, 1};
  for (int i = 0; i < 4; i++) {
    *t.why = 0;
    CHECK_INT(test(&t, of[i], failing[i]), TSR_MESSAGE_FAILED);
    CHECK_STR(t.why, "process 1 is gone");
  }
  CHECK_INT(test(&t, 1, &early), TSR_MESSAGE_DONE);
  tsr_message again = send_int(&t, 0, 2, 5, &sent[2]), in_again = receive_int(&t, 2, 0, 5, &got[2]);
  CHECK_INT(test(&t, 2, &in_again), TSR_MESSAGE_DONE);
  CHECK_INT(test(&t, 0, &again), TSR_MESSAGE_DONE);
  CHECK_INT(got[2], 22);
  tsr_threads_free(t.threads);
}

/* A sum waits for a silent process, and fails by the name of one that is gone. */
static void test_sums(void) {
  trio t;
  begin_trio(&t, (tsr_threads_options){.processes = 3});
  static const int processes[2] = {0, 2};
  const float in[2] = {3, 4};
  float out[2] = {0};
  void *group[2];
  tsr_message m[2];
  for (int i = 0; i < 2; i++)
    CHECK(t.at[processes[i]].table->form(t.at[processes[i]].state, processes, 2, &group[i], t.why));
  for (int round = 0; round < 2; round++) {
    CHECK(t.at[0].table->sum(group[0], &in[0], &out[0], 1, &m[0], t.why));
    CHECK(stays_pending(&t, 0, &m[0]));
    tsr_threads_set_fate(t.threads, 2, TSR_THREADS_SILENT);
    CHECK(t.at[2].table->sum(group[1], &in[1], &out[1], 1, &m[1], t.why));
    CHECK(stays_pending(&t, 0, &m[0]) && stays_pending(&t, 2, &m[1]));
    tsr_threads_set_fate(t.threads, 2, round ? TSR_THREADS_GONE : TSR_THREADS_RUNS);
    CHECK_INT(test(&t, 0, &m[0]), round ? TSR_MESSAGE_FAILED : TSR_MESSAGE_DONE);
    if (round) CHECK_STR(t.why, "process 2 is gone");
    else CHECK_INT(test(&t, 2, &m[1]), TSR_MESSAGE_DONE);
    if (!round) CHECK(out[0] == 7 && out[1] == 7);
  }
  tsr_threads_free(t.threads);
  begin_trio(&t, (tsr_threads_options){.processes = 3});
  for (int i = 0; i < 2; i++) {
    t.at[processes[i]].table->form(t.at[processes[i]].state, processes, 2, &group[i], t.why);
    CHECK(t.at[0].table->sum(group[i], in, out, 1 + i, &m[i], t.why));
  }
  CHECK_INT(test(&t, 0, &m[0]), TSR_MESSAGE_FAILED);
  CHECK_STR(t.why, "the group's processes do not mean the same sum");
  tsr_threads_free(t.threads);
}

static void *end_job(void *context) {
  trio *t = context;
  t->at[2].table->abort(t->at[2].state, 9);
  return t; /* not reached: NULL is what a thread that was ended leaves */
}

static void test_abort(void) {
  trio t;
  begin_trio(&t, (tsr_threads_options){.processes = 3});
  int got, by = -1, code = -1;
  tsr_message never = receive_int(&t, 0, 1, 1, &got);
  CHECK(!tsr_threads_ended(t.threads, &by, &code));
  CHECK_INT(test(&t, 0, &never), TSR_MESSAGE_PENDING);
  pthread_t id;
  void *left = &t;
  pthread_create(&id, NULL, end_job, &t);
  pthread_join(id, &left);
  CHECK(!left);
  CHECK(tsr_threads_ended(t.threads, &by, &code));
  CHECK_INT(by, 2);
  CHECK_INT(code, 9);
  CHECK_INT(test(&t, 0, &never), TSR_MESSAGE_FAILED);
  CHECK_STR(t.why, "process 2 ended the job with code 9");
  tsr_threads_free(t.threads);
}

/* With delays, messages of different tags do overtake each other, and the same seed does the same.
 */
static void test_delay(void) {
  enum { COUNT = 64, SEEDS = 2 };
  int order[SEEDS + 1][COUNT], late = 0;
  for (int run = 0; run <= SEEDS; run++) {
    trio t;
    begin_trio(
        &t, (tsr_threads_options){.processes = 2, .delay = 2000, .seed = run < SEEDS ? 7u : 8u});
    int sent[COUNT], got[COUNT], came = 0;
    tsr_message in[COUNT], out[COUNT];
    bool done[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
      sent[i] = i;
      out[i] = send_int(&t, 0, 1, i, &sent[i]);
      in[i] = receive_int(&t, 1, 0, i, &got[i]);
    }
    while (came < COUNT)
      for (int i = 0; i < COUNT; i++) {
        if (done[i] || test(&t, 1, &in[i]) == TSR_MESSAGE_PENDING) continue;
        done[i] = true;
        late += came && order[run][came - 1] > i;
        order[run][came++] = i;
      }
    for (int i = 0; i < COUNT; i++) CHECK_INT(test(&t, 0, &out[i]), TSR_MESSAGE_DONE);
    CHECK(!memcmp(sent, got, sizeof sent));
    tsr_threads_free(t.threads);
  }
  CHECK(late > COUNT / 4);
  CHECK(!memcmp(order[0], order[1], sizeof order[0]));
  CHECK(memcmp(order[0], order[2], sizeof order[0]));
}

static void test_hosts(void) {
  trio t;
  begin_trio(&t, (tsr_threads_options){.processes = 3, .per_host = 2});
  CHECK_STR(t.at[0].table->host(t.at[0].state, 1), "host0");
  CHECK_STR(t.at[0].table->host(t.at[0].state, 2), "host1");
  CHECK_STR(t.at[0].table->version(t.at[0].state), "threads");
  CHECK_STR(t.at[2].why, "threads of this process");
  tsr_threads_free(t.threads);
}

int main(void) {
  test_hosts();
  test_silent();
  test_gone();
  test_sums();
  test_abort();
  test_delay();
  for (int processes = 1; processes <= PROCESSES_MAX; processes++)
    check_all((tsr_threads_options){.processes = processes});
  for (int seed = 0; seed < 3; seed++)
    check_all((tsr_threads_options){.processes = 2 + seed, .delay = 3000 >> (4 * seed), .seed = 1});
  return check_done("threads");
}
