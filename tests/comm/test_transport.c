// SPDX-License-Identifier: Apache-2.0
/* One process of a job that mpirun started: what tests/comm/test_transport.sh runs.
 * usage: test_transport all | huge BYTES | abort CODE | alone */
#include "../check.h"
#include "base/arena.h"
#include "processes.h"
#include <sched.h>
#include <stdlib.h>

/* Process 1 ends the job while the others wait for what never comes. */
static void abort_job(const tsr_transport *t, int code) {
  char why[TSR_WHY_BYTES] = "";
  tsr_message never;
  int got;
  if (t->process == 1) t->table->abort(t->state, code);
  t->table->receive(t->state, 1, 0, &got, sizeof got, &never, why);
  while (t->table->test(t->state, &never, why) == TSR_MESSAGE_PENDING) sched_yield();
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  bool ok = tsr_transport_open(arena, &t, diags);
  if (!ok) {
    tsr_diags_print(diags, stdout);
    return tsr_diags_exit_code(diags);
  }
  int failed = 0;
  if (!strcmp(what, "alone")) CHECK(!t.table && t.process == 0 && t.processes == 1);
  else CHECK(t.table && t.processes > 1);
  if (t.process == 0) printf("%d processes, %s\n", t.processes, t.why);
  fflush(stdout);
  if (t.table && !strcmp(what, "all")) failed = processes_check_all(&t);
  if (t.table && !strcmp(what, "huge")) failed = processes_check_huge(&t, atoll(argv[2]));
  if (t.table && !strcmp(what, "abort")) abort_job(&t, atoi(argv[2]));
  CHECK_INT(failed, 0);
  tsr_transport_close(&t);
  CHECK(!t.table);
  tsr_arena_free(arena);
  return check_done("transport");
}
