#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A file that a command has not written itself stays: where what is there cannot be told from other data it is replaced
# by --overwrite alone, and a folder that no run has used is no run's.
# usage: test_foreign_files.sh PROGRAM
set -uo pipefail
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
cat > forward.yaml <<'RUN'
training_config: {seed: 1}
tensors: {x: {shape: [4, 8], dtype: f32, init: normal(1.0)}}
graph: [y: "matmul(x, x, transpose_b=1)"]
outputs: [y]
RUN

picture() { (cd "$1" && find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2); }
# leaves FOLDER TEXT WORDS...: refused with exit code 2, and the folder is as it was
leaves() {
  local before
  before=$(picture "$1")
  ends 2 "${@:3}"
  says "$2"
  [ "$(picture "$1")" = "$before" ] || complain "${*:3}: '$1' has changed"
}

# ---- tokens ----
mkdir other
python3 - <<'PYTHON'
import gzip, pickle, random, struct
random.seed(1)
noise = bytes(random.randrange(256) for _ in range(3000))
files = {
    "random": noise,
    "gzip": gzip.compress(noise),
    "numpy": b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(117) + b"\n" + bytes(16),
    "pickle": pickle.dumps({"weights": list(range(500))}),
    "program": b"MZ" + noise,
    "utf16": "some words of a text".encode("utf-16"),
    "tokens": struct.pack("<500H", *range(500)),
    # the number that llm.c's files begin with, and not the tokens that it counts
    "llmc": struct.pack("<3i", 20240520, 1, 70000) + noise}
for name, data in files.items():
    open(f"other/{name}.bin", "wb").write(data + bytes(len(data) % 2))
PYTHON
for name in random gzip numpy pickle program utf16 tokens llmc; do
  raw="'other/$name.bin' is there, and tokens without a header cannot be told from other data: it is not overwritten"
  leaves other "$raw" tokenize text.txt --format nanogpt --out other/$name.bin
  says "--overwrite replaces it"
  leaves other "$raw" tokenize text.txt --format megatron --out other/$name
  leaves other "'other/$name.bin' is there and is no file of tokens: it is not overwritten" tokenize text.txt --out other/$name.bin
done
# what was written before, and can be told, is replaced; a pair whose halves do not agree cannot
for i in 1 2; do
  ends 0 tokenize text.txt --out mine.bin --quiet
  ends 0 tokenize text.txt --out pair --format megatron --quiet
  ends 0 tokenize text.txt --out wide --format megatron --quiet
done
printf xx >> wide.bin
leaves . "'wide.bin' is there, and tokens without a header" tokenize text.txt --out wide --format megatron
cp other/tokens.bin mine.bin
leaves . "'mine.bin' is there and is no file of tokens" tokenize text.txt --out mine.bin
# --overwrite says that it is meant, of what is no input and no link
for format in llmc nanogpt megatron; do
  cp other/random.bin mine.bin
  ends 0 tokenize text.txt --out mine.bin --format $format --overwrite --quiet
  cmp -s mine.bin other/random.bin && complain "--overwrite has not replaced anything"
  ends 0 tokenize text.txt --out mine.bin --format $format --overwrite --quiet
  rm -f mine.idx
done
leaves . "'text.txt' would be overwritten, and this command reads it" tokenize text.txt --out text.txt --overwrite
ln -s other/random.bin link.bin
leaves . "cannot write 'link.bin': it is a symbolic link" tokenize text.txt --out link.bin --overwrite
leaves . "--overwrite belongs to the commands 'train', 'profile' and 'tokenize'" plan --config run.yaml --overwrite

# ---- the characters beside them ----
for format in llmc nanogpt megatron; do
  ends 0 tokenize text.txt --tokenizer char --out c$format --format $format --quiet
  more=()
  [ $format != nanogpt ] || more=(--overwrite)
  ends 0 tokenize text.txt --tokenizer char --out c$format --format $format --quiet "${more[@]}"
done
cp cllmc.chars.txt characters
echo "my notes" > cllmc.chars.txt
leaves . "'cllmc.chars.txt' is there and is no list of characters: it is not overwritten" \
  tokenize text.txt --tokenizer char --out cllmc
ends 0 tokenize text.txt --tokenizer char --out cllmc --overwrite --quiet
cmp -s cllmc.chars.txt characters || complain "--overwrite has not replaced the characters"

# ---- pictures, traces, descriptions of machines ----
mkdir drawn
ends 0 plan --config run.yaml --svg drawn --quiet
ends 0 plan --config run.yaml --svg drawn --quiet
printf '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>\n' > drawn/mesh.svg
leaves drawn "'drawn/mesh.svg' is there and is no SVG picture of tessera-train: it is not overwritten" plan --config run.yaml --svg drawn
printf '{"displayTimeUnit":"ms","traceEvents":[]}\n' > drawn/trace.json
leaves drawn "'drawn/trace.json' is there and is no trace of tessera-train: it is not overwritten" profile --config run.yaml --steps 1 --out drawn
printf 'name: measured\nmemory: 1 GiB\n' > drawn/machine.yaml
leaves drawn "'drawn/machine.yaml' is there and is no description of a machine that tessera-train has measured" \
  plan --calibrate drawn/machine.yaml

# ---- metrics ----
mkdir zeros
head -c 40000 /dev/zero > zeros/image && printf 'my notes\nand more\n' >> zeros/image
leaves zeros "the file has no metrics, and would be emptied for them" --config run.yaml --metrics zeros/image --quiet
head -c 4096 /dev/zero > lost.jsonl
ends 0 --config run.yaml --metrics lost.jsonl --quiet
{ head -c 4096 /dev/zero && echo 'ss":1.5}' && cat lost.jsonl; } > half.jsonl
ends 0 --config run.yaml --metrics half.jsonl --quiet

# ---- results of a graph by hand ----
mkdir plain
cp other/numpy.bin plain/y.npy
leaves plain "'plain/y.npy' is there, and no run of tessera-train has used 'plain': it is not overwritten" --config forward.yaml --out plain
leaves plain "no run of tessera-train has used 'plain'" --config forward.yaml --out plain --overwrite
rm plain/y.npy
ends 0 --config forward.yaml --out plain
ends 0 --config forward.yaml --out plain --overwrite
echo "my notes" > plain/y.npy
leaves plain "'plain/y.npy' is there and is no file of NumPy" --config forward.yaml --out plain --overwrite

end_of train.foreign_files 62
