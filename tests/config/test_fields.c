// SPDX-License-Identifier: Apache-2.0
/* Every type of field: what it takes, and the words with which it refuses. */
#include "helper.h"

#define T "training_config: {"
#define D "device_config: {"

static void test_values(void) {
  CHECK_VALUE(T "batch_size: 0x10}", training.batch_size, 16);
  CHECK_VALUE(T "total_steps: 7}", training.max_steps, 7);
  CHECK_VALUE(T "seed: 9223372036854775807}", training.seed, 9223372036854775807.0);
  CHECK_VALUE(T "optimizer: {lr: 3e-5}}", optimizer.lr, 3e-5);
  CHECK_VALUE(T "optimizer: {eps: 1}}", optimizer.epsilon, 1);
  CHECK_VALUE(T "ignore_index: -1}", training.ignore_index, -1);
  CHECK_VALUE(T "tokenizer_type: bpe}", training.tokenizer_type, TSR_TOKENS_BPE);
  CHECK_VALUE(T "checkpoint_every: 3}", training.model_save_interval, 3);
  CHECK_VALUE(D "enable_ddp: True}", device.enable_ddp, 1);
  CHECK_VALUE(D "memory_limit: 4096}", device.memory_limit, 4096);
  CHECK_VALUE(D "memory_limit: 1.5GiB}", device.memory_limit, 1610612736);
  CHECK_VALUE(D "memory_limit: 20 MB}", device.memory_limit, 20e6);
  CHECK_VALUE(D "mesh_shape: [4, 8], device_ids: ~}", device.mesh_shape[1], 8);
  CHECK_VALUE(D "mesh_shape: [4, 8]}", device.mesh_ndim, 2);
  CHECK_VALUE(D "device_ids: [3, 1]}", device.device_ids[0], 3);
  CHECK_VALUE("eval_config: {top_p: 1}", eval.top_p, 1);
  CHECK_VALUE("eval_config: {top_k: -1}", eval.top_k, -1);
  CHECK_VALUE("numerics: {units: {tp: 4}, policy: fast}", numerics.units_tp, 4);
  CHECK_VALUE("training_config:\ndevice_config: {}\n", training.batch_size, 64);
  CHECK_VALUE("", optimizer.lr, 1e-3);
}

static void test_types(void) {
  CHECK_SAID(
      T "batch_size: abc}", false,
      "run.yaml:1:31: error: 'batch_size' must be an integer, found the text 'abc'\n"
      "    1 | training_config: {batch_size: abc}\n      |                               ^~~\n");
  CHECK_SAID(
      T "batch_size: 8.0}", false,
      "run.yaml:1:31: error: 'batch_size' must be an integer, found the number 8.0\n"
      "    1 | training_config: {batch_size: 8.0}\n      |                               ^~~\n"
      "      = write 8\n");
  CHECK_SAID(
      "training_config:\n  batch_size:\n", false,
      "run.yaml:2:14: error: 'batch_size' must be an integer, found nothing\n"
      "    2 |   batch_size:\n      |              ^\n");
  CHECK_SAID(
      T "learning_rate: \"3e-5\"}", false,
      "run.yaml:1:34: error: 'learning_rate' must be a number, found the text '3e-5'\n"
      "    1 | training_config: {learning_rate: \"3e-5\"}\n"
      "      |                                  ^~~~~~\n"
      "      = without quotes it is a number\n");
  CHECK_SAID(
      D "enable_tp: yes}", false,
      "run.yaml:1:28: error: 'enable_tp' must be true or false, found the text 'yes'\n"
      "    1 | device_config: {enable_tp: yes}\n      |                            ^~~\n"
      "      = write true\n");
  CHECK_SAID(
      T "tokenizer_type: chr}", false,
      "run.yaml:1:35: error: unknown tokenizer_type: the text 'chr'\n"
      "    1 | training_config: {tokenizer_type: chr}\n"
      "      |                                   ^~~\n      = did you mean 'char'?\n");
  CHECK_SAID(
      T "tokenizer_type: words}", false,
      "run.yaml:1:35: error: unknown tokenizer_type: the text 'words'\n"
      "    1 | training_config: {tokenizer_type: words}\n"
      "      |                                   ^~~~~\n      = valid: char, byte, bpe\n");
  CHECK_SAID(
      T "optimizer: {type: AdamX}}", false,
      "run.yaml:1:37: error: unknown optimizer type 'AdamX'\n"
      "    1 | training_config: {optimizer: {type: AdamX}}\n"
      "      |                                     ^~~~~\n      = did you mean 'AdamW'?\n");
}

