#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --fork: a run that begins with another one's checkpoint is the run that made all steps by itself, where both have the
# same learning rates up to there, for every schedule; it is refused where anything before the checkpoint differs.
# usage: test_fork.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

write_text train.txt
config() { # SCHEDULE
  cat <<RUN
training_config: {seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 2, sequence_length: 8, max_steps: 10,
  num_epochs: 1000, eval_every: 3, validation_batch_size: 2, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
scheduler_config: {$1}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 2}}
RUN
}
ending() { sed -n 's/^done: \(step [0-9]*, loss [0-9.]*, weights sha256 [0-9a-f]*, recipe [0-9a-f]*\)$/\1/p' "$said"; }
# same SETS...: forks from $from, and by itself
same() {
  local sets=() word
  for word in "$@"; do sets+=(--set "$word"); done
  rm -rf alone forked
  ends 0 --config run.yaml --out alone "${sets[@]}"
  local want
  want=$(ending)
  ends 0 --config run.yaml --out forked --fork "$from" "${sets[@]}"
  says "forks from '"
  [ -n "$want" ] && [ "$(ending)" = "$want" ] || complain "$*: another end than $want"
  ends 0 lock diff alone forked
  says "recipe: the same"
  numbers alone > alone.numbers
  numbers forked > forked.numbers
  cmp alone.numbers forked.numbers > "$said" || complain "$*: other metrics"
}
# numbers OUT: its metrics, but for how fast it was
numbers() { sed 's/,"tokens_per_s":[^,]*,"ms":[0-9.e+-]*//; s/,"saving":true//' "$1/metrics.jsonl"; }
# refused KEY SET: the fork differs before the checkpoint
refused() {
  ends 2 --config run.yaml --out none --fork "$from" --set "$2"
  says "'$1' is "
  says "--fork begins a run that differs from the other one in nothing before the checkpoint"
  [ ! -e none ] || complain "$2: the folder was made"
}

from=first
config "type: wsd, warmup_steps: 2, hold_steps: 4" > run.yaml
ends 0 --config run.yaml --out first --stop-at 6
same scheduler_config.hold_steps=4 # the run itself
same scheduler_config.hold_steps=6
same scheduler_config.hold_steps=5 scheduler_config.min_lr=0.001
same training_config.max_steps=14
same scheduler_config.hold_steps=3 # the rate of its last step is the first one of the decay, which is the top
same scheduler_config.type=constant
refused scheduler_config.hold_steps scheduler_config.hold_steps=2
refused scheduler_config.warmup_steps scheduler_config.warmup_steps=1
refused training_config.optimizer.lr training_config.optimizer.lr=0.02
refused scheduler_config.max_lr scheduler_config.max_lr=0.02
refused scheduler_config.type scheduler_config.type=cosine
refused training_config.seed training_config.seed=2
refused training_config.optimizer.weight_decay training_config.optimizer.weight_decay=0.5
refused transformer_config.num_blocks transformer_config.num_blocks=2
refused samples_per_step training_config.gradient_accumulation_steps=2
# a rate that does not agree is not taken from the checkpoint, where the configuration leaves it out
config "type: wsd" > run.yaml
refused scheduler_config.hold_steps training_config.max_steps=10

# a fork goes on from its own checkpoints, and is a run to fork from
config "type: wsd, warmup_steps: 2, hold_steps: 4" > run.yaml
ends 0 --config run.yaml --out parts --fork first --set scheduler_config.hold_steps=6 --stop-at 8
ends 0 --config run.yaml --out parts --resume --set scheduler_config.hold_steps=6
ends 0 lock diff parts alone
[ "$(numbers parts | grep -c '"event":"step"')" = 10 ] || complain "the metrics of a fork in two parts: $(numbers parts)"
ends 0 verify parts
says "verified: steps 7 to 10"
from=parts/checkpoints/step-00000008
same scheduler_config.hold_steps=7

later=scheduler_config.hold_steps=6
from=first
same "$later"
# the metrics before the fork are those of the checkpoint's run, or are missing with a note
steps() { numbers "$1" | sed -n 's/^{"event":"\(step\|eval\)","step":\([0-9]*\),.*/\1 \2/p' | tr '\n' ' '; }
own="step 7 step 8 step 9 eval 9 step 10 eval 10 "
behind="step 1 step 2 step 3 step 4 step 5 step 6 $own"
# has STEPS WORDS...: a fork's metrics
has() {
  local want=$1
  shift
  rm -rf forked
  ends 0 --config run.yaml --out forked --fork "$@"
  [ "$(steps forked)" = "$want" ] || complain "the metrics of the fork $* have $(steps forked)"
}
cp -r first/checkpoints/step-00000006 lonely
has "$own" lonely
says "note: the metrics begin behind step 6: '"
cp -r first moved
has "step 1 step 2 step 3 eval 3 step 4 step 5 step 6 eval 6 $own" moved
has "$behind" moved --set training_config.validation_batch_size=1
sed -i 's/"recipe":"[0-9a-f]*"/"recipe":"00"/' moved/metrics.jsonl
has "$own" moved
says "moved/metrics.jsonl': it has no such step of that run"
sed '/"step":6,/d' first/metrics.jsonl > moved/metrics.jsonl
has "$own" moved
says "moved/metrics.jsonl': it has no such step of that run"
rm moved/metrics.jsonl && mkfifo moved/metrics.jsonl
has "$own" moved
says "moved/metrics.jsonl': it is no file"
rm -rf forked
ends 0 --config run.yaml --fork first --metrics forked.jsonl
[ "$(grep -c '"event":"step"' forked.jsonl)" = 10 ] || complain "--metrics of a fork"

