#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tt-train's DeepSeek files, where they lie beside the project: `check` takes each at its full size, and each trains at a reduced
# one, with the bits that one rank has. Model files that a training file names but that are missing are replaced by one that is there.
# usage: test_shared_deepseek.sh PROGRAM
set -euo pipefail

program=$1 folder=${TESSERA_SHARED:-../shared}/tt/configs
[ -d "$folder" ] || {
  echo "skipped: there is no $folder"
  exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
runs=0 failed=0 weights=
for i in $(seq 400); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done >"$scratch/text.txt"
models=$folder/model_configs/moe training=$folder/training_configs

wrong() {
  failed=$((failed + 1))
  echo "$1"
  head -n 3 "$scratch/err"
}
ends() { # the words of a command
  runs=$((runs + 1))
  timeout 300 "$program" "$@" >"$scratch/printed" 2>"$scratch/err" || wrong "$*: exit code $?"
}
# train FILE WORDS: `weights` after three steps
train() {
  ends --config "$1" --metrics "$scratch/metrics$runs" --out "$scratch/out$runs" --quiet "${@:2}"
  weights=$(tail -n 1 "$scratch/metrics$((runs - 1))" 2>/dev/null | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p') || true
}
# same FILE MODEL TP WORDS: as it is; then reduced, on its mesh, with TP units of tp, as on one rank
same() {
  local file=$1 model=() words=() set mesh
  [ "$2" = - ] || model=(--set "training_config.model_config=$2")
  ends check --config "$file" "${model[@]}"
  for set in {embedding_dim=32,num_blocks=3,num_heads=8,max_sequence_length=32,kv_lora_rank=28,qk_nope_head_dim=8} \
    {qk_rope_head_dim=4,v_head_dim=8,inter_dim=48} "${@:4}"; do
    words+=(--set "transformer_config.$set")
  done
  for set in max_steps=3 eval_every=0 sample_tokens=0 batch_size=4 data_path="$scratch/text.txt" tokenizer_type=char; do
    words+=(--set "training_config.$set")
  done
  words+=(--set "numerics.units={batch: 4, tp: $3, expert: 1}")
  train "$file" "${model[@]}" "${words[@]}"
  mesh=$weights
  train "$file" "${model[@]}" "${words[@]}" --set 'device_config={mesh_shape: [1, 1]}'
  [ "${#mesh}" = 64 ] && [ "$mesh" = "$weights" ] || wrong "$file: weights '$mesh', on one rank '$weights'"
}
nested=(q_lora_rank=16 moe_hyperparam.moe_inter_dim=16)
flat=(moe_inter_dim=8 n_routed_experts=16 vocab_size=64)
same "$models/nano_deepseek_char.yaml" - 1 "${nested[@]}"
same "$models/deepseek_16B.yaml" - 1 "${flat[@]}"
same "$training/training_shakespeare_nano_deepseek_char.yaml" "$models/nano_deepseek_char.yaml" 4 "${nested[@]}"
same "$training/training_shakespeare_nano_deepseek_char.yaml" "$models/nano_deepseek_char.yaml" 4 "${nested[@]}" \
  moe_type=sparse_tp
same "$training/tiny_deepseek_single_sparse_ep.yaml" "$models/nano_deepseek_char.yaml" 1 "${nested[@]}" moe_type=dense
same "$training/deepseek_16B_8chip_ep.yaml" "$models/deepseek_16B.yaml" 8 "${flat[@]}"

echo "config.shared_deepseek: $runs runs, $failed failed"
[ "$failed" = 0 ] && [ "$runs" -gt 0 ]
