"""Writes docs/benchmarks.md: bench/runner/page.md with the tables and lists in their places."""

from statistics import median

from .chart import chart, lines
from .paths import BENCH
from .summary import of_rounds, of_waits
from .tables import growth_of_changes, growth_of_rates, growth_of_waits, notes, table, verdict
from .workloads import WORKLOADS

AWAKE = "So the kernel keeps the processors awake meanwhile: it is asked for a latency of 0 µs through `/dev/cpu_dma_latency`"
SLEEPING = "They **were not kept awake** in this run: the kernel must have an idle state that polls, and only root may ask for it through `/dev/cpu_dma_latency`"


def write(folder, run, peers, loads):
    """Into this folder: benchmarks.md, and benchmarks/ with the charts."""
    charts = folder / "benchmarks"
    charts.mkdir(parents=True, exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    sections = [section(run, peers, load, charts) for load in loads if load.section]
    own = sorted((load for load in loads if load.growth and load.kind == "own"), key=lambda load: load.tasks)
    rates = growth(run, peers, own, of_rounds)
    few = growth(run, peers, [load for load in own if load.tasks <= 64], of_rounds)
    (charts / "own-few.svg").write_text(lines("Keys of one's own", "tasks", *few))
    lone = sorted((load for load in loads if load.lone), key=lambda load: load.processes)
    changes = growth(run, peers, lone, of_rounds)
    waits = growth(run, peers, [load for load in loads if load.kind == "wait"], of_waits)
    others = [result["others"] + result["stolen"] for result in run["results"] if "failed" not in result]
    machine = run["machine"]
    values = {
        "date": run["date"],
        "commit": run["commit"],
        "cpu": machine["cpu"],
        "cores": machine["cores"],
        "kernel": machine["kernel"],
        "server": machine["server"],
        "awake": AWAKE if machine.get("awake") else SLEEPING,
        "tools": ", ".join(f"{name} {number}" for name, number in machine["tools"].items()),
        "rounds": run["rounds"],
        "seconds": f"{run['seconds']:g}",
        "others": f"{median(others):.0%} of the processors' time (median of the runs; at most {max(others):.0%})" if others else "nothing",
        "trips": trips(run["round_trip_us"]),
        "sections": "\n\n".join(sections),
        "growth_of_rates": growth_of_rates(*rates),
        "growth_of_changes": growth_of_changes(*changes),
        "growth_of_waits": growth_of_waits(*waits),
        "peers": "\n".join(f"| {peer.name} | {peer.language} | {peer.version} | {peer.waits} | {peer.settings} |" for peer in peers),
        "missing": missing(run["missing"]),
        "overlaps": overlaps(run["results"]),
    }
    text = (BENCH / "runner" / "page.md").read_text()
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", str(value))
    (folder / "benchmarks.md").write_text(text)


def results_of(run, peer, workload):
    return [result for result in run["results"] if (result["workload"], result["peer"]) == (workload, peer.name)]


def growth(run, peers, loads, add_up):
    """The workloads, and for each peer that ran them the figures of each."""
    rows = []
    for peer in peers:
        results = [results_of(run, peer, load.name) for load in loads]
        if any(results):
            rows.append((peer, [add_up(each) if each else {"failed": ["not run"]} for each in results]))
    return loads, rows


def section(run, peers, load, charts):
    rows = []
    for peer in peers:
        results = results_of(run, peer, load.name)
        if results:
            rows.append((peer, of_rounds(results)))
    rows.sort(key=lambda row: -row[1].get("rate", -1))
    alone = rates_alone(run, peers, load)
    bars = [(peer.name, figures) for peer, figures in rows if "rate" in figures]
    if not bars:
        return f"### {load.title}\n\nEvery run failed."
    (charts / f"{load.name}.svg").write_text(chart(load.title, bars))
    parts = [f"### {load.title}", verdict(load, rows, alone), f"![{load.title}](benchmarks/{load.name}.svg)",
             table(load, rows, alone), notes(rows)]
    return "\n\n".join(part for part in parts if part)


def rates_alone(run, peers, load):
    """The rate of one task with the same holds, by peer."""
    runs = {peer.name: results_of(run, peer, load.alone) for peer in peers}
    return {name: of_rounds(results).get("rate") for name, results in runs.items() if results}


def trips(times):
    times = dict(times)
    words = f"A `PING` takes {times.pop('0'):.0f} µs"
    longer = [f"{time / 1000:.2f} ms by the way that is {trip} ms longer" for trip, time in times.items()]
    return ", ".join([words, *longer])


def missing(reasons):
    if not reasons:
        return "Every peer was installed."
    return "Not installed:\n\n" + "\n".join(f"- {name}: {reason}" for name, reason in reasons.items())


def overlaps(results):
    hot = {load.name for load in WORKLOADS if load.hot}
    contended = [result for result in results if "failed" not in result and result["workload"] in hot]
    pairs = sum(result["pairs"] for result in contended)
    found = sum(result["overlaps"] for result in contended)
    told = "no two holders at once" if not found else f"**{found} overlaps**"
    return f"{told} in {pairs:,} counted pairs of {len(contended)} contended runs"
