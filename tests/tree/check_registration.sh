#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Meson and CTest must know the same tests.
# usage: check_registration.sh BUILD_FOLDER
set -eu
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

meson introspect "$build" --tests | tr ',' '\n' |
  sed -n 's/^ *"name": "\(.*\)"$/\1/p' | sort > "$scratch/meson"
ctest --test-dir "$build" -N |
  sed -n 's/^ *Test *#[0-9]*: //p' | sort > "$scratch/ctest"
if [ ! -s "$scratch/meson" ]; then
  echo "meson introspect lists no test in $build"
  exit 1
fi
diff "$scratch/meson" "$scratch/ctest" || { echo "< only meson has it, > only ctest has it"; exit 1; }
echo "$(wc -l < "$scratch/meson") tests in both"
