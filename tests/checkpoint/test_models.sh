#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models that transformers wrote (scripts/make_hf_models) go through `import`, `evaluate` and `export`: what decides
# their numbers comes along, and what an export holds is imported to the same bytes.
# usage: test_models.sh PROGRAM
set -uo pipefail
models=$(realpath tests/checkpoint/data)
tokenizer=$(realpath tests/data/bpe/digits.json)
. tests/commands.sh "$1"
for i in $(seq 400); do printf "\\x$(printf %02x $((i * i * 31 % 50)))\\x00"; done > tokens.bin
tokens=(--data tokens.bin --set training_config.data_format=nanogpt_u16)

has() { # FILE KEY JSON: of a config.json
  checks=$((checks + 1))
  python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))[sys.argv[2]] != json.loads(sys.argv[3]))' "$@" 2>/dev/null ||
    complain "$1: $2 is not $3"
}
loss_of() { # FOLDER
  ends 0 evaluate --checkpoint "$1" "${tokens[@]}"
  loss=$(sed -n 's/^loss: //p' "$said")
  [ -n "$loss" ] || complain "$1: no loss"
}
# round NAME: imports NAME, exports that, imports the export: the same bytes
round() {
  rm -rf one out two
  ends 0 import "$1" --out one --quiet
  ends 0 export one --out out --quiet
  ends 0 import out --out two --quiet
  cmp -s one/config.yaml two/config.yaml && cmp -s one/rank-00000.safetensors two/rank-00000.safetensors ||
    complain "$1: what was exported is imported as another model"
  for file in config.yaml rank-00000.safetensors; do [ -s one/$file ] || complain "$1: no $file"; done
}
# configured FROM TO PYTHON: a copy whose config.json was changed
configured() {
  rm -rf "$2" && cp -r "$1" "$2"
  python3 - "$2/config.json" "$3" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(config, open(sys.argv[1], "w"))
PYTHON
}

# Mistral: the window is in the model, and comes back; without it, and with another one, the numbers are others
round "$models/hf_mistral"
has out/config.json sliding_window 5
has out/config.json architectures '["MistralForCausalLM"]'
has out/config.json model_type '"mistral"'
has out/config.json max_position_embeddings 64 # not capped at the window
loss_of one && windowed=$loss
loss_of two && [ "$loss" = "$windowed" ] || complain "Mistral: another loss behind an export"
for window in null 9; do
  configured "$models/hf_mistral" other "config['sliding_window'] = json.loads('$window')"
  round other
  loss_of one
  [ "$loss" != "$windowed" ] || complain "Mistral: sliding_window $window has the loss of 5"
  if [ $window = null ]; then ! grep -q '"sliding_window": [0-9]' out/config.json || complain "an export has a window that its model lacks"
  else has out/config.json sliding_window 9; fi
done
configured "$models/hf_mistral" other "config['sliding_window'] = 0"
ends 2 import other --out made
says "sliding_window"

# GPT-2 with transformers' other name of its activation
round "$models/hf_gpt2_tanh"
loss_of one && tanh=$loss
configured "$models/hf_gpt2_tanh" other "config['activation_function'] = 'gelu_new'"
round other
loss_of one && [ "$loss" = "$tanh" ] || complain "GPT-2: gelu_pytorch_tanh is not gelu_new"
configured "$models/hf_gpt2_tanh" other "config['activation_function'] = 'relu6'"
ends 2 import other --out made
says "activation_function"
says "relu6"
[ ! -e made ] || complain "a model that is refused has left a folder"

# Llama with biases
round "$models/hf_llama_bias"
has out/config.json attention_bias true
has out/config.json mlp_bias true
has out/config.json architectures '["LlamaForCausalLM"]'
loss_of one && biased=$loss
loss_of two && [ "$loss" = "$biased" ] || complain "Llama: another loss behind an export"
for key in attention_bias mlp_bias; do
  configured "$models/hf_llama_bias" other "config['$key'] = False"
  ends 2 import other --out made # weights that the model has no use for
  says "bias"
  configured "$models/hf_llama" other "config['$key'] = True"
  ends 2 import other --out made # weights that are not there
  says "bias"
  [ ! -e made ] || complain "a model that is refused has left a folder"
done

# DeepSeek: what balances the experts of a run begins at zero where the imported model has none of it; counts are not exported
round "$models/hf_deepseek_v3_moe"
balanced() { # SIZES: trains the imported model so
  rm -rf tuned
  ends 0 --config one/config.yaml --out tuned --set training_config.model_path=one "${data[@]}" \
    --set "transformer_config.balance=$1"
}
data=(--set training_config.data_path=tokens.bin --set training_config.data_format=nanogpt_u16 --set
  training_config.max_steps=2 --set training_config.sequence_length=16 --set training_config.batch_size=2 --set
  training_config.eval_every=0)
balanced '{loss: step, coefficient: 0.1, bias: {rate: 0.01, centre: true}}'
says "note: the checkpoint has no tensor 'block.1.moe.load': it begins at its initial value"
! grep -q "moe.bias" "$said" || complain "the bias is in the checkpoint"
rm -rf out two
ends 0 export tuned --out out --quiet
ends 0 import out --out two --quiet
round "$models/hf_deepseek_v2_moe"
balanced '{bias: {rate: 0.01}}'
says "note: the checkpoint has no tensor 'block.1.moe.bias': it begins at its initial value"
rm -rf out
ends 2 export tuned --out out
says "transformers has no DeepSeek V2 with a bias of the choice"

# a chat template in its own file comes along, byte by byte
cat > run.yaml <<RUN
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: $tokenizer, batch_size: 4,
  sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
write_text text.txt
ends 0 --config run.yaml --out trained --quiet
ends 0 export trained --out model --quiet
printf '{%% for m in messages %%}{{ m.role }}: {{ m.content }}\n{%% endfor %%}\n' > model/chat_template.jinja
rm -rf one out
ends 0 import model --out one --quiet
ends 0 export one --out out --quiet
ends 0 checkpoint verify one
for folder in one out; do
  checks=$((checks + 1))
  cmp -s model/chat_template.jinja $folder/chat_template.jinja || complain "'$folder' has another chat_template.jinja, or none"
done

# truncation and padding in tokenizer.json say how transformers makes batches, and change nothing here
rm model/chat_template.jinja
cp -r model padded
python3 - <<'PYTHON'
import json
tokenizer = json.load(open("padded/tokenizer.json"))
tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
tokenizer["padding"] = {"strategy": {"Fixed": 12}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 400,
                        "pad_type_id": 0, "pad_token": "<|endoftext|>"}
json.dump(tokenizer, open("padded/tokenizer.json", "w"))
PYTHON
said_of=()
for folder in model padded; do
  rm -rf one
  ends 0 import $folder --out one
  ! grep -q warning "$said" || complain "$folder: a warning"
  ends 0 generate --checkpoint one --prompt "word 1 of a text, which is longer than four tokens" --max-new-tokens 8 --temperature 0 --quiet
  text=$(cat "$said")
  ends 0 evaluate --checkpoint one --data text.txt
  said_of+=("$text $(grep -v '^speed' "$said")")
  ends 0 tokenize text.txt --tokenizer $folder/tokenizer.json --out $folder.bin --quiet
done
checks=$((checks + 1))
[ -n "${said_of[0]}" ] && [ "${said_of[0]}" = "${said_of[1]}" ] || complain "truncation and padding change a text"
cmp model.bin padded.bin || complain "truncation and padding change tokens"

end_of checkpoint.models 56
