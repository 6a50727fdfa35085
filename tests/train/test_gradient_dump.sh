#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --dump-grads: a folder of gradients is one run's, and the files are the same on every mesh.
# usage: test_gradient_dump.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 3,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 2, tp: 2}}
RUN
holds() { [ "$(cd "$1" && echo *)" = "$2" ] || complain "$1 holds $(cd "$1" && echo *), not $2"; }
all='step-00000001.safetensors step-00000002.safetensors step-00000003.safetensors'

ends 0 --config run.yaml --dump-grads alone
holds alone "$all"
ends 0 --config run.yaml --dump-grads mesh --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
for name in $all; do cmp "alone/$name" "mesh/$name" || complain "$name differs on a mesh"; done
ends 2 --config run.yaml --dump-grads alone
says "'alone' has gradients of another run"
holds alone "$all"
touch alone/step-00000009.safetensors.17-2.tmp alone/notes.txt
ends 0 --config run.yaml --dump-grads alone --overwrite --set training_config.max_steps=1
holds alone 'notes.txt step-00000001.safetensors'
ends 2 --config run.yaml --dump-grads alone --check-determinism 1
says "--check-determinism writes nothing, not even --dump-grads"

end_of train.gradient_dump 5
