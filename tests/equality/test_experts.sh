#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model with mixtures of experts on many meshes, in processes of both MPIs, under loads from even
# to extreme, killed and resumed on another mesh, evaluated and sampled: each time the bits of one
# rank.
# usage: test_experts.sh PROGRAM
set -euo pipefail
build=$(dirname "$1")
. tests/processes/common.sh
patience=60
cd "$scratch"
for i in $(seq 400); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done >text.txt

# model PRIOR INIT [ATTRIBUTES]: experts that tp shares out, then experts that tp splits beside one
# that all tokens have. To the choice of the first ones PRIOR is added: a parameter, or what is made
# of some.
model() {
  cat >graph.yaml <<GRAPH
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  table: {shape: [256, 16], init: normal(0.5), tp: shard(0)}
  wq: {shape: [16, 16], init: normal(0.3), tp: shard(0)}
  wk: {shape: [16, 16], init: normal(0.3), tp: shard(0)}
  wv: {shape: [16, 16], init: normal(0.3), tp: shard(0)}
  wo: {shape: [16, 16], init: normal(0.3), tp: shard(1)}
  dense_up: {shape: [24, 16], init: normal(0.3), tp: shard(0)}
  dense_down: {shape: [16, 24], init: normal(0.3), tp: shard(1)}
  norm: {shape: [16], init: ones}
  router: {shape: [8, 16], init: normal($2)}
$(if [ "$1" = bias ]; then echo "  bias: {shape: [8], init: zeros}"
  else for i in 0 1 2 3 4 5 6 7; do echo "  b$i: {shape: [1], init: ones}"; done; fi)
  gate: {shape: [8, 12, 16], init: normal(0.3), ep: shard(0), tp: shard(0)}
  up: {shape: [8, 12, 16], init: normal(0.3), ep: shard(0), tp: shard(0)}
  down: {shape: [8, 16, 12], init: normal(0.3), ep: shard(0), tp: shard(0)}
  norm_2: {shape: [16], init: ones}
  router_2: {shape: [12, 16], init: normal(0.5)}
  up_2: {shape: [12, 10, 16], init: normal(0.3), ep: shard(0), tp: shard(1)}
  down_2: {shape: [12, 16, 10], init: normal(0.3), ep: shard(0), tp: shard(2)}
  shared_up: {shape: [8, 16], init: normal(0.3), tp: shard(0)}
  shared_down: {shape: [16, 8], init: normal(0.3), tp: shard(1)}
graph:
- x: embedding(tokens, table)
- a: attention(linear(x, wq), linear(x, wk), linear(x, wv), head_dim=8)
- x: add(x, linear(a, wo))
- dense: add(x, linear(gelu(linear(x, dense_up)), dense_down))
- n: rmsnorm(dense, norm)
- scores: softmax(router(n, router))
- chosen: choose_experts(scores, $1, k=2${3:-})
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, gate)
- r: permute_experts(n, plan)
- r: swiglu(expert_linear(r, gate, plan), expert_linear(r, up, plan))
- sparse: add(dense, combine_experts(expert_linear(r, down, plan), weights, plan))
- n: rmsnorm(sparse, norm_2)
- scores: sigmoid(router_z_loss(router(n, router_2), coefficient=0.01))
- chosen: choose_experts(scores, k=3, groups=4, kept_groups=2)
- scores: balance_loss(scores, chosen, coefficient=0.01, normalize=1)
- weights: expert_weights(scores, chosen, normalize=1, scale=2.5)
- plan: expert_plan(chosen, up_2)
- r: relu2(expert_linear(permute_experts(n, plan), up_2, plan))
- y: combine_experts(expert_linear(r, down_2, plan), weights, plan)
- y: add(y, linear(silu(linear(n, shared_up)), shared_down))
- logits: linear(add(sparse, y), table)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss, logits: logits}
GRAPH
}
# prior VALUES: a number that is added to the choice of each expert
prior() {
  local i=0 value parts=()
  for value in "$@"; do parts+=("scale(b$i, factor=$value)") i=$((i + 1)); done
  local IFS=,
  echo "concat(${parts[*]})"
}

cat >run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 16,
  sequence_length: 8, max_steps: 3, eval_every: 3, validation_batch_size: 3, sample_tokens: 8,
  log_every: 1, optimizer: {type: AdamW, lr: 0.02}}
transformer_config: {graph: graph.yaml}
numerics: {threads: 1, units: {batch: 8, sequence: 4, tp: 2, expert: 4}}
RUN

