# SPDX-License-Identifier: Apache-2.0
"""Compares tokens and masks of conversations with transformers, for the templates of published packages.

1. Templates with {% generation %} marks: the same tokens and the same mask as apply_chat_template has with
   return_assistant_tokens_mask, token for token.
2. All templates, those with marks also without them: each message is made of words of its own. Of the words in the
   rendered text exactly those of the assistant are trained; of its last message alone with last_assistant. A line may be
   refused, which is counted.
3. Prompts and completions: the trained tokens are those behind the tokens of the prompt, as trl has them.

usage: test_conversation_masks.py CONVERSATION_TOKENS PACKAGES [CONVERSATIONS [SEED]]"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "jinja"))
from chat_templates import PIECES, Generator, published_templates, reference, skip

try:
    import tokenizers
    import transformers
except ImportError as error:
    skip(str(error))

reference.datetime = __import__("datetime").datetime  # conversation_tokens uses the current time

SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>", "<think>", "</think>", "<|end|>", "<|assistant|>", "<|user|>"]
MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


def make_tokenizer(folder: Path, seed: int):
    """A fast tokenizer of byte-level BPE that is trained on the texts of the conversations."""
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.normalizer = tokenizers.normalizers.NFC()
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = tokenizers.decoders.ByteLevel()
    generator = Generator(f"tokenizer {seed}")
    texts = [generator.text() for _ in range(500)] + PIECES + ["assistant user system\n\nYou are a helpful assistant.\n"]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    own.train_from_iterator(texts, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=own, bos_token="<s>", eos_token="</s>", pad_token="<|endoftext|>")
    fast.save_pretrained(folder)
    return fast


class Reader:
    def __init__(self, program: str, folder: Path):
        self.program, self.folder = program, folder

    def read(self, template: str, lines: list[dict], train_on: str = "assistant") -> list[dict]:
        (self.folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        with open(self.folder / "given.jinja", "w", encoding="utf-8", newline="") as file:
            file.write(template)
        result = subprocess.run([self.program, self.folder, self.folder / "lines.jsonl", train_on, self.folder / "given.jinja"],
                                capture_output=True, timeout=600)
        if result.returncode:
            return [{"error": result.stderr.decode()}] * len(lines)
        return [json.loads(line) for line in result.stdout.splitlines()]


# ---- 1: marks ----


def marked_lines(name: str, count: int, seed: int) -> list[dict]:
    lines = []
    for i in range(10 * count):
        context = Generator(f"{seed} marks {name} {i}").context()
        if len(lines) == count:
            break
        if not any(message["role"] == "assistant" for message in context["messages"]):
            continue
        extra = {key: context[key] for key in ("enable_thinking", "reasoning_effort") if key in context}
        lines.append({"messages": context["messages"], "tools": context["tools"], "chat_template_kwargs": extra})
    return lines


def reference_tokens(fast, template: str, line: dict):
    try:
        result = fast.apply_chat_template(line["messages"], tools=line["tools"], chat_template=template, return_dict=True,
                                          return_assistant_tokens_mask=True, **line["chat_template_kwargs"])
        return result["input_ids"], result["assistant_masks"]
    except Exception:  # a template may fail in any way
        return None


def compare_marks(reader: Reader, fast, name: str, template: str, count: int, seed: int, found: collections.Counter) -> None:
    lines = marked_lines(name, count, seed)
    for line, got in zip(lines, reader.read(template, lines)):
        want = reference_tokens(fast, template, line)
        if want is None or "error" in got:
            same = want is None and "error" in got
            found["marks: refused by both" if same else f"WRONG {name}: {got.get('error', 'not refused')[:300]}"] += 1
        elif got["tokens"] != list(want[0]):
            found[f"WRONG {name}: tokens differ"] += 1
        elif got["trained"] != list(want[1]):
            at = next(i for i, (a, b) in enumerate(zip(got["trained"], want[1])) if a != b)
            found[f"WRONG {name}: mask differs at token {at}: {fast.decode(got['tokens'][max(0, at - 5):at + 5])!r}"] += 1
        else:
            found["marks: equal"] += 1


# ---- 2: words ----


def wordy_line(generator: Generator) -> dict:
    """A conversation in which each text of a message is a word of its own, 'u3x'."""
    number = 0

    def word(kind: str) -> str:
        nonlocal number
        number += 1
        return f"{kind}{number}x"

    context = generator.context()
    messages = []
    for message in context["messages"]:
        kind = {"assistant": "a", "user": "u", "tool": "t"}.get(message["role"], "s")
        message = {**message, "content": word(kind)}
        for key in ("reasoning_content", "thinking", "reasoning"):
            message.pop(key, None)
        if kind == "a" and generator.chance(0.3):
            message["reasoning_content"] = word("a")
        if kind == "a" and generator.chance(0.1):
            message["content"] = f"<think>\n{word('a')}\n</think>\n\n{message['content']}"
        messages.append(message)
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = {"city": word("a")}
    return {"messages": messages, "tools": context["tools"]}


def check_words(line: dict, got: dict, last_alone: bool) -> str:
    data = got["text"].encode()
    begins = [*got["begins"], len(data)]
    trained = b"".join(data[begins[i]:begins[i + 1]] if on else b"\0" for i, on in enumerate(got["trained"])).decode(errors="replace")
    wanted = [message for message in line["messages"] if message["role"] == "assistant"]
    texts = json.dumps(wanted[-1:] if last_alone else wanted)
    want = {word for word in re.findall(r"a\d+x", texts) if word in got["text"]}
    has = set(re.findall(r"[aust]\d+x", trained))
    return "" if has == want else f"trained {sorted(has)}, not {sorted(want)}: {got['text']!r}"[:600]


def compare_words(reader: Reader, name: str, template: str, count: int, seed: int, found: collections.Counter) -> None:
    lines = [wordy_line(Generator(f"{seed} words {name} {i}")) for i in range(count)]
    lines = [line for line in lines if any(message["role"] == "assistant" for message in line["messages"])]
    for train_on in ("assistant", "last_assistant"):
        for line, got in zip(lines, reader.read(template, lines, train_on)):
            if "error" in got:
                reason = "cannot be determined" if "cannot be determined" in got["error"] else "refused by the template"
                if "given.jinja" not in got["error"] and reason != "cannot be determined":
                    found[f"WRONG {name}: {got['error'][:300]}"] += 1
                found[f"words: {reason}"] += 1
                if reason == "cannot be determined":
                    found[f"  undetermined in {name}"] += 1
                continue
            what = check_words(line, got, train_on == "last_assistant")
            found[f"WRONG {name}, {train_on}: {what}" if what else "words: right"] += 1


# ---- 3: prompts and completions ----

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def compare_completions(reader: Reader, fast, count: int, seed: int, found: collections.Counter) -> None:
    generator = Generator(f"completions {seed}")
    lines = [{"prompt": generator.text(), "completion": generator.text()} for _ in range(count)]
    lines += [{"prompt": [{"role": "user", "content": generator.text()}],
               "completion": [{"role": "assistant", "content": generator.text()}]} for _ in range(count)]
    for line, got in zip(lines, reader.read(CHATML, lines)):
        if isinstance(line["prompt"], str):
            prompt = line["prompt"]
            whole = prompt + line["completion"] + ("" if line["completion"].endswith("</s>") else "</s>")
        else:
            prompt = fast.apply_chat_template(line["prompt"], chat_template=CHATML, tokenize=False, add_generation_prompt=True)
            whole = fast.apply_chat_template(line["prompt"] + line["completion"], chat_template=CHATML, tokenize=False)
        before, tokens = fast.encode(prompt, add_special_tokens=False), fast.encode(whole, add_special_tokens=False)
        if "error" in got or got["text"] != whole or got["tokens"] != tokens:
            found[f"WRONG completion: {got}"[:300]] += 1
        elif tokens[:len(before)] != before:
            found["completions: a token crosses the border"] += 1
        else:
            right = got["trained"] == [0] * len(before) + [1] * (len(tokens) - len(before))
            found["completions: equal" if right else f"WRONG completion: mask of {line}"[:300]] += 1


def main() -> None:
    program = os.path.abspath(sys.argv[1])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    found: collections.Counter = collections.Counter()
    templates = published_templates(Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fast = make_tokenizer(folder, seed)
        reader = Reader(program, folder)
        for path, text in templates.items():
            if MARKS.search(text):
                compare_marks(reader, fast, path, text, count, seed, found)
                compare_words(reader, path + " without marks", MARKS.sub("", text), count, seed, found)
            compare_words(reader, path, text, count, seed, found)
        compare_completions(reader, fast, 5 * count, seed, found)
    for what, number in sorted(found.items(), key=lambda item: (not item[0].startswith("WRONG"), -item[1]))[:60]:
        print(f"{number} x {what}")
    good = ("marks: equal", "words: right", "completions: equal")
    sys.exit(any(what.startswith("WRONG") for what in found) or not all(found[what] for what in good))


main()
