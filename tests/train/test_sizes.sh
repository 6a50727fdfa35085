#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sizes of a model that cannot be meant are refused where the user wrote them, with the number that was written; and what
# would be ignored is refused.
# usage: test_sizes.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
# refused KEY VALUE TEXT: one error, at the value that was given
refused() {
  ends 2 check --config run.yaml --set "transformer_config.$1=$2"
  says "--set:1:"
  says "error: $3"
  [ "$(grep -c error: "$said")" = 1 ] || complain "$1=$2: not one error"
}

# ---- near limits ----
largest=9223372036854775807
for key in vocab_size embedding_dim intermediate_dim num_heads num_groups num_blocks sliding_window head_dim \
  max_sequence_length; do
  refused $key $largest "'$key' must be at most 1099511627776, not $largest"
done
for sizes in embedding_dim=1099511627776 '{model_type: gpt2, vocab_size: 256, embedding_dim: 8589934592, num_heads: 2, num_blocks: 1}'; do
  [ "${sizes%%=*}" = embedding_dim ] && sizes=transformer_config.$sizes || sizes=transformer_config=$sizes
  ends 2 check --config run.yaml --set "$sizes"
  says "error: the shape of 'block.0."
  says "has more than 10^15 elements"
  [ "$(grep -c error: "$said")" = "$(grep -c '^--set:1:.*error:' "$said")" ] || complain "$sizes: errors elsewhere"
done
for value in 1e308 1e30 $largest; do refused theta $value "'theta' must be at most 1e+15, not $value"; done
refused theta 0.5 "'theta' must be at least 1, not 0.5"
refused num_heads 1099511627776 "num_heads 1099511627776 does not divide embedding_dim 8"
refused rope_scaling '{scaling_factor: 1e300, original_context_length: 8}' \
  "'rope_scaling.scaling_factor' must be at most 1e+15, not 1e300"

# ---- a scaling of rotary positions is applied or refused ----
weights() {
  ends 0 --config run.yaml "$@"
  grep -o 'weights sha256 [0-9a-f]*' "$said"
}
plain=$(weights)
scaled=$(weights --set 'transformer_config.rope_scaling={scaling_factor: 8, original_context_length: 8}')
off=$(weights --set 'transformer_config.rope_scaling={scaling_factor: 0, original_context_length: 8}')
[ -n "$plain" ] && [ "$plain" != "$scaled" ] || complain "a scaling of 8 changes nothing"
[ "$plain" = "$off" ] || complain "a scaling of 0 is not off"
needs="needs rope_scaling.original_context_length"
refused rope_scaling '{scaling_factor: 8}' "scaling_factor 8 $needs"
refused rope_scaling '{scaling_factor: 1e-30}' "scaling_factor 1e-30 $needs"
refused rope_scaling '{scaling_factor: 8, original_context_length: 0}' "scaling_factor 8 $needs"
refused rope_scaling '{scaling_factor: -8, original_context_length: 8}' \
  "'rope_scaling.scaling_factor' must be at least 0, not -8"
refused rope_scaling '{scaling_factor: 8, original_context_length: 8, low_freq_factor: 4}' \
  "low_freq_factor 4 must be below high_freq_factor 4"
refused rope_scaling '{scaling_factor: 8, original_context_length: 8, high_freq_factor: 0.5}' \
  "low_freq_factor 1 must be below high_freq_factor 0.5"
refused rope_scaling '{scaling_factor: 8, original_context_length: 8, low_freq_factor: 0}' "low_freq_factor 0 must be above 0"
refused rope_scaling '~' "'rope_scaling' must be a map of sizes, not nothing"
refused rope_scaling 5 "'rope_scaling' must be a map of sizes, not the integer 5"
refused rope_scaling '[8]' "'rope_scaling' must be a map of sizes, not a list"
says "its sizes: scaling_factor, high_freq_factor, low_freq_factor, original_context_length"

# ---- the same in a graph by hand ----
# by_hand CALL TEXT
by_hand() {
  cat > graph.yaml <<GRAPH
training_config: {seed: 1}
tensors: {x: {shape: [2, 4, 8], dtype: f32, init: normal(1.0)}}
graph: [y: "$1"]
outputs: [y]
GRAPH
  ends "$2" --config graph.yaml
  [ "$2" = 0 ] || says "graph.yaml:3:"
  says "$3"
}
by_hand "rope(x, head_dim=4, scaling_factor=8, original_context_length=2)" 0 ""
by_hand "rope(x, head_dim=4, scaling_factor=8)" 2 "rope: scaling_factor 8 needs original_context_length"
by_hand "rope(x, head_dim=4, scaling_factor=-8)" 2 "rope: 'scaling_factor' must not be negative"
by_hand "rope(x, head_dim=4, original_context_length=-8)" 2 "rope: 'original_context_length' must not be negative"
by_hand "rope(x, head_dim=4, scaling_factor=8, original_context_length=2, low_freq_factor=4)" 2 \
  "rope: low_freq_factor 4 must be above 0 and below high_freq_factor 4"
by_hand "slice(x, dim=4294967298, begin=0, end=1)" 2 "slice: there is no dimension 4294967298"
by_hand "slice(x, dim=-4294967298, begin=0, end=1)" 2 "slice: there is no dimension -4294967298"
by_hand "slice(x, dim=3, begin=0, end=1)" 2 "of dimension 3 is not inside"

# ---- and in what is imported ----
ends 0 --config run.yaml --quiet --set training_config.checkpoint_dir=ck --set \
  'transformer_config.rope_scaling={scaling_factor: 8, original_context_length: 8}'
ends 0 export ck --out hf --quiet
ends 0 import hf --out imported --quiet
python3 - <<'PYTHON'
import json
config = json.load(open("hf/config.json"))
rope = config.get("rope_scaling") or config["rope_parameters"]
rope["low_freq_factor"], rope["high_freq_factor"] = 4.0, 4.0
json.dump(config, open("hf/config.json", "w"))
PYTHON
ends 2 import hf --out again
says "low_freq_factor 4 must be below high_freq_factor 4"
checks=$((checks + 1))
[ ! -e again ] && [ ! -e again.partial ] || complain "a refused import has left its folder"

end_of train.sizes 40
