# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, for scripts that look at pages."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    """Chromium, by its DevTools protocol over pipes. `errors` has what scripts of its pages threw or logged as errors."""

    def __init__(self):
        to, self.write = os.pipe()
        self.read, back = os.pipe()
        self.folder, self.number, self.waiting, self.errors = tempfile.mkdtemp(), 0, b"", []

        def place_pipes():
            spare = os.dup(back)
            os.dup2(to, 3)
            os.dup2(spare, 4)
            for number in (3, 4):  # dup2 of a number to itself leaves it to be closed
                os.set_inheritable(number, True)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=900,700",
             f"--user-data-dir={self.folder}"], close_fds=False, preexec_fn=place_pipes, stderr=subprocess.DEVNULL)
        os.close(to), os.close(back)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable", self.session)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.waiting:
                self.waiting += os.read(self.read, 1 << 20)
            line, self.waiting = self.waiting.split(b"\0", 1)
            answer = json.loads(line)
            self.note(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str(params["args"]))

    def open(self, url):
        """Loads a page and waits until it is loaded; its seconds."""
        begin = time.monotonic()
        self.call("Page.navigate", self.session, url=url)
        while self.evaluate("document.readyState") != "complete":
            time.sleep(0.02)
        return time.monotonic() - begin

    def picture(self, path):
        data = self.call("Page.captureScreenshot", self.session, format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def evaluate(self, text):
        return self.call("Runtime.evaluate", self.session, expression=text, returnByValue=True)["result"].get("value")

    def wait(self, text):
        until = time.monotonic() + 30
        while not (found := self.evaluate(text)) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
