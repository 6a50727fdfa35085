#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job whose processes do not all come: the first one says which and why, after TESSERA_JOIN_TIMEOUT_S.
# usage: test_join.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
patience=40
export TESSERA_JOIN_TIMEOUT_S=3
train=("$program" --config "$recipe" --set training_config.max_steps=1 --set training_config.eval_every=0
  --set training_config.sample_tokens=0 --set 'mesh={axes: [dp], shape: [2]}' --quiet)

# not_begun NAME PATTERN COMMAND...: process 0 trains, and process 1 is the command
not_begun() {
  local code=0
  bounded "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "${@:3}" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ $code != 0 ] && [ $code != 124 ] || wrong "$library, $1: exit code $code" "$scratch/out"
  [ "$(grep -cxE -- "error: process 0: the job has not begun in 3 s: $2" "$scratch/out")" = 1 ] ||
    wrong "$library, $1: does not say once: $2" "$scratch/out"
}
not_begun "a process that ends" "process 1 has ended" true
not_begun "another program" "process 1 \(pid [0-9]+\) runs 'sleep'" sleep 30
not_begun "a shell of another program" "process 1 \(pid [0-9]+\) runs '(bash|sleep)'" bash -c 'sleep 30; true'

# A process that is stopped before it joins: it sleeps until somebody is the program.
cat > "$scratch/stopped" <<'STOPPED'
#!/usr/bin/env bash
"$@" &
while [ "$(readlink "/proc/$!/exe")" = "$(readlink /proc/$$/exe)" ]; do :; done
kill -STOP $!
sleep 30
kill -KILL $!
STOPPED
chmod +x "$scratch/stopped"
not_begun "a stopped process" "process 1 \(pid [0-9]+\) is stopped" "$scratch/stopped" "${train[@]}"
pkill -KILL -f -- "--config $recipe --set training_config.max_steps=1 " || true

# All come, also behind a script.
unset TESSERA_JOIN_TIMEOUT_S
bounded "${launcher[@]}" -n 2 bash -c '"$@"; exit $?' train "${train[@]}" > "$scratch/out" 2>&1 ||
  wrong "$library: a job behind a script" "$scratch/out"
checks=$((checks + 1))
report
