"""Runs every driver in turn, round after round, and keeps what each run gave."""

import os
import sys
import tempfile

from . import build
from .drive import Failed, drive
from .machine import Usage
from .proxy import Proxy
from .summary import of_run
from .workloads import DELAY_US


def run_all(server, drivers, workloads, rounds, seconds):
    """The result of each run, and how long a round trip took. `drivers` is a list of pairs of peer and command."""
    proxy = Proxy(build.proxy(), server.address, DELAY_US) if any(load.delayed for load in workloads) else None
    trips = {"direct": server.connection.round_trip_us()}
    if proxy:
        trips["delayed"] = proxy.round_trip_us()
    results = []
    try:
        for number in range(rounds):
            for load in workloads:
                turn = number % len(drivers)
                for peer, command in drivers[turn:] + drivers[:turn]:
                    if load.hot and not peer.contends:
                        continue
                    result = run_one(server, proxy, command, load, seconds)
                    results.append({"round": number, "workload": load.name, "peer": peer.name, **result})
                    tell(results[-1])
    finally:
        if proxy:
            proxy.end()
    return results, trips


def run_one(server, proxy, command, load, seconds):
    server.ask("FLUSHALL")
    address = proxy.address if load.delayed else server.address
    arguments = [f"redis://{address}", load.kind, str(load.tasks), str(seconds)]
    pids = [server.pid] + ([proxy.pid] if proxy else [])
    with tempfile.TemporaryDirectory() as folder:
        if load.hot:
            register = os.path.join(folder, "register")
            with open(register, "wb") as file:
                file.write(bytes(24))
            arguments.append(register)
        before = {}

        def look():
            before.update(cpu=server.cpu_us(), calls=server.calls())

        machine = Usage(pids)
        try:
            lines = drive(command + arguments, load.processes, seconds, look)
        except Failed as failed:
            return {"failed": str(failed)}
        used = Usage(pids).others_since(machine)
    calls = {name: count - before["calls"].get(name, 0) for name, count in server.calls().items()}
    return {**of_run(lines, server.cpu_us() - before["cpu"], calls), **used}


def tell(result):
    words = f"{result['pairs_per_s']:10.0f} pairs/s" if "failed" not in result else result["failed"]
    overlaps = f"   {result['overlaps']} OVERLAPS" if result.get("overlaps") else ""
    print(f"round {result['round'] + 1}  {result['workload']:22} {result['peer']:18} {words}{overlaps}",
          file=sys.stderr, flush=True)
