#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `profile` in several processes: process 0 prints the table of all ranks and writes their trace, which agree;
# communication overlaps with compute where the configuration says so; the weights are those of a run without profile;
# and a process that is killed ends it without a trace. Asserts no times.
# usage: test_profile_processes.sh openmpi|mpich BUILD_FOLDER CHECK_TRACE
set -euo pipefail
library=$1 build=$2 check_trace=$(realpath "$3")
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"

steps=3
whole=(training_config.batch_size=8 training_config.gradient_accumulation_steps=1)
base=(--config "$recipe" --set training_config.max_steps=$((steps + 1)) --set training_config.eval_every=0
  --set scheduler_config.type=constant --set 'numerics.units={batch: 4, sequence: 1, tp: 4}')

# profile_of WORKERS MESH KEY=VALUE…: what it prints in $scratch/profile, its results in $scratch/out. The weights are
# those of one process.
profile_of() {
  local code=0 name="$library, $*" with without ranks=1 part
  options_of "${@:2}"
  for part in ${2//,/ }; do ranks=$((ranks * ${part#*=})); done
  rm -rf "$scratch/out" "$scratch/metrics"
  checks=$((checks + 1))
  bounded "${launcher[@]}" -n "$1" "$program" profile "${base[@]}" "${options[@]}" --steps $steps --out "$scratch/out" \
    > "$scratch/profile" 2> "$scratch/errors" || code=$?
  if [ "$code" != 0 ]; then
    wrong "$name: exit code $code" "$scratch/errors"
    return
  fi
  "$check_trace" "$scratch/out/trace.json" "$scratch/profile" > "$scratch/said" 2>&1 ||
    wrong "$name: the trace is wrong, or not what the table says" "$scratch/said"
  grep -q "^profile of $steps steps, .*; $ranks ranks on .* of $1 processes$" "$scratch/profile" ||
    wrong "$name: does not say how many ranks and processes" "$scratch/profile"
  for part in '^profile of' '^overlapped: ' '^trace: ' '^clocks: all processes have the clock of one host$'; do
    [ "$(grep -c "$part" "$scratch/profile")" = 1 ] || wrong "$name: not one line '$part'" "$scratch/profile"
  done
  grep -q '^advice: ' "$scratch/profile" || wrong "$name: no advice" "$scratch/profile"
  for ((part = 0; part < ranks; part++)); do
    grep -q "\"cat\":\"communication\".*\"pid\":$part,\"tid\":[12]," "$scratch/out/trace.json" &&
      grep -q "\"name\":\"rank $part " "$scratch/out/trace.json" || wrong "$name: no communication of rank $part"
  done
  [ "$(find "$scratch/out" -name 'trace.json*')" = "$scratch/out/trace.json" ] || wrong "$name: more files of traces"
  bounded "$program" "${base[@]}" "${options[@]}" --quiet --metrics "$scratch/metrics" > "$scratch/said" 2>&1 ||
    wrong "$name: training failed" "$scratch/said"
  with=$(hash_of "$scratch/out/metrics.jsonl") without=$(hash_of "$scratch/metrics")
  [ "${#with}" = 64 ] || wrong "$name: no hash of the weights"
  [[ $* = *policy=fast* ]] || [ "$with" = "$without" ] || wrong "$name: weights $with, and $without without profile"
}
overlapped() { sed -n 's/^overlapped: \([0-9.]*\) % of communication$/\1/p' "$scratch/profile"; }
nothing_overlaps() {
  [ "$(overlapped)" = 0.0 ] || wrong "$library: overlapped without overlap: $(overlapped) %" "$scratch/profile"
  ! grep -q '"tid":2,"args":{"step"' "$scratch/out/trace.json" || wrong "$library: in the background without overlap"
}
# A share that is rounded to 0.0 is one, too.
overlaps() {
  awk '/^  rank  stage/ { rows = 1; next } /^ratio/ { rows = 0 } rows { sum += $6 } END { exit !(sum > 0) }' \
    "$scratch/profile"
}
# The same of a profile in which something overlaps. On a busy machine the other process may happen to have sent all
# before each collective begins, which ends it at once: then once more.
overlapped_profile_of() {
  local try
  for try in 1 2 3 4 5; do
    profile_of "$@"
    grep -q '"tid":2,"args":{"step"' "$scratch/out/trace.json" || wrong "$library, $*: nothing is in the background"
    if overlaps; then return; fi
  done
  wrong "$library, $*: nothing overlaps, $try times" "$scratch/profile"
}

overlap=(schedule.all_reduce_overlap=true schedule.bucket_size=4KiB)
profile_of 2 dp=2,tp=2 "${whole[@]}"
nothing_overlaps
overlapped_profile_of 2 dp=2,tp=2 "${overlap[@]}"
overlapped_profile_of 3 dp=4 "${whole[@]}" "${overlap[@]}"
profile_of 3 dp=4 "${whole[@]}"
nothing_overlaps
overlapped_profile_of 2 dp=4 "${whole[@]}" "${overlap[@]}" zero.stage=3
overlapped_profile_of 2 dp=2 "${overlap[@]}" zero.stage=2
overlapped_profile_of 2 dp=2,tp=2 "${overlap[@]}" numerics.policy=fast
overlapped_profile_of 3 dp=2,pp=2 "${overlap[@]}"
grep -q '^bubble: ' "$scratch/profile" || wrong "$library, pp: no bubble" "$scratch/profile"

# What several processes refuse as one does.
refused() {
  local code=0
  checks=$((checks + 1))
  bounded "${launcher[@]}" -n 2 "$program" profile "${base[@]}" --out "$scratch/none" "${@:3}" > "$scratch/said" 2>&1 ||
    code=$?
  [ "$code" = "$1" ] || wrong "$library, ${*:3}: exit code $code" "$scratch/said"
  [ "$(grep -c "error: $2" "$scratch/said")" = 1 ] || wrong "$library, ${*:3}: not once '$2'" "$scratch/said"
  [ ! -e "$scratch/none/trace.json" ] || wrong "$library, ${*:3}: leaves a trace"
}
options_of dp=2
refused 2 'the run has 4 steps; 1 to warm up and 40 that are recorded are 41' "${options[@]}" --steps 40
mkdir -p "$scratch/none"
echo other > "$scratch/none/trace.json"
options_of dp=2
code=0
bounded "${launcher[@]}" -n 2 "$program" profile "${base[@]}" "${options[@]}" --out "$scratch/none" --overwrite \
  > "$scratch/said" 2>&1 || code=$?
checks=$((checks + 1))
[ "$code" != 0 ] && [ "$code" != 124 ] && [ "$(cat "$scratch/none/trace.json")" = other ] &&
  [ "$(grep -c "error: '.*trace.json' is there and is no trace" "$scratch/said")" = 1 ] ||
  wrong "$library: replaces another trace.json, or does not say so once" "$scratch/said"

# The second of two is killed, some time in the recorded steps.
second() {
  local pid
  for pid in $(pgrep -f "$scratch/killed" || true); do
    [ "$(readlink "/proc/$pid/exe")" = "$program" ] || continue
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qE '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=1$'; then echo "$pid"; fi
  done
}
options_of dp=2 training_config.max_steps=100000 training_config.num_epochs=100000
checks=$((checks + 1)) code=0
bounded "${launcher[@]}" -n 2 "$program" profile "${base[@]}" "${options[@]}" --steps 1000 --out "$scratch/killed" \
  > "$scratch/said" 2>&1 &
job=$!
for _ in $(seq 300); do
  grep -q '"step":5,' "$scratch/killed/metrics.jsonl" 2> "$scratch/errors" && break
  sleep 0.1
done
kill -KILL "$(second)"
wait "$job" || code=$?
[ "$code" != 0 ] && [ "$code" != 124 ] || wrong "$library, a killed process: exit code $code" "$scratch/said"
[ -z "$(find "$scratch/killed" -name 'trace.json*')" ] || wrong "$library, a killed process: a trace is left"
! grep -q '^profile of' "$scratch/said" || wrong "$library, a killed process: prints a profile" "$scratch/said"
report
