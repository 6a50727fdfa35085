#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tt-train's fine-tuning on GSM8K: its training file, and its adapters, train on local lines of GSM8K's shape. Of the model and
# the tokenizer that it names there are small ones here.
# usage: test_gsm8k.sh PROGRAM; skipped where TESSERA_SHARED (or ../shared) has no files of tt-train
set -uo pipefail
shared=$(realpath -m "${TESSERA_SHARED:-../shared}")
tokenizer=$(realpath tests/data/bpe/gpt2.json)
[ -f "$shared/tt/configs/training_configs/training_gsm8k_tinyllama.yaml" ] || {
  echo "train.gsm8k: skipped, there are no files of tt-train"
  exit 77
}
. tests/commands.sh "$1"

mkdir -p configs/training_configs configs/model_configs data
cp "$shared/tt/configs/training_configs/training_gsm8k_tinyllama.yaml" configs/training_configs
cp "$shared/tt/configs/lora_configs/default_lora.yaml" .
cp "$tokenizer" data/tinyllama-tokenizer.json
cat > configs/model_configs/tinyllama.yaml <<'MODEL'
transformer_config: {num_heads: 4, num_groups: 2, embedding_dim: 32, dropout_prob: 0.0, num_blocks: 2, vocab_size: 3000,
  max_sequence_length: 128}
MODEL
for i in $(seq 200); do
  echo "{\"question\": \"Ann has $i apples and buys $((i % 7)) more. How many are there?\"," \
    "\"answer\": \"$i + $((i % 7)) = <<$i+$((i % 7))=$((i + i % 7))>>$((i + i % 7))\\n#### $((i + i % 7))\"}"
done > gsm8k.jsonl
sets=(--set training_config.data_path=gsm8k.jsonl --set data.format=chat
  --set training_config.gradient_accumulation_steps=8 --set training_config.sample_tokens=0 --set numerics.units.tp=2)
recipe=configs/training_configs/training_gsm8k_tinyllama.yaml

ends 0 data show --config $recipe "${sets[@]}"
says "How many are there?"
says "⟦"
says "documents  180"
ends 0 --config $recipe "${sets[@]}"
says "done: step "
whole=$(sed -n 's/.*weights \(sha256 [0-9a-f]*\),.*/\1/p' "$said")
ends 0 --config $recipe "${sets[@]}" --overwrite --set mesh='{axes: [tp], shape: [2]}'
[ "$(sed -n 's/.*weights \(sha256 [0-9a-f]*\),.*/\1/p' "$said")" = "$whole" ] || complain "other weights on 2 ranks"

# with the adapters of lora_configs/default_lora.yaml
cp -r checkpoints_gsm8k/step-* model
{ cat $recipe; cat default_lora.yaml; } > configs/training_configs/lora.yaml
ends 0 --config configs/training_configs/lora.yaml "${sets[@]}" --overwrite --set training_config.model_path=model
says "done: step "

end_of train.gsm8k 4
