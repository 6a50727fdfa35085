// SPDX-License-Identifier: Apache-2.0
/* Pipeline orders: what each one promises, against a simulator that knows nothing of how they are
 * made, checked or timed; and drawings. */
#include "schedule/pipeline.h"
#include "tests/check.h"
#include "tests/printed.h"
#include "tests/schedule/naive.h"
#include <time.h>

static tsr_arena *arena;
static tsr_diags *diags;

/* NULL if the counts are not possible. */
static tsr_pipeline *make(tsr_pipeline_kind kind, int stages, int chunks, int microbatches) {
  if (!tsr_pipeline_possible(kind, stages, chunks, microbatches, TSR_NOWHERE, diags)) {
    CHECK(*printed_diags(arena, diags) != 0);
    return NULL;
  }
  return tsr_pipeline_make(arena, kind, stages, chunks, microbatches);
}

static void start_over(void) {
  tsr_arena_free(arena);
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
}

/* The same for every virtual stage. A chunk takes its share of what the whole stage would. */
static tsr_pipeline_times
time_equal(const tsr_pipeline *o, double forward, double backward, double weights, double send) {
  int count = o->stages * o->chunks;
  double *costs[3];
  for (int kind = 0; kind < 3; kind++) {
    costs[kind] = tsr_arena_array(arena, double, count);
    for (int v = 0; v < count; v++)
      costs[kind][v] = (double[]){forward, backward, weights}[kind] / o->chunks;
  }
  if (!o->splits_backward)
    for (int v = 0; v < count; v++) costs[1][v] += costs[2][v];
  tsr_pipeline_times times;
  tsr_pipeline_time(
      arena, o, &(tsr_pipeline_costs){costs[0], costs[1], costs[2], .send = send}, &times);
  return times;
}

/* ---- what every order holds ------------------------------------------------------------------ */

static void check_increasing(const tsr_pipeline *o) {
  for (int s = 0; s < o->stages; s++)
    for (int kind = 0; kind < 3; kind++)
      for (int chunk = 0; chunk < o->chunks; chunk++) {
        int next = 0;
        for (int i = 0; i < o->counts[s]; i++) {
          const tsr_action *a = &o->actions[s][i];
          if ((int)a->kind == kind && a->chunk == chunk) CHECK_INT(a->microbatch, next++);
        }
      }
}

static void check_virtual(const tsr_pipeline *o) {
  for (int v = 0; v < o->stages * o->chunks; v++) {
    int stage = -1, chunk = -1;
    tsr_pipeline_locate(o, v, &stage, &chunk);
    CHECK_INT(tsr_pipeline_virtual(o, stage, chunk), v);
    CHECK_INT(naive_virtual(o, stage, chunk), v);
  }
}

static void check_times(const tsr_pipeline *o, uint64_t *seed) {
  int count = o->stages * o->chunks;
  double *costs[3];
  for (int kind = 0; kind < 3; kind++) {
    costs[kind] = tsr_arena_array(arena, double, count);
    for (int v = 0; v < count; v++) costs[kind][v] = (double)naive_random(seed, 8) / 2;
  }
  tsr_pipeline_costs c = {costs[0], costs[1], costs[2], (double)naive_random(seed, 3) / 2};
  tsr_pipeline_times times;
  tsr_pipeline_time(arena, o, &c, &times);
  naive_result naive = naive_run(arena, o, &c);
  CHECK(naive.sound);
  double total = 0, busy = 0;
  for (int s = 0; s < o->stages; s++) {
    double sum = 0;
    for (int i = 0; i < o->counts[s]; i++) {
      CHECK_NEAR(times.end[s][i], naive.end[s][i], 1e-12);
      sum += times.end[s][i] - times.start[s][i];
      if (times.end[s][i] > total) total = times.end[s][i];
    }
    CHECK_NEAR(times.busy[s], sum, 1e-12);
    busy += sum;
  }
  CHECK_NEAR(times.total, total, 1e-12);
  CHECK_NEAR(times.bubble, total > 0 ? 1 - busy / total / o->stages : 0, 1e-12);
}

