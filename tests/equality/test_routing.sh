#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Recorded and replayed routing: a record is the same on every mesh; replayed on another one it gives
# the run's bits; Megatron-LM's patterns of load give equal bits and fit the planned rows; damaged
# records are refused.
# usage: test_routing.sh PROGRAM
set -euo pipefail
build=$(dirname "$1")
. tests/processes/common.sh
patience=60
records=$root/tests/equality/routing_record.py
cd "$scratch"
for i in $(seq 400); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done >text.txt
cat >run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 16, sequence_length: 8,
  max_steps: 3, eval_every: 0, validation_batch_size: 4, sample_tokens: 0, log_every: 1,
  optimizer: {type: AdamW, lr: 0.02}}
transformer_config: {model_type: mixtral, vocab_size: 256, embedding_dim: 16, intermediate_dim: 12, num_blocks: 2,
  num_heads: 4, num_groups: 2, num_experts: 8, num_experts_per_token: 3, max_sequence_length: 8, theta: 10000.0}
numerics: {threads: 1, units: {batch: 8, sequence: 4, tp: 2, expert: 4}}
RUN

# run [LAUNCHER WORDS… --] MESH WORDS: options are in `extra`; the hash of the weights, or what went wrong
extra=()
run() {
  local start=()
  while [[ " $* " == *" -- "* ]]; do
    [ "$1" = -- ] || start+=("$1")
    shift
  done
  options=()
  if [ "$1" = 1 ]; then
    for set in "${@:2}"; do options+=(--set "$set"); done
  else
    options_of "$@"
  fi
  rm -f metrics
  if bounded "${start[@]}" "$program" --config run.yaml --metrics metrics "${extra[@]}" \
    "${options[@]}" >out 2>&1; then
    hash_of metrics
  else
    grep -m 1 -E 'error|Assertion' out || echo "no end, or no words"
  fi
}
same() { # WANT, and the words of run
  local got
  got=$(run "${@:2}")
  checks=$((checks + 1))
  [[ $got =~ ^[0-9a-f]{64}$ && $got = "$1" ]] || wrong "${*:2}: $got, not $1" out
}
microbatches() {
  echo "training_config.batch_size=$((16 / $1)) training_config.gradient_accumulation_steps=$1"
}
sp=device_config.enable_sp=true
zigzag=device_config.cp_layout=zigzag

# ---- a record does not depend on the mesh, and a replay does not either ----

extra=(--record-routing record)
plain=$(run 1)
checks=$((checks + 1))
[[ $plain =~ ^[0-9a-f]{64}$ ]] || wrong "one rank: $plain" out
zigzag_plain=
# Tensors without the metadata, which have the recipe.
content() { tail -c $((2 * 16 * 8 * 3 * 4)) "$1" | sha256sum; }
recorded() { # WANT, and the words of run: the same bits and the same record
  extra=(--record-routing again --overwrite)
  same "$@"
  for step in 1 2 3; do
    checks=$((checks + 1))
    [ "$(content again/routing-0000000$step.safetensors)" = \
      "$(content "$record/routing-0000000$step.safetensors")" ] ||
      wrong "${*:2}: another record of step $step"
  done
  extra=(--replay-routing "$record")
  same "$@"
}
record=record
# shellcheck disable=SC2046
meshes() {
  recorded "$plain" 1 $(microbatches 4) schedule.recompute=full numerics.threads=3
  recorded "$plain" ep=4 $(microbatches 2) zero.stage=2
  recorded "$plain" dp=2,ep=2 $(microbatches 2) schedule.recompute=selective
  recorded "$plain" dp=2 zero.stage=3 $(microbatches 2)
  recorded "$plain" cp=2,ep=2 $(microbatches 2)
  recorded "$plain" cp=2,tp=2,ep=2 $sp
  recorded "$plain" ep=2,tp=2 $sp
  recorded "$plain" pp=2,ep=2 pipeline.microbatches=4 pipeline.schedule=1f1b
  recorded "$plain" pp=2,dp=2 pipeline.microbatches=2 pipeline.schedule=zb_h1 zero.stage=1
}
meshes
for library in openmpi mpich; do
  choose_launcher "$library" || { echo "not with $library: $why"; continue; }
  recorded "$plain" "${launcher[@]}" -n 2 -- dp=2,ep=2
  recorded "$plain" "${launcher[@]}" -n 4 -- cp=2,ep=2 "training_config.batch_size=8" \
    "training_config.gradient_accumulation_steps=2"
  recorded "$plain" "${launcher[@]}" -n 2 -- pp=2,ep=2 pipeline.microbatches=4
done
extra=(--record-routing zigzag)
zigzag_plain=$(run 1 $zigzag)
record=zigzag
recorded "$zigzag_plain" cp=2 $zigzag
recorded "$zigzag_plain" cp=2,ep=2 $zigzag

# ---- another choice is another run, also when it resumes ----

python3 "$records" flip record flipped
extra=(--replay-routing flipped)
flipped=$(run 1)
checks=$((checks + 1))
[[ $flipped =~ ^[0-9a-f]{64}$ && $flipped != "$plain" ]] || wrong "flipped: $flipped"
same "$flipped" dp=2,ep=2
extra=(--replay-routing flipped --out kept)
same "$flipped" ep=4 training_config.model_save_interval=2
# resumed TEXT WORDS: from step 2 on; the hash of the weights, or the error
resumed() {
  checks=$((checks + 1))
  bounded "$program" --config run.yaml --out "resumed$checks" --metrics metrics \
    --resume kept/checkpoints/step-00000002 "${@:2}" >out 2>&1 || true
  grep -q "$1" out metrics || wrong "resumed ${*:2}: not $1" out
}
resumed "$flipped" --replay-routing flipped
resumed "error: 'replayed_routing' is not there in this run, and [0-9a-f]* in '"
resumed "error: 'replayed_routing' is [0-9a-f]* in this run, and [0-9a-f]* in '" --replay-routing record

