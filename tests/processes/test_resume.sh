#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of many processes that stops and goes on with another number of them: by its own end, by a signal to the
# launcher, by --time-limit. The weights are those of a run that never stopped.
# usage: test_resume.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
steps=40 half=16

# train WORKERS FOLDER MESH OPTION…: the exit code in `code`, what it printed in $scratch/out.
train() {
  local processes=$1 folder=$2 with=()
  options_of "$3"
  [ "$processes" = 1 ] || with=("${launcher[@]}" -n "$processes")
  code=0
  bounded "${with[@]}" "$program" --config "$recipe" --metrics "$folder.metrics" --set training_config.eval_every=0 \
    --set training_config.max_steps=$steps \
    --set training_config.checkpoint_dir="$folder" "${options[@]}" "${@:4}" > "$scratch/out" 2>&1 || code=$?
}
expect_end() { # NAME FOLDER
  checks=$((checks + 1))
  if [ "$code" != 0 ] || [ "$(hash_of "$2.metrics")" != "$want" ]; then
    wrong "$1: exit code $code, weights $(hash_of "$2.metrics"), but of a run that never stopped $want" "$scratch/out"
  fi
}
steps_of() { sed -n 's/.*"event":"step","step":\([0-9]*\),.*/\1/p' "$1"; }

