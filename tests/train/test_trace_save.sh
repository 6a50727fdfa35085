#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trace --save`: the numbers are those of the run (its loss, its checkpoints, the gradients that it writes), and the
# files are the same bytes on every mesh. `compare` of two files of tensors: types, shapes, infinities, files that are
# none; what a full disk and a signal leave.
# usage: test_trace_save.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
root=$PWD
. tests/equality/runs.sh
. tests/commands.sh "$1" "$2"

write_text text.txt
for name in pairs_gpt2 pairs_llama pairs_qwen3 mixtral deepseek_v3_moe; do
  sed 's#src/base/\*\.c#text.txt#' "$root/tests/equality/$name.yaml" > $name.yaml
done
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 6,
  eval_every: 0, sample_tokens: 0, model_save_interval: 1, use_clip_grad_norm: true, clip_grad_norm_max_norm: 0.1,
  optimizer: {type: AdamW, lr: 0.01, weight_decay: 0.1}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 16}
checkpoint: {keep_last: 0}
numerics: {threads: 1, units: {batch: 4, tp: 2, sequence: 4}}
RUN

# ---- the numbers ----
ends 0 --config run.yaml --out run --metrics metrics.jsonl --dump-grads gradients --quiet
ends 0 trace --config run.yaml --save steps --steps 1-4
says "steps: "
says " tensors of steps 1 to 4, "
[ "$(ls steps | tr '\n' ' ')" = "$(for i in 1 2 3 4; do echo -n "step-0000000$i.bounds step-0000000$i.safetensors "; done)" ] ||
  complain "other files: $(ls steps)"
checks=$((checks + 1))
python3 - > "$said" 2>&1 <<'PYTHON' || complain "other numbers than the run's"
import json, math, pathlib, struct

def read(path):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], data[8 + length + e["data_offsets"][0]:8 + length + e["data_offsets"][1]])
            for name, e in header.items()}

def numbers(tensor):
    kind = {"F32": "f", "I32": "i"}[tensor[0]]
    return struct.unpack(f"<{len(tensor[2]) // 4}{kind}", tensor[2])

def whole(folder):
    """The tensors of a checkpoint, which one rank has written whole."""
    return {name.split("@")[0]: tensor[2] for path in pathlib.Path(folder).glob("rank-*.safetensors")
            for name, tensor in read(path).items()}

losses = {e["step"]: e["loss"] for e in map(json.loads, open("metrics.jsonl")) if e["event"] == "step"}
compared = {"losses": 0, "weights": 0, "gradients": 0}
for step in range(1, 5):
    saved = read(f"steps/step-{step:08}.safetensors")
    assert list(saved) == sorted(saved)
    # the loss is that of the logits and targets, and the run's
    logits, targets, vocabulary = numbers(saved["logits"]), numbers(saved["targets"]), saved["logits"][1][-1]
    terms = []
    for i, target in enumerate(targets):
        row = logits[i * vocabulary:(i + 1) * vocabulary]
        top = max(row)
        terms.append(top + math.log(sum(math.exp(x - top) for x in row)) - row[target])
    loss = numbers(saved["loss"])[0]
    assert abs(sum(terms) / len(terms) - loss) < 1e-5 and abs(losses[step] - loss) < 1e-6, (step, loss)
    assert saved["tokens"][1] == [8, 16] and saved["targets"][1] == [8, 16]
    assert numbers(saved["tokens"])[1:16] == numbers(saved["targets"])[:15]
    compared["losses"] += 1
    # parameters and state before the step are those that the checkpoint of the step before has
    if step > 1:
        for name, data in whole(f"run/checkpoints/step-{step - 1:08}").items():
            assert saved[name][2] == data, (step, name)
            compared["weights"] += 1
    # gradients before clipping are those that the run writes
    for path in pathlib.Path("gradients").glob(f"*{step}.safetensors"):
        for name, tensor in read(path).items():
            assert saved[f"grad.{name}"][2] == tensor[2], (step, name)
            compared["gradients"] += 1
