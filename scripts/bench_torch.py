# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of scripts/bench and scripts/gpu_speed: GPT-2 and Llama as one writes them for speed.
usage: bench_torch.py SHAPE BATCH SEQUENCE STEPS THREADS eager|compile|grouped_mm TOKENS [cuda|bf16]; SHAPE is a
JSON object. Mixtures of experts are transformers' Mixtral; eager and grouped_mm are its implementations of experts.
On the CPU in f32, with bf16 in bf16; with cuda on the first GPU, in bf16. bf16 is by autocast, with f32 weights.
Prints one JSON object a step. `bench_torch.py version` prints PyTorch's version."""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class GPT2Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads = s["heads"]
        self.ln_1 = nn.LayerNorm(s["width"])
        self.qkv = nn.Linear(s["width"], 3 * s["width"])
        self.proj = nn.Linear(s["width"], s["width"])
        self.ln_2 = nn.LayerNorm(s["width"])
        self.up = nn.Linear(s["width"], s["hidden"])
        self.down = nn.Linear(s["hidden"], s["width"])

    def forward(self, x, _):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte = nn.Embedding(s["vocab"], s["width"])
        self.wpe = nn.Embedding(s["positions"], s["width"])
        self.blocks = nn.ModuleList(GPT2Block(s) for _ in range(s["layers"]))
        self.ln_f = nn.LayerNorm(s["width"])
        self.head = nn.Linear(s["width"], s["vocab"], bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x, None)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def rotate(x, table):
    """Rotary positions in pairs of halves; `table` holds cosines and sines, (T, D / 2) each."""
    cos, sin = table
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.groups, self.dim = s["heads"], s["groups"], s["width"] // s["heads"]
        self.sizes = [s["width"], self.groups * self.dim, self.groups * self.dim]
        self.ln_1 = nn.RMSNorm(s["width"], eps=1e-5)
        self.qkv = nn.Linear(s["width"], sum(self.sizes), bias=False)
        self.proj = nn.Linear(s["width"], s["width"], bias=False)
        self.ln_2 = nn.RMSNorm(s["width"], eps=1e-5)
        self.gate_up = nn.Linear(s["width"], 2 * s["hidden"], bias=False)
        self.down = nn.Linear(s["hidden"], s["width"], bias=False)

    def forward(self, x, table):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(self.sizes, dim=2)
        q = rotate(q.view(b, t, self.heads, self.dim).transpose(1, 2), table)
        k = rotate(k.view(b, t, self.groups, self.dim).transpose(1, 2), table)
        v = v.view(b, t, self.groups, self.dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.ln_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte = nn.Embedding(s["vocab"], s["width"])
        self.blocks = nn.ModuleList(LlamaBlock(s) for _ in range(s["layers"]))
        self.ln_f = nn.RMSNorm(s["width"], eps=1e-5)
        self.head = nn.Linear(s["width"], s["vocab"], bias=False)
        dim = s["width"] // s["heads"]
        angles = torch.outer(torch.arange(s["positions"]).float(), 500000.0 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        table = (self.cos[: tokens.size(1)], self.sin[: tokens.size(1)])
        for block in self.blocks:
            x = block(x, table)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Mixtral(nn.Module):
    def __init__(self, s, experts_implementation):
        super().__init__()
        from transformers import MixtralConfig, MixtralForCausalLM
        self.model = MixtralForCausalLM(MixtralConfig(
            vocab_size=s["vocab"], hidden_size=s["width"], intermediate_size=s["hidden"],
            num_hidden_layers=s["layers"], num_attention_heads=s["heads"], num_key_value_heads=s["groups"],
            num_local_experts=s["experts"], num_experts_per_tok=s["chosen"],
            max_position_embeddings=s["positions"], use_cache=False, tie_word_embeddings=False,
            experts_implementation=experts_implementation))

    def forward(self, tokens, targets):
        logits = self.model(input_ids=tokens).logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def make_model(shape, mode):
    """Ours without PyTorch's own initialisation, which would be done for nothing."""
    if shape["experts"]:
        return Mixtral(shape, mode)
    with torch.device("meta"):
        model = GPT2(shape) if shape["kind"] == "gpt2" else Llama(shape)
    buffers = {name for name, _ in model.named_buffers()}
    if buffers:
        with torch.device("cpu"):
            fresh = Llama({**shape, "layers": 0, "vocab": 1})
        for name in buffers:
            setattr(model, name, getattr(fresh, name))
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, nn.Parameter(torch.empty(parameter.shape)))
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            nn.init.ones_(module.weight)
        elif hasattr(module, "weight"):
            nn.init.normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    if shape["kind"] == "gpt2":
        model.head.weight = model.wte.weight
    return model


def batches(path, batch, sequence):
    """Of llm.c's token file, one after the other, from its beginning again at its end."""
    with open(path, "rb") as file:
        file.seek(1024)
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).to(torch.int64)
    count = (len(tokens) - 1) // (batch * sequence)
    at = 0
    while True:
        first = (at % count) * batch * sequence
        rows = tokens[first : first + batch * sequence + 1]
        yield rows[:-1].view(batch, sequence), rows[1:].view(batch, sequence)
        at += 1


def say(**event):
    print(json.dumps(event), flush=True)


def main(shape, batch, sequence, steps, threads, mode, path, how="f32"):
    shape = json.loads(shape)
    device = "cuda" if how == "cuda" else "cpu"
    torch.set_num_threads(int(threads))
    torch.manual_seed(42)
    model = make_model(shape, mode).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=True)
    loss_of = torch.compile(model) if mode == "compile" else model
    source = batches(path, int(batch), int(sequence))
    say(event="start", parameters=sum(p.numel() for p in model.parameters()))
    for step in range(int(steps)):
        start = time.perf_counter()
        tokens, targets = (x.to(device, non_blocking=True) for x in next(source))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=how != "f32"):
            loss = loss_of(tokens, targets)
        loss.backward()
        optimizer.step()
        value = loss.item()
        say(event="step", step=step + 1, loss=value, ms=1000 * (time.perf_counter() - start))


if sys.argv[1:] == ["version"]:
    print(torch.__version__)
else:
    main(*sys.argv[1:])
