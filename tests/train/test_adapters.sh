#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs that train adapters: their checkpoints have no frozen parameters, which come from training_config.model_path at
# every start; a resume on another mesh gives the bits of the run that was not stopped, and other weights are refused.
# usage: test_adapters.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > model.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 4,
  eval_every: 0, sample_tokens: 0, optimizer: {lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 32, intermediate_dim: 64, num_blocks: 2,
  num_heads: 4, num_groups: 2, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 4, tp: 2}}
RUN
cp model.yaml adapters.yaml
sed -i 's/max_steps: 4/max_steps: 8, model_save_interval: 4, model_path: base/' adapters.yaml
echo 'lora_config: {r: 4, lora_dropout: 0.1, target_modules: [q_proj, v_proj, down_proj], modules_to_save: [norm]}' >> adapters.yaml
weights() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
same_weights() {
  checks=$((checks + 1))
  [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || complain "the weights of $1 and $2 differ"
}
# the loss of an evaluation that says so
loss() { sed -n 's/^loss: //p' "$said"; }

ends 0 --config model.yaml --out base
ends 0 --config model.yaml --set training_config.seed=2 --out other
ends 0 --config adapters.yaml --out run
says "weights: 'base"

# Trained parameters and their state alone are written.
ends 0 checkpoint show run
says 'tensors: 41'
says 'block.0.attn.wq.lora_a.m f32 (4, 32)'
says '  ln_f f32 (32)'
grep -q 'attn.wq f32\|wte\|attn.wk' "$said" && complain 'a frozen parameter is in the checkpoint'
ends 0 checkpoint verify run

# A resume is the same run, on another mesh, too.
ends 0 --config adapters.yaml --out resumed --resume run/checkpoints/step-00000004
same_weights run resumed
ends 0 --config adapters.yaml --out meshed --resume run/checkpoints/step-00000004 \
  --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --set zero.stage=3
same_weights run meshed

# The frozen parameters are those that the adapters were trained beside.
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set training_config.model_path=other
says "the adapters of 'run/checkpoints/step-00000004' were trained with other weights than those of 'other'"
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set 'training_config.model_path=""'
says "other weights than those of 'the seed's random weights'"
[ ! -e wrong ] || complain 'a refused run has left something'
ends 2 --config adapters.yaml --out wrong --set training_config.model_path=run
says "'run/checkpoints/step-00000008' has what a run with adapters has trained, not a model"
ends 2 --config model.yaml --out wrong --set training_config.model_path=run
says "has what a run with adapters has trained, not a model"
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set lora_config.r=8
says "'lora_config.r' is 8 in this run, and 4 in"

# Evaluation and generation find them by the checkpoint's configuration.
ends 0 evaluate --checkpoint run --data text.txt
adapted=$(loss)
ends 0 evaluate --checkpoint base --data text.txt
[ -n "$adapted" ] && [ "$adapted" != "$(loss)" ] || complain "the loss with adapters is '$adapted', and without $(loss)"
ends 0 evaluate --config adapters.yaml --data text.txt --set training_config.checkpoint_dir=run/checkpoints
[ "$adapted" = "$(loss)" ] || complain "the loss by the configuration is $(loss), not $adapted"
ends 0 evaluate --checkpoint run --data text.txt --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
[ "$adapted" = "$(loss)" ] || complain "the loss on a mesh is $(loss), not $adapted"
ends 2 evaluate --checkpoint run --data text.txt --set training_config.model_path=other
says "were trained with other weights than those of 'other/checkpoints/step-00000004'"
ends 0 generate --checkpoint run --prompt 'word 1' --max-new-tokens 4

# Random weights are those of the seed, which need no file.
ends 0 --config adapters.yaml --set 'training_config.model_path=""' --out random
says 'the adapters are trained on random weights: training_config.model_path names no model'
ends 0 --config adapters.yaml --set 'training_config.model_path=""' --out random_resumed --resume random/checkpoints/step-00000004
same_weights random random_resumed
ends 0 evaluate --checkpoint random --data text.txt

end_of train.adapters 24
