#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Graphs whose bits once depended on the mesh or on microbatches: those that are refused there by name, each of which is
# equal where it is accepted, and those that were refused or failed and are equal.
# usage: test_own_graphs.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

recipe=()
graph '  p1: {shape: [260, 8], init: normal(0.3), tp: shard(1), cp: shard(1)}
  p10: {shape: [260, 8], init: normal(0.3)}' '- v2: embedding(tokens, p1)
- logits: linear(v2, p10)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [cp], shape: [2]}'
equal 'mesh={axes: [dp], shape: [2]}'
equal 'mesh={axes: [tp], shape: [2]}'
equal 'mesh={axes: [cp, tp], shape: [2, 2]}'

recipe=(device_config.cp_layout=zigzag)
graph '  p1: {shape: [260, 12], init: normal(0.3)}
  p7: {shape: [12], init: normal(0.3), cp: shard(0)}' '- v2: embedding(tokens, p1)
- v8: mul(v2, p7)
- loss: mse(v8, v2)'
equal 'mesh={axes: [dp], shape: [2]}'
equal 'mesh={axes: [cp], shape: [2]}'

# positions in zigzag order, which tp splits once more: the masks of dropout are those of the positions
recipe=(device_config.cp_layout=zigzag numerics.units.tp=4)
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  a: {shape: [8, 8], init: normal(0.3), tp: shard(0)}
  b: {shape: [8, 8], init: normal(0.3), tp: shard(1)}' '- v2: embedding(tokens, p1)
- v3: reduce_scatter(linear(relu(linear(v2, a)), b), axis=tp, dim=1)
- v4: all_gather(dropout(v3, p=0.3), axis=tp, dim=1)
- loss: cross_entropy(linear(v4, p1), targets)'
equal 'mesh={axes: [tp], shape: [2]}'
equal 'mesh={axes: [cp], shape: [2]}'
equal 'mesh={axes: [cp, tp], shape: [2, 2]}'
equal 'mesh={axes: [cp, tp], shape: [2, 4]}'

# in a flat tree a rank of tp cannot have several of the units of positions
recipe=(numerics.reduce_tree=flat training_config.optimizer.type=AdamW)
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  p3: {shape: [8, 8], init: normal(0.2)}
  p4: {shape: [8], init: normal(0.1), tp: shard(0)}
  p5: {shape: [4], init: ones}' '- v1: embedding(tokens, p1)
- v2: transpose(v1, dim0=1, dim1=2)
- v3: transpose(linear(v2, p3, p4), dim0=1, dim1=2)
- loss: cross_entropy(linear(rmsnorm(v3, p5), p1), targets)'
equal 'mesh={axes: [tp], shape: [2]}'
equal 'mesh={axes: [dp, tp], shape: [2, 2]}'

recipe=()
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  p2: {shape: [260, 4], init: normal(0.3), pp: shard(1)}' '- v2: embedding(tokens, p1)
- logits: linear(v2, p2)
- loss: cross_entropy(logits, targets)'
refused "'p2' cannot be split over pp" 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[logits]'

# samples that mix: a Gram matrix of all rows, a softmax over the batch, a sample that others are multiplied by
mixed() {
  equal 'mesh={axes: [dp], shape: [2]}'
  refused "$1 mixes samples of different batch units" pipeline.microbatches=2
  refused "$1 mixes samples of different batch units" pipeline.microbatches=4 'mesh={axes: [pp], shape: [1]}'
  refused "$1 mixes samples of different batch units" pipeline.microbatches=2 'mesh={axes: [dp], shape: [2]}'
}
parameters='  p1: {shape: [260, 4], init: normal(0.3)}
  h: {shape: [260, 4], init: normal(0.3)}'
graph "$parameters" '- v2: embedding(tokens, p1)
- f: "reshape(v2, shape=[batch * sequence, 4])"
- g: matmul(f, f, transpose_a=1)
- k: matmul(f, g)
- v5: "reshape(k, shape=[batch, sequence, 4])"
- logits: linear(v5, h)
- loss: cross_entropy(logits, targets)'
mixed matmul
graph "$parameters" '- v2: embedding(tokens, p1)
- f: transpose(v2, dim0=0, dim1=2)
- s: softmax(f)
- v5: transpose(s, dim0=0, dim1=2)
- logits: linear(v5, h)
- loss: cross_entropy(logits, targets)'
mixed softmax
graph "$parameters" '- v2: embedding(tokens, p1)
- one: slice(v2, dim=0, begin=0, end=1)
- flat: "reshape(one, shape=[sequence, 4])"
- v5: mul(v2, flat)
- logits: linear(v5, h)
- loss: cross_entropy(logits, targets)'
mixed slice
# the same rows as a matrix and as batches of heads stay apart
graph "$parameters" '- v2: embedding(tokens, p1)
- f: "reshape(v2, shape=[batch * sequence, 2, 2])"
- r: transpose(f, dim0=0, dim1=1)
- s: softmax(r)
- b: transpose(s, dim0=0, dim1=1)
- v5: "reshape(b, shape=[batch, sequence, 4])"
- logits: linear(v5, h)
- loss: cross_entropy(logits, targets)'
for microbatches in 2 4; do
  equal pipeline.microbatches=$microbatches
