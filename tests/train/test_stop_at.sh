#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --stop-at: a run that stops after a step and goes on from there is the run that never stopped, with its learning
# rates; what it says, and what it refuses.
# usage: test_stop_at.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text train.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 9,
  eval_every: 3, validation_batch_size: 4, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.02}}
scheduler_config: {type: cosine, warmup_steps: 2}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_blocks: 1,
  max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 4}}
RUN
ending() { sed -n 's/^done: \(step [0-9]*\), .*sha256 \([0-9a-f]*\),.*/\1 \2/p' "$said"; }

ends 0 --config run.yaml --out whole
want=$(ending)
[ -n "$want" ] || complain "the run has no end"
ends 0 --config run.yaml --out parts --stop-at 3
says "--stop-at: stops after step 3 of 9"
says "stopped: step 3, "
grep -q '"event":"end","step":3,.*"reason":"stop_at"' parts/metrics.jsonl || complain "metrics do not name the reason"
[ "$(grep -c '"event":"eval"' parts/metrics.jsonl)" = 1 ] || complain "the evaluation of step 3 is not there once"
[ -d parts/checkpoints/step-00000003 ] || complain "there is no checkpoint of step 3"
for step in 3 2; do # it is there, or behind it
  ends 0 --config run.yaml --out parts --resume --stop-at $step
  says "stopped: step 3, "
done
ends 0 --config run.yaml --out parts --resume --stop-at 8
says "--stop-at: stops after step 8 of 9"
ends 0 --config run.yaml --out parts --resume --stop-at 9
[ "$(ending)" = "$want" ] || complain "another end than $want"
grep -q '"event":"end","step":9,.*"reason":"max_steps"' parts/metrics.jsonl || complain "the last step is another end"
ends 0 --config run.yaml --out far --stop-at 1000
[ "$(ending)" = "$want" ] || complain "a later step than the last one: another end than $want"

ends 2 --config run.yaml --stop-at 0
says "--stop-at: '0' is no integer from 1"
ends 2 check --config run.yaml --stop-at 3
says "--stop-at belongs to the command 'train'"
end_of train.stop_at 9
