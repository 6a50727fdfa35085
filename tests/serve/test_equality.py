# SPDX-License-Identifier: Apache-2.0
"""What a request is answered does not depend on what else is asked: alone, among others, and of servers with other
batches, caches and threads, requests have the same tokens and the same log-probabilities to the last bit.
usage: test_equality.py PROGRAM"""

import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from server import CONTEXT, Checks, make_model, serving

REQUESTS, CLIENTS = 48, 12


def draw(r):
    """A request."""
    length = r.choice((1, 2, 7, 30, 63, 64, 65, 100))
    body = {"prompt": [r.randrange(256) for _ in range(length)], "seed": r.randrange(1 << 40), "return_token_ids": True,
            "max_tokens": r.randint(1, min(24, CONTEXT - length))}
    if r.random() < 0.3:
        body["prompt"] = [body["prompt"], [r.randrange(256) for _ in range(5)]]
    if r.random() < 0.3:
        body["n"] = r.randint(2, 3)
    if r.random() < 0.6:
        body["logprobs"] = r.randint(0, 5)
        body["echo"] = r.random() < 0.5
    if r.random() < 0.3:
        body["stop"] = [chr(r.randrange(97, 123)), "ab"]
    for key, low, high in (("temperature", 0, 2), ("top_p", 0.2, 1), ("repetition_penalty", 0.8, 1.5),
                           ("frequency_penalty", -1, 1), ("presence_penalty", -1, 1)):
        if r.random() < 0.4:
            body[key] = r.uniform(low, high)
    if r.random() < 0.3:
        body["top_k"] = r.randint(1, 40)
    if r.random() < 0.3:
        body["logit_bias"] = {r.randrange(256): r.uniform(-5, 5) for _ in range(4)}
    return body


def answer(s, body):
    made = s.complete(**body)
    return made["choices"], made["usage"]


def compare(c, s, requests, want, clients, what):
    order = list(range(len(requests)))
    random.Random(clients).shuffle(order)
    with ThreadPoolExecutor(clients) as pool:
        got = dict(zip(order, pool.map(lambda i: answer(s, requests[i]), order)))
    for i, body in enumerate(requests):
        c.check(got[i] == want[i], f"{what}: {body}: {got[i]}, not {want[i]}")


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    requests = [draw(random.Random(i)) for i in range(REQUESTS)]
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(program, Path(folder))
        with serving(c, program, model, "--max-batch", "1") as s:
            want = [answer(s, body) for body in requests]
        c.check(len({str(x) for x in want}) == REQUESTS, "the requests have different answers")
        with serving(c, program, model, "--max-batch", "16", "--set", "numerics.threads=2") as s:
            compare(c, s, requests, want, CLIENTS, "16 rows")
            compare(c, s, requests, want, 1, "16 rows, one at a time")
        with serving(c, program, model, "--max-batch", "5", "--cache-pages", "11") as s:
            compare(c, s, requests, want, CLIENTS, "5 rows, 11 pages")
    c.end("serve equality", 3 * REQUESTS)


main()
