#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `compare` of one recipe on two meshes: every tensor of the step has one hash, over ZeRO stages, pipeline schedules,
# recompute, microbatches, layouts of positions, experts, adapters, documents and uneven blocks; and no tensor is lost.
# usage: test_compare_meshes.sh PROGRAM
set -uo pipefail
root=$PWD
. tests/equality/runs.sh
. tests/commands.sh "$1"

for i in $(seq 600); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done > text.txt
for name in pairs_gpt2 pairs_llama pairs_qwen3 mixtral deepseek_v3_moe by_hand gpt2; do
  sed 's#src/base/\*\.c#text.txt#' "$root/tests/equality/$name.yaml" > $name.yaml
done
cp "$root/tests/equality/by_hand_graph.yaml" .

# recipe FILE CONFIG WORDS...: the resolved configuration
recipe() {
  local file=$1 config=$2 args=() set
  for set in "${@:3}"; do args+=(--set "$set"); done
  "$program" --config "$config" --print-config "${args[@]}" > "$file" 2> "$said" ||
    { complain "$config ${*:3}: no configuration"; return 1; }
}
# The numbers of the last line about tensors: differing and compared, of tensors, gradients, weights and state.
counts() {
  sed -n 's/^step [0-9]*: \(.*\) differ$/\1/p' "$said" | tail -n 1 | tr -d ',' | grep -oE '[0-9]+' | tr '\n' ' '
}
# Beside the gradients, so many tensors at least: of a block of Llama 13 forward and 18 backward, for example.
declare -A least=([pairs_gpt2.yaml]=290 [pairs_llama.yaml]=270 [pairs_qwen3.yaml]=420 [mixtral.yaml]=100 [gpt2.yaml]=80
  [deepseek_v3_moe.yaml]=140)
# begins CONFIG WORDS...: the recipe on one rank, which equals itself
begins() {
  config=$1 words=("${@:2}")
  recipe one.yaml "$config" numerics.threads=1 "${words[@]}" || return
  ends 0 compare one.yaml one.yaml --steps 2
  read -ra want <<< "$(counts)"
  [ "${want[1]:-0}" -ge "${least[$1]:-10}" ] || complain "$config ${words[*]}: only ${want[1]:-no} tensors are compared"
  [ "${want[3]:-0}" -gt 3 ] && [ "${want[5]}" -ge "${want[3]}" ] && [ "${want[1]}" -gt "${want[3]}" ] ||
    complain "$config ${words[*]}: too little is compared"
}
# equals WORDS...: so it does on this mesh, with all gradients, weights and state and most other tensors
equals() {
  local have
  recipe other.yaml "$config" numerics.threads=1 "${words[@]}" "$@" || return
  ends 0 compare one.yaml other.yaml --steps 2
  says "equal: the losses and weights of steps 1 to 2"
  read -ra have <<< "$(counts)"
  [ "${#have[@]}" = 8 ] && [ "${have[0]}${have[2]}${have[4]}${have[6]}" = 0000 ] ||
    complain "$config ${words[*]} $*: something differs"
  [ "${have[*]:3:1} ${have[*]:5:1} ${have[*]:7:1}" = "${want[*]:3:1} ${want[*]:5:1} ${want[*]:7:1}" ] &&
    [ "${have[1]}" -ge $((want[1] * 3 / 4)) ] || complain "$config $*: of (${want[*]}) only (${have[*]}) are compared"
}

# ---- pairs of mesh, ZeRO, schedule, recompute, overlap; positions in zigzag order in llama ----
for model in gpt2 llama qwen3; do
  begins pairs_$model.yaml
  line=0
  while read -r name mesh zero order recompute overlap threads partition; do
    [ "$name" = "$model" ] && [ $((line++ % 2)) = 0 ] || continue
    mapfile -t settings < <(run_settings "$mesh" "$zero" "$order" "$recompute" "$overlap" "$threads" "$partition")
    equals "${settings[@]}"
  done < "$root/tests/equality/pairs.txt"
done
# ---- precision ----
for precision in bf16 fp16 fp8; do
  begins pairs_llama.yaml training_config.precision=$precision
  equals 'mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}' zero.stage=3
  equals 'mesh={axes: [pp, tp], shape: [2, 2]}' pipeline.microbatches=4 schedule.recompute=full
