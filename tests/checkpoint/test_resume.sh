#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that stops and goes on elsewhere ends as one that never stopped: the same weights, the same losses, each
# step once. Each line of the table is a recipe, where it begins and stops, and where it goes on.
# usage: test_resume.sh PROGRAM
set -uo pipefail
program=$1
. tests/equality/runs.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
runs=0 failed=0

fails() {
  failed=$((failed + 1))
  echo "$*"
  cat "$scratch/said"
}

# settings_of MESH/ZERO/ORDER/RECOMPUTE/PARTITION
settings_of() {
  local mesh zero order recompute partition
  IFS=/ read -r mesh zero order recompute partition <<<"$1"
  run_settings "$mesh" "${zero:-0}" "${order:-1f1b}" "${recompute:-none}" off 1 "${partition:--}"
}

# check MODEL STOP FIRST SECOND SETTING...: 9 steps, stopped behind step STOP.
check() {
  local model=$1 stop=$2 config=tests/equality/pairs_$1.yaml want hash losses extra
  mapfile -t first < <(settings_of "$3")
  mapfile -t second < <(settings_of "$4")
  shift 4
  extra=("$@" training_config.max_steps=9)
  rm -rf "$scratch/kept"
  runs=$((runs + 1))
  want=$(run_hash "$program" "$config" "$scratch" "${extra[@]}" "${first[@]}")
  losses=$(run_losses "$scratch")
  [ -n "$want" ] || fails "$model ${first[*]} $*: the run itself failed"
  # Stopped by the signal that a scheduler sends, in whatever step it is, or at a step's end.
  local args=(--config "$config" --quiet --metrics "$scratch/metrics") set
  for set in "${extra[@]}" training_config.checkpoint_dir="$scratch/kept" \
    training_config.model_save_interval="$stop"; do args+=(--set "$set"); done
  local begins=() goes=()
  for set in "${first[@]}"; do begins+=(--set "$set"); done
  for set in "${second[@]}"; do goes+=(--set "$set"); done
  "$program" "${args[@]}" "${begins[@]}" >"$scratch/said" 2>&1 || fails "$model: the first run failed"
  # Only what stands up to the stop is left.
  local folder step
  for folder in "$scratch"/kept/step-*; do
    step=$((10#${folder##*-}))
    [ "$step" -le "$stop" ] || rm -r "$folder"
  done
  "$program" "${args[@]}" "${goes[@]}" --resume >"$scratch/said" 2>&1 ||
    fails "$model $*: going on failed: ${second[*]}"
  hash=$(tail -n 1 "$scratch/metrics" | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p')
  [ "$hash" = "$want" ] || fails "$model $*: ${first[*]} then ${second[*]}: weights $hash, not $want"
  [ "$(run_losses "$scratch")" = "$losses" ] || fails "$model $*: ${first[*]} then ${second[*]}: other losses"
}

check gpt2 4 1 dp=2,tp=2/1
check gpt2 1 dp=4/3 1
check gpt2 8 dp=2/2 tp=4
check gpt2 5 dp=4/2///owner_hash dp=2,tp=2/1
check llama 3 dp=2/3 dp=4/1///owner_hash
check gpt2 3 pp=2/0/zb_v dp=2,pp=2/1/1f1b/full
check gpt2 5 tp=2,pp=2/0/interleaved dp=2/1 training_config.precision=bf16
check gpt2 4 dp=2/1 pp=4/0/gpipe training_config.precision=bf16 training_config.optimizer.kahan_summation=true
check gpt2 4 1 dp=2,tp=2/0 training_config.precision=bf16 training_config.optimizer.stochastic_rounding=true
# Overflows that halve the scale on both sides of the stop, then steps that double it.
check gpt2 4 dp=2/3 tp=2 training_config.precision=fp16 training_config.loss_scale.mode=interval \
  training_config.loss_scale.init=1e12 training_config.loss_scale.interval=2
check gpt2 6 1 pp=2/0/zb_h1 training_config.precision=fp16
check gpt2 3 dp=2/1 dp=4/3 training_config.optimizer.amsgrad=true zero.offload=file zero.offload_path="$scratch"
check llama 4 dp=2/3 cp=2,dp=2
check llama 7 cp=2 tp=2/0//full
check qwen3 2 dp=2,tp=2,pp=2/1 1
check qwen3 4 1 dp=4/2 scheduler_config.type=cosine scheduler_config.warmup_steps=3 checkpoint.background=false
check qwen3 4 tp=4 dp=2 checkpoint.verify=false

# From left to right, where the run goes on the configuration does not say so.
check llama 4 dp=2/1 tp=4 numerics.reduce_tree=flat

# ---- what a configuration leaves out is what it would have said ----

# continues FIRST SECOND: two values of a --set, both of them the same recipe; an empty one is left out.
continues() {
  local want hash args
  args=("$scratch/small.yaml" "$scratch" training_config.checkpoint_dir="$scratch/kept")
  runs=$((runs + 1))
  rm -rf "$scratch/kept"
  want=$(run_hash "$program" "${args[@]}" ${1:+"$1"})
  rm -r "$scratch/kept/step-00000004"
  hash=$(run_hash "$program" "${args[@]}" checkpoint.resume=auto ${2:+"$2"})
  [ -n "$want" ] && [ "$hash" = "$want" ] || fails "'$1', then '$2': weights $hash, not $want"
}
cat >"$scratch/small.yaml" <<END
training_config: {seed: 1, data_path: $PWD/src/base/*.c, tokenizer_type: byte, batch_size: 4, sequence_length: 8,
  max_steps: 4, model_save_interval: 2, eval_every: 0, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.001}}
transformer_config: {model_type: llama, embedding_dim: 16, num_blocks: 1, num_heads: 2, num_groups: 2, vocab_size: 256,
  max_sequence_length: 8}
END
continues '' transformer_config.norm_eps=1e-5
continues transformer_config.weight_tying=disabled ''
continues numerics.reduce_tree=flat ''
continues numerics.reduce_tree=ring numerics.reduce_tree=flat
rm -r "$scratch/kept/step-00000004"
"$program" --config "$scratch/small.yaml" --resume --set transformer_config.theta=20000 \
  --set training_config.checkpoint_dir="$scratch/kept" >"$scratch/said" 2>&1 && fails "another theta goes on"
grep -q "'transformer_config.theta' is 20000 in this run, and not there in" "$scratch/said" ||
  fails "another theta is refused in other words"

# ---- a recipe that the second configuration leaves out ----

cat >"$scratch/full.yaml" <<END
training_config: {seed: 7, data_path: $PWD/src/base/*.c, tokenizer_type: byte, batch_size: 2, sequence_length: 8,
  gradient_accumulation_steps: 2, max_steps: 4, model_save_interval: 2, eval_every: 0, sample_tokens: 0, precision: fp16,
  loss_scale: {init: 1024}, use_clip_grad_norm: true, clip_grad_norm_max_norm: 0.5,
  optimizer: {type: Adam, lr: 0.002, beta1: 0.8, weight_decay: 0.1}}
scheduler_config: {type: cosine, warmup_steps: 1, min_lr: 0.0001, max_lr: 0.003}
numerics: {units: {batch: 4, tp: 2}, reduce_tree: flat}
transformer_config: {model_type: llama, embedding_dim: 16, num_blocks: 1, num_heads: 2, num_groups: 2, vocab_size: 256,
  max_sequence_length: 16}
END
cat >"$scratch/bare.yaml" <<END
training_config: {data_path: $PWD/src/base/*.c, model_save_interval: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, embedding_dim: 16, num_blocks: 1, num_heads: 2, num_groups: 2, vocab_size: 256,
  max_sequence_length: 16}
END
kept=training_config.checkpoint_dir=$scratch/kept
rm -rf "$scratch/kept"
want=$(run_hash "$program" "$scratch/full.yaml" "$scratch" "$kept")
rm -r "$scratch/kept/step-00000004"
# refused SETTING ERROR: nothing else is an error, and nothing is trained.
refused() {
  runs=$((runs + 1))
  "$program" --config "$scratch/bare.yaml" --resume --set "$1" --set "$kept" >"$scratch/said" 2>&1 &&
    fails "$1: goes on"
  [ "$(grep -c 'error: ' "$scratch/said")" = 1 ] || fails "$1: not one error"
  grep -qxF -- "$2 in '$scratch/kept/step-00000002'" "$scratch/said" || fails "$1: refused in other words"
}
refused training_config.seed=8 "--set:1:22: error: 'training_config.seed' is 8 in this run, and 7"
refused training_config.learning_rate=0.001 \
  "--set:1:31: error: 'training_config.optimizer.lr' is 0.001 in this run, and 0.002"
refused scheduler_config.max_lr=0.004 "--set:1:25: error: 'scheduler_config.max_lr' is 0.004 in this run, and 0.003"
refused training_config.max_steps=5 \
  "--set:1:27: error: 'training_config.max_steps' is 5 in this run, and 4"
refused training_config.batch_size_per_rank=8 "--set:1:37: error: 'samples_per_step' is 8 in this run, and 4"
refused transformer_config.theta=20000 \
  "--set:1:26: error: 'transformer_config.theta' is 20000 in this run, and not there"
refused training_config.num_epochs=2 "$scratch/bare.yaml: error: 'training_config.max_steps' is 5000 in this run, and 4"
runs=$((runs + 1))
hash=$(run_hash "$program" "$scratch/bare.yaml" "$scratch" "$kept" checkpoint.resume=auto)
[ -n "$want" ] && [ "$hash" = "$want" ] || fails "a recipe that is left out: weights $hash, not $want"
rm -r "$scratch/kept/step-00000004"
runs=$((runs + 1))
hash=$(run_hash "$program" "$scratch/bare.yaml" "$scratch" "$kept" checkpoint.resume=auto \
  training_config.batch_size=4 "mesh={axes: [dp, tp], shape: [2, 2]}")
[ "$hash" = "$want" ] || fails "the same with another batch_size: weights $hash, not $want"

echo "$runs runs stopped and went on, $failed failed"
[ "$runs" -ge 17 ] && [ "$failed" = 0 ]
