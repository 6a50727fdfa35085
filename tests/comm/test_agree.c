// SPDX-License-Identifier: Apache-2.0
/* Agreements among more processes than any array was made for: what every process sends reaches the
 * others, one that says nothing is named, and one that fails ends it. The other processes are a
 * stub: process w sends w + 7. */
#include "comm/bootstrap.h"
#include "tests/check.h"
#include <string.h>

enum { PROCESSES = 70000, ME = 12345, OFFSET = 7 };

typedef struct {
  int silent, failing; /* -1: none */
  int64_t sent, length;
} stub;

static bool
send(void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why) {
  stub *m = state;
  int64_t number;
  (void)to, (void)tag, (void)why;
  memcpy(&number, from, sizeof number);
  if (bytes == sizeof number) CHECK_INT(number, ME + OFFSET);
  m->sent++;
  ret->words[0] = NULL;
  return true;
}

static bool
receive(void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  (void)state, (void)tag, (void)why;
  ret->words[0] = to;
  ret->words[1] = (void *)(intptr_t)from;
  ret->words[2] = (void *)(intptr_t)bytes;
  return true;
}

static tsr_message_state test(void *state, tsr_message *message, char *why) {
  const stub *m = state;
  int from = (int)(intptr_t)message->words[1];
  if (!message->words[0]) return TSR_MESSAGE_DONE;
  if (from == m->silent) return TSR_MESSAGE_PENDING;
  if (from == m->failing)
    return snprintf(why, TSR_WHY_BYTES, "its link is cut"), TSR_MESSAGE_FAILED;
  int64_t number = from + OFFSET;
  memcpy(message->words[0], &number, sizeof number);
  return TSR_MESSAGE_DONE;
}

static const char *host(void *state, int process) {
  (void)state, (void)process;
  return "node";
}

static const tsr_transport_table table = {
    .name = "stub", .host = host, .send = send, .receive = receive, .test = test};

static bool gather(stub *m, int64_t *all, char *why) {
  tsr_transport t = {.table = &table, .state = m, .process = ME, .processes = PROCESSES};
  int64_t mine = ME + OFFSET;
  return tsr_transport_gather(&t, &mine, sizeof mine, all, 0.2, why);
}

/* Process 0 gets what the others have, each as much as it has; here one number, or none. */
static void test_collect(tsr_arena *arena, stub *m) {
  int64_t *bytes = tsr_arena_array(arena, int64_t, PROCESSES), wrong = 0, sent = m->sent;
  int64_t *all = tsr_arena_array(arena, int64_t, PROCESSES), mine = OFFSET;
  char why[TSR_WHY_BYTES] = "";
  tsr_transport t = {.table = &table, .state = m, .processes = PROCESSES};
  for (int w = 0; w < PROCESSES; w++) bytes[w] = w % 2 ? 0 : (int64_t)sizeof mine;
  CHECK_AT(tsr_transport_collect(&t, &mine, bytes, all, 0.2, why), "%s", why);
  for (int w = 0; w < PROCESSES; w += 2) wrong += all[w / 2] != w + OFFSET;
  CHECK_INT(wrong, 0);
  CHECK_INT(m->sent, sent);
  m->silent = 4;
  CHECK(!tsr_transport_collect(&t, &mine, bytes, all, 0.2, why));
  CHECK_AT(strstr(why, "nothing from process 4 "), "%s", why);
  m->silent = -1;
  t.process = ME;
  bytes[ME] = sizeof mine;
  mine = ME + OFFSET;
  CHECK_AT(tsr_transport_collect(&t, &mine, bytes, NULL, 0.2, why), "%s", why);
  CHECK_INT(m->sent, sent + 1);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  int64_t *all = tsr_arena_array(arena, int64_t, PROCESSES), wrong = 0;
  char why[TSR_WHY_BYTES] = "";
  stub m = {.silent = -1, .failing = -1};
  CHECK_AT(gather(&m, all, why), "%s", why);
  for (int w = 0; w < PROCESSES; w++) wrong += all[w] != w + OFFSET;
  CHECK_INT(wrong, 0);
  CHECK_INT(m.sent, PROCESSES - 1);
  test_collect(arena, &m);
  m.silent = PROCESSES - 1;
  CHECK(!gather(&m, all, why));
  CHECK_AT(strstr(why, "nothing from process 69999"), "%s", why);
  m = (stub){.silent = -1, .failing = 5};
  CHECK(!gather(&m, all, why));
  CHECK_STR(why, "its link is cut");
  tsr_arena_free(arena);
  return check_done("agree");
}