train 1 "$scratch/whole" dp=1
want=$(hash_of "$scratch/whole.metrics")
[ ${#want} = 64 ] || fail "no hash of a run that never stopped"

# ---- from 4 processes on fewer, and from fewer on 4 ----
meshes=([1]=dp=1 [2]=dp=2,tp=2 [3]=dp=2,tp=2,pp=2 [4]=tp=2,pp=2)
train 4 "$scratch/of_4" dp=2,tp=2,pp=2 --set training_config.max_steps=$half
[ "$code" = 0 ] || { cat "$scratch/out"; fail "4 processes ended with $code"; }
for processes in 1 2 3; do
  cp -r "$scratch/of_4" "$scratch/on_$processes"
  cp "$scratch/of_4.metrics" "$scratch/on_$processes.metrics"
  train $processes "$scratch/on_$processes" "${meshes[processes]}" --resume
  expect_end "$library, from 4 processes on $processes" "$scratch/on_$processes"
  [ "$(steps_of "$scratch/on_$processes.metrics")" = "$(seq $steps)" ] ||
    wrong "$library, from 4 processes on $processes: not one line of metrics a step"
done
for processes in 1 2 3; do
  train $processes "$scratch/of_$processes" "${meshes[processes]}" --set training_config.max_steps=$half
  train 4 "$scratch/of_$processes" "${meshes[4]}" --resume
  expect_end "$library, from $processes processes on 4" "$scratch/of_$processes"
done

# ---- no checkpoint that is whole ----
cp -r "$scratch/of_4" "$scratch/damaged"
for file in "$scratch"/damaged/step-*/history.safetensors; do echo x >> "$file"; done
train 2 "$scratch/damaged" dp=2,tp=2 --resume
checks=$((checks + 1))
[ "$code" != 0 ] && grep -q "has checkpoints, and none can be read" "$scratch/out" && ! grep -qi "signal\|fault" "$scratch/out" ||
  wrong "$library, no checkpoint is whole: exit code $code" "$scratch/out"

# ---- signals: of a run that does not end by itself, however fast the machine ----
short=(--set training_config.sample_tokens=0)
long=("${short[@]}" "${endless[@]}")
wait_until() { # WHAT COMMAND…
  local i
  for ((i = 0; i < patience * 10; i++)); do
    if "${@:2}"; then return 0; fi
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  cat "$scratch/out"
  kill -KILL "$job" 2>/dev/null || true
  fail "$library: $1 did not come"
}
has_steps() { [ -f "$1" ] && [ "$(grep -c '"event":"step"' "$1")" -ge "$2" ]; }
has_checkpoints() { [ "$(find "$1" -maxdepth 1 -name 'step-????????' 2>/dev/null | wc -l)" -ge "$2" ]; }
newest_of() { find "$1" -maxdepth 1 -name 'step-????????' | sort | tail -n 1; }

# MPICH's mpirun now and then gives 0 for processes that gave 143 (pmodels/mpich, issue 7057): there each process's
# exit code is kept by a shell around it, which hands the signals on. Open MPI's gives a number of its own, and ends
# what still runs, such a shell, too.
cat > "$scratch/keep_code" << 'END'
#!/usr/bin/env bash
"$@" &
process=$!
trap 'kill -TERM "$process"' TERM
trap 'kill -USR1 "$process"' USR1
while wait "$process" || kill -0 "$process" 2> /dev/null; do :; done
wait "$process"
code=$?
echo "$code" >> "${0%/*}/codes"
exit "$code"
END
chmod +x "$scratch/keep_code"

# A process there gets a signal twice, from the shell later, which may make a second checkpoint: all are kept.
around=()
[ "$library" != mpich ] || around=("$scratch/keep_code")

# Open MPI kills what has not ended a second after it was told to, unless it is told otherwise.
folder=$scratch/signals
options_of dp=2,tp=2
OMPI_MCA_odls_base_sigkill_timeout=8 "${launcher[@]}" -n 3 "${around[@]}" "$program" --config "$recipe" --metrics "$folder.metrics" --set training_config.eval_every=0 \
  --set training_config.checkpoint_dir="$folder" --set checkpoint.keep_last=0 "${options[@]}" "${long[@]}" < /dev/null > "$scratch/out" 2>&1 &
job=$!
wait_until "step 5" has_steps "$folder.metrics" 5
kill -USR1 "$job"
wait_until "the checkpoint of SIGUSR1" has_checkpoints "$folder" 1
kill -0 "$job" || fail "$library: SIGUSR1 ended the run"
first=$(newest_of "$folder")
kill -TERM "$job"
code=0
wait "$job" || code=$?
checks=$((checks + 1))
if [ "$library" = mpich ]; then
  codes=$(paste -sd ' ' "$scratch/codes")
  [ "$codes" = "143 143 143" ] || wrong "$library: SIGTERM: the processes' exit codes are $codes, not 143" "$scratch/out"
else
  [ "$code" != 0 ] || wrong "$library: SIGTERM: exit code 0" "$scratch/out"
fi
last=$(newest_of "$folder") at=$(steps_of "$folder.metrics" | tail -n 1)
[ "$last" != "$first" ] && [ "$((10#${last##*-}))" = "$at" ] ||
  wrong "$library: SIGTERM after step $at: the newest checkpoint is ${last##*/}, SIGUSR1's was ${first##*/}" "$scratch/out"
"$program" checkpoint verify "$first" > "$scratch/out" && "$program" checkpoint verify "$last" >> "$scratch/out" ||
  wrong "$library: a signal's checkpoint is damaged" "$scratch/out"
cp -r "$folder" "$scratch/stopped"
rm -r "$last"

# ---- --time-limit ----
stopped=$scratch/stopped
cp "$scratch/signals.metrics" "$stopped.metrics"
train 3 "$stopped" dp=2,tp=2 "${long[@]}" --resume --time-limit 4
checks=$((checks + 1))
line=$(grep -c '^time limit: stops after step [0-9]* of 1000000$' "$scratch/out" || true)
at=$(sed -n 's/^time limit: stops after step \([0-9]*\) of 1000000$/\1/p' "$scratch/out")
last=$(newest_of "$stopped")
[ "$code" = 0 ] && [ "$line" = 1 ] && [ "$((10#${last##*-}))" = "$at" ] ||
  wrong "$library: --time-limit: exit code $code, newest checkpoint ${last##*/}" "$scratch/out"

# ---- and in the text at the end, which all processes end at the same token ----
train 3 "$scratch/sampled" dp=2,tp=2 --set training_config.max_steps=4 --set training_config.sample_tokens=2147483647 \
  --time-limit 5
checks=$((checks + 1))
line=$(grep -cE '^time limit: the sample has [0-9]+ of 2147483647 tokens$' "$scratch/out" || true)
[ "$code" = 0 ] && [ "$line" = 1 ] && grep -q '^done: step 4,' "$scratch/out" ||
  wrong "$library: --time-limit in a sample: exit code $code" "$scratch/out"

# ---- both go on, to a step that none of them has reached ----
steps=$((10#${last##*-} + 20))
train 1 "$scratch/long" dp=1 "${short[@]}"
want=$(hash_of "$scratch/long.metrics")
[ ${#want} = 64 ] || fail "no hash of $steps steps that never stopped"
train 1 "$folder" dp=1 "${short[@]}" --resume
expect_end "$library: from SIGUSR1's checkpoint" "$folder"
train 1 "$stopped" dp=1 "${short[@]}" --resume
expect_end "$library: from SIGTERM's and the time limit's checkpoints" "$stopped"
report
