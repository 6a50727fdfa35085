// SPDX-License-Identifier: Apache-2.0
/* The verifier's output for spoilt programs: exact texts, with tasks looked up. */
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>

/* ---- programs to be spoilt ---- */

typedef struct {
  tsr_arena *arena;
  harness h;
  tsr_programs programs;
  tsr_verify_mesh mesh;
  tsr_program *p; /* of the first stage */
} bench;

static bench open_bench(harness_options o) {
  bench b = {.arena = tsr_arena_new()};
  o = sample_options(o);
  b.h = sample_compile(b.arena, &o);
  b.programs = sample_copy_all(b.arena, &b.h.programs);
  b.mesh = sample_mesh(&b.h.parallel);
  b.p = b.programs.of_stage[0];
  return b;
}

/* The first stage's program as it was. */
static void repair(bench *b) { *b->p = *sample_copy(b->arena, b->h.programs.of_stage[0]); }

static void close_bench(bench *b) { tsr_arena_free(b->arena); }

static const char *said(bench *b) {
  tsr_diags *diags = tsr_diags_new(b->arena);
  tsr_programs_verify(b->arena, &b->programs, &b->mesh, diags);
  return printed_diags(b->arena, diags);
}

/* The first line of it. */
static const char *first_said(bench *b) {
  const char *all = said(b);
  return tsr_arena_strndup(b->arena, all, strcspn(all, "\n"));
}

#define EXPECT(b, ...) CHECK_STR(first_said(&(b)), tsr_arena_printf((b).arena, __VA_ARGS__))

static int value_of(const bench *b, const char *name) { return harness_find(b->h.placed, name); }

/* The task of an op whose node has a name. */
static int find_task(const tsr_program *p, tsr_op op, const char *node) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == op && !strcmp(p->graph->nodes[p->tasks[i].node].name, node)) return i;
  fprintf(stderr, "no %s of '%s'\n", tsr_op_name(op), node);
  abort();
}

static int find_op(const tsr_program *p, tsr_op op, tsr_section section) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == op && p->parts[sample_part_of(p, i)].section == section) return i;
  fprintf(stderr, "no %s\n", tsr_op_name(op));
  abort();
}

static long long offset_of(const tsr_program *p, int value, int microbatch) {
  return (long long)tsr_tensor_offset(p, &p->tensors[value], microbatch);
}

static const char *node_name(const tsr_program *p, int task) {
  return p->graph->nodes[p->tasks[task].node].name;
}

/* ---- one task ---- */

static void test_tasks(void) {
  bench b = open_bench((harness_options){.dp = 1, .tp = 1, .microbatches = 2});
  tsr_program *p = b.p;
  int task = find_task(p, TSR_OP_LINEAR, "lu1");
  sample_remove_task(p, task);
  EXPECT(b, "call:1:1: error: 'lu1', rank 0: no task runs this linear");

  repair(&b);
  sample_insert_task(b.arena, p, task, p->tasks[task], sample_part_of(p, task));
  EXPECT(
      b, "call:1:1: error: 'lu1', rank 0, task %d (linear): task %d runs the same node", task + 1,
      task);

  repair(&b);
  p->tasks[task].inputs[1].offset += 64;
  EXPECT(
      b,
      "call:1:1: error: 'lu1', rank 0, task %d (linear): its 'u1' is (32, 16) f32 @param+%lld, the "
      "program's is (32, 16) f32 @param+%lld",
      task, offset_of(p, value_of(&b, "u1"), 0) + 64, offset_of(p, value_of(&b, "u1"), 0));

  repair(&b);
  p->tensors[value_of(&b, "lu1")].shape[1] = 5;
  sample_bind(p);
  EXPECT(
      b,
      "call:1:1: error: 'lu1', rank 0: it is (8, 5, 32) f32, its placement on this mesh makes it "
      "(8, 4, 32) f32");

  repair(&b);
  p->bytes[TSR_SEGMENT_STATE] -= 64;
  const tsr_graph *g = b.h.placed;
  int last = g->values_count - 1;
  while (g->values[last].kind != TSR_VALUE_STATE) last--;
  long long end = (long long)p->bytes[TSR_SEGMENT_STATE];
  EXPECT(
      b,
      "error: '%s', rank 0: its %lld bytes @state+%lld are outside its segment, which is bytes 0 "
      "to before %lld",
      g->values[last].name, end + 64 - offset_of(p, last, 0), offset_of(p, last, 0), end);

  repair(&b);
  p->runs_count--;
  EXPECT(b, "error: rank 0: update never runs");
  close_bench(&b);
}