# killed while they are added, and begun again or resumed: each line is there once
numbers alone | grep -v '"event":"\(start\|end\)"' > alone.numbers
for kill in 3 7 9 11 13 15 25; do
  rm -rf forked
  with_fault kill@$kill ends 137 --config run.yaml --out forked --fork first --set "$later"
  if ls forked/checkpoints/step-*[0-9] > "$said" 2>&1; then ends 0 --config run.yaml --out forked --resume --set "$later"
  else ends 0 --config run.yaml --out forked --fork first --overwrite --set "$later"; fi
  numbers forked | grep -v '"event":"\(start\|end\)"' > forked.numbers
  cmp alone.numbers forked.numbers > "$said" || complain "other metrics of a fork that was killed at $kill"
done

# its first steps twice
ends 0 --config run.yaml --fork first --check-determinism 2 --set "$later"
says "determinism: 2 steps twice"

# a fork in the folder that it forks from is not repeated from the other run's checkpoint
ends 0 --config run.yaml --out both --stop-at 6
ends 0 --config run.yaml --out both --fork both --set scheduler_config.hold_steps=6
ends 0 verify both
says "verified: steps 7 to 10 of 'both/run.lock' have the same losses and weights; repeated from the begin"

# a checkpoint behind the last step is none of the run's, also at a rate that never changes
config "type: constant" > run.yaml
ends 0 --config run.yaml --out long --stop-at 8
ends 2 --config run.yaml --out none --fork long --set training_config.max_steps=7
says "--set:1:27: error: 'long/checkpoints/step-00000008' is after step 8, and the run that forks from it has 7"
[ ! -e none ] || complain "a fork behind the end has made its folder"
from=long
same training_config.max_steps=8 # no step is left
ends 0 verify forked
says "verified: the weights after step 8, at which the run of 'forked/run.lock' begins, are the same; repeated from the begin, 8 steps, on 1 rank"
ends 0 lock diff alone forked
says "steps: the weights after step 8 are equal"
ends 2 verify forked --steps 8-8
says "forked/run.lock: error: the run has made no step of its own"
tr 'aeiou' 'eioua' < train.txt > train.new && cp train.txt train.old && cp train.new train.txt
ends 1 verify forked
says "step 8 is the first that differs: the weights"
cp train.old train.txt

# steps at two instruction-set levels are those of no run
mapfile -t levels < <("$program" kernels | sed -n '/^levels:/,/^[^ l]/{/not on this machine/d; s/^  \([^ ]*\).*/\1/p}')
if [ ${#levels[@]} -ge 2 ]; then
  ends 0 --config run.yaml --out mixed --set numerics.isa="${levels[0]}" --stop-at 2
  ends 0 --config run.yaml --out mixed --set numerics.isa="${levels[1]}" --stop-at 4 --resume
  ends 2 --config run.yaml --out none --fork mixed --set numerics.isa="${levels[1]}"
  says "'mixed/checkpoints/step-00000004' has the bits of ${levels[0]} to step 2: no run from the first step on has them"
fi

# what a fork would have begun with is what its configuration names
config "type: constant" > run.yaml
for seed in 1 2; do ends 0 --config run.yaml --out weights$seed --set training_config.seed=$seed --stop-at 1; done
ends 0 --config run.yaml --out tuned --set training_config.model_path=weights1 --stop-at 4
from=tuned
same training_config.model_path=weights1 training_config.max_steps=7
refused initial_weights training_config.model_path=weights2
refused initial_weights "training_config.model_path=''"

# every step of a schedule that follows the end is another one
config "type: linear, warmup_steps: 3" > run.yaml
ends 0 --config run.yaml --out line --stop-at 4
from=line
same training_config.max_steps=10
same training_config.max_steps=12 # the warm-up is the same, and the rate behind it the top
ends 0 --config run.yaml --out line2 --stop-at 5
from=line2
refused training_config.max_steps training_config.max_steps=12
config "type: constant" > run.yaml
ends 0 --config run.yaml --out flat --stop-at 4
from=flat
same training_config.max_steps=12
refused scheduler_config.type scheduler_config.type=linear
# of another folder whose results are another run's
ends 2 --config run.yaml --out alone --fork flat
says "'alone/checkpoints' has the checkpoints of a run, up to step 12"
ends 2 --config run.yaml --fork flat --resume
says "--resume continues a run, --fork begins one with another's state"
ends 2 --config run.yaml --fork nothing
says "there is no checkpoint 'nothing'"
end_of train.fork 95
