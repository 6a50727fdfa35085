#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command `kernels`: what it lists, that a row's numbers are numbers, and what it says of mistakes.
# Nothing is asked of the speed.
# usage: test_command.sh PROGRAM
set -uo pipefail
program=$1
failed=0 checks=0
complain() {
  echo "$@"
  failed=$((failed + 1))
}

# expect CODE TEXT WORD…: the command ends so, and says just this.
expect() {
  local code=$1 text=$2 said got
  shift 2
  checks=$((checks + 1))
  said=$("$program" kernels "$@" 2>&1)
  got=$?
  [ $got = "$code" ] || complain "kernels $*: exit code $got, not $code"
  [ "$said" = "$text" ] || complain "kernels $*: says '$said', not '$text'"
}

list=$("$program" kernels) || complain "kernels: exit code $?"
[ "$(grep -c ' chosen$' <<<"$list")" = 1 ] || complain "not one level is chosen: $list"
for kernel in add unary_backward layernorm embedding adamw gemm attention attention_ring; do
  checks=$((checks + 1))
  grep -Eq "^ .*\b$kernel\b" <<<"$list" || complain "the list lacks $kernel: $list"
done

# a level that this machine has may be chosen, by --set and by a file
last=$(sed -n '/^levels:/,/^[^ l]/s/^  \([^ ]*\).*/\1/p' <<<"$list" | tail -n 1)
"$program" kernels --set "numerics.isa=$last" | grep -Eq "^  $last +chosen$" || complain "--set: not $last"

# and by the environment, which stands behind both
first=$(unset TESSERA_ISA && "$program" kernels | sed -n 's/^  \([^ ]*\) *chosen$/\1/p')
TESSERA_ISA=$last "$program" kernels | grep -Eq "^  $last +chosen$" || complain "TESSERA_ISA: not $last"
TESSERA_ISA=$last "$program" kernels --set "numerics.isa=$first" | grep -Eq "^  $first +chosen$" ||
  complain "TESSERA_ISA: instead of numerics.isa"

# a level of another machine: those of this one are listed, and not that
for level in $(sed -n 's/^  \([^ ]*\) .*not on this machine.*/\1/p' <<<"$list"); do
  checks=$((checks + 1))
  said=$("$program" kernels --set "numerics.isa=$level" 2>&1) && complain "$level runs here"
  hint=$(grep '= valid: ' <<<"$said") || complain "$level: no levels are listed: $said"
  grep -qw -- "$last" <<<"$hint" || complain "$level: the hint lacks $last: $said"
  ! grep -qw -- "$level" <<<"$hint" || complain "$level: the hint has it: $said"
done

# kernel, shape, GFLOP/s, GB/s, limit, share
checks=$((checks + 1))
table=$("$program" kernels --bench --filter add) || complain "kernels --bench: exit code $?"
grep -Eq '^kernels of [^ ]+, 1 thread$' <<<"$table" || complain "no level and threads: $table"
rows=$(grep -E '^add +[0-9]+ +- +[0-9.]+ +(memory +[0-9]+ %|cache +-)$' <<<"$table")
[ "$(wc -l <<<"$rows")" = 2 ] || complain "add does not have two rows: $table"
awk '$5 == "memory" { share = $6; n++ } END { exit !(n == 1 && share > 0 && share < 1000) }' <<<"$rows" ||
  complain "no share from 0 to 1000 %: $rows"
! grep -q '^mul' <<<"$table" || complain "--filter shows other kernels: $table"
tail -n 1 <<<"$table" | grep -Eq '^(below 60 % of their limit: add.*|all kernels reach 60 % of their limit)$' ||
  complain "the last line: $table"
grep -Eq '^limits, measured around each: [0-9.]+ to [0-9.]+ GFLOP/s, [0-9.]+ to [0-9.]+ GB/s read$' <<<"$table" ||
  complain "no limits: $table"

expect 2 "error: --filter: no kernel's name has 'sofmax' in it" --bench --filter sofmax
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
expect 2 "error: --threads 99999: this process may use $cores core$([ "$cores" = 1 ] || echo s)" --bench --threads 99999
echo "kernels: $checks checks, $failed failed"
[ "$checks" -ge 11 ] && [ "$failed" = 0 ]
