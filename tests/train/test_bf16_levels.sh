#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whole trainings in bf16 at the levels that have an instruction for bf16: the same weights on every mesh, number of
# threads and after a resume, other weights than at the level below; what a run chooses without numerics.isa.
# usage: test_bf16_levels.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"
unset TESSERA_ISA

mapfile -t levels < <("$program" kernels | sed -n '/not on this machine/d; s/^  \([^ ]*-bf16\).*/\1/p')
if [ ${#levels[@]} = 0 ]; then
  echo "train.bf16_levels: skipped: this machine has no instruction for bf16"
  exit 77
fi

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 40, max_steps: 3,
  eval_every: 0, sample_tokens: 0, precision: bf16}
transformer_config: {model_type: llama, embedding_dim: 64, num_blocks: 2, num_heads: 4, num_groups: 2, intermediate_dim: 96,
  max_sequence_length: 40, vocab_size: 256}
numerics: {threads: 1, units: {batch: 4, sequence: 2, tp: 2}}
RUN
weights() {
  ends 0 --config run.yaml "$@"
  sha=$(grep -o 'weights sha256 [0-9a-f]*' "$said") || complain "no weights: $*"
}
weights --set numerics.isa=x86-64-v4
below=$sha
for level in "${levels[@]}"; do
  isa=(--set "numerics.isa=$level")
  weights "${isa[@]}"
  says "cpu $level, 1 thread"
  alone=$sha
  [ "$alone" != "$below" ] || complain "$level: the bits of the level below"
  for mesh in '{axes: [dp, tp], shape: [2, 2]}' '{axes: [pp, tp], shape: [2, 2]}' '{axes: [cp, dp], shape: [2, 4]}'; do
    weights "${isa[@]}" --set numerics.threads=2 --set "mesh=$mesh"
    [ "$sha" = "$alone" ] || complain "$level: other weights on $mesh"
  done
  weights "${isa[@]}" --set training_config.max_steps=2 --out "$level"
  weights --out "$level" --resume --set 'mesh={axes: [tp], shape: [2]}' # at the checkpoint's level
  [ "$sha" = "$alone" ] || complain "$level: other weights after a resume"
done

# Without a level bf16 has tiles where there are any, and vdpbf16ps where it has twice the rate of f32; f32 stays at the
# level whose recipe other machines have.
chosen=x86-64-v4
if [ "${levels[0]}" = amx-bf16 ]; then chosen=amx-bf16; elif grep -q AuthenticAMD /proc/cpuinfo; then chosen=v4-bf16; fi
ends 0 --config run.yaml
says "cpu $chosen, 1 thread"
ends 0 --config run.yaml --set training_config.precision=f32
says "cpu x86-64-v4, 1 thread"

end_of train.bf16_levels 9
