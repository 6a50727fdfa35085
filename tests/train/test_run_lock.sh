#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.lock and what reads it: one chain of hashes on every mesh and through resumes, verify on another mesh, and that a
# flipped bit of data, weights or optimizer state is found at its step.
# usage: test_run_lock.sh PROGRAM
set -uo pipefail
hashes=$PWD/tests/train/run_lock_hashes.py
. tests/commands.sh "$1"

write_text train.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 24,
  eval_every: 0, sample_tokens: 0, model_save_interval: 6, use_clip_grad_norm: true,
  optimizer: {type: AdamW, lr: 0.01, weight_decay: 0.1}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 4,
  max_sequence_length: 16}
checkpoint: {keep_last: 0}
numerics: {threads: 2, units: {batch: 4, tp: 2, sequence: 4}}
RUN
chain_of() { tail -n 1 "$1/run.lock" | sed -n 's/.*"chain":"\([0-9a-f]*\)"}$/\1/p'; }
# same FOLDER: its chain is that of the run on one rank
same() {
  checks=$((checks + 1))
  [ "$(chain_of "$1")" = "$want" ] || complain "$1: another chain, $(chain_of "$1"), not $want"
}

# ---- one chain on every mesh ----
ends 0 --config run.yaml --out one
want=$(chain_of one)
[ ${#want} = 64 ] || complain "no chain of the run on one rank"
checks=$((checks + 1))
python3 "$hashes" one/run.lock one/checkpoints/step-000000{06,24} > "$said" 2>&1 && says "25 steps, 2 checkpoints" ||
  complain "the hashes are not those of the definition"
i=0
for mesh in '{axes: [dp], shape: [4]}' '{axes: [tp], shape: [2]}' '{axes: [pp], shape: [4]}' '{axes: [cp], shape: [4]}' \
  '{axes: [dp, pp, tp], shape: [2, 2, 2]}'; do
  for stage in 0 3; do
    i=$((i + 1))
    ends 0 --config run.yaml --out "mesh$i" --set "mesh=$mesh" --set zero.stage=$stage
    same "mesh$i"
  done
done

# ---- a run that resumes, on other meshes, continues its chain ----
ends 0 --config run.yaml --out parts --set "mesh={axes: [dp], shape: [2]}" --time-limit 1h --set training_config.max_steps=24 \
  --set checkpoint.keep_last=0
rm -r parts/checkpoints/step-000000{18,24}
ends 0 --config run.yaml --out parts --resume --set "mesh={axes: [tp], shape: [2]}"
same parts
[ "$(grep -c '"event":"start"' parts/run.lock)" = 2 ] || complain "not two starts"
checks=$((checks + 1))
python3 "$hashes" parts/run.lock > "$said" 2>&1 || complain "the chain of two starts is another one"
# into another folder a chain begins there
ends 0 --config run.yaml --out elsewhere --resume one/checkpoints/step-00000012
ends 0 lock diff one elsewhere
says "recipe: the same"
says "steps: the weights after steps 12 to 24 and all losses are equal"

# ---- verify ----
ends 0 verify one
says "verified: steps 1 to 24 of 'one/run.lock' have the same losses and weights; repeated from the begin, 24 steps, on 1 rank"
ends 0 verify mesh10/run.lock --steps 14-20
says "repeated from 'mesh10/checkpoints/step-00000012', 8 steps, on 1 rank"
ends 0 verify one --steps 19 --set "mesh={axes: [dp, tp], shape: [2, 2]}" --set zero.stage=2
says "verified: steps 19 to 19 of 'one/run.lock'"
says "on 4 ranks"
ends 0 verify elsewhere --steps 13-15
says "repeated from the begin, 15 steps"
ends 0 verify elsewhere --steps 13-15 --set training_config.checkpoint_dir=one/checkpoints
says "repeated from 'one/checkpoints/step-00000012', 3 steps"
ends 2 verify one --steps 24-25
says "has the steps 1 to 24"
ends 2 verify one --steps 0-3
says "is no range of steps"
ends 2 verify one --steps 5-4
ends 2 verify one --steps 5x
ends 2 verify one two
ends 2 verify nothing
ends 2 verify run.yaml
says "this is no run.lock"
ends 2 verify one --set training_config.seed=2 --set training_config.optimizer.lr=0.02
says "'training_config.seed' is 2 in this run, and 1 in 'one/run.lock'"
says "'training_config.optimizer.lr' is 0.02 in this run, and 0.01 in 'one/run.lock'"
ends 0 --config run.yaml --out fast --set numerics.policy=fast --set training_config.max_steps=2
ends 2 verify fast
says "the run's policy is fast"

# ---- train --locked ----
ends 0 --config run.yaml --locked one --out locked --set "mesh={axes: [tp], shape: [2]}"
ends 2 --config run.yaml --locked one/run.lock --out refused --set training_config.optimizer.beta2=0.9 \
  --set transformer_config.num_blocks=2
says "'training_config.optimizer.beta2' is 0.9 in this run"
says "'transformer_config.num_blocks' is 2 in this run, and 4 in 'one/run.lock'"
[ ! -e refused ] || complain "a refused run has made its folder"

# ---- lock diff ----
ends 0 lock diff one mesh1
says "recipe: the same"
says "mesh: 1 rank | dp=4"
ends 0 --config run.yaml --out warm --set scheduler_config='{type: cosine, warmup_steps: 4}' --set training_config.max_steps=24
ends 0 lock diff one warm
says "recipe scheduler_config.type:"
says "step 1 is the first that differs: loss "
ends 0 --config run.yaml --out later --set training_config.max_steps=30
ends 0 lock diff one later
ends 2 lock diff one
ends 2 lock same one one
says "lock has nothing called 'same'"

# ---- faults ----
# flip FILE OFFSET: one bit
flip() {
  python3 - "$1" "$2" <<'PYTHON'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[int(sys.argv[2])] ^= 1
open(sys.argv[1], "wb").write(data)
PYTHON
}
# byte_of CHECKPOINT TENSOR: the file, and where a byte in the middle of its numbers is
byte_of() {
  python3 - "$1" "$2" <<'PYTHON'
import json, pathlib, struct, sys
for path in pathlib.Path(sys.argv[1]).glob("rank-*.safetensors"):
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name.split("@")[0] == sys.argv[2]:
            begin, end = entry["data_offsets"]
            print(path, 8 + length + (begin + end) // 8 * 4 + 1)
            sys.exit()
sys.exit("no such tensor")
PYTHON
}
# a line of the file
cp -r one line
at=$(grep -bo '"step":9,' line/run.lock | cut -d: -f1)
flip line/run.lock $((at + 20)) # a digit of the loss
ends 2 verify line --steps 20-21
says "line/run.lock:11:1: error: this is no line of a run.lock"
flip line/run.lock $((at + 20))
sed -i '11s/"weights":"./"weights":"x/; 11s/"weights":"x/"weights":"0/' line/run.lock
ends 1 verify line --steps 20-21
says "line/run.lock:11:1: error: the chain of hashes is broken"
head -c -30 one/run.lock > line/run.lock
ends 0 verify line --steps 20-21
ends 2 verify line --steps 24 # its line is cut
says "has the steps 1 to 23"
# weights in a checkpoint: its own hash finds it, and without it the run does that resumes there
cp -r one weights
flip $(byte_of weights/checkpoints/step-00000012 block.1.attn.wq)
ends 1 verify weights --steps 14-15
says "tensor 'block.1.attn.wq' is damaged"
ends 1 verify weights --steps 14-15 --set checkpoint.verify=false
says "the weights after step 12 differ: their hash is "
rm -r weights/checkpoints/step-000000{18,24}
ends 1 --config run.yaml --out weights --resume --set checkpoint.verify=false
says "the run resumes with other weights than it had after step 12"
# optimizer state that was wrong when a run resumed: the step after it
cp -r one state
flip $(byte_of state/checkpoints/step-00000012 block.1.attn.wq.v)
rm -r state/checkpoints/step-000000{18,24}
ends 0 --config run.yaml --out state --resume --set checkpoint.verify=false
[ "$(chain_of state)" != "$want" ] || complain "the flipped bit of optimizer state has no effect"
rm -r state/checkpoints/step-000000{12,18,24}
ends 1 verify state --steps 10-20
says "step 13 is the first that differs: the weights;"
ends 0 verify state --steps 7-12
# data: the step that reads it
cp train.txt kept.txt
flip train.txt 2500
ends 1 verify one
says "warning: the data are not those of 'one/run.lock': their hash differs"
step=$(sed -n 's/.*error: step \([0-9]*\) is the first that differs: the loss.*/\1/p' "$said")
[ -n "$step" ] && [ "$step" -ge 1 ] || complain "no step is named"
ends 2 --config run.yaml --locked one --out refused
says "error: 'data' is "
cp kept.txt train.txt
ends 0 verify one --steps 1-3
end_of "run.lock" 60
