// SPDX-License-Identifier: Apache-2.0
/* The profile of records made by hand: exact sums, exact tables, exact advice, and the trace file's
 * exact text. */
#include "config/config.h"
#include "report/chrome_trace.h"
#include "report/comm_trace.h"
#include "report/profile.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include "tests/run/harness.h"
#include <fcntl.h>

typedef struct {
  tsr_arena *arena;
  harness h;
  tsr_record record;
  tsr_span steps[2];
  tsr_event events[64];
} hand;

static void make_hand(hand *m, int pp, int dp, int64_t microbatches, tsr_pipeline_kind pipeline) {
  *m = (hand){.arena = tsr_arena_new()};
  tsr_graph *g = tsr_graph_new(m->arena, "by hand", (tsr_units){8, 1, 1});
  int batch = (int)(8 / microbatches);
  harness_inputs(g, tsr_arena_printf(m->arena, "x %d,4; y %d,4", batch, batch));
  harness_params(g, "w1 4,4; w2 4,4");
  harness_calls(g, "a: linear(x, w1); b: tanh(a); c: linear(b, w2); loss: mse(c, y)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  g->nodes[0].location = (tsr_location){.file = "a \"graph\".yaml", .line = 7, .col = 3};
  static const tsr_optimizer sgd = {.kind = TSR_RULE_SGD};
  harness_options o = {.pp = pp, .dp = dp, .tp = 1, .threads = 2, .microbatches = microbatches};
  o.batch_units = 8;
  o.tp_units = 1;
  o.pipeline = pipeline;
  o.optimizer = &sgd;
  tsr_diags *diags = tsr_diags_new(m->arena);
  if (!harness_compile(g, &o, &m->h, diags)) {
    tsr_diags_print(diags, stderr);
    abort();
  }
  m->h.parallel.batch_size_local = 8 / dp / microbatches;
  m->record = (tsr_record){
      .programs = &m->h.programs, .parallel = &m->h.parallel, .threads = 2, .steps = m->steps};
  m->record.events = m->events;
}

/* The stage's first task of an op in a section. */
static int find_task(const hand *m, int stage, tsr_section section, tsr_op op) {
  const tsr_program *p = m->h.programs.of_stage[stage];
  for (int t = 0; t < p->tasks_count; t++)
    if (p->tasks[t].op == op && p->tasks[t].section == section) return t;
  fprintf(stderr, "stage %d has no such task\n", stage);
  abort();
}

static tsr_event *
add(hand *m, int rank, int task, tsr_event_kind kind, int64_t begin, int64_t end) {
  tsr_event *e = &m->events[m->record.events_count++];
  *e = (tsr_event){.begin = begin, .end = end, .rank = rank, .task = task, .kind = kind};
  return e;
}

static void make_dp(hand *m) {
  make_hand(m, 1, 2, 1, TSR_PIPELINE_1F1B);
  m->steps[0] = (tsr_span){0, 600000};
  m->steps[1] = (tsr_span){700000, 1100000};
  m->record.steps_count = 2;
  int linear = find_task(m, 0, TSR_FORWARD, TSR_OP_LINEAR);
  int reduce = find_task(m, 0, TSR_UPDATE, TSR_OP_ALL_REDUCE);
  add(m, 0, -1, TSR_EVENT_INPUT, 0, 10000);
  add(m, 0, linear, TSR_EVENT_COMPUTE, 10000, 110000);
  add(m, 0, reduce, TSR_EVENT_COMMUNICATION, 110000, 160001);
  add(m, 0, reduce, TSR_EVENT_COMMUNICATION, 40000, 140000)->background = true;
  add(m, 1, linear, TSR_EVENT_WAIT, 0, 200000);
  add(m, 1, linear, TSR_EVENT_COMPUTE, 200000, 400000);
  add(m, 1, linear, TSR_EVENT_COMPUTE, 700000, 700000)->step = 1;
}

