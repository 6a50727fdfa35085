// SPDX-License-Identifier: Apache-2.0
/* The rules over several keys: optimizer and its old keys, schedule, clipping, mesh, model. */
#include "helper.h"

#define T "training_config: {"

static void test_optimizer(void) {
  CHECK_VALUE(T "optimizer: {type: SGD}}", optimizer.weight_decay, 0);
  CHECK_VALUE(T "optimizer: {type: SGD, weight_decay: 0.5}}", optimizer.weight_decay, 0.5);
  CHECK_VALUE(T "optimizer: {type: AdamWComposite}}", optimizer.type, TSR_OPTIMIZER_ADAMW);
  CHECK_VALUE(T "optimizer: {type: Adam}}", optimizer.type, TSR_OPTIMIZER_ADAM);
  CHECK_VALUE(T "optimizer: {type: Adam}}", optimizer.weight_decay, 0);
  CHECK_VALUE(T "optimizer: {type: adam, weight_decay: 0.1}}", optimizer.weight_decay, 0.1);
  CHECK_VALUE(T "optimizer: {type: NoOp}}", optimizer.type, TSR_OPTIMIZER_NOOP);
  CHECK_VALUE("optimizer_config: {type: SGD, momentum: 0.9}", optimizer.momentum, 0.9);
  CHECK_VALUE("type: SGD\nlr: 0.5\n", optimizer.lr, 0.5);
  CHECK_SAID(
      T "optimizer: {type: AdamW, momentum: 0.9, nesterov: false}}", true,
      "run.yaml:1:44: warning: 'momentum' has no effect: AdamW has no such value\n"
      "    1 | training_config: {optimizer: {type: AdamW, momentum: 0.9, nesterov: false}}\n"
      "      |                                            ^~~~~~~~\n");
  CHECK_SAID(
      T "optimizer: {type: SGD, nesterov: true}}", false,
      "run.yaml:1:42: error: 'nesterov' needs a momentum above 0 and no dampening\n"
      "    1 | training_config: {optimizer: {type: SGD, nesterov: true}}\n"
      "      |                                          ^~~~~~~~\n");
  CHECK_SAID(
      T "optimizer: {stochastic_rounding: true}}", true,
      "run.yaml:1:31: warning: 'stochastic_rounding' has no effect: parameters are stored in f32\n"
      "    1 | training_config: {optimizer: {stochastic_rounding: true}}\n"
      "      |                               ^~~~~~~~~~~~~~~~~~~\n");
  CHECK_SAID(
      T "optimizer: {type: SGD}}\noptimizer_config: {type: SGD}\n", false,
      "run.yaml:2:1: error: a second optimizer: 'optimizer_config'\n"
      "    2 | optimizer_config: {type: SGD}\n      | ^~~~~~~~~~~~~~~~\n"
      "      = the first stands in run.yaml:1\n");
}

static void test_legacy(void) {
  CHECK_VALUE(T "learning_rate: 0.5, use_moreh_adamw: true}", optimizer.lr, 0.5);
  CHECK_VALUE(T "eps: 0.5, beta1: 0.25}", optimizer.epsilon, 0.5);
  CHECK_VALUE(T "use_no_op: true, use_moreh_adamw: false}", optimizer.type, TSR_OPTIMIZER_NOOP);
  CHECK_VALUE(T "momentum: 0.9}", optimizer.type, TSR_OPTIMIZER_SGD);
  CHECK_SAID(
      T "learning_rate: 0.5, optimizer: {type: SGD}}", false,
      "run.yaml:1:19: error: the old key 'learning_rate' stands beside an optimizer section\n"
      "    1 | training_config: {learning_rate: 0.5, optimizer: {type: SGD}}\n"
      "      |                   ^~~~~~~~~~~~~\n      = write it there as optimizer.lr\n");
  CHECK_SAID(
      T "use_no_op: true, use_moreh_adamw: true}", false,
      "run.yaml:1:19: error: 'use_no_op' and 'use_moreh_adamw' are both true\n"
      "    1 | training_config: {use_no_op: true, use_moreh_adamw: true}\n"
      "      |                   ^~~~~~~~~\n");
}

