#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `import` takes of the files beside the weights, and what it says of those that cannot be used: tokenizers, chat
# templates, ids of special tokens.
# usage: test_import_sides.sh PROGRAM
set -uo pipefail
tokenizers=$(realpath tests/data/bpe)
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<RUN
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: $tokenizers/digits.json,
  batch_size: 4, sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out trained --quiet
ends 0 export trained --out model --quiet

# imports CODE: the folder `model` into `imported`, which is there after a 0 alone
imports() {
  rm -rf imported
  ends "$1" import model --out imported
  [ "$1" = 0 ] || [ ! -e imported ] || complain "a failed import has left its folder"
}
# tokens FOLDER: how many new ones there are, drawn greedily
tokens() {
  ends 0 generate --checkpoint "$1" --prompt "word" --max-new-tokens 9 --temperature 0
  sed -n 's/.*new: \([0-9]*\) tokens.*/\1/p' "$said"
}

imports 0
! grep -q warning "$said" || complain "a warning without a reason"
grep -q "tokenizer_path: tokenizer.json" imported/config.yaml && grep -q '"tokenizer": *"tokenizer.json"' imported/manifest.json ||
  complain "the tokenizer is not the model's"

# texts end with the tokens that generation_config.json names, or config.json
whole=$(tokens imported)
[ "$whole" -gt 1 ] || complain "nothing to end: $whole new tokens"
ends 0 evaluate --checkpoint imported --data text.txt
for file in generation_config.json config.json; do
  cp model/$file kept.json 2>/dev/null || echo '{}' > kept.json
  python3 - kept.json "$PWD/model/$file" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["eos_token_id"] = list(range(403))
json.dump(config, open(sys.argv[2], "w"))
PYTHON
  imports 0
  new=$(tokens imported)
  [ "${new:-0}" -le 1 ] || complain "$file: $new new tokens behind the end"
  ends 0 --config imported/config.yaml --out tuned --overwrite --quiet --set training_config.model_path=imported \
    --set training_config.data_path=text.txt --set training_config.max_steps=1 --set training_config.sequence_length=8
  new=$(tokens tuned)
  [ "${new:-0}" -le 1 ] || complain "$file: $new new tokens behind the end of a tuned model"
  [ $file = config.json ] && cp kept.json model/$file || rm model/$file
done

# ids that are no tokens
echo '{"eos_token_id": [402, 403], "bos_token_id": "x", "pad_token_id": -1}' > model/generation_config.json
imports 0
says "warning: 'model/generation_config.json': eos_token_id 403 is not in the vocabulary of 403 tokens"
says "warning: 'model/generation_config.json': bos_token_id is not the number of a token"
[ "$(grep -c warning "$said")" = 2 ] || complain "other warnings, too"
[ "$(tokens imported)" = "$whole" ] || complain "a text ends elsewhere"
echo '{"eos_token_id": 1,' > model/generation_config.json
imports 2
says "model/generation_config.json:2:1: error:"
rm model/generation_config.json

# files of JSON that are none
for file in tokenizer_config.json special_tokens_map.json chat_template.json; do
  [ ! -e model/$file ] || cp model/$file kept.json
  echo '{"a" 1}' > model/$file
  imports 2
  says "model/$file:1:6: error:"
  rm model/$file
  [ ! -e kept.json ] || mv kept.json model/$file
done

# tokenizers
cp $tokenizers/gpt2.json model/tokenizer.json
imports 0
says "warning: 'model/tokenizer.json' has 2401 tokens, the model 403: it cannot be used, so the model reads token numbers, no texts"
ends 0 generate --checkpoint imported --prompt "1 2 3" --max-new-tokens 2
echo '{"model": {"type": "WordPiece", "vocab": {}}}' > model/tokenizer.json
imports 0
says "warning: 'model/tokenizer.json' cannot be used, so the model reads token numbers, no texts: "
rm model/tokenizer.json
touch model/tokenizer.model
imports 0
says "warning: 'model/tokenizer.model' is SentencePiece's, which is not read: the model reads token numbers, no texts"
rm model/tokenizer.model
cp $tokenizers/digits.json model/tokenizer.json

# a chat template of its own file
echo '[{"role": "user", "content": "word"}]' > chat.json
imports 0
ends 0 generate --checkpoint imported --chat chat.json --max-new-tokens 1
echo '{"chat_template": "{{ messages }}"}' > model/chat_template.json
imports 0
ends 0 generate --checkpoint imported --chat chat.json --max-new-tokens 1
echo '{"chat_template": "{{ messages | nope }}"}' > model/chat_template.json
imports 0
ends 2 generate --checkpoint imported --chat chat.json --max-new-tokens 1
says "imported/chat_template.json (chat_template):1:15: error: unknown filter 'nope'"
echo '{"chat_template": 3}' > model/chat_template.json
imports 0
ends 2 generate --checkpoint imported --chat chat.json --max-new-tokens 1
says "imported/chat_template.json: error: key 'chat_template' should be a string or a list of templates"
rm model/chat_template.json
mkdir model/additional_chat_templates
echo '{{ tools[0].name }}' > model/additional_chat_templates/tool_use.jinja
imports 0
says "warning: 'model/additional_chat_templates' is not copied: the checkpoint has the default chat template alone, also for conversations with tools"
rm -r model/additional_chat_templates
imports 0
! grep -q warning "$said" || complain "a warning without a reason"
# side files are objects
for file in chat_template.json generation_config.json special_tokens_map.json; do
  for text in '[]' null 3; do
    echo "$text" > model/$file
    imports 2
    says "'model/$file' holds no JSON object"
  done
  rm model/$file
done

# what a clone without Git LFS has in place of weights
mkdir pointer
cp model/* pointer
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n' > pointer/model.safetensors
ends 2 import pointer --out unpacked
says "'pointer/model.safetensors' is a pointer of Git LFS to weights that are not in this folder"

# rotary positions, said twice
cp model/config.json kept.json
for case in '2:{"rope_type": "default", "rope_theta": 5.0}' '0:{"rope_type": "default", "rope_theta": 10000.0}'; do
  python3 - "${case#*:}" <<'PYTHON'
import json, sys
config = json.load(open("kept.json"))
config.pop("rope_theta", None)
config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
config["rope_scaling"] = json.loads(sys.argv[1])
json.dump(config, open("model/config.json", "w"))
PYTHON
  imports "${case%%:*}"
done
mv kept.json model/config.json
imports 0

end_of checkpoint.import_sides 23
