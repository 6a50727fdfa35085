#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `generate --chat` with the templates that models come with, and without one.
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

# A template renders the same tokens as the built-in one, or others.
same_as() { [ "$(grep -v prompt: "$said")" = "$(grep -v prompt: "$1")" ]; }

chat 0 short.json # without a template
cp "$said" want
printf '%s\n' "$turns$prompt" > $folder/chat_template.jinja
chat 0 short.json
same_as want || complain "another text than without the template"
chat 0 long.json
rm $folder/chat_template.jinja
echo "{\"chat_template\": $(json "$turns $prompt")}" > $folder/tokenizer_config.json
chat 0 short.json
echo "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": $(json "$turns$prompt")}]}" \
  > $folder/tokenizer_config.json
chat 0 short.json
same_as want || complain "another text than without the template"
# SmolLM2's own system message
echo "{\"chat_template\": $(json "$smol")}" > $folder/tokenizer_config.json
chat 0 short.json
cp "$said" want
echo '[{"role": "system", "content": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}, {"role": "user", "content": "Which words?"}]' > smol.json
chat 0 smol.json
same_as want || complain "the template's system message is another"
echo '{"tokenizer_class": "PreTrainedTokenizerFast"}' > $folder/tokenizer_config.json
chat 0 short.json
# tools choose a template; bos_token and further variables reach it
echo "{\"bos_token\": \"<|im_start|>\", \"chat_template\": [{\"name\": \"tool_use\", \"template\": \"{{ bos_token }}{{ tools[0].name }}{{ x }}\"}]}" > $folder/tokenizer_config.json
chat 2 short.json
says "error: the model has a chat template for conversations with tools only"
echo '{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}], "chat_template_kwargs": {"x": 1}}' > tools.json
chat 0 tools.json
# what a template refuses, and what is no template
echo "{{ raise_exception('Say more') }}" > $folder/chat_template.jinja # stands above the other file
chat 2 short.json
says "ml/checkpoints/step-00000001/chat_template.jinja:1:4: error: the template raises an exception: Say more"
echo "{% raw %}" > $folder/chat_template.jinja
chat 2 short.json
says "chat_template.jinja:1:1: error: this 'raw' has no 'endraw'"
rm $folder/chat_template.jinja
echo '{"chat_template": "{{ messages[0].content + 1 }}"}' > $folder/tokenizer_config.json
chat 2 short.json
says "tokenizer_config.json (chat_template):1:24: error: '+' is not defined for a string and an integer"
echo '{"chat_template": ' > $folder/tokenizer_config.json
chat 2 short.json
says "tokenizer_config.json:"
rm $folder/tokenizer_config.json
# conversations
echo '[{"role": "user"}, {"content": "x"}]' > wrong.json
chat 2 wrong.json
says "wrong.json:1:1: error: messages, message 1: 'content' is missing"
says "wrong.json:1:1: error: messages, message 2: 'role' is missing"
echo '[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]' > wrong.json
chat 2 wrong.json
says "the last message is the assistant's: there is nothing to answer"
ends 2 generate --checkpoint plain --chat short.json
says "the model has no chat template, and its tokenizer has no special tokens of a format that is known"

end_of train.chat_template 19
