#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model that tells classes of documents apart: trained on labelled texts until it knows all of them, on meshes with the
# same bits, evaluated, exported and imported, begun with a model of tokens, and with adapters; what is refused.
# usage: test_labels.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/qwen.json)
. tests/commands.sh "$1"

python3 - <<'PYTHON'
import json, random
draw = random.Random(1)
words = {"spam": ["win", "prize", "cash", "free"], "ham": ["meet", "lunch", "report", "thanks"]}
def line():
    label = draw.choice(sorted(words))
    text = draw.choices(["the", "a", "you", "we", "is", "to"], k=draw.randint(1, 4))
    text.insert(draw.randint(0, len(text)), draw.choice(words[label]))
    return {"text": " ".join(text), "label": label}
lines = [line() for _ in range(160)]
open("mail.jsonl", "w").writelines(json.dumps(l) + "\n" for l in lines)
numbers = [dict(l, label=sorted(words).index(l["label"])) for l in lines]
open("numbers.jsonl", "w").writelines(json.dumps(l) + "\n" for l in numbers)
PYTHON
cp "$tokenizer" tokenizer.json
cat > run.yaml <<'RUN'
training_config: {seed: 3, data_path: mail.jsonl, tokenizer_type: bpe, tokenizer_path: tokenizer.json, batch_size: 4,
  sequence_length: 16, max_steps: 60, num_epochs: 20, eval_every: 30, validation_fraction: 0.25, validation_batch_size: 4,
  optimizer: {lr: 0.01}}
data: {format: labels}
transformer_config: {model_type: llama, vocab_size: 2406, embedding_dim: 16, intermediate_dim: 32, num_heads: 4, num_groups: 2,
  num_blocks: 2, max_sequence_length: 16, num_labels: 2}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 2}}
RUN
result() { sed -n 's/.*Validation loss/loss/p; s/.*weights \(sha256 [0-9a-f]*\),.*/\1/p' "$said"; }
# evaluates WORDS...: the loss and the accuracy of `evaluate`
evaluates() {
  ends 0 evaluate "$@" --quiet
  loss=$(sed -n 's/^loss: //p' "$said") accuracy=$(sed -n 's/^accuracy: //p' "$said")
  [ -n "$loss" ] && [ -n "$accuracy" ] || complain "no loss or no accuracy"
}

# all texts of the validation part, once each, are right after few steps; the names are sorted, and kept
ends 0 --config run.yaml --out one
want=$(result)
says "accuracy = 1.0000 ± 0.0000 (40 of 40)"
[ "$(grep -c . <<< "$want")" = 3 ] || complain "no losses and hash"
grep -q '"event":"eval".*"accuracy":1,"accuracy_stderr":0' one/metrics.jsonl || complain "no accuracy in the metrics"
grep -q 'labels: \[ham, spam\]' one/checkpoints/step-00000060/config.yaml || complain "no names in the checkpoint"
for mesh in '{axes: [dp, tp], shape: [2, 2]}' '{axes: [pp, cp], shape: [2, 2]}'; do
  ends 0 --config run.yaml --set mesh="$mesh"
  [ "$(result)" = "$want" ] || complain "$mesh: other numbers than $want"
done
ends 0 --config run.yaml --out half --set training_config.max_steps=30 --quiet
ends 0 --config run.yaml --out half --resume
[ "$(result | tail -1)" = "$(tail -1 <<< "$want")" ] || complain "resumed: other weights"

# names have numbers; the order of declared ones is theirs
evaluates --checkpoint one --data mail.jsonl
named=$loss
[ "$accuracy" = "1.000000 ± 0.000000 (160 of 160)" ] || complain "evaluate: $accuracy"
evaluates --checkpoint one --data numbers.jsonl
[ "$loss" = "$named" ] || complain "numbers: a loss of $loss, not $named"
evaluates --checkpoint one --data mail.jsonl --set 'data.labels=[spam, ham]'
[ "$accuracy" = "0.000000 ± 0.000000 (0 of 160)" ] || complain "the other order: $accuracy"
# one text a sample, on a mesh: the loss but for rounding
evaluates --checkpoint one --data mail.jsonl --set data.packing=none --set mesh='{axes: [dp, cp], shape: [2, 2]}'
python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(not abs(a - b) <= 2e-6)" "$loss" "$named" ||
  complain "one text a sample: a loss of $loss, not $named"

