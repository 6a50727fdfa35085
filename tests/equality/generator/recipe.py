# SPDX-License-Identifier: Apache-2.0
"""A recipe: all of a configuration that fixes the bits. It is drawn from a seed and is never changed; shrinking
makes others of it."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import owngraph
import yamltext
from data import Data


# How often each is drawn.
MODELS = {"gpt2": 4, "llama": 4, "qwen3": 4, "mlp": 1, "linear_regression": 1, "own": 12,
          "experts": 5}  # graphs of their own, with a mixture


@dataclass(frozen=True)
class Recipe:
    """Plain values only, so that a smaller recipe is this one with a few fields replaced."""

    seed: str
    model: str  # one of MODELS
    sizes: dict[str, Any]  # keys of transformer_config or mlp_config
    data: Data
    own: owngraph.OwnGraph | None = None
    samples: int = 4  # of a step
    sequence: int = 8
    steps: int = 3
    units_batch: int = 4
    units_sequence: int = 1
    units_tp: int = 1
    leaf: int = 1  # batch units of each leaf of the gradients of experts
    zigzag: bool = False
    flat: bool = False  # numerics.reduce_tree
    half_tp: bool = False  # numerics.tp_reductions
    precision: str = "f32"
    fp8: dict[str, Any] = field(default_factory=dict)
    loss_scale: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    lora: dict[str, Any] = field(default_factory=dict)  # lora_config; none: all parameters are trained
    clip: float = 0.0  # 0: no clipping
    eval_every: int = 0
    eval_samples: int = 2  # of an evaluation's batch
    sample_tokens: int = 0  # of the text that is sampled at the end
    isa: str = ""
    device: str = ""  # of device_config; the CPU unless given

    @property
    def blocks(self) -> int:
        """How many blocks a pipeline's default cut sees."""
        if self.own:
            return self.own.blocks
        if self.model == "mlp":
            return len(self.sizes["hidden_features"])
        return self.sizes.get("num_blocks", 0)

    @property
    def blocks_known(self) -> bool:
        """Whether `blocks` is what pipeline.blocks_per_rank must add up to."""
        return not (self.own and "called" in self.own.kinds())

    @property
    def has_sequence(self) -> bool:
        return not self.data.is_table

    @property
    def mixtures(self) -> list[tuple[int, bool]]:
        """The experts of each mixture, and whether tp shares them out."""
        return self.own.mixtures(self.data, self.sequence, self.units_tp) if self.own else []

    @property
    def units_expert(self) -> int:
        """Leaves of the gradients of experts; from left to right each batch unit is one."""
        alone = self.flat or self.units_batch % self.leaf
        return self.units_batch // (1 if alone else self.leaf)

    @property
    def whole_batch(self) -> bool:
        """Whether the samples of a microbatch see each other, so that its size is part of the recipe."""
        return bool(self.own and self.own.mixes_batch)

    def node_names(self) -> list[str]:
        """Names at which a pipeline's stage may begin, in their order."""
        if self.own:
            return self.own.node_names(self.data, self.sequence, self.units_tp)
        if self.model in ("mlp", "linear_regression"):
            return []
        parts = ("n", "q", "a", "o", "x", "n_2", "x_2")
        return [f"block.{i}.{part}" for i in range(self.blocks) for part in parts]

    def features(self) -> set[str]:
        """What the summary counts it under."""
        names = {f"model {self.model}", f"precision {self.precision}", f"data {self.data.kind}",
                 f"optimizer {self.optimizer.get('type')}"}
        names |= {f"optimizer {k}" for k in ("amsgrad", "momentum", "nesterov", "stochastic_rounding",
                                             "kahan_summation") if self.optimizer.get(k)}
        names |= {name for name, on in (
            ("clipping", self.clip), ("evaluation", self.eval_every),
            ("sampled text", self.sample_tokens), ("cp_layout zigzag", self.zigzag), ("reduce_tree flat", self.flat),
            ("tp_reductions half", self.half_tp),
            ("units.sequence above 1", self.units_sequence > 1), ("documents separate", self.data.separate),
            ("ignore_index", self.data.ignored >= 0), ("data_sources", self.data.mixed),
            ("vocabulary of 1,024 and more", self.data.vocabulary >= 1024 and self.has_sequence),
            ("uneven", self.own and self.own.uneven), ("dropout", self.sizes.get("dropout_prob")), ("learning rate's curve", self.scheduler),
            ("adapters", self.lora)) if on}
        names |= {f"adapters {key}" for key in self.lora if key not in ("r", "lora_alpha")}
        if self.own:
            names |= {f"op {op}" for op in self.own.ops(self.data, self.sequence, self.units_tp)}
            names |= {f"piece {kind}" for kind in self.own.kinds()} | self.own.mixture_features()
        return names

    def config(self) -> dict[str, Any]:
        """The keys that every realisation has alike."""
        training: dict[str, Any] = {
            "seed": int(self.data.seed), **self.data.settings(), "max_steps": self.steps, "log_every": 1,
            "num_epochs": 100, "sample_tokens": self.sample_tokens, "eval_every": self.eval_every,
            "validation_batch_size": self.eval_samples, "precision": self.precision, "optimizer": self.optimizer}
        if self.has_sequence:
            training["sequence_length"] = self.sequence
        if not self.eval_every:
            del training["validation_batch_size"]
        if self.precision == "fp16" and self.loss_scale:
            training["loss_scale"] = self.loss_scale
        if self.precision == "fp8" and self.fp8:
            training["fp8"] = self.fp8
        if self.clip:
            training |= {"use_clip_grad_norm": True, "clip_grad_norm_max_norm": self.clip}
        # All of them are said: what is left out is the mesh's own.
        units = {"batch": self.units_batch, "tp": self.units_tp}
        if self.has_sequence:
            units["sequence"] = self.units_sequence
        if self.mixtures:
            units["expert"] = self.units_expert
        numerics: dict[str, Any] = {"units": units}
        if self.isa:
            numerics["isa"] = self.isa
        if self.flat:
            numerics["reduce_tree"] = "flat"
        if self.half_tp:
            numerics["tp_reductions"] = "half"
        config: dict[str, Any] = {"training_config": training, "numerics": numerics}
        if self.data.section():
            config["data"] = self.data.section()
        if self.scheduler:
            config["scheduler_config"] = self.scheduler
        if self.lora:
            config["lora_config"] = self.lora
        device = {"device": self.device} if self.device else {}
        if self.zigzag:
            device["cp_layout"] = "zigzag"
        if device:
            config["device_config"] = device
        if self.own:
            section = "mlp_config" if self.data.is_table else "transformer_config"
            config[section] = {"graph": "graph.yaml", **self.own.sizes(self.data)}
        elif self.model in ("mlp", "linear_regression"):
            graph = {"graph": "graph.yaml"} if self.model == "linear_regression" else {}
            config["mlp_config"] = {"model_type": self.model, **graph, **self.sizes}
        else:
            config["transformer_config"] = {"model_type": self.model, **self.sizes}
        return config

    def write(self, folder: Path) -> None:
        """Its data and its graph file."""
        self.data.write(folder, self.samples * (self.steps + 2), self.sequence)
        if self.own:
            graph = self.own.document(self.data, self.sequence, self.units_tp)
            (folder / "graph.yaml").write_text(yamltext.block(graph) + "\n")
        elif self.model == "linear_regression":
            shipped = Path(__file__).parents[3] / "configs/graphs/linear_regression.yaml"
            (folder / "graph.yaml").write_text(shipped.read_text())


