#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What verify repeats: all steps of a run that made more than it began with, on one rank what needed many, from
# checkpoints of the run alone. And what a run that resumes keeps of a damaged run.lock.
# usage: test_verify.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text train.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 12,
  eval_every: 0, sample_tokens: 0, model_save_interval: 6, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 16}
checkpoint: {keep_last: 0}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 8}}
RUN
# forge LOCK STEP: other weights after the step, with a chain that is whole
forge() {
  python3 - "$1" "$2" <<'PYTHON'
import hashlib, json, sys
path, step = sys.argv[1], int(sys.argv[2])
lines = [json.loads(line) for line in open(path)]
sha256 = lambda text: hashlib.sha256(text.encode()).hexdigest()
recipe = "".join(f"{key}={value}\n" for key, value in lines[0]["recipe"].items())
chain = sha256(f"tessera-train run.lock 1\n{recipe}{lines[1]['step']} {lines[1]['weights']}\n")
for line in lines[1:]:
    if line["event"] == "step":
        if line["step"] == step:
            line["weights"] = "0123456789abcdef"
        chain = sha256(f"{chain}\n{line['step']} {line['loss_bits']} {line['weights']}\n")
    line["chain"] = chain
with open(path, "w") as file:
    file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
PYTHON
}
# finds RUN STEP [WORDS…]: verify repeats all of it, and finds a step that is another one
finds() {
  local run=$1 step=$2
  shift 2
  ends 0 verify "$run" "$@"
  says "verified: steps 1 to "
  cp -r "$run" forged
  forge forged/run.lock "$step"
  ends 1 verify forged "$@"
  says "error: step $step is the first that differs: the weights;"
  rm -r forged
}

# ---- steps that the file's configuration does not have ----
ends 0 --config run.yaml --out one
finds one 11 --set training_config.max_steps=4
ends 0 --config run.yaml --out more
ends 0 --config run.yaml --out more --resume --set training_config.max_steps=18
finds more 17
ends 0 verify more --steps 14-18
says "repeated from 'more/checkpoints/step-00000012', 6 steps"
ends 0 --config run.yaml --out longer --set training_config.max_steps=18
ends 0 compare more longer
says "equal: the losses and weights of steps 1 to 18"
forge longer/run.lock 17
ends 1 compare more longer
says "'longer' had other numbers at step 17 than its repetition here"
stop=(--set training_config.eval_every=2 --set training_config.early_stop_min_delta=100)
ends 0 --config run.yaml --out early "${stop[@]}" --set training_config.early_stop_patience=1
ends 0 --config run.yaml --out early --resume "${stop[@]}" --set training_config.early_stop_patience=9
finds early 11
# a loss that is no number is the run's end, and a step as any other
ends 1 --config run.yaml --out nan --set training_config.optimizer.lr=1e30
step=$(tail -n 1 nan/run.lock | sed -n 's/.*"step":\([0-9]*\),"loss":null.*/\1/p')
[ -n "$step" ] || complain "the loss of the last step is a number"
finds nan "${step:-1}"

# ---- recipes of many ranks, on one ----
ends 0 --config run.yaml --out zigzag --set device_config.cp_layout=zigzag --set "mesh={axes: [cp], shape: [4]}"
finds zigzag 9
ends 0 verify zigzag --steps 7-8 --set "mesh={axes: [dp], shape: [2]}"
sed 's/batch_size: 8,/batch_size_per_rank: 2,/' run.yaml > rank.yaml
ends 0 --config rank.yaml --out rank --set "mesh={axes: [dp], shape: [4]}"
finds rank 9
ends 0 --config rank.yaml --out parts --set "mesh={axes: [dp], shape: [2]}" \
  --set training_config.gradient_accumulation_steps=2
finds parts 9
cat > graph.yaml <<'GRAPH'
name: own
description: a table and its product
sizes:
  vocab_size: {doc: tokens}
  embedding_dim: {doc: width}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [vocab_size, embedding_dim], init: "normal(0.02)"}
graph:
- x: "embedding(tokens, wte)"
- logits: "linear(x, wte)"
- loss: "cross_entropy(logits, targets)"
outputs: [loss, logits]
GRAPH
sed 's/^transformer_config.*/transformer_config: {graph: graph.yaml, vocab_size: 256, embedding_dim: 16}/; /max_sequence/d' \
  run.yaml > own.yaml
ends 0 --config own.yaml --out own
finds own 9

# ---- checkpoints ----
ends 0 --config run.yaml --set training_config.seed=2 --set training_config.checkpoint_dir=checkpoints
ends 0 --config run.yaml --out none --set training_config.model_save_interval=1000
ends 0 verify none --steps 8-9 # the folder is the default one, with another run's
says "repeated from the begin, 9 steps"
ends 0 --config run.yaml --out bare --set checkpoint.optimizer=false
ends 0 verify bare --steps 8-9
says "repeated from the begin, 9 steps"
ends 0 --config run.yaml --out apart --set training_config.checkpoint_dir=apart.checkpoints
ends 0 verify apart --steps 7
says "repeated from 'apart.checkpoints/step-00000006', 1 step, on 1 rank"

# ---- a run that resumes keeps the lines before ----
# resumes NAME: from step 6, with what `one` has else
resumes() {
  rm -r "$1/checkpoints/step-00000012"
  ends 0 --config run.yaml --out "$1" --resume
}
chain_of() { tail -n 1 "$1/run.lock" | sed -n 's/.*"chain":"\([0-9a-f]*\)"}$/\1/p'; }
want=$(chain_of one)
cp -r one behind
sed -i '12s/"weights":"./"weights":"z/' behind/run.lock # step 10
resumes behind
[ "$(chain_of behind)" = "$want" ] && [ ${#want} = 64 ] || complain "a line behind the checkpoint broke the chain"
cp -r one before
sed -i 5d before/run.lock # step 3
resumes before
says "before/run.lock: warning: the chain of hashes begins anew at step 6: step 4 does not follow the line before"
ends 0 verify before --steps 7-12
cp -r one short
head -n 5 one/run.lock > short/run.lock
resumes short
says "short/run.lock: warning: the chain of hashes begins anew at step 6: it has no such step"
# what has no end is not read
cp -r one full
rm full/run.lock
ln -s /dev/full full/run.lock
rm -r full/checkpoints/step-00000012
ends 1 --config run.yaml --out full --resume
says "full/run.lock: error: cannot write the hashes of a run from step 6 on"
ends 2 verify full
says "it is a device or a pipe, not a file"

# ---- what promises no bits, and what was changed ----
ends 0 --config run.yaml --out fast --set numerics.policy=fast --set training_config.max_steps=2
ends 2 --config run.yaml --locked fast --out refused
says "error: the run's policy is fast: no other run has its bits"
cp -r one hash
sed -i '1s/"recipe_hash":"./"recipe_hash":"x/' hash/run.lock
ends 1 verify hash
says "hash/run.lock:1:1: error: recipe_hash is not the recipe's"
end_of "verify" 47
