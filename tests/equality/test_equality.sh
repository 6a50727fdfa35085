#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recipe fixes the bits: the weights after 50 steps have one hash on any number of threads, on
# any mesh and with any accumulation that the recipe's units allow. Runs in the source root. Of the
# shipped models it takes what test_pairs.sh has not: larger meshes, other seeds and units, sequence
# parallelism, evaluation.
# usage: test_equality.sh PROGRAM MODEL
set -euo pipefail

program=$1
model=$2
config=tests/equality/$model.yaml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
runs=0

# One run; prints the hash of its weights.
train() {
  local args=(--set numerics.threads=1) set
  for set in "$@"; do args+=(--set "$set"); done
  "$program" --config "$config" --quiet --metrics "$scratch/metrics" "${args[@]}" &&
    tail -n 1 "$scratch/metrics" | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p'
}

mesh() { # the words that set dp and tp
  local words=()
  [ "$1" -gt 1 ] && words+=(device_config.enable_ddp=true)
  [ "$2" -gt 1 ] && words+=(device_config.enable_tp=true)
  printf '%s\n' "${words[@]}" "device_config.mesh_shape=[$1, $2]"
}

accumulation() { # microbatches of a step of 8 samples
  printf '%s\n' "training_config.gradient_accumulation_steps=$1" \
    "training_config.batch_size=$((8 / $1))"
}

# The same hash as the first run, or (with "not") another one.
check() {
  local relation=$1 what=$2 hash
  shift 2
  hash=$(train "$@") || hash="no end"
  runs=$((runs + 1))
  local equal=not
  [ "$hash" = "$want" ] && equal=same
  if [ "${#hash}" != 64 ] || [ "$equal" != "$relation" ]; then
    echo "$config: $what: weights $hash, but on one rank $want"
    failed=$((failed + 1))
  fi
}

want=$(train)
[ -n "$want" ] || { echo "$config: no hash at the end of the metrics"; exit 1; }

check same 'a second run'
check same 'three threads' numerics.threads=3
shapes=('8 1' '4 2' '2 4') microbatches=(8)
if [ "$model" = by_hand ]; then # test_pairs.sh has no such model
  check same 'two threads' numerics.threads=2
  shapes+=('2 1' '4 1' '1 2' '1 4' '2 2') microbatches+=(2 4)
fi
for shape in "${shapes[@]}"; do
  read -r dp tp <<<"$shape"
  mapfile -t words < <(mesh "$dp" "$tp")
  check same "dp $dp, tp $tp" "${words[@]}"
done
for count in "${microbatches[@]}"; do
  mapfile -t words < <(accumulation "$count")
  check same "$count microbatches" "${words[@]}"
done
mapfile -t words < <(mesh 2 2; accumulation 4)
check same 'dp 2, tp 2, 4 microbatches, two threads' "${words[@]}" numerics.threads=2

check not 'another seed' training_config.seed=10
check not 'other units of the batch' numerics.units.batch=2
check not 'other units of tp' numerics.units.tp=2

# Sums over positions made of units of their own: with sequence parallelism and without.
want=$(train numerics.units.sequence=4)
for shape in '1 4' '2 2'; do
  read -r dp tp <<<"$shape"
  mapfile -t words < <(mesh "$dp" "$tp")
  check same "dp $dp, tp $tp, sequence units" numerics.units.sequence=4 "${words[@]}"
  [ "$tp" = 1 ] || check same "dp $dp, tp $tp, sequence parallel" numerics.units.sequence=4 \
    device_config.enable_sp=true "${words[@]}"
done

# The validation loss is of the same samples on every mesh, also where dp does not divide the batch.
validation() {
  train training_config.max_steps=6 training_config.eval_every=6 \
    training_config.validation_batch_size=4 "$@" >/dev/null &&
    sed -n 's/.*"event":"eval".*"loss":\([0-9.e-]*\),.*/\1/p' "$scratch/metrics"
}
first=$(validation)
for shape in '2 1' '8 1' '2 2'; do
  read -r dp tp <<<"$shape"
  mapfile -t words < <(mesh "$dp" "$tp")
  loss=$(validation "${words[@]}")
  runs=$((runs + 1))
  if [ -z "$first" ] || [ "$loss" != "$first" ]; then
    echo "$config: dp $dp, tp $tp: validation loss $loss, but on one rank $first"
    failed=$((failed + 1))
  fi
done

echo "$config: $runs runs compared, $failed failed; $want"
[ "$runs" -ge 16 ] && [ "$failed" = 0 ]
