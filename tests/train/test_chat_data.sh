#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs on conversations: the same bits on any mesh, with any microbatches and after a resume; what a checkpoint keeps of
# the template; what is refused.
# usage: test_chat_data.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/qwen.json)
. tests/commands.sh "$1"

# write_chat FILE FIRST LAST: sums, in one to three turns
write_chat() {
  local i k line
  for i in $(seq "$2" "$3"); do
    line=
    for k in $(seq $((i % 3 + 1))); do
      line+=", {\"role\": \"user\", \"content\": \"What is $((i * 7 % 50)) plus $k?\"}"
      line+=", {\"role\": \"assistant\", \"content\": \"It is $((i * 7 % 50 + k)).\"}"
    done
    echo "{\"messages\": [${line:2}]}"
  done > "$1"
}
write_chat chat.jsonl 1 40
write_chat more.jsonl 41 60
cp "$tokenizer" tokenizer.json
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: chat.jsonl, tokenizer_type: bpe, tokenizer_path: tokenizer.json, batch_size: 4,
  sequence_length: 96, max_steps: 8, num_epochs: 9, eval_every: 4, validation_batch_size: 4, sample_tokens: 0,
  optimizer: {type: AdamW, lr: 0.01}}
data: {format: chat}
transformer_config: {model_type: llama, vocab_size: 0, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 96}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 2}}
RUN
result() { sed -n 's/.*Validation loss/loss/p; s/.*weights \(sha256 [0-9a-f]*\),.*/\1/p' "$said"; }
# is_same WHAT: as the run of one rank
is_same() { [ "$(result)" = "$want" ] || complain "$1: other numbers than $want"; }

ends 0 --config run.yaml --out one
want=$(result)
[ "$(wc -l <<< "$want")" = 3 ] || complain "no losses and hash"
for mesh in '{axes: [dp, tp], shape: [2, 2]}' '{axes: [pp, dp], shape: [2, 2]}' '{axes: [cp, tp], shape: [2, 2]}'; do
  ends 0 --config run.yaml --set mesh="$mesh"
  is_same "$mesh"
done
ends 0 --config run.yaml --set numerics.threads=2
is_same "2 threads"
ends 0 --config run.yaml --set training_config.batch_size=2 --set training_config.gradient_accumulation_steps=2 \
  --set training_config.validation_batch_size=4
is_same "2 microbatches"
ends 0 --config run.yaml --set mesh='{axes: [dp], shape: [2]}' --set zero.stage=3
is_same "ZeRO"
ends 0 --config run.yaml --out half --set training_config.max_steps=4 --quiet
ends 0 --config run.yaml --out half --resume
[ "$(result | tail -1)" = "$(tail -1 <<< "$want")" ] || complain "resumed: other weights"

# other data, and what makes other data of the same lines
ends 0 --config run.yaml --out half --overwrite --set training_config.max_steps=4 --quiet
for key in data.train_on=all data.packing=none training_config.data_path=more.jsonl; do
  ends 2 --config run.yaml --out half --resume --set $key
  says "data"
done

# An evaluation weighs its ten batches by their targets: of ten conversations it is the loss of all of them.
write_chat ten.jsonl 41 50
ends 0 --config run.yaml --out ten --set data.packing=none --set training_config.validation_path=ten.jsonl \
  --set training_config.validation_batch_size=1
trained=$(sed -n 's/.*"event":"eval","step":8,.*"loss":\([0-9.]*\).*/\1/p' ten/metrics.jsonl)
ends 0 evaluate --checkpoint ten --data ten.jsonl --set data.packing=none
checks=$((checks + 1))
awk -v a="$trained" -v b="$(sed -n 's/^loss: //p' "$said")" 'BEGIN { exit !(a > 0 && a - b < 1e-5 && b - a < 1e-5) }' ||
  complain "the loss of an evaluation is $trained"

# the evaluation of a file, and of a part
ends 0 --config run.yaml --set training_config.validation_path=more.jsonl
[ "$(result | tail -1)" != "$(tail -1 <<< "$want")" ] || complain "all of the lines train as nine tenths of them do"
ends 0 evaluate --checkpoint one --data more.jsonl
says "data: more.jsonl, "
whole=$(sed -n 's/^loss: //p' "$said")
ends 0 evaluate --checkpoint one --data more.jsonl --set data.packing=none
# packs hold the same documents, so but for rounding their mean loss is the same
awk -v a="$whole" -v b="$(sed -n 's/^loss: //p' "$said")" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10) }' ||
  complain "in packs the loss is $whole"

ends 0 evaluate --checkpoint one --data more.jsonl --set data.too_long=drop --set training_config.sequence_length=36
says " of 20 conversations are dropped as longer than 36 tokens"

# several sources, in shares
sed 's/data_path: chat.jsonl/data_sources: [{path: chat.jsonl, weight: 3}, {path: more.jsonl, weight: 1}]/' run.yaml > mix.yaml
ends 0 --config mix.yaml
mixed=$(result)
ends 0 --config mix.yaml --set mesh='{axes: [dp], shape: [4]}'
[ "$(result)" = "$mixed" ] || complain "mixed sources: other numbers on 4 ranks"

# the template of a checkpoint is the one that it was trained with
cat > own.jinja <<'JINJA'
{% for m in messages %}{{ '<|im_start|>' + m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}
{% else %}{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}
JINJA
ends 0 --config run.yaml --set data.template=own.jinja --out own
ours=$(result)
[ "$ours" != "$want" ] || complain "another template makes the same data"
cmp -s own.jinja own/checkpoints/step-00000008/chat_template.jinja || complain "the checkpoint has another template"
mv own.jinja elsewhere.jinja
ends 0 evaluate --checkpoint own --set training_config.validation_batch_size=4
says "data: chat.jsonl, "
echo '[{"role": "user", "content": "What is 1 plus 1?"}]' > ask.json
ends 0 generate --checkpoint own --chat ask.json --max-new-tokens 4 --temperature 0
ends 0 export own/checkpoints/step-00000008 --out exported
cmp -s elsewhere.jinja exported/chat_template.jinja || complain "the export has another template"
# beside the tokenizer it needs no key
mkdir folder && cp tokenizer.json folder && cp elsewhere.jinja folder/chat_template.jinja
ends 0 --config run.yaml --set training_config.tokenizer_path=folder/tokenizer.json --out beside
[ "$(result)" = "$ours" ] || complain "the template beside the tokenizer: other numbers than $ours"
cmp -s elsewhere.jinja beside/checkpoints/step-00000008/chat_template.jinja || complain "no template in the checkpoint"
! grep -q additional_chat "$said" || complain "a warning of templates that are not there"
mkdir folder/additional_chat_templates
ends 0 --config run.yaml --set training_config.tokenizer_path=folder/tokenizer.json --out beside --overwrite
says "warning: 'folder/additional_chat_templates' is not copied"

# refused
ends 2 --config run.yaml --set data.template=gone.jinja
says "gone.jinja"
ends 2 --config run.yaml --set data.too_long=drop --set training_config.sequence_length=8
says "the training part of 'chat.jsonl' has no conversation to train on"
ends 2 --config run.yaml --set training_config.documents=packed
says "'format' contradicts 'documents'"
echo 'not JSON' > bad.jsonl
ends 2 --config run.yaml --set training_config.data_path=bad.jsonl
says "bad.jsonl:1:1: error: "
ends 2 --config run.yaml --set training_config.data_path=gone.jsonl
says "gone.jsonl"

end_of train.chat_data 31
