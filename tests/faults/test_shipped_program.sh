#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed has no faults: neither the program nor its plugins read the variables of src/base/fault.h and
# file_ops_trace.h. The program of the tests, which does, shows that this test would see them.
# usage: test_shipped_program.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

cat > run.yaml <<'RUN'
training_config: {batch_size: 2, sequence_length: 8, data_path: ""}
transformer_config: {model_type: gpt2, vocab_size: 16, embedding_dim: 16, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
RUN

# names_in FILE: which of the variables it has
names_in() { grep -aoE 'TESSERA_(FAULT|DISK_LOG)' "$1" | sort -u | tr '\n' ' '; }
for file in "$program" "$(dirname "$program")"/libtessera-*.so; do
  [ -e "$file" ] || continue
  checks=$((checks + 1))
  [ -z "$(names_in "$file")" ] || complain "$file reads $(names_in "$file")"
done
checks=$((checks + 1))
[ "$(names_in "$faulty")" = "TESSERA_DISK_LOG TESSERA_FAULT " ] || complain "$faulty reads '$(names_in "$faulty")'"

for fault in ENOMEM@1 EIO-read@1 kill@1- silent@1-; do
  export TESSERA_FAULT=$fault
  ends 0 check --config run.yaml --quiet
done
with_fault ENOMEM@1 ends 1 check --config run.yaml --quiet
says "out of memory"

printf 'a text' > text.txt
export TESSERA_FAULT=EIO@1- TESSERA_DISK_LOG=$PWD/log
ends 0 tokenize text.txt --tokenizer byte --out tokens.bin
[ ! -e log ] || complain "the program records its file operations"
with_fault EIO@1- ends 1 tokenize text.txt --tokenizer byte --out others.bin
says "Input/output error"
with_fault "" ends 0 tokenize text.txt --tokenizer byte --out others.bin
[ -s log ] || complain "the program with faults records nothing"

end_of faults.shipped_program 10
