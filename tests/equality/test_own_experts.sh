#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts whose bits, or whose numbers of parts, are easily those of one mesh.
# usage: test_own_experts.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

# mixture EXPERTS K PLACEMENT [STATEMENTS BEFORE [STATEMENTS BEHIND]], of x in y
mixture() {
  graph "  table: {shape: [260, 4], init: normal(0.5)}
  router: {shape: [$1, 4], init: normal(0.5)}
  up: {shape: [$1, 12, 4], init: normal(0.5), ep: shard(0)$3}
  down: {shape: [$1, 4, 12], init: normal(0.5), ep: shard(0)$3}" "- x: embedding(tokens, table)
${4:-}
- scores: sigmoid(router(x, router))
- chosen: choose_experts(scores, k=$2)
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, up)
- h: relu(expert_linear(permute_experts(x, plan), up, plan))
- y: combine_experts(expert_linear(h, down, plan), weights, plan)
${5:-}
- loss: cross_entropy(linear(y, table), targets)"
}

# proven WORDS: check --prove, with the interpreter
proven() {
  runs=$((runs + 1))
  local args=() set
  for set in "$@"; do args+=(--set "$set"); done
  "$program" check --prove --config run.yaml "${args[@]}" > out 2>&1 &&
    grep -q '^interpreter, step 1' out && grep -q 'bits: one sha256' out && return
  echo "check --prove $*: $(cat out)"
  failed=$((failed + 1))
}

# more than two rows a token, of experts that two and three axes share out: inner ones come first
recipe=(training_config.max_steps=4)
mixture 8 5 ', tp: shard(0)'
equal 'mesh={axes: [cp, tp], shape: [4, 2]}'
equal 'mesh={axes: [ep, cp], shape: [2, 2]}'
equal 'mesh={axes: [ep, tp], shape: [4, 2]}' device_config.enable_sp=true
equal 'mesh={axes: [ep, cp, tp], shape: [2, 2, 2]}'
equal 'mesh={axes: [ep, cp, tp], shape: [2, 2, 2]}' device_config.enable_sp=true

# in a flat tree of units, too
recipe=(training_config.max_steps=4 numerics.reduce_tree=flat training_config.optimizer.type=AdamW)
equal 'mesh={axes: [cp], shape: [4]}'
equal 'mesh={axes: [cp, tp], shape: [4, 2]}'

# what the ranks of an inner axis have together is a subtree, too: 3 of 6, and not 2
recipe=(training_config.max_steps=4 numerics.units.sequence=2 numerics.units.tp=3
  training_config.batch_size=6 numerics.units.batch=3)
mixture 6 5 ', tp: shard(0)'
equal 'mesh={axes: [cp, tp], shape: [2, 3]}'
recipe+=(numerics.units.tp=2)
refused "the 6 experts of 'up' cannot be shared out over ep = 3: " 'mesh={axes: [ep, tp], shape: [3, 2]}'

# but of a weight that an op makes, which is whole over ep before that, ep's and tp's shares count
before=("${recipe[@]}")
recipe=(training_config.max_steps=4 numerics.units.sequence=1 numerics.units.tp=3
  training_config.batch_size=6 numerics.units.batch=6 numerics.units.expert=6)
mixture 6 5 ', tp: shard(0)'
sed -i 's/shape: \[6, 12, 4\]/shape: [6, 4, 12]/; s/^- scores:/- turned: transpose(up, dim0=1, dim1=2)\n&/; s/expert_plan(chosen, up)/expert_plan(chosen, turned)/; s/plan), up, plan/plan), turned, plan/' graph.yaml
equal 'mesh={axes: [tp, ep], shape: [3, 2]}'
refused "the 6 experts of 'turned' cannot be shared out over tp = 3: " 'mesh={axes: [tp], shape: [3]}'
recipe=("${before[@]}")

