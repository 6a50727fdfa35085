// SPDX-License-Identifier: Apache-2.0
/* How a step is computed: precision, loss scale, recompute, ZeRO, overlap, the layout of cp. */
#include "helper.h"

#define T "training_config: {"

static void test_precision(void) {
  CHECK_VALUE("", training.precision, TSR_PRECISION_F32);
  CHECK_VALUE(T "precision: bf16}", training.precision, TSR_PRECISION_BF16);
  CHECK_VALUE(T "precision: fp16}", training.mixed_precision, 1);
  CHECK_VALUE(T "mixed_precision: true}", training.precision, TSR_PRECISION_BF16);
  CHECK_VALUE(T "mixed_precision: false}", training.precision, TSR_PRECISION_F32);
  CHECK_VALUE(T "mixed_precision: true, precision: fp16}", training.precision, TSR_PRECISION_FP16);
  loaded l = load(T "seed: 1,\n mixed_precision: true}");
  CHECK_INT(tsr_config_location(l.config, "training_config.precision").line, 2);
  unload(&l);
  CHECK_SAID(
      T "mixed_precision: true, precision: f32}", false,
      "run.yaml:1:42: error: 'precision' contradicts 'mixed_precision'\n"
      "    1 | training_config: {mixed_precision: true, precision: f32}\n"
      "      |                                          ^~~~~~~~~\n"
      "      = 'mixed_precision' stands in run.yaml:1\n");
  CHECK_SAID(
      T "precision: bf16, mixed_precision: false}", false,
      "run.yaml:1:19: error: 'precision' contradicts 'mixed_precision'\n"
      "    1 | training_config: {precision: bf16, mixed_precision: false}\n"
      "      |                   ^~~~~~~~~\n      = 'mixed_precision' stands in run.yaml:1\n");
  CHECK_SAID(
      T "mixed_precision: true, precision: fp4}", false,
      "run.yaml:1:53: error: unknown precision: the text 'fp4'\n"
      "    1 | training_config: {mixed_precision: true, precision: fp4}\n"
      "      |                                                     ^~~\n"
      "      = did you mean 'fp8'?\n");
  CHECK_VALUE(T "mixed_precision: true, precision: fp8}", training.precision, TSR_PRECISION_FP8);
  CHECK_VALUE(T "precision: fp8}", training.mixed_precision, true);
  CHECK_VALUE(T "precision: fp8}", training.fp8_gradients, TSR_GRADIENTS_E4M3);
  CHECK_VALUE(T "precision: fp8}", training.fp8_scales, TSR_SCALES_POWER_OF_TWO);
  CHECK_VALUE(T "fp8: {gradients: e5m2, scales: f32}}", training.fp8_gradients, TSR_GRADIENTS_E5M2);
  CHECK_VALUE(T "fp8: {gradients: e5m2, scales: f32}}", training.fp8_scales, TSR_SCALES_F32);
  CHECK_VALUE(T "fp8: {exclude: [wq, wk]}}", training.fp8_exclude.count, 2);
}