/* ---- bytes ---- */

static void test_memory(void) {
  bench b = open_bench((harness_options){.dp = 1, .tp = 1, .microbatches = 2});
  tsr_program *p = b.p;
  int embedding = find_task(p, TSR_OP_EMBEDDING, "x0"), norm = find_task(p, TSR_OP_RMSNORM, "h1");
  int x0 = p->tasks[norm].inputs[0].value; /* by any of its names */
  sample_move_task(p, norm, embedding);
  EXPECT(
      b,
      "call:1:1: error: 'h1', rank 0, task %d (rmsnorm), microbatch 0: reads '%s', whose bytes "
      "@work+%lld nothing has written",
      embedding, b.h.placed->values[x0].name, offset_of(p, x0, 0));

  repair(&b);
  int lg = find_task(p, TSR_OP_LINEAR, "lg1"), swiglu = find_task(p, TSR_OP_SWIGLU, "s1");
  p->tensors[value_of(&b, "lg1")].offset = p->tensors[value_of(&b, "lu1")].offset;
  p->tensors[value_of(&b, "lg1")].slot_group = p->tensors[value_of(&b, "lu1")].slot_group;
  sample_bind(p);
  EXPECT(
      b,
      "call:1:1: error: 's1', rank 0, task %d (swiglu), microbatch 0: reads 'lu1', whose bytes "
      "@work+%lld hold 'lg1' since task %d",
      swiglu, offset_of(p, value_of(&b, "lu1"), 0), lg);

  repair(&b);
  p->tensors[value_of(&b, "lg1")].offset = p->tensors[value_of(&b, "l1")].offset;
  p->tensors[value_of(&b, "lg1")].slot_group = p->tensors[value_of(&b, "l1")].slot_group;
  sample_bind(p);
  EXPECT(
      b,
      "call:1:1: error: 'lg1', rank 0, task %d (linear), microbatch 0: its output 'lg1' shares "
      "bytes with its input 'l1'",
      lg);
  close_bench(&b);
}

/* Microbatches: a slot that two of them take at once; sums that lack one. */
static void test_microbatches(void) {
  bench b = open_bench((harness_options){
      .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_GPIPE, .microbatches = 4});
  tsr_program *p = b.p;
  const tsr_tensor *x = &p->tensors[value_of(&b, "h1")];
  CHECK(x->slot_group >= 0 && p->slot_groups[x->slot_group].slots == 4);
  int *slot_of = p->slot_groups[x->slot_group].slot_of;
  slot_of[1] = slot_of[0];
  const char *text = said(&b);
  CHECK_AT(strstr(text, "microbatch 0: reads '"), "%s", text);
  CHECK_AT(strstr(text, " hold microbatch 1's since task "), "%s", text);

  repair(&b);
  slot_of = p->slot_groups[x->slot_group].slot_of;
  slot_of[1] = 4;
  EXPECT(
      b, "error: rank 0, stage 0: slot group %d has 4 slots, microbatch 1 takes slot 4",
      x->slot_group);

  repair(&b);
  int backward = 0; /* its third run */
  for (int r = 0, found = 0; found < 3; r++)
    if (p->parts[p->runs[r].part].section == TSR_BACKWARD) backward = r, found++;
  CHECK_INT(p->runs[backward].microbatch, 2);
  tsr_run run = p->runs[backward];
  p->runs[backward] = p->runs[backward + 1];
  p->runs[backward + 1] = run;
  text = said(&b);
  CHECK_AT(strstr(text, "', which has 2 of 4 microbatches since task "), "%s", text);
  close_bench(&b);
}

