#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Commands that write a folder of --out, two at once on the same one: one has it, the other is refused, and what the
# successful one has written is whole.
# usage: test_concurrent.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_blocks: 4,
  max_sequence_length: 8, weight_tying: enabled}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out run --quiet
ends 0 export run --out model --quiet

# What each command makes of what; whether it is whole.
commands=("checkpoint merge run" "checkpoint reshard run --shards 3" "export run" "import model")
is_whole() { # COMMAND FOLDER
  case $1 in
  export*) "$program" import "$2" --out imported --quiet && "$program" checkpoint verify imported && rm -r imported ;;
  *) "$program" checkpoint verify "$2" ;;
  esac > "$said" 2>&1
}

# A command that is still writing: the second one is refused, with the number of the first.
for command in "${commands[@]}"; do
  # shellcheck disable=SC2086 # words
  TESSERA_FAULT=slow@6-13 "$faulty" $command --out out > slow.said 2>&1 < /dev/null &
  pid=$!
  for _ in $(seq 100); do [ -e out.partial ] && break; sleep 0.02; done
  # shellcheck disable=SC2086 # words
  ends 2 ${commands[0]} --out out
  says "error: 'out' is in use by process $pid on $(hostname)"
  wait $pid
  code=$?
  checks=$((checks + 1))
  [ $code = 0 ] || complain "$command: exit code $code beside another one"
  is_whole "$command" out || complain "$command: what it has written beside another one is not whole"
  [ -z "$(find . -name '*.lock' ! -name run.lock -o -name '*.partial')" ] || complain "$command: something is left"
  rm -rf out
done

# Started together, again and again.
for try in $(seq 8); do
  command=${commands[try % 4]}
  codes=()
  for i in 1 2; do
    # shellcheck disable=SC2086 # words
    "$program" $command --out out > "said.$i" 2>&1 < /dev/null &
    pids[i]=$!
  done
  for i in 1 2; do wait "${pids[i]}"; codes[i]=$?; done
  checks=$((checks + 1))
  cat said.1 said.2 > "$said"
  [ "${codes[*]}" = "0 2" ] || [ "${codes[*]}" = "2 0" ] || complain "two of $command at once end with ${codes[*]}"
  is_whole "$command" out || complain "two of $command at once: the result is not whole"
  rm -rf out out.partial
done

# One that was killed leaves its lock, which the next one takes over; what has the lock's name and is a link stays.
while_writing=0
for at in $(seq 2 12); do
  TESSERA_FAULT=kill@$at "$faulty" checkpoint merge run --out out > "$said" 2>&1 < /dev/null
  [ -e .out.tessera-train.lock ] && [ -e out.partial ] && while_writing=$((while_writing + 1))
  [ -e out ] || ends 0 checkpoint merge run --out out
  ends 0 checkpoint verify out
  [ -z "$(find . -name '*.partial')" ] || complain "a folder is left behind a command that was killed at $at"
  rm -r out
done
[ $while_writing -gt 3 ] || complain "only $while_writing commands were killed while they wrote"
echo notes > notes.txt && ln -s notes.txt .out.tessera-train.lock
ends 2 checkpoint merge run --out out
[ "$(cat notes.txt)" = notes ] && [ ! -e out ] || complain "a link with the lock's name was followed"
ends 2 checkpoint merge run --out none/out
says "cannot write 'none/out': No such file or directory"
# A reader waits for its prompt, after it has chosen the newest checkpoint, which the run then has no more use for: it stays
# until the reader has read it.
sed 's/byte/char/' run.yaml > char.yaml
keep=(--out race --quiet --set checkpoint.keep_last=1)
steps() { (cd race/checkpoints && echo step-*); }
ends 0 --config char.yaml "${keep[@]}"
mkfifo prompt
"$program" generate --checkpoint race --prompt-file - --max-new-tokens 2 --temperature 0 < prompt > reader.said 2>&1 &
reader=$!
exec 9> prompt
for _ in $(seq 40); do lslocks -p $reader 2>/dev/null | grep -q READ && break; sleep 0.05; done
ends 0 --config char.yaml "${keep[@]}" --resume --set training_config.max_steps=4
[ "$(steps)" = "step-00000002 step-00000004" ] || complain "a checkpoint that is being read was removed: $(steps)"
(trap '' PIPE; echo word >&9) 2>/dev/null
exec 9>&-
wait $reader
code=$?
checks=$((checks + 1))
cp reader.said "$said"
[ $code = 0 ] && grep -q word "$said" || complain "a reader of a checkpoint that the run removes ends with $code"
rm reader.said
ends 0 --config char.yaml "${keep[@]}" --resume --set training_config.max_steps=5
[ "$(steps)" = step-00000005 ] || complain "checkpoints that nobody reads stay: $(steps)"

# Readers beside a run that removes all checkpoints but the newest.
"$program" --config char.yaml "${keep[@]}" --resume --set training_config.max_steps=1000000 \
  --set training_config.num_epochs=1000000 --set training_config.model_save_interval=1 --time-limit 200 &
run=$!
for _ in $(seq 12); do
  ends 0 generate --checkpoint race --prompt word --max-new-tokens 1 --temperature 0
  ends 0 evaluate --checkpoint race --data text.txt
  ends 0 export race --out raced --quiet
  ends 0 checkpoint verify race
  ends 0 checkpoint merge race --out merged
  rm -r raced merged
done
kill $run
wait $run

end_of checkpoint.concurrent 86
