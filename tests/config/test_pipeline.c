// SPDX-License-Identifier: Apache-2.0
/* Pipelines: the word for the order, where stages begin, blocks per rank, and tt-train's
 * multihost_config, which says the same. */
#include "config/print.h"
#include "helper.h"

#define P "pipeline: {"

static void check_schedule(const char *text, const char *want, int line) {
  loaded l = load(text);
  CHECK_STR(l.said, "");
  CHECK_STR(l.config->pipeline.schedule, want);
  CHECK_INT(tsr_config_location(l.config, "pipeline.schedule").line, line);
  CHECK(!l.config->pipeline.schedule_file);
  unload(&l);
}

static void test_schedule(void) {
  check_schedule("", "1f1b", 0);
  check_schedule("schedule: 1F1B\n", "1F1B", 1);
  check_schedule("training_config:\nschedule: {pipeline: GPipe}\n", "GPipe", 2);
  static const char *const words[] = {"gpipe",  "1F1B", "ZB-H1", "ZB-V",        "zbh1",
                                      "zbv",    "zb_v", "zb_h1", "interleaved", "Interleaved1F1B",
                                      "zb-H_1", "1f1b", "ZBV",   "GPIPE",       "ZBVZeroBubble"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    char text[64];
    snprintf(text, sizeof text, P "schedule: %s}\n", words[i]);
    check_schedule(text, words[i], 1);
  }
  const char *set = "schedule=gpipe";
  loaded l = load_with("schedule: {recompute: full}\n", &set, 1);
  CHECK_STR(l.said, "");
  CHECK_STR(l.config->pipeline.schedule, "gpipe");
  CHECK_INT(l.config->schedule.recompute, TSR_RECOMPUTE_CHEAP);
  unload(&l);
}

static void test_schedule_errors(void) {
  CHECK_SAID(
      P "schedule: 1f2b}\n", false,
      "run.yaml:1:22: error: unknown pipeline schedule: the text '1f2b'\n"
      "    1 | pipeline: {schedule: 1f2b}\n      |                      ^~~~\n"
      "      = did you mean '1f1b'?\n");
  CHECK_SAID(
      "schedule: overlapping\n", false,
      "run.yaml:1:11: error: unknown pipeline schedule: the text 'overlapping'\n"
      "    1 | schedule: overlapping\n      |           ^~~~~~~~~~~\n"
      "      = valid: gpipe, 1f1b, interleaved, zb_h1, zb_v, file:PATH\n");
  CHECK_SAID(
      "schedule: 'file:'\n", false,
      "run.yaml:1:11: error: 'file:' names no file\n    1 | schedule: 'file:'\n"
      "      |           ^~~~~~~\n");
  CHECK_SAID(
      "schedule: file:no/such.sched\n", false,
      "run.yaml:1:11: error: cannot find 'no/such.sched'\n    1 | schedule: file:no/such.sched\n"
      "      |           ^~~~~~~~~~~~~~~~~~\n"
      "      = looked in the working directory, beside run.yaml and in the folders above it\n");
  CHECK_SAID(
      "schedule: 1f1b\npipeline: {schedule: gpipe}\n", false,
      "run.yaml:2:12: error: 'schedule' is given twice\n    2 | pipeline: {schedule: gpipe}\n"
      "      |            ^~~~~~~~\n      = 'schedule' stands in run.yaml:1\n");
  CHECK_SAID(
      "schedule: {pipeline: 1f1b}\npipeline: {schedule: gpipe}\n", false,
      "run.yaml:2:12: error: 'schedule' sets the same as 'pipeline'\n"
      "    2 | pipeline: {schedule: gpipe}\n      |            ^~~~~~~~\n"
      "      = 'pipeline' stands in run.yaml:1\n");
  CHECK_SAID(
      "schedule: [1f1b]\n", false,
      "run.yaml:1:11: error: 'schedule' must be a map, found a list\n    1 | schedule: [1f1b]\n"
      "      |           ^\n");
  CHECK_SAID(
      P "schedule: {a: 1}}\n", false,
      "run.yaml:1:22: error: 'schedule' must be a text, found a map\n"
      "    1 | pipeline: {schedule: {a: 1}}\n      |                      ^\n");
}

