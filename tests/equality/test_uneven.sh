#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Parameters that tp splits into uneven blocks: the bits of one rank on every mesh, checkpoints without padding, and
# the numbers of the same graph without any, but for rounding.
# usage: test_uneven.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

loss_of() { sed -n 's/^Step 2: \(Global \)\?Loss = \([0-9.]*\),.*/\2/p' out; }

# whole: the run on one rank has, within rounding, the losses of the run whose units need no padding
whole() {
  runs=$((runs + 1))
  local want got
  train "${recipe[@]}" numerics.units.tp=1 >/dev/null
  want=$(loss_of)
  train "${recipe[@]}" >/dev/null
  got=$(loss_of)
  [ -n "$want" ] && awk -v a="$want" -v b="$got" 'BEGIN { exit !(a - b < 2e-4 && b - a < 2e-4) }' && return
  echo "loss ${got:-missing} with padding, ${want:-missing} without"
  failed=$((failed + 1))
}
# proven: the interpreter, which knows no blocks, computes the losses and gradients of a mesh's schedule
proven() {
  runs=$((runs + 1))
  local args=() set
  for set in "${recipe[@]}" "$@"; do args+=(--set "$set"); done
  "$program" check --prove --config run.yaml "${args[@]}" >out 2>&1 && grep -q '^interpreter, step 1' out && return
  echo "check --prove $*: $(cat out)"
  failed=$((failed + 1))
}
meshes() {
  whole
  proven 'mesh={axes: [dp, tp], shape: [2, 4]}' pipeline.microbatches=2
  equal 'mesh={axes: [tp], shape: [2]}'
  equal 'mesh={axes: [tp], shape: [4]}'
  equal 'mesh={axes: [dp, tp], shape: [2, 4]}' "zero.stage=$1"
  equal 'mesh={axes: [dp], shape: [4]}' "zero.stage=$2"
  equal 'mesh={axes: [pp, tp], shape: [2, 2]}' "pipeline.stages=[y]" pipeline.microbatches=4
}

recipe=(numerics.units.tp=4)
mlp='  p0: {shape: [260, 8], init: normal(1)}
  w1: {shape: [10, 8], init: normal(0.5), tp: shard(0)}
  b1: {shape: [10], init: normal(0.5), tp: shard(0)}
  w2: {shape: [8, 10], init: normal(0.5), tp: shard(1)}'
graph "$mlp" '- h: embedding(tokens, p0)
- y: sigmoid(linear(h, w1, b1))
- x: linear(y, w2)
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)'
meshes 1 3
equal 'mesh={axes: [tp], shape: [4]}' training_config.optimizer.lr=0.1 schedule.recompute=full
recipe+=(training_config.precision=bf16)
meshes 2 1

# gates; a bias and a scale that every rank has; features that a norm and a softmax need all of
recipe=(numerics.units.tp=4 training_config.optimizer.type=AdamW training_config.optimizer.lr=0.01)
graph '  p0: {shape: [260, 8], init: normal(1)}
  wg: {shape: [7, 8], init: normal(0.5), tp: shard(0)}
  wu: {shape: [7, 8], init: normal(0.5), tp: shard(0)}
  s: {shape: [7], init: normal(0.5)}
  b: {shape: [7], init: normal(0.5)}
  n: {shape: [7], init: ones}
  wd: {shape: [8, 7], init: normal(0.5), tp: shard(1)}' '- h: embedding(tokens, p0)
- y: add(mul(swiglu(linear(h, wg), linear(h, wu)), s), b)
- r: rmsnorm(y, n)
- t: softmax(r)
- x: add(h, linear(add(r, t), wd))
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)'
meshes 1 2
recipe+=(training_config.use_clip_grad_norm=true training_config.clip_grad_norm_max_norm=0.1)
equal 'mesh={axes: [tp], shape: [4]}'

# a table with uneven columns, and one with uneven rows that is the head, too; matrices that are turned
recipe=(numerics.units.tp=4)
graph '  p0: {shape: [261, 8], init: normal(1), tp: shard(0)}
  q: {shape: [260, 9], init: normal(1), tp: shard(1)}
  w: {shape: [9, 8], init: normal(0.5), tp: shard(0)}
  v: {shape: [8, 5], init: normal(0.5), tp: shard(1)}
  u: {shape: [5, 8], init: normal(0.5), tp: shard(0)}' '- h: embedding(tokens, p0)
- k: embedding(tokens, q)
- y: add(h, matmul(gelu(k), w))
- x: matmul(relu(matmul(y, v)), u)
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)'
meshes 3 1