/* ---- between stages ---- */

static void test_transfers(void) {
  harness_options o = {.dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 2};
  bench b = open_bench(o);
  tsr_program *p = b.p, *next = b.programs.of_stage[1];
  int send = find_op(p, TSR_OP_SEND, TSR_FORWARD);
  const char *node = node_name(p, send);
  const char *value = b.h.placed->values[p->tasks[send].inputs[0].value].name;
  int receive = find_task(next, TSR_OP_RECEIVE, node);
  sample_remove_task(p, send);
  EXPECT(
      b,
      "call:1:1: error: '%s', rank 1, stage 1, task %d (receive), microbatch 0: stage 0 sends "
      "'%s' never, stage 1 receives it once",
      node, receive, value);

  repair(&b);
  sample_remove_task(p, find_task(p, TSR_OP_WAIT, node));
  const char *text = said(&b);
  const char *want = tsr_arena_printf(
      b.arena,
      "'%s', rank 0, stage 0, task %d (send), microbatch 0: nothing waits until '%s' has moved\n",
      node, send, value);
  CHECK_AT(strstr(text, want), "%s lacks %s", text, want);

  repair(&b);
  next->tasks[receive].inputs[0].shape[0] *= 2;
  text = first_said(&b);
  CHECK_AT(strstr(text, "(receive): it receives (16, "), "%s", text);
  close_bench(&b);
}

/* What a send still moves must not be written: the wait that is asked for too late. */
static void test_overwritten(void) {
  bench b = open_bench((harness_options){
      .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_GPIPE, .microbatches = 2});
  tsr_program *p = b.programs.of_stage[1];
  int send = find_op(p, TSR_OP_SEND, TSR_BACKWARD);
  const char *node = node_name(p, send);
  int value = p->tasks[send].inputs[0].value, writer = 0;
  while (!p->tasks[writer].outputs_count || p->tasks[writer].outputs[0].value != value) writer++;
  p->tensors[value].offset = p->bytes[TSR_SEGMENT_WORK];
  p->tensors[value].slot_group = -1;
  p->bytes[TSR_SEGMENT_WORK] += 4096; /* bytes of its own, for all microbatches */
  sample_bind(p);
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == TSR_OP_WAIT && !strcmp(node_name(p, i), node) && p->tasks[i].lag > 0)
      p->tasks[i].lag = 2;
  const char *text = first_said(&b);
  const char *want = tsr_arena_printf(
      b.arena,
      "task %d (%s), microbatch 1: writes '%s' to @work+%lld, where '%s' of microbatch 0 is, which "
      "task %d (send) still moves",
      writer, tsr_op_name(p->tasks[writer].op), b.h.placed->values[value].name,
      offset_of(p, value, 1), b.h.placed->values[value].name, send);
  CHECK_AT(strstr(text, want), "%s lacks %s", text, want);
  close_bench(&b);
}

/* Stage 0 waits in its B0 until F's of both microbatches have arrived, which stage 1 takes in its
 * F1; let stage 1 wait before that until stage 0 has taken what its B0 sent. */
