// SPDX-License-Identifier: Apache-2.0
/* Files that a configuration names: beside it, above it, in the working directory, by environment
 * variables and by the tails of their paths. */
#include "base/file_read.h"
#include "base/new_file.h"
#include "helper.h"
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/tessera-config-XXXXXX";
static tsr_arena *arena;

static void write_file(const char *name, const char *text) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_file_forget();
  CHECK(tsr_file_write(tsr_arena_printf(arena, "%s/%s", root, name), text, strlen(text), diags));
}

static void make_folder(const char *name) {
  CHECK(mkdir(tsr_arena_printf(arena, "%s/%s", root, name), 0700) == 0);
}

static tsr_config *
load_file(const char *name, const char *const *texts, int count, char **ret_said) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_config *config = NULL;
  tsr_set sets[SETS_MAX] = {0};
  for (int i = 0; i < count && i < SETS_MAX; i++) sets[i].text = texts[i];
  tsr_config_load(arena, tsr_arena_printf(arena, "%s/%s", root, name), sets, count, &config, diags);
  *ret_said = printed_diags(arena, diags);
  return config;
}

/* The number of heads says which of the files was found. */
static void check_heads(const char *run, const char *model, const char *heads) {
  write_file(run, tsr_arena_printf(arena, "training_config: {model_config: '%s'}\n", model));
  char *said;
  tsr_config *config = load_file(run, NULL, 0, &said);
  CHECK_STR(said, "");
  if (config && config->model.map)
    CHECK_STR(tsr_yaml_get(config->model.map, "num_heads")->text, heads);
}

static void write_model(const char *name, int heads) {
  write_file(
      name,
      tsr_arena_printf(arena, "transformer_config: {model_type: gpt2, num_heads: %d}\n", heads));
}

static void test_places(void) {
  write_model("model.yaml", 1);
  write_model("runs/beside.yaml", 2);
  write_model("model_configs/nested.yaml", 3);
  check_heads("runs/run.yaml", "beside.yaml", "2");
  check_heads("runs/run.yaml", "model.yaml", "1");
  check_heads("runs/run.yaml", "model_configs/nested.yaml", "3");
  check_heads("runs/run.yaml", "nested.yaml", "3");
  check_heads("runs/run.yaml", "../model.yaml", "1");
  check_heads("runs/run.yaml", tsr_arena_printf(arena, "%s/model.yaml", root), "1");
  check_heads("runs/run.yaml", "${TESSERA_TEST_UNSET}/tt/configs/model_configs/nested.yaml", "3");
  setenv("TESSERA_TEST_SET", root, 1);
  check_heads("runs/run.yaml", "${TESSERA_TEST_SET}/runs/beside.yaml", "2");
}

static void test_sections(void) {
  char *said;
  write_file("sgd.yaml", "type: SGD\nlr: 0.5\n");
  write_file("device.yaml", "device_config:\n  enable_tp: true\n  mesh_shape: [1, 8]\n");
  write_file(
      "run2.yaml",
      "optimizer_config: sgd.yaml\ndevice_config: device.yaml\nmodel_config: model.yaml\n");
  const char *sets[] = {"training_config.optimizer.momentum=0.9", "transformer_config.num_heads=7"};
  tsr_config *config = load_file("run2.yaml", sets, 2, &said);
  CHECK_STR(said, "");
  CHECK_NEAR(config->optimizer.lr, 0.5, 0);
  CHECK_NEAR(config->optimizer.momentum, 0.9, 0);
  CHECK(config->device.enable_tp && config->device.mesh_shape[1] == 8);
  CHECK_STR(tsr_yaml_get(config->model.map, "num_heads")->text, "7");
  CHECK(strstr(tsr_config_location(config, "optimizer.lr").file, "sgd.yaml"));
  const char *other = "model_config=runs/beside.yaml";
  config = load_file("run2.yaml", &other, 1, &said);
  CHECK_STR(tsr_yaml_get(config->model.map, "num_heads")->text, "2");
}

/* Overrides that name files, and overrides into what these hold. */
static void test_set_files(void) {
  char *said;
  write_file(
      "train.yaml", "training_config: {optimizer: none.yaml, seed: 3, model_config: model.yaml}\n");
  write_file("run7.yaml", "device_config: none.yaml\n");
  const char *sets[] = {
      "training_config.optimizer.momentum=0.25", "training_config.optimizer=sgd.yaml",
      "device_config=device.yaml", "device_config.enable_ddp=true",
      "model_config=runs/beside.yaml"};
  tsr_config *config = load_file("run7.yaml", sets, 5, &said);
  CHECK_STR(said, "");
  CHECK_NEAR(config->optimizer.lr, 0.5, 0);
  CHECK_NEAR(config->optimizer.momentum, 0.25, 0);
  CHECK(config->device.enable_tp && config->device.enable_ddp);
  CHECK_STR(tsr_yaml_get(config->model.map, "num_heads")->text, "2");

  const char *inner[] = {"device_config=", "training_config={optimizer: sgd.yaml}"};
  config = load_file("run7.yaml", inner, 2, &said);
  CHECK(strstr(said, "run7.yaml:1:16: error: cannot find 'none.yaml'"));
  CHECK_NEAR(config->optimizer.lr, 0.5, 0);

  /* Within a section that is itself in a file. */
  write_file("run8.yaml", "training_config: train.yaml\n");
  const char *deep = "training_config.model_config=runs/beside.yaml";
  config = load_file("run8.yaml", &deep, 1, &said);
  CHECK(strstr(said, "train.yaml:1:30: error: cannot find 'none.yaml'"));
  CHECK_INT(config->training.seed, 3);
  CHECK_STR(tsr_yaml_get(config->model.map, "num_heads")->text, "2");
}

