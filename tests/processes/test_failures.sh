#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that fails alone in a step ends the job at once, with its reason, and not when the others' time is
# over; what all have alike is said once. A disk that is slow, but does something, makes nobody give up. And the
# exit code of a run that its time limit has stopped.
# usage: test_failures.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
patience=100

# 4000 tokens below 50; a step of 8 samples reads 128 of them.
grep -v tokenizer_type "$recipe" > "$scratch/run.yaml"
recipe=$scratch/run.yaml tokens=$scratch/tokens.bin
LC_ALL=C awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c%c", 1 + (i * 7 + int(i / 50)) % 40, 0 }' > "$tokens"
mkdir "$scratch/first" "$scratch/second"
cp "$tokens" "$scratch/first"
cp "$tokens" "$scratch/second"
training=(--set training_config.data_path="$tokens" --set training_config.data_format=nanogpt_u16
  --set transformer_config.vocab_size=50
  --set training_config.eval_every=0 --set training_config.sample_tokens=0 --set training_config.num_epochs=100000
  --set training_config.max_steps=1000000)
options_of dp=2
mesh=("${options[@]}" --set training_config.batch_size=8 --set training_config.gradient_accumulation_steps=1)

# start_job OPTION…: two processes, in the background. Each sees the tokens that are in its own folder.
start_job() {
  local run=("$program" --config "$recipe" "${training[@]}" "${mesh[@]}" --set training_config.data_path=tokens.bin "$@")
  bounded "${launcher[@]}" -n 1 env -C "$scratch/first" "${run[@]}" : -n 1 env -C "$scratch/second" "${run[@]}" > "$scratch/out" 2>&1 &
  job=$!
}
wait_for_steps() { # FILE COUNT
  local i
  for ((i = 0; i < 600; i++)); do
    [ "$(cat "$1" 2>/dev/null | grep -c '"event":"step"')" -lt "$2" ] || return 0
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  cat "$scratch/out"
  kill -KILL "$job" 2>/dev/null || true
  fail "$library: step $2 did not come"
}
# expect_failure NAME LINE: the job ends with an error, which stands there once and alone, long before
# collectives.timeout_s, 60 s.
expect_failure() {
  local began=$SECONDS code=0
  wait "$job" || code=$?
  checks=$((checks + 1))
  [ "$code" != 0 ] && [ "$code" != 124 ] && [ $((SECONDS - began)) -lt 30 ] ||
    wrong "$library, $1: exit code $code after $((SECONDS - began)) s" "$scratch/out"
  checks=$((checks + 1))
  [ "$(grep -c "error: " "$scratch/out")" = 1 ] && [ "$(grep -cE "$2" "$scratch/out")" = 1 ] ||
    wrong "$library, $1: does not say once, and nothing else: $2" "$scratch/out"
}

# ---- one alone: tokens become numbers that are none ----
for one in second first; do
  start_job --metrics "$scratch/$one.jsonl"
  wait_for_steps "$scratch/$one.jsonl" 3
  head -c 4000 /dev/zero | tr '\0' '\377' | dd of="$scratch/$one/tokens.bin" bs=4000 seek=1 conv=notrunc 2>/dev/null
  expect_failure "a damaged file of the $one" "error: 'tokens.bin', byte [0-9]+: token [0-9]+ is 65535, but the vocabulary has 50"
  cp "$tokens" "$scratch/$one"
done

# ---- one alone: its file is cut while it is read ----
start_job --metrics "$scratch/cut.jsonl"
wait_for_steps "$scratch/cut.jsonl" 3
truncate -s 100 "$scratch/second/tokens.bin"
expect_failure "a file that is cut" "^tokens.bin: error: the file has become shorter while it was read"
cp "$tokens" "$scratch/second"

# ---- one is stopped: the job ends with 1 behind the deadline, and the report names the op and its line ----
stopped=$scratch/stopped
self=(sh -c 'echo $$ > "$0"; exec "$@"')
options_of tp=2
run=("$program" --config "$recipe" "${training[@]}" "${options[@]}" --set training_config.batch_size=8
  --set training_config.gradient_accumulation_steps=1 --set collectives.timeout_s=3 --metrics "$stopped.jsonl")