static void test_scheduler(void) {
  CHECK_VALUE(T "optimizer: {lr: 0.5}}", scheduler.max_lr, 0.5);
  CHECK_VALUE(T "scheduler_type: identity}", scheduler.type, TSR_SCHEDULER_CONSTANT);
  CHECK_VALUE(T "scheduler_type: warmup_linear}", scheduler.type, TSR_SCHEDULER_WARMUP_LINEAR);
  CHECK_VALUE(T "max_steps: 10}", scheduler.warmup_steps, 0);
  CHECK_VALUE(T "max_steps: 10, warmup_steps: 7}", scheduler.warmup_steps, 7);
  CHECK_VALUE(T "max_steps: 59, scheduler_type: linear}", scheduler.warmup_steps, 5);
  CHECK_VALUE(T "max_steps: 9, scheduler_type: cosine}", scheduler.warmup_steps, 0);
  CHECK_VALUE(T "max_steps: 9000, scheduler_type: cosine}", scheduler.warmup_steps, 100);
  CHECK_VALUE(T "max_steps: 50, lr_schedule: warmup_constant}", scheduler.stable_steps, 45);
  CHECK_VALUE("scheduler_config: {hold_steps: 1000}", scheduler.type, TSR_SCHEDULER_WSD);
  CHECK_VALUE("scheduler_config: {hold_steps: 1000}", scheduler.decay_steps, 3900);
  CHECK_VALUE("scheduler_config: {decay_steps: 1000}", scheduler.stable_steps, 3900);
  CHECK_VALUE(
      T "lr_schedule: warmup_constant, warmup_steps: 10, max_steps: 30}", scheduler.stable_steps,
      20);
  CHECK_SAID(
      T "scheduler_type: linear}\nscheduler_config: {type: cosine}\n", false,
      "run.yaml:1:19: error: 'scheduler_type' contradicts 'type'\n"
      "    1 | training_config: {scheduler_type: linear}\n"
      "      |                   ^~~~~~~~~~~~~~\n      = 'type' stands in run.yaml:2\n");
  CHECK_SAID(
      T "max_steps: 10, warmup_steps: 11}", false,
      "run.yaml:1:48: error: 'warmup_steps' is more than max_steps, which is 10\n"
      "    1 | training_config: {max_steps: 10, warmup_steps: 11}\n"
      "      |                                                ^~\n");
  CHECK_SAID(
      T "max_steps: 10}\nscheduler_config: {warmup_steps: 2, hold_steps: 20}\n", true,
      "run.yaml:2:37: warning: 'hold_steps' does not fit: 8 of 10 steps are left after the "
      "warm-up\n"
      "    2 | scheduler_config: {warmup_steps: 2, hold_steps: 20}\n"
      "      |                                     ^~~~~~~~~~\n");
  CHECK_SAID(
      T "max_steps: 10}\nscheduler_config: {warmup_steps: 2, hold_steps: 2, decay_steps: 2}\n",
      false,
      "run.yaml:2:52: error: warm-up, hold and decay make 6 steps, but max_steps is 10\n"
      "    2 | scheduler_config: {warmup_steps: 2, hold_steps: 2, decay_steps: 2}\n"
      "      |                                                    ^~~~~~~~~~~\n");
  CHECK_SAID(
      "scheduler_config: {type: cosine, stable_steps: 3, decay_steps: 4, warmup_steps: 5}\n", true,
      "run.yaml:1:34: warning: 'stable_steps' has no effect: the curve 'cosine' does not read it\n"
      "    1 | scheduler_config: {type: cosine, stable_steps: 3, decay_steps: 4, warmup_steps: 5}\n"
      "      |                                  ^~~~~~~~~~~~\n"
      "run.yaml:1:51: warning: 'decay_steps' has no effect: the curve 'cosine' does not read it\n"
      "    1 | scheduler_config: {type: cosine, stable_steps: 3, decay_steps: 4, warmup_steps: 5}\n"
      "      |                                                   ^~~~~~~~~~~\n");
  CHECK_SAID(
      T "scheduler_type: warmup_linear, warmup_steps: 5}\n", true,
      "run.yaml:1:50: warning: 'warmup_steps' has no effect: the curve 'warmup_linear' does not "
      "read it\n"
      "    1 | training_config: {scheduler_type: warmup_linear, warmup_steps: 5}\n"
      "      |                                                  ^~~~~~~~~~~~\n"
      "      = it warms up for a tenth of max_steps; linear reads warmup_steps\n");
  CHECK_SAID(
      "scheduler_config: {type: cosine, max_lr: 0.1, min_lr: 0.2}\n", false,
      "run.yaml:1:55: error: 'min_lr' is above the maximum, which is 0.1\n"
      "    1 | scheduler_config: {type: cosine, max_lr: 0.1, min_lr: 0.2}\n"
      "      |                                                       ^~~\n");
}

