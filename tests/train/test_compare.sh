#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `compare`: of two recipes that differ in one key it names the key and the first tensor, of two runs the step and the
# tensor of a flipped bit, of recipes that round in other places a verdict; what it refuses; what a signal leaves.
# usage: test_compare.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 12,
  eval_every: 0, sample_tokens: 0, model_save_interval: 3, use_clip_grad_norm: true,
  optimizer: {type: AdamW, lr: 0.01, weight_decay: 0.1}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 16, dropout_prob: 0.1, theta: 10000.0}
scheduler_config: {type: constant}
checkpoint: {keep_last: 0}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 4}}
RUN
sed 's/model_type: llama/model_type: mixtral, num_experts: 4, num_experts_per_token: 2/' run.yaml > experts.yaml
sed 's/type: AdamW, lr: 0.01, weight_decay: 0.1/type: SGD, lr: 0.1, momentum: 0.9/' run.yaml > sgd.yaml
recipe() { # FILE CONFIG WORDS...
  local args=() set
  for set in "${@:3}"; do args+=(--set "$set"); done
  "$program" --config "$2" --print-config "${args[@]}" > "$1" 2> "$said" || complain "$2 ${*:3}: no configuration"
}

# ---- one key: its line, and what differs first ----
# differs CONFIG KEY=VALUE WHAT [RECIPE_KEY]: at WHAT; the recipe has the key under its own name, or RECIPE_KEY
differs() {
  recipe one.yaml "$1"
  recipe other.yaml "$1" "$2"
  ends 1 compare one.yaml other.yaml --steps 3
  says "recipe ${4:-${2%%=*}}: "
  says "$3"
  says "'one.yaml' and 'other.yaml' differ"
  [ "$(grep -c '^recipe ' "$said")" -le "${lines:-1}" ] || complain "$2: more than ${lines:-1} keys"
}
o=training_config.optimizer
differs run.yaml training_config.seed=2 "before step 1 'wte' differs already"
lines=2 differs run.yaml $o.lr=0.02 "step 1: the first tensor that differs is 'wte', after its update"
differs run.yaml $o.beta1=0.8 "step 1: the first tensor that differs is 'wte', after its update"
says "0 of 21 unclipped gradients"
says "21 of 42 tensors of optimizer state differ"
differs run.yaml $o.beta2=0.9 "step 1: the first tensor that differs is 'wte', after its update"
differs run.yaml $o.epsilon=1e-5 "'wte', after its update"
differs run.yaml $o.weight_decay=0.2 "'wte', after its update"
differs run.yaml $o.amsgrad=true "'wte', after its update"
differs run.yaml $o.type=Adam "step 1: the first tensor that differs is 'wte', after its update"
differs run.yaml training_config.clip_grad_norm_max_norm=0.01 "is 'clip'"
lines=2 differs run.yaml training_config.use_clip_grad_norm=false "is 'clip'"
says "0 of 21 unclipped gradients"
lines=3 differs run.yaml scheduler_config.type=cosine "'wte', after its update"
differs run.yaml scheduler_config.warmup_steps=4 "'wte', after its update"
differs run.yaml training_config.ignore_index=32 "the input 'targets'"
says " is 32 | -100"
differs run.yaml training_config.sequence_length=8 "the input 'tokens'"
says "  it is (8, 16) | (8, 8)"
differs run.yaml training_config.batch_size=16 "the input 'tokens'" samples_per_step
lines=2 differs run.yaml training_config.sample_stride=3 "the input 'tokens'" data
head -c 3000 text.txt > other.txt
differs run.yaml training_config.data_path=other.txt "step 1: the first tensor that differs is the input 'tokens'" data
differs run.yaml training_config.validation_fraction=0.3 "the input 'tokens'" data
t=transformer_config
differs run.yaml $t.dropout_prob=0.2 "step 1: the first tensor that differs is 'x'"
says "computed by task "
says "(dropout) of stage 0, in the forward  # "
differs run.yaml $t.norm_eps=1e-4 "is 'block.0.n'"
says "(rmsnorm)"
says "element (0, 0, 0) is "
differs run.yaml $t.theta=500 "is 'block.0.q_2'"
says ", dp unit 0 of 4, cp unit 0 of 4"
says "2,048 elements differ, by at most "
lines=2 differs run.yaml "$t.rope_scaling={scaling_factor: 4, original_context_length: 8}" "is 'block.0.q_2'" $t.rope_scaling.scaling_factor
differs run.yaml $t.sliding_window=5 "is 'block.0.a'"
differs run.yaml $t.num_groups=4 "before step 1 'block.0.attn.wk' differs already"
says "  it is (8, 16) | (16, 16)"
differs run.yaml $t.num_heads=8 "before step 1 'block.0.attn.wk' differs already"
differs run.yaml $t.embedding_dim=32 "before step 1 'wte' differs already"
differs run.yaml $t.num_blocks=3 "step 1: the first tensor that differs is 'n'"
differs run.yaml $t.weight_tying=enabled "is 'logits'"
differs run.yaml $t.attention_bias=true "is 'clip'"
differs sgd.yaml $o.momentum=0.5 "step 2: the first tensor that differs is 'wte', after its update"
differs sgd.yaml $o.nesterov=true "'wte', after its update"
differs sgd.yaml $o.dampening=0.5 "step 2: the first tensor that differs is 'wte', after its update"
differs experts.yaml $t.num_experts_per_token=1 "is 'block.0.chosen'"
differs experts.yaml $t.capacity=1.0 "is 'block.0.f'"
lines=2 differs experts.yaml "$t.balance={loss: sequence, coefficient: 0.1}" "is 'd.block.1." $t.balance.coefficient
differs experts.yaml $t.expert_tp=features "is 'block.0.f'"
lines=20 differs run.yaml 'lora_config={r: 2}' "step 1: " lora_config.r
differs run.yaml device_config.cp_layout=zigzag "in the backward"
# a key that changes no bit of these steps, and settings that are no part of the recipe
alike() { # KEY=VALUE [RECIPE_KEY]
  recipe one.yaml run.yaml
  recipe other.yaml run.yaml "$1"
  ends 0 compare one.yaml other.yaml --steps 3
  says "equal: the losses and weights of steps 1 to 3"
  says "step 3: 0 of "
  [ -z "${2:-}" ] || says "recipe $2: "
  [ -n "${2:-}" ] || ! grep -q '^recipe ' "$said" || complain "$1 is named"
}
alike training_config.end_of_text=5 training_config.end_of_text
alike training_config.eval_every=1
alike numerics.threads=2
alike schedule.recompute=full
alike zero.stage=2