bounded "${launcher[@]}" -n 1 "${self[@]}" "$stopped.0" "${run[@]}" : -n 1 "${self[@]}" "$stopped.1" "${run[@]}" > "$scratch/out" 2>&1 &
job=$! code=0
wait_for_steps "$stopped.jsonl" 3
kill -STOP "$(cat "$stopped.1")"
wait "$job" || code=$?
kill -KILL "$(cat "$stopped.1")" 2>/dev/null || true
checks=$((checks + 1))
[ "$code" = 1 ] || wrong "$library, a stopped process: exit code $code, not 1" "$scratch/out"
checks=$((checks + 1))
grep -qE "process 1 on .*\(pid $(cat "$stopped.1")\): stopped \(SIGSTOP\)" "$scratch/out" ||
  wrong "$library, a stopped process: nobody says which" "$scratch/out"
checks=$((checks + 1))
grep -qE "step [0-9]+, stage 0, microbatch 0, task [0-9]+: [a-z_]+ '[a-z0-9_.]+'.* \([^()]*[.]yaml:[0-9]+\)" "$scratch/out" ||
  wrong "$library, a stopped process: the report names no op with its line" "$scratch/out"

# ---- all alike ----
start_job --metrics "$scratch/alike" --set training_config.optimizer.lr=1e30 --set training_config.use_clip_grad_norm=false
expect_failure "a loss that is no number" "error: step [0-9]+: the loss is -?(nan|inf)"

# ---- a slow disk: operations of two checkpoints take a second each, and the processes wait for each other for two ----
background=true
[ "$library" = openmpi ] || background=false
code=0 slow=$scratch/slow
train=("$faulty" --config "$recipe" "${training[@]}" "${mesh[@]}" --set training_config.max_steps=6
  --set training_config.checkpoint_dir="$slow" --set training_config.model_save_interval=3
  --set collectives.timeout_s=2 --set checkpoint.background=$background --metrics "$slow.metrics")
bounded "${launcher[@]}" -n 1 env TESSERA_FAULT=slow@10-22 "${train[@]}" : -n 1 "${train[@]}" > "$scratch/out" 2>&1 || code=$?
checks=$((checks + 1))
left=$(ls "$slow" | tr '\n' ' ') verified=0
"$program" checkpoint verify "$slow" > "$scratch/verify" 2>&1 || verified=$?
cat "$scratch/verify" >> "$scratch/out"
[ "$code" = 0 ] && [ "$left" = "step-00000003 step-00000006 " ] && [ "$verified" = 0 ] ||
  wrong "$library, a slow disk, checkpoint.background: $background: exit code $code, verify $verified, left $left" "$scratch/out"

# ---- the exit code of --time-limit ----
for wanted in "" 75; do
  code=0
  TESSERA_TIME_LIMIT_STATUS=$wanted bounded "${launcher[@]}" -n 2 "$program" --config "$recipe" "${training[@]}" "${mesh[@]}" \
    --time-limit 3 --quiet > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ "$code" = "${wanted:-0}" ] || wrong "$library, --time-limit: exit code $code, not ${wanted:-0}" "$scratch/out"
done
TESSERA_TIME_LIMIT_STATUS=75 "$program" --config "$recipe" "${training[@]}" "${mesh[@]}" --set training_config.max_steps=5 \
  --time-limit 1h --quiet > "$scratch/out" 2>&1 || wrong "--time-limit: a run that is done ends with $?" "$scratch/out"

# ---- a job that would come back to nothing ----
checks=$((checks + 1))
"$program" --config "$recipe" "${training[@]}" "${mesh[@]}" --set training_config.max_steps=1 --set elastic.rejoin=true > "$scratch/out" 2>&1
grep -q 'warning: no checkpoints are kept, so a job that comes back begins at step 0' "$scratch/out" || wrong "elastic.rejoin: no warning" "$scratch/out"
report