# also where ranks add them behind an op that passes their partial sums on
recipe+=(numerics.units.tp=4)
mixture 8 5 ', tp: shard(0)' '' '- y: reshape(y, shape=[batch, sequence, 2, 2])
- y: reshape(y, shape=[batch, sequence, 4])'
equal 'mesh={axes: [tp], shape: [4]}'
mixture 8 5 ', tp: shard(0)' '' '- y: scale(y, factor=2)'
equal 'mesh={axes: [tp], shape: [4]}'

# in a flat tree of units behind linear maps, and beside the units of positions of a rank that has all
# of them
recipe=(training_config.max_steps=4 numerics.reduce_tree=flat training_config.optimizer.type=AdamW numerics.units.tp=4)
mixture 8 5 ', tp: shard(0)'
equal 'mesh={axes: [tp], shape: [4]}'
mixture 8 5 ', tp: shard(0)' '' '- y: reshape(scale(y, factor=2.0), shape=[batch, sequence, 4])'
equal 'mesh={axes: [tp], shape: [4]}'
equal 'mesh={axes: [dp, tp], shape: [2, 4]}' zero.stage=2

# nor is a row-parallel layer's sum one over experts, where tp splits the features of these
mixture 8 2 '' '' '- y: linear(y, p)'
sed -i 's/^  up: .*/  up: {shape: [8, 12, 4], init: normal(0.5), ep: shard(0)}/
  s/^  down: .*/  down: {shape: [8, 4, 12], init: normal(0.5), ep: shard(0), tp: shard(1)}\n  p: {shape: [4, 4], init: normal(0.5), tp: shard(1)}/' graph.yaml
equal 'mesh={axes: [tp], shape: [4]}'

# linear maps behind sums that two axes complete, and a stage that ends there
recipe=(training_config.precision=bf16)
mixture 8 2 ', tp: shard(0)' '' '- y: reshape(scale(y, factor=2.0), shape=[batch, sequence, 4])
- s: send(y, axis=pp, to=1)
- y: receive(s, axis=pp, from=0)'
equal 'mesh={axes: [ep, tp], shape: [2, 2]}'
equal 'mesh={axes: [pp, dp, ep, tp], shape: [2, 1, 2, 2]}' pipeline.microbatches=2 numerics.units.expert=1
equal 'mesh={axes: [cp, tp], shape: [2, 2]}' device_config.enable_sp=true

# whole experts, which the units of tp do not divide
recipe=(numerics.units.tp=3)
mixture 4 2 ', tp: shard(0)'
equal 'mesh={axes: [cp], shape: [4]}'
equal 'mesh={axes: [ep], shape: [2]}'

# weights that ops make of parameters, of all experts or not, that are used twice, and that ep does not
# split where they are stored
weights() { # PARAMETERS UP DOWN [STATEMENTS BEFORE [STATEMENTS BEHIND]]
  graph "  table: {shape: [260, 4], init: normal(0.5)}
  router: {shape: [4, 4], init: normal(0.5)}
$1" "- x: embedding(tokens, table)
${4:-}
- scores: sigmoid(router(x, router))
- chosen: choose_experts(scores, k=3)
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, $2)
- h: relu(expert_linear(permute_experts(x, plan), $2, plan))
- y: combine_experts(expert_linear(h, $3, plan), weights, plan)
${5:-}
- loss: cross_entropy(linear(y, table), targets)"
  equal 'mesh={axes: [ep], shape: [2]}'
  equal 'mesh={axes: [ep, cp], shape: [2, 2]}' zero.stage=1
  equal 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=3
  equal 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=2
  equal 'mesh={axes: [cp, tp], shape: [2, 2]}'
  equal pipeline.microbatches=2
  equal 'mesh={axes: [pp, ep], shape: [2, 2]}' 'pipeline.stages=[plan]' pipeline.microbatches=2
  proven 'mesh={axes: [ep], shape: [2]}'
}
recipe=(numerics.units.expert=2 training_config.use_clip_grad_norm=true
  training_config.clip_grad_norm_max_norm=0.1)
