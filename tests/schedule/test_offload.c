// SPDX-License-Identifier: Apache-2.0
/* Activations that are copied to the host's memory and back: where copies begin and are waited for,
 * how much memory of the device that saves, how many slots the host has, and that the verifier
 * refuses programs whose copies are not complete. */
#include "sample.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <string.h>

static harness compile(tsr_arena *arena, harness_options o) {
  o = sample_options(o);
  return sample_compile(arena, &o);
}

/* ---- the order of a part ---- */

static bool is_copy(const tsr_task *t) { return t->op == TSR_OP_OFFLOAD || t->op == TSR_OP_RELOAD; }

/* "0 to1*2 1 wait-to1 …": the blocks whose tasks follow each other; the buckets of copies to the
 * host and back that begin, each with the number of its copies; and the waits for them, up to the
 * last one. */
static const char *order_of(tsr_arena *arena, const tsr_program *p, tsr_section section) {
  const char *text = "", *whole = "", *names[64] = {0};
  for (int k = 0; k < p->parts_count; k++) {
    if (p->parts[k].section != section) continue;
    int block = -2;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      const tsr_task *t = &p->tasks[i];
      const tsr_node *n = &p->graph->nodes[t->node];
      if (t->op == TSR_OP_WAIT && t->bucket) {
        whole = text = tsr_arena_printf(arena, "%s wait-%s", text, names[t->bucket]);
      } else if (is_copy(t)) {
        int count = 1;
        while (i + 1 < p->parts[k].end && p->tasks[i + 1].bucket == t->bucket) i++, count++;
        names[t->bucket] =
            tsr_arena_printf(arena, "%s%d", t->op == TSR_OP_OFFLOAD ? "to" : "back", t->bucket);
        text = tsr_arena_printf(arena, "%s %s*%d", text, names[t->bucket], count);
      } else if (n->block != block) {
        block = n->block;
        text = tsr_arena_printf(arena, "%s %d", text, block);
      }
    }
  }
  return *whole ? whole + 1 : whole;
}

/* A block's copies begin behind its last task and are waited for behind that of the next block;
 * those back begin with the block before theirs, and the first reader waits for them. */
static void check_order(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h =
      compile(arena, (harness_options){.dp = 1, .tp = 1, .microbatches = 2, .offload = true});
  const tsr_program *p = h.programs.of_stage[0];
  CHECK_STR(
      order_of(arena, p, TSR_FORWARD),
      "0 to1*2 1 wait-to1 to2*7 2 wait-to2 to3*5 3 wait-to3 to4*2 4 wait-to4 to5*7 5 wait-to5 "
      "to6*7 -1 wait-to6");
  CHECK_STR(
      order_of(arena, p, TSR_BACKWARD),
      "back12*6 -1 back11*7 wait-back12 5 back10*3 4 wait-back11 back9*4 3 wait-back10 back8*7 2 "
      "wait-back9 back7*3 wait-back8 1 0 wait-back7");
  tsr_arena_free(arena);
}

/* The first blocks alone: the others' activations stay. */
static void check_first_blocks(void) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {.dp = 1, .tp = 1, .microbatches = 2, .offload = true, .offload_blocks = 2};
  harness h = compile(arena, o);
  const tsr_program *p = h.programs.of_stage[0];
  int copies = 0;
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_node *n = &p->graph->nodes[p->tasks[i].node];
    if (p->tasks[i].op != TSR_OP_OFFLOAD) continue;
    CHECK_AT(n->block < 2, "'%s' of block %d is offloaded", n->name, n->block);
    copies++;
  }
  CHECK(copies > 0);
  tsr_arena_free(arena);
}

/* ---- memory ---- */

/* What all of a stage's copies to the host are, each in bytes that are a multiple of 64. */
static int64_t copied_bytes(const tsr_program *p) {
  int64_t sum = 0;
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == TSR_OP_OFFLOAD)
      sum += (tsr_tensor_bytes(&p->tasks[i].inputs[0]) + 63) / 64 * 64;
  return sum;
}

/* `alive`: the microbatches of a stage that wait for their backward pass at once. */
static void check_memory(harness_options o, const int *alive) {
  tsr_arena *arena = tsr_arena_new();
  harness kept = compile(arena, o);
  o.offload = true;
  harness h = compile(arena, o);
  for (int s = 0; s < h.programs.pipeline->stages; s++) {
    const tsr_program *p = h.programs.of_stage[s], *whole = kept.programs.of_stage[s];
    const char *name = sample_text(arena, &o);
    CHECK_INT(whole->bytes[TSR_SEGMENT_HOST], 0);
    CHECK_INT(p->bytes[TSR_SEGMENT_HOST], copied_bytes(p) * alive[s]);
    int64_t work = p->bytes[TSR_SEGMENT_WORK], before = whole->bytes[TSR_SEGMENT_WORK];
    bool is_last = s + 1 == h.programs.pipeline->stages; /* its classifier may need the most */
    CHECK_AT(
        work < before || (s && is_last && work == before),
        "%s, stage %d: work has %lld bytes, %lld without", name, s, (long long)work,
        (long long)before);
    CHECK_INT(tsr_program_bytes(p), tsr_program_bytes(whole) - before + work);
  }
  tsr_arena_free(arena);
}

static void check_dump(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h =
      compile(arena, (harness_options){.dp = 1, .tp = 1, .microbatches = 1, .offload = true});
  const tsr_program *p = h.programs.of_stage[0];
  tsr_text tasks = {0}, memory = {0};
  tsr_program_print(p, &tasks);
  tsr_program_print_memory(p, &memory);
  CHECK(
      strstr(tasks.data, "offload          begins with bucket 2  offload.rq1 (16, 4, 16) @host+"));
  CHECK(strstr(tasks.data, "reload.rq1 (16, 4, 16) @work+"));
  const char *line = tsr_arena_printf(
      arena, "  %-16s %20s\n", "on the host", tsr_text_count(p->bytes[TSR_SEGMENT_HOST]).text);
  CHECK(strstr(memory.data, line));
  tsr_text_free(&tasks);
  tsr_text_free(&memory);
  tsr_arena_free(arena);
}

