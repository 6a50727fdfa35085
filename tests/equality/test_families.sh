#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Recipes whose bits once depended on the mesh, or that were refused without need: each on one rank and
# on meshes that differed. Runs in the source root.
# usage: test_families.sh PROGRAM
set -euo pipefail

program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 runs=0

# One run of a model of tests/equality: hash of the weights; the validation loss and sampled text if there are.
train() {
  local model=$1 args=(--set numerics.threads=1 --set training_config.max_steps=8) set
  shift
  for set in "$@"; do args+=(--set "$set"); done
  [ -f "$scratch/$model.yaml" ] || cp "tests/equality/$model.yaml" "$scratch"
  "$program" --config "$scratch/$model.yaml" --quiet --metrics "$scratch/metrics" "${args[@]}" \
    2>"$scratch/stderr" || { head -n 2 "$scratch/stderr"; return; }
  sed -n 's/.*"event":"sample".*"text"://p' "$scratch/metrics"
  sed -n 's/.*"event":"eval".*"loss":\([0-9.e-]*\),\(.*\)}/\1 \2/p' "$scratch/metrics"
  tail -n 1 "$scratch/metrics" | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p'
}

family() { # a name, a model, and the recipe's words; then each line of input is a realisation's
  local name=$1 want got words
  shift
  want=$(train "$@")
  [[ $want =~ [0-9a-f]{64}$ ]] || { echo "$name: on one rank: $want"; failed=$((failed + 1)); }
  while IFS='|' read -ra words; do
    got=$(train "$@" "${words[@]}")
    runs=$((runs + 1))
    [ "$got" = "$want" ] && continue
    echo "$name: ${words[*]}: $got, on one rank $want"
    failed=$((failed + 1))
  done
}

clip=(training_config.use_clip_grad_norm=true training_config.clip_grad_norm_max_norm=0.1)
for seed in 4 6; do
  for model in llama qwen3; do
    family 'ZeRO and a weight that tp would split' "$model" "training_config.seed=$seed" "${clip[@]}" \
      'numerics.units={batch: 4, tp: 1}' <<'RUNS'
mesh={axes: [dp], shape: [2]}|zero.stage=1
mesh={axes: [dp], shape: [2]}|zero.stage=2
mesh={axes: [dp], shape: [4]}|zero.stage=3
RUNS
  done
done

for model in gpt2 llama qwen3 deepseek_v3; do
  family 'text sampled with ZeRO and sequence units' "$model" training_config.sample_tokens=40 \
    eval_config.temperature=0 'numerics.units={batch: 4, sequence: 2, tp: 1}' <<'RUNS'
mesh={axes: [dp], shape: [2]}|zero.stage=1
mesh={axes: [dp], shape: [4]}|zero.stage=3
mesh={axes: [dp, cp], shape: [2, 2]}|zero.stage=2
RUNS
done

for model in gpt2 llama deepseek_v3; do
  family 'ZeRO beside cp, tp and sequence parallelism' "$model" "${clip[@]}" \
    'numerics.units={batch: 4, sequence: 8, tp: 4}' <<'RUNS'
mesh={axes: [dp, cp, tp], shape: [4, 2, 2]}|device_config.enable_sp=true|zero.stage=1
mesh={axes: [dp, cp, tp], shape: [4, 2, 2]}|device_config.enable_sp=true|zero.stage=2
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
RUNS
done

for model in gpt2 qwen3 deepseek_v3; do
  family 'several batch units in a microbatch of cp, and what is evaluated' "$model" \
    'numerics.units={batch: 4, sequence: 8, tp: 2}' training_config.eval_every=8 \
    training_config.validation_batch_size=6 <<'RUNS'
mesh={axes: [cp], shape: [2]}
mesh={axes: [cp], shape: [8]}
mesh={axes: [dp, cp], shape: [4, 2]}
mesh={axes: [cp, tp], shape: [4, 2]}
mesh={axes: [cp], shape: [2]}|training_config.gradient_accumulation_steps=2|training_config.batch_size=4
RUNS
done

