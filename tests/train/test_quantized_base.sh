#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adapters beside weights in NF4 (QLoRA): one set of bits on every mesh, from random weights and from a checkpoint, in
# f32 and bf16, and after a resume; evaluation and generation; what cannot be quantised is refused.
# usage: test_quantized_base.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > model.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 2,
  eval_every: 0, sample_tokens: 0, optimizer: {lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 128, intermediate_dim: 384, num_blocks: 2,
  num_heads: 4, num_groups: 2, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 2}}
RUN
sed 's/max_steps: 2/max_steps: 4, model_save_interval: 2, model_path: base/' model.yaml > adapters.yaml
echo 'lora_config: {r: 4, quantize_base: nf4}' >> adapters.yaml
weights() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
same_weights() {
  checks=$((checks + 1))
  [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || complain "the weights of $1 and $2 differ"
}
ends 0 --config model.yaml --out base

ends 0 check --config adapters.yaml
says 'frozen: '
for precision in f32 bf16; do
  of="training_config.precision=$precision"
  ends 0 --config adapters.yaml --set "$of" --out "$precision"
  while read -r name mesh; do
    ends 0 --config adapters.yaml --set "$of" --set "mesh={axes: [${mesh%% *}], shape: [${mesh#* }]}" \
      --out "$precision.$name"
    same_weights "$precision" "$precision.$name"
  done <<'MESHES'
dp dp 2
tp tp 2
cp cp 2
pp pp 2
all dp,cp,tp 2,2,2
MESHES
  ends 0 --config adapters.yaml --set "$of" --set 'mesh={axes: [dp], shape: [2]}' --set zero.stage=3 --out "$precision.zero"
  same_weights "$precision" "$precision.zero"
done
ends 0 --config adapters.yaml --resume f32/checkpoints/step-00000002 --set 'mesh={axes: [tp], shape: [2]}' --out resumed
same_weights f32 resumed

# It is not what it is without quantisation.
ends 0 --config adapters.yaml --set lora_config.quantize_base=none --out plain
checks=$((checks + 1))
[ "$(weights plain)" != "$(weights f32)" ] || complain 'nothing is quantised'

# Adapters of a folder, beside quantised weights: those of the run.
ends 0 evaluate --checkpoint f32 --data text.txt --quiet
loss=$(sed -n 's/^loss: //p' "$said")
ends 0 export f32 --out peft
ends 0 evaluate --checkpoint base --adapter peft --data text.txt --set lora_config.quantize_base=nf4 --quiet
checks=$((checks + 1))
[ "$loss" = "$(sed -n 's/^loss: //p' "$said")" ] || complain "the loss beside quantised weights is not $loss"
ends 0 --config model.yaml --set training_config.model_path=base --set 'lora_config={path: peft, quantize_base: nf4}' --out from_peft
ends 0 --config model.yaml --set training_config.model_path=base --set 'lora_config={path: peft}' --out from_peft_plain
checks=$((checks + 1))
[ "$(weights from_peft)" != "$(weights from_peft_plain)" ] || complain 'quantize_base has no effect beside path'

ends 0 evaluate --checkpoint f32
says 'loss: '
ends 0 generate --checkpoint f32 --prompt 'the ' --max-new-tokens 4 --temperature 0

ends 0 check --prove --config adapters.yaml --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
says 'bits: one sha256'
says 'interpreter, step 1: loss within'

# Blocks are elements of a row, and of a unit of tp.
ends 2 check --config adapters.yaml --set transformer_config.embedding_dim=96
says "'block.0.attn.wq' cannot be quantised to NF4, whose blocks are 64 elements of a row"
says 'its rows are 96 elements'
ends 2 check --config adapters.yaml --set numerics.units.tp=4 --set transformer_config.num_groups=4
says 'its rows are 128 elements in 4 units of tp, of which each needs a multiple of 64'

end_of train.quantized_base 30