/* ---- faults: each leaves a copy incomplete where it must not be, or its bytes to others ---- */

typedef struct {
  tsr_arena *arena;
  tsr_program *p;
} spoilt;

/* The first task of an op; the wait for its bucket; -1: none. */
static int find(const spoilt *s, tsr_op op) {
  for (int i = 0; i < s->p->tasks_count; i++)
    if (s->p->tasks[i].op == op) return i;
  return -1;
}
static int find_wait(const spoilt *s, int copy) {
  for (int i = 0; i < s->p->tasks_count; i++)
    if (s->p->tasks[i].op == TSR_OP_WAIT && s->p->tasks[i].bucket == s->p->tasks[copy].bucket)
      return i;
  return -1;
}
static int end_of_part(const spoilt *s, int task) {
  return s->p->parts[sample_part_of(s->p, task)].end - 1;
}

static void forget_to_host(spoilt *s) {
  sample_remove_task(s->p, find_wait(s, find(s, TSR_OP_OFFLOAD)));
}
static void forget_back(spoilt *s) {
  sample_remove_task(s->p, find_wait(s, find(s, TSR_OP_RELOAD)));
}
static void wait_late(spoilt *s) {
  int wait = find_wait(s, find(s, TSR_OP_RELOAD));
  sample_move_task(s->p, wait, end_of_part(s, wait));
}
/* A whole bucket, before its values are made. */
static void begin_early(spoilt *s) {
  int copy = find(s, TSR_OP_OFFLOAD), to = s->p->parts[sample_part_of(s->p, copy)].begin;
  for (int bucket = s->p->tasks[copy].bucket; s->p->tasks[copy].bucket == bucket; copy++, to++)
    sample_move_task(s->p, copy, to);
}
static void copy_now(spoilt *s) { s->p->tasks[find(s, TSR_OP_OFFLOAD)].bucket = 0; }
static void share_slot(spoilt *s) {
  for (int i = 0; i < s->p->slot_groups_count; i++) {
    tsr_slot_group *f = &s->p->slot_groups[i];
    for (int m = 0; f->segment == TSR_SEGMENT_HOST && m < s->p->lowering.microbatches; m++)
      f->slot_of[m] = 0;
  }
}
static void share_bytes(spoilt *s) {
  int first = find(s, TSR_OP_OFFLOAD), value = s->p->tasks[first].outputs[0].value;
  int other = s->p->tasks[first + 1].outputs[0].value;
  s->p->tensors[other].offset = s->p->tensors[value].offset;
  sample_bind(s->p);
}
static void plan_less(spoilt *s) { s->p->bytes[TSR_SEGMENT_HOST] -= 64; }
/* What the next task writes lies where a copy still reads or writes. */
static void write_to(spoilt *s, int copy, int value) {
  int i = copy;
  while (is_copy(&s->p->tasks[i]) || !s->p->tasks[i].outputs_count) i++;
  tsr_tensor *to = &s->p->tensors[s->p->tasks[i].outputs[0].value];
  to->offset = s->p->tensors[value].offset;
  to->slot_group = s->p->tensors[value].slot_group;
  sample_bind(s->p);
}
static void overwrite(spoilt *s) {
  int copy = find(s, TSR_OP_OFFLOAD);
  write_to(s, copy, s->p->tasks[copy].inputs[0].value);
}
static void write_over(spoilt *s) {
  int copy = find(s, TSR_OP_RELOAD);
  write_to(s, copy, s->p->tasks[copy].outputs[0].value);
}

static const struct {
  void (*spoil)(spoilt *s);
  const char *text; /* of the finding */
} faults[] = {
    {forget_to_host, "which task "},
    {forget_back, " has only begun to move there"},
    {wait_late, " has only begun to move there"},
    {begin_early, "whose bytes "},
    {copy_now, "it is in bucket 0"},
    {share_slot, " hold microbatch 1's"},
    {share_bytes, "(offload) still moves"},
    {plan_less, "is outside its segment"},
    {overwrite, "(offload) still moves"},
    {write_over, "(reload) still moves"}};

static void check_fault(int index) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {.dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 4};
  o.offload = true;
  harness h = compile(arena, o);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  spoilt s = {arena, h.programs.of_stage[0]};
  faults[index].spoil(&s);
  CHECK_AT(!tsr_programs_verify(arena, &h.programs, &mesh, diags), "fault %d", index);
  const char *printed = printed_diags(arena, diags);
  CHECK_AT(strstr(printed, faults[index].text), "fault %d: %s", index, printed);
  tsr_arena_free(arena);
}

int main(void) {
  check_order();
  check_first_blocks();
  check_memory((harness_options){.dp = 1, .tp = 1, .microbatches = 1}, (const int[]){1});
  check_memory((harness_options){.dp = 1, .tp = 1, .microbatches = 4}, (const int[]){1});
  check_memory((harness_options){.dp = 2, .tp = 2, .microbatches = 2}, (const int[]){1});
  check_memory(
      (harness_options){
          .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_1F1B, .microbatches = 4},
      (const int[]){2, 1});
  check_memory(
      (harness_options){
          .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_GPIPE, .microbatches = 4},
      (const int[]){4, 4});
  check_dump();
  for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) check_fault(i);
  return check_done("schedule.offload");
}
