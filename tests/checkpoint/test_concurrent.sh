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
  [ -z "$(find . -name '*.lock' -o -name '*.partial')" ] || complain "$command: something is left"
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
end_of checkpoint.concurrent 20
