#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The folder that scripts/gpu_pack makes, alone in an empty environment: scripts/gpu_check runs its parts from there.
# Without a GPU every test of the kernels is skipped, and the program's checks run on an emulated device.
# usage: test_pack.sh BUILD_FOLDER PLUGIN_FOLDER
set -euo pipefail
build=$1 emulated=$(realpath "$2")
. tests/processes/common.sh

pack=$scratch/pack
scripts/gpu_pack --out "$pack" --dir "$build" --no-build > "$scratch/out"
checks=$((checks + 1))
[ ! -e "$pack.new" ] || wrong "something is left beside the pack"
code=0
scripts/gpu_pack --out "$pack" --dir "$build" --no-build > "$scratch/out" 2>&1 || code=$?
checks=$((checks + 1))
[ $code = 2 ] && grep -qF "'$pack' exists" "$scratch/out" || wrong "a pack is overwritten" "$scratch/out"

cd "$scratch"
check() { # NAME CODE OPTION…: what gpu_check says in $scratch/NAME.out
  local code=0
  checks=$((checks + 1))
  env -i PATH="$PATH" HOME="$HOME" timeout -k 5 800 "$pack/scripts/gpu_check" --packed "$pack" "${@:3}" > "$scratch/$1.out" 2>&1 || code=$?
  [ $code = "$2" ] || wrong "$1: gpu_check ends with $code, not with $2" "$scratch/$1.out"
}
if ! "$pack/build/tessera-train" doctor | grep -q '^device *found'; then
  check kernels 1 --part 1
  checks=$((checks + 3))
  grep -qE '^doctor +[0-9]+ s  passed$' "$scratch/kernels.out" || wrong "no doctor" "$scratch/kernels.out"
  ! grep -vE '^doctor |^[a-z0-9]+ +[0-9]+ s  skipped$' <(sed '1,/^== all$/d' "$scratch/kernels.out") ||
    wrong "a test beside doctor is not skipped" "$scratch/kernels.out"
  grep -qE '^attention +[0-9]+ s  skipped$' "$scratch/kernels.out" || wrong "no kernels" "$scratch/kernels.out"
fi
check unknown 2 --part 9
cp "$emulated/libtessera-cuda.so" "$pack/build/libtessera-cuda.so"
check program 0 --part 3
checks=$((checks + 1))
grep -qE '^devices +[0-9]+ s  passed$' "$scratch/program.out" || wrong "no table" "$scratch/program.out"
report