static void test_circle(void) {
  bench b = open_bench((harness_options){
      .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 2});
  tsr_program *p = b.p, *next = b.programs.of_stage[1];
  int send = find_op(p, TSR_OP_SEND, TSR_FORWARD), part = sample_part_of(p, send) + 1;
  const char *node = node_name(p, send);
  tsr_task wait = p->tasks[send];
  wait.op = TSR_OP_WAIT;
  wait.section = TSR_BACKWARD;
  wait.lag = TSR_WAIT_ALL;
  int begin = p->parts[part].begin;
  sample_insert_task(b.arena, p, begin, wait, part);
  CHECK_STR(said(&b), "");
  const char *back = node_name(p, find_op(p, TSR_OP_RECEIVE, TSR_BACKWARD));
  int sent = find_task(next, TSR_OP_SEND, back);
  wait = next->tasks[sent];
  wait.op = TSR_OP_WAIT;
  sample_insert_task(b.arena, next, sent + 1, wait, sample_part_of(next, sent));
  EXPECT(
      b,
      "call:1:1: error: '%s', rank 0, stage 0, task %d (wait), microbatch 0: no step can end: this "
      "waits for rank 1, which waits in task %d (wait) of '%s', microbatch 0, for rank 0",
      node, begin, sent + 1, back);
  close_bench(&b);
}

/* ---- one rank among others ---- */

/* Gives a rank a program of its own. */
static tsr_program *part_company(bench *b, int rank) {
  const tsr_program **of_rank = tsr_arena_array(b->arena, const tsr_program *, b->mesh.ranks);
  for (int r = 0; r < b->mesh.ranks && b->mesh.of_rank; r++) of_rank[r] = b->mesh.of_rank[r];
  tsr_program *own = sample_copy(b->arena, b->p);
  of_rank[rank] = own;
  b->mesh.of_rank = of_rank;
  return own;
}

/* The tasks of a part that are collectives over an axis; the `index`-th of them. */
static int find_collective(const tsr_program *p, int part, int axis, int index) {
  for (int i = p->parts[part].begin; i < p->parts[part].end; i++)
    if (tsr_op_is_collective(p->tasks[i].op) && p->tasks[i].axis == axis && !index--) return i;
  fprintf(stderr, "too few collectives\n");
  abort();
}

/* Members of a group that come to its collectives in different orders. */
static void test_order(void) {
  bench b = open_bench((harness_options){.dp = 2, .tp = 1, .microbatches = 2});
  tsr_program *own = part_company(&b, 1);
  CHECK_STR(said(&b), "");
  int update = own->parts_count - 1;
  int one = find_collective(own, update, TSR_DP, 0), two = find_collective(own, update, TSR_DP, 1);
  tsr_task t = own->tasks[one];
  own->tasks[one] = own->tasks[two];
  own->tasks[two] = t;
  const char *first = node_name(b.p, one), *second = node_name(b.p, two);
  long long n = (long long)tsr_tensor_elements(&b.p->tasks[one].inputs[0]),
            m = (long long)tsr_tensor_elements(&b.p->tasks[two].inputs[0]);
  EXPECT(
      b,
      "call:1:1: error: '%s', rank 1, task %d (all_reduce): its collective 1 over dp is all_reduce "
      "to '%s' (%lld f32, microbatch 1), that of rank 0 all_reduce to '%s' (%lld f32, microbatch "
      "1)",
      second, one, second, m, first, n);
  close_bench(&b);
}

/* The first all-reduce over tp in the update, and the next collective over dp behind it. */
static bool find_crossing(const tsr_program *p, int *ret_tp, int *ret_dp) {
  const tsr_part *update = &p->parts[p->parts_count - 1];
  for (*ret_tp = update->begin; *ret_tp < update->end; ++*ret_tp) {
    if (p->tasks[*ret_tp].op != TSR_OP_ALL_REDUCE || p->tasks[*ret_tp].axis != TSR_TP) continue;
    for (*ret_dp = *ret_tp + 1; *ret_dp < update->end; ++*ret_dp)
      if (tsr_op_is_collective(p->tasks[*ret_dp].op) && p->tasks[*ret_dp].axis == TSR_DP)
        return true;
  }
  return false;
}

/* Every group comes to its collectives in one order, and still: ranks 0 and 3 sum over tp before
 * dp, ranks 1 and 2 over dp before tp. Groups over tp are (0, 1) and (2, 3), over dp (0, 2) and (1,
 * 3). */