static bool is_same(const tsr_pipeline *a, const tsr_pipeline *b) {
  if (a->stages != b->stages || a->chunks != b->chunks || a->microbatches != b->microbatches ||
      a->v_shaped != b->v_shaped || a->splits_backward != b->splits_backward ||
      a->forward_only != b->forward_only)
    return false;
  for (int s = 0; s < a->stages; s++) {
    if (a->counts[s] != b->counts[s]) return false;
    for (int i = 0; i < a->counts[s]; i++) {
      const tsr_action *x = &a->actions[s][i], *y = &b->actions[s][i];
      if (x->kind != y->kind || x->microbatch != y->microbatch || x->chunk != y->chunk)
        return false;
    }
  }
  return true;
}

static void check_round_trip(const tsr_pipeline *o) {
  tsr_text text = {0};
  tsr_pipeline_print(o, &text);
  char path[] = "/tmp/tessera-test-XXXXXX";
  naive_file(path, text.data, text.length);
  tsr_pipeline *back = NULL;
  bool ok = tsr_pipeline_read(arena, path, TSR_NOWHERE, o->stages, o->microbatches, &back, diags);
  CHECK_AT(ok, "%s\n%s", text.data, printed_diags(arena, diags));
  CHECK(ok && is_same(o, back));
  remove(path);
  tsr_text_free(&text);
}

static void test_all(void) {
  uint64_t seed = 1;
  int made = 0;
  for (int kind = 0; kind < TSR_ORDERS; kind++)
    for (int stages = 1; stages <= 8; stages++)
      for (int microbatches = 1; microbatches <= 20; microbatches++)
        for (int chunks = 1; chunks <= 4; chunks++) {
          start_over();
          tsr_pipeline *o = make(kind, stages, chunks, microbatches);
          if (!o) continue;
          made++;
          CHECK_STR(o->name, tsr_pipeline_name(kind));
          bool ok = tsr_pipeline_check(o, diags);
          CHECK_AT(
              ok, "%s of %d stages, %d chunks, %d microbatches: %s", o->name, stages, chunks,
              microbatches, printed_diags(arena, diags));
          check_increasing(o);
          check_virtual(o);
          check_times(o, &seed);
          CHECK(is_same(o, make(kind, stages, chunks, microbatches)));
          if (kind != TSR_PIPELINE_FORWARD) check_round_trip(o);
          else { /* sound for a model that is laid out as a v, too */ o->v_shaped = true;
            CHECK(tsr_pipeline_check(o, diags));
            check_virtual(o);
            check_times(o, &seed);
          }
        }
  /* three of one chunk, ZB-V, forward of 1 to 4 chunks; interleaved of 2 to 4 chunks for the 54
   * pairs of a number of stages and a multiple of it up to 20. */
  CHECK_INT(made, (3 + 1 + 4) * 160 + 3 * (20 + 10 + 6 + 5 + 4 + 3 + 2 + 2));
}

/* ---- the orders ------------------------------------------------------------------------------ */

static const char *line_of(const tsr_pipeline *o, int stage) {
  tsr_text text = {0};
  for (int i = 0; i < o->counts[stage]; i++)
    tsr_text_add(&text, "%s%s", i ? " " : "", tsr_action_text(o->actions[stage][i]).text);
  char *line = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return line;
}