static void test_loss_scale(void) {
  CHECK_VALUE("", training.loss_scale, TSR_SCALE_TESSERA);
  CHECK_VALUE("", training.loss_scale_init, 65536);
  CHECK_VALUE("", training.loss_scale_interval, 2000);
  CHECK_VALUE(T "loss_scale: {mode: static, init: 1e6}}", training.loss_scale, TSR_SCALE_STATIC);
  CHECK_VALUE(T "loss_scale: {mode: static, init: 1e6}}", training.loss_scale_init, 1e6);
  CHECK_VALUE(
      T "loss_scale_mode: interval, loss_scale_interval: 7}", training.loss_scale_interval, 7);
  CHECK_VALUE(
      T "loss_scale_mode: interval, loss_scale_init: 131072}", training.loss_scale_init, 131072);
  CHECK_SAID(
      T "loss_scale: {mode: dynamic}}", false,
      "run.yaml:1:38: error: unknown mode: the text 'dynamic'\n"
      "    1 | training_config: {loss_scale: {mode: dynamic}}\n"
      "      |                                      ^~~~~~~\n"
      "      = valid: tessera, interval, static\n");
  CHECK_SAID(
      T "loss_scale: {init: 131072}}", false,
      "run.yaml:1:38: error: the loss scale of mode tessera is at most 65536, found the integer "
      "131072\n"
      "    1 | training_config: {loss_scale: {init: 131072}}\n"
      "      |                                      ^~~~~~\n"
      "      = mode: interval and mode: static may begin higher\n");
  CHECK_SAID(
      T "loss_scale: {init: 0.5}}", false,
      "run.yaml:1:38: error: 'init' must be at least 1 and at most 1e+38, found the number 0.5\n"
      "    1 | training_config: {loss_scale: {init: 0.5}}\n"
      "      |                                      ^~~\n");
  CHECK_SAID(
      T "loss_scale: {interval: 10}}", true,
      "run.yaml:1:32: warning: 'interval' has no effect: the mode is not interval\n"
      "    1 | training_config: {loss_scale: {interval: 10}}\n"
      "      |                                ^~~~~~~~\n");
  CHECK_SAID(
      T "loss_scale: {mode: static}, loss_scale_mode: static}", false,
      "run.yaml:1:47: error: 'loss_scale_mode' sets the same as 'mode'\n"
      "    1 | training_config: {loss_scale: {mode: static}, loss_scale_mode: static}\n"
      "      |                                               ^~~~~~~~~~~~~~~\n"
      "      = 'mode' stands in run.yaml:1\n");
  CHECK_SAID(
      T "loss_scale: 1024}", false,
      "run.yaml:1:31: error: 'loss_scale' must be a map, found the integer 1024\n"
      "    1 | training_config: {loss_scale: 1024}\n      |                               ^~~~\n");
}

/* Parameters in bf16 are rounded in one way or the other. */
static void test_rounding(void) {
  CHECK_SAID(T "precision: bf16, optimizer: {kahan_summation: true}}", true, "");
  CHECK_SAID(T "mixed_precision: true, optimizer: {stochastic_rounding: true}}", true, "");
  CHECK_SAID(
      T "precision: fp16, optimizer: {kahan_summation: true}}", true,
      "run.yaml:1:48: warning: 'kahan_summation' has no effect: parameters are stored in f32\n"
      "    1 | training_config: {precision: fp16, optimizer: {kahan_summation: true}}\n"
      "      |                                                ^~~~~~~~~~~~~~~\n");
  CHECK_SAID(
      T "precision: bf16,\n optimizer: {stochastic_rounding: true, use_kahan_summation: true}}",
      false,
      "run.yaml:2:41: error: 'use_kahan_summation' contradicts 'stochastic_rounding'\n"
      "    2 |  optimizer: {stochastic_rounding: true, use_kahan_summation: true}}\n"
      "      |                                         ^~~~~~~~~~~~~~~~~~~\n"
      "      = 'stochastic_rounding' stands in run.yaml:2\n");
}

