#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a power cut may leave of a run, at every moment of it: files whose last writes are lost or torn, names whose
changes are lost. The run resumes from each such picture of the disk and ends with the weights of one that was never cut
off; checkpoints that were on the disk are.

What is on the disk for certain is what POSIX promises: bytes of a file up to its last fsync, names of a folder up to
the folder's last fsync. Of what came later a seed draws what has arrived: of each file so many of its writes, the last
one perhaps in part, or its length without its bytes; of each folder so many of its changes, in their order, those of
one folder without those of another.
usage: test_crash_images.py PROGRAM [PICTURES]"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

STEPS = 4
RUN = """\
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 4, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte, model_save_interval: 1}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
checkpoint: {keep_last: 2}
numerics: {threads: 1}
"""


@dataclass
class Operation:
    word: str
    fd: int
    text: str
    data: bytes


def read_log(path: Path) -> Iterator[Operation]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        end = data.index(b"\n", at)
        word, fd, length, text = data[at:end].decode().split(" ", 3)
        at = end + 1 + int(length)
        yield Operation(word, int(fd), text, data[end + 1:at])


@dataclass
class File:
    """What was written to it in turn: bytes at its end, or the length that it was cut to."""

    writes: list[bytes | int] = field(default_factory=list)
    synced: int = 0  # writes

    def after(self, count: int) -> bytes:
        """Its bytes after so many writes."""
        data = b""
        for write in self.writes[:count]:
            data = data[:write].ljust(write, b"\0") if isinstance(write, int) else data + write
        return data

    def arrived(self, rng: random.Random) -> bytes:
        """Its bytes after a power cut."""
        late = len(self.writes) - self.synced
        if rng.random() < 0.25:  # the length is there, the bytes are not
            length = len(self.after(len(self.writes)))
            return self.after(self.synced)[:length].ljust(length, b"\0")
        count = self.synced + rng.choice([0, late, rng.randint(0, late)])
        torn = self.writes[count] if count < len(self.writes) else b""
        return self.after(count) + (torn[:rng.randint(0, len(torn))] if isinstance(torn, bytes) else b"")


@dataclass
class Folder:
    """Names, and the changes of them since the last fsync. A change is a name and what it is now, None for nothing."""

    names: dict[str, "File | Folder"] = field(default_factory=dict)
    late: list[dict[str, "File | Folder | None"]] = field(default_factory=list)

    def now(self, changes: int | None = None) -> dict[str, "File | Folder"]:
        names = dict(self.names)
        for change in self.late if changes is None else self.late[:changes]:
            for name, what in change.items():
                if what is None:
                    names.pop(name, None)
                else:
                    names[name] = what
        return names

    def sync(self) -> None:
        self.names, self.late = self.now(), []


@dataclass
class Disk:
    root: Folder = field(default_factory=Folder)
    open: dict[int, File] = field(default_factory=dict)

    def folder_at(self, path: str) -> Folder:
        at = self.root
        for part in path.split("/"):
            if part not in ("", "."):
                below = at.now()[part]
                assert isinstance(below, Folder)
                at = below
        return at

    def find(self, path: str) -> tuple[Folder, str]:
        """The folder that a name is in."""
        folder, _, name = path.rpartition("/")
        return self.folder_at(folder), name

    def do(self, o: Operation) -> None:
        if o.word in ("open", "empty"):
            folder, name = self.find(o.text)
            there = folder.now().get(name)
            if o.word == "empty" or not isinstance(there, File):
                there = File()
                folder.late.append({name: there})
            self.open[o.fd] = there
        elif o.word == "write":
            self.open[o.fd].writes.append(o.data)
        elif o.word == "cut":
            self.open[o.fd].writes.append(int(o.text))
        elif o.word == "sync":
            self.open[o.fd].synced = len(self.open[o.fd].writes)
        elif o.word == "close":
            del self.open[o.fd]
        elif o.word == "folder":
            folder, name = self.find(o.text)
            if name not in folder.now():
                folder.late.append({name: Folder()})
        elif o.word == "sync_folder":
            self.folder_at(o.text).sync()
        elif o.word == "rename":
            (folder, name), (to_folder, to) = self.find(o.text), self.find(o.data.decode())
            assert folder is to_folder
            folder.late.append({name: None, to: folder.now()[name]})
        else:
            assert o.word == "remove", o.word
            folder, name = self.find(o.text)
            what = folder.now().get(name)
            if isinstance(what, Folder):  # its files first
                what.late.extend({each: None} for each in what.now())
            folder.late.append({name: None})

    def picture(self, where: Path, rng: random.Random, folder: Folder | None = None) -> None:
        """Writes what a power cut may leave."""
        folder = folder or self.root
        where.mkdir(exist_ok=True)
        late = len(folder.late)
        for name, what in folder.now(rng.choice([0, late, rng.randint(0, late)])).items():
            if isinstance(what, Folder):
                self.picture(where / name, rng, what)
            else:
                (where / name).write_bytes(what.arrived(rng))