# layers beside column-parallel ones of the same value: their gradients' sum over tp is made of columns
# of all, whose number tp does not divide; one that tp does not split, one that is row-parallel
recipe=(numerics.units.tp=4)
graph '  p0: {shape: [260, 8], init: normal(1)}
  r: {shape: [5, 8], init: normal(0.5)}
  a: {shape: [6, 8], init: normal(0.5), tp: shard(1)}
  c: {shape: [12, 8], init: normal(0.5), tp: shard(0)}
  u: {shape: [5, 8], init: normal(0.5), tp: shard(0)}
  d: {shape: [5, 12], init: normal(0.5), tp: shard(1)}
  e: {shape: [8, 6], init: normal(0.5)}
  f: {shape: [8, 5], init: normal(0.5), tp: shard(0)}' '- h: embedding(tokens, p0)
- y: add(add(linear(h, r), linear(h, u)), linear(relu(linear(h, c)), d))
- x: add(linear(gelu(linear(h, a)), e), linear(y, f))
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)'
meshes 1 3
recipe+=(training_config.precision=bf16)
equal 'mesh={axes: [dp, tp], shape: [2, 4]}' zero.stage=3 schedule.recompute=full

# experts whose features tp splits, as column- and row-parallel layers of each
experts='  p0: {shape: [260, 8], init: normal(1)}
  r: {shape: [6, 8], init: normal(0.5)}
  g: {shape: [6, 10, 8], init: normal(0.5), ep: shard(0), tp: shard(1)}
  u: {shape: [6, 10, 8], init: normal(0.5), ep: shard(0), tp: shard(1)}
  d: {shape: [6, 8, 10], init: normal(0.5), ep: shard(0), tp: shard(2)}'
mixture='- h: embedding(tokens, p0)
- s: softmax(router(h, r))
- c: choose_experts(s, k=2)
- p: expert_plan(c, g)
- y: permute_experts(h, p)
- y: swiglu(expert_linear(y, g, p), expert_linear(y, u, p))
- x: combine_experts(expert_linear(y, d, p), expert_weights(s, c), p)
- logits: linear(add(h, x), p0)
- loss: cross_entropy(logits, targets)'
recipe=(numerics.units.tp=4 numerics.units.expert=4)
graph "$experts" "$mixture"
meshes 2 3
equal 'mesh={axes: [ep], shape: [2]}'
equal 'mesh={axes: [ep, tp], shape: [2, 4]}' zero.partition=owner_hash zero.stage=2
equal 'mesh={axes: [dp, ep, tp], shape: [2, 2, 2]}'
# their biases, split like the features or whole on every rank; an op that makes more than zero of zero
for split in ', tp: shard(1)' ''; do
  graph "$experts
  b: {shape: [6, 10], init: normal(0.5), ep: shard(0)$split}" "- h: embedding(tokens, p0)
- s: softmax(router(h, r))
- c: choose_experts(s, k=2)
- p: expert_plan(c, g)
- y: permute_experts(h, p)
- y: mul(sigmoid(expert_linear(y, g, p, b)), expert_linear(y, u, p))
- x: combine_experts(expert_linear(y, d, p), expert_weights(s, c), p)
- logits: linear(add(h, x), p0)
- loss: cross_entropy(logits, targets)"
  meshes 1 3
  equal 'mesh={axes: [ep], shape: [2]}'
  equal 'mesh={axes: [dp, ep, tp], shape: [2, 2, 2]}'
done
# uneven features of the results, which tokens get, and of the tokens
graph '  p0: {shape: [260, 8], init: normal(1)}
  r: {shape: [6, 9], init: normal(0.5)}
  a: {shape: [9, 8], init: normal(0.5), tp: shard(0)}
  g: {shape: [6, 8, 9], init: normal(0.5), ep: shard(0), tp: shard(2)}
  d: {shape: [6, 10, 8], init: normal(0.5), ep: shard(0), tp: shard(1)}
  o: {shape: [8, 10], init: normal(0.5), tp: shard(1)}' '- h: embedding(tokens, p0)
- y: linear(h, a)
- s: softmax(router(y, r))
- c: choose_experts(s, k=2)
- p: expert_plan(c, g)
- z: gelu(expert_linear(permute_experts(y, p), g, p))
- x: combine_experts(expert_linear(z, d, p), expert_weights(s, c), p)
- logits: linear(linear(x, o), p0)
- loss: cross_entropy(logits, targets)'
meshes 1 2
equal 'mesh={axes: [ep, tp], shape: [2, 4]}'