# ---- patterns of load ----

# pattern NAME: a mesh has the bits of one rank, the loads of the record, and room for its rows
loads() { sed -n 's/.*"event":"step".*"experts":\[{"load":\[\([^]]*\)\].*/\1/p' metrics; }
fits() { # NAME SIZES MESH WORDS
  local room rows
  options_of "${@:3}"
  room=$("$program" check --config run.yaml "${options[@]}" 2>&1 |
    sed -n 's/^  none dropped *\([0-9,]*\) rows.*as planned.*/\1/p' | tr -d ,)
  rows=$(python3 "$records" rows "$1" "$2")
  checks=$((checks + 1))
  [ -n "$room" ] && [ "$rows" -le "$room" ] || wrong "$1 on $3: $rows rows in room for $room"
  # What is planned is what all tokens to one rank need, and not a row more.
  [ "$1" != hot_rank ] || [ "$2" != ep=4 ] || [ "$rows" = "$room" ] ||
    wrong "$1 on $3: $rows rows in room for $room"
}
pattern() {
  local want
  python3 "$records" make "$1" "$1"
  extra=(--replay-routing "$1")
  want=$(run 1)
  checks=$((checks + 1))
  [ "$(loads)" = "$(python3 "$records" loads "$1" 0)" ] || wrong "$1: loads $(loads)"
  same "$want" ep=4
  same "$want" ep=2 training_config.batch_size=8 training_config.gradient_accumulation_steps=2 \
    schedule.recompute=full
  same "$want" dp=2,ep=4 zero.stage=2
  same "$want" cp=2,tp=2,ep=2 $sp
  same "$want" pp=2,ep=4 pipeline.microbatches=2
  fits "$1" ep=4 ep=4
  fits "$1" ep=2,mb=2 ep=2 training_config.batch_size=8 training_config.gradient_accumulation_steps=2
  fits "$1" dp=2,ep=4 dp=2,ep=4
  fits "$1" ep=2,cp=2,tp=2 cp=2,tp=2,ep=2 $sp
}
for name in balanced hot_set hot_rank spread ragged empty_rank rotating burst; do pattern $name; done

# All that the worst load needs is the plan's memory, to the byte.
extra=(--replay-routing hot_rank --dump memory)
hot=$(run 1)
same "$hot" ep=4
total=$(sed -n 's/^memory of one rank: \([0-9,]*\) bytes.*/\1/p' out | tr -d ,)
same "$hot" ep=4 device_config.memory_limit=$((4 * total))
checks=$((checks + 1))
[[ $(run ep=4 device_config.memory_limit=$((4 * total - 1))) == *"the model does not fit"* ]] ||
  wrong "a byte less" out

# ---- records that are refused, before anything is written ----

# refused TEXT WORDS
refused() {
  local code=0
  checks=$((checks + 1))
  rm -rf new
  bounded "$program" --config run.yaml --out new "${@:2}" >out 2>&1 || code=$?
  [ "$code" = 2 ] && grep -q "error: $1" out && [ ! -e new ] || wrong "${*:2}: exit code $code, not $1" out
}
spoilt() { # WHAT TEXT
  python3 "$records" spoil "$1" record "$1"
  refused "$2" --replay-routing "$1"
}
file=routing-00000003.safetensors
spoilt missing "--replay-routing: 'missing/$file' was not found"
spoilt too_large "'too_large/$file': 'block.1.chosen': token 7 chooses expert 8 of 8"
spoilt negative "'negative/$file': 'block.1.chosen': token 7 chooses expert -1 of 8"
spoilt twice "'twice/$file': 'block.1.chosen': token 7 chooses an expert twice"
first=routing-00000001.safetensors
spoilt few_tokens "'few_tokens/$first': 'block.1.chosen' is I32 .*127.*3.*, and the run's is I32 \[128, 3\]"
spoilt fewer_choices "'fewer_choices/$first': 'block.0.chosen' is I32 .*128.*2.*, and the run's is I32 \[128, 3\]"
spoilt floats "'floats/$first': 'block.0.chosen' is F32"
spoilt other_layer "'other_layer/$first' has no tensor 'block.1.chosen', which is a choice of experts of the model"
spoilt more_layers "'more_layers/$first': the model has no choice of experts 'block.2.chosen'"
spoilt cut ".*cut/$file"
spoilt garbage ".*garbage/$file"
spoilt huge_header ".*huge_header/$file"
spoilt empty ".*empty/$file"
refused "--replay-routing: 'nowhere/$first' was not found" --replay-routing nowhere
mkdir renamed
cp record/routing-0000000[13].safetensors renamed
cp record/$first renamed/routing-00000002.safetensors
refused "'renamed/routing-00000002.safetensors' has the routing of step 1, by its metadata" --replay-routing renamed
refused "'record' is the folder of --record-routing and of --replay-routing" --replay-routing record \
  --record-routing record --overwrite
checks=$((checks + 1))
[ -e record/$file ] || wrong "--overwrite removed the record that was to be replayed"
refused "'record' has recorded routing of another run" --record-routing record
refused "--record-routing: the model chooses no experts" --record-routing new2 \
  --set "transformer_config={model_type: llama, vocab_size: 256, embedding_dim: 16, num_blocks: 1, num_heads: 4, num_groups: 2, max_sequence_length: 8, theta: 10000.0}"
report
