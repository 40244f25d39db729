"""The machine: what it is, and who uses its processors."""

import os
import platform
import re
import resource
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def describe(server):
    model = re.search(r"model name\s*:\s*(.+)", read("/proc/cpuinfo"))
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        # Without the name that a distribution or a host gives its build.
        "kernel": ".".join(platform.release().split(".")[:2]),
        "server": "Redis " + server.info("server")["redis_version"],
        "tools": {name: said for name, said in map(version, TOOLS) if said},
    }


TOOLS = [
    ("Rust", ["rustc", "--version"]),
    ("Go", ["go", "version"]),
    ("Java", ["java", "--version"]),
    ("Node.js", ["node", "--version"]),
    ("Python", ["python3", "--version"]),
]


def version(tool):
    name, command = tool
    if not shutil.which(command[0]):
        return name, None
    said = subprocess.run(command, text=True, capture_output=True, cwd=Path(__file__).parent).stdout
    number = re.search(r"\d+\.\d+(\.\d+)?", said)
    return name, number.group(0) if number else None


@contextmanager
def awake(wanted=True):
    """Has the kernel keep idle processors awake, where it can: they look for work in a loop. Says whether it does.

    A program that spins on each processor would not do, even if it runs only while nobody else wants the processor: the
    kernel takes no processor for idle then, and has threads wait behind others for milliseconds.
    """
    request = None
    # Other idle states than this one sleep.
    if wanted and read("/sys/devices/system/cpu/cpu0/cpuidle/state0/name").strip() == "POLL":
        try:
            # Root alone may open it.
            request = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
        except OSError:
            pass
    try:
        if request is not None:
            # The longest time to wake, in µs, for as long as the file is open.
            os.write(request, bytes(4))
        yield request is not None
    finally:
        if request is not None:
            os.close(request)


class Usage:
    """What the whole machine, and what all of ours, have used so far; in seconds."""

    def __init__(self, pids):
        ticks = [int(word) / TICKS for word in read("/proc/stat").split("\n", 1)[0].split()[1:9]]
        user, nice, system, idle, waiting, interrupts, soft, stolen = ticks
        self.busy = user + nice + system + interrupts + soft
        self.stolen = stolen
        self.all = sum(ticks)
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.ours = sum(used.ru_utime + used.ru_stime for used in ours) + sum(map(process_time, pids))

    def others_since(self, before):
        """The parts of all processors that others have used, and that the host has kept."""
        length = max(self.all - before.all, 1 / TICKS)
        others = (self.busy - before.busy) - (self.ours - before.ours)
        return {"others": max(0.0, others / length), "stolen": (self.stolen - before.stolen) / length}


def process_time(pid):
    fields = read(f"/proc/{pid}/stat").rsplit(")", 1)[-1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""
