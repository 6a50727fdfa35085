#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `check --prove` on configurations whose reduction has something of its own: the whole text of the proof, but for
# hashes, errors, the device and the sizes of its accumulators, which differ from machine to machine. With --accept
# the expected texts are written.
# usage: test_cases.sh PROGRAM [--accept]
set -uo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/cases" || exit 1
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME TESSERA_DETERMINISTIC
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 compared=0

mask() {
  sed -n '/^proof: /,$p' |
    sed -E 's/[0-9a-f]{64}/SHA256/; s/(within|differ by) [0-9.e+-]+/\1 N/g; s/ of size and conditioning$//
      s/^updates: [0-9]+ of [0-9]+/updates: N of N/; s/on the CPU, [a-z0-9-]*$/on the CPU, ISA/
      s/of a rank is .*B; /of a rank is LARGEST; /'
}

for folder in */; do
  name=${folder%/} args=()
  [ -f "$name/args" ] && read -ra args <"$name/args"
  (cd "$name" && "$program" check --config run.yaml --prove "${args[@]}") >"$scratch/out" 2>"$scratch/err"
  code=$?
  mask <"$scratch/out" >"$scratch/proof"
  [ "${2-}" = --accept ] && cp "$scratch/proof" "$name/expected"
  if [ "$code" != 0 ] || ! diff -u "$name/expected" "$scratch/proof"; then
    echo "$name: exit code $code"
    cat "$scratch/err"
    failed=$((failed + 1))
  fi
  compared=$((compared + 1))
done
echo "$compared proofs compared, $failed failed"
[ "$failed" = 0 ] && [ "$compared" -ge 15 ]