# of each text
ends 0 evaluate --checkpoint one --data mail.jsonl --out result.json --log-samples samples.jsonl --quiet
checks=$((checks + 1))
python3 - "$named" <<'PYTHON' || complain "other results or samples"
import json, math, sys
result = json.load(open("result.json"))
samples = [json.loads(line) for line in open("samples.jsonl")]
lines = [json.loads(line) for line in open("mail.jsonl")]
assert len(samples) == len(lines) == result["documents"] == 160 and result["dropped"] == 0
for number, (sample, line) in enumerate(zip(samples, lines), 1):
    assert (sample["file"], sample["line"], sample["label"]) == ("mail.jsonl", number, line["label"])
    assert sample["acc"] == 1 and sample["predicted"] == sample["label"] and sample["log_likelihood"] > math.log(0.5)
mean = -math.fsum(s["log_likelihood"] for s in samples) / len(samples)
assert abs(mean - result["loss"]) < 1e-6 and abs(mean - float(sys.argv[1])) < 2e-6
assert result["accuracy"] == {"value": 1, "stderr": 0}
PYTHON

# there and back
ends 0 export one --out model --quiet
ends 0 import model --out back --quiet
evaluates --checkpoint back --data mail.jsonl
[ "$loss" = "$named" ] || complain "imported: a loss of $loss, not $named"
checks=$((checks + 1))
python3 - <<'PYTHON' || complain "another config.json"
import json
config = json.load(open("model/config.json"))
assert config["architectures"] == ["LlamaForSequenceClassification"]
assert config["id2label"] == {"0": "ham", "1": "spam"} and config["label2id"] == {"ham": 0, "spam": 1}
assert isinstance(config["pad_token_id"], int)
PYTHON

# a text that is longer than a sample keeps its label, at the last token that is left; or it is left out
ends 0 data show --config run.yaml --set training_config.sequence_length=2 --set data.packing=none
says "label"
says "without its last"
ends 0 data show --config run.yaml --set training_config.sequence_length=3 --set data.too_long=drop
grep -q 'dropped' "$said" && ! grep -q ', 0 dropped' "$said" || complain "nothing is dropped"
# `evaluate` says what it leaves out; a byte is a token
sed 's/bpe, tokenizer_path: tokenizer.json/byte/; s/max_steps: 60/max_steps: 2/; s/2406/256/; s/sequence_length: 16/sequence_length: 32/' \
  run.yaml > bytes.yaml
ends 0 --config bytes.yaml --out bytes --quiet
printf '{"text": "%s", "label": "ham"}\n' a lunch ab abcd report > lengths.jsonl
ends 0 evaluate --checkpoint bytes --data lengths.jsonl --set data.too_long=drop --set training_config.sequence_length=4 --out dropped.json
says "data: lengths.jsonl, 3 documents"
says "--set:1:15: note: 2 of 5 texts are dropped as longer than 4 tokens"
grep -q '"documents": 3,' dropped.json && grep -q '"dropped": 2,' dropped.json || complain "no counts in the results"
ends 0 evaluate --checkpoint bytes --data lengths.jsonl --set training_config.sequence_length=4
! grep -q note: "$said" || complain "a note of nothing"
grep -E 'lunch|report' lengths.jsonl > long.jsonl
ends 2 evaluate --checkpoint bytes --data long.jsonl --set data.too_long=drop --set training_config.sequence_length=4
says "error: 'long.jsonl' has no text with a label"
says "= of 2, 2 are dropped as longer than 4 tokens"

