#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command on this machine, whatever that has: each layer once, in its order, and an exit code that fits.
# usage: test_command.sh TESSERA_TRAIN
set -u
program=$1
failed=0
complain() { echo "doctor: $*" >&2; failed=1; }

said=$("$program" doctor)
code=$?
layers=$(grep -oE '^[a-z]+' <<< "$said" | uniq | grep -vE '^(device|link)$' | tr '\n' ' ')
[ "$layers" = "cpu openmpi mpich slurm driver cuda nccl nvlink infiniband gpudirect nvshmem deepep " ] || complain "layers: $layers"
bad=$(grep -E '^[a-z]' <<< "$said" | grep -vE '^[a-z]+ +(found|missing|mismatched) +[^ ]')
[ -z "$bad" ] || complain "lines: $bad"
grep -qE '^cpu +found +[0-9]+ of [0-9]+ cores for this process, level ' <<< "$said" || complain "no cpu: $said"
wrong=$(grep -cE '^[a-z]+ +mismatched' <<< "$said")
[ "$code" = $((wrong > 0)) ] || complain "$wrong mismatched, but it ends with $code: $said"

# a plugin that is none
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo text > "$folder/libtessera-cuda.so"
TESSERA_PLUGIN_PATH=$folder "$program" doctor > "$folder/said"
cuda=$(sed -n '/^cuda/,/^nccl/p' "$folder/said")
if grep -q '^cuda *missing' <<< "$cuda"; then
  grep -qF "$folder/libtessera-cuda.so: " <<< "$cuda" || complain "says nothing of the file: $cuda"
  grep -qF 'scripts/build -Dcuda=enabled' <<< "$cuda" || complain "no remedy: $cuda"
fi

"$program" doctor --config x.yaml nonsense 2> "$folder/said" && complain "takes an argument"
grep -qF "error: unexpected argument 'nonsense'" "$folder/said" || complain "$(cat "$folder/said")"
"$program" check --topology 2> "$folder/said" && complain "check takes --topology"
grep -qF -- "--topology" "$folder/said" || complain "$(cat "$folder/said")"
exit $failed