assert compared["losses"] == 4 and compared["weights"] == 3 * 63 and compared["gradients"] >= 21, compared
PYTHON
# --tensors chooses by a part of the name, of steps in the middle
ends 0 trace --config run.yaml --save few --tensors '^(logits|loss|grad\.block\.1\..*)$' --steps 3-4
cmp -s few/step-00000003.safetensors steps/step-00000003.safetensors && complain "all tensors are saved"
ends 0 compare few/step-00000004.safetensors steps/step-00000004.safetensors
says "tensors: 11 compared, 11 with the same bits; 0 only in the first, "
ends 0 trace --config run --save of_run --steps 4 # of the run.lock, from its newest checkpoint before
cmp -s of_run/step-00000004.safetensors steps/step-00000004.safetensors || complain "a run has other tensors than its recipe"

# ---- the same bytes on every mesh ----
# saved CONFIG WORDS...: on one rank; same WORDS...: on a mesh
saved() {
  local args=() set
  config=$1 words=("${@:2}")
  for set in numerics.threads=1 "${words[@]}"; do args+=(--set "$set"); done
  rm -rf one
  ends 0 trace --config "$config" --save one --steps 2-2 "${args[@]}"
}
same() {
  local args=() set
  for set in numerics.threads=1 "${words[@]}" "$@"; do args+=(--set "$set"); done
  rm -rf mesh
  ends 0 trace --config "$config" --save mesh --steps 2-2 "${args[@]}"
  cmp -s one/step-00000002.safetensors mesh/step-00000002.safetensors ||
    { ends 0 compare one/step-00000002.safetensors mesh/step-00000002.safetensors; complain "$config $*: other bytes"; }
}
for model in gpt2 llama qwen3; do
  saved pairs_$model.yaml
  line=0
  while read -r name mesh zero order recompute overlap threads partition; do
    [ "$name" = "$model" ] && [ $((line++ % 5)) = 1 ] || continue
    mapfile -t settings < <(run_settings "$mesh" "$zero" "$order" "$recompute" "$overlap" "$threads" "$partition")
    same "${settings[@]}"
  done < "$root/tests/equality/pairs.txt"
done
saved pairs_llama.yaml training_config.precision=bf16 training_config.documents=separate training_config.end_of_text=46
same 'mesh={axes: [dp, cp, tp], shape: [2, 2, 2]}' zero.stage=3
same 'mesh={axes: [pp, tp], shape: [2, 2]}' pipeline.microbatches=4 pipeline.schedule=zb_v
saved pairs_qwen3.yaml training_config.precision=fp16 'lora_config={r: 3, use_dora: true}'
same 'mesh={axes: [dp, tp], shape: [2, 2]}' schedule.recompute=full
for config in mixtral.yaml deepseek_v3_moe.yaml; do
  saved $config 'numerics.units={batch: 8, sequence: 4, tp: 2, expert: 4}'
  same 'mesh={axes: [ep, tp], shape: [4, 2]}'
  same 'mesh={axes: [dp, ep, cp], shape: [2, 2, 2]}' zero.stage=2
  same training_config.gradient_accumulation_steps=2 training_config.batch_size=4
done

# ---- files of tensors ----
python3 - <<'PYTHON'
import json, struct

def write(path, tensors, metadata=None):
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))

def floats(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)

def halves(*numbers):
    return b"".join(floats(number)[2:] for number in numbers)

def one(path, dtype, shape, data, metadata=None, name="x"):
    write(path + ".safetensors", {name: (dtype, shape, data)}, metadata)