static void test_types_of_sections(void) {
  CHECK_SAID(
      "scheduler_config: {type: 3}", false,
      "run.yaml:1:26: error: unknown scheduler type: the integer 3\n"
      "    1 | scheduler_config: {type: 3}\n      |                          ^\n"
      "      = valid: constant, identity, linear, warmup_linear, cosine, wsd\n");
  CHECK_SAID(
      T "scheduler_type: wsx}", false,
      "run.yaml:1:35: error: unknown scheduler type 'wsx'\n"
      "    1 | training_config: {scheduler_type: wsx}\n"
      "      |                                   ^~~\n      = did you mean 'wsd'?\n");
  CHECK_SAID(
      D "memory_limit: 8 gigs}", false,
      "run.yaml:1:31: error: 'memory_limit' must be a count of bytes or a text like 8GiB, found "
      "the "
      "text '8 gigs'\n    1 | device_config: {memory_limit: 8 gigs}\n"
      "      |                               ^~~~~~\n");
  CHECK_SAID(
      D "mesh_shape: 8}", false,
      "run.yaml:1:29: error: 'mesh_shape' must be a list of 1 to 4 integers, found the integer 8\n"
      "    1 | device_config: {mesh_shape: 8}\n      |                             ^\n");
  CHECK_SAID(
      T "project_name: [a]}", false,
      "run.yaml:1:33: error: 'project_name' must be a text, found a list\n"
      "    1 | training_config: {project_name: [a]}\n      |                                 ^\n");
  CHECK_SAID(
      "training_config: 5\n", false,
      "run.yaml:1:18: error: cannot find '5'\n    1 | training_config: 5\n"
      "      |                  ^\n"
      "      = looked in the working directory, beside run.yaml and in the folders above it\n");
  CHECK_SAID(
      "numerics: 5\n", false,
      "run.yaml:1:11: error: 'numerics' must be a map, found the integer 5\n    1 | numerics: 5\n"
      "      |           ^\n");
  CHECK_SAID(
      "- a\n", false,
      "run.yaml:1:1: error: a configuration is a map of sections, found a list\n    1 | - a\n"
      "      | ^\n");
}

static void test_ranges(void) {
  CHECK_SAID(
      T "batch_size: 0}", false,
      "run.yaml:1:31: error: 'batch_size' must be at least 1 and at most 16777216, found "
      "the integer 0\n"
      "    1 | training_config: {batch_size: 0}\n      |                               ^\n");
  CHECK_SAID(
      T "optimizer: {lr: 0}}", false,
      "run.yaml:1:35: error: 'lr' must be above 0, found the integer 0\n"
      "    1 | training_config: {optimizer: {lr: 0}}\n"
      "      |                                   ^\n");
  CHECK_SAID(
      T "optimizer: {beta1: 1.0}}", false,
      "run.yaml:1:38: error: 'beta1' must be at least 0 and below 1, found the number 1.0\n"
      "    1 | training_config: {optimizer: {beta1: 1.0}}\n"
      "      |                                      ^~~\n");
  CHECK_SAID(
      "eval_config: {top_p: 0}", false,
      "run.yaml:1:22: error: 'top_p' must be above 0 and at most 1, found the integer 0\n"
      "    1 | eval_config: {top_p: 0}\n      |                      ^\n");
}

static void test_numbers_that_do_not_fit(void) {
  CHECK_SAID(
      T "optimizer: {lr: .inf}}", false,
      "run.yaml:1:35: error: 'lr' must be a finite number, found the number .inf\n"
      "    1 | training_config: {optimizer: {lr: .inf}}\n"
      "      |                                   ^~~~\n");
  CHECK_SAID(
      T "optimizer: {lr: .nan}}", false,
      "run.yaml:1:35: error: 'lr' must be a finite number, found the number .nan\n"
      "    1 | training_config: {optimizer: {lr: .nan}}\n"
      "      |                                   ^~~~\n");
  CHECK_SAID(
      T "learning_rate: -1e400}", false,
      "run.yaml:1:34: error: 'learning_rate' must be a finite number, found the number -1e400\n"
      "    1 | training_config: {learning_rate: -1e400}\n"
      "      |                                  ^~~~~~\n");
  CHECK_SAID(
      T "max_steps: 9223372036854775808}", false,
      "run.yaml:1:30: error: 'max_steps' is out of range, found the number 9223372036854775808\n"
      "    1 | training_config: {max_steps: 9223372036854775808}\n"
      "      |                              ^~~~~~~~~~~~~~~~~~~\n"
      "      = integers are from -9223372036854775808 to 9223372036854775807\n");
  CHECK_SAID(
      D "device_ids: [1, 0x1ffffffffffffffff]}", false,
      "run.yaml:1:33: error: 'device_ids[1]' is out of range, found the text "
      "'0x1ffffffffffffffff'\n"
      "    1 | device_config: {device_ids: [1, 0x1ffffffffffffffff]}\n"
      "      |                                 ^~~~~~~~~~~~~~~~~~~\n"
      "      = integers are from -9223372036854775808 to 9223372036854775807\n");
  CHECK_SAID(
      D "memory_limit: 10000000 TiB}", false,
      "run.yaml:1:31: error: 'memory_limit' is out of range, found the text '10000000 TiB'\n"
      "    1 | device_config: {memory_limit: 10000000 TiB}\n"
      "      |                               ^~~~~~~~~~~~\n");
  CHECK_SAID(
      D "mesh_shape: [2, 0]}", false,
      "run.yaml:1:33: error: 'mesh_shape[1]' must be at least 1, found the integer 0\n"
      "    1 | device_config: {mesh_shape: [2, 0]}\n      |                                 ^\n");
  CHECK_SAID(
      D "mesh_shape: [1, 1, 1, 1, 1]}", false,
      "run.yaml:1:29: error: 'mesh_shape' has 5 dimensions, a mesh has at most 4\n"
      "    1 | device_config: {mesh_shape: [1, 1, 1, 1, 1]}\n"
      "      |                             ^\n");
  CHECK_SAID(
      D "device_ids: [1, 2, 1]}", false,
      "run.yaml:1:36: error: 'device_ids' names device 1 twice\n"
      "    1 | device_config: {device_ids: [1, 2, 1]}\n"
      "      |                                    ^\n");
  CHECK_SAID(
      "mesh: {axes: [dp, xp], shape: [2, 2]}", false,
      "run.yaml:1:19: error: unknown axis: the text 'xp'\n"
      "    1 | mesh: {axes: [dp, xp], shape: [2, 2]}\n      |                   ^~\n"
      "      = did you mean 'dp'?\n");
}

