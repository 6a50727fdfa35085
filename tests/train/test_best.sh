#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The best checkpoints of a run and its early stop: which are kept, what `best` names, and that a run that was
# interrupted, or has another mesh, ends at the same step with the same weights.
# usage: test_best.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text train.txt
for i in $(seq 60); do printf 'Zeile %d im Text; ' $((i * 104729 % 1000)); done > other.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: train.txt, validation_path: other.txt, tokenizer_type: byte, batch_size: 4,
  sequence_length: 16, max_steps: 60, eval_every: 2, validation_batch_size: 4, sample_tokens: 0, model_save_interval: 5,
  early_stop_patience: 3, optimizer: {type: AdamW, lr: 0.02}}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_blocks: 1,
  max_sequence_length: 16}
checkpoint: {keep_best: 2, keep_last: 1}
numerics: {threads: 1, units: {batch: 4}}
RUN

ending() { sed -n 's/^done: \(step [0-9]*\), .*sha256 \([0-9a-f]*\),.*/\1 \2/p' "$said"; }
# is_kept FOLDER STEPS...: the checkpoints that it has
is_kept() {
  local got
  got=$(cd "$1" && ls | sed -n 's/^step-0*//p' | xargs)
  [ "$got" = "${*:2}" ] || complain "$1 has $got, not ${*:2}"
}
# The steps of metrics by rising loss; all evaluations of FILE
by_loss() {
  sed -n 's/.*"event":"eval","step":\([0-9]*\),"loss":\([^,]*\),.*/\2 \1/p' "$1" | sort -g | cut -d' ' -f2 | head -2 | sort -n | xargs
}

ends 0 --config run.yaml --out whole
want=$(ending)
says "early stop: the validation loss has not improved since step "
last=$(sed -n 's/^step \([0-9]*\) .*/\1/p' <<< "$want")
[ -n "$last" ] && [ "$last" -lt 60 ] || complain "the run ends at '$last', not early"
# the three evaluations after the best one are higher: the run ends with the last of them
best=$(by_loss whole/metrics.jsonl)
first=$(sed -n 's/.*"event":"eval","step":\([0-9]*\),"loss":\([^,]*\),.*/\2 \1/p' whole/metrics.jsonl | sort -g | head -1 | cut -d' ' -f2)
[ "$last" = $((first + 6)) ] || complain "the best is of step $first, and the run ends after $last"
grep -q '"event":"end".*"reason":"early_stop"' whole/metrics.jsonl || complain "metrics do not name the reason"
is_kept whole/checkpoints $(echo "$best $last" | xargs -n1 | sort -nu | xargs)
[ "$(cat whole/checkpoints/best)" = "step-$(printf %08d "$first")" ] || complain "best names another one"

# as a checkpoint, of the run's folder and of the folder of checkpoints
for path in whole/best whole/checkpoints/best; do
  ends 0 evaluate --checkpoint $path
  says "checkpoint: whole/checkpoints/step-$(printf %08d "$first"), step $first"
done
ends 0 export whole/best --out exported
ends 0 generate --checkpoint whole/best --prompt word --max-new-tokens 3
ends 0 checkpoint show whole/best
says "best validation losses: step $first, "

# interrupted anywhere: the same end
for steps in 1 4 "$first" $((first + 1)) $((last - 1)); do
  ends 0 --config run.yaml --out "to_$steps" --set training_config.max_steps="$steps"
  ends 0 --config run.yaml --out "to_$steps" --resume
  [ "$(ending)" = "$want" ] || complain "interrupted after $steps: another end than $want"
  [ "$(cat "to_$steps/checkpoints/best")" = "$(cat whole/checkpoints/best)" ] || complain "$steps: another best one"
done

# on another mesh
ends 0 --config run.yaml --out on_4 --set mesh='{axes: [dp, tp], shape: [2, 2]}' --set numerics.units.tp=2
mesh=$(ending)
ends 0 --config run.yaml --out on_1 --set numerics.units.tp=2
[ -n "$mesh" ] && [ "$(ending)" = "$mesh" ] || complain "dp=2 tp=2 ends otherwise: $mesh"

# what has ended stays so, until its patience grows
ends 0 --config run.yaml --out whole --resume
says "nothing is left to train: the run stopped early, after step $last"
[ "$(ending)" = "$want" ] || complain "resumed at its end: another end than $want"
ends 0 --config run.yaml --out whole --resume --set training_config.early_stop_patience=5
says "early stop: "
ends 0 --config run.yaml --out whole --overwrite --set checkpoint.keep_best=0 --set training_config.max_steps=4
[ ! -e whole/checkpoints/best ] || complain "--overwrite leaves the name of the best one"

# a delta that no improvement has
ends 0 --config run.yaml --out delta --set training_config.early_stop_min_delta=100
says "early stop: the validation loss has not improved since step 2 "
case $(ending) in "step 8 "*) ;; *) complain "min_delta: ends at $(ending)" ;; esac

# a name without a checkpoint
mkdir -p lost && echo step-00000003 > lost/best
ends 2 evaluate --checkpoint lost/best
says "'lost/best' names 'lost/step-00000003', which does not exist"
echo nonsense > lost/best
ends 2 evaluate --checkpoint lost/best
says "'lost/best' does not name a checkpoint: 'nonsense' is no step-…"

# keys without effect
ends 0 check --config run.yaml --set training_config.eval_every=0
says "'keep_best' has no effect: there is no evaluation"
says "'early_stop_patience' has no effect: there is no evaluation"
ends 0 check --config run.yaml --set training_config.early_stop_patience=0 --set training_config.early_stop_min_delta=1
says "has no effect: early_stop_patience is 0"
sed 's/model_save_interval: 5,//' run.yaml > kept_nowhere.yaml
ends 0 --config kept_nowhere.yaml --set training_config.max_steps=2
says "checkpoint.keep_best has no effect: no checkpoints are kept"

end_of train.best 27
