// SPDX-License-Identifier: Apache-2.0
/* The recorder: every task that ran is an event, in the program's order, in its step, never two at
 * once on a rank; members of a collective share its span; and recording changes no bit. */
#include "harness.h"
#include "runtime/recorder.h"
#include "tests/check.h"
#include <stdlib.h>

enum { STEPS = 3, WARM_UP = 1 };

static tsr_graph *make_graph(tsr_arena *arena, int64_t batch) {
  tsr_graph *g = tsr_graph_new(arena, "recorded", (tsr_units){8, 1, 2});
  harness_inputs(g, tsr_arena_printf(arena, "x %d,6; y %d,4", (int)batch, (int)batch));
  harness_params(g, "w1 8,6 0; b1 8 0; w2 8,8 1; b2 8; w3 8,8 0; w4 4,8 1");
  harness_calls(
      g, "a: linear(x, w1, b1); b: tanh(a); c: linear(b, w2, b2); d: relu(c)\n"
         "e: linear(d, w3); f: tanh(e); z: linear(f, w4); loss: mse(z, y)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

static harness open_case(tsr_arena *arena, harness_options o) {
  static const tsr_optimizer adamw = {
      .kind = TSR_RULE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip_max_norm = 1};
  o.batch_units = 8;
  o.tp_units = 2;
  o.optimizer = &adamw;
  return harness_open(arena, make_graph(arena, 8 / o.microbatches), &o);
}

static const tsr_program *program_of(const tsr_record *r, int rank) {
  return r->programs->of_stage[tsr_parallel_coord(r->parallel, rank, TSR_PP)];
}

/* ---- what a rank's events are ---- */

typedef struct {
  const tsr_record *record;
  int rank;
  int64_t at;    /* the rank's next event */
  int64_t until; /* the last one ended then */
} reader;

/* The rank's next event that is not waiting; NULL at the end. Waits are checked in passing. */
static const tsr_event *next_event(reader *r) {
  while (r->at < r->record->events_count) {
    const tsr_event *e = &r->record->events[r->at++];
    if (e->rank != r->rank) continue;
    CHECK(e->begin <= e->end);
    CHECK_AT(e->begin >= r->until, "rank %d does two things at once, task %d", e->rank, e->task);
    const tsr_span *step = &r->record->steps[e->step];
    CHECK(e->begin >= step->begin && e->end <= step->end);
    CHECK(!e->background);
    r->until = e->end;
    if (e->kind != TSR_EVENT_WAIT) return e;
    const tsr_task *t = &program_of(r->record, r->rank)->tasks[e->task];
    CHECK(t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT || t->axis == TSR_PP);
  }
  return NULL;
}

static void
check_event(const tsr_event *e, int step, int task, int microbatch, tsr_event_kind kind) {
  CHECK(e != NULL);
  if (!e) return;
  CHECK_INT(e->step, step);
  CHECK_INT(e->task, task);
  CHECK_INT(e->microbatch, microbatch);
  CHECK_STR(tsr_event_kind_name(e->kind), tsr_event_kind_name(kind));
}

/* Events are the program's runs, task by task. */
static void check_rank(const tsr_record *record, int rank) {
  const tsr_program *p = program_of(record, rank);
  reader r = {.record = record, .rank = rank};
  for (int step = 0; step < record->steps_count; step++)
    for (int i = 0; i < p->runs_count; i++) {
      const tsr_part *part = &p->parts[p->runs[i].part];
      int microbatch = p->runs[i].microbatch;
      if (part->section == TSR_FORWARD)
        check_event(next_event(&r), step, -1, microbatch, TSR_EVENT_INPUT);
      for (int t = part->begin; t < part->end; t++) {
        tsr_op op = p->tasks[t].op;
        bool moves = op == TSR_OP_SEND || op == TSR_OP_RECEIVE || tsr_op_is_collective(op);
        if (op == TSR_OP_WAIT ||
            (p->tasks[t].last_only && microbatch != p->pipeline->microbatches - 1))
          continue;
        check_event(
            next_event(&r), step, t, microbatch,
            moves ? TSR_EVENT_COMMUNICATION : TSR_EVENT_COMPUTE);
      }
    }
  CHECK(next_event(&r) == NULL);
}

/* The members of a group do a collective together, so often and at the same time. */
static void check_group(const tsr_record *record, int axis) {
  const tsr_parallel *p = record->parallel;
  int64_t shared = 0;
  for (int64_t i = 0; i < record->events_count; i++) {
    const tsr_event *a = &record->events[i];
    const tsr_task *t = a->task < 0 ? NULL : &program_of(record, a->rank)->tasks[a->task];
    if (!t || a->kind != TSR_EVENT_COMMUNICATION || t->axis != axis) continue;
    for (int m = 0; m < p->size[axis]; m++) {
      int member = tsr_parallel_member(p, a->rank, axis, m), together = 0;
      for (int64_t k = 0; k < record->events_count; k++) {
        const tsr_event *b = &record->events[k];
        bool same =
            b->rank == member && b->kind == a->kind && b->begin < a->end && a->begin < b->end;
        if (!same) continue;
        together++;
        CHECK_INT(program_of(record, member)->tasks[b->task].node, t->node);
      }
      CHECK_INT(together, 1);
    }
    shared++;
  }
  CHECK_AT(p->size[axis] == 1 || shared > 0, "nothing over %s", tsr_axis_name(axis));
}

static void check_record(const tsr_record *record, const harness *h) {
  CHECK_INT(record->steps_count, STEPS);
  CHECK_INT(record->lost, 0);
  CHECK_INT(record->threads, h->options.threads);
  CHECK(
      record->events_count <= STEPS * tsr_recorder_events_of_step(&h->programs, record->parallel));
  for (int i = 0; i < STEPS; i++) {
    CHECK(record->steps[i].begin < record->steps[i].end);
    CHECK(!i || record->steps[i - 1].end <= record->steps[i].begin);
  }
  for (int r = 0; r < record->parallel->ranks; r++) check_rank(record, r);
  for (int a = 0; a < TSR_AXES; a++) check_group(record, a);
}

/* ---- cases ---- */

static float *run_case(tsr_arena *arena, harness_options o, bool recorded, int64_t *ret_count) {
  harness h = open_case(arena, o);
  tsr_recorder *recorder = NULL;
  int64_t events = STEPS * tsr_recorder_events_of_step(&h.programs, &h.parallel);
  if (recorded) recorder = tsr_executable_record(arena, h.executable, WARM_UP, STEPS, events);
  for (int step = 0; step < WARM_UP + STEPS + 1; step++) harness_step(&h, step);
  if (recorded) {
    tsr_record record = tsr_recorder_read(arena, recorder);
    check_record(&record, &h);
  }
  float *all = tsr_arena_array(arena, float, 1024);
  *ret_count = 0;
  for (int p = 0; p < h.placed->params_count; p++) {
    int64_t n;
    float *part = harness_read_param(arena, &h, p, &n);
    memcpy(all + *ret_count, part, sizeof *all * (size_t)n);
    *ret_count += n;
  }
  harness_close(&h);
  return all;
}

static void test_case(const char *name, harness_options o) {
  tsr_arena *arena = tsr_arena_new();
  int64_t n, m;
  float *without = run_case(arena, o, false, &n), *with = run_case(arena, o, true, &m);
  CHECK_INT(m, n);
  CHECK_AT(!memcmp(without, with, sizeof *with * (size_t)n), "%s: other bits", name);
  tsr_arena_free(arena);
}

static void test_cases(void) {
  test_case("one rank", (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 2});
  test_case("two threads", (harness_options){.dp = 1, .tp = 1, .threads = 2, .microbatches = 1});
  test_case("dp", (harness_options){.dp = 2, .tp = 1, .threads = 2, .microbatches = 1});
  test_case("dp and tp", (harness_options){.dp = 2, .tp = 2, .threads = 3, .microbatches = 2});
  harness_options o = {.dp = 2, .tp = 1, .threads = 2, .microbatches = 2, .overlap = true};
  test_case("dp, gradients in buckets", o);
  o = (harness_options){.pp = 2, .dp = 1, .tp = 1, .threads = 1, .microbatches = 4};
  o.pipeline = TSR_PIPELINE_1F1B;
  test_case("pp", o);
  o.dp = 2;
  o.threads = 2;
  test_case("pp and dp", o);
  o.pipeline = TSR_PIPELINE_ZB_H1;
  test_case("pp and dp, split backward", o);
  o.pipeline = TSR_PIPELINE_INTERLEAVED;
  o.chunks = 2;
  test_case("pp in chunks", o);
}

/* A ring that is too small keeps the newest events. */
static void test_ring(void) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {.dp = 2, .tp = 1, .threads = 1, .microbatches = 2};
  harness h = open_case(arena, o);
  enum { ROOM = 10 };
  tsr_recorder *small = tsr_executable_record(arena, h.executable, 0, 2, ROOM);
  for (int step = 0; step < 2; step++) harness_step(&h, step);
  tsr_record record = tsr_recorder_read(arena, small);
  int64_t all = 0;
  const tsr_program *p = h.programs.of_stage[0];
  for (int i = 0; i < p->runs_count; i++) {
    const tsr_part *part = &p->parts[p->runs[i].part];
    all += part->end - part->begin + (part->section == TSR_FORWARD);
  }
  CHECK_INT(record.events_count, ROOM);
  CHECK_INT(record.lost + ROOM, 2 * 2 * all);
  for (int i = 0; i < ROOM; i++) {
    CHECK_INT(record.events[i].step, 1);
    CHECK(!i || record.events[i - 1].begin <= record.events[i].end);
  }
  CHECK_INT(record.events[ROOM - 1].task, p->tasks_count - 1);
  harness_close(&h);
  tsr_arena_free(arena);
}

/* What somebody else has timed stands as it was given, in the step that runs. */
static void test_add(void) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {.dp = 2, .tp = 1, .threads = 1, .microbatches = 1};
  harness h = open_case(arena, o);
  tsr_recorder *r = tsr_executable_record(arena, h.executable, 0, 2, 100);
  CHECK(tsr_recorder_begin_step(r, 0));
  tsr_recorder_add(
      r, (tsr_event){
             .begin = 5,
             .end = 9,
             .rank = 1,
             .task = 3,
             .microbatch = 0,
             .kind = TSR_EVENT_COMMUNICATION,
             .background = true});
  tsr_recorder_end_step(r);
  CHECK(tsr_recorder_begin_step(r, 1));
  tsr_recorder_end_step(r);
  CHECK(!tsr_recorder_begin_step(r, 2));
  tsr_record record = tsr_recorder_read(arena, r);
  CHECK_INT(record.steps_count, 2);
  CHECK_INT(record.events_count, 1);
  CHECK_INT(record.events[0].begin, 5);
  CHECK_INT(record.events[0].end, 9);
  CHECK_INT(record.events[0].step, 0);
  CHECK(record.events[0].background);
  harness_close(&h);
  tsr_arena_free(arena);
}

int main(void) {
  test_cases();
  test_ring();
  test_add();
  return check_done("recorder");
}
