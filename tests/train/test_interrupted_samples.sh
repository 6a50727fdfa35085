#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sample that a signal, kill -9 or the time limit has cut is no result: the run that continues makes it, so that its
# metrics are those of a run that nothing disturbed.
# usage: test_interrupted_samples.sh PROGRAM [SANITIZER]
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 8, eval_every: 2,
  validation_batch_size: 2, sample_every: 4, sample_tokens: 30, tokenizer_type: byte, log_every: 1}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1}
RUN
endless="training_config.sample_tokens=2147483647"

# numbers OUT: its steps, evaluations and samples, but for how fast they were
numbers() {
  grep -E '"event":"(step|eval|sample)"' "$1/metrics.jsonl" | sed 's/,"tokens_per_s":[^,}]*,"ms":[^,}]*//; s/,"saving":true//'
}
samples() { grep -c '"event":"sample"' "$1/metrics.jsonl"; }
same() { # OUT
  checks=$((checks + 1))
  numbers "$1" > "$1.numbers"
  cmp whole.numbers "$1.numbers" > "$said" 2>&1 || complain "$1: other metrics than the undisturbed run"
}
# interrupt SIGNAL CODE FILE PATTERN COUNT WORDS...: a run whose sample has no end, as soon as the file has so many lines
interrupt() {
  local signal=$1 want=$2 file=$3 pattern=$4 count=$5 pid code=0
  shift 5
  checks=$((checks + 1))
  "$program" --config run.yaml --set "$endless" "$@" > "$said" 2>&1 < /dev/null &
  pid=$!
  for _ in $(seq 600); do
    [ "$(grep -cs "$pattern" "$file")" = "$count" ] && break
    sleep 0.1
  done
  sleep 0.3 # of the sample
  kill -0 $pid 2>/dev/null || complain "$*: the run has ended before its sample was interrupted"
  kill "-$signal" $pid
  wait $pid 2>/dev/null || code=$?
  [ $code = "$want" ] || complain "$*: exit code $code, not $want"
}

ends 0 --config run.yaml --out whole
numbers whole > whole.numbers
[ "$(samples whole)" = 2 ] || complain "an undisturbed run has not two samples"

# between steps: twice, by either signal
interrupt TERM 143 cut/metrics.jsonl '"event":"step","step":4' 1 --out cut
[ "$(samples cut)" = 0 ] || complain "a cut sample is in the metrics"
says "signal: the sample has "
cp -r cut forked_from
interrupt INT 130 cut/metrics.jsonl '"event":"start"' 2 --out cut --resume
says "stopped: step 4, "
[ "$(samples cut)" = 0 ] || complain "a sample that was cut again is in the metrics"
ends 0 --config run.yaml --out cut --resume
same cut

# a fork makes it, too
ends 0 --config run.yaml --out forked --fork forked_from
same forked

# the last one: the run has ended, and its evaluation is there once
for signal in TERM KILL; do
  code=0
  [ $signal = TERM ] || code=137
  ends 0 --config run.yaml --out $signal --stop-at 7
  interrupt $signal $code $signal/metrics.jsonl '"event":"eval","step":8' 1 --out $signal --resume
  [ "$(samples $signal)" = 1 ] || complain "the last sample is in the metrics"
  ends 0 --config run.yaml --out $signal --resume
  same $signal
  ends 0 --config run.yaml --out $signal --resume
  same $signal
done

# the time limit: a start that makes an old sample makes a step, too
ends 0 --config run.yaml --out limited --set "$endless" --time-limit 3
says "time limit: stops after step 4 of 8"
cp -r limited limited_again
ends 0 --config run.yaml --out limited --resume
same limited
ends 0 --config run.yaml --out limited_again --resume --set "$endless" --time-limit 4
grep -q '"event":"step","step":5' limited_again/metrics.jsonl || complain "no step was made behind the sample"
[ "$(samples limited_again)" = 0 ] || complain "a sample that the time limit has cut is in the metrics"

# an early stop at a step with a sample: the sample is there once
ends 0 --config run.yaml --out early --set training_config.early_stop_patience=1 --set training_config.early_stop_min_delta=9 \
  --set training_config.max_steps=40
says "early stop: "
[ "$(samples early)" = 1 ] || complain "a run that stops early after step 4 has $(samples early) samples"
end_of train.interrupted_samples 21
