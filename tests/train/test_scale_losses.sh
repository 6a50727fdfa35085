#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fp16: scales that are powers of two times each other give the same weights unless a scaled number under- or
# overflows. The run counts those.
# usage: test_scale_losses.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }
# The sum over the steps of "underflows" or "overflows".
count() { sed -n 's/.*"event":"step".*"'"$1"'":\([0-9]*\).*/\1/p' metrics | awk '{ sum += $1 } END { print NR ? sum + 0 : "none" }'; }
# trains SCALE WORDS...: hash, underflows, overflows
trains() {
  rm -f metrics
  ends 0 --config run.yaml --metrics metrics --set "training_config.loss_scale={mode: static, init: $1}" "${@:2}"
  weights=$(hash_of) under=$(count underflows) over=$(count overflows)
}

# weights of 0 and 1, so that the gradient of h is -y / 2 times the scale; multiples of 2^-24 are f16's least numbers
cat > one.yaml <<'GRAPH'
inputs:
  features: {shape: [batch, 1], dtype: f32}
  values: {shape: [batch, 1], dtype: f32}
parameters:
  w: {shape: [1, 1], init: zeros}
  v: {shape: [1, 1], init: ones}
graph:
  - h: linear(features, w)
  - z: linear(h, v)
  - loss: mse(z, values)
outputs: [loss]
GRAPH
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: table.csv, batch_size: 4, max_steps: 1, eval_every: 0, precision: fp16,
  optimizer: {type: SGD, lr: 0.1}}
mlp_config: {graph: one.yaml}
numerics: {threads: 1}
RUN
counts() { # SCALE UNDERFLOWS OVERFLOWS, of a table with the steps of 2^-24 in $values
  awk -v values="$values" 'BEGIN { n = split(values, y, " "); for (i = 1; i <= n; i++) printf "1,%.12g\n", y[i] / 2 ^ 24 }' > table.csv
  trains "$1"
  [ "$under $over" = "$2 $3" ] || complain "scale $1, values $values: $under under- and $over overflows, not $2 and $3"
}
values="167 168 169 170"
counts 1 2 0 # 83.5 and 84.5 steps
counts 2 0 0
values="1 3 5 1023"
counts 1 4 0
counts 2 0 0
values="0 16777216 33554432 4" # 0, 1, 2
counts 1 0 0
counts 65536 0 1 # 2^15, 2^16
counts 131072 0 2

# a small net: no scale loses anything, on any mesh
cat > net.yaml <<'GRAPH'
inputs:
  features: {shape: [batch, 4], dtype: f32}
  values: {shape: [batch, 1], dtype: f32}
parameters:
  w: {shape: [8, 4], init: normal(0.5), tp: shard(0)}
  v: {shape: [1, 8], init: normal(0.5), tp: shard(1)}
graph:
  - h: tanh(linear(features, w))
  - z: linear(h, v)
  - loss: mse(z, values)
outputs: [loss]
GRAPH
awk 'BEGIN { for (i = 0; i < 64; i++) { for (k = 0; k < 4; k++) printf "%g,", ((i * 7919 + k * 10473) % 17 - 8) / 4; print ((i * 3571) % 17 - 8) / 2 } }' > table.csv
sed -i 's/one.yaml/net.yaml/; s/batch_size: 4/batch_size: 8/; s/max_steps: 1/max_steps: 3/' run.yaml
sed -i 's/numerics: .*/numerics: {threads: 1, units: {batch: 8, tp: 2}}/' run.yaml
trains 64
first=$weights
for scale in 64 128 1024 4096; do
  for mesh in '{axes: [dp], shape: [1]}' '{axes: [dp], shape: [4]}' '{axes: [dp, tp], shape: [2, 2]}'; do
    trains $scale --set mesh="$mesh" --set zero.stage=0
    [ "$under $over" = "0 0" ] || complain "scale $scale on $mesh: $under under- and $over overflows"
    [ "$weights" = "$first" ] || complain "scale $scale on $mesh: other weights"
    ! grep -q "fp16: " "$said" || complain "scale $scale on $mesh: a word of losses"
  done
done

# a model of text: small scales lose numbers, and with them bits
write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2, eval_every: 0,
  sample_tokens: 0, precision: fp16, optimizer: {type: SGD, lr: 0.1}}
transformer_config: {model_type: gpt2, embedding_dim: 16, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1}
RUN
trains 1
few=$under first=$weights
trains 4096
[ "$few" -gt "$under" ] && [ "$under" -gt 0 ] || complain "underflows: $few with scale 1, $under with 4096"
[ "$weights" != "$first" ] || complain "the same weights"
says "fp16: $under scaled numbers under- or overflowed: another loss scale changes the bits"
trains 4096 --set training_config.precision=bf16
[ "$under" = none ] || complain "bf16: $under underflows"

end_of train.scale_losses 20
