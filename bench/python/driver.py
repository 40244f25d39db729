"""Acquires and releases locks with redis-py, and prints what it measured as one line of JSON.

driver.py URL WORKLOAD TASKS SECONDS HOLD_MS [REGISTER]: see bench/README.md.
"""

import asyncio
import json
import sys
import time

from redis.asyncio import Redis
from redis.asyncio.lock import Lock

from recorder import Recorder, quantile, thinned
from register import Register

WARM_UP = 1.0  # the same load runs for so long before anything is counted
LEASE = 30.0
SAMPLES = 2000
# In "wait", one task keeps the lock for so long after it has said that the time is over, so that the runner can look at
# the server.
LOOK = 0.3


class Session:
    def __init__(self, seconds, hold, register):
        self.start = time.perf_counter() + WARM_UP
        self.end = self.start + seconds
        self.hold = hold
        self.register = register
        self.waits = Recorder()
        self.gaps = Recorder()


class Tally:
    pairs = 0
    all_pairs = 0
    overlaps = 0
    changes = 0  # counted holds that came after one of another process


async def cycle(lock, session, tally):
    now = time.perf_counter
    while (asked := now()) < session.end:
        await lock.acquire()
        acquired = now()
        counts = acquired >= session.start
        if session.register:
            overlap, gap = session.register.enter()
            tally.overlaps += overlap
            if gap is not None and counts:
                session.gaps.add(gap / 1e3)
                tally.changes += 1
        if session.hold:
            await asyncio.sleep(session.hold)
        if session.register:
            tally.overlaps += session.register.leave()
        await lock.release()
        tally.all_pairs += 1
        tally.pairs += session.start <= now() < session.end
        if counts:
            session.waits.add((acquired - asked) * 1e6)


async def once(lock, session, tally):
    """Waits for the one who has the lock, has it once, and tells how long after the release everybody before it was done."""
    await lock.acquire()
    await lock.release()
    session.waits.add(max(0, time.perf_counter() - session.end - LOOK) * 1e6)
    tally.pairs = tally.all_pairs = 1


async def main(url, workload, tasks, seconds, hold_ms, register=None):
    # Its pool refuses a task that finds no connection free, so it is as large as it has to be.
    redis = Redis.from_url(url, max_connections=max(100, int(tasks) + 1))
    await redis.ping()
    keys = [f"bench:own:{task}" if workload == "own" else "bench:hot" for task in range(int(tasks))]
    # The pause between two attempts is the default: 100 ms. A lock of its own for every task, so nothing is local
    # to a thread.
    locks = [Lock(redis, key, timeout=LEASE, thread_local=False) for key in keys]

    print("ready", file=sys.stderr, flush=True)
    sys.stdin.readline()
    waits = workload == "wait"
    holder = Lock(redis, "bench:hot", timeout=LEASE, thread_local=False)
    if waits:
        await holder.acquire()
    session = Session(float(seconds), float(hold_ms) / 1e3, Register(register) if register else None)
    tallies = [Tally() for _ in locks]
    running = [asyncio.create_task((once if waits else cycle)(*task)) for task in zip(locks, [session] * len(locks), tallies)]
    await asyncio.sleep(session.start - time.perf_counter())
    before = time.process_time_ns()
    if waits:
        print("begun", file=sys.stderr, flush=True)
    await asyncio.sleep(session.end - time.perf_counter())
    cpu = time.process_time_ns() - before
    if waits:
        print("over", file=sys.stderr, flush=True)
        await asyncio.sleep(session.end + LOOK - time.perf_counter())
        await holder.release()
    await asyncio.gather(*running)

    wait = session.waits.sorted()
    print(json.dumps({
        "pairs": sum(tally.pairs for tally in tallies),
        "all_pairs": sum(tally.all_pairs for tally in tallies),
        "seconds": float(seconds),
        "per_task": [tally.pairs for tally in tallies],
        "client_cpu_us": cpu // 1000,
        "wait_us": {
            "p50": quantile(wait, 0.5),
            "p99": quantile(wait, 0.99),
            "max": session.waits.longest,
            "samples": thinned(wait, SAMPLES),
        },
        "gap_us": thinned(session.gaps.sorted(), SAMPLES),
        "changes": sum(tally.changes for tally in tallies),
        "overlaps": sum(tally.overlaps for tally in tallies),
    }))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