static void test_sums(void) {
  hand m;
  tsr_profile p;
  make_dp(&m);
  tsr_profile_make(m.arena, &m.record, &p);
  CHECK_NEAR(p.seconds, 1000e-6, 1e-15);
  CHECK_NEAR(p.ranks[0].compute, 100e-6, 1e-15);
  CHECK_NEAR(p.ranks[0].input, 10e-6, 1e-15);
  CHECK_NEAR(p.ranks[0].communication, 150.001e-6, 1e-15);
  CHECK_NEAR(p.ranks[0].overlapped, 100e-6, 1e-15); /* with the linear, then with another one */
  CHECK_NEAR(p.ranks[0].idle, 839.999e-6, 1e-15);
  CHECK_NEAR(p.ranks[1].compute, 200e-6, 1e-15);
  CHECK_NEAR(p.ranks[1].waiting, 200e-6, 1e-15);
  CHECK_NEAR(p.ranks[1].idle, 800e-6, 1e-15);
  CHECK_NEAR(p.all.idle, 1639.999e-6, 1e-15);
  CHECK_NEAR(p.unused, 1000e-6 - 360.001e-6, 1e-15);
  CHECK_NEAR(p.axis_seconds[TSR_DP], 150.001e-6, 1e-15);
  CHECK_INT(p.ops_count, 3);
  CHECK_STR(p.ops[0].op, "linear");
  CHECK_INT(p.ops[0].count, 3);
  CHECK_NEAR(p.ops[0].flops, 3 * 2.0 * 4 * 4 * 4, 0);
  CHECK_NEAR(p.ops[0].bytes, 3 * 4.0 * (16 + 16 + 16), 0);
  CHECK_STR(p.ops[1].op, "all_reduce");
  CHECK_INT(p.ops[1].axis, TSR_DP);
  CHECK_STR(p.ops[2].op, "inputs");
  CHECK_NEAR(p.bubble, 0, 0);
  tsr_arena_free(m.arena);
}

static void test_tables(void) {
  hand m;
  tsr_profile p;
  tsr_text text = {0};
  make_dp(&m);
  tsr_profile_make(m.arena, &m.record, &p);
  tsr_profile_print(&p, &text);
  CHECK_STR(
      text.data,
      "profile of 2 steps, 0.001000 s: 0.500 ms a step; 2 ranks on 2 threads\n"
      "  rank  stage   compute s     input s  communication  overlapped   waiting s      idle s    "
      "ratio\n"
      "     0      0    0.000100    0.000010       0.000150    0.000100    0.000000    0.000840    "
      "1.500\n"
      "     1      0    0.000200    0.000000       0.000000    0.000000    0.000200    0.000800    "
      "0.000\n"
      "ratio: communication over compute; waiting, for another stage, is a part of idle\n"
      "overlapped: 66.7 % of communication\n"
      "no rank does anything: 0.000640 s, 64.0 % of the time, between tasks\n"
      "  op, all ranks                 count     seconds    share    GFLOP/s       GB/s\n"
      "  linear                            3    0.000300   65.2 %      0.001      0.002\n"
      "  all_reduce over dp                2    0.000150   32.6 %          -      0.001\n"
      "  inputs                            1    0.000010    2.2 %          -          -\n");
  p.limits = (tsr_peak_rates){1e7, 1e9};
  tsr_text_free(&text);
  text = (tsr_text){0};
  tsr_profile_print(&p, &text);
  CHECK(strstr(
      text.data, "  linear                            3    0.000300   65.2 %      0.001      0.002 "
                 "   25.6 %\n"));
  CHECK(strstr(text.data, "    GFLOP/s       GB/s  of limit\n"));
  CHECK(strstr(
      text.data, "-\nlimits, measured: 0.0 GFLOP/s, 1.0 GB/s read from memory; what caches hold "
                 "may go beyond\n"));
  tsr_text_free(&text);
  tsr_arena_free(m.arena);
}