def main() -> int:
    program = Path(sys.argv[1]).resolve()
    pictures = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TT_")}

    def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], cwd=folder, text=True, capture_output=True, timeout=120,
                              env=environment | more, check=False)

    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        (home / "run.yaml").write_text(RUN)
        (home / "text.txt").write_text(" ".join(str(i * i) for i in range(2000)))
        log = home / "log"
        done = run(home, "--config", "run.yaml", "--out", "out", TESSERA_DISK_LOG=str(log))
        want = re.search(r"weights sha256 (\w+)", done.stdout)
        assert want, done.stdout + done.stderr
        operations = list(read_log(log))
        checks, failed = check_syncs(operations)
        disk, kept = Disk(), 0
        for number, operation in enumerate(operations):
            disk.do(operation)
            if operation.word == "sync_folder" and operation.text.endswith("/checkpoints"):
                names = run_names(disk)
                kept = max([kept, *names])
            for k in range(pictures):
                rng = random.Random(f"{number} {k}")
                cut = Path(scratch) / "cut"
                shutil.rmtree(cut, ignore_errors=True)
                disk.picture(cut, rng)
                for name in ("run.yaml", "text.txt"):
                    shutil.copy(home / name, cut)
                said = run(cut, "--config", "run.yaml", "--out", "out", "--resume")
                found = re.search(r"weights sha256 (\w+)", said.stdout)
                begun = re.search(r"step-0*(\d+)'", said.stdout)
                problem = (f"exit code {said.returncode}" if said.returncode else
                           "other weights" if not found or found[1] != want[1] else
                           f"step {kept} was on the disk, and it resumes from step {begun[1] if begun else 0}"
                           if kept > int(begun[1] if begun else 0) else "")
                checks += 1
                if problem:
                    failed += 1
                    print(f"FAILED: cut off behind operation {number} ({operation.word} {operation.text}), picture {k}: "
                          f"{problem}\n{said.stdout}{said.stderr}")
                    if failed > 3:
                        return 1
    if kept != STEPS:
        failed += 1
        print(f"FAILED: of {STEPS} steps with a checkpoint each, step {kept} was the last one on the disk for certain")
    print(f"faults.crash_images: {checks} checks of {len(operations)} operations, {failed} failed")
    return 1 if failed or checks < 200 else 0


def check_syncs(operations: list[Operation]) -> tuple[int, int]:
    """How many renames there are, and how many of them are not followed by a sync of the folder that the name is in
    before the next rename there. At least one is of each checkpoint and one of config.yaml."""
    renames = [i for i, o in enumerate(operations) if o.word == "rename"]
    failed = 0
    for i in renames:
        folder = os.path.dirname(operations[i].data.decode()) or "."
        later = [o for o in operations[i + 1:] if o.word == "sync_folder" and o.text.rstrip("/") == folder or
                 o.word == "rename" and (os.path.dirname(o.data.decode()) or ".") == folder]
        if not later or later[0].word != "sync_folder":
            failed += 1
            print(f"FAILED: the folder of '{operations[i].data.decode()}' is not synced behind its renaming")
    if len(renames) < STEPS + 1:
        failed += 1
        print(f"FAILED: only {len(renames)} renames in the log")
    return len(renames), failed


def run_names(disk: Disk) -> list[int]:
    """Steps whose checkpoints' names are on the disk for certain."""
    out = disk.root.now().get("out")
    folder = out.now().get("checkpoints") if isinstance(out, Folder) else None
    assert isinstance(folder, Folder)
    return [int(name[5:]) for name in folder.names if re.fullmatch(r"step-\d+", name)]


if __name__ == "__main__":
    sys.exit(main())
