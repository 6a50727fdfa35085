#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Processes that were started in different ways, too many of them, or without what they need: one error each, no
# step, no hang.
# usage: test_agreement.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
patience=60

host=$(hostname)
train=("$program" --config "$recipe" --metrics "$scratch/metrics")
mesh=(--set 'mesh={axes: [dp], shape: [2]}')

ends=2 # the job's exit code: the user's mistake, whichever process finds it
# refused NAME COMMAND…: it ends with an error and trains nothing. What it said is in $scratch/said: the lines
# of the program, without the launcher's own report.
refused() {
  local code=0
  rm -f "$scratch/metrics"
  name="$library, $1"
  bounded "${@:2}" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  awk '/^(-----|=====)/ { quiet = 0; next }
    /^Primary job|^mpirun|^BAD TERMINATION/ { quiet = 1 } !quiet && NF' "$scratch/out" |
    grep -Ev '^(a non-zero exit|the job to be|  Process name|  Exit code)' > "$scratch/said" || true
  [ $code != 124 ] && [ $code != 137 ] || wrong "$name: hangs" "$scratch/out"
  [ $code = "$ends" ] || wrong "$name: exit code $code, not $ends" "$scratch/out"
  if grep -q '"event":"step"' "$scratch/metrics" 2>/dev/null; then wrong "$name: has trained"; fi
}
# says COUNT LINE: so many times, exactly.
says() {
  [ "$(grep -cxF -- "$2" "$scratch/said")" = "$1" ] || wrong "$name: does not say $1 times: $2" "$scratch/out"
}
errors() {
  [ "$(grep -c 'error: ' "$scratch/said")" = "$1" ] || wrong "$name: not $1 errors" "$scratch/out"
}

refused "another --set" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" : \
  -n 1 "${train[@]}" "${mesh[@]}" --set training_config.seed=12
says 1 "error: process 1 on $host has another configuration than process 0 on $host: line 3 is '  seed: 12' here and '  seed: 11' there"
errors 1

sed 's/lr: 0.003/lr: 0.004/' "$recipe" > "$scratch/other.yaml"
refused "another file" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" : \
  -n 1 "$program" --config "$scratch/other.yaml" --metrics "$scratch/metrics" "${mesh[@]}"
line=$("$program" --config "$recipe" --print-config | grep -n '^    lr: 0.003' | cut -d: -f1)
says 1 "error: process 1 on $host has another configuration than process 0 on $host: line $line is '    lr: 0.004' here and '    lr: 0.003' there"
errors 1

refused "another folder for results" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" --out "$scratch/one" : \
  -n 1 "${train[@]}" "${mesh[@]}" --out "$scratch/two"
grep -q "another command line than process 0 on $host: line [0-9]* is '--out $scratch/two' here and '--out $scratch/one'" \
  "$scratch/said" || wrong "$name: does not say which" "$scratch/out"
errors 1
[ ! -e "$scratch/one" ] && [ ! -e "$scratch/two" ] || wrong "$name: a refused run has made its folder"

# the same words, and other folders behind them
mkdir "$scratch/a" "$scratch/b"
write_text() { seq "$1" 3000 | tr '\n' ' ' > "$2"; }
write_text 1 "$scratch/a/text.txt"
write_text 1 "$scratch/b/text.txt"
local=("$program" --config "$recipe" --metrics "$scratch/metrics" --set training_config.data_path=text.txt
  "${mesh[@]}" --out results)
refused "a relative folder, seen from two" "${launcher[@]}" -n 1 -wdir "$scratch/a" "${local[@]}" : \
  -n 1 -wdir "$scratch/b" "${local[@]}"
says 1 "error: process 1 does not see the folder 'results/checkpoints' that process 0 has made"
errors 1
write_text 2 "$scratch/b/text.txt"
refused "a relative file, seen from two" "${launcher[@]}" -n 1 -wdir "$scratch/a" "${local[@]}" : \
  -n 1 -wdir "$scratch/b" "${local[@]}"
grep -q "error: process 1 on $host has another hash of its data or prompts than process 0 on $host" "$scratch/said" ||
  wrong "$name: does not say which" "$scratch/out"
errors 1

# A graph file is read by each process. The plan does not show all of it.
cat > "$scratch/a/graph.yaml" << 'GRAPH'
name: own
sizes: {width: 16}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [256, width], init: normal(0.02)}
  norm: {shape: [width], init: ones}
  w: {shape: [256, width], init: normal(0.02)}
graph:
- x: rmsnorm(embedding(tokens, wte), norm)
- logits: linear(x, w)
- loss: cross_entropy(logits, targets)
outputs: [loss, logits]
GRAPH
cp "$scratch/a/text.txt" "$scratch/b/text.txt"
cat > "$scratch/own.yaml" << 'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: own, graph: graph.yaml}
numerics: {threads: 1, units: {batch: 2, tp: 2}}
RUN
own=("$program" --config "$scratch/own.yaml" --metrics "$scratch/metrics")
for axis in dp tp pp; do
  of_two=(--set "mesh={axes: [$axis], shape: [2]}")
  [ $axis != pp ] || of_two+=(--set 'pipeline={microbatches: 2, stages: [logits]}')
  for edit in 's/, norm)/, norm, eps=0.1)/' '0,/normal(0.02)/s//normal(0.04)/' '/norm: /s/ones/ones, decay: false/'; do
    sed "$edit" "$scratch/a/graph.yaml" > "$scratch/b/graph.yaml"
    ! cmp -s "$scratch/a/graph.yaml" "$scratch/b/graph.yaml" || wrong "$edit changes nothing"
    refused "another graph file, $axis, $edit" "${launcher[@]}" -n 1 -wdir "$scratch/a" "${own[@]}" "${of_two[@]}" : \
      -n 1 -wdir "$scratch/b" "${own[@]}" "${of_two[@]}"
    sed -E "s/hash [0-9a-f]{32}/hash HASH/g" -i "$scratch/said"
    says 1 "error: process 1 on $host has another graph file than process 0 on $host: line 1 is 'graph.yaml, hash HASH' here and 'graph.yaml, hash HASH' there"
    errors 1
  done
