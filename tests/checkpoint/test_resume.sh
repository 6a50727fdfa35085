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

echo "$runs runs stopped and went on, $failed failed"
[ "$runs" -ge 17 ] && [ "$failed" = 0 ]
