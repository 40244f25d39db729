"""Compares this library with its peers, and writes docs/benchmarks.md. Run by scripts/bench."""

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

from runner import build, machine, page, rounds
from runner.paths import BENCH, BUILDS, REPOSITORY
from runner.peers import OURS, PEERS
from runner.server import Server
from runner.workloads import WORKLOADS


def main():
    options = parse()
    if options.page:
        return write_page_again(options)
    peers = chosen(options.only, PEERS)
    loads = chosen(options.workload, WORKLOADS)
    drivers, missing = built(peers)
    if not drivers:
        raise SystemExit("No driver was built.")

    version = commit()
    server = Server()
    try:
        with machine.awake(wanted=not options.cores_asleep) as awake:
            about = {**machine.describe(server), "awake": awake}
        results, trips = rounds.run_all(server, drivers, loads, options.rounds, options.seconds, options.cores_asleep)
    finally:
        server.end()
    run = {
        "date": datetime.date.today().isoformat(),
        "commit": version,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": about,
        "versions": {peer.name: peer.version for peer, _ in drivers},
        "missing": missing,
        "round_trip_us": trips,
        "results": results,
    }
    write(options, run, [peer for peer, _ in drivers], loads)
    sys.exit(1 if any(result.get("overlaps") for result in results) else 0)


def parse():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="7 rounds of 10 s instead of 3 of 2 s")
    parser.add_argument("--only", help="these peers: " + ", ".join(peer.name for peer in PEERS))
    parser.add_argument("--workload", help="these workloads: " + ", ".join(load.name for load in WORKLOADS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cores-asleep", action="store_true", help="let idle processors sleep, as most machines do, in every run")
    parser.add_argument("--out", type=Path, help="where the page and the results go, instead of docs and bench/results")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page of the newest results again")
    options = parser.parse_args()
    options.rounds = options.rounds or (7 if options.full else 3)
    options.seconds = options.seconds or (10 if options.full else 2)
    if options.out is None and (options.only or options.workload or options.cores_asleep):
        options.out = BUILDS / "part"  # The page in the repository is of whole runs alone, on processors that are kept awake.
    return options


def write_page_again(options):
    run = json.loads(((options.out or BENCH / "results") / "newest.json").read_text())
    measured = {(result["peer"], result["workload"]) for result in run["results"]}
    peers = [peer for peer in PEERS if any(peer.name == name for name, _ in measured)]
    loads = [load for load in WORKLOADS if any(load.name == name for _, name in measured)]
    page.write(options.out or REPOSITORY / "docs", run, peers, loads)


def chosen(names, everything):
    if not names:
        return everything
    wanted = [name.strip() for name in names.split(",")]
    known = [each.name for each in everything]
    for name in wanted:
        if name not in known:
            raise SystemExit(f"Nothing is called {name!r}; there are: {', '.join(known)}")
    return [each for each in everything if each.name in wanted]


def built(peers):
    """The peers whose drivers were built, with their commands; and why the others were not."""
    commands, missing, drivers = {}, {}, []
    # The proxy is in this folder too.
    for folder in dict.fromkeys(["rust", *(peer.folder for peer in peers)]):
        try:
            commands[folder] = build.build(folder)
        except build.Missing as reason:
            missing.update({peer.name: str(reason) for peer in peers if peer.folder == folder})
    for peer in peers:
        if peer.folder in commands:
            drivers.append((peer, commands[peer.folder] + [peer.argument][: bool(peer.argument)]))
        else:
            print(f"{peer.name}: not installed: {missing[peer.name]}", file=sys.stderr)
    if "rust" not in commands:
        raise SystemExit(f"{OURS} itself and the proxy need Rust.")
    return drivers, missing


def commit():
    """The commit, and whether the library differs from it."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=REPOSITORY, text=True, capture_output=True).stdout.strip()

    changed = git("status", "--porcelain", "lock-runtime", "bench/rust")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")


def write(options, run, peers, loads):
    pages = options.out or REPOSITORY / "docs"
    results = (options.out or BENCH / "results") / "newest.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    runs = run.pop("results")
    head = json.dumps(run, indent=1, ensure_ascii=False)[:-2]
    lines = ",\n".join("  " + json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in runs)
    results.write_text(f'{head},\n "results": [\n{lines}\n ]\n}}\n')
    run["results"] = runs
    page.write(pages, run, peers, loads)
    print(f"written: {pages / 'benchmarks.md'} and {results}", file=sys.stderr)


if __name__ == "__main__":
    main()
