#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that has no memory left ends with 1 and says so, at whichever allocation: what it has saved is whole, and a
# run resumes from it. Of a job of several the others end, too.
# usage: test_no_memory.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
build=$(realpath "$(dirname "$1")")
. tests/commands.sh "$1" "$2"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 4,
  eval_every: 2, sample_tokens: 4, log_every: 1, model_save_interval: 1}
transformer_config: {model_type: gpt2, embedding_dim: 16, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
device_config: {enable_ddp: true, mesh_shape: [2, 1]}
numerics: {threads: 1}
RUN
hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }
ends 0 --config run.yaml --out whole
whole=$(hash_of)

# lacks N WORDS...: what it does where its N-th allocation fails; a few are of things that it can do without
lacking=0
lacks() {
  local code=0
  TESSERA_FAULT=ENOMEM@$1 timeout 60 "$faulty" "${@:2}" > "$said" 2>&1 </dev/null || code=$?
  [ "$code" != 0 ] || return
  lacking=$((lacking + 1))
  checks=$((checks + 1))
  [ "$code" = 1 ] || complain "allocation $1 of ${*:2}: exit code $code"
  grep -Eq "out of memory|cannot allocate" "$said" || complain "allocation $1 of ${*:2}: not a word"
}
# each allocation of the beginning, and some of the rest
for n in $(seq 1 30) $(seq 31 13 400) $(seq 400 97 4000); do
  rm -rf run
  lacks "$n" --config run.yaml --out run --quiet
  for checkpoint in run/checkpoints/step-????????; do # one that is being written is called otherwise
    [ ! -d "$checkpoint" ] || "$program" checkpoint verify "$checkpoint" > "$said" 2>&1 || complain "allocation $n: $checkpoint"
  done
done
[ "$lacking" -gt 40 ] || complain "only $lacking allocations failed a run"
ends 0 --config run.yaml --out run --resume
[ "$(hash_of)" = "$whole" ] || complain "other weights behind a lack of memory"
for n in 1 5 20 60; do
  lacks "$n" check --config run.yaml
  lacks "$n" evaluate --checkpoint whole/checkpoints
  lacks "$n" checkpoint reshard whole/checkpoints --out "shards$n" --shards 2
  [ ! -e "shards$n" ] || complain "allocation $n: a folder is left"
done

# the other one of two processes does not wait for ever
for library in openmpi mpich; do
  [ -f "$build/libtessera-$library.so" ] && command -v mpirun.$library > /dev/null || continue
  options=()
  [ $library = mpich ] || options=(--oversubscribe)
  for n in 100 200; do
    code=0
    checks=$((checks + 1))
    timeout 60 mpirun.$library "${options[@]}" -n 1 "$faulty" --config run.yaml : -n 1 env TESSERA_FAULT=ENOMEM@$n "$faulty" \
      --config run.yaml > "$said" 2>&1 </dev/null || code=$?
    [ "$code" != 0 ] && [ "$code" != 124 ] || complain "$library, allocation $n: exit code $code"
    says "error: process 1: out of memory: "
  done
done

end_of train.no_memory 70
