// SPDX-License-Identifier: Apache-2.0
/* What --print-config shows, and that it loads again to the same. */
#include "config/print.h"
#include "helper.h"

static void check_float(double value, const char *want) {
  tsr_text text = {0};
  tsr_config_print_float(value, &text);
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
}

/* The lines without their comments. */
static void strip_comments(char *text) {
  char *to = text;
  for (char *at = text; *at;) {
    char *end = strchr(at, '\n'), *comment = strstr(at, "  # ");
    if (!comment || comment > end) comment = end;
    memmove(to, at, (size_t)(comment - at));
    to += comment - at;
    *to++ = '\n';
    at = end + 1;
  }
  *to = 0;
}

static void check_round_trip(const char *text) {
  loaded first = load(text);
  CHECK(first.ok);
  tsr_text a = {0}, b = {0};
  tsr_config_print(first.config, &a);
  loaded second = load(a.data);
  CHECK_AT(second.ok, "%s\nprints as\n%s\nwhich gives\n%s", text, a.data, second.said);
  if (second.ok) {
    tsr_config_print(second.config, &b);
    strip_comments(a.data);
    strip_comments(b.data);
    CHECK_STR(b.data, a.data);
  }
  tsr_text_free(&a);
  tsr_text_free(&b);
  unload(&first);
  unload(&second);
}

