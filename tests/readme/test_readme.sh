#!/usr/bin/env bash
# Does what README.md shows: writes its ```yaml NAME blocks into a folder, runs the commands of its ```console
# blocks there, and compares what they print. A line that is only "…" stands for any lines, "…" inside a line for
# any text.
# usage: test_readme.sh PROGRAM SOURCE_ROOT
set -uo pipefail
program=$(realpath "$1")
root=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/build"
ln -s "$program" "$work/build/tessera-train"
for folder in configs src mesh_descriptors; do ln -s "$root/$folder" "$work/$folder"; done
cd "$work" || exit 1
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME
export TESSERA_SHARE=$root TERM=dumb NO_COLOR=1

awk -v fence='```' '
  index($0, fence) == 1 && inside { inside = 0; close(file); next }
  index($0, fence "yaml ") == 1 { inside = 1; file = substr($0, 9); printf "" > file; next }
  index($0, fence "console") == 1 { inside = 1; file = sprintf("console.%02d", ++count); next }
  inside { print > file }' "$root/README.md"

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
      echo "README.md: $3"
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
    echo "README.md: $3"
    echo "  also prints: ${got[g]}"
    failed=1
  fi
}

commands=0
run() { # the command and what README shows under it
  [ -n "$1" ] || return 0
  bash -c "$1" >actual 2>&1
  compare expected actual "$1"
  commands=$((commands + 1))
}

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
echo "README: $commands commands, $([ $failed = 0 ] && echo all as shown || echo not all as shown)"
[ "$commands" -ge 5 ] || failed=1
exit $failed