static void test_values(void) {
  CHECK_VALUE(P "microbatches: 16}\n", schedule.pipeline_microbatches, 16);
  CHECK_VALUE("schedule: {pipeline_microbatches: 8}\n", schedule.pipeline_microbatches, 8);
  CHECK_VALUE("schedule: {overlap: true}\n", schedule.all_reduce_overlap, 1);
  CHECK_VALUE(P "virtual_stages: 2, axis: pp}\n", pipeline.virtual_stages, 2);
  CHECK_VALUE(P "workers: 4}\n", pipeline.workers, 4);
  CHECK_VALUE("", pipeline.balance, TSR_BALANCE_FLOPS);
  CHECK_VALUE(P "balance: auto}\n", pipeline.balance, TSR_BALANCE_FLOPS);
  CHECK_VALUE(P "balance: memory}\n", pipeline.balance, TSR_BALANCE_MEMORY);
  CHECK_VALUE("", pipeline.stages_count, 0);
  CHECK_VALUE("", pipeline.blocks_count, 0);
  CHECK_SAID(
      "schedule: {pipeline_microbatches: 8}\npipeline: {microbatches: 8}\n", false,
      "run.yaml:2:12: error: 'microbatches' sets the same as 'pipeline_microbatches'\n"
      "    2 | pipeline: {microbatches: 8}\n      |            ^~~~~~~~~~~~\n"
      "      = 'pipeline_microbatches' stands in run.yaml:1\n");
  CHECK_SAID(
      P "axis: dp}\n", false,
      "run.yaml:1:18: error: unknown axis: the text 'dp'\n    1 | pipeline: {axis: dp}\n"
      "      |                  ^~\n      = did you mean 'pp'?\n");
  CHECK_SAID(
      P "virtual_stages: -1}\n", false,
      "run.yaml:1:28: error: 'virtual_stages' must be at least 0 and at most 4096, found the "
      "integer -1\n"
      "    1 | pipeline: {virtual_stages: -1}\n      |                            ^~\n");
  CHECK_SAID(
      P "workers: 2}\ndevice_config: {enable_pp: true}\n", false,
      "run.yaml:1:12: error: 'workers' contradicts 'enable_pp'\n    1 | pipeline: {workers: 2}\n"
      "      |            ^~~~~~~\n      = 'enable_pp' stands in run.yaml:2\n");
  CHECK_SAID(
      P "workers: 2}\nmesh: {axes: [dp, pp], shape: [2, 2]}\n", false,
      "run.yaml:1:12: error: 'workers' contradicts 'axes'\n    1 | pipeline: {workers: 2}\n"
      "      |            ^~~~~~~\n      = 'axes' stands in run.yaml:2\n");
}

static void check_stage(const loaded *l, int i, const char *name, const char *begin, int col) {
  const tsr_config_stage *s = &l->config->pipeline.stages[i];
  CHECK_STR(s->name, name);
  CHECK_STR(s->begin, begin);
  CHECK_INT(s->location.col, col);
}

static void test_stages(void) {
  loaded l = load(P "stages: [block.3, block.6.n]}\n");
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->pipeline.stages_count, 3);
  check_stage(&l, 0, "", "", 20);
  check_stage(&l, 1, "", "block.3", 21);
  check_stage(&l, 2, "", "block.6.n", 30);
  unload(&l);
  l = load(P "assign: [{name: encoder}, {name: decoder, begin: block.3.n}]}\n");
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->pipeline.stages_count, 2);
  check_stage(&l, 0, "encoder", "", 21);
  check_stage(&l, 1, "decoder", "block.3.n", 38);
  CHECK_INT(tsr_config_location(l.config, "pipeline.stages").col, 20);
  unload(&l);
  l = load(P "stages: [{begin: x, name: first}]}\n");
  CHECK_STR(l.said, "");
  check_stage(&l, 0, "first", "x", 21);
  unload(&l);
  CHECK_VALUE(P "stages: []}\n", pipeline.stages_count, 0);
  CHECK_VALUE(P "stages: ~}\n", pipeline.stages_count, 0);
}