one("f32", "F32", [3], floats(1, 2, 3))
one("f64", "F64", [3], struct.pack("<3d", 1, 2, 3))
one("bf16", "BF16", [3], halves(1, 2, 3))
one("odd", "BF16", [3], halves(1, 2, 3), {"k": "odd"}) # its numbers begin anywhere
one("f16", "F16", [3], struct.pack("<3e", 1, 2, 3))
one("near", "F32", [3], floats(1, 2, 3.0000002))
one("nan", "F32", [3], floats(1, float("nan"), 3))
one("nan2", "F32", [3], struct.pack("<fIf", 1, 0xFFC00001, 3)) # another NaN
one("inf", "F32", [3], floats(1, float("inf"), 3))
one("more", "F32", [4], floats(1, 2, 3, 4))
one("turned", "F32", [1, 3, 1], floats(1, 2, 3))
one("i32", "I32", [3], struct.pack("<3i", 1, 2, -100))
one("i64", "I64", [3], struct.pack("<3q", 1, 2, -100))
one("large", "I64", [3], struct.pack("<3q", 1, 2, (1 << 40) + 1))
one("larger", "I64", [3], struct.pack("<3q", 1, 2, (1 << 40) + 2))
one("bool", "BOOL", [3], b"\1\0\1")
one("bool2", "BOOL", [3], b"\1\1\1")
one("f8", "F8_E4M3", [3], b"\1\2\3")
one("f8b", "F8_E4M3", [3], b"\1\2\4")
one("scalar", "F32", [], floats(5))
one("scalar1", "F32", [1, 1], floats(5))
one("empty", "F32", [0, 4], b"")
one("other", "F32", [3], floats(1, 2, 3), name="y")
write("none.safetensors", {})
one("named", "F32", [3], floats(1, 2, 3), {"hf.x": "y"})
one("place", "F32", [2, 2], floats(1, 2, 3, 4), {"hf.x": "y", "hf_place.x": "0 1 2 2 2 0 1 4 2 2 4"}) # columns 2 and 3 of y
one("whole", "F32", [2, 4], floats(9, 9, 1, 3, 9, 9, 2, 4), name="y")
one("whole2", "F32", [2, 4], floats(9, 9, 1, 3, 9, 9, 2, 5), name="y")
one("grouped", "F32", [4, 1], floats(1, 2, 3, 4), {"hf.x": "y", "hf_place.x": "0 1 4 1 1 8 1 1 2 8 1 2 4"})  # rows 1, 2, 5, 6 of y
one("eight", "F32", [8, 1], floats(9, 1, 2, 9, 9, 3, 4, 9), name="y")
one("experts", "F32", [2, 2], floats(1, 2, 3, 4), {"hf.x": "y.{expert}.w", "hf_place.x": "2 1 2 1 0 0 1 1 1 2"})
write("apart.safetensors", {"y.0.w": ("F32", [2], floats(1, 2)), "y.1.w": ("F32", [2], floats(3, 4))})
write("missing.safetensors", {"y.0.w": ("F32", [2], floats(1, 2))})
for i, place in enumerate(("", "x", "0 1 2 2 2 0 1 4 2 2", "0 1 2 2 9 0 1 4 2 2 4", "99999999999 1 2 2 2 0 1 4 2 2 4",
                           "0 1 -2 2 2 0 1 4 2 2 4", "0 0 0 0 0 0 0 0 0", "0 1 2 2 2 0 1 4 2 4 2", "0 1 4 1 1 8 1 1 2 2 4 3 4",
                           "0 1 4 1 1 8 1 1 2 2 4 2", "0 1 4 1 1 8 1 1 2 2 4 2 7")):
    one(f"wrong{i}", "F32", [2, 2], floats(1, 2, 3, 4), {"hf.x": "y", "hf_place.x": place})
data = open("i64.safetensors", "rb").read()
for name, bytes in (("cut", data[:-1]), ("cut2", data[:20]), ("cut3", b""), ("text", b"this is no file of tensors")):
    open(name + ".safetensors", "wb").write(bytes)
PYTHON
files() { ends "$1" compare "$2.safetensors" "$3.safetensors"; }
for pair in 'f32 f32' 'f32 f64' 'f32 bf16' 'odd f32' 'f16 f32' 'f32 turned' 'i32 i64' 'nan nan2' 'scalar scalar1' 'empty empty' \
  'named other' 'other named' 'place whole' 'whole place' 'grouped eight' 'eight grouped' 'experts apart' 'apart experts'; do
  # shellcheck disable=SC2086
  files 0 $pair
  says "verdict: equal"
  says ", 1 with the same bits; 0 only in the first, 0 only in the second"
done
files 1 f32 near
says "x: 1 of 3 elements, by at most 2.38e-07; "
says "element 2 is 3 | 3.00000024"
says "verdict: 1 differ, and no bound is known"
for pair in 'f32 nan' 'inf f32' 'f32 inf'; do
  # shellcheck disable=SC2086
  files 1 $pair
  says "by at most inf"
