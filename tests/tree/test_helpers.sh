#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What shell tests are made of must fail itself: where nothing was checked, too little, or a check has failed.
# usage: test_helpers.sh
set -uo pipefail
checks=0 failed=0
# gives CODE SCRIPT: the exit code of a test that ends so
gives() {
  local code=0
  checks=$((checks + 1))
  bash -c "$2" > /dev/null 2>&1 || code=$?
  [ "$code" = "$1" ] && return
  failed=$((failed + 1))
  echo "FAILED: exit code $code, not $1: $2"
}
commands='. tests/commands.sh /bin/true'
gives 1 "$commands; end_of none 1"
gives 1 "$commands; ends 0; end_of few 2"
gives 0 "$commands; ends 0; end_of enough 1"
gives 1 "$commands; ends 1; end_of failed 1"
gives 1 "$commands; echo text > text; program=/bin/cat; ends 0 text; says other; end_of failed 1"
gives 0 "$commands; echo text > text; program=/bin/cat; ends 0 text; says text; end_of enough 1"
processes='build=/tmp; . tests/processes/common.sh'
gives 1 "$processes; report"
gives 0 "$processes; checks=1; report"
gives 1 "$processes; checks=1; wrong it; report"
gives 77 "$processes; skip 'a reason'"
gives 1 "$processes; fail 'a reason'"
echo "tree.helpers: $checks checks, $failed failed"
[ "$checks" = 11 ] && [ "$failed" = 0 ]