# ---- where rounding alone differs: a verdict ----
rounds() { # CODE CONFIG KEY=VALUE WORDS...
  recipe one.yaml "$2"
  recipe other.yaml "$2" "${@:3}"
  ends "$1" compare one.yaml other.yaml --steps 3
  says "recipe ${3%%=*}: "
  says "step 1, against a bound of rounding errors:"
}
p=training_config.precision
for config in run.yaml experts.yaml sgd.yaml; do
  for precision in bf16 fp16 fp8; do
    rounds 0 $config $p=$precision
    says "verdict: within the bound of rounding errors"
  done
  rounds 0 $config numerics.units.tp=1
  says "verdict: within"
  rounds 1 $config $p=bf16 $t.norm_eps=1e-3
  says "beyond the bound"
  rounds 1 $config $p=bf16 training_config.seed=2
  says "beyond the bound"
done
# The weights of Gemma's norms are stored minus 1, so they begin with zeros.
sed 's/model_type: llama/model_type: gemma3/' run.yaml > gemma.yaml
rounds 0 gemma.yaml $p=bf16
says "verdict: within the bound of rounding errors"
rounds 1 gemma.yaml $p=bf16 $t.norm_eps=1e-3
says "beyond the bound"
rounds 0 run.yaml $p=bf16 $o.stochastic_rounding=true
says "verdict: within"
rounds 1 run.yaml $p=fp16 $o.lr=0.02 # which step 1 does not show
says "verdict: within"
says "the recipes differ in more than where they round"
recipe one.yaml run.yaml
recipe other.yaml run.yaml numerics.policy=fast
ends 0 compare one.yaml other.yaml --steps 3
says "recipe numerics.policy: deterministic | fast"
recipe one.yaml run.yaml $t.theta=100 # so that rotary positions matter in a model that is not trained
recipe other.yaml run.yaml $t.theta=10000 $p=bf16
ends 1 compare one.yaml other.yaml --steps 1
says "beyond the bound"

