#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recipe of the last line: what changes bits changes it, where the work is done does not; and a graph file is part of
# it, so that a run does not resume with another graph behind the same name.
# usage: test_recipe.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > graph.yaml <<'GRAPH'
name: own
sizes: {width: 16, scale: 1.0}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [256, width], init: normal(0.02)}
  w1: {shape: [width, width], init: normal(0.02), tp: shard(0)}
  w2: {shape: [256, width], init: normal(0.02)}
graph:
- x: embedding(tokens, wte)
- h: scale(relu(linear(x, w1)), factor=scale)
- logits: linear(h, w2)
- loss: cross_entropy(logits, targets)
outputs: [loss, logits]
GRAPH
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: own, graph: graph.yaml, scale: 0.5}
numerics: {threads: 1, units: {batch: 2, tp: 2}}
RUN
run() {
  ends 0 --config run.yaml "$@"
  recipe=$(grep -o 'recipe [0-9a-f]\{32\}$' "$said") || complain "there is no recipe"
}
same() {
  run "$@"
  [ "$recipe" = "$first" ] || complain "another recipe: $*"
}
other() {
  run "$@"
  [ "$recipe" != "$first" ] || complain "the same recipe: $*"
}
run --out run
first=$recipe
same --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
same --set numerics.threads=2
same --set 'collectives={transport: mpi, all_reduce: tree, timeout_s: 9}'
same --set transformer_config.scale=0.50
other --set transformer_config.scale=0.25
other --set training_config.seed=2
other --set numerics.units.batch=4
cp graph.yaml kept.yaml

# Weights of a checkpoint are another beginning, also for the run that resumes, which does not name them.
other --set training_config.model_path=run --out tuned
tuned=$recipe
other --set training_config.model_path=tuned
[ "$recipe" != "$tuned" ] || complain "the same recipe with other weights"
run --out tuned --resume --set training_config.max_steps=3
[ "$recipe" = "$tuned" ] || complain "another recipe after a resume"

edit() {
  sed "$1" kept.yaml > graph.yaml
  "${@:2}"
}
edit 's/^graph:/# a comment\n\ngraph:/' same
edit 's/relu(/gelu(/' other
edit 's/width: 16/width: 32/' other
edit '0,/normal(0.02)/s//normal(0.04)/' other
edit 's/, tp: shard(0)//' other
ends 2 --config run.yaml --out run --resume --set training_config.max_steps=3
says "error: 'graph_source' is "
edit '' same --out again
ends 0 --config run.yaml --out run --resume --set training_config.max_steps=3

# Nor is its checkpoint evaluated or continued with another graph, unless the user's configuration asks for it.
uses() {
  case $1 in
  evaluate) ends "$2" evaluate --checkpoint run --data text.txt "${@:3}" ;;
  generate) ends "$2" generate --checkpoint run --prompt a --max-new-tokens 2 --temperature 0 "${@:3}" ;;
  esac
}
for command in evaluate generate; do
  edit '' uses $command 0
  edit 's/^graph:/# a comment\n\ngraph:/' uses $command 0
  edit 's/relu(/gelu(/' uses $command 2
  grep -q "^run/checkpoints/step-00000003/config.yaml:[0-9]*:[0-9]*: error: 'graph.yaml' is not the graph that 'run/checkpoints/step-00000003' was trained with" "$said" ||
    complain "$command does not say where"
  says "= restore the file, or use the weights with the graph of a configuration that --config names"
  uses $command 0 --config run.yaml
  says "note: 'graph.yaml' is not the graph that 'run/checkpoints/step-00000003' was trained with"
  rm graph.yaml
  uses $command 2
  says "error: cannot find 'graph.yaml'"
done
# A graph in the configuration itself is in the checkpoint.
{ sed '/^transformer_config/d' run.yaml; sed '/^name:/d; s/width/16/g; /^sizes:/d; s/factor=scale/factor=0.5/' kept.yaml; } > whole.yaml
ends 0 --config whole.yaml --out whole --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
ends 0 evaluate --checkpoint whole --data text.txt

# A run that has changed its instruction-set level stays another one than a run at one level, and the checkpoint says so.
cp kept.yaml graph.yaml
mapfile -t levels < <("$program" kernels | sed -n '/^levels:/,/^[^ l]/{/not on this machine/d; s/^  \([^ ]*\).*/\1/p}')
at() { # LEVEL STEPS WORDS...
  run --set numerics.isa="$1" --set training_config.max_steps="$2" "${@:3}"
}
if [ ${#levels[@]} -ge 2 ]; then
  low=${levels[0]} high=${levels[1]}
  at "$low" 4 --out low
  pure_low=$recipe
  at "$high" 2 --out turned
  pure_high=$recipe
  ! grep -q "warning" "$said" || complain "a warning without a reason"
  at "$low" 3 --out turned --resume
  says "warning: from step 2 on the bits are those of $low, not of $high"
  turned=$recipe
  [ "$turned" != "$pure_low" ] && [ "$turned" != "$pure_high" ] || complain "a mixed run has the recipe of a pure one"
  at "$low" 4 --out turned --resume
  says "warning: 'turned/checkpoints/step-00000003' has the bits of $high to step 2: no run at $low has them"
  [ "$recipe" = "$turned" ] || complain "another recipe without another level"
  ends 2 --config run.yaml --strict --set numerics.isa="$low" --set training_config.max_steps=5 --out turned --resume
  says "error: 'turned/checkpoints/step-00000004' has the bits of $high to step 2: no run at $low has them"
  at "$high" 5 --out turned --resume
  says "warning: from step 4 on the bits are those of $high, not of $low"
  [ "$recipe" != "$turned" ] && [ "$recipe" != "$pure_high" ] || complain "two changes are the recipe of one or of none"
  run --out turned --resume --set training_config.max_steps=6
  says "warning: 'turned/checkpoints/step-00000005' has the bits of $high to step 2, $low to step 4: no run at $high has them"
  ends 0 checkpoint show turned
  says "$high to step 2, $low to step 4"
fi

end_of train.recipe 29
