#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Vocabularies of 1,024 tokens and more, whose rows are padded to a multiple of 128: the bits of one rank on every
# mesh, and what a graph without padding computes, though padded logits would be far larger than the real ones.
# usage: test_vocabulary.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

model() { # KEYS: a small shipped model
  cat > run.yaml <<RUN
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8,
  max_steps: 2, eval_every: 0, sample_tokens: 0, log_every: 1, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {$1, embedding_dim: 16, num_blocks: 2, num_heads: 4, max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 4, sequence: 4, tp: 2}}
RUN
}

meshes() {
  equal 'mesh={axes: [tp], shape: [2]}' device_config.enable_sp=true
  equal 'mesh={axes: [dp, tp], shape: [2, 2]}' "zero.stage=$1"
  equal 'mesh={axes: [dp], shape: [4]}' "zero.stage=$2" zero.partition=owner_hash
  equal 'mesh={axes: [pp, cp], shape: [2, 2]}' pipeline.microbatches=4
}

recipe=()
for vocabulary in 1024 1025 2003; do
  model "model_type: gpt2, weight_tying: enabled, vocab_size: $vocabulary"
  meshes 1 2
  model "model_type: llama, num_groups: 2, intermediate_dim: 32, vocab_size: $vocabulary"
  meshes 3 1
done
recipe=(training_config.precision=bf16)
meshes 2 3
recipe=('lora_config={r: 2, target_modules: [q_proj, lm_head], use_dora: true}')
meshes 1 3
recipe=('lora_config={r: 2, target_modules: [q_proj], modules_to_save: [embed_tokens, lm_head]}')
meshes 3 2
recipe=(numerics.units.expert=4)
model 'model_type: mixtral, num_groups: 2, intermediate_dim: 32, num_experts: 4, num_experts_per_token: 2, vocab_size: 1025'
meshes 2 3
equal 'mesh={axes: [ep, tp], shape: [2, 2]}'

# Logits are about -20, and 0 where they are padding.
graph '  table: {shape: [vocab_padded, 8], valid0: vocab_size, init: normal(0.5)}
  bias: {shape: [vocab_padded], valid0: vocab_size, init: "normal(-20, 0.1)"}
  wq: {shape: [8, 8], init: normal(0.3)}' '- x: embedding(tokens, table)
- x: add(x, attention(linear(x, wq), x, x, head_dim=4))
- logits: add(linear(x, table), bias)
- loss: cross_entropy(logits, targets, valid=vocab_size)'
sed -i '1i sizes: {vocab_size: 1025}' graph.yaml
sed -i 's/outputs: .*/outputs: [loss, logits]/' graph.yaml
sed 's/vocab_padded/vocab_size/; s/ valid0: vocab_size,//; s/, valid=vocab_size//' graph.yaml > whole.yaml
cat > set.jsonl <<'SET'
{"question": "word", "choices": [" 7", " 8"], "label": 0}
{"question": "of a", "choices": [" text", " word"], "label": 0}
SET
recipe=(training_config.max_steps=20 training_config.optimizer.type=AdamW training_config.optimizer.lr=0.05)

# What is said of both graphs is alike, but for speeds.
alike() { # WORDS: a command over the checkpoint of each graph
  runs=$((runs + 1))
  local name
  for name in graph whole; do
    "$program" "$1" --checkpoint "$name" "${@:2}" 2>&1 | grep -avE '^checkpoint|speed|tokens, ' | sed 's/prompt: .*//' > "$name.said"
  done
  [ -s graph.said ] && ! grep -q error graph.said && cmp -s graph.said whole.said && return
  echo "$*: with padding: $(cat graph.said); without: $(cat whole.said)"
  failed=$((failed + 1))
}
for name in graph whole; do
  train "${recipe[@]}" "transformer_config.graph=$name.yaml" "training_config.checkpoint_dir=$name" > /dev/null
  grep -o 'Loss = [0-9.]*' out > "$name.losses"
done
runs=$((runs + 1))
[ "$(wc -l < graph.losses)" = 20 ] && cmp graph.losses whole.losses || failed=$((failed + 1))
alike evaluate --data text.txt
alike evaluate --eval-set set.jsonl
alike generate --prompt word --max-new-tokens 12 --temperature 0
alike generate --prompt word --max-new-tokens 12 --temperature 2 --seed 3
alike generate --prompt word --max-new-tokens 12 --temperature 9 --top-k 1030 --seed 3
alike generate --prompt word --max-new-tokens 12 --temperature 9 --top-p 0.9 --repetition-penalty 2 --seed 5

end_of equality.vocabulary