done
equal pipeline.microbatches=2 'mesh={axes: [dp], shape: [2]}'

graph '  p1: {shape: [260, 8], init: normal(0.3)}
  a: {shape: [6, 8], init: normal(0.3), dp: shard(0)}
  b: {shape: [8, 6], init: normal(0.3), dp: shard(1)}' '- w: linear(tanh(b), transpose(a, dim0=0, dim1=1))
- logits: linear(linear(embedding(tokens, p1), w), p1)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
equal 'mesh={axes: [dp], shape: [2]}' zero.stage=2
equal training_config.batch_size=2 training_config.gradient_accumulation_steps=2

graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [8, 8], init: normal(0.3)}' '- x: embedding(tokens, p1)
- s: slice(x, dim=1, begin=0, end=6)
- a: attention(s, s, s, head_dim=4)
- y: matmul(x, scale(matmul(a, linear(a, w), transpose_a=1), factor=0.1))
- logits: linear(y, p1)
- loss: cross_entropy(logits, targets)'
refused "attention over the 6 positions of 's', which 4 sequence units do not divide"

graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [8, 8], init: normal(0.3)}' '- x: embedding(tokens, p1)
- h: all_to_all(x, axis=dp, from=0, dim=1)
- logits: linear(tanh(linear(h, w)), p1)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
refused "sums along dimension 1 of 'logits' would depend on the number of microbatches" \
  training_config.batch_size=2 training_config.gradient_accumulation_steps=2

# weights that are moved over dp and end up whole split no samples
for moved in 'broadcast(w, axis=dp)' 'all_gather(scatter(w, axis=dp, dim=1), axis=dp)' 'broadcast(tanh(w), axis=dp, root=0)'; do
  graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [8, 8], init: normal(0.3)}' "- v: $moved
- y: linear(embedding(tokens, p1), v)
- logits: linear(tanh(y), p1)
- loss: cross_entropy(logits, targets)"
  equal 'mesh={axes: [dp], shape: [2]}'
  equal pipeline.microbatches=2
  for dp in 1 2; do
    equal training_config.batch_size=2 training_config.gradient_accumulation_steps=2 "mesh={axes: [dp], shape: [$dp]}"
    [[ $moved = *scatter* ]] || equal pipeline.microbatches=2 "mesh={axes: [dp], shape: [$dp]}" zero.stage=2
  done
done

graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [16, 8], init: normal(0.3), tp: shard(0)}' '- x: embedding(tokens, p1)
- h: all_to_all(linear(x, w), axis=dp, from=0, dim=2)
- y: matmul(softmax(matmul(h, h, transpose_b=1)), x)
- logits: linear(y, p1)
- loss: cross_entropy(logits, targets)'
refused "sums over elements of 'h.part_tp' that both dp and tp split" 'mesh={axes: [tp], shape: [2]}'

graph '  p1: {shape: [260, 8], init: normal(0.3)}
  h: {shape: [260, 8], init: normal(0.3)}' '- x: embedding(tokens, p1)
- s: all_to_all(x, axis=dp, from=0, dim=1)
- k: silu(s)
- a: all_to_all(k, axis=dp, from=1, dim=0)
- logits: linear(a, h)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
for dp in 1 2; do
  equal training_config.batch_size=2 training_config.gradient_accumulation_steps=2 "mesh={axes: [dp], shape: [$dp]}"
done

# sequence parallelism that the file writes out, also where tp's slices are less than a unit or no run of units
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  up: {shape: [4, 8], init: normal(0.3), tp: shard(0)}
  down: {shape: [8, 4], init: normal(0.3), tp: shard(1)}
  n: {shape: [8], init: ones}' '- d: linear(linear(embedding(tokens, p1), up), down)
- s: reduce_scatter(d, axis=tp, dim=1)
- a: all_gather(tanh(rmsnorm(s, n)), axis=tp, dim=1)
- logits: linear(a, p1)
- loss: cross_entropy(logits, targets)'
for enable_sp in false true; do
  equal 'mesh={axes: [tp], shape: [2]}' device_config.enable_sp=$enable_sp
  equal 'mesh={axes: [cp, tp], shape: [2, 2]}' device_config.enable_sp=$enable_sp
done
equal 'mesh={axes: [cp, tp], shape: [4, 2]}'
for tp in 1 2; do
  recipe=(device_config.cp_layout=zigzag numerics.units.tp=$tp)
  equal "mesh={axes: [cp, tp], shape: [2, $tp]}"
