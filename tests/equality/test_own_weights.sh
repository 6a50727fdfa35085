#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What parameters alone make: every rank computes all of it, from complete gradients.
# usage: test_own_weights.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

# biases that are parts of others, or have another shape there, beside units of positions
recipe=()
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  b: {shape: [264], init: normal(0.3)}
  c: {shape: [2, 130], init: normal(0.3)}' '- x: embedding(tokens, p1)
- y: linear(x, p1, slice(b, dim=0, begin=4, end=264))
- k, l: split(b, sections=2, dim=0)
- logits: add(y, reshape(c, shape=[260]))
- z: mul(linear(x, p1), slice(reshape(transpose(c, dim0=0, dim1=1), shape=[260]), dim=0, begin=0, end=260))
- t: add(logits, mul(z, slice(k, dim=0, begin=0, end=1)))
- loss: cross_entropy(logits, targets)'
for shape in 'dp], shape: [2]' 'dp], shape: [4]' 'cp], shape: [4]' 'dp, cp], shape: [2, 2]' 'dp, tp], shape: [2, 2]'; do
  equal "mesh={axes: [$shape}"
  equal "mesh={axes: [$shape}" zero.stage=2 device_config.enable_sp=true
done

# a weight with a bias and a gain of its own, with microbatches, ZeRO, groups of it, and overlap
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  p: {shape: [8, 4], init: normal(0.3)}
  q: {shape: [8, 4], init: normal(0.3)}
  r: {shape: [8], init: normal(0.3)}
  g: {shape: [8], init: normal(0.3)}
  s: {shape: [8, 8], init: normal(0.3), tp: shard(0)}
  h: {shape: [2, 4], init: normal(0.3)}
  o: {shape: [260, 8], init: normal(0.3), cp: shard(0)}' '- x: rmsnorm(embedding(tokens, p1), reshape(h, shape=[8]))
- w: add(s, rmsnorm(linear(p, q, r), g))
- y: mul(linear(x, w), softmax(s))
- logits: linear(y, add(p1, o))
- loss: cross_entropy(logits, targets)'
recipe=(training_config.sequence_length=8 numerics.units.sequence=2)
for m in 1 2 4; do
  for zero in 0 1 2 3; do
    [ $((m * 2)) -gt 4 ] || equal 'mesh={axes: [dp], shape: [2]}' zero.stage=$zero pipeline.microbatches=$m schedule.all_reduce_overlap=true
  done
  equal 'mesh={axes: [tp], shape: [2]}' pipeline.microbatches=$m device_config.enable_sp=true
  equal 'mesh={axes: [pp, cp], shape: [2, 2]}' 'pipeline.stages=[y]' pipeline.microbatches=$m
done
equal device_config.enable_ddp=true device_config.enable_fsdp=true 'device_config.mesh_shape=[2, 2]'
recipe+=(training_config.batch_size=8 numerics.units.batch=8)
equal device_config.enable_ddp=true device_config.enable_fsdp=true 'device_config.mesh_shape=[2, 2]' pipeline.microbatches=2
for precision in f32 bf16 fp16 fp8; do
  for layout in contiguous zigzag; do
    recipe=(training_config.precision=$precision device_config.cp_layout=$layout numerics.units.sequence=4)
    equal 'mesh={axes: [cp], shape: [2]}'
    equal 'mesh={axes: [cp, tp], shape: [2, 2]}' schedule.recompute=full
    equal 'mesh={axes: [dp], shape: [2]}' schedule.recompute=full zero.stage=3
  done
done

# one that lies along the positions, of which sequence parallelism has slices
recipe=()
graph '  p1: {shape: [260, 4], init: normal(0.3), tp: shard(0)}
  b: {shape: [4], init: normal(0.3)}
  p: {shape: [sequence, sequence], init: normal(0.3)}
  q: {shape: [sequence, 4], init: normal(0.3)}' '- x: layernorm(embedding(tokens, p1), b, b)
- y: add(mul(x, matmul(softmax(p), q)), linear(q, matmul(q, q, transpose_a=1), b))
- logits: linear(y, p1)
- loss: cross_entropy(logits, targets)'
for sp in false true; do
  equal "device_config.enable_sp=$sp"
  equal 'mesh={axes: [tp], shape: [2]}' "device_config.enable_sp=$sp"
  equal 'mesh={axes: [cp, tp], shape: [2, 2]}' "device_config.enable_sp=$sp" pipeline.microbatches=2