/* Of two processes, of which each has half of the work to do with limits of its own. */
static void test_processes(void) {
  hand m;
  tsr_profile p;
  tsr_text text = {0};
  make_dp(&m);
  m.record.processes = 2;
  tsr_profile_make(m.arena, &m.record, &p);
  p.limits = (tsr_peak_rates){1e7, 1e9};
  tsr_profile_print(&p, &text);
  CHECK(strstr(text.data, "0.500 ms a step; 2 ranks on 2 threads of 2 processes\n"));
  CHECK(strstr(text.data, "\nclocks: all processes have the clock of one host\n"));
  CHECK(strstr(text.data, "      0.001      0.002    12.8 %\n"));
  CHECK(strstr(text.data, " read from memory, on process 0 while all measure; what caches hold"));
  tsr_text_free(&text);
  text = (tsr_text){0};
  p.record.clock_error = 1234567;
  tsr_profile_print(&p, &text);
  CHECK(strstr(
      text.data, "\nclocks: those of other hosts are aligned to that of process 0 within 1.235 ms, "
                 "by messages before and after the steps\n"));
  tsr_text_free(&text);
  tsr_arena_free(m.arena);
}

/* ---- the pipeline and what is advised ---- */

/* Every action of two stages takes what it is told to. */
static void
make_pp(hand *m, int64_t microbatches, const int64_t forward[2], const int64_t backward[2]) {
  make_hand(m, 2, 1, microbatches, TSR_PIPELINE_1F1B);
  m->steps[0] = (tsr_span){0, 100000000};
  m->record.steps_count = 1;
  for (int s = 0; s < 2; s++) {
    int f = find_task(m, s, TSR_FORWARD, TSR_OP_LINEAR);
    int b = find_task(m, s, TSR_BACKWARD, TSR_OP_LINEAR_DW);
    for (int i = 0; i < microbatches; i++) {
      int64_t at = 1000000 * (20 * i + 10 * s);
      add(m, s, f, TSR_EVENT_COMPUTE, at, at + 1000 * forward[s])->microbatch = i;
      add(m, s, b, TSR_EVENT_COMPUTE, at + 4000000, at + 4000000 + 1000 * backward[s])->microbatch =
          i;
    }
  }
  int receive = find_task(m, 1, TSR_FORWARD, TSR_OP_RECEIVE);
  add(m, 1, receive, TSR_EVENT_COMMUNICATION, 99000000, 99000000);
}

static void test_pipeline(void) {
  hand m;
  tsr_profile p;
  make_pp(&m, 2, (int64_t[]){1000, 1000}, (int64_t[]){2000, 2000});
  tsr_profile_make(m.arena, &m.record, &p);
  CHECK_NEAR(p.bubble_even, 1.0 / 3, 1e-12); /* (p - 1) / (m + p - 1) */
  CHECK_NEAR(p.bubble, 1.0 / 3, 1e-12);
  CHECK_NEAR(p.actions[1].forward, 1e-3, 1e-15);
  CHECK_NEAR(p.actions[0].backward, 2e-3, 1e-15);
  CHECK_NEAR(p.busy[0], 6e-3, 1e-15);
  tsr_arena_free(m.arena);
  /* F0 0-1 F1 1-2 | F0 1-3 B0 3-6 F1 6-8 B1 8-11 | B0 6-8 B1 11-13: 6 and 10 of 2 x 13 */
  make_pp(&m, 2, (int64_t[]){1000, 2000}, (int64_t[]){2000, 3000});
  tsr_profile_make(m.arena, &m.record, &p);
  CHECK_NEAR(p.bubble, 1 - 16.0 / 26, 1e-12);
  CHECK_NEAR(p.bubble_even, 1.0 / 3, 1e-12);
  tsr_arena_free(m.arena);
}

static void test_pipeline_table(void) {
  hand m;
  tsr_profile p;
  tsr_text text = {0};
  make_pp(&m, 2, (int64_t[]){1000, 2000}, (int64_t[]){2000, 3000});
  tsr_profile_make(m.arena, &m.record, &p);
  tsr_profile_print(&p, &text);
  const char *table = strstr(text.data, "pipeline ");
  CHECK_STR(
      table, "pipeline 1f1b: 2 stages, 2 microbatches; a receive takes 0.000 ms\n"
             "   part  stage  forward ms  backward ms\n"
             "      0      0       1.000        2.000\n"
             "      1      1       2.000        3.000\n"
             "busy stages, of their mean: 0.75 1.25\n"
             "bubble: 38.5 % by these times, each stage on devices of its own; 33.3 % if all were "
             "alike\n");
  tsr_text_free(&text);
  tsr_arena_free(m.arena);
}