static void test_recompute(void) {
  CHECK_VALUE("", schedule.recompute, TSR_RECOMPUTE_CHEAP);
  CHECK_VALUE("schedule: {recompute: none}", schedule.recompute, TSR_RECOMPUTE_NONE);
  CHECK_VALUE("schedule: {recompute: selective}", schedule.recompute, TSR_RECOMPUTE_SELECTIVE);
  CHECK_VALUE("schedule: {recompute: selective}", training.runner, TSR_RUNNER_DEFAULT);
  CHECK_VALUE("schedule: {recompute: full}", training.runner, TSR_RUNNER_MEMORY_EFFICIENT);
  CHECK_VALUE("schedule: {recompute: full, recompute_every: 3}", schedule.recompute_every, 3);
  CHECK_VALUE(T "runner: memory_efficient}", schedule.recompute, TSR_RECOMPUTE_FULL);
  CHECK_VALUE(T "gradient_checkpointing: true}", schedule.recompute, TSR_RECOMPUTE_FULL);
  CHECK_VALUE(T "gradient_checkpointing: false}", schedule.recompute, TSR_RECOMPUTE_CHEAP);
  CHECK_VALUE(
      "transformer_config: {runner_type: memory_efficient}", schedule.recompute,
      TSR_RECOMPUTE_FULL);
  CHECK_VALUE(
      T "runner: default}\nschedule: {recompute: selective}", schedule.recompute,
      TSR_RECOMPUTE_SELECTIVE);
  /* A run's word is stronger than its model's. */
  static const char over[] =
      "transformer_config: {runner_type: memory_efficient}\nschedule: {recompute: none}";
  CHECK_VALUE(over, schedule.recompute, TSR_RECOMPUTE_NONE);
  CHECK_VALUE(over, training.runner, TSR_RUNNER_DEFAULT);
  loaded l = load("transformer_config:\n  runner_type: memory_efficient\n");
  CHECK_INT(tsr_config_location(l.config, "schedule.recompute").line, 2);
  unload(&l);
  CHECK_SAID(
      T "runner: memory_efficient}\nschedule: {recompute: selective}\n", false,
      "run.yaml:2:12: error: 'recompute' contradicts 'runner'\n"
      "    2 | schedule: {recompute: selective}\n      |            ^~~~~~~~~\n"
      "      = 'runner' stands in run.yaml:1\n");
  CHECK_SAID(
      T "gradient_checkpointing: false}\nschedule: {recompute: full}\n", false,
      "run.yaml:2:12: error: 'recompute' contradicts 'gradient_checkpointing'\n"
      "    2 | schedule: {recompute: full}\n      |            ^~~~~~~~~\n"
      "      = 'gradient_checkpointing' stands in run.yaml:1\n");
  CHECK_SAID(
      T "gradient_checkpointing: true}\nschedule: {recompute: ful}\n", false,
      "run.yaml:2:23: error: unknown recompute: the text 'ful'\n"
      "    2 | schedule: {recompute: ful}\n      |                       ^~~\n"
      "      = did you mean 'full'?\n");
  CHECK_SAID(
      "schedule: {recompute: selective, recompute_every: 2}\n", true,
      "run.yaml:1:34: warning: 'recompute_every' has no effect: recompute is not full\n"
      "    1 | schedule: {recompute: selective, recompute_every: 2}\n"
      "      |                                  ^~~~~~~~~~~~~~~\n");
}

static void test_activation_offload(void) {
  CHECK_VALUE("", schedule.activation_offload, TSR_ACTIVATION_OFFLOAD_NONE);
  CHECK_VALUE("", schedule.activation_offload_min_size, 1 << 20);
  CHECK_VALUE(
      "schedule: {activation_offload: blocks}", schedule.activation_offload,
      TSR_ACTIVATION_OFFLOAD_BLOCKS);
  CHECK_VALUE(
      "schedule: {activation_offload: blocks, activation_offload_blocks: 3}",
      schedule.activation_offload_blocks, 3);
  CHECK_SAID(
      "schedule: {activation_offload: block}\n", false,
      "run.yaml:1:32: error: unknown activation_offload: the text 'block'\n"
      "    1 | schedule: {activation_offload: block}\n"
      "      |                                ^~~~~\n"
      "      = did you mean 'blocks'?\n");
  CHECK_SAID(
      "schedule: {activation_offload_blocks: 2}\n", true,
      "run.yaml:1:12: warning: 'activation_offload_blocks' has no effect: activation_offload is "
      "none\n"
      "    1 | schedule: {activation_offload_blocks: 2}\n"
      "      |            ^~~~~~~~~~~~~~~~~~~~~~~~~\n");
}

static void test_schedule(void) {
  CHECK_VALUE("", schedule.bucket_size, 25 << 20);
  CHECK_VALUE("schedule: {bucket_size: 1MB}", schedule.bucket_size, 1000000);
  CHECK_VALUE("schedule: {bucket_size: 4 MiB}", schedule.bucket_size, 4 << 20);
  CHECK_SAID(
      "schedule: {bucket_size: 0}\n", false,
      "run.yaml:1:25: error: 'bucket_size' must be at least 1, found the integer 0\n"
      "    1 | schedule: {bucket_size: 0}\n      |                         ^\n");
  CHECK_SAID(
      "schedule: {overlap: true, all_reduce_overlap: true}\n", false,
      "run.yaml:1:27: error: 'all_reduce_overlap' sets the same as 'overlap'\n"
      "    1 | schedule: {overlap: true, all_reduce_overlap: true}\n"
      "      |                           ^~~~~~~~~~~~~~~~~~\n"
      "      = 'overlap' stands in run.yaml:1\n");
  CHECK_VALUE("", device.cp_layout, TSR_CP_CONTIGUOUS);
  CHECK_VALUE("device_config: {cp_layout: zigzag}", device.cp_layout, TSR_CP_ZIGZAG);
}

