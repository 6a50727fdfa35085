#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whole runs in half precision: losses near those of f32, the same weights on any mesh, and steps
# whose gradients overflow, which change nothing but the loss scale. Runs in the source root.
# usage: test_precision.sh PROGRAM
set -euo pipefail

program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 runs=0
config=(--config tests/equality/gpt2.yaml --set training_config.max_steps=20)
mesh=(--set 'device_config={enable_ddp: true, enable_tp: true, enable_pp: true, mesh_shape: [2, 2, 2]}'
  --set training_config.gradient_accumulation_steps=2 --set training_config.batch_size=4)

fail() { echo "$1"; failed=$((failed + 1)); }

# usage: train NAME SETS…: what it prints in NAME.out, its metrics in NAME.jsonl
train() {
  local name=$1
  shift
  runs=$((runs + 1))
  "$program" "${config[@]}" --metrics "$scratch/$name.jsonl" "$@" >"$scratch/$name.out" 2>"$scratch/$name.err" ||
    fail "$name: $(cat "$scratch/$name.err")"
}
numbers() { sed -n 's/.*"event":"step".*"'"$2"'":\([-+0-9.e]*\).*/\1/p' "$scratch/$1.jsonl"; }
hash_of() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$scratch/$1.jsonl"; }
equal() { [ -n "$(hash_of "$1")" ] && [ "$(hash_of "$1")" = "$(hash_of "$2")" ]; }

# every step's loss within 2 % of f32's, and other weights
train f32
for precision in bf16 fp16 fp8; do
  train $precision --set training_config.precision=$precision
  paste <(numbers f32 loss) <(numbers $precision loss) | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (d > 0.02 * $1) { print "step " NR ": " $0; bad = 1 } }
    END { exit bad || NR != 20 }' || fail "$precision: losses are not near those of f32"
  ! equal f32 $precision || fail "$precision: the weights of f32"
  train $precision-mesh --set training_config.precision=$precision "${mesh[@]}"
  equal $precision $precision-mesh || fail "$precision: other weights on dp 2, tp 2, pp 2"
done
for store in stochastic_rounding kahan_summation; do
  train $store --set training_config.precision=bf16 --set training_config.optimizer.$store=true
  ! equal bf16 $store || fail "$store: the weights of f32 parameters"
  train $store-mesh --set training_config.precision=bf16 --set training_config.optimizer.$store=true "${mesh[@]}"
  equal $store $store-mesh || fail "$store: other weights on dp 2, tp 2, pp 2"
done

# scales: from 6000, which no gradient overflows, by 1.0001; only fp16 has one
train tessera --set training_config.precision=fp16 --set training_config.loss_scale.init=6000
numbers tessera loss_scale | awk '
  NR > 1 { r = $1 / last; if (r < 1.000099 || r > 1.000101) { print last " then " $1; bad = 1 } }
  { last = $1 } END { exit bad || NR != 20 }' || fail 'tessera: other scales'
[ -z "$(numbers bf16 loss_scale)" ] || fail 'bf16: a loss scale'

# gradients that overflow in every step: the weights are those that nobody updated
overflow=(--set training_config.precision=fp16 --set training_config.log_every=1000
  --set 'training_config.loss_scale={mode: interval, init: 1e30}')
train none --set training_config.precision=fp16 --set training_config.optimizer.type=NoOp
train overflow "${overflow[@]}"
train overflow-mesh "${overflow[@]}" "${mesh[@]}"
awk 'BEGIN { s = 1e30
  for (i = 0; i < 20; i++) { s /= 2; printf "Gradient overflow detected, reducing loss scale to %.6g\n", s } }' \
  >"$scratch/want"
for run in overflow overflow-mesh; do
  grep '^Gradient overflow' "$scratch/$run.out" | awk '
    { $NF = sprintf("%.6g", $NF); print }' >"$scratch/got"
  diff "$scratch/want" "$scratch/got" || fail "$run: other messages"
  equal none $run || fail "$run: weights were changed"
done

# until the scale is small enough: then it learns, as if those steps had not been
train recovers --set training_config.precision=fp16 --set training_config.loss_scale.mode=interval \
  --set training_config.loss_scale.init=17179869184
grep -qx 'Gradient overflow detected, reducing loss scale to 536870912' "$scratch/recovers.out" ||
  fail 'recovers: no halving to 2^29'
skipped=$(grep -c '^Gradient overflow' "$scratch/recovers.out" || true)
[ "$skipped" -gt 2 ] && [ "$skipped" -lt 18 ] || fail "recovers: $skipped steps were skipped"
! equal none recovers || fail 'recovers: no step was made'

# a scale that stays
train static "${overflow[@]}" --set 'training_config.loss_scale={mode: static, init: 1e30}'
[ "$(grep -c '^Gradient overflow detected, the loss scale stays 1e+30$' "$scratch/static.out")" = 20 ] ||
  fail 'static: other messages'

echo "precision: $runs runs, $failed complaints"
[ "$runs" -ge 15 ] && [ "$failed" = 0 ]