static void test_stage_errors(void) {
  CHECK_SAID(
      P "stages: 4}\n", false,
      "run.yaml:1:20: error: 'stages' must be a list of nodes or of maps {name, begin}, found the "
      "integer 4\n"
      "    1 | pipeline: {stages: 4}\n      |                    ^\n");
  CHECK_SAID(
      P "assign: [block.1, {name: a}]}\n", false,
      "run.yaml:1:30: error: 'assign[1]' must be a text that is not empty, found a map\n"
      "    1 | pipeline: {assign: [block.1, {name: a}]}\n      |                              ^\n");
  CHECK_SAID(
      P "stages: [{name: a}, block.1]}\n", false,
      "run.yaml:1:32: error: 'stages[1]' must be a map, as 'stages[0]' is, found the text "
      "'block.1'\n"
      "    1 | pipeline: {stages: [{name: a}, block.1]}\n"
      "      |                                ^~~~~~~\n");
  CHECK_SAID(
      P "stages: [{name: a}, {name: b}]}\n", false,
      "run.yaml:1:32: error: 'stages[1]' has no begin: the node that the stage begins with\n"
      "    1 | pipeline: {stages: [{name: a}, {name: b}]}\n"
      "      |                                ^\n"
      "      = only the first stage begins where the model does\n");
  CHECK_SAID(
      P "stages: [{begin: a}]}\n", false,
      "run.yaml:1:21: error: 'stages[0]' has no name\n    1 | pipeline: {stages: [{begin: a}]}\n"
      "      |                     ^\n");
  CHECK_SAID(
      P "stages: [{name: a, depth: 3}]}\n", false,
      "run.yaml:1:31: error: unknown key 'depth' in stages[0]\n"
      "    1 | pipeline: {stages: [{name: a, depth: 3}]}\n"
      "      |                               ^~~~~\n      = valid: name, begin\n");
  CHECK_SAID(
      P "stages: [{name: ''}]}\n", false,
      "run.yaml:1:28: error: 'name' must be a text that is not empty, found the text ''\n"
      "    1 | pipeline: {stages: [{name: ''}]}\n      |                            ^~\n");
  CHECK_SAID(
      P "stages: [{name: a}, {name: a, begin: x}]}\n", false,
      "run.yaml:1:32: error: two stages have the name 'a'\n"
      "    1 | pipeline: {stages: [{name: a}, {name: a, begin: x}]}\n"
      "      |                                ^\n");
  CHECK_SAID(
      P "stages: [x, y, x]}\n", false,
      "run.yaml:1:27: error: two stages begin with 'x'\n    1 | pipeline: {stages: [x, y, x]}\n"
      "      |                           ^\n");
  CHECK_SAID(
      P "stages: [x], blocks_per_rank: [1, 2]}\n", false,
      "run.yaml:1:25: error: 'blocks_per_rank' contradicts 'stages'\n"
      "    1 | pipeline: {stages: [x], blocks_per_rank: [1, 2]}\n"
      "      |                         ^~~~~~~~~~~~~~~\n      = 'stages' stands in run.yaml:1\n");
}

static void check_blocks(const char *text, int count, const int *want) {
  loaded l = load(text);
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->pipeline.blocks_count, count);
  for (int i = 0; i < count && l.ok; i++) CHECK_INT(l.config->pipeline.blocks_per_rank[i], want[i]);
  unload(&l);
}

static void test_blocks(void) {
  static const int two[] = {6, 7}, three[] = {5, 6, 7};
  check_blocks(P "blocks_per_rank: [6, 7]}\n", 2, two);
  check_blocks(P "blocks_per_rank: {0: 6, 1: 7}}\n", 2, two);
  check_blocks("pipeline:\n  blocks_per_rank:\n    2: 7\n    0: 5\n    0x1: 6\n", 3, three);
  check_blocks(P "blocks_per_rank: []}\n", 0, NULL);
  loaded l = load("pipeline:\n  blocks_per_rank:\n    0: 5\n");
  CHECK_INT(l.config->pipeline.blocks_place.line, 3);
  CHECK_INT(tsr_config_location(l.config, "pipeline.blocks_per_rank").line, 3);
  unload(&l);
  CHECK_SAID(
      P "blocks_per_rank: 4}\n", false,
      "run.yaml:1:29: error: 'blocks_per_rank' must be a list of integers or a map {rank: "
      "integer}, found the integer 4\n"
      "    1 | pipeline: {blocks_per_rank: 4}\n      |                             ^\n");
  CHECK_SAID(
      P "blocks_per_rank: [4, 0, x]}\n", false,
      "run.yaml:1:33: error: 'blocks_per_rank[1]' must be at least 1 and at most 65536, found the "
      "integer 0\n"
      "    1 | pipeline: {blocks_per_rank: [4, 0, x]}\n"
      "      |                                 ^\n"
      "run.yaml:1:36: error: 'blocks_per_rank[2]' must be an integer, found the text 'x'\n"
      "    1 | pipeline: {blocks_per_rank: [4, 0, x]}\n"
      "      |                                    ^\n");
  CHECK_SAID(
      P "blocks_per_rank: {0: 6, 2: 7}}\n", false,
      "run.yaml:1:36: error: 'blocks_per_rank' has 2 entries: its ranks are 0 to 1, found the "
      "integer 2\n"
      "    1 | pipeline: {blocks_per_rank: {0: 6, 2: 7}}\n"
      "      |                                    ^\n");
  CHECK_SAID(
      P "blocks_per_rank: {0: 6, 0x0: 7}}\n", false,
      "run.yaml:1:36: error: 'blocks_per_rank' has rank 0 twice\n"
      "    1 | pipeline: {blocks_per_rank: {0: 6, 0x0: 7}}\n"
      "      |                                    ^~~\n");
}

