#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trainings on emulated devices in orders of their operations that hardware may choose
# (emulated/cuda_runtime_api.h): every seed has the weights of seed 0, and a wait that is left out is found by some
# seed, as other weights or as a report.
# usage: test_orders.sh BUILD_FOLDER PLUGIN_FOLDER
set -euo pipefail
build=$1 plugins=$(realpath "$2")
. tests/processes/common.sh
recipe=$root/tests/cuda/run.yaml
export TESSERA_PLUGIN_PATH=$plugins
patience=100
seeds=(1 2 3 4)
! grep -q __asan_init "$program" || seeds=(1) # instrumented they take long

# run WORDS OPTION…: the weights of three steps, or "none" with what it said in $scratch/out.
launcher=() devices=1
run() {
  rm -f "$scratch/metrics"
  EMULATED_CUDA=devices=$devices,$1 bounded "${launcher[@]}" "$program" --config "$recipe" --metrics "$scratch/metrics" \
    --set training_config.max_steps=3 "${@:2}" > "$scratch/out" 2>&1 || { echo none && return; }
  hash_of "$scratch/metrics"
}
same() { # WHAT OPTION…: with all seeds
  local seed got want
  want=$(run seed=0 "${@:2}")
  [ ${#want} = 64 ] || fail "$1 has no weights: $(cat "$scratch/out")"
  for seed in "${seeds[@]}"; do
    checks=$((checks + 1))
    got=$(run "seed=$seed" "${@:2}")
    [ "$got" = "$want" ] || wrong "$1, seed $seed: $got, not $want" "$scratch/out"
  done
}
# found WHAT FAULT WANTED OPTION…: whether a seed has other weights than those, or none.
found() {
  local seed
  for seed in 1 2 3; do
    [ "$(run "seed=$seed,$2" "${@:4}")" = "$3" ] || return 0
  done
  return 1
}

same "f32"
same "bf16" --set training_config.precision=bf16
TESSERA_CUDA_GRAPHS=0 same "without graphs"
options_of dp=2,tp=2
same "dp=2,tp=2" "${options[@]}"
# Heads of 256 with soft caps and a window, as Gemma 2's, in units of the sequence and in whole sequences.
gemma=(--set training_config.precision=bf16 --set transformer_config.model_type=gemma2 --set transformer_config.head_dim=256
  --set transformer_config.num_groups=2 --set transformer_config.attention_soft_cap=0.1 --set transformer_config.sliding_window=5)
for case in "1 dp=2,tp=2" "2 cp=2"; do
  options_of ${case#* }
  of_units=("${gemma[@]}" --set numerics.units.sequence=${case% *})
  want=$(run seed=0 "${of_units[@]}")
  [ ${#want} = 64 ] || fail "Gemma 2 has no weights: $(cat "$scratch/out")"
  for seed in "${seeds[@]:0:2}"; do
    checks=$((checks + 1))
    got=$(run "seed=$seed" "${of_units[@]}" "${options[@]}")
    [ "$got" = "$want" ] || wrong "Gemma 2 on ${case#* }, seed $seed: $got, not $want" "$scratch/out"
  done
done
# In FP8 each mesh has the weights of one rank.
fp8=(--set training_config.precision=fp8)
want=$(run seed=0 "${fp8[@]}")
[ ${#want} = 64 ] || fail "FP8 has no weights: $(cat "$scratch/out")"
for mesh in dp=1 dp=2 tp=2; do
  options_of $mesh
  for seed in "${seeds[@]:0:3}"; do
    checks=$((checks + 1))
    got=$(run "seed=$seed" "${fp8[@]}" "${options[@]}")
    [ "$got" = "$want" ] || wrong "FP8 on $mesh, seed $seed: $got, not $want" "$scratch/out"
  done
done
# Activations that are copied to the host and back have the weights of those that stay.
offload=(--set transformer_config.num_blocks=3 --set schedule.activation_offload=blocks
  --set schedule.activation_offload_min_size=64)
want=$(run seed=0 "${offload[@]:0:2}")
[ ${#want} = 64 ] || fail "three blocks have no weights: $(cat "$scratch/out")"
for graphs in 1 0; do
  for seed in "${seeds[@]:0:2}"; do
    checks=$((checks + 1))
    got=$(TESSERA_CUDA_GRAPHS=$graphs run "seed=$seed" "${offload[@]}")
    [ "$got" = "$want" ] || wrong "activations on the host, seed $seed: $got, not $want" "$scratch/out"
    ! grep -q "CUDA graphs" "$scratch/out" || wrong "a step with activations on the host is no graph" "$scratch/out"
  done
done
all=("${seeds[@]}") seeds=("${seeds[@]:0:1}")
# Attention over a wide head and the update of state in a file are the host's, on copies of their operands.
same "tasks of the host" --set transformer_config.embedding_dim=264 --set transformer_config.num_heads=1 \
  --set numerics.units.tp=1
options_of dp=2 zero.stage=1 zero.offload=file zero.offload_path="$scratch"
same "state in a file" "${options[@]}"
seeds=("${all[@]:0:2}")
# Checkpoints that are written while steps run, and one that is read.
want=$(run seed=0)
for seed in "${seeds[@]}"; do
  checks=$((checks + 1))
  rm -rf "$scratch/kept"
  kept=(--set training_config.checkpoint_dir="$scratch/kept" --set training_config.model_save_interval=1)
  run "seed=$seed" "${kept[@]}" --set training_config.max_steps=2 > "$scratch/first"
  got=$(run "seed=$seed" "${kept[@]}" --resume)
  [ "$got" = "$want" ] || wrong "a checkpoint, seed $seed: $got, not $want" "$scratch/out"
done
seeds=("${all[@]}")
if ! grep -q __asan_init "$program"; then
  # The host waits once a step and after each allocation.
  want=$(run seed=0)
  count=0
  for n in 1 2 3 4 5 6 7 8; do
    ! found "a wait of the host" "drop_sync=$n" "$want" || count=$((count + 1))
  done
  checks=$((checks + 1))
  [ "$count" -ge 3 ] || wrong "of the host's first waits $count are found where they are left out"

  # ---- between the streams of tasks and of copies: of a bucket's waits the first and the last count; these are some
  # of the forward pass's and the backward pass's ----
  want=$(run seed=0 "${offload[@]}")
  count=0
  for n in 1 26 27 44 53; do
    ! found "activations on the host" "drop_wait=$n" "$want" "${offload[@]}" || count=$((count + 1))
  done
  checks=$((checks + 1))
  [ "$count" -ge 3 ] || wrong "of five waits for copies $count are found where they are left out"

  # ---- between the streams of tasks and of messages ----
  export LD_LIBRARY_PATH=$plugins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  TESSERA_PLUGIN_PATH=$plugins:$build
  launcher=()
  want=$(run seed=0)
  if choose_launcher openmpi || choose_launcher mpich; then
    seeds=(1 2 3)
    for mesh in dp=2 pp=2; do
      options_of $mesh
      launcher+=(-n 2) devices=4
      same "2 processes, $mesh" "${options[@]}"
      grep -q "links: by NCCL" "$scratch/out" || wrong "messages do not go by NCCL" "$scratch/out"
      for n in 1 2; do
        checks=$((checks + 1))
        found "$mesh" "drop_wait=$n" "$want" "${options[@]}" || wrong "$mesh: no seed finds that wait $n is left out"
      done
      devices=1
      same "2 processes, $mesh, through the host" "${options[@]}"
      launcher=("${launcher[@]::${#launcher[@]}-2}")
    done
    # Buckets, with the weights of one process. All collectives of a step with ZeRO 0 begin before the update waits for
    # the first bucket, so that wait is the next one behind theirs. It is for the bucket that began last.
    overlap=(schedule.all_reduce_overlap=true schedule.bucket_size=2048)
    options_of dp=2 "${overlap[@]}"
    launcher+=(-n 2) devices=4
    begun=$("$program" check --config "$recipe" "${options[@]}" --dump program | grep -c 'begins with bucket')
    checks=$((checks + 1))
    found "overlap" "drop_wait=$((begun + 1))" "$want" "${options[@]}" || wrong "no seed finds that a bucket is not waited for"
    seeds=(1 2)
    for zero in 0 2 3; do
      options_of dp=2 zero.stage=$zero "${overlap[@]}"
      for seed in "${seeds[@]}"; do
        checks=$((checks + 1))
        got=$(run "seed=$seed" "${options[@]}")
        [ "$got" = "$want" ] || wrong "ZeRO $zero that overlaps, seed $seed: $got, not $want" "$scratch/out"
        ! grep -q "CUDA graphs" "$scratch/out" || wrong "a step that overlaps is no graph" "$scratch/out"
      done
    done
    launcher=("${launcher[@]::${#launcher[@]}-2}")
    options_of dp=2,tp=2 zero.stage=1 "${overlap[@]}"
    launcher+=(-n 4)
    same "4 processes that overlap" "${options[@]}"
  fi
fi
report
