#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every file of configs/runs is proved, with data and without; and a proof costs little more than `check`, of which
# it is the last part: over all files together, the best of three rounds of both in turn.
# usage: test_runs.sh PROGRAM
set -uo pipefail
program=$1
most=20 # times `check`
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME TESSERA_DETERMINISTIC
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 proved=0

complain() {
  echo "$*"
  cat "$scratch/out" "$scratch/err"
  failed=$((failed + 1))
}

prove() { # FILE SETTING...
  local file=$1
  shift
  "$program" check --config "$file" --prove "$@" >"$scratch/out" 2>"$scratch/err" ||
    { complain "$file: exit code $?"; return; }
  [ "$(grep -cE '^bits: (one sha256 of the|the optimizer has no state$)' "$scratch/out")" = 4 ] ||
    complain "$file: not all bits were compared"
  grep -qE '^updates: ([0-9]+) of \1 parameters with a gradient change, in 2 of 2 steps' "$scratch/out" ||
    complain "$file: other updates"
  [ "$(sed -n '/^not shown:/,$p' "$scratch/out" | grep -c '^  ')" = 6 ] || complain "$file: not all is listed"
  grep -q '^interpreter, step 1.*: loss within' "$scratch/out" || complain "$file: not compared with the interpreter"
  grep -qE '^placements: ([0-9]+) of \1 parameters' "$scratch/out" || complain "$file: other placements"
  [ "$(tail -n 1 "$scratch/out")" = "tested at reduced size; full size: verified statically" ] ||
    complain "$file: another last line"
  proved=$((proved + 1))
}

for file in configs/runs/*.yaml; do
  prove "$file"
  prove "$file" --set training_config.data_path=no/such/data
done

total() { # WORDS...: of `check` over all files, in nanoseconds
  local begin file
  begin=$(date +%s%N)
  for file in configs/runs/*.yaml; do "$program" check --quiet --config "$file" "$@" 2>/dev/null; done
  echo $(($(date +%s%N) - begin))
}
least() { [ "$1" -lt "$2" ] && echo "$1" || echo "$2"; }
plain=9223372036854775807 proving=$plain
for round in 1 2 3; do
  : "$round"
  plain=$(least "$plain" "$(total)")
  proving=$(least "$proving" "$(total --prove)")
done
echo "$proved proofs, $failed failed; check $((plain / 1000000)) ms, with --prove $((proving / 1000000)) ms"
[ "$proving" -le $((plain * most)) ] || { echo "more than $most times as long"; failed=1; }
[ "$failed" = 0 ] && [ "$proved" -ge 28 ]
