#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `check --prove` of every family of models and of training on every kind of mesh that it has: bits of losses,
# gradients, weights and optimizer state, updates that change all weights, and the interpreter.
# usage: test_families.sh PROGRAM
set -uo pipefail
program=$(realpath "$1")
source=$PWD
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME TESSERA_DETERMINISTIC
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 proved=0

common='seed: 3, max_steps: 5, eval_every: 0, batch_size: 16'
text="$common, sequence_length: 32, sample_tokens: 0, data_path: none.txt, tokenizer_type: byte"
adam='optimizer: {type: AdamW, lr: 0.001}'
model() { # TYPE MORE
  echo "transformer_config: {model_type: $1, vocab_size: 256, embedding_dim: 64, num_heads: 4, num_blocks: 4,
  max_sequence_length: 32$2}"
}
llama=$(model llama ', num_groups: 2, intermediate_dim: 96')
gpt2=$(model gpt2 ', dropout_prob: 0.1, weight_tying: enabled')
quantized=$(model llama ', num_groups: 2, intermediate_dim: 256' | sed 's/embedding_dim: 64/embedding_dim: 256/')
shipped() {
  sed -n '/^transformer_config/,$p' "$source/configs/models/$1.yaml" | sed 's/vocab_size: 65/vocab_size: 256/'
}
chat='data: {format: chat, template: chatml}'

declare -A family
add() { family[$1]=$(printf '%s\n' "${@:2}"); } # NAME SECTION...
trained="training_config: {$text, $adam}"
scale='loss_scale: {mode: interval, init: 1024, interval: 1}'
add llama "$trained" "$llama"
add fp16 "training_config: {$text, $adam, precision: fp16, $scale}" "$llama"
add bf16 "training_config: {$text, $adam, precision: bf16}" "$llama"
add chat "$trained" "$chat" "$llama"
add labels "$trained" 'data: {format: labels}' "$(model llama ', num_groups: 2, intermediate_dim: 96, num_labels: 5')"
add documents "training_config: {$text, $adam, documents: separate, end_of_text: 0, ignore_index: 0}" "$gpt2"
add gpt2 "training_config: {$text, $adam, use_clip_grad_norm: true, clip_grad_norm_max_norm: 0.1}" "$gpt2"
add qwen3 "$trained" "$(model qwen3 ', num_groups: 2, intermediate_dim: 96')"
add lora "$trained" "$chat" 'lora_config: {r: 4, lora_alpha: 8, lora_dropout: 0.1}' "$llama"
add rslora "$trained" 'lora_config: {r: 4, lora_alpha: 8, use_rslora: true, bias: all}' "$gpt2"
add dora "training_config: {$text, $adam, precision: bf16}" \
  'lora_config: {r: 4, lora_alpha: 8, use_dora: true}' "$llama"
add qlora "$trained" 'lora_config: {r: 4, lora_alpha: 8, quantize_base: nf4}' "$quantized"
add mixtral "$trained" "$(shipped nanomixtral)"
add deepseek "$trained" "$(shipped nanodeepseek)"
add gpt_oss "$trained" "$(shipped nanogptoss)"
add glm4 "$trained" "$(shipped nanoglm4)"
add classes "training_config: {$common, $adam, data_path: none}" \
  'mlp_config: {input_features: 24, hidden_features: [16, 16], output_features: 10}'
add squares "training_config: {$common, data_path: none.csv, optimizer: {type: SGD, lr: 0.05, momentum: 0.9}}" \
  "mlp_config: {graph: $source/configs/graphs/linear_regression.yaml, input_features: 24, output_features: 6}"

pipeline='mesh: {axes: [pp], shape: [2]}'$'\n''pipeline: {microbatches: 4, schedule:'
declare -A mesh=(
  [dp]='mesh: {axes: [dp], shape: [2]}'
  [tp]='mesh: {axes: [tp], shape: [2]}'
  [dp_tp]='mesh: {axes: [dp, tp], shape: [2, 2]}'
  [zero1]='mesh: {axes: [dp], shape: [2]}'$'\n''zero: {stage: 1}'
  [zero3]='mesh: {axes: [dp], shape: [2]}'$'\n''zero: {stage: 3}'
  [owners]='mesh: {axes: [dp], shape: [2]}'$'\n''zero: {stage: 2, partition: owner_hash}'
  [sp]='mesh: {axes: [tp], shape: [2]}'$'\n''device_config: {enable_sp: true}'
  [cp]='mesh: {axes: [cp], shape: [2]}'
  [zigzag]='mesh: {axes: [cp], shape: [2]}'$'\n''device_config: {cp_layout: zigzag}'
  [1f1b]="$pipeline 1f1b}"
  [interleaved]="$pipeline interleaved}"
  [zb_h1]="$pipeline zb_h1}"
  [recompute]='mesh: {axes: [dp, tp], shape: [2, 2]}'$'\n''schedule: {recompute: full}'
  [ep]='mesh: {axes: [dp, ep], shape: [2, 2]}'
  [all]='mesh: {axes: [dp, pp, cp, tp], shape: [2, 2, 2, 2]}'$'\n''pipeline: {microbatches: 4, schedule: 1f1b}'
)
# Other dense families: as the references have them.
dense=(qwen2 smollm3 olmo2 granite starcoder2 gpt_neox phi3 gemma2 gemma3)
for f in "${dense[@]}"; do
  add "$f" "$trained" "$(sed 's/vocab_size: 65/vocab_size: 256/; s/sequence_length: 16/sequence_length: 32/' \
    "$source/tests/reference/data/$f.yaml")"
done
few='sp zero3 zigzag zb_h1 all' # of which meshes these have proofs
rows='dp tp dp_tp zero1 zero3 owners' # of which models of rows have all

complain() {
  echo "$name: $*"
  sed -n '/^proof/,$p' "$scratch/out"
  cat "$scratch/err"
  failed=$((failed + 1))
}
has() { grep -qE "$1" "$scratch/out" || complain "no line '$1'"; }

prove() { # FAMILY MESH
  name="$1 on $2"
  printf '%s\n%s\n' "${family[$1]}" "${mesh[$2]}" >"$scratch/run.yaml"
  (cd "$scratch" && "$program" check --config run.yaml --prove) >"$scratch/out" 2>"$scratch/err" ||
    { complain "exit code $?"; return; }
  has '^bits: one sha256 of the losses'
  has '^bits: one sha256 of the gradients'
  has '^bits: one sha256 of the weights'
  has '^bits: one sha256 of the optimizer state'
  has '^updates: ([0-9]+) of \1 parameters with a gradient change, in 2 of 2 steps'
  has '^interpreter, step 1.*: loss within'
  has '^placements: ([0-9]+) of \1 parameters'
  proved=$((proved + 1))
}

for f in "${!family[@]}"; do
  meshes=("${!mesh[@]}")
  [[ $f = classes || $f = squares ]] && read -ra meshes <<<"$rows"
  [[ " ${dense[*]} " = *" $f "* ]] && read -ra meshes <<<"$few"
  for m in "${meshes[@]}"; do prove "$f" "$m"; done
done
echo "$proved proofs, $failed failed"
[ "$failed" = 0 ] && [ "$proved" -ge 290 ]
