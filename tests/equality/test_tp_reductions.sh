#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sums over tp in half precision have one result on every mesh that the units fit, which is not that of sums in f32; a
# run continues from another mesh's checkpoint with it. Runs in the source root.
# usage: test_tp_reductions.sh PROGRAM MODEL
set -euo pipefail

program=$1 model=$2
config=tests/equality/pairs_$model.yaml
. tests/equality/runs.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
half=(numerics.tp_reductions=half training_config.precision=bf16)
compared=0

fail() {
  cat "$scratch/said"
  echo "$config: $1"
  exit 1
}

# usage: run MESH ORDER SETTING...; sets `hash`
run() {
  mapfile -t settings < <(run_settings "$1" 0 "$2" none on 1)
  settings+=(training_config.max_steps=6 "${@:3}")
  hash=$(run_hash "$program" "$config" "$scratch" "${settings[@]}") || fail "no run: ${settings[*]}"
}
same() {
  run "$@"
  [ "$hash" = "$want" ] || fail "weights $hash, but $want of one rank: ${settings[*]}"
  compared=$((compared + 1))
}

run 1 - training_config.precision=bf16
f32=$hash
run 1 - "${half[@]}"
want=$hash
[ -n "$want" ] && [ "$want" != "$f32" ] || fail "sums in half precision have the bits of those in f32"
same tp=2 - "${half[@]}"
same tp=4 - "${half[@]}"
same dp=2,tp=2 - "${half[@]}" zero.stage=3
same tp=2,pp=2 1f1b "${half[@]}"
same cp=2,tp=2 - "${half[@]}"
[ "$model" = llama ] || same tp=2 - "${half[@]}" device_config.enable_sp=true # its positions are in zigzag order

# A checkpoint keeps the key: a run without it continues in half precision, one with the other value is refused.
checkpoint=(training_config.precision=bf16 checkpoint.dir="$scratch/steps" checkpoint.every=3)
run tp=4 - "${half[@]}" "${checkpoint[@]}"
rm -r "$scratch/steps/step-00000006"
same 1 - "${checkpoint[@]}" checkpoint.resume=auto
rm -r "$scratch/steps/step-00000006"
if run_hash "$program" "$config" "$scratch" "${settings[@]}" numerics.tp_reductions=f32; then
  fail "a run in half precision continues in f32"
fi
grep -q "'numerics.tp_reductions' is f32 in this run, and half in" "$scratch/said" || fail "no reason"

echo "$config: $compared runs compared; $want"
[ "$compared" -ge 6 ]
