#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run's standard streams may be closed, full or read by nobody: it trains all the same. Limits of file sizes and
# signals before the first step end it with a word and a code.
# usage: test_streams.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 40, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte, log_every: 1}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_blocks: 2,
  max_sequence_length: 8}
numerics: {threads: 1}
RUN
run=("$program" --config run.yaml)

# code WANTED GOT WHAT
code() {
  checks=$((checks + 1))
  [ "$1" = "$2" ] || complain "$3: exit code $2, not $1"
}
# A run that was all right: its metrics are lines of JSON, with the weights of the first run.
same_run() {
  checks=$((checks + 1))
  grep -vq '^{.*}$' "$1/metrics.jsonl" && complain "$1/metrics.jsonl holds something else than metrics"
  [ "$(tail -1 "$1/metrics.jsonl" | grep -o 'sha256":"[0-9a-f]*')" = "$want" ] || complain "$1: other weights"
}

"${run[@]}" --out first > "$said" 2>&1
code 0 $? "a run"
want=$(tail -1 first/metrics.jsonl | grep -o 'sha256":"[0-9a-f]*')
[ -n "$want" ] || complain "no hash of the weights"

"${run[@]}" --out closed >&- 2> "$said"
code 0 $? "a closed standard output"
grep -q "warning: cannot write to the standard output" "$said" || complain "no warning"
same_run closed
"${run[@]}" --out all_closed <&- >&- 2>&-
code 0 $? "closed standard streams"
same_run all_closed
"${run[@]}" --out full > /dev/full 2> "$said"
code 0 $? "a full standard output"
same_run full
# nobody reads what follows the first line
{ "${run[@]}" --out unread 2> "$said"; echo $? > status; } | head -1 > /dev/null
code 0 "$(cat status)" "a pipe that is closed"
same_run unread
# of other commands the output is the result
for where in /dev/full closed; do
  for command in check plan inspect trace; do
    if [ $where = closed ]; then "$program" $command --config run.yaml >&- 2> "$said"
    else "$program" $command --config run.yaml > $where 2> "$said"; fi
    code 1 $? "$command into $where"
    grep -q "error: cannot write to the standard output" "$said" || complain "$command into $where: no error"
  done
done

# files may grow to 64 KiB: the checkpoint before is kept, and the run resumes from it
"${run[@]}" --out small --set training_config.max_steps=20 > "$said" 2>&1
code 0 $? "a run of 20 steps"
(ulimit -f 64 && "${run[@]}" --out small --resume --quiet > "$said" 2>&1)
code 1 $? "a limit of file sizes"
grep -q "error: the state after step 40, the last, is not on the disk: cannot write '.*safetensors': File too large" "$said" ||
  complain "no error that names the file"
"$program" checkpoint verify small/checkpoints/step-00000020 > "$said" 2>&1
code 0 $? "the checkpoint before"
"${run[@]}" --out small --resume > "$said" 2>&1
code 0 $? "going on without the limit"
same_run small

# a signal before the first step
mkfifo late.yaml
"$program" --config late.yaml --out late > "$said" 2>&1 &
pid=$!
exec 9> late.yaml # waits for its reader
kill -TERM $pid
wait $pid
code 143 $? "SIGTERM before the configuration was there"
grep -q "tessera-train: ended by a signal" "$said" || complain "not a word"
[ ! -e late ] || complain "a folder was made"

# the same while a prompt is waited for; a terminal that is closed ends what nohup has not started
mkfifo late.txt
for signal in TERM INT HUP; do
  "$program" generate --checkpoint first --prompt-file late.txt > "$said" 2>&1 &
  pid=$!
  exec 9> late.txt
  sleep 0.2
  kill -$signal $pid
  wait $pid
  status=$?
  code $((128 + $(kill -l $signal))) $status "SIG$signal while a prompt is waited for"
  exec 9>&-
