"""A Redis server of its own: on a free port, without persistence, ended by its process id."""

import os
import socket
import subprocess
import tempfile
import time


class Server:
    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory()
        program = os.environ.get("REDIS_SERVER_BIN") or "redis-server"
        self.process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", self.folder.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self.connection = connected(self.port, self.process)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def ask(self, *words):
        return self.connection.ask(*words)

    def info(self, section):
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_us(self):
        """What it has used of the processors."""
        info = self.info("cpu")
        return (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])) * 1e6

    def calls(self):
        """How often each command was called, by clients or by scripts; without those that this program sends."""
        stats = self.info("commandstats")
        counts = {name.removeprefix("cmdstat_"): int(line.split(",")[0].split("=")[1]) for name, line in stats.items()}
        return {name: count for name, count in counts.items() if name not in ("info", "flushall")}

    def end(self):
        self.process.terminate()
        self.process.wait(10)
        self.folder.cleanup()


class Connection:
    """As much of the protocol as this program needs."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        parts = [word.encode() for word in words]
        message = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(message)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        raise RuntimeError(f"the server says {line!r}")

    def round_trip_us(self, pings=300):
        """The median time of a PING."""
        times = []
        for _ in range(pings):
            asked = time.perf_counter()
            self.ask("PING")
            times.append((time.perf_counter() - asked) * 1e6)
        return sorted(times)[pings // 2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connected(port, process):
    for _ in range(200):
        if process.poll() is not None:
            break
        try:
            connection = Connection("127.0.0.1", port)
            connection.ask("PING")
            return connection
        except (OSError, RuntimeError):
            time.sleep(0.05)
    raise SystemExit("The Redis server did not start.")
