#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What files hold is told by their content and name: token files of tt-train train as the same tokens elsewhere do, and
# what is no text is not trained as one.
# usage: test_data_kinds.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 3, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
numerics: {threads: 1}
RUN

# refused FILE TEXT WORDS...: not trained, evaluated or tokenized; the message has the file and the text
refused() {
  local file=$1 text=$2
  shift 2
  ends 2 --config run.yaml --set training_config.data_path="$file" "$@"
  says "$file" && says "$text"
  ends 2 evaluate --checkpoint trained --data "$file"
  says "$file" && says "$text"
}
not_tokenized() {
  ends 2 tokenize "$1" --out made.bin "${@:3}"
  says "$1" && says "$2"
  [ ! -e made.bin ] || complain "tokenize $1 has left a file"
}
hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }

write_text text.txt
ends 0 --config run.yaml --out trained --quiet

# the same 400 tokens, as bytes and as YAML in two styles
for i in $(seq 400); do printf '%d ' $((i * i * 31 % 251)); done > numbers
for n in $(cat numbers); do printf "\\x$(printf %02x "$n")\\x00"; done > tokens.bin
{ echo 'tokenizer_vocab_size: 251'; echo 'tokens:'; for n in $(cat numbers); do echo "- $n"; done; } > tokens.yaml
{ echo '# of tt-train'; echo "{'tokens': [$(sed 's/ $//; s/ /, /g' numbers)],"
  echo ' from: {files: [a, b], tokens: 400}, tokenizer_vocab_size: 251}'; } > flow.yml
cp tokens.yaml named.txt
for kind in char bpe; do
  tokens=(--config run.yaml --set training_config.tokenizer_type=$kind --set training_config.sample_stride=3)
  ends 0 "${tokens[@]}" --set training_config.data_path=tokens.bin
  want=$(hash_of)
  [ -n "$want" ] || complain "no hash of the weights"
  for file in tokens.yaml flow.yml; do
    ends 0 "${tokens[@]}" --set training_config.data_path=$file
    [ "$(hash_of)" = "$want" ] || complain "$file: other weights than those of tokens.bin"
  done
  ends 0 "${tokens[@]}" --set training_config.data_path=named.txt --set training_config.data_format=tt_train
  [ "$(hash_of)" = "$want" ] || complain "named.txt: other weights than those of tokens.bin"
done
ends 0 --config run.yaml --set training_config.data_path=tokens.yaml --out ids --quiet \
  --set training_config.tokenizer_type=bpe
ends 0 generate --checkpoint ids --prompt "1 2 3" --max-new-tokens 4
ends 0 evaluate --checkpoint ids --data flow.yml
says "data: flow.yml, 399 tokens"
ends 0 evaluate --checkpoint ids --data flow.yml --set training_config.documents=separate --set training_config.end_of_text=0
says "data: flow.yml, 398 tokens" # a document ends at the token 0: the next one is not predicted
ends 2 --config run.yaml --set training_config.data_path=tokens.yaml --set transformer_config.vocab_size=200 \
  --set training_config.tokenizer_type=char
says "but the vocabulary has 200"
ends 2 --config run.yaml --set training_config.data_path=tokens.yaml --set transformer_config.vocab_size=0 \
  --set training_config.tokenizer_type=char
says "transformer_config.vocab_size: 251"

# YAML that is none of tt-train's
refused run.yaml "YAML without the keys 'tokens' and 'tokenizer_vocab_size'"
# bad_tokens TEXT PLACE MESSAGE
bad_tokens() {
  printf "$1" > bad.yaml
  refused bad.yaml "bad.yaml:$2: error: $3"
}
bad_tokens 'tokenizer_vocab_size: 4\ntokens: [1, x]\n' 2:13 'a token is an integer from 0'
bad_tokens 'tokenizer_vocab_size: 4\ntokens: [1, -1]\n' 2:13 'a token is an integer from 0'
bad_tokens 'tokenizer_vocab_size: 4\ntokens: [1, 2147483648]\n' 2:13 'a token is an integer from 0'
bad_tokens 'tokenizer_vocab_size: 4\ntokens: [1, [2]]\n' 2:13 'a token is an integer from 0'
bad_tokens 'tokenizer_vocab_size: 4\ntokens:\n- 1\n- 7\n- 3\n' 4:3 'token 7 is outside the vocabulary'
bad_tokens 'tokenizer_vocab_size: 4\ntokens: 5\n' 2:9 "'tokens' is a list"
bad_tokens 'tokens: [1]\ntokens: [2]\n' 2:1 'the key is repeated here'
bad_tokens 'tokens: [1, 2\n' 2:1 "did not find expected ',' or ']'"
printf 'tokens: [1, 2]\n' > bad.yaml
refused bad.yaml "YAML without the keys"
: > bad.yaml
refused bad.yaml "YAML without the keys"

