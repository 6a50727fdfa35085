// SPDX-License-Identifier: Apache-2.0
/* Pipeline orders from a user's file: the exact texts of what is wrong with them, and whether the
 * check agrees with brute force about orders that are broken a little. */
#include "schedule/pipeline.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include "tests/printed.h"
#include "tests/schedule/naive.h"

static tsr_arena *arena;
static tsr_diags *diags;

static void start_over(void) {
  tsr_arena_free(arena);
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
}

static tsr_pipeline *read_text(const char *text, size_t length, int stages, int microbatches) {
  start_over();
  scratch_write("my.order", text, length);
  tsr_pipeline *pipeline = NULL;
  tsr_location location = {.file = "run.yaml"};
  bool ok = tsr_pipeline_read(arena, "my.order", location, stages, microbatches, &pipeline, diags);
  CHECK(ok == (pipeline != NULL) && ok == !tsr_diags_errors(diags));
  return pipeline;
}

static void check_error(const char *text, int stages, int microbatches, const char *want) {
  CHECK_AT(!read_text(text, strlen(text), stages, microbatches), "accepted:\n%s", text);
  CHECK_STR(printed_diags(arena, diags), want);
}

static void test_good(void) {
  static const char text[] = "# comment: with a colon\r\n"
                             "\tchunks :2 # two\r\n"
                             "placement:v\n"
                             "\n"
                             "stage 1:  F0\tF0.1 B0.1 B0   # F9\n"
                             "stages: 2\n"
                             "stage 0: F0 F0.1 B0.1 B0\n"
                             "microbatches: 1";
  tsr_pipeline *o = read_text(text, sizeof text - 1, 2, 1);
  CHECK_STR(printed_diags(arena, diags), "");
  if (!o) return;
  CHECK_STR(o->name, "my.order");
  CHECK(o->v_shaped && !o->splits_backward && !o->forward_only);
  CHECK_INT(o->counts[1], 4);
  CHECK_INT(o->actions[1][1].chunk, 1);
  CHECK_INT(o->actions[1][1].location.line, 5);
  CHECK_INT(o->actions[1][1].location.col, 14);
  CHECK_INT(o->actions[1][1].location.length, 4);
  CHECK_INT(o->places[0].line, 7);
  tsr_text print = {0};
  tsr_pipeline_print(o, &print);
  CHECK_STR(
      print.data, "# my.order\nstages: 2\nmicrobatches: 1\nchunks: 2\nplacement: v\n"
                  "stage 0: F0 F0.1 B0.1 B0\nstage 1: F0 F0.1 B0.1 B0\n");
  tsr_text_free(&print);
}

/* ---- what cannot be read --------------------------------------------------------------------- */

static void test_keys(void) {
  check_error(
      "stages: 1\nmicrobatchs: 1\nstage 0: F0 B0\n", 1, 1,
      "my.order:2:1: error: unknown key 'microbatchs'\n"
      "    2 | microbatchs: 1\n"
      "      | ^~~~~~~~~~~\n"
      "      = did you mean 'microbatches'?\n"
      "my.order: error: 'microbatches: 1' is missing\n");
  check_error(
      "stages: 1\nmicrobatches: 1\nstgae 0: F0 B0\nstage: F0\norder: F0\n", 1, 1,
      "my.order:3:1: error: unknown key 'stgae 0'\n"
      "    3 | stgae 0: F0 B0\n"
      "      | ^~~~~~~\n"
      "      = did you mean 'stage 0'?\n"
      "my.order:4:1: error: unknown key 'stage'\n"
      "    4 | stage: F0\n"
      "      | ^~~~~\n"
      "      = a stage's line begins with its number, from 0: 'stage 0:'\n"
      "my.order:5:1: error: unknown key 'order'\n"
      "    5 | order: F0\n"
      "      | ^~~~~\n"
      "      = valid: stages, microbatches, chunks, placement\n"
      "my.order:1:9: error: no line 'stage 0:' (stages: 1)\n"
      "    1 | stages: 1\n"
      "      |         ^\n");
  check_error(
      "stages: 1\nmicrobatches: 1\nF0 B0\nstages: 1\nstage 0: F0 B0\nstage 0: F0\n", 1, 1,
      "my.order:3:1: error: no ':' in this line\n"
      "    3 | F0 B0\n"
      "      | ^~~~~\n"
      "      = a line is a key and its value, as in 'stages: 4' or 'stage 0: F0 B0'\n"
      "my.order:4:1: error: 'stages' is given twice\n"
      "    4 | stages: 1\n"
      "      | ^~~~~~\n"
      "      = first given at line 1, column 9\n"
      "my.order:6:1: error: 'stage 0' is given twice\n"
      "    6 | stage 0: F0\n"
      "      | ^~~~~~~\n"
      "      = first given at line 5, column 1\n");
  check_error(
      "", 2, 3,
      "my.order: error: 'stages: 2' is missing\n"
      "my.order: error: 'microbatches: 3' is missing\n");
}

