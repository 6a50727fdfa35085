#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The graph that evaluates or generates has the training's parameters, where that has them.
# usage: test_own_evaluation.sh PROGRAM
set -euo pipefail
. tests/equality/own_graphs.sh "$1"

# evaluates WORDS: the same losses as on one rank
evaluation() {
  local args=() set
  for set in "${recipe[@]}" training_config.eval_every=1 "$@"; do args+=(--set "$set"); done
  "$program" --config run.yaml "${args[@]}" > out 2>&1 || { grep -m 1 error out; return; }
  sed -n 's/.*Validation loss = //p' out
}
evaluates() {
  runs=$((runs + 1))
  local want got
  want=$(evaluation)
  got=$(evaluation "$@")
  [ "$(wc -l <<< "$want")" = 2 ] && [ "$got" = "$want" ] && return
  echo "$*: evaluations $got, on one rank $want"
  failed=$((failed + 1))
}
recipe=()
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  u: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [260, 8], init: normal(0.6), tp: shard(0)}' '- x: embedding(tokens, p1)
- v: dropout(w, p=0.25)
- logits: linear(x, add(u, v))
- loss: cross_entropy(logits, targets)'
evaluates 'mesh={axes: [tp], shape: [2]}'
evaluates 'mesh={axes: [dp], shape: [2]}' zero.stage=3
evaluates 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[logits]'
equal 'mesh={axes: [dp, tp], shape: [2, 2]}' pipeline.microbatches=2
equal 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[logits]' pipeline.microbatches=4
# what only the loss needs
graph '  p1: {shape: [260, 8], init: normal(0.3)}
  w: {shape: [8, 8], init: normal(0.3)}
  h: {shape: [260, 8], init: normal(0.3)}' '- x: embedding(tokens, p1)
- aux: linear(linear(x, w), h)
- logits: linear(x, h)
- loss: cross_entropy(add(aux, logits), targets)'
sed -i 's/outputs: .*/outputs: {loss: loss, logits: logits}/' graph.yaml
recipe=(training_config.sample_tokens=3)
equal 'mesh={axes: [dp], shape: [2]}'
evaluates 'mesh={axes: [pp], shape: [2]}' 'pipeline.stages=[logits]'

recipe=()
# Numbers that depend on how many samples are evaluated, of which dp has more; and on the rows that are generated.
graph '  p0: {shape: [256, 4], init: normal(0.6)}' '- x: embedding(tokens, p0)
- y: "scale(x, factor=2 * batch)"
- logits: linear(y, p0)
- loss: cross_entropy(logits, targets)'
sed -i 's/outputs: .*/outputs: {loss: loss, logits: logits}/' graph.yaml
for size in 1 3; do
  sed -i "s/eval_every: 0/validation_batch_size: 1/; s/validation_batch_size: [0-9]/validation_batch_size: $size/" run.yaml
  for set in 'mesh={axes: [dp], shape: [2]}' 'mesh={axes: [dp], shape: [4]}' 'mesh={axes: [tp], shape: [2]}'; do
    evaluates "$set"
  done
done
"$program" --config run.yaml --out trained > /dev/null
generation() { "$program" generate --checkpoint trained --prompt word --max-new-tokens 4 --seed 1 --set "$1" 2> /dev/null || true; }
generates() { # WORDS: the text that is wanted
  local got
  runs=$((runs + 1))
  got=$(generation "$1")
  [ -n "$want" ] && [ "$got" = "$want" ] && return
  echo "$1: generates $got, not $want"
  failed=$((failed + 1))
}
want=$(generation 'mesh={axes: [dp], shape: [1]}')
for set in 'mesh={axes: [dp], shape: [2]}' 'mesh={axes: [dp], shape: [4]}'; do generates "$set"; done

# Moves over cp that a file writes out: with a cache new tokens are whole there.
recipe=(numerics.units.sequence=4 training_config.batch_size=4)
written() { # STATEMENTS: the same model with moves, and without
  graph '  p0: {shape: [256, 4], init: normal(0.6)}
  w: {shape: [4, 4], init: normal(0.6), cp: shard(0)}
  q: {shape: [4, 4], init: normal(0.6)}' "- x: embedding(tokens, p0)
$1
- a: attention(r, r, r, head_dim=4)
- logits: linear(add(r, a), p0)
- loss: cross_entropy(logits, targets)"
  sed -i 's/outputs: .*/outputs: {loss: loss, logits: logits}/' graph.yaml
  rm -rf trained
  "$program" --config run.yaml --out trained > out 2>&1 || cat out
}
written '- r: linear(relu(linear(x, w)), q)'
want=$(generation 'mesh={axes: [cp], shape: [1]}')
for moved in '- r: linear(relu(linear(x, all_gather(w, axis=cp, dim=0))), q)' \
  '- r: linear(relu(linear(scatter(all_gather(x, axis=cp, dim=1), axis=cp, dim=1), w)), q)' \
  '- h: all_to_all(relu(linear(x, w)), axis=cp, from=1, dim=2)
- r: linear(all_to_all(h, axis=cp, from=2, dim=1), q)'; do
  written "$moved"
  for set in 'mesh={axes: [cp], shape: [1]}' 'mesh={axes: [cp], shape: [2]}' 'mesh={axes: [cp, dp], shape: [4, 2]}'; do
    generates "$set"
  done
done

# Parameters that evaluation or generation has otherwise than training.
other_params() { # PARAMETERS STATEMENTS WHAT
  graph "  p0: {shape: [256, 4], init: normal(1)}
$1" "- h: embedding(tokens, p0)
$2
- logits: linear(x, p0)
- loss: cross_entropy(logits, targets)"
  sed -i 's/eval_every: 0/eval_every: 1, validation_batch_size: 2/' run.yaml
  refused "$3"
  refused "$3" 'mesh={axes: [tp], shape: [2]}'
}
other_params '  p1: {shape: [4], init: normal(1), if: training == 0}' '- if: training == 0
  graph: [x: "mul(h, p1)"]
  else: [x: tanh(h)]' "training has no parameter 'p1'"
other_params '  p1: {shape: [batch * 4], init: normal(1)}' '- x: "mul(h, slice(p1, dim=0, begin=0, end=4))"' \
  "parameter 'p1' has another shape or placement in training"
other_params '  p1: {shape: [4, 4], init: normal(1), tp: shard(0) if training else replicate}' '- x: linear(h, p1)' \
  "parameter 'p1' has another shape or placement in training"

end_of equality.own_evaluation