static void test_keys(void) {
  CHECK_SAID(
      T "bach_size: 8}", false,
      "run.yaml:1:19: error: unknown key 'bach_size' in training_config\n"
      "    1 | training_config: {bach_size: 8}\n      |                   ^~~~~~~~~\n"
      "      = did you mean 'batch_size'?\n");
  CHECK_SAID(
      "mesh_shape: [1, 2]\n", false,
      "run.yaml:1:1: error: unknown key 'mesh_shape' at the top level\n    1 | mesh_shape: [1, 2]\n"
      "      | ^~~~~~~~~~\n      = 'mesh_shape' belongs in device_config\n");
  CHECK_SAID(
      T "optimizer: {zzzzz: 1}}", false,
      "run.yaml:1:31: error: unknown key 'zzzzz' in training_config.optimizer\n"
      "    1 | training_config: {optimizer: {zzzzz: 1}}\n"
      "      |                               ^~~~~\n");
  CHECK_SAID(
      T "max_steps: 1, total_steps: 1}", false,
      "run.yaml:1:33: error: 'total_steps' sets the same as 'max_steps'\n"
      "    1 | training_config: {max_steps: 1, total_steps: 1}\n"
      "      |                                 ^~~~~~~~~~~\n"
      "      = 'max_steps' stands in run.yaml:1\n");
  CHECK_SAID(
      T "seed: 1, seed: 2}", false,
      "run.yaml:1:28: error: key 'seed' is given twice\n    1 | training_config: {seed: 1, seed: "
      "2}\n"
      "      |                            ^~~~\n      = first given on line 1\n");
  /* All errors of a file in one run. */
  loaded l = load(
      "training_config: {bach_size: 8, seed: x}\ndevice_config: {enable_dp: true}\nnonsense: 1\n");
  CHECK_INT(tsr_diags_errors(l.diags), 4);
  unload(&l);
}

static void test_verdicts(void) {
  CHECK_SAID(
      "diffusion_config: {steps: 8}\n", false,
      "run.yaml:1:1: error: unsupported feature: diffusion training (diffusion_config)\n"
      "    1 | diffusion_config: {steps: 8}\n      | ^~~~~~~~~~~~~~~~\n");
  CHECK_SAID(
      T "optimizer: {type: Muon}}", false,
      "run.yaml:1:37: error: unsupported feature: the Muon optimizer\n"
      "    1 | training_config: {optimizer: {type: Muon}}\n"
      "      |                                     ^~~~\n");
  CHECK_SAID(
      D "cp_backward: cyclic}", true,
      "run.yaml:1:17: warning: 'cp_backward' has no effect: the backward pass is two_pass\n"
      "    1 | device_config: {cp_backward: cyclic}\n      |                 ^~~~~~~~~~~\n");
  CHECK_SAID(D "cp_backward: two_pass, cp_rows_per_block_tiles: 0}", true, "");
  CHECK_SAID(
      "multihost_config: {enabled: false}\n", true,
      "run.yaml:1:1: warning: 'multihost_config' has no effect: it is not enabled\n"
      "    1 | multihost_config: {enabled: false}\n      | ^~~~~~~~~~~~~~~~\n");
}

int main(void) {
  test_values();
  test_types();
  test_types_of_sections();
  test_ranges();
  test_numbers_that_do_not_fit();
  test_keys();
  test_verdicts();
  return check_done("config.fields");
}
