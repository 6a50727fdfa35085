#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A transport under its launcher: the same checks on every process; what the launcher makes of an abort; and
# processes that are, or mean to be, alone.
# usage: test_transport.sh openmpi|mpich WORKERS TEST_TRANSPORT BUILD_FOLDER
set -euo pipefail
name=$1 processes=$2 program=$3 build=$4

skip() {
  echo "skipped: $1"
  exit 77
}
fail() {
  echo "FAILED: $1" >&2
  exit 1
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
export ASAN_OPTIONS=detect_leaks=0
unset TESSERA_TRANSPORT TESSERA_PLUGIN_PATH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
run() {
  "$mpirun" "${options[@]}" -n "$1" "$scratch/bin/test_transport" "${@:2}" > "$scratch/out" 2>&1
}
expect() {
  grep -q "$1" "$scratch/out" || { cat "$scratch/out"; fail "no '$1' in what it printed"; }
}

# As it is installed: the program in bin, its plugin in lib/tessera-train.
mkdir -p "$scratch/bin" "$scratch/lib/tessera-train"
cp "$program" "$scratch/bin/test_transport"
cp "$build/libtessera-$name.so" "$scratch/lib/tessera-train"

run "$processes" all || { cat "$scratch/out"; fail "$processes processes"; }
by=OMPI_COMM_WORLD_SIZE
[ "$name" = openmpi ] || by=PMI_SIZE
expect "^$processes processes, $name [0-9.]*, by $by=$processes\$"

# As it is built: beside each other, and on the path.
mv "$scratch/lib/tessera-train/libtessera-$name.so" "$scratch/bin"
code=0
run "$processes" abort 7 || code=$?
if [ "$name" = mpich ]; then
  # MPICH's launcher gives the code of whom it looked at last: of the process that ended the job, of one that it killed
  # (9), or its own (1; pmodels/mpich, issue 7057). The library says which code it was given.
  [ "$code" != 0 ] || { cat "$scratch/out"; fail "an abort with 7 ended with 0"; }
  expect "application called MPI_Abort(.*, 7) - process 1\$"
else
  [ "$code" = 7 ] || { cat "$scratch/out"; fail "an abort with 7 ended with $code"; }
fi
rm "$scratch/bin/libtessera-$name.so"

run 1 alone || { cat "$scratch/out"; fail "one process"; }
expect "^1 processes, $by=1\$"
# MPICH's launcher at times loses the code and the output of processes that end without joining.
tries=1
[ "$name" = openmpi ] || tries=5
for try in $(seq $tries); do
  if TESSERA_TRANSPORT=none run "$processes" alone; then break; fi
  [ "$try" -lt $tries ] || { cat "$scratch/out"; fail "TESSERA_TRANSPORT=none"; }
done
expect '^1 processes, TESSERA_TRANSPORT=none$'
TESSERA_TRANSPORT=$name TESSERA_PLUGIN_PATH=$build "$scratch/bin/test_transport" alone > "$scratch/out" 2>&1 ||
  { cat "$scratch/out"; fail "no launcher"; }
expect "^1 processes, $name [0-9.]* has one process, by TESSERA_TRANSPORT=$name\$"

# refused WHAT TEXT: every process ends with 1 and says so.
refused() {
  local code
  for try in $(seq $tries); do
    code=0
    run "$processes" all || code=$?
    if [ "$code" = 1 ] && grep -q "$2" "$scratch/out"; then return; fi
  done
  cat "$scratch/out"
  fail "$1 it ended with $code, or without '$2'"
}
refused "without its plugin" "error: $by=$processes asks for .*, but no libtessera-$name.so can be loaded"

# Started by this launcher, but the other library is chosen: it would see each process alone.
other=mpich
[ "$name" = openmpi ] || other=openmpi
if [ -f "$build/libtessera-$other.so" ]; then
  export TESSERA_TRANSPORT=$other TESSERA_PLUGIN_PATH=$build
  refused "with $other" "^error: $by=$processes: there are $processes processes, but $other [0-9.]* sees 1\$"
fi
echo "$name, $processes processes: well"