static const char *advice(hand *m, const char *config_text) {
  static char copy[4096];
  tsr_diags *diags = tsr_diags_new(m->arena);
  tsr_config *config;
  tsr_profile p;
  tsr_text text = {0};
  CHECK(tsr_config_parse(
      m->arena, "run.yaml", config_text, strlen(config_text), NULL, 0, false, &config, diags));
  CHECK_STR(scratch_diags(diags), "");
  tsr_profile_make(m->arena, &m->record, &p);
  tsr_profile_advise(&p, config, &text);
  snprintf(copy, sizeof copy, "%s", text.data);
  tsr_text_free(&text);
  tsr_arena_free(m->arena);
  return copy;
}

static void test_overlap_advice(void) {
  hand m;
  make_dp(&m);
  m.events[3].end = m.events[3].begin;
  CHECK_STR(
      advice(&m, "schedule: {all_reduce_overlap: false}\n"),
      "advice: 0 % of communication overlaps with compute: with ranks on several processes, "
      "schedule.all_reduce_overlap: true reduces gradients while the backward pass runs\n"
      "advice: rank 1 computes 1.33 times as long as the ranks beside it: the others wait for it "
      "at every collective\n"
      "advice: for 64 % of the time no rank does anything: tasks are small for 2 threads; "
      "numerics.threads: 1 may be faster\n");
  make_dp(&m);
  m.events[3].end = m.events[3].begin;
  m.events[6].end += 90000; /* the ranks compute as long as each other */
  m.events[5].end -= 190000;
  m.record.threads = 1;
  CHECK_STR(
      advice(&m, "schedule: {all_reduce_overlap: true, bucket_size: 1MiB}\n"),
      "advice: 0 % of communication overlaps with compute: inside one process nothing can; on "
      "several, a schedule.bucket_size below 1.0 MiB lets the first gradients go earlier\n");
  make_dp(&m);
  m.events[3].end = m.events[3].begin;
  m.events[6].end += 90000;
  m.events[5].end -= 190000;
  m.record.processes = 2; /* each of one thread */
  CHECK_STR(
      advice(&m, "schedule: {all_reduce_overlap: true, bucket_size: 1MiB}\n"),
      "advice: 0 % of communication overlaps with compute: a schedule.bucket_size below 1.0 MiB "
      "lets the first gradients go earlier\n");
  make_dp(&m);
  m.events[3].end = m.events[3].begin;
  m.record.processes = 2;
  CHECK_STR(
      advice(&m, "schedule: {all_reduce_overlap: false}\n"),
      "advice: 0 % of communication overlaps with compute: schedule.all_reduce_overlap: true "
      "reduces gradients while the backward pass runs\n"
      "advice: rank 1 computes 1.33 times as long as the ranks beside it: the others wait for it "
      "at every collective\n");
}

