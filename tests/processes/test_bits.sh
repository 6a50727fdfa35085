#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One recipe, one SHA-256 of the weights: on any number of processes, over any mesh, as in one process. Also the
# losses of evaluation and the sampled text; and a file of metrics has every line once.
# usage: test_bits.sh openmpi|mpich BUILD_FOLDER [STEPS]
#   STEPS: of all but the first mesh, which does 100
set -euo pipefail
library=$1 build=$2 steps=100
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"

# want_for OPTION…: what one process computes, in `want` and `texts`.
want_for() {
  "$program" --config "$recipe" --quiet --metrics "$scratch/alone" --set training_config.max_steps="$steps" "$@"
  want=$(hash_of "$scratch/alone")
  texts=$(texts_of "$scratch/alone" || true)
  [ ${#want} = 64 ] && [ -n "$texts" ] || fail "one process gives no hash"
}

# check WORKERS MESH KEY=VALUE…
check() {
  local processes=$1 name="$library, $1 processes, ${*:2}" code=0
  options_of "${@:2}"
  rm -f "$scratch/metrics"
  bounded "${launcher[@]}" -n "$processes" "$program" --config "$recipe" --metrics "$scratch/metrics" \
    --set training_config.max_steps="$steps" "${options[@]}" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  if [ "$code" != 0 ]; then
    wrong "$name: exit code $code" "$scratch/out"
  elif [ "$(hash_of "$scratch/metrics")" != "$want" ]; then
    wrong "$name: weights $(hash_of "$scratch/metrics"), but in one process $want" "$scratch/out"
  elif [ "$(texts_of "$scratch/metrics")" != "$texts" ]; then
    diff <(echo "$texts") <(texts_of "$scratch/metrics") > "$scratch/diff" || true
    wrong "$name: evaluation and samples (>) are not those of one process (<)" "$scratch/diff"
  elif [ "$(grep -c '"event":"step"' "$scratch/metrics")" != "$steps" ]; then
    wrong "$name: not one line of metrics for each of $steps steps"
  elif [ "$(grep -c '^done: ' "$scratch/out")" != 1 ]; then
    wrong "$name: not printed once" "$scratch/out"
  elif ! grep -q "^processes: $processes, $library " "$scratch/out"; then
    wrong "$name: does not say that there are $processes processes" "$scratch/out"
  fi
}

# A microbatch of a rank is a unit of two samples at least.
whole=(training_config.batch_size=8 training_config.gradient_accumulation_steps=1)
want_for # one rank
for processes in 2 3 4 8; do check "$processes" dp=2,tp=2,pp=2; done
steps=${3-100}
# Ranks 0 to 2, 3 and 4, 5 to 7: a member of tp, which another process adds, has the norm's parts from a rank beside it.
want_for --set numerics.units.tp=2
check 3 dp=4,tp=2 "${whole[@]}" numerics.units.tp=2
want_for
if [ "$library" = openmpi ]; then
  check 2 dp=4 "${whole[@]}" zero.stage=3
  check 3 dp=4 "${whole[@]}" zero.stage=3 # ranks 1, 1 and 2
  owners=(zero.partition=owner_hash schedule.all_reduce_overlap=true)
  check 3 dp=4 "${whole[@]}" zero.stage=2 "${owners[@]}"
  check 4 dp=2,pp=2 zero.stage=1 "${owners[@]}" # what two stages use goes between the owners
  check 4 tp=4 schedule.recompute=auto
  check 4 pp=4 pipeline.schedule=zb_v schedule.recompute=auto
else
  check 4 dp=4 "${whole[@]}" zero.stage=3
  check 2 dp=4 "${whole[@]}" zero.stage=3 zero.partition=owner_hash
  check 3 tp=4
  check 2 pp=4 pipeline.schedule=zb_v
fi

check 4 tp=4 collectives.all_reduce=ring
# From left to right, in which every rank adds to the sum over microbatches.
for order in flat ring; do
  options_of dp=1 numerics.reduce_tree=$order
  want_for "${options[@]}"
  flat_weights=${flat_weights-$want}
  [ "$want" = "$flat_weights" ] || fail "ring has other bits than flat"
  check 3 dp=4 "${whole[@]}" numerics.reduce_tree=$order
  check 2 dp=2,pp=2 numerics.reduce_tree=$order zero.stage=2
done

fp16=(training_config.precision=fp16 training_config.loss_scale_init=65536)
options_of dp=1 "${fp16[@]}"
want_for "${options[@]}"
check 3 dp=2,tp=2 "${fp16[@]}"
check 2 dp=2,pp=2 "${fp16[@]}" zero.stage=2

# Context parallelism sums positions where the others sum samples, so the loss of an evaluation, which has units
# of its own, is compared with that of one process over the same mesh.
options_of cp=2,dp=2
want_for
weights=$want
want_for "${options[@]}"
checks=$((checks + 1))
[ "$want" = "$weights" ] || wrong "one process, cp=2,dp=2: weights $want, but on one rank $weights"
for processes in 3 4; do check "$processes" cp=2,dp=2; done

# A graph without a loss: what it gives is written once.
example=$root/configs/examples/dp_step.yaml
checks=$((checks + 1))
"$program" --config "$example" --quiet --out "$scratch/graph_alone" && bounded "${launcher[@]}" -n 2 "$program" --config "$example" \
  --quiet --out "$scratch/graph_shared" > "$scratch/out" 2>&1 || wrong "$library, a graph with --out fails" "$scratch/out"
diff -r "$scratch/graph_alone" "$scratch/graph_shared" > "$scratch/out" || wrong "$library, a graph with --out" "$scratch/out"
[ -s "$scratch/graph_shared/y.npy" ] || wrong "$library, a graph with --out: no y.npy"
report