# microbatches COUNT: the options for so many
microbatches() {
  echo "training_config.batch_size=$((16 / $1)) training_config.gradient_accumulation_steps=$1"
}
options_with() { # MESH WORDS
  if [ "$1" = 1 ]; then
    options=()
    for set in "${@:2}"; do options+=(--set "$set"); done
  else
    options_of "$@"
  fi
}
# outcome [LAUNCHER WORDS… --] MESH WORDS: the weights of a run, its evaluations and texts, losses,
# norms and loads; or what went wrong
outcome() {
  local start=()
  while [[ " $* " == *" -- "* ]]; do
    [ "$1" = -- ] || start+=("$1")
    shift
  done
  options_with "$@"
  rm -f metrics
  if bounded "${start[@]}" "$program" --config run.yaml --metrics metrics "${options[@]}" >out 2>&1
  then
    hash_of metrics
    texts_of metrics
    sed -n '/"event":"step"/s/"lr":.*"experts"/"experts"/p' metrics
  else
    grep -m 1 -E 'error|Assertion' out || echo "no end, or no words"
  fi
}
want=
# base WORDS: what all that follow must be like
base() {
  want=$(outcome 1 "$@")
  checks=$((checks + 1))
  [[ $want =~ ^[0-9a-f]{64}$'\n' ]] || wrong "one rank $*: $want"
}
same() {
  local got
  got=$(outcome "$@")
  checks=$((checks + 1))
  [[ $got =~ ^[0-9a-f]{64} && $got = "$want" ]] || wrong "$*: $got
not $want"
}

# ---- meshes ----

sp=device_config.enable_sp=true
overlap='schedule.all_reduce_overlap=true schedule.bucket_size=1KiB'
model "$(prior 0 0 0 0 0 0 0 0)" 0.5
base
# shellcheck disable=SC2046,SC2086
meshes() {
  same 1 $(microbatches 4) schedule.recompute=full numerics.threads=3
  same 1 $(microbatches 2) schedule.recompute=selective
  same ep=2 numerics.threads=2
  same ep=4 $(microbatches 2) zero.stage=2 schedule.recompute=full
  same ep=4 schedule.recompute=cheap $overlap
  same dp=2 zero.stage=1 $(microbatches 4) numerics.threads=3
  same dp=4 zero.stage=3 schedule.recompute=full
  same dp=2,ep=2 zero.stage=0 $(microbatches 2)
  same dp=2,ep=2 zero.stage=2 $(microbatches 2) $overlap
  same dp=2,ep=4 zero.stage=3 numerics.threads=2
  same dp=4,ep=2 zero.stage=1 zero.partition=owner_hash
  same ep=2,dp=2 zero.stage=3 zero.partition=owner_hash schedule.recompute=selective
  same tp=2 $sp numerics.threads=2
  same tp=2,ep=2 $(microbatches 4)
  same ep=4,tp=2 $sp schedule.recompute=full
  same dp=2,ep=2,tp=2 zero.stage=2 $(microbatches 2) $sp
  same cp=2 $(microbatches 2)
  same cp=4 schedule.recompute=full
  same cp=2,ep=2 $(microbatches 2) numerics.threads=2
  same cp=2,tp=2,ep=2 $sp
  same dp=2,cp=2,tp=2,ep=2 zero.stage=3 $sp
  same pp=2,ep=2 'pipeline.stages=[scores]' pipeline.microbatches=4 pipeline.schedule=1f1b
  same pp=3,ep=2 'pipeline.stages=[dense, sparse]' pipeline.microbatches=2 pipeline.schedule=gpipe
  same pp=2,dp=2,ep=2 'pipeline.stages=[sparse]' pipeline.microbatches=2 zero.stage=1 \
    pipeline.schedule=zb_h1
  same pp=2,cp=2,tp=2,ep=2 'pipeline.stages=[dense]' pipeline.microbatches=4 zero.stage=2 \
    schedule.recompute=full
}
meshes

for library in openmpi mpich; do
  choose_launcher "$library" || { echo "not with $library: $why"; continue; }
  same "${launcher[@]}" -n 2 -- ep=2 numerics.threads=2
  same "${launcher[@]}" -n 4 -- dp=2,ep=2 zero.stage=2 schedule.recompute=full
  same "${launcher[@]}" -n 2 -- ep=4,tp=2 "$sp"
  same "${launcher[@]}" -n 4 -- cp=2,dp=2,ep=2 zero.stage=3
  same "${launcher[@]}" -n 4 -- pp=2,ep=2 'pipeline.stages=[sparse]' pipeline.microbatches=4
done
for dtype in bf16 fp16 fp8; do
  words=("training_config.precision=$dtype")
  base "${words[@]}"
  same ep=4 "${words[@]}" zero.stage=1
  same dp=2,ep=2,tp=2 "${words[@]}" zero.stage=3
  same cp=2,tp=2 "${words[@]}" schedule.recompute=full
  same pp=2,ep=2 "${words[@]}" 'pipeline.stages=[sparse]' pipeline.microbatches=2
done

# ---- loads ----