def _draw_fp8(seed: int, precision: str) -> tuple[str, dict[str, Any]]:
    """bf16 or, of a stream of its own, fp8, and the keys of that."""
    rng = random.Random(f"fp8 {seed}")
    if precision != "bf16" or rng.random() < 0.6:
        return precision, {}
    keys = {"gradients": ["e4m3", "e5m2"], "scales": ["power_of_two", "f32"]}
    return "fp8", {key: rng.choice(values) for key, values in keys.items() if rng.random() < 0.5}


def _draw_half_tp(seed: str, precision: str, units_tp: int) -> bool:
    """Sums over tp in half precision. Drawn by itself, so that the rest of a recipe does not depend on it."""
    return precision != "f32" and units_tp > 1 and random.Random(f"tp_reductions {seed}").random() < 0.5


def _draw_optimizer(rng: random.Random, precision: str) -> dict[str, Any]:
    optimizer: dict[str, Any] = {"lr": rng.choice([0.003, 0.01, 0.05])}
    rule = rng.random()
    if rule < 0.65:
        optimizer["type"] = "AdamW" if rule < 0.5 else "Adam"
        if rng.random() < 0.3:
            optimizer["amsgrad"] = True
    else:
        optimizer["type"] = "SGD"
        if rng.random() < 0.6:
            optimizer["momentum"] = 0.9
            if rng.random() < 0.5:
                optimizer["nesterov"] = True
            elif rng.random() < 0.4:
                optimizer["dampening"] = 0.3
    if rng.random() < 0.5:
        optimizer["weight_decay"] = rng.choice([0.0, 0.1])
    if precision == "bf16" and rng.random() < 0.5:  # without effect in fp8
        optimizer[rng.choice(["stochastic_rounding", "kahan_summation"])] = True
    return optimizer


