#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Policy fast: sums between processes are the MPI library's own, and say so; training ends where it ends with the
# tree, within rounding; TESSERA_DETERMINISTIC=1 takes the tree back; and who waits in such a sum for a process that
# is stopped says so in time.
# usage: test_fast.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"

steps=20
whole=(training_config.batch_size=8 training_config.gradient_accumulation_steps=1)
few=(--set training_config.max_steps=$steps --set training_config.eval_every=0)

# run NAME WORKERS MESH KEY=VALUE…: what it prints in $scratch/out, its metrics in $scratch/metrics.
run() {
  local code=0
  name="$library, $1, ${*:2}"
  options_of "${@:3}"
  rm -f "$scratch/metrics"
  TESSERA_COMM_TRACE=1 bounded "${launcher[@]}" -n "$2" "$program" --config "$recipe" --metrics "$scratch/metrics" \
    "${few[@]}" "${options[@]}" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ "$code" = 0 ] || wrong "$name: exit code $code" "$scratch/out"
}
last_loss() { grep '"event":"end"' "$scratch/metrics" | grep -o '"loss":[0-9.e+-]*' | cut -d: -f2; }
# traced OP ALGO TRANSPORT: how many lines there are of it. Lines of several processes may be in one another.
traced() { grep -c "op=$1 axis=dp bytes=[0-9]* algo=$2 tree=[a-z]* policy=[a-z]* transport=$3 path=shm " "$scratch/out" || true; }

# compare WORKERS MESH KEY=VALUE…: the tree, then fast; then fast that is told not to be.
compare() {
  local loss hash ordered=tree
  [ "$op" != all_reduce ] || ordered=shared
  run tree "$@" numerics.policy=deterministic
  loss=$(last_loss) hash=$(hash_of "$scratch/metrics")
  [ "$(traced "$op" "$ordered" "$library")" -gt 0 ] || wrong "$name: no $op by the tree is traced"
  [ "$(traced '[a-z_]*' mpi "$library")" = 0 ] || wrong "$name: traces sums of the library's"
  run fast "$@" numerics.policy=fast
  awk -v a="$loss" -v b="$(last_loss)" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1e-4 && d > -1e-4) }' ||
    wrong "$name: ends with loss $(last_loss), the tree with $loss"
  [ "$(traced "$op" mpi "$library")" -gt 0 ] || wrong "$name: no $op by the library is traced"
  [ "$(traced "$op" "$ordered" "$library")" = 0 ] || wrong "$name: traces sums of the tree"
  TESSERA_DETERMINISTIC=1 run overridden "$@" numerics.policy=fast
  grep -q 'note: TESSERA_DETERMINISTIC=1: the policy is deterministic, not fast$' "$scratch/out" ||
    wrong "$name: does not say that it is deterministic" "$scratch/out"
  [ "$(hash_of "$scratch/metrics")" = "$hash" ] || wrong "$name: other weights than the tree's"
  [ "$(traced '[a-z_]*' mpi "$library")" = 0 ] || wrong "$name: traces sums of the library's"
}

op=all_reduce compare 2 dp=4,tp=1 "${whole[@]}"
op=reduce_scatter compare 2 dp=4 "${whole[@]}" zero.stage=3
[ "$library" = mpich ] || op=all_reduce compare 3 dp=2,tp=2,pp=2

# One of two is stopped, some time in a long run.
few=(--set training_config.max_steps=1000000 --set training_config.eval_every=0 --set collectives.timeout_s=3)
stopping() {
  local pid=
  for _ in $(seq 300); do
    grep -q '"step":5,' "$scratch/metrics" 2>/dev/null && break
    sleep 0.1
  done
  for pid in $(pgrep -f "$scratch/metrics" || true); do
    [ "$(readlink "/proc/$pid/exe")" = "$program" ] && break
  done
  began=$SECONDS
  kill -STOP "$pid"
  wait "$job" || code=$?
}
options_of dp=2 numerics.policy=fast
name="$library, a stopped process" code=0
rm -f "$scratch/metrics"
bounded "${launcher[@]}" -n 2 "$program" --config "$recipe" --metrics "$scratch/metrics" "${few[@]}" "${options[@]}" \
  > "$scratch/out" 2>&1 &
job=$!
stopping
checks=$((checks + 1))
[ "$code" != 0 ] && [ "$code" != 124 ] && [ $((SECONDS - began)) -le 15 ] ||
  wrong "$name: ended with $code after $((SECONDS - began)) s" "$scratch/out"
grep -q 'has waited [0-9.]* s for others; collectives.timeout_s is 3$' "$scratch/out" &&
  grep -q ': stopped (SIGSTOP)$' "$scratch/out" || wrong "$name: does not say who is stopped" "$scratch/out"
report