static void test_zero(void) {
  CHECK_VALUE("", zero.stage, 0);
  CHECK_VALUE("zero: {stage: 2}", zero.stage, 2);
  CHECK_VALUE("device_config: {enable_fsdp: true}", zero.stage, 3);
  CHECK_VALUE("device_config: {enable_fsdp: false}", zero.stage, 0);
  CHECK_VALUE("device_config: {enable_fsdp: true}\nzero: {stage: 1}", zero.stage, 1);
  CHECK_VALUE("zero: {offload: cpu}", zero.offload, TSR_OFFLOAD_FILE);
  CHECK_VALUE("zero: {offload: nvme, offload_path: /x}", zero.offload, TSR_OFFLOAD_FILE);
  CHECK_VALUE("zero: {offload: none, partition: dimension}", zero.offload, TSR_OFFLOAD_NONE);
  loaded l = load("device_config:\n  enable_fsdp: true\n");
  CHECK_INT(tsr_config_location(l.config, "zero.stage").line, 2);
  unload(&l);
  setenv("TESSERA_TEST_SET", "/there", 1);
  l = load("zero: {offload: file, offload_path: '${TESSERA_TEST_SET}/x'}\n");
  CHECK_STR(l.config->zero.offload_path, "/there/x");
  unload(&l);
}

static void test_zero_errors(void) {
  CHECK_SAID(
      "zero: {stage: 0}\ndevice_config: {enable_fsdp: true}\n", false,
      "run.yaml:1:8: error: 'stage' contradicts 'enable_fsdp'\n    1 | zero: {stage: 0}\n"
      "      |        ^~~~~\n      = 'enable_fsdp' stands in run.yaml:2\n");
  CHECK_SAID(
      "zero: {stage: 4}\ndevice_config: {enable_fsdp: true}\n", false,
      "run.yaml:1:15: error: 'stage' must be at least 0 and at most 3, found the integer 4\n"
      "    1 | zero: {stage: 4}\n      |               ^\n");
  CHECK_SAID(
      "zero: {offload: disk}\n", false,
      "run.yaml:1:17: error: unknown offload: the text 'disk'\n    1 | zero: {offload: disk}\n"
      "      |                 ^~~~\n      = valid: none, file, cpu, nvme\n");
  CHECK_SAID(
      "zero: {offload_path: /x}\n", true,
      "run.yaml:1:8: warning: 'offload_path' has no effect: offload is none\n"
      "    1 | zero: {offload_path: /x}\n      |        ^~~~~~~~~~~~\n");
  CHECK_SAID("zero: {stage: 2, partition: owner_hash}\n", true, "");
  CHECK_SAID("zero: {partition: flat}\n", true, "");
  CHECK_SAID("zero: {stage: 1, partition: dimension}\n", true, "");
  CHECK_SAID("device_config: {enable_fsdp: true}\nzero: {partition: owner_hash}\n", true, "");
  CHECK_SAID(
      "zero: {partition: owner_hash}\n", true,
      "run.yaml:1:8: warning: 'partition' has no effect: stage is 0\n"
      "    1 | zero: {partition: owner_hash}\n      |        ^~~~~~~~~\n");
  CHECK_SAID(
      "zero: {stage: 1, partition: owner}\n", false,
      "run.yaml:1:29: error: unknown partition: the text 'owner'\n"
      "    1 | zero: {stage: 1, partition: owner}\n      |                             ^~~~~\n"
      "      = valid: flat, owner_hash, dimension\n");
}

int main(void) {
  test_precision();
  test_loss_scale();
  test_rounding();
  test_recompute();
  test_activation_offload();
  test_schedule();
  test_zero();
  test_zero_errors();
  return check_done("config.step");
}