#define HOSTS "multihost_config: {enabled: true, "
#define BLOCKS(n, blocks)                                                                          \
  "pipeline_parallel_config: {num_blocks: " n ", blocks_per_rank: " blocks "}}"

static void check_multihost(const char *text, const char *key) {
  static const int want[] = {6, 7, 5};
  loaded l = load(text);
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->pipeline.workers, 3);
  CHECK_INT(l.config->pipeline.blocks_count, 3);
  for (int i = 0; i < 3; i++) CHECK_INT(l.config->pipeline.blocks_per_rank[i], want[i]);
  CHECK_STR(tsr_config_location(l.config, "pipeline.workers").file, "run.yaml");
  CHECK_INT(tsr_config_location(l.config, key).line, 1);
  CHECK_INT(tsr_config_location(l.config, "pipeline.blocks_per_rank").line, 1);
  unload(&l);
}

static void test_multihost(void) {
  check_multihost(HOSTS "num_workers: 3, " BLOCKS("18", "{0: 6, 1: 7, 2: 5}"), "multihost_config");
  check_multihost(
      "training_config: {" HOSTS "num_workers: 3, " BLOCKS("18", "{1: 7, 0: 6, 2: 5}") "}",
      "training_config.multihost_config");
  check_multihost(
      "model_config: {transformer_config: {num_heads: 2}, " HOSTS
      "num_workers: 3, " BLOCKS("18", "[6, 7, 5]") "}",
      "multihost_config");
  CHECK_SAID(
      "multihost_config: {num_workers: 0, socket_type: fabric}\n", true,
      "run.yaml:1:1: warning: 'multihost_config' has no effect: it is not enabled\n"
      "    1 | multihost_config: {num_workers: 0, socket_type: fabric}\n"
      "      | ^~~~~~~~~~~~~~~~\n");
  CHECK_VALUE("multihost_config:\n", pipeline.workers, 0);
  /* An override goes to where the section stands. */
  const char *sets[] = {
      "multihost_config.num_workers=2",
      "multihost_config.pipeline_parallel_config.blocks_per_rank=[9, 9]"};
  loaded l = load_with(
      "training_config: {" HOSTS "num_workers: 3, " BLOCKS("18", "[6, 7, 5]") "}", sets, 2);
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->pipeline.workers, 2);
  CHECK_INT(l.config->pipeline.blocks_count, 2);
  CHECK_STR(tsr_config_location(l.config, "pipeline.workers").file, "--set");
  unload(&l);
}

static void test_multihost_counts(void) {
  CHECK_SAID(
      HOSTS "num_workers: 2, " BLOCKS("12", "[6, 5]") "\n", false,
      "run.yaml:1:90: error: Number of blocks must match number of blocks per rank.\n"
      "    1 | multihost_config: {enabled: true, num_workers: 2, pipeline_parallel_config: "
      "{num_blocks: 12, blocks_per_rank: [6, 5]}}\n"
      "      |                                                                                    "
      "      ^~\n"
      "      = num_blocks is 12, blocks_per_rank makes 11\n");
  CHECK_SAID(
      HOSTS "num_workers: 3,\n " BLOCKS("12", "[6, 6]") "\n", false,
      "run.yaml:2:62: error: 'blocks_per_rank' has 2 ranks, but num_workers is 3\n"
      "    2 |  pipeline_parallel_config: {num_blocks: 12, blocks_per_rank: [6, 6]}}\n"
      "      |                                                              ^\n");
  CHECK_SAID(
      HOSTS "num_workers: 1,\n " BLOCKS("12", "[12]") "\n", false,
      "run.yaml:1:48: error: a pipeline over processes has at least 2, found 1\n"
      "    1 | multihost_config: {enabled: true, num_workers: 1,\n"
      "      |                                                ^\n");
  CHECK_SAID(
      "multihost_config: {enabled: true, pipeline_parallel_config: {}}\n", false,
      "run.yaml:1:1: error: 'multihost_config' has no 'num_workers'\n"
      "    1 | multihost_config: {enabled: true, pipeline_parallel_config: {}}\n"
      "      | ^~~~~~~~~~~~~~~~\n"
      "run.yaml:1:35: error: 'pipeline_parallel_config' has no 'num_blocks'\n"
      "    1 | multihost_config: {enabled: true, pipeline_parallel_config: {}}\n"
      "      |                                   ^~~~~~~~~~~~~~~~~~~~~~~~\n"
      "run.yaml:1:35: error: 'pipeline_parallel_config' has no 'blocks_per_rank'\n"
      "    1 | multihost_config: {enabled: true, pipeline_parallel_config: {}}\n"
      "      |                                   ^~~~~~~~~~~~~~~~~~~~~~~~\n");
}

