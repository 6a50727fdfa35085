# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of scripts/bench: statistics, work, files, and what is said about noise.
usage: test_bench.py PROGRAM, in the source root"""
import array
import os
import random
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "scripts")
import bench_decode as decode  # noqa: E402
import bench_many_ranks as many_ranks  # noqa: E402
import bench_stats as stats  # noqa: E402
import bench_table as table  # noqa: E402
import bench_work as work  # noqa: E402
from bench_process import Failed, Process, Training  # noqa: E402

PROGRAM = sys.argv[1]


class Quantiles(unittest.TestCase):
    def test_known(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)
        self.assertEqual(stats.quantile([5], 0.75), 5)
        self.assertEqual(stats.spread([1, 2, 3, 4, 5]), 2 / 3)
        self.assertEqual(stats.spread([7, 7, 7]), 0)

    def test_any(self):
        draw = random.Random(3)
        for _ in range(200):
            values = [draw.uniform(1, 100) for _ in range(draw.randrange(2, 30))]
            quarters = statistics.quantiles(values, n=4, method="inclusive")
            for q, expected in zip((0.25, 0.5, 0.75), quarters):
                self.assertAlmostEqual(stats.quantile(values, q), expected)


class ManyRanks(unittest.TestCase):
    def test_row(self):
        runs = [(0.5, 41.2, 3e6), (0.7, 39.8, 1e6), (0.125, 90, 2e6)]
        self.assertEqual(many_ranks.row(1024, runs), ["1,024", "0.50", "41", "2 MB"])


class Decoding(unittest.TestCase):
    def test_speed_is_that_of_new_tokens(self):
        text = "prompt: 32 tokens, 50/s; new: 1,024 tokens, 64.56/s\n"
        self.assertEqual(decode.speed(text), 64.56)
        with self.assertRaises(Failed):
            decode.speed("prompt: 32 tokens, 50/s")

    def test_ratios_are_of_rounds(self):
        speeds = {("f32", 1): [1, 2, 4], ("f32", 16): [10, 18, 32], ("nf4", 1): [3, 4, 4], ("nf4", 16): [20, 36, 64]}
        rows = decode.table(speeds)
        self.assertEqual(rows[0][:4], ["f32", "2", "18", "9.00 (8.50 to 9.50)"])
        self.assertEqual(rows[0][4:], ["–"] * 4)
        self.assertEqual(rows[1][4:], ["2.00 (1.50 to 2.50)", "–", "2.00 (2.00 to 2.00)", "–"])
        self.assertTrue(all(len(row) == len(decode.COLUMNS) for row in rows))


class Ratios(unittest.TestCase):
    def test_of_medians(self):
        value = stats.Ratio([[2, 4], [4, 100]], [[1, 2], [2, 2]])
        self.assertEqual(value.value, 2)

    def test_rounds_without_a_counterpart_do_not_count(self):
        self.assertEqual(stats.Ratio([[2], [2], [9]], [[1], [1]]).value, 2)

    def test_one_round_proves_nothing(self):
        value = stats.Ratio([[1, 1, 1]], [[1, 1, 1]])
        self.assertIsNone(value.interval)
        self.assertFalse(value.is_sure())
        self.assertEqual(stats.noise_of_ratio("× X", value), "× X: one pair proves nothing")

    def test_a_machine_that_slows_both_alike_does_not_matter(self):
        draw = random.Random(5)
        factors = [draw.uniform(1, 3) for _ in range(6)]
        value = stats.Ratio([[3.0 * f] * 4 for f in factors], [[2.0 * f] * 4 for f in factors])
        self.assertAlmostEqual(value.value, 1.5)
        self.assertLess(value.width(), 1e-9)
        self.assertIsNone(stats.noise_of_ratio("× X", value))

    def test_rounds_that_disagree_are_noise(self):
        value = stats.Ratio([[1.0], [2.0], [1.0], [2.0]], [[1.0], [1.0], [1.0], [1.0]])
        self.assertFalse(value.is_sure())
        self.assertEqual(stats.noise_of_ratio("× X", value), "× X: 1 to 2")

    def test_interval_holds_the_truth(self):
        """Of 40 sets of rounds with a ratio of 1.25; each misses it with about 5 to 15 %."""
        draw = random.Random(11)
        held = 0
        for _ in range(40):
            rounds = [[[scale * draw.gauss(1, 0.02) for _ in range(5)] for _ in range(6)] for scale in (1.25, 1)]
            low, high = stats.interval(*rounds)
            self.assertLess(high - low, 0.1)
            held += low <= 1.25 <= high
        self.assertGreaterEqual(held, 32)

    def test_the_same_samples_give_the_same_interval(self):
        rounds = [[1.0, 1.1, 1.3], [1.2, 1.0, 1.1], [1.0, 1.4, 1.1]]
        self.assertEqual(stats.interval(rounds, rounds[::-1]), stats.interval(rounds, rounds[::-1]))

    def test_spread(self):
        self.assertIsNone(stats.noise_of("tokens/s", [[1.0, 1.01], [1.02, 1.0]]))
        self.assertEqual(stats.noise_of("tokens/s", [[1, 2], [3, 4, 5]]), "tokens/s spreads over 67 %")


def count_by_hand(s):
    """Every parameter of a model, and those that are multiplied: a list of matrices, as it is written down."""
    kv = s.groups * s.width // s.heads
    matrices, vectors, idle = [(s.vocab, s.width)], [], []
    for _ in range(s.layers):
        matrices += [(s.width, s.width), (kv, s.width), (kv, s.width), (s.width, s.width)]
        mlp = [(s.hidden, s.width)] * (1 if s.kind == "gpt2" else 2) + [(s.width, s.hidden)]
        if s.experts:
            matrices += [(s.experts, s.width)]
            for expert in range(s.experts):
                (matrices if expert < s.chosen else idle).extend(mlp)
        else:
            matrices += mlp
        vectors += [s.width] * 2
        if s.kind == "gpt2":  # norms' biases; those of q, k, v and o, and of the MLP
            vectors += [s.width] * 2 + [s.width] * 4 + [s.hidden, s.width]
    vectors += [s.width] * (2 if s.kind == "gpt2" else 1)
    table_rows = s.positions if s.kind == "gpt2" else s.vocab
    multiplied = sum(a * b for a, b in matrices)
    return multiplied + sum(a * b for a, b in idle) + sum(vectors) + table_rows * s.width, multiplied


class WorkCounts(unittest.TestCase):
    def test_known(self):
        self.assertEqual(work.GPT2_124M.parameters(), 124439808)
        self.assertEqual(work.GPT2_124M.multiplied(), 123532032)
        self.assertEqual(work.GPT2_124M.flops(4, 256), 1024 * (6 * 123532032 + 6 * 12 * 256 * 768))
        self.assertEqual(work.GPT2_124M.bytes_of_a_token(), 4 * (124439808 - 1023 * 768))
        self.assertEqual(work.LLAMA.bytes_of_a_token(), 4 * (124668672 - 31999 * 768))

    def test_by_hand(self):
        for shape in (work.GPT2_124M, work.CHAR, work.LLAMA, work.MIXTRAL):
            self.assertEqual((shape.parameters(), shape.multiplied()), count_by_hand(shape))

    def test_program_means_the_same_models(self):
        with tempfile.TemporaryDirectory() as folder:
            for shape in (work.GPT2_124M, work.CHAR, work.LLAMA, work.MIXTRAL):
                data, config = os.path.join(folder, "tokens.bin"), os.path.join(folder, "run.yaml")
                work.write_tokens(data, shape.vocab, 3000)
                with open(config, "w", encoding="utf-8") as file:
                    file.write(work.configuration(shape, 2, 64, 1, 1, data))
                said = subprocess.run([PROGRAM, "check", "--config", config], capture_output=True, text=True,
                                      env={**os.environ, "TESSERA_SHARE": "."}, check=False)
                self.assertEqual(said.returncode, 0, said.stderr)
                self.assertRegex(said.stdout, rf"\nmodel: \w+, {shape.parameters():,} parameters\n")

    def test_llmc_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            work.write_tokens(path, 65, 1000)
            with open(path, "rb") as file:
                head, tokens = array.array("i", file.read(1024)), array.array("H", file.read())
            self.assertEqual((list(head[:3]), len(tokens)), ([20240520, 1, 1000], 1000))
            self.assertEqual(set(tokens), set(range(65)))
            work.write_llmc_model(path, work.CHAR)
            padding = (128 - 65) * work.CHAR.width
            self.assertEqual(os.path.getsize(path), 1024 + 4 * (work.CHAR.parameters() + padding))


class Processes(unittest.TestCase):
    SCRIPT = """import json, sys, time
