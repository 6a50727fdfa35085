#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does what README.md and the pages in docs/ show, each in a folder of its own: writes their blocks that have a
# file's name (```yaml NAME) there, runs the commands of their ```console blocks, and compares what these print.
# A line that is only "…" stands for any lines, "…" inside a line for any text.
# usage: test_readme.sh PROGRAM SOURCE_ROOT SANITIZERS
set -uo pipefail
program=$(realpath "$1")
root=$(realpath "$2")
sanitizers=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME TESSERA_COMM_TRACE
unset TESSERA_TRANSPORT TESSERA_PLUGIN_PATH TESSERA_DETERMINISTIC
export TESSERA_SHARE=$root TERM=dumb NO_COLOR=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0

# compare EXPECTED ACTUAL COMMAND: the expected lines, with their wildcards, one by one.
compare() {
  local -a want got
  mapfile -t want <"$1"
  mapfile -t got <"$2"
  local w=0 g=0 skipping=0
  while [ $w -lt ${#want[@]} ]; do
    if [ "${want[w]}" = "…" ]; then
      skipping=1
      w=$((w + 1))
      continue
    fi
    local pattern=${want[w]//\\/\\\\}
    pattern=${pattern//\*/\\*}
    pattern=${pattern//\?/\\?}
    pattern=${pattern//\[/\\[}
    pattern=${pattern//…/*}
    while [ $skipping = 1 ] && [ $g -lt ${#got[@]} ] && [[ ${got[g]} != $pattern ]]; do g=$((g + 1)); done
    if [ $g -ge ${#got[@]} ] || [[ ${got[g]} != $pattern ]]; then
      echo "$document: $3"
      echo "  shows:  ${want[w]}"
      echo "  prints: ${got[g]-(nothing)}"
      failed=1
      return
    fi
    skipping=0
    w=$((w + 1))
    g=$((g + 1))
  done
  if [ $skipping = 0 ] && [ $g -lt ${#got[@]} ]; then
    echo "$document: $3"
    echo "  also prints: ${got[g]}"
    failed=1
  fi
}

run() { # the command and what the document shows under it
  [ -n "$1" ] || return 0
  bash -c "$1" >actual 2>&1 </dev/null
  compare expected actual "$1"
  commands=$((commands + 1))
}

# check DOCUMENT LEAST: it shows at least so many commands.
check() {
  local document=$1 least=$2 folder=$work/${1##*/} commands=0 before=$failed block line command
  failed=0
  mkdir -p "$folder/build"
  ln -s "$program" "$folder/build/tessera-train"
  for name in configs src docs mesh_descriptors scripts; do ln -s "$root/$name" "$folder/$name"; done
  cd "$folder" || exit 1
  awk -v fence='```' '
    index($0, fence) == 1 && inside { inside = 0; close(file); next }
    index($0, fence "console") == 1 { inside = 1; file = sprintf("console.%03d", ++count); next }
    index($0, fence) == 1 { inside = NF == 2; file = $2; if (inside) printf "" > file; next }
    inside { print > file }' "$root/$document"
  for block in console.*; do
    command=
    while IFS= read -r line; do
      if [[ $line == '$ '* ]]; then
        run "$command"
        command=${line#'$ '}
        : >expected
      else
        printf '%s\n' "$line" >>expected
      fi
    done <"$block"
    run "$command"
  done
  [ "$commands" -ge "$least" ] || failed=1
  echo "$document: $commands commands, $([ $failed = 0 ] && echo all as shown || echo not all as shown)"
  failed=$((failed | before))
}

check README.md 6
check docs/tutorial.md 10
check docs/parallelism.md 25
check docs/checkpoints.md 12
check docs/fine_tuning.md 8
check docs/data.md 19
check docs/trust.md 12
check docs/reports.md 9
check docs/fine_tuning_tutorial.md 23
check docs/sweeps.md 9
if [ "$sanitizers" != none ]; then
  echo "docs/clusters.md: skipped: the program is instrumented, and MPI is not"
elif ! command -v mpirun.openmpi >/dev/null || ! command -v mpirun.mpich >/dev/null; then
  echo "docs/clusters.md: skipped: there are not both mpirun.openmpi and mpirun.mpich"
elif [ ! -f "${program%/*}/libtessera-openmpi.so" ] || [ ! -f "${program%/*}/libtessera-mpich.so" ]; then
  echo "docs/clusters.md: skipped: the plugins for Open MPI and MPICH were not both built"
else
  check docs/clusters.md 7
fi
exit $failed