# what one stage sends another
recipe=(numerics.units.tp=4)
graph '  p0: {shape: [260, 8], init: normal(1)}
  a: {shape: [7, 8], init: normal(0.5), tp: shard(0)}
  b: {shape: [8, 7], init: normal(0.5), tp: shard(1)}' '- h: embedding(tokens, p0)
- y: send(gelu(linear(h, a)), axis=pp, to=1)
- y: receive(y, axis=pp, from=0)
- logits: linear(linear(y, b), p0)
- loss: cross_entropy(logits, targets)'
whole
proven 'mesh={axes: [pp, tp], shape: [2, 4]}' pipeline.microbatches=2
equal 'mesh={axes: [pp, tp], shape: [2, 2]}' pipeline.microbatches=4
equal 'mesh={axes: [dp, tp], shape: [2, 4]}' zero.stage=1

# fewer than there are blocks
recipe=(numerics.units.tp=4)
graph '  p0: {shape: [260, 8], init: normal(1)}
  w1: {shape: [3, 8], init: normal(0.5), tp: shard(0)}
  w2: {shape: [8, 3], init: normal(0.5), tp: shard(1)}
  a: {shape: [1, 8], init: normal(0.5), tp: shard(0)}
  b: {shape: [8, 1], init: normal(0.5), tp: shard(1)}' '- h: embedding(tokens, p0)
- y: add(linear(tanh(linear(h, w1)), w2), linear(linear(h, a), b))
- logits: linear(y, p0)
- loss: cross_entropy(logits, targets)'
meshes 1 1

# ---- checkpoints: what they have is what they have without padding ----
kept=(training_config.checkpoint_dir=kept training_config.max_steps=1 training_config.model_save_interval=1)
runs=$((runs + 1))
want=$(train "${recipe[@]}" training_config.max_steps=2)
train "${recipe[@]}" "${kept[@]}" 'mesh={axes: [tp], shape: [4]}' >/dev/null
"$program" checkpoint verify kept >said 2>&1 && "$program" checkpoint ls kept >>said 2>&1 || { cat said; failed=$((failed + 1)); }
grep -q '"w1"' kept/step-00000001/manifest.json && ! grep -qE '"shape": *\[4, *8\]' kept/step-00000001/manifest.json ||
  { echo "the manifest has padding"; failed=$((failed + 1)); }
"$program" checkpoint reshard kept --out moved --shards 3 >said 2>&1 || { cat said; failed=$((failed + 1)); }
for mesh in 1 2 4; do
  for from in kept moved; do
    runs=$((runs + 1))
    rm -rf new && mkdir new && cp -r "$([ $from = moved ] && echo moved || echo kept/step-00000001)" new/step-00000001
    got=$(train "${recipe[@]}" training_config.max_steps=2 "mesh={axes: [tp], shape: [$mesh]}" checkpoint.resume=auto \
      training_config.checkpoint_dir=new)
    [ "$got" = "$want" ] || { echo "tp = $mesh from $from: $got, not $want"; cat out; failed=$((failed + 1)); }
  done
done

# ---- refused ----
refused "'w1': 4 tp units do not divide its dimension 0 of 3" device_config.strict_divisible=true
graph '  p0: {shape: [260, 12], init: normal(1)}
  q: {shape: [6, 12], init: normal(0.5), tp: shard(0)}
  o: {shape: [12, 6], init: normal(0.5), tp: shard(1)}' '- h: embedding(tokens, p0)
- y: linear(h, q)
- a: attention(y, y, y, head_dim=2)
- logits: linear(linear(a, o), p0)
- loss: cross_entropy(logits, targets)'
refused "attention of 'y': its 6 features do not divide over the 4 parts of tp" 'mesh={axes: [tp], shape: [4]}'

graph '  p0: {shape: [vocab_padded, 7], valid0: vocab_size, init: normal(1), tp: shard(1)}' '- h: embedding(tokens, p0)
- logits: linear(h, p0)
- loss: cross_entropy(logits, targets, valid=vocab_size)'
sed -i '1i sizes: {vocab_size: {default: 0, min: 0}}' graph.yaml
refused "parameter 'p0': 4 tp units do not divide its dimension 1 of 7, and a parameter with valid0 has no uneven blocks"

graph "${experts/shard(2)/shard(1)}" "$mixture"
refused "expert_linear of 'y_2': its 10 features do not divide over the 4 parts of tp" numerics.units.expert=4
graph "${experts/0.5), ep: shard(0), tp: shard(1)/0.5), ep: shard(0)}" "$mixture"
refused "swiglu of 'y.expert_linear_2': its 10 features do not divide over the 4 parts of tp" numerics.units.expert=4

end_of equality.uneven