static void test_advice(void) {
  hand m;
  make_pp(&m, 2, (int64_t[]){1000, 1000}, (int64_t[]){2000, 2000});
  CHECK_STR(
      advice(&m, "pipeline: {microbatches: 2}\n"),
      "advice: 2 microbatches for 2 stages leave a bubble of 33 % even if stages are alike: "
      "pipeline.microbatches: 8 would leave 11 %\n"
      "advice: for 88 % of the time no rank does anything: tasks are small for 2 threads; "
      "numerics.threads: 1 may be faster\n");
  make_pp(&m, 8, (int64_t[]){1000, 2000}, (int64_t[]){2000, 4000});
  CHECK_STR(
      advice(&m, "pipeline: {microbatches: 8, blocks_per_rank: [2, 2]}\n"),
      "advice: stage 1 takes 1.33 times as long as the mean of the stages: move blocks to stage 0 "
      "in pipeline.blocks_per_rank, or leave it to pipeline.balance: auto\n");
  make_pp(&m, 4, (int64_t[]){1000, 2000}, (int64_t[]){2000, 4000});
  CHECK_STR(
      advice(&m, "training_config: {gradient_accumulation_steps: 4}\n"),
      "advice: 4 microbatches for 2 stages leave a bubble of 20 % even if stages are alike: "
      "pipeline.microbatches: 2 would leave 11 %\n"
      "advice: stage 1 takes 1.33 times as long as the mean of the stages: "
      "pipeline.blocks_per_rank with fewer blocks for it and more for stage 0\n"
      "advice: for 64 % of the time no rank does anything: tasks are small for 2 threads; "
      "numerics.threads: 1 may be faster\n");
  make_dp(&m);
  CHECK_STR(
      advice(&m, "schedule: {all_reduce_overlap: true}\n"),
      "advice: communication is 42 % of what ranks do, most of it over dp: more "
      "training_config.gradient_accumulation_steps reduce gradients less often; or fewer ranks of "
      "dp with a larger batch each\n"
      "advice: rank 1 computes 1.33 times as long as the ranks beside it: the others wait for it "
      "at every collective\n"
      "advice: for 64 % of the time no rank does anything: tasks are small for 2 threads; "
      "numerics.threads: 1 may be faster\n");
  make_dp(&m);
  m.record.events_count = 0;
  m.record.threads = 1;
  int linear = find_task(&m, 0, TSR_FORWARD, TSR_OP_LINEAR);
  add(&m, 0, linear, TSR_EVENT_COMPUTE, 0, 100000);
  add(&m, 1, linear, TSR_EVENT_COMPUTE, 100000, 200000);
  CHECK_STR(advice(&m, ""), "advice: none; nothing stands out\n");
}

/* ---- the file ---- */

static const char *file_text(const char *path) {
  static char text[8192];
  FILE *file = fopen(path, "rb");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[length] = 0;
  return text;
}

static void test_file(void) {
  hand m;
  make_dp(&m);
  tsr_diags *diags = tsr_diags_new(m.arena);
  m.record.steps_count = 1;
  m.record.events_count = 5;
  tsr_new_file file;
  CHECK(tsr_chrome_trace_open("trace.json", &file, diags));
  CHECK(tsr_chrome_trace_write(&file, &m.record, diags));
  CHECK_STR(
      file_text("trace.json"),
      "{\"otherData\":{\"program\":\"tessera-train\"},\"displayTimeUnit\":\"ms\",\"traceEvents\":["
      "\n"
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"rank 0 dp "
      "0\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"compute\"}},"
      "\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":1,\"args\":{\"name\":"
      "\"communication\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":2,\"args\":{\"name\":"
      "\"communication in the background\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":3,\"args\":{\"name\":\"waiting\"}},"
      "\n"
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"rank 1 dp "
      "1\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"compute\"}},"
      "\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":"
      "\"communication\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":"
      "\"communication in the background\"}},\n"
      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":3,\"args\":{\"name\":\"waiting\"}},"
      "\n"
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":2,\"tid\":0,\"args\":{\"name\":\"steps\"}},"
      "\n"
      "{\"ph\":\"X\",\"name\":\"step "
      "0\",\"cat\":\"step\",\"ts\":0.000,\"dur\":600.000,\"pid\":2,\"tid\":0,\"args\":{\"step\":0}}"
      ",\n"
      "{\"ph\":\"X\",\"name\":\"inputs\",\"cat\":\"input\",\"ts\":0.000,\"dur\":10.000,\"pid\":0,"
      "\"tid\":0,\"args\":{\"step\":0,\"microbatch\":0}},\n"
      "{\"ph\":\"X\",\"name\":\"a\",\"cat\":\"compute\",\"ts\":10.000,\"dur\":100.000,\"pid\":0,"
      "\"tid\":0,\"args\":{\"step\":0,\"microbatch\":0,\"op\":\"linear\",\"section\":\"forward\","
      "\"place\":\"a \\\"graph\\\".yaml:7\"}},\n"
      "{\"ph\":\"X\",\"name\":\"d.w1@a.reduced_dp\",\"cat\":\"communication\",\"ts\":110.000,"
      "\"dur\":50.001,\"pid\":0,\"tid\":1,\"args\":{\"step\":0,\"microbatch\":0,\"op\":\"all_"
      "reduce\",\"section\":\"update\",\"axis\":\"dp\",\"bytes\":64,\"seq\":0,\"place\":\"a "
      "\\\"graph\\\".yaml:7\"}},\n"
      "{\"ph\":\"X\",\"name\":\"d.w1@a.reduced_dp\",\"cat\":\"communication\",\"ts\":40.000,"
      "\"dur\":100.000,\"pid\":0,\"tid\":2,\"args\":{\"step\":0,\"microbatch\":0,\"op\":\"all_"
      "reduce\",\"section\":\"update\",\"axis\":\"dp\",\"bytes\":64,\"seq\":1,\"place\":\"a "
      "\\\"graph\\\".yaml:7\"}},\n"
      "{\"ph\":\"X\",\"name\":\"a\",\"cat\":\"wait\",\"ts\":0.000,\"dur\":200.000,\"pid\":1,"
      "\"tid\":3,\"args\":{\"step\":0,\"microbatch\":0,\"op\":\"linear\",\"section\":\"forward\","
      "\"place\":\"a \\\"graph\\\".yaml:7\"}}\n"
      "]}\n");
  CHECK(access("trace.json.tmp", F_OK));
  CHECK(!tsr_chrome_trace_open("no/such/trace.json", &file, diags));
  CHECK_STR(
      scratch_diags(diags),
      "no/such/trace.json: error: cannot write 'no/such/trace.json': No such file or directory\n");
  CHECK_INT(tsr_diags_exit_code(diags), 2);
  tsr_arena_free(m.arena);
}