# begun with a model of tokens, whose output is replaced
sed 's/, num_labels: 2//; s/^data: .*//; s/mail.jsonl/text.txt/; s/max_steps: 60/max_steps: 2/' run.yaml > tokens.yaml
write_text text.txt
ends 0 --config tokens.yaml --out tokens --quiet
ends 0 --config run.yaml --out tuned --set training_config.model_path=tokens --set training_config.max_steps=4
says "note: the checkpoint has no tensor 'score': it begins at its initial value"
says "note: the checkpoint's tensor 'lm_head' is left out: this run's model has another output"
ends 2 evaluate --checkpoint tokens --data mail.jsonl --config run.yaml --set 'data.labels=[ham, spam]'
says "the checkpoint has no tensor 'score'"

sed 's/spam/junk/' mail.jsonl > renamed.jsonl
ends 0 --config run.yaml --set training_config.model_path=one --set training_config.max_steps=1 --set training_config.data_path=renamed.jsonl
says "warning: the names of this run's classes are not those of 'one/checkpoints/step-00000060', whose weights it begins with"
ends 0 --config run.yaml --set training_config.model_path=one --set training_config.max_steps=1
! grep -q "warning: the names" "$said" || complain "a warning of the same names"

# with adapters, `score` is trained whole: as PEFT's folder, merged, and from that folder
sed 's/max_steps: 60/max_steps: 10/' run.yaml > adapters.yaml
echo 'lora_config: {r: 2, target_modules: [q_proj, down_proj]}' >> adapters.yaml
ends 0 --config adapters.yaml --set training_config.model_path=tokens --out adapted
evaluates --checkpoint adapted --data mail.jsonl
adapted=$loss
ends 0 export adapted --out folder --quiet
grep -q '"task_type": "SEQ_CLS"' folder/adapter_config.json && grep -q '"score"' folder/adapter_config.json ||
  complain "no SEQ_CLS with score"
evaluates --checkpoint tokens --adapter folder --data mail.jsonl --config run.yaml --set 'data.labels=[ham, spam]'
[ "$loss" = "$adapted" ] || complain "the folder: a loss of $loss, not $adapted"
ends 0 export adapted --merge --out merged --quiet
ends 0 import merged --out merged_back --quiet
evaluates --checkpoint merged_back --data mail.jsonl
python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(not abs(a - b) <= 2e-6)" "$loss" "$adapted" ||
  complain "merged: a loss of $loss, not $adapted"

# ... also where target_modules names it; adapters that leave it alone go with a model of classes, too
ends 0 --config adapters.yaml --set training_config.model_path=one --set 'lora_config.target_modules=[q_proj, score]' --out named --quiet
ends 0 checkpoint show named
says '  score f32 (2, 16)'
! grep -q 'score.lora' "$said" || complain "score has adapters"
ends 2 --config adapters.yaml --set training_config.model_path=one --set 'lora_config.target_modules=[score]' --out wrong
says "'score' is trained whole, without adapters"
cp tokens.yaml token_adapters.yaml
echo 'lora_config: {r: 2, target_modules: [q_proj]}' >> token_adapters.yaml
ends 0 --config token_adapters.yaml --set training_config.model_path=tokens --out token_adapters --quiet
ends 0 export token_adapters --out token_folder --quiet
evaluates --checkpoint one --adapter token_folder --data mail.jsonl
ends 0 --config run.yaml --set training_config.model_path=one --set training_config.max_steps=1 --out on_folder --quiet \
  --set 'lora_config={path: token_folder}'
ends 0 export on_folder --out on_folder_peft --quiet
grep -q '"task_type": null' on_folder_peft/adapter_config.json || complain "adapters beside scores that stay are no SEQ_CLS"

