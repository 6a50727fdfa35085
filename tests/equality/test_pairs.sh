#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One recipe a model, many meshes, ZeRO stages, pipeline orders, and so on: after 100 steps the weights have one
# hash. pairs.txt has a run for every pair of them. Runs in the source root.
# usage: test_pairs.sh PROGRAM MODEL [EVERY [STEPS [SETTING...]]]    every EVERYth run of the model, so many
# steps, and settings that change the recipe of all
set -euo pipefail

program=$1 model=$2 every=${3:-1} steps=${4:-100}
recipe=("training_config.max_steps=$steps" "${@:5}")
config=tests/equality/pairs_$model.yaml
. tests/equality/runs.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

want=$(run_hash "$program" "$config" "$scratch" "${recipe[@]}" numerics.threads=1) || want=
if [ -z "$want" ]; then
  cat "$scratch/said"
  echo "$config: no hash at the end of the metrics"
  exit 1
fi
# Equal bits of a model that does not learn would say little.
run_losses "$scratch" | awk -v c="$config" '
  NR == 1 { first = $1 }
  { last = $1 }
  END { if (!(last < first && last > 0)) { print c ": loss " first ", then " last; exit 1 } }'

runs=0 failed=0 line=0
while read -r name mesh zero order recompute overlap threads partition; do
  [ "$name" = "$model" ] || continue
  line=$((line + 1))
  [ $(((line - 1) % every)) = 0 ] || continue
  mapfile -t settings < <(run_settings "$mesh" "$zero" "$order" "$recompute" "$overlap" "$threads" "$partition")
  hash=$(run_hash "$program" "$config" "$scratch" "${recipe[@]}" "${settings[@]}") || hash=
  runs=$((runs + 1))
  [ "$hash" = "$want" ] && continue
  failed=$((failed + 1))
  cat "$scratch/said"
  echo "$config: weights ${hash:-missing}, but of the recipe alone $want:"
  printf '  --set %q' "${recipe[@]}" "${settings[@]}"
  echo
done <tests/equality/pairs.txt

echo "$config: $runs runs compared, $failed failed; $want"
[ "$runs" -gt 0 ] && [ "$failed" = 0 ]
