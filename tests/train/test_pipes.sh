#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pipes in the place of files: metrics go to whoever reads them, and a run never waits for its reader; what is read from a
# pipe is waited for, and a signal meanwhile names it. A run that a signal ends before its first step leaves nothing.
# usage: test_pipes.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 20,
  eval_every: 0, sample_tokens: 0, log_every: 1}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
endless=(--set training_config.max_steps=1000000 --set training_config.num_epochs=1000000)
picture() { find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2; }
# ended CODE WHAT: the process $pid ends with this code, within 8 s
ended() {
  local begin=$SECONDS code=0
  for _ in $(seq 160); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
  kill -KILL "$pid" 2>/dev/null
  wait "$pid" || code=$?
  checks=$((checks + 1))
  [ "$code" = "$1" ] || complain "$2: exit code $code, not $1"
  [ $((SECONDS - begin)) -lt 8 ] || complain "$2: takes $((SECONDS - begin)) s"
}

# ---- metrics ----
mkfifo pipe
cat pipe > read.jsonl &
reader=$!
ends 0 --config run.yaml --metrics pipe --quiet
wait $reader
ends 0 --config run.yaml --metrics file.jsonl --quiet
steps() { grep -o '"step":[0-9]*,"loss":[^,]*' "$1"; }
[ "$(steps read.jsonl)" = "$(steps file.jsonl)" ] || complain "another run through a pipe"
[ -p pipe ] || complain "the pipe is gone"
"$program" --config run.yaml --metrics /dev/stdout --quiet 2> "$said" | cat > read.jsonl
[ "$(steps read.jsonl)" = "$(steps file.jsonl)" ] || complain "another run through the standard output"
ends 0 --config run.yaml --metrics /dev/null --quiet

# nobody reads it: an error, after a while in which a signal ends the run
ends 2 --config run.yaml --metrics pipe --quiet
says "pipe: error: nobody reads this pipe"
"$program" --config run.yaml --metrics pipe --out none > "$said" 2>&1 &
pid=$!
sleep 1
kill -TERM $pid
ended 143 "SIGTERM while nobody reads the metrics"
says "pipe: warning: ended by a signal: nobody reads this pipe"
[ ! -e none ] || complain "a folder is left"

# a reader that reads nothing: the run goes on, and a signal ends it
for signal in TERM INT; do
  (exec 3< pipe; exec sleep 1000) &
  reader=$!
  : > "$said"
  "$program" --config run.yaml --metrics pipe "${endless[@]}" --set training_config.log_every=500 > "$said" 2>&1 &
  pid=$!
  for _ in $(seq 600); do grep -q "Step 2500:" "$said" && break; sleep 0.1; done
  says "Step 2500:"
  kill -$signal $pid
  ended 1 "SIG$signal while a reader reads nothing"
  says "pipe: error: cannot write the metrics from step "
  says "nobody reads this pipe"
  says "stopped: step"
  kill $reader && wait $reader 2>/dev/null
done
# one that begins to read late misses nothing
(exec 8< pipe && sleep 1 && cat <&8 > read.jsonl) &
ends 0 --config run.yaml --metrics pipe --quiet "${endless[@]}" --set training_config.max_steps=1500
wait
[ "$(grep -c '"event":"step"' read.jsonl)" = 1500 ] || complain "a late reader has $(grep -c '"event":"step"' read.jsonl) steps"
# one that goes away
head -n 3 pipe > read.jsonl &
ends 1 --config run.yaml --metrics pipe "${endless[@]}" --set training_config.max_steps=3000 --set training_config.log_every=1000
says "which is tried again: Broken pipe"
says "done: step 3000"
says "pipe: error: cannot write the metrics from step "
wait

# ---- what is read ----
before=$(picture)
"$program" check --config <(sleep 1 && cat run.yaml) --set training_config.data_path=<(sleep 1 && cat text.txt) > "$said" 2>&1
[ $? = 0 ] || complain "files of process substitution"
# names FILE WORDS...: a signal while FILE is waited for
names() {
  local what="${*:2}"
  "$program" "${@:2}" > "$said" 2>&1 &
  pid=$!
  sleep 0.7
  kill -TERM $pid 2>/dev/null
  ended 143 "$what"
  says "$1'"
  says "ended by a signal"
}
names pipe check --config pipe
names pipe --config pipe --out none
names pipe --config run.yaml --set training_config.data_path=pipe
names pipe --config run.yaml --set training_config.model_config=pipe --set transformer_config={}
names pipe --config run.yaml --set training_config.tokenizer_type=bpe --set training_config.tokenizer_path=pipe
names pipe --config run.yaml --set training_config.validation_path=pipe
names pipe plan --config run.yaml --machine ./pipe
mkfifo mesh.textproto
names mesh.textproto inspect --mesh mesh.textproto
rm mesh.textproto
[ "$(picture)" = "$before" ] || complain "something was left"

# ---- a signal before the first step ----
for options in "--out early" "--metrics early.jsonl" "--out early --metrics early.jsonl" \
  "--set training_config.checkpoint_dir=a/b/c --set training_config.model_save_interval=5"; do
  # operations on files take a second each
  # shellcheck disable=SC2086 # words
  TESSERA_FAULT=slow@1-3 "$faulty" --config run.yaml $options > "$said" 2>&1 &
  pid=$!
  sleep 0.8
  kill -TERM $pid 2>/dev/null
  ended 143 "$options: SIGTERM before the first step"
  says "stopped: no step was made"
  grep -q "loss 0" "$said" && complain "$options: a loss that nothing has"
  [ "$(picture)" = "$before" ] || complain "$options: something was left: $(ls)"
done
# the same command again
ends 0 --config run.yaml --out early --quiet

end_of train.pipes 22