#define QUOTED                                                                                     \
  "    4 | stage 0: B B0, ?[1m F1.1. F123456789012345678901234567890123456789\xc2\xb2\n"

static void test_values(void) {
  check_error(
      "stages: two\nmicrobatches: 0\nchunks: 65\nplacement: V\n", 2, 1,
      "my.order:1:9: error: stages: 'two' is not a whole number from 1 to 1000000\n"
      "    1 | stages: two\n"
      "      |         ^~~\n"
      "my.order:2:15: error: microbatches: '0' is not a whole number from 1 to 1000000\n"
      "    2 | microbatches: 0\n"
      "      |               ^\n"
      "my.order:3:9: error: chunks: '65' is not a whole number from 1 to 64\n"
      "    3 | chunks: 65\n"
      "      |         ^~\n"
      "my.order:4:12: error: unknown placement 'V'\n"
      "    4 | placement: V\n"
      "      |            ^\n"
      "      = did you mean 'v'?\n");
  check_error(
      "stages:\nmicrobatches: 99999999999999999999\nplacement: ring\n", 2, 1,
      "my.order:1:8: error: stages: '' is not a whole number from 1 to 1000000\n"
      "    1 | stages:\n"
      "      |        ^\n"
      "my.order:2:15: error: microbatches: '99999999999999999999' is not a whole number from 1 to "
      "1000000\n"
      "    2 | microbatches: 99999999999999999999\n"
      "      |               ^~~~~~~~~~~~~~~~~~~~\n"
      "my.order:3:12: error: unknown placement 'ring'\n"
      "    3 | placement: ring\n"
      "      |            ^~~~\n"
      "      = valid: loop, v\n");
  /* What is missing is not said where something was not understood. */
  check_error(
      "stages: 1\nmicrobatches: 9\nstage 0: F0 f1 F1.x F-1\n"
      "stage 0: B B0, \x1b[1m F1.1. F123456789012345678901234567890123456789\xc2\xb2\n",
      1, 9,
      "my.order:3:13: error: 'f1' is not an action\n"
      "    3 | stage 0: F0 f1 F1.x F-1\n"
      "      |             ^~\n"
      "      = an action is F, B or W, its microbatch and, from chunk 1 on, its chunk: F3, B0.1\n"
      "my.order:3:16: error: 'F1.x' is not an action\n"
      "    3 | stage 0: F0 f1 F1.x F-1\n"
      "      |                ^~~~\n"
      "my.order:3:21: error: 'F-1' is not an action\n"
      "    3 | stage 0: F0 f1 F1.x F-1\n"
      "      |                     ^~~\n"
      "my.order:4:10: error: 'B' is not an action\n" QUOTED "      |          ^\n"
      "my.order:4:12: error: 'B0,' is not an action\n" QUOTED "      |            ^~~\n"
      "my.order:4:16: error: '?[1m' is not an action\n" QUOTED "      |                ^~~~\n"
      "my.order:4:21: error: 'F1.1.' is not an action\n" QUOTED
      "      |                     ^~~~~\n"
      "my.order:4:27: error: 'F123456789012345678901234567890123456789…' is not an action\n" QUOTED
      "      |                           ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
      "my.order:4:1: error: 'stage 0' is given twice\n" QUOTED "      | ^~~~~~~\n"
      "      = first given at line 3, column 1\n");
}