# ---- runs and their faults ----
ends 0 --config run.yaml --out one --quiet
cp -r one same
ends 0 compare one same
says "equal: the losses and weights of steps 1 to 12"
ends 0 compare one/run.lock run.yaml
says "equal: the losses and weights of steps 1 to 10"
ends 0 compare run.yaml one --steps 3 --quiet
[ ! -s "$said" ] || complain "--quiet prints"
ends 0 --config run.yaml --out late --quiet --set $o.weight_decay=0.1 --set training_config.max_steps=8
ends 0 compare one late
says "equal: the losses and weights of steps 1 to 8"
flip() { # CHECKPOINT TENSOR BYTE: a bit in the middle of its numbers
  python3 - "$@" <<'PYTHON'
import json, pathlib, struct, sys
for path in pathlib.Path(sys.argv[1]).glob("rank-*.safetensors"):
    data = bytearray(path.read_bytes())
    length = struct.unpack_from("<Q", data)[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name.split("@")[0] == sys.argv[2]:
            begin, end = entry["data_offsets"]
            data[8 + length + (begin + end) // 8 * 4 + int(sys.argv[3])] ^= 1
            path.write_bytes(data)
            sys.exit()
sys.exit("no such tensor")
PYTHON
}
for tensor in block.1.attn.wq.v block.0.mlp.w_down.m; do
  rm -rf faulty && cp -r one faulty
  flip faulty/checkpoints/step-00000006 $tensor 2
  rm -r faulty/checkpoints/step-000000{09,12}
  ends 0 --config run.yaml --out faulty --resume --quiet --set checkpoint.verify=false
  ends 1 compare one faulty # the damage is found by the checkpoint's own hash
  says "tensor '$tensor' is damaged"
  for pair in "one faulty" "faulty one"; do
    # shellcheck disable=SC2086
    ends 1 compare $pair --set checkpoint.verify=false
    says "before step 7 '$tensor' differs already"
    says "  1 of "
    says " weights, 1 of "
  done
done
# row 8 of 16 is in the second half, and on meshes in the second shard
rm -rf faulty && cp -r one faulty
flip faulty/checkpoints/step-00000006 block.1.attn.wq.v 2
rm -r faulty/checkpoints/step-000000{09,12}
ends 0 --config run.yaml --out faulty --resume --quiet --set checkpoint.verify=false
for mesh in 1 2; do
  ends 1 compare one faulty --set checkpoint.verify=false --set "mesh={axes: [tp, dp], shape: [$mesh, 2]}"
  says "before step 7 'block.1.attn.wq.v' differs already"
  [ $mesh = 1 ] && says ", tp unit 1 of 2" || says ", tp unit 1 of 2, tp shard 1 of 2"
  says "element (8, 0) is "
done
# of weights: the run that resumes elsewhere begins with others
cp -r one damaged
flip damaged/checkpoints/step-00000006 block.1.attn.wq 1
ends 0 --config run.yaml --out elsewhere --resume damaged/checkpoints/step-00000006 --quiet --set checkpoint.verify=false
ends 1 compare one elsewhere
says "'elsewhere' begins after step 6 with other weights than 'one' had: their hash is "
ends 1 compare one elsewhere --set checkpoint.verify=false --set training_config.checkpoint_dir=damaged/checkpoints
says "before step 7 'block.1.attn.wq' differs already"
says "  1 of 256 elements differ"
ends 0 --config run.yaml --out short --quiet --set training_config.max_steps=6
ends 1 compare elsewhere short
says "'elsewhere' begins after step 6 with other weights than 'short' had"
# a run whose lock has other numbers than its recipe gives: the chain is made again, as a faulty machine would
python3 - one/run.lock <<'PYTHON'
import hashlib, json, os, sys
lines = open(sys.argv[1]).read().splitlines()
events = [json.loads(line) for line in lines]
recipe = events[0]["recipe"]
at = next(i for i, event in enumerate(events) if event["event"] == "step" and event["step"] == 5)
chain = next(e for e in events if e["event"] == "step" and e["step"] == 4)["chain"]
for i in range(at, len(events)):
    e = events[i]
    if e["event"] != "step":
        continue
    if i == at:
        old, e["weights"] = e["weights"], "%016x" % (int(e["weights"], 16) ^ 1)
        lines[i] = lines[i].replace(old, e["weights"])
    chain = hashlib.sha256(f"{chain}\n{e['step']} {e['loss_bits']} {e['weights']}\n".encode()).hexdigest()
    lines[i] = lines[i].replace(e["chain"], chain)
os.mkdir("liar")
open("liar/run.lock", "w").write("\n".join(lines) + "\n")
PYTHON
ends 1 compare one liar
says "step 5: no tensor differs that both runs have"
says "'liar' had other numbers at step 5 than its repetition here"
# checkpoints
ends 0 compare one/checkpoints/step-00000006 same/checkpoints/step-00000006
says "equal: weights and optimizer state of step 6"
ends 1 compare one/checkpoints/step-00000006 damaged/checkpoints/step-00000006
says "damaged"
ends 1 compare one/checkpoints/step-00000003 one/checkpoints/step-00000006
says "block.0.attn.wk: "

# ---- the user's mistakes ----
ends 2 compare one
says "compare needs two of a kind"
ends 2 compare one nothing
says "cannot read 'nothing': No such file or directory"
ends 2 compare run.yaml nothing.yaml
mkdir empty
ends 2 compare empty empty
says "'empty' is no checkpoint and has none"
ends 2 compare one empty
says "are of two kinds"
ends 2 compare one one/checkpoints/step-00000003
ends 2 compare text.txt text.txt
says "this is no run.lock"
ends 2 compare one one/metrics.jsonl
ends 0 --config run.yaml --out begin --quiet --set training_config.max_steps=3
ends 0 --config run.yaml --out end --resume one/checkpoints/step-00000006 --quiet
ends 2 compare begin end
says "there is no step to compare: 'begin' has the steps 1 to 3, and 'end' 7 to 12"
ends 2 compare end run.yaml --steps 6
ends 0 compare end short
says "equal: the weights after step 6"
ends 2 compare run.yaml run.yaml --steps 0
ends 2 compare run.yaml run.yaml --steps 2-3
for bytes in 0 1 700 -20; do # 700: inside the recipe; the last line may be cut, and does not count
  mkdir -p cut && head -c "$bytes" one/run.lock > cut/run.lock
  [ "$bytes" = -20 ] && ends 0 compare one cut || ends 2 compare one cut
done
says "steps 1 to 11"
sed '6s/"weights":"./"weights":"x/; 6s/:"x/:"0/' one/run.lock > edited.lock
ends 1 compare one edited.lock
says "edited.lock:6:1: error: the chain of hashes is broken"
recipe other.yaml run.yaml $o.lr=0.02
mv text.txt gone.txt
ends 2 compare run.yaml other.yaml
says "cannot read 'text.txt'"
ends 2 compare one other.yaml
mv gone.txt text.txt
cat > graph.yaml <<'RUN'
inputs: {tokens: {shape: [batch, sequence], dtype: i32}}
parameters: {p: {shape: [256, 8], init: normal(0.3)}}
graph: [{y: "embedding(tokens, p)"}]
outputs: [y]
RUN
sed 's/^transformer_config.*/transformer_config: {graph: graph.yaml}/; /max_sequence_length/d; /^scheduler/d' run.yaml > noloss.yaml
ends 2 compare noloss.yaml noloss.yaml
recipe other.yaml run.yaml $o.lr=1e30
ends 1 compare run.yaml other.yaml --steps 5
says "error: step "

# ---- signals, a disk that is full, no place for the tensors ----
mkdir place
export TMPDIR=$PWD/place
# ended STATUS: of the process in the background
ended() {
  checks=$((checks + 1))
  wait $!
  [ $? = "$1" ] || complain "a signal ends compare with another exit code than $1"
}
recipe one.yaml run.yaml training_config.max_steps=100000 training_config.num_epochs=10000
"$program" compare one.yaml one.yaml --steps 90000 > "$said" 2>&1 < /dev/null &
sleep 0.3
kill -TERM $!
ended 143
recipe other.yaml run.yaml $p=bf16
for n in 1 3 90; do with_fault ENOSPC@$n ends 1 compare run.yaml other.yaml --steps 1; done
says "No space left on device"
TESSERA_FAULT=slow@1-4 "$faulty" compare run.yaml other.yaml --steps 1 > "$said" 2>&1 < /dev/null &
until [ -n "$(ls place)" ]; do kill -0 $! || break; done
kill -TERM $!
ended 143
[ -z "$(ls place)" ] || complain "something is left: $(ls place)"
TMPDIR=$PWD/none ends 2 compare run.yaml other.yaml --steps 1
says "cannot make the folder '$PWD/none/tessera-compare-"
export -n TMPDIR

end_of train.compare 112
