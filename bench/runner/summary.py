"""Adds up: the processes of a run, then the runs of all rounds."""

from statistics import median


def of_run(lines, server):
    """One run. What the server did meanwhile is shared out among all pairs, those before and after the counted time included."""
    pairs = sum(line["pairs"] for line in lines)
    all_pairs = max(1, sum(line["all_pairs"] for line in lines))
    waits = [(line["wait_us"]["samples"], line["all_pairs"]) for line in lines]
    gaps = [(line["gap_us"], line["changes"]) for line in lines]
    tasks = [count for line in lines for count in line["per_task"]]
    return {
        "pairs": pairs,
        "pairs_per_s": round(pairs / lines[0]["seconds"], 1),
        "changes_per_s": round(sum(line["changes"] for line in lines) / lines[0]["seconds"], 1),
        "server_us": round(server.cpu_us / all_pairs, 2),
        "client_us": round(sum(line["client_cpu_us"] for line in lines) / max(1, pairs), 2),
        "commands": round(sum(server.calls.values()) / all_pairs, 2),
        "calls": called(server),
        "task_shares": shares(tasks),
        "process_shares": shares([line["pairs"] for line in lines]),
        "wait_us": {**quantiles(waits), "max": max(line["wait_us"]["max"] for line in lines)},
        "gap_us": quantiles(gaps),
        "overlaps": sum(line["overlaps"] for line in lines),
        "stuck": sum(line.get("stuck", 0) for line in lines),
        "per_task": [line["per_task"] for line in lines],
    }


def of_wait(line, server):
    """A run in which one task had the lock until all the others waited: what they cost the server until then, and how long
    it took until each had had it."""
    return {
        "had": line["pairs"],
        "commands_per_s": round(sum(server.calls.values()) / server.seconds, 1),
        "server_us_per_s": round(server.cpu_us / server.seconds, 1),
        "client_us_per_s": round(line["client_cpu_us"] / line["seconds"], 1),
        "calls": called(server),
        "drained_ms": round(line["wait_us"]["max"] / 1000, 1),
        "stuck": line.get("stuck", 0),
    }


def called(server):
    return {name: count for name, count in sorted(server.calls.items()) if count}


def shares(counts):
    """The least and the most, relative to an equal share."""
    fair = sum(counts) / len(counts)
    return [round(of(counts) / fair, 3) if fair else 0.0 for of in (min, max)]


def quantiles(groups):
    """Of groups of samples, each of which stands for so many."""
    weighted = sorted((sample, weight / len(samples)) for samples, weight in groups for sample in samples)
    total = sum(weight for _, weight in weighted)
    return {name: round(at(weighted, part * total), 1) for name, part in (("p50", 0.5), ("p99", 0.99))}


def at(weighted, position):
    for sample, weight in weighted:
        position -= weight
        if position <= 0:
            return sample
    return weighted[-1][0] if weighted else 0.0


def of_waits(results):
    """All runs of one peer in which tasks waited: the median of each figure. None if every run failed."""
    whole = [result for result in results if "failed" not in result]
    if not whole:
        return {"failed": [result["failed"] for result in results]}
    figures = ("commands_per_s", "client_us_per_s", "drained_ms", "stuck")
    return {figure: median(result[figure] for result in whole) for figure in figures}


def of_rounds(results):
    """All runs of one peer and one workload: the median of each figure. None if every run failed."""
    failed = [result["failed"] for result in results if "failed" in result]
    whole = [result for result in results if "failed" not in result]
    if not whole:
        return {"failed": failed}

    def middle(of):
        return median(map(of, whole))

    rates = [result["pairs_per_s"] for result in whole]
    return {
        "failed": failed,
        "rate": median(rates),
        "spread": (min(rates), max(rates)),
        "changes": middle(lambda result: result["changes_per_s"]),
        "server_us": middle(lambda result: result["server_us"]),
        "client_us": middle(lambda result: result["client_us"]),
        "commands": middle(lambda result: result["commands"]),
        "tasks": [middle(lambda result: result["task_shares"][end]) for end in (0, 1)],
        "processes": [middle(lambda result: result["process_shares"][end]) for end in (0, 1)],
        "wait": [middle(lambda result: result["wait_us"][part]) for part in ("p50", "p99", "max")],
        "gap": [middle(lambda result: result["gap_us"][part]) for part in ("p50", "p99")],
        "overlaps": sum(result["overlaps"] for result in whole),
        "others": middle(lambda result: result["others"] + result["stolen"]),
        "stuck": [result["stuck"] for result in whole if result["stuck"]],
        "runs": len(whole),
    }