def _draw_curve(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(["", "", "", "cosine", "linear", "wsd", "warmup_linear"])
    if not kind:
        return {}
    return {"type": kind, "min_lr": 0.0001} | ({} if kind == "warmup_linear" else {"warmup_steps": 1})


LINEARS = {"gpt2": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"],
           "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}


def _draw_lora(seed: str, model: str, own: owngraph.OwnGraph | None, ops: set[str]) -> dict[str, Any]:
    """Adapters of some models. Drawn by themselves, so that the rest of a recipe does not depend on them."""
    rng = random.Random(f"lora {seed}")
    if rng.random() > 0.2 or model in ("mlp", "linear_regression") or (own and "linear" not in ops):
        return {}
    lora: dict[str, Any] = {"r": rng.choice([1, 2, 3, 4, 7]), "lora_alpha": rng.choice([1, 4, 6.5])}
    if rng.random() < 0.3:
        lora["lora_dropout"] = rng.choice([0.1, 0.4])
    lora |= {key: True for key in ("use_rslora", "use_dora") if rng.random() < 0.4}
    if rng.random() < 0.5:
        lora["bias"] = rng.choice(["all", "lora_only"])
    linears = LINEARS["gpt2" if model == "gpt2" else "llama"]
    if not own and rng.random() < 0.6:
        lora["target_modules"] = rng.sample(linears, rng.randrange(1, len(linears)))
    elif not own and rng.random() < 0.5:
        lora["exclude_modules"] = rng.sample(linears, 2)
    if not own and rng.random() < 0.3:
        lora["modules_to_save"] = rng.choice([["ln_f"], ["wte"], ["ln_1", "ln_2"]] if model == "gpt2" else
                                             [["model.norm"], ["embed_tokens"], ["layernorm"]])
    if "target_modules" in lora and rng.random() < 0.5:
        lora["rank_pattern"] = {rng.choice(lora["target_modules"]): rng.choice([1, 2, 5])}
        lora["alpha_pattern"] = {rng.choice(lora["target_modules"]): rng.choice([2, 9.5])}
    return lora


def _draw_sizes(rng: random.Random, model: str, units_tp: int, data: Data, sequence: int) -> dict[str, Any]:
    """The sizes of a shipped architecture, mostly such that the units divide them."""
    if model == "linear_regression":
        return {"input_features": data.features, "output_features": data.targets, "bias": rng.random() < 0.7}
    if model == "mlp":
        hidden = [units_tp * rng.choice([1, 2, 3, 5]) for _ in range(rng.randrange(4))]
        return {"input_features": data.features, "hidden_features": hidden, "output_features": data.targets}
    groups = units_tp * rng.choice([1, 1, 2, 3] if units_tp < 3 else [1])
    heads = groups * (rng.choice([1, 2, 3]) if model != "gpt2" else 1)
    if rng.random() < 0.1:
        heads, groups = 3, rng.choice([1, 3])
    head_dim = rng.choice([2, 4, 6, 8, 12]) if heads < 8 else rng.choice([2, 4])
    sizes: dict[str, Any] = {
        "vocab_size": data.model_vocabulary, "embedding_dim": heads * head_dim, "num_heads": heads,
        "num_blocks": rng.choice([1, 1, 2, 2, 3, 4]), "max_sequence_length": sequence + rng.choice([0, 0, 3]),
        "intermediate_dim": units_tp * rng.choice([3, 5, 8]),
        "dropout_prob": rng.choice([0.0, 0.0, 0.1, 0.3]),
        "weight_tying": rng.choice(["enabled", "disabled"])}
    if model != "gpt2":
        sizes |= {"num_groups": groups, "theta": 10000.0}
        if model == "qwen3" and rng.random() < 0.4:
            sizes["head_dim"] = rng.choice([2, 4, 6])
        if model == "qwen3":
            sizes["attention_bias"] = rng.random() < 0.4
        if model == "llama" and rng.random() < 0.3:
            sizes["rope_scaling"] = {"scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_context_length": max(2, sequence // 2)}
        if model == "llama" and sizes["num_blocks"] > 1:
            sizes["sliding_window"] = sequence // 2 + 1
    else:
        sizes["bias"] = rng.random() < 0.7
    return sizes


def _draw_data(rng: random.Random, model: str, table: bool, units_tp: int) -> Data:
    seed = rng.randrange(1, 1000)
    if table:
        kind = {"mlp": "classes", "linear_regression": "values"}.get(model) or rng.choice(["classes", "values"])
        # A table's columns are the model's sizes, and some of those are split over tp.
        targets = 1 if kind == "values" else rng.choice([2, 3, 6])
        return Data(kind, features=units_tp * rng.choice([1, 2, 3]), targets=targets, seed=seed)
    kind = rng.choice(["byte", "char", "char", "nanogpt", "nanogpt", "llmc"])
    mixed = rng.random() < 0.15
    if kind == "byte":
        chat = random.Random(f"chat {seed}").choice(("", "packs", "singly"))
        return Data("chat" if chat else kind, separate=bool(chat), packs=chat == "packs", mixed=mixed, seed=seed)
    vocabulary = rng.choice([5, 13, 26, 30] if kind == "char" else [7, 16, 29, 64, 97])
    return Data(kind, vocabulary=vocabulary, separate=kind != "char" and rng.random() < 0.35,
                ignored=rng.randrange(3) if rng.random() < 0.2 else -1, mixed=mixed, seed=seed)


def _enlarge(seed: str, data: Data) -> Data:
    """Vocabularies of some token files: from 1,024 tokens on their rows are padded to a multiple of 128."""
    rng = random.Random(f"vocabulary {seed}")
    return replace(data, vocabulary=rng.choice([1000, 1023, 1024, 1025, 1153, 2003])) if rng.random() < 0.2 else data


def draw(seed: str, model: str = "", isa: str = "") -> Recipe:
    """The recipe of a seed."""
    rng = random.Random(f"recipe {seed}")
    drawn = rng.choices(list(MODELS), list(MODELS.values()))[0]
    model = model or drawn
    mixture = model == "experts"
    model = "own" if mixture else model
    table = model in ("mlp", "linear_regression") or (model == "own" and rng.random() < 0.2)
    units_batch = rng.choices([1, 2, 3, 4, 6, 8, 12, 16], [1, 3, 1, 8, 1, 6, 1, 1])[0]
    units_tp = rng.choices([1, 2, 3, 4, 6, 8], [4, 5, 1, 4, 1, 1])[0]
    samples = units_batch * rng.choice([1, 1, 2, 3] if units_batch < 6 else [1, 1, 2])
    sequence = rng.choices([4, 8, 16, 6, 12, 5], [3, 6, 2, 1, 2, 1])[0]
    units_sequence = 1 if table else rng.choice([1, 1, 2, 4, 4, 8])
    while sequence % units_sequence:
        units_sequence //= 2
    if units_sequence > 1 and units_batch in (3, 6, 12) and rng.random() < 0.95:
        samples, units_batch = 8, rng.choice([2, 4, 8])
    precision = rng.choices(["f32", "bf16", "fp16"], [5, 3, 2])[0]
    narrow, fp8 = _draw_fp8(seed, precision)
    data = _draw_data(rng, model, table, units_tp)
    loss_scale = rng.choice([{}, {"mode": "interval", "init": 1024, "interval": 1}, {"mode": "static", "init": 256},
                             {"mode": "interval", "init": 1073741824.0}])
    if data.kind in ("nanogpt", "llmc"):
        data = _enlarge(seed, data)
    own = owngraph.draw(rng, data, units_tp, sequence, mixture) if model == "own" else None
    if own and units_tp > 1 and random.Random(f"uneven {seed}").random() < 0.2:
        own = replace(own, uneven=True)
    ops = own.ops(data, sequence, units_tp) if own else set()
    return Recipe(
        seed=seed, model=model, data=data, own=own, lora=_draw_lora(seed, model, own, ops), samples=samples, sequence=sequence, steps=rng.choice([2, 3, 4]),
        sizes={} if own else _draw_sizes(rng, model, units_tp, data, sequence),
        units_batch=units_batch, units_sequence=units_sequence, units_tp=units_tp,
        leaf=rng.choice([n for n in (1, 1, 2, 4, units_batch) if units_batch % n == 0]),
        zigzag=units_sequence > 1 and rng.random() < 0.4, precision=narrow, fp8=fp8, loss_scale=loss_scale,
        optimizer=_draw_optimizer(rng, precision), scheduler=_draw_curve(rng),
        clip=rng.choice([0.0, 0.1, 0.1, 0.01, 1.0, 1000.0]), isa=isa,
        eval_every=rng.choice([0, 0, 1, 2]), eval_samples=rng.choice([1, 2, 3, 4, 5]),
        sample_tokens=0 if table else rng.choice([0, 0, 40]), flat=rng.random() < 0.2,
        half_tp=_draw_half_tp(seed, narrow, units_tp))