static const char default_text[] = "training_config:\n"
                                   "  project_name: tt_train_nano_gpt  # default\n"
                                   "  seed: 5489  # default\n"
                                   "  batch_size: 8  # run.yaml:2\n"
                                   "  batch_size_per_rank: 0  # default\n"
                                   "  gradient_accumulation_steps: 1  # default\n"
                                   "  max_steps: 40  # --set\n"
                                   "  num_epochs: 1  # default\n"
                                   "  sequence_length: 0  # default\n"
                                   "  data_path: \"\"  # default\n"
                                   "  data_sources: []  # default\n"
                                   "  data_format: auto  # default\n"
                                   "  validation_path: \"\"  # default\n"
                                   "  sample_stride: 0  # default\n"
                                   "  documents: packed  # default\n"
                                   "  end_of_text: -1  # default\n"
                                   "  tokenizer_type: char  # default\n"
                                   "  tokenizer_path: \"\"  # default\n"
                                   "  use_clip_grad_norm: true  # run.yaml:3\n"
                                   "  clip_grad_norm_max_norm: 0.5  # run.yaml:3\n"
                                   "  validation_batch_size: 4  # default\n"
                                   "  validation_fraction: 0.1  # default\n"
                                   "  eval_every: 200  # default\n"
                                   "  early_stop_patience: 0  # default\n"
                                   "  early_stop_min_delta: 0.0  # default\n"
                                   "  log_every: 100  # default\n"
                                   "  # checkpoint_dir: checkpoints  # default\n"
                                   "  # model_save_interval: 500  # default\n"
                                   "  ignore_index: -100  # default\n"
                                   "  sample_every: 0  # default\n"
                                   "  sample_tokens: 256  # default\n"
                                   "  runner: default  # default\n"
                                   "  mixed_precision: false  # default\n"
                                   "  precision: f32  # default\n"
                                   "  loss_scale:\n"
                                   "    mode: tessera  # default\n"
                                   "    init: 65536.0  # default\n"
                                   "    interval: 2000  # default\n"
                                   "  fp8:\n"
                                   "    gradients: e4m3  # default\n"
                                   "    scales: power_of_two  # default\n"
                                   "    exclude: []  # default\n"
                                   "  model_path: \"\"  # default\n"
                                   "  optimizer:\n"
                                   "    type: SGD  # run.yaml:4\n"
                                   "    lr: 0.001  # default\n"
                                   "    weight_decay: 0.0  # default\n"
                                   "    momentum: 0.9  # run.yaml:4\n"
                                   "    dampening: 0.0  # default\n"
                                   "    nesterov: false  # default\n"
                                   "    stochastic_rounding: false  # default\n"
                                   "    kahan_summation: false  # default\n"
                                   "data:\n"
                                   "  format: auto  # default\n"
                                   "scheduler_config:\n"
                                   "  type: constant  # default\n"
                                   "  max_lr: 0.001  # default\n"
                                   "  min_lr: 0.0  # default\n"
                                   "  warmup_steps: 0  # default\n"
                                   "device_config:\n"
                                   "  mesh_shape: [2, 1]  # run.yaml:5\n"
                                   "  device: cpu  # default\n"
                                   "  device_ids: []  # default\n"
                                   "  enable_ddp: false  # default\n"
                                   "  enable_fsdp: false  # default\n"
                                   "  enable_cp: false  # default\n"
                                   "  enable_tp: false  # default\n"
                                   "  enable_pp: false  # default\n"
                                   "  enable_ep: false  # default\n"
                                   "  enable_sp: false  # default\n"
                                   "  strict_divisible: false  # default\n"
                                   "  mesh_graph_descriptor: \"\"  # default\n"
                                   "  memory_limit: 8589934592  # run.yaml:6\n"
                                   "  cp_layout: contiguous  # default\n"
                                   "mesh:\n"
                                   "  axes: [dp, tp]  # run.yaml:5\n"
                                   "eval_config:\n"
                                   "  repetition_penalty: 1.0  # default\n"
                                   "  temperature: 1.0  # default\n"
                                   "  top_k: -1  # default\n"
                                   "  top_p: 1.0  # default\n"
                                   "  seed: 5489  # default\n"
                                   "  prompt: \"two\\nlines: 1\"  # run.yaml:7\n"
                                   "  max_new_tokens: 256  # default\n"
                                   "numerics:\n"
                                   "  policy: deterministic  # default\n"
                                   "  threads: 0  # default\n"
                                   "  isa: \"\"  # default\n"
                                   "  reduce_tree: binary  # default\n"
                                   "  tp_reductions: f32  # default\n"
                                   "  units:\n"
                                   "    batch: 0  # default\n"
                                   "    sequence: 0  # default\n"
                                   "    expert: 0  # default\n"
                                   "    tp: 0  # default\n"
                                   "schedule:\n"
                                   "  all_reduce_overlap: auto  # default\n"
                                   "  pipeline_microbatches: 16  # run.yaml:9\n"
                                   "  recompute: cheap  # default\n"
                                   "  recompute_every: 1  # default\n"
                                   "  activation_offload: none  # default\n"
                                   "  activation_offload_blocks: 0  # default\n"
                                   "  activation_offload_min_size: 1048576  # default\n"
                                   "  bucket_size: 26214400  # default\n"
                                   "pipeline:\n"
                                   "  schedule: ZB-V  # run.yaml:9\n"
                                   "  virtual_stages: 0  # default\n"
                                   "  stages: [{name: a b}, {name: \"c, d\", begin: block.3}]"
                                   "  # run.yaml:10\n"
                                   "  blocks_per_rank: []  # default\n"
                                   "  balance: flops  # default\n"
                                   "  workers: 0  # default\n"
                                   "zero:\n"
                                   "  stage: 2  # run.yaml:11\n"
                                   "  offload: file  # run.yaml:11\n"
                                   "  offload_path: \"\"  # default\n"
                                   "  partition: flat  # default\n"
                                   "checkpoint:\n"
                                   "  keep_last: 3  # default\n"
                                   "  keep_every: 0  # default\n"
                                   "  keep_best: 0  # default\n"
                                   "  resume: never  # default\n"
                                   "  tag: \"\"  # default\n"
                                   "  optimizer: true  # default\n"
                                   "  background: true  # default\n"
                                   "  verify: true  # default\n"
                                   "  time_limit: \"\"  # default\n"
                                   "collectives:\n"
                                   "  transport:\n"
                                   "    type: auto  # default\n"
                                   "  timeout_s: 300.0  # default\n"
                                   "  all_reduce:\n"
                                   "    algo: auto  # default\n"
                                   "elastic:\n"
                                   "  rejoin: false  # default\n"
                                   "  safe_point: step  # default\n"
                                   "  min_workers: 1  # default\n"
                                   "  max_workers: 0  # default\n"
                                   "training_step:\n"
                                   "  module: \"\"  # default\n"
                                   "validate: none  # default\n"
                                   "validate_every: 1  # default\n"
                                   "validate_policy: stop  # default\n"
                                   "transformer_config:\n"
                                   "  model_type: gpt2  # default\n"
                                   "  num_heads: 6  # run.yaml:8\n"
                                   "  rope_scaling:\n"
                                   "    scaling_factor: 8.0  # run.yaml:8\n"
                                   "  list: [1, \"2\", a b]  # run.yaml:8\n";

