#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every file of tt-train that lies beside the project goes through the commands that compute nothing. Each is understood,
# or refused with a reason; none ends by a signal or without a word.
# usage: test_shared_commands.sh PROGRAM FOLDER
set -euo pipefail

program=$1 folder=$2
[ -d "$folder" ] || {
  echo "skipped: there is no $folder"
  exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
runs=0 failed=0

judge() { # WORDS of a command
  local code=0
  runs=$((runs + 1))
  timeout 300 "$program" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
  [ "$code" = 0 ] && [ -s "$scratch/out" ] && return
  [ "$code" = 2 ] && grep -q 'error: ' "$scratch/err" && return
  failed=$((failed + 1))
  echo "$*: exit code $code"
  cat "$scratch/err"
}

while read -r file; do
  for command in check plan inspect; do judge "$command" --config "$file"; done
done < <(find "$folder" -name '*.yaml' | sort)
while read -r file; do judge inspect --mesh "$file"; done < <(find "$folder" -name '*.textproto' | sort)

echo "config.shared_commands: $runs runs, $failed failed"
[ "$failed" = 0 ] && [ "$runs" -gt 0 ]
