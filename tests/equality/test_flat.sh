#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sums from left to right have one result on every mesh that the units fit, which is not that of the binary tree.
# A mesh on which a rank would have some of the units of tp or cp is refused. Runs in the source root.
# usage: test_flat.sh PROGRAM MODEL
set -euo pipefail

program=$1 model=$2
config=tests/equality/pairs_$model.yaml
. tests/equality/runs.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
flat=(numerics.reduce_tree=flat training_config.max_steps=8)

fail() {
  cat "$scratch/said"
  echo "$config: $1"
  exit 1
}

binary=$(run_hash "$program" "$config" "$scratch" numerics.threads=1 training_config.max_steps=8) || fail "no run"
want=$(run_hash "$program" "$config" "$scratch" numerics.threads=1 "${flat[@]}") || fail "no flat run"
[ -n "$want" ] && [ "$want" != "$binary" ] || fail "flat sums have the bits of binary ones"

compared=0 refused=0
while read -r name mesh zero order recompute overlap threads partition; do
  [ "$name" = "$model" ] || continue
  mapfile -t settings < <(run_settings "$mesh" "$zero" "$order" "$recompute" "$overlap" "$threads" "$partition")
  hash=$(run_hash "$program" "$config" "$scratch" "${settings[@]}" "${flat[@]}") || hash=
  if [ "$hash" = "$want" ]; then
    compared=$((compared + 1))
  elif [ -z "$hash" ] && [[ $mesh =~ [tc]p=2 ]] &&
    grep -qE "error: reduce_tree 'flat' adds 4 (tp|sequence) units" "$scratch/said"; then
    refused=$((refused + 1))
  else
    fail "weights ${hash:-missing}, but $want of one rank: ${settings[*]}"
  fi
done <tests/equality/pairs.txt

echo "$config: $compared runs compared, $refused refused; $want"
[ "$compared" -gt 5 ] && [ "$refused" -gt 0 ]