for model in mixtral qwen2_moe qwen3_moe olmoe deepseek_v2_moe deepseek_v3_moe glm4_moe gpt_oss; do
  for split in experts features; do
    family "a mixture of experts, of which tp splits the $split" "$model" "transformer_config.expert_tp=$split" \
      "${clip[@]}" training_config.sample_tokens=20 eval_config.temperature=0 training_config.eval_every=8 \
      'numerics.units={batch: 8, sequence: 4, tp: 2, expert: 2}' <<'RUNS'
mesh={axes: [ep, tp], shape: [4, 2]}
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
mesh={axes: [pp, ep, cp], shape: [2, 2, 2]}|pipeline={microbatches: 4, schedule: zb_h1}
RUNS
  done
done

# The references' models, whose windows, scalings and factors all change numbers.
for model in qwen2 smollm3 olmo2 granite starcoder2 gpt_neox phi3 gemma2 gemma3; do
  sed '/^transformer_config/,$d' tests/equality/qwen3.yaml | cat - "tests/reference/data/$model.yaml" >"$scratch/$model.yaml"
  family 'a dense family' "$model" transformer_config.vocab_size=256 transformer_config.dropout_prob=0.1 "${clip[@]}" \
    training_config.batch_size=8 training_config.sample_tokens=20 eval_config.temperature=0 training_config.eval_every=8 \
    'numerics.units={batch: 8, sequence: 4, tp: 2}' <<'RUNS'
mesh={axes: [cp, tp], shape: [4, 2]}
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
mesh={axes: [pp, dp, tp], shape: [2, 2, 2]}|pipeline={microbatches: 4, schedule: zb_h1}|schedule.recompute=full
RUNS
done

balances=("{loss: sequence, coefficient: 0.1, z: 0.01}" "{loss: step, coefficient: 0.1}")
for model in mixtral qwen2_moe qwen3_moe olmoe deepseek_v2_moe deepseek_v3_moe glm4_moe gpt_oss; do
  for balance in "${balances[@]}"; do
    family 'losses that balance the experts, and a capacity' "$model" "transformer_config.balance=$balance" \
      "${clip[@]}" transformer_config.capacity=1.25 training_config.eval_every=8 \
      'numerics.units={batch: 8, sequence: 4, tp: 2, expert: 2}' <<'RUNS'
mesh={axes: [ep, tp], shape: [4, 2]}
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
mesh={axes: [pp, ep, cp], shape: [2, 2, 2]}|pipeline={microbatches: 4, schedule: zb_h1}
RUNS
  done
  family "Hugging Face's loss of a batch, which is one microbatch" "$model" "${clip[@]}" \
    'transformer_config.balance={loss: forward, coefficient: 0.1}' \
    'numerics.units={batch: 8, sequence: 4, tp: 2, expert: 2}' <<'RUNS'
mesh={axes: [ep, tp], shape: [4, 2]}
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
mesh={axes: [pp, ep, cp], shape: [2, 2, 2]}|pipeline={microbatches: 1}
RUNS
done

for precision in f32 bf16; do
  family 'classes of documents, whose accuracy is of the whole validation part' labels training_config.precision=$precision \
    'numerics.units={batch: 8, sequence: 4, tp: 4}' <<'RUNS'
mesh={axes: [dp, tp], shape: [4, 2]}|zero.stage=2
mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}|device_config.enable_sp=true|zero.stage=3
mesh={axes: [pp, cp], shape: [2, 4]}|pipeline={microbatches: 4, schedule: zb_h1}|schedule.recompute=full
RUNS
done

cat >"$scratch/two_chunks.order" <<'ORDER'
stages: 2
microbatches: 4
chunks: 2
stage 0: F0 F1 F0.1 F2 B0.1 B0 F3 F1.1 F2.1 B1.1 F3.1 B2.1 B3.1 B1 B2 B3
stage 1: F0 F1 F0.1 B0.1 F2 B0 F1.1 F3 B1.1 F2.1 B2.1 F3.1 B3.1 B1 B2 B3
ORDER
family 'a schedule whose chunks need their inputs at different times' gpt2 transformer_config.num_blocks=4 \
  'numerics.units={batch: 8, tp: 1}' <<RUNS
mesh={axes: [pp], shape: [2]}|pipeline={microbatches: 4, schedule: "file:$scratch/two_chunks.order"}
RUNS

echo "$runs runs compared, $failed failed"
[ "$failed" = 0 ] && [ "$runs" -gt 0 ]
