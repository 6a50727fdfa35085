#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts on emulated devices: no task is the host's, steps are CUDA graphs, losses are the CPU's to
# rounding, each mesh, each order of the device's operations and each replay of the routing has the weights of one rank,
# and NaN scores end the run.
# usage: test_experts.sh BUILD_FOLDER PLUGIN_FOLDER
set -euo pipefail
build=$1 plugins=$(realpath "$2")
. tests/processes/common.sh
export TESSERA_PLUGIN_PATH=$plugins
patience=100
instrumented=false
! grep -q __asan_init "$program" || instrumented=true # they take long
cd "$scratch"
cat >graph.yaml <<'GRAPH'
# Choices with a prior, a capacity by the weight, biases of experts; then groups, balance, and experts that tp splits.
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  table: {shape: [128, 16], init: normal(0.5)}
  norm: {shape: [16], init: ones}
  router: {shape: [4, 16], init: normal(0.4)}
  prior: {shape: [4], init: zeros}
  up: {shape: [4, 12, 16], init: normal(0.3), ep: shard(0), tp: shard(0)}
  up_bias: {shape: [4, 12], init: normal(0.3), ep: shard(0), tp: shard(0)}
  down: {shape: [4, 16, 12], init: normal(0.3), ep: shard(0), tp: shard(0)}
  down_bias: {shape: [4, 16], init: normal(0.3), ep: shard(0), tp: shard(0)}
  norm_2: {shape: [16], init: ones}
  router_2: {shape: [12, 16], init: normal(0.5), tp: shard(1)}
  up_2: {shape: [12, 10, 16], init: normal(0.3), ep: shard(0), tp: shard(1)}
  down_2: {shape: [12, 16, 10], init: normal(0.3), ep: shard(0), tp: shard(2)}
graph:
- x: embedding(tokens, table)
- n: rmsnorm(x, norm)
- scores: softmax(router(n, router))
- chosen: choose_experts(scores, prior, k=2)
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, weights, up, capacity=1.25)
- r: permute_experts(n, plan)
- r: silu(expert_add(expert_linear(r, up, plan), up_bias, plan))
- r: expert_add(expert_linear(r, down, plan), down_bias, plan)
- x: add(x, combine_experts(r, weights, plan))
- n: rmsnorm(x, norm_2)
- scores: sigmoid(router_z_loss(router(n, router_2), coefficient=0.01))
- chosen: choose_experts(scores, k=3, groups=4, kept_groups=2, group_top=2)
- scores: balance_loss(scores, chosen, coefficient=0.01, normalize=1)
- weights: expert_weights(scores, chosen, normalize=1, scale=2.5)
- plan: expert_plan(chosen, up_2)
- r: relu2(expert_linear(permute_experts(n, plan), up_2, plan))
- y: combine_experts(expert_linear(r, down_2, plan), weights, plan)
- logits: linear(add(x, y), table)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss, logits: logits}
GRAPH
own="transformer_config={graph: $scratch/graph.yaml}"
small='embedding_dim: 16, intermediate_dim: 12, num_blocks: 2, num_heads: 2, num_groups: 2, max_sequence_length: 8'
chosen='num_experts: 4, num_experts_per_token: 2'
mixtral="transformer_config={model_type: mixtral, vocab_size: 0, $small, $chosen}"
balance='balance: {bias: {rate: 0.01, centre: true}, loss: step, coefficient: 0.01}, num_expert_groups: 2, num_kept_groups: 1'
glm="transformer_config={model_type: glm4_moe, vocab_size: 0, $small, dense_intermediate_dim: 20, $chosen, $balance}"
units='numerics.units={batch: 8, sequence: 2, tp: 2, expert: 4}'
cd "$root"