static void test_crossed(void) {
  bench b =
      open_bench((harness_options){.dp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true});
  int tp = 0, dp = 0;
  tsr_program *own = part_company(&b, 1);
  CHECK(find_crossing(b.p, &tp, &dp));
  const char *first = node_name(b.p, tp), *second = node_name(b.p, dp);
  sample_move_task(own, dp, tp);
  CHECK_STR(said(&b), ""); /* rank 1 alone: 2 and 3 can go on, so all can */
  sample_move_task(part_company(&b, 2), dp, tp);
  EXPECT(
      b,
      "call:1:1: error: '%s', rank 0, task %d (all_reduce): no step can end: this waits for rank "
      "1, "
      "which waits in task %d (all_reduce) of '%s' for rank 3, which waits in task %d (all_reduce) "
      "of '%s' for rank 2, which waits in task %d (all_reduce) of '%s' for rank 0",
      first, tp, tp, second, tp, first, tp, second);
  close_bench(&b);
}

/* ---- what moves beside other tasks ---- */

static int find_bucket(const tsr_program *p, bool wait, int bucket) {
  for (int i = 0; i < p->tasks_count; i++)
    if ((p->tasks[i].op == TSR_OP_WAIT) == wait && p->tasks[i].bucket == bucket) return i;
  fprintf(stderr, "no bucket %d\n", bucket);
  abort();
}

/* The first task of the update that reads what a bucket brings. */
static int find_reader(const tsr_program *p, int bucket, int *ret_begin) {
  const tsr_part *update = &p->parts[p->parts_count - 1];
  for (int i = update->begin; i < update->end; i++)
    for (int k = 0; k < p->tasks[i].inputs_count && p->tasks[i].op != TSR_OP_WAIT; k++)
      for (*ret_begin = 0; *ret_begin < p->tasks_count; ++*ret_begin) {
        const tsr_task *t = &p->tasks[*ret_begin];
        if (t->bucket == bucket && t->outputs_count &&
            t->outputs[0].value == p->tasks[i].inputs[k].value)
          return i;
      }
  fprintf(stderr, "nobody reads what bucket %d brings\n", bucket);
  abort();
}

static void test_buckets(void) {
  bench b = open_bench((harness_options){.dp = 2, .tp = 1, .microbatches = 2, .overlap = true});
  tsr_program *p = b.p;
  CHECK_STR(said(&b), "");
  int wait = find_bucket(p, true, 1), update = p->parts_count - 1, begin;
  sample_move_task(p, wait, p->parts[update].end - 1);
  int reader = find_reader(p, 1, &begin);
  CHECK(p->tasks[begin].last_only);
  EXPECT(
      b,
      "%serror: '%s', rank 0, task %d (%s): reads '%s', which task %d has only begun to move there",
      p->graph->nodes[p->tasks[reader].node].location.file ? "call:1:1: " : "",
      node_name(p, reader), reader, tsr_op_name(p->tasks[reader].op), node_name(p, begin), begin);

  repair(&b);
  p->tasks[begin = find_bucket(p, false, 1)].bucket = 99; /* for which nobody waits */
  const char *text = said(&b);
  const char *want = tsr_arena_printf(
      b.arena, "rank 0: the step ends with it, which task %d has only begun to move there", begin);
  CHECK_AT(strstr(text, want), "%s lacks %s", text, want);

  repair(&b);
  begin = find_bucket(p, false, 1);
  p->tasks[begin].last_only = false;
  EXPECT(
      b,
      "call:1:1: error: '%s', rank 0, task %d (%s): it runs in the backward part, its node in "
      "update of chunk 0",
      node_name(p, begin), begin, tsr_op_name(p->tasks[begin].op));
  close_bench(&b);
}

int main(void) {
  test_tasks();
  test_memory();
  test_microbatches();
  test_transfers();
  test_overwritten();
  test_circle();
  test_order();
  test_crossed();
  test_buckets();
  return check_done("verify");
}