# Texts that end with the padding: transformers reads the token before.
python3 - <<'PYTHON'
import json
t = json.load(open("tokenizer.json"))
t["post_processor"] = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [2403], "tokens": ["<|endoftext|>"]}}}
json.dump(t, open("ending.json", "w"))
PYTHON
ends 0 --config run.yaml --out ending --set training_config.tokenizer_path=ending.json --set training_config.max_steps=1
says "warning: texts end with token 2403, which is the padding, too: transformers scores their classes at the token before it"
ends 0 export ending --out ending_folder
says "warning: texts end with token 2403, which is pad_token_id, too: transformers scores their classes at the token before it"
! grep -q "warning: texts end" <("$program" export one --out plain_folder 2>&1) || complain "a warning of a tokenizer that ends no texts"

# what needs probabilities of tokens
for words in 'generate --prompt a' 'serve' 'evaluate --eval-set set.jsonl'; do
  echo '{"question": "q", "choices": ["a", "b"], "answer": 0}' > set.jsonl
  # shellcheck disable=SC2086
  ends 2 ${words%% *} --checkpoint one ${words#"${words%% *}"}
  says "config.yaml:"
  says "error: this model tells 2 classes of documents apart, and has no probabilities of tokens"
done
ends 2 export one --format gguf --out model.gguf
says "GGUF has no scores of documents: this model has num_labels 2"
ends 2 evaluate --checkpoint tokens --data text.txt --log-samples no.jsonl
says "--log-samples goes with --eval-set, or with a model that has num_labels"
# one text; none
printf '{"text": "%s", "label": "ham"}\n' a > single.jsonl
ends 0 evaluate --checkpoint bytes --data single.jsonl --out single.json
grep -qx "data: single.jsonl, 1 document" "$said" || complain "another count of one text"
grep -q 'accuracy: [01].000000 ([01] of 1)$' "$said" || complain "another accuracy of one text"
grep -q '"stderr": null' single.json || complain "a standard error of one text"
ends 0 --config bytes.yaml --set training_config.data_path=lengths.jsonl --set 'data.labels=[ham, spam]' \
  --set training_config.batch_size=1 --set numerics.units.batch=1 --set training_config.validation_fraction=0.2
grep -q 'accuracy = [01].0000 ([01] of 1)$' "$said" || complain "another accuracy of one text in a run"
: > empty.jsonl
ends 2 evaluate --checkpoint bytes --data empty.jsonl
says "error: 'empty.jsonl' has no text with a label"
sed 's/validation_fraction: 0.25/validation_path: empty.jsonl/' bytes.yaml > nothing.yaml
ends 2 --config nothing.yaml
says "the validation part of 'empty.jsonl' has no text with a label to evaluate"
ends 2 evaluate --checkpoint back
says 'a file or pattern of lines of {"text": "…", "label": …}'
# how many classes there are
ends 2 --config run.yaml --set transformer_config.num_labels=1 --set training_config.data_path=numbers.jsonl
says "--set:1:31: error: num_labels 1 has one class: there are at least 2"
! grep -q numbers.jsonl: "$said" || complain "errors of lines"
for model in gemma2 gemma3 gpt2 gpt_neox llama phi3 qwen2 qwen3 smollm3 starcoder2; do
  printf 'training_config: {seed: 1}\ntransformer_config: {model_type: %s, vocab_size: 256, num_labels: 65537}\n' $model > many.yaml
  ends 2 check --config many.yaml
  says "error: 'num_labels' must be at most 65536, not 65537"
done
sed 's/"spam"/"ham"/' mail.jsonl > ham.jsonl
ends 2 --config run.yaml --set training_config.data_path=ham.jsonl
says "error: num_labels is 2, but the data have labels of 1 name: 'ham'"
# names that nobody has given numbers
ends 0 --config run.yaml --out numbered --set training_config.data_path=numbers.jsonl --set training_config.max_steps=2 --quiet
ends 2 evaluate --checkpoint numbered --data mail.jsonl
says "the labels of 'mail.jsonl' are names, and the model's classes have none"

end_of train.labels 57
