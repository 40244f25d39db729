"""The proxy that makes the way to the server longer: see bench/rust/src/bin/delay-proxy.rs."""

import subprocess

from .server import Connection


class Proxy:
    def __init__(self, program, target, delay_us):
        self.process = subprocess.Popen(
            [program, target, str(delay_us)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.address = self.process.stdout.readline().strip()

    def round_trip_us(self):
        host, port = self.address.split(":")
        return Connection(host, int(port)).round_trip_us()

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)