static void test_graph(void) {
  char *said;
  write_file("own.yaml", "graph: []\n");
  write_file(
      "run3.yaml",
      "model_config: {graph: own.yaml, transformer_config: {model_type: mine, n: 1}}\n");
  tsr_config *config = load_file("run3.yaml", NULL, 0, &said);
  CHECK_STR(said, "");
  CHECK_STR(config->model.graph_file, tsr_arena_printf(arena, "%s/own.yaml", root));
  CHECK_STR(config->model.model_type, "mine");
  write_file("run4.yaml", "model_config: {graph: own.yaml, n: 1}\n");
  config = load_file("run4.yaml", NULL, 0, &said);
  CHECK_STR(said, "");
  CHECK_STR(config->model.kind, "transformer");
}

/* The order of a pipeline, and tt-train's multihost_config, which may be named in two places. */
static void test_pipeline(void) {
  char *said;
  write_file("own.sched", "stages: 1\n");
  write_file(
      "hosts.yaml", "multihost_config:\n  enabled: true\n  num_workers: 2\n"
                    "  pipeline_parallel_config: {num_blocks: 5, blocks_per_rank: {0: 2, 1: 3}}\n");
  write_file(
      "run9.yaml", "schedule: file:own.sched\ntraining_config: {multihost_config: hosts.yaml}\n");
  tsr_config *config = load_file("run9.yaml", NULL, 0, &said);
  CHECK_STR(said, "");
  CHECK_STR(config->pipeline.schedule, "file:own.sched");
  CHECK_STR(config->pipeline.schedule_file, tsr_arena_printf(arena, "%s/own.sched", root));
  CHECK_INT(config->pipeline.workers, 2);
  CHECK_INT(config->pipeline.blocks_per_rank[1], 3);
  CHECK(strstr(tsr_config_location(config, "pipeline.workers").file, "hosts.yaml"));
  const char *sets[] = {
      "training_config.multihost_config=", "multihost_config=hosts.yaml", "schedule=gpipe"};
  config = load_file("run9.yaml", sets, 3, &said);
  CHECK(strstr(said, "error: a second 'multihost_config'"));
  const char *other[] = {
      "training_config={}", "multihost_config=hosts.yaml", "pipeline.schedule=file:own.sched",
      "schedule={}"};
  config = load_file("run9.yaml", other, 4, &said);
  CHECK_STR(said, "");
  CHECK_INT(config->pipeline.workers, 2);
  CHECK_STR(config->pipeline.schedule_file, tsr_arena_printf(arena, "%s/own.sched", root));
}

static void test_missing(void) {
  char *said;
  write_file("run5.yaml", "device_config: none.yaml\n");
  load_file("run5.yaml", NULL, 0, &said);
  CHECK(strstr(said, "run5.yaml:1:16: error: cannot find 'none.yaml'"));
  write_file("run6.yaml", "model_config: ${TESSERA_TEST_UNSET}/none.yaml\n");
  load_file("run6.yaml", NULL, 0, &said);
  CHECK(strstr(said, "error: cannot find '${TESSERA_TEST_UNSET}/none.yaml'"));
  CHECK(strstr(said, "= the environment variable TESSERA_TEST_UNSET is not set"));
  load_file("none.yaml", NULL, 0, &said);
  CHECK(strstr(said, "error: cannot read '") && strstr(said, "none.yaml': No such file"));
}

static void remove_all(void) {
  static const char *const names[] = {
      "runs/run.yaml",
      "runs/beside.yaml",
      "runs",
      "model_configs/nested.yaml",
      "model_configs",
      "model.yaml",
      "sgd.yaml",
      "device.yaml",
      "own.yaml",
      "run2.yaml",
      "run3.yaml",
      "run4.yaml",
      "run5.yaml",
      "run6.yaml",
      "run7.yaml",
      "run8.yaml",
      "train.yaml",
      "own.sched",
      "hosts.yaml",
      "run9.yaml",
      ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    remove(tsr_arena_printf(arena, "%s/%s", root, names[i]));
}

int main(void) {
  arena = tsr_arena_new();
  CHECK(mkdtemp(root) != NULL);
  unsetenv("TESSERA_TEST_UNSET");
  make_folder("runs");
  make_folder("model_configs");
  test_places();
  test_sections();
  test_set_files();
  test_graph();
  test_pipeline();
  test_missing();
  remove_all();
  tsr_arena_free(arena);
  return check_done("config.files");
}
