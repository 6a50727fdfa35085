#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# NaN among the scores of a router ends training, an evaluation and a generation with a failure that
# names the statement, the router and the rank, once, on one rank and in several processes.
# usage: test_nan_scores.sh PROGRAM
set -euo pipefail
build=$(dirname "$1")
. tests/processes/common.sh
patience=60
cd "$scratch"
for i in $(seq 400); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done >text.txt
cat >run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 8,
  max_steps: 4, eval_every: 0, validation_batch_size: 4, sample_tokens: 0, log_every: 1,
  optimizer: {type: SGD, lr: 0.1}}
numerics: {threads: 1, units: {batch: 8, tp: 2, expert: 4}}
RUN
cat run.yaml - >mixtral.yaml <<'RUN'
transformer_config: {model_type: mixtral, vocab_size: 256, embedding_dim: 16, intermediate_dim: 12, num_blocks: 2,
  num_heads: 4, num_groups: 2, num_experts: 4, num_experts_per_token: 2, max_sequence_length: 8, theta: 10000.0}
RUN

# fails TEXT WORDS: the run ends with exit code 1, and TEXT is printed once
fails() {
  local code=0
  checks=$((checks + 1))
  bounded "${@:2}" >out 2>&1 || code=$?
  [ "$code" = 1 ] && [ "$(grep -c "error: " out)" = 1 ] && grep -q "$1" out && return
  wrong "${*:2}: exit code $code, not: $1" out
}
train=("$program" --config mixtral.yaml)

# ---- weights that a learning rate makes too large ----

rate=(--set training_config.optimizer.lr=1.0e20)
place='graphs/mixtral.yaml:[0-9]*:[0-9]*: error: step 2: NaN among the scores of router'
found="$place 'block.0.moe.router', of which choose_experts chooses, on rank 0$"
fails "$found" "${train[@]}" "${rate[@]}"
for mesh in ep=4 dp=2,ep=2 cp=2,tp=2 pp=2,ep=2; do
  options_of $mesh
  fails "$found" "${train[@]}" "${rate[@]}" "${options[@]}"
done
fails "$found" "${train[@]}" "${rate[@]}" --set training_config.precision=bf16
fails "$found" "${train[@]}" "${rate[@]}" --set pipeline.microbatches=4 --set schedule.recompute=full
for library in openmpi mpich; do
  choose_launcher "$library" || { echo "not with $library: $why"; continue; }
  options_of dp=2,ep=2
  fails "$found" "${launcher[@]}" -n 4 "${train[@]}" "${rate[@]}" "${options[@]}"
  options_of pp=2,ep=2
  fails "$found" "${launcher[@]}" -n 2 "${train[@]}" "${rate[@]}" "${options[@]}"
done

# ---- one expert's score alone, which the choice would pass over ----

# What is added to the second mixture's score of expert 7 is infinity less infinity.
cat >graph.yaml <<'GRAPH'
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  table: {shape: [256, 16], init: normal(0.5)}
  one: {shape: [1], init: ones}
  zeros: {shape: [7], init: zeros}
  router: {shape: [8, 16], init: normal(0.3)}
  up: {shape: [8, 12, 16], init: normal(0.3), ep: shard(0)}
  down: {shape: [8, 16, 12], init: normal(0.3), ep: shard(0)}
  second.router: {shape: [8, 16], init: normal(0.3)}
graph:
- x: embedding(tokens, table)
- scores: sigmoid(router(x, router))
- chosen: choose_experts(scores, k=2)
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, up)
- r: relu(expert_linear(permute_experts(x, plan), up, plan))
- half: add(x, combine_experts(expert_linear(r, down, plan), weights, plan))
- large: scale(one, factor=FACTOR)
- large: scale(scale(large, factor=1.0e+14), factor=1.0e+14)
- none: sub(large, large)
- scores: sigmoid(router(half, second.router))
- preferred: choose_experts(scores, concat(zeros, none), k=2)
- weights: expert_weights(scores, preferred, normalize=1)
- plan: expert_plan(preferred, up)
- r: relu(expert_linear(permute_experts(half, plan), up, plan))
- y: combine_experts(expert_linear(r, down, plan), weights, plan)
- logits: linear(add(half, y), table)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss, logits: logits}
GRAPH
sed 's/FACTOR/1.0e+14/' graph.yaml >infinite.yaml
sed 's/FACTOR/1/' graph.yaml >finite.yaml
place="infinite.yaml:24:14: error: step 1: NaN among the scores of router 'second.router', of which"
own=("$program" --config run.yaml --set transformer_config.graph=infinite.yaml)
fails "$place choose_experts chooses, on rank 0$" "${own[@]}"
options_of pp=2,ep=2 'pipeline.stages=[half]' pipeline.microbatches=2
fails "$place choose_experts chooses, on rank 2$" "${own[@]}" "${options[@]}"
checks=$((checks + 1))
bounded "$program" --config run.yaml --set transformer_config.graph=finite.yaml >out 2>&1 || wrong "finite scores" out

# ---- evaluations and texts, of the weights that the first step has made too large ----

fails "$found" "${train[@]}" "${rate[@]}" --out large \
  --set training_config.model_save_interval=1
large=(--checkpoint large/checkpoints/step-00000001)
fails "error: the evaluation: NaN among the scores of router 'block.0.moe.router'" \
  "$program" evaluate "${large[@]}" --data text.txt
fails "error: the generation: NaN among the scores of router 'block.0.moe.router'" \
  "$program" generate "${large[@]}" --prompt word --max-new-tokens 4
fails "error: the evaluation after step 1: NaN among the scores of router 'block.0.moe.router'" \
  "${train[@]}" "${rate[@]}" --set training_config.eval_every=1
report
