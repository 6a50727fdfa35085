#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In FP8 the recipe fixes the bits too: no mesh, ZeRO stage, pipeline, number of microbatches or threads, recomputation or
# resume cuts a block otherwise. And what changes the recipe changes the weights.
# usage: test_fp8.sh PROGRAM SHARE (every SHARE-th run of each kind)
set -euo pipefail
program=$1 share=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/equality/runs.sh
failed=0 runs=0 count=0

# The same hash as that of `want`, or (with "not") another one.
check() {
  local relation=$1 hash equal=not
  shift
  count=$((count + 1))
  [ $((count % share)) = 0 ] || return 0
  hash=$(run_hash "$program" "$config" "$scratch" "${recipe[@]}" "$@") || hash="no end: $(tail -n 3 "$scratch/said")"
  runs=$((runs + 1))
  [ "$hash" = "$want" ] && equal=same
  if [ "${#hash}" != 64 ] || [ "$equal" != "$relation" ]; then
    echo "$config ${recipe[*]}: $*: weights $hash, but on one rank $want"
    failed=$((failed + 1))
  fi
}

begin() { # CONFIG SETTING...
  config=$1
  shift
  recipe=("$@")
  want=$(run_hash "$program" "$config" "$scratch" "${recipe[@]}") || { cat "$scratch/said"; exit 1; }
  [ -n "$want" ] || { echo "$config: no hash at the end of the metrics"; exit 1; }
}

several() { # N microbatches
  printf '%s\n' "training_config.gradient_accumulation_steps=$1" "training_config.batch_size=$((8 / $1))"
}

begin tests/equality/fp8.yaml
mapfile -t two < <(several 2)
mapfile -t four < <(several 4)
check same numerics.threads=3
check same 'mesh={axes: [tp], shape: [2]}'
check same 'mesh={axes: [tp], shape: [4]}' numerics.threads=2
check same 'mesh={axes: [dp, tp], shape: [2, 2]}' "${two[@]}"
check same 'mesh={axes: [dp], shape: [4]}' zero.stage=3
check same 'mesh={axes: [dp], shape: [2]}' zero.stage=2 "${two[@]}"
check same 'mesh={axes: [dp], shape: [2]}' zero.stage=1 zero.partition=owner_hash
check same "${four[@]}" schedule.recompute=full
check same 'mesh={axes: [pp, tp], shape: [2, 2]}' pipeline.schedule=1f1b pipeline.microbatches=4
check not training_config.precision=bf16
check not training_config.fp8.gradients=e5m2
check not training_config.fp8.scales=f32
check not 'training_config.fp8.exclude=[c_attn, block.0.mlp.fc]'
check not numerics.units.tp=2
check not numerics.units.batch=2

begin tests/equality/fp8.yaml 'training_config.fp8={gradients: e5m2, scales: f32, exclude: [mlp.proj]}'
check same 'mesh={axes: [tp], shape: [4]}'
check same 'mesh={axes: [dp, tp], shape: [4, 2]}' zero.stage=3

# positions in units of 24 tokens, split over cp
for layout in contiguous zigzag; do
  begin tests/equality/fp8.yaml numerics.units.sequence=4 device_config.cp_layout=$layout
  check same 'mesh={axes: [cp], shape: [2]}'
  check same 'mesh={axes: [cp, tp], shape: [2, 2]}'
  check same 'mesh={axes: [dp, cp], shape: [2, 2]}' "${two[@]}"
done

# experts, whose blocks begin anew in the rows of each expert and batch unit
sizes=(embedding_dim=160 intermediate_dim=140 num_blocks=1 num_heads=4 num_groups=2 num_experts=4 max_sequence_length=96)
begin tests/equality/mixtral.yaml training_config.precision=fp8 training_config.max_steps=2 "${sizes[@]/#/transformer_config.}" \
  training_config.sequence_length=96 'numerics.units={batch: 4, tp: 2, expert: 2, sequence: 2}'
check same 'mesh={axes: [ep], shape: [2]}' numerics.threads=2
check same 'mesh={axes: [ep, tp], shape: [2, 2]}'
check same 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=2
check same 'mesh={axes: [cp], shape: [2]}' "${two[@]}"

# stopped and continued on another mesh
begin tests/equality/fp8.yaml
count=0 share=1
save=(training_config.model_save_interval=1 "training_config.checkpoint_dir=$scratch/saved")
run_hash "$program" "$config" "$scratch" "${save[@]}" training_config.max_steps=2 >/dev/null
check same "${save[@]}" checkpoint.resume=auto 'mesh={axes: [tp], shape: [2]}'

echo "fp8: $runs runs compared, $failed failed"
[ "$runs" -gt 5 ] && [ "$failed" = 0 ]
