# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, and what its two screens show: a model of the sequences that the program writes, which
fails at any other."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

WAIT = 60  # seconds, for what takes a moment
SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")


class Screen:
    def __init__(self):
        self.cells, self.row, self.column = {}, 0, 0

    def text(self, rows):
        return [("".join(self.cells.get((r, c), " ") for c in range(300))).rstrip() for r in range(rows)]


class Terminal:
    """`styles`: all SGR sequences that came. `screens`: the main one and the other."""

    def __init__(self, words, rows=24, columns=80, env=None, folder="."):
        self.rows, self.columns, self.raw = rows, columns, b""
        self.screens, self.now, self.cursor, self.wraps = [Screen(), Screen()], 0, True, True
        self.styles, self.waiting, self.decoder = [], "", codecs.getincrementaldecoder("utf-8")("replace")
        self.child, self.file = pty.fork()
        if not self.child:
            os.chdir(folder)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(words[0], words, {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})})

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.screens[1].cells.clear()
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self):
        """Whether the terminal echoes, and whether it gives whole lines."""
        flags = termios.tcgetattr(self.file)[3]
        return bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def read(self, seconds=0.1):
        """Takes what has come; False: the program has closed its terminal."""
        if not select.select([self.file], [], [], seconds)[0]:
            return True
        try:
            block = os.read(self.file, 1 << 16)
        except OSError:
            return False
        self.raw += block
        self.take(block)
        return bool(block)

    def take(self, block):
        whole, self.waiting, at = self.waiting + self.decoder.decode(block), "", 0
        while at < len(whole):
            match = SEQUENCE.match(whole, at) if whole[at] == "\x1b" else None
            if match:
                self.control(*match.groups())
                at = match.end()
            elif whole[at] == "\x1b" and len(whole) - at < 12:
                self.waiting = whole[at:]
                return
            else:
                self.put(whole[at])
                at += 1

    def put(self, letter):
        screen = self.screens[self.now]
        if letter == "\r":
            screen.column = 0
        elif letter == "\n":
            screen.row += 1
        elif letter == "\t":
            screen.column += 8 - screen.column % 8
        elif ord(letter) < 32:
            if self.now:  # a sample that is printed on the main screen may have any
                raise ValueError(f"a control character {letter!r}")
        else:
            if self.now and (screen.row >= self.rows or screen.column >= self.columns):
                self.outside = (screen.row, screen.column, letter)
            screen.cells[screen.row, screen.column] = letter
            screen.column += 1

    def control(self, private, numbers, letter):
        screen, n = self.screens[self.now], [int(x) if x else 0 for x in numbers.split(";")]
        if private:
            on = letter == "h"
            if letter not in "hl" or n[0] not in (1049, 25, 7):
                raise ValueError(f"an unknown mode {numbers}{letter}")
            if n[0] == 1049:
                self.now = int(on)
            elif n[0] == 25:
                self.cursor = on
            else:
                self.wraps = on
        elif letter == "H":
            screen.row, screen.column = max(n[0], 1) - 1, (n[1] if len(n) > 1 else 1) - 1
        elif letter == "J" and n == [2]:
            screen.cells.clear()
        elif letter == "K" and n == [0]:
            for c in range(screen.column, 300):
                screen.cells.pop((screen.row, c), None)
        elif letter == "m":
            self.styles.append(numbers)
        elif self.now:
            raise ValueError(f"an unknown sequence {numbers}{letter}")

    def picture(self):
        return self.screens[1].text(self.rows)

    def until(self, what):
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            if what(self):
                return True
            if not self.read():
                return what(self)
        print("never came:", *self.picture(), sep="\n", flush=True)
        return False

    def end(self):
        """The exit code, or minus a signal's number; everything was read."""
        limit = time.monotonic() + WAIT
        while self.read() and time.monotonic() < limit:
            pass
        _, status = os.waitpid(self.child, 0)
        os.close(self.file)
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def send(self, number=signal.SIGTERM):
        os.kill(self.child, number)
