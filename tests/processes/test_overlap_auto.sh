#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# schedule.all_reduce_overlap: auto between processes. All processes choose the same, the choice is true where the plan
# for the mesh's devices hides communication, and the bits are those of true, of false and of one process, also of a run
# that resumes with another choice.
# usage: test_overlap_auto.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
# Chips that a plan has a device for each rank of; the ranks are on CPUs.
cat > "$scratch/line.textproto" <<'MESH'
mesh_descriptors {
  name: "T3K_LINE"
  arch: WORMHOLE_B0
  device_topology { dims: [ 1, 4 ] dim_types: [ LINE, LINE ] }
  host_topology { dims: [ 1, 1 ] }
  channels { count: 2 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "T3K_LINE" mesh_id: 0 } }
MESH
line=(--mesh "$scratch/line.textproto")
key=schedule.all_reduce_overlap
buckets=schedule.bucket_size=1KiB
small=(--config "$recipe" --set training_config.batch_size=8 --set training_config.gradient_accumulation_steps=1
  --set training_config.eval_every=0 --set training_config.sample_tokens=0)

# work PROCESSES WORDS…: its output in $scratch/out, and the note in `note`
work() {
  local with=()
  [ "$1" = 1 ] || with=("${launcher[@]}" -n "$1")
  checks=$((checks + 1))
  rm -f "$scratch/metrics"
  bounded "${with[@]}" "$program" "${@:2}" > "$scratch/out" 2>&1 || wrong "$library, ${*:1}: exit code $?" "$scratch/out"
  note=$(sed -n 's/.*: note: all_reduce_overlap: //p' "$scratch/out")
}
# chooses NOTE BEGUN PROCESSES WORDS…: the note, of one process, and whether collectives only begin
chooses() {
  local begun
  work "$3" "${small[@]}" --set training_config.max_steps=1 --dump program "${@:4}"
  [ "$note" = "$1" ] || wrong "$library, ${*:3}: '$note', not '$1'"
  begun=$(grep -c 'begins with bucket' "$scratch/out" || true)
  [ "$((begun > 0))" = "$2" ] || wrong "$library, ${*:3}: $begun collectives only begin"
}

inside="auto is false: the ranks of dp are in one process, in which a collective is complete when it begins"
host="auto is false: machine 'cpu' is one host, which computes all tasks one after another"
options_of dp=4 $buckets
line_of=("${line[@]}" "${options[@]}")
chooses "$host" 0 2 "${options[@]}" --set $key=auto
chooses "" 0 2 "${options[@]}"
options_of pp=2,dp=2 pipeline.microbatches=2 $buckets
chooses "$inside" 0 2 "${line[@]}" "${options[@]}" --set $key=auto
# The oracle of the times is plan with true and with false, and of the choice which of them is less.
steps=()
for overlap in true false; do
  work 1 plan "${small[@]}" "${line_of[@]}" --set $key=$overlap
  steps+=("$(sed -n 's/^step: \([0-9.]* ms\)$/\1/p' "$scratch/out")")
done
checks=$((checks + 1))
awk -v a="${steps[0]% *}" -v b="${steps[1]% *}" 'BEGIN { exit !(a > 0 && a < b) }' || wrong "the steps are ${steps[*]}"
hidden="auto is true: by the plan for 'galaxy' a step takes ${steps[0]} with it, and ${steps[1]} without it"
for processes in 2 3 4; do chooses "$hidden" 1 $processes "${line_of[@]}"; done
# One bucket, which begins when the backward pass ends.
work 1 plan "${small[@]}" "${line_of[@]}" --set schedule.bucket_size=1GiB --set $key=false
step=$(sed -n 's/^step: //p' "$scratch/out")
chooses "auto is false: by the plan for 'galaxy' a step takes $step with it, and $step without it" 0 2 \
  "${line_of[@]}" --set schedule.bucket_size=1GiB

# ---- bits ----
work 1 "${small[@]}" --metrics "$scratch/metrics" --set training_config.max_steps=6
want=$(hash_of "$scratch/metrics")
[ ${#want} = 64 ] || fail "no hash of one process"
for zero in 0 2 3; do
  for overlap in auto true false; do
    work $((2 + zero % 2)) "${small[@]}" --metrics "$scratch/metrics" --set training_config.max_steps=6 "${line_of[@]}" \
      --set zero.stage=$zero --set $key=$overlap
    [ "$(hash_of "$scratch/metrics")" = "$want" ] || wrong "$library, zero.stage $zero, $overlap: other weights" "$scratch/out"
    [[ "$overlap $note" != auto* || "$note" = "auto is true: "* ]] || wrong "$library, zero.stage $zero: $note"
  done
done

# ---- a run that resumes with another choice ----
run() { # PROCESSES STEPS WORDS…
  work "$1" "${small[@]}" --out "$scratch/resumed" --set training_config.max_steps="$2" "${line_of[@]}" "${@:3}"
}
run 2 2
[[ "$note" = "auto is true: "* ]] || wrong "$library, resumed: $note"
run 1 3 --resume
run 3 4 --resume --set $key=false
run 2 5 --resume --set schedule.bucket_size=1GiB
[[ "$note" = "auto is false: "* ]] || wrong "$library, resumed: $note"
run 4 6 --resume --set $key=true
[ "$(hash_of "$scratch/resumed/metrics.jsonl")" = "$want" ] || wrong "$library, resumed: other weights" "$scratch/out"
report
