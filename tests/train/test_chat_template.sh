#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `generate --chat` with the templates that models come with: known ones render as the tokenizer's special tokens say,
# others are refused.
# usage: test_chat_template.sh PROGRAM
set -uo pipefail
tokenizers=$(realpath tests/data/bpe)
. tests/commands.sh "$1"

write_text text.txt
train() { # FOLDER TOKENIZER
  cat > run.yaml <<RUN
training_config: {data_path: text.txt, tokenizer_type: bpe, tokenizer_path: $tokenizers/$2, batch_size: 4,
  sequence_length: 8, max_steps: 1, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: gpt2, vocab_size: 4096, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 64}
numerics: {threads: 1}
RUN
  ends 0 --config run.yaml --out "$1" --quiet
}
train ml qwen.json
train plain gpt2.json
folder=ml/checkpoints/step-00000001
echo '[{"role": "user", "content": "Which words?"}]' > short.json
echo '[{"role": "system", "content": "Be short."}, {"role": "user", "content": "Which words?"}]' > long.json
chat() { ends "$1" generate --checkpoint ml --chat "$2" --max-new-tokens 3 --temperature 0; }

turns="{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
prompt="{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
smol="{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}${turns#*'%}'}$prompt"
json() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

chat 0 short.json # without a template
cp "$said" want
printf '%s\n' "$turns$prompt" > $folder/chat_template.jinja
chat 0 short.json
[ "$(grep -v prompt: "$said")" = "$(grep -v prompt: want)" ] || complain "another text than without the template"
chat 0 long.json
rm $folder/chat_template.jinja
echo "{\"chat_template\": $(json "$turns $prompt")}" > $folder/tokenizer_config.json
chat 0 short.json
echo "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": $(json "$turns$prompt")}]}" \
  > $folder/tokenizer_config.json
chat 0 short.json
echo "{\"chat_template\": $(json "$smol")}" > $folder/tokenizer_config.json
chat 0 long.json
chat 2 short.json
says "tokenizer_config.json' has a system message of its own: the conversation must begin with one"
echo '{"tokenizer_class": "PreTrainedTokenizerFast"}' > $folder/tokenizer_config.json
chat 0 short.json
for text in '"{{ messages }}"' '[{"name": "tool_use", "template": "x"}]' "$(json "$turns")"; do
  echo "{\"chat_template\": $text}" > $folder/tokenizer_config.json
  chat 2 short.json
  says "tokenizer_config.json' holds a chat template that this program does not know"
done
echo "$turns$prompt" > $folder/chat_template.jinja # stands above the other file
chat 0 short.json
echo "{% raw %}" > $folder/chat_template.jinja
chat 2 short.json
says "chat_template.jinja' holds a chat template that this program does not know"
rm $folder/chat_template.jinja
echo '{"chat_template": ' > $folder/tokenizer_config.json
chat 2 short.json
says "tokenizer_config.json:"
ends 2 generate --checkpoint plain --chat short.json
says "the tokenizer has no special tokens for a chat"

end_of train.chat_template 17