done

# rows of padding, and a vector, of which zigzag would give a rank two runs
recipe=(device_config.cp_layout=zigzag)
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  n: {shape: [4], init: normal(1.0), cp: shard(0)}
  h: {shape: [260, 4], init: normal(0.3), valid0: 257, cp: shard(0)}' '- x: mul(embedding(tokens, p1), n)
- logits: linear(x, h)
- loss: cross_entropy(logits, targets, valid=257)'
equal 'mesh={axes: [cp], shape: [2]}'
equal 'mesh={axes: [cp, dp], shape: [2, 2]}' zero.stage=2

# dimensions that cut the batch units: their number would say which sums are made of them
recipe=()
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  h: {shape: [260, 4], init: normal(0.3)}' '- v2: embedding(tokens, p1)
- v3: "reshape(v2, shape=[2, batch // 2, sequence, 4])"
- v4: tanh(v3)
- v5: "reshape(v4, shape=[batch, sequence, 4])"
- logits: linear(v5, h)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
refused "reshape splits the batch units apart" pipeline.microbatches=2

# positions that lie where the batch did
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  h: {shape: [260, 4], init: normal(0.3)}' '- v2: embedding(tokens, p1)
- v3: transpose(v2, dim0=0, dim1=1)
- v4: "reshape(v3, shape=[batch, sequence, 4])"
- logits: linear(add(v4, v2), h)
- loss: cross_entropy(logits, targets)'
recipe=(training_config.batch_size=8 training_config.sequence_length=16)
refused "that both dp and cp split"

# a layout of what comes from the data
recipe=()
for axis in tp cp; do
  cat > graph.yaml <<GRAPH
tensors:
  tokens: {shape: [batch, sequence], dtype: i32, input: true}
  targets: {shape: [batch, sequence], dtype: i32, input: true, layout: {partition: [row], mesh_axes: [$axis]}}
  p1: {shape: [260, 4], dtype: f32, init: normal(0.3)}
graph:
- logits: linear(embedding(tokens, p1), p1)
- loss: cross_entropy(logits, targets)
outputs: [loss]
GRAPH
  equal "mesh={axes: [$axis], shape: [2]}"
  equal "mesh={axes: [$axis], shape: [2]}" pipeline.microbatches=2
done

# a weight made of others along what cp splits, and one that ZeRO's groups would split along it too
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  a: {shape: [4, 8], init: normal(0.3)}
  b: {shape: [8, 4], init: normal(0.3), cp: shard(0)}
  w: {shape: [4, 4], init: normal(0.3), cp: shard(0)}' '- x: linear(linear(embedding(tokens, p1), matmul(a, b)), w)
- logits: linear(x, p1)
- loss: cross_entropy(logits, targets)'
for cp in 2 4; do
  equal "mesh={axes: [cp], shape: [$cp]}"
  equal "mesh={axes: [cp], shape: [$cp]}" pipeline.microbatches=2
done
for shape in '[1, 2, 2]' '[2, 2, 1]' '[2, 2, 2]'; do
  equal device_config.enable_ddp=true device_config.enable_fsdp=true device_config.enable_cp=true \
    "device_config.mesh_shape=$shape"
done

# a weight that the file gathers over tp and ZeRO splits, beside a part of the batch
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  p: {shape: [sequence, 4], init: normal(0.3)}
  w: {shape: [8, 4], init: normal(0.3), tp: shard(0)}' '- x: add(embedding(tokens, p1), p)
- h: linear(x, all_gather(w, axis=tp, dim=0))
- s: "reshape(slice(h, dim=0, begin=batch // 2, end=batch), shape=[batch, sequence, 4])"
- logits: linear(add(x, s), p1)
- loss: cross_entropy(logits, targets)'
for stage in 0 1 3; do equal 'mesh={axes: [dp], shape: [2]}' zero.stage=$stage; done

# a gradient that dp splits along its features
recipe=(training_config.batch_size=4 training_config.sequence_length=4)
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  p: {shape: [sequence, 4], init: normal(0.3)}
  w: {shape: [4, 4], init: normal(0.3)}' '- x: add(embedding(tokens, p1), p)
- y: add(linear(x, w), linear(transpose(x, dim0=0, dim1=2), w))
- logits: linear(y, p1)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
equal 'mesh={axes: [dp], shape: [4]}' zero.stage=2

# stages that begin at a weight which others make, and at one that depends on the samples: a value that several stages
# multiply by such weights, so that a stage's backward pass wants what a later one's forward pass has made
recipe=()
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  a: {shape: [4, 4], init: normal(0.3), tp: shard(1)}
  b: {shape: [4, 4], init: normal(0.3)}' '- x: embedding(tokens, p1)
