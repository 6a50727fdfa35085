# SPDX-License-Identifier: Apache-2.0
"""Requests that are wrong, too large, too slow or too many, clients that go, and the server's end.
usage: test_limits.py PROGRAM"""

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from server import CONTEXT, WAIT, Checks, Server, make_model, serving

LONG = {"prompt": "x", "max_tokens": CONTEXT - 1, "ignore_eos": True, "n": 100}  # takes a while


def check_error(c, s, status, body, param=None, code=None, path="/v1/completions", says="", headers=None):
    got, _, data = s.ask("POST", path, body, headers)
    what = f"{path} {str(body)[:200]}: {got} {data[:300]}"
    if not c.check(got == status, what):
        return
    error = json.loads(data)["error"]
    c.check(sorted(error) == ["code", "message", "param", "type"] and error["message"] and says in error["message"], what)
    c.check((error["param"], error["code"]) == (param, code), what)
    c.check(error["type"] == {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error"),
            what)


def check_values(c, s):
    for key, values in {
            "temperature": (-1, "1", True, [], 1e9), "top_p": (-0.1, 1.1, "x"), "top_k": (1.5, -2, 1e30),
            "n": (0, 129, 1.5, "2"), "max_tokens": (-1, 1.5, "9", 0), "logprobs": (21, -1, True, 0.5),
            "seed": (1.5, 1e300, "x"), "stop": ("", [""], 5, ["a"] * 17, [1]), "echo": (1, "true"), "stream": (1, "x"),
            "frequency_penalty": (3, "x"), "presence_penalty": (-3,), "repetition_penalty": (0, -1),
            "logit_bias": ([], {"x": 1}, {"-1": 1}, {"259": 1}, {"1": 101}, {"1": "x"}, {"99999999999": 1}),
            "stream_options": ([], {"include_usage": True})}.items():
        for value in values:
            check_error(c, s, 400, {"prompt": "x", key: value}, param=key)
    for prompt in (5, {}, [1.5], [-1], [259], [1e300], ["a", 1], [[1], "x", 3], [], [[]], True, "", ["x", ""]):
        check_error(c, s, 400, {"prompt": prompt}, param="prompt")
    check_error(c, s, 400, {"prompt": ["x"] * 129}, param="prompt")
    check_error(c, s, 400, {"prompt": ["x"] * 100, "n": 2}, param="n")
    check_error(c, s, 400, {}, param="prompt", code="missing_required_parameter")
    check_error(c, s, 404, {"prompt": "x", "model": "gpt-4"}, param="model", code="model_not_found")
    for key, value in (("best_of", 3), ("suffix", "x"), ("response_format", {"type": "json_object"})):
        check_error(c, s, 400, {"prompt": "x", key: value}, param=key, code="unsupported_parameter")
    check_error(c, s, 400, {"prompt": "x" * CONTEXT}, param="prompt", code="context_length_exceeded")
    check_error(c, s, 400, {"prompt": "x" * 100, "max_tokens": 29}, param="prompt", code="context_length_exceeded")
    chat, user = "/v1/chat/completions", [{"role": "user", "content": "x"}]
    for many in (CONTEXT + 1, 10 ** 6, 1e30):
        check_error(c, s, 400, {"prompt": "x", "max_tokens": many}, param="max_tokens", code="context_length_exceeded")
        for key in ("max_tokens", "max_completion_tokens"):
            check_error(c, s, 400, {"messages": user, key: many}, param=key, code="context_length_exceeded", path=chat)
    for messages in (None, [], "x", [1], [{"content": "x"}], [{"role": 1, "content": "x"}],
                     [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image_url"}]}]):
        body = {} if messages is None else {"messages": messages}
        code = None if messages and messages != "x" else "missing_required_parameter"
        check_error(c, s, 400, body, param="messages", code=code, path=chat)
    check_error(c, s, 400, {"messages": user, "top_logprobs": 2}, param="top_logprobs", path=chat)
    check_error(c, s, 400, {"messages": user, "tool_choice": "required"}, param="tool_choice",
                code="unsupported_parameter", path=chat)
    check_error(c, s, 400, {"messages": user, "tools": {}}, param="tools", path=chat)
    for body in ({}, {"tokens": [1]}, {"prompt": None}):
        check_error(c, s, 400, body, param="prompt", code="missing_required_parameter", path="/tokenize", says="or 'messages'")
    check_error(c, s, 400, {"messages": []}, param="messages", code="missing_required_parameter", path="/tokenize")
    check_error(c, s, 400, {"tokens": [259]}, param="tokens", path="/detokenize")
    check_error(c, s, 400, {"tokens": "x"}, param="tokens", path="/detokenize")
    c.same(s.post("/v1/completions", prompt="x", max_tokens=1, user="me", nonsense={"a": [1]}, stop=None)[0], 200,
           "keys that are not known, or null")


def check_bodies(c, s):
    good = b'{"prompt": "x", "max_tokens": 1}'
    for body in (b"", b"{", b"[]", b"5", b"null", good[:-1], good + b"x", b'{"prompt": "\xff\xfe"}', b'{"prompt": "\\ud800"}',
                 b'{"prompt": 1e999}', b'{"prompt": 01}', b'{"prompt": "x", "prompt": "y"}', b'{"prompt": "\\u0000"}',
                 b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":' * 200 + b"1" + b"}" * 200, b"\0" * 100,
                 b'{"messages": [{"role": "user", "content": "\x01"}]}'):
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
            status, _, data = s.ask("POST", path, body)
            c.check(status == 400 and json.loads(data)["error"]["message"], f"{path} {body[:40]}: {status} {data}")
    r = random.Random(1)
    for _ in range(150):
        body = bytearray(json.dumps({"prompt": "Hello", "max_tokens": 2, "stop": ["a"], "logit_bias": {"5": 1}}).encode())
        for _ in range(r.randint(1, 3)):
            body[r.randrange(len(body))] = r.randrange(256)
        status, _, data = s.ask("POST", "/v1/completions", bytes(body))
        c.check(status in (200, 400, 404) and json.loads(data), f"{bytes(body)}: {status} {data}")
    check_error(c, s, 413, b'{"prompt": "' + b"x" * 20000 + b'"}', code="body_too_large")
    check_error(c, s, 415, good, headers={"Content-Type": "text/plain"})
    for method, path, allowed in (("GET", "/v1/completions", "POST"), ("POST", "/v1/models", "GET"), ("GET", "/nothing", None),
                                  ("PUT", "/health", "GET"), ("GET", "/%00", None), ("GET", "/" + "x" * 3000, None)):
        status, headers, data = s.ask(method, path)
        error, what = json.loads(data)["error"], f"{method} {path[:20]}"
        c.same((status, headers.get("Allow")), (405, allowed) if allowed else (404, None), what)
        c.same((error["param"], error["code"], error["type"]),
               (None, "method_not_supported" if allowed else None, "invalid_request_error"), what)
        c.same(error["message"], f"Not allowed to {method} on {path}, which is asked with {allowed}" if allowed else
               f"Invalid URL ({method} {path})", what)
    for data in (b"", b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000 + b"\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
        s.raw(data)
    c.same(s.post("/v1/completions", prompt="x", max_tokens=1)[0], 200, "the server is as before")


def check_frames(c, s):
    """A proxy may take another place for the end of a body than the server: no second request begins there."""
    hidden = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for headers in (f"Content-Length: 0\r\nContent-Length: {len(hidden)}", f"Content-Length : {len(hidden)}",
                    "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: gzip",
                    "Transfer-Encoding: identity, chunked", "Host: y", "host: x"):
        with socket.create_connection(("127.0.0.1", s.port), timeout=WAIT) as connection:
            connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               + headers.encode() + b"\r\n\r\n" + hidden)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionResetError:  # the rest of the request was not read
                pass
        c.check(answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, f"{headers!r}: {answer}")


def check_nul(c, s):
    """A path ends where the request says, not at a NUL byte."""
    for path in (b"/health\0", b"/health\0/x", b"/health?a\0b"):
        answer = s.raw(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        c.check(b" 400 " in answer[:20] and b"The path has a NUL byte" in answer, f"{path}: {answer}")


def wait_for(c, done, what):
    until = time.monotonic() + WAIT
    while not (ok := done()) and time.monotonic() < until:
        time.sleep(0.02)
    c.check(ok, what)


def is_idle(s):
    return s.metric("tessera_running_texts") == s.metric("tessera_waiting_texts") == 0


def send(s, body, headers=b"Content-Type: application/json\r\n"):
    """A request on a socket that is read later, or not."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", s.port), timeout=WAIT)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers
                       + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def check_clients_that_go(c, s):
    for stream in (False, True):
        want = s.metric("tessera_cancelled_texts_total") + 3
        for _ in range(3):
            connection = send(s, {**LONG, "stream": stream})
            if stream:
                connection.recv(1)
            connection.close()
        wait_for(c, lambda: s.metric("tessera_cancelled_texts_total") >= want and is_idle(s),
                 f"the texts of clients that have gone, stream {stream}")


def check_half_closed(c, s):
    """A client that closes its sending side is taken for one that has gone, and is told so. What is answered at once, is."""
    for stream in (False, True):
        with send(s, {**LONG, "stream": stream}) as connection:
            if stream:
                connection.recv(1, socket.MSG_PEEK)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        c.check(answer.startswith(b"HTTP/1.1 200 " if stream else b"HTTP/1.1 499 "), answer[:300])
        error = next(json.loads(line.removeprefix(b"data: "))["error"] for line in answer.split(b"\n") if b'{"error"' in line)
        c.same((error["code"], error["param"], error["type"]), ("client_closed_request", None, "invalid_request_error"), "error")
        wait_for(c, lambda: is_idle(s), f"its texts have left the model, stream {stream}")
    answer = s.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    c.check(answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b'{"status":"ok"}'), answer)


def check_idle_connections(c, program, model):
    """Connections on which nothing comes do not keep others out: the oldest make room, the rest stays."""
    with serving(c, program, model, "--max-queue", "2", "--timeout", "600") as s:
        silent = [socket.create_connection(("127.0.0.1", s.port), timeout=WAIT) for _ in range(66)]
        for _ in range(3):
            c.same(s.post("/v1/completions", prompt="x", max_tokens=1)[0], 200, "a request beside idle connections")
        gone = 0
        for connection in silent:
            connection.setblocking(False)
            try:
                gone += connection.recv(1) == b""
            except BlockingIOError:
                pass
            connection.close()
        c.check(1 <= gone <= 8, f"{gone} of {len(silent)} idle connections were closed")


def check_queue(c, s):
    """The queue has room for 100 texts, and the batch for 2."""
    holders = [send(s, LONG)]
    wait_for(c, lambda: s.metric("tessera_running_texts") == 2, "two texts run")
    pages = 2 * CONTEXT // 16
    c.same((s.metric("tessera_cache_pages"), s.metric("tessera_cache_pages_used")), (pages, pages), "pages of the cache")
    got, headers, data = s.ask("POST", "/v1/completions", LONG)
    c.check(got == 429 and "Retry-After" in headers and json.loads(data)["error"]["code"] == "queue_full", f"{got} {data}")
    for connection in holders:
        connection.close()
    wait_for(c, lambda: is_idle(s) and s.metric("tessera_cache_pages_used") == 0, "the queue is empty")
    c.same(s.post("/v1/completions", prompt="x", max_tokens=1)[0], 200, "there is room again")


def check_small_queue(c, program, model):
    """A request that can never have room is wrong; one as large as the queue is served."""
    with serving(c, program, model, "--max-queue", "4") as s:
        check_error(c, s, 400, {"prompt": "x", "n": 7}, param="n")
        check_error(c, s, 400, {"prompt": ["x"] * 5}, param="prompt")
        check_error(c, s, 400, {"prompt": ["x"] * 3, "n": 2}, param="n")
        for body in ({"prompt": "x", "n": 4}, {"prompt": ["x"] * 4}):
            c.same(s.post("/v1/completions", max_tokens=1, **body)[0], 200, f"as many as may wait: {body}")


def check_slow_clients(c, program, model):
    """Whoever does not send a request in time is cut off, however steadily he sends."""
    with serving(c, program, model, "--timeout", "1") as s:
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n"
        drips = [socket.create_connection(("127.0.0.1", s.port), timeout=WAIT) for _ in range(3)]
        drips[1].sendall(head)
        drips[2].sendall(head + b"\r\n{")
        until, cut = time.monotonic() + WAIT, set()
        while len(cut) < 3 and time.monotonic() < until:
            for i in set(range(3)) - cut:
                try:
                    drips[i].settimeout(0.05)
                    drips[i].sendall(b"x")
                    if drips[i].recv(1) == b"":
                        cut.add(i)
                except socket.timeout:
                    pass
                except OSError:
                    cut.add(i)
        c.same(len(cut), 3, "slow clients that were cut off")
        got, _, data = s.ask("POST", "/v1/completions", {**LONG, "n": 128})
        c.check(got in (200, 504), f"a request that takes too long: {got}")
        if got == 504:
            c.same(json.loads(data)["error"]["type"], "timeout_error", "its error")
        wait_for(c, lambda: is_idle(s), "it has left the model")


def check_token(c, program, model):
    for words, env in ((("--token", "secret"), {}), ((), {"TESSERA_SERVE_TOKEN": "secret"})):
        with serving(c, program, model, *words, env=env) as s:
            good = {"Authorization": "Bearer secret"}
            for headers in (None, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secret1"},
                            {"Authorization": "Basic secret"}, {"Authorization": ""}):
                check_error(c, s, 401, {"prompt": "x"}, code="invalid_api_key", headers=headers)
            for path in ("/v1/models", "/metrics"):
                c.same([s.ask("GET", path, headers=h)[0] for h in (None, good)], [401, 200], path)
            c.same([s.ask("GET", path)[0] for path in ("/", "/health")], [200, 200], "what is open to all")
            c.same(s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, good)[0], 200, "with the token")


def check_end(c, program, model):
    """Texts that run may end; new connections are refused. Both signals, and one while texts take too long."""
    for number in (signal.SIGINT, signal.SIGTERM):
        s = Server(program, model)
        results = []
        body = {"prompt": "x", "max_tokens": 100, "ignore_eos": True, "n": 16}
        thread = threading.Thread(target=lambda: results.append(s.post("/v1/completions", **body)))
        thread.start()
        wait_for(c, lambda: s.metric("tessera_generated_tokens_total") > 0, "texts run")
        c.same(s.stop(number), 128 + number, "exit code")
        thread.join()
        c.check(results and results[0][0] in (200, 503), results)
        c.check(results[0][0] == 503 or [x["finish_reason"] for x in results[0][1]["choices"]] == ["length"] * 16, results)
        c.check("Sanitizer" not in s.errors(), s.errors())


def check_end_of_waiting(c, program, model):
    """Requests that wait when the server ends are refused at once, and the one that runs may end."""
    s = Server(program, model, "--max-batch", "1")
    answers = []

    def ask(body):
        answers.append((body["n"], s.post("/v1/completions", **body)[0]))

    threads = [threading.Thread(target=ask, args=({**LONG, "n": 128},))]
    threads[0].start()
    wait_for(c, lambda: s.metric("tessera_running_texts") == 1, "a text runs")
    for n in (1, 2):
        threads.append(threading.Thread(target=ask, args=({"prompt": "x", "max_tokens": 1, "n": n},)))
        threads[-1].start()
    wait_for(c, lambda: s.metric("tessera_prompt_tokens_total") == 3, "others wait")
    c.same(s.stop(), 143, "exit code")
    for thread in threads:
        thread.join()
    c.same(sorted(answers[:2]), [(1, 503), (2, 503)], "those that wait are answered first")
    c.check(answers[2][0] == 128 and answers[2][1] in (200, 503), answers)
    c.check("Sanitizer" not in s.errors(), s.errors())


def check_start(c, program, model):
    with serving(c, program, model) as s:
        again = subprocess.run([program, "serve", "--checkpoint", model, "--port", str(s.port)], capture_output=True, text=True)
        c.check(again.returncode == 1 and "Address already in use" in again.stderr, again)
    for words, says in ((("--port", "65536"), "--port: 65536 is above"), (("--port", "x"), "--port: 'x' is no integer"),
                        (("--host", "no.such.host.invalid"), "is no host"), (("--context", "129"), "128 positions"),
                        (("--timeout", "x"), "--timeout: 'x' is no time"), (("--max-batch", "0"), "--max-batch: '0'"),
                        (("--max-batch", "1000000000"), "= a smaller --max-batch\n"),
                        (("--prompt", "x"), "--prompt belongs to")):
        port = () if words[0] == "--port" else ("--port", "0")
        got = subprocess.run([program, "serve", "--checkpoint", model, *port, *words], capture_output=True, text=True)
        c.check(got.returncode == 2 and says in got.stderr, f"{words}: {got}")
    with serving(c, program, model, "--context", "20", "--model-name", "tiny", "--host", "0.0.0.0") as s:
        c.check("without --token" in s.errors(), s.errors())
        answer = json.loads(s.ask("GET", "/v1/models")[2])["data"][0]
        c.same((answer["id"], answer["max_model_len"]), ("tiny", 20), "name and context")
        check_error(c, s, 400, {"prompt": "x" * 20}, param="prompt", code="context_length_exceeded")


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(program, Path(folder))
        with serving(c, program, model, "--max-body", "12000", "--max-batch", "2") as s:
            check_values(c, s)
            check_frames(c, s)
            check_nul(c, s)
            check_bodies(c, s)
        with serving(c, program, model, "--max-queue", "100", "--max-batch", "2") as s:
            check_clients_that_go(c, s)
            check_half_closed(c, s)
            check_queue(c, s)
        check_small_queue(c, program, model)
        check_slow_clients(c, program, model)
        check_token(c, program, model)
        check_end(c, program, model)
        check_end_of_waiting(c, program, model)
        check_idle_connections(c, program, model)
        check_start(c, program, model)
    c.end("serve limits", 400)


main()
