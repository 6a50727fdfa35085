#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of 1,000 steps on 8 processes, of which one process repeats windows of 10 steps; and a run on 8 processes that
# must repeat that of one.
# usage: test_run_lock.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
# A window of 10 steps needs a checkpoint less than 100 steps before it.
settings=(--set training_config.max_steps=1000 --set training_config.eval_every=0 --set training_config.sample_tokens=0
  --set training_config.model_save_interval=100 --set checkpoint.keep_last=0 --set checkpoint.background=false
  --set transformer_config.num_blocks=2)
mesh="mesh={axes: [dp, pp, tp], shape: [2, 2, 2]}"
patience=600

bounded "${launcher[@]}" -n 8 "$program" --config "$recipe" "${settings[@]}" --set "$mesh" --set zero.stage=1 \
  --out "$scratch/run" > "$scratch/out" 2>&1 || { cat "$scratch/out"; fail "the run on 8 processes"; }
[ "$(grep -c '"event":"step"' "$scratch/run/run.lock")" = 1000 ] || fail "not 1,000 steps"
grep -q '"processes":8,' "$scratch/run/run.lock" || fail "not 8 processes"

# The first and the last, and others by chance, of a seed that is printed.
seed=${SEED:-$RANDOM}
echo "windows by seed $seed"
RANDOM=$seed
windows=(1 991)
for _ in 1 2 3 4; do windows+=($((RANDOM % 991 + 1))); done
for first in "${windows[@]}"; do
  last=$((first + 9))
  checks=$((checks + 1))
  bounded "$program" verify "$scratch/run" --steps "$first-$last" > "$scratch/out" 2>&1 &&
    grep -q "^verified: steps $first to $last of " "$scratch/out" || wrong "steps $first-$last" "$scratch/out"
done

# Another recipe is not what it repeats.
checks=$((checks + 1))
bounded "$program" verify "$scratch/run" --steps 991-1000 --set training_config.seed=12 > "$scratch/out" 2>&1 &&
  wrong "another seed" "$scratch/out"

# Eight processes repeat what one did.
checks=$((checks + 2))
bounded "$program" --config "$recipe" "${settings[@]}" --set training_config.max_steps=30 --out "$scratch/one" \
  > "$scratch/out" 2>&1 || wrong "a run of one process" "$scratch/out"
bounded "${launcher[@]}" -n 8 "$program" verify "$scratch/one" --set "$mesh" > "$scratch/out" 2>&1 &&
  grep -q "^verified: steps 1 to 30 of .* on 8 ranks$" "$scratch/out" || wrong "verify on 8 processes" "$scratch/out"
bounded "${launcher[@]}" -n 8 "$program" --config "$recipe" "${settings[@]}" --set training_config.max_steps=30 \
  --locked "$scratch/one/run.lock" --set "$mesh" --set training_config.checkpoint_dir="$scratch/kept" \
  > "$scratch/out" 2>&1 || wrong "--locked on 8 processes" "$scratch/out"

# Processes that read different files, of a run that still writes its own for example, do not wait for each other.
checks=$((checks + 1))
mkdir "$scratch/part"
head -n 20 "$scratch/one/run.lock" > "$scratch/part/run.lock"
two="mesh={axes: [dp], shape: [2]}"
! bounded "${launcher[@]}" -n 1 "$program" verify "$scratch/one" --set "$two" : \
  -n 1 "$program" verify "$scratch/part" --set "$two" > "$scratch/out" 2>&1 &&
  grep -q "error: process 1 on .* has another run.lock than process 0" "$scratch/out" ||
  wrong "two files" "$scratch/out"
report
