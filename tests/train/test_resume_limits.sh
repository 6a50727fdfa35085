#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where runs that go on end, and what later commands do with their checkpoints: time limits too short for a step, steps
# behind max_steps, lists of checkpoints, evaluation and generation on meshes of the options.
# usage: test_resume_limits.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 3, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_blocks: 2,
  max_sequence_length: 8}
device_config: {enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]}
numerics: {threads: 1, units: {tp: 2}}
RUN

hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }

# A limit that leaves no time for a step: each start makes one all the same, and no more.
ends 0 --config run.yaml --out whole --set training_config.max_steps=6
whole=$(hash_of)
ends 0 --config run.yaml --out run
for step in 4 5; do
  ends 0 --config run.yaml --out run --resume --time-limit 1 --set training_config.max_steps=6
  says "time limit: stops after step $step of 6"
done
for limit in 010 0x2 1e3 1.2.3 1m2h 5x; do
  ends 2 --config run.yaml --out never --time-limit $limit
  says "--time-limit: '$limit' is no time such as 5400, 90m or 1h30m"
done
[ ! -e never ] || complain "a refused run has made its folder"
ends 0 --config run.yaml --out run --resume --time-limit 1 --set training_config.max_steps=6
says "done: step 6"
[ "$(hash_of)" = "$whole" ] || complain "other weights than those of a run without limits"

# The end is reached, or passed.
ends 0 --config run.yaml --out run --resume --set training_config.max_steps=6
says "nothing is left to train: the run has 6 steps"
! grep -q warning "$said" || complain "a warning"
ends 0 --config run.yaml --out run --resume
says "nothing is left to train: the run has 3 steps"
says "run.yaml:1:95: warning: the checkpoint is after step 6, behind the run's last step, 3"
[ "$(hash_of)" = "$whole" ] || complain "the weights have changed"

