#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The collectives' test under a launcher, by the plugin of its MPI.
# usage: test_remote.sh openmpi|mpich WORKERS TEST_REMOTE BUILD_FOLDER
set -euo pipefail
name=$1 processes=$2 program=$3 build=$4

skip() {
  echo "skipped: $1"
  exit 77
}

[ -f "$build/libtessera-$name.so" ] || skip "libtessera-$name.so was not built (no compiler of $name was there)"
mpirun=mpirun.$name
command -v "$mpirun" >/dev/null || mpirun=mpirun
command -v "$mpirun" >/dev/null || skip "there is no mpirun.$name"
case $("$mpirun" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) [ "$name" = openmpi ] || skip "mpirun is Open MPI's" ;;
*) [ "$name" = mpich ] || skip "mpirun is not Open MPI's" ;;
esac

options=()
if [ "$name" = openmpi ]; then
  options=(--oversubscribe)
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# MPI keeps memory to its end that the leak checker asks about.
export ASAN_OPTIONS=detect_leaks=0 TESSERA_PLUGIN_PATH=$build
unset TESSERA_TRANSPORT

out=$(mktemp)
trap 'rm -f "$out"' EXIT
code=0
"$mpirun" "${options[@]}" -n "$processes" "$program" launched > "$out" 2>&1 || code=$?
finished=$(grep -c '^remote: [0-9]* checks, 0 failed$' "$out" || true)
if [ "$code" != 0 ] || [ "$finished" != "$processes" ] || ! grep -q "^$processes processes, $name " "$out"; then
  cat "$out"
  echo "FAILED: ended with $code; $finished of $processes processes were well" >&2
  exit 1
fi
echo "$name, $processes processes: well"