done
begins pairs_gpt2.yaml training_config.precision=bf16 training_config.optimizer.kahan_summation=true
equals 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=2 zero.partition=owner_hash
# ---- sequence parallelism, a padded vocabulary, tied embeddings, dropout ----
begins gpt2.yaml 'numerics.units={batch: 8, tp: 4, sequence: 8}'
equals 'mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}' device_config.enable_sp=true zero.stage=1
equals 'mesh={axes: [tp], shape: [4]}' device_config.enable_sp=true
# ---- experts: over ep, cp and tp, with a capacity, with losses and biases that balance them ----
units='numerics.units={batch: 8, sequence: 4, tp: 2, expert: 4}'
balances=('transformer_config.capacity=1.25' 'transformer_config.balance={loss: step, coefficient: 0.1}'
  'transformer_config.expert_tp=features')
for balance in "${balances[@]}"; do
  begins mixtral.yaml "$units" "$balance"
  equals 'mesh={axes: [ep, tp], shape: [4, 2]}'
  equals 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=2 training_config.gradient_accumulation_steps=2 training_config.batch_size=4
done
begins deepseek_v3_moe.yaml "$units"
equals 'mesh={axes: [dp, ep, cp], shape: [2, 2, 2]}' zero.stage=3
equals 'mesh={axes: [pp, ep], shape: [2, 2]}' pipeline.microbatches=4 pipeline.schedule=zb_h1
# ---- adapters ----
begins pairs_llama.yaml 'lora_config={r: 3, lora_dropout: 0.2, bias: all}'
equals 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=3 schedule.recompute=full
equals 'mesh={axes: [cp, pp], shape: [2, 2]}' pipeline.microbatches=4
begins pairs_qwen3.yaml 'lora_config={rank: 6, use_dora: true, target_modules: ".*_proj"}' training_config.precision=bf16
equals 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=1
cat > qlora.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 2,
  eval_every: 0, sample_tokens: 0, optimizer: {lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 128, intermediate_dim: 384, num_blocks: 2,
  num_heads: 4, num_groups: 2, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 2}}
lora_config: {r: 4, quantize_base: nf4}
RUN
begins qlora.yaml
equals 'mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}'
# ---- documents that are computed apart, and conversations ----
for layout in contiguous zigzag; do
  begins pairs_llama.yaml training_config.documents=separate training_config.end_of_text=46 device_config.cp_layout=$layout
  equals 'mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}'
done
for i in $(seq 40); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"What is $((i * 7 % 50)) plus 1?\"}," \
    "{\"role\": \"assistant\", \"content\": \"It is $((i * 7 % 50 + 1)).\"}]}"
done > chat.jsonl
cp "$root/tests/data/bpe/qwen.json" tokenizer.json
cat > chat.yaml <<'RUN'
training_config: {seed: 1, data_path: chat.jsonl, tokenizer_type: bpe, tokenizer_path: tokenizer.json, batch_size: 4,
  sequence_length: 96, max_steps: 8, num_epochs: 9, eval_every: 0, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
data: {format: chat}
transformer_config: {model_type: llama, vocab_size: 0, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 96}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 2}}
RUN
begins chat.yaml
equals 'mesh={axes: [cp, tp], shape: [2, 2]}'
equals 'mesh={axes: [dp, pp], shape: [2, 2]}' pipeline.microbatches=2
# ---- graphs of a user's own: parameters in unusual places, and blocks that are uneven over tp ----
begins by_hand.yaml
equals 'mesh={axes: [dp, tp], shape: [2, 4]}' zero.stage=1
cat > graph.yaml <<'RUN'
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  p0: {shape: [260, 8], init: normal(1)}
  w1: {shape: [10, 8], init: normal(0.5), tp: shard(0)}
  b1: {shape: [10], init: normal(0.5), tp: shard(0)}
  w2: {shape: [8, 10], init: normal(0.5), tp: shard(1)}
graph:
- h: embedding(tokens, p0)
- y: sigmoid(linear(h, w1, b1))
- x: linear(y, w2)
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)
outputs: [loss]
RUN
cat > uneven.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.1}}
transformer_config: {graph: graph.yaml}
numerics: {threads: 1, units: {batch: 4, sequence: 4, tp: 4}}
RUN
begins uneven.yaml
equals 'mesh={axes: [tp], shape: [4]}'
equals 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=3

# ---- a run on a mesh that has left its run.lock, and its recipe ----
ends 0 --config pairs_llama.yaml --set training_config.max_steps=4 --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --out run --quiet
recipe one.yaml pairs_llama.yaml training_config.max_steps=4
ends 0 compare run one.yaml
says "equal: the losses and weights of steps 1 to 4"

end_of train.compare_meshes 80