# A run that was killed between its last checkpoint and what follows the last step: the next start makes that up, once.
evaluated=(--config run.yaml --out evaluated --set training_config.eval_every=2 --set training_config.sample_tokens=4 --set device_config={})
evals() { grep -oE '"event":"(eval|sample)","step":[0-9]+,("loss":[0-9.]+|"text":.*)' evaluated/metrics.jsonl; }
ends 0 "${evaluated[@]}"
want=$(evals)
[ "$(grep -c '^"event":"[es]' <<< "$want")" = 3 ] || complain "not two evaluations and a sample: $want"
for cut in '"event":"(eval|sample)","step":3,|"event":"end"' nothing; do
  sed -i -E "/$cut/d" evaluated/metrics.jsonl
  ends 0 "${evaluated[@]}" --resume
  says "nothing is left to train: the run has 3 steps"
  [ "$(evals)" = "$want" ] || complain "after a cut at $cut: $(evals), not $want"
done

# Default units whose order no other mesh has: the run goes on where that order is, and nowhere else.
while read -r dp microbatches zero own; do
  mesh=(--set "mesh={axes: [dp], shape: [$dp]}" --set pipeline.microbatches=$microbatches --set zero.stage=$zero
    --set device_config={} --set numerics.units={} --set training_config.batch_size=12)
  rm -rf order again other
  ends 0 --config run.yaml "${mesh[@]}" --out order --set checkpoint.every=1
  want=$(hash_of)
  [ "$(grep -c "in this mesh's own order" "$said")" = $own ] || complain "dp $dp, $microbatches microbatches, ZeRO $zero: the recipe's line"
  ends 0 --config run.yaml "${mesh[@]}" --out again --resume order/checkpoints/step-00000001
  [ "$(hash_of)" = "$want" ] || complain "dp $dp, $microbatches microbatches, ZeRO $zero: other weights after a resume"
  ends $((2 * own)) --config run.yaml --out other --resume order/checkpoints/step-00000001 --set device_config={} \
    --set numerics.units={} --set training_config.batch_size=12 --set pipeline.microbatches=1
  if [ $own = 1 ]; then says "'numerics.units.order' is not there in this run, and $dp ranks of dp, $microbatches microbatches"
  else [ "$(hash_of)" = "$want" ] || complain "dp $dp, $microbatches microbatches, ZeRO $zero: other weights on one rank"; fi
done <<'ORDERS'
2 3 0 0
2 3 1 0
2 3 2 1
2 3 3 1
3 2 0 1
3 2 3 0
6 2 1 1
ORDERS

# Lists are of a run's folder, or of its checkpoints'.
ends 0 checkpoint ls run
says "run/checkpoints/step-00000006"
cp "$said" both
ends 0 checkpoint ls run/checkpoints
cmp -s "$said" both || complain "another list"
ends 0 checkpoint ls run/checkpoints/step-00000006
[ "$(grep -c 'run/checkpoints/step-00000006$' "$said")" = 1 ] && [ "$(wc -l < "$said")" = 2 ] || complain "not that one alone"
mkdir nothing
ends 2 checkpoint ls nothing
says "there is no checkpoint in 'nothing'"

# Weights are used on any mesh, whatever one they were trained on.
ends 0 evaluate --checkpoint run --data text.txt
loss=$(grep '^loss' "$said")
ends 0 generate --checkpoint run --prompt hello --max-new-tokens 3
sed 's/prompt:.*//' "$said" > text
while IFS='|' read -r same mesh; do
  ends 0 evaluate --checkpoint run --data text.txt --set "$mesh"
  [ "$(grep '^loss' "$said")" = "$loss" ] || complain "$mesh: another loss than $loss"
  [ "$same" = "$(grep -ac 'last bits' "$said")" ] || complain "$mesh: the note"
  ends 0 generate --checkpoint run --prompt hello --max-new-tokens 3 --set "$mesh"
  grep -av '^note' "$said" | sed 's/prompt:.*//' | cmp -s - text || complain "$mesh: another text"
done <<'MESHES'
0|mesh={axes: [tp], shape: [2]}
1|mesh={axes: [tp], shape: [4]}
0|mesh={axes: [dp], shape: [2]}
0|mesh={axes: [dp], shape: [8]}
0|mesh={axes: [pp], shape: [2]}
1|mesh={axes: [cp], shape: [2]}
0|mesh={axes: [pp, tp], shape: [2, 2]}
0|device_config.mesh_shape=[1, 2]
0|device_config={enable_tp: true, mesh_shape: [2]}
MESHES
ends 2 evaluate --checkpoint run --data text.txt --set 'mesh={axes: [tp], shape: [4]}' --set numerics.units.tp=2
says "2 tp units do not fit tp = 4"

# Weights that a model would leave out are no weights of it.
for words in "evaluate --checkpoint run --data text.txt" "generate --checkpoint run --prompt hello" \
  "--config run.yaml --set training_config.model_path=run"; do
  # shellcheck disable=SC2086 # words
  ends 2 $words --set transformer_config.num_blocks=1
  says "the checkpoint has a tensor 'block.1.attn.wq', which this run has not"
  ! grep -q "block.1.attn.wq\.m" "$said" || complain "an optimizer's state is missed"
done

# A model that comes back without a tokenizer does not take its characters from the text that it is evaluated on.
ends 0 export run --out hf
says "'hf' has no tokenizer.json: it is a model of token numbers, not of texts"
ends 0 import hf --out imported
says "'imported' has no tokenizer.json: it is a model of token numbers, not of texts"
ends 2 evaluate --checkpoint imported --data text.txt
says "the checkpoint has no tokenizer, and 'text.txt' is a text"
ends 0 evaluate --checkpoint imported --data text.txt --set training_config.tokenizer_type=byte
[ "$(grep '^loss' "$said")" = "$loss" ] || complain "another loss than $loss"

# A model of rows has no tokenizer to miss.
for n in 1 2 3 4 5 6 7 8; do echo "0.$n,0.$((9 - n)),0.$((n * 3 % 10))"; done > rows.csv
cat > rows.yaml <<'ROWS'
training_config: {seed: 1, data_path: rows.csv, batch_size: 4, max_steps: 1, eval_every: 0}
inputs: {features: {shape: [batch, 2], dtype: f32}, values: {shape: [batch, 1], dtype: f32}}
parameters: {w: {shape: [1, 2], init: normal(0.2)}}
graph:
- y: linear(features, w)
- loss: mse(y, values)
outputs: [loss]
ROWS
ends 0 --config rows.yaml --out rows
for words in "evaluate --checkpoint rows --data rows.csv" "generate --checkpoint rows --prompt hello"; do
  # shellcheck disable=SC2086 # words
  ends 2 $words
  says "error: ${words%% *} is for models of text, and this one is none"
done

# Attention to what follows: any number of positions, also where sequence units do not divide it.
cat > graph.yaml <<'GRAPH'
sizes: {vocab_size: {default: 256}, max_sequence_length: 16}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  e: {shape: [256, 4], init: normal(1)}
graph:
- h: embedding(tokens, e)
- x: attention(h, h, h, head_dim=2, causal=0)
- logits: linear(x, e)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss, logits: logits}
GRAPH
sed 's/^transformer_config.*/transformer_config: {graph: graph.yaml}/; /max_sequence_length/d; /device_config/d
  s/units: {tp: 2}/units: {sequence: 4}/' run.yaml > whole.yaml
ends 0 --config whole.yaml --out noncausal
for new in 4 5 6 7; do
  ends 0 generate --checkpoint noncausal --prompt abcd --max-new-tokens $new --temperature 0 --quiet
  [ $new = 4 ] || [ "$(head -c $((new + 3)) "$said" | od -c)" = "$(head -c $((new + 3)) before | od -c)" ] ||
    complain "$new new tokens: the first of them are others than of $((new - 1))"
  cp "$said" before
done

# What a run has written down takes options as its own file does, whatever it says in other words.
resolved() { # SOURCE SET: the configuration that it makes, without where its values come from
  "$program" check --config "$1" --set "$2" --print-config 2>&1 | sed 's/ *#.*//'
}
ends 0 --config run.yaml --out plain --quiet
while read -r set; do
  checks=$((checks + 1))
  resolved run.yaml "$set" > want
  resolved plain/config.yaml "$set" > "$said"
  grep -q error want && complain "$set: $(cat want)"
  cmp -s want "$said" || { diff want "$said" > difference; mv difference "$said"; complain "$set: from plain/config.yaml"; }
done <<'SETS'
schedule.recompute=full
schedule.recompute=selective
training_config.runner=memory_efficient
training_config.gradient_checkpointing=true
transformer_config.runner_type=memory_efficient
training_config.precision=bf16
training_config.mixed_precision=true
training_config.gradient_clip_norm=0.5
training_config.use_clip_grad_norm=true
training_config.total_steps=9
training_config.logging_interval=3
training_config.checkpoint_every=2
training_config.warmup_steps=1
training_config.scheduler_type=linear
training_config.data_sources=[text.txt]
device_config={enable_fsdp: true, mesh_shape: [2]}
zero.stage=2
SETS

end_of train.resume_limits 80