static void test_run(void) {
  check_error(
      "stages: 2\nmicrobatches: 1\nstage 0: F0 B0\nstage 1: F0 B0\n", 4, 1,
      "my.order:1:9: error: 'stages' is 2, but the run has 4\n"
      "    1 | stages: 2\n"
      "      |         ^\n");
  check_error(
      "stages: 2\nmicrobatches: 1\nstage 0: F0 B0\nstage 1: F0 B0\n", 2, 8,
      "my.order:2:15: error: 'microbatches' is 1, but the run has 8\n"
      "    2 | microbatches: 1\n"
      "      |               ^\n");
  check_error(
      "stages: 7\nmicrobatches: 1\nstage 1: F0 B0\nstage 7: F0 B0\n", 7, 1,
      "my.order:4:1: error: stage 7 is not one of 0 to 6 (stages: 7)\n"
      "    4 | stage 7: F0 B0\n"
      "      | ^~~~~~~\n"
      "my.order:1:9: error: no line 'stage 0:', 'stage 2:', 'stage 3:', 'stage 4:' and 2 more "
      "(stages: 7)\n"
      "    1 | stages: 7\n"
      "      |         ^\n");
  start_over();
  tsr_pipeline *o = NULL;
  tsr_location location = {.file = "run.yaml"};
  CHECK(!tsr_pipeline_read(arena, "none.order", location, 1, 1, &o, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "run.yaml: error: cannot read 'none.order': No such file or directory\n");
}

/* ---- what is read and does not work ---------------------------------------------------------- */

#define TWO_BY_TWO "stages: 2\nmicrobatches: 2\n"

static void test_stages(void) {
  check_error(
      TWO_BY_TWO "stage 0: F0 F1 F0 B0 B1\nstage 1: F0 B0 F1\n", 2, 2,
      "my.order:3:16: error: stage 0: F0 stands twice\n"
      "    3 | stage 0: F0 F1 F0 B0 B1\n"
      "      |                ^~\n"
      "      = first at line 3, column 10\n"
      "my.order:4:1: error: stage 1 lacks B1\n"
      "    4 | stage 1: F0 B0 F1\n"
      "      | ^~~~~~~\n");
  check_error(
      TWO_BY_TWO "stage 0: B0 F0 F1 B1\nstage 1: F0 B0 F1 W1 B1 W0\n", 2, 2,
      "my.order:3:10: error: stage 0: B0 stands before F0\n"
      "    3 | stage 0: B0 F0 F1 B1\n"
      "      |          ^~\n"
      "      = a microbatch's F comes first, then its B, then its W if there are W\n"
      "my.order:3:1: error: stage 0 lacks W0, W1\n"
      "    3 | stage 0: B0 F0 F1 B1\n"
      "      | ^~~~~~~\n"
      "      = where one W is given, every microbatch needs its W on every stage\n"
      "my.order:4:19: error: stage 1: W1 stands before B1\n"
      "    4 | stage 1: F0 B0 F1 W1 B1 W0\n"
      "      |                   ^~\n"
      "      = a microbatch's F comes first, then its B, then its W if there are W\n");
  check_error(
      TWO_BY_TWO "stage 0: F0 F1 B0 B1 F2\nstage 1: F0 F1 B0 B1.1 B1\n", 2, 2,
      "my.order:3:22: error: stage 0: F2: microbatch 2 is not one of 0 to 1 (microbatches: 2)\n"
      "    3 | stage 0: F0 F1 B0 B1 F2\n"
      "      |                      ^~\n"
      "my.order:4:19: error: stage 1: B1.1: chunk 1 is not one of 0 to 0 (chunks: 1)\n"
      "    4 | stage 1: F0 F1 B0 B1.1 B1\n"
      "      |                   ^~~~\n");
  check_error(
      TWO_BY_TWO "chunks: 2\nstage 0:\nstage 1: F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1\n", 2, 2,
      "my.order:4:1: error: stage 0 lacks F0, F1, F0.1, F1.1 and 4 more\n"
      "    4 | stage 0:\n"
      "      | ^~~~~~~\n");
}

static void test_circles(void) {
  check_error(
      "stages: 3\nmicrobatches: 2\n"
      "stage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1\nstage 2: F0 F1 B0 B1\n",
      3, 2,
      "my.order:4:13: error: deadlock: stage 1 waits in B0 for B0 of stage 2, which comes there "
      "after F1, which waits for F1 of stage 1, which comes there after B0\n"
      "    4 | stage 1: F0 B0 F1 B1\n"
      "      |             ^~\n");
  /* Over three stages, of which one has nothing before what the next one waits for. */
  check_error(
      "stages: 3\nmicrobatches: 2\nchunks: 2\n"
      "stage 0: F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1\n"
      "stage 1: F0 F1 F0.1 F1.1 B0.1 B0 B1.1 B1\n"
      "stage 2: F1 F0 F0.1 F1.1 B0.1 B0 B1.1 B1\n",
      3, 2,
      "my.order:4:13: error: deadlock: stage 0 waits in F0.1 for F0 of stage 2, which comes there "
      "after F1, which waits for F1 of stage 1, which waits for F1 of stage 0, which comes there "
      "after F0.1\n"
      "    4 | stage 0: F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1\n"
      "      |             ^~~~\n");
  /* A stage that waits for itself: the turn of a v. */
  check_error(
      "stages: 2\nmicrobatches: 1\nchunks: 2\nplacement: v\n"
      "stage 0: F0 F0.1 B0.1 B0\nstage 1: F0.1 F0 B0.1 B0\n",
      2, 1,
      "my.order:6:10: error: deadlock: stage 1 waits in F0.1 for F0 of stage 1, which comes there "
      "after F0.1\n"
      "    6 | stage 1: F0.1 F0 B0.1 B0\n"
      "      |          ^~~~\n");
  /* Two circles. */
  check_error(
      "stages: 4\nmicrobatches: 2\n"
      "stage 0: F0 B0 F1 B1\nstage 1: F0 F1 B0 B1\nstage 2: F0 B0 F1 B1\nstage 3: F0 F1 B0 B1\n",
      4, 2,
      "my.order:3:13: error: deadlock: stage 0 waits in B0 for B0 of stage 1, which comes there "
      "after F1, which waits for F1 of stage 0, which comes there after B0\n"
      "    3 | stage 0: F0 B0 F1 B1\n"
      "      |             ^~\n"
      "my.order:5:13: error: deadlock: stage 2 waits in B0 for B0 of stage 3, which comes there "
      "after F1, which waits for F1 of stage 2, which comes there after B0\n"
      "    5 | stage 2: F0 B0 F1 B1\n"
      "      |             ^~\n");
}

/* Made orders have no file: their name stands for it. */
static void test_made(void) {
  start_over();
  tsr_pipeline *o = tsr_pipeline_make(arena, TSR_PIPELINE_ZB_H1, 2, 1, 2);
  o->actions[1][2].microbatch = 7;
  CHECK(!tsr_pipeline_check(o, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "zb_h1: error: stage 1: F7: microbatch 7 is not one of 0 to 1 (microbatches: 2)\n"
      "zb_h1: error: stage 1 lacks F1\n");
  o = tsr_pipeline_make(arena, TSR_PIPELINE_FORWARD, 1, 1, 2);
  o->actions[0][1].kind = TSR_ACTION_BACKWARD;
  CHECK(!tsr_pipeline_check(o, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "forward: error: stage 0: B1 in a schedule of forward passes only\n"
      "forward: error: stage 0 lacks F1\n");
  o = tsr_pipeline_make(arena, TSR_PIPELINE_1F1B, 1, 1, 1);
  o->actions[0][0].kind = TSR_ACTION_WEIGHTS;
  CHECK(!tsr_pipeline_check(o, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "1f1b: error: stage 0: W0 in a schedule whose B make the weights' gradients\n"
      "1f1b: error: stage 0 lacks F0\n");
}

/* ---- broken a little ------------------------------------------------------------------------- */

static tsr_pipeline *make_random(uint64_t *seed) {
  int stages = 1 + naive_random(seed, 5), microbatches = 1 + naive_random(seed, 6), chunks = 1;
  tsr_pipeline_kind kind = naive_random(seed, TSR_ORDERS);
  if (kind == TSR_PIPELINE_ZB_V) chunks = 2;
  if (kind == TSR_PIPELINE_FORWARD) chunks = 1 + naive_random(seed, 3);
  if (kind == TSR_PIPELINE_INTERLEAVED) {
    chunks = 2 + naive_random(seed, 2);
    microbatches = stages * (1 + naive_random(seed, 2));
  }
  return tsr_pipeline_make(arena, kind, stages, chunks, microbatches);
}

static void swap_two(tsr_pipeline *o, int stage, uint64_t *seed) {
  tsr_action *actions = o->actions[stage];
  int i = naive_random(seed, o->counts[stage]), j = naive_random(seed, o->counts[stage]);
  if (naive_random(seed, 2)) j = (i + 1) % o->counts[stage];
  tsr_action kept = actions[i];
  actions[i] = actions[j];
  actions[j] = kept;
}

static void drop_one(tsr_pipeline *o, int stage, uint64_t *seed) {
  int at = naive_random(seed, o->counts[stage]), after = --o->counts[stage] - at;
  memmove(o->actions[stage] + at, o->actions[stage] + at + 1, sizeof(tsr_action) * (size_t)after);
}

static void double_one(tsr_pipeline *o, int stage, uint64_t *seed) {
  int count = o->counts[stage], from = naive_random(seed, count),
      to = naive_random(seed, count + 1);
  tsr_action *more = tsr_arena_array(arena, tsr_action, count + 1);
  memcpy(more, o->actions[stage], sizeof *more * (size_t)to);
  memcpy(more + to + 1, o->actions[stage] + to, sizeof *more * (size_t)(count - to));
  more[to] = o->actions[stage][from];
  o->actions[stage] = more;
  o->counts[stage]++;
}

static void change_one(tsr_pipeline *o, int stage, uint64_t *seed) {
  tsr_action *a = &o->actions[stage][naive_random(seed, o->counts[stage])];
  int what = naive_random(seed, 3);
  if (what == 0) a->kind = naive_random(seed, 3);
  else if (what == 1) a->microbatch += naive_random(seed, 3) - 1;
  else a->chunk += naive_random(seed, 3) - 1;
}

/* Every stage has the B of a chunk, and its W, in the order of the microbatches. */
static bool ascends(const tsr_pipeline *o) {
  for (int s = 0; s < o->stages; s++)
    for (int i = 0; i < o->counts[s]; i++)
      for (int k = 0; k < i; k++) {
        const tsr_action *a = &o->actions[s][k], *b = &o->actions[s][i];
        bool alike = a->kind == b->kind && a->chunk == b->chunk && a->kind != TSR_ACTION_FORWARD;
        if (alike && a->microbatch > b->microbatch) return false;
      }
  return true;
}

static void test_ascending(void) {
  check_error(
      TWO_BY_TWO "stage 0: F0 F1 B1 B0\nstage 1: F0 F1 B1 B0\n", 2, 2,
      "my.order:3:16: error: stage 0: B1 stands before B0\n"
      "    3 | stage 0: F0 F1 B1 B0\n"
      "      |                ^~\n"
      "      = gradients are added in the order of the microbatches: a chunk's B, and its W, must "
      "come in that order\n"
      "my.order:4:16: error: stage 1: B1 stands before B0\n"
      "    4 | stage 1: F0 F1 B1 B0\n"
      "      |                ^~\n"
      "      = gradients are added in the order of the microbatches: a chunk's B, and its W, must "
      "come in that order\n");
}

static void test_broken(void) {
  static void (*const ways[])(tsr_pipeline *, int, uint64_t *) = {swap_two, swap_two,   swap_two,
                                                                  drop_one, double_one, change_one};
  uint64_t seed = 7;
  int sound = 0, deadlocks = 0;
  for (int i = 0; i < 20000; i++) {
    start_over();
    tsr_pipeline *o = make_random(&seed);
    if (naive_random(&seed, 8) == 0) o->v_shaped = !o->v_shaped;
    int stage = naive_random(&seed, o->stages), before = o->counts[stage];
    ways[naive_random(&seed, (int)(sizeof ways / sizeof *ways))](o, stage, &seed);
    CHECK(before > 0);
    bool want = naive_run(arena, o, NULL).sound && ascends(o), got = tsr_pipeline_check(o, diags);
    CHECK_INT(tsr_diags_errors(diags) == 0, got);
    char *printed = printed_diags(arena, diags);
    CHECK_AT(got == want, "%s: the check says %d, brute force %d\n%s", o->name, got, want, printed);
    sound += got;
    deadlocks += strstr(printed, "deadlock") != NULL;
  }
  CHECK_AT(sound > 1000 && deadlocks > 1000, "%d sound, %d deadlocks", sound, deadlocks);
}

/* A file with changed bytes is read or refused, never worse; what is read holds. */
static void test_bytes(void) {
  static const char text[] = "# x\nstages: 2\nmicrobatches: 2\nchunks: 2\nplacement: v\n"
                             "stage 0: F0 F1 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0 W0 B1 W1\n"
                             "stage 1: F0 F0.1 F1 F1.1 B0.1 W0.1 B0 B1.1 B1 W0 W1.1 W1\n";
  static const char bytes[] = "\n\t #:.0129FBWsv-\0\x80";
  uint64_t seed = 3;
  int accepted = 0;
  for (int i = 0; i < 2000; i++) {
    char changed[sizeof text];
    memcpy(changed, text, sizeof text);
    for (int k = naive_random(&seed, 3); k >= 0; k--)
      changed[naive_random(&seed, sizeof text - 1)] = bytes[naive_random(&seed, sizeof bytes - 1)];
    tsr_pipeline *o =
        read_text(changed, (size_t)naive_random(&seed, 20) ? sizeof text - 1 : 100, 2, 2);
    if (o) CHECK(naive_run(arena, o, NULL).sound);
    accepted += o != NULL;
    printed_diags(arena, diags);
  }
  CHECK(accepted > 0 && accepted < 500);
}

int main(void) {
  char folder[64];
  scratch_enter(folder);
  test_good();
  test_keys();
  test_values();
  test_run();
  test_stages();
  test_circles();
  test_made();
  test_ascending();
  test_broken();
  test_bytes();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("schedule.pipeline_file");
}