say = lambda **e: print(json.dumps(e), flush=True)
say(event="start")
time.sleep(0.2)
for ms in (500, 400, 300, 200): say(event="step", ms=ms, loss=1)
"""

    def test_training(self):
        run = Training(Process([sys.executable, "-c", self.SCRIPT]), 4, 2)
        self.assertEqual(run.steps, [0.3, 0.2])
        self.assertGreaterEqual(run.first_step_done - run.first_step, 0.19)
        self.assertGreater(run.peak_bytes, 1 << 20)
        with self.assertRaisesRegex(Failed, "made 4 steps of 5"):
            Training(Process([sys.executable, "-c", self.SCRIPT]), 5, 2)

    def test_metrics(self):
        script = "import sys; open(sys.argv[1], 'w').write('{\"event\": \"start\"}\\n'); print('{no event')"
        process = Process([sys.executable, "-c", script, "METRICS"], metrics=True)
        self.assertEqual([event for _, event in process.events()], [{"event": "start"}])
        self.assertEqual(process.output, b"{no event\n")

    def test_failure(self):
        with self.assertRaisesRegex(Failed, "ended with 3\n    why it failed"):
            Process([sys.executable, "-c", "import sys; print('why it failed', file=sys.stderr); sys.exit(3)"])


class Options(unittest.TestCase):
    def says(self, *options):
        done = subprocess.run(["scripts/bench", "--dir", os.path.dirname(PROGRAM), *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_two_tables(self):
        self.assertIn("--plans and --kernels: one at a time", self.says("--plans", "--kernels"))
        self.assertIn("--kernels and --plans: one at a time", self.says("--kernels", "x86-64", "--plans"))

    def test_what_a_table_has_no_use_for(self):
        self.assertIn("--kernels does not go with 'x86-64'", self.says("--kernels", "x86-64", "x86-64"))
        self.assertIn("there is no row ''", self.says("--rows", ""))
        self.assertIn("there are no weights ''", self.says("--decode", "--weights", ""))


class Rows(unittest.TestCase):
    def test_steady(self):
        row = table.Row("w")
        row.put_speed(100, [[0.5, 0.5], [0.5, 0.5]])
        row.put_ratio("× PyTorch", [[1.0], [1.0]], [[0.5], [0.5]])
        cells = row.finish(False).cells
        self.assertEqual(
            [cells[name] for name in ("tokens/s", "spread", "× PyTorch", "× llm.c", "noise")],
            ["200", "0.0 %", "2.00", "–", "steady"])

    def test_noisy(self):
        row = table.Row("w")
        row.put_speed(100, [[0.25, 0.5], [0.5, 1.0]])
        row.put_ratio("× llm.c", [[1.0]], [[0.5]])
        cells = row.finish(False).cells
        self.assertEqual((cells["tokens/s"], cells["× llm.c"]), ("200?", "2.00?"))
        self.assertEqual(
            cells["noise"], "worthless: tokens/s spreads over 38 %; × llm.c: one pair proves nothing")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
