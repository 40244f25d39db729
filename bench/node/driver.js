// Acquires and releases locks with node-redlock, and prints what it measured as one line of JSON.
//
// driver.js URL WORKLOAD TASKS SECONDS HOLD_MS [REGISTER]: see bench/README.md.
import { readSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

import { Recorder, quantile, thinned } from "./recorder.js";
import { Register } from "./register.js";

const require = createRequire(import.meta.url);
const { default: Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const WARM_UP = 1000; // the same load runs for so long before anything is counted
const LEASE = 30_000;
const SAMPLES = 2000;
// In "wait", one task keeps the lock for so long after it has said that the time is over, so that the runner can look at
// the server.
const LOOK = 300;

const [url, workload, tasks, seconds, holdMs, path] = process.argv.slice(2);
const hold = Number(holdMs);
const redis = new Redis(url);
await redis.ping();
// The pause between two attempts is the default: 200 ms, and by chance up to 100 ms more or less. It never gives up.
const redlock = new Redlock([redis], { retryCount: -1 });
const keys = Array.from({ length: Number(tasks) }, (_, task) => [workload === "own" ? `bench:own:${task}` : "bench:hot"]);

process.stderr.write("ready\n");
waitForALine();
const register = path ? new Register(path) : null;
const waiting = workload === "wait";
const held = waiting ? await redlock.acquire(["bench:hot"], LEASE) : null;
const start = performance.now() + WARM_UP;
const end = start + Number(seconds) * 1000;
const waits = new Recorder();
const gaps = new Recorder();
const tallies = keys.map(() => ({ pairs: 0, allPairs: 0, overlaps: 0, changes: 0 }));
const running = keys.map((key, task) => (waiting ? once : cycle)(key, tallies[task]));
await sleep(start - performance.now());
const before = process.cpuUsage();
if (waiting) process.stderr.write("begun\n");
await sleep(end - performance.now());
const cpu = process.cpuUsage(before);
if (waiting) {
  process.stderr.write("over\n");
  await sleep(end + LOOK - performance.now());
  await held.release();
}
await Promise.all(running);
redis.disconnect();
report();

async function cycle(key, tally) {
  for (;;) {
    const asked = performance.now();
    if (asked >= end) return;
    const lock = await redlock.acquire(key, LEASE);
    const acquired = performance.now();
    const counts = acquired >= start;
    if (register) {
      const { overlap, gap } = register.enter();
      if (overlap) tally.overlaps += 1;
      if (gap !== null && counts) {
        gaps.add(gap / 1000);
        tally.changes += 1;
      }
    }
    if (hold > 0) await sleep(hold);
    if (register?.leave()) tally.overlaps += 1;
    await lock.release();
    const released = performance.now();
    tally.allPairs += 1;
    if (released >= start && released < end) tally.pairs += 1;
    if (counts) waits.add((acquired - asked) * 1000);
  }
}

// Waits for the one who has the lock, has it once, and tells how long after the release everybody before it was done.
async function once(key, tally) {
  const lock = await redlock.acquire(key, LEASE);
  await lock.release();
  waits.add(Math.max(0, performance.now() - end - LOOK) * 1000);
  tally.pairs = tally.allPairs = 1;
}

function waitForALine() {
  const byte = Buffer.alloc(1);
  while (readSync(0, byte, 0, 1, null) === 1 && byte[0] !== 10);
}

function report() {
  const wait = waits.sorted();
  const sum = (field) => tallies.reduce((total, tally) => total + tally[field], 0);
  const line = {
    pairs: sum("pairs"),
    all_pairs: sum("allPairs"),
    seconds: Number(seconds),
    per_task: tallies.map((tally) => tally.pairs),
    client_cpu_us: cpu.user + cpu.system,
    wait_us: {
      p50: quantile(wait, 0.5),
      p99: quantile(wait, 0.99),
      max: waits.longest,
      samples: thinned(wait, SAMPLES),
    },
    gap_us: thinned(gaps.sorted(), SAMPLES),
    changes: sum("changes"),
    overlaps: sum("overlaps"),
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