# JSON
printf '{"text": "one"}\n{"text": "two"}\n' | tee lines.jsonl > renamed.txt
cp lines.jsonl lines.ndjson
printf '[\n {"text": "one"}\n]\n' > list.json
for file in lines.jsonl lines.ndjson list.json renamed.txt; do refused $file "holds JSON"; done
not_tokenized list.json "holds JSON"
not_tokenized renamed.txt "holds JSON"
ends 0 --config run.yaml --set training_config.data_path=lines.jsonl --set training_config.data_format=text
printf '[1] This is a text with a "note".\n"So it is."\n%s' "$(cat text.txt)" > note.txt
ends 0 --config run.yaml --set training_config.data_path=note.txt
printf '{ this is a text }\n%s' "$(cat text.txt)" > braces.txt
ends 0 --config run.yaml --set training_config.data_path=braces.txt

# Bad lines end the command, or are skipped and counted: what is left is what the good lines alone make.
for i in $(seq 4000); do
  echo "{\"text\": \"line $i\"}"
  [ $((i % 1000)) = 7 ] && printf '%s\n' '{"text": "nul\u0000"}' '{"txet": "none"}' '{"text": 5}' '{"text": "cut'
done > mixed.jsonl
grep '^{"text": "line' mixed.jsonl > good.jsonl
ends 2 tokenize mixed.jsonl --out bad.bin
says "mixed.jsonl:8:"
[ ! -e bad.bin ] || complain "a file is left"
ends 0 tokenize good.jsonl --out good.bin --threads 1
for threads in 1 3; do
  ends 0 tokenize mixed.jsonl --out kept.bin --skip-bad-lines --threads $threads
  says "mixed.jsonl:8:1: warning: skipped 16 lines without a text under 'text'; the first is here"
  cmp -s good.bin kept.bin || complain "other tokens than those of the good lines"
  rm -f kept.bin
done

ends 2 tokenize mixed.jsonl --out none.bin --skip-bad-lines --jsonl-key other
says "mixed.jsonl:1:1: error: none of the 4016 lines has a text under 'other'; the first is here"
[ ! -e none.bin ] || complain "a file without tokens is left"

# binary formats, whatever their names say
gzip -c text.txt > text.gz.txt
printf 'PAR1\x15\x04\x15' > rows.parquet
printf 'PK\x03\x04\x14' > arrays.npz
printf '\x93NUMPY\x01' > array.txt
printf '\x88\xd8\x34\x01\x01\x00\x00\x00' > llmc.tokens
printf 'MMIDIDX\x00\x00\x01' > megatron.index
cp "$program" program.txt
printf '\xff\xfeT\x00e\x00x\x00t\x00' > wide.txt
printf '\x89PNG\r\n\x1a\n' > picture.txt
printf '\x1b\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"of":"a"}}' > weights.txt
printf 'GGUF\x03\x00\x00\x00' > model.txt
printf '["one",\n "two"]\n' > list.txt
printf '{\n "text": "one"\n}\n' > pretty.txt
printf '["one","two"]\n\n ["three"]\n[4]\n' > rows.txt
printf '[1]\n[2] a note\n%s' "$(cat text.txt)" > notes.txt
while read -r file text; do
  refused "$file" "$text"
  not_tokenized "$file" "$text"
