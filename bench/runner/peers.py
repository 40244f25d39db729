"""The libraries that are compared, with the settings that docs/benchmarks.md tells."""

import re
from dataclasses import dataclass

from .paths import BENCH


@dataclass(frozen=True)
class Peer:
    name: str
    language: str
    folder: str
    version: str
    waits: str  # how a task learns that the lock is free
    settings: str
    argument: str = ""  # what its driver takes first, where one driver is for several
    contends: bool = True


def pinned(file, pattern):
    """The version in the file that pins it."""
    found = re.search(pattern, (BENCH / file).read_text())
    return found.group(1) if found else "?"


def crate(name):
    return pinned("rust/Cargo.lock", rf'name = "{name}"\nversion = "([^"]+)"')


def module(path):
    return pinned("go/go.mod", re.escape(path) + r" v(\S+)")


OURS = "lock-runtime"
FLOOR = "two bare scripts"

PEERS = [
    Peer(
        OURS, "Rust", "rust", crate("lock-runtime"), "told by the holder's process or by the server",
        "`LockManager::builder().lease(30 s)`, `mutex(key).wait_forever()`; all else is the default, with renewal and "
        "fencing tokens. One connection for commands, one for what the server tells.",
        OURS,
    ),
    Peer(
        FLOOR, "Rust", "rust", "redis " + crate("redis"), "does not wait",
        "The floor: an `EVALSHA` that takes a hash, and one that deletes it, through the `redis` crate. Nothing renews "
        "the lock, nothing waits for it, so it is measured on keys of one's own alone. One connection, without "
        "the delay of small messages (`TCP_NODELAY`).",
        "bare", contends=False,
    ),
    Peer(
        "rslock", "Rust", "rust", crate("rslock"), "asks again after 0–200 ms",
        "`LockManager::new`, `acquire(key, 30 s)`. The pause is the default: by chance, below 200 ms, and none after "
        "every third attempt. No renewal. One connection.",
        "rslock",
    ),
    Peer(
        "distkit", "Rust", "rust", crate("distkit"), "asks again after 50 ms",
        "One `Mutex` for each task, with a TTL of 30 s, renewed every third. The pause is the default: 50 ms. One "
        "connection (`ConnectionManager`).",
        "distkit",
    ),
    Peer(
        "redsync", "Go", "go", module("github.com/go-redsync/redsync/v4"), "asks again after 50–250 ms",
        "go-redis " + module("github.com/redis/go-redis/v9") + " with its default pool, one server, `WithExpiry(30 s)`, "
        "`WithTries` without a limit. The pause is the default: by chance, from 50 ms to 250 ms. No renewal.",
        "redsync",
    ),
    Peer(
        "redislock", "Go", "go", module("github.com/bsm/redislock"), "asks again after 100 ms",
        "go-redis with its default pool, `Obtain(key, 30 s)`. By default it does not wait; the pause is that of its "
        "example, `LinearBackoff(100 ms)`. No renewal.",
        "redislock",
    ),
    Peer(
        "rueidislock", "Go", "go", module("github.com/redis/rueidis"), "told by the server (client tracking)",
        "`KeyMajority: 1` and `NoLoopTracking`, as its README recommends for one server; `KeyValidity` of 30 s, renewed "
        "every half. It has no pause. One pipelined connection.",
        "rueidislock",
    ),
    Peer(
        "Redisson", "Java", "java", pinned("java/pom.xml", r"<redisson.version>([^<]+)"),
        "told by the server (publish/subscribe)",
        "`RLock.lock()` with the default settings: a lease of 30 s, renewed every third, a pool of 24 to 64 connections. "
        "A thread for each task, for a thread is who holds. It warms up for 4 s instead of 1 s.",
    ),
    Peer(
        "node-redlock", "JavaScript", "node", pinned("node/package.json", r'"redlock": "([^"]+)'),
        "asks again after 100–300 ms",
        "ioredis " + pinned("node/package.json", r'"ioredis": "([^"]+)') + ", one server, a TTL of 30 s, `retryCount: -1`. "
        "The pause is the default: 200 ms, by chance up to 100 ms more or less. No renewal. One thread, one connection.",
    ),
    Peer(
        "redis-py", "Python", "python", pinned("python/requirements.txt", r"redis==(\S+)"), "asks again after 100 ms",
        "`redis.asyncio.lock.Lock` with a timeout of 30 s and hiredis "
        + pinned("python/requirements.txt", r"hiredis==(\S+)") + ". The pause is the default: 100 ms. No renewal. One "
        "thread; the pool may grow to 100 connections (its default) or one for each task.",
    ),
]
