#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No command writes over what it reads: each output named as each of the command's own inputs is refused, by whatever
# path, and no byte of any file changes.
# usage: test_inputs.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

mkdir inputs && cd inputs || exit 1
write_text text.txt
cp "$tokenizer" tok.json
cp "$TESSERA_SHARE/mesh_descriptors/cpu_2x2.textproto" mesh.textproto
cat > graph.yaml <<'RUN'
name: small
sizes:
  vocab_size: {default: 0, min: 0}
  embedding_dim: 8
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [vocab_padded, embedding_dim], valid0: vocab_size, init: normal(0.02), tp: shard(0)}
graph:
- logits: linear(embedding(tokens, wte), wte)
- loss: cross_entropy(logits, targets, valid=vocab_size)
outputs: {loss: loss, logits: logits}
RUN
echo 'transformer_config: {graph: graph.yaml, vocab_size: 403}' > model.yaml
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: tok.json, batch_size: 4,
  sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0, model_config: model.yaml}
device_config: {mesh_graph_descriptor: mesh.textproto, enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]}
numerics: {threads: 1}
RUN
sed 's/model_config: model.yaml//' run.yaml > llama.yaml
echo 'transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}' >> llama.yaml
echo "word 1" > prompts.txt

picture() { find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2; }
# refuses TEXT WORDS...: exit code 2, the text, and nothing has changed
refuses() {
  local before
  before=$(picture)
  ends 2 "${@:2}"
  says "$1"
  [ "$(picture)" = "$before" ] || complain "${*:2}: files have changed"
}

ends 0 --config run.yaml --quiet # all of them are read
for input in run.yaml model.yaml graph.yaml tok.json text.txt mesh.textproto; do
  ln "$input" "hard.$input"
  ln -s "$input" "soft.$input"
  for path in "$input" "./$input" "$PWD/$input" "../inputs/$input" "hard.$input" "soft.$input"; do
    refuses "'$path' would be overwritten, and this command reads it" --config run.yaml --metrics "$path"
  done
  refuses "'$input' would be overwritten, and this command reads it" profile --config run.yaml --steps 1 --metrics "$input"
  refuses "cannot make the folder '$input': Not a directory" --config run.yaml --out "$input"
  # nothing of a plan's and nothing of tokens is in any of these files
  refuses "'$input' is there and is no description of a machine that tessera-train has measured: it is not overwritten" plan --config run.yaml \
    --calibrate "$input"
  [ $input = tok.json ] || refuses "'$input' is there and is no file of tokens: it is not overwritten" tokenize "$input" --out "$input"
  rm "hard.$input" "soft.$input"
done
for input in run.yaml model.yaml graph.yaml tok.json text.txt mesh.textproto; do
  refuses "error: cannot make the folder '$input': Not a directory" plan --config run.yaml --svg "$input"
done
refuses "'tok.json' is there and is no file of tokens" tokenize text.txt --tokenizer tok.json --out tok.json
mv text.txt text.bin && refuses "'text.bin' is there and is no file of tokens" tokenize text.bin --out text --format megatron
mv text.bin text.txt

# machines and pictures, which a command may replace, as inputs
ends 0 plan --config run.yaml --svg drawn
mv drawn/mesh.svg chart.svg
refuses "'chart.svg' is there and is no file of tokens" tokenize chart.svg --out chart.svg
refuses "'chart.svg' would be overwritten, and this command reads it" --config run.yaml --metrics chart.svg \
  --set training_config.data_path=chart.svg --set training_config.data_format=text
cp "$TESSERA_SHARE/configs/machines/h100.yaml" machine.yaml
refuses "--machine and --calibrate both select the machine" plan --config run.yaml --machine machine.yaml --calibrate machine.yaml
refuses "cannot make the folder 'machine.yaml': Not a directory" plan --config run.yaml --machine machine.yaml --svg machine.yaml

# folders
ends 0 --config llama.yaml --out trained --quiet
step=trained/checkpoints/step-00000002
ends 0 export trained --out model --quiet
ends 0 import model --out imported --quiet
refuses "'model' is there already" import model --out model
refuses "'imported' is there already" export imported --out imported
refuses "'trained' is there already" export trained --out trained
refuses "'model' is there already" export trained --out model
for folder in trained trained/checkpoints $step $PWD/trained; do
  refuses "'$folder' is there already" checkpoint merge trained --out "$folder"
  refuses "'$folder' is there already" checkpoint reshard trained --out "$folder" --shards 2
done
refuses "would be overwritten, and this command reads it" --config trained/config.yaml --metrics trained/config.yaml
for file in model/config.json model/tokenizer.json model/model.safetensors; do
  refuses "cannot write '$file/in': Not a directory" import model --out "$file/in"
done

cd .. && end_of train.inputs 90