static void test_multihost_words(void) {
  CHECK_SAID(
      HOSTS "num_workers: 3, socket_type: mpi}\n", false,
      "run.yaml:1:1: error: unsupported feature: an aggregator and an optimizer process "
      "(multihost_config without pipeline_parallel_config)\n"
      "    1 | multihost_config: {enabled: true, num_workers: 3, socket_type: mpi}\n"
      "      | ^~~~~~~~~~~~~~~~\n");
  CHECK_SAID(
      HOSTS "socket_type: fabric, num_workers: 2,\n " BLOCKS("2", "[1, 1]") "\n", true,
      "run.yaml:1:35: warning: 'socket_type' has no effect: the transport is chosen by the "
      "process\n"
      "    1 | multihost_config: {enabled: true, socket_type: fabric, num_workers: 2,\n"
      "      |                                   ^~~~~~~~~~~\n");
  CHECK_SAID(
      HOSTS "socket_type: tcp, num_workers: 2,\n " BLOCKS("2", "[1, 1]") "\n", false,
      "run.yaml:1:48: error: Unknown socket type: tcp\n"
      "    1 | multihost_config: {enabled: true, socket_type: tcp, num_workers: 2,\n"
      "      |                                                ^~~\n      = valid: mpi, fabric\n");
  CHECK_SAID(
      HOSTS "workers: 2}\n", false,
      "run.yaml:1:35: error: unknown key 'workers' in multihost_config\n"
      "    1 | multihost_config: {enabled: true, workers: 2}\n"
      "      |                                   ^~~~~~~\n"
      "      = 'workers' belongs in pipeline\n"
      "run.yaml:1:1: error: unsupported feature: an aggregator and an optimizer process "
      "(multihost_config without pipeline_parallel_config)\n"
      "    1 | multihost_config: {enabled: true, workers: 2}\n"
      "      | ^~~~~~~~~~~~~~~~\n");
  CHECK_SAID(
      "multihost_config: {enabled: 1}\n", false,
      "run.yaml:1:29: error: 'enabled' must be true or false, found the integer 1\n"
      "    1 | multihost_config: {enabled: 1}\n      |                             ^\n");
  CHECK_SAID(
      "training_config: {multihost_config: {}}\nmultihost_config: {}\n", false,
      "run.yaml:2:1: warning: 'multihost_config' has no effect: it is not enabled\n"
      "    2 | multihost_config: {}\n      | ^~~~~~~~~~~~~~~~\n"
      "run.yaml:1:19: error: a second 'multihost_config'\n"
      "    1 | training_config: {multihost_config: {}}\n      |                   "
      "^~~~~~~~~~~~~~~~\n"
      "      = the first stands in run.yaml:2\n");
  CHECK_SAID(
      "training_config: {multihost_config: [a]}\n", false,
      "run.yaml:1:37: error: 'multihost_config' must be a path or a map, found a list\n"
      "    1 | training_config: {multihost_config: [a]}\n"
      "      |                                     ^\n");
  CHECK_SAID(
      HOSTS "num_workers: 2,\n " BLOCKS("2", "[1, 1]") "\npipeline: {workers: 2}\n", false,
      "run.yaml:3:12: error: 'workers' sets the same as 'num_workers'\n"
      "    3 | pipeline: {workers: 2}\n      |            ^~~~~~~\n"
      "      = 'num_workers' stands in run.yaml:1\n");
}

int main(void) {
  test_schedule();
  test_schedule_errors();
  test_values();
  test_stages();
  test_stage_errors();
  test_blocks();
  test_multihost();
  test_multihost_counts();
  test_multihost_words();
  return check_done("config.pipeline");
}
