# SPDX-License-Identifier: Apache-2.0
"""The small synthetic data of a recipe: text, token files, tables."""

import json
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Few letters, so that a character tokenizer gives an odd, small vocabulary.
_LETTERS = "abcdefghijklmnopqrstuvwxyz ,.\n"

# Of conversations: each message follows the one before it, and the assistant's are trained.
_TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
             "{% else %}{{ m.content }}{% endif %}{% endfor %}")


@dataclass(frozen=True)
class Data:
    """What is written. kind: byte, char (texts), nanogpt, llmc (token files), chat (conversations), classes, values
    (tables)."""

    kind: str
    vocabulary: int = 256  # of token files; letters used of a text for char
    separate: bool = False  # documents: separate, token 0 ending one; of chat always
    packs: bool = True  # of chat: several conversations in a sample
    features: int = 0  # of a table
    targets: int = 0  # classes, or numbers to predict
    ignored: int = -1  # a token whose targets have no loss; -1: none
    mixed: bool = False  # two sources with weights
    seed: int = 1

    @property
    def is_table(self) -> bool:
        return self.kind in ("classes", "values")

    @property
    def model_vocabulary(self) -> int:
        """What a model's vocab_size says: 0 where the data is to be counted."""
        return {"byte": 256, "chat": 256, "char": 0}.get(self.kind, self.vocabulary)

    def settings(self) -> dict[str, Any]:
        """Their keys of training_config."""
        if self.is_table:
            return {"data_path": "train.csv", "validation_fraction": 0.25}
        text = self.kind in ("byte", "char")
        end = "txt" if text else "jsonl" if self.kind == "chat" else "bin"
        keys: dict[str, Any] = {"data_path": f"train.{end}", "validation_path": f"valid.{end}"}
        if self.mixed:
            del keys["data_path"]
            keys["data_sources"] = [{"path": f"train.{end}", "weight": 0.7}, {"path": f"more.{end}", "weight": 0.3}]
        if self.kind == "chat":
            return keys | {"tokenizer_type": "byte"}
        if text:
            keys["tokenizer_type"] = self.kind
        else:
            keys["data_format"] = "llmc" if self.kind == "llmc" else "nanogpt_u16"
        if self.separate:
            keys |= {"documents": "separate", "end_of_text": 0}
        if self.ignored >= 0:
            keys["ignore_index"] = self.ignored
        return keys

    def section(self) -> dict[str, Any]:
        """The keys of data; none where all are the defaults."""
        if self.kind != "chat":
            return {}
        return {"format": "chat", "template": "chat.jinja", "packing": "best_fit" if self.packs else "none",
                "too_long": "truncate" if self.seed % 2 else "drop"}

    def write(self, folder: Path, samples: int, sequence: int) -> None:
        """Training data for so many samples, and a quarter as much to evaluate."""
        rng = random.Random(f"data {self.seed}")
        if self.kind == "chat":
            (folder / "chat.jinja").write_text(_TEMPLATE)
        for name, count in (("train", samples), ("valid", max(4, samples // 4)), ("more", samples)):
            if name == "more" and not self.mixed:
                continue
            if self.is_table:
                (folder / f"{name}.csv").write_text(self._table(rng, count))
            elif self.kind == "chat":
                lines = [self._conversation(rng, sequence) for _ in range((2 if self.packs else 1) * count + 4)]
                (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            elif self.kind in ("byte", "char"):
                letters = _LETTERS[: max(2, min(self.vocabulary, len(_LETTERS)))]
                text = letters + "".join(rng.choice(letters) for _ in range(count * 2 + sequence))
                (folder / f"{name}.txt").write_text(text)
            else:
                (folder / f"{name}.bin").write_bytes(self._tokens(rng, count * sequence + 1))

    @staticmethod
    def _conversation(rng: random.Random, sequence: int) -> dict[str, Any]:
        """Of one to three turns; few are longer than a sample, and all that fit have a target."""
        left, messages = rng.randint(2, max(2, sequence + sequence // 8)), []
        for _ in range(rng.randint(1, 3)):
            for role in ("user", "assistant"):
                count = min(left, rng.randint(1, max(1, sequence // 3)))
                left -= count
                if count:
                    content = "".join(rng.choice(_LETTERS[:26]) for _ in range(count))
                    messages.append({"role": role, "content": content})
        if messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": "."})
        return {"messages": messages}

    def _tokens(self, rng: random.Random, count: int) -> bytes:
        tokens = [0 if self.separate and rng.random() < 0.2 else rng.randrange(self.vocabulary) for _ in range(count)]
        head = b""
        if self.kind == "llmc":
            head = struct.pack("<256i", 20240520, 1, count, *([0] * 253))
        return head + struct.pack(f"<{count}H", *tokens)

    def _table(self, rng: random.Random, count: int) -> str:
        rows = []
        for _ in range(count):
            row = [f"{rng.gauss(0, 1):.4f}" for _ in range(self.features)]
            if self.kind == "classes":
                row.append(str(rng.randrange(self.targets)))
            else:
                row += [f"{rng.gauss(0, 1):.4f}" for _ in range(self.targets)]
            rows.append(",".join(row))
        return "\n".join(rows) + "\n"