up='  up: {shape: [4, 12, 4], init: normal(0.5), ep: shard(0)'
down='  down: {shape: [4, 4, 12], init: normal(0.5), ep: shard(0)'
both="$up}
$down}"
weights "$both" small down '- small: scale(up, factor=0.3)'
weights "$up, tp: shard(1)}
$down, tp: shard(2)}" wide narrow '- wide: tanh(up)
- narrow: gelu(down)'
weights "$up, tp: shard(0)}
$down, tp: shard(0)}
  gain: {shape: [12, 4], init: normal(0.5)}" wide down '- wide: mul(up, gain)'
weights "$both
  a: {shape: [4, 2, 4], init: normal(0.5), ep: shard(0)}
  b: {shape: [4, 12, 2], init: normal(0.5), ep: shard(0)}" adapted down '- adapted: add(up, matmul(b, a))'
weights '  all: {shape: [4, 24, 4], init: normal(0.5), ep: shard(0)}' first second '- first: slice(all, dim=1, begin=0, end=12)
- second: transpose(slice(all, dim=1, begin=12, end=24), dim0=1, dim1=2)'
weights '  some: {shape: [1, 12, 4], init: normal(0.5)}
  others: {shape: [3, 12, 4], init: normal(0.5)}
  flat: {shape: [16, 12], init: normal(0.5)}' joined shaped '- joined: concat(some, others, dim=0)
- shaped: reshape(flat, shape=[4, 4, 12])'
weights '  whole: {shape: [4, 12, 4], init: normal(0.5)}
  down: {shape: [4, 4, 12], init: normal(0.5)}' whole down
weights "$up}" up tied '- tied: transpose(up, dim0=1, dim1=2)'
weights "$both
  square: {shape: [4, 12, 12], init: normal(0.5), ep: shard(0)}" up down '' \
  '- h: expert_linear(relu(expert_linear(h, square, plan)), square, plan)
- again: expert_plan(choose_experts(scores, k=2), up)
- r: relu(expert_linear(permute_experts(y, again), up, again))
- y: add(y, combine_experts(expert_linear(h, down, plan), weights, plan))
- few: expert_weights(scores, choose_experts(scores, k=2))
- y: add(y, combine_experts(expert_linear(r, down, again), few, again))'

recipe=(numerics.units.tp=3 numerics.units.expert=2)
graph '  table: {shape: [260, 4], init: normal(0.5)}
  router: {shape: [4, 4], init: normal(0.5)}
  up: {shape: [4, 12, 4], init: normal(0.5), tp: shard(0)}
  down: {shape: [4, 4, 12], init: normal(0.5), tp: shard(0)}' '- x: embedding(tokens, table)
- scores: sigmoid(router(x, router))
- chosen: choose_experts(scores, k=2)
- plan: expert_plan(chosen, up)
- h: relu(expert_linear(permute_experts(x, plan), up, plan))
- y: combine_experts(expert_linear(h, down, plan), expert_weights(scores, chosen), plan)
- loss: cross_entropy(linear(y, table), targets)'
equal 'mesh={axes: [ep], shape: [4]}'
equal 'mesh={axes: [dp, cp], shape: [2, 2]}' zero.stage=2

# one rank of dp scatters no gradients
recipe=(numerics.units.expert=2)
for zero in 0 1 2 3; do
  equal pipeline.microbatches=2 zero.stage=$zero
  equal 'mesh={axes: [ep], shape: [2]}' pipeline.microbatches=2 zero.stage=$zero
done

# an update writes the router's weight as it is stored; an evaluation reads that
for store in kahan_summation stochastic_rounding; do
  recipe=(training_config.precision=bf16 "training_config.optimizer.$store=true"
    numerics.units.expert=2 training_config.eval_every=1)
  equal 'mesh={axes: [dp], shape: [2]}' zero.stage=1
  equal 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=3
done

# samples that are not along the first dimension: every rank has all of them
recipe=(numerics.units.expert=2)
mixture 4 2 '' '- x: transpose(x, dim0=0, dim1=1)' '- y: transpose(y, dim0=0, dim1=1)'
equal 'mesh={axes: [dp], shape: [2]}'
equal 'mesh={axes: [ep], shape: [2]}'
equal 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=2

