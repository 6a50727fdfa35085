#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The text that a run samples at its end: the training is on the disk before it, a time limit ends it, and no number of
# tokens ends the program.
# usage: test_last_sample.sh PROGRAM [SANITIZER]
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 3, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte, log_every: 1}
transformer_config: {model_type: gpt2, embedding_dim: 16, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1}
RUN
hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }
most=2147483647 # tokens of a text
sample=training_config.sample_tokens

ends 0 --config run.yaml --out whole
whole=$(hash_of)
[ ${#whole} = 64 ] || complain "no hash of a whole run"

# numbers that no text has, where they stand
for tokens in 2147483648 4611686018427387904 9223372036854775807; do
  for command in check train plan; do
    ends 2 $command --config run.yaml --set $sample=$tokens
    says "--set:1:31: error: 'sample_tokens' must be at least 0 and at most $most, found the integer $tokens"
  done
  ends 2 generate --checkpoint whole --prompt a --max-new-tokens $tokens
  says "--max-new-tokens:1:1: error: 'max_new_tokens' must be at least 0 and at most $most, found the integer $tokens"
done

# the most: a text takes memory as it grows, and a time limit ends it
ulimit_kb=$((4 << 20))
[ "${2-none}" = none ] || ulimit_kb=unlimited # the address sanitizer itself maps terabytes
code=0
timeout 60 bash -c "ulimit -v $ulimit_kb; exec \"\$@\"" - "$program" --config run.yaml --out limited --set $sample=$most \
  --time-limit 3 > "$said" 2>&1 < /dev/null || code=$?
checks=$((checks + 1))
[ $code = 0 ] || complain "a sample at the time limit: exit code $code"
grep -qE "^time limit: the sample has [0-9]+ of $most tokens$" "$said" || complain "no word of the limit"
[ "$(hash_of)" = "$whole" ] || complain "a limit in the sample: other weights"
ends 0 checkpoint verify limited/checkpoints/step-00000003

# of a sample between steps: the run ends there, with a checkpoint, and resumes
ends 0 --config run.yaml --out between --set $sample=$most --set training_config.sample_every=2 --time-limit 3
says "time limit: stops after step 2 of 3"
ends 0 --config run.yaml --out between --resume
[ "$(hash_of)" = "$whole" ] || complain "a limit in a sample between steps: other weights"

# killed in the last sample: nothing of the training is lost
"$program" --config run.yaml --out killed --set $sample=$most > "$said" 2>&1 < /dev/null &
pid=$!
for _ in $(seq 300); do [ -e killed/checkpoints/step-00000003 ] && break; sleep 0.1; done
kill -0 $pid 2>/dev/null || complain "the run has ended before its sample was stopped"
kill -KILL $pid
wait $pid 2>/dev/null
ends 0 checkpoint verify killed/checkpoints/step-00000003
ends 0 --config run.yaml --out killed --resume
[ "$(hash_of)" = "$whole" ] || complain "killed in the last sample: other weights"

# a signal ends the sample, not the run's results
"$program" --config run.yaml --out stopped --set $sample=$most > "$said" 2>&1 < /dev/null &
pid=$!
for _ in $(seq 300); do [ -e stopped/checkpoints/step-00000003 ] && break; sleep 0.1; done
kill -TERM $pid
wait $pid
code=$?
checks=$((checks + 1))
[ $code = 0 ] && says "done: step 3" || complain "a signal in the last sample: exit code $code"

# generate, too, takes memory as its text grows
timeout -s INT 3 bash -c "ulimit -v $ulimit_kb; exec \"\$@\"" - "$program" generate --checkpoint whole --prompt a \
  --max-new-tokens $most > "$said" 2>&1 < /dev/null
code=$?
checks=$((checks + 1))
[ $code = 124 ] && ! grep -q "out of memory" "$said" || complain "generate of $most tokens: exit code $code"
[ "$(wc -c < "$said")" -gt 100 ] || complain "generate has drawn nothing"
end_of train.last_sample 20