static void test_vectors(void) {
  start_over();
  tsr_pipeline *o = make(TSR_PIPELINE_1F1B, 4, 1, 8);
  CHECK_STR(line_of(o, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK_STR(line_of(o, 1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  CHECK_STR(line_of(o, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  CHECK_STR(line_of(o, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  o = make(TSR_PIPELINE_1F1B, 4, 1, 2);
  CHECK_STR(line_of(o, 0), "F0 F1 B0 B1");
  CHECK_STR(line_of(o, 3), "F0 B0 F1 B1");
  o = make(TSR_PIPELINE_GPIPE, 2, 1, 3);
  CHECK_STR(line_of(o, 0), "F0 F1 F2 B0 B1 B2");
  CHECK_STR(line_of(o, 1), "F0 F1 F2 B0 B1 B2");
  o = make(TSR_PIPELINE_INTERLEAVED, 2, 2, 4);
  CHECK_STR(line_of(o, 0), "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  CHECK_STR(line_of(o, 1), "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  o = make(TSR_PIPELINE_ZB_H1, 3, 1, 4);
  CHECK_STR(line_of(o, 0), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK_STR(line_of(o, 1), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  CHECK_STR(line_of(o, 2), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
  o = make(TSR_PIPELINE_ZB_V, 2, 2, 2);
  CHECK_STR(line_of(o, 0), "F0 F1 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0 W0 B1 W1");
  CHECK_STR(line_of(o, 1), "F0 F0.1 F1 F1.1 B0.1 W0.1 B0 W0 B1.1 W1.1 B1 W1");
  o = make(TSR_PIPELINE_FORWARD, 3, 2, 2);
  for (int s = 0; s < 3; s++) CHECK_STR(line_of(o, s), "F0 F1 F0.1 F1.1");
  CHECK_INT(tsr_pipeline_alive(o, 0, false), 1);
}

static int most(const tsr_pipeline *o, bool until_weights) {
  int alive = 0;
  for (int s = 0; s < o->stages; s++)
    if (tsr_pipeline_alive(o, s, until_weights) > alive)
      alive = tsr_pipeline_alive(o, s, until_weights);
  return alive;
}

static int least(int a, int b) { return a < b ? a : b; }

/* With F as long as B (and W inside B): the bubble of all that wait for one another in a loop. */
static void test_unsplit(int p, int m) {
  tsr_pipeline *o = make(TSR_PIPELINE_1F1B, p, 1, m);
  CHECK_NEAR(time_equal(o, 1, 0.5, 0.5, 0).bubble, (p - 1.0) / (m + p - 1), 1e-12);
  for (int s = 0; s < p; s++) CHECK_INT(tsr_pipeline_alive(o, s, true), least(p - s, m));
  o = make(TSR_PIPELINE_GPIPE, p, 1, m);
  CHECK_NEAR(time_equal(o, 1, 0.5, 0.5, 0).bubble, (p - 1.0) / (m + p - 1), 1e-12);
  for (int s = 0; s < p; s++) CHECK_INT(tsr_pipeline_alive(o, s, false), m);
  for (int chunks = 2; chunks <= 4 && m % p == 0; chunks++) {
    o = make(TSR_PIPELINE_INTERLEAVED, p, chunks, m);
    double bubble = (p - 1.0) / (chunks * m + p - 1);
    CHECK_NEAR(time_equal(o, 1, 0.5, 0.5, 0).bubble, bubble, 1e-12);
    for (int s = 0; s < p; s++)
      CHECK_INT(
          tsr_pipeline_alive(o, s, true),
          least(2 * (p - 1 - s) + (chunks - 1) * p + 1, chunks * m));
  }
  o = make(TSR_PIPELINE_FORWARD, p, 1, m);
  CHECK_NEAR(time_equal(o, 1, 1, 1, 0).total, m + p - 1, 1e-12);
}

/* With F, B and W of the same cost: against 1F1B and interleaved 1F1B, whose B make W too. */
static void test_split(int p, int m) {
  double one = time_equal(make(TSR_PIPELINE_1F1B, p, 1, m), 1, 1, 1, 0).bubble;
  tsr_pipeline *h1 = make(TSR_PIPELINE_ZB_H1, p, 1, m), *v = make(TSR_PIPELINE_ZB_V, p, 2, m);
  tsr_pipeline_times t = time_equal(h1, 1, 1, 1, 0);
  CHECK(p == 1 ? t.bubble < 1e-12 : t.bubble < one);
  if (m >= p) CHECK_NEAR(t.total, 3 * m + p - 1, 1e-12); /* (p-1)(F+B-W) of bubble */
  for (int s = 0; s < p; s++) {
    CHECK_INT(tsr_pipeline_alive(h1, s, false), least(p - s, m));
    CHECK_INT(tsr_pipeline_alive(h1, s, true), least(p, m));
  }
  t = time_equal(v, 1, 1, 1, 0);
  CHECK(p == 1 ? t.bubble < 1e-12 : t.bubble < one);
  CHECK_INT(most(v, true), least(2 * p, 2 * m));
  if (m >= 2 * p - 1) CHECK_NEAR(t.total, 3 * m + (p - 1) / 2.0, 1e-12);
  for (int s = 0; s < p && m >= 2 * p - 1; s++) { /* no pause once it has begun, equal memory */
    CHECK_NEAR(t.end[s][v->counts[s] - 1] - t.start[s][0], 3 * m, 1e-12);
    CHECK_INT(tsr_pipeline_alive(v, s, true), 2 * p);
  }
  if (m % p) return;
  double looped = time_equal(make(TSR_PIPELINE_INTERLEAVED, p, 2, m), 1, 1, 1, 0).bubble;
  CHECK(t.bubble < looped + 1e-12);
}

static void test_promises(void) {
  for (int p = 1; p <= 8; p++)
    for (int m = 1; m <= 4 * p; m++) {
      start_over();
      test_unsplit(p, m);
      test_split(p, m);
    }
}

/* What goes to another stage takes its time, what stays at the turn of a v does not. */
static void test_send(void) {
  start_over();
  tsr_pipeline_times t = time_equal(make(TSR_PIPELINE_1F1B, 2, 1, 1), 1, 1, 1, 0.5);
  CHECK_NEAR(t.total, 1 + 0.5 + 1 + 2 + 0.5 + 2, 1e-12);
  CHECK_NEAR(t.start[0][1], 5, 1e-12);
  CHECK_NEAR(t.busy[0], 3, 1e-12);
  t = time_equal(make(TSR_PIPELINE_ZB_V, 2, 2, 1), 2, 2, 0, 0.5);
  CHECK_NEAR(t.total, 4 * 1 + 4 * 1 + 4 * 0.5, 1e-12);
}

static void test_speed(void) {
  start_over();
  clock_t begin = clock();
  for (int kind = TSR_PIPELINE_INTERLEAVED; kind <= TSR_PIPELINE_ZB_V; kind++) {
    int chunks = kind == TSR_PIPELINE_INTERLEAVED ? 4 : kind == TSR_PIPELINE_ZB_V ? 2 : 1;
    tsr_pipeline *o = make(kind, 16, chunks, 512);
    CHECK(tsr_pipeline_check(o, diags));
    CHECK(time_equal(o, 1, 1, 1, 0).bubble < 0.02);
  }
  double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  CHECK_AT(seconds < 1, "16 stages of 512 microbatches take %.3f seconds", seconds);
}

/* ---- names and counts ------------------------------------------------------------------------ */

static void test_names(void) {
  for (int kind = 0; kind < TSR_PIPELINE_FORWARD; kind++)
    CHECK_INT(tsr_pipeline_find(tsr_pipeline_name(kind)), kind);
  static const char *const none[] = {"", "-", "forward", "1f1", "1f1bb", "zb", "gpipe2", "FILE"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    CHECK_INT(tsr_pipeline_find(none[i]), TSR_ORDERS);
  CHECK_INT(tsr_pipeline_find("GPipe"), TSR_PIPELINE_GPIPE);
  CHECK_INT(tsr_pipeline_find("1F1B"), TSR_PIPELINE_1F1B);
  CHECK_INT(tsr_pipeline_find("ZB-H1"), TSR_PIPELINE_ZB_H1);
  CHECK_INT(tsr_pipeline_find("zbv"), TSR_PIPELINE_ZB_V);
  CHECK_INT(tsr_pipeline_find("ZBVZeroBubble"), TSR_PIPELINE_ZB_V);
  CHECK_INT(tsr_pipeline_find("Interleaved1F1B"), TSR_PIPELINE_INTERLEAVED);
  CHECK_INT(tsr_pipeline_find("interleaved_1f1b"), TSR_PIPELINE_INTERLEAVED);
  CHECK_STR(tsr_action_text((tsr_action){TSR_ACTION_WEIGHTS, 12, 3}).text, "W12.3");
  CHECK_STR(tsr_action_text((tsr_action){TSR_ACTION_FORWARD, 0, 0}).text, "F0");
}

static void test_possible(void) {
  start_over();
  tsr_location location = {.file = "run.yaml"};
  CHECK(!tsr_pipeline_possible(TSR_PIPELINE_INTERLEAVED, 4, 1, 6, location, diags));
  CHECK(!tsr_pipeline_possible(TSR_PIPELINE_INTERLEAVED, 4, 2, 3, location, diags));
  CHECK(!tsr_pipeline_possible(TSR_PIPELINE_ZB_V, 4, 3, 3, location, diags));
  CHECK(!tsr_pipeline_possible(TSR_PIPELINE_1F1B, 4, 2, 3, location, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "run.yaml: error: pipeline schedule 'interleaved' needs at least 2 chunks a stage, not 1\n"
      "      = with 1 chunk a stage there are 'gpipe', '1f1b' and 'zb_h1'\n"
      "run.yaml: error: pipeline schedule 'interleaved' needs a multiple of its 4 stages as "
      "microbatches, not 6\n"
      "      = 4 and 8 microbatches are possible\n"
      "run.yaml: error: pipeline schedule 'interleaved' needs a multiple of its 4 stages as "
      "microbatches, not 3\n"
      "      = 4 microbatches are possible\n"
      "run.yaml: error: pipeline schedule 'zb_v' needs 2 chunks a stage, not 3\n"
      "      = 'interleaved' takes 2 chunks or more\n"
      "run.yaml: error: pipeline schedule '1f1b' needs 1 chunk a stage, not 2\n"
      "      = 'interleaved' takes 2 chunks or more, 'zb_v' takes 2\n");
}

/* ---- drawings -------------------------------------------------------------------------------- */

static void
check_gantt(const tsr_pipeline *o, tsr_pipeline_times t, int columns, const char *want) {
  tsr_text text = {0};
  tsr_pipeline_gantt(o, &t, columns, &text);
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
}

static void test_gantt(void) {
  start_over();
  tsr_pipeline *o = make(TSR_PIPELINE_1F1B, 2, 1, 3);
  check_gantt(
      o, time_equal(o, 1, 1, 1, 0), 60,
      "stage 0 F0--F1--........B0======F2--B1======....B2======\n"
      "stage 1 ....F0--B0======F1--B1======F2--B2======........\n"
      "time    |0                  |5                  |10\n"
      "        F0- forward  B0= backward  . idle  (0: the microbatch)\n"
      "        total 12, bubble 25.0%\n");
  o = make(TSR_PIPELINE_ZB_V, 2, 2, 2);
  check_gantt(
      o, time_equal(o, 2, 2, 2, 0), 50,
      "stage 0 F0-F1-...f0-b0=w0~f1-b1=w1~B0=W0~...B1=W1~\n"
      "stage 1 ...F0-f0-F1-f1-b0=w0~B0=W0~b1=w1~B1=W1~...\n"
      "time    |0             |5             |10\n"
      "        F0- forward  B0= backward  W0~ weights' gradients  . idle  (0: the microbatch, .1: "
      "chunk 1, f0: of a later chunk)\n"
      "        total 14, bubble 14.3%\n");
  /* Uneven costs take all the columns; 40 is the least. */
  o = make(TSR_PIPELINE_INTERLEAVED, 1, 2, 1);
  check_gantt(
      o, time_equal(o, 2, 2, 1, 0), 10,
      "stage 0 F0----F0.1---B0.1=====B0========\n"
      "time    |0           |2           |4\n"
      "        F0- forward  B0= backward  . idle  (0: the microbatch, .1: chunk 1, f0: of a later "
      "chunk)\n"
      "        total 5, bubble 0.0%\n");
  /* Columns that are narrower than a number, and than an action: then what fills most of them. */
  o = make(TSR_PIPELINE_1F1B, 11, 1, 1);
  tsr_text text = {0};
  tsr_pipeline_times t = time_equal(o, 1, 1, 1, 0.25);
  tsr_pipeline_gantt(o, &t, 60, &text);
  CHECK(strstr(
      text.data, "stage 9  ...........F....B0....................\nstage 10 .............FB0."));
  tsr_text_free(&text);
  o = make(TSR_PIPELINE_GPIPE, 2, 1, 100);
  check_gantt(
      o, time_equal(o, 1, 1, 1, 0), 40,
      "stage 0 FFFFFFFFFFFBBBBBBBBBBBBBBBBBBBBB\n"
      "stage 1 FFFFFFFFFFFBBBBBBBBBBBBBBBBBBBBB\n"
      "time    |0         |100      |200\n"
      "        F0- forward  B0= backward  . idle  (0: the microbatch)\n"
      "        total 303, bubble 1.0%\n");
}

int main(void) {
  test_all();
  test_vectors();
  test_promises();
  test_send();
  test_speed();
  test_names();
  test_possible();
  test_gantt();
  tsr_arena_free(arena);
  return check_done("schedule.order");
}
