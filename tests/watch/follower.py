# SPDX-License-Identifier: Apache-2.0
"""A process of `watch`, and what a page that follows it has: the first data and all increments, merged as the page does."""

import http.client
import json
import subprocess
import tempfile
import time

WAIT = 60  # seconds, for what takes a moment


class Watch:
    def __init__(self, program, *words, folder=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, "watch", *words, "--port", "0"], stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        cwd=folder)
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"no server: {line} {self.errors.read()}")
        self.port = int(line.rsplit(":", 1)[1])
        self.data = None

    def request(self, method, path, **headers):
        """The status, the headers and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def ask(self, whole=False):
        """Takes what has changed, the first time all that there is; the number of points that came."""
        first = whole or self.data is None
        since = "" if first else f"?since={self.data['session']}-{self.data['revision']}"
        more = json.loads(self.request("GET", "/data" + since)[2])
        while first and more["reading"]:
            time.sleep(0.05)
            more = json.loads(self.request("GET", "/data")[2])
        if "runs" in more:
            self.data = more
            return sum(len(s["x"]) for run in more["runs"] for s in run["series"])
        points = 0
        for part in more.pop("changed"):
            index, runs = part.pop("index"), self.data["runs"]
            if index == len(runs):
                runs.append({"series": []})
            old = {s["tag"]: s for s in runs[index]["series"]}
            for i, s in enumerate(part.get("series", [])):
                points += len(s.get("x", []))
                if s.get("same"):
                    part["series"][i] = old[s["tag"]]
                elif "from" in s:
                    at = s.pop("from")
                    part["series"][i] = {**s, "x": old[s["tag"]]["x"][:at] + s["x"], "y": old[s["tag"]]["y"][:at] + s["y"]}
            runs[index].update(part)
        self.data.update(more)
        return points

    def until(self, what, shown=None):
        """Asks until what(data) holds."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            self.ask()
            if what(self.data):
                return True
            time.sleep(0.1)
        print("never came:", shown or what, json.dumps(self.data)[:1500], flush=True)
        return False

    def run(self, name):
        return next((r for r in self.data["runs"] if r["name"] == name), None)

    def stop(self, number):
        """The exit code and the seconds that it took."""
        begin = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        self.process.stdout.close()
        self.errors.close()
        return code, time.monotonic() - begin


def last_step(run):
    series = [s for s in (run or {}).get("series", []) if s["tag"] == "loss/train"]
    return series[0]["last"][0] if series else 0