launcher=() devices=1
# run WORDS OPTION…: two steps of eight samples in two microbatches; the weights, or "none".
run() {
  rm -f "$scratch/metrics"
  EMULATED_CUDA=devices=$devices,$1 bounded "${launcher[@]}" "$program" --config tests/cuda/run.yaml --metrics "$scratch/metrics" \
    --set training_config.batch_size=8 --set training_config.max_steps=2 --set "$units" "${@:2}" \
    >"$scratch/out" 2>&1 || { echo none && return; }
  hash_of "$scratch/metrics"
}
losses() { sed -n 's/.*"event":"step".*"loss":\([0-9.e+-]*\),.*/\1/p' "$scratch/metrics"; }
# base MOST OPTION…: what all that follow must have; losses within MOST of the CPU's.
base() {
  options=("${@:2}")
  want=$(run seed=0 "${options[@]}")
  [ ${#want} = 64 ] || fail "${options[*]}: no weights: $(cat "$scratch/out")"
  checks=$((checks + 1))
  ! grep -q -e "the host runs" -e "CUDA graphs" "$scratch/out" ||
    wrong "${options[*]}: a task is the host's, or steps are not CUDA graphs" "$scratch/out"
  losses >"$scratch/losses"
  run seed=0 "${options[@]}" --set device_config.device=cpu >"$scratch/of_cpu"
  losses | paste "$scratch/losses" - | awk -v most="$1" '
    { apart = ($1 - $2) / $2; if (apart < 0) apart = -apart; if (NF != 2 || apart > most) bad = 1 }
    END { exit bad || NR != 2 }' || wrong "${options[*]}: losses are not near the CPU's"
  [ "$(cat "$scratch/of_cpu")" != "$want" ] || wrong "${options[*]}: weights are the CPU's: does the device compute?"
}
same() { # WORDS OPTION…
  local got
  got=$(run "$1" "${options[@]}" "${@:2}")
  checks=$((checks + 1))
  [ "$got" = "$want" ] || wrong "${options[*]}, ${*:2}, $1: $got, not $want" "$scratch/out"
}
mesh() { same "$1" --set "mesh={axes: [$2], shape: [$3]}" "${@:4}"; }

for precision in f32 bf16; do
  most=1e-5
  [ $precision = f32 ] || most=3e-3
  base $most --set training_config.precision=$precision --set "$own"
  mesh seed=1 ep 2
  mesh seed=2 tp 2
  $instrumented && continue
  mesh seed=3 "dp, ep" "2, 2"
  same seed=1 --set training_config.batch_size=4 --set training_config.gradient_accumulation_steps=4
  base $most --set training_config.precision=$precision --set "$glm"
  mesh seed=2 "dp, tp" "2, 2"
done
# In FP8: gradients in either format, and scales of either kind.
base 1e-2 --set training_config.precision=fp8 --set "$mixtral"
mesh seed=1 ep 2
mesh seed=2 tp 2
$instrumented || {
  same seed=3 --set schedule.recompute=full
  base 3e-2 --set training_config.precision=fp8 --set "$own" --set 'training_config.fp8={gradients: e5m2, scales: f32}'
  mesh seed=2 "dp, ep" "2, 2"
  mesh seed=1 "ep, tp" "2, 2"
  same seed=1 --set training_config.batch_size=4 --set training_config.gradient_accumulation_steps=4
  mesh seed=3 cp 2
}
base 1e-2 --set training_config.precision=fp16 --set "$mixtral"
mesh seed=1 ep 2
mesh seed=2 pp 2 --set 'pipeline={schedule: zb_h1, microbatches: 2}' --set training_config.gradient_accumulation_steps=1 \
  --set training_config.batch_size=16 --set 'schedule={activation_offload: blocks, activation_offload_min_size: 1}'
$instrumented || {
  base 1e-5 --set "$own"
  mesh seed=3 "ep, tp" "2, 2"
  mesh seed=2 cp 2
  mesh seed=1 dp 2 --set device_config.enable_fsdp=true
  same seed=2 --set training_config.batch_size=16 --set training_config.gradient_accumulation_steps=1
  same seed=3 --set schedule.recompute=full
  # Processes that send by NCCL.
  export LD_LIBRARY_PATH=$plugins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  TESSERA_PLUGIN_PATH=$plugins:$build
  if choose_launcher openmpi || choose_launcher mpich; then
    launcher+=(-n 2) devices=2
    for axis in ep tp; do
      mesh seed=1 $axis 2
      grep -q "links: by NCCL" "$scratch/out" || wrong "messages do not go by NCCL" "$scratch/out"
    done
    launcher=() devices=1
  fi
}
# Routing that a CPU has recorded, on the device: other experts than its own, the same on each mesh.
options=(--set "$own")
run seed=0 "${options[@]}" --set device_config.device=cpu --set training_config.seed=12 \
  --record-routing "$scratch/record" >/dev/null
options+=(--replay-routing "$scratch/record")
want=$(run seed=0 "${options[@]}")
[ ${#want} = 64 ] || fail "replayed routing: no weights: $(cat "$scratch/out")"
mesh seed=1 ep 2
# NaN among scores.
for axes in dp ep; do
  checks=$((checks + 1))
  code=0
  EMULATED_CUDA=devices=1 bounded "$program" --config tests/cuda/run.yaml --set "$mixtral" --set "$units" \
    --set training_config.batch_size=8 --set training_config.optimizer.lr=1.0e20 \
    --set training_config.use_clip_grad_norm=false --set "mesh={axes: [$axes], shape: [2]}" >"$scratch/out" 2>&1 || code=$?
  grep -q "error: step 2: NaN among the scores of router 'block.0.moe.router'" "$scratch/out" && [ "$code" = 1 ] ||
    wrong "NaN scores on $axes: $code" "$scratch/out"
done
report
