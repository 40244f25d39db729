"""The proxy that makes the way to the server longer. Its program is in bench/rust/src/bin, and ends with its standard input."""

import subprocess

from .paths import RUST_PROGRAMS
from .server import Connection


class Proxy:
    def __init__(self, target, delay_us):
        command = [str(RUST_PROGRAMS / "delay-proxy"), target, str(delay_us)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.address = self.process.stdout.readline().strip()

    def round_trip_us(self):
        host, port = self.address.split(":")
        return Connection(host, int(port)).round_trip_us()

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)
