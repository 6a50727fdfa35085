#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Texts of a graph file of the user's own that has no size called vocab_size: its logits have as many numbers as its
# classifier has rows.
# usage: test_own_vocabulary.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > graph.yaml <<'GRAPH'
name: own
sizes: {width: 16}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [256, width], init: normal(0.02)}
  wq: {shape: [width, width], init: normal(0.02)}
  wk: {shape: [width, width], init: normal(0.02)}
  wv: {shape: [width, width], init: normal(0.02)}
  classifier: {shape: [256, width], init: normal(0.02)}
graph:
- x: embedding(tokens, wte)
- q: linear(x, wq)
- k: linear(x, wk)
- v: linear(x, wv)
- h: attention(q, k, v, head_dim=8)
- logits: linear(h, classifier)
- loss: cross_entropy(logits, targets)
outputs: [loss, logits]
GRAPH
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 2, sample_tokens: 4}
transformer_config: {model_type: own, graph: graph.yaml}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out run
ends 0 generate --checkpoint run --prompt a --max-new-tokens 3 --temperature 0
printf '{"question": "1", "choices": ["2", "30"], "answer": 0}\n' > set.jsonl
ends 0 evaluate --checkpoint run --eval-set set.jsonl
says "acc_norm"

# A server has a program that scores many tokens at once.
checks=$((checks + 1))
"$program" serve --checkpoint run --port 0 > "$said" 2>&1 < /dev/null &
server=$!
for _ in $(seq 600); do
  grep -q "^listening on " "$said" && break
  kill -0 $server 2> /dev/null || break
  sleep 0.1
done
says "listening on "
kill $server 2> /dev/null
wait $server
end_of "own vocabulary" 4