done <<'FORMATS'
text.gz.txt is compressed (gzip)
rows.parquet holds the rows of a table (Parquet)
arrays.npz is an archive (ZIP)
array.txt holds arrays (NumPy)
llmc.tokens holds tokens (llm.c)
megatron.index holds tokens (Megatron)
program.txt is a program (ELF)
wide.txt is UTF-16
picture.txt is a picture (PNG)
weights.txt holds weights (safetensors)
model.txt holds weights (GGUF)
list.txt holds JSON
rows.txt holds JSON
pretty.txt holds JSON
named.txt holds tokens (tt-train)
FORMATS

ends 0 --config run.yaml --set training_config.data_path=notes.txt
ends 2 tokenize llmc.tokens --out made
says "a run reads it by training_config.data_format, or if its name ends in .bin"

# bytes that are no text, and whoever takes them as they are
cp text.txt latin.txt && printf 'caf\xe9' >> latin.txt
cp text.txt nul.txt && printf '\0' >> nul.txt
refused latin.txt "invalid UTF-8: byte 0xe9"
refused nul.txt "not text: byte 0x00"
ends 2 --config run.yaml --set 'training_config.data_path=./*.txt'
for text in "latin.txt:1:" "nul.txt:1:" "'./array.txt' holds" "'./renamed.txt' holds"; do says "$text"; done
ends 0 --config run.yaml --set training_config.data_path=latin.txt --set training_config.data_format=text
ends 2 --config run.yaml --set training_config.data_path=latin.txt --set training_config.data_format=text \
  --set training_config.tokenizer_type=char
says "latin.txt:1:"
not_tokenized latin.txt "invalid UTF-8: byte 0xe9"
not_tokenized nul.txt "not text: byte 0x00"

# A table's validation_path: as if its rows stood behind the others, and were a fraction of all.
row() { echo "$((($1 * 37 + 11) % 100)),$((($1 * 53 + 7) % 90)),$(($1 % 3))"; }
for i in $(seq 60); do row $i; done > train.csv
for i in $(seq 61 80); do row $i; done > valid.csv
cat train.csv valid.csv > both.csv
cat > rows.yaml <<'RUN'
training_config: {batch_size: 4, max_steps: 6, eval_every: 2, validation_batch_size: 3, data_path: train.csv,
  validation_path: valid.csv}
mlp_config: {input_features: 2, hidden_features: [4], output_features: 3}
numerics: {threads: 1}
RUN
# a .bin whose every byte could be one of tokens, and which plainly is something else
{ printf 'PAR1'; head -c 5000 /dev/zero; } > rows.bin
{ printf 'PK\003\004'; cat tokens.bin; } > archive.bin
for i in $(seq 20); do echo 'Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.'; done > words.bin
cat words.bin tokens.bin > both.bin
wide=(--set transformer_config.vocab_size=65536)
for case in 'rows.bin:holds the rows of a table (Parquet), not tokens' 'archive.bin:is an archive (ZIP), not tokens' \
  'words.bin:holds text, not tokens'; do
  ends 2 --config run.yaml "${wide[@]}" --set training_config.tokenizer_type=char --set training_config.data_path="${case%%:*}"
  says "'${case%%:*}' ${case#*:}"
  ends 0 --config run.yaml "${wide[@]}" --set training_config.tokenizer_type=char \
    --set training_config.data_path="${case%%:*}" --set training_config.data_format=nanogpt_u16
done
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' > pointer.txt
refused pointer.txt "is a pointer to a file that is not in this folder (Git LFS), not text"

# the last evaluation and the weights
numbers() { sed -n 's/.*Validation loss/Validation loss/p; s/.*weights sha256/sha256/p' "$said" | tail -2; }
ends 0 --config rows.yaml
want=$(numbers)
[ "$(wc -l <<< "$want")" = 2 ] || complain "no validation loss and hash"
sed '/validation_path/d; s/train.csv,$/both.csv, validation_fraction: 0.25}/' rows.yaml > fraction.yaml
ends 0 --config fraction.yaml
[ "$(numbers)" = "$want" ] || complain "other numbers than those of a fraction: $want"
echo 1,2,3,0 > wide.csv
ends 2 --config rows.yaml --set training_config.validation_path=wide.csv
says "'wide.csv' has 3 features a row"
ends 2 --config rows.yaml --set training_config.validation_path=gone.csv
says "cannot read 'gone.csv'"

end_of train.data_kinds 106