static void test_text(void) {
  const char *set = "training_config.max_steps=40";
  loaded l = load_with(
      "training_config:\n  batch_size: 8\n  gradient_clip_norm: 0.5\n"
      "  optimizer: {type: SGD, momentum: 0.9}\nmesh: {axes: [dp, tp], shape: [2, 1]}\n"
      "device_config: {memory_limit: 8GiB}\neval_config: {prompt: \"two\\nlines: 1\"}\n"
      "transformer_config: {num_heads: 6, rope_scaling: {scaling_factor: 8.0}, list: [1, \"2\", a "
      "b]}\n"
      "schedule: {pipeline: ZB-V, pipeline_microbatches: 16}\n"
      "pipeline: {stages: [{name: a b}, {name: 'c, d', begin: block.3}]}\n"
      "zero: {stage: 2, offload: nvme}\n",
      &set, 1);
  CHECK_STR(l.said, "");
  tsr_text text = {0};
  tsr_config_print(l.config, &text);
  CHECK_STR(text.data, default_text);
  tsr_text_free(&text);
  unload(&l);
}

int main(void) {
  check_float(1, "1.0");
  check_float(3e-5, "3e-05");
  check_float(0.1, "0.1");
  check_float(1.0 / 3, "0.3333333333333333");
  check_float(-0.0, "-0.0");
  check_float(1e300, "1e+300");
  test_text();
  check_round_trip("");
  check_round_trip("mesh: auto\n");
  check_round_trip("mesh: {axes: [dp, tp], devices: 16}\n");
  check_round_trip("mesh: {axes: [dp, tp], devices: [[0, 1], [2, 3]]}\n");
  check_round_trip(
      "training_config: {batch_size_per_rank: 4, project_name: '~', data_path: 'true'}\n");
  check_round_trip("training_config: {project_name: \"a # b: 'c' \\\" \\\\ \\u2028 \\x07\"}\n");
  check_round_trip("training_config: {learning_rate: 0.3, use_no_op: true, model_type: llama}\n"
                   "transformer_config: {num_heads: 3}\n");
  check_round_trip("scheduler_config: {hold_steps: 40, min_lr: 1e-5}\n");
  check_round_trip("training_config: {lr_schedule: warmup_constant, warmup_steps: 7}\n");
  check_round_trip(
      "mlp_config: {input_features: 784, hidden_features: [128, 128], output_features: 10}\n");
  check_round_trip(
      "schedule: 1F1B\npipeline: {stages: [a.b, '3', 'x, y', \"\\\"\"], workers: 2}\n");
  check_round_trip("pipeline: {stages: [{name: '{', begin: '~'}, {begin: 'a: b', name: ']'}]}\n");
  check_round_trip("pipeline: {blocks_per_rank: {1: 3, 0: 4}, balance: auto}\n");
  check_round_trip("multihost_config: {enabled: true, num_workers: 2, pipeline_parallel_config: "
                   "{num_blocks: 7, blocks_per_rank: {1: 3, 0: 4}}}\n");
  check_round_trip("device_config: {enable_fsdp: true}\nschedule: {recompute: full}\n"
                   "training_config: {mixed_precision: true}\n");
  check_round_trip("transformer_config: {runner_type: memory_efficient}\n"
                   "schedule: {recompute: none}\n");
  check_round_trip("training_config: {gradient_checkpointing: true, loss_scale_mode: static, "
                   "loss_scale_init: 1e9}\n");
  check_round_trip("graph:\n- y: matmul(x, w, transpose_b)\n- [a, [b, c]]\n- {}\n- ~\n"
                   "tensors: {x: {shape: [2, 3], dtype: f32}}\ninputs: {x: [batch, 4]}\n");
  return check_done("config.print");
}
