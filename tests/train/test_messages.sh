#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a user is told: one error for one mistake, by the path that the user would write, whichever way a configuration
# comes.
# usage: test_messages.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
. tests/commands.sh "$1"
unset TESSERA_SHARE # the files of the program are found from where it lies

write_text text.txt
cp "$tokenizer" tok.json
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: tok.json, batch_size: 4,
  sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
errors() { grep -c 'error:' "$said"; }

# no printed path goes down and up again
tidy() { # CODE TEXT WORDS...
  ends "$1" "${@:3}"
  says "$2"
  # but for those that begin with ".."
  sed -E "s#(^|[ '(])([.][.]/)+#\\1#g" "$said" | grep -o '[^ ]*[.]/[^ ]*' > paths || return
  complain "${*:3}: prints $(head -n 1 paths)"
}
tidy 0 "done: step 2" --config run.yaml --out kept
tidy 0 "recipe:" check --config run.yaml
tidy 0 "cpu_1.textproto" check --config run.yaml --set device_config.mesh_graph_descriptor=cpu_1.textproto --set device_config.mesh_shape=[1]
tidy 2 "mesh descriptor 'no.textproto' not found" check --config run.yaml --set device_config.mesh_graph_descriptor=no.textproto
tidy 0 "machine h100" plan --config run.yaml --machine h100
tidy 2 "nothing" plan --config run.yaml --machine nothing
tidy 2 "num_heads 3 does not divide" check --config run.yaml --set transformer_config.num_heads=3
tidy 2 "unknown key 'num_head'" check --config run.yaml --set transformer_config.num_head=2
tidy 2 "no_such" check --config run.yaml --set transformer_config.model_type=no_such
tidy 0 "graph" trace --config run.yaml
tidy 0 "embedding" plan --config run.yaml --dump graph
tidy 0 "" doctor
tidy 0 "levels:" kernels
tidy 0 "data_path: text.txt" --config run.yaml --print-config
mkdir -p deep/er sub
cp text.txt tok.json sub
sed 's#text.txt#sub/text.txt#; s#tok.json#sub/tok.json#' run.yaml > deep/er/run.yaml
tidy 2 "cannot read 'no.txt'" --config deep/er/run.yaml --set training_config.data_path=no.txt
tidy 2 "text.txt" --config deep/er/run.yaml --set training_config.tokenizer_path=text.txt
(cd deep/er && tidy 2 "no.txt" --config run.yaml --set training_config.data_path=no.txt
  tidy 2 "text.txt" check --config run.yaml --set training_config.tokenizer_path=sub/text.txt; exit $failed) || failed=$?
checks=$((checks + 2))

# a file called '-' is not meant
for words in "--metrics -" "--metrics=-" "--out -" "--out=-"; do
  # shellcheck disable=SC2086 # words
  ends 2 --config run.yaml $words
  says "error: ${words%%[= ]*}: '-' is not the name of a file; one of that name is ./-"
done
ends 2 plan --config run.yaml --svg -
says "error: --svg: '-' is not the name of a file"
[ ! -e - ] || complain "a file called '-' was made"

# a configuration on the standard input
stdin() { # CODE TEXT WORDS...
  local code=0
  checks=$((checks + 1))
  timeout 60 "$program" "${@:3}" > "$said" 2>&1 || code=$?
  [ "$code" = "$1" ] || complain "${*:3}: exit code $code, not $1"
  says "$2"
}
stdin 0 "done: step 2" --config - < run.yaml
hash_of() { grep -o 'weights sha256 [0-9a-f]*' "$said"; }
here=$(hash_of)
ends 0 --config run.yaml
[ -n "$here" ] && [ "$(hash_of)" = "$here" ] || complain "--config -: other weights"
stdin 0 "data_path: text.txt" --config - --print-config < run.yaml
sed 's/batch_size: 4/batch_sise: 4/' run.yaml > wrong.yaml
stdin 2 "/dev/stdin:1:96: error: unknown key 'batch_sise'" check --config - < wrong.yaml
[ "$(errors)" = 1 ] || complain "a configuration on the standard input: $(errors) errors"
stdin 0 "max_steps: 3" --config - --print-config --set training_config.max_steps=3 < run.yaml

# weights of a dtype that is not taken: one error for the file
ends 0 export kept --out model --quiet
cp -r model wide
python3 - <<'PYTHON'
import json, struct
data = open("model/model.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, body, out, wide = json.loads(data[8:8 + length]), data[8 + length:], b"", {}
for name, tensor in header.items():
    if name == "__metadata__":
        continue
    begin, end = tensor["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 4}f", body[begin:end])
    wide[name] = tensor | {"dtype": "F64", "data_offsets": [len(out), len(out) + 8 * len(values)]}
    out += struct.pack(f"<{len(values)}d", *values)
assert len(wide) > 5
text = json.dumps(wide).encode()
text += b" " * (-len(text) % 8)
open("wide/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + out)
PYTHON
ends 2 import wide --out imported
says "error: 'wide/model.safetensors': tensor 'model.embed_tokens.weight' has the dtype F64; F32, BF16 and F16 are taken"
[ "$(errors)" = 1 ] || complain "F64 weights: $(errors) errors"
[ ! -e imported ] || complain "F64 weights: a folder is left"

# BPE that leaves merges out at random
cp -r model bare
sed 's/"dropout":null/"dropout":0.1/' model/tokenizer.json > bare/tokenizer.json
text="model.dropout 0.1 is not supported"
ends 0 import bare --out imported
says "warning: 'bare/tokenizer.json' cannot be used, so the model reads token numbers, no texts: $text"
ends 2 --config run.yaml --set training_config.tokenizer_path=bare/tokenizer.json
says "bare/tokenizer.json: error: $text"
[ "$(errors)" = 1 ] || complain "a tokenizer with dropout: $(errors) errors"
ends 2 tokenize text.txt --tokenizer bare/tokenizer.json --out made.bin
says "bare/tokenizer.json: error: $text"
[ ! -e made.bin ] || complain "a tokenizer with dropout: a file is left"

# a graph that gives out its loss alone has nothing to generate from
cat > graph.yaml <<'GRAPH'
inputs: {tokens: {shape: [batch, sequence], dtype: i32}, targets: {shape: [batch, sequence], dtype: i32}}
parameters: {table: {shape: [256, 8], init: normal(0.5)}}
graph:
- logits: linear(embedding(tokens, table), table)
- loss: cross_entropy(logits, targets)
outputs: [loss]
GRAPH
cat > own.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 1,
  eval_every: 0, sample_tokens: 4}
transformer_config: {graph: graph.yaml}
RUN
ends 0 --config own.yaml --out lone --quiet
ends 2 generate --checkpoint lone --prompt a
says "graph.yaml:6:11: error: the graph has no output but its loss"
says "= text is generated from an output 'logits'"
[ "$(errors)" = 1 ] || complain "$(errors) errors"

end_of train.messages 31