static void test_training(void) {
  CHECK_VALUE(T "batch_size: 8}", training.validation_batch_size, 4);
  CHECK_VALUE(T "batch_size: 1}", training.validation_batch_size, 1);
  CHECK_VALUE(T "gradient_clip_norm: 0.5}", training.use_clip_grad_norm, 1);
  CHECK_VALUE(T "gradient_clip_norm: 0.5}", training.clip_grad_norm_max_norm, 0.5);
  CHECK_VALUE(T "gradient_clip_norm: 0}", training.use_clip_grad_norm, 0);
  CHECK_VALUE(T "clip_grad_norm_max_norm: 0.5}", training.use_clip_grad_norm, 0);
  CHECK_VALUE(T "gradient_checkpointing: true}", training.runner, TSR_RUNNER_MEMORY_EFFICIENT);
  CHECK_VALUE(T "seed: 3}", eval.seed, 3);
  CHECK_SAID(
      T "use_clip_grad_norm: false, gradient_clip_norm: 1}", false,
      "run.yaml:1:46: error: 'gradient_clip_norm' contradicts 'use_clip_grad_norm'\n"
      "    1 | training_config: {use_clip_grad_norm: false, gradient_clip_norm: 1}\n"
      "      |                                              ^~~~~~~~~~~~~~~~~~\n"
      "      = 'use_clip_grad_norm' stands in run.yaml:1\n");
}

static void test_mesh(void) {
  CHECK_VALUE("mesh: auto", device.mesh_auto, 1);
  CHECK_SAID(
      "mesh: auto\ndevice_config: {mesh_shape: [2]}\n", false,
      "run.yaml:1:1: error: 'mesh' contradicts 'mesh_shape'\n    1 | mesh: auto\n"
      "      | ^~~~\n      = 'mesh_shape' stands in run.yaml:2\n");
  CHECK_VALUE(
      "mesh: {axes: [tp, dp], devices: [[0, 1, 2, 3], [4, 5, 6, 7]]}", device.mesh_shape[1], 4);
  CHECK_VALUE(
      "mesh: {axes: [tp, dp], devices: [[0, 1, 2, 3], [4, 5, 6, 7]]}", device.axes[0], TSR_TP);
  CHECK_VALUE("mesh: {axes: [tp, dp], devices: [[0, 1], [3, 2]]}", device.device_ids[3], 2);
  CHECK_VALUE("mesh: {axes: [tp, dp], devices: 16}", device.devices, 16);
  CHECK_VALUE("mesh: {axes: [tp, dp], devices: [0, 1, 2, 3]}", device.devices, 4);
  CHECK_VALUE("mesh: {axes: [dp], shape: [2]}", device.mesh_ndim, 1);
  CHECK_SAID(
      "mesh: {axes: [tp, dp], devices: [[0, 1], [2]]}", false,
      "run.yaml:1:42: error: 'devices' is ragged: row 1 has 1 entries, row 0 has 2\n"
      "    1 | mesh: {axes: [tp, dp], devices: [[0, 1], [2]]}\n"
      "      |                                          ^\n");
  CHECK_SAID(
      "mesh: {axes: [tp, dp], shape: [2]}", false,
      "run.yaml:1:14: error: 2 axes are named for a mesh of 1 dimensions\n"
      "    1 | mesh: {axes: [tp, dp], shape: [2]}\n      |              ^\n");
  CHECK_VALUE("mesh: {axes: [dp, tp], shape: [2, 4], devices: 8}", device.devices, 0);
  CHECK_VALUE("mesh: {axes: [dp, tp], shape: [2, 4], devices: 8}", device.mesh_shape[1], 4);
  CHECK_SAID(
      "mesh: {axes: [dp, tp], shape: [2, 2], devices: 8}", false,
      "run.yaml:1:48: error: 'devices' is 8, but 'shape' makes 4\n"
      "    1 | mesh: {axes: [dp, tp], shape: [2, 2], devices: 8}\n"
      "      |                                                ^\n"
      "      = 'shape' stands in run.yaml:1\n");
  CHECK_SAID(
      "device_config: {mesh_shape: [2]}\nmesh: {axes: [dp], devices: 1}\n", false,
      "run.yaml:2:29: error: 'devices' is 1, but 'mesh_shape' makes 2\n"
      "    2 | mesh: {axes: [dp], devices: 1}\n      |                             ^\n"
      "      = 'mesh_shape' stands in run.yaml:1\n");
  CHECK_SAID(
      "mesh: {axes: [tp]}", false,
      "run.yaml:1:14: error: the axes have neither shape nor devices\n"
      "    1 | mesh: {axes: [tp]}\n      |              ^\n"
      "      = write shape: [2, 2], or devices: 4\n");
  CHECK_SAID(
      "mesh: {shape: [2]}\ndevice_config: {mesh_shape: [2]}\n", false,
      "run.yaml:1:8: error: 'shape' contradicts 'mesh_shape'\n    1 | mesh: {shape: [2]}\n"
      "      |        ^~~~~\n      = 'mesh_shape' stands in run.yaml:2\n");
}