done
files 1 large larger
says "x: 1 of 3 rows of integers"
says "verdict: 1 beyond"
files 1 bool bool2
files 1 f8 f8b
files 1 place whole2
says "element 3 is 4 | 5"
files 1 whole2 place
says "element 3 is 5 | 4"
files 2 f32 more
says "more.safetensors: error: 'x' is (4), and 'x' in 'f32.safetensors' (3)"
files 2 f32 i32
says "error: 'x' has the type I32, and 'x' in 'f32.safetensors' F32"
files 2 f32 f8
files 2 f32 other
says "have no tensor of one name"
files 2 none none
files 2 experts missing
for i in 0 1 2 3 4 5 6 8 9 10; do files 2 wrong$i whole; done
says "have no tensor of one name"
files 2 wrong7 whole # a place in another shape
says "'y' is (2, 4), and 'x' in 'wrong7.safetensors' (2, 2)"
for name in cut cut2 cut3 text; do
  files 2 f32 $name
  says "error: '$name.safetensors', byte "
done
files 2 f32 nothing
says "cannot read 'nothing.safetensors'"
mkdir folder.safetensors
files 2 folder f32
ends 2 compare f32.safetensors run.yaml
says "are of two kinds"
# bounds that are damaged, or foreign
cp f32.safetensors mine.safetensors
cp near.safetensors yours.safetensors
printf 'x' > mine.bounds
files 2 mine yours
says "error: 'mine.bounds', byte 0"
bounded() { # WORDS: the bound of x
  python3 - "$1" <<'PYTHON'
import json, struct, sys
text = json.dumps({"__metadata__": {"x": sys.argv[1]}}).encode()
open("mine.bounds", "wb").write(struct.pack("<Q", len(text)) + text)
PYTHON
}
for bound in '1 1 nan 0' '-1 -1 -1 -1' '1 2' 'a b c d' '1 1 inf 0' ''; do
  bounded "$bound"
  files 1 mine yours
  says "no bound is known"
done
bounded '1 0 1 0' # one rounding of numbers like 1, and a sum of one
files 0 mine yours
says "within the bound"
files 1 mine inf
says "beyond the bound"

# ---- mistakes, the disk, signals ----
trace() { ends "$1" trace --config run.yaml --save "${@:2}"; }
trace 2 new --tensors '('
says "the pattern '(' is not right"
trace 2 new --tensors '(.*.*.*.*.*)*x$'
says "--tensors: the pattern takes too long on '"
trace 2 new --tensors '^nothing$'
says "--tensors matches no tensor of the run"
trace 2 new --steps 4-7
says "--steps: the run has 6 steps, not 7"
trace 2 new --steps 0-1
trace 2 new --steps 3-2
trace 2 new --rank 1
says "--rank goes with the program, not with --save"
trace 2 new --emit graph-ir
ends 2 trace --config run.yaml --tensors x
says "--tensors goes with --save"
ends 2 trace --config run.yaml --steps 1-2
trace 2 nowhere/new
says "cannot make the folder 'nowhere/new': No such file or directory"
trace 2 text.txt
says "cannot make the folder 'text.txt': Not a directory"
[ "$(head -c 5 text.txt)" = "word " ] || complain "a file of the user is lost"
ends 2 trace --config nothing.yaml --save new
for n in 1 3 9 60; do with_fault ENOSPC@$n trace 1 new --steps 1; done
says "cannot write 'new/step-00000001.safetensors': No space left on device"
[ ! -e new ] || [ -z "$(ls new)" ] || complain "a failure leaves something: $(ls new)"
with_fault ENOSPC@200 trace 1 new --steps 1-4 # behind the first file
for file in new/*; do
  cmp -s "$file" "steps/${file#new/}" || complain "$file is not whole"
done
rm -rf new
TESSERA_FAULT=slow@2-4 "$faulty" trace --config run.yaml --save new --steps 1-6 > "$said" 2>&1 < /dev/null &
until [ -e new ]; do kill -0 $! || break; done
kill -TERM $!
checks=$((checks + 1))
wait $!
[ $? = 143 ] || complain "another exit code than that of the signal"
for file in new/*; do
  [ ! -e "$file" ] || cmp -s "$file" "steps/${file#new/}" || complain "a signal leaves $file, which is not whole"
done

end_of train.trace_save 106
