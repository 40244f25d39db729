"""Runs a driver once: all its processes begin at the same time, and are killed when they hang."""

import json
import subprocess
import threading
import time

READY_WITHIN = 30  # seconds
PATIENCE = 20  # seconds beyond those of the run


class Failed(Exception):
    pass


class Process:
    def __init__(self, command, look):
        self.look = look
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ready = threading.Event()
        self.said = []
        self.output = ""
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self.read_errors, self.read_output)]
        for reader in self.readers:
            reader.start()

    def read_errors(self):
        for line in self.process.stderr:
            if line.strip() == "ready":
                self.ready.set()
            elif line.strip() in ("begun", "over"):
                self.look(line.strip())
            else:
                self.said = [*self.said[-20:], line.rstrip()]
        self.ready.set()

    def read_output(self):
        self.output = self.process.stdout.read()

    def go(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.close()
        except OSError:
            pass  # It has ended: `line` says how.

    def line(self, deadline):
        try:
            code = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed("hung") from None
        for reader in self.readers:
            reader.join(5)
        if code:
            raise Failed(f"ended with {code}: " + " / ".join(self.said[-3:]))
        try:
            return json.loads(self.output.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise Failed("printed no JSON") from None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def drive(command, processes, seconds, look):
    """The line of each process. Calls `look` with "ready" when all are, before they begin, and with what they say later."""
    started = [Process(command, look) for _ in range(processes)]
    try:
        deadline = time.monotonic() + READY_WITHIN
        for process in started:
            if not process.ready.wait(max(0, deadline - time.monotonic())):
                raise Failed("hung before it began")
        look("ready")
        for process in started:
            process.go()
        deadline = time.monotonic() + seconds + PATIENCE
        return [process.line(deadline) for process in started]
    finally:
        for process in started:
            process.end()
