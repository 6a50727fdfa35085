#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys of config.json that transformers reads, in models that the commands import and export: each is computed as
there, or refused by name. The oracle is what transformers' classes do with the same keys.
usage: test_config_keys.py PROGRAM"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
checks = failed = 0


def check(ok, what):
    global checks, failed
    checks += 1
    if not ok:
        failed += 1
        print("FAILED:", what)


def run(program, folder, *words):
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def prepare(folder, name, keys):
    shutil.copytree(DATA / name, folder / "in")
    config = json.loads((folder / "in" / "config.json").read_text())
    config.update(keys)
    (folder / "in" / "config.json").write_text(json.dumps(config))


def imported(program, name, **keys):
    """(exit code, what was printed, config.yaml, the exported config.json)"""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder, name, keys)
        code, said = run(program, folder, "import", "in", "--out", "model")
        if code:
            return code, said, None, None
        code, said = run(program, folder, "export", "model", "--out", "out")
        check(code == 0, said)
        return 0, said, (folder / "model" / "config.yaml").read_text(), json.loads((folder / "out" / "config.json").read_text())


def refused_gguf(program, name, says, **keys):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder, name, keys)
        code, said = run(program, folder, "import", "in", "--out", "model")
        check(code == 0, said)
        code, said = run(program, folder, "export", "model", "--format", "gguf", "--out", "m.gguf")
        check(code == 2 and says in said and not (folder / "m.gguf").exists(), f"{name} as GGUF: exit code {code}: {said}")


def main():
    program = Path(sys.argv[1]).resolve()
    for name in ("hf_phi3", "hf_starcoder2"):  # a window of 0 leaves no keys to transformers
        code, said, _, config = imported(program, name, sliding_window=None)
        check(code == 0 and config["sliding_window"] is None, f"{name} without a window: {said} {config}")
        code, said, _, config = imported(program, name, sliding_window=7)
        check(code == 0 and config["sliding_window"] == 7, f"{name} with a window: {said} {config}")
    for name in ("hf_gemma2", "hf_gemma3"):  # transformers makes the window's mask even if no layer has one
        code, said, _, config = imported(program, name, sliding_window=None)
        ok = code == 0 and config["sliding_window"] == config["max_position_embeddings"]
        check(ok and set(config["layer_types"]) == {"full_attention"}, f"{name} without a window: {said} {config}")
    layers = json.loads((DATA / "hf_smollm3" / "config.json").read_text())["num_hidden_layers"]
    code, said, yaml, _ = imported(program, "hf_smollm3", use_sliding_window=False, sliding_window=3,
                                   layer_types=["sliding_attention"] * layers)
    check(code == 0 and "sliding_window: 3" in yaml, f"SmolLM3's window is that of layer_types: {said} {yaml}")
    for name, keys, says in (
            ("hf_gpt_neox", {"head_dim": 4}, "head_dim 4 is not supported"),
            ("hf_olmoe", {"head_dim": 2}, "head_dim 2 is not supported"),
            ("hf_deepseek_v3", {"head_dim": 6}, "head_dim 6 is not supported"),
            ("hf_gpt2", {"num_attention_heads": 1}, "num_attention_heads"),
            ("hf_gpt2", {"num_hidden_layers": 1}, "num_hidden_layers")):
        code, said, _, _ = imported(program, name, **keys)
        check(code == 2 and says in said, f"{name} with {keys}: exit code {code}: {said}")
    refused_gguf(program, "hf_llama", "YaRN and linear scalings", rope_scaling={"rope_type": "linear", "factor": 2.0},
                 rope_parameters=None)
    print(f"config keys: {checks} checks, {failed} failed")
    sys.exit(failed > 0 or checks < 15)


main()
