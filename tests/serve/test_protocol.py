# SPDX-License-Identifier: Apache-2.0
"""What the server answers: the objects of OpenAI's API.
usage: test_protocol.py PROGRAM"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from server import CONTEXT, Checks, make_model, serving

A, B, C = ord("a"), ord("b"), ord("c")
COUNTED = {"logit_bias": {A: 100, B: 90}, "frequency_penalty": 2, "temperature": 0}  # a text of a and b


def check_models(c, s):
    status, _, data = s.ask("GET", "/v1/models")
    models = json.loads(data)
    c.same((status, models["object"], [m["id"] for m in models["data"]]), (200, "list", ["model"]), "models")
    c.same(models["data"][0]["max_model_len"], CONTEXT, "the context")
    status, _, data = s.ask("GET", "/v1/models/model")
    c.same((status, json.loads(data)), (200, models["data"][0]), "a model by its name")
    for name in ("other", "model/", "mode", "model%00", "models", "%", "%zz", "\xff"):
        status, _, data = s.ask("GET", f"/v1/models/{quote(name, safe='/%')}")
        error = json.loads(data)["error"]
        c.same((status, error["code"], error["param"]), (404, "model_not_found", "model"), f"the model {name!r}")
    c.same([s.ask("GET", "/v1/models/")[0], s.ask("POST", "/v1/models/model", {})[0]], [404, 405], "other requests for a model")
    c.same(json.loads(s.ask("GET", "/health")[2]), {"status": "ok"}, "health")
    page = s.ask("GET", "/")
    c.check(page[0] == 200 and b"<!DOCTYPE html>" in page[2] and b"</html>" in page[2], "the page")
    c.check(any(line.startswith("memory: ") and "key/value cache" in line for line in s.said), s.said)


def check_tokens(c, s):
    status, made = s.post("/tokenize", prompt="Hé<|im_end|>")
    c.same((status, made["tokens"], made["count"]), (200, [72, 0xc3, 0xa9, 258], 4), "tokens of a text")
    status, made = s.post("/detokenize", tokens=[72, 0xc3, 0xa9])
    c.same((status, made["prompt"]), (200, "Hé"), "text of tokens")
    status, made = s.post("/tokenize", messages=[{"role": "user", "content": "Hi"}])
    want = list(b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    want = list(b"\0user\nHi\1\n\0assistant\n")
    c.same(made["tokens"], [{0: 257, 1: 258}.get(t, t) for t in want], "tokens of a chat")


def check_prompts(c, s):
    """All kinds of prompts; the oracle of the text is the command generate."""
    made = s.complete(prompt="Hello", max_tokens=6, temperature=0)
    c.same(made["object"], "text_completion", "object")
    c.same(made["usage"], {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}, "usage")
    choice = made["choices"][0]
    c.same((choice["index"], choice["logprobs"], choice["finish_reason"]), (0, None, "length"), "choice")
    ids = list(b"Hello")
    for prompt in (ids, ["Hello"], [ids]):
        again = s.complete(prompt=prompt, max_tokens=6, temperature=0)
        c.same(again["choices"], made["choices"], f"prompt {prompt}")
    both = s.complete(prompt=["Hello", "Hi"], max_tokens=4, temperature=0)
    c.same([x["index"] for x in both["choices"]], [0, 1], "two prompts")
    one = s.complete(prompt="Hi", max_tokens=4, temperature=0)
    c.same(both["choices"][1]["text"], one["choices"][0]["text"], "the second of two prompts")
    c.same(both["usage"]["prompt_tokens"], 7, "tokens of two prompts")
    c.same(s.complete(prompt="x", ignore_eos=True)["usage"]["completion_tokens"], 16, "16 tokens are the default")


def check_generate(c, s, program, folder):
    """The same sampling as the command's, the penalty of the prompt's own tokens among it."""
    for words, body in ((("--temperature", "0"), {"temperature": 0}),
                        (("--temperature", "0", "--repetition-penalty", "1.5"),
                         {"temperature": 0, "repetition_penalty": 1.5}),
                        (("--temperature", "0.8", "--top-k", "9", "--top-p", "0.7", "--seed", "5"),
                         {"temperature": 0.8, "top_k": 9, "top_p": 0.7, "seed": 5})):
        told = subprocess.run(
            [program, "generate", "--checkpoint", "model", "--prompt", "Hello", "--max-new-tokens", "9", "--quiet", *words],
            cwd=folder, check=True, capture_output=True).stdout
        made = s.complete(prompt="Hello", max_tokens=9, **body)["choices"][0]["text"]
        c.same(told, f"Hello{made}\n".encode(), f"what generate {words} writes")


def check_sampling(c, s):
    first = s.complete(prompt="Hello", max_tokens=12, seed=7, n=3)
    c.same(s.complete(prompt="Hello", max_tokens=12, seed=7, n=3)["choices"], first["choices"], "one seed")
    texts = [x["text"] for x in first["choices"]]
    c.same(len(set(texts)), 3, "choices of one prompt differ")
    c.same(s.complete(prompt="Hello", max_tokens=12, seed=7)["choices"][0]["text"], texts[0], "the first choice")
    c.check(s.complete(prompt="Hello", max_tokens=12, seed=8)["choices"][0]["text"] != texts[0], "another seed")
    free = {s.complete(prompt="Hello", max_tokens=12)["choices"][0]["text"] for _ in range(3)}
    c.same(len(free), 3, "without a seed texts differ")
    greedy = s.complete(prompt="Hello", max_tokens=5, temperature=0)["choices"][0]["text"]
    for same in ({"top_k": 1}, {"top_p": 0}, {"temperature": 0, "seed": 3}):
        c.same(s.complete(prompt="Hello", max_tokens=5, **same)["choices"][0]["text"], greedy, f"greedy by {same}")
    biased = s.complete(prompt="Hello", max_tokens=5, logit_bias={str(A): 100})["choices"][0]["text"]
    c.same(biased, "aaaaa", "a bias")
    text = s.complete(prompt="b", max_tokens=8, **COUNTED)["choices"][0]["text"]
    c.check("ab" in text and set(text) == {"a", "b"}, f"frequency_penalty: {text}")
    text = s.complete(prompt="aa", max_tokens=2, temperature=0, presence_penalty=2,
                      logit_bias={A: 100, B: 99.5})["choices"][0]["text"]
    c.same(len(set(text)), 2, "presence_penalty")


def check_stops(c, s):
    whole = s.complete(prompt="b", max_tokens=10, **COUNTED)["choices"][0]["text"]
    before = whole[:whole.index("ab")]
    for stop in ("ab", ["xyz", "ab"], ["b"]):
        made = s.complete(prompt="b", max_tokens=10, stop=stop, **COUNTED)
        want = whole[:whole.index("b")] if stop == ["b"] else before
        c.same((made["choices"][0]["text"], made["choices"][0]["finish_reason"]), (want, "stop"), f"stop {stop}")
        c.same(made["usage"]["completion_tokens"], whole.index("b") + 1, "tokens until a stop")
        events = s.events("/v1/completions", prompt="b", max_tokens=10, stop=stop, **COUNTED)
        c.same("".join(e["choices"][0]["text"] for e in events[:-1]), want, f"stop {stop} in a stream")
    held = s.events("/v1/completions", prompt="b", max_tokens=3, stop="aaaaaaaaa", logit_bias={A: 100}, temperature=0)
    c.same("".join(e["choices"][0]["text"] for e in held[:-1]), "aaa", "what a stop string might have held back")
    ended = s.complete(prompt="b", max_tokens=5, logit_bias={258: 100})
    c.same((ended["choices"][0]["text"], ended["choices"][0]["finish_reason"]), ("", "stop"), "the model's end")
    c.same(ended["usage"]["completion_tokens"], 1, "an end is a token")
    ended = s.complete(prompt="Hi", max_tokens=1, logit_bias={258: 100}, logprobs=1, echo=True)["choices"][0]
    c.same((ended["text"], ended["logprobs"]["tokens"]), ("Hi", ["H", "i", "<|im_end|>"]), "which has a log-probability")
    c.same(ended["logprobs"]["text_offset"], [0, 1, 2], "its offset")
    more = s.complete(prompt="b", max_tokens=5, logit_bias={258: 100}, ignore_eos=True)
    c.same((more["choices"][0]["text"], more["usage"]["completion_tokens"]), ("", 5), "special tokens have no text")


def check_logprobs(c, s):
    made = s.complete(prompt="Hello", max_tokens=3, temperature=0, logprobs=2, echo=True, return_token_ids=True)
    choice, alone = made["choices"][0], s.complete(prompt="Hello", max_tokens=3, temperature=0, logprobs=0)["choices"][0]
    p = choice["logprobs"]
    c.same(choice["text"], "Hello" + alone["text"], "echo")
    c.same(p["tokens"][:5], list("Hello"), "tokens of the prompt")
    c.same((p["token_logprobs"][0], p["top_logprobs"][0]), (None, None), "nothing predicts the first token")
    c.same([len(p[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [8] * 4, "lengths")
    c.same(p["text_offset"][:6], [0, 1, 2, 3, 4, 5], "offsets")
    c.same(p["token_logprobs"][5:], alone["logprobs"]["token_logprobs"], "log-probabilities of drawn tokens")
    for token, one, top in zip(p["tokens"][1:], p["token_logprobs"][1:], p["top_logprobs"][1:]):
        c.check(len(top) in (2, 3) and top[token] == one and one < 0, f"{token} {one} {top}")
    for one, top in zip(p["token_logprobs"][5:], p["top_logprobs"][5:]):
        c.same(one, max(top.values()), "greedy tokens are the likeliest")
    c.same(alone["logprobs"]["top_logprobs"][0], {p["tokens"][5]: p["token_logprobs"][5]}, "logprobs 0")
    scored = s.complete(prompt="Hello", max_tokens=0, logprobs=1, echo=True)["choices"][0]
    c.same(scored["logprobs"]["token_logprobs"], p["token_logprobs"][:5], "a prompt alone")
    c.same((scored["text"], scored["finish_reason"]), ("Hello", "length"), "a prompt alone")
    ids = list(b"Hello") + choice["token_ids"]
    again = s.complete(prompt=ids, max_tokens=0, logprobs=1, echo=True)["choices"][0]["logprobs"]["token_logprobs"]
    c.same(again, p["token_logprobs"], "drawn tokens as a prompt have the same log-probabilities")
    sharp = s.complete(prompt="Hello", max_tokens=3, temperature=0, logprobs=0, logit_bias={A: 50})["choices"][0]
    c.check(sharp["logprobs"]["token_logprobs"][0] < p["token_logprobs"][5], "they are of the model, without biases")
    parts = s.complete(prompt=[0xc3], max_tokens=1, logprobs=0, logit_bias={0xa9: 100}, echo=True)["choices"][0]
    c.same((parts["text"], parts["logprobs"]["tokens"]), ("é", ["bytes:\\xc3", "bytes:\\xa9"]), "parts of a character")


def check_chat(c, s):
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    status, made = s.post("/v1/chat/completions", messages=messages, max_tokens=4, temperature=0, model="model")
    choice = made["choices"][0]
    c.same((status, made["object"], choice["finish_reason"]), (200, "chat.completion", "length"), "a chat")
    c.same(choice["message"]["role"], "assistant", "the role")
    prompt = s.post("/tokenize", messages=messages)[1]["tokens"]
    want = s.complete(prompt=prompt, max_tokens=4, temperature=0)
    c.same(choice["message"]["content"], want["choices"][0]["text"], "the text of a chat")
    c.same(made["usage"]["prompt_tokens"], len(prompt), "tokens of a chat")
    events = s.events("/v1/chat/completions", messages=messages, max_completion_tokens=4, temperature=0,
                      stream_options={"include_usage": True}, logprobs=True, top_logprobs=2)
    c.same(events[-1], "[DONE]", "the end of a stream")
    c.same((events[-2]["choices"], events[-2]["usage"]), ([], made["usage"]), "usage of a stream")
    c.same(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""}, "the first event")
    c.same({e["object"] for e in events[:-1]}, {"chat.completion.chunk"}, "events")
    c.same({e["id"] for e in events[:-1]}, {events[0]["id"]}, "one id")
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-2])
    c.same(text, choice["message"]["content"], "the text of a stream")
    c.same([e["choices"][0]["finish_reason"] for e in events[:-2] if e["choices"][0]["finish_reason"]], ["length"], "ends")
    entries = [x for e in events[:-2] if e["choices"][0]["logprobs"] for x in e["choices"][0]["logprobs"]["content"]]
    c.same(len(entries), 4, "log-probabilities of a stream")
    for entry in entries:
        c.check(len(entry["top_logprobs"]) == 2 and entry["logprob"] == entry["top_logprobs"][0]["logprob"], entry)
        c.check(len(entry["bytes"]) == 1, entry)
    plain = s.post("/v1/chat/completions", messages=messages, max_tokens=4, temperature=0, logprobs=True)[1]
    c.same([x["logprob"] for x in plain["choices"][0]["logprobs"]["content"]], [x["logprob"] for x in entries], "log-probabilities")
    long = s.post("/v1/chat/completions", messages=messages, ignore_eos=True)[1]
    c.same(long["usage"]["total_tokens"], CONTEXT, "without max_tokens a chat may fill the context")
    several = s.events("/v1/chat/completions", messages=messages, max_tokens=3, n=2, seed=1)
    c.same({e["choices"][0]["index"] for e in several[:-1]}, {0, 1}, "choices of a stream")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    c.same(s.post("/v1/chat/completions", messages=messages, max_tokens=1, tools=tools, tool_choice="auto")[0], 200, "tools")


def check_streams(c, s):
    for body in ({"prompt": "Hello", "max_tokens": 9, "seed": 3, "n": 2, "logprobs": 1, "echo": True},
                 {"prompt": ["Hi", [1, 2, 3]], "max_tokens": 5, "seed": 4},
                 {"prompt": "Hi", "max_tokens": 0, "echo": True, "logprobs": 1}):
        whole, events = s.complete(**body), s.events("/v1/completions", **body)
        for choice in whole["choices"]:
            mine = [e["choices"][0] for e in events[:-1] if e["choices"][0]["index"] == choice["index"]]
            c.same("".join(x["text"] for x in mine), choice["text"], f"text of a stream {body}")
            c.same(mine[-1]["finish_reason"], choice["finish_reason"], "the end of a choice")
            for key in ("tokens", "token_logprobs", "text_offset") if choice["logprobs"] else ():
                c.same(sum([x["logprobs"][key] for x in mine if x["logprobs"]], []), choice["logprobs"][key], key)


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(program, Path(folder))
        with serving(c, program, model) as s:
            check_models(c, s)
            check_tokens(c, s)
            check_prompts(c, s)
            check_generate(c, s, program, folder)
            check_sampling(c, s)
            check_stops(c, s)
            check_logprobs(c, s)
            check_chat(c, s)
            check_streams(c, s)
        with serving(c, program, model, "--model-name", "an org/b\u00fc%41") as s:
            for name in ("an%20org%2Fb%C3%BC%2541", "an%20org/b%c3%bc%2541"):
                status, _, data = s.ask("GET", f"/v1/models/{name}")
                c.same((status, json.loads(data).get("id")), (200, "an org/b\u00fc%41"), f"a name that is escaped as {name}")
    c.end("serve protocol", 100)


main()
