#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Weights quantised as they are loaded (--weights): losses near the model's own, one text on every mesh, with any batch,
# cache and number of threads, less memory; what cannot be quantised is refused.
# usage: test_weights.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > model.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 32, max_steps: 60,
  eval_every: 0, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 128, intermediate_dim: 256, num_blocks: 2,
  num_heads: 4, num_groups: 2, max_sequence_length: 64}
numerics: {threads: 1, units: {tp: 2}}
RUN
ends 0 --config model.yaml --quiet --out model

# ---- the loss of a trained model ----
loss_of() { sed -n 's/^loss: //p' "$said"; }
ends 0 evaluate --checkpoint model --data text.txt --quiet
own=$(loss_of)
near() { # NAME BOUND: the loss and the model's own differ, by less than a part of it
  checks=$((checks + 1))
  awk -v a="$own" -v b="$(loss_of)" -v most="$2" 'BEGIN { d = (a > b ? a - b : b - a) / a; exit !(b > 0 && d < most) }' ||
    complain "$1: a loss of $(loss_of), and $own unquantised"
}
ends 0 evaluate --checkpoint model --data text.txt --quiet --weights int8
near int8 0.005
int8=$(loss_of)
ends 0 evaluate --checkpoint model --data text.txt --quiet --weights nf4
near nf4 0.1
checks=$((checks + 1))
[ "$(loss_of)" != "$own" ] && [ "$(loss_of)" != "$int8" ] || complain 'nf4 quantises nothing'
ends 0 evaluate --checkpoint model --data text.txt --quiet --weights int8 --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
checks=$((checks + 1))
[ "$(loss_of)" = "$int8" ] || complain "a loss of $(loss_of) on a mesh, and $int8 on one rank"

# ---- texts ----
prompts=(--prompt 'a' --prompt 'the model' --prompt 'int x = ' --prompt 'for' --prompt 'of a long prompt, which')
texts() { # NAME OPTION…
  ends 0 generate --checkpoint model "${prompts[@]}" --max-new-tokens 24 --temperature 0.8 --seed 3 --quiet "${@:2}"
  cp "$said" "$1.txt"
}
same() {
  checks=$((checks + 1))
  [ -s "$1.txt" ] && cmp -s "$1.txt" "$2.txt" || complain "the texts of $1 and $2 differ"
}
texts plain
for type in int8 nf4; do
  texts "$type" --weights "$type"
  checks=$((checks + 1))
  ! cmp -s plain.txt "$type.txt" || complain "$type: the texts are those of the unquantised model"
  texts "$type.batch" --weights "$type" --max-batch 2
  texts "$type.pages" --weights "$type" --max-batch 3 --cache-pages 4
  texts "$type.threads" --weights "$type" --set numerics.threads=3
  texts "$type.tp" --weights "$type" --set 'mesh={axes: [tp], shape: [2]}'
  texts "$type.pp" --weights "$type" --set 'mesh={axes: [pp, dp], shape: [2, 2]}'
  texts "$type.cp" --weights "$type" --set 'mesh={axes: [cp], shape: [2]}'
  for name in batch pages threads tp pp cp; do same "$type" "$type.$name"; done
done

# ---- memory: of 4 bytes an element, 8.5 and 4.13 bits in the linear layers ----
parameters() {
  ends 0 generate --checkpoint model --prompt a --max-new-tokens 1 --quiet --dump memory "$@"
  sed -n 's/^ *parameters *\([0-9,]*\)$/\1/p' "$said" | head -n1 | tr -d ,
}
linear=$((2 * (128 * 128 * 2 + 128 * 64 * 2 + 3 * 128 * 256)))
whole=$(parameters) eight=$(parameters --weights int8) four=$(parameters --weights nf4)
checks=$((checks + 2))
[ $((whole - eight)) -eq $((linear * 4 - linear * 17 / 16)) ] || complain "int8: parameters of $eight bytes, not $whole"
[ $((whole - four)) -gt $((linear * 4 - linear * 17 / 32)) ] || complain "nf4: parameters of $four bytes, not $whole"

# ---- refused ----
ends 2 generate --checkpoint model --prompt a --weights int4
says "--weights: 'int4' is neither 'int8' nor 'nf4'"
ends 2 generate --checkpoint model --prompt a --cache-pages 0
sed 's/embedding_dim: 128/embedding_dim: 96/; s/max_steps: 60/max_steps: 1/' model.yaml > narrow.yaml
ends 0 --config narrow.yaml --quiet --out narrow
ends 2 evaluate --checkpoint narrow --data text.txt --weights int8
says 'cannot be quantised to INT8, whose blocks are 64 elements of a row'
ends 2 generate --checkpoint model --prompt 'a long prompt' --max-new-tokens 40 --cache-pages 2
says 'a cache of 2 pages has no room for one text of 53 tokens, which needs 4 pages of 16'
end_of train.weights 45