done
{ cat "$scratch/a/graph.yaml"; echo "# a comment"; } > "$scratch/b/graph.yaml"
bounded "${launcher[@]}" -n 1 -wdir "$scratch/a" "${own[@]}" "${mesh[@]}" : \
  -n 1 -wdir "$scratch/b" "${own[@]}" "${mesh[@]}" > "$scratch/out" 2>&1 || wrong "a comment in a graph file" "$scratch/out"
checks=$((checks + 1))

cp "$program" "$scratch/tessera-train"
printf x >> "$scratch/tessera-train"
export TESSERA_PLUGIN_PATH=$build
refused "another program" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" : \
  -n 1 "$scratch/tessera-train" "${train[@]:1}" "${mesh[@]}"
sed -E "s/'build [0-9a-f]{32}'/'build HASH'/g" -i "$scratch/said"
says 1 "error: process 1 on $host has another program than process 0 on $host: line 2 is 'build HASH' here and 'build HASH' there"
errors 1
unset TESSERA_PLUGIN_PATH

describe() { # NAME: a line of two CPUs
  cat << END
mesh_descriptors {
  name: "$1"
  arch: CPU
  device_topology { dims: [ 2 ] }
  host_topology { dims: [ 1 ] }
  channels { count: 1 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "$1" mesh_id: 0 } }
END
}
describe PAIR > "$scratch/pair.textproto"
describe TWINS > "$scratch/twins.textproto"
mesh=(--set 'device_config={enable_ddp: true, mesh_shape: [2]}')
refused "another mesh" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" --mesh "$scratch/pair.textproto" : \
  -n 1 "${train[@]}" "${mesh[@]}" --mesh "$scratch/twins.textproto"
says 1 "error: process 1 on $host has another mesh than process 0 on $host: line 1 is 'file        $scratch/twins.textproto' here and 'file        $scratch/pair.textproto' there"

refused "too many" "${launcher[@]}" -n 3 "${train[@]}" "${mesh[@]}"
says 1 "error: 3 processes were started for 2 ranks: 1 of them would have nothing to do"
says 1 "      = start 2, or a larger mesh"
errors 1

# A mistake of the user's is every process's; one of them says it.
refused "an unknown key" "${launcher[@]}" -n 2 "${train[@]}" "${mesh[@]}" --set training_config.batchsize=3
says 1 "--set:2:17: error: unknown key 'batchsize' in training_config"
says 1 "      = did you mean 'batch_size'?"
errors 1
refused "no such file" "${launcher[@]}" -n 2 "$program" --config "$scratch/none.yaml"
says 1 "error: cannot read '$scratch/none.yaml': No such file or directory"
errors 1
refused "a mesh that does not fit" "${launcher[@]}" -n 2 "${train[@]}" --set 'mesh={axes: [dp], shape: [3]}'
says 1 "$recipe:6:15: error: batch_size 4 does not divide over dp = 3"
refused "a process without a file" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" : \
  -n 1 "$program" --config "$scratch/none.yaml"
says 1 "error: cannot read '$scratch/none.yaml': No such file or directory"
errors 1
refused "an option that is none, of one" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" : -n 1 "${train[@]}" --nope
says 1 "error: there is no option '--nope'"
errors 1
refused "an option that is none" "${launcher[@]}" -n 2 "${train[@]}" --nope
says 1 "error: there is no option '--nope'"
errors 1
refused "another data file" "${launcher[@]}" -n 1 "${train[@]}" "${mesh[@]}" --set training_config.data_path=gone.txt : \
  -n 1 "${train[@]}" "${mesh[@]}"
errors 1
refused "another command of one" "${launcher[@]}" -n 1 "$program" profile --config "$recipe" "${mesh[@]}" : \
  -n 1 "${train[@]}" "${mesh[@]}"
says 1 "error: process 1 on $host runs 'train', and process 0 on $host runs 'profile'"
errors 1

for command in "tokenize $scratch/a/text.txt --out $scratch/t.bin" "import none --out $scratch/t" \
  "checkpoint merge none --out $scratch/t" "plan --config $recipe --svg $scratch/t"; do
  # shellcheck disable=SC2086 # words
  refused "${command%% *}" "${launcher[@]}" -n 2 "$program" $command
  says 1 "error: ${command%% *} is for one process, and 2 processes were started"
  errors 1
done

# Without its plugin nobody can ask the others, so the first one of a host says it.
mkdir "$scratch/empty" "$scratch/bin"
cp "$program" "$scratch/bin/tessera-train"
export TESSERA_PLUGIN_PATH=$scratch/empty
ends=1
refused "no plugin" "${launcher[@]}" -n 2 "$scratch/bin/tessera-train" "${train[@]:1}" "${mesh[@]}"
by=OMPI_COMM_WORLD_SIZE title="Open MPI"
[ "$library" = openmpi ] || by=PMI_SIZE title=MPICH
grep -qxF "error: $by=2 asks for $title, but no libtessera-$library.so can be loaded" "$scratch/said" &&
  grep -qxF "        $scratch/empty/libtessera-$library.so: no such file" "$scratch/said" ||
  wrong "$name: does not say what was tried" "$scratch/out"
errors 1
report
