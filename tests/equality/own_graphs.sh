# SPDX-License-Identifier: Apache-2.0
# Graphs of a user's own, trained on meshes: what tests/equality/test_own_*.sh share.
# usage, in bash, from the root: . tests/equality/own_graphs.sh PROGRAM
program=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failed=0 runs=0
for i in $(seq 400); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done > text.txt

# graph PARAMETERS STATEMENTS: a file over tokens and targets, and a run of it
graph() {
  cat > graph.yaml <<GRAPH
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
$1
graph:
$2
outputs: [loss]
GRAPH
  cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8,
  max_steps: 2, eval_every: 0, sample_tokens: 0, log_every: 1, optimizer: {type: SGD, lr: 0.1}}
transformer_config: {graph: graph.yaml}
numerics: {threads: 1, units: {batch: 4, sequence: 4, tp: 2}}
RUN
}

train() { # WORDS: the weights' hash, or what is said
  local args=() set
  for set in "$@"; do args+=(--set "$set"); done
  "$program" --config run.yaml "${args[@]}" > out 2>&1 || { grep -m 1 error out; return; }
  sed -n 's/.*weights sha256 \([0-9a-f]\{64\}\), recipe .*$/\1/p' out
}

# equal WORDS: as on one rank; refused TEXT WORDS; both are added to what `recipe` has
equal() {
  runs=$((runs + 1))
  local want got
  want=$(train "${recipe[@]}")
  got=$(train "${recipe[@]}" "$@")
  [[ $want =~ ^[0-9a-f]{64}$ && $got = "$want" ]] && return
  echo "$*: $got, on one rank $want"
  failed=$((failed + 1))
}
refused() {
  runs=$((runs + 1))
  local said
  said=$(train "${recipe[@]}" "${@:2}")
  [[ $said == graph.yaml:*"$1"* ]] && return
  echo "${*:2}: $said, not $1"
  failed=$((failed + 1))
}

# The last line of a test.
end_of() {
  echo "$1: $runs runs, $failed failed"
  [ "$failed" = 0 ] && [ "$runs" -gt 0 ]
}