done
"${run[@]}" --out hung --set training_config.max_steps=1000000 > "$said" 2>&1 &
pid=$!
until [ -s hung/metrics.jsonl ]; do sleep 0.05; done
kill -HUP $pid
wait $pid
code 129 $? "SIGHUP while a run is under way"
"$program" checkpoint verify hung/checkpoints/* > "$said" 2>&1
code 0 $? "the checkpoint of a run that SIGHUP ended"
nohup "${run[@]}" --out held > "$said" 2>&1 &
pid=$!
until [ -s held/metrics.jsonl ] || ! kill -0 $pid 2> /dev/null; do sleep 0.01; done
kill -HUP $pid 2> /dev/null
wait $pid
code 0 $? "SIGHUP and nohup"
same_run held

# what is asked for is printed, or it is an error; of a command that trains by default, too
for option in --help --version --print-schema "--config run.yaml --print-config"; do
  # shellcheck disable=SC2086 # words
  "$program" $option > /dev/full 2> "$said"
  code 1 $? "$option into a full disk"
  grep -q "error: cannot write to the standard output: No space left on device" "$said" || complain "$option: not why"
done

# an environment that names a descriptor by its URI
cat > line.textproto <<'MESH'
mesh_descriptors {
  name: "LINE"
  arch: CPU
  device_topology { dims: [2] }
  host_topology { dims: [1] }
  channels { count: 1 }
}
top_level_instance { mesh { mesh_descriptor: "LINE" mesh_id: 0 } }
MESH
two=(check --config run.yaml --set "device_config={enable_ddp: true, mesh_shape: [2]}")
TT_MESH_GRAPH_DESC_PATH=file:$PWD/line.textproto "$program" "${two[@]}" > "$said" 2>&1
code 0 $? "a descriptor by its URI"
grep -q "line.textproto" "$said" || complain "another mesh"
TT_MESH_GRAPH_DESC_PATH=s3://bucket/line.textproto "$program" "${two[@]}" > "$said" 2>&1
code 2 $? "a descriptor in an object store"
grep -q "TT_MESH_GRAPH_DESC_PATH: error: 's3://bucket/line.textproto': .* there is no access to 's3'" "$said" ||
  complain "not by name"

# a signal while a model is evaluated: the numbers are of what was seen, or there are none
for i in $(seq 2000); do cat text.txt; done > long.txt
stopped=0
for delay in 0 0.02 0.05 0.1 0.3; do
  "$program" evaluate --checkpoint first --data long.txt > "$said" 2>&1 &
  pid=$!
  sleep $delay
  kill -TERM $pid 2>/dev/null
  wait $pid
  status=$?
  [ $status = 0 ] && continue
  stopped=$((stopped + 1))
  code 143 $status "SIGTERM while a model is evaluated"
  ! grep -q "error:" "$said" || complain "an error for a signal"
  ! grep -q "^loss" "$said" || grep -q "ended by a signal: the numbers are those of" "$said" ||
    complain "numbers of a part, without a word"
done
[ $stopped -gt 0 ] || complain "no signal came in time"

# stopped_while WHAT OUT ARGS...: a signal while files are written: what was asked for is whole, or nothing is there
stopped_while() {
  local what=$1 out=$2 stopped=0 status left delay pid
  shift 2
  for delay in 0.01 0.02 0.04 0.08 0.16; do
    "$program" "$@" --out "$out" > "$said" 2>&1 &
    pid=$!
    sleep $delay
    kill -TERM $pid 2>/dev/null
    wait $pid
    status=$?
    if [ $status = 0 ]; then
      [ ! -e "$out.partial" ] || complain "$what: $out.partial is left"
      rm -r "$out"
      continue
    fi
    stopped=$((stopped + 1))
    code 143 $status "SIGTERM while $what"
    left=$(ls -d "$out"* 2>/dev/null)
    [ -z "$left" ] || complain "SIGTERM while $what has left $left"
  done
  [ $stopped -gt 0 ] || complain "$what: no signal came in time"
}
head -c 60000000 /dev/zero | tr '\0' 'x' > large.txt
stopped_while "tokens are written" large.bin tokenize large.txt --threads 1
wide=(--set transformer_config.embedding_dim=512 --set transformer_config.num_blocks=8)
"$program" --config run.yaml "${wide[@]}" --set training_config.max_steps=1 --out wide --quiet > "$said" 2>&1
code 0 $? "a run of a larger model"
"$program" export wide --out wide_hf --quiet > "$said" 2>&1
code 0 $? "its export"
stopped_while "a model is exported" exported export wide
stopped_while "a model is imported" imported import wide_hf
stopped_while "a checkpoint is merged" merged checkpoint merge wide/checkpoints/step-00000001
stopped_while "a checkpoint is resharded" resharded checkpoint reshard wide/checkpoints/step-00000001 --shards 3

end_of train.streams 30
