# SPDX-License-Identifier: Apache-2.0
# What the tests with processes share; sourced by them, in the source root. The caller sets `build`.

skip() {
  echo "skipped: $1"
  exit 77
}
fail() {
  echo "FAILED: $1" >&2
  exit 1
}

failed=0 checks=0
# What does not hold is said, and the next thing is looked at.
wrong() {
  echo "FAILED: $1"
  [ ! -f "${2-}" ] || sed 's/^/  | /' "$2"
  failed=$((failed + 1))
}
report() {
  echo "$checks checks, $failed failed"
  [ "$checks" -gt 0 ] && [ "$failed" = 0 ]
}

build=$(realpath "$build")
program=$build/tessera-train
faulty=$build/tessera-train-faults # the same, which TESSERA_FAULT makes fail (src/base/fault.h)
root=$PWD
recipe=$root/tests/processes/run.yaml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset TESSERA_TRANSPORT TESSERA_PLUGIN_PATH TESSERA_DETERMINISTIC TESSERA_COMM_TRACE TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME
export TESSERA_SHARE=$root
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPI keeps memory to its end that the leak checker asks about.
export ASAN_OPTIONS=detect_leaks=0

# choose_launcher openmpi|mpich: the words before the program, in `launcher`. False with the reason in `why`.
choose_launcher() {
  local mpirun=mpirun.$1
  why="libtessera-$1.so was not built (no compiler of $1 was there)"
  [ -f "$build/libtessera-$1.so" ] || return 1
  command -v "$mpirun" >/dev/null || mpirun=mpirun
  why="there is no mpirun.$1"
  command -v "$mpirun" >/dev/null || return 1
  case $("$mpirun" --version 2>&1) in
  *"Open MPI"* | *OpenRTE*) [ "$1" = openmpi ] || return 1 ;;
  *) [ "$1" = mpich ] || return 1 ;;
  esac
  launcher=("$mpirun")
  [ "$1" = mpich ] || launcher+=(--oversubscribe)
}

# A run that never ends is a failure, too: `patience` seconds.
patience=150
bounded() { timeout -k 5 "$patience" "$@" </dev/null; }

# Options of a run that something else ends, on a machine of any speed.
endless=(--set training_config.max_steps=1000000 --set training_config.num_epochs=1000000)

# The weights' hash at the end of a file of metrics, or nothing.
hash_of() { sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p' "$1" 2>/dev/null | tail -n 1; }
# What evaluation and samples gave: all of a run that is the same on every mesh but the weights.
texts_of() { grep -E '"event":"(eval|sample)"' "$1" 2>/dev/null; }

# A mesh in short, as options: "dp=2,tp=2" and further keys of the configuration.
options_of() {
  local axes=() shape=() part
  for part in ${1//,/ }; do
    axes+=("${part%=*}") shape+=("${part#*=}")
  done
  local IFS=,
  options=(--set "mesh={axes: [${axes[*]}], shape: [${shape[*]}]}")
  for part in "${@:2}"; do options+=(--set "$part"); done
}
