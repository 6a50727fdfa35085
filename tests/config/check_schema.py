#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For developers: configs/schema.json against a real validator (pip install jsonschema pyyaml).

Every shipped model and run must be accepted, and each of the mistakes below refused. Folders with
further files that must be accepted may be named on the command line."""
import glob, json, os, sys
import jsonschema, yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
schema = json.load(open(ROOT + "/configs/schema.json"))
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers: 3e-5 is one."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    __import__("re").compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

REFUSED = [
    "training_config: {bach_size: 8}", "training_config: {batch_size: 0}", "trainig_config: {}",
    "training_config: {optimizer: {type: Muon}}", "training_config: {optimizer: {beta1: 1.0}}",
    "device_config: {mesh_shape: [0, 2]}", "device_config: {enable_ddp: 1}", "mesh: automatic",
    "mesh: {axes: [dp, xp]}", "lora_config: {r: 0}", "lora_config: {target_modules: {}}", "training_config: {tokenizer_type: words}",
    "training_config: {model_path: x}", "[]", "multihost_config: {enabled: 1}", "zero: {stage: 4}",
    "multihost_config: {socket_type: tcp}", "zero: {partition: flat}", "schedule: [1f1b]",
    "pipeline: {stages: [{begin: x}]}", "pipeline: {blocks_per_rank: [0]}", "pipeline: {axis: dp}",
    "pipeline: {blocks_per_rank: {0: 0}}", "training_config: {precision: fp4}",
]
ACCEPTED = ["{}", "training_config:", "mesh: auto", "multihost_config: {enabled: false}",
            "training_config: {model_config: x.yaml, learning_rate: 3e-4}",
            "transformer_config: {own_size: 3}", "lora_config: lora.yaml", "lora_config: {target_modules: [wq]}", "device_config: other.yaml", "schedule: file:own.sched",
            "schedule: {recompute: full}", "pipeline: {stages: [a, b], schedule: 1F1B}",
            "pipeline: {stages: [{name: a}, {name: b, begin: c}]}", "pipeline: {blocks_per_rank: {0: 6, 1: 7}}",
            "training_config: {multihost_config: hosts.yaml, loss_scale: {mode: interval}}",
            "multihost_config: {enabled: true, num_workers: 2, socket_type: fabric, "
            "pipeline_parallel_config: {num_blocks: 2, blocks_per_rank: {0: 1, 1: 1}}}"]

failed = 0
for text in REFUSED:
    if validator.is_valid(yaml.load(text, Loader)):
        failed += 1
        print("accepted:", text)
files = glob.glob(ROOT + "/configs/models/*.yaml") + glob.glob(ROOT + "/configs/runs/*.yaml")
for folder in sys.argv[1:]:
    files += glob.glob(folder + "/**/*.yaml", recursive=True)
for name, text in [(t, t) for t in ACCEPTED] + [(f, open(f).read()) for f in files]:
    for error in validator.iter_errors(yaml.load(text, Loader)):
        failed += 1
        print(f"{name}: {'.'.join(map(str, error.path))}: {error.message[:200]}")
print(f"{len(REFUSED) + len(ACCEPTED) + len(files)} checked, {failed} failed")
sys.exit(failed != 0)
