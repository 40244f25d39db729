"""Runs every driver in turn, round after round, and keeps what each run gave."""

import os
import sys
import tempfile
import time
from dataclasses import dataclass

from .drive import Failed, drive
from .machine import Usage, awake
from .proxy import Proxy
from .summary import of_run, of_wait


def run_all(server, drivers, workloads, rounds, seconds, asleep=False):
    """The result of each run, and how long a round trip takes, by how much longer the way was made. `drivers` is a list of pairs of peer and command."""
    proxies = {trip: Proxy(server.address, trip * 500) for trip in {load.trip_ms for load in workloads} if trip}
    results = []
    try:
        with awake(wanted=not asleep):
            trips = {"0": server.connection.round_trip_us()}
            trips.update((str(trip), proxy.round_trip_us()) for trip, proxy in sorted(proxies.items()))
        for number in range(rounds):
            for load in workloads:
                turn = number % len(drivers)
                for peer, command in drivers[turn:] + drivers[:turn]:
                    if load.kind != "own" and not peer.contends:
                        continue
                    # One round in three is enough to see what grows.
                    if not load.section and number % 3:
                        continue
                    with awake(wanted=not (load.asleep or asleep)):
                        result = run_one(server, proxies.get(load.trip_ms), command, load, seconds)
                    results.append({"round": number, "workload": load.name, "peer": peer.name, **result})
                    tell(results[-1])
    finally:
        for proxy in proxies.values():
            proxy.end()
    return results, trips


def run_one(server, proxy, command, load, seconds):
    server.ask("FLUSHALL")
    address = proxy.address if proxy else server.address
    arguments = [f"redis://{address}", load.kind, str(load.tasks), str(seconds), str(load.hold_ms)]
    pids = [server.pid] + ([proxy.pid] if proxy else [])
    with tempfile.TemporaryDirectory() as folder:
        if load.hot:
            register = os.path.join(folder, "register")
            with open(register, "wb") as file:
                file.write(bytes(24))
            arguments.append(register)
        looks = {}

        def look(word):
            looks[word] = Look(time.monotonic(), server.cpu_us(), server.calls())

        machine = Usage(pids)
        try:
            lines = drive(command + arguments, load.processes, seconds, look)
        except Failed as failed:
            return {"failed": str(failed)}
        used = Usage(pids).others_since(machine)
    if load.kind == "wait":
        return {**of_wait(lines[0], looks["over"].since(looks["begun"])), **used}
    look("ended")
    return {**of_run(lines, looks["ended"].since(looks["ready"])), **used}


@dataclass(frozen=True)
class Look:
    """What the server has done so far."""

    seconds: float
    cpu_us: float
    calls: dict

    def since(self, before):
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return Look(self.seconds - before.seconds, self.cpu_us - before.cpu_us, calls)


def tell(result):
    if "failed" in result:
        words = result["failed"]
    elif "drained_ms" in result:
        words = f"{result['commands_per_s']:10.0f} commands/s, then {result['drained_ms']:.0f} ms"
    else:
        words = f"{result['pairs_per_s']:10.0f} pairs/s"
    overlaps = f"   {result['overlaps']} OVERLAPS" if result.get("overlaps") else ""
    print(f"round {result['round'] + 1}  {result['workload']:22} {result['peer']:18} {words}{overlaps}",
          file=sys.stderr, flush=True)
