# SPDX-License-Identifier: Apache-2.0
"""serve: requests of OpenAI's API to a tiny model."""
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from feature import feature
from fine_tuning import adapters, with_model

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../serve"))
from server import Server  # noqa: E402


def expect(ok, why):
    if not ok:
        raise AssertionError(why)


@contextmanager
def serving(c, *words, code=143):
    c.commands += 1
    server = Server(c.program, os.path.join(c.folder, "model"), *words)
    try:
        yield server
    finally:
        ended = server.stop()
    expect(ended == code, f"exit code {ended}")


def texts(answer):
    return [choice["text"] for choice in answer["choices"]]


def generated(c, *words):
    return c.run("generate", "--checkpoint", "model", "--prompt", "word", "--max-new-tokens", "6", "--temperature", "0",
                 "--quiet", *words).out


@feature("serve: completions and chats of OpenAI's API have the text that generate writes; streams, usage, models")
def answers(c):
    with_model(c)
    with serving(c) as s:
        made = s.complete(prompt="word", max_tokens=6, temperature=0)
        expect(generated(c) == "word" + texts(made)[0] + "\n", made)
        expect(made["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}, made)
        events = s.events("/v1/completions", prompt="word", max_tokens=6, temperature=0)
        expect("".join(texts(e)[0] for e in events[:-1]) == texts(made)[0] and events[-1] == "[DONE]", events)
        expect(json.loads(s.ask("GET", "/v1/models")[2])["data"][0]["id"] == "model", "the model's name")
        status, answer = s.post("/v1/chat/completions", messages=[{"role": "user", "content": "x"}])
        expect(status == 400 and "chat template" in answer["error"]["message"], answer)


@feature("serve: log-probabilities, of an echoed prompt, too; the same bits alone and among others")
def log_probabilities(c):
    with_model(c)
    bodies = [{"prompt": [i, 100 + i, 7], "max_tokens": 1 + i % 9, "logprobs": 2, "echo": True, "seed": i} for i in range(12)]
    with serving(c) as s:
        alone = [s.complete(**body)["choices"] for body in bodies]
        with ThreadPoolExecutor(len(bodies)) as pool:
            expect(list(pool.map(lambda body: s.complete(**body)["choices"], bodies)) == alone, alone)
        first = alone[0][0]["logprobs"]
        expect(first["token_logprobs"][0] is None and all(x < 0 for x in first["token_logprobs"][1:]), first)


@feature("serve: stop strings, n, seeds, penalties and logit_bias; other formats than text are refused by name")
def sampling(c):
    with_model(c)
    with serving(c) as s:
        bias = {"temperature": 0, "logit_bias": {"97": 100, "98": 95}, "frequency_penalty": 2, "max_tokens": 8, "prompt": "x"}
        whole = texts(s.complete(**bias))[0]
        expect("ab" in whole and texts(s.complete(**bias, stop="ab"))[0] == whole[:whole.index("ab")], whole)
        several = texts(s.complete(prompt="x", n=3, seed=1, max_tokens=8, temperature=2))
        expect(len(set(several)) == 3 and texts(s.complete(prompt="x", n=3, seed=1, max_tokens=8, temperature=2)) == several, several)
        status, answer = s.post("/v1/completions", prompt="x", response_format={"type": "json_object"})
        expect(status == 400 and answer["error"]["param"] == "response_format", answer)


@feature("serve: a token, limits of body, queue and context, error objects, /metrics, a page to chat, an end by signals")
def limits(c):
    with_model(c)
    with serving(c, "--token", "secret", "--max-body", "900", "--max-queue", "2", "--context", "12") as s:
        token = {"Authorization": "Bearer secret"}

        def status(body, headers=token):
            return s.ask("POST", "/v1/completions", body, headers)[0]

        expect(status({"prompt": "x", "max_tokens": 1}) == 200 and status({"prompt": "x"}, {}) == 401, "token")
        expect(status({"prompt": "x" * 1000}) == 413 and status({"prompt": "x", "max_tokens": 12}) == 400, "sizes")
        expect(status({"prompt": "x", "n": 3}) == 400 and status("{") == 400, "more than may wait; no JSON")
        expect('tessera_requests_total{status="413"} 1' in s.ask("GET", "/metrics", headers=token)[2].decode(), "metrics")
        expect(b"<!DOCTYPE html>" in s.ask("GET", "/")[2], "the page")


@feature("serve: idle connections make room for others; paths and methods that there are not have OpenAI's error objects")
def connections(c):
    with_model(c)
    with serving(c, "--max-queue", "2") as s:
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(66)]
        s.complete(prompt="word", max_tokens=1)
        for connection in idle:
            connection.close()
        for path, status, code in (("/v1/completions", 405, "method_not_supported"), ("/v1/nothing", 404, None)):
            got, _, data = s.ask("GET", path)
            error = json.loads(data)["error"]
            expect((got, error["code"], error["param"]) == (status, code, None) and "GET" in error["message"], error)


@feature("serve --adapter: the text of generate --adapter; a folder of another model is refused")
def with_adapter(c):
    with_model(c)
    adapters(c, "{r: 4}", "--out", "tuned", "--quiet")
    c.run("export", "tuned", "--out", "peft")
    with serving(c, "--adapter", os.path.join(c.folder, "peft")) as s:
        made = texts(s.complete(prompt="word", max_tokens=6, temperature=0))[0]
    expect(generated(c, "--adapter", "peft") == "word" + made + "\n", made)
    expect(generated(c) != "word" + made + "\n", "the adapter changes the text")
    c.run("serve", "--checkpoint", "model", "--adapter", "text.txt", "--port", "0", code=2)
