#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check and plan describe one program of a configuration: the same memory, also for meshes whose shape is that of devices
# that are not this machine's.
# usage: test_check_agrees.sh PROGRAM
set -uo pipefail
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

cat > run.yaml <<'RUN'
training_config: {seed: 1, batch_size: 32, sequence_length: 16, max_steps: 4, tokenizer_type: byte}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 64, num_blocks: 1, num_heads: 8, num_groups: 8,
  max_sequence_length: 128}
schedule: {recompute: full}
RUN

# memory FILE: that of a rank, and which recompute was chosen
memory() { sed -n '/^memory of one rank/,/^  without reuse/p; s/.*: note: recompute/recompute/p' "$1"; }
# agree DEVICE_CONFIG SETS...
agree() {
  local sets=(--set "device_config={$1}") word
  for word in "${@:2}"; do sets+=(--set "$word"); done
  ends 0 check --config run.yaml "${sets[@]}" --dump memory
  cp "$said" check.said
  ends 0 plan --config run.yaml "${sets[@]}" --dump memory
  grep -q '^memory of one rank: [0-9,]* bytes$' check.said || complain "$*: no memory"
  diff <(memory check.said) <(memory "$said") > lines || complain "$*: other memory: $(cat lines)"
}
agree "mesh_shape: [1, 8], enable_tp: true" zero.stage=3
agree "mesh_shape: [1, 8], enable_tp: true"
agree "mesh_shape: [1, 8], enable_ddp: true" schedule.recompute=auto
agree "mesh_shape: [1, 32], enable_ddp: true" schedule.recompute=cheap training_config.batch_size=64
agree "mesh_shape: [2, 4], enable_ddp: true, enable_tp: true" schedule.recompute=none
end_of plan.check_agrees 10