- y: linear(x, a)
- w: matmul(a, b)
- z: mul(y, linear(x, w))
- l, r: split(matmul(b, a), sections=2, dim=0)
- q: linear(z, l)
- m: add(q, linear(x, r))
- logits: linear(x, matmul(p1, b))
- t: add(logits, linear(m, slice(p1, dim=1, begin=0, end=2)))
- loss: cross_entropy(t, targets)'
equal 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[w]'
equal 'mesh={axes: [pp, tp], shape: [2, 2]}' 'pipeline.stages=[w]'
equal 'mesh={axes: [pp], shape: [3]}' 'pipeline.stages=[w, l]' pipeline.microbatches=2
equal 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[r]' pipeline.microbatches=4
equal 'mesh={axes: [pp], shape: [5]}' 'pipeline.stages=[y, z, q, logits]' pipeline.microbatches=4 pipeline.schedule=zb_h1
equal 'mesh={axes: [pp, cp, tp], shape: [2, 2, 2]}' 'pipeline.stages=[y, w, logits]' pipeline.schedule=zb_v \
  pipeline.microbatches=2
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  a: {shape: [4, 4], init: normal(0.3)}' '- x: embedding(tokens, p1)
- y: linear(x, a)
- w: reshape(slice(y, dim=0, begin=0, end=1), shape=[sequence, 4])
- z: softmax(linear(x, w))
- v: linear(slice(z, dim=2, begin=0, end=4), a)
- logits: linear(add(v, y), p1)
- loss: cross_entropy(logits, targets)'
recipe=(numerics.units.sequence=1)
equal 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[w]'
equal 'mesh={axes: [pp], shape: [4]}' 'pipeline.stages=[y, z, logits]' pipeline.schedule=gpipe
equal 'mesh={axes: [pp, dp], shape: [2, 2]}' 'pipeline.stages=[w]'

recipe=()
# Numbers that depend on how many samples a microbatch has, and parameters that do: one microbatch is accepted.
batch_depends() { # PARAMETERS STATEMENTS WHAT
  graph "  p0: {shape: [256, 4], init: normal(1)}
$1" "$2
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)"
  equal 'mesh={axes: [dp], shape: [2]}'
  refused "$3 depends on batch" pipeline.microbatches=2
  refused "$3 depends on batch" training_config.gradient_accumulation_steps=2 training_config.batch_size=2
}
batch_depends '' '- h: embedding(tokens, p0)
- x: "scale(h, factor=batch)"' "what makes 'x'"
batch_depends '  p1: {shape: [4], init: normal(batch)}' '- h: embedding(tokens, p0)
- x: mul(h, p1)' "parameter 'p1'"
batch_depends '  p1: {shape: [8, 4], init: normal(1)}' '- s: "slice(p1, dim=0, begin=0, end=batch)"
- h: embedding(tokens, p0)
- x: "linear(h, matmul(s, s, transpose_a=1))"' "what makes 's'"
batch_depends '  p1: {shape: [16], init: normal(1)}' '- s: "reshape(p1, shape=[batch, 16 / batch])"
- t: softmax(s)
- u: "reshape(t, shape=[4, 4])"
- h: embedding(tokens, p0)
- x: linear(h, u)' "what makes 's'"
batch_depends '' '- h: embedding(tokens, p0)
- x: "rope(h, head_dim=2, theta=10 * batch)"' "what makes 'x'"
batch_depends '' '- h: embedding(tokens, p0)
- if: batch == 4
  graph: [x: tanh(h)]
  else: [x: sigmoid(h)]' "what makes 'x'"

# Stages have values of their own.
graph '  p0: {shape: [256, 4], init: normal(1)}' '- h: embedding(tokens, p0)
- s: "scatter(p0, axis=pp, dim=1)"
- logits: linear(h, s)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp], shape: [2]}'
refused "scatter over pp" 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[logits]'

# One matrix for all samples: those of linear's weights, and equal over every axis.
weights='  p0: {shape: [260, 8], init: normal(1)}
  p1: {shape: [8, 16], init: normal(0.3), tp: shard(1)}
  p2: {shape: [16, 8], init: normal(0.3), tp: shard(0)}'
graph "$weights" '- h: embedding(tokens, p0)
- x: matmul(relu(matmul(h, p1)), p2)
- logits: matmul(x, p0, transpose_b=True)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp, tp], shape: [2, 2]}' zero.stage=3
equal 'mesh={axes: [cp], shape: [2]}'
by_matmul=$(train "${recipe[@]}")
graph "$weights" "- h: embedding(tokens, p0)
- x: linear(relu(linear(h, transpose(p1, 0, 1))), transpose(p2, 0, 1))
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)"
runs=$((runs + 1))
[ "$(train "${recipe[@]}")" = "$by_matmul" ] || { echo "matmul with a matrix is not linear"; failed=$((failed + 1)); }

end_of equality.own_graphs
