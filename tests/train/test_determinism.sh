#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --check-determinism: two runs that agree, and two of which one adds in another order, in PROGRAM-unordered
# (unordered_sum.c): the collective is named as TESSERA_COMM_TRACE names it.
# usage: test_determinism.sh PROGRAM PROGRAM-unordered
set -uo pipefail
unordered=$(realpath "$2")
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 8, max_steps: 4,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
mesh: {axes: [dp], shape: [4]}
numerics: {threads: 1}
RUN

# ---- they agree, and leave nothing ----
files=$(ls)
ends 0 --config run.yaml --check-determinism 3
says "determinism: 3 steps twice, with 2 threads and with 1 thread: the results of "
[ "$(grep -Ec 'results of [1-9][0-9,]* collectives' "$said")" = 1 ] || complain "no collective was compared"
[ "$(ls)" = "$files" ] || complain "it leaves files"
sha=$(grep -o 'sha256 [0-9a-f]*' "$said")
ends 0 --config run.yaml --set training_config.max_steps=3
says "weights $sha" # the same steps as the run's
ends 0 --config run.yaml --set numerics.threads=3 --check-determinism 9
says "determinism: 4 steps twice, with 3 threads and with 1 thread: "
says "run.yaml:1:117: note: 4 steps are left of the run's 4: 4 of 9 were compared"
ends 0 --config run.yaml --set training_config.max_steps=2 --out run
files=$(find . -type f | sort | xargs sha256sum)
ends 0 --config run.yaml --out run --resume --check-determinism 1
says "determinism: 1 step twice"
says "$sha" # from step 2 to 3
! grep -q "were compared" "$said" || complain "says that steps are missing"
ends 0 --config run.yaml --out run --resume --check-determinism 3
says "determinism: 2 steps twice"
says "note: 2 steps are left of the run's 4: 2 of 3 were compared"
[ "$(find . -type f | sort | xargs sha256sum)" = "$files" ] || complain "it changes files of --out: $(find . -type f)"
ends 0 --config run.yaml --out new --metrics new.jsonl --check-determinism 2
[ ! -e new ] && [ ! -e new.jsonl ] || complain "it leaves what --out or --metrics names"
ends 2 --config run.yaml --out run --resume --check-determinism 3 --set training_config.max_steps=2
says "error: no step is left of the run's 2: there is nothing to compare"
! grep -q "are equal" "$said" || complain "compares nothing and says that it is equal"
ends 2 --config run.yaml --check-determinism 0
says "--check-determinism"

# ---- the K-th sum adds in another order: it is the first one that differs ----
TESSERA_COMM_TRACE=1 "$program" --config run.yaml --quiet 2> trace
sums=$(grep -c 'rank=0 .*algo=' trace)
[ "$sums" -ge 8 ] || complain "the trace has $sums sums"
mapfile -t gradients < <(grep 'rank=0 .*algo=' trace | grep -n ' bytes=[0-9]\{3,\} .* what=d\.' | cut -d: -f1)
count=${#gradients[@]}
for number in "${gradients[0]}" "${gradients[count / 2]}" "${gradients[count - 1]}"; do
  checks=$((checks + 1))
  TESSERA_UNORDERED=$number "$unordered" --config run.yaml --check-determinism 4 > out 2> errors
  [ $? = 1 ] || complain "sum $number: not 1"
  read -r step op name <<< "$(grep 'rank=0 .*algo=' trace | sed -n "${number}p" |
    sed 's/comm step=\([0-9]*\) .* op=\([a-z_]*\) .* what=\(.*\)/\1 \2 \3/')"
  grep -Eq "error: step $step, microbatch 0, rank [0-3]: $op '$name' over dp differs between 2 threads and 1 thread; it is \
the first of [0-9,]* collectives that does" errors || complain "sum $number, $op $name of step $step: $(cat errors)"
done
# The second run's.
TESSERA_UNORDERED=$((sums + gradients[0])) "$unordered" --config run.yaml --check-determinism 4 > out 2> errors
[ $? = 1 ] && grep -q 'error: step 1, microbatch 0' errors || complain "the second run: $(cat errors)"

# ---- and with one thread, which is what a job of several processes has ----
for size in 16 128; do
  ends 0 --config run.yaml --set 'mesh={axes: [tp, pp], shape: [2, 2]}' --set pipeline.microbatches=2 \
    --set transformer_config.embedding_dim=$size --set transformer_config.num_blocks=2 --check-determinism 2
done
end_of train.determinism 14