# The choices of each expert of the first mixture, by step.
loads() {
  [ ! -f metrics ] || sed -n 's/.*"event":"step".*"experts":\[{"load":\[\([^]]*\)\].*/\1/p' metrics
}
# loaded NAME PATTERN: every step's loads are like this, and some meshes have the bits of one rank
loaded() {
  base
  checks=$((checks + 1))
  [ "$(loads | grep -cE "$2")" = 3 ] || wrong "$1: loads $(loads)"
  same ep=4 schedule.recompute=full
  same dp=2,ep=2 zero.stage=2 training_config.batch_size=8 \
    training_config.gradient_accumulation_steps=2
  same cp=2,tp=2,ep=2
}
any='[0-9]+'
some='[1-9][0-9]*'
model "$(prior 0 0 0 0 0 0 0 0)" 0.5
loaded "about balanced" "^$some(,$some){7}$"
model "$(prior 0 0 0 9 0 0 0 0)" 0.5
loaded "one hot expert" "^$any,$any,$any,128(,$any){4}$"
model "$(prior 9 9 0 0 0 0 0 0)" 0.5
loaded "two experts have all, of one rank" '^128,128(,0){6}$'
model "$(prior 0 0 0 9 0 0 0 9)" 0.5
loaded "two experts have all, of two ranks" '^0,0,0,128,0,0,0,128$'
model "$(prior 0 0 0 0 9 9 9 9)" 0.5
loaded "half of the ranks have nothing" "^0,0,0,0(,$any){4}$"
model "$(prior 9 -9 9 -9 9 -9 9 -9)" 0.5
loaded "every other expert has nothing" "^$any,0,$any,0,$any,0,$any,0$"
model "$(prior 0.35 0.3 0.25 0.2 0.15 0.1 0.05 0)" 0.5
loaded "ragged" "^$some(,$any){7}$"
model "$(prior 0 0 0 0 0 0 -9 -9)" 0.5
loaded "the last rank has nothing" "^$any(,$any){5},0,0$"
model "$(prior 0 0 0 0 0 0 0 0)" 0
loaded "a tie, which the first experts win" "128,128,0,0,0,0,0,0|^$any(,$any){7}$"
model bias 50 ', bias_rate=1'
loaded "bursts, from one expert to the others" "^$any(,$any){7}$"

# ---- killed, and resumed on another mesh ----

model "$(prior 0 0 0 0 0 0 0 0)" 0.5
base training_config.max_steps=5
kept=kept/checkpoints/step-00000002
options_of ep=2
checks=$((checks + 1))
# Not an endless one: should this test be killed, it goes on, and keeps every checkpoint.
"$program" --config run.yaml --out kept "${options[@]}" --set training_config.max_steps=1000 \
  --set training_config.model_save_interval=2 --set checkpoint.keep_last=0 </dev/null >out 2>&1 &
job=$!
trap 'kill -KILL $job 2>/dev/null; rm -rf "$scratch"' EXIT
until [ -d "$kept" ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
kill -KILL $job 2>/dev/null || wrong "it was not there to be killed" out
wait $job 2>/dev/null || true
trap 'rm -rf "$scratch"' EXIT
[ -d "$kept" ] || wrong "no checkpoint" out
resumed() {
  local got
  checks=$((checks + 1))
  options_with "$@"
  rm -f metrics
  bounded "$program" --config run.yaml --out "again$checks" --resume "$kept" --metrics metrics \
    --set training_config.max_steps=5 "${options[@]}" >out 2>&1 || true
  got=$(hash_of metrics || true)
  [ "$got" = "${want%%$'\n'*}" ] || wrong "resumed on $*: $got, not ${want%%$'\n'*}" out
}
resumed 1
resumed ep=4
resumed tp=2
resumed dp=2,ep=2 zero.stage=3
resumed pp=2,ep=4 'pipeline.stages=[sparse]' pipeline.microbatches=2

# ---- evaluated, and sampled ----

read_with() { # COMMAND MESH WORDS: what it prints
  local words
  words=(evaluate --checkpoint "$kept" --data text.txt)
  [ "$1" = evaluate ] ||
    words=(generate --checkpoint "$kept" --prompt word --max-new-tokens 6 --seed 1)
  options_with "${@:2}"
  bounded "$program" "${words[@]}" "${options[@]}" 2>said | grep -av 'tokens/s' | od -c
}
for command in evaluate generate; do
  want=$(read_with $command 1 || true)
  checks=$((checks + 1))
  [ "$(wc -l <<<"$want")" -gt 1 ] || wrong "$command: $(cat said)"
  for mesh in ep=2 ep=4 dp=2,ep=2 tp=2 ep=4,tp=2 cp=2,ep=2; do
    got=$(read_with $command $mesh || true)
    checks=$((checks + 1))
    [ "$got" = "$want" ] || wrong "$command on $mesh: $got, not $want"
    checks=$((checks + 1))
    ! grep -a 'no key/value cache' said >&2 || wrong "$command on $mesh has no cache"
  done
done
report
