"""The runner's own program, in bench/rust/src/bin: it ends with its standard input."""

import subprocess

from .paths import RUST_PROGRAMS
from .server import Connection


class Program:
    def __init__(self, name, *arguments, **options):
        command = [str(RUST_PROGRAMS / name), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **options)
        self.pid = self.process.pid

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


class Proxy(Program):
    """The proxy that makes the way to the server longer."""

    def __init__(self, target, delay_us):
        super().__init__("delay-proxy", target, str(delay_us), stdout=subprocess.PIPE)
        self.address = self.process.stdout.readline().strip()

    def round_trip_us(self):
        host, port = self.address.split(":")
        return Connection(host, int(port)).round_trip_us()