/* Numbers resume from one step to the next. */
static void test_comm_trace(void) {
  hand m;
  tsr_text text = {0};
  make_pp(&m, 2, (int64_t[]){1000, 2000}, (int64_t[]){2000, 3000});
  int send = find_task(&m, 0, TSR_FORWARD, TSR_OP_SEND);
  int reduce = find_task(&m, 1, TSR_UPDATE, TSR_OP_ALL_REDUCE);
  add(&m, 0, send, TSR_EVENT_COMMUNICATION, 99000000, 99012345);
  add(&m, 1, reduce, TSR_EVENT_COMMUNICATION, 99500000, 99999999);
  tsr_comm_trace trace = tsr_comm_trace_start(m.arena, 2);
  tsr_comm_trace_print(&trace, &m.record, 7, &text);
  m.record.events += m.record.events_count - 1;
  m.record.events_count = 1;
  tsr_comm_trace_print(&trace, &m.record, 8, &text);
  CHECK_STR(
      text.data, "comm step=7 rank=1 seq=0 op=receive axis=pp bytes=64 peer=0 tree=none "
                 "policy=deterministic transport=memory path=shm ms=0.000 "
                 "what=b.stage1\n"
                 "comm step=7 rank=0 seq=0 op=send axis=pp bytes=64 peer=1 tree=none "
                 "policy=deterministic transport=memory path=shm ms=0.012 what=b.stage1\n"
                 "comm step=7 rank=1 seq=1 op=all_reduce axis=pp bytes=64 algo=tree tree=binary "
                 "policy=deterministic transport=memory path=shm ms=0.500 "
                 "what=norm_stats.reduced_pp\n"
                 "comm step=8 rank=1 seq=2 op=all_reduce axis=pp bytes=64 algo=tree tree=binary "
                 "policy=deterministic transport=memory path=shm ms=0.500 "
                 "what=norm_stats.reduced_pp\n");
  tsr_text_free(&text);
  tsr_arena_free(m.arena);
}

int main(void) {
  char folder[64];
  scratch_enter(folder);
  test_sums();
  test_tables();
  test_pipeline();
  test_pipeline_table();
  test_processes();
  test_advice();
  test_overlap_advice();
  test_file();
  test_comm_trace();
  scratch_leave(folder);
  return check_done("profile");
}