# an evaluation of samples that see each other: every rank of ep has them and gathers the experts
evaluated() { sed -n 's/.*"event":"eval".*"loss":\([^,]*\),.*/\1/p' metrics.jsonl; }
mixture 4 2 ', tp: shard(0)' '- rows: reshape(x, shape=[batch * sequence, 4])
- all: tanh(matmul(rows, rows, transpose_a=1))
- x: add(x, reshape(matmul(rows, all), shape=[batch, sequence, 4]))'
sed -i 's/eval_every: 0/eval_every: 1, validation_batch_size: 3/' run.yaml
want=
for axes in '[dp], shape: [1]' '[ep, cp], shape: [2, 2]' '[ep, tp], shape: [2, 2]'; do
  runs=$((runs + 1))
  rm -f metrics.jsonl
  "$program" --config run.yaml --set "mesh={axes: $axes}" --metrics metrics.jsonl > out 2>&1 || true
  got=$(evaluated)
  want=${want:-$got}
  [ -n "$got" ] && [ "$got" = "$want" ] && continue
  echo "evaluation over $axes: $got, on one rank $want"
  failed=$((failed + 1))
done

# leaves of the reduced run, which has fewer batch units
mixture 4 2 ', tp: shard(0)'
batch=(training_config.batch_size=16 numerics.units.batch=16)
proven "${batch[@]}" 'mesh={axes: [dp], shape: [2]}' pipeline.microbatches=4
proven "${batch[@]}" 'mesh={axes: [dp, ep], shape: [2, 2]}' pipeline.microbatches=4 zero.stage=2
for leaves in 2 4 8 16; do
  proven "${batch[@]}" "numerics.units.expert=$leaves" 'mesh={axes: [dp], shape: [2]}' zero.stage=1 \
    pipeline.microbatches=8
done
proven "${batch[@]}" numerics.units.expert=16 numerics.reduce_tree=flat \
  'mesh={axes: [dp], shape: [4]}' pipeline.microbatches=4

# Mixtures of different sizes: the norm of each gradient has pieces of its own, so memory does not grow with the
# least common multiple of the numbers of experts.
mixtures() { # EXPERTS…
  local parameters='' statements='' i=0 experts
  for experts in "$@"; do
    i=$((i + 1))
    parameters+="
  router$i: {shape: [$experts, 4], init: normal(0.5)}
  up$i: {shape: [$experts, 6, 4], init: normal(0.5), ep: shard(0)}
  down$i: {shape: [$experts, 4, 6], init: normal(0.5), ep: shard(0)}"
    statements+="
- scores$i: softmax(router(x, router$i))
- chosen$i: choose_experts(scores$i, k=2)
- weights$i: expert_weights(scores$i, chosen$i, normalize=1)
- plan$i: expert_plan(chosen$i, up$i)
- h$i: relu(expert_linear(permute_experts(x, plan$i), up$i, plan$i))
- x: add(x, combine_experts(expert_linear(h$i, down$i, plan$i), weights$i, plan$i))"
  done
  graph "  table: {shape: [260, 4], init: normal(0.5)}$parameters" "- x: embedding(tokens, table)$statements
- loss: cross_entropy(linear(x, table), targets)"
}
recipe=(training_config.max_steps=3 training_config.use_clip_grad_norm=true training_config.clip_grad_norm_max_norm=0.01)
mixtures 6 10
equal 'mesh={axes: [ep], shape: [2]}'
equal 'mesh={axes: [dp, ep], shape: [2, 2]}' zero.stage=3
equal 'mesh={axes: [cp], shape: [2]}'
mixtures 61 59 53 47 43
recipe+=(device_config.memory_limit=2MB)
equal 'mesh={axes: [dp], shape: [4]}' zero.stage=2

recipe=()
mixture 65537 2 ''
refused "'scores' (batch 4, sequence 8, 65537) has 65537 experts, and 65536 are possible"

end_of own_experts
