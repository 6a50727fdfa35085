// SPDX-License-Identifier: Apache-2.0
#include "helper.h"

static void check_sets(const char *text, const char *set, bool want_ok, const char *want) {
  loaded l = load_with(text, &set, 1);
  CHECK_INT(l.ok, want_ok);
  CHECK_STR(l.said, want);
  unload(&l);
}

static void test_values(void) {
  const char *sets[] = {"training_config.batch_size=8",    "training_config.optimizer.lr=3e-5",
                        "device_config.mesh_shape=[2, 4]", "eval_config.prompt=\"a: b\"",
                        "transformer_config.num_heads=12", "numerics.units={tp: 4}",
                        "training_config.batch_size=9"};
  loaded l = load_with(
      "training_config: &t {batch_size: 4, optimizer: {beta1: 0.5}}\n"
      "transformer_config: {model_type: gpt2}\n",
      sets, 7);
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->training.batch_size, 9);
  CHECK_NEAR(l.config->optimizer.lr, 3e-5, 0);
  CHECK_NEAR(l.config->optimizer.beta1, 0.5, 0);
  CHECK_INT(l.config->device.mesh_shape[1], 4);
  CHECK_STR(l.config->eval.prompt, "a: b");
  CHECK_INT(l.config->numerics.units_tp, 4);
  CHECK_STR(tsr_yaml_get(l.config->model.map, "num_heads")->text, "12");
  tsr_location location = tsr_config_location(l.config, "training_config.batch_size");
  CHECK_STR(location.file, "--set");
  CHECK_INT(location.line, 7);
  CHECK_INT(location.col, 28);
  CHECK_STR(tsr_config_location(l.config, "optimizer.beta1").file, "run.yaml");
  CHECK_INT(tsr_config_location(l.config, "training_config.optimizer.lr").line, 2);
  CHECK_STR(tsr_config_location(l.config, "transformer_config.num_heads").file, "--set");
  CHECK(!tsr_config_location(l.config, "training_config.seed").file);
  unload(&l);
}

/* Aliases share nodes; an override changes one place only. */
static void test_aliases(void) {
  const char *set = "training_config.optimizer.lr=0.25";
  loaded l = load_with(
      "training_config: {optimizer: &o {lr: 0.5}}\ntransformer_config: {own: *o}\n", &set, 1);
  CHECK_NEAR(l.config->optimizer.lr, 0.25, 0);
  CHECK_STR(tsr_yaml_get(tsr_yaml_get(l.config->model.map, "own"), "lr")->text, "0.5");
  unload(&l);
}

static void test_inner_files(void) {
  const char *sets[] = {"optimizer_config.lr=0.25", "transformer_config.num_heads=3"};
  loaded l = load_with(
      "optimizer_config: {type: SGD, lr: 1}\nmodel_config: {transformer_config: {num_heads: 2}}\n",
      sets, 2);
  CHECK_STR(l.said, "");
  CHECK_NEAR(l.config->optimizer.lr, 0.25, 0);
  CHECK_STR(tsr_yaml_get(l.config->model.map, "num_heads")->text, "3");
  unload(&l);
}

static void test_errors(void) {
  check_sets(
      "", "training_config.batch_size=abc", false,
      "--set:1:28: error: 'batch_size' must be an integer, found the text 'abc'\n"
      "    1 | training_config.batch_size=abc\n      |                            ^~~\n");
  check_sets(
      "", "training_config.bach_size=8", false,
      "--set:1:17: error: unknown key 'bach_size' in training_config\n"
      "    1 | training_config.bach_size=8\n      |                 ^~~~~~~~~\n"
      "      = did you mean 'batch_size'?\n");
  check_sets(
      "", "training_confg.batch_size=8", false,
      "--set:1:1: error: unknown key 'training_confg' at the top level\n"
      "    1 | training_confg.batch_size=8\n      | ^~~~~~~~~~~~~~\n"
      "      = did you mean 'training_config'?\n");
  check_sets(
      "", "training_config", false,
      "--set:1:1: error: an override is section.key=value\n    1 | training_config\n"
      "      | ^~~~~~~~~~~~~~~\n      = such as training_config.batch_size=8\n");
  check_sets(
      "", "training_config..seed=1", false,
      "--set:1:1: error: 'training_config..seed' is not a key\n    1 | training_config..seed=1\n"
      "      | ^~~~~~~~~~~~~~~~~~~~~\n");
  check_sets(
      "training_config: {seed: 1}\n", "training_config.seed.x=1", false,
      "--set:1:22: error: 'training_config.seed' is the integer 1, it has no key 'x'\n"
      "    1 | training_config.seed.x=1\n      |                      ^\n");
  check_sets(
      "", "device_config.mesh_shape=[1, 2", false,
      "--set:1:31: error: not YAML: did not find expected ',' or ']' while parsing a flow "
      "sequence\n"
      "    1 | device_config.mesh_shape=[1, 2\n      |                               ^\n");
}

static const char looked[] =
    "      = looked in the working directory, beside run.yaml and in the folders above it\n";

/* A section's override is what the same line in the file is. */
static void check_no_file(const char *set, const char *value) {
  loaded l = load_with("", &set, 1);
  int col = (int)(strstr(set, value) - set) + 1;
  CHECK_STR(
      l.said,
      tsr_arena_printf(
          l.arena, "--set:1:%d: error: cannot find '%s'\n    1 | %s\n      | %*s^%.*s\n%s", col,
          value, set, col - 1, "", (int)strlen(value) - 1, "~~~~~~~~~~~~~~~~", looked));
  unload(&l);
}

static void test_sections(void) {
  check_no_file("device_config=devf.yaml", "devf.yaml");
  check_no_file("training_config=3", "3");
  check_no_file("training_config.optimizer=3", "3");
  check_no_file("training_config.optimizer_config=3", "3");
  check_no_file("scheduler_config=nope.yaml", "nope.yaml");
  check_no_file("eval_config=foo", "foo");
  check_no_file("model_config=foo", "foo");
  check_no_file("training_config={optimizer: sgd.yml}", "sgd.yml");
  check_sets(
      "", "numerics=3", false,
      "--set:1:10: error: 'numerics' must be a map, found the integer 3\n    1 | numerics=3\n"
      "      |          ^\n");
  check_sets(
      "", "transformer_config=3", false,
      "--set:1:20: error: 'transformer_config' must be a map, found the integer 3\n"
      "    1 | transformer_config=3\n      |                    ^\n");
  /* Whole sections, in the order of the overrides. */
  const char *sets[] = {
      "training_config.seed=1", "training_config={batch_size: 2}", "training_config.max_steps=3"};
  loaded l = load_with("training_config: {sequence_length: 4}\n", sets, 3);
  CHECK_STR(l.said, "");
  CHECK_INT(l.config->training.seed, 5489);
  CHECK_INT(l.config->training.batch_size, 2);
  CHECK_INT(l.config->training.max_steps, 3);
  CHECK_INT(l.config->training.sequence_length, 0);
  unload(&l);
}

int main(void) {
  test_values();
  test_aliases();
  test_inner_files();
  test_errors();
  test_sections();
  return check_done("config.override");
}
