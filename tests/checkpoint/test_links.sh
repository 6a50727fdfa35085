#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint's file that is a symbolic link is refused by every command that needs the checkpoint whole, and nothing
# is copied through it.
# usage: test_links.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
. tests/commands.sh "$1"

write_text text.txt
cp "$tokenizer" tok.json
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: tok.json, batch_size: 4,
  sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out kept --quiet
whole=kept/checkpoints/step-00000002
ends 0 checkpoint verify $whole

picture() { find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2; }
# refuses CODE TEXT WORDS...: and makes nothing
refuses() {
  local before
  before=$(picture)
  ends "$1" "${@:3}"
  says "$2"
  [ "$(picture)" = "$before" ] || complain "${*:3}: something was made"
}
files=0
for file in "$whole"/*; do
  name=${file##*/} code=1
  text="c/$name: error: cannot read the checkpoint's file: it is a symbolic link"
  [ "$name" != manifest.json ] || text="cannot read 'c/$name': it is a symbolic link"
  rm -rf c && cp -r $whole c && mv "c/$name" "there-$name" && ln -s "../there-$name" "c/$name"
  refuses $code "$text" checkpoint verify c
  refuses $code "$text" checkpoint reshard c --shards 2 --out made
  refuses $code "$text" checkpoint merge c --out made
  refuses $code "$text" checkpoint diff c $whole
  refuses $code "$text" checkpoint diff $whole c
  refuses $code "$text" generate --checkpoint c --prompt word --max-new-tokens 1
  refuses $code "$text" evaluate --checkpoint c
  refuses $code "$text" export c --out made
  refuses $code "$text" --config run.yaml --resume c
  refuses $code "$text" --config run.yaml --set training_config.model_path=c
  # a link to nothing, and to the file of another checkpoint, which the hash is of
  rm "c/$name" && ln -s nowhere "c/$name"
  [ "$name" != manifest.json ] || text="'c' is no checkpoint and has none" code=2
  refuses $code "$text" checkpoint verify c
  rm "c/$name" && ln -s "../$file" "c/$name"
  [ "$name" != manifest.json ] || text="cannot read 'c/$name': it is a symbolic link" code=1
  refuses $code "$text" checkpoint verify c
  files=$((files + 1))
done
[ "$files" -ge 5 ] || complain "only $files files in a checkpoint"
# a link to a folder is a path like any other
ln -s $whole linked
ends 0 checkpoint verify linked

# a model folder's configuration that no weights can have
ends 0 export kept --out model --quiet
for mistake in 'rope_theta: 0' 'rope_scaling.factor: 0' 'rope_parameters.rope_theta: 0' 'rope_parameters.factor: 0'; do
  rm -rf wrong && cp -r model wrong
  python3 - "${mistake%: 0}" <<'PYTHON'
import json, sys
config = json.load(open("wrong/config.json"))
config.pop("rope_theta", None), config.pop("rope_parameters", None), config.pop("rope_scaling", None)
scaling = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}
if sys.argv[1] == "rope_theta":
    config["rope_theta"] = 0
elif sys.argv[1].startswith("rope_scaling"):
    config |= {"rope_theta": 10000.0, "rope_scaling": scaling | {"factor": 0}}
elif sys.argv[1].endswith("theta"):
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 0}
else:
    config["rope_parameters"] = scaling | {"rope_theta": 10000.0, "factor": 0}
json.dump(config, open("wrong/config.json", "w"))
PYTHON
  rm -rf made
  ends 2 import wrong --out made
  says "error: 'wrong/config.json': key '${mistake%: 0}' should be above 0, not 0"
  [ ! -e made ] || complain "$mistake: a failed import has left its folder"
done

end_of checkpoint.links 66
