#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep whose runs are jobs of several processes: its table is that of runs of one process; a signal, and the end of
# the sweep by kill -9, end the processes of its runs, which leave checkpoints.
# usage: test_sweep.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"

values=(--set training_config.max_steps=4 --set 'lr=[0.01, 0.02]' --set sweep.metric=loss/train)
job=(--launcher "${launcher[*]} -n 2" --set 'mesh={axes: [dp, tp], shape: [2, 2]}')
# sweep FOLDER OPTION…
sweep() {
  local code=0
  checks=$((checks + 1))
  bounded "$program" sweep --config "$recipe" --out "$scratch/$1" "${@:2}" > "$scratch/out" 2>&1 || code=$?
  [ "$code" = 0 ] || wrong "$library, $1: exit code $code" "$scratch/out"
}
sweep one "${values[@]}" --set 'mesh={axes: [dp], shape: [1]}'
sweep two "${values[@]}" "${job[@]}"
cmp -s "$scratch/one/sweep.csv" "$scratch/two/sweep.csv" || wrong "$library: another table" "$scratch/two/sweep.csv"
grep -q "^processes: 2" "$scratch/two/run-001/log.txt" || wrong "$library: the run is no job" "$scratch/two/run-001/log.txt"

# ends_by SIGNAL: the processes of the run end, with a checkpoint
ends_by() {
  local folder=$scratch/by_$1 pid code=0
  bounded "$program" sweep --config "$recipe" --out "$folder" "${endless[@]}" --set 'lr=[0.01, 0.02]' \
    --set sweep.metric=loss/train "${job[@]}" > "$scratch/out" 2>&1 &
  while ! pid=$(pgrep -o -f -- "^$program sweep .*--out $folder "); do sleep 0.1; done
  until grep -qs '"event":"step"' "$folder/run-001/metrics.jsonl"; do sleep 0.1; done
  kill "-$1" "$pid"
  wait $! || code=$?
  checks=$((checks + 1))
  [ "$code" = "$2" ] || wrong "$library, $1: exit code $code, not $2" "$scratch/out"
  while pgrep -f -- "--out $folder/run-001" > "$scratch/left"; do sleep 0.1; done
  [ -n "$(ls "$folder/run-001/checkpoints")" ] || wrong "$library, $1: no checkpoint" "$folder/run-001/log.txt"
  [ ! -e "$folder/run-002" ] || wrong "$library, $1: another run was started"
}
ends_by TERM 143
ends_by KILL 137
report