done

# one gradient of two parameters that groups of ZeRO split along different dimensions
recipe=(numerics.units.tp=1 training_config.batch_size=8 numerics.units.batch=8)
graph '  p1: {shape: [260, 4], init: normal(0.3)}
  p: {shape: [sequence, 4], init: normal(0.3), tp: shard(0)}
  q: {shape: [sequence, 4], init: normal(0.3)}' '- x: add(embedding(tokens, p1), add(p, q))
- logits: linear(x, p1)
- loss: cross_entropy(logits, targets)'
for shape in '[2, 2]' '[1, 4]' '[4, 1]'; do
  for m in 1 2; do
    equal device_config.enable_ddp=true device_config.enable_fsdp=true "device_config.mesh_shape=$shape" pipeline.microbatches=$m
  done
done

# a weight that two stages make others of
recipe=()
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  p: {shape: [8, 8], init: normal(0.3)}
  q: {shape: [8, 8], init: normal(0.3)}
  r: {shape: [8, 8], init: normal(0.3)}' '- y: linear(embedding(tokens, p1), linear(p, q))
- z: linear(y, linear(p, r))
- logits: linear(z, p1)
- loss: cross_entropy(logits, targets)'
for schedule in gpipe 1f1b zb_h1; do
  equal 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[z]' pipeline.microbatches=2 pipeline.schedule=$schedule
done

# a matrix that ep splits is stored in parts, and is no weights of experts, which cp would distribute too
recipe=(training_config.optimizer.type=AdamW)
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [8, 8], init: normal(0.3), ep: shard(0)}
  v: {shape: [8, 8], init: normal(0.3), ep: shard(1), tp: shard(0)}' '- x: embedding(tokens, p1)
- logits: linear(add(linear(x, w), linear(x, v)), p1)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [cp], shape: [2]}'
equal 'mesh={axes: [ep, cp], shape: [2, 2]}'
equal 'mesh={axes: [dp, ep, tp], shape: [2, 2, 2]}' zero.stage=2
equal 'mesh={axes: [ep], shape: [4]}' zero.stage=3

# a table of positions that ep splits, whose gradients cp and sequence parallelism split, too
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  t: {shape: [sequence, 8], init: normal(0.3), ep: shard(0)}
  w: {shape: [8, 8], init: normal(0.3), tp: shard(0)}
  v: {shape: [8, 8], init: normal(0.3), tp: shard(1)}' '- x: add(embedding(tokens, p1), t)
- x: add(add(x, linear(relu(linear(x, w)), v)), t)
- logits: linear(x, p1)
- loss: cross_entropy(logits, targets)'
equal 'mesh={axes: [dp, ep, cp], shape: [2, 2, 2]}'
equal 'mesh={axes: [ep, cp, tp], shape: [4, 2, 2]}' device_config.enable_sp=true
equal 'mesh={axes: [ep, tp], shape: [2, 2]}' device_config.enable_sp=true zero.stage=2 pipeline.microbatches=2

# rows that checkpoints leave out are not trained
graph '  p1: {shape: [vocab_padded, 8], init: normal(0.3), valid0: vocab_size}
  b: {shape: [vocab_padded], init: normal(0.3), valid0: vocab_size}' '- x: embedding(tokens, p1)
- y: gelu(linear(x, p1, b))
- loss: cross_entropy(slice(y, dim=2, begin=0, end=vocab_size), targets)'
sed -i '1i sizes: {vocab_size: {default: 258, min: 0}}' graph.yaml
recipe=(numerics.units.tp=8)
equal 'mesh={axes: [tp], shape: [2]}'
sed -i 's/loss: .*/loss: cross_entropy(y, targets, valid=vocab_size)/' graph.yaml
equal 'mesh={axes: [tp], shape: [4]}'
sed -i 's/loss: .*/loss: cross_entropy(y, targets)/' graph.yaml
refused "cross_entropy would train rows of 'p1' that are padding: 258 of its 264 are real"
sed -i 's/loss: .*/loss: cross_entropy(linear(softmax(y), transpose(p1, dim0=0, dim1=1)), targets)/' graph.yaml
refused "softmax would train rows of 'p1' that are padding"

end_of equality.own_weights
