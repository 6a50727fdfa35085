# SPDX-License-Identifier: Apache-2.0
"""The models that scripts/bench measures: their sizes, their work, and the files each program wants."""
import array
import random
import sys
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Shape:
    kind: str  # gpt2, llama or mixtral
    layers: int
    width: int
    heads: int
    groups: int  # key and value heads
    hidden: int  # features inside the MLP, or inside an expert
    vocab: int
    positions: int  # of the table that GPT-2 has; what Llama may see
    experts: int = 0  # of a block; 0: an MLP instead
    chosen: int = 0  # by a token

    def head_dim(self):
        return self.width // self.heads

    def multiplied(self):
        """The elements of all matrices that a token is multiplied by: N. Not in it: tables of which a token
        takes a row (positions, and Llama's embedding, which is not its output matrix), experts that the token
        has not chosen, norms, biases."""
        attention = 2 * self.width * self.width + 2 * self.width * self.groups * self.head_dim()
        mlp = max(1, self.chosen) * self.mlp() + self.experts * self.width
        return self.layers * (attention + mlp) + self.vocab * self.width

    def mlp(self):
        """The elements of an MLP's matrices, or an expert's."""
        return (2 if self.kind == "gpt2" else 3) * self.width * self.hidden

    def parameters(self):
        """All of them, as `check` counts them."""
        if self.kind == "gpt2":
            vectors = self.layers * (9 * self.width + self.hidden) + 2 * self.width
            return self.multiplied() + vectors + self.positions * self.width
        idle = self.layers * (self.experts - self.chosen) * self.mlp()
        return self.multiplied() + idle + (2 * self.layers + 1) * self.width + self.vocab * self.width

    def flops(self, batch, sequence):
        """Of a training step, forward and backward. A matrix element costs 2 a token forward, 4 backward: 6 N. A
        query looks at T / 2 keys on average: scores and their product with the values are 2 T C forward,
        twice that backward, so 6 L T C a token. What is computed a second time does not count."""
        attention = 6 * self.layers * sequence * self.width
        return batch * sequence * (6 * self.multiplied() + attention)

    def bytes_of_a_token(self):
        """That must be read to generate one: each parameter, of the tables only a row."""
        tables = self.positions if self.kind == "gpt2" else self.vocab
        return 4 * (self.parameters() - (tables - 1) * self.width)

    def torch_modes(self):
        """How PyTorch is run: the second one with as many threads as are better for the first. Mixtures of
        experts are those of transformers, by its implementations of experts."""
        return ("eager", "grouped_mm") if self.experts else ("eager", "compile")

    def as_dict(self):
        return asdict(self)


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    shape: Shape
    batch: int
    sequence: int
    steps: int  # that count, of each process
    llmc: bool  # whether llm.c has such a model
    precision: str = "f32"

    def tokens(self):
        return self.batch * self.sequence

    def flops(self):
        return self.shape.flops(self.batch, self.sequence)


GPT2_124M = Shape("gpt2", 12, 768, 12, 12, 3072, 50257, 1024)
CHAR = Shape("gpt2", 6, 384, 6, 6, 1536, 65, 256)
LLAMA = Shape("llama", 12, 768, 12, 4, 2048, 32000, 512)
MIXTRAL = Shape("mixtral", 2, 768, 12, 12, 3072, 1000, 256, 8, 2)

WORKS = [
    Work("gpt2-4x256", "GPT-2 124M, 4 × 256", GPT2_124M, 4, 256, 4, True),
    Work("gpt2-4x256-bf16", "GPT-2 124M, 4 × 256, bf16", GPT2_124M, 4, 256, 4, False, "bf16"),
    Work("gpt2-1x1024", "GPT-2 124M, 1 × 1,024", GPT2_124M, 1, 1024, 4, True),
    Work("gpt2-4x64", "GPT-2 124M, 4 × 64", GPT2_124M, 4, 64, 8, True),
    Work("char-8x256", "6 × 384, vocabulary 65, 8 × 256", CHAR, 8, 256, 8, True),
    Work("char-32x256", "6 × 384, vocabulary 65, 32 × 256", CHAR, 32, 256, 4, True),
    Work("llama-2x512", "Llama 12 × 768, GQA 3:1, 2 × 512", LLAMA, 2, 512, 4, False),
    Work("mixtral-4x256", "Mixtral 2 × 768, 8 experts of 3,072, 2 chosen, 4 × 256", MIXTRAL, 4, 256, 4, False),
]


def model_section(shape):
    sizes = {
        "model_type": shape.kind,
        "vocab_size": shape.vocab,
        "embedding_dim": shape.width,
        "num_blocks": shape.layers,
        "num_heads": shape.heads,
        "intermediate_dim": shape.hidden,
        "max_sequence_length": shape.positions,
        "dropout_prob": 0.0,
        "weight_tying": "enabled" if shape.kind == "gpt2" else "disabled",
    }
    if shape.kind != "gpt2":
        sizes["num_groups"] = shape.groups
    if shape.experts:
        sizes["num_experts"] = shape.experts
        sizes["num_experts_per_token"] = shape.chosen
    return "transformer_config:\n" + "".join(f"  {key}: {value}\n" for key, value in sizes.items())


def configuration(shape, batch, sequence, steps, threads, data):
    return f"""training_config:
  seed: 42
  data_path: {data}
  data_format: llmc
  batch_size: {batch}
  sequence_length: {sequence}
  max_steps: {steps}
  num_epochs: 1000
  validation_fraction: 0
  eval_every: 0
  sample_tokens: 0
  optimizer: {{type: AdamW, lr: 0.0001, beta1: 0.9, beta2: 0.999, weight_decay: 0.01}}
numerics: {{threads: {threads}}}
{model_section(shape)}"""


def write_little_endian(file, values):
    if sys.byteorder == "big":
        values.byteswap()
    values.tofile(file)


def header(*numbers):
    """llm.c's: 256 numbers of 32 bits."""
    return array.array("i", [*numbers, *[0] * (256 - len(numbers))])


def write_tokens(path, vocab, count):
    """llm.c's file of tokens, which all programs here read: drawn evenly from the vocabulary."""
    draw = random.Random(7)
    with open(path, "wb") as file:
        write_little_endian(file, header(20240520, 1, count))
        write_little_endian(file, array.array("H", [draw.randrange(vocab) for _ in range(count)]))


def write_llmc_model(path, shape):
    """llm.c's file of a GPT-2 with random weights. Its vocabulary is padded to a multiple of 128."""
    padded = (shape.vocab + 127) // 128 * 128
    layers, width, hidden = shape.layers, shape.width, shape.hidden
    draw = random.Random(7)
    block = array.array("f", [draw.gauss(0, 0.02) for _ in range(1 << 16)])

    def weights(count):
        for _ in range(count // len(block)):
            write_little_endian(file, block[:])
        write_little_endian(file, block[: count % len(block)])

    def constant(value, count):
        write_little_endian(file, array.array("f", [value]) * count)

    def norm(count):
        constant(1.0, count)
        constant(0.0, count)

    with open(path, "wb") as file:
        sizes = (shape.positions, shape.vocab, layers, shape.heads, width, padded)
        write_little_endian(file, header(20240326, 3, *sizes))
        weights(padded * width)
        weights(shape.positions * width)
        norm(layers * width)
        for out, into in ((3 * width, width), (width, width)):
            weights(layers * out * into)
            constant(0.0, layers * out)
        norm(layers * width)
        for out, into in ((hidden, width), (width, hidden)):
            weights(layers * out * into)
            constant(0.0, layers * out)
        norm(width)