static void check_model(const char *text, const char *kind, const char *type) {
  loaded l = load(text);
  CHECK_STR(l.said, "");
  CHECK_STR(l.config->model.kind, kind);
  CHECK_STR(l.config->model.model_type, type);
  CHECK(tsr_config_require_model(l.config, l.diags));
  unload(&l);
}

static void test_model(void) {
  check_model("transformer_config: {num_heads: 6}", "transformer", "gpt2");
  check_model("model_config: {transformer_config: {model_type: qwen3}}", "transformer", "qwen3");
  check_model(T "model_config: {mlp_config: {input_features: 3}}}", "mlp", "mlp");
  check_model(T "model_type: llama, transformer_config: {num_heads: 6}}", "transformer", "llama");
  check_model("model_config: {model_type: llama, num_blocks: 2}", "transformer", "llama");
  CHECK_VALUE(
      "transformer_config: {runner_type: memory_efficient}", training.runner,
      TSR_RUNNER_MEMORY_EFFICIENT);
  CHECK_SAID(
      "transformer_config: {model_type: lama}", false,
      "run.yaml:1:34: error: unknown model_type: the text 'lama'\n"
      "    1 | transformer_config: {model_type: lama}\n"
      "      |                                  ^~~~\n      = did you mean 'llama'?\n");
  CHECK_SAID(
      "transformer_config: {model_type: qwen38}", false,
      "run.yaml:1:34: error: unsupported feature: gated delta nets (model_type: qwen38)\n"
      "    1 | transformer_config: {model_type: qwen38}\n"
      "      |                                  ^~~~~~\n");
  check_model("transformer_config: {model_type: deepseek}", "transformer", "deepseek");
  CHECK_SAID(
      T "model_type: gpt2}\ntransformer_config: {model_type: llama}", false,
      "run.yaml:1:31: error: 'model_type' is 'gpt2', but the model's own is 'llama'\n"
      "    1 | training_config: {model_type: gpt2}\n"
      "      |                               ^~~~\n      = the model's stands in run.yaml:2\n");
  CHECK_SAID(
      "transformer_config: {num_heads: 1}\nmlp_config: {input_features: 1}\n", false,
      "run.yaml:2:1: error: a second model: 'mlp_config'\n    2 | mlp_config: {input_features: 1}\n"
      "      | ^~~~~~~~~~\n      = the first stands in run.yaml:1\n");
  CHECK_SAID(
      "transformer_config: {positional_embedding_type: fixed}", false,
      "run.yaml:1:49: error: unsupported feature: fixed positional embeddings\n"
      "    1 | transformer_config: {positional_embedding_type: fixed}\n"
      "      |                                                 ^~~~~\n");
  CHECK_SAID(
      T "model_config: 'no/such.yaml'}", false,
      "run.yaml:1:33: error: cannot find 'no/such.yaml'\n"
      "    1 | training_config: {model_config: 'no/such.yaml'}\n"
      "      |                                 ^~~~~~~~~~~~~~\n"
      "      = looked in the working directory, beside run.yaml and in the folders above it\n");
  loaded l = load("training_config: {seed: 1}\n");
  CHECK(l.ok && !tsr_config_require_model(l.config, l.diags));
  CHECK_STR(
      printed_diags(l.arena, l.diags),
      "run.yaml: error: no model: the configuration has neither model_config nor "
      "transformer_config\n"
      "      = such as training_config: {model_config: configs/models/nanogpt.yaml}\n");
  unload(&l);
}

int main(void) {
  test_optimizer();
  test_legacy();
  test_scheduler();
  test_training();
  test_mesh();
  test_model();
  return check_done("config.resolve");
}
